"""A metric's samples: by step where the document has them; what it lacks is an error, never nought."""

import pytest
from msgspec import structs

from diagnose.document.device import Blocking, Dropped
from diagnose.document.diagnosis import Diagnosis, Fact
from diagnose.reason.compare.metrics import CATEGORIES, NO_KERNELS, MetricError, UnmeasuredError, last_is_short, place_of, split_of
from tests.builders.cases import for_each
from tests.builders.compared import document
from tests.builders.comparing import samples

STEPS = (
    {"attention": 1_000_000, ("transport", "transport"): 300_000, ("nothing", "host_work"): 200_000},
    {"attention": 1_100_000, ("nothing", "host_work"): 210_000},
)


def fact(value: float | str | bool | None, unit: str) -> Fact:
    return Fact(value=value, unit=unit, status="measured")


@pytest.fixture
def one() -> Diagnosis:
    base = document(STEPS)
    return structs.replace(
        base,
        facts={
            "kernels_per_step": fact(120, "count"),
            "launch_starved_ns": fact(205_000, "ns"),
            "compute_fill": fact(0.8, "share"),
            "blocking_ns": fact(300_000, "ns"),
            "gpu_name": fact("H100", "text"),
            "python_stacks": fact(value=False, unit="bool"),
            "gc_ns": fact(None, "ns"),
        },
        blocking=(
            Blocking(rank=0, device=0, bucket="dispatch", role="transport", kind="expert", blocking_ns=250_000, status="measured"),
            Blocking(rank=0, device=0, bucket="dispatch", role="packing", kind=None, blocking_ns=50_000, status="measured"),
        ),
    )


@for_each(
    "metric, values, unit, per_step",
    ("step_time", (1_500_000, 1_310_000), "ns", True),
    ("transport", (300_000, 0), "ns", True),
    ("launch_starved", (200_000, 210_000), "ns", True),
    ("compute:attention", (1_000_000, 1_100_000), "ns", True),
    ("compute:loss", (0, 0), "ns", True),  # it did not run: the split is complete
    ("bucket:attention", (1_000_000,), "ns", False),
    ("bucket:loss", (0,), "ns", False),
    ("kernels", (120,), "count", False),
    ("blocking:dispatch", (300_000,), "ns", False),
    ("blocking_dispatch", (300_000,), "ns", False),
    ("compute_fill", (0.8,), "share", False),
    ("launch_starved_ns", (0, 0), "ns", True),  # the budget's own figure, step by step
)
def test_samples(one: Diagnosis, metric: str, values: tuple[float, ...], unit: str, per_step: bool) -> None:
    found = samples(one, metric)
    assert (found.metric, found.values, found.unit, found.per_step) == (metric, values, unit, per_step)
    assert found.larger_is_worse == (metric != "compute_fill")


@for_each("metric", "nonsense", "compute:nonsense", "bucket:nonsense", "blocking_nonsense", "gpu_name", "python_stacks")
def test_what_there_is_not_is_an_error_that_names_what_there_is(one: Diagnosis, metric: str) -> None:
    with pytest.raises(MetricError) as error:
        samples(one, metric)
    assert error.value.exit_code == 2
    assert error.value.next_step


def test_an_unknown_metric_is_told_the_facts_with_like_names(one: Diagnosis) -> None:
    for metric, shown in (
        ("fill_of_compute", "(`diagnose explain facts`), for example compute_fill."),
        ("nonsense", "(`diagnose explain facts`)."),
    ):
        with pytest.raises(MetricError) as error:
            samples(one, metric)
        assert error.value.next_step.endswith(shown)


def test_what_was_not_measured_is_never_nought(one: Diagnosis) -> None:
    with pytest.raises(UnmeasuredError, match="not measured"):
        samples(one, "gc_ns")
    old = structs.replace(one, split=(), kernels=())
    for metric in (*CATEGORIES, "compute:attention"):
        with pytest.raises(UnmeasuredError, match="did not split steps"):
            samples(old, metric)
    with pytest.raises(UnmeasuredError, match="does not tell what compute waited for"):
        samples(structs.replace(one, facts={}), "blocking:dispatch")
    with pytest.raises(UnmeasuredError, match="no steps of rank 7"):
        samples(one, "step_time", (7, 0))


def test_facts_speak_of_the_verdicts_rank_only(one: Diagnosis) -> None:
    several = structs.replace(document(STEPS, ranks=(0, 1)), facts=one.facts)
    assert samples(several, "compute_fill").values == (0.8,)
    with pytest.raises(UnmeasuredError, match="of rank 0 only"):
        samples(several, "compute_fill", (1, 0))
    assert samples(several, "step_time", (1, 0)).values == (1_500_000, 1_310_000)
    assert samples(several, "kernels", (1, 0)).values == (10,)
    more = tuple(structs.replace(row, kernels=row.kernels + 7) if row.rank == 1 else row for row in several.buckets)
    others = sum(row.rank == 1 and row.bucket not in NO_KERNELS for row in more)
    assert samples(structs.replace(several, buckets=more), "kernels", (1, 0)).values == (10 + 7 * others,)


def test_the_last_step_ends_with_its_last_operation_by_some_anchors() -> None:
    assert last_is_short(document(STEPS))
    assert last_is_short(document(STEPS, anchor="optimizer kernels"))
    assert not last_is_short(document(STEPS, anchor="recurring collectives"))
    dropped = document(STEPS)
    later = structs.replace(
        dropped, steps=structs.replace(dropped.steps, dropped=(Dropped(index=9, why="a CUDA graph was captured in it"),))
    )
    assert not last_is_short(later)


@for_each(
    "anchor, count, left",
    ("range iteration N", 4, 3), ("range iteration N", 3, 2), ("range iteration N", 2, 2),
    ("recurring collectives", 4, 4),
)  # fmt: skip
def test_a_last_step_whose_end_is_not_known_is_left_out(anchor: str, count: int, left: int) -> None:
    """It ends with its last operation: what follows that in every step (garbage collection, a wait) would be half of it in the median."""
    steps = [{"attention": 30_000_000, "launch_starved": 12_000_000}] * (count - 1) + [{"attention": 30_000_000}]
    found = document(steps, anchor=anchor)
    for metric in ("step_time", "compute:attention"):
        assert len(samples(found, metric).values) == len(samples(found, metric).steps) == left
    assert len(split_of(found, place_of(found))) == left
    assert (30_000_000 in samples(found, "step_time").values) == (left == count)
