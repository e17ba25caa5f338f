"""Small simulated captures of one job: as it was, and with Python between the layers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fixtures import scenario
from fixtures.accuracy import traces

SLOW_NS = 2_500_000  # in each of two layers: the step becomes half as long again


def captures(folder: Path) -> dict[str, Path]:
    """good (two seeds), slow, and one of another model; all with five steps of two layers, about one megabyte each; and the job file."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        "good": _capture(folder / "good", 0, 1),
        "again": _capture(folder / "again", 0, 2),
        "slow": _capture(folder / "slow", SLOW_NS, 4),
        "other": _capture(folder / "other", 0, 5, layers=6),
    }
    return {**made, "job": folder / "good" / "job.yaml"}


def _capture(folder: Path, python_ns: int, seed: int, layers: int = 2) -> Path:
    base = scenario.load("host-python-in-layers")
    plan = base.plan
    plan = dataclasses.replace(
        plan,
        job={**plan.job, "model": {**plan.job["model"], "num_layers": layers}},
        faults=dataclasses.replace(plan.faults, idle_python_ns=python_ns),
    )
    one = dataclasses.replace(base, plan=plan, steps=5, seed=seed)
    folder.mkdir()
    (folder / "job.yaml").write_text(one.job_text(), encoding="utf-8")
    return traces("nsys", one, one.record(), folder)[0]
