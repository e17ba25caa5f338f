"""The GPUs that the program knows by name: what they reach, what fits on one of their SMs, and what exchanges reach between them."""

from __future__ import annotations

import re
from typing import Literal, get_args

from msgspec import field

from diagnose.knowledge.data import Strict
from diagnose.knowledge.rule_files import packaged, parse

Maker = Literal["nvidia", "amd"]


class Platform(Strict, frozen=True, kw_only=True):
    """One GPU product. Peaks are dense TFLOP/s; None where no trustworthy figure is public."""

    pattern: str
    architecture: str
    maker: Maker = "nvidia"
    compute_major: int | None
    compute_minor: int | None
    nvlink_domain: int | None
    gpus_per_node: int | None
    sm_count: int | None
    memory_gb: float | None
    memory_tb_per_s: float | None
    nvlink_gb_per_s: float | None = None  # one way, all links of one GPU together
    network_gb_per_s: float | None = None  # one way, of a GPU's port between nodes
    peak_tflops: dict[str, float]
    sources: tuple[str, ...]
    note: str = ""


class SmLimits(Strict, frozen=True, kw_only=True):
    """What fits on one SM at once, by compute capability."""

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    register_unit: int
    shared_unit: int
    reserved_shared_bytes: int


class ExchangeLibrary(Strict, frozen=True, kw_only=True):
    """What a library reaches that takes over an exchange, at the best, the likely and the worst end.

    Shares of the network port and of NVLink; `relay`: GB/s of what is handed on inside a node after it came over the network. Without
    these two it exchanges inside NVLink alone, shares of a tensor between tensor-parallel ranks. `nvlink_on`: shares of NVLink by a GPU's
    architecture, where they are other ones.
    """

    nvlink: tuple[float, float, float]
    nvlink_on: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    port: tuple[float, float, float] | None = None
    relay: tuple[float, float, float] | None = None

    def nvlink_of(self, platform: Platform) -> tuple[float, float, float]:
        """Shares of NVLink that it reaches on a GPU."""
        return self.nvlink_on.get(platform.architecture, self.nvlink)


class Platforms(Strict, frozen=True, kw_only=True):
    """The platform table; the first pattern that is found in a GPU's name wins."""

    platforms: dict[str, Platform]
    exchange_libraries: dict[str, ExchangeLibrary]
    all_to_all_nvlink: float  # share of NVLink that an all-to-all by NCCL reaches
    sm_limits: dict[str, SmLimits]
    sm_limits_source: tuple[str, ...]


PLATFORM_FACTS = ("platform", "gpu_compute_major", "nvlink_domain")


def load_platforms() -> Platforms:
    """The program's own table. Raises RuleFileError."""
    return parse(packaged("platforms.yaml"), Platforms)


def maker_of(named: str | None, platforms: Platforms) -> Maker | None:
    """Who makes a GPU that is named by its platform key or its product's name, or with its maker; None for an unknown name."""
    if named is None:
        return None
    key = named.lower() if named.lower() in platforms.platforms else platform_of(named, platforms)
    told = next((one for one in get_args(Maker) if re.search(rf"\b{one}\b", named, re.IGNORECASE)), None)
    return told if key is None else platforms.platforms[key].maker


def platform_of(gpu_name: str | None, platforms: Platforms) -> str | None:
    """Platform key of a GPU as a trace names it; None for an unknown name, never a guess."""
    if gpu_name is None:
        return None
    plain = gpu_name.upper()
    words = {key: rf"(?<![A-Z0-9]){re.escape(platform.pattern.upper())}(?![A-Z0-9])" for key, platform in platforms.platforms.items()}
    return next((key for key, pattern in words.items() if re.search(pattern, plain)), None)
