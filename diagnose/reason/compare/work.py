"""The same work, by the kernels: the evidence where job files do not tell, and the measure of captures that were not cut into steps.

A capture without steps lasts as long as somebody let it. Two of them that ran the same kernels in the same proportion did the same kind of work, more or less of it: how much is the sum over the kernels
of launches times one pace for both sides, so that slower kernels do not count as more work. The new run's times are then brought to the base's amount of work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from diagnose.document.comparison import Mismatch, Normalised
from diagnose.document.device import BucketTime
from diagnose.document.diagnosis import Diagnosis
from diagnose.model.vocabulary import NO_KERNELS
from diagnose.reason.compare.limits import load_limits

Place = tuple[int, int]
_EDGES = 2  # launches that the cut at either end of a capture may take or leave


@dataclass(frozen=True, kw_only=True)
class Work:
    """How two captures without steps compare. `alike`: the same kind of work; `scale` brings the new run's times to the base's amount of it."""

    alike: bool
    scale: Fraction
    normalised: Normalised | None
    mismatch: Mismatch | None


@dataclass(frozen=True, kw_only=True)
class _Use:
    """One kernel, or bucket, on both sides: launches and work."""

    base: int
    new: int
    base_ns: int
    new_ns: int

    @property
    def pace(self) -> Fraction:
        """Time per launch over both sides, in ns."""
        return Fraction(self.base_ns + self.new_ns, self.base + self.new)


def capture_work(base: Diagnosis, new: Diagnosis, places: tuple[Place, Place]) -> Work:
    """The amounts of work in two captures without steps."""
    uses = _uses(base, new, places)
    if all(use.base == use.new for use in uses):
        return Work(alike=True, scale=Fraction(1), normalised=None, mismatch=None)
    here, there = sum(use.base * use.pace for use in uses), sum(use.new * use.pace for use in uses)
    if not here or not there:
        return Work(alike=False, scale=Fraction(1), normalised=None, mismatch=_unlike(0.0))
    ratio = Fraction(there) / Fraction(here)
    share, limits = _alike_share(uses, ratio), load_limits().capture
    common = [min(use.base, use.new) for use in uses]
    little = sum(common) < limits.least_launches.value
    if share < limits.alike.value or little or not 1 / limits.factor.value <= ratio <= limits.factor.value:
        return Work(alike=False, scale=Fraction(1), normalised=None, mismatch=_unlike(share))
    text = (
        f"Neither capture was cut into steps, and they hold different amounts of the same kernels' work: {float(here) / 1e6:,.1f} ms in base and {float(there) / 1e6:,.1f} ms in new, "
        f"each launch counted at one pace for both ({share * 100:.0f} % of it in the same proportion). The new run's times are brought to the base's amount of work."
    )
    return Work(
        alike=True,
        scale=(1 / ratio).limit_denominator(10**9),  # a ratio of two measured amounts holds no more digits
        normalised=Normalised(
            base_tokens=float(here),
            new_tokens=float(there),
            source="the launches of the same kernels in both captures",
            unit="ns of kernel work",
        ),
        mismatch=Mismatch(
            aspect="kernels",
            name="work in the capture",
            base=f"{float(here) / 1e6:,.1f} ms",
            new=f"{float(there) / 1e6:,.1f} ms",
            state="normalised",
            text=text,
        ),
    )


def _alike_share(uses: list[_Use], ratio: Fraction) -> float:
    """Share of the work that stands in the common proportion. What only one side has does not."""
    slack = load_limits().capture.proportion.value
    weights = [(use.pace * (use.base * ratio + use.new), _in_proportion(use, ratio, slack)) for use in uses]
    total = sum(weight for weight, _ in weights)
    return float(Fraction(sum(weight for weight, alike in weights if alike)) / Fraction(total)) if total else 0.0


def _in_proportion(use: _Use, ratio: Fraction, slack: float) -> bool:
    return use.base > 0 and use.new > 0 and abs(use.new - ratio * use.base) <= max(slack * ratio * use.base, _EDGES)


def _unlike(share: float) -> Mismatch:
    text = (
        f"Neither capture was cut into steps, and they do not hold the same kind of work in like amounts ({share * 100:.0f} % of it are kernels in the same proportion). "
        "Name the range that is one step (--step-range), or capture whole steps."
    )
    return Mismatch(aspect="kernels", name="work in the capture", base="capture", new="capture", state="refused", text=text)


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
    rows = next((one.kernels for one in document.kernels if (one.rank, one.device) == place), None)
    if rows is None:
        return None
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.role == "compute":
            launches, work = found.get(row.name, (0, 0))
            found[row.name] = launches + row.launches, work + row.work_ns
    return found


def _by_bucket(document: Diagnosis, place: Place) -> dict[str, tuple[int, int]]:
    return {row.bucket: (row.kernels, row.work_ns) for row in _buckets(document, place)}


def _buckets(document: Diagnosis, place: Place) -> list[BucketTime]:
    return [row for row in document.buckets if (row.rank, row.device) == place and row.bucket not in NO_KERNELS]


def kernel_mismatches(base: Diagnosis, new: Diagnosis, places: tuple[Place, Place]) -> Iterator[Mismatch]:
    """What the kernels of steps say where job files do not: a part of the model that only one side has, or very many more kernels."""
    here = {row.bucket: row for row in _buckets(base, places[0])}
    there = {row.bucket: row for row in _buckets(new, places[1])}
    limits = load_limits().kernels
    for bucket in sorted({*here} ^ {*there}):
        row, side = (here[bucket], "base") if bucket in here else (there[bucket], "new")
        if row.share >= limits.bucket_share.value:
            share = f"{row.share * 100:.1f} % of the work"
            text = f"Only the {side} run has kernels of {bucket} ({share}). Without both job files that says that the work is not the same: give them (--config)."
            first, second = (share, "none") if side == "base" else ("none", share)
            yield Mismatch(aspect="kernels", name=bucket, base=first, new=second, state="refused", text=text)
    counts = sum(row.kernels for row in here.values()), sum(row.kernels for row in there.values())
    if min(counts) > 0 and max(counts) / min(counts) > limits.count_factor.value:
        text = (
            f"A step runs {counts[0]:,} kernels in base and {counts[1]:,} in new, more than {limits.count_factor.value:g} times as many. "
            "Without both job files that says that the work is not the same: give them (--config)."
        )
        yield Mismatch(aspect="kernels", name="kernels per step", base=f"{counts[0]:,}", new=f"{counts[1]:,}", state="refused", text=text)
