"""The words and colours that every output shares: one name for each wall, state, cause and bucket.

Colours come from the palettes of Okabe & Ito and of Paul Tol, which stay apart for colour-blind readers; no output relies on
colour alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diagnose.document.device import StepBudget
from diagnose.knowledge.settings import load_job_settings
from diagnose.knowledge.vocabulary import load_vocabulary
from diagnose.model.vocabulary import CAPTURE

VOCABULARY = load_vocabulary()
JOB_SETTINGS = load_job_settings()
WALL = {name: VOCABULARY.wall(name) for name in (*VOCABULARY.walls.walls, CAPTURE)}
WALL_MEANING = {name: spec.meaning for name, spec in VOCABULARY.walls.walls.items()}
STATE = {"applicable": "applicable", "already_on": "already on", "blocked": "blocked", "unknown": "can't tell"}
STATE_SIGN = {"applicable": "→", "already_on": "✓", "blocked": "✗", "unknown": "?"}
STATE_ORDER = ("applicable", "unknown", "blocked", "already_on")
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
    "silently_off": "has no effect",
    "slow": "slow",
    "not_trustworthy": "not to be trusted",
}
FIX_PHASE = {
    "fit": "fit: make the job fit into memory",
    "scale": "scale: choose how it is split over GPUs",
    "profile": "profile: find out what holds it back",
    "retune": "retune: remove what the profile shows",
}
CERTAINTY = {"high": "high certainty", "medium": "medium certainty", "low": "low certainty"}
COMM_KIND = {
    "expert": "expert exchange",
    "data": "data-parallel",
    "tensor": "tensor-parallel",
    "pipeline": "pipeline",
    "context": "context-parallel",
    "other": "other",
}
LATE_PATTERN = {
    "always": "nearly all waiting is behind it",
    "mostly": "most of the waiting is behind it",
    "rotating": "the waiting is behind one rank after the other",
}
LATE_CAUSE = {
    "slow_gpu": "slower GPU",
    "slow_host": "slow host",
    "expert_work": "more expert work",
    "vision_work": "more vision work",
    "more_work": "more work",
    "slow_link": "slow link",
    "start_skew": "it began later",
    "unknown": "cause not known",
}
LATE_LONGER = {"slow_gpu": "compute", "slow_host": "launch-starved"}  # what is longer where a cause lies in no bucket
RANK_PROBLEM = {"missing": "missing", "duplicate": "given twice", "steps": "other steps", "failed": "failed"}
LIKE_GROUP_BY = {"job": "the job's sizes", "fingerprint": "what the ranks do"}
MATCHED_BY = {"communicator": "communicator", "process group": "process group", "job": "the job's sizes", "common ends": "common ends"}
PHASE = {"forward": "fwd", "backward": "bwd", "recompute": "recompute", "optimizer": "optimizer", "unknown": "?"}
SEVERITY_RANK = {"high": 0, "medium": 1, "low": 2}
GRAPHS = {
    "none": "no CUDA graphs",
    "nodes": "CUDA graphs, kernels inside recorded",
    "opaque": "CUDA graphs traced as a whole: what ran inside is unknown",
}

BUCKET_COLOUR = {name: spec.colour for name, spec in VOCABULARY.buckets.items()}


def wall(name: str) -> str:
    """A wall, or the capture, as a title."""
    return VOCABULARY.wall(name)


def bucket(name: str) -> str:
    """A bucket as people write it."""
    return VOCABULARY.bucket(name)


def bucket_colour(name: str) -> str:
    """A bucket's colour in figures."""
    return VOCABULARY.colour(name)


def words(identifier: str) -> str:
    """An identifier as people write it: `expert_gemm` → `expert gemm`."""
    return identifier.replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One part of a step that together with the others makes up the whole step, exactly."""

    key: str
    label: str
    colour: str
    pattern: str  # plotly's fill pattern, so that colour is not the only sign
    of: Callable[[StepBudget], int]


SEGMENTS: tuple[Segment, ...] = (
    Segment(key="compute", label="compute ran", colour="#0072b2", pattern="", of=lambda step: step.compute_busy_ns),
    Segment(
        key="blocking_transport",
        label="waited for transport",
        colour="#d55e00",
        pattern="",
        of=lambda step: step.blocking_transport_ns,
    ),
    Segment(
        key="blocking_packing",
        label="waited for packing",
        colour="#e69f00",
        pattern="/",
        of=lambda step: step.blocking_packing_ns,
    ),
    Segment(key="blocking_copy", label="waited for a copy", colour="#cc79a7", pattern="x", of=lambda step: step.blocking_copy_ns),
    Segment(key="host_work", label="host: work or launches", colour="#009e73", pattern="", of=lambda step: step.host_work_ns),
    Segment(key="host_sync", label="host: synchronising call", colour="#999933", pattern="\\", of=lambda step: step.host_sync_ns),
    Segment(key="allocator", label="host: allocator call", colour="#882255", pattern="+", of=lambda step: step.allocator_ns),
    Segment(
        key="dependency_stalled",
        label="issued, wait unexplained",
        colour="#8c8c8c",
        pattern="-",
        of=lambda step: step.dependency_stalled_ns,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a cause of missing compute is drawn."""

    order: int
    label: str
    colour: str
    pattern: str


_CAUSE_LOOKS = {
    **{part.key: Look(order=index, label=part.label, colour=part.colour, pattern=part.pattern) for index, part in enumerate(SEGMENTS)},
    "blocking": Look(order=10, label="waited for other device work", colour="#aa4499", pattern=""),
    "python": Look(order=20, label="host: Python or other host work", colour="#009e73", pattern=""),
    "launch": Look(order=21, label="host: launching calls", colour="#44aa99", pattern="/"),
    "gc": Look(order=22, label="host: garbage collection", colour="#117733", pattern="x"),
}


def gap_look(cause: str) -> Look:
    """How a gap of that cause is drawn; a cause that is not known here keeps its own name."""
    return _CAUSE_LOOKS.get(cause) or Look(order=99, label=words(cause), colour="#8c6d5a", pattern=".")
