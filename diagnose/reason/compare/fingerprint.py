"""The fingerprint of a job and its device: what a named baseline has to share with the run that is held against it.

It is made of the aspects that make two jobs the same work (their refused settings, trace_rules/comparison.yaml), the number of ranks and the GPU. Tunables are not part of it, because
changing them is what a baseline is for; neither are the ranks that were captured, the profiler and its mode, which `comparable` judges for each comparison.
"""

from __future__ import annotations

import hashlib

from diagnose.document.diagnosis import Diagnosis
from diagnose.reason.compare.job import Job, job_of, shown, world_size
from diagnose.reason.compare.limits import JOB_ASPECTS, JobAspect, load_limits
from diagnose.reason.compare.metrics import place_of

NOT_TOLD = "not told"
_LENGTH = 16


def fingerprint(document: Diagnosis) -> str:
    """Sixteen hexadecimal digits over the named parts; the same for every run of one job on one kind of GPU."""
    text = "\n".join(f"{name}={value}" for name, value in describe(document))
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def describe(document: Diagnosis) -> tuple[tuple[str, str], ...]:
    """The named parts, in a fixed order: each job aspect, then the device. What is not known reads "not told"."""
    job = job_of(document)
    parts = [(aspect, _aspect(document, job, aspect)) for aspect in JOB_ASPECTS]
    return (*parts, ("device", device(document) or NOT_TOLD))


def differing(base: Diagnosis, new: Diagnosis) -> tuple[tuple[str, str, str], ...]:
    """The parts that differ: name, value in base, value in new."""
    return tuple((name, here, there) for (name, here), (_, there) in zip(describe(base), describe(new), strict=True) if here != there)


def device(document: Diagnosis, place: tuple[int, int] | None = None) -> str | None:
    """The GPU's name on one device, by default the verdict's; None where the trace does not name it."""
    where = place or place_of(document)
    return next((one.name for one in document.capture.devices if (one.rank, one.device) == where), None)


def _aspect(document: Diagnosis, job: Job | None, aspect: JobAspect) -> str:
    if aspect == "world":
        ranks = world_size(document)
        return NOT_TOLD if ranks is None else f"{ranks} ranks"
    if job is None:
        return NOT_TOLD
    known = [(name, job.value(name)) for name in load_limits().aspects[aspect].refused]
    return ", ".join(f"{name} {shown(value)}" for name, value in known if value is not None) or NOT_TOLD
