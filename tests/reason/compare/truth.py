"""What is true of two simulated runs, in the categories of a comparison.

From the operations that were simulated and the causes that the simulator noted.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from diagnose.document.comparison import StepDelta
from fixtures.recording import Operation, Recording
from fixtures.truth import Window, splits, windows

_FIRST = ("transport", "packing", "copy")


def step_times(recording: Recording, skipped: Sequence[int] = ()) -> list[int]:
    return [window.end - window.start for window in windows(recording, skipped)]


def relative(base: Recording, new: Recording) -> float:
    """Change of the median step, of those whose ends are known: the last ends with its last operation."""
    here, there = median(step_times(base)[:-1]), median(step_times(new)[:-1])
    return (there - here) / here


def budget(recording: Recording, steps: Sequence[int]) -> Counter[str]:
    """Mean over these steps of each category: compute:BUCKET (equal shares), exposed transport, packing, copy, and idle as one; `why …`.

    Why compute was absent, by the simulator's own causes.
    """
    found: Counter[str] = Counter()
    causes = splits(recording)
    for window in windows(recording):
        if window.step not in steps:
            continue
        found.update(_swept(recording.operations, window))
        split = causes[window.step]
        found["why host"] += split.launch_starved
        found["why stalled"] += split.stalled
        for role in _FIRST:
            found[f"why {role}"] += split.blocking_by(role)
    return Counter({name: round(ns / len(steps)) for name, ns in found.items()})


def _swept(operations: Sequence[Operation], window: Window) -> Counter[str]:
    """One step, each nanosecond once."""
    edges: list[tuple[int, int, tuple[str, str]]] = []
    for one in operations:
        low, high = max(one.start, window.start), min(one.end, window.end)
        if high > low:
            key = ("compute", _bucket(one.bucket)) if one.role == "compute" else (one.role, "")
            edges += [(low, 1, key), (high, -1, key)]
    found: Counter[str] = Counter()
    running: Counter[tuple[str, str]] = Counter()
    reach, shared = window.start, Counter[str]()
    for time, step, key in [*sorted(edges), (window.end, 0, ("", ""))]:
        length = time - reach
        if length:
            buckets = [bucket for (role, bucket), count in running.items() if role == "compute" and count]
            roles = {role for (role, _), count in running.items() if count}
            if buckets:
                for bucket in buckets:
                    shared[f"compute:{bucket}"] += length / len(buckets)  # type: ignore[assignment]
            else:
                found[next((role for role in _FIRST if role in roles), "idle")] += length
            reach = time
        running[key] += step
    return found + Counter({name: round(ns) for name, ns in shared.items()})


def _bucket(name: str) -> str:
    """QK norm may count as attention (the kernel reference allows both)."""
    return "attention" if name == "norm" else name


def said(delta: StepDelta, side: str) -> Counter[str]:
    """The document's categories under the same names."""
    found: Counter[str] = Counter()
    for row in delta.categories:
        name = row.category
        if name in {"launch_starved", "host_sync", "dependency_stalled", "idle"}:
            name = "idle"
        if name.startswith("compute:"):
            name = f"compute:{_bucket(name.removeprefix('compute:'))}"
        found[name] += getattr(row, side)
        for part in row.parts:
            cause = {
                "allocator": "host", "host_sync": "host", "host_work": "host", "dependency_stalled": "stalled", "step_end": "stalled",
            }.get(part.why, part.why)  # fmt: skip
            found[f"why {cause}"] += getattr(part, side)
    return found
