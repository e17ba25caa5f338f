"""Start-up is not the run: first-use costs, named ranges and uploads are recognised, and kept out of what is judged."""

from collections.abc import Sequence

import polars as pl

from diagnose.document.device import LongestCall, Phase
from diagnose.measure.facts import device_facts
from diagnose.measure.phases import StartUp, mostly_clean, pays_again, start_up, without_repeated
from diagnose.measure.records import device_records
from tests.builders.cases import for_each
from tests.builders.scene import KNOWLEDGE, Item, Scene, Span, call, run, scene

MS = 1_000_000


def begun(one: Scene) -> StartUp:
    rank, _, work = one.works()[0]
    return start_up(one.trace, work, rank, KNOWLEDGE.hosts)


def loop(first: int, n: int = 20, name: str = "gemm") -> list[Item]:
    """`n` operations of 1 ms, one after the other, each launched when the one before begins."""
    return [run(name, first + place * MS, first + (place + 1) * MS, first + (place - 1) * MS + 10) for place in range(n)]


def first_launch(at: int, ms: int, op: str = "norm", start: int | None = None) -> Item:
    """A launch whose call takes `ms`; its kernel runs right after it."""
    begin = at + ms * MS if start is None else start
    return run(op, begin, begin + 1000, at, until=at + ms * MS)


def phase(found: StartUp, name: str) -> Phase:
    return next(one for one in found.phases if one.name == name)


def test_a_long_first_launch_before_the_work_is_left_out_of_the_window() -> None:
    one = scene([first_launch(0, 629), *loop(700 * MS)])
    found = begun(one)
    assert [row[2] for row in found.costs.iter_rows()] == ["cudaLaunchKernel of norm"]
    assert found.begin == 700 * MS
    told = phase(found, "first use")
    assert (told.start_ns, told.end_ns) == (0, 629 * MS)
    assert told.longest_call is not None
    assert told.longest_call.duration_ns == 629 * MS
    assert found.span_ns == 720 * MS  # from the call at 0, though the window begins at 700 ms


@for_each(
    "paid, again",
    ([50, 50, 0, 0], []),  # a run that begins
    ([0, 50, 0], [1]),
    ([2, 9, 10], [2]),
    ([3, 50], []),  # the step before paid some too
    ([30, 0, 50, 0, 20], [2, 4]),
)
def test_the_steps_that_pay_first_uses_again_after_one_that_did_not(paid: list[int], again: list[int]) -> None:
    """By percent of each step."""
    assert pays_again(pl.Series(paid) / 100).arg_true().to_list() == again


@for_each(
    "paid, repeated",
    ([0, 50, 0, 30, 0], [1, 3]),  # two steps pay again
    ([40, 0, 50, 1, 30, 0], [2, 3, 4]),  # of the first one nothing comes back; what the step between pays is of the same kind
    ([0, 50, 0, 0], []),  # one may be a second shape, met once
    ([0, 0, 50, 0, 0], [2]),
    ([40, 0, 0, 0, 50, 0, 0], [4]),  # not so late
    ([60, 50, 40], []),  # first steps
    ([60, 50, 40, 30], [0, 1, 2, 3]),  # each of four pays
    ([60, 50, 40, 30, 0], [0, 1, 2, 3]),  # what stands before the next step lies in no window
    ([60, 50, 40, 0], []),  # first steps, and one that pays nothing
    ([60, 50, 40, 29], []),  # they become less
    ([12, 12, 9, 12], []),  # one of them pays little
    ([50], []),
    ([0, -50, 0, -30, 0], []),  # calls that take long at their first use
    ([0, 50, 0, 30, -40, 0], [1, 3, 4]),  # the first launch of what was compiled
)
def test_costs_that_come_back_are_no_start_up(paid: list[int], repeated: list[int]) -> None:
    """By percent of each step (below nought: calls, else compilations); which steps' costs are told apart."""
    costs = pl.DataFrame(
        [(place * 100, place * 100 + abs(share), str(place), share > 0) for place, share in enumerate(paid) if share],
        schema={"start": pl.Int64, "end": pl.Int64, "name": pl.String, "compiles": pl.Boolean},
        orient="row",
    )
    windows = pl.DataFrame({"start": [place * 100 for place in range(len(paid))], "end": [place * 100 + 100 for place in range(len(paid))]})
    whole = StartUp(
        costs=costs, again=costs.clear(), ranges=costs.clear(), begin=None, phases=(), left=1.0, before=0.0, share=0.0, span_ns=1
    )
    found = without_repeated(whole, windows, pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64}))
    assert [int(name) for name in found.again["name"]] == repeated
    assert sorted([*found.costs["name"], *found.again["name"]]) == sorted(costs["name"])
    assert [one.why.split()[0] for one in found.phases] == ([str(found.costs.height)] if repeated and found.costs.height else [])


def test_a_long_first_launch_among_the_work_counts_for_no_wall() -> None:
    later = [first_launch(124 * MS, 60, "attention"), *loop(185 * MS, 5)]
    one = scene([*loop(10 * MS, 10), first_launch(20 * MS, 100), *loop(121 * MS, 3), *later])
    (device,) = one.measure()
    row = device.budget.per_step.row(0, named=True)
    assert device.start_up is not None
    assert device.start_up.begin is None
    longest = phase(device.start_up, "first use among the work").longest_call
    assert longest == LongestCall(name="cudaLaunchKernel of norm", duration_ns=100 * MS)
    told = device_facts(device, device_records(device), KNOWLEDGE)
    assert (told["first_use_call"], told["first_use_call_ns"]) == ("cudaLaunchKernel of norm", 100 * MS)
    assert (told["start_up_call"], told["start_up_call_ns"]) == ("cudaLaunchKernel of norm", 100 * MS)
    assert row["launch_starved_ns"] == row["host_work_ns"] == row["first_use_ns"] == (100 + 60) * MS
    assert device.counts["host_gap_excess_ns"][0] == 0


NO_COST = {
    "launches that are slow each time": [first_launch(place * 20 * MS, 10) for place in range(4)],
    "a kernel of which every second launch is slow": [*loop(0, 3, "norm"), *(first_launch(place * 20 * MS, 10) for place in range(1, 4))],
    "a launch behind a full queue": [*[run("gemm", 1000 * MS + place, 1000 * MS + place + 1, place) for place in range(400)],
                                     run("norm", 1001 * MS, 1002 * MS, 500, until=990 * MS)],
    "an allocator's calls that are slow each time": [*loop(0, 20), *(call("cudaMalloc", at * MS, (at + 3) * MS) for at in range(21, 42, 5)), *loop(50 * MS)],
    "a synchronising call": [*loop(10 * MS), call("cudaDeviceSynchronize", 31 * MS, 90 * MS), *loop(91 * MS)],
    "a copy": [*loop(10 * MS), run("memcpy", 31 * MS, 90 * MS, 31 * MS, until=90 * MS, copy_kind="h2d", name="cudaMemcpyAsync")],
    "a short first launch": [*loop(10 * MS), first_launch(31 * MS, 1)],
}  # fmt: skip


@for_each("items", *NO_COST.values())
def test_what_is_no_first_use(items: list[Item]) -> None:
    assert begun(scene(items)).costs.is_empty()


@for_each("name", "cudaMalloc", "cudaStreamCreateWithFlags", "cudaFree", "cuModuleLoadData")
def test_the_first_long_call_of_a_name_creates_a_context_or_lets_memory_grow(name: str) -> None:
    found = begun(scene([call(name, 0, 300 * MS), *loop(310 * MS)]))
    assert found.costs.rows() == [(0, 300 * MS, name, False)]
    assert found.begin == 310 * MS


def test_a_first_call_that_takes_much_longer_than_the_slow_ones_after_it_is_a_first_use() -> None:
    """The others are long because what they allocate is large."""
    later = [call("cudaMalloc", (310 + 10 * place) * MS, (313 + 10 * place) * MS) for place in range(5)]
    found = begun(scene([call("cudaMalloc", 0, 300 * MS), *later, *loop(400 * MS)]))
    assert found.costs.rows() == [(0, 300 * MS, "cudaMalloc", False)]


def test_uploads_before_the_first_compute_kernel_are_no_part_of_the_window() -> None:
    uploads = [run("memcpy", place * MS, (place + 1) * MS, place * MS - 10, copy_kind="h2d", bytes=10**9) for place in range(1, 9)]
    found = begun(scene([*uploads, *loop(20 * MS)]))
    assert found.begin == 20 * MS
    assert phase(found, "upload").why == "8 copies to the device of 8.00 GB in all before the first compute kernel"


@for_each("text", "init_model", "warmup", "Warm-up", "load_checkpoint", "setup", "[param|net|0|warmup|forward]", "generate_data")
def test_a_range_that_says_so_is_start_up_where_the_work_follows(text: str) -> None:
    items = [*loop(10 * MS, 5), *loop(20 * MS, 5), *loop(30 * MS, 30)]
    spans = [Span(text=text, start=0, end=15 * MS - MS), Span(text=text, start=19 * MS - MS, end=24 * MS)]
    found = begun(scene(items, spans))
    assert found.begin == 30 * MS
    assert [one.name for one in found.phases] == [text, text]


@for_each("text", "load_batch", "initialize_microbatch", "load_balancing_loss", "warm", "compile_time", "setup_step_3")
def test_a_range_of_each_step_is_no_start_up(text: str) -> None:
    spans = [Span(text=text, start=9 * MS + place * 5 * MS, end=10 * MS + place * 5 * MS) for place in range(6)]
    assert begun(scene(loop(10 * MS, 30), spans)).begin is None


def test_a_start_up_name_that_recurs_among_the_work_is_none() -> None:
    spans = [Span(text="init_model", start=9 * MS + place * 5 * MS, end=10 * MS + place * 5 * MS) for place in range(5)]
    assert begun(scene(loop(10 * MS, 30), spans)).phases == ()


def test_first_steps_that_are_left_out_are_a_phase_of_their_own() -> None:
    spans = [Span(text=f"step {n}", start=(100 + 10 * n) * MS - 2 * MS, end=(110 + 10 * n) * MS - 2 * MS) for n in range(5)]
    (device,) = scene([first_launch(0, 50), *loop(60 * MS, 10), *loop(100 * MS, 50)], spans).measure()
    assert device.start_up is not None
    assert [one.name for one in device.start_up.phases] == ["first use", "first steps"]
    assert device.start_up.phases[1].end_ns == 100 * MS
    assert "compute operations" in device.start_up.phases[1].why


def test_a_capture_of_start_up_alone_says_so() -> None:
    cold = scene(
        [first_launch(100 * MS * place, 90, op) for place, op in enumerate(("norm", "attention", "expert", "adam", "gemm", "permute"))]
    )
    (device,) = cold.measure()
    assert device.start_up is not None
    assert device.start_up.before >= device.start_up.share > 0.8
    assert device_facts(device, device_records(device), KNOWLEDGE)["start_up_cut"] is (device.start_up.begin is not None)


def test_steps_that_hold_little_but_start_up_tell_all_of_it() -> None:
    """Nothing lies before them, and yet the share that is told is no nought."""
    launches = [first_launch(100 * MS * place, 90, op) for place, op in enumerate(("norm", "attention", "expert", "adam"))]
    spans = [Span(text=f"step {place}", start=100 * MS * place, end=100 * MS * (place + 1) - 1) for place in range(4)]
    (device,) = scene(launches, spans).measure()
    facts = device_facts(device, device_records(device), KNOWLEDGE)
    assert (len(device.steps.frame), facts["start_up_only"]) == (3, True)
    assert isinstance(share := facts["start_up_share"], float)
    assert share > 0.8


@for_each("paid, clean", ([0, 0, 900, 0], True), ([0, 0, 900], False), ([50, 60, 900, 0, 0, 0], False), ([0, 0, 0], True))
def test_steady_steps_can_be_judged_beside_one_that_pays_first_uses(paid: list[int], clean: bool) -> None:
    """By percent of each step."""
    assert mostly_clean(pl.Series(paid) / 100) is clean


def test_a_compilation_among_the_kept_steps_leaves_nothing_out() -> None:
    """Half of the work follows it, but the steps before it are kept, so nothing lies before them."""
    steps = [(0, 20), (20, 40), (40, 160), (160, 180)]
    items = [
        run("gemm", (end - 20 + at) * MS, (end - 19 + at) * MS, max((end - 21 + at) * MS + 10, start * MS))
        for start, end in steps
        for at in range(20)
    ]
    spans = [Span(text=f"step {number}", start=start * MS, end=end * MS - 20) for number, (start, end) in enumerate(steps)]
    (device,) = scene(items, [*spans, Span(text="_compile.compile_inner (dynamo_timed)", start=41 * MS, end=139 * MS)]).measure()
    assert device.start_up is not None
    assert device.start_up.begin is not None
    assert len(device.steps.frame) == 4
    assert device.start_up.before < 0.01


def twenty_each(starts: Sequence[int]) -> list[Item]:
    """Twenty kernels of 1 ms from each of these times (ms) on, each launched while the one before it runs."""
    return [
        run("gemm", (start + at) * MS, (start + at + 1) * MS, max((start + at - 1) * MS + 10, 0)) for start in starts for at in range(20)
    ]


def test_a_program_that_compiles_again_and_again_pays_for_it() -> None:
    """10 ms in the second and the fourth of five steps, of which the device computes for 1 ms before it has nothing left to do."""
    starts = (0, 20, 50, 70, 100)
    items = twenty_each(starts)
    spans = [Span(text=f"step {number}", start=start * MS, end=(start + 19) * MS) for number, start in enumerate(starts)]
    again = [Span(text="_compile.compile_inner (dynamo_timed)", start=at * MS, end=(at + 10) * MS) for at in (39, 89)]
    (device,) = scene(items, [*spans, *again]).measure()
    facts = device_facts(device, device_records(device), KNOWLEDGE)
    assert facts["recompilation_ns"] == 2 * 9 * MS // 5
    assert (facts["recompilation_call"], facts["recompilation_call_ns"]) == ("_compile.compile_inner (dynamo_timed)", 10 * MS)
    assert (facts["first_use_ns"], facts["first_use_call"], facts["first_use_again_step"]) == (0, None, None)
    assert facts["host_gap_excess_ns"] == 2 * 10 // 5  # until the next launch


def test_what_is_compiled_before_a_step_s_first_operation_is_that_step_s() -> None:
    """The second, third and fifth of five steps compile for 10 ms before anything runs; the first one was steady."""
    starts = (0, 30, 60, 80, 110)
    items = twenty_each(starts)
    spans = [Span(text=f"step {number}", start=max(start - 10, 0) * MS, end=(start + 19) * MS) for number, start in enumerate(starts)]
    again = [Span(text="_compile.compile_inner (dynamo_timed)", start=at * MS - 9 * MS, end=at * MS - 10) for at in (30, 60, 110)]
    (device,) = scene(items, [*spans, *again]).measure()
    facts = device_facts(device, device_records(device), KNOWLEDGE)
    assert device.start_up.again.height == 3
    assert facts["recompilation_call"] == "_compile.compile_inner (dynamo_timed)"
    assert (facts["first_use_ns"], facts["start_up_only"]) == (0, False)


def test_a_long_silence_before_code_is_loaded_is_compilation() -> None:
    """Two steps of five compile for 9 ms before a call that loads what was made; no range tells so. Another silence is a pause."""
    starts = (0, 20, 50, 70, 100)
    items = twenty_each(starts)
    spans = [Span(text=f"step {number}", start=start * MS, end=(start + 19) * MS) for number, start in enumerate(starts)]
    loads = [call("cuModuleLoadData", at * MS - 500_000, at * MS) for at in (49, 99)]
    (device,) = scene([*items, *loads], spans).measure()
    facts = device_facts(device, device_records(device), KNOWLEDGE)
    assert facts["recompilation_ns"] == 2 * 9 * MS // 5
    assert facts["recompilation_call"] == "compilation before cuModuleLoadData"
    (device,) = scene(items, spans).measure()
    facts = device_facts(device, device_records(device), KNOWLEDGE)
    assert (facts["recompilation_ns"], facts["host_gap_excess_ns"]) == (0, 2 * (9 * MS + 10) // 5)
    early = scene([*loop(20 * MS), call("cuModuleLoadData", 10 * MS, 10 * MS + 1), call("cuModuleLoadData", 11 * MS, 11 * MS + 1)])
    assert [tuple(row) for row in begun(early).costs.iter_rows()] == [
        (10 * MS, 10 * MS + 1, "cuModuleLoadData", False),
        (11 * MS, 11 * MS + 1, "cuModuleLoadData", False),
    ]  # before the first call nothing is known to be silent
