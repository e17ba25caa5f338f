"""The driver killed at random moments: the user's repository is as it was, nothing runs on, and --resume reaches the same result."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.bisect.log import DEFAULT_FOLDER
from diagnose.document.bisection import decode
from tests.bisect.simulated import COMMAND, History, random_history, set_world, snapshot
from tests.bisect.test_command import gone

KILLS = 8
ROOT = Path(__file__).parents[2]


def driver(history: History, store: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SIMULATED": str(store)}
    return subprocess.Popen(
        [sys.executable, "-m", "diagnose", "bisect", *arguments],
        cwd=history.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def processes_in(folder: Path) -> list[int]:
    """Processes whose current folder is in `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "cwd").readlink().is_relative_to(folder):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
@pytest.mark.deep
def test_killing_the_driver_leaves_the_repository_alone_and_resume_goes_on(tmp_path: Path, store: Path) -> None:
    history = random_history(tmp_path / "repository", 5, longest=60)
    ends = ("--good", history.commits[0], "--bad", history.commits[-1])
    set_world(store, seed=5, noise=0.0, seconds=0.15)
    began = time.monotonic()
    with driver(history, store, *ends, "--state", str(tmp_path / "whole"), "--", *COMMAND) as undisturbed:
        said = undisturbed.communicate(timeout=600)[1]
    takes = time.monotonic() - began
    assert undisturbed.returncode == 0, said
    before, chance = snapshot(history.folder), random.Random(3)
    states: set[Path] = set()
    kills, resumed, done = 0, (), False
    while not done:
        wait = chance.uniform(0.02, 0.7) * takes if kills < KILLS else 600
        with driver(history, store, *(resumed or (*ends, "--", *COMMAND))) as run:
            try:
                run.communicate(timeout=wait)
                done = True
            except subprocess.TimeoutExpired:
                run.kill()
                kills += 1
        assert snapshot(history.folder) == before
        states = set((history.folder / DEFAULT_FOLDER).glob("*"))
        for process in [pid for state in states for pid in processes_in(state / "checkout")]:
            assert gone(process)
        if any((state / "log.jsonl").exists() for state in states):
            resumed = ("--resume",)
    assert run.returncode == 0
    assert kills >= 3
    (state,) = states
    assert (state / "report.json").read_bytes() == (tmp_path / "whole" / "report.json").read_bytes()
    assert decode((state / "report.json").read_bytes()).culprits[0].label == history.commits[history.culprit]
    with driver(history, store, "--resume", "--format", "json") as again:
        assert again.communicate(timeout=600)[0] == (state / "report.json").read_bytes()
    assert snapshot(history.folder) == before


def test_an_interruption_says_how_to_go_on(tmp_path: Path, store: Path) -> None:
    import signal

    history = random_history(tmp_path / "repository", 5, longest=60)
    set_world(store, seed=5, noise=0.0, seconds=30)
    with driver(history, store, "--good", history.commits[0], "--bad", history.commits[-1], "--", *COMMAND) as run:
        until = time.monotonic() + 300
        while not list((history.folder / DEFAULT_FOLDER).glob("*/logs/*.log")) and time.monotonic() < until:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=600)[1]
    assert run.returncode == 130
    assert b"--resume --state" in said
    assert b"Traceback" not in said
