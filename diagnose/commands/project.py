"""What the project says for its users.

Options in `[tool.diagnose]` of pyproject.toml or in diagnose.yaml, and the job file that lies beside a trace.

The nearest such file at or above the current folder counts, up to the repository's root. Keys are long options without their dashes;
paths are relative to the file. What is typed on the command line goes before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from diagnose.errors import UsageError, meant

FILES = ("diagnose.yaml", "pyproject.toml")
KEYS = ("config", "rules", "step-range", "nsys", "jobs", "engine", "fail-on", "strict", "color", "include-host-info", "verbose")
_OF_ONE_RUN = frozenset({"analyse", "patch", "run"})  # verbs that take a job file for one run; others have sides of their own
_PATHS, _LISTS = frozenset({"config", "rules", "nsys"}), frozenset({"rules"})
# What trainers leave beside a capture: Megatron-Bridge writes run_config.yaml with each checkpoint; job.yaml is this program's own plain
# form.
JOB_FILES = ("run_config.yaml", "job.yaml", "job.yml")
_EFFECT = "Nothing was done."
_refused = partial(UsageError, effect=_EFFECT)


def said_by(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """The nearest file with options at or above `folder`, and what it says; None where there is none. Raises UsageError."""
    for place in (folder, *folder.parents):
        for name in FILES:
            path = place / name
            found = _read(path) if path.is_file() else None
            if found is not None:
                return path, _checked(path, found)
        if (place / ".git").exists():
            return None
    return None


def _read(path: Path) -> Mapping[str, Any] | None:
    """The options of one file; None where it has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise _refused(f"{path} cannot be read: {fault}.", next_step="Correct it, or remove it.") from None
    if path.suffix == ".toml":
        if "[tool.diagnose" not in text:
            return None
        import tomllib  # noqa: PLC0415 - only where there is such a file

        try:
            found = tomllib.loads(text).get("tool", {}).get("diagnose")
        except tomllib.TOMLDecodeError as fault:
            raise _refused(f"{path} is no TOML: {fault}.", next_step="Correct it.") from None
    else:
        from diagnose.knowledge import strict_yaml  # noqa: PLC0415

        try:
            found = strict_yaml.load(text)
        except strict_yaml.YamlError as fault:
            raise _refused(f"{path} is not valid YAML: {fault}.", next_step="Correct it.") from None
    if found is None:
        return None
    if not isinstance(found, dict):
        raise _refused(f"{path} holds no map of options.", next_step=f"Its keys are {', '.join(KEYS)}.")
    return found


def _checked(path: Path, found: Mapping[Any, Any]) -> Mapping[str, Any]:
    """The options with paths made whole. Raises UsageError for a key that is none, or a value of the wrong kind."""
    options: dict[str, Any] = {}
    for key, value in found.items():
        if key not in KEYS:
            raise _refused(f"{path}: {key!r} is no option.{meant(str(key), KEYS)}", next_step=f"Use {', '.join(KEYS)}.")
        values = list(value) if isinstance(value, list) else [value]
        if any(not isinstance(one, str | int | bool) for one in values) or (isinstance(value, list) and key not in _LISTS):
            raise _refused(f"{path}: {key} has a value of the wrong kind.", next_step="Give a text, a number, true or false.")
        if key in _PATHS:
            values = [str(path.parent / str(one)) for one in values]
        options[key] = values if key in _LISTS else values[0]
    return options


def defaults(options: Mapping[str, Any], commands: Mapping[str, click.Command]) -> dict[str, dict[str, Any]]:
    """The options as click takes defaults: for each verb those that it has."""
    made: dict[str, dict[str, Any]] = {}
    for verb, command in commands.items():
        known = {name.removeprefix("--"): param.name for param in command.params for name in param.opts if name.startswith("--")}
        mine = {key: value for key, value in options.items() if key in known and (key != "config" or verb in _OF_ONE_RUN)}
        made[verb] = {str(known[key]): value for key, value in mine.items()}
    return made


def job_beside(traces: Sequence[str]) -> Path | None:
    """The job file that lies beside the first trace, or in the folder that was given; None where there is none."""
    for trace in traces:
        given = Path(trace)
        try:
            folder = given if given.is_dir() else given.parent
            found = next((folder / name for name in JOB_FILES if trace != "-" and (folder / name).is_file()), None)
        except (OSError, ValueError):
            continue
        if found is not None:
            return found
    return None
