"""Example jobs in the shape of published recipes (Megatron-Bridge perf recipes for Qwen3-30B-A3B and DeepSeek-V3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from diagnose.job import Job, parse_job
from tests.builders.kept import DATA

JOBS: Mapping[str, dict[str, Any]] = yaml.safe_load((DATA / "jobs.yaml").read_text(encoding="utf-8"))
A1, B1 = JOBS["A1"], JOBS["B1"]


def job(base: dict[str, object] | None = None, **changes: object) -> Job:
    """A job from dotted keys; in `changes` two underscores stand for a dot, and None removes a key."""
    merged = {**(A1 if base is None else base), **{key.replace("__", "."): value for key, value in changes.items()}}
    return parse_job(yaml.safe_dump({key: value for key, value in merged.items() if value is not None}), source="job.yaml")
