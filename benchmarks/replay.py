"""What graph and replay of a trace cost: ``python -m benchmarks.replay`` writes the section of results.md.

With TRACE [--plain] it prints, of one process, the processor time of reading, building the graph and replaying it; plain: without these.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.child import measure as run
from benchmarks.inputs import nsys_export
from diagnose.knowledge.load import load_knowledge
from diagnose.load.readers import load
from diagnose.measure import device
from diagnose.measure.capture import measure
from diagnose.measure.replay.path import replay

RESULTS = Path(__file__).parent / "results.md"
SIZES, RUNS = (100_000, 1_000_000), 2
HEADING = "## Graph and replay\n"
LIMITS = {100_000: 1.0, 1_000_000: 10.0}  # s, of the replay


def main(path: str, *, plain: bool) -> dict[str, float]:
    """Seconds of processor time by what they are spent on, and the number of operations that were replayed."""
    knowledge = load_knowledge()
    begun = time.process_time()
    trace = load(Path(path))
    read = time.process_time() - begun
    built = _timed_building()
    begun = time.process_time()
    measured = measure(trace, knowledge, replay=not plain)
    analysed = time.process_time() - begun - sum(built)
    del trace
    replayed, operations = 0.0, 0
    for one in measured.devices:
        begun = time.process_time()
        graph = one.graph
        built.append(time.process_time() - begun)
        if graph is not None:
            begun = time.process_time()
            replay(graph)
            replayed += time.process_time() - begun
            operations += int((graph.nodes["kind"] == "op").sum())
    return {"read": read, "analysed": analysed, "built": sum(built), "replayed": replayed, "operations": operations}


def _timed_building() -> list[float]:
    """A list that gets the processor time of each graph that is built, and packed, from now on."""
    module, spent = vars(device), list[float]()

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run_and_note(*arguments: Any, **named: Any) -> Any:
            begun = time.process_time()
            found = work(*arguments, **named)
            spent.append(time.process_time() - begun)
            return found

        return run_and_note

    for name in ("graph_of", "kept"):
        module[name] = timed(module[name])
    return spent


def least(trace: Path, runs: int = RUNS) -> dict[str, float]:
    """Of processes with and without graphs in turn the least of each figure, since a busy machine only adds.

    `peak` and `peak_plain` are in MiB.
    """
    told: list[dict[str, float]] = []
    for _ in range(runs):
        one: dict[str, float] = {}
        for name, more in (("peak", []), ("peak_plain", ["--plain"])):
            with tempfile.NamedTemporaryFile(suffix=".json") as out:
                command = [sys.executable, "-m", "benchmarks.replay", str(trace), "--out", out.name, *more]
                one[name] = run(command).peak_mib
                one = json.loads(Path(out.name).read_text(encoding="utf-8")) | one
        told.append(one)
    return {name: min(one[name] for one in told) for name in told[0]}


def row(found: Mapping[str, float], size: int) -> str:
    """One input as a row of the table."""
    replayed, built, read = found["replayed"], found["built"], found["read"]
    seconds = size * replayed / found["operations"]
    cells = (
        f"{found['operations']:,.0f}",
        f"{read:.2f}",
        f"{found['analysed']:.2f}",
        f"{built:.2f}",
        f"{replayed:.2f}",
        f"{seconds:.2f} (≤ {LIMITS[size]:g})",
        f"{replayed / read:.2f}",
        f"{(built + replayed) / read:.2f}",
        f"{found['peak_plain']:.0f}",
        f"{found['peak']:.0f}",
        f"{found['peak'] / found['peak_plain']:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def section(rows: Sequence[str]) -> str:
    """The section of results.md."""
    return "\n".join(
        (
            HEADING,
            "`python -m benchmarks.replay`: Nsight exports of two devices, the graph of each built and replayed once. Processor time in s, peaks in MiB; the least of",
            f"{RUNS} processes each, with and without graphs in turn, on a machine with other busy processes: believe the ratios. Building: packing for keeping included.\nWanted: at most 1 of reading, and no more memory than without.",
            "",
            "| operations | reading | analysis | building | replay | replay of 100,000 or 1,000,000 (limit) | replay ÷ reading | building and replay ÷ reading | peak without | peak with | ratio |",
            f"|{'---|' * 11}",
            *rows,
            "",
        )
    )


def write(text: str) -> None:
    """Put the section into results.md, in the place of the one before."""
    kept = RESULTS.read_text(encoding="utf-8")
    others = re.sub(rf"\n{HEADING}.*?(?=\n## |\Z)", "", kept, flags=re.DOTALL)
    RESULTS.write_text(f"{others.rstrip()}\n\n{text}", encoding="utf-8")
    sys.stdout.write(text)


def _results() -> None:
    rows = []
    with tempfile.TemporaryDirectory(prefix="diagnose-bench-") as folder:
        for size in SIZES:
            trace = nsys_export(Path(folder), size)
            rows.append(row(least(trace), size))
            trace.unlink()
    write(section(rows))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        _results()
    else:
        said = json.dumps(main(sys.argv[1], plain="--plain" in sys.argv)) + "\n"
        if "--out" in sys.argv:
            Path(sys.argv[sys.argv.index("--out") + 1]).write_text(said, encoding="utf-8")
        else:
            sys.stdout.write(said)
