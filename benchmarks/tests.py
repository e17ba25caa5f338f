"""What a suite of tests costs: processor time and peak memory of its processes.

    python -m benchmarks.tests quick     # or deep; `lint` for the checks before the tests
    python -m benchmarks.tests quick --slowest 30

Processor time (user and system, all processes) says little of how busy the machine was; the seconds on the clock do.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "loadgroup"]
BIN = Path(sys.executable).parent
SUITES: dict[str, list[list[str]]] = {
    "lint": [
        [str(BIN / "ruff"), "check", "."],
        [str(BIN / "ruff"), "format", "--check", "."],
        [str(BIN / "mypy")],
        [str(BIN / "lint-imports")],
    ],
    "quick": [PYTEST],
    "deep": [[*PYTEST, "-m", "deep or hypothesis", "--hypothesis-profile", "deep"]],
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tests", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--slowest", type=int, default=0, help="show as many of the slowest tests")
    asked = parser.parse_args()
    began, last = time.monotonic(), ""
    for command in SUITES[asked.suite]:
        slowest = [f"--durations={asked.slowest}"] if asked.slowest and command[1:3] == ["-m", "pytest"] else []
        with subprocess.Popen(
            [*command, *slowest], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None  # noqa: S101 - as asked for
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line if re.search(r"\d+ passed|failed", line) else last
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    clock, processor = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    print(f"| {asked.suite} | {last.strip() or '-'} | {processor:.0f} s | {clock:.0f} s | {usage.ru_maxrss / 1024:.0f} MiB |")


if __name__ == "__main__":
    main()
