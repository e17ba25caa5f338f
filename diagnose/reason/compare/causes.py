"""What was lost or swapped between two runs: another backend, an overlap that is gone, something that one side alone does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from diagnose.document.comparison import Category, FindingChange, KernelChange, OverlapChange, StepDelta
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.history import CategoryMove
from diagnose.knowledge.comparison import CauseLimits
from diagnose.knowledge.templates import capitalised, decimal, fill, percent
from diagnose.model.vocabulary import GROUP_OF_KIND, CommKind
from diagnose.reason.compare.metrics import COMPUTE

_MOST = 2  # causes that a headline names
_SEVERAL = 2  # kinds of compute from which it can be told that all take longer alike
EXCHANGE: Mapping[CommKind, str] = {
    "expert": "the EP all-to-all",
    "data": "DP collectives",
    "tensor": "TP collectives",
    "pipeline": "the exchange between pipeline stages",
    "context": "CP communication",
    "other": "other collectives",
}
_NONE, _SOME = 0.02, 0.1  # overlap that is none, and overlap that was some: all of it is lost then, however little it was
_LOST = 0.2  # of an exchange's time that ran beside other work and no longer does, from which on the overlap is called lost


class Changes(Struct, frozen=True, kw_only=True):
    """What changed from one run to another: the step by category (None where that is not known), kernels, exchanges and findings."""

    base: Diagnosis
    new: Diagnosis
    delta: StepDelta | None
    kernels: Sequence[KernelChange] = ()
    overlaps: Sequence[OverlapChange] = ()
    findings: Sequence[FindingChange] = ()


def causes(changes: Changes, limits: CauseLimits) -> str:
    """Sentences about what together explains at least `limits.share` of the step's change, the largest first; empty where nothing does."""
    both, delta, kernels, overlaps = (changes.base, changes.new), changes.delta, changes.kernels, changes.overlaps
    if delta is None or not delta.delta_ns:
        return ""
    whole = abs(delta.delta_ns)
    share = limits.share.value * whole
    switched = [*_switched(both, delta, changes.findings, limits)]
    lost = (
        *_exchanges(both, delta, overlaps, limits),
        *(said for said, effect in switched if not effect),
        *_in_pieces(delta, kernels, limits),
    )
    rest = max(limits.share.value * min(whole, _unexplained(delta, kernels)), limits.beside_pace.value * whole)
    stages: tuple[tuple[float, float, Iterable[tuple[int, str]]], ...] = (
        (limits.least.value * whole, rest, lost),  # it is seen, so that less of it is a cause
        (share, share, alike(delta.categories, delta.delta_ns, kernels, limits)),
        (share, share, (*((whole, text) for text in _swapped(delta, overlaps, limits)), *_facts(both, delta, kernels, limits))),
        (share, share, _launching(both, delta, limits)),
        (share, share, (said for said, effect in switched if effect)),
    )
    for least, wanted, stage in stages:
        named = sorted((one for one in stage if one[0] >= least), key=lambda one: (-one[0], one[1]))[:_MOST]
        if sum(ns for ns, _ in named) >= wanted:
            return " ".join(f"{text}." for _, text in named)
    return ""


def _unexplained(delta: StepDelta, kernels: Sequence[KernelChange]) -> int:
    """The step's change, in ns, less that of compute kernels that take another time per launch."""
    at_another_pace = sum(one.delta_ns for one in kernels if one.kind in {"slower", "faster"} and one.role != "transport")
    return abs(delta.delta_ns) - (at_another_pace if delta.delta_ns > 0 else -at_another_pace)


def _launching(both: tuple[Diagnosis, Diagnosis], delta: StepDelta, limits: CauseLimits) -> Iterator[tuple[int, str]]:
    """A CPU that takes another time from launch to launch, for as many launches, in the direction of the step's change."""
    known = limits.launching
    moved = next((row.delta_ns for row in delta.categories if row.category == known.category), 0)
    (here, there), (before, after) = ([_number(side, name) or 0 for side in both] for name in (known.gap, known.calls))
    if not here or not before or moved * delta.delta_ns <= 0 or abs(after - before) > known.same.value * before:
        return
    between = there - here
    if between * moved > 0 and abs(between) >= known.pace.value * here and abs(between) * after >= known.least.value * abs(moved):
        said = known.slower if moved > 0 else known.faster
        yield abs(moved), said.replace("{base}", decimal(here / 1e3)).replace("{new}", decimal(there / 1e3))


def in_long_steps(changes: Changes, change: float, limits: CauseLimits) -> str:
    """What one side alone has that costs most over all its steps, where a few long ones make the mean; empty where nothing is known.

    `change`: that of the mean, relative; nought where no such steps are.
    """
    if not change:
        return ""
    slower = change > 0
    found: list[tuple[bool, int, str]] = []  # what may come of another change only where nothing else is known
    for one in changes.findings:
        words, bound = limits.findings.get(one.id), one.new_bound_ns if slower else one.base_bound_ns
        if words is not None and bound and one.state == ("new" if slower else "gone"):
            found.append(
                (not words.effect, bound, _filled(words.began if slower else words.ended, changes.new if slower else changes.base, one.id))
            )
    _, bound, said = max(found, default=(False, 0, ""))
    return f"{said}: {decimal(bound / 1e6)} ms of the mean." if said else ""


def _switched(
    both: tuple[Diagnosis, Diagnosis], delta: StepDelta, findings: Sequence[FindingChange], limits: CauseLimits
) -> Iterator[tuple[tuple[int, str], bool]]:
    """Findings of one side alone, and those of which there is more or less, each with whether it may be the effect of another cause.

    One without a bound of its own counts as all of the change, behind whatever has one.
    """
    for one in findings:
        words = limits.findings.get(one.id)
        if words is None:
            continue
        slower = delta.delta_ns > 0
        degree = words.more if slower else words.less
        change = (one.new_bound_ns or 0) - (one.base_bound_ns or 0)
        if one.state == ("new" if slower else "gone"):
            said = words.began if slower else words.ended
            if degree is not None and words.left is not None and _number(both[not slower], words.left):
                said = degree
            bound = one.new_bound_ns if slower else one.base_bound_ns
            least = round(limits.share.value * abs(delta.delta_ns)) + 1
            yield (bound or least, _filled(said, both[slower], one.id)), words.effect
        elif degree is not None and one.new_bound_ns and one.base_bound_ns and change * delta.delta_ns > 0:
            yield (abs(change), _filled(degree, both[slower], one.id)), words.effect


def _in_pieces(delta: StepDelta, kernels: Sequence[KernelChange], limits: CauseLimits) -> Iterator[tuple[int, str]]:
    """Fused kernels that one side alone has, where what they do runs piece by piece on the other.

    A piece may be of their own bucket (an activation between two products): all its kernels are others then, and as many pieces are
    launched less for each of them.
    """
    rows = {row.category: row for row in delta.categories}
    pieces, slower = rows.get(f"{COMPUTE}{limits.pieces.inside}"), delta.delta_ns > 0
    if pieces is None or pieces.delta_ns * delta.delta_ns <= 0:
        return
    for bucket, words in limits.pieces.of.items():
        row = rows.get(f"{COMPUTE}{bucket}")
        if row is None:
            continue
        fused, left = (row.base_ns, row.new_ns) if slower else (row.new_ns, row.base_ns)
        own = [one for one in kernels if one.bucket == bucket]
        launched = sum(one.new_launches - one.base_launches for one in kernels if one.bucket == limits.pieces.inside)
        each = sum(one.base_launches if slower else one.new_launches for one in own)
        if own and {one.kind for one in own} <= {"new", "gone", "renamed"} and each and launched and not launched % each:
            left -= sum(one.new_work_ns if slower else one.base_work_ns for one in own)
        grown, gone = abs(pieces.delta_ns), fused - left
        if 2 * left <= fused and limits.pieces.least.value * grown <= gone <= grown:
            yield grown - gone, words.began if slower else words.ended


def alike(
    categories: Sequence[Category | CategoryMove], change: int, kernels: Sequence[KernelChange], limits: CauseLimits
) -> Iterator[tuple[int, str]]:
    """Compute that took another time by one factor with the same kernels, in the direction of the step's `change`: how many ns, and words.

    `kernels`: those that changed.
    """
    known = limits.alike
    if any(one.bucket in known.buckets and one.kind not in {"slower", "faster"} for one in kernels):
        return
    rows = [row for row in categories if row.category.removeprefix(COMPUTE) in known.buckets and row.base_ns > 0]
    base, moved = sum(row.base_ns for row in rows), sum(row.delta_ns for row in rows)
    if len(rows) < _SEVERAL or abs(moved) < known.least.value * base or moved * change <= 0:
        return
    common = moved / base
    if all(abs(row.delta_ns / row.base_ns - common) <= known.spread.value * abs(common) for row in rows):
        said = known.slower if moved > 0 else known.faster
        yield abs(moved), said.replace("{times}", decimal(1 + common))


def common_pace(categories: Sequence[Category | CategoryMove], change: int, kernels: Sequence[KernelChange], limits: CauseLimits) -> str:
    """That all compute changed by one factor, where that holds the share of the step's `change` (ns) that a cause has to; else empty."""
    return next((text for ns, text in alike(categories, change, kernels, limits) if ns >= limits.share.value * abs(change)), "")


def _number(side: Diagnosis, fact: str) -> float | None:
    """The value of a fact where it is a number."""
    found = side.facts.get(fact)
    return found.value if found is not None and isinstance(found.value, int | float) else None


def _filled(words: str, side: Diagnosis, finding: str) -> str:
    """Words with the ranks that a finding is about and the facts of the side that has it."""
    return fill(words, {name: fact.value for name, fact in side.facts.items()} | {"ranks": _ranks(side, finding)})


def _ranks(side: Diagnosis, finding: str) -> str:
    """The ranks that a finding is about, in words."""
    ranks = next((one.where.ranks for one in side.findings if one.id == finding), ())
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else "one rank"


def _facts(
    both: tuple[Diagnosis, Diagnosis], delta: StepDelta, kernels: Sequence[KernelChange], limits: CauseLimits
) -> Iterator[tuple[int, str]]:
    """Facts that one side alone has above nought; and times that hold the change, of which there is more or less.

    What one side alone does explains no compute kernel that takes another time per launch: graphs launch the same kernels.
    """
    way, moved = (1 if delta.delta_ns > 0 else -1), {row.category: row.delta_ns for row in delta.categories}
    for name, words in limits.facts.items():
        here, there = (_number(side, name) for side in both)
        if here is None or there is None:
            continue
        degree = words.more if delta.delta_ns > 0 else words.less
        if bool(here) != bool(there):
            explained = _unexplained(delta, kernels) if words.bucket is None else way * moved.get(f"{COMPUTE}{words.bucket}", 0)
            yield explained, words.began if there else words.ended
        elif degree is not None and (there - here) * delta.delta_ns >= limits.share.value * delta.delta_ns**2:
            yield abs(delta.delta_ns), degree


def by_kind(overlaps: Sequence[OverlapChange]) -> Mapping[CommKind, list[OverlapChange]]:
    """The exchanges of each kind, of whatever backends."""
    found: dict[CommKind, list[OverlapChange]] = {}
    for one in overlaps:
        found.setdefault(one.kind, []).append(one)
    return found


def together(rows: Sequence[OverlapChange]) -> OverlapChange:
    """All backends of one kind as one exchange: another backend in the new run takes the place of the base's."""
    if len(rows) == 1:
        return rows[0]
    base_busy, new_busy = sum(one.base_busy_ns for one in rows), sum(one.new_busy_ns for one in rows)
    base_exposed, new_exposed = sum(one.base_exposed_ns for one in rows), sum(one.new_exposed_ns for one in rows)
    return OverlapChange(
        kind=rows[0].kind,
        backend="",
        base_busy_ns=base_busy,
        new_busy_ns=new_busy,
        base_exposed_ns=base_exposed,
        new_exposed_ns=new_exposed,
        base_overlap=1 - base_exposed / base_busy if base_busy else None,
        new_overlap=1 - new_exposed / new_busy if new_busy else None,
        lost_ns=None,
    )


def _backends(kind: CommKind, rows: Sequence[OverlapChange], limits: CauseLimits) -> str:
    """What an exchange runs over now and no longer; empty where that is the same, or can't be told."""
    here = _main({one.backend: one.base_busy_ns for one in rows}, limits)
    there = _main({one.backend: one.new_busy_ns for one in rows}, limits)
    if here is None or there is None or here == there:
        return ""
    name = _named(kind)
    return f"{name} {'run' if name.endswith('s') else 'runs'} over {limits.backends[there]}, no longer over {limits.backends[here]}"


def _named(kind: CommKind) -> str:
    return capitalised(EXCHANGE[kind])


def _swapped(delta: StepDelta, overlaps: Sequence[OverlapChange], limits: CauseLimits) -> Iterator[str]:
    """A swapped dispatcher, where the CPU's time and the rearranging of tokens hold the change, not the exchange itself."""
    moved = sum(row.delta_ns for row in delta.categories if row.category in limits.by_backend)
    rows = by_kind(overlaps).get("expert")
    if rows and moved * delta.delta_ns > 0 and abs(moved) >= limits.share.value * abs(delta.delta_ns):
        text = _backends("expert", rows, limits)
        if text:
            yield text


def _exchanges(
    both: tuple[Diagnosis, Diagnosis], delta: StepDelta, overlaps: Sequence[OverlapChange], limits: CauseLimits
) -> Iterator[tuple[int, str]]:
    """Exchanges that run over another backend, or lost or won their overlap; what runs beside another exchange has that one's doing."""
    for kind, rows in by_kind(overlaps).items():
        one = together(rows)
        exposed = one.new_exposed_ns - one.base_exposed_ns
        if exposed * delta.delta_ns <= 0:
            continue
        before, after = one.base_overlap, one.new_overlap
        beside = f"{percent(before)} of it ran beside other work, {percent(after)} does" if before is not None and after is not None else ""
        way = 1 if exposed > 0 else -1
        changed = (
            before is not None
            and after is not None
            and (abs(after - before) >= _LOST or (min(before, after) < _NONE < _SOME < max(before, after)))
            and 2 * way * uncovered(one) >= abs(exposed)  # else it takes longer, beside as much as before
            and ((by_compute := _more_beside_compute(both, kind)) is None or -2 * way * by_compute >= abs(after - before))
        )
        text = _backends(kind, rows, limits)
        if text:
            yield abs(exposed), f"{text}; {beside}" if changed else text
        elif changed:
            yield abs(exposed), f"{_named(kind)} {'lost' if way > 0 else 'gained'} overlap: {beside}"


def _more_beside_compute(both: tuple[Diagnosis, Diagnosis], kind: CommKind) -> float | None:
    """By how much larger the share of an exchange is in new that ran beside compute; None where a side does not tell."""
    group = GROUP_OF_KIND[kind]
    times = [(_number(side, f"{group}_beside_compute_ns"), _number(side, f"{group}_busy_ns")) for side in both]
    shares = [beside / busy for beside, busy in times if beside is not None and busy]
    return shares[1] - shares[0] if len(shares) == len(both) else None


def uncovered(one: OverlapChange) -> int:
    """The time of an exchange that ran beside other work in base, and no longer does, in ns."""
    return (one.base_busy_ns - one.base_exposed_ns) - (one.new_busy_ns - one.new_exposed_ns)


def _main(busy: Mapping[str, int], limits: CauseLimits) -> str | None:
    """The backend that most of an exchange runs over; None where there is none such."""
    total = sum(busy.values())
    return next((name for name, ns in busy.items() if total and ns >= limits.main.value * total), None)
