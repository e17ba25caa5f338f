"""The settings of a document's job, as far as two documents have to agree on them.

What was read, else the framework's default where the file would have said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diagnose.document.diagnosis import Diagnosis, JobRead, JobSetting
from diagnose.errors import InputError
from diagnose.knowledge.settings import load_formats, load_settings
from diagnose.model.vocabulary import FactValue

Value = FactValue | tuple[str, ...]
TOKENS = "tokens_per_step"
_OPEN = "may hold more flags"  # the note of a launch script whose command line was not told whole


@dataclass(frozen=True, kw_only=True)
class Job:
    """One side's settings by name. `whole`: what the file leaves out is the framework's default."""

    read: Mapping[str, JobSetting]
    derived: Mapping[str, int | float | str]
    unknown: frozenset[str]
    format: str
    whole: bool

    def value(self, name: str) -> Value:
        """What was read, what follows from it, or the default; None where it is not known.

        None, too, of a named preset that the table resolves: its settings say it all.
        """
        spec = load_settings().get(name)
        if name in self.read:
            value = self.read[name].value
            return None if spec is not None and value in spec.presets else value
        if name in self.derived:
            return self.derived[name]
        if spec is None or not self.whole or self._in_preset(name):
            return None
        return spec.default_in(self.format, {other: setting.value for other, setting in self.read.items()})

    def holds(self, name: str) -> bool:
        """Whether the file itself says it."""
        return name in self.read

    def _in_preset(self, name: str) -> bool:
        """Whether a preset that the file names decides it, so that the framework's default does not hold."""
        presets = (load_settings()[one].presets for one in self.read if one in load_settings())
        return any(name in inner for preset in presets for inner in preset.values())


def job_of(document: Diagnosis) -> Job | None:
    """The job of a document; None where it was made without a job file. Raises InputError for a job of a format that is not known."""
    read = document.job
    if read is None:
        return None
    return Job(
        read={setting.name: setting for setting in read.settings},
        derived={size.name: size.value for size in read.derived if size.value is not None},
        unknown=frozenset(read.unknown),
        format=read.format,
        whole=_whole(read),
    )


def _whole(read: JobRead) -> bool:
    format_ = load_formats().get(read.format)
    if format_ is None:
        raise InputError(
            f"The job file of this document has the format {read.format}, which this version of the program does not know.",
            effect="Nothing was compared.",
            next_step="Compare with the version that wrote the document.",
        )
    return format_.defaults != "none" and not any(_OPEN in note for note in read.notes)


def world_size(document: Diagnosis) -> int | None:
    """The number of ranks: the job file's, else what the trace tells."""
    job = job_of(document)
    told = job.value("world_size") if job is not None else None
    fact = document.facts.get("world_size")
    value = told if told is not None else fact.value if fact is not None else None
    return value if isinstance(value, int) else None


def tokens_per_step(document: Diagnosis) -> float | None:
    """The tokens of one step that the job file tells (global batch times sequence length); None where it does not."""
    job = job_of(document)
    value = job.derived.get(TOKENS) if job is not None else None
    return float(value) if isinstance(value, int | float) else None


def shown(value: Value) -> str:
    """A setting's value in words."""
    if value is None:
        return "not told"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
