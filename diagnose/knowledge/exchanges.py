"""What an exchange between ranks does, by its name (trace_rules/exchanges.yaml)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from diagnose.knowledge.data import checked, contents
from diagnose.model.vocabulary import CommKind

FILE = "exchanges.yaml"
Shape = Literal["all_to_all", "all_gather", "reduce_scatter", "all_reduce", "rooted", "sync", "pairwise", "own"]


class ExchangeName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation. `kinds`: only for exchanges of these kinds (none listed: all)."""

    id: str
    shape: Shape
    patterns: tuple[str, ...]
    kinds: tuple[CommKind, ...] = ()


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operations: tuple[ExchangeName, ...]


OTHER = ExchangeName(id="other", shape="rooted", patterns=())
ExchangeNames: TypeAlias = Sequence[tuple[ExchangeName, tuple[re.Pattern[str], ...]]]


def load_exchange_names(data: bytes | None = None) -> ExchangeNames:
    """All operations with their compiled patterns, of a file's bytes (the program's own file by default). Raises RuleFileError."""
    with checked(FILE, effect="Nothing was analysed, because exchanges could not be told apart."):
        found = contents(FILE, _File, data)
        return tuple((entry, tuple(re.compile(pattern) for pattern in entry.patterns)) for entry in found.operations)


def operation_of(names: ExchangeNames, kind: str, collective: str | None, kernel: str) -> ExchangeName:
    """The operation of an exchange of `kind`: by the library's description of the call, else by the kernel's name."""
    for text in (collective, kernel):
        for entry, patterns in names if text else ():
            if (not entry.kinds or kind in entry.kinds) and any(pattern.search(text or "") for pattern in patterns):
                return entry
    return OTHER


def bus_factor(shape: Shape, members: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests count them (doc/PERFORMANCE.md); None where no bandwidth is claimed."""
    if members < 2:
        return None
    if shape == "all_reduce":
        return 2 * (members - 1) / members
    return (members - 1) / members if shape in ("all_gather", "reduce_scatter", "all_to_all") else None
