"""Writing a setting into a job file of lines: files of Hydra overrides (`key=value`) and files of Megatron-LM flags, one flag a line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from diagnose.job.edit import ENVIRONMENT, Edit, Editor
from diagnose.job.model import SettingValue
from diagnose.knowledge.settings import load_settings

_FLAG = re.compile(r"(?P<indent>\s*)(?P<flag>--[\w-]+)(?P<sign>\s+|=)?(?P<value>.*?)(?P<end>\s*\\?\s*)")


def override_editor(_text: str) -> Editor:
    """What writes into a file of overrides."""
    return Editor(write=write_override)


def flag_editor(text: str) -> Editor | None:
    """What writes into a file of flags, which takes no environment variable.

    None unless every line holds one flag with its value, or a comment, or nothing.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or not all(_FLAG.fullmatch(line) and " --" not in line.strip() for line in lines):
        return None
    return Editor(write=write_flag, takes=lambda edit: edit.framework != ENVIRONMENT)


def write_override(text: str, edit: Edit, value: SettingValue | None) -> str:
    """A file of overrides with one key set; `value` is what the setting is to be in the end."""
    spec = None if edit.setting is None else load_settings()[edit.setting]
    key = f"env_vars.{edit.key}" if edit.framework == ENVIRONMENT else edit.key
    known = [key, *(spec.keys_in(edit.framework) if spec else ()), *([edit.setting] if edit.setting else [])]
    line = re.compile(rf"(?P<start>\s*(\+\+|\+)?(?:{'|'.join(map(re.escape, known))})=)(?P<value>.*?)(?P<end>\s*\\?\s*)")
    return _set(text, line, f"{key}={shown(value)}", lambda found: f"{found['start']}{shown(value)}{found['end']}")


def write_flag(text: str, edit: Edit, value: SettingValue | None) -> str:
    """A file of flags with one flag set, or taken out where it says something else."""
    spec = None if edit.setting is None else load_settings()[edit.setting]
    forms = {_normal(flag): flag for flag in (spec.keys_in(edit.framework) if spec else (edit.key,))}
    lines, written = [], False
    for line in text.splitlines(keepends=True):
        found = _FLAG.fullmatch(line.rstrip("\r\n"))
        form = forms.get(_normal(found["flag"])) if found else None
        if found is None or form is None:
            lines.append(line)
        elif _says(form, value) and not written:
            plain = found["indent"] + _line(found["flag"], None if form.startswith("!") or "=" in form else value, found["sign"] or " ")
            lines.append(plain + found["end"] + line[len(line.rstrip("\r\n")) :])
            written = True
    if written or value is None or (value is False and not any(flag.startswith("!") for flag in forms.values())):
        return "".join(lines)
    if value is True and forms and all(flag.startswith("!") for flag in forms.values()):
        return "".join(lines)  # on unless its flag is given
    off = next((flag for flag in forms.values() if flag.startswith("!")), None) if value is False else None
    return _append(lines, f"--{off[1:]}" if off else _line(edit.key, value, " "))


def _says(form: str, value: SettingValue | None) -> bool:
    if value is None:
        return False
    if form.startswith("!"):
        return value is False
    return value == form.partition("=")[2] if "=" in form else value is not False


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
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"[{','.join(value)}]" if isinstance(value, tuple) else str(value)


def _normal(flag: str) -> str:
    return flag.lstrip("-!").split("=")[0].replace("-", "_")
