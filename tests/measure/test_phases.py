"""Start-up is not the run: first-use costs, named ranges and uploads are recognised, and kept out of what is judged."""

import polars as pl
import pytest

from diagnose.document.device import LongestCall, Phase
from diagnose.measure.facts import _again, device_facts
from diagnose.measure.phases import StartUp, start_up
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
    ([50, 50, 0, 0], None),  # a run that begins
    ([0, 50, 0], 8),
    ([2, 9, 10], 9),
    ([3, 50], None),  # the step before paid some too
)
def test_the_step_that_pays_first_uses_again_after_one_that_did_not_is_named(paid: list[int], again: int | None) -> None:
    """By percent of each step, from step 7 on."""
    steps = pl.DataFrame({"index": range(7, 7 + len(paid)), "window_ns": [100] * len(paid), "first_use_ns": paid})
    assert _again(steps) == again


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
    "a synchronising call": [*loop(10 * MS), call("cudaDeviceSynchronize", 31 * MS, 90 * MS), *loop(91 * MS)],
    "a copy": [*loop(10 * MS), run("memcpy", 31 * MS, 90 * MS, 31 * MS, until=90 * MS, copy_kind="h2d", name="cudaMemcpyAsync")],
    "a short first launch": [*loop(10 * MS), first_launch(31 * MS, 1)],
}  # fmt: skip


@pytest.mark.parametrize("items", NO_COST.values(), ids=NO_COST)
def test_what_is_no_first_use(items: list[Item]) -> None:
    assert begun(scene(items)).costs.is_empty()


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaStreamCreateWithFlags", "cudaFree", "cuModuleLoadData"])
def test_the_first_long_call_of_a_name_creates_a_context_or_lets_memory_grow(name: str) -> None:
    found = begun(scene([call(name, 0, 300 * MS), *loop(310 * MS)]))
    assert found.costs.rows() == [(0, 300 * MS, name)]
    assert found.begin == 310 * MS


def test_uploads_before_the_first_compute_kernel_are_no_part_of_the_window() -> None:
    uploads = [run("memcpy", place * MS, (place + 1) * MS, place * MS - 10, copy_kind="h2d", bytes=10**9) for place in range(1, 9)]
    found = begun(scene([*uploads, *loop(20 * MS)]))
    assert found.begin == 20 * MS
    assert phase(found, "upload").why == "8 copies to the device of 8.00 GB in all before the first compute kernel"


@pytest.mark.parametrize(
    "text", ["init_model", "warmup", "Warm-up", "load_checkpoint", "setup", "[param|net|0|warmup|forward]", "generate_data"]
)
def test_a_range_that_says_so_is_start_up_where_the_work_follows(text: str) -> None:
    items = [*loop(10 * MS, 5), *loop(20 * MS, 5), *loop(30 * MS, 30)]
    spans = [Span(text=text, start=0, end=15 * MS - MS), Span(text=text, start=19 * MS - MS, end=24 * MS)]
    found = begun(scene(items, spans))
    assert found.begin == 30 * MS
    assert [one.name for one in found.phases] == [text, text]


@pytest.mark.parametrize("text", ["load_batch", "initialize_microbatch", "load_balancing_loss", "warm", "compile_time", "setup_step_3"])
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


def test_steps_that_hold_little_but_start_up_tell_all_of_it() -> None:
    """Nothing lies before them, and yet the share that is told is no nought."""
    launches = [first_launch(100 * MS * place, 90, op) for place, op in enumerate(("norm", "attention", "expert", "adam"))]
    spans = [Span(text=f"step {place}", start=100 * MS * place, end=100 * MS * (place + 1) - 1) for place in range(4)]
    (device,) = scene(launches, spans).measure()
    facts = device_facts(device, device_records(device), KNOWLEDGE)
    assert (len(device.steps.frame), facts["start_up_only"]) == (4, True)
    assert isinstance(share := facts["start_up_share"], float)
    assert share > 0.8


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
