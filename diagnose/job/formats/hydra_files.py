"""Files that a configuration lies on, as Hydra finds them: its defaults, groups of files, and the folders that its search path names.

Sources: hydra.cc/docs/advanced/defaults_list and advanced/search_path (Hydra 1.3); nemo_rl/utils/config.py, whose `defaults` names files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from diagnose.errors import JobFileError
from diagnose.job.command_line import Command
from diagnose.job.model import Leaf
from diagnose.job.text import JobText, leaves_of

_MAX_LEVEL = 8
_ENTRY = re.compile(r"(?:(?:override|optional) +)*(?P<group>[^@]*)(?:@(?P<package>.*))?")
_CHOICE = re.compile(r"\$\{(\w+)\}")
_HEADER = re.compile(r"^# *@package +(\S+)", re.MULTILINE)
_MAIN_PPO, _USUAL = re.compile(r"verl[./]trainer[./]main_ppo(\.py)?$"), "config/ppo_trainer.yaml"  # what it takes where it is told none
_GLOBAL, _HERE = "_global_", "_here_"


class Layers(Struct, frozen=True, kw_only=True):
    """What is found below one configuration: the folders that are searched, and which file of a group is chosen."""

    root: JobText
    folders: tuple[str, ...]
    chosen: dict[str, str]
    notes: list[str]

    def find(self, name: str, text: JobText) -> JobText | None:
        """The file that a configuration calls `name`: beside it, else in the first folder of the search path that has it."""
        file = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
        start = self.root if file.startswith("/") else text
        tries = (file.lstrip("/"), *(f"{folder}/{file.lstrip('/')}" for folder in self.folders))
        return next((one for path in tries if (one := start.beside(path)) is not None and _is_map(one)), None)


class _Entry(Struct, frozen=True, kw_only=True):
    """One entry of a defaults list. `overrides`: it chooses for a group that stands elsewhere, and brings no values of its own."""

    name: str
    group: str = ""
    package: str | None = None
    overrides: bool = False


def _is_map(text: JobText) -> bool:
    try:
        return text.yaml is not None
    except JobFileError:  # an empty file, which Hydra takes
        return False


def named(command: Command) -> str | None:
    """The configuration that a command names: `--config FILE`, or Hydra's `--config-path` and `--config-name`."""
    words: dict[str, str] = {}
    for place, token in enumerate(command.arguments):
        name, equals, value = token.text.partition("=")
        following = command.arguments[place + 1] if place + 1 < len(command.arguments) else None
        if name in ("--config", "--config-path", "--config-name", "-cp", "-cn") and not token.unresolved:
            words[name] = value if equals else (following.text if following is not None and not following.unresolved else "")
    given = words.get("--config") or words.get("--config-name") or words.get("-cn")
    if not given:
        return None
    file = given if given.endswith((".yaml", ".yml")) else f"{given}.yaml"
    folder = words.get("--config-path") or words.get("-cp")
    return f"{folder}/{file}" if folder else file


def followed(name: str | None, text: JobText, words: Sequence[str] = ()) -> tuple[list[Leaf], list[str]]:
    """The values of a configuration that a command names, with those of the files that it lies on; `words` choose among their groups."""
    command = text.command
    usual = name is None and command is not None and _MAIN_PPO.search(command.program) is not None
    if name is None and not usual:
        return [], []
    name = name or _USUAL
    inner = next((one for path in (name, *_below_program(name, text)) if (one := text.beside(path)) is not None), None)
    if inner is None or inner.yaml is None:
        return [], [] if usual else [f"{name} is not beside {text.source}: what it sets is not known"]
    leaves, said = whole(inner, words)
    return [leaf.moved(inner.source) for leaf in leaves], said


def _below_program(name: str, text: JobText) -> Iterator[str]:
    """Where Hydra looks for a configuration: a path from the folder of the module that is started."""
    program = "" if text.command is None else text.command.program
    module = program.removesuffix(".py")
    folder = (module if "/" in module else module.replace(".", "/")).rpartition("/")[0]
    if folder and not name.startswith("/"):
        yield f"{folder}/{name}"


def whole(text: JobText, words: Sequence[str] = ()) -> tuple[list[Leaf], list[str]]:
    """A file's values over those of the files that its `defaults` names, in their order; its own come last, as Hydra's _self_."""
    chosen = {key: value for key, _, value in (word.lstrip("+").partition("=") for word in words) if "." not in key.partition("@")[0]}
    layers = Layers(root=text, folders=_search_path(text), chosen=chosen, notes=[])
    return _composed(text, layers, "", 0), layers.notes


def _search_path(text: JobText) -> tuple[str, ...]:
    hydra = None if text.yaml is None else text.yaml.data.get("hydra")
    given = hydra.get("searchpath") if isinstance(hydra, Mapping) else None
    paths = [str(one) for one in given] if isinstance(given, list) else []
    return tuple(
        path.removeprefix("pkg://").replace(".", "/") if path.startswith("pkg://") else path.removeprefix("file://")
        for path in paths
        if "${" not in path
    )


def _composed(text: JobText, layers: Layers, package: str, level: int) -> list[Leaf]:
    """The values of a file in its package, over those of its defaults."""
    if text.yaml is None:
        return []
    own = leaves_of({key: value for key, value in text.yaml.data.items() if key not in ("defaults", "hydra")}, text.yaml.lines)
    base: list[Leaf] = []
    entries = list(_entries(text.yaml.data.get("defaults")))
    for entry in entries:
        if entry.overrides:
            layers.chosen.setdefault(entry.group, entry.name)
    for entry in entries:
        below = None if entry.overrides else _defaults_entry(text, layers, entry, package, level)
        if below is not None:
            base = laid(base, below)
    inside = f"{package}." if package else ""
    return laid(base, [replace(leaf, key=f"{inside}{leaf.key}", shown=f"{inside}{leaf.shown}") for leaf in own])


def _defaults_entry(text: JobText, layers: Layers, entry: _Entry, package: str, level: int) -> list[Leaf] | None:
    """The values of one entry; None where there are none, with a note where the file is not at hand."""
    group, target = entry.group, entry.package
    key = group if target is None else f"{group}@{target}"
    name = layers.chosen.get(key, entry.name) if group else entry.name
    name = _CHOICE.sub(lambda match: layers.chosen.get(match[1], match[0]), name)
    layers.chosen.setdefault(key, name)
    inner = layers.find(f"{group}/{name}" if group else name, text) if level < _MAX_LEVEL else None
    if inner is None:
        shown = f"{group}: {name}" if group else name
        layers.notes.append(f"{shown}, which {text.source} lies on, is not beside it: what it sets is not known")
        return None
    header = _HEADER.search(inner.text)
    at = _package(group.strip("./").replace("/", ".") if group else "", target or (header[1] if header else None), package)
    return [leaf if leaf.line is None else leaf.moved(inner.source) for leaf in _composed(inner, layers, at, level + 1)]


def _package(group: str, target: str | None, package: str) -> str:
    """Where in the whole configuration the values of a file stand: below its group, or where its entry or its header says."""
    if target is not None and target.startswith(_GLOBAL):
        return target.removeprefix(_GLOBAL).strip(".")
    said = group if target is None else target.removeprefix(_HERE).strip(".")
    return ".".join(part for part in (package, said) if part)


def _entries(given: object) -> Iterator[_Entry]:
    """The entries of a defaults list; a file that is named alone has no group."""
    for one in [given] if isinstance(given, str) else given if isinstance(given, list) else []:
        if isinstance(one, str) and one != "_self_":
            name, _, target = one.partition("@")
            yield _Entry(name=name, package=target or None)
        for key, value in one.items() if isinstance(one, Mapping) else ():
            match = _ENTRY.fullmatch(str(key))
            if match is not None and isinstance(value, str):
                overrides = str(key).startswith("override ")
                yield _Entry(name=value, group=match["group"].strip(), package=match["package"], overrides=overrides)


def laid(base: Sequence[Leaf], over: Sequence[Leaf]) -> list[Leaf]:
    """Values with others on top: of one key the upper one counts."""
    above = {leaf.shown for leaf in over}
    return [*(leaf for leaf in base if leaf.shown not in above), *over]
