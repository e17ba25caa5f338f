"""A profiler format is one reader and its line in the table of readers: one is added to a copy of the program, which then reads it."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from diagnose.load.readers import READERS
from tests.changes.conftest import ProgramCopy

TABLE = "diagnose/load/readers.py"
READER = '''"""Traces of Probe: a line `probe trace`, then one kernel a line as JSON."""

import json
from pathlib import Path

import polars as pl

from diagnose.load.conform import RawTable, RawTrace, conform
from diagnose.load.files import Reader
from diagnose.model.ledger import Ledger
from diagnose.model.trace import Device, Provenance, Rank, Trace, empty

MAGIC = b"probe trace\\n"


def _load(path: Path, rank: int | None, _nsys: Path | None, _rules: object) -> Trace:
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    names = sorted({row["name"] for row in rows})
    ops = pl.DataFrame(
        {
            "rank": [rank or 0] * len(rows),
            "device": [0] * len(rows),
            "stream": [7] * len(rows),
            "kind": ["kernel"] * len(rows),
            "name_id": [names.index(row["name"]) for row in rows],
            "start": [row["start"] for row in rows],
            "end": [row["end"] for row in rows],
        }
    )
    return conform(
        RawTrace(
            tables=[RawTable(schema="ops", table="kernels", frame=ops, read=len(rows))],
            names=pl.DataFrame({"id": range(len(names)), "text": names, "short": names}),
            payloads=empty("payloads"),
            threads=empty("threads"),
            devices=(Device(rank=rank or 0, device=0),),
            ranks=(Rank(rank=rank or 0),),
            provenance=Provenance(file=path.name, size=path.stat().st_size, format="probe", profiler="Probe profiler"),
            ledger=Ledger(),
        )
    )


def _start(path: Path) -> int | None:
    return int(json.loads(path.read_text().splitlines()[1])["start"])


READER = Reader(name="probe", recognises=lambda given: given.head.startswith(MAGIC), load=_load, start=_start)
'''
START = 1_700_000_000_000_000_000
KERNELS = [
    {"name": name, "start": START + at, "end": START + at + 90_000}
    for at, name in ((100_000 * number, f"ampere_bf16_gemm_{number % 3}") for number in range(30))
]


@pytest.fixture
def probed(program: ProgramCopy) -> ProgramCopy:
    """The copy with one format more."""
    program.write("diagnose/load/probe.py", READER)
    program.replace(
        TABLE,
        "import nsys_parquet, nsys_report, nsys_sqlite, torch_json",
        "import nsys_parquet, nsys_report, nsys_sqlite, probe, torch_json",
    )
    program.replace(TABLE, "READERS = (", "READERS = (probe.READER, ")
    return program


@pytest.mark.deep
def test_a_new_profiler_format_is_read_and_put_in_order(probed: ProgramCopy) -> None:
    text = "probe trace\n" + "".join(f"{json.dumps(row)}\n" for row in KERNELS)
    trace = probed.write("night/rank0.probe", text)
    told, text, folder = probed.runs((trace, "--rank", "3", "--format", "json"), (trace, "-vv"), (trace.parent, "--format", "json"))
    document = json.loads(told)
    assert (document["capture"]["format"], document["capture"]["profiler"]) == ("probe", "Probe profiler")
    assert "Probe profiler" in text
    assert json.loads(folder)["capture"]["format"] == "probe", "a folder is looked through for it"
    start = probed.python(
        "-c", f"from pathlib import Path\nfrom diagnose.load.readers import start_of\nprint(start_of(Path({str(trace)!r})))"
    )
    assert int(start) == START
    assert "no format" not in probed.run(probed.write("other.txt", "probe\n"), status=3)
    assert probed.changed() == {"diagnose/load/probe.py", TABLE}


@pytest.mark.deep
def test_a_column_that_nsight_renames_changes_the_reader_of_its_tables_alone(
    program: ProgramCopy, demo_trace: Path, before: dict[str, Any]
) -> None:
    trace = Path(shutil.copy(demo_trace, program.folder / "newer.sqlite"))
    with closing(sqlite3.connect(trace)) as export:
        for table in ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "RUNTIME", "CUDA_EVENT"):
            export.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_{table} RENAME COLUMN correlationId TO correlation_id")
        export.commit()
    reader = "diagnose/load/nsys_tables.py"
    assert program.json(trace)["facts"] != before["facts"]
    program.write(reader, program.read(reader).replace('"correlationId"', '"correlation_id"'))
    after = program.json(trace)
    assert {key: after[key] for key in ("facts", "buckets", "findings", "walls", "verdict", "ledger")} == {
        key: before[key] for key in ("facts", "buckets", "findings", "walls", "verdict", "ledger")
    }
    program.remove("newer.sqlite")
    assert program.changed() == {reader}


def test_readers_have_names_of_their_own() -> None:
    assert len({reader.name for reader in READERS}) == len(READERS)
