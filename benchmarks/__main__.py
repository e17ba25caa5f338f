"""``python -m benchmarks [--size small|full]``: measure, print each goal with its limit and outcome, and write results.md."""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ranks, replay
from benchmarks.child import CommandError, Run, alternate, measure, median
from benchmarks.inputs import named_trace, nsys_export, packed, source, torch_trace
from benchmarks.ranks import Measurement

HERE = Path(__file__).parent
PAYS_FROM = 300 << 20  # bytes; as diagnose.load.kineto_stream has it
TESTS = "\n## Tests\n"  # of results.md: from `python -m benchmarks.tests`
PROGRAM = (sys.executable, "-m", "diagnose")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Input sizes of one run: PyTorch traces in 10^6 bytes, Nsight exports in kernels, numbers of ranks, each list rising; how often the
    largest is run.
    """

    torch: tuple[int, ...]
    nsys: tuple[int, ...]
    ranks: tuple[int, ...]
    repeats: int
    large_repeats: int


PLANS = {
    "small": Plan(torch=(100, 200), nsys=(500_000, 1_000_000), ranks=(1, 2, 8, 64), repeats=3, large_repeats=3),
    "full": Plan(
        torch=(200, 400, 1_000), nsys=(1_000_000, 2_000_000, 5_000_000, 10_000_000), ranks=(1, 2, 8, 64, 512), repeats=3, large_repeats=1
    ),
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One goal: what was measured, its unit, and the limit that it must not pass (or must reach, for `at_least`)."""

    name: str
    measured: float
    limit: float
    unit: str = "×"
    at_least: bool = False

    @property
    def met(self) -> bool:
        """True if the measured value keeps to the limit."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def row(self) -> str:
        """The goal as a row of the table."""
        sign = "≥" if self.at_least else "≤"
        return (
            f"| {self.name} | {sign} {self.limit:g} {self.unit} | {self.measured:.3g} {self.unit} | {'met' if self.met else '**missed**'} |"
        )


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One input through the program and its baseline."""

    name: str
    size_mib: float
    program: Run
    baseline: Run

    def row(self) -> str:
        """The timing as a row of the table."""
        ratio = self.program.seconds / self.baseline.seconds
        cells = (
            self.name,
            f"{self.size_mib:.0f}",
            f"{self.program.seconds:.2f}",
            f"{self.program.processor:.2f}",
            f"{self.program.peak_mib:.0f}",
            f"{self.baseline.seconds:.2f}",
            f"{ratio:.2f}",
        )
        return f"| {' | '.join(cells)} |"


def say(text: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(text + "\n")


def diagnosis(trace: Path, folder: Path) -> list[str | Path]:
    """The whole program on one trace: HTML file and JSON on standard output."""
    return [*PROGRAM, trace, "-o", folder / "out.html", "--force", "--format", "json"]


def time_input(name: str, trace: Path, baseline: str, folder: Path, repeats: int) -> Timing:
    """Time the program and a baseline on `trace`, in turn."""
    runs = alternate({"program": diagnosis(trace, folder), "baseline": [sys.executable, "-m", f"benchmarks.{baseline}", trace]}, repeats)
    say(f"{name}: {runs['program'].seconds:.2f} s, {runs['program'].peak_mib:.0f} MiB; baseline {runs['baseline'].seconds:.2f} s")
    return Timing(name=name, size_mib=trace.stat().st_size / (1 << 20), program=runs["program"], baseline=runs["baseline"])


def _doubling(timings: Sequence[Timing], sizes: Sequence[int]) -> float:
    """The worst growth of time when the input doubles, from neighbouring sizes (other steps are scaled to a doubling)."""
    pairs = zip(timings, timings[1:], sizes, sizes[1:], strict=False)
    return max(2 * (large.program.seconds / small.program.seconds) / (more / less) for small, large, less, more in pairs)


def _shared_reading(trace: Path, repeats: int) -> list[Goal]:
    """Goal 5, where the file is large enough for several processes to pay."""
    if trace.stat().st_size < PAYS_FROM or (os.cpu_count() or 1) < 2:
        return []
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.load", trace]
    runs = alternate({"one": [*command, "1"], "two": [*command, "2"]}, repeats)
    return [
        Goal(name="reading with two processes against one", measured=runs["one"].seconds / runs["two"].seconds, limit=1.5, at_least=True)
    ]


def torch_goals(plan: Plan, folder: Path) -> tuple[list[Timing], list[Goal]]:
    """Goals 1 and 3 for PyTorch traces."""
    timings: list[Timing] = []
    goals: list[Goal] = []
    for size in plan.torch:
        last = size == plan.torch[-1]
        trace = torch_trace(folder, size)
        timing = time_input(f"PyTorch JSON, {size} MB", trace, "decode", folder, plan.large_repeats if last else plan.repeats)
        timings.append(timing)
        if last:
            goals.append(
                Goal(
                    name=f"{size} MB JSON against its streaming decode", measured=timing.program.seconds / timing.baseline.seconds, limit=2
                )
            )
            goals.append(Goal(name=f"peak memory, {size} MB JSON", measured=timing.program.peak_mib, limit=700, unit="MiB"))
            small = packed(trace)
            zipped = median([measure(diagnosis(small, folder)) for _ in range(plan.large_repeats)])
            goals.append(Goal(name=f"{size} MB JSON as .gz against plain", measured=zipped.seconds / timing.program.seconds, limit=1.2))
            small.unlink()
            goals += _shared_reading(trace, plan.large_repeats)
        trace.unlink()
    goals.append(Goal(name="PyTorch JSON: time when the input doubles", measured=_doubling(timings, plan.torch), limit=2.1))
    return timings, goals


def nsys_goals(plan: Plan, folder: Path) -> tuple[list[Timing], list[Goal]]:
    """Goals 2 and 3 for Nsight Systems exports."""
    timings: list[Timing] = []
    goals: list[Goal] = []
    for kernels in plan.nsys:
        trace = nsys_export(folder, kernels)
        millions = f"{kernels / 1e6:g} M kernels"
        large = kernels > 1_000_000
        timing = time_input(f"Nsight SQLite, {millions}", trace, "scan", folder, plan.large_repeats if large else plan.repeats)
        timings.append(timing)
        limits = {1_000_000: (6, 1024), 10_000_000: (5, 6144)}.get(kernels)
        if limits:
            ratio = timing.program.seconds / timing.baseline.seconds
            goals.append(Goal(name=f"{millions} against SQLite's own column scan", measured=ratio, limit=limits[0]))
            goals.append(Goal(name=f"peak memory, {millions}", measured=timing.program.peak_mib, limit=limits[1], unit="MiB"))
        trace.unlink()
    goals.append(Goal(name="Nsight SQLite: time when the input doubles", measured=_doubling(timings, plan.nsys), limit=2.1))
    return timings, goals


def small_goals(folder: Path) -> list[Goal]:
    """Goal 4: start-up, and a trace of 3 MB."""
    helped = median([measure([*PROGRAM, "--help"]) for _ in range(9)])
    trace = torch_trace(folder, 3)
    small = median([measure(diagnosis(trace, folder)) for _ in range(5)])
    trace.unlink()
    named: dict[str, Sequence[str | Path]] = {
        name: diagnosis(named_trace(folder, known=name == "known"), folder) for name in ("known", "unknown")
    }
    cost = {name: run.processor for name, run in alternate(named, 5).items()}
    return [
        Goal(name="4,000 kernels of unknown names against known ones, processor time", measured=cost["unknown"] / cost["known"], limit=1.5),
        Goal(name="diagnose --help", measured=helped.seconds * 1000, limit=100, unit="ms"),
        Goal(name="a 3 MB trace, all in", measured=small.seconds, limit=1.5, unit="s"),
    ]


def replay_goals(folder: Path) -> list[Goal]:
    """The replay of 100,000 operations: time, the same against reading them, and the peak of memory with it against without."""
    trace = nsys_export(folder, 100_000)
    found = replay.least(trace)
    trace.unlink()
    per_operations = 100_000 * found["replayed"] / found["operations"]
    return [
        Goal(name="replay of 100,000 operations, processor time", measured=per_operations, limit=1, unit="s"),
        Goal(name="replay against reading the same trace", measured=found["replayed"] / found["read"], limit=1),
        Goal(name="peak memory with graph and replay against without", measured=found["peak"] / found["peak_plain"], limit=2),
    ]


def ranks_goals(plan: Plan, folder: Path) -> tuple[list[Measurement], list[Goal]]:
    """Time per rank, and what putting the ranks together costs, up to the largest number of ranks."""
    copies = ranks.make(folder / "ranks", plan.ranks[-1])
    rows = []
    for count in plan.ranks:
        rows.append(ranks.run(copies, count))
        say(f"{count} ranks: measuring {rows[-1].measuring_s:.2f} s, reducing {rows[-1].reducing_s:.2f} s, {rows[-1].peak_mib:.0f} MiB")
    few = next(row for row in rows if row.ranks >= 8)
    last = rows[-1]
    growth = (last.rank_s or math.inf) / (few.rank_s or math.inf)
    goals = [
        Goal(name=f"processor time of one rank, {last.ranks} ranks against {few.ranks}", measured=growth, limit=1.1),
        Goal(name=f"reduction of {last.ranks} ranks, share of the time", measured=100 * last.reducing_share, limit=5, unit="%"),
        Goal(name=f"peak memory of the reducing process, {last.ranks} ranks", measured=last.peak_mib, limit=1024, unit="MiB"),
    ]
    return rows, goals


def document(size: str, timings: Sequence[Timing], goals: Sequence[Goal]) -> str:
    """results.md."""
    made = source()
    lines = [
        "# Benchmark results",
        "",
        f"Written by `make bench SIZE={size}` on {os.cpu_count()} cores with Python {platform.python_version()}. Whole processes, start-up included; medians",
        "of runs that alternate with their baseline. Believe the ratios: seconds depend on the machine.",
        "",
        f"PyTorch input: {made.torch}. Nsight input: {made.nsys}.",
        "",
        "| goal | limit | measured | |",
        "|---|---|---|---|",
        *(goal.row() for goal in goals),
        "",
        "| input | MiB | diagnose, s | processor, s | peak, MiB | baseline, s | ratio |",
        "|---|---|---|---|---|---|---|",
        *(timing.row() for timing in timings),
        "",
        "Baselines, one process each: for JSON the bare streaming decode of the same file into typed columns (`benchmarks/decode.py`);",
        "for SQLite its own sum over every column of the kernel and runtime tables (`benchmarks/scan.py`).",
        "",
    ]
    return "\n".join(lines)


def write(file: Path | None, text: str) -> None:
    """Show a result, and keep it in `file`."""
    sys.stdout.write(text)
    if file:
        kept = file.read_text(encoding="utf-8").partition(TESTS)[2] if file.is_file() else ""  # what the suites cost is written by hand
        file.write_text(text + (TESTS + kept if kept else ""), encoding="utf-8")


def main() -> int:
    """Command line; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--size", choices=sorted(PLANS), default="small")
    parser.add_argument(
        "--only",
        choices=("small", "torch", "nsys", "ranks"),
        action="append",
        help="measure only these parts; writes no results but those of ranks",
    )
    arguments = parser.parse_args()
    plan = PLANS[arguments.size]
    parts = arguments.only or ["small", "torch", "nsys", "ranks"]
    timings: list[Timing] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="diagnose-bench-") as name:
        folder = Path(name)
        try:
            if "small" in parts:
                goals += small_goals(folder)
                goals += replay_goals(folder)
            for part, run in (("torch", torch_goals), ("nsys", nsys_goals)):
                if part in parts:
                    more, reached = run(plan, folder)
                    timings += more
                    goals += reached
            if "ranks" in parts:
                rows, reached = ranks_goals(plan, folder)
                write(HERE / "ranks.md", ranks.document(arguments.size, os.cpu_count() or 1, rows, [goal.row() for goal in reached]))
                goals += reached
        except CommandError as error:
            say(f"A measured command failed: {error}")
            return 1
    if timings:
        write(HERE / "results.md" if not arguments.only else None, document(arguments.size, timings, goals))
    return int(any(not goal.met for goal in goals))


if __name__ == "__main__":
    raise SystemExit(main())
