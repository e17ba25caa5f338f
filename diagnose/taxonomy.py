"""What the program knows about kernels, ranges and host calls, read from YAML and checked.

`trace_rules/buckets/*.yaml` holds three kinds of entry, each in order of precedence (files by name, then as written):

* *families*: what a device operation is, by its name; the first family whose pattern matches wins;
* *contexts*: what an enclosing range (NVTX, annotation, framework operator, Python frame) says about the launches in it;
* *groups*: what a process group's description says about a collective.

`trace_rules/hosts.yaml` holds the families of host calls and ranges. Patterns are regular expressions in the syntax of Rust's
`regex` crate, as polars uses it: no look-around, no back-references, and so no pattern that can run away.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import polars as pl

from diagnose import strict_yaml
from diagnose.errors import RuleFileError
from diagnose.vocabulary import BUCKETS, Bucket, CommKind, Phase, Role

MAX_CONTEXTS = 61  # one bit each in a mask; the last of the 62 bits that a sweep holds marks recorded forward operators

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
HostRole = Literal["allocator", "synchronise", "launch", "graph_launch", "capture"]

_COMPUTE: Role = "compute"


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of device operations, recognised by name.

    `bucket` is None where the name can't decide; the family then ends in `default` unless a context or a neighbour knows
    better. `decisive`: no context but an overriding one (the vision tower) may change the bucket.
    """

    id: str
    patterns: tuple[str, ...]
    operation: Operation
    bucket: Bucket | None = None
    default: Bucket | None = None
    decisive: bool = False
    role: Role = _COMPUTE
    kind: CommKind | None = None
    backend: Backend | None = None
    phase: Phase | None = None
    marker: Marker | None = None
    op_kind: Literal["kernel", "memcpy", "memset", "graph"] = "kernel"
    alternatives: tuple[Bucket, ...] = ()
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
    bucket: Bucket | None = None
    kind: CommKind | None = None
    phase: Phase | None = None
    overrides: bool = False
    requires: tuple[str, ...] = ()
    inherited: bool = True  # a backward node takes it over from its forward operator


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a process group's description tells about its collectives."""

    id: str
    patterns: tuple[str, ...]
    kind: CommKind


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


class _BucketFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    families: tuple[Family, ...] = ()
    contexts: tuple[Context, ...] = ()
    groups: tuple[Group, ...] = ()


class _HostFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    calls: tuple[HostCall, ...]
    ranges: tuple[HostRange, ...]
    polled: tuple[PolledKernel, ...] = ()
    steps: tuple[StepAnchor, ...]


@dataclass(frozen=True, kw_only=True)
class Taxonomy:
    """All entries in order of precedence; those of the user's own files stand first and are named in `own`."""

    families: tuple[Family, ...]
    contexts: tuple[Context, ...]
    groups: tuple[Group, ...]
    own: frozenset[str]  # ids that come from the user's files

    def bit(self, context_id: str) -> int:
        """The bit of a context in a mask. Raises KeyError."""
        for bit, context in enumerate(self.contexts):
            if context.id == context_id:
                return bit
        raise KeyError(context_id)


@dataclass(frozen=True, kw_only=True)
class HostRules:
    """Families of host calls and ranges, kernels that the host polls for, and the spellings of step ranges in order of preference."""

    calls: tuple[HostCall, ...]
    ranges: tuple[HostRange, ...]
    steps: tuple[StepAnchor, ...]
    polled: tuple[PolledKernel, ...] = ()

    def polled_pattern(self) -> str:
        """One pattern for the names of all kernels that the host polls for."""
        return union([pattern for kernel in self.polled for pattern in kernel.patterns])

    def call_pattern(self, role: HostRole, waits_for: str | None = None) -> str:
        """One pattern for all calls of a role (and of what they wait for)."""
        return union(
            [pattern for call in self.calls if call.role == role and waits_for in (None, call.waits_for) for pattern in call.patterns]
        )

    def range_pattern(self, meaning: str) -> str:
        """One pattern for all ranges with a meaning."""
        return union([pattern for item in self.ranges if item.meaning == meaning for pattern in item.patterns])


def union(patterns: Sequence[str]) -> str:
    r"""One regular expression that matches where any of `patterns` does; matches nothing when there are none.

    `\w`, `\d` and `\b` are taken as ASCII: names of kernels and ranges are, and the tables of all alphabets cost most of the
    time that a pattern takes to compile.
    """
    joined = "|".join(f"(?:{pattern})" for pattern in patterns) or r"[^\s\S]"
    return joined.replace(r"\w", "[0-9A-Za-z_]").replace(r"\d", "[0-9]").replace(r"\b", r"(?-u:\b)")


def load_taxonomy(folder: Traversable | Path | None = None, extra: Sequence[Path] = ()) -> Taxonomy:
    """The bucket rules of `folder` (the program's own by default), after the user's own files `extra`.

    Raises RuleFileError naming file, place and reason.
    """
    root = folder if folder is not None else importlib.resources.files("trace_rules") / "buckets"
    own = [_bucket_file(path) for path in extra]
    shipped = [_bucket_file(path) for path in sorted(root.iterdir(), key=lambda item: item.name) if path.name.endswith(".yaml")]
    if not shipped:
        raise _wrong(root.name, "the folder", "holds no .yaml file")
    every = [*own, *shipped]
    taxonomy = Taxonomy(
        families=tuple(entry for file in every for entry in file.families),
        contexts=tuple(entry for file in every for entry in file.contexts),
        groups=tuple(entry for file in every for entry in file.groups),
        own=frozenset(entry.id for file in own for entry in _entries(file)),
    )
    _check(taxonomy, root.name)
    return taxonomy


def load_host_rules(file: Traversable | Path | None = None) -> HostRules:
    """The rules for host calls and ranges. Raises RuleFileError."""
    path = file if file is not None else importlib.resources.files("trace_rules") / "hosts.yaml"
    decoded = _decode(path, _HostFile)
    for place, entries in (("calls", decoded.calls), ("ranges", decoded.ranges), ("polled", decoded.polled)):
        for entry in entries:
            _check_patterns(path.name, f"{place}, {entry.id}", entry.patterns)
    for anchor in decoded.steps:
        _check_patterns(path.name, f"steps, {anchor.id}", (anchor.pattern,))
    _check_unique(path.name, [entry.id for entries in (decoded.calls, decoded.ranges, decoded.polled, decoded.steps) for entry in entries])
    return HostRules(calls=decoded.calls, ranges=decoded.ranges, steps=decoded.steps, polled=decoded.polled)


_FileT = TypeVar("_FileT", _BucketFile, _HostFile)


def _decode(path: Traversable | Path, kind: type[_FileT]) -> _FileT:
    """One rule file as `kind`. Raises RuleFileError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise _wrong(path.name, "the file", f"can't be read ({error.strerror or 'unknown reason'})") from error
    try:
        return msgspec.convert(strict_yaml.load(text), type=kind, strict=True)
    except strict_yaml.YamlError as error:
        raise _wrong(path.name, "the text", str(error)) from error
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        raise _wrong(path.name, place.strip("`") or "the document", reason) from error


def _bucket_file(path: Traversable | Path) -> _BucketFile:
    file = _decode(path, _BucketFile)
    for entry in _entries(file):
        place = f"entry {entry.id}"
        if not entry.patterns:
            raise _wrong(path.name, place, "has no pattern")
        _check_patterns(path.name, place, entry.patterns)
        if isinstance(entry, Context):
            _check_patterns(path.name, place, entry.unless)
            if entry.bucket is None and entry.kind is None and entry.phase is None:
                raise _wrong(path.name, place, "tells neither bucket, kind nor phase")
        if isinstance(entry, Family) and entry.bucket is None and entry.default is None:
            raise _wrong(path.name, place, "has neither a bucket nor a default")
    return file


def _entries(file: _BucketFile) -> Iterator[Family | Context | Group]:
    yield from file.families
    yield from file.contexts
    yield from file.groups


def _check(taxonomy: Taxonomy, name: str) -> None:
    """Raise RuleFileError for what only shows across files."""
    for entries in (taxonomy.families, taxonomy.contexts, taxonomy.groups):
        _check_unique(name, [entry.id for entry in entries])
    if len(taxonomy.contexts) > MAX_CONTEXTS:
        raise _wrong(name, "contexts", f"{len(taxonomy.contexts)} of them; at most {MAX_CONTEXTS} are possible")
    known = {context.id for context in taxonomy.contexts}
    for context in taxonomy.contexts:
        for needed in context.requires:
            if needed not in known:
                raise _wrong(name, f"entry {context.id}", f"requires {needed!r}, which is no context")


def _check_unique(file: str, ids: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise _wrong(file, f"entry {name}", "the id stands twice")
        seen.add(name)


def _check_patterns(file: str, place: str, patterns: Sequence[str]) -> None:
    """Raise RuleFileError for the first pattern that does not compile."""
    if not patterns or _compiles(patterns) is None:
        return
    for pattern in patterns:
        reason = _compiles((pattern,))
        if reason is not None:
            raise _wrong(file, place, f"the pattern {pattern!r} is no regular expression ({reason})")


def _compiles(patterns: Sequence[str]) -> str | None:
    """Why the union of `patterns` does not compile; None where it does."""
    try:
        pl.Series([""], dtype=pl.String).str.contains(union(patterns))
    except pl.exceptions.ComputeError as error:
        return " ".join(str(error).split())[-120:]
    return None


def _wrong(file: str, place: str, reason: str) -> RuleFileError:
    return RuleFileError(
        f"{file}: {place}: {reason}.",
        effect="No trace can be classified with it.",
        next_step=f"Repair the file; trace_rules/README.md describes the fields. Buckets are {', '.join(BUCKETS)}.",
    )
