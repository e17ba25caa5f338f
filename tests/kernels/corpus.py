"""The corpus of kernel names: its libraries, how they were drawn into two parts, and the labels. README.md beside tells how it is made."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

FOLDER = Path(__file__).parent
SEED, SHARE = 14, 3  # one library in SHARE is set aside


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """A library whose kernels are named."""

    repository: str
    commit: str
    kinds: tuple[str, ...]  # what the draw has to spread: dispatch, loss, expert GEMM, activation, router, attention, AMD's
    known: bool = False  # its names have been used to write rules before: it can't be set aside
    aside: bool = False  # what `draw` said


def libraries(path: Path = FOLDER / "libraries.yaml") -> dict[str, Library]:
    """All libraries by name."""
    return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), dict[str, Library])


def draw(found: dict[str, Library]) -> frozenset[str]:
    """The libraries set aside: a third of all, from those not known before, so that a third of each kind's libraries lies on either side."""
    free = sorted(name for name, one in found.items() if not one.known)
    kinds = sorted({kind for name in free for kind in found[name].kinds})
    generator = random.Random(SEED)
    for _ in range(100_000):
        taken = frozenset(generator.sample(free, len(found) // SHARE))
        if all(_spread(taken, free, found, kind) for kind in kinds):
            return taken
    raise AssertionError("no such draw")


def _spread(taken: frozenset[str], free: Sequence[str], found: dict[str, Library], kind: str) -> bool:
    having = [name for name in free if kind in found[name].kinds]
    aside = sum(name in taken for name in having)
    return len(having) / SHARE <= aside <= len(having) - 1
