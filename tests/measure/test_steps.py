"""Every anchor of the step windows, and what is left out of them."""

from diagnose.measure.steps import HostLead
from tests.builders.cases import for_each
from tests.builders.records import replace
from tests.builders.scene import Item, Scene, Span, Steps, call, run, scene

LOOP = Steps(n=4).build()
WINDOWS = [(1, 10, 1010), (2, 1010, 2010), (3, 2010, 3010), (4, 3010, 3710)]  # the last ends with its last operation


def later(items: list[Item], first: int, by: int) -> list[Item]:
    """`items` with everything from number `first` on moved by `by` ns."""
    return [
        replace(item, start=item.start + by, end=item.end + by, at=(item.at or 0) + by) if n >= first else item
        for n, item in enumerate(items)
    ]


def windows(one: Scene, step_range: str | None = None) -> list[tuple[int, int, int]]:
    return [tuple(row) for row in one.steps(step_range).frame.iter_rows()]


def texts(spelling: str) -> list[Span]:
    """The loop's ranges under another name; {} is the step's number."""
    return [replace(span, text=spelling.format(number)) for number, span in enumerate(LOOP.spans, start=1)]


def led(items: list[Item], *spans: Span) -> tuple[int, str | None] | None:
    found = scene(items, list(spans)).steps().lead
    return None if found is None else (found.ns, found.range)


def test_what_the_host_did_in_the_only_step_before_its_first_operation_is_told_and_named() -> None:
    """No window holds it. What is still at work of before hides it, and of several steps the next one's lies in the one before."""
    step, inside = Span(text="ProfilerStep#6", start=100, end=900), run("gemm", 500, 600, 480)
    preprocess, aside = Span(text="preprocess", start=120, end=470), Span(text="log", start=110, end=119)
    assert led([inside], step, preprocess, aside) == (380, "preprocess")
    assert led([inside], step, aside) == (380, None)
    assert led([run("gemm", 40, 200, 10), inside], step, preprocess) == (280, None)
    assert led([run("gemm", 40, 500, 10), inside], step, preprocess) is None
    assert led([inside, run("gemm", 1500, 1600, 1480)], step, replace(step, text="ProfilerStep#7", start=1100, end=1900)) is None
    assert led(LOOP.items) is None


MS = 1_000_000
STRAY = run("gemm", 10, 20, 5, stream=2)
BUSY: dict[str, tuple[list[Item], tuple[int, int]]] = {
    "the first of a stream begins late, after hardly anything": ([STRAY, run("gemm", 5 * MS, 6 * MS, 30)], (5 * MS, 5 * MS - 31)),
    "its launch took that long": ([STRAY, run("gemm", 5 * MS, 6 * MS, 30, until=5 * MS - 10)], (10, 0)),
    "its launch is not known": ([STRAY, run("gemm", 5 * MS, 6 * MS)], (10, 0)),
    "nothing before it": ([run("gemm", 5 * MS, 6 * MS, 30)], (5 * MS, 0)),
    "another stream was at work": ([run("gemm", 10, 5 * MS - 9, 5, stream=2), run("gemm", 5 * MS, 6 * MS, 30)], (10, 0)),
    "work before the pause": ([run("gemm", 10, MS, 5, stream=2), run("gemm", 5 * MS, 6 * MS, 30)], (10, 0)),
    "its stream ran before": ([run("gemm", 10, 20, 5), run("gemm", 5 * MS, 6 * MS, 30)], (10, 0)),
}


@for_each("items, expected", *BUSY.values())
def test_a_window_begins_once_what_was_launched_before_the_capture_is_done(items: list[Item], expected: tuple[int, int]) -> None:
    """A profiler that sees only what is launched from its start on shows such work as a pause that nothing explains."""
    found = scene(items).steps()
    assert (found.frame["start"][0], found.unseen_ns) == expected
    assert found.unseen_call is None
    waiting = [*items, call("cudaMemcpy", 25, 5 * MS - 2), call("cudaEventQuery", 25, MS)]
    assert scene(waiting).steps().unseen_call == ("cudaMemcpy" if found.unseen_ns else None)


def test_what_waited_for_work_of_before_the_capture_is_not_what_the_host_did_before_its_first_launch() -> None:
    items = [run("gemm", 10, 20, 8, stream=2), run("gemm", 5 * MS, 6 * MS, 30)]
    found = scene(items, [Span(text="ProfilerStep#6", start=1, end=100)]).steps()
    assert (found.frame.rows(), found.unseen_ns) == ([(6, 5 * MS, 6 * MS)], 5 * MS - 31)
    assert found.lead == HostLead(ns=29, range=None)  # up to the launch that waited


# ---------------------------------------------------------------------------------------------------- iteration ranges


@for_each(
    "spelling, anchor",
    ("ProfilerStep#{}", "range ProfilerStep#N"),
    ("ProfilerStep #{}", "range ProfilerStep #N"),
    ("iteration {}", "range iteration N"),
    ("Training Iter: {}", "range Training Iter: N"),
    ("train_iteration_{}", "range train_iteration_N"),
    ("step {}", "range step N"),
    ("global_step_{}", "range global_step_N"),
    (":train.training_step_{}", "range :train.training_step_N"),
)
def test_a_numbered_range_cuts_steps_and_gives_their_numbers(spelling: str, anchor: str) -> None:
    found = scene(LOOP.items, texts(spelling))
    assert found.steps().anchor == anchor
    assert windows(found) == WINDOWS


@for_each("spelling", "train_step", "training_step", "iteration", "step", "1F1B")
def test_an_unnumbered_range_counts_from_zero(spelling: str) -> None:
    found = scene(LOOP.items, texts(spelling))
    assert found.steps().anchor == f"range {spelling.replace('1F1B', 'NFNB')}"
    assert windows(found) == [(index - 1, start, end) for index, start, end in WINDOWS]


HALVES = [Span(text=f"iteration {n}", start=n * 500, end=n * 500 + 499) for n in range(8)]
SAME: dict[str, tuple[list[Item], list[Span], int]] = {
    "profiler steps go before other ranges": (LOOP.items, [*HALVES, *LOOP.spans], 0),
    "a range inside a range of its kind is no step": (
        LOOP.items,
        [*texts("iteration 1{}"), *(Span(text=f"iteration {n}", start=n * 1000 + 100, end=n * 1000 + 300) for n in range(4))],
        10),
    # Backward kernels are launched by the autograd thread, while the range stands on the main thread.
    "launches of every thread count": ([replace(item, thread=2 if item.phase == "backward" else 1) for item in LOOP.items], LOOP.spans, 0),
    "ranges that overlap by a nanosecond": (LOOP.items, [replace(span, end=span.end + 2) for span in LOOP.spans], 0),
    "a second thread with the same ranges a little later": (
        LOOP.items, [*LOOP.spans, *(replace(span, thread=2, start=span.start + 50, end=span.end + 50) for span in LOOP.spans)], 0),
}  # fmt: skip


@for_each("items, spans, added", *SAME.values())
def test_the_windows_stay_the_same(items: list[Item], spans: list[Span], added: int) -> None:
    assert windows(scene(items, spans)) == [(index + added, start, end) for index, start, end in WINDOWS]


def test_a_step_begins_at_its_first_operation_and_reaches_over_a_hole_between_ranges() -> None:
    items = [run("gemm", 1000 + 100 * n, 1090 + 100 * n, 10 * n) for n in range(6)]
    spans = [Span(text=f"iteration {n}", start=20 * n, end=20 * n + 20) for n in range(3)]
    assert windows(scene(items, spans)) == [(0, 1000, 1200), (1, 1200, 1400), (2, 1400, 1590)]
    # Work between two ranges (an evaluation) belongs to the step before it: the next step begins with its own operations
    items = later(LOOP.items, 8, 500)
    spans = [*LOOP.spans[:2], *(replace(span, start=span.start + 500, end=span.end + 500) for span in LOOP.spans[2:])]
    extra = run("gemm", 2100, 2300, 2050)
    assert windows(scene([*items[:8], extra, *items[8:]], spans)) == [(1, 10, 1010), (2, 1010, 2510), (3, 2510, 3510), (4, 3510, 4210)]


def test_equal_numbers_are_counted_anew_and_an_own_range_that_marks_nothing_is_passed_over() -> None:
    spans = [replace(span, text="iteration 7") for span in LOOP.spans]
    assert [index for index, _, _ in windows(scene(LOOP.items, spans))] == [0, 1, 2, 3]
    assert scene(LOOP.items, LOOP.spans).steps("absent").anchor == "range ProfilerStep#N"


# ---------------------------------------------------------------------------------------------------- the user's own range


@for_each("pattern, first", (r"^outer (\d+)$", 1), ("^outer", 0), ("(?i)OUTER", 0), ("(?:outer) ", 0))
def test_the_users_own_range_goes_before_all(pattern: str, first: int) -> None:
    halves = [Span(text=f"ProfilerStep#{n}", start=n * 500, end=n * 500 + 499) for n in range(8)]
    found = scene(LOOP.items, [*halves, *texts("outer {}")])
    assert found.steps(pattern).anchor == "step range outer N"
    assert windows(found, pattern) == [(index - 1 + first, start, end) for index, start, end in WINDOWS]


# ---------------------------------------------------------------------------------------------------- optimizer kernels


def training(steps: int, forward: int = 6, burst: int = 3, clip: int = 0) -> list[Item]:
    """Steps of equal GEMMs and a burst of optimizer kernels; `clip` reductions stand between the two halves of the burst."""
    items: list[Item] = []
    now = 10
    for _ in range(steps):
        for name, number in (("gemm", forward), ("adam", burst), ("norm", clip), ("adam", burst if clip else 0)):
            for _ in range(number):
                items.append(run(name, now, now + 50, now - 10, phase=None))
                now += 60
    return items


def test_optimizer_bursts_end_steps_in_two_parts_and_with_many_micro_batches_too() -> None:
    found = scene(training(5))
    assert found.steps().anchor == "optimizer kernels"
    assert windows(found) == [(1, 550, 1090), (2, 1090, 1630), (3, 1630, 2170), (4, 2170, 2700)]
    # Gradient clipping, or a second parameter group, between two parts of the optimizer
    found = scene(training(4, forward=9, burst=2, clip=2))
    assert windows(found) == [(1, 910, 1810), (2, 1810, 2710), (3, 2710, 3600)]
    assert len(windows(scene(training(4, forward=24)))) == 3


# ---------------------------------------------------------------------------------------------------- recurrence


def recurring(steps: int, phases: tuple[str | None, str | None], kernels: int = 24, collectives: int = 0) -> list[Item]:
    """Steps of `kernels` GEMMs that begin with one attention kernel; `collectives` of them are exchanges."""
    items: list[Item] = []
    for number in range(steps * kernels):
        place = number % kernels
        name = "attention" if place == 0 else "nccl" if place in range(2, 2 + collectives) else "gemm"
        items.append(run(name, 100 * number + 10, 100 * number + 90, 100 * number, phase=phases[2 * place // kernels]))
    return items


def test_recurring_kernels_with_a_backward_pass_are_steps_and_collectives_go_before_them() -> None:
    found = scene(recurring(4, ("forward", "backward")))
    assert found.steps().anchor == "recurring kernels"
    assert windows(found) == [(0, 10, 2410), (1, 2410, 4810), (2, 4810, 7210)]
    gathers = [run("nccl", 800 * n + 20, 800 * n + 790, 800 * n, stream=20, phase=None) for n in range(12)]
    found = scene([*recurring(4, ("forward", "backward")), *gathers])
    assert (found.steps().anchor, len(windows(found))) == ("recurring kernels", 3), "collectives that last longer than compute"
    items = recurring(4, ("forward", "backward"), collectives=5)
    different = [replace(item, op="allreduce") if item.op == "nccl" and place % 24 == 2 else item for place, item in enumerate(items)]
    found = scene(different)
    assert found.steps().anchor == "recurring collectives"
    assert windows(found) == [(0, 210, 2610), (1, 2610, 5010), (2, 5010, 7410)]


# ---------------------------------------------------------------------------------------------------- none, dropped, cross-check

BOTH = ("forward", "backward")
NO_ANCHOR: dict[str, tuple[list[Item], list[Span]]] = {
    **{f"ranges of kind {kind}": (LOOP.items, [replace(span, kind=kind) for span in LOOP.spans])
       for kind in ("mark", "gpu_annotation", "python", "comms")},
    "ranges of another rank": (LOOP.items, [replace(span, rank=1) for span in LOOP.spans]),
    "operations without launch": ([replace(item, at=None) for item in LOOP.items], LOOP.spans),
    "one optimizer burst": (training(1), []),
    "two optimizer bursts": (training(2), []),
    "the first of five bursts cut to a third": ([item for number, item in enumerate(training(5)) if number not in (7, 8)], []),
    "optimizer kernels without other work": ([run("adam", 20 * n + 10, 20 * n + 20, 20 * n) for n in range(9)], []),
    "a recurring sequence of backward passes": (recurring(4, ("backward", "backward")), []),
    "a sequence that comes twice": (recurring(2, BOTH), []),
    "a short sequence, a loop inside a step": (recurring(12, BOTH, kernels=8), []),
}  # fmt: skip


@for_each("items, spans", *NO_ANCHOR.values())
def test_what_is_no_anchor(items: list[Item], spans: list[Span]) -> None:
    assert scene(items, spans).steps().anchor == "capture"


def test_without_an_anchor_the_capture_is_one_window() -> None:
    found = scene([run("gemm", 30, 70, 5), run("nccl", 20, 90, 1, stream=9)]).steps()
    assert (found.anchor, found.frame.rows(), found.dropped, found.cross_check) == ("capture", [(0, 20, 90)], (), ())


def test_a_slow_first_step_is_warm_up_but_one_half_as_long_again_stays() -> None:
    items = later(LOOP.items, 4, 501)
    spans = [LOOP.spans[0], *(replace(span, start=span.start + 501, end=span.end + 501) for span in LOOP.spans[1:])]
    found = scene(items, spans).steps()
    assert [tuple(row) for row in found.frame.iter_rows()] == [(2, 1511, 2511), (3, 2511, 3511), (4, 3511, 4211)]
    assert [(one.index, one.why) for one in found.dropped] == [(1, "warm-up: 0.002 ms against a median of 0.001 ms")]
    items = later(LOOP.items, 4, 500)
    spans = [LOOP.spans[0], *(replace(span, start=span.start + 500, end=span.end + 500) for span in LOOP.spans[1:])]
    assert scene(items, spans).steps().dropped == ()


@for_each(
    "lengths, dropped",
    ((12, 10, 10), [0]),  # the two others agree
    ((11, 10, 10), []),
    ((30, 10, 12), []),  # they don't
    ((12, 10), []),
    ((12, 10, 10, 10), [0]),
    ((16, 10, 12, 12), []),
    ((20, 10, 12, 12), [0]),
)
def test_a_first_step_is_warm_up_by_less_where_the_others_agree(lengths: tuple[int, ...], dropped: list[int]) -> None:
    """Steps of so many operations' time, each of ten operations."""
    items, spans, now = [], [], 100_000
    for number, length in enumerate(lengths):
        items += [run("gemm", now + place * length * 100, now + (place + 1) * length * 100, now - 50_000) for place in range(10)]
        spans.append(Span(text=f"step {number}", start=now - 50_000, end=now - 49_000))
        now += length * 1000
    assert [one.index for one in scene(items, spans).steps().dropped] == dropped


@for_each("name", "cudaStreamBeginCapture", "cudaGraphInstantiate", "cuGraphInstantiateWithFlags")
def test_a_step_in_which_a_graph_was_captured_is_dropped(name: str) -> None:
    found = scene([*LOOP.items, call(name, 1500, 1600)], LOOP.spans).steps()
    assert [row[0] for row in found.frame.iter_rows()] == [1, 3, 4]
    assert [(one.index, one.why) for one in found.dropped] == [(2, "a CUDA graph was captured in it")]


def test_where_every_step_would_be_dropped_all_stay() -> None:
    captures = [call("cudaGraphInstantiate", 1000 * number + 500, 1000 * number + 510) for number in range(4)]
    found = scene([*LOOP.items, *captures], LOOP.spans).steps()
    assert (found.frame.height, found.dropped) == (4, ())


def test_two_anchors_that_disagree_by_more_than_a_twentieth_are_reported() -> None:
    items = training(6)
    spans = [Span(text=f"iteration {n}", start=540 * n, end=540 * n + 540) for n in range(6)]
    checks = scene(items, spans).steps().cross_check
    assert [(one.anchor, one.median_ns, one.n, one.disagrees) for one in checks] == [("optimizer kernels", 540, 5, False)]
    spans = [Span(text=f"iteration {n}", start=1080 * n, end=1080 * n + 1080) for n in range(3)]  # two optimizer steps each
    found = scene(items, spans).steps()
    assert found.anchor == "range iteration N"
    assert [(one.anchor, one.median_ns, one.n, one.disagrees) for one in found.cross_check] == [("optimizer kernels", 540, 5, True)]


# ---------------------------------------------------------------------------------------------------- windows on two devices


def test_each_device_of_a_process_has_its_own_windows_and_a_huge_number_is_no_fault() -> None:
    second = [replace(item, device=1, start=item.start + 5, end=item.end + 5, at=(item.at or 0) + 3) for item in LOOP.items]
    one = scene([*LOOP.items, *second], LOOP.spans)
    assert [tuple(row) for row in one.steps(place=0).frame.iter_rows()] == WINDOWS
    assert [tuple(row) for row in one.steps(place=1).frame.iter_rows()] == [(n, start + 5, end + 5) for n, start, end in WINDOWS]
    found = scene(LOOP.items, [replace(span, text=f"iteration 2024013112345{number}") for number, span in enumerate(LOOP.spans)])
    assert [(start, end) for _, start, end in windows(found)] == [(start, end) for _, start, end in WINDOWS]


def test_a_prefetch_copy_that_runs_early_does_not_cut_the_step_before_it() -> None:
    items = [
        run("gemm", 10, 900, 1),
        run("memcpy", 300, 310, 11, stream=8),
        run("gemm", 900, 1800, 12),
        run("memcpy", 320, 330, 21, stream=8),
        run("gemm", 1800, 2700, 22),
    ]
    spans = [Span(text=f"ProfilerStep#{n}", start=10 * n, end=10 * n + 10) for n in range(3)]
    assert windows(scene(items, spans)) == [(0, 10, 900), (1, 900, 1800), (2, 1800, 2700)]


@for_each("begins, expected", (600, (3, 3010, 4010)), (0, (3, 3010, 4000)))
def test_a_last_step_that_nothing_follows_ends_as_long_after_its_begin_as_the_others(begins: int, expected: tuple[int, int, int]) -> None:
    """In a pipeline the rows of the next batch are looked up during this one: the last step's own rest would be more than a step."""
    spans = [Span(text=f"ProfilerStep#{n}", start=1000 * n, end=1000 * n + 900) for n in range(4)]
    items = [
        one
        for n in range(4)
        for one in (
            run("norm", 1000 * n + 10, 1000 * n + 90, 1000 * n + 1, stream=20),
            run("gemm", 1000 * n + begins + 100, 1000 * n + begins + 1000, 1000 * n + 20),
        )
    ]
    assert windows(scene(items, spans)) == [(0, 10, 1010), (1, 1010, 2010), (2, 2010, 3010), expected]


def test_a_pause_of_the_profiler_between_two_cycles_belongs_to_no_step() -> None:
    again = [
        replace(span, text=f"ProfilerStep#{20 + n}", start=span.start + 90_000, end=span.end + 90_000) for n, span in enumerate(LOOP.spans)
    ]
    found = scene([*LOOP.items, *later(LOOP.items, 0, 90_000)], [*LOOP.spans, *again])
    assert windows(found) == [*WINDOWS, *[(20 + n, start + 90_000, end + 90_000) for n, (_, start, end) in enumerate(WINDOWS)]]


@for_each("spelling, added", ("ProfilerStep#{}", 0), ("train_step", None))
def test_an_iteration_whose_events_are_missing_makes_no_long_step(spelling: str, added: int | None) -> None:
    """Whether its range is there or not: what passed in its place belongs to no step that was recorded."""
    items = [*LOOP.items[:4], *LOOP.items[8:]]
    wanted = [(1, 10, 710), *WINDOWS[2:]]
    found = scene(items, texts(spelling)).steps()
    assert found.frame.select("start", "end").rows() == [window[1:] for window in wanted]
    if added is None:
        return
    assert found.frame["index"].to_list() == [1, 3, 4]
    assert 2 in [one.index for one in found.dropped]
    spans = texts(spelling)
    assert windows(scene(items, [*spans[:1], *spans[2:]])) == wanted


def test_evaluations_between_steps_do_not_join_steps() -> None:
    items: list[Item] = []
    now = 10
    for number in range(15):
        for name, times in (("gemm", 6), ("adam", 3), ("gemm", 30 if number % 5 == 4 else 0)):
            for _ in range(times):
                items.append(run(name, now, now + 50, now - 10))
                now += 60
    found = scene(items).steps()
    assert found.anchor == "capture" or found.frame.height >= 10


# ---------------------------------------------------------------------------------------------------- parts of steps, and what is cut


def test_optimizer_ranges_mark_where_steps_end() -> None:
    items = training(4)
    spans = [Span(text="Optimizer.step#Adam.step", start=540 * n + 360, end=540 * n + 540) for n in range(4)]
    found = scene(items, spans).steps()
    assert found.anchor == "end of range Optimizer.step#Adam.step"
    assert found.frame.rows() == [(0, 10, 550), (1, 550, 1090), (2, 1090, 1630), (3, 1630, 2160)]
    cut = scene(items[2:], spans).steps()  # what leads up to the first end is not whole
    assert cut.frame["index"].to_list() == [1, 2, 3]


def test_optimizers_whose_work_runs_side_by_side_end_one_step() -> None:
    """The second's work outlives the first's, and nothing starts between their ends: no step begins there."""
    items = [*training(2)[:-1], run("adam", 1030, 1200, 1020), run("adam", 1090, 1300, 1085, stream=9)]
    spans = [Span(text="Optimizer.step#Muon.step", start=540 * n + 360, end=540 * n + 540) for n in range(2)]
    found = scene(items, [*spans, Span(text="Optimizer.step#Muon.step", start=1080, end=1090)]).steps()
    assert found.frame.rows() == [(1, 550, 1300)]


def test_the_only_optimizer_range_still_open_ends_no_step() -> None:
    one = scene(training(1), [Span(text="Optimizer.step#Adam.step", start=360, end=540)])
    opened = replace(one, trace=replace(one.trace, ledger=one.trace.ledger.note("open_range", "ranges", 1)))
    assert opened.steps().anchor == "capture"


def test_a_range_that_is_a_part_of_a_step_gives_no_last_step() -> None:
    spans = [replace(span, end=span.start + 500) for span in LOOP.spans]
    assert windows(scene(LOOP.items, spans)) == WINDOWS  # the rest of the last step follows its range
    found = scene(LOOP.items[:-1], spans).steps()
    assert found.frame.rows() == WINDOWS[:3]
    assert [(one.index, one.why) for one in found.dropped] == [
        (4, "its range holds only a part of the step, and no next one tells where it ends")
    ]


def test_what_follows_the_last_range_belongs_to_its_step_where_as_much_follows_others() -> None:
    items = later(LOOP.items, 8, 500)
    spans = [*LOOP.spans[:2], *(replace(span, start=span.start + 500, end=span.end + 500) for span in LOOP.spans[2:])]
    saved = [*items[:8], run("gemm", 2100, 2300, 2050), *items[8:], run("gemm", 4600, 4800, 4550)]
    assert windows(scene(saved, spans))[-1] == (4, 3510, 4800)
    assert windows(scene([*items, run("gemm", 4600, 4800, 4550)], spans))[-1] == (4, 3510, 4210)


def test_a_range_still_open_at_the_captures_end_is_no_step() -> None:
    one = scene(LOOP.items, LOOP.spans)
    opened = replace(one, trace=replace(one.trace, ledger=one.trace.ledger.note("open_range", "ranges", 1)))
    found = opened.steps()
    assert found.frame["index"].to_list() == [1, 2, 3]
    assert [(one.index, one.why) for one in found.dropped] == [(4, "its range was still open at the capture's end")]


def test_a_range_that_holds_but_a_piece_of_a_step_goes_behind_the_optimizer_s_steps() -> None:
    """The capture began while the device was steps behind: of the first range in it only the first kernels ran before its end."""
    items = training(5)
    begun = items[-4].at or 0
    one = scene(items, [Span(text="iteration 7", start=begun, end=begun + 1000)])
    assert one.steps().anchor == "optimizer kernels"
    assert one.steps().cross_check[0].anchor == "range iteration N"
    whole = scene(items, [Span(text="iteration 7", start=items[0].at or 0, end=begun)])
    assert whole.steps().anchor == "range iteration N"


def test_the_last_step_of_a_file_that_was_cut_off_is_no_step() -> None:
    """Half of what it launched may be missing, and with it half of its time."""
    one = scene(LOOP.items[:15], LOOP.spans)
    assert one.steps().frame["index"].to_list() == [1, 2, 3, 4]
    found = replace(one, trace=replace(one.trace, ledger=one.trace.ledger.note("cut_file", "traceEvents", detail="x"))).steps()
    assert found.frame["index"].to_list() == [1, 2, 3]
    assert [(one.index, one.why) for one in found.dropped] == [(4, "the file was cut off in it: what it launched may be missing")]
    alone = scene(LOOP.items[:3], LOOP.spans)
    cut = replace(alone, trace=replace(alone.trace, ledger=alone.trace.ledger.note("cut_file", "traceEvents", detail="x"))).steps()
    assert (alone.steps().frame.height, cut.anchor, [one.index for one in cut.dropped]) == (1, "capture", [1])


def test_a_last_step_with_few_of_the_usual_operations_is_cut() -> None:
    found = scene(LOOP.items[:13], LOOP.spans).steps()
    assert found.frame["index"].to_list() == [1, 2, 3]
    assert [(one.index, one.why) for one in found.dropped] == [
        (4, "cut by the capture's end: 1 compute operations where the others have 4")
    ]


def test_a_copy_right_before_the_compute_of_a_step_begins_it() -> None:
    items = [
        *LOOP.items,
        run("memcpy", 960, 990, 1001, stream=8, copy_kind="h2d"),
        run("memcpy", 1990, 2005, 2001, stream=8, copy_kind="h2d"),
    ]
    assert windows(scene(items, LOOP.spans)) == [(1, 10, 960), (2, 960, 1990), (3, 1990, 3010), (4, 3010, 3710)]


def test_second_and_third_warm_up_steps_are_left_out_with_what_made_them_long() -> None:
    ms = 1_000_000
    items: list[Item] = []
    spans = []
    now = 10 * ms
    for number, cost in enumerate((100, 30, 9, 0, 0, 0, 0)):
        begin = now
        for place in range(10):
            slow = cost * ms if place == 5 else 0
            name = ("norm", "attention", "expert")[number] if slow else "gemm"
            items.append(run(name, now + slow, now + slow + ms, now - 1000, until=now - 1000 + max(slow, 1)))
            now += slow + ms
        spans.append(Span(text=f"step {number}", start=begin - 2000, end=now - 2000))
    found = scene(items, spans).steps()
    assert found.frame["index"].to_list() == [3, 4, 5, 6]
    assert [one.index for one in found.dropped] == [0, 1, 2]
    assert "first-use costs" in found.dropped[2].why


def test_steps_that_all_compile_again_are_no_warm_up() -> None:
    """Each but the last, which nothing compiles behind, and they differ: the first ones happen to take longer."""
    ms = 1_000_000
    items: list[Item] = []
    spans = []
    now = 10 * ms
    for number, cost in enumerate((90, 95, 80, 50, 0)):
        begin = now
        items += [run("gemm", now + place * ms, now + place * ms + ms, now + place * ms - 1000) for place in range(10)]
        now += 10 * ms
        spans.append(Span(text=f"step {number}", start=begin - 2000, end=now + cost * ms - 2000))
        if cost:
            spans.append(Span(text="_compile.compile_inner (dynamo_timed)", start=now - 500, end=now + cost * ms - 3000))
        now += cost * ms
    found = scene(items, spans).steps()
    assert found.frame["index"].to_list() == [0, 1, 2, 3]
    assert [one.index for one in found.dropped] == [4]


@for_each("steps, pause, kept", (5, 20.0, 4), (3, 20.0, 2), (2, 20.0, 2), (5, 1.0, 5), (5, 1.2, 4))
def test_a_last_step_that_lacks_the_pause_before_the_next_is_no_step(steps: int, pause: float, kept: int) -> None:
    """It ends with its last operation; of two windows nothing tells whether a pause is usual."""
    ms = 1_000_000
    length = int((10 + pause) * ms)
    items = [
        run("gemm", step * length + place * ms, step * length + place * ms + ms, step * length + place * ms - 1500)
        for step in range(1, steps + 1)
        for place in range(10)
    ]
    spans = [Span(text=f"step {step}", start=step * length - 1600, end=(step + 1) * length - 1700) for step in range(1, steps + 1)]
    found = scene(items, spans).steps()
    assert found.frame["index"].to_list() == [*range(1, kept + 1)]
    assert [one.why for one in found.dropped] == [
        f"cut by the capture's end: the {pause:.1f} ms without work that follow the others are not in it"
    ] * (steps - kept)


# ---------------------------------------------------------------------------------------------------- iterations without backward


def test_a_forward_loop_that_fetches_a_result_each_time_has_iterations() -> None:
    items = recurring(4, ("forward", "forward"))
    fetched = [run("memcpy", 2400 * n + 2395, 2400 * n + 2399, 2400 * n + 2390, stream=8, copy_kind="d2h") for n in range(4)]
    found = scene([*items, *fetched]).steps()
    assert found.anchor == "recurring kernels, iterations without backward"
    assert found.frame.rows() == [(0, 10, 2410), (1, 2410, 4810), (2, 4810, 7210)]


def layered(iterations: int, layers: int = 3) -> list[Item]:
    """Iterations of a head of two kernels and `layers` layers of 24, of the same names throughout."""
    items: list[Item] = []
    now = 10
    for _ in range(iterations):
        for name in ["gemm", "gemm", *(["attention", *["gemm"] * 23] * layers)]:
            items.append(run(name, now, now + 80, now - 10, phase="forward"))
            now += 100
    return items


def test_layers_are_no_iterations_but_what_lies_between_longer_distances_is() -> None:
    assert scene(layered(1, layers=6)).steps().anchor == "capture"
    found = scene(layered(4, layers=12)).steps()
    assert found.frame.rows() == [(n, 10 + 29000 * n, 10 + 29000 * (n + 1) - (20 if n == 3 else 0)) for n in range(4)]


def test_replays_of_one_graph_that_was_traced_as_a_whole_are_iterations() -> None:
    items = [run("gemm", 1000 * n + 10, 1000 * n + 900, 1000 * n, opaque=True) for n in range(4)]
    small = [run("norm", 1000 * n + 920, 1000 * n + 930, 1000 * n + 5) for n in range(4)]
    found = scene([*items, *small]).steps()
    assert (found.anchor, found.frame["start"].to_list()) == ("replays of one graph", [10, 1010, 2010, 3010])
