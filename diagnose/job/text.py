"""The text of a job file, and what the readers of all formats look at.

How it is written, its tree of keys (YAML, TOML), its overrides, the command in it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from diagnose.errors import JobFileError
from diagnose.job.beside import defining, named
from diagnose.job.command_line import Command, flag_file, training_command
from diagnose.job.model import UNRESOLVED, Leaf, job_error, type_name, wrong_type
from diagnose.job.shell import Token
from diagnose.knowledge import strict_yaml
from diagnose.knowledge.settings import JobSettings
from diagnose.knowledge.strict_yaml import MAX_BYTES

KeyPath = tuple[str, ...]
Lines = Mapping[KeyPath, int]  # the line of what stands at a path of keys, from 1


class Tree(Struct, frozen=True, kw_only=True):
    """The content of a tree of keys without its `rules`, which are the rule folders that it names."""

    data: Mapping[Any, object]
    lines: Lines
    rules: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def _rules(data: Mapping[object, object], source: str, folder: Path | None) -> tuple[tuple[Path, ...], dict[object, object]]:
    """The rule folders that the file names, relative to it, and the rest of the file."""
    rest = {key: value for key, value in data.items() if key != "rules"}
    given = data.get("rules")
    named = [given] if isinstance(given, str) else given
    if named is None:
        return (), rest
    if not isinstance(named, list) or not all(isinstance(one, str) and one for one in named):
        raise wrong_type(source, "rules", "path or list of paths", given)
    return tuple((folder or Path()) / one for one in named), rest


def line_of(lines: Lines, path: KeyPath) -> int | None:
    """The line of what stands at `path`, or of the nearest thing around it that stands in the file as such."""
    return next((lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in lines), None)


# --- values by dotted key ---------------------------------------------------------------------------------------------


class _Level(Struct, frozen=True, kw_only=True):
    """Where `_walk` stands: the key to look up so far, the key as the file shows it, and the keys in the file."""

    path: str = ""
    shown: str = ""
    keys: KeyPath = ()


def leaves_of(node: Mapping[Any, object], lines: Lines, *, below: KeyPath = ()) -> Iterator[Leaf]:
    """Dotted keys and plain values of a nested map that stands at the path `below` in its file."""
    return _walk(node, _Level(keys=below), lines)


def _walk(node: Mapping[Any, object], level: _Level, lines: Lines) -> Iterator[Leaf]:
    """Dotted keys and plain values; levels that only wrap others are left out of the key to look up."""
    path = level.path
    wraps_config = str(node.get("_target_", "")).endswith("from_dict")
    for key, value in node.items():
        wrapper = (path == "model" and key == "transformer") or (wraps_config and key == "config_dict")
        inner = path if wrapper else f"{path}.{key}" if path else str(key)
        below = _Level(path=inner, shown=f"{level.shown}.{key}" if level.shown else str(key), keys=(*level.keys, str(key)))
        plain = plain_value(value)
        if isinstance(plain, dict):
            yield from _walk(plain, below, lines)
        else:
            of_wrapper = key == "_target_" and inner != below.shown  # the class of model.transformer is not that of the model
            yield Leaf(
                key=below.shown if of_wrapper else inner,
                shown=below.shown,
                value=plain,
                known=key in ("_target_", "_call_"),
                line=line_of(lines, below.keys),
            )


def plain_value(value: object) -> object:
    """Enums, precisions and partials as the plain names or values that they stand for; anything else as it is."""
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "_name_" in value:
        return value["_name_"]
    if "_target_" in value and (value.get("_call_") is False or "_partial_" in value):
        return str(value["_target_"]).rpartition(".")[2]
    arguments = value.get("_args_")
    if "_target_" in value and isinstance(arguments, list):
        name = str(value["_target_"]).rpartition(".")[2]
        if name[:1].isupper() and len(arguments) == 1 and type(arguments[0]) is int:  # a member of an enum by its number
            return f"{name}({arguments[0]})"
        return arguments[0] if len(arguments) == 1 else arguments
    return value


# --- lines of TOML: the standard library reads it without them ---------------------------------------------------------

# What can hold a line break, a bracket or a sign of equality without meaning it; longest first.
_SKIPPED = re.compile(r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL)
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_PATH = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_STATEMENT = re.compile(rf"[ \t]*(?:(?P<table>\[{{1,2}})[ \t]*(?P<header>{_PATH})[ \t]*\]{{1,2}}|(?P<key>{_PATH})[ \t]*=)")
_TOKEN = re.compile(rf"(?P<skip>{_SKIPPED.pattern})|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<end>\n)", re.DOTALL)


def toml_lines(text: str) -> Lines:
    """The line of every key and table in text that tomllib accepts; of an array of tables the first, of an inline table only its own."""
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    at, line = 0, 1
    while at < len(text):
        match = _STATEMENT.match(text, at)
        if match is not None:
            path = tuple(_unquoted(part) for part in re.findall(_PART, match["header"] or match["key"]))
            table = path if match["table"] else table
            found.setdefault(path if match["table"] else (*table, *path), line)
        end = _statement_end(text, at if match is None else match.end())
        line += text.count("\n", at, end)
        at = end
    return found


def _statement_end(text: str, at: int) -> int:
    """Index behind the line break that ends the statement which `at` stands in."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if token["end"] and depth <= 0:
            return token.end()
    return len(text)


def _unquoted(part: str) -> str:
    if part[0] == '"':
        return str(tomllib.loads(f"x = {part}")["x"])
    return part[1:-1] if part[0] == "'" else part


SET = "--set"  # where its settings stand
OVERRIDE = re.compile(r"(?P<sign>~|\+\+|\+)?(?P<key>-{0,2}[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?", re.DOTALL)


def parse_overrides(texts: Sequence[str]) -> tuple[Leaf, ...]:
    """Overrides of `--set` as values that go before a file's. Raises JobFileError."""
    return _last_of_each(override(text, SET) for text in texts)


def _last_of_each(leaves: Iterable[Leaf]) -> tuple[Leaf, ...]:
    """Of two for one key the later counts, as in Hydra."""
    found: dict[str, Leaf] = {}
    for leaf in leaves:
        found.pop(leaf.key, None)
        found[leaf.key] = leaf
    return tuple(found.values())


def override_lines(text: str, source: str) -> tuple[Leaf, ...]:
    """A file of overrides, one a line; several stand in one line where each is an override by itself. Raises JobFileError."""
    leaves: list[Leaf] = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip().removesuffix("\\").strip()
        if not bare or bare.startswith("#"):
            continue
        words = bare.split()
        several = len(words) > 1 and all(is_override_line(word) for word in words)
        leaves += [override(word, source, line=number) for word in (words if several else [bare])]
    return _last_of_each(leaves)


def override(text: str, source: str, *, line: int | None = None) -> Leaf:
    """One override, of a line of the file or, without one, of what `source` names. Raises JobFileError."""
    match = OVERRIDE.fullmatch(text.strip())
    if match is None or (match["value"] is None and match["sign"] != "~"):
        raise job_error(source, f"has {text.strip()[:80]!r}, which is no override", "Write KEY=VALUE, ++KEY=VALUE or ~KEY.")
    key = match["key"].replace("/", ".")
    removed = match["sign"] == "~"
    return Leaf(
        key=re.sub(r"^model\.transformer\.", "model.", key),  # some dumps have that level between model and its settings
        shown=key,
        value=None if removed else _value(match["value"] or "", source, key),
        place=source if line is None else f"line {line}",
        line=line,
        forced=True,
        removed=removed,
    )


def override_word(token: Token, source: str) -> Leaf:
    """An override in a command: without a value where only the process knew it, and as text where it can't be read as a value."""
    try:
        leaf = override(token.text.partition("=")[0] + "=null" if token.unresolved else token.text, source, line=token.line)
    except JobFileError:
        name, _, value = token.text.partition("=")
        leaf = replace(override(f"{name}=null", source, line=token.line), value=value)
    if token.source:
        leaf = replace(leaf, line=None, place=f"line {token.line} of {token.source}")
    return replace(leaf, value=f"{UNRESOLVED} = {token.unresolved}", removed=False) if token.unresolved else leaf


def token_value(token: Token) -> object:
    """A word of a command as a value of YAML; as text where it can't be read as one, and unresolved where only the process knew it."""
    if token.unresolved:
        return f"{UNRESOLVED} = {token.unresolved}"
    try:
        return strict_yaml.load(token.text)
    except (strict_yaml.YamlError, ValueError):
        return token.text


def is_override_line(line: str) -> bool:
    """Whether a line is one override. An environment variable in capitals is not."""
    match = OVERRIDE.fullmatch(line.removesuffix("\\").strip())
    if match is None or match["key"].startswith("-") or match["key"].isupper():
        return False
    return match["sign"] == "~" if match["value"] is None else True


def is_override(text: str) -> bool:
    """Whether a word of a command is an override of a dotted key."""
    match = OVERRIDE.fullmatch(text)
    return (
        match is not None
        and not match["key"].startswith("-")
        and (match["value"] is not None or match["sign"] == "~")
        and "." in match["key"]
    )


def _value(text: str, source: str, key: str) -> object:
    """A value of Hydra's grammar; what YAML can't read is text."""
    try:
        value = strict_yaml.load(text)
    except (strict_yaml.YamlError, ValueError) as error:
        raise job_error(source, f"has {key}={text[:60]!r}, which can't be read: {error}", "Quote the value.") from error
    return plain_value(value)


Syntax = Literal["toml", "yaml", "overrides", "flags", "shell", "python", "printed"]
# A configuration as torchtitan puts it into its log, or as its configuration manager shows it.
PRINTED = re.compile(
    r"^(?:.* - INFO - Running with (?:configs|args): (?=\{)|(?:.* - INFO - )?(?=(?:\w+\.)*Config\((?:\n|\w+=)))", re.MULTILINE
)
_YAML = re.compile(r"""(---|%YAML|\{|- |(["']).*\2\s*:(\s|$)|[^\s"'{\[#][^\s:=]*\s*:(\s|$))""")
_TABLE = re.compile(r"\[{1,2}[\w.\"' -]+\]{1,2}\s*(#.*)?")
_ENTRY = re.compile(r"[\w.\"'-]+\s*=\s*\S")
_SHELL = re.compile(
    r"#!|\w+\s*\(\)\s*\{|(function|trap|ulimit|mkdir|echo|mapfile|docker|singularity|apptainer|export|declare|set|source|cd|module|srun|sbatch|mpirun|torchrun|python[\d.]*|uv|env|nsys|bash|sh|eval|if|for|accelerate|deepspeed|swift|megatron|llamafactory-cli|axolotl|trl)\b(?!\s*:)"
    r"|[A-Z_][A-Z0-9_]*\+?="
)


_PYTHON = re.compile(r"""from [\w.]+ import\b|import [\w., ]+$|def \w+\(|@\w|class \w+[(:]|[rR]?(\"{3}|'{3})|#!.*python""")
_STATEMENT_OF_PYTHON = re.compile(r"from [\w.]+ import\b|import [\w., ]+$|(async )?def \w+\(.*|class \w+.*:")


class JobText(Struct, frozen=True, kw_only=True, dict=True):
    """A job file as text with lines ended by line feeds.

    `source` names it in messages, `table` is what is known of settings, `folder` is where its own paths start.
    """

    text: str
    source: str
    table: JobSettings
    folder: Path | None = None
    choice: str | None = None  # of several commands or functions, its number from 1 or its name

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Its lines that are neither empty nor comments, without the space around them."""
        return tuple(line.strip() for line in self.text.split("\n") if line.strip() and not re.match(r"\s*#(?!!)", line))

    @cached_property
    def syntax(self) -> Syntax:
        """How the text is written, told by its content."""
        lines, first = self.lines, self.lines[0] if self.lines else ""
        if _TABLE.fullmatch(first) or (_ENTRY.match(first) and any(_TABLE.fullmatch(line) for line in lines)):
            return "toml"
        if _PYTHON.match(first) and any(_STATEMENT_OF_PYTHON.match(line) for line in lines):
            return "python"
        if PRINTED.search(self.text):
            return "printed"
        if not first or _YAML.match(first):
            return "yaml"
        if all(is_override_line(line) for line in lines):
            return "overrides"
        if first.startswith("-"):
            return "flags"
        return "shell" if _SHELL.match(first) or any(re.search(r"(^|\s)-{1,2}[A-Za-z]", line) for line in lines) else "yaml"

    def beside(self, name: str) -> JobText | None:
        """The file that this one calls `name`, under the path it is found by.

        None where there is none, or it is not known where this one lies. What a script writes itself lies in it.
        """
        written = self.command.files.get(name) if self.syntax == "shell" and self.command is not None else None
        if written is not None:
            return replace(self, text=written, source=f"{name.rpartition('/')[2]}, which {self.source} writes", choice=None)
        found = None if self.folder is None or not name else named(name, self.folder)
        return self._opened(found)

    def defining(self, function: str, packages: Sequence[str]) -> JobText | None:
        """The Python file in one of `packages`, beside this file, that defines a function; None where there is none."""
        return self._opened(None if self.folder is None else defining(function, self.folder, packages))

    def _opened(self, found: tuple[Path, str] | None) -> JobText | None:
        return None if found is None else replace(self, text=found[1], source=found[0].name, folder=found[0].parent, choice=None)

    @cached_property
    def python(self) -> ast.Module | None:
        """The syntax tree of a Python file, which is never run; None for other texts."""
        if self.syntax != "python":
            return None
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise job_error(self.source, f"is no Python that can be read: {str(error)[:100]}", "Give the file as it runs.") from error

    @cached_property
    def overrides(self) -> tuple[Leaf, ...]:
        """The overrides of a file that holds nothing else. Raises JobFileError."""
        return override_lines(self.text, self.source)

    @cached_property
    def yaml(self) -> Tree | None:
        """The keys and values of a YAML file; None for other texts. Raises JobFileError."""
        if self.syntax != "yaml":
            return None
        repeated: list[strict_yaml.Repeated] = []
        try:
            data = strict_yaml.load(self.text, repeated)
        except (strict_yaml.YamlError, ValueError) as error:  # a scalar that YAML takes for a date or a number and Python does not
            tag = re.search(r"constructor for the tag '(!\w[^']*)'.*line (\d+)", str(error))
            if tag is not None:
                what = f"holds {tag[1]} in line {tag[2]}, a tag that only its own program knows"
                raise job_error(self.source, what, "Put what it stands for in its place.") from error
            if "another one" in str(error):
                raise job_error(self.source, "holds several YAML documents", "Give the one that configures the training.") from error
            raise job_error(self.source, f"is not valid YAML: {error}", "Correct the YAML.") from error
        if not isinstance(data, dict) or not data:
            what = f"must hold a map of settings, but holds {type_name(data)}"
            raise job_error(
                self.source, what, "Give the job's configuration as keys and values, as flags, or as the command that started it."
            )
        rules, data = _rules(data, self.source, self.folder)
        notes = tuple(f"{one.key} stands in line {one.first} and in line {one.last}; the last one counts" for one in repeated)
        return Tree(data=data, lines=strict_yaml.lines(self.text), rules=rules, notes=notes)

    @cached_property
    def toml(self) -> Tree | None:
        """The keys and values of a TOML file; None for other texts. Raises JobFileError."""
        if self.syntax != "toml":
            return None
        try:
            return Tree(data=tomllib.loads(self.text), lines=toml_lines(self.text))
        except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
            raise job_error(self.source, f"is not valid TOML: {str(error)[:200]}", "Correct the TOML.") from error

    @cached_property
    def command(self) -> Command | None:
        """The flags of a file of them, or the one training command of a script; None for other texts. Raises JobFileError."""
        if self.syntax == "flags":
            return flag_file(self.text, self.source)
        path = None if self.folder is None else self.folder.resolve() / self.source
        return training_command(self.text, self.source, self.table, path, self.choice) if self.syntax == "shell" else None


def decoded(text: str | bytes, source: str) -> str:
    """Text without a byte-order mark, lines ended by line feeds alone. Raises JobFileError."""
    if len(text) > MAX_BYTES:
        raise job_error(source, f"is larger than {MAX_BYTES // 2**20} MiB", "Give the job's configuration, not a checkpoint or a log.")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise job_error(
                source, f"is not UTF-8 text (byte {error.start})", "Give the job's configuration as text, not a checkpoint or a trace."
            ) from error
    if "\0" in text:
        raise job_error(source, "is not text: it holds NUL bytes", "Give the job's configuration as text, not a checkpoint or a trace.")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
