"""The names by which a trace proves that a configured feature runs (trace_rules/features.yaml)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from diagnose.knowledge.data import checked, converted, packaged

FILE = "features.yaml"
FeatureName = Literal["narrow_gemm", "wide_gemm", "fused_router", "fused_permutation", "hierarchical_groups", "context_groups"]


class Feature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One proof: regular expressions, and what a match means."""

    meaning: str
    patterns: tuple[str, ...]


class _Features(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; every name that the program asks for has to be there."""

    narrow_gemm: Feature
    wide_gemm: Feature
    fused_router: Feature
    fused_permutation: Feature
    hierarchical_groups: Feature
    context_groups: Feature


Features: TypeAlias = Mapping[FeatureName, re.Pattern[str]]


def load_features(data: bytes | None = None) -> Features:
    """One compiled expression per feature, of a file's bytes (the program's own file by default). Raises RuleFileError."""
    with checked(
        FILE,
        effect="Nothing was analysed, because it could not be told which features run.",
        next_step="Correct the file; the comments at its top explain the fields.",
    ):
        found = converted(packaged(FILE) if data is None else data, _Features)
        return MappingProxyType(
            {
                "narrow_gemm": _compiled(found.narrow_gemm),
                "wide_gemm": _compiled(found.wide_gemm),
                "fused_router": _compiled(found.fused_router),
                "fused_permutation": _compiled(found.fused_permutation),
                "hierarchical_groups": _compiled(found.hierarchical_groups),
                "context_groups": _compiled(found.context_groups),
            }
        )


def _compiled(feature: Feature) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_scoped(pattern)})" for pattern in feature.patterns))


def _scoped(pattern: str) -> str:
    """A leading `(?i)` holds for its own pattern alone."""
    return f"(?i:{pattern.removeprefix('(?i)')})" if pattern.startswith("(?i)") else pattern


def matching(pattern: re.Pattern[str], names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that prove the feature with that expression."""
    return frozenset(name for name in names if pattern.search(name))
