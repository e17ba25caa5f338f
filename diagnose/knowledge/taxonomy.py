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
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, TypeVar, get_args

import msgspec
import polars as pl
from msgspec import Struct, structs

from diagnose.errors import RuleFileError
from diagnose.knowledge import strict_yaml
from diagnose.knowledge.buckets import Buckets, load_buckets
from diagnose.knowledge.data import document
from diagnose.knowledge.words import Lines, Sets, WrongLineError
from diagnose.model.vocabulary import CommKind, Phase, Role

Operation = Literal[
    "gemm",  # a plain matrix product
    "tail",  # set-up or tail kernel of a matrix product: split-K reduction, epilogue, tensor maps
    "grouped_gemm",
    "attention",
    "rope",  # rotary embedding: beside attention, once or twice for each
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
Backend = Literal["nccl", "rccl", "deepep", "hybridep", "nvshmem", "symmetric_memory", "userbuffers", "peer_copy", "other"]
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
    "all_reduce",
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
HostRole = Literal["allocator", "synchronise", "launch", "graph_launch", "capture", "stream_memory_wait", "first_use"]


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of device operations, recognised by name.

    By `patterns`, by the `words` of its function, or by those of the `namespaces` around it (`diagnose.knowledge.words`).

    `bucket` is None where the name can't decide; the family then ends in `default` unless a context or a neighbour knows
    better. `decisive`: no context but an overriding one (the vision tower) may change the bucket. `marks`: what the rules about neighbours
    go by besides the operation.
    """

    id: str
    operation: Operation
    patterns: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    bucket: str | None = None
    default: str | None = None
    decisive: bool = False
    role: Role = "compute"
    kind: CommKind | None = None
    backend: Backend | None = None
    phase: Phase | None = None
    marker: Marker | None = None
    op_kind: Literal["kernel", "memcpy", "memset", "graph"] = "kernel"
    alternatives: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    examples: tuple[str, ...] = ()


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an enclosing range tells about a launch, recognised by the range's text, or by the words of it.

    It gives `bucket` and `kind` to the listed `operations` (none listed: to all), and `phase` to every launch inside. `unless`
    takes texts out again; `requires` names contexts of which one must enclose the launch too, `outside` some of which none may.
    """

    id: str
    evidence: Literal["module", "operator"]
    patterns: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ("nvtx", "annotation", "operator", "module")
    operations: tuple[Operation, ...] = ()
    bucket: str | None = None
    kind: CommKind | None = None
    phase: Phase | None = None
    overrides: bool = False
    requires: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    marks: tuple[ContextMark, ...] = ()
    inherited: bool = True  # a backward node takes it over from its forward operator


class Payload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a collective carries: element types as PyTorch records them, and how many elements one rank gives.

    `sharded`: only in the group of all ranks (PyTorch's `default_pg`) of a job whose file splits the optimizer over data-parallel ranks.
    """

    dtypes: tuple[str, ...] = ()  # none listed: any
    min_elements: int = 0
    max_elements: int | None = None
    sharded: bool = False


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a group's description tells of its collectives; with a `payload`, of those that no description tells, by their own names."""

    id: str
    patterns: tuple[str, ...]
    kind: CommKind
    payload: Payload | None = None


class HostCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of host API calls. `waits_for`: what a synchronising call waits for. `compiled`: a silence before it is compilation.

    `starts`: the first call of a process that uses the GPU.
    """

    id: str
    patterns: tuple[str, ...]
    role: HostRole
    waits_for: Literal["stream", "event", "device"] | None = None
    compiled: bool = False
    starts: bool = False


class HostRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of host ranges that name what the host does."""

    id: str
    patterns: tuple[str, ...]
    meaning: Literal["garbage_collection", "data_loading", "message_passing", "start_up", "compilation"]


class PolledKernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kernels whose end the host polls for in mapped memory, without any call that a profiler would show."""

    id: str
    patterns: tuple[str, ...]
    source: str


class StepAnchor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One spelling of an iteration's range. `numbered`: the first capture group of the pattern is the iteration's number.

    `ends`: it is only the last part of a step.
    """

    id: str
    pattern: str
    numbered: bool
    ends: bool = False


class StartUpLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How start-up is told from steady work.

    `long_call_ns`: from here on a call at its first use is a first-use cost; `slow_launches`: more long launches of one kernel are no first
    use; `longer`: times the usual slow call of a name, from which on its first one is, though more are slow; `queue`: operations launched
    and not begun that explain a long launch call; `steady_share`, `named_share`: share of the compute work that has to follow a cost, or a
    range named so; `only_share`: from here on a capture is nothing but start-up; `run_share`: with less of the compute work behind
    start-up, and most of the time before it, too.
    """

    long_call_ns: int
    slow_launches: int
    longer: float
    queue: int
    steady_share: float
    named_share: float
    only_share: float
    run_share: float


BUCKET_KEYS = frozenset({"families", "contexts", "groups"})
MAX_CONTEXTS = 60  # one bit each in a mask; the last two of the 62 bits that a sweep holds mark recorded forward operators


def own_id(entry: Family | Context | Group) -> str:
    """How an entry is named among the user's own: ids are unique among entries of one kind only."""
    return entry.id if isinstance(entry, Family) else f"{'contexts' if isinstance(entry, Context) else 'groups'}/{entry.id}"


class _BucketFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sets: dict[str, tuple[str, ...]] = {}
    families: tuple[Family, ...] = ()
    contexts: tuple[Context, ...] = ()
    groups: tuple[Group, ...] = ()


class Taxonomy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """All entries in order of precedence; those of the user's own files stand first and are named in `own`.

    `buckets`: the rows that entries may name. `sets`: the words that lines of words name together; one of the user's stands in the place of
    a built-in one.
    """

    buckets: Buckets
    families: tuple[Family, ...]
    contexts: tuple[Context, ...]
    groups: tuple[Group, ...]
    own: frozenset[str]  # what comes from the user's files, each by its `own_id`
    sets: Sets

    def marked(self, *marks: Mark) -> list[str]:
        """Ids of the families that carry one of the marks."""
        return [family.id for family in self.families if any(mark in family.marks for mark in marks)]

    def marked_contexts(self, mark: ContextMark) -> list[str]:
        """Ids of the contexts that carry the mark."""
        return [context.id for context in self.contexts if mark in context.marks]

    def lines(self, *entries: tuple[str, ...]) -> Lines:
        """The lines of words of these entries, ready to be looked up in; made once, however many captures are read by them."""
        known = self._lines.get(entries)
        if known is None:
            known = self._lines[entries] = Lines(entries, self.sets)
        return known

    @cached_property
    def decided(self) -> dict[tuple[str | None, str], int]:
        """The index of the family of each (name, kind of operation) that was asked for; diagnose/measure/buckets/classify.py fills it."""
        return {}

    @cached_property
    def _lines(self) -> dict[tuple[tuple[str, ...], ...], Lines]:
        return {}


class HostRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Families of host calls and ranges, kernels that the host polls for, and the spellings of step ranges in order of preference."""

    calls: tuple[HostCall, ...]
    ranges: tuple[HostRange, ...]
    steps: tuple[StepAnchor, ...]
    start_up: StartUpLimits
    polled: tuple[PolledKernel, ...] = ()

    def polled_pattern(self) -> str:
        """One pattern for the names of all kernels that the host polls for."""
        return union([pattern for kernel in self.polled for pattern in kernel.patterns])

    def call_pattern(self, role: HostRole, waits_for: str | None = None) -> str:
        """One pattern for all calls of a role (and of what they wait for)."""
        return union(
            [pattern for call in self.calls if call.role == role and waits_for in (None, call.waits_for) for pattern in call.patterns]
        )

    def compiled_pattern(self) -> str:
        """One pattern for all calls that load what was compiled just before."""
        return union([pattern for call in self.calls if call.compiled for pattern in call.patterns])

    def starting_pattern(self) -> str:
        """One pattern for the calls that a process begins with."""
        return union([pattern for call in self.calls if call.starts for pattern in call.patterns])

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


def load_taxonomy(folder: Traversable | Path | None = None, extra: Sequence[Path] = (), buckets: Buckets | None = None) -> Taxonomy:
    """The bucket rules of `folder`, and the user's own files `extra`; `folder` and `buckets` are the program's own by default.

    An own entry with the id of a built-in one of its kind stands in that one's place, and keeps its marks unless it has some of its own;
    all others stand first, in order. Patterns and words are checked but for the program's own, which tests check. Raises RuleFileError
    naming file, line and reason.
    """
    buckets = load_buckets() if buckets is None else buckets
    root = folder if folder is not None else importlib.resources.files("trace_rules") / "buckets"
    own = [bucket_file(path, buckets) for path in extra]
    paths = sorted((path for path in root.iterdir() if path.name.endswith(".yaml")), key=lambda path: path.name)
    shipped = [bucket_file(path, buckets, packaged=folder is None) for path in paths]
    if not shipped:
        raise _wrong(root.name, "the folder", "holds no .yaml file")
    for files in (own, shipped):
        for kind in ("families", "contexts", "groups"):
            _check_unique([(file, place, entry.id) for file in files for place, entry in file.entries() if place[0] == kind])
    taxonomy = Taxonomy(
        buckets=buckets,
        families=_merged([file.content.families for file in own], [file.content.families for file in shipped]),
        contexts=_merged([file.content.contexts for file in own], [file.content.contexts for file in shipped]),
        groups=_merged([file.content.groups for file in own], [file.content.groups for file in shipped]),
        own=frozenset(own_id(entry) for file in own for _, entry in file.entries()),
        sets={name: words for file in (*shipped, *own) for name, words in file.content.sets.items()},
    )
    check_files(taxonomy, [*own, *shipped], root.name, packaged=folder is None and not own)
    if folder is None:
        _check_marks(taxonomy, root.name)
    return taxonomy


def own_bucket_files(paths: Sequence[Path]) -> list[Path]:
    """The user's bucket files (told by their keys): in a folder those in `buckets/` and those that lie bare. Raises RuleFileError."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            bare = sorted(file for file in path.glob("*.y*ml") if _holds_buckets(file))
            found += [*sorted((path / "buckets").glob("*.y*ml")), *bare]
        elif _holds_buckets(path):
            found.append(path)
    return found


def _holds_buckets(path: Path) -> bool:
    data, _ = _loaded(path)
    return isinstance(data, dict) and bool(data.keys() & BUCKET_KEYS)


_EntryT = TypeVar("_EntryT", Family, Context, Group)


def _merged(own: Sequence[Sequence[_EntryT]], shipped: Sequence[Sequence[_EntryT]]) -> tuple[_EntryT, ...]:
    """The user's new entries, then the built-in ones with those that the user replaces."""
    mine: dict[str, _EntryT] = {entry.id: entry for file in own for entry in file}
    built_in: list[_EntryT] = [entry for file in shipped for entry in file]
    known = {entry.id for entry in built_in}
    new = [entry for entry in mine.values() if entry.id not in known]
    return tuple(new + [_replaced(entry, mine[entry.id]) if entry.id in mine else entry for entry in built_in])


def _replaced(entry: _EntryT, own: _EntryT) -> _EntryT:
    """The user's entry in the place of a built-in one: the marks that the program goes by stay unless it has its own."""
    if isinstance(own, Group) or isinstance(entry, Group) or own.marks:
        return own
    return structs.replace(own, marks=entry.marks)


def load_host_rules(file: Path | None = None) -> HostRules:
    """The rules for host calls and ranges: the program's own, whose patterns tests check, or those of `file`. Raises RuleFileError."""
    path = importlib.resources.files("trace_rules") / "hosts.yaml" if file is None else file
    rules, _ = _decode(path, HostRules, packaged=file is None)
    entries = [
        (f"{place}, {entry.id}", entry.id, entry.patterns) for place in ("calls", "ranges", "polled") for entry in getattr(rules, place)
    ]
    entries += [(f"steps, {anchor.id}", anchor.id, (anchor.pattern,)) for anchor in rules.steps]
    wrong = None if file is None else _first_wrong([patterns for _, _, patterns in entries])
    if wrong is not None:
        index, pattern, reason = wrong
        raise _wrong(path.name, entries[index][0], f"the pattern {pattern!r} is no regular expression ({reason})")
    ids = [name for _, name, _ in entries]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise _wrong(path.name, f"entry {twice}", "the id stands twice")
    return rules


_FileT = TypeVar("_FileT", _BucketFile, HostRules)
_Path = tuple[str | int, ...]  # keys and places in lists, from the document's root


class _Read(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bucket file: its content, and its text to find lines in."""

    name: str
    text: bytes
    content: _BucketFile

    def entries(self) -> Iterator[tuple[_Path, Family | Context | Group]]:
        """Every entry with its place."""
        for kind in ("families", "contexts", "groups"):
            yield from (((kind, index), entry) for index, entry in enumerate(getattr(self.content, kind)))

    def wrong(self, place: _Path, entry: str, reason: str, word: str = "") -> RuleFileError:
        """The error for what stands at `place`."""
        return _wrong(self.name, _at(strict_yaml.line_of(self.text, place, word)) + f"entry {entry}", reason)


def _loaded(path: Traversable | Path, *, packaged: bool = False) -> tuple[object, bytes]:
    """The document in a file, which may be the program's own, and its text. Raises RuleFileError."""
    try:
        text = path.read_bytes()
        return document(path, text) if packaged else strict_yaml.load(text), text
    except OSError as error:
        raise _wrong(path.name, "the file", f"can't be read ({error.strerror or 'unknown reason'})") from error
    except (strict_yaml.YamlError, UnicodeDecodeError) as error:
        raise _wrong(path.name, "the text", str(error)) from error


def _decode(path: Traversable | Path, kind: type[_FileT], *, packaged: bool) -> tuple[_FileT, bytes]:
    """One rule file as `kind`, and its text. Raises RuleFileError."""
    data, text = _loaded(path, packaged=packaged)
    try:
        return msgspec.convert(data, type=kind, strict=True), text
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        raise _wrong(path.name, _at(strict_yaml.line_told(text, str(error))) + (place.strip("`") or "the document"), reason) from error


def _at(line: int | None) -> str:
    return "" if line is None else f"line {line}: "


def bucket_file(path: Traversable | Path, buckets: Buckets, *, packaged: bool = False) -> _Read:
    """One file of buckets. The patterns of a `packaged` one are compiled by tests, and otherwise where they are used."""
    content, text = _decode(path, _BucketFile, packaged=packaged)
    file = _Read(name=path.name, text=text, content=content)
    for place, entry in file.entries():
        _check_buckets(file, place, entry, buckets)
        if not (entry.patterns or getattr(entry, "words", ()) or getattr(entry, "namespaces", ())):
            raise file.wrong(
                (*place, "patterns"), entry.id, "has no pattern" if isinstance(entry, Group) else "has neither patterns nor words"
            )
        if isinstance(entry, Family) and entry.bucket is None and entry.default is None:
            raise file.wrong(place, entry.id, "has neither a bucket nor a default")
    if not packaged:
        _check_patterns(file)
    return file


def _check_buckets(file: _Read, place: _Path, entry: Family | Context | Group, buckets: Buckets) -> None:
    """Raise RuleFileError for a bucket that has no row."""
    named = [("bucket", entry.bucket)] if isinstance(entry, Context) else []
    if isinstance(entry, Family):
        named = [("bucket", entry.bucket), ("default", entry.default), *(("alternatives", one) for one in entry.alternatives)]
    for field, bucket in named:
        if bucket is not None and bucket not in buckets:
            raise file.wrong((*place, field), entry.id, f"there is no bucket {bucket!r}; buckets are {', '.join(buckets)}", bucket)


def _check_marks(taxonomy: Taxonomy, name: str) -> None:
    """Raise RuleFileError for a mark that the program goes by and nothing carries."""
    carried: set[str] = {mark for family in taxonomy.families for mark in family.marks}
    carried |= {mark for context in taxonomy.contexts for mark in context.marks}
    idle = [mark for mark in (*get_args(Mark), *get_args(ContextMark)) if mark not in carried]
    if idle:
        raise _wrong(name, "marks", f"nothing carries the mark {idle[0]!r}, which the rules about neighbours go by")


def _check_patterns(file: _Read) -> None:
    """Raise RuleFileError for the first pattern of a file that does not compile."""
    asked = [
        (place, entry, name, patterns)
        for place, entry in file.entries()
        for name in ("patterns", "unless")
        if (patterns := getattr(entry, name, ()))
    ]
    wrong = _first_wrong([patterns for *_, patterns in asked])
    if wrong is not None:
        index, pattern, reason = wrong
        place, entry, name, _ = asked[index]
        raise file.wrong((*place, name), entry.id, f"the pattern {pattern!r} is no regular expression ({reason})", pattern)


def check_files(taxonomy: Taxonomy, files: Sequence[_Read], name: str, *, packaged: bool) -> None:
    """Raise RuleFileError for what only shows across files. The words of `packaged` ones alone are checked by tests."""
    if len(taxonomy.contexts) > MAX_CONTEXTS:
        raise _wrong(name, "contexts", f"{len(taxonomy.contexts)} of them; at most {MAX_CONTEXTS} are possible")
    known = frozenset(context.id for context in taxonomy.contexts)
    asked = frozenset(needed for context in taxonomy.contexts for needed in (*context.requires, *context.outside))
    for file in files:
        for place, entry in file.entries():
            if not isinstance(entry, Group) and not packaged:
                _check_words(file, place, entry, taxonomy.sets)
            if isinstance(entry, Context):
                _check_context(file, place, entry, known, asked)


def _check_context(file: _Read, place: _Path, entry: Context, known: frozenset[str], asked: frozenset[str]) -> None:
    """Raise RuleFileError for a context that asks for one that isn't there, or that tells nothing and that none asks for."""
    if entry.bucket is None and entry.kind is None and entry.phase is None and entry.id not in asked:
        raise file.wrong(place, entry.id, "tells neither bucket, kind nor phase")
    for field, names in (("requires", entry.requires), ("outside", entry.outside)):
        for needed in names:
            if needed not in known:
                raise file.wrong((*place, field), entry.id, f"{field} {needed!r}, which is no context", needed)


def _check_words(file: _Read, place: _Path, entry: Family | Context, sets: Sets) -> None:
    """Raise RuleFileError for a line of words that is not in the grammar."""
    try:
        Lines([entry.words, entry.namespaces if isinstance(entry, Family) else ()], sets)
    except WrongLineError as error:
        raise file.wrong((*place, "words"), entry.id, str(error)) from error


def _check_unique(entries: Sequence[tuple[_Read, _Path, str]]) -> None:
    seen: dict[str, str] = {}
    for file, place, name in entries:
        if name in seen:
            raise file.wrong(place, name, "the id stands twice" + ("" if seen[name] == file.name else f", also in {seen[name]}"))
        seen[name] = file.name


def _first_wrong(groups: Sequence[Sequence[str]]) -> tuple[int, str, str] | None:
    """The first pattern of `groups` that does not compile: which group, the pattern, and why. All are tried at once first."""
    if _compile_error(groups) is None:
        return None
    reasons = ((index, pattern, _compile_error([[pattern]])) for index, group in enumerate(groups) for pattern in group)
    return next(((index, pattern, reason) for index, pattern, reason in reasons if reason is not None), None)


def _compile_error(groups: Sequence[Sequence[str]]) -> str | None:
    """Why the union of some group's patterns does not compile; None where all do."""
    text = pl.lit("", dtype=pl.String)
    try:
        pl.select([text.str.contains(union(group)).alias(str(index)) for index, group in enumerate(groups) if group])
    except pl.exceptions.ComputeError as error:
        return " ".join(str(error).split())[-120:]
    return None


def _wrong(file: str, place: str, reason: str) -> RuleFileError:
    return RuleFileError(
        f"{file}: {place}: {reason}.",
        effect="No trace can be classified with it.",
        next_step="Repair the file; trace_rules/README.md describes the fields.",
    )
