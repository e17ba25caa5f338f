"""The records of a job: its settings, and what is read from a file before it is known what it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.diagnosis import JobProblem, JobRead, JobSetting, ScriptDefault
from diagnose.errors import JobFileError
from diagnose.knowledge.settings import JobSettings, SettingSpec, version_number

SettingValue = int | float | bool | str | tuple[str, ...]
Origin = Literal["key", "flag", "env", "option"]
EFFECT = "No setting of the job was used."
PLAIN = "plain"  # the format of files that call settings by their own names, or by the keys of Megatron-Bridge
UNRESOLVED: Final = "\0unresolved"  # a value that only the process knew, such as $TP; no file holds a NUL
COMPUTED = frozenset(
    {
        "data_parallel_size",
        "expert_data_parallel_size",
        "num_microbatches",
        "context_parallel_chunk",
        "pipeline_layout_stages",
        "pipeline_layout_layers",
        "pipeline_layout_mtp_layers",
    }
)


class Setting(Struct, frozen=True, kw_only=True):
    """One normalised setting. `key` is where it was read, or what it was derived from; `place` says for people where that is.

    `line` is the line of the job file, from 1, where the key stands on one: what was derived from several settings stands on none.
    A default was not read at all; `trace` marks what the job file lacks and the trace tells.
    """

    name: str
    value: SettingValue
    key: str
    source: Literal["read", "default", "trace"]
    place: str | None = None
    line: int | None = None
    assumed: bool = False  # read, but whatever starts the job goes before it

    @property
    def shown(self) -> str:
        """The key with its place, for people."""
        return self.key if self.place is None else f"{self.key} ({self.place})"


def positive(value: object) -> int | None:
    """The value where it is a whole number above nought."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


@dataclass(frozen=True, kw_only=True)
class Job:
    """The settings of one training job.

    `rules` are the rule folders that the file names, `table` what is known of settings, `notes` what had to be said while reading it,
    `defaults` what a script falls back on where the environment sets nothing.
    """

    format: str
    settings: Mapping[str, Setting]
    table: JobSettings = field(compare=False, repr=False)
    unknown: tuple[str, ...] = ()
    source: str = "job file"
    notes: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    file: str | None = field(default=None, compare=False)  # bare name of the file; equal text is the same job
    defaults: tuple[ScriptDefault, ...] = ()
    unresolved: frozenset[str] = frozenset()  # settings that are given, with values that the file does not tell
    open_ended: bool = False  # more settings may have been given than the file shows
    another_program: bool = False  # the program that is started is not known to be the framework's own
    misspelt: Mapping[str, str] = field(default_factory=dict)  # keys that are not read, and the one that each may have been meant for

    def get(self, name: str) -> SettingValue | None:
        """The value of a setting, read or default; None when it is not known."""
        found = self.settings.get(name)
        return None if found is None else found.value

    def count(self, name: str) -> int | None:
        """The value of a setting that is a whole number above nought; None of others, and where it is not known."""
        return positive(self.get(name))

    @property
    def step_range(self) -> str | None:
        """The user's own name for the range that is one step."""
        value = self.get("step_range")
        return value if isinstance(value, str) else None

    def columns(self) -> dict[str, SettingValue]:
        """Values as conditions see them: job_<name>, versions as numbers."""
        return {f"job_{name}": column(self.table.specs[name], item.value) for name, item in self.settings.items()}

    def read(self) -> JobRead:
        """What was read, for the diagnosis document; defaults and computed sizes are not part of it."""
        rows = tuple(
            JobSetting(name=item.name, value=item.value, key=item.shown, line=item.line)
            for item in self.settings.values()
            if item.source == "read" and item.name not in COMPUTED
        )
        problems = tuple(
            JobProblem(id="misspelt-key", text=f"{key} is not read: no setting has that name. {meant} has, and is not set.")
            for key, meant in self.misspelt.items()
        )
        return JobRead(
            format=self.format,
            settings=rows,
            unknown=self.unknown,
            notes=self.notes,
            script_defaults=self.defaults,
            problems=problems,
            file=self.file,
        )


class Leaf(Struct, frozen=True, kw_only=True):
    """One value of a job file: the key to look up, and the key as the file shows it. Class names (`_target_`) count as known.

    `line` is that of the key, from 1; `place` is said to people, where the key alone is hard to find.
    """

    key: str
    shown: str
    value: object
    known: bool = False
    place: str | None = None
    line: int | None = None
    forced: bool = False  # given on the command line: goes before the file
    assumed: bool = False  # holds only where the environment does not say otherwise
    removed: bool = False  # Hydra's ~key: the key and all below it are gone

    def moved(self, source: str) -> Leaf:
        """The same as it is said where `source` names the file beside the job file in which it stands."""
        return replace(self, line=None, place=f"line {self.line} of {source}") if source and self.line is not None else self


class Parsed(Struct, frozen=True, kw_only=True):
    """A file taken apart. `open_ended` means that more settings may have been given than the file shows.

    `implied`: settings that its form tells, without a key of their own; a file that tells nothing else is no job file.
    `nameless`: nothing in it names its framework, whose it is by the form of its keys.
    """

    format: str
    leaves: tuple[Leaf, ...]
    implied: tuple[Leaf, ...] = ()
    notes: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    defaults: tuple[ScriptDefault, ...] = ()
    open_ended: bool = False
    another_program: bool = False
    nameless: bool = False


def column(spec: SettingSpec, value: SettingValue) -> SettingValue:
    """A setting's value as conditions see it."""
    return version_number(value) if spec.type == "version" and isinstance(value, str) else value


def expected(spec: SettingSpec) -> str:
    """A setting's type in words."""
    return {"list": "list of names", "version": 'version in quotes, such as "2.6.0"'}.get(spec.type, spec.type)


def type_name(value: object) -> str:
    """The type of a file's value in words."""
    if value is None:
        return "nothing"
    return {"str": "text", "dict": "a map"}.get(type(value).__name__, type(value).__name__)


def wrong_type(source: str, key: str, wanted: str, raw: object) -> JobFileError:
    """The error for a value of the wrong type."""
    shown = repr(raw) if not isinstance(raw, int) or abs(raw) < 10**60 else "a number of more than 60 digits"
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    return job_error(source, f"has {key} = {shown} ({type_name(raw)}), but expected {wanted}", f"Correct {key}.")


class NoTrainingError(JobFileError):
    """A script in which no command trains, as far as its flags are known."""


def job_error(source: str, what: str, next_step: str) -> JobFileError:
    """An error of the job file; `what` goes on after the file's name."""
    return JobFileError(f"{source} {what}.", effect=EFFECT, next_step=next_step)


def count_of(job: Job | None, name: str) -> int | None:
    """The value of a setting that is a whole number above nought; None of others, where it is not known, and without a job file."""
    return None if job is None else job.count(name)
