"""Many ranks: simulated ones by the hundred, what each costs to measure, and what putting them together costs.

Each measurement is a process of its own (`benchmarks/reduce.py`), the reducing one: it measures in worker processes, as the program does,
and never holds a trace.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.child import CommandError

BASE = "ranks-straggler"  # four ranks, one of them slow; its times are made up, its volumes those of a real layer
MEMBERS = 4  # ranks of the base, and of each expert-parallel group
SHARED = ("16326092003022906526", "478429288775747248")  # communicators that stay common to all ranks: data parallel, and the whole job
COMMUNICATOR = re.compile(r'"NCCL communicator ID": (\d+)')
SHIFT_NS = 1_700  # how much later each copy's events are than those of the copy before


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One run over `ranks` traces. Seconds by the clock, but for `rank_s`: processor time of one rank, the median over all that did not
    also load the rules (None where all did).
    """

    ranks: int
    rank_s: float | None
    measuring_s: float
    reducing_s: float
    rendering_s: float
    peak_mib: float  # of the reducing process, before it renders
    summary_bytes: int  # one rank's summary as it travels, the mean
    document_mib: float

    @property
    def reducing_share(self) -> float:
        """The reduction's part of measuring and reducing."""
        return self.reducing_s / (self.measuring_s + self.reducing_s)

    def row(self) -> str:
        """The measurement as a row of the table."""
        cells = (
            f"{self.ranks}",
            "–" if self.rank_s is None else f"{self.rank_s * 1000:.0f}",
            f"{self.measuring_s:.2f}",
            f"{self.reducing_s:.2f}",
            f"{100 * self.reducing_share:.1f} %",
            f"{self.peak_mib:.0f}",
            f"{self.summary_bytes / 1000:.0f}",
            f"{self.rendering_s:.2f}",
            f"{self.document_mib:.1f}",
        )
        return f"| {' | '.join(cells)} |"


HEAD = (
    "| ranks | processor per rank, ms | measuring, s | reducing, s | its share | peak of the reducing process, MiB | per summary, kB | HTML and JSON, s | JSON, MiB |",
    "|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Simulated traces in `folder`, rank0000.sqlite and so on, with the job file they belong to."""

    folder: Path
    job: Path

    def first(self, count: int) -> list[Path]:
        """The first `count` ranks."""
        return [self.folder / f"rank{rank:04d}.sqlite" for rank in range(count)]


def make(folder: Path, count: int) -> Copies:
    """`count` ranks from the four of the base scenario: expert parallel in groups of four, data parallel over all, eight to a host."""
    command = [sys.executable, "-m", "fixtures", "make", BASE, "--out", str(folder / "base"), "--format", "nsys"]
    subprocess.run(command, check=True, capture_output=True)
    base = folder / "base" / BASE
    job = folder / "job.yaml"
    lines = (base / "job.yaml").read_text(encoding="utf-8").splitlines()
    job.write_text("\n".join(line for line in lines if "world_size" not in line) + "\n", encoding="utf-8")
    copies = Copies(folder=folder, job=job)
    for rank, path in enumerate(copies.first(count)):
        shutil.copyfile(base / f"rank{rank % MEMBERS}.sqlite", path)
        _become(path, rank, count)
    return copies


def _become(path: Path, rank: int, count: int) -> None:
    """Give the copy at `path` another rank, host and expert-parallel group, and shift its times."""
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = OFF", "synchronous = OFF"):
        database.execute(f"PRAGMA {pragma}")
    database.execute("BEGIN")
    for name, value in (("RANK", rank), ("LOCAL_RANK", rank % 8), ("WORLD_SIZE", count)):
        database.execute("UPDATE META_DATA_CAPTURE SET value = ? WHERE value LIKE ?", (f'{name}="{value}"', f'{name}="%'))
    database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'", (f"node{rank // 8}",))
    shift = rank // MEMBERS * SHIFT_NS
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        columns = {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
        if {"start", "end"} <= columns:
            database.execute(f'UPDATE "{table}" SET "start" = "start" + ?, "end" = "end" + ?', (shift, shift))
    texts = database.execute("SELECT DISTINCT jsonText FROM NVTX_EVENTS WHERE jsonText IS NOT NULL").fetchall()
    for own in {match[1] for (text,) in texts if (match := COMMUNICATOR.search(text))} - set(SHARED):
        other = str(10**15 + int(own) % 10**14 + rank // MEMBERS)
        database.execute("UPDATE NVTX_EVENTS SET jsonText = replace(jsonText, ?, ?) WHERE jsonText IS NOT NULL", (own, other))
    database.execute("COMMIT")
    database.close()


def run(copies: Copies, count: int) -> Measurement:
    """Measure and reduce the first `count` ranks in a process of its own. Raises CommandError."""
    command = [sys.executable, "-m", "benchmarks.reduce", str(copies.job), *map(str, copies.first(count))]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise CommandError(f"exit {done.returncode}: {done.stderr.decode(errors='replace')[-400:]}")
    return msgspec.json.decode(done.stdout, type=Measurement)


def document(size: str, cores: int, rows: Sequence[Measurement], goals: Sequence[str]) -> str:
    """ranks.md. `goals` are rows of its first table."""
    last = rows[-1]
    return "\n".join(
        [
            "# Many ranks: benchmark results",
            "",
            f"Written by `python -m benchmarks --only ranks --size {size}` on {cores} cores. Inputs: the simulated scenario {BASE}, its four ranks copied with other",
            "rank numbers, hosts, expert-parallel groups and slightly later times; data parallel over all. Believe the ratios: seconds depend on the machine.",
            "",
            "| goal | limit | measured | |",
            "|---|---|---|---|",
            *goals,
            "",
            *HEAD,
            *(row.row() for row in rows),
            "",
            "Measuring: loading and measuring all ranks in worker processes, start-up included. Reducing: telling ranks apart and concluding, in the one process that holds",
            "all summaries. Processor per rank: the median over ranks, without those that also loaded the rules.",
            "",
            f"At {last.ranks} ranks a summary is {last.summary_bytes / 1000:.0f} kB, all of them {last.ranks * last.summary_bytes / 1e6:.0f} MB.",
            "",
        ]
    )
