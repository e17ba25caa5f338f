"""The reader of PyTorch profiler JSON on small traces made by hand."""

import gzip
import io
import itertools
import json
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.errors import InputError
from diagnose.load import kineto_stream, torch_json
from diagnose.load.conform import conform
from diagnose.load.kineto_columns import exact_ns
from diagnose.load.torch_json import read
from diagnose.model.intervals import union_length
from diagnose.model.trace import Provenance, Trace
from tests.builders.cases import for_each
from tests.builders.kineto import call, document, kernel, operator, small
from tests.load.kineto_reference import Totals, events_of, operations_of, totals_of


def load(data: bytes, chunk: int | None = None, rank: int | None = None) -> Trace:
    more: dict[str, Any] = {} if chunk is None else {"chunk": chunk}
    return conform(read(io.BytesIO(data), display_name="t.json", rank=rank, **more))


def text_of(trace: Trace, column: str, frame: pl.DataFrame) -> list[str]:
    return frame.join(trace.names, left_on=column, right_on="id", how="left", maintain_order="left")["text"].to_list()


def codes(trace: Trace) -> dict[str, int]:
    return {entry.code: entry.count for entry in trace.ledger.entries}


def test_every_column_of_a_kernel_and_its_launch() -> None:
    trace = load(
        document([kernel(20, 5, correlation=9, **{"graph node id": 44}), call(10, 3, correlation=9, name="cudaLaunchKernel_v7000")])
    )
    row = trace.ops.row(0, named=True)
    assert row == {
        "rank": 3,
        "device": 0,
        "start": 10_000,
        "end": 15_000,
        "kind": "kernel",
        "stream": 7,
        "name_id": row["name_id"],
        "correlation": 9,
        "graph_node": 44,
        "grid_x": 4,
        "grid_y": 2,
        "grid_z": 1,
        "block_x": 128,
        "block_y": 1,
        "block_z": 1,
        "registers": 32,
        "shared_memory": 1024,
        "bytes": None,
        "copy_kind": None,
        "pinned": None,
        "payload_id": None,
    }
    assert trace.calls.row(0) == (3, 11, 0, 3_000, trace.calls["name_id"][0], 9)
    assert text_of(trace, "name_id", trace.calls) == ["cudaLaunchKernel"]
    assert trace.provenance.graph_trace == "nodes"
    assert (trace.ranks[0].rank, trace.ranks[0].world_size, trace.ranks[0].source, trace.ranks[0].pid) == (3, 8, "trace", 10)
    assert "secret" not in repr((trace.provenance, trace.ranks, trace.devices, trace.ledger))


def test_an_operation_without_a_device_is_counted_beside_others_that_have_one() -> None:
    lost = kernel(30, 5, correlation=2)
    lost["pid"], lost["args"]["device"] = "no number", "x"
    trace = load(document([kernel(20, 5), lost]))
    assert (trace.ops.height, codes(trace)["no_device"]) == (1, 1)
    alone = load(document([lost]))
    assert (alone.ops.height, "no_device" in codes(alone)) == (1, False), "where none tells its device there is one"


def test_events_that_stand_in_the_file_twice_count_once() -> None:
    events = [call(10, 3), kernel(20, 5), call(30, 3, correlation=2), kernel(40, 5, correlation=2)]
    once, twice = load(document(events)), load(document([events[3], *events, *events[1:3]]))
    assert [entry.count for entry in twice.ledger.entries if entry.code == "repeated_row"] == [1, 2], "API calls and kernels"
    assert "repeated_row" not in codes(once)
    for one, other in ((once.ops, twice.ops), (once.calls, twice.calls)):  # names are numbered as they come
        assert one.drop("name_id").equals(other.drop("name_id"))
    alike = load(document([kernel(20, 5), kernel(20, 5, stream=8), kernel(20, 5, device=1), kernel(20, 6), kernel(30, 0), kernel(30, 0)]))
    assert alike.ops.height == 6, "another stream, device or length is another operation; what takes no time may be there twice"


def test_backslashes_that_were_not_escaped_cost_no_event() -> None:
    data = document([kernel(0, 5, name="Q"), kernel(9, 5, name="R")]).replace(b'"Q"', rb'"C:\users\x\\y\u00e9"')
    trace = load(data)
    assert (trace.ops.height, "undecodable_event" in codes(trace)) == (2, False)
    assert trace.names["text"][0] == "C:\\users\\x\\yé"


def test_minus_one_is_no_device() -> None:
    trace = load(document([kernel(0, 5), {**kernel(9, 5, device=-1), "pid": 0}]))
    assert trace.ops["device"].to_list() == [0, 0]


def test_copies_that_were_asked_for_and_are_not_there_are_told() -> None:
    asked = [call(10 * n, 3, name="cudaMemcpyAsync", correlation=n) for n in range(5)]
    copy = {**kernel(90, 5), "name": "Memcpy HtoD (Pinned -> Device)", "cat": "gpu_memcpy"}
    assert codes(load(document([*asked, kernel(60, 5)])))["no_copies"] == 5
    assert "no_copies" not in codes(load(document([*asked[:4], kernel(60, 5)])))
    assert "no_copies" not in codes(load(document([*asked, kernel(60, 5), copy])))


def test_an_operation_whose_end_cannot_be_is_left_out() -> None:
    good = [kernel(10 * n, 5, correlation=n) for n in range(1, 9)]
    bad = kernel(45, 10**10, correlation=9)
    trace = load(document([*good, bad]))
    assert (trace.ops.height, codes(trace)["endless_row"]) == (8, 1)
    assert load(document([*good, kernel(95, 10**6)])).ops.height == 9, "the last of its stream may wait for long"
    assert load(document([*good, {**bad, "args": {**bad["args"], "stream": 8}}])).ops.height == 9, "so may one with a stream of its own"


@for_each("first", document([call(10, 3), kernel(20, 5)]), json.dumps([call(10, 3), kernel(20, 5)]).encode())
def test_what_follows_a_trace_in_its_file_is_told(first: bytes) -> None:
    assert "further_content" not in codes(load(first + b"\n\0\0"))
    trace = load(first + document([kernel(90, 5)]))
    assert (trace.ops.height, codes(trace)["further_content"]) == (1, 1)


def test_traces_of_several_processes_merged_into_one_file_are_refused() -> None:
    other = [{**call(10, 3), "pid": 77}, kernel(20, 6, device=1)]
    with pytest.raises(InputError, match="holds the traces of 2 processes, merged"):
        load(document([call(10, 3), kernel(20, 5), *other]))
    apart = [{**call(10, 3, correlation=2), "pid": 77}, kernel(20, 6, device=1, correlation=2)]
    assert load(document([call(10, 3), kernel(20, 5), *apart])).ops.height == 2


def test_launches_without_the_kernels_that_they_started_are_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="holds 2 kernel launches by the CPU, but no GPU work that came of them") as caught:
        load(document([call(10, 3), call(20, 3, correlation=2), call(30, 3, name="cudaMalloc")]))
    assert "one profiler at a time" in caught.value.next_step
    with pytest.raises(InputError, match="holds no GPU work"):
        load(document([call(10, 3, name="cudaMalloc")]))
    with pytest.raises(
        InputError, match=r"no GPU work that can be used \(it has .*kernel \(1, none of use: rows that end before they start\)"
    ):
        load(document([{**kernel(20, 5), "dur": -5}]))


def test_a_trace_that_is_cut_before_its_gpu_work_is_said_to_be_cut() -> None:
    """And nobody is sent to capture with CUDA tracing on."""
    with pytest.raises(InputError, match="is cut off") as caught:
        load(document([operator(at, 1) for at in range(50)])[:-20])
    assert "CUDA tracing" not in str(caught.value)


def test_copies_and_sets() -> None:
    copies = [
        ("Memcpy HtoD (Pinned -> Device)", "h2d", True),
        ("Memcpy DtoH (Device -> Pageable)", "d2h", False),
        ("Memcpy DtoD (Device -> Device)", "d2d", None),
    ]
    copies += [("Memcpy PtoP (Device -> Device)", "p2p", None), ("Something", "other", None)]
    events = [{**kernel(10 * i, 5, name=name, bytes=64), "cat": "gpu_memcpy"} for i, (name, _, _) in enumerate(copies)]
    trace = load(document([*events, {**kernel(90, 1, name="Memset (Device)", bytes=8), "cat": "gpu_memset"}]))
    found = trace.ops.filter(pl.col("kind") == "memcpy")
    assert list(zip(text_of(trace, "name_id", found), found["copy_kind"], found["pinned"], strict=True)) == copies
    assert trace.ops["bytes"].to_list() == [64] * 5 + [8]


def test_ranges_their_kinds_sequences_and_payloads() -> None:
    comms = {
        "Collective name": "alltoallv", "Process Group Description": "EXPERT_MODEL_PARALLEL_GROUP", "Process Group Name": "7",
        "Process Group Ranks": "[0, 1, 2, ..., 63]", "Group size": 64, "dtype": "BFloat16",
    }  # fmt: skip
    comms |= {"In msg nelems": 100, "Out msg nelems": 90, "Comms Id": 10159970886766084423}
    events = [
        operator(0, 5, name="LinearForward", **{"Sequence number": 77, "Fwd thread id": 0}),
        operator(10, 5, name="LinearBackward", tid=12, **{"Sequence number": 77, "Fwd thread id": 1}),
        operator(20, 5, name="record_param_comms", **comms),
        operator(30, 5, name="ProfilerStep#4"),
        {**operator(40, 5, name="forward"), "cat": "user_annotation"},
        {**operator(50, 5, name="forward"), "cat": "gpu_user_annotation"},
        {**operator(60, 5, name="nn.Module: TopKRouter_3"), "cat": "python_function"},
        {**operator(70, 5, name="json/decoder.py(12): decode"), "cat": "python_function"},
        {**operator(75, 600, name="/home/me/train.py(7): save"), "cat": "python_function"},
        {**operator(76, 599, name="<built-in method write>"), "cat": "python_function"},
        {**operator(80, 5, name="/home/me/Megatron-LM/megatron/core/transformer/moe/router.py(5): forward"), "cat": "python_function"},
        kernel(90, 5, **comms),
    ]
    trace = load(document(events))
    rows = list(
        zip(
            text_of(trace, "text_id", trace.ranges),
            trace.ranges["kind"],
            trace.ranges["thread"],
            trace.ranges["sequence"],
            trace.ranges["forward_thread"],
            strict=True,
        )
    )
    assert rows == [
        ("LinearForward", "operator", 11, 77, None),
        ("LinearBackward", "operator", 12, 77, 1),
        ("record_param_comms", "comms", 11, None, None),
        ("ProfilerStep#4", "annotation", 11, None, None),
        ("forward", "annotation", 11, None, None),
        ("forward", "gpu_annotation", None, None, None),
        ("nn.Module: TopKRouter_3", "python", 11, None, None),
        ("train.py(7): save", "frame", 11, None, None),
        ("megatron/core/transformer/moe/router.py(5): forward", "python", 11, None, None),
    ]
    assert trace.payloads.rows(named=True) == [
        {
            "id": 0,
            "collective": "alltoallv",
            "group": "EXPERT_MODEL_PARALLEL_GROUP",
            "group_name": "7",
            "group_size": 64,
            "communicator": 10159970886766084423 - 2**64,
            "dtype": "BFloat16",
            "elements_in": 100,
            "elements_out": 90,
            "bytes": None,
            "peer": None,
            "members": "[0, 1, 2, ..., 63]",
        }
    ]
    assert trace.ops["payload_id"].to_list() == [0]
    assert codes(trace)["not_needed"] == 2  # a short frame, and one that is built in


def test_waits_name_the_record_that_they_wait_for() -> None:
    def sync(ts: int, kind: str, correlation: int, **args: int) -> dict[str, Any]:
        args = {"device": 0, "correlation": correlation, **args}
        return {
            "ph": "X",
            "cat": "cuda_sync",
            "name": kind,
            "pid": 0,
            "tid": -1,
            "ts": ts,
            "dur": 2,
            "args": {"cuda_sync_kind": kind, **args},
        }

    events = [
        kernel(0, 5),
        call(10, 1, name="cudaEventRecord", correlation=50),
        sync(12, "Stream Wait Event", 51, stream=20, wait_on_stream=7, wait_on_cuda_event_record_corr_id=50, wait_on_cuda_event_id=3),
        sync(14, "Stream Wait Event", 52, stream=21, wait_on_stream=7, wait_on_cuda_event_record_corr_id=50, wait_on_cuda_event_id=3),
        sync(16, "Event Sync", 53, stream=4294967295, wait_on_stream=-1, wait_on_cuda_event_record_corr_id=-1, wait_on_cuda_event_id=9),
        call(16, 2, name="cudaEventQuery", correlation=53),
        sync(18, "Context Sync", 54, stream=-1),
        sync(20, "Stream Sync", 55, stream=7),
        sync(22, "Riddle", 56, stream=7),
    ]
    trace = load(document(events))
    rows = trace.waits.select("kind", "stream", "event", "sync_id", "correlation", "start", "end").rows()
    assert sorted(rows, key=lambda row: row[5]) == [
        ("record", 7, 3, 50, 50, 10_000, 11_000),
        ("stream_wait", 20, 3, 50, 51, 12_000, 14_000),
        ("stream_wait", 21, 3, 50, 52, 14_000, 16_000),
        ("device_sync", None, None, None, 54, 18_000, 20_000),
        ("stream_sync", 7, None, None, 55, 20_000, 22_000),
    ]
    assert {row.table: (row.read, row.kept) for row in trace.ledger.rows if "sync" in row.table} == {
        "cuda_sync": (6, 4),
        "cuda_sync records": (1, 1),
    }


def test_memory_events_of_the_gpu_only() -> None:
    def event(kind: int, **args: int) -> dict[str, Any]:
        return {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": 10,
            "tid": 11,
            "ts": 5,
            "args": {"Device Type": kind, "Device Id": 0, "Bytes": -64, **args},
        }

    trace = load(document([kernel(0, 5), event(1, **{"Total Allocated": 10, "Total Reserved": 20}), event(0)]))
    assert trace.memory.rows() == [(3, 0, 5_000, -64, 10, 20)]
    assert next(row for row in trace.ledger.rows if row.table == "[memory]").read == 2


def test_what_the_profiler_takes_itself_counts_while_the_gpu_is_at_work_and_what_cuda_takes_is_no_part_of_it() -> None:
    """Names as libkineto writes them; a full queue and a module that is loaded are the program's own doing."""
    of_the_profiler = [("Buffer Flush", 0, 4), ("Activity Buffer Request", 20, 5), ("Instrumentation", 24, 3), ("Buffer Flush", 38, 500)]
    of_cuda = [
        ("Command Buffer Full", 10, 9), ("Lazy Function Loading", 28, 9), ("Driver Compiler", 5, 4),
        ("Runtime Triggered Module Loading", 5, 4),
    ]  # fmt: skip

    def told(spans: list[tuple[str, float, float]]) -> Provenance:
        noted = [{"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0, "ts": ts, "dur": dur} for name, ts, dur in spans]
        return load(document([kernel(2, 5), kernel(30, 10), *noted])).provenance

    found = told(of_the_profiler + of_cuda)
    assert found.overhead == ((0, 2_000), (18_000, 25_000), (36_000, 38_000))  # from the first kernel, at 2 µs, to the end of the last
    assert found.notes == ("The profiler recorded 4 spans of its own overhead while the GPU was at work, 0.011 ms together.",)
    assert (told(of_cuda).overhead, told(of_cuda).notes) == ((), ())
    assert told([]).overhead is None


def test_names_of_host_threads_devices_overhead_and_duration() -> None:
    events = [
        kernel(0, 5),
        call(1, 1),
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 11, "ts": 0, "args": {"name": "thread 11 (python)"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "stream 7 "}},
        {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": 3, "dur": 1},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 0, "dur": 40},
    ]
    properties = [
        {"id": 0, "name": "NVIDIA H100", "numSms": 132, "computeMajor": 9, "computeMinor": 0, "warpSize": 32},
        {"id": 1, "name": "NVIDIA H100"},
    ]
    trace = load(document(events, deviceProperties=properties, baseTimeNanoseconds=10**18, ERROR=["ERROR: bad"], cupti_version=28))
    assert trace.threads.rows() == [(3, 11, "thread 11 (python)")]
    assert [(d.device, d.name, d.sm_count, d.compute_major, d.total_memory) for d in trace.devices] == [(0, "NVIDIA H100", 132, 9, None)]
    assert (trace.provenance.duration_ns, trace.provenance.overhead, trace.provenance.profiler_version) == (
        40_000,
        ((3_000, 4_000),),
        "CUPTI 28",
    )
    assert trace.ranks[0].start_unix_ns == 10**18
    assert codes(trace)["profiler_error"] == 1
    assert next(row for row in trace.ledger.rows if row.table == "metadata").kept == 2


def test_a_compute_capability_is_cudas_alone() -> None:
    amd = [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304, "computeMajor": 9, "computeMinor": 4, "warpSize": 64}]
    trace = load(document([kernel(0, 5, device=2)], deviceProperties=amd))
    assert [(d.device, d.name, d.compute_major) for d in trace.devices] == [(2, "AMD Instinct MI300X", None)]


def test_rank_from_the_trace_the_option_or_assigned() -> None:
    bare = json.dumps(small(1)).encode()
    assert (load(document(small(1))).ranks[0].rank, load(document(small(1))).ranks[0].source) == (3, "trace")
    named = load(document(small(1)), rank=5)
    assert (named.ranks[0].rank, named.ranks[0].source) == (5, "option")
    assert named.provenance.notes == ("The file calls itself rank 3; --rank named it rank 5.",)
    assert (load(bare, rank=5).ranks[0].rank, load(bare, rank=5).ranks[0].source) == (5, "option")
    assert (load(bare).ranks[0].rank, codes(load(bare))["assigned_rank"]) == (0, 1)


NUMBERS = [
    "0.0005", "0.0015", "0.0025", "1.0005", "12.5", "1712195495505582.988", "7764763346570.976", "5285632356384.0004999999", "3e2",
    "1.5E1", "123456.00049999999999999999999999999999",
]  # fmt: skip


@for_each("number", *NUMBERS)
def test_times_are_exact(number: str) -> None:
    event = json.dumps(kernel(0, 0)).replace('"ts": 0', f'"ts": {number}').replace('"dur": 0', f'"dur": {number}')
    trace = load(f'{{"traceEvents": [{event}]}}'.encode())
    expected = int((Decimal(number) * 1000).to_integral_value())
    assert (trace.provenance.origin_ns, trace.ops["end"][0]) == (expected, expected)


@given(
    st.lists(
        st.decimals(min_value=-(10**15), max_value=10**15, places=12) | st.decimals(min_value=-100, max_value=100, places=4),
        min_size=1,
        max_size=20,
    )
)
def test_exact_ns_rounds_half_to_even(numbers: list[Decimal]) -> None:
    assert exact_ns([f"{number:f}".encode() for number in numbers]).to_list() == [
        int((number * 1000).to_integral_value()) for number in numbers
    ]


def test_numbers_as_text_and_other_oddities_of_chrome_traces() -> None:
    events = [
        {**kernel("10", "5", device=0), "pid": "0", "tid": "stream 7", "args": {}},
        {**kernel(20, 5), "args": {"device": "1", "stream": "9", "correlation": "4"}},
        {**kernel("30 us", 5)},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "ts": "bad", "args": {"name": 7}},
        {"ph": "b", "cat": "async", "id": 1, "name": "open", "ts": 5, "pid": 0, "tid": 0},
        {"ph": "B", "cat": "kernel", "name": "open", "ts": 5, "pid": 0, "tid": 0},
        {"ph": "X", "cat": "kernel", "name": "no duration", "ts": 5, "pid": 0, "tid": 0},
        {},
    ]
    trace = load(document(events))
    assert trace.ops.select("device", "stream", "start", "end", "correlation").rows() == [(0, 7, 0, 5_000, None), (1, 9, 10_000, 15_000, 4)]
    counts = codes(trace)
    assert (counts["missing_time"], counts["wrong_type"]) == (2, 1)


def test_a_thread_whose_id_is_text_keeps_one_number() -> None:
    trace = load(
        document([kernel(0, 5), call(1, 1, tid="worker"), call(3, 1, tid="worker"), call(5, 1, tid="other"), call(7, 1, tid="4093687616")])
    )
    first, second, third, fourth = trace.calls["thread"]
    assert first == second != third
    assert (first < -1, fourth) == (True, 4093687616)


LAYOUTS = {
    "indented": lambda events: json.dumps(
        {"a": [{"name": 1}, {"name": 2}], "traceEvents": events, "b": [{"id": 0, "ph": 1}, {"id": 1}]}, indent=2
    ).encode(),
    "compact": lambda events: json.dumps({"traceEvents": events}, separators=(",", ":")).encode(),
    "bare list": lambda events: json.dumps(events).encode(),
    "byte order mark": lambda events: b"\xef\xbb\xbf" + document(events),
    "trailing comma": lambda events: b'{"traceEvents": [' + b",\n".join(json.dumps(e).encode() for e in events) + b",]}",
    "trailing garbage": lambda events: document(events) + b"\n\0garbage",
    "a nested list of the name": lambda events: json.dumps({"x": {"traceEvents": [1]}, "traceEvents": events}).encode(),
}


@for_each("chunk", 64, 1000, 1 << 22)
@for_each("layout", *LAYOUTS)
def test_every_layout_reads_alike(layout: str, chunk: int) -> None:
    expected = load(document(small()))
    trace = load(LAYOUTS[layout](small()), chunk=chunk)
    assert trace.ops.drop("rank", "name_id").equals(expected.ops.drop("rank", "name_id"))
    assert trace.calls.height == trace.ranges.height == 12
    assert not {"data_loss", "error"} & {entry.severity for entry in trace.ledger.entries}


@given(chunk=st.integers(1, 4000), nested=st.booleans(), decimals=st.booleans())
def test_where_chunks_end_changes_nothing(chunk: int, nested: bool, decimals: bool) -> None:
    events = small(20)
    if nested:
        for event in events[::7]:
            event.setdefault("args", {})["list"] = [{"name": '}, {"ph"', "ts": 1}, {"ph": "X", "cat": "kernel"}, {"id": 3}]
    if decimals:
        events[40]["ts"] += 0.125
    data = document(events, deviceProperties=[{"id": 0, "name": "A"}, {"id": 1, "name": "A"}])
    whole, cut = load(data), load(data, chunk=chunk)
    for table in ("ops", "calls", "ranges", "names", "payloads"):
        assert getattr(whole, table).equals(getattr(cut, table)), table
    assert whole.ledger == cut.ledger
    assert whole.devices == cut.devices


def test_a_bracket_too_many_ends_no_list_wherever_a_chunk_ends() -> None:
    """Damage that looks like the list's end until one sees that events follow."""
    events = [json.dumps(kernel(10 * place, 5)) for place in range(8)]
    data = ('{"traceEvents": [' + '],{"ph": "i"},'.join(events) + "]}").encode()
    for chunk in (*range(1, 100, 3), *range(100, 600, 20)):
        trace = load(data, chunk=chunk)
        assert trace.ops.height == 8, chunk
        assert codes(trace)["undecodable_event"] == 7, chunk


def packed(data: bytes, how: str) -> bytes:
    buffer = io.BytesIO()
    if how.startswith("zip"):
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(
                "../../t.json" + (".gz" if how == "zip of gzip" else ""), gzip.compress(data) if how == "zip of gzip" else data
            )
        return buffer.getvalue()
    if how == "gzip members":
        return gzip.compress(data[:200]) + gzip.compress(data[200:]) + b"\0" * 20
    return gzip.compress(data) if how == "gzip" else data


@for_each("how", "plain", "gzip", "gzip members", "zip", "zip of gzip")
def test_packings_by_path_and_by_stream(how: str, tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    data = packed(document(small()), how)
    path = tmp_path / "any.name"
    path.write_bytes(data)
    by_path = conform(read(path, display_name="a"))
    by_stream = conform(read(Pipe(data), display_name="a"))
    expected = load(document(small()))
    assert by_path.ops.equals(expected.ops)
    assert by_stream.ops.equals(expected.ops)
    assert by_path.provenance.size == by_stream.provenance.size == len(data)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["any.name"]


FOREIGN = {
    b"": "empty",
    b"   ": "empty",
    b"PARQUET": "not JSON",
    b"{}": "no profiler trace",
    b'{"traceEvents": null}': "not a list",
    b'{"traceEvents": {"a": 1}}': "not a list",
    b'{"traceEvents": []}': "empty list",
    b'{"traceEvents": [], "traceEvents": [{"ph": "X"}]}': "twice",
    b"[]": "empty list",
    b"[1, 2, 3]": "none of the events",
    b'[{"file": "x", "mode": "FULL"}]': "none of the events",
    b'{"schema": "1.0", "nodes": [{"id": 1}]}': "execution trace",
    b'{"data":["a","b"]}\n{"Type":48,"TraceProcessEvent":{}}': "nsys export",
    b"\x28\xb5\x2f\xfd....": "zstd",
    "{}".encode("utf-16"): "UTF-16",
    b"PK\x03\x04 broken": "zip",
    b"\x1f\x8b\x08\x00broken": "empty",
}


@for_each("data", *FOREIGN)
def test_what_is_no_trace_is_refused_with_its_name(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        load(data)
    assert FOREIGN[data] in caught.value.what
    assert caught.value.next_step


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.json", display_name="none.json")
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path, display_name="folder")


# -------------------- a file decoded in parts, by one or several processes, is the same trace

COMMS = {"Collective name": "allreduce", "Group size": 8, "dtype": "Float"}


def events(count: int) -> list[dict[str, object]]:
    made = small(count)
    for index, event in enumerate(made):
        if index % 9 == 0:
            event.setdefault("args", {}).update(
                COMMS | {"In msg nelems": index % 4, "list": [{"ph": "X"}, {"name": "no event"}, {"id": 3}]}
            )
        if event.get("cat") == "kernel":
            event["name"] = f"kernel_{index * index % 37}"
    return [*made, call(5, 1, tid=3), {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "ts": 0, "args": {"name": "last"}}]


def as_rows(trace: Trace) -> dict[str, list[tuple[object, ...]]]:
    """All frames with their texts and payloads in place of ids, which may be numbered otherwise."""
    payloads = trace.payloads.rename({"id": "payload_id"})
    texts = trace.names.rename({"text": "name"}).drop("short")
    return {
        "ops": trace.ops.join(texts.rename({"id": "name_id"}), on="name_id", how="left", maintain_order="left")
        .join(payloads, on="payload_id", how="left", maintain_order="left")
        .drop("name_id", "payload_id")
        .rows(),
        "calls": trace.calls.join(texts.rename({"id": "name_id"}), on="name_id", how="left", maintain_order="left").drop("name_id").rows(),
        "ranges": trace.ranges.join(texts.rename({"id": "text_id"}), on="text_id", how="left", maintain_order="left")
        .join(payloads, on="payload_id", how="left", maintain_order="left")
        .drop("text_id", "payload_id")
        .rows(),
        "threads": trace.threads.rows(),
    }


def test_two_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_json, "PAYS_FROM", 0)
    path = tmp_path / "t.json"
    path.write_bytes(document(events(3000), record_shapes=1) + b"\n")
    one = conform(read(path, display_name="t"))
    assert len(kineto_stream.splits(path, path.read_bytes().index(b"[{") + 1, 2)) == 3
    two = conform(read(path, display_name="t", processes=2))
    assert as_rows(two) == as_rows(one)
    assert (two.ledger, two.provenance, two.ranks, two.devices) == (one.ledger, one.provenance, one.ranks, one.devices)


@for_each("count", 1, 40, 150)
@for_each("pieces", 2, 3, 7)
def test_ranges_join_to_the_whole(count: int, pieces: int, tmp_path: Path) -> None:
    data = document(events(count))
    path = tmp_path / "t.json"
    path.write_bytes(data)
    start = data.index(b'"traceEvents": [') + 16
    ends = kineto_stream.splits(path, start, pieces)
    assert ends == sorted(set(ends))
    parts = [kineto_stream.decode_range(path, low, high, 500, is_last=high == ends[-1]) for low, high in itertools.pairwise(ends)]
    assert sum(part.undecodable for part in parts) == 0
    assert [part.cut for part in parts] == [None] * len(parts)
    whole = kineto_stream.joined([part.part for part in parts])
    single = kineto_stream.decode_stream(kineto_stream.EventStream(iter([data[start:]]), b""))
    assert (whole.read, whole.refused, whole.pids, whole.thread_names) == (
        single.part.read, single.part.refused, single.part.pids, single.part.thread_names,
    )  # fmt: skip
    assert sorted(whole.names) == sorted(single.part.names)
    assert parts[-1].tail == single.tail


def test_a_cut_in_the_last_part_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_json, "PAYS_FROM", 0)
    path = tmp_path / "t.json"
    path.write_bytes(json.dumps({"traceEvents": small(2000)}).encode()[:-3000])
    trace = conform(read(path, display_name="t", processes=2))
    same = conform(read(io.BytesIO(path.read_bytes()), display_name="t"))
    assert trace.ledger == same.ledger
    assert {"data_loss", "error"} & {entry.severity for entry in trace.ledger.entries}
    assert trace.ops.height == same.ops.height


# -------------------- every real PyTorch trace

FOLDER = Path(__file__).parents[2].parent / "shared" / "traces" / "kineto"
FILES = sorted(path for path in FOLDER.glob("*") if path.name.endswith((".json", ".json.gz"))) or [FOLDER / "absent"]
LOOKALIKES = ("execution_details", "simple_add_et.", "timeline-ST")


def totals(trace: Trace) -> dict[int, Totals]:
    origin = trace.provenance.origin_ns
    result = {}
    for (device,), ops in trace.ops.group_by("device"):
        kernels = ops.filter(pl.col("kind") == "kernel")
        result[device] = Totals(
            kernels=kernels.height,
            work=int((kernels["end"] - kernels["start"]).sum()),
            operations=ops.height,
            busy=union_length(ops["start"], ops["end"]),
            first=int(ops["start"].min()) + origin,
            last=int(ops["end"].max()) + origin,
        )
    return result


def test_the_corpus_is_there(real_traces: Path) -> None:
    assert len(FILES) >= 60


@pytest.mark.parametrize("paths", [FILES[::3], pytest.param([path for path in FILES if path not in FILES[::3]], marks=pytest.mark.deep)])
def test_totals_equal_an_independent_reading(paths: list[Path], real_traces: Path) -> None:
    for_each("path", *paths)(totals_are_equal)()


def totals_are_equal(path: Path) -> None:
    events = events_of(path)
    expected = totals_of(events)
    if not expected:
        with pytest.raises(InputError) as caught:
            conform(read(path, display_name=path.name))
        assert path.name in caught.value.what
        assert caught.value.next_step
        launches = sum("Launch" in event.get("name", "") for event in events if event.get("cat") == "cuda_runtime")
        about = f"holds {launches:,} kernel launches" if launches else "holds no GPU work"
        assert any(mark in path.name for mark in LOOKALIKES) == (about not in caught.value.what)
        assert ("without metrics" in caught.value.next_step) == ("cupti_profiler" in path.name)
        return
    trace = conform(read(path, display_name=path.name))
    assert totals(trace) == expected
    origin = trace.provenance.origin_ns
    rows = trace.ops.join(trace.names, left_on="name_id", right_on="id").select(
        "device", pl.col("start") + origin, pl.col("end") + origin, pl.col("kind").cast(pl.String), "text"
    )
    wanted = [(device, *row) for device, found in operations_of(events).items() for row in found]
    assert sorted(rows.rows()) == sorted(wanted)
    assert not {"data_loss", "error"} & {entry.severity for entry in trace.ledger.entries}
    assert trace.ranks[0].rank == trace.ops["rank"][0]
    listed = [event for event in events if "ph" in event]
    assert sum(row.read for row in trace.ledger.rows if row.table != "cuda_sync records") == len(listed)


def test_a_list_of_begin_and_end_events_is_called_what_it_is() -> None:
    half = [
        {"ph": ph, "cat": cat, "name": "f", "pid": 1, "tid": 1, "ts": 10.0 * at}
        for at in range(4)
        for ph in "BE"
        for cat in ("cpu_op", "step")
    ]
    with pytest.raises(InputError, match=r"list of begin and end events \(16 with ph B or E\)"):
        load(json.dumps({"traceEvents": half}).encode())
