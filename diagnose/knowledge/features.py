"""The names by which a trace proves that a configured feature runs (trace_rules/features.yaml)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from diagnose.knowledge.data import checked, contents

FILE = "features.yaml"


class Feature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One proof: regular expressions, and what a match means."""

    meaning: str
    patterns: tuple[str, ...]


class _Features(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; every name that the program asks for has to be there."""

    narrow_gemm: Feature
    fp4_gemm: Feature
    wide_gemm: Feature
    forward_product: Feature
    backward_product: Feature
    narrow_reduction: Feature
    wide_reduction: Feature
    fused_router: Feature
    fused_permutation: Feature
    row_padding: Feature
    unfused_update: Feature
    unfused_loss: Feature
    fused_exchange: Feature
    lost_events: Feature
    out_of_memory: Feature
    hierarchical_groups: Feature
    context_groups: Feature
    interleaved_schedule: Feature
    fp32_product: Feature
    cast: Feature
    python: Feature
    training: Feature
    fsdp: Feature
    megatron: Feature


Features: TypeAlias = Mapping[str, re.Pattern[str]]


def load_features(data: bytes | None = None) -> Features:
    """One compiled expression per feature, of a file's bytes (the program's own file by default). Raises RuleFileError."""
    with checked(FILE, effect="Nothing was analysed, because it could not be told which features run."):
        found = contents(FILE, _Features, data)
        return {name: _compiled(feature) for name, feature in msgspec.structs.asdict(found).items()}


def _compiled(feature: Feature) -> re.Pattern[str]:
    """One expression for all patterns; a leading `(?i)` holds for its own pattern alone."""
    scoped = (f"(?i:{pattern.removeprefix('(?i)')})" if pattern.startswith("(?i)") else pattern for pattern in feature.patterns)
    return re.compile("|".join(f"(?:{pattern})" for pattern in scoped))


def matching(pattern: re.Pattern[str], names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that prove the feature with that expression."""
    return frozenset(name for name in names if pattern.search(name))
