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


# The whole file; every name that the program asks for has to be there.
_NAMES = (
    "narrow_gemm", "fp4_gemm", "wide_gemm", "forward_product", "backward_product", "backward_softmax", "narrow_reduction", "wide_reduction",
    "fused_router", "fused_permutation", "row_padding", "unfused_update", "unfused_loss", "fused_exchange", "lost_events", "out_of_memory",
    "hierarchical_groups", "context_groups", "interleaved_schedule", "fp32_product", "cast", "layout_copy", "python", "training", "fsdp",
    "megatron",
)  # fmt: skip
_Features = msgspec.defstruct("_Features", [(name, Feature) for name in _NAMES], frozen=True, kw_only=True, forbid_unknown_fields=True)
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
