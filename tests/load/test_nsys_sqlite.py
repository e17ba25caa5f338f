"""SQLite exports: how each table becomes part of a Trace, and what is counted or refused on the way."""

import os
import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from diagnose.errors import InputError
from diagnose.load import nsys_nvtx, nsys_sqlite
from diagnose.load.conform import conform
from diagnose.model.trace import Trace
from diagnose.pipeline import diagnose
from diagnose.render import write
from tests.builders import nsys_db as db
from tests.builders.cases import for_each
from tests.builders.nsys_db import PID_A, PID_B, basic, gpid, gtid, insert, kernel, runtime


def load(path: Path, **options: object) -> Trace:
    return conform(nsys_sqlite.read(path, **options))  # type: ignore[arg-type]


def add(path: Path, *statements: str, **rows: list[tuple]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        for table, listed in rows.items():
            insert(connection, table, listed)
        connection.commit()
    return path


def codes(trace: Trace) -> dict[tuple[str, str], int]:
    return {(entry.code, entry.table): entry.count for entry in trace.ledger.entries}


def texts(trace: Trace, frame: pl.DataFrame, column: str) -> list[str]:
    return trace.names["text"].gather(frame[column]).to_list()


def test_kernels_calls_and_names(tmp_path: Path) -> None:
    trace = load(basic(tmp_path / "a.sqlite"))
    assert trace.ops["start"].to_list() == [100, 1100, 2100]  # the first launch, at 900, is time 0
    assert trace.ops["end"].to_list() == [200, 1200, 2200]
    assert texts(trace, trace.ops, "name_id") == ["void gemm<(int)128>(T1 *)"] * 3
    assert trace.names.filter(pl.col("text").str.starts_with("void"))["short"].to_list() == ["gemm"]
    assert texts(trace, trace.calls, "name_id") == ["cudaLaunchKernel"] * 3
    first = trace.ops.row(0, named=True)
    assert (first["rank"], first["device"], first["stream"], first["correlation"], first["kind"]) == (0, 0, 7, 1, "kernel")
    assert (first["grid_x"], first["block_x"], first["registers"], first["shared_memory"]) == (4, 128, 32, 3072)
    assert first["graph_node"] is None
    assert trace.calls["thread"].unique().to_list() == [gtid(PID_A, PID_A)]
    assert (trace.provenance.profiler_version, trace.provenance.schema_version) == ("2026.2.1.210", "3.25.0")
    assert (trace.provenance.origin_ns, trace.ranks[0].start_unix_ns) == (900, 1_700_000_000_000_000_900)
    assert trace.ranks[0].pid == PID_A


def test_normalised_times_give_the_same_wall_clock(tmp_path: Path) -> None:
    origin = 1_700_000_000_000_000_000
    path = basic(tmp_path / "a.sqlite")
    add(
        path,
        f'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + {origin}, "end" = "end" + {origin}',
        f'UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = start + {origin}, "end" = "end" + {origin}',
        META_DATA_EXPORT=[("EXPORT_PARAM_TIME_NORMALIZE", "true"), ("EXPORT_CONFIG_TIME_SHIFT", str(origin))],
    )
    trace = load(path)
    assert trace.ops["start"].to_list() == [100, 1100, 2100]
    assert trace.ranks[0].start_unix_ns == origin + 900


FAR, LEAST, LAST = 10**14, -(1 << 63), (1 << 63) - 1


@for_each(
    "odd, starts, code",
    ([(0, 0), (0, 40)], [0, 1000, 2000], "missing_time"),  # a time that was not taken; a kernel may begin with the session
    ([(3000, 2000)], [0, 1000], "negative_duration"),
    ([(FAR, FAR + 5)], [0, 1000], "stray_row"),  # more than a day away from the others
    ([(LEAST, 5)], [0, 1000], "stray_row"),
    ([(LEAST, LAST)], [0, 1000], "stray_row"),
    ([(LAST, LAST)], [0, 1000], "stray_row"),
)
def test_rows_whose_times_can_not_be_are_left_out_and_counted(
    tmp_path: Path, odd: list[tuple[int, int]], starts: list[int], code: str
) -> None:
    rows = [(1000, 1100), (2000, 2100), *odd]
    trace = load(basic(tmp_path / "a.sqlite", kernels=[kernel(*row, correlation=place) for place, row in enumerate(rows, 1)]))
    found = trace.ops["start"] - trace.ops["start"].min()
    assert (found.to_list(), codes(trace)[code, "CUPTI_ACTIVITY_KIND_KERNEL"]) == (starts, 1)


def test_times_at_the_end_of_all_numbers_are_read(tmp_path: Path) -> None:
    trace = load(basic(tmp_path / "a.sqlite", kernels=[kernel(1000, 1100), kernel(LAST, LAST, correlation=2)]))
    assert (trace.ops.height, codes(trace)["implausible_span", "all"]) == (2, 1)


def test_work_that_does_not_tell_its_process_is_that_of_the_only_one(tmp_path: Path) -> None:
    path = basic(tmp_path / "a.sqlite")
    add(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL WHERE start = 1000")
    trace = load(path)
    assert (trace.ops["rank"].to_list(), [rank.pid for rank in trace.ranks]) == ([0, 0, 0], [PID_A])


@for_each(
    "statements, words",
    ("CREATE TABLE x (y); DROP TABLE x", "without any table"),
    ("CREATE TABLE rocpd_kernel_dispatch_0 (id)", "rocprofv3"),
    ("CREATE TABLE bookmarks (url TEXT)", "not an export of Nsight Systems"),
    ("CREATE TABLE StringTable (_id_ INTEGER, value TEXT); CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)", "nvprof"),
    (f"{db.STRINGS}; CREATE TABLE ProcessStreams (globalPid INTEGER)", "export that failed"),
    (f"{db.STRINGS}; {db.RUNTIME}; CREATE TABLE TARGET_INFO_GPU (id INTEGER)", "no GPU work"),
)
def test_other_databases_are_named(tmp_path: Path, statements: str, words: str) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection:
        connection.executescript(statements)
    with pytest.raises(InputError, match=words):
        load(tmp_path / "a.sqlite")


def test_correlation_is_per_process_and_same_device_numbers_stay_apart(tmp_path: Path) -> None:
    path = basic(tmp_path / "a.sqlite", kernels=[kernel(1000, 1100), kernel(1050, 1250, pid=PID_B)])
    add(path, CUPTI_ACTIVITY_KIND_RUNTIME=[runtime(950, 960, pid=PID_B, correlation=1)])
    trace = load(path)
    assert trace.ops.select("rank", "device", "start", "correlation").rows() == [(0, 0, 100, 1), (1, 0, 150, 1)]
    assert trace.calls.filter(rank=1)["start"].to_list() == [50]
    assert [(rank.rank, rank.pid, rank.source) for rank in trace.ranks] == [(0, PID_A, "assigned"), (1, PID_B, "assigned")]
    assert codes(trace)["assigned_rank", "all"] == 2
    named = load(path, rank=4)
    assert [(rank.rank, rank.source) for rank in named.ranks] == [(4, "option"), (5, "option")]
    assert ("assigned_rank", "all") not in codes(named)
    assert any("--rank 4" in note for note in named.provenance.notes)


def test_calls_of_processes_without_device_work_are_not_needed(tmp_path: Path) -> None:
    path = add(basic(tmp_path / "a.sqlite"), CUPTI_ACTIVITY_KIND_RUNTIME=[runtime(10, 20, pid=PID_B)])
    trace = load(path)
    assert trace.calls.height == 3
    assert trace.provenance.origin_ns == 900  # the other process's call does not begin the capture
    assert trace.ranks[0].start_unix_ns == 1_700_000_000_000_000_900
    assert codes(trace)["not_needed", "CUPTI_ACTIVITY_KIND_RUNTIME"] == 1


def test_copies(tmp_path: Path) -> None:
    rows = [  # copyKind, srcKind, dstKind
        (1, 0, 2),
        (1, 1, 2),
        (2, 2, 0),
        (2, 2, 1),
        (8, 2, 2),
        (9, 1, 1),
        (9, 1, 0),
        (10, 2, 2),
        (1, 7, 2),
        (99, 1, 1),
    ]
    copies = [(2000 + 10 * i, 2005 + 10 * i, 0, 1, 7, 50 + i, gpid(PID_A), 4096 + i, *kinds) for i, kinds in enumerate(rows)]
    trace = load(add(basic(tmp_path / "a.sqlite"), db.MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY=copies))
    got = trace.ops.filter(kind="memcpy")
    assert got["copy_kind"].to_list() == ["h2d", "h2d", "d2h", "d2h", "d2d", "h2h", "h2h", "p2p", "h2d", "other"]
    assert got["pinned"].to_list() == [False, True, False, True, None, True, False, None, None, None]
    assert got["bytes"].to_list() == [4096 + i for i in range(10)]
    ways = [*["Host-to-Device"] * 2, *["Device-to-Host"] * 2, "Device-to-Device", *["Host-to-Host"] * 2, "Peer-to-Peer", "Host-to-Device"]
    assert texts(trace, got, "name_id") == [*(f"[CUDA memcpy {way}]" for way in ways), "[CUDA memcpy]"]


def test_pages_of_unified_memory_move_without_a_call(tmp_path: Path) -> None:
    moved = [(2000, 2005, 0, 1, 0, 0, gpid(PID_A), 65536, 11, 7, 7), (2010, 2015, 0, 1, 7, 50, gpid(PID_A), 4096, 1, 0, 2)]
    got = load(add(basic(tmp_path / "a.sqlite"), db.MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY=moved)).ops.filter(kind="memcpy")
    assert got["correlation"].to_list() == [None, 50]


def test_memset_and_whole_graphs(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite"),
        'CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER)',
        'CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER)',
        CUPTI_ACTIVITY_KIND_MEMSET=[(1500, 1510, 0, 7, 9, gpid(PID_A), 0, 64)],
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[(4000, 9000, 0, 7, 10, gpid(PID_A), 3)],
    )
    trace = load(path)
    assert trace.ops["kind"].to_list() == ["kernel", "memset", "kernel", "kernel", "graph"]
    assert texts(trace, trace.ops.filter(kind="graph"), "name_id") == ["CUDA graph"]
    assert texts(trace, trace.ops.filter(kind="memset"), "name_id") == ["[CUDA memset]"]
    assert trace.provenance.graph_trace == "opaque"
    assert codes(trace)["opaque_graph", "ops"] == 1


def test_graph_nodes(tmp_path: Path) -> None:
    trace = load(basic(tmp_path / "a.sqlite", kernels=[kernel(1000, 1100, node=0), kernel(2000, 2100, node=(5 << 32) | 3)]))
    assert trace.ops["graph_node"].to_list() == [None, (5 << 32) | 3]
    assert trace.provenance.graph_trace == "nodes"


def test_the_kind_of_a_synchronisation_follows_from_its_ids_not_from_sync_type(tmp_path: Path) -> None:
    none = 0xFFFFFFFF
    ids = [(7, none, 0), (7, 3, 41), (none, 3, 41), (none, none, 0)]
    rows = [
        (1000 + i, 1001 + i, 0, 2, stream, 60 + i, gpid(PID_A), number, event, sync)
        for i, (stream, event, sync) in enumerate(ids)
        for number in (0, 2, 3)
    ]
    trace = load(
        add(
            basic(tmp_path / "a.sqlite", kernels=[kernel(1000, 1100, device=1)]),
            db.SYNC,
            db.EVENT,
            CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=rows,
            CUPTI_ACTIVITY_KIND_CUDA_EVENT=[(1, 2, 9, 71, gpid(PID_A), 3, 41, 0)],
        )
    )
    host = trace.waits.filter(pl.col("kind") != "record")
    assert host["kind"].to_list() == ["stream_sync"] * 3 + ["stream_wait"] * 3 + ["event_sync"] * 3 + ["device_sync"] * 3
    assert host["stream"].to_list() == [7] * 6 + [None] * 6
    assert host["event"].to_list() == [None] * 3 + [3] * 6 + [None] * 3
    assert host["sync_id"].to_list() == [None] * 3 + [41] * 6 + [None] * 3
    assert host["device"].unique().to_list() == [1]  # the table says 0; the process works on 1
    record = trace.waits.filter(kind="record").row(0, named=True)
    assert (record["device"], record["stream"], record["event"], record["sync_id"], record["correlation"], record["start"]) == (
        1, 9, 3, 41, 71, None,
    )  # fmt: skip


def nvtx(
    start: int,
    end: int | None,
    text: str | None,
    *,
    kind: int = 59,
    domain: int = 0,
    text_id: int | None = None,
    pid: int = PID_A,
    json: str | None = None,
    binary: object = None,
) -> tuple:
    return (start, end, kind, None, text, gtid(pid, 11), None, text_id, domain, None, json, binary)


def test_ranges_marks_and_suffixes(tmp_path: Path) -> None:
    rows = [
        nvtx(900, None, "NCCL", kind=75, domain=3),
        nvtx(1000, 1900, "forward"),
        nvtx(1010, 1020, "aten::mm, seq = 17, op_id = 4, sizes = [[2, 2], [2, 2]]"),
        nvtx(1011, 1019, "my step, op_id = 5"),
        nvtx(1012, 1018, "AllToAll4D, seq = 18, op_id = 6"),
        nvtx(1100, 1200, None, text_id=2),
        nvtx(1300, None, "mark", kind=34),
        nvtx(1400, 1500, "range", kind=60),
        nvtx(1600, None, "open"),
        nvtx(1700, 1710, None),
        nvtx(1720, 1730, "op, with, sizes = in it"),
    ]
    trace = load(add(basic(tmp_path / "a.sqlite"), db.NVTX, NVTX_EVENTS=rows))
    got = trace.ranges
    assert texts(trace, got, "text_id") == [
        "forward", "aten::mm", "my step", "AllToAll4D", "gemm", "mark", "range", "open", "<no text>", "op, with",
    ]  # fmt: skip
    assert got["kind"].to_list() == [
        "push_pop", "operator", "push_pop", "operator", "push_pop", "mark", "start_end", "push_pop", "push_pop", "push_pop",
    ]  # fmt: skip
    assert got["sequence"].to_list() == [None, 17, None, 18, *[None] * 6]
    assert got["flop"].to_list() == [None, 2 * 2 * 2 * 2, *[None] * 8]
    end_of_capture = 3100 - 900
    assert got["end"].to_list()[5:8] == [400, 600, end_of_capture]
    assert got["thread"].unique().to_list() == [gtid(PID_A, 11)]
    assert (codes(trace)["not_needed", "NVTX_EVENTS"], codes(trace)["open_range", "ranges"]) == (1, 1)


ENTRIES = "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER, flags INTEGER, type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER)"
SEND, INIT = 16777226, 16777218
LAYOUT = [
    (1, SEND, 0, None, 18, "NCCL communicator ID", None, None, None),
    (1, SEND, 1, None, 22, "Message size [bytes]", None, None, 8),
    (1, SEND, 2, None, 5, "Peer rank", None, None, 16),
    (1, INIT, 0, None, 18, "NCCL communicator ID", None, None, None),
    (1, INIT, 1, None, 5, "No. of ranks", None, None, 8),
    (1, INIT, 2, None, 5, "Rank", None, None, 12),
    (1, INIT, 3, None, 5, "CUDA device", None, None, 16),
]


def blob(schema: int, body: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body


def test_nccl_payloads_in_binary_form_tell_size_peer_and_rank(tmp_path: Path) -> None:
    key = 2**63 + 5
    rows = [
        nvtx(900, 910, "ncclCommInitRank", domain=1, binary=blob(INIT, struct.pack("<QiiiI", key, 2, 1, 0, 0))),
        nvtx(901, 911, "ncclCommInitRank", domain=1, pid=PID_B, binary=blob(INIT, struct.pack("<QiiiI", key, 2, 0, 0, 0))),
        nvtx(1000, 1010, "ncclSend", domain=1, binary=blob(SEND, struct.pack("<QQiI", key, 1 << 20, 1, 0))),
        nvtx(1020, 1030, "ncclSend", domain=1, binary=blob(SEND, struct.pack("<QQiI", key, 1 << 20, 1, 0))),
        nvtx(1040, 1050, "ncclSend", domain=1, binary=blob(SEND, struct.pack("<QQiI", key, 1 << 21, 1, 0))),
        nvtx(1060, 1070, "ncclSend", domain=1, binary=b"short"),
        nvtx(1080, 1090, "ncclGroupStart", domain=1),
        nvtx(1080, 1090, "ncclSend"),
        nvtx(1085, 1088, "record_param_comms, op_id = 3"),
    ]
    path = basic(tmp_path / "a.sqlite", kernels=[kernel(1000, 1100), kernel(1000, 1100, pid=PID_B)])
    trace = load(add(path, db.NVTX, ENTRIES, NVTX_EVENTS=rows, NVTX_PAYLOAD_SCHEMA_ENTRIES=LAYOUT))
    assert trace.ranges["kind"].to_list() == ["comms"] * 7 + ["push_pop", "comms"]
    sends = trace.ranges.filter(pl.col("payload_id").is_not_null())
    assert sends["payload_id"].to_list() == [0, 0, 1, 2]
    assert trace.payloads.select("collective", "bytes", "peer", "group_size", "communicator").rows() == [
        ("ncclSend", 1 << 20, 1, 2, key - 2**64),
        ("ncclSend", 1 << 21, 1, 2, key - 2**64),
        ("ncclSend", None, None, None, None),
    ]
    assert [(rank.rank, rank.pid, rank.world_size, rank.source) for rank in trace.ranks] == [(1, PID_A, 2, "nvtx"), (0, PID_B, 2, "nvtx")]
    assert trace.ops["rank"].to_list() == [1, 0]


def test_numbers_of_payloads_have_the_types_that_nvtx_gives_them() -> None:
    """nvtxPayloadEntryType of nvToolsExtPayload.h: those whose size is the same everywhere (no long). Each as number, bytes, sign."""
    signed = {"INT": (5, 4), "INT8": (11, 1), "INT16": (13, 2), "INT32": (15, 4), "INT64": (17, 8), "FLOAT": (19, 4), "DOUBLE": (20, 8)}
    unsigned = {
        "UINT": (6, 4), "UINT8": (12, 1), "UINT16": (14, 2), "UINT32": (16, 4), "UINT64": (18, 8), "SIZE": (22, 8), "ADDRESS": (23, 8),
    }  # fmt: skip
    found = {(number, struct.calcsize(code), code.isupper()) for number, code in nsys_nvtx.ENTRY.items()}
    assert found == {(*one, False) for one in signed.values()} | {(*one, True) for one in unsigned.values()}


def test_nccl_payloads_in_json_form(tmp_path: Path) -> None:
    rows = [
        nvtx(
            1000,
            1010,
            "ncclAllReduce",
            domain=1,
            json='{"NCCL communicator ID": "0x10", "Message size [bytes]": 4096, "Reduction operation": "Sum"}',
        ),
        nvtx(1020, 1030, "ncclAllReduce", domain=1, json="{not json"),
    ]
    trace = load(add(basic(tmp_path / "a.sqlite"), db.NVTX, NVTX_EVENTS=rows))
    assert trace.payloads.select("collective", "bytes", "communicator").rows() == [
        ("ncclAllReduce", 4096, 16),
        ("ncclAllReduce", None, None),
    ]


CAPTURED = [
    ("PROCESS_0:COMMAND", "/home/alice/venv/bin/python"),
    ("PROCESS_0:ENVIRONMENT_VARIABLE", "RANK=5"),
    ("PROCESS_0:ENVIRONMENT_VARIABLE", "WORLD_SIZE=64"),
    ("PROCESS_0:ENVIRONMENT_VARIABLE", "SECRET_TOKEN=hunter2"),
    ("PROCESS_0:USER_NAME", "alice"),
]


def test_rank_from_the_environment_of_the_one_process(tmp_path: Path) -> None:
    trace = load(add(basic(tmp_path / "a.sqlite"), db.CAPTURE, META_DATA_CAPTURE=CAPTURED))
    assert [(rank.rank, rank.world_size, rank.source) for rank in trace.ranks] == [(5, 64, "environment")]
    assert trace.ops["rank"].unique().to_list() == [5]
    named = load(tmp_path / "a.sqlite", rank=9)
    assert [(rank.rank, rank.world_size, rank.source) for rank in named.ranks] == [(9, 64, "option")]
    assert "hunter2" not in repr(trace)
    assert "alice" not in repr(trace)


@for_each(
    "captured",
    [("PROCESS_0:COMMAND", "torchrun"), *CAPTURED[1:]],
    [("PROCESS_0:COMMAND", "bash"), *CAPTURED[1:]],  # a shell
    [*CAPTURED, ("PROCESS_0:ARGUMENT_1", "torch.distributed.run")],  # a module
    [*CAPTURED, ("PROCESS_1:ENVIRONMENT_VARIABLE", "RANK=6")],  # two processes
    [CAPTURED[0], ("PROCESS_0:ENVIRONMENT_VARIABLE", "RANK=64"), CAPTURED[2]],  # out of range
    [CAPTURED[0], CAPTURED[1]],  # no world size
)
def test_rank_is_not_taken_from_an_environment_that_may_be_anothers(tmp_path: Path, captured: list[tuple]) -> None:
    trace = load(add(basic(tmp_path / "a.sqlite"), db.CAPTURE, META_DATA_CAPTURE=captured))
    assert [(rank.rank, rank.world_size, rank.source) for rank in trace.ranks] == [(0, None, "assigned")]


def test_rank_from_the_environment_needs_the_launched_process_to_be_the_working_one(tmp_path: Path) -> None:
    message = "Process was launched by the profiler, see /tmp/x/pid_1.log"
    path = add(
        basic(tmp_path / "a.sqlite"),
        db.CAPTURE,
        db.DIAGNOSTIC,
        META_DATA_CAPTURE=CAPTURED,
        DIAGNOSTIC_EVENT=[(0, 0, 0, 1, message, gpid(PID_B))],
    )
    assert load(path).ranks[0].source == "assigned"
    add(path, f"UPDATE DIAGNOSTIC_EVENT SET globalPid = {gpid(PID_A)}")
    assert load(path).ranks[0].rank == 5


GPU = "CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER, uuid TEXT, cuDevice INTEGER, maxShmemPerSm INTEGER, maxRegistersPerSm INTEGER, threadsPerWarp INTEGER, maxWarpsPerSm INTEGER, maxBlocksPerSm INTEGER, computeMajor INTEGER, computeMinor INTEGER)"


def gpu(row: int, ordinal: int, name: str, sms: int) -> tuple:
    return (0, row, name, 80 << 30, sms, f"uuid-{row}", ordinal, 233472, 65536, 32, 64, 32, 9, 0)


def test_devices_are_found_by_cuda_ordinal(tmp_path: Path) -> None:
    rows = [gpu(0, 1, "NVIDIA H100 ", 132), gpu(1, 0, "NVIDIA A40", 84)]
    trace = load(add(basic(tmp_path / "a.sqlite", kernels=[kernel(1, 2, device=1)]), GPU, TARGET_INFO_GPU=rows))
    (device,) = trace.devices
    assert (device.name, device.sm_count, device.uuid, device.max_threads_per_sm, device.compute_minor) == (
        "NVIDIA H100", 132, "uuid-0", 2048, 0,
    )  # fmt: skip


def test_the_export_s_own_mapping_of_ordinals_wins(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite", kernels=[kernel(1, 2), kernel(3, 4, pid=PID_B)]),
        GPU,
        "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL)",
        TARGET_INFO_GPU=[gpu(0, 0, "NVIDIA H100", 132), gpu(1, 1, "NVIDIA H100", 132)],
        TARGET_INFO_CUDA_DEVICE=[(0, 0, PID_A), (1, 0, PID_B)],
    )
    assert [device.uuid for device in load(path).devices] == ["uuid-0", "uuid-1"]
    add(path, "DROP TABLE TARGET_INFO_CUDA_DEVICE")
    # two processes call theirs 0: the model is known, but not which of the two
    assert [(device.name, device.uuid) for device in load(path).devices] == [("NVIDIA H100", None)] * 2


def test_the_only_gpu_of_a_machine_is_everybody_s(tmp_path: Path) -> None:
    path = basic(tmp_path / "a.sqlite", kernels=[kernel(1, 2), kernel(3, 4, pid=PID_B)])
    trace = load(add(path, GPU, TARGET_INFO_GPU=[gpu(0, 0, "NVIDIA H100", 132)]))
    assert [device.uuid for device in trace.devices] == ["uuid-0"] * 2


def test_long_calls_of_the_operating_system_are_ranges(tmp_path: Path) -> None:
    """As far as they lie in the time of all else: threads that wait for the whole run make no capture longer and move no time."""
    without = load(basic(tmp_path / "b.sqlite"))
    last = max(frame["end"].max() for frame in (without.ops, without.calls))
    origin = without.provenance.origin_ns
    columns = 'start INTEGER NOT NULL, "end" INTEGER NOT NULL, eventClass INTEGER, globalTid INTEGER, nameId INTEGER NOT NULL'
    path = add(
        basic(tmp_path / "a.sqlite"),
        f"CREATE TABLE OSRT_API ({columns})",
        StringIds=[(90, "pthread_mutex_lock"), (91, "read")],
        OSRT_API=[(origin - 5, origin + 499_995, 27, gtid(PID_A, PID_A), 90), (origin, origin + 499_999, 27, gtid(PID_A, PID_A), 91)],
    )
    trace = load(path)
    assert texts(trace, trace.ranges, "text_id") == ["pthread_mutex_lock"]
    assert trace.ranges.select("kind", "start", "end").rows() == [("system", 0, last)]
    assert trace.provenance.origin_ns == origin
    assert codes(trace)["not_needed", "OSRT_API"] == 1


@for_each(
    "adapters, told",
    ([gpu(0, 0, "NVIDIA A40", 84), gpu(1, 0, "NVIDIA H100", 132)], (None, None)),
    # a display adapter that shares an ordinal, with no multiprocessors or no compute capability
    ([gpu(0, 0, "display", 0), gpu(1, 0, "NVIDIA H100", 132), (*gpu(2, 0, "display", 20)[:-2], 0, 0)], ("NVIDIA H100", 132)),
)
def test_ambiguous_adapters_give_no_limits_and_half_known_ones_make_none_ambiguous(
    tmp_path: Path, adapters: list[tuple], told: tuple[str | None, int | None]
) -> None:
    trace = load(add(basic(tmp_path / "a.sqlite"), GPU, TARGET_INFO_GPU=adapters))
    assert [(device.name, device.sm_count) for device in trace.devices] == [told]


METRICS = (
    "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL)",
    "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT)",
)


def test_metrics_and_memory(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite"),
        GPU,
        *METRICS,
        "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, globalPid INTEGER, deviceId INTEGER, bytes INTEGER, memKind INTEGER, memoryOperationType INTEGER)",
        TARGET_INFO_GPU=[gpu(3, 0, "NVIDIA H100", 132), gpu(2, 1, "NVIDIA H100", 132)],
        GPU_METRICS=[(1000, 0x700 + 3, 21, 55), (1010, 0x700 + 2, 21, 1), (1020, 0x700 + 3, 22, 7)],
        TARGET_INFO_GPU_METRICS=[(0x703, 0, "GPU", 21, "SMs Active [Throughput %]")],
        CUDA_GPU_MEMORY_USAGE_EVENTS=[
            (1000, gpid(PID_A), 0, 4096, 2, 0),
            (1500, gpid(PID_A), 0, 4096, 2, 1),
            (1600, gpid(PID_A), 0, 64, 1, 0),
        ],
    )
    trace = load(path)
    assert trace.counters.select("rank", "device", "time", "value").rows() == [(0, 0, 100, 55.0), (0, 0, 120, 7.0)]
    assert texts(trace, trace.counters, "name_id") == ["SMs Active [Throughput %]", "<unresolved name 22>"]
    assert trace.memory.select("time", "bytes").rows() == [(100, 4096), (600, -4096)]
    got = codes(trace)
    assert got["not_needed", "GPU_METRICS"] == 1  # a GPU that does no work here
    assert got["not_needed", "CUDA_GPU_MEMORY_USAGE_EVENTS"] == 1  # pinned host memory
    assert got["unknown_name", "GPU_METRICS"] == 1


def test_samples_of_metrics_are_counted_in_the_steps_with_those_of_one_operation_alone(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite", kernels=[kernel(1000, 1400), kernel(1200, 1300, correlation=2, stream=8), kernel(1500, 1900, correlation=3)]),
        GPU,
        *METRICS,
        TARGET_INFO_GPU=[gpu(3, 0, "NVIDIA H100", 132)],
        GPU_METRICS=[(at, 0x703, 21, value) for at, value in ((900, 99), (1100, 50), (1250, 80), (1450, 10), (1600, 60), (2500, 1))],
        TARGET_INFO_GPU_METRICS=[(0x703, 0, "GPU", 21, "SMs Active [Throughput %]")],
    )  # fmt: skip
    found = diagnose([path])
    (told,) = found.capture.samples
    assert (told.name, told.samples, told.alone, told.mean, told.mean_alone) == ("SMs Active [Throughput %]", 4, 2, 50.0, 55.0)
    assert found.capture.metrics == (told.name,)
    assert "mean 50.0 over 4 samples in the steps, 55.0 over 2 while just one operation ran" in write(found, "markdown")


def test_wrong_types_are_counted_and_whole_reals_are_kept(tmp_path: Path) -> None:
    path = basic(tmp_path / "a.sqlite", kernels=[kernel(1000 * i, 1000 * i + 100, correlation=i) for i in range(1, 7)])
    add(
        path,
        *made_anew("(" + ", ".join(_columns(path)) + ")"),
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'x' WHERE correlationId = 2",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + 0.5 WHERE correlationId = 3",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = x'00' WHERE correlationId = 4",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = CAST(start AS REAL), graphNodeId = 7.0 WHERE correlationId = 5",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = NULL WHERE correlationId = 6",
    )
    trace = load(path)
    assert trace.ops["correlation"].to_list() == [1, 5]
    assert trace.ops["graph_node"].to_list() == [None, 7]
    got = codes(trace)
    assert got["wrong_type", "CUPTI_ACTIVITY_KIND_KERNEL"] == 3
    assert got["missing_time", "CUPTI_ACTIVITY_KIND_KERNEL"] == 1


def _columns(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [f'"{row[1]}"' for row in connection.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]


IN_PLACE = ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "ALTER TABLE copy RENAME TO CUPTI_ACTIVITY_KIND_KERNEL")


def made_anew(columns: str) -> tuple[str, ...]:
    """Statements that give the table of kernels these columns."""
    return (
        f"CREATE TABLE copy {columns}",
        "INSERT INTO copy SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL",
        *IN_PLACE,
    )


def test_a_table_of_texts_only_is_refused_in_words(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite"),
        'CREATE TABLE copy AS SELECT CAST(start AS TEXT) AS start, CAST("end" AS TEXT) AS "end", deviceId, streamId FROM CUPTI_ACTIVITY_KIND_KERNEL',
        *IN_PLACE,
    )
    with pytest.raises(InputError, match="wrong type") as caught:
        load(path)
    assert caught.value.exit_code == 3


def test_invalid_utf8_is_replaced_and_counted(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite"),
        db.NVTX,
        "UPDATE StringIds SET value = CAST(x'6b65726eff6c' AS TEXT) WHERE id = 1",
        NVTX_EVENTS=[nvtx(1000, 1010, "good")] * 3,
    )
    add(path, "UPDATE NVTX_EVENTS SET text = CAST(x'c328' AS TEXT) WHERE _rowid_ = 2")
    trace = load(path)
    assert texts(trace, trace.ops, "name_id") == ["kern\ufffdl"] * 3
    assert texts(trace, trace.ranges, "text_id") == ["good", "\ufffd(", "good"]
    got = codes(trace)
    assert (got["bad_text", "StringIds"], got["bad_text", "NVTX_EVENTS"]) == (1, 1)


def test_unresolved_names_are_kept_under_a_placeholder(tmp_path: Path) -> None:
    rows = [kernel(1000, 1100, name=77, short=78), kernel(2000, 2100, name=77, short=78), kernel(3000, 3100, name=77 + 1, short=2)]
    trace = load(basic(tmp_path / "a.sqlite", kernels=rows))
    assert texts(trace, trace.ops, "name_id") == ["<unresolved name 77>", "<unresolved name 77>", "gemm"]
    assert codes(trace)["unknown_name", "CUPTI_ACTIVITY_KIND_KERNEL"] == 2


def test_a_kernel_table_alone_is_enough(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite"),
        *(
            f"DROP TABLE {name}"
            for name in ("StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME", "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME")
        ),
    )
    trace = load(path)
    assert trace.ops.height == 3
    assert trace.calls.is_empty()
    assert (trace.ranks[0].start_unix_ns, trace.provenance.schema_version) == (None, None)
    assert codes(trace)["missing_table", "StringIds"] == 1


def test_columns_added_by_a_user_and_missing_optional_columns_do_not_matter(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite"),
        'ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN "my ""name" TEXT',
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN gridX",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId",
        "CREATE TABLE SystemInfo (anything TEXT)",
    )
    trace = load(path)
    assert trace.ops.height == 3
    assert trace.ops["grid_x"].to_list() == [None] * 3
    assert trace.ops["grid_y"].to_list() == [1] * 3


def test_a_view_does_not_pose_as_a_table(tmp_path: Path) -> None:
    endless = (
        'WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x AS "end", 0 AS deviceId, 7 AS streamId FROM n'
    )
    path = add(
        basic(tmp_path / "a.sqlite"),
        f"CREATE VIEW CUPTI_ACTIVITY_KIND_MEMSET AS {endless}",
        f"CREATE VIEW ANALYSIS_DETAILS AS {endless}",
        'CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, "end" INTEGER GENERATED ALWAYS AS (length(hex(zeroblob(start)))) VIRTUAL, deviceId INTEGER)',
        CUPTI_ACTIVITY_KIND_KERNEL=[],
    )
    trace = load(path)
    assert trace.ops["kind"].unique().to_list() == ["kernel"]
    assert trace.ops.height == 3
    assert codes(trace)["ignored_view", "CUPTI_ACTIVITY_KIND_MEMSET"] == 1


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {item.name: (item.stat().st_mtime_ns, item.read_bytes()) for item in folder.iterdir()}


def test_a_write_ahead_log_is_read_from_a_private_copy(tmp_path: Path) -> None:
    live, given = tmp_path / "live", tmp_path / "given"
    live.mkdir()
    given.mkdir()
    basic(live / "a.sqlite")
    with closing(sqlite3.connect(live / "a.sqlite")) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        insert(writer, "CUPTI_ACTIVITY_KIND_KERNEL", [kernel(5000, 5100, correlation=9)])
        writer.commit()
        for name in ("a.sqlite", "a.sqlite-wal"):
            shutil.copyfile(live / name, given / name)
    before = snapshot(given)
    trace = load(given / "a.sqlite")
    assert trace.ops.height == 4
    assert codes(trace)["copied_sidecar", "all"] == 1
    assert snapshot(given) == before


def test_write_ahead_mode_without_a_log_leaves_nothing_behind(tmp_path: Path) -> None:
    path = basic(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
    before = snapshot(tmp_path)
    assert load(path).ops.height == 3
    assert snapshot(tmp_path) == before


def hot_journal(tmp_path: Path) -> Path:
    """A database in the middle of a transaction that deletes every kernel, with the journal that undoes it."""
    live, given = tmp_path / "live", tmp_path / "given"
    live.mkdir()
    given.mkdir()
    basic(live / "a.sqlite", kernels=[kernel(1000 + 10 * i, 1005 + 10 * i, correlation=i) for i in range(3000)])
    with closing(sqlite3.connect(live / "a.sqlite", isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 5")
        writer.execute("PRAGMA cache_spill = 1")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 7, correlationId = 1, streamId = 1")
        for name in ("a.sqlite", "a.sqlite-journal"):
            shutil.copyfile(live / name, given / name)
        writer.execute("ROLLBACK")
    return given / "a.sqlite"


def test_a_hot_journal_is_played_back_in_a_private_copy(tmp_path: Path) -> None:
    path = hot_journal(tmp_path)
    before = snapshot(path.parent)
    trace = load(path)
    assert trace.ops.height == 3000
    assert trace.ops["stream"].unique().to_list() == [7]
    assert codes(trace)["copied_sidecar", "all"] == 1
    assert snapshot(path.parent) == before


def test_a_journal_that_names_another_file_is_refused(tmp_path: Path) -> None:
    path = hot_journal(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    name = os.fsencode(victim)
    with path.with_name("a.sqlite-journal").open("ab") as journal:
        journal.write(name + struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(InputError, match="several databases"):
        load(path)
    assert victim.read_text() == "keep me"


def test_profiler_messages_are_kept_without_paths_and_graded(tmp_path: Path) -> None:
    messages = [
        (1, "Profiling has started."),
        (2, "Something odd in /home/alice/run.log happened"),
        (2, "Something odd in /home/alice/run.log happened"),
        (3, "ActivityFlushAll returned 2: CUPTI_ERROR_INVALID_DEVICE"),
        (3, "Unable to configure the collection of CPU IP/backtrace samples."),
        (3, "AnalysisService: failed to start event source Perf: AccessDeniedException"),
        (3, "CUDA device 0: Unified Memory cannot be traced on devices that don't support peer-to-peer transfers."),
        (2, "12 CUDA records were dropped"),
    ]
    rows = [(i, 0, 0, severity, text, None) for i, (severity, text) in enumerate(messages)]
    trace = load(add(basic(tmp_path / "a.sqlite"), db.DIAGNOSTIC, DIAGNOSTIC_EVENT=rows))
    assert trace.provenance.diagnostics == (
        "Something odd in … happened",
        "ActivityFlushAll returned 2: CUPTI_ERROR_INVALID_DEVICE",
        "Unable to configure the collection of CPU IP/backtrace samples.",
        "AnalysisService: failed to start event source Perf: AccessDeniedException",
        "CUDA device 0: Unified Memory cannot be traced on devices that don't support peer-to-peer transfers.",
        "12 CUDA records were dropped",
    )
    got = codes(trace)
    assert (got["profiler_warning", "DIAGNOSTIC_EVENT"], got["profiler_error", "DIAGNOSTIC_EVENT"]) == (5, 1)
    assert got["dropped_by_profiler", "DIAGNOSTIC_EVENT"] == 1


def test_overhead_counts_only_while_the_gpu_works(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite"),
        'CREATE TABLE PROFILER_OVERHEAD (start INTEGER, "end" INTEGER, globalTid INTEGER, nameId INTEGER, overheadType INTEGER)',
        PROFILER_OVERHEAD=[(0, 500, 1, 1, 1), (900, 1050, 1, 1, 1), (1040, 1060, 1, 1, 1), (3090, 9000, 1, 1, 1)],
    )
    told = load(path).provenance
    assert told.overhead == ((100, 160), (2190, 2200))
    assert load(basic(tmp_path / "b.sqlite")).provenance.overhead is None


def test_what_cuda_spends_itself_is_no_overhead_of_the_profiler(tmp_path: Path) -> None:
    """A launch that waits for room in a full queue (8) is the program's own, and so is a module that is loaded (6, 7)."""
    kinds = (None, 0, 3, 4, 5, 2, 6, 7, 8)
    path = add(
        basic(tmp_path / "a.sqlite"),
        'CREATE TABLE CUPTI_ACTIVITY_KIND_OVERHEAD (start INTEGER, "end" INTEGER, globalTid INTEGER, nameId INTEGER, overheadType INTEGER)',
        CUPTI_ACTIVITY_KIND_OVERHEAD=[(1010 + 10 * place, 1012 + 10 * place, 1, 1, kind) for place, kind in enumerate(kinds)],
    )
    assert load(path).provenance.overhead == tuple((110 + 10 * place, 112 + 10 * place) for place in range(5))


def test_thread_names(tmp_path: Path) -> None:
    path = add(
        basic(tmp_path / "a.sqlite"),
        "CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER)",
        ThreadNames=[(2, 20, gtid(PID_A, 5)), (2, 20, gtid(PID_B, 6)), (99, 20, gtid(PID_A, 7))],
    )
    assert load(path).threads.rows() == [(0, gtid(PID_A, 5), "gemm")]


def test_large_tables_are_cut_into_slices_without_losing_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [kernel(1000 + 10 * i, 1005 + 10 * i, correlation=i, name=1 + 3 * (i % 2), short=2) for i in range(1000)]
    path = basic(tmp_path / "a.sqlite", kernels=rows)
    add(path, db.NVTX, NVTX_EVENTS=[nvtx(1000 + i, 1001 + i, f"step {i % 7}, op_id = {i}") for i in range(1000)])
    add(path, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE _rowid_ BETWEEN 100 AND 149")
    whole = load(path)
    monkeypatch.setattr(nsys_sqlite, "_SLICE", 64)
    monkeypatch.setattr(nsys_sqlite, "_TWO_CONNECTIONS", 100)
    sliced = load(path)
    assert whole.ops.height == 950
    assert sliced.ops.equals(whole.ops)
    assert texts(sliced, sliced.ranges, "text_id") == texts(whole, whole.ranges, "text_id") == [f"step {i % 7}" for i in range(1000)]
    assert sliced.names.equals(whole.names)


def test_a_table_without_row_ids_and_one_with_huge_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_sqlite, "_SLICE", 2)
    path = add(basic(tmp_path / "a.sqlite"), "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET _rowid_ = 9000000000000000000 WHERE correlationId = 3")
    assert load(path).ops.height == 3
    add(path, *made_anew(f"({', '.join(_columns(path))}, PRIMARY KEY (correlationId)) WITHOUT ROWID"))
    assert load(path).ops.height == 3


def test_a_file_is_named_without_its_folder_whatever_signs_its_name_has(tmp_path: Path) -> None:
    assert load(basic(tmp_path / "a.sqlite")).provenance.file == "a.sqlite"
    (tmp_path / "odd #%? name.sqlite").write_bytes((tmp_path / "a.sqlite").read_bytes())
    assert load(tmp_path / "odd #%? name.sqlite").ops.height == 3


def test_a_schema_with_foreign_bytes_is_refused_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "bad.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE StringIds(id INT, value TEXT)")
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET sql = CAST(x'43524541544520ff54fe41' AS TEXT)")
        connection.commit()
    with pytest.raises(InputError, match=r"bad\.sqlite is damaged"):
        load(path)


def test_what_the_machine_lacks_is_not_called_damage() -> None:
    for said in ("out of memory", "IO: failed to open: failed to allocate memory", "unable to open database file"):
        error = nsys_sqlite.unreadable("run.sqlite", sqlite3.OperationalError(said))
        assert (error.what.startswith("run.sqlite could not be read"), "damaged" in str(error)) == (True, False), said
    assert "memory ran out" in nsys_sqlite.unreadable("run.sqlite", MemoryError()).what
