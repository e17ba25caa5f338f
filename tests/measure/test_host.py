"""What the host was doing while compute was launch-starved."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from diagnose.measure.host import ALLOCATOR, GC, SYNC, WAITING, call_roles, host_activity
from tests.builders.scene import KNOWLEDGE, Item, Scene, Span, blocked_by, call, causes, run, scene


def gap(*between: Item, spans: tuple[Span, ...] = ()) -> Scene:
    """A GEMM until 10, and another that the host issues at 100 and that starts at 110."""
    return scene([run("gemm", 0, 10, 0), *between, run("gemm", 110, 120, 99)], spans)


# ---------------------------------------------------------------------------------------------------- allocator


@pytest.mark.parametrize(
    "name",
    ["cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaMallocAsync_ptsz", "cudaHostAlloc", "cudaFreeHost", "hipFree", "hipMalloc", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cudaMemPoolTrimTo"],
)  # fmt: skip
def test_time_under_an_allocator_call_is_the_allocators(name: str) -> None:
    one = gap(call(name, 30, 70))
    assert causes(one.stalls(0, 120)) == {"allocator": 40, "dependency_stalled": 10, "launch": 1, "python": 49}
    assert one.host().state.rows() == [(30, 70, ALLOCATOR)]


@pytest.mark.parametrize("name", ["cudaMallocManagedLike", "cudaMemGetInfo", "cudaEventQuery", "cudaStreamIsCapturing", "cudaEventRecord"])
def test_other_calls_are_launching_calls(name: str) -> None:
    assert causes(gap(call(name, 30, 70)).stalls(0, 120)) == {"dependency_stalled": 10, "launch": 41, "python": 49}


def test_calls_of_a_thread_that_launches_nothing_do_not_count() -> None:
    """A data-loader thread that pins memory, a watchdog that asks for events."""
    between = (call("cudaHostAlloc", 20, 90, thread=5), call("cudaEventSynchronize", 20, 95, thread=6))
    assert causes(gap(*between).stalls(0, 120)) == {"dependency_stalled": 10, "launch": 1, "python": 89}


def test_calls_of_another_rank_do_not_count() -> None:
    items = [run("gemm", 0, 10, 0), call("cudaMalloc", 20, 90, rank=1), run("gemm", 110, 120, 99), run("gemm", 0, 10, 0, rank=1)]
    assert causes(scene(items).stalls(0, 120)) == {"dependency_stalled": 10, "launch": 1, "python": 89}


def test_the_autograd_threads_calls_count() -> None:
    backward = run("gemm", 130, 131, 125, thread=2, stream=9)
    items = (call("cudaMalloc", 30, 70, thread=2), run("memset", 75, 76, 72, thread=2, stream=9), backward)
    assert causes(gap(*items).stalls(0, 120)) == {"allocator": 40, "dependency_stalled": 10, "launch": 2, "python": 48}


# ---------------------------------------------------------------------------------------------------- synchronising calls

EXCHANGE = run("nccl", 5, 60, 1, stream=20)
OTHER = run("memset", 61, 65, 2, stream=30)


def test_a_stream_synchronisation_is_split_where_the_streams_work_ended() -> None:
    one = gap(EXCHANGE, OTHER, call("cudaStreamSynchronize", 3, 80, wait="stream_sync", stream=20))
    found = one.stalls(0, 120)
    assert causes(found) == {"blocking": 50, "dependency_stalled": 10, "host_sync": 20, "launch": 1, "python": 19}
    assert blocked_by(found, one) == {"nccl": 50}
    assert one.host().state.rows() == [(3, 60, WAITING), (60, 80, SYNC)]
    assert found.pieces.filter(found.pieces["cause"] == "blocking")["inferred"].to_list() == [False]


def test_a_synchronisation_whose_stream_is_unknown_waits_for_the_last_end_of_any() -> None:
    one = gap(EXCHANGE, OTHER, call("cudaStreamSynchronize", 3, 80))
    found = one.stalls(0, 120)
    assert causes(found) == {"blocking": 54, "dependency_stalled": 10, "host_sync": 16, "launch": 1, "python": 19}  # 60 … 61: nothing ran
    assert found.pieces.filter(found.pieces["cause"] == "blocking")["inferred"].unique().to_list() == [True]


def test_a_synchronisation_of_a_stream_that_was_done_waits_for_nothing() -> None:
    one = gap(EXCHANGE, call("cudaStreamSynchronize", 65, 80, wait="stream_sync", stream=20))
    assert causes(one.stalls(0, 120)) == {"dependency_stalled": 10, "host_sync": 15, "launch": 1, "python": 74}
    assert one.host().blocked["awaited"].to_list() == [None]


def test_a_device_synchronisation_waits_for_every_stream() -> None:
    found = gap(EXCHANGE, OTHER, call("cudaDeviceSynchronize", 3, 80, wait="device_sync", stream=None)).stalls(0, 120)
    assert causes(found) == {"blocking": 54, "dependency_stalled": 10, "host_sync": 16, "launch": 1, "python": 19}


def test_an_allocator_call_inside_a_synchronisation_goes_first() -> None:
    one = gap(EXCHANGE, call("cudaStreamSynchronize", 3, 80, wait="stream_sync", stream=20), call("cudaFree", 50, 70))
    assert causes(one.stalls(0, 120)) == {
        "allocator": 20,
        "blocking": 40,
        "dependency_stalled": 10,
        "host_sync": 10,
        "launch": 1,
        "python": 19,
    }


# ---------------------------------------------------------------------------------------------------- blocking copies


def test_a_pageable_copy_holds_the_host_while_it_runs() -> None:
    one = gap(run("memcpy", 30, 60, 25, until=70, name="cudaMemcpyAsync", pinned=False, copy_kind="d2h"))
    assert causes(one.stalls(0, 120)) == {"blocking": 30, "dependency_stalled": 10, "host_sync": 15, "launch": 1, "python": 44}
    assert one.host().blocked.select("start", "end", "awaited_end", "guessed").rows() == [(25, 70, 60, False)]


def test_a_pageable_copy_that_outlasts_its_call_holds_the_host_until_the_call_returned() -> None:
    """To the device the driver may return once the data is staged."""
    one = gap(run("memcpy", 30, 90, 25, until=40, name="cudaMemcpyAsync", pinned=False, copy_kind="h2d"))
    assert one.host().blocked.select("start", "end", "awaited_end").rows() == [(25, 40, 40)]


def test_a_pinned_asynchronous_copy_does_not_hold_the_host() -> None:
    one = gap(run("memcpy", 30, 60, 25, until=28, name="cudaMemcpyAsync", pinned=True, copy_kind="h2d"))
    assert one.host().blocked.is_empty()
    assert causes(one.stalls(0, 120)) == {"dependency_stalled": 10, "launch": 4, "python": 86}


def test_a_synchronous_copy_holds_the_host() -> None:
    one = gap(run("memcpy", 30, 60, 25, until=70, name="cudaMemcpy", pinned=True, copy_kind="d2h"))
    assert one.host().state.rows() == [(25, 60, WAITING), (60, 70, SYNC)]


# ---------------------------------------------------------------------------------------------------- polled kernels

NOTIFY = "void deep_ep::internode::notify_dispatch<false, 8>(int const*, int*, int)"


def polled(*between: Item, until: int = 60_000, name: str = NOTIFY) -> Scene:
    """A kernel 2 000 … 50 000, launched at 1 000; the host's next call, at `until`, launches the GEMM that starts at `until` + 2 000."""
    kernel = run("nccl", 2_000, 50_000, 1_000, stream=20)
    one = scene([run("gemm", 0, 1_000, 0), kernel, *between, run("gemm", until + 2_000, until + 3_000, until)])
    return replace(one, trace=replace(one.trace, names=one.trace.names.with_columns(pl.col("text").replace("nccl", name))))


def test_a_quiet_host_after_a_polled_kernels_launch_waits_for_its_end() -> None:
    one = polled()
    assert one.host().blocked.select("start", "end", "awaited", "awaited_end", "guessed").rows() == [(1_001, 60_000, 1, 50_000, True)]
    assert one.host().state.rows() == [(1_001, 50_000, WAITING), (50_000, 60_000, SYNC)]
    found = one.stalls(0, 63_000)  # 1 001 … 2 000 the host waited for what did not yet run
    assert causes(found) == {"blocking": 48_000, "dependency_stalled": 1_999, "host_sync": 10_999, "launch": 2}
    assert blocked_by(found, one) == {NOTIFY: 48_000}
    blocking = found.pieces.filter(found.pieces["cause"] == "blocking")
    assert blocking.select("inferred", "through_host").rows() == [(True, True)]
    assert found.bounds["blocking_lower_ns"].to_list() == [0]


@pytest.mark.parametrize("name", [NOTIFY, "deep_ep::intranode::notify_dispatch", "notify_dispatch<8>"])
def test_kernels_whose_end_the_host_polls_for(name: str) -> None:
    assert polled(name=name).host().blocked.height == 1


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::intranode::cached_notify_dispatch<8>(int const*, int)",  # its counts are known: nobody waits
        "void deep_ep::internode::cached_notify<true>(int, int)",
        "void deep_ep::intranode::dispatch<8, 768>(int4*, float*)",
        "notify_dispatcher",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_kernels_that_nobody_polls_for(name: str) -> None:
    one = polled(name=name)
    assert one.host().blocked.is_empty()
    assert causes(one.stalls(0, 63_000))["python"] == 58_999


@pytest.mark.parametrize(("until", "held"), [(50_000, True), (80_000, True), (80_001, False), (150_000, False)])
def test_a_host_that_stays_quiet_long_after_the_kernel_did_not_poll(until: int, held: bool) -> None:
    assert polled(until=until).host().blocked.height == int(held)


@pytest.mark.parametrize(
    ("between", "held"),
    [
        (call("cudaMemGetInfo", 1_001, 31_001), True),  # calls without a pause, until 30 µs after the launch
        (call("cudaMemGetInfo", 1_001, 31_002), False),
        (call("cudaEventQuery", 20_000, 20_001), False),  # a host that polls calls nothing
        (call("cudaMemGetInfo", 49_000, 51_000), False),
        (call("cudaEventQuery", 50_000, 50_001), True),
        (call("cudaEventQuery", 20_000, 20_001, thread=5), True),  # of a thread that launches nothing
    ],
)
def test_only_a_stretch_without_calls_from_launch_to_end_is_polling(between: Item, held: bool) -> None:
    assert polled(between).host().blocked.height == int(held)


def test_a_kernel_that_ended_before_the_host_went_quiet_is_not_polled() -> None:
    done = run("nccl", 1_000, 1_001, 1_000, stream=20)
    one = scene([run("gemm", 0, 1_000, 0), done, run("gemm", 22_000, 23_000, 20_000)])
    renamed = replace(one.trace, names=one.trace.names.with_columns(pl.col("text").replace("nccl", NOTIFY)))
    assert replace(one, trace=renamed).host().blocked.is_empty()


def test_a_polled_kernel_is_one_of_the_rules() -> None:
    one = polled()
    assert host_activity(one.trace, one.work(), 0, replace(KNOWLEDGE.hosts, polled=())).blocked.is_empty()


# ---------------------------------------------------------------------------------------------------- garbage collection, Python


@pytest.mark.parametrize(
    "text",
    ["gc.collect", "GC", "gc: generation 2", "<built-in method collect of module object>", "<built-in function collect>", "python_gc"],
)
def test_a_garbage_collection_range_names_host_work(text: str) -> None:
    one = gap(spans=(Span(text=text, start=20, end=60),))
    assert causes(one.stalls(0, 120)) == {"dependency_stalled": 10, "gc": 40, "launch": 1, "python": 49}
    assert one.host().has_gc_ranges
    assert one.host().state.rows() == [(20, 60, GC)]


@pytest.mark.parametrize(
    "text", ["collect_metrics", "GCN forward", "magic", "logcollect", "<built-in function collective>", "<built-in function recollect>"]
)
def test_ranges_that_only_sound_like_it_do_not(text: str) -> None:
    assert not gap(spans=(Span(text=text, start=20, end=60),)).host().has_gc_ranges


def test_a_synchronisation_inside_a_collection_is_a_synchronisation() -> None:
    one = gap(call("cudaStreamSynchronize", 30, 40), spans=(Span(text="gc.collect", start=20, end=60),))
    assert causes(one.stalls(0, 120)) == {"dependency_stalled": 10, "gc": 30, "host_sync": 10, "launch": 1, "python": 49}


def test_without_calls_nothing_is_known_of_the_host() -> None:
    one = scene([run("gemm", 0, 10), run("gemm", 50, 60)])
    assert not one.host().has_calls
    assert causes(one.stalls(0, 60)) == {"dependency_stalled": 40}


# ---------------------------------------------------------------------------------------------------- families of calls


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cudaLaunchKernel", "launch"),
        ("cudaLaunchKernelExC", "launch"),
        ("cuLaunchKernelEx", "launch"),
        ("hipModuleLaunchKernel", "launch"),
        ("hipExtModuleLaunchKernel", "launch"),
        ("cudaMemcpyAsync", "launch"),
        ("cudaMemsetAsync", "launch"),
        ("cudaGraphLaunch", "graph_launch"),
        ("cudaStreamSynchronize", "synchronise"),
        ("hipStreamSynchronize", "synchronise"),
        ("hipMemcpyWithStream", "synchronise"),
        ("cudaMemcpy", "synchronise"),
        ("cuCtxSynchronize", "synchronise"),
        ("cudaMalloc", "allocator"),
        ("cudaStreamBeginCapture", None),
        ("cudaStreamWaitEvent", None),
    ],
)
def test_the_family_of_a_call(name: str, role: str | None) -> None:
    trace = scene([run("gemm", 0, 10, 0), call(name, 20, 30)]).trace
    found = {trace.names["text"][row[0]]: row[1] for row in call_roles(trace.names, trace.calls, KNOWLEDGE.hosts).iter_rows()}
    assert found.get(name) == role


# ---------------------------------------------------------------------------------------------------- known to be wrong


def test_waiting_for_the_device_is_not_guessed() -> None:
    one = gap(EXCHANGE, call("cudaDeviceSynchronize", 3, 80, wait="device_sync", stream=None))
    assert one.host().blocked["guessed"].to_list() == [False]


@pytest.mark.parametrize("copy", [{"copy_kind": "d2d"}, {"copy_kind": "h2d", "pinned": True}])
def test_a_copy_quicker_than_its_asynchronous_call_does_not_hold_the_host(copy: dict[str, object]) -> None:
    one = gap(run("memcpy", 36, 38, 30, until=50, name="cudaMemcpyAsync", **copy))
    assert one.host().blocked.is_empty()


def test_another_threads_waiting_does_not_explain_why_this_thread_was_late() -> None:
    helper = (run("memcpy", 11, 90, 2, thread=2, stream=9), call("cudaStreamSynchronize", 3, 95, thread=2, wait="stream_sync", stream=9))
    assert causes(gap(*helper).stalls(0, 120)) == {"dependency_stalled": 10, "launch": 1, "python": 89}


def test_the_awaited_operation_is_that_of_the_call_that_still_waits() -> None:
    program = (
        EXCHANGE,
        run("memset", 0, 1, 1, thread=2, stream=9),
        call("cudaStreamSynchronize", 3, 80, wait="stream_sync", stream=20),
        call("cudaStreamSynchronize", 20, 25, thread=2, wait="stream_sync", stream=9),
    )
    one = gap(*program)
    assert blocked_by(one.stalls(0, 120), one) == {"nccl": 50}
