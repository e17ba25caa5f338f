"""Writing a setting into the text of a job file: under the key where the job has it, else where its framework looks for it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from diagnose.job import edit_yaml as yaml_edit
from diagnose.job.edit_yaml import Node, Path, YamlEditError
from diagnose.job.model import SettingValue
from diagnose.knowledge.settings import JobSettings, SettingSpec, flag_name

ENVIRONMENT = "environment"  # what stands for a framework where a change is an environment variable
Op = Literal["set", "add", "remove", "unset"]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One setting to write. `value` is None for `unset`; `setting` is None for a key that the table of settings does not know."""

    framework: str
    key: str
    op: Op
    value: SettingValue | None
    table: JobSettings = field(compare=False, repr=False)
    setting: str | None = None
    how: str = ""  # how a computed value follows
    literal: str | None = None  # what is written instead of the value, where a file spells it otherwise: as a map, or in words of its own

    @property
    def spec(self) -> SettingSpec | None:
        """What is known of the setting."""
        return None if self.setting is None else self.table.specs[self.setting]


class Editor(Struct, frozen=True, kw_only=True):
    """Writes edits into the text of a job file: `write(text, edit, value)`, where `value` is what the setting is to be in the end.

    `keys` are those of the file that an edit writes, dotted. Both raise YamlEditError for what can't be written.
    """

    write: Callable[[str, Edit, SettingValue | None], str]
    keys: Callable[[str, Edit], tuple[str, ...]] = lambda _text, edit: (edit.key,)
    takes: Callable[[Edit], bool] = lambda _edit: True


def map_editor(text: str) -> Editor | None:
    """What writes into a YAML map; None where the text is none."""
    try:
        is_map = yaml_edit.compose(text).kind == "map" and not text.lstrip().startswith("--")
    except YamlEditError:
        return None
    return Editor(write=lambda text, edit, _value: write(text, edit), keys=keys) if is_map else None


def section_editor(text: str, refused: Callable[[Node, Edit], str | None] = lambda _root, _edit: None) -> Editor | None:
    """What writes the framework's own dotted keys into a map of sections, YAML or JSON, no environment variables; None for another text.

    `refused`: why a file of the format can't hold a key beside what it has.
    """
    if map_editor(text) is None:
        return None

    def written(text: str, edit: Edit, _value: SettingValue | None) -> str:
        root = yaml_edit.compose(text)
        why = refused(root, edit)
        if why is not None:
            raise YamlEditError(why)
        for path in _alike(root, edit) or ([] if edit.op in ("unset", "remove") else [tuple(edit.key.split("."))]):
            text = _change(text, path, edit, plain=False)
        return text

    return Editor(
        write=written,
        keys=lambda text, edit: tuple(".".join(path) for path in _alike(yaml_edit.compose(text), edit)) or (edit.key,),
        takes=lambda edit: edit.framework != ENVIRONMENT,
    )


def _alike(root: Node, edit: Edit) -> list[Path]:
    """The places of the file that say what the edit says in the same words: its key, or another of the setting with the same values."""
    spec = edit.spec
    words = None if spec is None else spec.values_in(edit.framework, edit.key)
    others = [] if spec is None else [key for key in spec.keys_in(edit.framework) if spec.values_in(edit.framework, key) == words]
    plain = [edit.setting] if edit.setting is not None and words is None else []  # its own name is read everywhere
    paths = [tuple(key.split(".")) for key in dict.fromkeys([edit.key, *others, *plain])]
    return [path for path in paths if root.at(path) is not None]


def write(text: str, edit: Edit) -> str:
    """The YAML job file `text` with one edit made; the same text where it already says so. Raises YamlEditError."""
    root = yaml_edit.compose(text)
    if root.kind != "map":
        raise YamlEditError("this job file is no map of settings")
    if edit.framework == ENVIRONMENT:
        return _write_environment(text, root, edit)
    if edit.table.has_flags(edit.framework):
        return _write_flag(text, root, edit)
    return _write_key(text, root, edit)


def keys(text: str, edit: Edit) -> tuple[str, ...]:
    """The keys of a YAML job file that an edit writes, dotted: those that set it now, else the framework's own."""
    if edit.framework == ENVIRONMENT or edit.table.has_flags(edit.framework):
        return (edit.key,)
    root = yaml_edit.compose(text)
    given = [".".join(path) for path in _candidates(root, edit) if not _at(root, path).is_null]
    return tuple(key for key in given if "." in key) or (edit.key,)


# --- dotted keys ------------------------------------------------------------------------------------------------------


def _write_key(text: str, root: Node, edit: Edit) -> str:
    present = _candidates(root, edit)
    given = [path for path in present if not _at(root, path).is_null]
    paths = given or present[:1]
    if not paths:
        return text if edit.op in ("unset", "remove") else _new_key(text, root, edit)
    for path in paths:
        text = _change(text, path, edit, plain=False)
    return text


def _candidates(root: Node, edit: Edit) -> list[Path]:
    """Every place of the file that sets what the edit sets."""
    spec = edit.spec
    known = dict.fromkeys([edit.key, *([edit.setting] if edit.setting else []), *(spec.keys_in(edit.framework) if spec else ())])
    return [path for key in known for path in _places(root, key)]


def _at(root: Node, path: Path) -> Node:
    node = root.at(path)
    if node is None:
        raise YamlEditError(f"{'.'.join(path)} is not in the file")
    return node


def _places(root: Node, key: str) -> Iterator[Path]:
    """Where a dotted key stands in the file: nested, under model.transformer, or written with its dots."""
    parts = tuple(key.split("."))
    inner = (("model", "transformer", *parts[1:]),) if parts[0] == "model" else ()
    for path in dict.fromkeys([parts, *inner, (key,)]):
        if root.at(path) is not None:
            yield path


def _new_key(text: str, root: Node, edit: Edit) -> str:
    if any("." in key.value for key, _ in root.entries):
        return _change(text, (edit.key,), edit, plain=False)
    section, _, rest = edit.key.partition(".")
    node = root.entry(section)
    if not rest or (node is None and not _is_bridge(root)):
        return _change(text, (edit.setting or edit.key,) if not _is_bridge(root) else (edit.key,), edit, plain=False)
    if (node is None or node[1].is_null) and root.entry("_target_") is not None:
        text = _new_section(text, section, edit.table)
    path = ("model", "transformer") if section == "model" and root.at(("model", "transformer")) is not None else (section,)
    return _change(text, (*path, *rest.split(".")), edit, plain=False)


def _is_bridge(root: Node) -> bool:
    return any(value.kind == "map" and key.value in ("model", "train", "ddp", "optimizer", "dist") for key, value in root.entries)


def _new_section(text: str, section: str, table: JobSettings) -> str:
    """A section with its class, as the framework saves it."""
    fields = table.sections.get(section)
    if fields is None:
        raise YamlEditError(f"the section {section} is missing, and which class it needs is not known")
    for key, value in fields.items():
        text = yaml_edit.put(text, (section, key), yaml_edit.literal(value))
    return text


# --- flags ------------------------------------------------------------------------------------------------------------


def _write_flag(text: str, root: Node, edit: Edit) -> str:
    base: Path = ("MODEL_ARGS",) if root.entry("MODEL_ARGS") is not None else ()
    inner = root.at(base)
    spec = edit.spec
    value = edit.value
    flags = spec.keys_in(edit.framework) if spec else (edit.key.lstrip("-"),)
    forms = {flag_name(flag): flag for flag in flags}
    if forms.get(flag_name(edit.key), "").startswith("!") and isinstance(value, bool):
        value = not value  # a flag that turns the setting off
    written = False
    for key in [] if inner is None else [key.value for key, _ in inner.entries]:
        form = forms.get(flag_name(key)) or (edit.setting if edit.setting and flag_name(key) == edit.setting else None)
        if form is None:
            continue
        if _says(form, value):
            shown = True if form.startswith("!") or "=" in form else value
            text = _change(text, (*base, key), dataclasses.replace(edit, key=key, value=shown, setting=None, literal=None), plain=True)
            written = True
        else:
            text = yaml_edit.drop(text, (*base, key))
    if written or edit.op in ("unset", "remove"):
        return text
    new = _new_flag(edit, value, flags)
    if new is None:
        return text
    key, said = new
    if inner is not None and inner.entries and not any(one.value.startswith("-") for one, _ in inner.entries):  # as Python calls arguments
        inverted = edit.setting is not None and any(flag == f"!{key.lstrip('-')}" for flag in flags)
        key, said = (edit.setting or key, not said) if inverted else (flag_name(key), said)
    return yaml_edit.put(text, (*base, key), _shown(said, plain=True))


def _says(form: str, value: SettingValue | None) -> bool:
    """Whether a flag that stands in the file can say the new value; a flag that says another one has to go."""
    if value is None:
        return False
    if form.startswith("!"):
        return value is False
    return value == form.partition("=")[2] if "=" in form else value is not False


def _new_flag(edit: Edit, value: SettingValue | None, flags: Sequence[str]) -> tuple[str, SettingValue | None] | None:
    """The flag to add and what it is to say; None where leaving all of `flags` out says it."""
    off = [flag for flag in flags if flag.startswith("!")]
    if value is False:
        return (f"--{off[0][1:]}", True) if off else None
    on_unless_given = value is True and off and len(off) == len(flags)
    return None if on_unless_given else (edit.key, value)


# --- both -------------------------------------------------------------------------------------------------------------


def _write_environment(text: str, root: Node, edit: Edit) -> str:
    upper = root.entry("ENV_VARS") is not None or root.entry("MODEL_ARGS") is not None
    section = "ENV_VARS" if upper else "env_vars"
    dotted = f"{section}.{edit.key}"
    spec = edit.spec
    names = dict.fromkeys([edit.key, *(spec.env if spec else ())])
    present = [path for name in names for path in ((section, name), (f"{section}.{name}",)) if root.at(path) is not None]
    present += [(edit.setting,)] if edit.setting and root.entry(edit.setting) is not None else []
    if edit.op == "unset":
        for path in present:
            text = yaml_edit.drop(text, path)
        return text
    flat = any("." in key.value for key, _ in root.entries) and root.entry(section) is None
    for path in present or [(dotted,) if flat else (section, edit.key)]:
        text = _change(text, path, edit, plain=False)
    return text


def _change(text: str, path: Path, edit: Edit, *, plain: bool) -> str:
    """One place changed as the edit asks. `plain`: lists stand as words with spaces between, as on a command line."""
    node = yaml_edit.compose(text).at(path)
    if edit.op == "unset":
        return text if node is None or node.is_null else yaml_edit.put(text, path, "null")
    if edit.op == "set":
        same = node is not None and node.kind != "map" and (holds_already(node, edit.value) or node.value == edit.literal)
        shown = _quoted_as(node, edit.literal or _shown(edit.value, plain=plain), edit)
        return text if same else yaml_edit.put(text, path, shown)
    members = edit.value if isinstance(edit.value, tuple) else (str(edit.value),)
    if node is not None and node.kind == "scalar" and not node.is_null:
        return yaml_edit.put(text, path, yaml_edit.literal(_joined(node.value, members, edit.op)))
    return _change_members(text, path, edit, members, plain=plain)


def _quoted_as(node: Node | None, literal: str, edit: Edit) -> str:
    """A number in the environment stands in quotes where the one before it did."""
    number = edit.framework == ENVIRONMENT and isinstance(edit.value, int | float)
    return f"{node.quote}{literal}{node.quote}" if number and node is not None and node.quote in ("'", '"') else literal


def _change_members(text: str, path: Path, edit: Edit, members: tuple[str, ...], *, plain: bool) -> str:
    """Members added to or removed from a list that stands as one, or that is not there yet."""
    node = yaml_edit.compose(text).at(path)
    present = () if node is None else tuple(yaml_edit.item_name(item) for item in node.items)
    if edit.op == "remove":
        return yaml_edit.remove_items(text, path, members) if set(members) & set(present) else text
    missing = tuple(member for member in members if member not in present)
    if not missing:
        return text
    if plain or (edit.spec is not None and edit.spec.type == "text"):
        return yaml_edit.put(text, path, _shown(missing, plain=True, sign=" " if plain else ","))
    return yaml_edit.add_items(text, path, [yaml_edit.literal(member, flow=True) for member in missing])


def holds_already(node: Node, value: SettingValue | None) -> bool:
    """Whether the place holds the value already, however it is written."""
    if node.kind == "list":
        return isinstance(value, tuple) and tuple(yaml_edit.item_name(item) for item in node.items) == value
    shown = _shown(value, plain=True)
    return node.kind == "scalar" and (node.value == shown or (isinstance(value, bool) and node.value.lower() == shown))


def _joined(old: str, members: tuple[str, ...], op: Op) -> str:
    """A list in one text, with the sign between its members kept; a member `name:value` takes the place of one with that name."""
    sign = "," if "," in old or ":" in old else " "
    kept = [part for part in old.split(sign) if part]
    if op == "remove":
        return sign.join(part for part in kept if part not in members)
    names = {member.partition(":")[0] for member in members if ":" in member}
    kept = [part for part in kept if part.partition(":")[0] not in names or ":" not in part]
    return sign.join([*kept, *(member for member in members if member not in kept)])


def _shown(value: SettingValue | None, *, plain: bool, sign: str = " ") -> str:
    if plain and isinstance(value, tuple):
        return yaml_edit.literal(sign.join(value))
    return yaml_edit.literal(value)


_FLAG = re.compile(r"(?P<indent>\s*)(?P<flag>--[\w-]+)(?P<sign>\s+|=)?(?P<value>.*?)(?P<end>\s*\\?\s*)")


# --- files of lines: Hydra overrides (`key=value`), or Megatron-LM flags, one a line ------------------------------------


def flag_editor(text: str) -> Editor | None:
    """What writes into a file of flags, no environment variables; None unless every line is one flag with its value, a comment or empty."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or not all(_FLAG.fullmatch(line) and " --" not in line.strip() for line in lines):
        return None
    return Editor(write=write_flag, takes=lambda edit: edit.framework != ENVIRONMENT)


def write_override(text: str, edit: Edit, value: SettingValue | None) -> str:
    """A file of overrides with one key set; `value` is what the setting is to be in the end."""
    spec = edit.spec
    key = f"env_vars.{edit.key}" if edit.framework == ENVIRONMENT else edit.key
    known = [key, *(spec.keys_in(edit.framework) if spec else ()), *([edit.setting] if edit.setting else [])]
    line = re.compile(rf"(?P<start>\s*(\+\+|\+)?(?:{'|'.join(map(re.escape, known))})=)(?P<value>.*?)(?P<end>\s*\\?\s*)")
    return _set(text, line, f"{key}={shown(value)}", lambda found: f"{found['start']}{shown(value)}{found['end']}")


def write_flag(text: str, edit: Edit, value: SettingValue | None) -> str:
    """A file of flags with one flag set, or taken out where it says something else."""
    spec = edit.spec
    forms = {flag_name(flag): flag for flag in (spec.keys_in(edit.framework) if spec else (edit.key,))}
    lines, written = [], False
    for line in text.splitlines(keepends=True):
        found = _FLAG.fullmatch(line.rstrip("\r\n"))
        form = forms.get(flag_name(found["flag"])) if found else None
        if found is None or form is None:
            lines.append(line)
        elif _says(form, value) and not written:
            plain = found["indent"] + _line(found["flag"], None if form.startswith("!") or "=" in form else value, found["sign"] or " ")
            lines.append(plain + found["end"] + line[len(line.rstrip("\r\n")) :])
            written = True
    new = None if written or value is None else _new_flag(edit, value, tuple(forms.values()))
    return "".join(lines) if new is None else _append(lines, _line(*new, " "))


def _line(flag: str, value: SettingValue | None, sign: str) -> str:
    if value is None or isinstance(value, bool):
        return flag
    return f"{flag}{' ' if isinstance(value, tuple) else sign}{' '.join(value) if isinstance(value, tuple) else value}"


def _append(lines: Sequence[str], line: str) -> str:
    """The lines with one more; where lines go on with a backslash, the last one does so too."""
    text = "".join(lines)
    body = text.rstrip("\r\n")
    given = [one.rstrip() for one in body.splitlines() if one.strip() and not one.lstrip().startswith("#")]
    goes_on = len(given) > 1 and given[-2].endswith("\\") and not given[-1].endswith("\\")
    joint = " \\\n" if goes_on else "\n"
    return f"{body}{joint}{line}{text[len(body) :]}"


def _set(text: str, pattern: re.Pattern[str], line: str, replaced: Callable[[re.Match[str]], str]) -> str:
    """Lines that match replaced; a new line where none does."""
    lines = text.splitlines(keepends=True)
    found = [(index, match) for index, one in enumerate(lines) if (match := pattern.fullmatch(one.rstrip("\r\n")))]
    for index, match in found:
        lines[index] = replaced(match) + lines[index][len(lines[index].rstrip("\r\n")) :]
    return "".join(lines) if found else _append(lines, line)


def shown(value: SettingValue | None) -> str:
    """A value as an override writes it."""
    if isinstance(value, tuple):
        return f"[{','.join(value)}]"
    return value if isinstance(value, str) else yaml_edit.literal(value)
