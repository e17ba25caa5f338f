"""Overlap gained and lost: transport by kind and backend, how much of it ran beside compute in both runs."""

from __future__ import annotations

from fractions import Fraction

from diagnose.document.comparison import OverlapChange
from diagnose.document.device import Communication
from diagnose.document.diagnosis import Diagnosis
from diagnose.model.vocabulary import COMM_KINDS, CommKind

_Key = tuple[CommKind, str]


def overlap(
    base: Diagnosis, new: Diagnosis, places: tuple[tuple[int, int], tuple[int, int]], scale: Fraction = Fraction(1)
) -> tuple[OverlapChange, ...]:
    """The exchanges whose time or overlap changed, most exposed change first. One that a side does not run has nought there: the document lists all that ran."""
    here, there = _rows(base, places[0]), _rows(new, places[1])
    keys = sorted({*here, *there}, key=lambda key: (COMM_KINDS.index(key[0]), key[1]))
    found = [_change(key, here.get(key), there.get(key), scale) for key in keys]
    changed = [row for row in found if (row.base_busy_ns, row.base_exposed_ns) != (row.new_busy_ns, row.new_exposed_ns)]
    return tuple(sorted(changed, key=lambda row: -abs(row.new_exposed_ns - row.base_exposed_ns)))


def _rows(document: Diagnosis, place: tuple[int, int]) -> dict[_Key, Communication]:
    return {(row.kind, row.backend): row for row in document.communication if (row.rank, row.device) == place}


def _change(key: _Key, here: Communication | None, there: Communication | None, scale: Fraction) -> OverlapChange:
    busy = round(there.busy_ns * scale) if there is not None else 0
    exposed = round(there.exposed_ns * scale) if there is not None else 0
    hidden = here.overlap if here is not None else None
    return OverlapChange(
        kind=key[0],
        backend=key[1],
        base_busy_ns=here.busy_ns if here is not None else 0,
        new_busy_ns=busy,
        base_exposed_ns=here.exposed_ns if here is not None else 0,
        new_exposed_ns=exposed,
        base_overlap=hidden,
        new_overlap=there.overlap if there is not None else None,
        lost_ns=None if hidden is None or there is None else max(0, round(exposed - busy * (1 - hidden))),
    )
