"""What the program knows, read from trace_rules/ and checked before use: facts, rules, fixes, walls and platforms.

Beside a user's own rules every expression is parsed and tried on data when it is loaded, every name is looked up, every template is
checked, so a wrong rule file is an error with the file and the place, never a wrong diagnosis. The program's own alone are checked so by
tests: they are the same in each run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args

import msgspec
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.errors import RuleFileError
from diagnose.knowledge import strict_yaml, templates
from diagnose.knowledge.buckets import Buckets, load_buckets
from diagnose.knowledge.conditions import Condition, ConditionError, Expression, Formula, Kind, check_types, compile_expression, written_in
from diagnose.knowledge.data import OWN_TABLES, Strict, document
from diagnose.knowledge.effects import SELECT_COLUMNS, EffectSpec, Select
from diagnose.knowledge.relevance import Relevance
from diagnose.knowledge.settings import JobSettings, Numerics, SettingSpec, load_job_settings
from diagnose.knowledge.walls import VERDICT_COLUMNS, Severity, Walls
from diagnose.model.vocabulary import CAPTURE, COMM_KINDS, Cause, FactValue, Level, Outcome, Status, Topic, Wall

Unit = Literal["ns", "share", "count", "bytes", "text", "bool"]
_NUMBERS = dict.fromkeys(("ns", "share", "count", "bytes"), pl.Float64())
UNIT_TYPES: Mapping[str, pl.DataType] = {**_NUMBERS, "text": pl.String(), "bool": pl.Boolean()}
_PLACES = (
    *(f"communication:{kind}" for kind in COMM_KINDS),
    *(f"host:{cause}" for cause in get_args(Cause)),
    *(f"role:{role}" for role in ("compute", "transport", "packing", "copy")),
    *(
        f"ranks:{part}"
        for part in ("straggler", "rotating", "skewed", "experts", "stages", "tail", "link", "duplicate", "steps", "captured")
    ),
    "tiny",
)


def places_of(buckets: Iterable[str]) -> tuple[str, ...]:
    """Where a finding may show: every place that a rule may name."""
    return (*(f"bucket:{bucket}" for bucket in buckets), *_PLACES)


class FactSpec(Strict, frozen=True, kw_only=True):
    """One line of the table of facts. `scope`: what the value speaks of; facts of ranks need several captured ranks.

    `status`: what a claim that rests on it is at best.
    """

    unit: Unit
    meaning: str
    null: str
    scope: Literal["device", "ranks"] = "device"
    status: Literal["measured", "inferred"] = "measured"


class Examples(Strict, frozen=True, kw_only=True):
    """Facts and settings on which a rule must fire, and on which it must not."""

    fires: tuple[dict[str, FactValue | list[str]], ...]
    silent: tuple[dict[str, FactValue | list[str]], ...]


class CauseSpec(Strict, frozen=True, kw_only=True):
    """How the verdict begins where the finding is the cause of what the target wall loses: `of` is that wall (default: the rule's own).

    `headline`: the cause in a word or two, for the verdict's heading; without one the heading is the wall. `outranks`: a failure that
    comes before every wall, however much it costs.
    """

    say: str
    headline: str | None = None
    of: Wall | None = None
    outranks: bool = False


class LateSpec(CauseSpec, frozen=True, kw_only=True):
    """How it begins instead `when` the finding makes one rank late: its bound is then at least what the others wait for that (`saves`)."""

    when: Condition
    saves: Formula


class Rule(Strict, frozen=True, kw_only=True):
    """One bad pattern; trace_rules/README.md explains the fields."""

    id: str
    name: str
    wall: Topic
    status: Literal["preview", "stable", "deprecated"]
    since: str
    summary: str
    when: Condition
    claim: Status
    why: str
    wrong_when: str
    check: str
    evidence: tuple[str, ...]
    examples: Examples
    saves: Formula | None = None
    cause: CauseSpec | None = None
    late: LateSpec | None = None
    severity: Level | Severity | None = None
    fixes: tuple[str, ...] = ()
    first: dict[str, Condition] = msgspec.field(default_factory=dict)
    reach: dict[str, Formula] = msgspec.field(default_factory=dict)
    one_change: bool = False
    where: tuple[str, ...] = ()
    capture: str = ""
    refs: tuple[str, ...] = ()


GENERAL = "general"  # the change in words, for a program of which no framework with settings of its own is known
BESIDE_FRAMEWORKS = ("environment", "launcher", "code", GENERAL)  # where a change can be made that is no setting of a framework


class ChangeSpec(Strict, frozen=True, kw_only=True):
    """One setting to change in one framework, unless `only` is false; `value` computes what to set, `to` is shown where it cannot.

    `to` is a YAML literal that can be written into a job file (`true`, `flex`, `[attn, moe_router]`), except where `choose` says that it
    is words and a person has to choose. `op` says what is done with it: `add` and `remove` change single members of a list, `unset`
    removes the setting.
    """

    framework: str  # a framework of job_formats.yaml, or one of BESIDE_FRAMEWORKS
    key: str
    to: str
    setting: str | None = None
    value: Formula | None = None
    only: Condition | None = None
    op: Literal["set", "add", "remove", "unset"] = "set"
    choose: bool = False


class Requirement(Strict, frozen=True, kw_only=True):
    """A condition with the sentence for when it fails.

    The gate says what it does to the fix: `hard` blocks when it fails and leaves the fix unknown when it is unknown; `known` blocks
    when it fails, but is only told when it is unknown (versions); `note` is only told. `elsewhere`: what it is where the job's framework
    has no such setting.
    """

    condition: Condition = msgspec.field(name="if")
    say: str
    unknown: str = ""
    gate: Literal["hard", "known", "note"] = "hard"
    first: str | None = None
    elsewhere: Literal["met", "unmet", "open"] = "met"
    outcome: Outcome | None = None  # what a run does that has the fix on and breaks this; None where no source tells


class Published(Strict, frozen=True, kw_only=True):
    """A published effect with its source; of jobs for which `only` is false it does not speak."""

    text: str
    source: str
    only: Condition | None = None


class FixSpec(Strict, frozen=True, kw_only=True):
    """One remedy; trace_rules/README.md explains the fields."""

    id: str
    title: str
    walls: tuple[Wall, ...]
    phase: Literal["fit", "scale", "profile", "retune"]
    evidence: Literal["measured", "candidate", "required"]
    changes: tuple[ChangeSpec, ...]
    expected: tuple[Published, ...]
    cost: str
    risk: str
    verify: str
    refs: tuple[str, ...]
    already_on: Condition | None = None
    undecidable: str = ""
    step: int = 1
    disputed: str = ""
    needs: tuple[Requirement, ...] = ()
    conflicts: tuple[Requirement, ...] = ()
    effect: tuple[EffectSpec, ...] = ()
    no_effect: str = ""


class RepairSpec(Strict, frozen=True, kw_only=True):
    """A setting repaired by a computed `value`, or by members of a list that go and come."""

    value: Formula | None = None
    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()


Repair = bool | int | float | str | tuple[str, ...] | RepairSpec | None  # None: the setting goes


class CheckSpec(Strict, frozen=True, kw_only=True):
    """One way in which a job fails or silently errs (fields: trace_rules/README.md); without `when` only a log or run can show it."""

    title: str
    outcome: Outcome
    when: Condition | None
    say: str
    remedy: str
    refs: tuple[str, ...]
    asserted: dict[str, str] = msgspec.field(default_factory=dict)
    symptom: str = ""
    confirm: str = ""
    repair: dict[str, Repair] = msgspec.field(default_factory=dict)
    no_fix: str = ""
    sure: bool = True
    since: str = ""
    frameworks: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    examples: Examples | None = None


class Platform(Strict, frozen=True, kw_only=True):
    """One GPU product. Peaks are dense TFLOP/s; None where no trustworthy figure is public."""

    pattern: str
    architecture: str
    compute_major: int | None
    compute_minor: int | None
    nvlink_domain: int | None
    gpus_per_node: int | None
    sm_count: int | None
    memory_gb: float | None
    memory_tb_per_s: float | None
    nvlink_gb_per_s: float | None = None  # one way, all links of one GPU together
    network_gb_per_s: float | None = None  # one way, of a GPU's port between nodes
    peak_tflops: dict[str, float]
    sources: tuple[str, ...]
    note: str = ""


class SmLimits(Strict, frozen=True, kw_only=True):
    """What fits on one SM at once, by compute capability."""

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    register_unit: int
    shared_unit: int
    reserved_shared_bytes: int


class ExchangeLibrary(Strict, frozen=True, kw_only=True):
    """What a library reaches that takes over an exchange, at the best, the likely and the worst end.

    Shares of the network port and of NVLink; `relay`: GB/s of what is handed on inside a node after it came over the network. Without
    these two it exchanges inside NVLink alone, shares of a tensor between tensor-parallel ranks.
    """

    nvlink: tuple[float, float, float]
    port: tuple[float, float, float] | None = None
    relay: tuple[float, float, float] | None = None


class Platforms(Strict, frozen=True, kw_only=True):
    """The platform table; the first pattern that is found in a GPU's name wins."""

    platforms: dict[str, Platform]
    exchange_libraries: dict[str, ExchangeLibrary]
    all_to_all_nvlink: float  # share of NVLink that an all-to-all by NCCL reaches
    sm_limits: dict[str, SmLimits]
    sm_limits_source: tuple[str, ...]


PLATFORM_FACTS = ("platform", "gpu_compute_major", "nvlink_domain")
_T = TypeVar("_T")
# What a file holds that lies outside these folders.
_KEYS: Mapping[str, frozenset[str]] = {
    "rules": frozenset({"when"}),
    "playbook": frozenset({"changes"}),
    "buckets": frozenset({"families", "contexts", "groups"}),
}
_CHECKS = "checks/"
_ID, _CHECK_ID = re.compile(rb"\Aid: (\S+)"), re.compile(rb"^([a-z0-9][\w-]*):", re.MULTILINE)


class Rulebook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was loaded. `expressions` holds each checked expression by its text and kind, `schema` the columns."""

    facts: Mapping[str, FactSpec]
    job: JobSettings
    rules: Mapping[str, Rule]
    fixes: Mapping[str, FixSpec]
    checks: Mapping[str, CheckSpec]
    walls: Walls
    relevance: Relevance
    buckets: Buckets
    platforms: Platforms
    schema: Mapping[str, pl.DataType]
    expressions: Mapping[tuple[str, Kind], Expression]
    sha256: str

    @property
    def settings(self) -> Mapping[str, SettingSpec]:
        """The settings of job files by name."""
        return self.job.specs

    def expression(self, text: str, kind: Kind = "condition") -> Expression:
        """The checked form of an expression that stands in some rule file."""
        return self.expressions[text, kind]

    def unit(self, name: str) -> str:
        """Unit of a fact or of a column job_<setting>."""
        spec = self.facts.get(name)
        return spec.unit if spec else self.settings[name.removeprefix("job_")].type


class _Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule file: its place inside trace_rules and its bytes; `file` is the program's own, None for one of the user's."""

    label: str
    data: bytes
    file: Traversable | None = None


class _Wanted(NamedTuple):
    """An expression somewhere in a rule file, with the place to name when it is wrong."""

    label: str
    place: str
    text: str
    kind: Kind


class _OnDemand(dict[tuple[str, Kind], Expression]):
    """Expressions that need no check, each compiled when it is first asked for."""

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        super().__init__()
        self.schema = schema

    def __missing__(self, key: tuple[str, Kind]) -> Expression:
        self[key] = compile_expression(*key, self.schema)
        return self[key]


class _Later(Mapping[str, _T]):
    """Entries by id, each read from its file when it is first asked for: a run needs few of the fixes, and hardly ever a check."""

    def __init__(self, files_of: Mapping[str, _Source], kind: type[_T]) -> None:
        self._files = files_of
        self._kind = kind
        self._read: dict[str, _T] = {}

    def __getitem__(self, key: str) -> _T:
        if key not in self._read:
            self._read |= _entries(self._files[key], self._kind)
        return self._read[key]

    def __contains__(self, key: object) -> bool:
        return key in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def load_rulebook(extra: Sequence[Path] = (), *, check: bool = False) -> Rulebook:
    """The built-in rules and those in `extra`: folders laid out like trace_rules, or single files with one rule or one fix.

    What has the id of a built-in rule or fix replaces it. Names, templates and expressions of all are checked where there are own ones, or
    with `check`; without, expressions, fixes and checks are read when they are first asked for. Raises RuleFileError.
    """
    return _load(tuple(source for path in extra for source in _extra_sources(path)), check=check or bool(extra))


def _load(extra: tuple[_Source, ...], *, check: bool) -> Rulebook:
    built_in = tuple(sorted(_tree(files("trace_rules"), ""), key=lambda source: source.label))
    by_label = {source.label: source for source in (*built_in, *(source for source in extra if source.label in OWN_TABLES))}
    facts = _parse(by_label["facts.yaml"], dict[str, FactSpec])
    walls = _parse(by_label["walls.yaml"], Walls)
    _check_walls(walls)
    relevance = _parse(by_label["relevance.yaml"], Relevance)
    buckets = load_buckets(by_label["buckets.yaml"].data)
    job = load_job_settings()
    schema = {name: UNIT_TYPES[spec.unit] for name, spec in facts.items()} | dict(job.schema)
    rules = _collect(built_in, "rules/", Rule) | _collect(extra, "rules/", Rule)
    book = Rulebook(
        facts=facts,
        job=job,
        rules={key: rule for key, (_, rule) in sorted(rules.items())},
        fixes=_Later(dict(sorted(_ids(built_in, "playbook/"))), FixSpec),
        checks=_Later(dict(_ids(built_in, _CHECKS)), CheckSpec),
        walls=walls,
        relevance=relevance,
        buckets=buckets,
        platforms=_parse(by_label["platforms.yaml"], Platforms),
        schema=schema,
        expressions=_OnDemand({**schema, **VERDICT_COLUMNS}),
        sha256=_digest(built_in + extra),
    )
    if not check:
        return book
    fixes = _collect(built_in, "playbook/", FixSpec) | _collect(extra, "playbook/", FixSpec)
    checks = _collect(built_in, _CHECKS, CheckSpec) | _collect(extra, _CHECKS, CheckSpec)
    book = replace(
        book,
        fixes={key: fix for key, (_, fix) in sorted(fixes.items())},
        checks={key: one for key, (_, one) in checks.items()},
    )
    return _checked(book, rules, fixes, checks, {source.label: source.data for source in (*built_in, *extra)})


def _checked(
    book: Rulebook,
    rules: Mapping[str, tuple[str, Rule]],
    fixes: Mapping[str, tuple[str, FixSpec]],
    checks: Mapping[str, tuple[str, CheckSpec]],
    texts: Mapping[str, bytes],
) -> Rulebook:
    """The rulebook with all its expressions compiled. Raises RuleFileError for one that is wrong, and for names and templates."""
    entries = [(label, "", entry) for label, entry in (*rules.values(), *fixes.values())]
    entries += [(label, key, check) for key, (label, check) in checks.items()]
    wanted = [
        _Wanted(label, *found)
        for label, place, entry in (*entries, ("relevance.yaml", "", book.relevance))
        for found in written_in(entry, place)
    ]
    of_walls = [_Wanted("walls.yaml", *found) for found in written_in(book.walls)]
    compiled = _compile(wanted, book.schema, texts) | _compile(of_walls, {**book.schema, **VERDICT_COLUMNS}, texts)
    book = replace(book, expressions=compiled)
    _check_names(book, {key: label for key, (label, _) in [*rules.items(), *fixes.items()]}, texts)
    selects = [_Wanted(label, *found) for label, fix in fixes.values() for found in written_in(fix, declared=(Select,))]
    _compile(selects, SELECT_COLUMNS, texts)
    units = {name: book.unit(name) for name in book.schema if name.startswith("job_") or name in PLATFORM_FACTS}
    for key, (label, check) in checks.items():
        _check_check(book, units, label, key, check)
    return book


def _tree(folder: Traversable, prefix: str) -> Iterator[_Source]:
    for item in folder.iterdir():
        label = f"{prefix}{item.name}"
        if item.is_dir():
            yield from _tree(item, f"{label}/")
        elif item.name.endswith((".yaml", ".yml")):
            yield _Source(label=label, data=item.read_bytes(), file=item)


def _extra_sources(path: Path) -> tuple[_Source, ...]:
    """Rule files under a path that the user named, as rules/…, playbook/…, checks/… or buckets/….

    Files that lie bare are told by their keys.
    """
    try:
        if not path.is_dir():
            return (_told_by_keys(_Source(label=path.name, data=path.read_bytes())),)
        parts = {part: sorted((path / part).glob("*.y*ml")) for part in ("rules", "playbook", "checks", "buckets")}
        inner = [_Source(label=f"{part}/{file.name}", data=file.read_bytes()) for part, found in parts.items() for file in found]
        lying = [_Source(label=file.name, data=file.read_bytes()) for file in sorted(path.glob("*.y*ml"))]
        bare = [source if source.label in OWN_TABLES else _told_by_keys(source) for source in lying]
    except OSError as error:
        raise RuleFileError(
            f"The rules at {path} cannot be read: {error.strerror or error}.",
            effect="Nothing was analysed.",
            next_step="Give a folder of rules or a YAML file.",
        ) from error
    if not inner and not bare:
        raise RuleFileError(
            f"The folder {path} holds no rule file.",
            effect="Nothing was analysed.",
            next_step="Put YAML files into rules/, playbook/, checks/ or buckets/ under it; trace_rules/README.md explains their fields.",
        )
    return tuple(inner + bare)


def _told_by_keys(source: _Source) -> _Source:
    data = _yaml(source)
    keys = data.keys() if isinstance(data, dict) else set()
    for part, marks in _KEYS.items():
        if keys & marks:
            return _Source(label=f"{part}/{source.label}", data=source.data)
    raise rule_error(
        source.label, "it holds neither a rule (`when`), nor a fix (`changes`), nor buckets (`families`, `contexts`, `groups`)"
    )


def _yaml(source: _Source) -> object:
    try:
        return _text_keys(strict_yaml.load(source.data) if source.file is None else document(source.file, source.data))
    except (strict_yaml.YamlError, UnicodeDecodeError) as error:
        raise rule_error(source.label, str(error)) from error


def _text_keys(value: object) -> object:
    """YAML reads the key `null` as nothing; here it is the word."""
    if isinstance(value, dict):
        return {"null" if key is None else key: _text_keys(item) for key, item in value.items()}
    return value


def _parse(source: _Source, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(_yaml(source), kind)
    except msgspec.ValidationError as error:
        raise rule_error(source.label, str(error), source.data) from error


def rule_error(label: str, what: str, data: bytes | None = None) -> RuleFileError:
    """The error for one rule file; `what` names the place in it, and `data`, the file's text, gives the line."""
    line = strict_yaml.line_told(data, what) if data is not None else None
    return RuleFileError(
        f"The rule file {label} is wrong: {'' if line is None else f'line {line}: '}{what.rstrip('.')}.",
        effect="No rule was used, because a wrong rule would give a wrong diagnosis.",
        next_step="Correct the file; trace_rules/README.md explains its fields.",
    )


def _collect(sources: Sequence[_Source], part: str, kind: type[_T]) -> dict[str, tuple[str, _T]]:
    """Entries of one layer by id; two with the same id are an error. A file of checks maps ids to several."""
    found: dict[str, tuple[str, _T]] = {}
    for source in (one for one in sources if one.label.startswith(part)):
        for key, entry in _entries(source, kind).items():
            if key in found:
                where, data = ("", None) if part == _CHECKS else ("id: ", source.data)
                raise rule_error(source.label, f"{where}the id {key} stands already in {found[key][0]}", data)
            found[key] = (source.label, entry)
    return found


def _entries(source: _Source, kind: type[_T]) -> dict[str, _T]:
    """The entries of one file by id: one, or the several of a file of checks."""
    if source.label.startswith(_CHECKS):
        return _parse(source, dict[str, kind])  # type: ignore[valid-type]
    entry = _parse(source, kind)
    return {getattr(entry, "id", ""): entry}


def _ids(sources: Sequence[_Source], part: str) -> Iterator[tuple[str, _Source]]:
    """The ids in the program's own files of one layer, by how these are written, each with its file."""
    key = _CHECK_ID if part == _CHECKS else _ID
    return ((found.decode(), source) for source in sources if source.label.startswith(part) for found in key.findall(source.data))


def _check_check(book: Rulebook, units: Mapping[str, str], label: str, key: str, check: CheckSpec) -> None:
    """Names of one check that stand outside its condition: only settings and the platform (`units`) are known without a trace."""
    examples = () if check.examples is None else (*check.examples.fires, *check.examples.silent)
    read = () if check.when is None else book.expression(check.when).names
    wrong = (
        [f"when: {name} is not known without a trace" for name in read if name not in units]
        + [f"fixes: unknown fix {name}" for name in check.fixes if name not in book.fixes]
        + [f"repair: unknown setting {name}" for name in check.repair if name not in book.settings]
        + [f"frameworks: unknown framework {name}" for name in check.frameworks if name not in book.job.frameworks]
        + [f"examples: unknown name {name}" for name in sorted({name for facts in examples for name in facts}) if name not in units]
        + [f"say: {problem}" for problem in templates.problems(check.say, units)]
        + (["examples: a check with a condition needs them"] if check.when is not None and check.examples is None else [])
        + (["no_fix: there is a fix"] if check.no_fix and (check.fixes or check.repair) else [])
        + (["confirm: without a condition, say how to tell"] if check.when is None and not check.confirm else [])
    )
    if wrong:
        raise rule_error(label, f"{key}: {wrong[0]}")


def _check_walls(walls: Walls) -> None:
    """Raise RuleFileError unless two walls can be the target, one is where none of them is, and each says so in some words."""
    mute = [wall for wall, spec in walls.walls.items() if not any(lead.when is None for lead in spec.says)]
    wrong = (
        [f"walls.{wall}.says: no clause without `when`, so it could go unsaid" for wall in mute]
        + ([] if any(lead.when is None for lead in walls.lead) else ["lead: no clause without `when`, so a verdict could have no sentence"])
        + ([] if len(walls.contenders) > 1 else ["walls: at least two have to be contenders"])
        + (
            []
            if len(walls.walls) - len(walls.contenders) == 1
            else ["walls: just one is no contender, and is the target where no other is"]
        )
    )
    if wrong:
        raise rule_error("walls.yaml", wrong[0])


def _compile(
    wanted: Sequence[_Wanted], schema: Mapping[str, pl.DataType], files: Mapping[str, bytes]
) -> dict[tuple[str, Kind], Expression]:
    """Checked expressions by text and kind; types are tried for all at once."""
    first: dict[tuple[str, Kind], _Wanted] = {}
    for item in wanted:
        first.setdefault((item.text, item.kind), item)
    expressions = []
    for item in first.values():
        try:
            expressions.append(compile_expression(item.text, item.kind, schema))
        except ConditionError as error:
            raise rule_error(item.label, f"{item.place}: {error}", files[item.label]) from error
    wrong = check_types(expressions, schema)
    if wrong is not None:
        item = list(first.values())[wrong[0]]
        raise rule_error(item.label, f"{item.place}: {wrong[1]}", files[item.label])
    return dict(zip(first, expressions, strict=True))


def _check_names(book: Rulebook, labels: Mapping[str, str], files: Mapping[str, bytes]) -> None:
    """Names that stand outside expressions: evidence, fixes, places, settings, templates, examples. Raises RuleFileError."""
    units = {name: book.unit(name) for name in book.schema}
    places = places_of(book.buckets)
    wrong = {key: _wrong_in_rule(rule, book, units, places) for key, rule in book.rules.items()}
    wrong |= {key: _wrong_in_fix(fix, book, units) for key, fix in book.fixes.items()}
    for key in [key for key, found in wrong.items() if found][:1]:
        raise rule_error(labels[key], wrong[key][0], files[labels[key]])
    of_tables = {
        "relevance.yaml": book.relevance.problems(fixes=book.fixes, rules=book.rules, frameworks=book.job.frameworks),
        "walls.yaml": _wrong_in_walls(book, units),
    }
    for label in [label for label, found in of_tables.items() if found][:1]:
        raise rule_error(label, of_tables[label][0])


_PER = {"per": "text"}  # what every sentence but a check's may say beyond the facts


def _wrong_in_rule(rule: Rule, book: Rulebook, units: Mapping[str, str], places: Collection[str]) -> list[str]:
    names = sorted({name for facts in (*rule.examples.fires, *rule.examples.silent) for name in facts})
    said = {**units, **_PER, "bound_ns": "ns", "bound_share": "share", "speedup_ceiling": "count"}
    causes = [cause for cause in (rule.cause, rule.late) if cause is not None]
    return [
        *([] if rule.wall in (*book.walls.walls, CAPTURE) else [f"wall: unknown wall {rule.wall}"]),
        *(f"evidence: unknown name {name}" for name in rule.evidence if name not in units),
        *(f"fixes: unknown fix {name}" for name in rule.fixes if name not in book.fixes),
        *(f"first: unknown fix {name}" for name in rule.first if name not in book.fixes),
        *(f"reach: {name} is no fix of this rule" for name in rule.reach if name not in rule.fixes),
        *(f"where: unknown place {name}" for name in rule.where if name not in places),
        *(f"examples: unknown name {name}" for name in names if name not in units),
        *(f"summary: {problem}" for problem in templates.problems(rule.summary, said)),
        *(f"cause: {problem}" for cause in causes for problem in templates.problems(cause.say, said)),
        *(f"cause.of: unknown wall {cause.of}" for cause in causes if cause.of and cause.of not in book.walls.walls),
    ]


def _wrong_in_fix(fix: FixSpec, book: Rulebook, units: Mapping[str, str]) -> list[str]:
    items, frameworks = (*fix.needs, *fix.conflicts), (*book.job.frameworks, *BESIDE_FRAMEWORKS)
    changes, effects = list(enumerate(fix.changes)), list(enumerate(fix.effect))
    libraries = {None, *book.platforms.exchange_libraries}
    return [
        *(f"walls: unknown wall {name}" for name in fix.walls if name not in book.walls.walls),
        *(f"first: unknown fix {item.first}" for item in items if item.first and item.first not in book.fixes),
        *(f"changes[{place}].framework: unknown framework {one.framework}" for place, one in changes if one.framework not in frameworks),
        *(f"changes: unknown setting {one.setting}" for _, one in changes if one.setting and one.setting not in book.settings),
        *(f"say: {problem}" for item in items for problem in templates.problems(item.say, {**units, **_PER})),
        *(f"effect[{place}].{problem}" for place, one in effects if (problem := one.problem())),
        *(f"effect[{place}].library: unknown library {one.library}" for place, one in effects if one.library not in libraries),
        *(["no_effect: there is an effect"] if fix.effect and fix.no_effect else []),
        *([] if fix.effect or fix.no_effect else ["id: what it does to a step is missing: effect, or no_effect with the reason"]),
    ]


def _wrong_in_walls(book: Rulebook, units: Mapping[str, str]) -> list[str]:
    walls = book.walls
    own = {name: "share" if name.endswith("share") else "ns" if name.endswith("_ns") else "text" for name in VERDICT_COLUMNS}
    leads = [*walls.lead, *(lead for spec in walls.walls.values() for lead in spec.says)]
    sentences = [item.say for group in (leads, walls.floor, walls.also, walls.certainty) for item in group]
    told = [*(one.finding for one in walls.floor), *(one.finding for one in walls.certainty)]
    return [
        *(problem for text in sentences for problem in templates.problems(text, {**units, **_PER, **own})),
        *(f"finding: unknown rule {name}" for name in told if name and name not in book.rules),
    ]


def _digest(sources: Sequence[_Source]) -> str:
    """SHA-256 over the name and the bytes of every rule file, in order."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.label}\0{len(source.data)}\0".encode())
        digest.update(source.data)
    return digest.hexdigest()


def changes_numerics(spec: FixSpec, book: Rulebook) -> Numerics | None:
    """If a fix is about how exactly is computed, or what is trained (model, batch, routing, update): by the mark of its first setting."""
    first = next((one.setting for one in spec.changes if one.setting is not None), None)
    return book.settings[first].numerics if first is not None else None


def platform_of(gpu_name: str | None, platforms: Platforms) -> str | None:
    """Platform key of a GPU as a trace names it; None for an unknown name, never a guess."""
    if gpu_name is None:
        return None
    plain = gpu_name.upper()
    words = {key: rf"(?<![A-Z0-9]){re.escape(platform.pattern.upper())}(?![A-Z0-9])" for key, platform in platforms.platforms.items()}
    return next((key for key, pattern in words.items() if re.search(pattern, plain)), None)
