"""What was lost or swapped between two runs: another backend, an overlap that is gone, something that one side alone does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from diagnose.document.comparison import FindingChange, OverlapChange, StepDelta
from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.comparison import CauseLimits
from diagnose.knowledge.templates import percent
from diagnose.model.vocabulary import CommKind

_MOST = 2  # causes that a headline names
EXCHANGE: Mapping[CommKind, str] = MappingProxyType(
    {
        "expert": "the EP all-to-all",
        "data": "DP collectives",
        "tensor": "TP collectives",
        "pipeline": "the exchange between pipeline stages",
        "context": "CP communication",
        "other": "other collectives",
    }
)
_NONE, _SOME = 0.02, 0.1  # overlap that is none, and overlap that was some: all of it is lost then, however little it was
_LOST = 0.2  # of an exchange's time that ran beside compute and no longer does, from which on the overlap is called lost


def causes(
    both: tuple[Diagnosis, Diagnosis],
    delta: StepDelta | None,
    findings: Sequence[FindingChange],
    overlaps: Sequence[OverlapChange],
    limits: CauseLimits,
) -> str:
    """Sentences about what explains at least `limits.share` of the step's change, the largest first.

    Empty where nothing of the kind does.
    """
    if delta is None or not delta.delta_ns:
        return ""
    found = [*_exchanges(delta, overlaps, limits), *_switched(both, delta, findings, limits)]
    if not any(ns >= limits.share.value * abs(delta.delta_ns) for ns, _ in found):
        found = [(abs(delta.delta_ns), text) for text in _facts(both, limits)]
    worth = [(ns, text) for ns, text in found if ns >= limits.share.value * abs(delta.delta_ns)]
    return " ".join(f"{text}." for _, text in sorted(worth, key=lambda one: (-one[0], one[1]))[:_MOST])


def _switched(
    both: tuple[Diagnosis, Diagnosis], delta: StepDelta, findings: Sequence[FindingChange], limits: CauseLimits
) -> Iterator[tuple[int, str]]:
    """Findings of one side alone. One without a bound of its own counts as all of the change, behind whatever has one."""
    for one in findings:
        words = limits.findings.get(one.id)
        slower = delta.delta_ns > 0
        if words is None or one.state != ("new" if slower else "gone"):
            continue
        bound = one.new_bound_ns if slower else one.base_bound_ns
        said = (words.began if slower else words.ended).replace("{ranks}", _ranks(both[slower], one.id))
        yield bound or round(limits.share.value * abs(delta.delta_ns)) + 1, said


def _ranks(side: Diagnosis, finding: str) -> str:
    """The ranks that a finding is about, in words."""
    ranks = next((one.where.ranks for one in side.findings if one.id == finding), ())
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else "one rank"


def _facts(both: tuple[Diagnosis, Diagnosis], limits: CauseLimits) -> Iterator[str]:
    """Facts that one side alone has above nought."""
    for name, words in limits.facts.items():
        here, there = (side.facts.get(name) for side in both)
        if here is None or there is None or not isinstance(here.value, int | float) or not isinstance(there.value, int | float):
            continue
        if bool(here.value) != bool(there.value):
            yield words.began if there.value else words.ended


def _exchanges(delta: StepDelta, overlaps: Sequence[OverlapChange], limits: CauseLimits) -> Iterator[tuple[int, str]]:
    """Exchanges that run over another backend, or lost or won their overlap."""
    by_kind: dict[CommKind, list[OverlapChange]] = {}
    for one in overlaps:
        by_kind.setdefault(one.kind, []).append(one)
    for kind, rows in by_kind.items():
        exposed = sum(one.new_exposed_ns - one.base_exposed_ns for one in rows)
        if exposed * delta.delta_ns <= 0:
            continue
        name = EXCHANGE[kind][:1].upper() + EXCHANGE[kind][1:]
        here, there = (_main({one.backend: ns for one, ns in zip(rows, times, strict=True)}, limits) for times in _times(rows))
        before, after = _hidden(rows)
        beside = f"{percent(before)} of it ran beside compute, {percent(after)} does" if before is not None and after is not None else ""
        changed = (
            before is not None
            and after is not None
            and (abs(after - before) >= _LOST or (min(before, after) < _NONE < _SOME < max(before, after)))
        )
        if here is not None and there is not None and here != there:
            text = f"{name} {'run' if name.endswith('s') else 'runs'} over {limits.backends[there]}, no longer over {limits.backends[here]}"
            yield abs(exposed), f"{text}; {beside}" if changed else text
        elif changed:
            yield abs(exposed), f"{name} {'lost' if exposed > 0 else 'gained'} overlap: {beside}"


def _times(rows: Sequence[OverlapChange]) -> tuple[list[int], list[int]]:
    return [one.base_busy_ns for one in rows], [one.new_busy_ns for one in rows]


def _main(busy: Mapping[str, int], limits: CauseLimits) -> str | None:
    """The backend that most of an exchange runs over; None where there is none such."""
    total = sum(busy.values())
    return next((name for name, ns in busy.items() if total and ns >= limits.main.value * total), None)


def _hidden(rows: Sequence[OverlapChange]) -> tuple[float | None, float | None]:
    """The share of an exchange that ran beside compute, on both sides."""
    before, after = _times(rows)
    base = 1 - sum(one.base_exposed_ns for one in rows) / sum(before) if sum(before) else None
    new = 1 - sum(one.new_exposed_ns for one in rows) / sum(after) if sum(after) else None
    return base, new
