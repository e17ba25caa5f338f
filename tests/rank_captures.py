"""Captures of a simulated run of several ranks, each in a format and with a part of the run of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from diagnose.diagnosis import Diagnosis
from diagnose.pipeline import diagnose
from fixtures import scenario
from fixtures.accuracy import Format, trace_of
from fixtures.machine import run
from fixtures.plan import Plan
from fixtures.recording import Recording
from fixtures.scenario import Scenario

Change = Callable[[Recording], Recording]


@cache
def recorded(name: str) -> tuple[Recording, ...]:
    """One run of a scenario."""
    return scenario.load(name).record()


def diagnosed(
    one: Scenario,
    recordings: tuple[Recording, ...],
    folder: Path,
    *,
    formats: Mapping[int, Format] | None = None,
    changes: Mapping[int, Change] | None = None,
    left_out: tuple[int, ...] = (),
    also: Callable[[Path], list[Path]] | None = None,
) -> Diagnosis:
    """The diagnosis of a run with its job file. `changes`: what is left of a rank's recording; `left_out`: ranks without a trace; `also`: more files, made in the folder."""
    job = folder / "job.yaml"
    job.write_text(one.job_text(), encoding="utf-8")
    paths = []
    for recording in recordings:
        if recording.rank in left_out or recording.rank not in one.captured:
            continue
        kept = (changes or {}).get(recording.rank, _whole)(recording)
        paths.append(trace_of((formats or {}).get(recording.rank, "nsys"), one, kept, folder))
    return diagnose([*paths, *(also(folder) if also else [])], config=job)


def _whole(recording: Recording) -> Recording:
    return recording


def variant(
    name: str, *, job: Mapping[str, Mapping[str, object]] | None = None, machine: Mapping[str, object] | None = None, **faults: object
) -> Scenario:
    """A scenario with some settings changed."""
    one = scenario.load(name)
    settings = {
        section: {**one.plan.job[section], **(job or {}).get(section, {})} if section in (job or {}) else value
        for section, value in one.plan.job.items()
    }
    plan = Plan(job=settings, machine=replace(one.plan.machine, **(machine or {})), faults=replace(one.plan.faults, **faults))  # type: ignore[arg-type]
    return replace(one, plan=plan)


def simulated(one: Scenario) -> tuple[Recording, ...]:
    """One run of a changed scenario."""
    return run(one.programs(), offsets=one.offsets)
