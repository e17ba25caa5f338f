"""The files of trace_rules/ and of the user's own rules: found, read into their types, and the error that names the place in one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from diagnose.errors import RuleFileError
from diagnose.knowledge import strict_yaml
from diagnose.knowledge.data import OWN_TABLES, complaint, document

T = TypeVar("T")
# What a file holds that lies outside these folders.
_KEYS: Mapping[str, frozenset[str]] = {
    "rules": frozenset({"when"}),
    "playbook": frozenset({"changes"}),
    "buckets": frozenset({"families", "contexts", "groups"}),
}
CHECKS = "checks/"  # the layer whose files map ids to several entries
_ID, _CHECK_ID = re.compile(rb"\Aid: (\S+)"), re.compile(rb"^([a-z0-9][\w-]*):", re.MULTILINE)


class RuleFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule file: its place inside trace_rules and its bytes; `file` is the program's own, None for one of the user's."""

    label: str
    data: bytes
    file: Traversable | None = None


class Placed(NamedTuple, Generic[T]):
    """An entry and the label of the file that it stands in."""

    label: str
    entry: T


def packaged(label: str) -> RuleFile:
    """One of the files that come with the program."""
    file = files("trace_rules") / label
    return RuleFile(label=label, data=file.read_bytes(), file=file)


def packaged_rule_files() -> tuple[RuleFile, ...]:
    """All rule files that come with the program, by label."""
    return tuple(sorted(_below(files("trace_rules"), ""), key=lambda source: source.label))


def _below(folder: Traversable, prefix: str) -> Iterator[RuleFile]:
    for item in folder.iterdir():
        label = f"{prefix}{item.name}"
        if item.is_dir():
            yield from _below(item, f"{label}/")
        elif item.name.endswith((".yaml", ".yml")):
            yield RuleFile(label=label, data=item.read_bytes(), file=item)


def own_rule_files(path: Path) -> tuple[RuleFile, ...]:
    """Rule files under a path that the user named, as rules/…, playbook/…, checks/… or buckets/….

    Files that lie bare are told by their keys.
    """
    try:
        if not path.is_dir():
            return (_told_by_keys(RuleFile(label=path.name, data=path.read_bytes())),)
        parts = {part: sorted((path / part).glob("*.y*ml")) for part in ("rules", "playbook", "checks", "buckets")}
        inner = [RuleFile(label=f"{part}/{file.name}", data=file.read_bytes()) for part, found in parts.items() for file in found]
        lying = [RuleFile(label=file.name, data=file.read_bytes()) for file in sorted(path.glob("*.y*ml"))]
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


def _told_by_keys(source: RuleFile) -> RuleFile:
    data = _yaml(source)
    keys = data.keys() if isinstance(data, dict) else set()
    for part, marks in _KEYS.items():
        if keys & marks:
            return RuleFile(label=f"{part}/{source.label}", data=source.data)
    raise rule_error(
        source.label, "it holds neither a rule (`when`), nor a fix (`changes`), nor buckets (`families`, `contexts`, `groups`)"
    )


def _yaml(source: RuleFile) -> object:
    try:
        return _text_keys(strict_yaml.load(source.data) if source.file is None else document(source.file, source.data))
    except (strict_yaml.YamlError, UnicodeDecodeError) as error:
        raise rule_error(source.label, str(error)) from error


def _text_keys(value: object) -> object:
    """YAML reads the key `null` as nothing; here it is the word."""
    if isinstance(value, dict):
        return {"null" if key is None else key: _text_keys(item) for key, item in value.items()}
    return value


def parse(source: RuleFile, kind: type[T]) -> T:
    """What a file holds, as `kind`. Raises RuleFileError."""
    value = _yaml(source)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        entry, what = complaint(value, kind, error)
        raise rule_error(source.label, what, source.data, entry) from error


def rule_error(label: str, what: str, data: bytes | None = None, within: str = "") -> RuleFileError:
    """The error for one rule file; `what` names the place in it (or `within` an entry), and `data`, the file's text, gives the line."""
    line = strict_yaml.line_told(data, what, (within,) if within else ()) if data is not None else None
    place = f"{'' if line is None else f'line {line}: '}{f'{within}: ' if within else ''}"
    return RuleFileError(
        f"The rule file {label} is wrong: {place}{what.rstrip('.')}.",
        effect="No rule was used, because a wrong rule would give a wrong diagnosis.",
        next_step="Correct the file; trace_rules/README.md explains its fields.",
    )


def collect(sources: Sequence[RuleFile], part: str, kind: type[T]) -> dict[str, Placed[T]]:
    """Entries of one layer by id; two with the same id are an error. A file of checks maps ids to several."""
    found: dict[str, Placed[T]] = {}
    for source in (one for one in sources if one.label.startswith(part)):
        for key, entry in entries(source, kind).items():
            if key in found:
                where, data = ("", None) if part == CHECKS else ("id: ", source.data)
                raise rule_error(source.label, f"{where}the id {key} stands already in {found[key].label}", data)
            found[key] = Placed(source.label, entry)
    return found


def entries(source: RuleFile, kind: type[T]) -> dict[str, T]:
    """The entries of one file by id: one, or the several of a file of checks."""
    if source.label.startswith(CHECKS):
        return parse(source, dict[str, kind])  # type: ignore[valid-type]
    entry = parse(source, kind)
    return {getattr(entry, "id", ""): entry}


def ids_in(sources: Sequence[RuleFile], part: str) -> Iterator[tuple[str, RuleFile]]:
    """The ids in the program's own files of one layer, by how these are written, each with its file."""
    key = _CHECK_ID if part == CHECKS else _ID
    return ((found.decode(), source) for source in sources if source.label.startswith(part) for found in key.findall(source.data))


class Later(Mapping[str, T]):
    """Entries by id, each read from its file when it is first asked for: a run needs few of the fixes, and hardly ever a check."""

    def __init__(self, files_of: Mapping[str, RuleFile], kind: type[T]) -> None:
        self._files = files_of
        self._kind = kind
        self._read: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        if key not in self._read:
            self._read |= entries(self._files[key], self._kind)
        return self._read[key]

    def __contains__(self, key: object) -> bool:
        return key in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def digest_of(sources: Sequence[RuleFile]) -> str:
    """SHA-256 over the name and the bytes of every rule file, in order."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.label}\0{len(source.data)}\0".encode())
        digest.update(source.data)
    return digest.hexdigest()
