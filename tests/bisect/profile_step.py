"""What the commits of test repositories hold as `profile.py`: simulates a profiled run of the step that the commit's settings describe.

The standard library alone.

The simulator's captures lie ready in the folder that SIMULATED names, one for each setting (`NAME.sqlite`, and `NAME.json`, its diagnosis).
This run takes that of its commit's setting, scales all its times by one random factor (the noise between captures), and leaves it in
$DIAGNOSE_OUTPUT. A commit may be broken (exit 1), and a capture may be cut off or disturbed. Chance depends on the commit and on how often
it was captured.
"""

import json
import math
import os
import random
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

TIMED = (
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "NVTX_EVENTS",
)  # fmt: skip


def main(commit: str) -> int:
    store, output = Path(os.environ["SIMULATED"]), Path(os.environ["DIAGNOSE_OUTPUT"])
    time.sleep(json.loads((store / "world.json").read_text())["seconds"])
    capture = capture_of(json.loads(Path("job.json").read_text()), commit, store)
    if capture is None:
        sys.stderr.write("error: undeclared identifier\n")
        return 1
    source, factor, cut = capture
    if cut:
        (output / source.name).write_bytes(source.read_bytes()[:4000])
    elif source.suffix == ".json":
        (output / source.name).write_text(json.dumps(scaled(json.loads(source.read_text()), factor)))
    else:
        shutil.copy(source, output / "run.sqlite")
        stretched(output / "run.sqlite", factor)
    return 0


def capture_of(settings: dict[str, Any], commit: str, store: Path) -> tuple[Path, float, bool] | None:
    """The capture that one more run of a commit leaves, by what its times are scaled, and whether it is cut off.

    None for a commit that can't be built.
    """
    if settings.get("broken"):
        return None
    world = json.loads((store / "world.json").read_text())
    chance = random.Random(f"{world['seed']} {commit} {counted(store / 'counts' / commit)}")
    factor, fate = math.exp(chance.gauss(0, world["noise"])), chance.random()
    source = store / f"{settings['step']}.{world['kind']}"
    return source, factor * (1.3 if fate < world["flaky"] else 1.0), world["flaky"] <= fate < 2 * world["flaky"]


def counted(path: Path) -> int:
    """How often this commit was captured before; the file grows by a byte each time."""
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(b".")
        return file.tell() - 1


def stretched(path: Path, factor: float) -> None:
    """All times of an export, from its beginning on."""
    with sqlite3.connect(path) as trace:
        for table in TIMED:
            trace.execute(f'UPDATE {table} SET start = CAST(start * ? AS INT), "end" = CAST("end" * ? AS INT)', (factor, factor))
        trace.execute("UPDATE CUPTI_ACTIVITY_KIND_CUDA_EVENT SET timestamp = CAST(timestamp * ? AS INT)", (factor,)) if _has_time(
            trace
        ) else None
    trace.close()


def _has_time(trace: sqlite3.Connection) -> bool:
    return any(row[1] == "timestamp" for row in trace.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_CUDA_EVENT)"))


def scaled(document: dict[str, Any], factor: float) -> dict[str, Any]:
    """The times of each step in a diagnosis; the parts of a step still add up to it."""
    windows = {}
    for device in document["split"]:
        for step in device["steps"]:
            step["compute"] = {name: round(ns * factor) for name, ns in step["compute"].items()}
            for part in step["absent"]:
                part["ns"] = round(part["ns"] * factor)
            step["window_ns"] = sum(step["compute"].values()) + sum(part["ns"] for part in step["absent"])
            windows[device["rank"], device["device"], step["index"]] = step["window_ns"]
    for device in document["budget"]:
        for step in device["per_step"]:
            step["window_ns"] = windows[device["rank"], device["device"], step["index"]]
    return document


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
