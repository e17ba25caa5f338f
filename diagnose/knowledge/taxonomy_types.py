"""The entries that files of buckets and of host calls hold: one strict class each. trace_rules/README.md explains the fields."""

from __future__ import annotations

from typing import Literal

import msgspec

from diagnose.model.vocabulary import CommKind, Phase, Role

Operation = Literal[
    "gemm",  # a plain matrix product
    "tail",  # set-up or tail kernel of a matrix product: split-K reduction, epilogue, tensor maps
    "grouped_gemm",
    "attention",
    "conv",
    "norm",
    "softmax",
    "activation",
    "elementwise",
    "layout",  # copies that only move data: concatenation, transposition, padding
    "reduce",
    "sort",  # sort, top-k, histogram, scan
    "gather",  # gather, scatter, index
    "random",
    "quantize",
    "router",
    "permute",
    "exchange",  # tokens (or anything else) from every rank to every rank, or point to point
    "notify",  # barrier or count exchange that belongs to an exchange: waiting, not moving
    "collective",
    "copy",
    "foreach",  # one operation over a list of tensors
    "optimizer",
    "loss",
    "embedding",
    "graph",
    "other",
]
Backend = Literal["nccl", "rccl", "deepep", "hybridep", "nvshmem", "symmetric_memory", "userbuffers", "other"]
Source = Literal["nvtx", "annotation", "operator", "module"]
Marker = Literal["open", "close"]  # begins, or ends, the stretch in which experts compute
Mark = Literal[
    "fp32_product",  # a product with its result in single precision, as gates have
    "top_k",  # selects experts, or anything else
    "concatenation",
    "rows",  # takes rows by an index, or adds them up by one: an embedding's by default
    "adds",  # adds up what it moves
    "cast",  # copies into another type
    "all_gather",
    "reduce_scatter",
    "layer_norm",
    "gelu",
    "patches",  # convolution and interpolation, as a vision tower has
    "biased_product",
]
ContextMark = Literal[
    "linear",  # the operator of a linear layer; an expert's may be one too
    "phase",  # stands for its phase where nothing but the phase is told
]
HostRole = Literal["allocator", "synchronise", "launch", "graph_launch", "capture"]

_COMPUTE: Role = "compute"


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of device operations, recognised by name.

    `bucket` is None where the name can't decide; the family then ends in `default` unless a context or a neighbour knows
    better. `decisive`: no context but an overriding one (the vision tower) may change the bucket. `marks`: what the rules about neighbours
    go by besides the operation.
    """

    id: str
    patterns: tuple[str, ...]
    operation: Operation
    bucket: str | None = None
    default: str | None = None
    decisive: bool = False
    role: Role = _COMPUTE
    kind: CommKind | None = None
    backend: Backend | None = None
    phase: Phase | None = None
    marker: Marker | None = None
    op_kind: Literal["kernel", "memcpy", "memset", "graph"] = "kernel"
    alternatives: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    examples: tuple[str, ...] = ()


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an enclosing range tells about a launch, recognised by the range's text.

    It gives `bucket` and `kind` to the listed `operations` (none listed: to all), and `phase` to every launch inside. `unless`
    takes texts out again; `requires` names contexts of which one must enclose the launch too.
    """

    id: str
    patterns: tuple[str, ...]
    evidence: Literal["module", "operator"]
    unless: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ("nvtx", "annotation", "operator", "module")
    operations: tuple[Operation, ...] = ()
    bucket: str | None = None
    kind: CommKind | None = None
    phase: Phase | None = None
    overrides: bool = False
    requires: tuple[str, ...] = ()
    marks: tuple[ContextMark, ...] = ()
    inherited: bool = True  # a backward node takes it over from its forward operator


class Payload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a collective carries: element types as PyTorch records them, and how many elements one rank gives."""

    dtypes: tuple[str, ...] = ()  # none listed: any
    min_elements: int = 0
    max_elements: int | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a process group's description tells about its collectives.

    With a `payload` the entry speaks of collectives whose group no description tells, and its patterns match the collective's name.
    """

    id: str
    patterns: tuple[str, ...]
    kind: CommKind
    payload: Payload | None = None


class HostCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of host API calls. `waits_for`: what a synchronising call waits for."""

    id: str
    patterns: tuple[str, ...]
    role: HostRole
    waits_for: Literal["stream", "event", "device"] | None = None


class HostRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of host ranges that name what the host does."""

    id: str
    patterns: tuple[str, ...]
    meaning: Literal["garbage_collection", "data_loading"]


class PolledKernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kernels whose end the host polls for in mapped memory, without any call that a profiler would show."""

    id: str
    patterns: tuple[str, ...]
    source: str


class StepAnchor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One spelling of an iteration's range. `numbered`: the first capture group of the pattern is the iteration's number."""

    id: str
    pattern: str
    numbered: bool
