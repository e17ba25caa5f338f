"""Findings and walls of both runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from diagnose.document.comparison import FindingChange, FindingState, WallChange
from diagnose.document.diagnosis import Diagnosis, Finding
from diagnose.model.vocabulary import Level
from diagnose.reason.compare.limits import load_limits
from diagnose.reason.setting_places import SettingPlace, place_of

_LEVELS: Mapping[Level, int] = {"low": 0, "medium": 1, "high": 2}
_STATES: tuple[FindingState, ...] = ("new", "worse", "better", "gone", "not_assessed", "same")


def walls(base: Diagnosis, new: Diagnosis, scale: Fraction = Fraction(1)) -> tuple[WallChange, ...]:
    """The bounds of all walls that either run tells."""
    here = {wall.wall: wall.bound_ns for wall in base.walls}
    there = {wall.wall: None if wall.bound_ns is None else round(wall.bound_ns * scale) for wall in new.walls}
    return tuple(
        WallChange(wall=wall, base_ns=here.get(wall), new_ns=there.get(wall), delta_ns=_difference(here.get(wall), there.get(wall)))
        for wall in dict.fromkeys((*here, *there))
    )


def _difference(base: int | None, new: int | None) -> int | None:
    return None if base is None or new is None else new - base


def findings(base: Diagnosis, new: Diagnosis, step_ns: float, scale: Fraction = Fraction(1)) -> tuple[FindingChange, ...]:
    """Every finding of either run: new ones first, then those that got worse. A bound has to move by more of the step than two runs differ by."""
    here = {finding.id: finding for finding in base.findings}
    there = {finding.id: finding for finding in new.findings}
    unasked = {rule.id for rule in new.not_assessed}
    noise = load_limits().noise.floor.value * step_ns
    found = []
    for name in dict.fromkeys((*there, *here)):
        first, second = here.get(name), there.get(name)
        bound = None if second is None or second.bound_ns is None else round(second.bound_ns * scale)
        state = _state(first, second, bound, noise, asked=name not in unasked)
        shown = second or first
        if shown is not None:
            found.append(_change(shown, state, first, bound, new if second is not None else None))
    return tuple(
        sorted(
            found, key=lambda row: (_STATES.index(row.state), -_LEVELS[row.severity], -(row.new_bound_ns or row.base_bound_ns or 0), row.id)
        )
    )


def _state(first: Finding | None, second: Finding | None, bound: int | None, noise: float, *, asked: bool) -> FindingState:
    if first is None:
        return "new"
    if second is None:
        return "gone" if asked else "not_assessed"
    grew = (bound or 0) - (first.bound_ns or 0) if bound is not None and first.bound_ns is not None else 0
    rank = _LEVELS[second.severity] - _LEVELS[first.severity]
    if rank > 0 or grew > noise:
        return "worse"
    return "better" if rank < 0 or grew < -noise else "same"


def _change(shown: Finding, state: FindingState, first: Finding | None, bound: int | None, new: Diagnosis | None) -> FindingChange:
    place = place_of(shown, new.job) if new is not None else SettingPlace()
    return FindingChange(
        id=shown.id,
        name=shown.name,
        severity=shown.severity,
        state=state,
        summary=shown.summary,
        base_bound_ns=first.bound_ns if first is not None else None,
        new_bound_ns=bound,
        wall=shown.wall,
        key=place.key,
        line=place.line,
        fix=place.fix,
        why=shown.why,
    )
