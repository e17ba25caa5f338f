"""The reconciled delta closes to the nanosecond, whatever the steps are."""

from fractions import Fraction
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from diagnose.document.device import RAN, WHY, StepSplit
from diagnose.knowledge.buckets import load_buckets
from diagnose.reason.compare.delta import SplitRun, middle, portioned
from diagnose.reason.compare.metrics import by_category
from tests.builders.compared import Cells, split
from tests.builders.comparing import step_delta

BUCKETS = tuple(load_buckets())

KEYS = st.sampled_from(BUCKETS) | st.tuples(st.sampled_from(RAN), st.sampled_from(WHY))
STEPS = st.lists(st.dictionaries(KEYS, st.integers(0, 10**9), min_size=1, max_size=8), min_size=1, max_size=7)
SCALES = st.fractions(min_value=Fraction(1, 10), max_value=10, max_denominator=10**6)


def steps(cells: list[Cells]) -> list[StepSplit]:
    return [split(index, one) for index, one in enumerate(cells)]


def side(*runs: list[Cells], scale: Fraction = Fraction(1)) -> list[SplitRun]:
    return [SplitRun(steps=steps(run), scale=scale) for run in runs]


@given(st.lists(STEPS, min_size=1, max_size=3), st.lists(STEPS, min_size=1, max_size=3), SCALES)
def test_deltas_of_categories_add_up_to_that_of_the_step(base: list[list[Cells]], new: list[list[Cells]], scale: Fraction) -> None:
    found = step_delta(side(*base), side(*new, scale=scale))
    assert found is not None
    assert sum(row.delta_ns for row in found.categories) == found.delta_ns == found.new_ns - found.base_ns
    for key in ("base_ns", "new_ns"):
        assert sum(getattr(row, key) for row in found.categories) == getattr(found, key)
    for row in found.categories:
        assert row.category.startswith("compute:") or [sum(getattr(part, key) for part in row.parts) for key in ("base_ns", "new_ns")] == [
            row.base_ns,
            row.new_ns,
        ]
        assert row.low is None or row.high is None or row.low <= row.delta_ns <= row.high, "an interval holds its own delta"
        assert row.low is None or row.high is None or not row.moved or not row.low <= 0 <= row.high, "what moved is not within noise"


def test_a_bound_of_less_than_a_nanosecond_is_nought_in_the_state_too() -> None:
    found = step_delta(side(*([{"vision_encoder": ns}] for ns in (0, 2, 2, 2, 2))), side(*([{"vision_encoder": 0}] for _ in range(2))))
    assert found is not None
    assert [(row.delta_ns, row.high, row.state, row.moved) for row in found.categories] == [(-1, 0, "within noise", False)]


@given(STEPS)
def test_the_median_step_is_the_documents_median(cells: list[Cells]) -> None:
    lengths = [sum(one.values()) for one in cells]
    found = middle(steps(cells))
    assert found.total_ns == int(median(lengths))
    assert sum(found.cells.values()) == found.total_ns
    assert len(found.steps) == 2 - len(cells) % 2


@given(STEPS)
def test_steps_against_themselves_have_no_delta(cells: list[Cells]) -> None:
    found = step_delta(side(cells), side(cells))
    assert found is not None
    assert found.delta_ns == 0
    assert not [row for row in found.categories if row.delta_ns or row.moved]


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**12), max_size=9), SCALES)
def test_portions_keep_the_sum_and_are_next_to_exact(parts: dict[str, int], factor: Fraction) -> None:
    found = portioned(parts, factor)
    assert sum(found.values()) == sum(parts.values()) * factor // 1
    assert all(abs(found[key] - value * factor) < 1 for key, value in parts.items())


def test_every_cell_has_one_category() -> None:
    one = split(
        0,
        {
            "attention": 1,
            ("transport", "transport"): 2,
            ("transport", "host_work"): 4,
            ("packing", "dependency_stalled"): 8,
            ("copy", "copy"): 16,
            ("nothing", "allocator"): 32,
            ("nothing", "host_work"): 64,
            ("nothing", "host_sync"): 128,
            ("nothing", "dependency_stalled"): 256,
            ("nothing", "step_end"): 512,
        },
    )
    assert by_category(one) == {
        "compute:attention": 1, "transport": 6, "packing": 8, "copy": 16, "launch_starved": 96, "host_sync": 128,
        "dependency_stalled": 256, "idle": 512,
    }  # fmt: skip


def test_a_category_moves_beyond_its_noise_and_not_within_it() -> None:
    base = [
        split(index, {"attention": 1_000_000 + 1000 * index, ("nothing", "host_work"): 500_000 + wobble})
        for index, wobble in enumerate((0, 90_000, 5_000, 60_000))
    ]
    new = [
        split(index, {"attention": 1_200_000 + 1000 * index, ("nothing", "host_work"): 540_000 + wobble})
        for index, wobble in enumerate((80_000, 0, 50_000, 9_000))
    ]
    found = step_delta([SplitRun(steps=base)], [SplitRun(steps=new)])
    assert found is not None
    assert {row.category: row.state for row in found.categories} == {"compute:attention": "moved", "launch_starved": "within noise"}


def test_small_is_what_is_no_noise_and_less_than_half_a_per_cent() -> None:
    """Over runs: a part that repeats to the nanosecond has moved however little, and one that wanders has not."""
    base: list[list[Cells]] = [
        [{"attention": 10_000_000 + wander, "router": 300_000}] for wander in (0, 300_000, -200_000, 100_000, -150_000)
    ]
    new: list[list[Cells]] = [[{"attention": 10_100_000 - wander, "router": 330_000}] for wander in (0, 250_000, -240_000)]
    found = step_delta(side(*base), side(*new))
    assert found is not None
    assert {row.category: row.state for row in found.categories} == {"compute:attention": "within noise", "compute:router": "small"}


def test_a_document_without_splits_has_no_delta() -> None:
    assert step_delta(side([]), side([{"attention": 1}])) is None
