"""Example jobs in the shape of published recipes (Megatron-Bridge perf recipes for Qwen3-30B-A3B and DeepSeek-V3)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diagnose.job import Job
from diagnose.job import read as jobs
from diagnose.knowledge.settings import load_job_settings
from tests.builders import yaml_text
from tests.builders.kept import DATA

Nested = dict[str, object]
JOBS: Mapping[str, dict[str, Any]] = yaml_text.load((DATA / "jobs.yaml").read_text(encoding="utf-8"))
TABLE = load_job_settings()
A1, B1 = JOBS["A1"], JOBS["B1"]
FLAGS = "--num-layers 4 --hidden-size 64 --num-attention-heads 4"  # of a model that Megatron-LM takes


def job(base: dict[str, object] | None = None, **changes: object) -> Job:
    """A job from dotted keys; in `changes` two underscores stand for a dot, and None removes a key."""
    merged = {**(A1 if base is None else base), **{key.replace("__", "."): value for key, value in changes.items()}}
    return parse_job(yaml_text.dump({key: value for key, value in merged.items() if value is not None}), source="job.yaml")


def read_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """The job in a file, read with the program's own table of settings."""
    return jobs.read_job(path, TABLE, overrides)


def parse_job(
    text: str | bytes, *, source: str = "job file", overrides: Sequence[str] = (), folder: Path | None = None, command: str | None = None
) -> Job:
    """The same of a text."""
    return jobs.parse_job(text, TABLE, source=source, overrides=overrides, folder=folder, command=command)


def put(data: Nested, key: str, value: object) -> Nested:
    """The same nested sections, now with a value under a dotted key."""
    *sections, last = key.split(".")
    node = data
    for section in sections:
        node = node.setdefault(section, {})  # type: ignore[assignment]
    node[last] = value
    return data


def read(job: Job) -> dict[str, object]:
    """The settings that stand in the job file."""
    return {name: one.value for name, one in job.settings.items() if one.source == "read"}


def overridden_job(overrides: Sequence[str]) -> Job:
    """The same of overrides alone."""
    return jobs.overridden_job(overrides, TABLE)
