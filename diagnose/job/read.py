"""From a path or a text to a Job: the first reader that takes the text, and one value per setting.

Matched by key, coerced, combined, derived, defaulted.

Wrong types are errors with the key that they stand under; keys that the table does not know are kept and listed.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from diagnose.errors import JobFileError
from diagnose.job.derived import derived_from
from diagnose.job.formats import READERS, accelerate, deepspeed, hugging_face
from diagnose.job.formats.foreign import gathered, program_of, refusal, refuse_foreign, started
from diagnose.job.formats.overrides import NAME as OVERRIDES
from diagnose.job.formats.reader import Key, interpolated
from diagnose.job.layout import layers_of, stages_of
from diagnose.job.model import (
    EFFECT,
    UNRESOLVED,
    Job,
    Leaf,
    NoTrainingError,
    Origin,
    Parsed,
    Setting,
    SettingValue,
    expected,
    job_error,
    wrong_type,
)
from diagnose.job.text import SET, JobText, decoded, parse_overrides
from diagnose.knowledge.settings import JobSettings, SettingSpec, flag_name, foreign, version_number
from diagnose.knowledge.strict_yaml import MAX_BYTES


def read_job(path: Path, table: JobSettings, overrides: Sequence[str] = (), *, command: str | None = None) -> Job:
    """The job in the file at `path`, with `overrides` (KEY=VALUE) on top; `command` is the number of one of several in it.

    Raises JobFileError.
    """
    formats = "A job file is a configuration dump, Megatron-LM arguments, the command line of the launch, or a plain job.yaml."
    with JobFileError.where_refused(f"The job file {path} cannot be read", effect=EFFECT, next_step=formats), path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    job = parse_job(data, table, source=path.name, overrides=overrides, folder=path.parent, command=command)
    return dataclasses.replace(job, file=path.name)


def parse_job(
    text: str | bytes,
    table: JobSettings,
    *,
    source: str = "job file",
    overrides: Sequence[str] = (),
    folder: Path | None = None,
    command: str | None = None,
) -> Job:
    """The job in `text`; `source` names it in messages, `folder` is where its own paths start. Raises JobFileError."""
    whole = JobText(text=decoded(text, source), source=source, folder=folder, table=table, choice=command)
    refuse_foreign(whole)
    parsed = _first_read(whole)
    job = settle(replace(parsed, leaves=(*parsed.leaves, *parsed.implied, *parse_overrides(overrides))), table, source)
    read = {one.name for one in job.settings.values() if one.source == "read"} - {leaf.key for leaf in parsed.implied}
    told = job.unresolved or read or _unset(parsed, table)
    if parsed.leaves and not (told or parsed.rules or parsed.format in _TOLD_APART) and (whole.yaml or whole.toml):
        keys = ", ".join(dict.fromkeys(leaf.shown.split(".")[0] for leaf in parsed.leaves[:200]))
        raise job_error(source, f"holds no setting that is known: its keys are {keys[:100]}", _ANY_JOB)
    return job


def _unset(parsed: Parsed, table: JobSettings) -> bool:
    """Whether a setting that is known is named without a value (null), as a repair may leave it."""
    known = _aliases(parsed.format, table)
    return any(leaf.value is None and leaf.key in known for leaf in parsed.leaves)


_TOLD_APART = frozenset({accelerate.NAME, deepspeed.NAME, hugging_face.NAME})  # by keys of their own, of which each may say auto
_ANY_JOB = "Give a configuration dump, flags, the command that started the job, or a plain job.yaml with Megatron's own names."


def _first_read(text: JobText) -> Parsed:
    """The text as the first reader that knows it reads it. Raises JobFileError."""
    try:
        if (other := started(text) or gathered(text)) is not None:
            raise refusal(text, other)
        parsed = next((found for reader in READERS.values() if (found := reader.read(text)) is not None), None)
    except NoTrainingError:
        if (other := program_of(text)) is not None:
            raise refusal(text, other) from None
        raise
    if parsed is None:
        if (other := program_of(text)) is not None:
            raise refusal(text, other)
        if text.command is not None and text.command.program:
            what = f"starts {text.command.program.rpartition('/')[2]}, none of whose arguments tells of which framework it is"
            raise job_error(text.source, what, "Give the configuration that it names, or the settings as a plain job.yaml.")
        raise job_error(
            text.source, "is in no format that is known", "Give a configuration dump, flags, or the command that started the job."
        )
    return parsed


def overridden_job(overrides: Sequence[str], table: JobSettings) -> Job:
    """A job of which only overrides are known. Raises JobFileError."""
    return settle(Parsed(format=OVERRIDES, leaves=parse_overrides(overrides)), table, SET)


# This project's choice: a key so like one that the file does not set is misspelt; none of 600 real job files holds such a one.
_NEAR, _NEAR_WORD = 0.9, 0.8
_HARDLY_READ = 3  # this project's choice: more unknown keys than so many to a known one are told
_INTEGER = re.compile(r"-?\d{1,15}")
_DECIMAL = re.compile(r"-?(\d{1,15}(\.\d{0,15})?|\.\d{1,15})([eE]-?\d{1,2})?")
_TRUE, _FALSE = frozenset({"1", "t", "true", "y", "yes"}), frozenset({"0", "f", "false", "n", "no"})
_MAX_ITEMS = 10_000  # no model has more layers; a longer one is a mistake or an attack


class _Candidate(Struct, frozen=True, kw_only=True):
    """One value of one setting, with what it stood in; `order` is the standing of that key."""

    value: SettingValue
    leaf: Leaf
    order: int
    level: int


class _Alias(Struct, frozen=True, kw_only=True):
    """The setting that a key of the file stands for; `order` is the standing of the key among the setting's."""

    name: str
    order: int
    key: Key


_Table = Mapping[str, tuple[_Alias, ...]]


def settle(parsed: Parsed, table: JobSettings, source: str) -> Job:
    """The job that a file's values make. Raises JobFileError."""
    leaves, aliases = _put_in(_applied(parsed.leaves, parsed.format, table)), _aliases(parsed.format, table)
    notes: list[str] = []
    found, unknown, unresolved = _match(leaves, aliases, table, source, notes)
    settings = _settled(found, parsed, unresolved, table, source)
    if parsed.nameless and len(unknown) > _HARDLY_READ * max(1, len(found)):
        known = f"{len(found)} {'is' if len(found) == 1 else 'are'} known"
        notes.append(f"of {len(found) + len(unknown)} keys {known}: what this file is for may be another program's")
    misspelt = _misspelt(unknown, aliases, found.keys() | unresolved)
    return Job(
        format=parsed.format,
        settings=settings,
        table=table,
        unknown=tuple(unknown),
        source=source,
        notes=(*parsed.notes, *notes, *_set_in_vain(parsed, table, told=misspelt)),
        rules=parsed.rules,
        defaults=parsed.defaults,
        unresolved=unresolved,
        open_ended=parsed.open_ended,
        another_program=parsed.another_program,
        misspelt=misspelt,
    )


# --- keys -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)  # tables are few, and one of them reads many files
def _aliases(format_: str, settings: JobSettings) -> _Table:
    """Every key that stands for a setting in this format. The setting's own name has order 0."""
    table: dict[str, tuple[_Alias, ...]] = {}
    for name in settings.specs:
        for text, alias in _keys(name, format_, settings).items():
            table[text] = (*table.get(text, ()), alias)
    return table


def _keys(name: str, format_: str, table: JobSettings) -> dict[str, _Alias]:
    """The keys of one setting: its own name, its environment variables, and what the format calls it."""
    spec = table.specs[name]
    origin: Origin = "flag" if table.has_flags(format_) else "key"
    found = {name: _Alias(name=name, order=0, key=Key(spellings=(name,), origin=origin))}
    variables = (Key(spellings=(f"env_vars.{variable}",), origin="env") for variable in spec.env)
    for keys in (variables, READERS[format_].keys_for(spec, table)):
        for order, key in enumerate(keys, 1):
            for text in key.spellings:
                found.setdefault(text, _Alias(name=name, order=order, key=key))
    return found


def _applied(leaves: Sequence[Leaf], format_: str, table: JobSettings) -> list[Leaf]:
    """The file's values with what the command line sets in their place."""
    result = [leaf for leaf in leaves if not leaf.forced]
    own, foreign = _aliases(format_, table), _aliases(OVERRIDES, table)
    for leaf in (leaf for leaf in leaves if leaf.forced):
        key = leaf.key if leaf.key in own else flag_name(leaf.key) if flag_name(leaf.key) in own else leaf.key
        names = {alias.name for alias in own.get(key, foreign.get(key, ()))}
        whole = key not in own or key in names  # a setting's own name, or another framework's key: it replaces every key of the setting
        result = [
            one
            for one in result
            if not (f"{one.key}.".startswith(f"{key}.") or (whole and names & {alias.name for alias in own.get(one.key, ())}))
        ]
        if not leaf.removed:
            known = key if key in own else next(iter(names), key)
            result.append(replace(leaf, key=known, forced=False))
    return result


def _set_in_vain(parsed: Parsed, table: JobSettings, *, told: Collection[str]) -> list[str]:
    """A sentence on each key of `--set` that stands for no setting of any format, and of which nothing is `told`."""
    known = {**_aliases(parsed.format, table), **_aliases(OVERRIDES, table)}
    said = []
    own = (leaf for leaf in parsed.leaves if leaf.forced and leaf.place == SET)  # not what a command in the file overrides
    for leaf in (leaf for leaf in own if leaf.shown not in told):
        section = any(key.startswith(f"{leaf.key}.") for key in known)  # taken out, it takes its settings along
        if section or leaf.key in known or flag_name(leaf.key) in known:
            continue
        near = get_close_matches(leaf.key, [key for key in known if _shape(key) == _shape(leaf.key)], n=1, cutoff=_NEAR)
        meant = f" ({near[0]}?)" if near else ""
        said.append(f"--set {leaf.shown}: no setting that is read has this name{meant}; it changes nothing")
    return said


def _put_in(leaves: Sequence[Leaf]) -> list[Leaf]:
    """The values with OmegaConf's interpolations put in; of a `${...}` that stays only the process knows what it stands for."""
    return [
        replace(leaf, value=f"{UNRESOLVED} = {leaf.value}")
        if isinstance(leaf.value, str) and "${" in leaf.value and not _unresolved(leaf.value)
        else leaf
        for leaf in interpolated(leaves)
    ]


# --- values -----------------------------------------------------------------------------------------------------------


def _match(
    leaves: Sequence[Leaf], aliases: _Table, table: JobSettings, source: str, notes: list[str]
) -> tuple[dict[str, list[_Candidate]], list[str], frozenset[str]]:
    """Values by setting, the keys that stand for none, and settings whose value only the process knew. A null says nothing.

    An expression of another form than the known ones is code of a fork: it goes into `notes`, and its setting is not known.
    """
    found: dict[str, list[_Candidate]] = {}
    unresolved: set[str] = set()
    for leaf in leaves:
        if leaf.key not in aliases:
            _refuse_map(leaf, aliases, table, source)
        for alias in aliases.get(leaf.key, ()):
            spec = table.specs[alias.name]
            if _unresolved(leaf.value):
                unresolved.add(alias.name)
            elif spec.expression and isinstance(leaf.value, str | int) and _list_expression(leaf.value) is None:
                unresolved.add(alias.name)
                notes.append(f"{leaf.shown} = {str(leaf.value)[:60]} is of no known form, so {spec.meaning.partition(':')[0]} is not known")
            elif spec.type == "int" and alias.key.origin == "flag" and _numbers(leaf.value):
                unresolved.add(alias.name)
                notes.append(f"{leaf.shown} holds several numbers, as a fork takes it, so {spec.meaning.partition(':')[0]} is not known")
            elif (value := _coerce(leaf.value, table.specs[alias.name], alias, leaf.shown, source)) is not None:
                found.setdefault(alias.name, []).append(_Candidate(value=value, leaf=leaf, order=alias.order, level=alias.key.level))
    unknown = {
        (leaf.shown + str(leaf.value).removeprefix(UNRESOLVED) if _unresolved(leaf.value) else leaf.shown)
        for leaf in leaves
        if (leaf.key in aliases and _unresolved(leaf.value)) or (leaf.key not in aliases and not leaf.known)
    }
    return found, sorted(unknown), frozenset(unresolved - found.keys())


def _misspelt(unknown: Sequence[str], aliases: _Table, given: Collection[str]) -> dict[str, str]:
    """Keys that are not read but nearly one that is, in the same section and of a setting that the file does not give: that one.

    Nearly: the same words but for some letters; another word makes another setting (gelu for swiglu).
    """
    keys = {shown: flag_name(shown) if shown.startswith("-") else shown for shown in unknown}
    alike: dict[tuple[str, int], list[str]] = {_shape(key): [] for key in keys.values()}
    for key, meant in aliases.items() if keys else ():
        if (shape := _shape(key)) in alike and not any(one.name in given for one in meant):
            alike[shape].append(key)
    misspelt: dict[str, str] = {}
    for shown, key in keys.items():
        close = get_close_matches(key, alike[_shape(key)], cutoff=_NEAR)
        for near in [one for one in close if _word_by_word(key, one)][:1]:
            misspelt[shown] = f"--{near.replace('_', '-')}" if key != shown else near
    return misspelt


def _shape(key: str) -> tuple[str, int]:
    """The section of a key and how many words it has: keys that differ in them are not compared."""
    return key.rpartition(".")[0], key.count("_")


def _word_by_word(key: str, near: str) -> bool:
    """Whether each word of one key is like the other's."""
    return all(SequenceMatcher(None, one, other).ratio() >= _NEAR_WORD for one, other in zip(key.split("_"), near.split("_"), strict=True))


def _numbers(value: object) -> bool:
    """Whether a flag holds several numbers, one for each layer or stage."""
    return isinstance(value, str) and len(value.split()) > 1 and all(_INTEGER.fullmatch(one) for one in value.split())


def _unresolved(value: object) -> bool:
    return isinstance(value, str) and value.startswith(UNRESOLVED)


def _refuse_map(leaf: Leaf, aliases: _Table, table: JobSettings, source: str) -> None:
    """Raise where an unknown key lies inside a setting that has no inner keys: a map stands where a value should."""
    parts, shown = leaf.key.split("."), leaf.shown.split(".")
    for length in range(1, len(parts)):
        parent = ".".join(parts[:length])
        if parent in aliases and not any(key.startswith(f"{parent}.") for key in aliases):
            spec = table.specs[aliases[parent][0].name]
            inner = ".".join(shown[len(shown) - len(parts) + length :])
            raise wrong_type(source, ".".join(shown[: len(shown) - len(parts) + length]), expected(spec), {inner: leaf.value})


def _coerce(raw: object, spec: SettingSpec, alias: _Alias, key: str, source: str) -> SettingValue | None:
    """The value in the setting's type; None where it says nothing."""
    numeric = spec.type in ("int", "float")
    if raw is None or (
        raw == "None" and alias.key.values is None and (alias.key.origin == "option" or (alias.key.origin == "flag" and numeric))
    ):
        return None
    if alias.key.values is not None:
        given = [foreign(item) for item in raw] if isinstance(raw, list) else [foreign(raw)]
        return next((alias.key.values[item] for item in given if item in alias.key.values), alias.key.values.get("*"))
    if alias.key.constant is not None or alias.key.inverted:
        return _switched(raw, alias.key, key, source)
    value = _typed(raw, spec, alias.key.origin)
    if value is None:
        raise wrong_type(source, key, expected(spec), raw)
    if isinstance(value, str):
        return spec.aliases.get(value, value)
    return tuple(spec.aliases.get(item, item) for item in value) if isinstance(value, tuple) else value


def _switched(raw: object, flag: Key, shown: str, source: str) -> SettingValue | None:
    """What a flag says that turns its setting off, or that stands for one value."""
    given = _boolean(raw, flag.origin)
    if given is None:
        raise wrong_type(source, shown, "bool", raw)
    if flag.constant is not None:
        return flag.constant if given else None
    return not given


# --- one value per setting --------------------------------------------------------------------------------------------


def _settled(
    found: Mapping[str, list[_Candidate]], parsed: Parsed, unresolved: frozenset[str], table: JobSettings, source: str
) -> dict[str, Setting]:
    """One value per setting: read, named by a preset, derived, or the framework's default, in this order."""
    specs = table.specs
    settings = {name: _combine(name, specs[name], values, source) for name, values in found.items()}
    layout = settings.get("pipeline_model_parallel_layout")
    if layout is not None and (stages := stages_of(str(layout.value))) is not None:
        counts = {"stages": len(stages), "layers": layers_of(stages), "mtp_layers": "".join(stages).count("m")}
        settings |= {f"pipeline_layout_{one}": replace(layout, name=f"pipeline_layout_{one}", value=count) for one, count in counts.items()}
    covered = set(unresolved)
    for name in [name for name, spec in specs.items() if spec.presets and name in settings]:
        covered |= {inner for preset in specs[name].presets.values() for inner in preset}
        settings |= _preset(settings, settings[name], specs[name], source)
    defaults = table.formats[parsed.format].defaults
    whole = not parsed.open_ended and defaults != "none"
    if whole:
        settings = _with_defaults(settings, covered, parsed.format, table, derived=defaults == "own")
    # what is a default in the guise of a derivation needs a whole file
    settings |= derived_from(
        settings, unresolved if whole else unresolved | {name for name, spec in specs.items() if spec.derive_is_default}, table
    )
    if whole:
        settings = _with_defaults(settings, covered, parsed.format, table, derived=True)
        settings |= derived_from(settings, unresolved, table)
    return {name: settings[name] for name in specs if name in settings}


def _preset(settings: Mapping[str, Setting], named: Setting, spec: SettingSpec, source: str) -> dict[str, Setting]:
    """Settings that a named value stands for. It overrules framework keys, as in the framework, but not a setting's own name."""
    values = spec.presets.get(str(named.value), {})
    for name, value in values.items():
        other = settings.get(name)
        if other is not None and other.key == name and other.value != value:
            raise _conflict(source, name, (named.key, named.value), (other.key, other.value))
    return {
        name: Setting(name=name, value=value, key=f"{named.key} ({named.value})", source="read", place=named.place, line=named.line)
        for name, value in values.items()
    }


def _with_defaults(
    settings: Mapping[str, Setting], covered: set[str], format_: str, table: JobSettings, *, derived: bool
) -> dict[str, Setting]:
    """`settings` and the defaults of those that are not set; settings that an unknown preset decides have none."""
    result = dict(settings)
    values: dict[str, object] = {name: setting.value for name, setting in settings.items()}
    for name, spec in table.specs.items():
        if name in result or name in covered or (spec.derive and not derived):
            continue
        value = table.default(name, format_, values)
        if value is not None:
            values[name] = value
            result[name] = Setting(name=name, value=value, key="default", source="default")
    return result


def _combine(name: str, spec: SettingSpec, values: list[_Candidate], source: str) -> Setting:
    """One of several values of a setting: of files below each other that of the upper one.

    A setting's own name, or the same key twice, never loses in silence.
    """
    upper = min(item.level for item in values)
    ranked = sorted((item for item in values if item.level == upper), key=lambda item: item.order)
    best = ranked[0]
    for other in ranked[1:]:
        if other.value != best.value and (spec.combine == "conflict" or best.order in (0, other.order)):
            raise _conflict(source, name, (best.leaf.shown, best.value), (other.leaf.shown, other.value))
    if spec.combine == "any":
        best = next((item for item in ranked if item.value is True), best)
    leaf = best.leaf
    return Setting(name=name, value=best.value, key=leaf.shown, source="read", place=leaf.place, line=leaf.line, assumed=leaf.assumed)


def _conflict(source: str, name: str, first: tuple[str, SettingValue], second: tuple[str, SettingValue]) -> JobFileError:
    what = f"says {first[0]} = {first[1]!r} and {second[0]} = {second[1]!r}, which are the same setting ({name})"
    return job_error(source, what, "Keep one of the two.")


# --- values in the types of their settings ---------------------------------------------------------------------------


def _list_expression(raw: object) -> tuple[str, ...] | None:
    """Numbers as text: a list of them, one number, or a sum of repeated lists such as ([0]*3+[1]*58); None for anything else.

    One number n says every n-th layer by `layer % n == 0` (Megatron-Core gpt_layer_specs.py, MindSpeed training.py), so that its sign is of
    no account.
    """
    if isinstance(raw, int) and not isinstance(raw, bool):
        return (str(abs(raw)),)
    if isinstance(raw, str) and re.fullmatch(r"\s*-?\d{1,6}\s*", raw):
        return _list_expression(int(raw))
    if isinstance(raw, list):
        whole = all(isinstance(item, int) and not isinstance(item, bool) for item in raw)
        return tuple(str(item) for item in raw) if whole and len(raw) <= _MAX_ITEMS else None
    if not isinstance(raw, str) or len(raw) > 10 * _MAX_ITEMS:
        return None
    try:
        tree = ast.parse(raw.strip(), mode="eval").body
        numbers = _evaluated(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tuple(str(number) for number in numbers)


def _evaluated(node: ast.expr) -> list[int]:
    """Raises ValueError for what is no list of integers."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _bounded(_evaluated(node.left), more=_evaluated(node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        if isinstance(node.left, ast.Constant):
            return _bounded(_evaluated(node.right), _integer(node.left))
        return _bounded(_evaluated(node.left), _integer(node.right))
    if isinstance(node, ast.List | ast.Tuple):
        return _bounded([_integer(item) for item in node.elts])
    return [_integer(node)]


def _integer(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError


def _bounded(items: list[int], times: int = 1, more: Sequence[int] = ()) -> list[int]:
    if times < 0 or len(items) * times + len(more) > _MAX_ITEMS:
        raise ValueError
    return [*items * times, *more]


def _typed(raw: object, spec: SettingSpec, origin: Origin) -> SettingValue | None:
    """A file's value in the setting's type; None for another. In flags, options and variables numbers and switches may be text."""
    match spec.type:
        case "bool":
            return _boolean(raw, origin)
        case "int" | "float":
            return _number(raw, spec.type, origin)
        case "list":
            return _list_expression(raw) if spec.expression else _list(raw, spec, origin)
        case "version":
            return raw if isinstance(raw, str) and _is_version(raw) else None
        case "text":
            if raw is False and spec.default == "none":
                return "none"
            found = _stages(raw, spec) if spec.nested and isinstance(raw, list) else raw
            return found if isinstance(found, str) else None


def _is_version(text: str) -> bool:
    try:
        version_number(text)
    except ValueError:
        return False
    return True


def _boolean(raw: object, origin: Origin) -> bool | None:
    """A switch; where values are text, the words that argument parsers and shells take for one."""
    if isinstance(raw, bool):
        return raw
    if origin == "env":
        return {"0": False, "1": True}.get(str(raw))
    if origin == "key" or not isinstance(raw, str):
        return None
    word = raw.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _number(raw: object, kind: str, origin: Origin) -> int | float | None:
    if isinstance(raw, str) and origin != "key":
        text = re.sub(r"(?<=\d)_(?=\d)", "", raw.strip())  # 32_000 is a number to Python, whose argparse asks int
        if _INTEGER.fullmatch(text):
            raw = int(text)
        elif kind == "float" and _DECIMAL.fullmatch(text):
            raw = float(text)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not -(2**63) <= raw < 2**63:  # NaN and infinities fail here too
        return None
    if kind == "int":
        return raw if isinstance(raw, int) else None
    return float(raw) if math.isfinite(raw) else None


def _list(raw: object, spec: SettingSpec, origin: Origin) -> tuple[str, ...] | None:
    if isinstance(raw, str) and (spec.scalar or origin in ("flag", "option")):
        return tuple(part for part in re.split(r"[\s,\[\]'\"]+", raw) if part)
    if isinstance(raw, list) and all(isinstance(item, str | int) and not isinstance(item, bool) for item in raw):
        return tuple(str(item) for item in raw)
    if isinstance(raw, int) and not isinstance(raw, bool):
        return (str(raw),)
    return None


def _stages(raw: list[object], spec: SettingSpec) -> str | None:
    """A list of stages, each a list of layers, in Megatron's letters: [[embedding, decoder], [decoder, loss]] is Et|tL."""
    if not all(isinstance(stage, list) and all(isinstance(layer, str) for layer in stage) for stage in raw):
        return None
    return "|".join("".join(spec.aliases.get(str(layer), str(layer)) for layer in stage) for stage in raw if isinstance(stage, list))
