"""What the host was doing while compute was launch-starved."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from msgspec import structs

from diagnose.measure.host import ALLOCATOR, GC, SYNC, WAITING, call_roles, host_activity
from tests.builders.cases import for_each
from tests.builders.scene import KNOWLEDGE, Item, Scene, Span, blocked_by, call, causes, run, scene
from tests.builders.scene import host_gap as gap


def synchronised(start: int = 3, end: int = 80, **more: object) -> Item:
    """The host waits for stream 20 (or another that `more` names)."""
    return call("cudaStreamSynchronize", start, end, **{"wait": "stream_sync", "stream": 20} | more)


def copied(start: int, end: int, at: int, until: int, name: str = "cudaMemcpyAsync", **more: object) -> Item:
    return run("memcpy", start, end, at, until=until, name=name, **more)


ALLOCATOR_CALLS = (
    "cudaMalloc cudaFree cudaMallocAsync cudaMallocAsync_ptsz cudaHostAlloc cudaFreeHost hipFree hipMalloc cuMemMap cuMemUnmap "
    "cuMemSetAccess cudaMemPoolTrimTo"
)
OTHER_CALLS = "cudaMallocManagedLike cudaMemGetInfo cudaEventQuery cudaStreamIsCapturing cudaEventRecord"
EXCHANGE = run("nccl", 5, 60, 1, stream=20)
OTHER = run("memset", 61, 65, 2, stream=30)
BACKWARD = [run("memset", 75, 76, 72, thread=2, stream=9), run("gemm", 130, 131, 125, thread=2, stream=9)]
DEVICE_SYNC = call("cudaDeviceSynchronize", 3, 80, wait="device_sync", stream=None)
HELD_ELSEWHERE = [copied(11, 90, 2, 3, thread=2, stream=9), synchronised(3, 95, thread=2, stream=9)]

# What stands between the two GEMMs, and why compute was absent 10 … 110, without the 10 ns that the last launch takes to arrive.
GAPS: dict[str, tuple[list[Item], dict[str, int]]] = {
    **{f"allocator: {name}": ([call(name, 30, 70)], {"allocator": 40, "launch": 1, "python": 49}) for name in ALLOCATOR_CALLS.split()},
    **{f"a launching call: {name}": ([call(name, 30, 70)], {"launch": 41, "python": 49}) for name in OTHER_CALLS.split()},
    # A data-loader thread that pins memory, a watchdog that asks for events.
    "calls of a thread that launches nothing do not count": (
        [call("cudaHostAlloc", 20, 90, thread=5), call("cudaEventSynchronize", 20, 95, thread=6)], {"launch": 1, "python": 89}),
    "calls of another rank do not count": (
        [call("cudaMalloc", 20, 90, rank=1), run("gemm", 0, 10, 0, rank=1)], {"launch": 1, "python": 89}),
    "the autograd thread's calls count": (
        [call("cudaMalloc", 30, 70, thread=2), *BACKWARD], {"allocator": 40, "launch": 2, "python": 48}),
    "a stream synchronisation is split where the stream's work ended": (
        [EXCHANGE, OTHER, synchronised()], {"blocking": 50, "host_sync": 20, "launch": 1, "python": 19}),
    # 60 … 61 nothing ran.
    "of an unknown stream it waits for the last end of any": (
        [EXCHANGE, OTHER, call("cudaStreamSynchronize", 3, 80)], {"blocking": 54, "host_sync": 16, "launch": 1, "python": 19}),
    "of a stream that was done it waits for nothing": (
        [EXCHANGE, synchronised(65)], {"host_sync": 15, "launch": 1, "python": 74}),
    "a device synchronisation waits for every stream": (
        [EXCHANGE, OTHER, DEVICE_SYNC], {"blocking": 54, "host_sync": 16, "launch": 1, "python": 19}),
    "an allocator call inside a synchronisation goes first": (
        [EXCHANGE, synchronised(), call("cudaFree", 50, 70)], {"allocator": 20, "blocking": 40, "host_sync": 10, "launch": 1, "python": 19}),
    "a pageable copy holds the host while it runs": (
        [copied(30, 60, 25, 70, pinned=False, copy_kind="d2h")], {"blocking": 30, "host_sync": 15, "launch": 1, "python": 44}),
    "a pinned asynchronous copy does not": ([copied(30, 60, 25, 28, pinned=True, copy_kind="h2d")], {"launch": 4, "python": 86}),
    "another thread's waiting does not explain why this one was late": (HELD_ELSEWHERE, {"launch": 1, "python": 89}),
}  # fmt: skip


@for_each("between, why", *GAPS.values())
def test_why_compute_was_absent(between: list[Item], why: dict[str, int]) -> None:
    assert causes(gap(*between).stalls(0, 120)) == {"dependency_stalled": 10, **why}


@for_each(
    "between, state",
    ([call("cudaMalloc", 30, 70)], [(30, 70, ALLOCATOR)]),
    ([EXCHANGE, OTHER, synchronised()], [(3, 60, WAITING), (60, 80, SYNC)]),
    ([copied(30, 60, 25, 70, "cudaMemcpy", pinned=True, copy_kind="d2h")], [(25, 60, WAITING), (60, 70, SYNC)]),
)
def test_the_state_of_the_host(between: list[Item], state: list[tuple[int, int, str]]) -> None:
    assert gap(*between).host().state.rows() == state


@for_each(
    "between, blocked",
    ([EXCHANGE, synchronised(65)], [(65, 80, None, 65, False)]),  # the stream was done
    ([EXCHANGE, DEVICE_SYNC], [(3, 80, 1, 60, False)]),  # waiting for the device is not guessed
    ([copied(30, 60, 25, 70, pinned=False, copy_kind="d2h")], [(25, 70, 1, 60, False)]),
    # A copy that outlasts its call holds the host until that returned: to the device the driver may return once the data is staged.
    ([copied(30, 90, 25, 40, pinned=False, copy_kind="h2d")], [(25, 40, 1, 40, False)]),
    ([copied(30, 60, 25, 28, pinned=True, copy_kind="h2d")], []),
    # A copy quicker than its asynchronous call.
    ([copied(36, 38, 30, 50, copy_kind="d2d")], []),
    ([copied(36, 38, 30, 50, copy_kind="h2d", pinned=True)], []),
)
def test_what_held_the_host(between: list[Item], blocked: list[tuple[int, int, int | None, int, bool]]) -> None:
    assert gap(*between).host().blocked.select("start", "end", "awaited", "awaited_end", "guessed").rows() == blocked


@pytest.mark.parametrize(("wait", "inferred"), [(synchronised(), False), (call("cudaStreamSynchronize", 3, 80), True)])
def test_blocking_behind_an_unknown_stream_is_inferred(wait: Item, inferred: bool) -> None:
    one = gap(EXCHANGE, OTHER, wait)
    found = one.stalls(0, 120)
    assert found.pieces.filter(found.pieces["cause"] == "blocking")["inferred"].unique().to_list() == [inferred]
    assert blocked_by(found, one)["nccl"] == 50


def test_the_awaited_operation_is_that_of_the_call_that_still_waits_and_without_calls_none_is() -> None:
    one = gap(EXCHANGE, run("memset", 0, 1, 1, thread=2, stream=9), synchronised(), synchronised(20, 25, thread=2, stream=9))
    assert blocked_by(one.stalls(0, 120), one) == {"nccl": 50}
    one = scene([run("gemm", 0, 10), run("gemm", 50, 60)])
    assert not one.host().has_calls
    assert causes(one.stalls(0, 60)) == {"dependency_stalled": 40}


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


@for_each(
    "name",
    "void deep_ep::intranode::cached_notify_dispatch<8>(int const*, int)",  # its counts are known: nobody waits
    "void deep_ep::internode::cached_notify<true>(int, int)",
    "void deep_ep::intranode::dispatch<8, 768>(int4*, float*)",
    "notify_dispatcher",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
)
def test_kernels_that_nobody_polls_for(name: str) -> None:
    assert causes(polled(name=name).stalls(0, 63_000))["python"] == 58_999  # nothing held the host


@pytest.mark.parametrize(("until", "held"), [(50_000, True), (80_000, True), (80_001, False), (150_000, False)])
def test_a_host_that_stays_quiet_long_after_the_kernel_did_not_poll(until: int, held: bool) -> None:
    assert polled(until=until).host().blocked.height == int(held)


@for_each(
    "between, held",
    (call("cudaMemGetInfo", 1_001, 31_001), True),  # calls without a pause, until 30 µs after the launch
    (call("cudaMemGetInfo", 1_001, 31_002), False),
    (call("cudaEventQuery", 20_000, 20_001), False),  # a host that polls calls nothing
    (call("cudaMemGetInfo", 49_000, 51_000), False),
    (call("cudaEventQuery", 50_000, 50_001), True),
    (call("cudaEventQuery", 20_000, 20_001, thread=5), True),  # of a thread that launches nothing
)
def test_only_a_stretch_without_calls_from_launch_to_end_is_polling(between: Item, held: bool) -> None:
    assert polled(between).host().blocked.height == int(held)


def test_only_a_running_kernel_of_the_rules_is_polled() -> None:
    done = run("nccl", 1_000, 1_001, 1_000, stream=20)
    one = scene([run("gemm", 0, 1_000, 0), done, run("gemm", 22_000, 23_000, 20_000)])
    renamed = replace(one.trace, names=one.trace.names.with_columns(pl.col("text").replace("nccl", NOTIFY)))
    assert replace(one, trace=renamed).host().blocked.is_empty()
    one = polled()
    assert host_activity(one.trace, one.work(), 0, structs.replace(KNOWLEDGE.hosts, polled=())).blocked.is_empty()


# ---------------------------------------------------------------------------------------------------- garbage collection, Python


@for_each(
    "text", "gc.collect", "GC", "gc: generation 2", "<built-in method collect of module object>", "<built-in function collect>", "python_gc"
)
def test_a_garbage_collection_range_names_host_work(text: str) -> None:
    one = gap(spans=(Span(text=text, start=20, end=60),))
    assert causes(one.stalls(0, 120)) == {"dependency_stalled": 10, "gc": 40, "launch": 1, "python": 49}
    assert one.host().has_gc_ranges
    assert one.host().state.rows() == [(20, 60, GC)]


@for_each(
    "text", "collect_metrics", "GCN forward", "magic", "logcollect", "<built-in function collective>", "<built-in function recollect>"
)
def test_ranges_that_only_sound_like_it_do_not(text: str) -> None:
    assert not gap(spans=(Span(text=text, start=20, end=60),)).host().has_gc_ranges


def test_a_synchronisation_inside_a_collection_is_a_synchronisation() -> None:
    one = gap(call("cudaStreamSynchronize", 30, 40), spans=(Span(text="gc.collect", start=20, end=60),))
    assert causes(one.stalls(0, 120)) == {"dependency_stalled": 10, "gc": 30, "host_sync": 10, "launch": 1, "python": 49}


# ---------------------------------------------------------------------------------------------------- families of calls


@for_each(
    "name, role",
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
)
def test_the_family_of_a_call(name: str, role: str | None) -> None:
    trace = scene([run("gemm", 0, 10, 0), call(name, 20, 30)]).trace
    found = {trace.names["text"][row[0]]: row[1] for row in call_roles(trace.names, trace.calls, KNOWLEDGE.hosts).iter_rows()}
    assert found.get(name) == role
