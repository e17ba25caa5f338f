"""The words and colours that every output of a comparison shares."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.document.comparison import Basis, FindingState, KernelChangeKind, MismatchState, Result
from diagnose.document.device import Why
from diagnose.model.environment import EnvironmentKind
from diagnose.render import words

RESULT: dict[Result, str] = {
    "regression": "Regression",
    "improvement": "Improvement",
    "no_change": "No change",
    "cannot_tell": "Can't tell",
    "refused": "Refused",
}
BASIS: dict[Basis, str] = {
    "interval and rank test": "interval and rank test",
    "separation": "the samples are too few for a rank test, and far apart",
    "single step": "a single step on a side: the noise is assumed, not measured",
    "identical": "both sides hold the same samples",
    "none": "no verdict",
}
MISMATCH: dict[MismatchState, str] = {
    "refused": "no verdict because of it",
    "normalised": "taken out of the figures",
    "noted": "noted",
}
ENVIRONMENT: dict[EnvironmentKind, str] = {"version": "version", "variable": "variable", "clock": "clock", "hardware": "hardware"}
KERNEL: dict[KernelChangeKind, str] = {
    "new": "new",
    "gone": "gone",
    "renamed": "renamed",
    "slower": "slower",
    "faster": "faster",
    "more": "more often",
    "fewer": "less often",
    "moved": "moved",
}
FINDING: dict[FindingState, str] = {
    "new": "new",
    "worse": "worse",
    "gone": "gone",
    "better": "better",
    "not_assessed": "not assessed again",
    "same": "as before",
}
FINDING_ORDER: tuple[FindingState, ...] = ("new", "worse", "gone", "better", "not_assessed", "same")
WHY: dict[Why, str] = {
    "transport": "waited for transport",
    "packing": "waited for packing",
    "copy": "waited for a copy",
    "allocator": "host in the allocator",
    "host_sync": "host in a waiting call",
    "host_work": "host had not launched",
    "dependency_stalled": "wait unexplained",
    "step_end": "no compute follows",
}
METRIC = {"step_time": "step time", "kernels": "launches"}

COMPUTE = "compute:"


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a category is named and drawn; `order` is its place in a bar."""

    order: int
    label: str
    colour: str
    pattern: str = ""


# Greys where the device idles, warm colours where something else than compute ran.
_LOOKS = {
    "transport": Look(order=100, label="exposed transport", colour="#d55e00", pattern="/"),
    "packing": Look(order=101, label="exposed packing", colour="#e69f00", pattern="x"),
    "copy": Look(order=102, label="exposed copies", colour="#cc79a7", pattern="\\"),
    "launch_starved": Look(order=103, label="launch-starved", colour="#4d4d4d"),
    "host_sync": Look(order=104, label="host-sync", colour="#7a7a7a", pattern="-"),
    "dependency_stalled": Look(order=105, label="dependency-stalled", colour="#a3a3a3", pattern="."),
    "idle": Look(order=106, label="idle", colour="#c8c8c8"),
}


def look(category: str) -> Look:
    """How a category looks; one that is not known keeps its own name."""
    if category.startswith(COMPUTE):
        bucket = category.removeprefix(COMPUTE)
        order = list(words.BUCKET_COLOUR).index(bucket) if bucket in words.BUCKET_COLOUR else 99
        return Look(order=order, label=f"compute: {words.bucket(bucket)}", colour=words.bucket_colour(bucket))
    return _LOOKS.get(category) or Look(order=107, label=words.words(category), colour="#8c6d5a", pattern=".")


def metric(name: str) -> str:
    """What a metric is called."""
    if name in METRIC:
        return METRIC[name]
    if name in _LOOKS or name.startswith(COMPUTE):
        return look(name).label
    if name.startswith("bucket:"):
        return f"bucket {words.bucket(name.removeprefix('bucket:'))}"
    return words.words(name)
