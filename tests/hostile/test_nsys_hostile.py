"""Damaged and adversarial exports: each ends in a trace or in an InputError, never in another exception."""

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest

from diagnose.errors import InputError
from diagnose.load import nsys_parquet, nsys_sqlite
from diagnose.load.conform import conform
from tests.builders import nsys_db as db
from tests.builders.nsys_db import PID_A, basic, gpid, gtid, insert, kernel
from tests.builders.suites import deep_unless


def outcome(path: Path) -> str:
    """What a reader makes of `path`; every exception but InputError escapes and fails the test."""
    reader = nsys_parquet if path.is_dir() else nsys_sqlite
    error: InputError | None = None
    try:
        trace = conform(reader.read(path))
    except InputError as refusal:
        error = refusal
    if error is not None:
        assert error.exit_code == 3
        assert error.what
        assert error.next_step
        return "refused"
    trace.ledger.check()
    assert trace.ops.height > 0
    assert trace.ops["name_id"].is_between(0, trace.names.height - 1).all()
    return "read"


@cache
def _rich() -> bytes:
    with TemporaryDirectory() as folder:
        path = basic(Path(folder) / "a.sqlite", kernels=[kernel(1000 + 10 * i, 1005 + 10 * i, correlation=i) for i in range(300)])
        with closing(sqlite3.connect(path)) as connection:
            for statement in (db.MEMCPY, db.SYNC, db.EVENT, db.NVTX, db.CAPTURE, db.DIAGNOSTIC):
                connection.execute(statement)
            insert(connection, "CUPTI_ACTIVITY_KIND_MEMCPY", [(i, i + 1, 0, 1, 7, i, gpid(PID_A), 8, 1, 0, 2) for i in range(100)])
            insert(
                connection,
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                [(i, i + 1, 0, 1, 7, i, gpid(PID_A), 3, 2**32 - 1, 0) for i in range(100)],
            )
            insert(connection, "CUPTI_ACTIVITY_KIND_CUDA_EVENT", [(0, 1, 7, i, gpid(PID_A), i, i, 0) for i in range(100)])
            insert(
                connection,
                "NVTX_EVENTS",
                [
                    (i, i + 5, 59, None, f"aten::op{i % 9}, seq = {i}, op_id = {i}", gtid(PID_A, 1), None, None, 0, None, None, None)
                    for i in range(200)
                ],
            )
            insert(connection, "META_DATA_CAPTURE", [("PROCESS_0:COMMAND", "python")])
            insert(connection, "DIAGNOSTIC_EVENT", [(0, 0, 0, 2, "something", gpid(PID_A))])
            connection.commit()
        return path.read_bytes()


def rich(path: Path) -> Path:
    """An export with every table of events and some hundred rows."""
    path.write_bytes(_rich())
    return path


def test_the_undamaged_export_is_read(tmp_path: Path) -> None:
    assert outcome(rich(tmp_path / "a.sqlite")) == "read"


def test_truncated_at_many_offsets(tmp_path: Path) -> None:
    whole = rich(tmp_path / "whole.sqlite").read_bytes()
    cuts = sorted({*range(0, 400, 37), *range(4095, len(whole), len(whole) // 40), len(whole) - 1})
    found = Counter()
    for cut in cuts:
        (tmp_path / "cut.sqlite").write_bytes(whole[:cut])
        found[outcome(tmp_path / "cut.sqlite")] += 1
    assert found == {"refused": len(cuts)}


@pytest.mark.parametrize("seed", deep_unless(range(2), range(10)))
def test_flipped_bits(tmp_path: Path, seed: int) -> None:
    whole = rich(tmp_path / "whole.sqlite").read_bytes()
    rng = random.Random(seed)
    found = Counter()
    for _ in range(20):
        mutant = bytearray(whole)
        for _ in range(rng.choice((1, 3, 20))):
            at = rng.randrange(100) if rng.random() < 0.2 else rng.randrange(len(mutant))
            mutant[at] ^= 1 << rng.randrange(8)
        (tmp_path / "mutant.sqlite").write_bytes(mutant)
        found[outcome(tmp_path / "mutant.sqlite")] += 1
    assert found.total() == 20


@pytest.mark.parametrize("seed", deep_unless(range(1), range(4)))
def test_overwritten_pages(tmp_path: Path, seed: int) -> None:
    whole = rich(tmp_path / "whole.sqlite").read_bytes()
    pages = len(whole) // 4096
    rng = random.Random(seed)
    for _ in range(15):
        mutant = bytearray(whole)
        at = 4096 * rng.randrange(pages)
        mutant[at : at + 4096] = rng.choice((bytes(4096), rng.randbytes(4096), whole[:4096], b"\xff" * 4096))
        (tmp_path / "mutant.sqlite").write_bytes(mutant)
        assert outcome(tmp_path / "mutant.sqlite") in {"refused", "read"}


def test_flipped_bits_of_a_parquet_folder(tmp_path: Path) -> None:
    folder = parquet(tmp_path)
    assert outcome(folder) == "read"
    rng = random.Random(1)
    for _ in range(60):
        file = rng.choice(sorted(folder.iterdir()))
        whole = file.read_bytes()
        mutant = bytearray(whole)
        if rng.random() < 0.3:
            del mutant[rng.randrange(len(mutant)) :]
        else:
            for _ in range(rng.choice((1, 8))):
                mutant[rng.randrange(len(mutant))] ^= 1 << rng.randrange(8)
        file.write_bytes(mutant)
        assert outcome(folder) in {"refused", "read"}
        file.write_bytes(whole)


def parquet(tmp_path: Path) -> Path:
    folder = tmp_path / "run_pqtdir"
    folder.mkdir()
    with closing(sqlite3.connect(rich(tmp_path / "whole.sqlite"))) as connection:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds", "META_DATA_EXPORT"):
            cursor = connection.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None).write_parquet(folder / f"{table}.parquet")
    return folder


def test_parquet_columns_of_other_types(tmp_path: Path) -> None:
    folder = parquet(tmp_path)
    file = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    kernels = pl.read_parquet(file)
    kernels.with_columns(
        pl.col("globalPid").cast(pl.UInt64), pl.col("start").cast(pl.Float64), pl.lit(2**64 - 1, dtype=pl.UInt64).alias("gridX")
    ).write_parquet(file)
    assert outcome(folder) == "refused"  # every gridX is too large: all rows have a value of the wrong type
    kernels.with_columns(pl.col("globalPid").cast(pl.UInt64), pl.col("start").cast(pl.Float64)).write_parquet(file)
    assert outcome(folder) == "read"
    kernels.with_columns(pl.col("start").cast(pl.String)).write_parquet(file)
    assert outcome(folder) == "refused"
    kernels.with_columns(pl.lit([1, 2]).alias("streamId")).write_parquet(file)
    assert outcome(folder) == "refused"
    file.write_bytes(b"PAR1")
    assert outcome(folder) == "refused"


def changed(tmp_path: Path, *statements: str) -> Path:
    path = rich(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        for statement in ("PRAGMA synchronous = OFF", *statements):
            connection.execute(statement)
        connection.commit()
    return path


def test_extreme_values(tmp_path: Path) -> None:
    big, small = 2**63 - 1, -(2**63)
    for value in (big, small, -1, 0):
        for column in (
            "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "gridX", "staticSharedMemory",
            "graphNodeId",
        ):  # fmt: skip
            path = changed(tmp_path, f'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "{column}" = {value} WHERE _rowid_ % 3 = 0')
            assert outcome(path) in {"refused", "read"}
            path.unlink()


def test_extreme_values_of_ranges_and_metadata(tmp_path: Path) -> None:
    statements = [
        f"UPDATE NVTX_EVENTS SET domainId = {2**63 - 1}, globalTid = {-(2**63)}, textId = {2**63 - 1}, text = NULL WHERE _rowid_ % 5 = 0",
        "UPDATE NVTX_EVENTS SET text = 'x' || char(0) || 'y' WHERE _rowid_ % 7 = 0",
        "UPDATE NVTX_EVENTS SET text = x'fffe', binaryData = zeroblob(40) WHERE _rowid_ % 11 = 0",
        "UPDATE NVTX_EVENTS SET eventType = 'x' WHERE _rowid_ = 3",
        "UPDATE META_DATA_EXPORT SET value = 12.5",
        "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = 'yesterday'",
        "UPDATE DIAGNOSTIC_EVENT SET text = x'00ff', severity = 'bad'",
        "UPDATE META_DATA_CAPTURE SET value = x'ff'",
        "UPDATE StringIds SET value = zeroblob(100) WHERE id = 2",
    ]
    for statement in statements:
        path = changed(tmp_path, statement)
        assert outcome(path) == "read", statement
        path.unlink()


def test_empty_tables_and_no_columns_that_are_needed(tmp_path: Path) -> None:
    for statements in (
        ["DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL", "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY"],
        [
            "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL",
            "DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY",
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (remark TEXT)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('x')",
        ],
    ):
        path = changed(tmp_path, *statements)
        assert outcome(path) == "refused"
        path.unlink()


def test_a_deeply_nested_or_odd_json_payload(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        "UPDATE NVTX_EVENTS SET text = 'ncclSend', domainId = 1, jsonText = '" + '{"a":' * 5000 + "1" + "}" * 5000 + "' WHERE _rowid_ = 1",
        'UPDATE NVTX_EVENTS SET text = \'ncclSend\', domainId = 1, jsonText = \'{"Message size [bytes]": 1e400, "NCCL communicator ID": [1], "Peer rank": "0xzz"}\' WHERE _rowid_ = 2',
    )
    assert outcome(path) == "read"


def test_a_folder_in_place_of_a_file_and_a_dangling_sidecar(tmp_path: Path) -> None:
    path = rich(tmp_path / "a.sqlite")
    (tmp_path / "a.sqlite-wal").write_bytes(b"\x37\x7f\x06\x82" + random.Random(3).randbytes(4000))
    assert outcome(path) in {"read", "refused"}
    (tmp_path / "a.sqlite-wal").unlink()
    shutil.copyfile(path, tmp_path / "a.sqlite-journal")
    assert outcome(path) in {"read", "refused"}
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.sqlite", "a.sqlite-journal"]
