"""The words and colours that every output shares: one name for each wall, state, cause and bucket.

The colours of buckets come from the palettes of Okabe & Ito and of Paul Tol, which stay apart for colour-blind readers. What a step is lost
to has colours of its own, none of them a bucket's: one colour has one meaning. No output relies on colour alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from diagnose.document.device import StepBudget
from diagnose.knowledge.settings import JobSettings, load_job_settings
from diagnose.knowledge.vocabulary import load_vocabulary
from diagnose.model.vocabulary import CAPTURE, ROLE_TITLES
from diagnose.render.figures.figure import Look

VOCABULARY = load_vocabulary()
WALL = {name: VOCABULARY.wall(name) for name in (*VOCABULARY.walls.walls, CAPTURE)}
WALL_MEANING = {name: spec.meaning for name, spec in VOCABULARY.walls.walls.items()}
STATE = {"applicable": "applicable", "already_on": "already on", "blocked": "blocked", "unknown": "undecided"}
STATE_SIGN = {"applicable": "→", "already_on": "✓", "blocked": "✗", "unknown": "?"}
STATUS_MEANING = {
    "measured": "follows from the trace alone",
    "inferred": "a stated heuristic",
    "config": "follows from the job file",
    "hypothesis": "to verify, with the way to verify it",
}
EVIDENCE = {
    "measured": "measured: published measurements show its effect",
    "candidate": "candidate: recommended, but measurements are missing, disagree, or hold for some jobs only; compare matched runs",
    "required": "required: no optimisation; without it something fails or is silently off",
}
OUTCOME = {
    "assert": "assertion",
    "error": "error",
    "out_of_memory": "out of memory",
    "wrong_result": "wrong result",
    "hang": "hang",
    "silently_off": "silently off",
    "slow": "slow",
    "not_trustworthy": "not to be trusted",
}
FIX_PHASE = {
    "fit": "fit: make the job fit into memory",
    "scale": "scale: choose how it is split over GPUs",
    "profile": "profile: find out what holds it back",
    "retune": "retune: remove what the profile shows",
}
COMM_KIND = {
    "expert": "EP all-to-all",
    "data": "DP collectives",
    "tensor": "TP collectives",
    "pipeline": "pipeline send/recv",
    "context": "CP communication",
    "other": "unknown group",
}
HOST_CAUSE = {
    "python": "Python",
    "host": "CPU work",
    "launch": "launch calls",
    "sync": "synchronisation",
    "allocator": "allocator call",
    "gc": "garbage collection",
    "loading": "data loading",
    "recompilation": "compiling again",
    "message_passing": "MPI",
    "first_use": "first use",
}
LATE_PATTERN = {
    "always": "nearly all waiting is for it",
    "mostly": "most waiting is for it",
    "rotating": "the waiting is for one rank after the other",
}
LATE_CAUSE = {
    "slow_gpu": "slow GPU",
    "slow_host": "slow CPU",
    "expert_work": "more expert tokens",
    "vision_work": "more images",
    "more_work": "more work",
    "slow_link": "slow link",
    "unknown": "cause not recorded",
}
LATE_LONGER = {"slow_gpu": "compute", "slow_host": "launch-bound"}  # what is longer where a cause lies in no bucket
RANK_PROBLEM = {"runs": "of another run", "missing": "missing", "duplicate": "given twice", "steps": "other steps", "failed": "failed"}
LIKE_GROUP_BY = {"job": "the job's parallel sizes", "fingerprint": "what the ranks run"}
MATCHED_BY = {
    "communicator": "communicator",
    "process group": "process group",
    "job": "the job's parallel sizes",
    "common ends": "common ends",
}
PHASE = {"forward": "fwd", "backward": "bwd", "recompute": "recompute", "optimizer": "optimizer", "unknown": "?"}
SEVERITY_RANK = {"high": 0, "medium": 1, "low": 2}
GRAPHS = {
    "none": "no CUDA graphs",
    "nodes": "CUDA graphs, traced node by node",
    "opaque": "CUDA graphs traced as a whole: what ran inside is unknown",
}

BUCKET_COLOUR = {name: spec.colour for name, spec in VOCABULARY.buckets.items()}


def job_settings() -> JobSettings:
    """The formats and settings of job files; read when a document that has a job is first shown, not with these words."""
    return load_job_settings()


# What the rows of the data are called, as titles (`wall` of the capture too; `part`: of a wall's bound) and inside a sentence.
wall, wall_in_text, part = VOCABULARY.wall, VOCABULARY.wall_in_text, VOCABULARY.walls.part
bucket, bucket_colour = VOCABULARY.bucket, VOCABULARY.colour


def target(name: str | None) -> str:
    """The wall to attack first as a title, or that there is none."""
    return "No verdict" if name is None else wall(name)


def role(name: str) -> str:
    """A role as people write it."""
    return ROLE_TITLES.get(name, name)


def words(identifier: str) -> str:
    """An identifier as people write it: `expert_gemm` → `expert gemm`."""
    return identifier.replace("_", " ")


class Segment(NamedTuple):
    """One part of a step that together with the others makes up the whole step, exactly."""

    key: str
    look: Look
    of: Callable[[StepBudget], int]


SEGMENTS = (
    Segment("compute", Look("compute active", "#27496d", order=0), lambda step: step.compute_busy_ns),
    Segment("blocking_transport", Look("stalled on communication", "#c1272d", order=1), lambda step: step.blocking_transport_ns),
    Segment("blocking_packing", Look("stalled on permute/unpermute", "#f2a07b", "/", order=2), lambda step: step.blocking_packing_ns),
    Segment("blocking_copy", Look("stalled on copies", "#a35bb5", "x", order=3), lambda step: step.blocking_copy_ns),
    Segment("host_work", Look("CPU: next kernel not launched", "#4f7942", order=4), lambda step: step.host_work_ns),
    Segment("host_sync", Look("CPU: synchronisation", "#8fa34a", "\\", order=5), lambda step: step.host_sync_ns),
    Segment("allocator", Look("CPU: allocator calls", "#7a3e2b", "+", order=6), lambda step: step.allocator_ns),
    Segment("dependency_stalled", Look("waiting, cause unknown", "#5c6670", "-", order=7), lambda step: step.dependency_stalled_ns),
)
CAUSE_LOOKS = {
    **{part.key: part.look for part in SEGMENTS},
    "blocking": Look("stalled on another kernel", "#d98ca0", order=10),
    "python": Look("CPU: Python", "#5fae57", order=20),
    "host": Look("CPU: no CUDA call", "#a9c77f", order=20),
    "loading": Look("CPU: data loading", "#6a9a5b", ".", order=23),
    "recompilation": Look("CPU: compiling again", "#7f8f3a", "|", order=26),
    "message_passing": Look("CPU: MPI", "#c8742b", "/", order=24),
    "launch": Look("CPU: launch calls", "#8ecbb0", "/", order=21),
    "first_use": Look("CPU: first use (loading, compiling)", "#b9a04c", "+", order=25),
    "gc": Look("CPU: garbage collection", "#2f5d2f", "x", order=22),
}


def gap_look(cause: str) -> Look:
    """How a gap of that cause is drawn; a cause that is not known here keeps its own name."""
    return CAUSE_LOOKS.get(cause) or Look(words(cause), "#c9b8a8", ".", order=99)


def reason_label(state: str) -> str:
    """How the sentences beside a fix are called: what an applicable one leaves open, and why another is not applicable."""
    return "check first" if state == "applicable" else "because"
