"""The text of a job file, and what the readers of all formats look at: how it is written, its tree of keys, the command in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from diagnose.job.command_line import Command, flag_file, training_command
from diagnose.job.model import job_error
from diagnose.job.overrides import is_override_line
from diagnose.job.trees import Tree, toml_tree, yaml_tree
from diagnose.knowledge.strict_yaml import MAX_BYTES

Syntax = Literal["toml", "yaml", "overrides", "flags", "shell"]
_YAML = re.compile(r"""(---|%YAML|\{|- |(["']).*\2\s*:(\s|$)|[^\s"'{\[#][^\s:=]*\s*:(\s|$))""")
_TABLE = re.compile(r"\[{1,2}[\w.\"' -]+\]{1,2}\s*(#.*)?")
_ENTRY = re.compile(r"[\w.\"'-]+\s*=\s*\S")
_SHELL = re.compile(
    r"#!|(export|declare|set|source|cd|module|srun|sbatch|mpirun|torchrun|python[\d.]*|uv|env|nsys|bash|sh|eval|if|for)\b"
    r"|[A-Z_][A-Z0-9_]*\+?="
)


@dataclass(frozen=True, kw_only=True)
class JobText:
    """A job file as text with lines ended by line feeds. `source` names it in messages; `folder` is where its own paths start."""

    text: str
    source: str
    folder: Path | None = None

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
        if not first or _YAML.match(first):
            return "yaml"
        if all(is_override_line(line) for line in lines):
            return "overrides"
        if first.startswith("-"):
            return "flags"
        return "shell" if _SHELL.match(first) or any(re.search(r"(^|\s)-{1,2}[A-Za-z]", line) for line in lines) else "yaml"

    @cached_property
    def yaml(self) -> Tree | None:
        """The keys and values of a YAML file; None for other texts. Raises JobFileError."""
        return yaml_tree(self.text, self.source, self.folder) if self.syntax == "yaml" else None

    @cached_property
    def toml(self) -> Tree | None:
        """The keys and values of a TOML file; None for other texts. Raises JobFileError."""
        return toml_tree(self.text, self.source) if self.syntax == "toml" else None

    @cached_property
    def command(self) -> Command | None:
        """The flags of a file of them, or the one training command of a script; None for other texts. Raises JobFileError."""
        if self.syntax == "flags":
            return flag_file(self.text, self.source)
        return training_command(self.text, self.source) if self.syntax == "shell" else None


def decoded(text: str | bytes, source: str) -> str:
    """Text without a byte-order mark, lines ended by line feeds alone. Raises JobFileError."""
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
