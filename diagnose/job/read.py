"""From a path or a text to a Job: which format it is, told by its content, and the reader for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from diagnose.errors import JobFileError
from diagnose.job.flags import parse_flags, parse_shell
from diagnose.job.model import EFFECT, Job, Leaf, Parsed, job_error
from diagnose.job.settle import settle
from diagnose.job.trees import OVERRIDE, override, parse_overrides, parse_toml, parse_yaml
from diagnose.knowledge.strict_yaml import MAX_BYTES

_YAML = re.compile(r"""(---|%YAML|\{|- |(["']).*\2\s*:(\s|$)|[^\s"'{\[#][^\s:=]*\s*:(\s|$))""")
_TABLE = re.compile(r"\[{1,2}[\w.\"' -]+\]{1,2}\s*(#.*)?")
_ENTRY = re.compile(r"[\w.\"'-]+\s*=\s*\S")
_SHELL = re.compile(
    r"#!|(export|declare|set|source|cd|module|srun|sbatch|mpirun|torchrun|python[\d.]*|uv|env|nsys|bash|sh|eval|if|for)\b|[A-Z_][A-Z0-9_]*\+?="
)


def read_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """The job in the file at `path`, with `overrides` (KEY=VALUE) on top. Raises JobFileError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise JobFileError(
            f"The job file {path} cannot be read: {error.strerror or error}.",
            effect=EFFECT,
            next_step="Give --config a file: a configuration dump, Megatron-LM arguments, the command line, or a plain job.yaml.",
        ) from error
    return replace(parse_job(data, source=path.name, overrides=overrides, folder=path.parent), file=path.name)


def parse_job(text: str | bytes, *, source: str = "job file", overrides: Sequence[str] = (), folder: Path | None = None) -> Job:
    """The job in `text`; `source` names it in messages, `folder` is where its own paths start. Raises JobFileError."""
    parsed = _parsed(_decoded(text, source), source, folder)
    return settle(replace(parsed, leaves=(*parsed.leaves, *parse_overrides(overrides))), source)


def overridden_job(overrides: Sequence[str]) -> Job:
    """A job of which only overrides are known. Raises JobFileError."""
    return settle(Parsed(format="overrides", leaves=parse_overrides(overrides)), "--set")


def _decoded(text: str | bytes, source: str) -> str:
    """Text without a byte-order mark, lines ended by line feeds alone."""
    if len(text) > MAX_BYTES:
        raise job_error(source, f"is larger than {MAX_BYTES // 2**20} MiB", "Give the job's configuration, not a checkpoint or a log.")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise job_error(
                source, f"is not UTF-8 text (byte {error.start})", "Give the job's configuration as text, not a checkpoint."
            ) from error
    if "\0" in text:
        raise job_error(source, "is not text: it holds NUL bytes", "Give the job's configuration as text, not a checkpoint.")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _parsed(text: str, source: str, folder: Path | None) -> Parsed:
    lines = [line.strip() for line in text.split("\n") if line.strip() and not re.match(r"\s*#(?!!)", line)]
    first = lines[0] if lines else ""
    if _TABLE.fullmatch(first) or (_ENTRY.match(first) and any(_TABLE.fullmatch(line) for line in lines)):
        return parse_toml(text, source)
    if not first or _YAML.match(first):
        return parse_yaml(text, source, folder)
    if all(_is_override_line(line) for line in lines):
        return _overrides(text, source)
    if first.startswith("-"):
        return parse_flags(text, source)
    if _SHELL.match(first) or any(re.search(r"(^|\s)-{1,2}[A-Za-z]", line) for line in lines):
        return parse_shell(text, source)
    return parse_yaml(text, source, folder)


def _is_override_line(line: str) -> bool:
    """Whether a line is one Hydra override. An environment variable in capitals is not."""
    match = OVERRIDE.fullmatch(line.removesuffix("\\").strip())
    if match is None or match["key"].startswith("-") or match["key"].isupper():
        return False
    return match["sign"] == "~" if match["value"] is None else True


def _overrides(text: str, source: str) -> Parsed:
    """A file of overrides, one a line; several stand in one line where each is an override by itself."""
    leaves: dict[str, Leaf] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip().removesuffix("\\").strip()
        if not bare or bare.startswith("#"):
            continue
        words = bare.split()
        for word in words if len(words) > 1 and all(_is_override_line(word) for word in words) else [bare]:
            leaf = override(word, source, line=number, forced=True)
            leaves.pop(leaf.key, None)
            leaves[leaf.key] = leaf
    return Parsed(format="overrides", leaves=tuple(leaves.values()))
