"""The records that two diagnoses are compared by: each step split without overlap, and each kernel's use.

Parts of the diagnosis document (`diagnose.document.diagnosis`), with its conventions: integer nanoseconds in fields named `_ns`, None for
what could not be measured.
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from diagnose.model.vocabulary import Role

Ran = Literal["transport", "packing", "copy", "nothing"]
Why = Literal["transport", "packing", "copy", "allocator", "host_sync", "host_work", "dependency_stalled", "step_end"]
RAN: tuple[Ran, ...] = get_args(Ran)
WHY: tuple[Why, ...] = get_args(Why)


class Absent(Struct, frozen=True, kw_only=True):
    """Time of one step without compute.

    What ran meanwhile (transport before packing before copies, where several did), and why nothing computed.

    `why` is the split of `StepBudget`: what compute waited for (transport, packing, copy), what kept the host from launching (allocator,
    host_sync, host_work), or dependency_stalled; step_end: nothing ran and nothing is known to have been waited for, and no compute follows
    in the step. dependency_stalled and step_end together are the step's `dependency_stalled_ns`.
    """

    ran: Ran
    why: Why
    ns: int


class StepSplit(Struct, frozen=True, kw_only=True):
    """One step, each nanosecond counted once.

    `compute` by bucket (where several buckets compute at once, each gets an equal share) and the rest add up to `window_ns`.

    Both hold no zeros and stand in the order of their vocabularies. What does not divide equally goes to the first buckets, nanosecond by
    nanosecond.
    """

    index: int
    window_ns: int
    compute: dict[str, int]
    absent: tuple[Absent, ...]


class DeviceSplit(Struct, frozen=True, kw_only=True):
    """All steps of one device."""

    rank: int
    device: int
    steps: tuple[StepSplit, ...]


class KernelUse(Struct, frozen=True, kw_only=True):
    """One name on one stream: launches and work per step (median), and the median duration of one launch in all steps.

    `previous` and `next` are the places, in this device's rows, of the names that most often ran before and after it on the stream, within
    a step; None where nothing did, and where what did is left out. A step without the name counts as 0 launches and 0 work.
    """

    name: str
    bucket: str
    role: Role
    stream: int | None
    launches: int
    work_ns: int
    launch_ns: int
    previous: int | None = None
    next: int | None = None


class DeviceKernels(Struct, frozen=True, kw_only=True):
    """What one device ran, most work first. `omitted`: names that are left out, with `omitted_ns` of work per step."""

    rank: int
    device: int
    kernels: tuple[KernelUse, ...]
    omitted: int = 0
    omitted_ns: int = 0
