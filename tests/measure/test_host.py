"""What the host was doing while compute was launch-starved."""

import polars as pl
from msgspec import structs

from diagnose.measure.host import ALLOCATOR, GC, MANY_LAUNCHES, SYNC, WAITING, call_roles, host_activity, host_counts, launch_gaps
from diagnose.measure.steps import inside_windows
from diagnose.reason.findings import find
from tests.builders.cases import for_each
from tests.builders.facts import facts
from tests.builders.records import replace
from tests.builders.scene import KNOWLEDGE, Item, Scene, Span, blocked_by, call, causes, facts_of, run, scene
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
    **{f"allocator: {name}": ([call(name, 30, 70)], {"allocator": 40, "launch": 1, "host": 49}) for name in ALLOCATOR_CALLS.split()},
    **{f"a launching call: {name}": ([call(name, 30, 70)], {"launch": 41, "host": 49}) for name in OTHER_CALLS.split()},
    # A data-loader thread that pins memory, a watchdog that asks for events.
    "calls of a thread that launches nothing do not count": (
        [call("cudaHostAlloc", 20, 90, thread=5), call("cudaEventSynchronize", 20, 95, thread=6)], {"launch": 1, "host": 89}),
    "calls of another rank do not count": (
        [call("cudaMalloc", 20, 90, rank=1), run("gemm", 0, 10, 0, rank=1)], {"launch": 1, "host": 89}),
    "the autograd thread's calls count": (
        [call("cudaMalloc", 30, 70, thread=2), *BACKWARD], {"allocator": 40, "launch": 2, "host": 48}),
    "a stream synchronisation is split where the stream's work ended": (
        [EXCHANGE, OTHER, synchronised()], {"blocking": 50, "host_sync": 20, "launch": 1, "host": 19}),
    # 60 … 61 nothing ran.
    "of an unknown stream it waits for the last end of any": (
        [EXCHANGE, OTHER, call("cudaStreamSynchronize", 3, 80)], {"blocking": 54, "host_sync": 16, "launch": 1, "host": 19}),
    "of a stream that was done it waits for nothing": (
        [EXCHANGE, synchronised(65)], {"host_sync": 15, "launch": 1, "host": 74}),
    "a device synchronisation waits for every stream": (
        [EXCHANGE, OTHER, DEVICE_SYNC], {"blocking": 54, "host_sync": 16, "launch": 1, "host": 19}),
    "an allocator call inside a synchronisation goes first": (
        [EXCHANGE, synchronised(), call("cudaFree", 50, 70)], {"allocator": 20, "blocking": 40, "host_sync": 10, "launch": 1, "host": 19}),
    "a pageable copy holds the host while it runs": (
        [copied(30, 60, 25, 70, pinned=False, copy_kind="d2h")], {"blocking": 30, "host_sync": 15, "launch": 1, "host": 44}),
    "a pinned asynchronous copy does not": ([copied(30, 60, 25, 28, pinned=True, copy_kind="h2d")], {"launch": 4, "host": 86}),
    "another thread's waiting does not explain why this one was late": (HELD_ELSEWHERE, {"launch": 1, "host": 89}),
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


def test_synchronisations_that_dispatch_waits_for_are_told_from_others() -> None:
    """One before the permutation, one before the experts and the memory set in front of them, one before a product."""
    syncs = [call("cudaStreamSynchronize", at, at + 5, wait="stream_sync", stream=7) for at in (110, 210, 310)]
    permuted = [run("gemm", 100, 105, 20), syncs[0], run("permute", 130, 140, 120)]
    one = scene([*permuted, syncs[1], run("memset", 222, 224, 220), run("expert", 230, 240, 225), syncs[2], run("gemm", 330, 340, 320)])
    window = pl.DataFrame({"index": [0], "start": [100], "end": [340]}, schema={"index": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    counted = host_counts(one.host(), inside_windows(one.work(), window), window)
    assert counted.select("sync_calls_per_step", "dispatch_syncs_per_step").row(0) == (3, 2)


def test_what_the_optimizer_reads_is_told_from_other_synchronisations() -> None:
    """The gradient norm is read before the update, a loss after the products."""
    syncs = [call("cudaStreamSynchronize", at, at + 5, wait="stream_sync", stream=7) for at in (110, 210)]
    one = scene([run("gemm", 100, 105, 20), syncs[0], run("adam", 130, 140, 120), syncs[1], run("gemm", 230, 240, 220)])
    window = pl.DataFrame({"index": [0], "start": [100], "end": [240]}, schema={"index": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    counted = host_counts(one.host(), inside_windows(one.work(), window), window)
    assert counted.select("sync_calls_per_step", "optimizer_syncs_per_step").row(0) == (2, 1)


@for_each("wait, inferred", (synchronised(), False), (call("cudaStreamSynchronize", 3, 80), True))
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


# ---------------------------------------------------------------------------------------------------- page migrations


def migration(start: int, end: int) -> Item:
    """A copy that no call asked for: the driver moves a page of unified memory."""
    return run("memcpy", start, end, correlation=0, stream=0, copy_kind="d2h")


def test_calls_for_steps_that_are_not_judged_count_for_none() -> None:
    """A capture begins and ends in the middle of a step: only the one in between is cut."""
    turns = [
        item
        for at in (0, 1000, 2000)
        for item in (
            run("gemm", at + 100, at + 200, at + 10),
            call("cudaStreamSynchronize", at + 20, at + 205, wait="stream_sync", stream=7),
        )
    ]
    one = scene(turns)
    window = pl.DataFrame({"index": [0], "start": [1100], "end": [2100]}, schema={"index": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    counted = host_counts(one.host(), inside_windows(one.work(), window), window)
    assert counted["sync_calls_per_step"].to_list() == [2], "its own, and that of the next, which begins before this one ends on the GPU"


def test_the_host_reads_results_behind_the_last_kernel_and_pages_come_for_it() -> None:
    one = scene([run("gemm", 2, 10, 0), migration(40, 45), migration(80, 85)])
    assert causes(one.stalls(2, 85)) == {"blocking": 5, "host": 70}
    assert one.work()["issued"].to_list() == [1, 40, 80]


def test_no_page_migration_lacks_a_launch() -> None:
    (device,) = scene([run("gemm", 2, 10, 0), *(migration(start, start + 5) for start in range(20, 80, 10))]).measure()
    assert (device.recorded.operations, device.recorded.launched) == (7, 7)
    assert device.counts["launch_calls_per_step"].to_list() == [1]
    (device,) = scene([run("gemm", 2, 10), migration(20, 25)]).measure()
    assert device.recorded.launched == 0, "a trace without launches tells nothing of copies either"


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


@for_each("name", NOTIFY, "deep_ep::intranode::notify_dispatch", "notify_dispatch<8>")
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
    assert causes(polled(name=name).stalls(0, 63_000))["host"] == 58_999  # nothing held the host


@for_each("until, held", (50_000, True), (150_000, True), (150_001, False), (250_000, False))
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
    assert causes(one.stalls(0, 120)) == {"dependency_stalled": 10, "gc": 40, "launch": 1, "host": 49}
    assert one.host().has_gc_ranges
    assert one.host().state.rows() == [(20, 60, GC)]


@for_each(
    "text", "collect_metrics", "GCN forward", "magic", "logcollect", "<built-in function collective>", "<built-in function recollect>"
)
def test_ranges_that_only_sound_like_it_do_not(text: str) -> None:
    assert not gap(spans=(Span(text=text, start=20, end=60),)).host().has_gc_ranges


def test_a_synchronisation_inside_a_collection_is_a_synchronisation() -> None:
    one = gap(call("cudaStreamSynchronize", 30, 40), spans=(Span(text="gc.collect", start=20, end=60),))
    assert causes(one.stalls(0, 120)) == {"dependency_stalled": 10, "gc": 30, "host_sync": 10, "launch": 1, "host": 49}


# ---------------------------------------------------------------------------------------------------- families of calls


@for_each(
    "name, role",
    ("cudaLaunchKernel", "launch"), ("cudaLaunchKernelExC", "launch"), ("cuLaunchKernelEx", "launch"),
    ("hipModuleLaunchKernel", "launch"), ("hipExtModuleLaunchKernel", "launch"), ("cudaMemcpyAsync", "launch"),
    ("cudaMemsetAsync", "launch"), ("cudaGraphLaunch", "graph_launch"), ("cudaStreamSynchronize", "synchronise"),
    ("hipStreamSynchronize", "synchronise"), ("hipMemcpyWithStream", "synchronise"), ("cudaMemcpy", "synchronise"),
    ("cuCtxSynchronize", "synchronise"), ("cudaMalloc", "allocator"), ("cudaStreamBeginCapture", None), ("cudaStreamWaitEvent", None),
)  # fmt: skip
def test_the_family_of_a_call(name: str, role: str | None) -> None:
    trace = scene([run("gemm", 0, 10, 0), call(name, 20, 30)]).trace
    found = {trace.names["text"][row[0]]: row[1] for row in call_roles(trace.names, trace.calls, KNOWLEDGE.hosts).iter_rows()}
    assert found.get(name) == role


# ---------------------------------------------------------------------------------------------------- what the host does in long gaps

MS = 1_000_000


def paused(*between: Item, spans: tuple[Span, ...] = ()) -> Scene:
    """Four GEMMs of 1 ms, the host 0.1 ms late for the third and 8 ms late for the last, which it issues at 11 ms."""
    gemms = [
        run("gemm", 0, MS, 0),
        run("gemm", MS, 2 * MS, 1),
        run("gemm", 2 * MS + 100_000, 3 * MS, 2 * MS + 99_999),
        *between,
        run("gemm", 11 * MS, 12 * MS, 11 * MS - 1),
    ]
    return scene(gemms, spans)


def over(text: str, start: int = 3, end: int = 11, **more: object) -> tuple[Span, ...]:
    return (Span(text=text, start=start * MS, end=end * MS, **more),)  # type: ignore[arg-type]


SHARE = ("host_gap_excess_ns", "data_loading_ns", "message_passing_ns", "gc_ns")
# What covers the pause 3 … 11 ms, and what each of SHARE gets of it; most launches were in time or late by 0.1 ms.
PAUSES: dict[str, tuple[Scene, tuple[int, int, int, int | None], str | None]] = {
    "nothing": (paused(), (8 * MS, 0, 0, None), None),
    "the innermost range that covers half of it": (
        paused(spans=(*over("outer"), *over("inner", 4, 9), *over("brief", 5, 6), *over("elsewhere", thread=9))),
        (8 * MS, 0, 0, None), "inner (8.00 ms)"),
    "a Python frame": (
        paused(spans=(*over("train.py(9): loop", 0, 60, kind="frame"), *over("train.py(7): save", kind="frame"))),
        (8 * MS, 0, 0, None), "train.py(7): save (8.00 ms)"),
    "a Python frame around much more names nothing": (
        paused(spans=over("train.py(9): loop", 0, 60, kind="frame")), (8 * MS, 0, 0, None), None),
    "a range that marks a step names nothing": (paused(spans=over("iteration 3", 0, 12)), (8 * MS, 0, 0, None), None),
    "a launching call that takes long": (
        paused(call("cudaLaunchKernel", 4 * MS, 10 * MS)), (8 * MS, 0, 0, None), "cudaLaunchKernel (6.00 ms)"),
    "a lock of another thread, in a range of the user's": (
        paused(spans=(*over("layer"), *over("pthread_mutex_lock", 4, 10, kind="system"))), (8 * MS, 0, 0, None), "pthread_mutex_lock (8.00 ms)"),
    "a data loader": (
        paused(spans=over("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 4, 10)),
        (2 * MS, 6 * MS, 0, None), None),
    "a loader on another thread": (paused(spans=over("get_batch", thread=9)), (8 * MS, 0, 0, None), None),
    "message passing": (paused(spans=over("MPI_Allreduce", 4, 10)), (2 * MS, 0, 6 * MS, None), None),
    "message passing that synchronises": (
        paused(call("cudaStreamSynchronize", 5 * MS, 6 * MS), spans=over("MPI_Waitall", 4, 10)), (2 * MS, 0, 6 * MS, None), None),
    "garbage collection": (paused(spans=over("gc.collect", 4, 10)), (2 * MS, 0, 0, 6 * MS), None),
}  # fmt: skip


@for_each(
    "spans, covered",
    (None, None),
    ((), 0),
    (((3 * MS + 500_000, 5 * MS), (9 * MS, 40 * MS)), 1_500_000 + 2 * MS),  # the pause lasts from 3 to 11 ms
    (((0, 2 * MS), (11 * MS, 12 * MS)), 0),
)
def test_what_the_profiler_does_itself_in_a_pause_is_known_apart(spans: tuple[tuple[int, int], ...] | None, covered: int | None) -> None:
    seen = paused()
    found = facts_of(replace(seen, trace=replace(seen.trace, provenance=replace(seen.trace.provenance, overhead=spans))))
    assert (found["host_gap_excess_ns"], found["host_gap_profiler_ns"]) == (8 * MS, covered)


@for_each(
    "loaded, copies, fetches",
    ((), False, True),
    ((1, 2, 3), False, False),  # a loader in each step
    ((1,), False, True),
    ((1, 2, 3), True, True),  # ranges that copy the batch as well
)
def test_a_pause_outside_a_loaders_own_ranges_fetches_no_batch(loaded: tuple[int, ...], copies: bool, fetches: bool) -> None:
    """Steps of 20 ms: 12 forward, then 8 backward, and 10 ms in which the CPU does what no range names."""
    begins = [step * 30 * MS for step in (1, 2, 3)]
    items = [
        run("gemm", at + place * MS, at + (place + 1) * MS, at - 2000 + place, phase="forward" if place < 12 else "backward")
        for at in begins
        for place in range(20)
    ]
    steps = [Span(text=f"step {place}", start=at - 3000, end=at + 27 * MS - 3000) for place, at in enumerate(begins)]
    loader = [Span(text="data loader", start=begins[step - 1] - 2900, end=begins[step - 1] - 2100) for step in loaded]
    calls = [call("cudaPointerGetAttributes", at - 2800, at - 2700) for at in begins if copies]
    found = facts_of(scene([*items, *calls], [*steps, *loader]))
    assert 9 * MS < int(str(found["host_gap_excess_ns"])) < 11 * MS
    assert (found["batch_pauses_ns"] is not None) == fetches


@for_each(
    "spans, named",
    (over("rollout"), "rollout"),
    ((*over("rollout"), *over("inner", 4, 11)), "inner"),  # the shortest that holds nearly all
    (over("a half", 3, 7), None),
    (over("the whole", 0, 12), None),
    (over("ProfilerStep#7"), None),  # that it lies in a step is known
    ((), None),
)
def test_the_range_that_holds_nearly_all_launch_starved_time_is_named(spans: tuple[Span, ...], named: str | None) -> None:
    assert facts_of(paused(spans=spans))["launch_starved_range"] == named


@for_each("one, shares, named", *PAUSES.values())
def test_a_long_pause_goes_by_what_covers_it(one: Scene, shares: tuple[int, int, int, int | None], named: str | None) -> None:
    found = facts_of(one)
    assert tuple(found[name] for name in SHARE) == shares
    assert found["host_pauses"] == named
    assert found["host_pause_most"] == (named.split(" (")[0] if named else None)
    assert found["launch_starved_ns"] == found["host_work_ns"] == 8 * MS + 100_000
    assert found["sync_restart_ns"] == 0


def test_a_place_of_hardly_any_of_the_long_pauses_is_not_told() -> None:
    """60 ms in one range and 2.5 ms in another are no two places where most of it is. Usual is a host that is late by 0.1 ms."""
    starts = [0, MS, 2_100_000, 63 * MS, 66_500_000, 67_600_000, 68_700_000]
    gemms = [run("gemm", start, start + MS, max(start - 1, 0)) for start in starts]
    found = facts_of(scene(gemms, (*over("save", 4, 63), *over("log", 64, 66))))
    assert found["host_gap_excess_ns"] == 62_400_000
    assert found["host_pauses"] == "save (59.90 ms)"
    part = facts_of(scene(gemms, over("Optimizer.step#CPUAdam.step", 4, 63)))
    assert part["host_pauses"] == "Optimizer.step#CPUAdam.step (59.90 ms)", "it marks a step's end, and says which part of the step runs"
    unnamed = facts_of(scene(gemms, over("log", 64, 66)))
    assert (unnamed["host_gap_excess_ns"], unnamed["host_pauses"]) == (62_400_000, None), "most of the pauses lies in no range"


@for_each("text, cause", ("aten::add", "python"), ("train.py(12): step", "python"), ("solve", "host"))
def test_python_is_said_only_where_python_runs(text: str, cause: str) -> None:
    (measured,) = paused(spans=over(text, 0, 1)).measure()
    assert set(measured.causes.host["cause"]) == {cause, "launch"}
    assert (facts_of(paused(spans=over(text, 0, 1)))["python_gap_ns"] is not None) == (cause == "python")


# ---------------------------------------------------------------------------------------------------- hold-ups

US = 1_000


def held(*, returns: int = 40, slow: int = 0) -> Scene:
    """Four GEMMs of 10 µs that are issued at once, so that the host leads by four; it waits for them until `returns` µs and needs 2 µs for
    each of the next, which run for 1 µs: it never leads by four again. The seventh launching call takes `slow` µs more.
    """
    first = [run("gemm", 10 * US * place, 10 * US * (place + 1), place * 10) for place in range(4)]
    wait = call("cudaStreamSynchronize", US, returns * US, wait="stream_sync", stream=7)
    later, at = [], returns
    for place in range(5):
        began, at = at, at + 2 + (slow if place == 2 else 0)
        later.append(run("gemm", at * US, (at + 1) * US, (began + 1) * US, until=at * US))
    return scene([*first, wait, *later])


def test_a_synchronisation_is_charged_with_the_whole_hold_up() -> None:
    """Each of the five launches after it is late: 2 µs, then four times 1 µs, and no gap has a cause of its own."""
    found = facts_of(held())
    assert (found["host_sync_ns"], found["sync_restart_ns"], found["launch_starved_ns"]) == (0, 6 * US, 6 * US)


def test_a_synchronisation_is_charged_with_no_more_than_its_own_length() -> None:
    """The four GEMMs lead at 37 … 41 µs of work left only; the call takes 3 µs of which 1 lies in the gap."""
    items = [run("gemm", 0, 40 * US, 0), call("cudaStreamSynchronize", 38 * US, 41 * US, wait="stream_sync", stream=7)]
    late = [run("gemm", 60 * US, 61 * US, 50 * US, until=60 * US)]
    found = facts_of(scene([*items, *late]))
    assert (found["host_sync_ns"], found["sync_restart_ns"], found["host_work_ns"]) == (US, 2 * US, 19 * US)


def test_after_the_host_leads_again_gaps_are_its_own() -> None:
    """It led by one; at the first launch after the call it does again, and the gap 30 … 90 µs is not the call's."""
    items = [
        run("gemm", 0, 20 * US, 0),
        call("cudaStreamSynchronize", US, 20 * US, wait="stream_sync", stream=7),
        run("gemm", 22 * US, 30 * US, 21 * US, until=22 * US),
        run("gemm", 90 * US, 91 * US, 89 * US, until=90 * US),
    ]
    found = facts_of(scene(items))
    assert (found["sync_restart_ns"], found["host_work_ns"]) == (2 * US, 62 * US)


def test_a_launching_call_that_takes_long_is_never_charged_to_the_synchronisation_before_it() -> None:
    """Its 1.5 ms are its own, however long the call before held the host."""
    scaled = held(slow=1_500)
    found = facts_of(scaled)
    assert found["host_gap_excess_ns"] == 1_501 * US
    assert found["host_pauses"] == "cudaLaunchKernel (1.50 ms)"
    assert found["sync_restart_ns"] == 5 * US


def test_two_findings_never_claim_the_same_time() -> None:
    """A collection of 31.5 ms that nothing marks comes before CUDA graphs, which would not remove it."""
    told = facts(
        launch_starved_ns=37_600_000, host_work_ns=36_100_000, host_sync_ns=1_500_000, sync_restart_ns=1_000_000,
        host_gap_excess_ns=31_500_000,
    )  # fmt: skip
    findings, _ = find(told, job=None, rulebook=KNOWLEDGE.rulebook)
    claims = {one.id: one.bound_ns for one in findings if one.wall == "host_overhead"}
    assert claims == {"host-long-gaps": 31_500_000, "host-synchronisation": 2_500_000}
    told = facts(launch_starved_ns=37_600_000, host_sync_ns=1_500_000, sync_restart_ns=1_000_000, host_gap_excess_ns=21_500_000)
    findings, _ = find(told, job=None, rulebook=KNOWLEDGE.rulebook)
    claims = {one.id: one.bound_ns for one in findings if one.wall == "host_overhead"}
    assert sum(value or 0 for value in claims.values()) == 37_600_000
    assert claims["host-launch-starved"] == 13_600_000


def launched(gaps: list[int], call_ns: int = 5, thread: int = 1) -> pl.DataFrame:
    """Operations of a step whose launching calls lie so far apart on one thread."""
    at, rows = 0, []
    for pause in gaps:
        rows.append({"index": 0, "thread": thread, "call_start": at, "issued": at + call_ns})
        at += call_ns + pause
    return pl.DataFrame(rows, schema=dict.fromkeys(("index", "thread", "call_start", "issued"), pl.Int64))


def test_the_usual_time_between_launches_is_told_apart_from_pauses_blocking_calls_and_graphs() -> None:
    usual = [9, 10, 11] * MANY_LAUNCHES

    def gap_of(*frames: pl.DataFrame) -> list[int]:
        return launch_gaps(pl.concat(frames))["launch_gap_median_ns"].to_list()

    assert gap_of(launched(usual)) == [10]
    assert gap_of(launched([*usual, *[5_000_000] * 20])) == [10], "few pauses leave it as it is"
    assert gap_of(launched(usual, call_ns=4_000)) == [10], "a call that blocks is no part of it"
    assert gap_of(launched([2 * one for one in usual])) == [20]
    assert gap_of(launched(usual), launched([2 * one for one in usual], thread=2)) == [14], "of all threads, each by itself"
    graph = launched(usual)
    assert gap_of(graph, *[graph.head(1)] * 400) == [10], "the nodes of a graph share their launch"
    assert gap_of(launched(usual[: MANY_LAUNCHES - 1])) == [], "of few launches it is not told"
    unknown = launched(usual).with_columns(pl.lit(None, pl.Int64).alias("call_start"))
    assert gap_of(unknown) == []
