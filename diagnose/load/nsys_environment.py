"""What an Nsight export tells about the world around the code; `diagnose.knowledge.environment` chooses what is passed on, and how."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from diagnose.knowledge.environment import EnvironmentRules, Place, RawEnvironment, environment
from diagnose.load.nsys_meta import gpu_rows, starts_a_launcher, variables
from diagnose.load.nsys_source import Source, text
from diagnose.model.environment import EnvironmentItem

# What holds the names of the user and of the host: values with these names in them are not shown.
_NAMING_VARIABLES = frozenset(
    {"USER", "USERNAME", "LOGNAME", "HOSTNAME", "HOST", "SLURM_JOB_USER", "SLURMD_NODENAME", "SLURM_JOB_ACCOUNT", "SUDO_USER"}
)
_NAMING_ROWS = re.compile(r"DEVICE_DISPLAY_NAME|PROCESS_\d+:USER_NAME")


def environment_of(
    source: Source, settings: Mapping[str, str], used: Sequence[tuple[int, int, int]], rules: EnvironmentRules
) -> tuple[EnvironmentItem, ...]:
    """The items of one export. `settings` are the export's own (of `nsys_meta.versions`), `used` the (rank, process, device) with work.

    The variables are those of the command that nsys started: often a launcher, which hands them on and may set others.
    """
    rows = [row for row, _ in gpu_rows(source, used)]
    given: dict[str, list[object]] = {}
    for _, name, value in variables(source):
        given.setdefault(name, []).append(value)
    values: dict[Place, Mapping[str, tuple[object, ...]]] = {
        "system": _columns([{text(row.get("name")) or "": row.get("value")} for row in source.small("TARGET_INFO_SYSTEM_ENV")]),
        "export": {name: (value,) for name, value in settings.items()},
        "gpu": _columns(rows),
        "machine": _machine(source),
        "variable": {name: tuple(found) for name, found in given.items()},
    }
    command = "the launcher" if starts_a_launcher(source) else "the command"
    sources: dict[Place, str] = {
        "system": "TARGET_INFO_SYSTEM_ENV, {}",
        "export": "META_DATA_EXPORT, {}",
        "gpu": "TARGET_INFO_GPU, {}",
        "machine": "{}",
        "variable": f"META_DATA_CAPTURE, environment of {command} that nsys started",
    }
    return environment(RawEnvironment(values=values, sources=sources, private=_names(source, given)), rules)


def _columns(rows: Iterable[Mapping[str, object]]) -> dict[str, tuple[object, ...]]:
    """All values of each column, without nulls."""
    found: dict[str, tuple[object, ...]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                found[name] = (*found.get(name, ()), value)
    return found


def _machine(source: Source) -> dict[str, tuple[object, ...]]:
    """How many GPUs for computing and which network adapters the machine has. An adapter's name without its number is its driver's."""
    gpus = sum(1 for row in source.small("TARGET_INFO_GPU") if row.get("isDiscrete") and row.get("smCount"))
    drivers = Counter(re.sub(r"_?\d+$", "", name) for row in source.small("TARGET_INFO_NIC_INFO") if (name := text(row.get("name"))))
    adapters = ", ".join(f"{count} × {driver}" for driver, count in sorted(drivers.items()))
    return {"TARGET_INFO_GPU": (gpus,), "TARGET_INFO_NIC_INFO": (adapters,)}


def _names(source: Source, given: Mapping[str, Sequence[object]]) -> list[str]:
    """Names of the user and the host, and of the host without its domain."""
    words = [str(value) for name in _NAMING_VARIABLES for value in given.get(name, ())]
    words += [text(row.get("value")) or "" for row in source.small("TARGET_INFO_SYSTEM_ENV") if row.get("name") == "Hostname"]
    words += [
        text(row.get("value")) or "" for row in source.small("META_DATA_CAPTURE") if _NAMING_ROWS.fullmatch(text(row.get("name")) or "")
    ]
    return [part for word in words for part in {word, word.partition(".")[0]}]
