"""What changed around the code, and in the job file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from diagnose.document.comparison import EnvironmentChange, SettingChange
from diagnose.document.diagnosis import Diagnosis, JobSetting
from diagnose.knowledge.settings import load_settings
from diagnose.model.environment import EnvironmentItem, EnvironmentKind
from diagnose.reason.compare.job import Job, job_of, shown

_ORDER: tuple[EnvironmentKind, ...] = ("version", "variable", "clock", "hardware")
_PLURAL: Mapping[EnvironmentKind, str] = MappingProxyType(
    {"version": "versions", "variable": "variables", "clock": "clocks", "hardware": "hardware"}
)
_Items = Mapping[tuple[EnvironmentKind, str], EnvironmentItem]


def environment(base: Diagnosis, new: Diagnosis) -> tuple[tuple[EnvironmentChange, ...], int, tuple[str, ...]]:
    """What differs (versions, variables, clocks, hardware), how many things both tell alike, and what could not be compared."""
    if not base.environment or not new.environment:
        return (), 0, _untold(base, new)
    here, there = _by_name(base), _by_name(new)
    both = {kind for kind, _ in here} & {kind for kind, _ in there}
    keys = sorted((key for key in {*here, *there} if key[0] in both), key=lambda key: (_ORDER.index(key[0]), key[1]))
    changes = [
        EnvironmentChange(name=key[1], kind=key[0], base=_value(here, key), new=_value(there, key))
        for key in keys
        if _value(here, key) != _value(there, key)
    ]
    return tuple(changes), len(keys) - len(changes), tuple(_of_one_side(here, there))


def _untold(base: Diagnosis, new: Diagnosis) -> tuple[str, ...]:
    sides = [side for side, one in (("base", base), ("new", new)) if not one.environment]
    which = "Neither capture tells" if len(sides) == 2 else f"The capture of {sides[0]} does not tell"
    return (f"{which} its environment (versions, variables, clocks), so what changed around the code is not known.",)


def _of_one_side(here: _Items, there: _Items) -> Iterator[str]:
    """Kinds of which one capture tells nothing at all: it did not record them, which is not the same as not having them."""
    for kind in _ORDER:
        sides = [side for side, items in (("base", here), ("new", there)) if not any(one == kind for one, _ in items)]
        if len(sides) == 1:
            yield f"The capture of {sides[0]} tells no {_PLURAL[kind]}, so those were not compared."


def _by_name(document: Diagnosis) -> _Items:
    return {(item.kind, item.name): item for item in document.environment}


def _value(items: _Items, key: tuple[EnvironmentKind, str]) -> str | None:
    return items[key].value if key in items else None


def settings(base: Diagnosis, new: Diagnosis) -> tuple[tuple[SettingChange, ...], tuple[str, ...]]:
    """The settings of the job file that differ, and what has to be said of what could not be compared.

    A setting that one file leaves out to the same default is none.
    """
    here, there = job_of(base), job_of(new)
    if here is None or there is None:
        lacking = "Neither run has" if here is None and there is None else f"The {'base' if here is None else 'new'} run has no"
        return (), (
            (
                f"{lacking} {'a ' if lacking.startswith('Neither') else ''}job file, so settings were not compared. Give the job file "
                "of both runs."
            ),
        )
    names = [name for name in dict.fromkeys((*load_settings(), *here.read, *there.read)) if name in here.read or name in there.read]
    changes = [_change(name, here, there) for name in names if here.value(name) != there.value(name) or _only_named(name, here, there)]
    return tuple(changes), _unknown_keys(here, there)


def _only_named(name: str, here: Job, there: Job) -> bool:
    """Whether a named preset differs: its value is compared by the settings that it stands for, but its name is what the file shows."""
    return name in load_settings() and bool(load_settings()[name].presets) and _read(name, here) != _read(name, there)


def _read(name: str, job: Job) -> object:
    return job.read[name].value if name in job.read else None


def _change(name: str, here: Job, there: Job) -> SettingChange:
    first, second = here.read.get(name), there.read.get(name)
    told = second or first
    return SettingChange(
        name=name,
        key=told.key if told is not None else name,
        base=_shown(first),
        new=_shown(second),
        line=second.line if second is not None else None,
    )


def _shown(setting: JobSetting | None) -> str | None:
    return None if setting is None else shown(setting.value)


def _unknown_keys(here: Job, there: Job) -> tuple[str, ...]:
    """Keys that the program does not know and that only one of the files holds."""
    odd = sorted(here.unknown ^ there.unknown)
    if not odd:
        return ()
    more = f" and {len(odd) - 5} more" if len(odd) > 5 else ""
    return (f"The job files differ in keys that the program does not know: {', '.join(odd[:5])}{more}.",)
