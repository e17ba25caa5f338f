"""The same work, by the kernels: the evidence where job files do not tell, and the measure of captures that were not cut into steps.

A capture without steps lasts as long as somebody let it. Two of them that ran the same kernels in the same proportion did the same kind of
work, more or less of it: how much is the sum over the kernels of launches times one pace for both sides, so that slower kernels do not
count as more work. The new run's times are then brought to the base's amount of work.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from msgspec import Struct

from diagnose.document.comparison import Mismatch, MismatchState, Normalised
from diagnose.document.device import BucketTime, of_device, on_device
from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.comparison import CaptureLimits, KernelLimits
from diagnose.model.vocabulary import NO_KERNELS
from diagnose.reason.compare.metrics import place_of

Place = tuple[int, int]
_LEAST_SHARE = 0.005  # of the work: a smaller bucket tells nothing of the amount of work
_LEAST_KINDS = 3  # buckets that go by tokens: computing ones among them and such that move memory
_EDGES = 2  # launches that the cut at either end of a capture may take or leave


def mismatch(aspect: str, name: str, base: str, new: str, state: MismatchState, text: str) -> Mismatch:
    """One difference; the record says what the fields mean."""
    return Mismatch(aspect=aspect, name=name, base=base, new=new, state=state, text=text)


class Work(Struct, frozen=True, kw_only=True):
    """How two captures without steps compare; `scale` brings the new run's times to the base's amount of work, where they are alike."""

    scale: Fraction = Fraction(1)
    normalised: Normalised | None = None
    mismatch: Mismatch | None = None


class _Use(Struct, frozen=True, kw_only=True):
    """One kernel, or bucket, on both sides: launches and work."""

    base: int
    new: int
    base_ns: int
    new_ns: int

    @property
    def pace(self) -> Fraction:
        """Time per launch over both sides, in ns."""
        return Fraction(self.base_ns + self.new_ns, self.base + self.new)


def capture_work(base: Diagnosis, new: Diagnosis, places: tuple[Place, Place], limits: CaptureLimits) -> Work:
    """The amounts of work in two captures without steps."""
    uses = _uses(base, new, places)
    if all(use.base == use.new for use in uses):
        return Work()
    here, there = sum(use.base * use.pace for use in uses), sum(use.new * use.pace for use in uses)
    if not here or not there:
        return Work(mismatch=_unlike(0.0))
    ratio = Fraction(there) / Fraction(here)
    share = _alike_share(uses, ratio, limits.proportion.value)
    common = [min(use.base, use.new) for use in uses]
    little = sum(common) < limits.least_launches.value
    if share < limits.alike.value or little or not 1 / limits.factor.value <= ratio <= limits.factor.value:
        return Work(mismatch=_unlike(share))
    amounts = f"{float(here) / 1e6:,.1f} ms", f"{float(there) / 1e6:,.1f} ms"
    text = (
        f"Neither capture was cut into steps, and they hold different amounts of the same kernels' work: {amounts[0]} "
        f"in base and {amounts[1]} in new, each launch counted at one pace for both ({share * 100:.0f} % of it in the same "
        "proportion). The new run's times are brought to the base's amount of work."
    )
    return Work(
        scale=(1 / ratio).limit_denominator(10**9),  # a ratio of two measured amounts holds no more digits
        normalised=Normalised(
            base_tokens=float(here),
            new_tokens=float(there),
            source="the launches of the same kernels in both captures",
            unit="ns of kernel work",
        ),
        mismatch=mismatch("kernels", "work in the capture", amounts[0], amounts[1], "normalised", text),
    )


def _alike_share(uses: list[_Use], ratio: Fraction, slack: float) -> float:
    """Share of the work that stands in the common proportion. What only one side has does not."""
    weights = [use.pace * (use.base * ratio + use.new) for use in uses]
    near = [abs(use.new - ratio * use.base) <= max(slack * ratio * use.base, _EDGES) for use in uses]
    total = sum(weights)
    alike = sum(weight for weight, use, close in zip(weights, uses, near, strict=True) if close and use.base > 0 and use.new > 0)
    return float(Fraction(alike) / Fraction(total)) if total else 0.0


def _unlike(share: float) -> Mismatch:
    text = (
        "Neither capture was cut into steps, and they do not hold the same kind of work in like amounts "
        f"({share * 100:.0f} % of it are kernels in the same proportion). "
        "Name the range that is one step (--step-range), or capture whole steps."
    )
    return mismatch("kernels", "work in the capture", "capture", "capture", "refused", text)


def _uses(base: Diagnosis, new: Diagnosis, places: tuple[Place, Place]) -> list[_Use]:
    """Compute kernels by name; of documents that do not hold kernels, buckets."""
    here, there = _by_name(base, places[0]), _by_name(new, places[1])
    if here is None or there is None:
        here, there = _by_bucket(base, places[0]), _by_bucket(new, places[1])
    names = sorted({*here, *there})
    none = (0, 0)
    found = [
        _Use(base=here.get(name, none)[0], new=there.get(name, none)[0], base_ns=here.get(name, none)[1], new_ns=there.get(name, none)[1])
        for name in names
    ]
    return [use for use in found if use.base + use.new > 0]


def _by_name(document: Diagnosis, place: Place) -> dict[str, tuple[int, int]] | None:
    ran = of_device(document.kernels, place)
    if ran is None:
        return None
    found: dict[str, tuple[int, int]] = {}
    for row in ran.kernels:
        if row.role == "compute":
            launches, work = found.get(row.name, (0, 0))
            found[row.name] = launches + row.launches, work + row.work_ns
    return found


def _by_bucket(document: Diagnosis, place: Place) -> dict[str, tuple[int, int]]:
    return {row.bucket: (row.kernels, row.work_ns) for row in _buckets(document, place)}


def _buckets(document: Diagnosis, place: Place) -> list[BucketTime]:
    return [row for row in on_device(document.buckets, place) if row.bucket not in NO_KERNELS]


def kernel_mismatches(
    base: Diagnosis, new: Diagnosis, places: tuple[Place, Place], limits: KernelLimits, *, lacking: str, agreed: bool
) -> Iterator[Mismatch]:
    """What the kernels of steps say where job files do not prove what the work is.

    A part of the model that only one side has is said and refuses nothing: it may be what changed. Another amount of the same kernels' work
    does refuse, unless both job files agree in all that they tell (`agreed`). `lacking`: what would prove it, as a sentence.

    Where graphs of one side alone hide their kernels, these tell nothing, and that is what is said.
    """
    graphs = (base.capture.cuda_graphs, new.capture.cuda_graphs)
    if "opaque" in graphs and graphs[0] != graphs[1]:
        if agreed:
            return
        text = (
            "The CUDA graphs of one side were traced as a whole, so no kernel shows that both runs do the same work: capture it with "
            f"--cuda-graph-trace=node. {lacking}"
        )
        yield mismatch("kernels", "hidden in graphs", *graphs, "refused", text)
        return
    state: MismatchState = "noted" if agreed else "refused"
    here = {row.bucket: row for row in _buckets(base, places[0])}
    there = {row.bucket: row for row in _buckets(new, places[1])}
    for bucket in sorted({*here} ^ {*there}):
        row, side = (here[bucket], "base") if bucket in here else (there[bucket], "new")
        if row.share >= limits.bucket_share.value:
            share = f"{row.share * 100:.1f} % of the work"
            text = f"Only the {side} run has kernels of {bucket} ({share}): something was switched on or off, or the work is not the same. {lacking}"
            first, second = (share, "none") if side == "base" else ("none", share)
            yield mismatch("kernels", bucket, first, second, "noted", text)
    counts = sum(row.kernels for row in here.values()), sum(row.kernels for row in there.values())
    if max(counts) > limits.count_factor.value * min(counts):
        text = (
            f"A step runs {counts[0]:,} kernels in base and {counts[1]:,} in new, more than {limits.count_factor.value:g} times as many: the "
            f"work is hardly the same. {lacking}"
        )
        yield mismatch("kernels", "kernels per step", f"{counts[0]:,}", f"{counts[1]:,}", state, text)
        return
    for name, what in _other_amounts(base, new, places, limits):
        text = f"{what}: another amount of work, not another speed. {lacking}"
        yield mismatch("kernels", name, "1", what.split(" times")[0].rsplit(" ", 1)[-1], state, text)


def _other_amounts(base: Diagnosis, new: Diagnosis, places: tuple[Place, Place], limits: KernelLimits) -> Iterator[tuple[str, str]]:
    """Signs that steps hold another amount of the same kernels' work: their name, and what they say."""
    here, there = _launches(base, places[0]), _launches(new, places[1])
    often = _common_ratio(here, there, limits)
    if often is not None:
        yield "launches", f"Nearly all compute kernels are launched {often:.2f} times as often per step (layers or micro-batches)"
        return
    blocks = _common_ratio(_waves(base, places[0]), _waves(new, places[1]), limits)
    if blocks is not None and device(base, places[0]) == device(new, places[1]):  # another GPU holds more or fewer blocks at once
        yield (
            "blocks per launch",
            f"Nearly all compute kernels have {blocks:.2f} times as many blocks (sequence length, batch or model size)",
        )
        return
    tokens = _by_tokens(base, new, places, limits)
    if tokens is not None:
        ratio, longer = tokens
        why = "the sequence length" if longer else "the batch or the sequence length"
        yield (
            "work per launch",
            f"Everything that goes by tokens takes {ratio:.2f} times as long per launch, and what goes by parameters as long as before ({why})",
        )


def _by_tokens(base: Diagnosis, new: Diagnosis, places: tuple[Place, Place], limits: KernelLimits) -> tuple[float, bool] | None:
    """By how much the work of each bucket changed alike, where that of parameters did not, and whether attention's changed by more.

    A slower clock lengthens what computes and not what moves memory; slower memory lengthens the optimizer too: neither looks so.
    """
    here, there = ({row.bucket: row for row in _buckets(side, place)} for side, place in zip((base, new), places, strict=True))
    ran = (one for side, place in zip((base, new), places, strict=True) for one in on_device(side.kernels, place))
    compute = {row.bucket for one in ran for row in one.kernels if row.role == "compute"}
    both = [name for name in here if name in there and name in compute and here[name].work_ns and here[name].share >= _LEAST_SHARE]
    ratio = {name: there[name].work_ns / here[name].work_ns for name in both}
    often = all(abs(there[name].kernels - here[name].kernels) <= limits.launches.value * here[name].kernels for name in both)
    fixed = [ratio[name] for name in both if name in limits.by_parameters]
    moving = sorted(ratio[name] for name in both if name not in (*limits.by_parameters, *limits.by_length))
    if not often or not fixed or len(moving) < _LEAST_KINDS or any(abs(one - 1) > limits.amount_change.value / 2 for one in fixed):
        return None
    middle = moving[len(moving) // 2]
    if abs(middle - 1) <= limits.amount_change.value or moving[-1] - moving[0] > 2 * limits.amount_spread.value * middle:
        return None
    longer = [ratio[name] for name in both if name in limits.by_length]
    return middle, any((one > middle) == (middle > 1) and abs(one - middle) > limits.amount_spread.value * middle for one in longer)


def device(document: Diagnosis, place: tuple[int, int] | None = None) -> str | None:
    """The GPU's name on one device, by default the verdict's; None where the trace does not name it."""
    found = of_device(document.capture.devices, place or place_of(document))
    return None if found is None else found.name


_Amounts = dict[str, tuple[float, int]]  # a compute kernel's launches per step, or waves per launch; its work in ns


def _launches(document: Diagnosis, place: Place) -> _Amounts:
    return {name: (float(launches), work) for name, (launches, work) in (_by_name(document, place) or {}).items()}


def _waves(document: Diagnosis, place: Place) -> _Amounts:
    """Of the kernels whose launch shapes are known.

    Persistent kernels fill the device whatever their work is, so that one wave tells nothing.
    """
    compute = _launches(document, place)
    rows = document.occupancy.kernels if document.occupancy is not None and place == place_of(document) else ()
    return {row.name: (row.waves, row.work_ns) for row in rows if row.waves is not None and row.waves > 1 and row.name in compute}


def _common_ratio(here: _Amounts, there: _Amounts, limits: KernelLimits) -> float | None:
    """By how much the amounts of the same kernels changed, where those of nearly all work changed alike; None where they did not."""
    both = sorted(
        (there[name][0] / here[name][0], here[name][1] + there[name][1]) for name in here.keys() & there.keys() if here[name][0] > 0
    )
    total = sum(work for _, work in both)
    everything = sum(work for side in (here, there) for _, work in side.values())
    if len(both) < 2 or total < limits.common_share.value * everything:
        return None
    seen, middle = 0, 1.0
    for ratio, work in both:
        seen += work
        if 2 * seen >= total:
            middle = ratio
            break
    near = limits.amount_spread.value * middle
    alike = sum(work for ratio, work in both if abs(ratio - middle) <= near and abs(ratio - middle) < abs(ratio - 1))  # and not as before
    changed = not 1 / (1 + limits.amount_change.value) <= middle <= 1 + limits.amount_change.value
    return middle if changed and alike >= limits.common_share.value * total else None
