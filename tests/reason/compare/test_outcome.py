"""The sentences of a comparison: what moved, and by which exchange."""

import re

from msgspec import structs

from diagnose.document.comparison import Category, EnvironmentChange, FindingChange, KernelChange, OverlapChange, SettingChange, StepDelta
from diagnose.document.diagnosis import Diagnosis, Fact
from diagnose.model.vocabulary import CommKind
from diagnose.reason.compare.causes import Changes, causes, in_long_steps
from diagnose.reason.compare.outcome import besides, metric_title, moved_exchange, why_exposed, without_unit
from diagnose.render.reports.comparison import story
from tests.builders.cases import for_each
from tests.builders.compared import document
from tests.builders.comparing import RULES, run, samples


def exchange(kind: CommKind, exposed_more: int) -> OverlapChange:
    """An exchange, all of it exposed, that takes so much longer."""
    return OverlapChange(
        kind=kind, backend="nccl", base_busy_ns=500, new_busy_ns=500 + exposed_more, base_exposed_ns=500, new_exposed_ns=500 + exposed_more,
        base_overlap=0.0, new_overlap=0.0, lost_ns=None,
    )  # fmt: skip


@for_each(
    "grew, others, named",
    ((100, 60), (), "expert"),
    ((100, 49), (), None),  # less than half of it
    ((100, -60), (), None),  # the other way
    ((-100, -60), (), "expert"),
    ((100, 60), (exchange("data", 70),), "data"),
    ((100, 30), (exchange("expert", 30),), "expert"),  # over two backends
)
def test_the_exchange_that_holds_half_of_what_moved_is_named(
    grew: tuple[int, int], others: tuple[OverlapChange, ...], named: CommKind | None
) -> None:
    row = Category(category="transport", base_ns=500, new_ns=500 + grew[0], delta_ns=grew[0], moved=True)
    found = moved_exchange(row, (exchange("expert", grew[1]), *others))
    assert (None if found is None else found.kind) == named


@for_each(
    "busy, exposed, counts, because",
    ((500, 900), (100, 500), None, "because it runs longer ("),  # beside as much compute as before
    ((500, 500), (100, 500), None, "because less of it runs beside other work (80.0 % → 0.0 %)"),
    ((500, 400), (100, 400), None, "because less of it runs beside other work (80.0 % → 0.0 %)"),
    ((500, 500), (500, 100), None, "because more of it runs beside other work (0.0 % → 80.0 %)"),
    ((600, 900), (600, 900), (20, 30), "because it runs more often (20 → 30 per step)"),
    ((900, 600), (900, 600), (30, 20), "because it runs less often (30 → 20 per step)"),
    ((600, 900), (600, 900), (20, 20), "because it runs longer ("),
    ((600, 900), (600, 900), (20, 22), "because it runs longer ("),  # more often explains a fifth of it
    ((600, 900), (600, 900), None, "because it runs longer ("),  # a document of an older version counts none
)
def test_an_exchange_is_longer_exposed_as_it_runs_longer_more_often_or_beside_less_compute(
    busy: tuple[int, int], exposed: tuple[int, int], counts: tuple[int, int] | None, because: str
) -> None:
    before, after = counts or (None, None)
    one = OverlapChange(
        kind="data", backend="nccl", base_busy_ns=busy[0], new_busy_ns=busy[1], base_exposed_ns=exposed[0], new_exposed_ns=exposed[1],
        base_overlap=1 - exposed[0] / busy[0], new_overlap=1 - exposed[1] / busy[1], lost_ns=None, base_count=before, new_count=after,
    )  # fmt: skip
    moved = exposed[1] - exposed[0]
    assert because in why_exposed(
        Category(category="transport", base_ns=exposed[0], new_ns=exposed[1], delta_ns=moved, moved=True), one, RULES.words
    )


@for_each(
    "metric, title",
    ("step_time", "the step"),
    ("kernels", "the number of kernels per step"),
    ("bucket:attention", "the time in which attention runs"),
    ("blocking:dispatch", "the time that compute waits for dispatch"),
    ("compute:attention", "compute in attention"),
    ("transport", "exposed communication"),
    ("compute_fill", "compute fill"),
)
def test_a_metric_is_the_subject_of_its_sentences(metric: str, title: str) -> None:
    assert metric_title(metric, RULES.words) == title


@for_each(
    "first, second, shown",
    ("45.0 ms", "50.5 ms", "45.0"),
    ("900 µs", "1.20 ms", "900 µs"),  # another unit
    ("12", "13", "12"),
    ("1.0 %", "2", "1.0 %"),
)
def test_a_unit_that_both_figures_have_is_said_once(first: str, second: str, shown: str) -> None:
    assert without_unit(first, second) == shown


def test_what_differs_besides_the_code_is_told_with_the_device_first() -> None:
    around = [
        EnvironmentChange(name="CUDA", kind="version", base="12.8", new="13.0"),
        EnvironmentChange(name="NCCL_ALGO", kind="variable", base="Ring", new=None),
        EnvironmentChange(name="highest GPU clock", kind="clock", base="1980 MHz", new="1755 MHz"),
    ]
    setting = SettingChange(name="overlap_grad_reduce", key="--overlap-grad-reduce", base="true", new=None)
    assert besides(around, [setting]) == (
        "What differs besides the code: highest GPU clock 1980 MHz → 1755 MHz; overlap_grad_reduce true → (not there); CUDA 12.8 → 13.0; and "
        "1 more."
    )
    assert not besides(())


def test_the_document_of_a_comparison_says_what_its_times_are_of() -> None:
    steps = ({"attention": 10_000_000},) * 4
    forward, training = (document(steps, facts={"is_training": Fact(value=one, unit="bool", status="measured")}) for one in (False, True))
    slower = document(tuple({"attention": one} for one in (*[13_000_000] * 4, 19_000_000, *[13_000_000] * 4)), facts=forward.facts)
    found = run(forward, slower, max_regression=0.05)
    assert (found.window, samples(forward, "step_time", rules=RULES).window) == ("iteration", "iteration")
    said = " ".join((found.outcome.sentence, found.outcome.moved, *found.outcome.reasons, found.gate.sentence if found.gate else ""))
    assert "1 of 8 iterations of new" in said
    assert re.findall(r"(?<!--)\bsteps?\b", said) == []
    assert found.outcome.sentence.startswith("These two captures differ: the typical iteration is 30.0 % slower")
    assert story.movement(found).startswith("iteration time 10.000 ms → 13.000 ms")
    assert story.step(found.base, found.window).startswith("iteration 10.000 ms")
    assert (story.whole(found), story.per(found)) == ("median iteration", "per iteration")
    assert [run(*pair).window for pair in ((forward, training), (training, training), (document(steps), document(steps)))] == ["step"] * 3
    assert run(document(steps, anchor="capture"), document(steps, anchor="capture")).window == "capture"


@for_each(
    "slower, said",
    (0, "Kernels are launched from CUDA graphs now."),
    (45, "Kernels are launched from CUDA graphs now."),
    (55, ""),  # of 100: what takes longer per launch leads, and no graph explains it
)
def test_graphs_explain_no_product_that_takes_longer_per_launch(slower: int, said: str) -> None:
    here, there = (
        structs.replace(document(), facts={"graph_kernel_share": Fact(value=share, unit="share", status="measured")})
        for share in (0.0, 0.9)
    )
    delta = StepDelta(base_ns=1000, new_ns=1100, delta_ns=100, base_steps=(0,), new_steps=(0,), categories=())
    gemm = KernelChange(
        kind="slower", name="gemm", bucket="dense_gemm", was=None, stream=7, was_stream=7, base_launches=1, new_launches=1, base_launch_ns=100,
        new_launch_ns=100 + slower, base_work_ns=100, new_work_ns=100 + slower, delta_ns=slower, role="compute",
    )  # fmt: skip
    changes = Changes(base=here, new=there, delta=delta, kernels=(gemm,) if slower else ())
    assert causes(changes, RULES.limits.causes) == said


def told(base: float, new: float, name: str) -> tuple[Diagnosis, Diagnosis]:
    """Two runs of which only one fact differs."""
    here, there = (structs.replace(document(), facts={name: Fact(value=one, unit="x", status="measured")}) for one in (base, new))
    return here, there


def moved(**deltas: int) -> StepDelta:
    """A step of 1,000 ns and these changes by category (`__` for a colon)."""
    rows = tuple(
        Category(category=name.replace("__", ":"), base_ns=100, new_ns=100 + ns, delta_ns=ns, moved=True) for name, ns in deltas.items()
    )
    change = sum(deltas.values())
    return StepDelta(base_ns=1000, new_ns=1000 + change, delta_ns=change, base_steps=(0,), new_steps=(0,), categories=rows)


@for_each(
    "fact, base, new, deltas, said",
    (
        "expert_gemm_grouped_share",
        1.0,
        0.0,
        {"compute__expert_gemm": 60, "transport": 40},
        "Expert GEMMs no longer run in grouped kernels.",
    ),
    ("expert_gemm_grouped_share", 0.0, 1.0, {"compute__expert_gemm": -60}, "Expert GEMMs run in grouped kernels now."),
    ("expert_gemm_grouped_share", 1.0, 0.0, {"compute__expert_gemm": 40, "transport": 60}, ""),  # it explains what its bucket takes
    ("expert_gemm_grouped_share", 1.0, 0.0, {"compute__expert_gemm": -60, "transport": 160}, ""),
    ("unfused_update_share", 0.0, 0.9, {"compute__optimizer": 90}, "The optimizer runs a kernel for each operation, no longer fused."),
)
def test_kernels_that_are_fused_or_grouped_on_one_side_explain_their_own_bucket(
    fact: str, base: float, new: float, deltas: dict[str, int], said: str
) -> None:
    here, there = told(base, new, fact)
    assert causes(Changes(base=here, new=there, delta=moved(**deltas)), RULES.limits.causes) == said


@for_each(
    "gaps, calls, grew, said",
    ((9000, 12000), (100, 100), 500_000, "The CPU takes longer from one launch to the next (9.00 → 12.0 µs, median; as many launches)."),
    (
        (12000, 9000),
        (100, 100),
        -500_000,
        "The CPU takes less time from one launch to the next (12.0 → 9.00 µs, median; as many launches).",
    ),
    ((9000, 12000), (100, 110), 500_000, ""),  # other launches too
    ((9000, 9400), (100, 100), 100_000, ""),
    ((9000, 12000), (100, 100), 1_200_000, ""),  # a quarter of what the CPU took more
    ((9000, 12000), (100, 100), -500_000, ""),
)
def test_a_slower_cpu_shows_in_the_time_from_launch_to_launch(gaps: tuple[int, int], calls: tuple[int, int], grew: int, said: str) -> None:
    here, there = (
        structs.replace(
            document(),
            facts={
                "launch_gap_median_ns": Fact(value=gap, unit="ns", status="measured"),
                "launch_calls_per_step": Fact(value=count, unit="count", status="measured"),
            },
        )
        for gap, count in zip(gaps, calls, strict=True)
    )
    assert causes(Changes(base=here, new=there, delta=moved(launch_starved=grew)), RULES.limits.causes) == said


@for_each(
    "bound, slower, said",
    (40, 50, True),  # of 100: most of what the kernels' pace leaves
    (24, 60, False),  # but less than a quarter of all
    (40, 0, False),  # less than half, and the rest of unknown cause
)
def test_what_is_lost_beside_kernels_that_take_longer_is_named(bound: int, slower: int, said: bool) -> None:
    gemm = KernelChange(
        kind="slower", name="gemm", bucket="dense_gemm", was=None, stream=7, was_stream=7, base_launches=1, new_launches=1, base_launch_ns=100,
        new_launch_ns=100 + slower, base_work_ns=100, new_work_ns=100 + slower, delta_ns=slower, role="compute",
    )  # fmt: skip
    found = FindingChange(
        id="host-data-loading", name="", severity="medium", state="new", summary="", base_bound_ns=None, new_bound_ns=bound
    )
    changes = Changes(
        base=document(), new=document(), delta=moved(launch_starved=100), kernels=(gemm,) if slower else (), findings=(found,)
    )
    assert causes(changes, RULES.limits.causes) == ("Compute waits for the data loader, which it did not." if said else "")


def test_a_cause_of_long_steps_goes_before_what_may_be_its_effect() -> None:
    loader, stalls = (
        FindingChange(id=name, name="", severity="high", state="new", summary="", base_bound_ns=None, new_bound_ns=bound)
        for name, bound in (("host-data-loading", 16_000_000), ("host-long-gaps", 17_000_000))
    )
    said = "Compute waits for the data loader, which it did not: 16.0 ms of the mean."
    both = Changes(base=document(), new=document(), delta=None, findings=(stalls, loader))
    assert in_long_steps(both, 0.1, RULES.limits.causes) == said
    alone = structs.replace(both, findings=(stalls,))
    assert in_long_steps(alone, 0.1, RULES.limits.causes).startswith("Compute waits through long stalls of the CPU between launches")
