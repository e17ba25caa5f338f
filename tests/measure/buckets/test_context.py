"""Which ranges enclose a launch, what backward nodes inherit, and which description a collective gets."""

from __future__ import annotations

import random

import polars as pl
import pytest

from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy
from diagnose.measure.buckets.context import FORWARD_BIT, host_context, innermost, masks_of
from diagnose.measure.host import attribute
from diagnose.model.trace import Trace
from tests.builders.small_traces import Launch, Range, trace_of


@pytest.fixture(scope="module")
def taxonomy() -> Taxonomy:
    return load_taxonomy()


def ids_at(trace: Trace, taxonomy: Taxonomy) -> list[set[str]]:
    """The contexts of each operation, by id; FORWARD stands for a recorded forward operator."""
    found = host_context(trace, attribute(trace), taxonomy)
    assert found.mask.len() == found.payload_id.len() == trace.ops.height
    named = {1 << bit: context.id for bit, context in enumerate(taxonomy.contexts)} | {1 << FORWARD_BIT: "FORWARD"}
    return [{name for bit, name in named.items() if mask & bit} for mask in found.mask]


def test_a_launch_is_inside_from_the_range_s_start_to_before_its_end(taxonomy: Taxonomy):
    router = Range(text="nn.Module: TopKRouter_3", start=100, end=200, kind="python")
    launches = [Launch(name="k", at=at, start=at + 1000) for at in (99, 100, 150, 199, 200)]
    assert ids_at(trace_of(launches, [router]), taxonomy) == [set(), {"router"}, {"router"}, {"router"}, set()]


def test_threads_and_ranks_keep_apart(taxonomy: Taxonomy):
    ranges = [
        Range(text="_GroupedLinear", start=0, end=100, thread=1),
        Range(text="_Linear", start=0, end=100, thread=2),
        Range(text="Optimizer.step#Adam.step", start=0, end=100, thread=1, rank=1, kind="annotation"),
    ]
    launches = [
        Launch(name="k", at=50, thread=1),
        Launch(name="k", at=50, thread=2),
        Launch(name="k", at=50, thread=3),
        Launch(name="k", at=50, thread=1, rank=1),
    ]
    assert ids_at(trace_of(launches, ranges), taxonomy) == [
        {"expert_operator", "forward"},
        {"dense_operator", "forward"},
        set(),
        {"optimizer"},
    ]


def test_the_answer_follows_the_rows_of_ops_and_not_the_launches(taxonomy: Taxonomy):
    ranges = [Range(text="_GroupedLinear", start=0, end=20), Range(text="ProfilerStep#1", start=0, end=100, kind="annotation")]
    launches = [Launch(name="late", at=50, start=60), Launch(name="early", at=10, start=70), Launch(name="unlaunched", start=80)]
    assert ids_at(trace_of(launches, ranges), taxonomy) == [set(), {"expert_operator", "forward"}, set()]


def test_a_kind_of_range_only_meets_the_contexts_for_it(tmp_path, taxonomy: Taxonomy):
    path = tmp_path / "own.yaml"
    path.write_text("contexts:\n  - id: only_nvtx\n    patterns: ['^here$']\n    sources: [nvtx]\n    evidence: module\n    bucket: norm\n")
    own = load_taxonomy(extra=[path])
    kinds = ["push_pop", "start_end", "annotation", "operator", "python", "mark", "gpu_annotation"]
    ranges = [Range(text="here", start=100 * n, end=100 * n + 50, kind=kind) for n, kind in enumerate(kinds)]
    launches = [Launch(name="k", at=100 * n + 10) for n in range(len(kinds))]
    assert ids_at(trace_of(launches, ranges), own) == [{"only_nvtx"}, {"only_nvtx"}, set(), set(), set(), set(), set()]


def test_a_trace_without_ranges_or_launches_has_no_context(taxonomy: Taxonomy):
    assert ids_at(trace_of([Launch(name="k", at=5)]), taxonomy) == [set()]
    assert ids_at(trace_of([Launch(name="k")], [Range(text="_Linear", start=0, end=100)]), taxonomy) == [set()]
    assert ids_at(trace_of([Launch(name="k", at=5)], [Range(text="nothing known", start=0, end=100)]), taxonomy) == [set()]


@pytest.mark.parametrize("forward_thread", [7, None])
def test_backward_nodes_inherit_their_forward_operator_s_contexts(taxonomy: Taxonomy, forward_thread: int | None):
    """As Kineto records it (forward thread given) and as NVTX does (same number, name of a backward node)."""
    ranges = [
        Range(text="nn.Module: Qwen3VLVisionModel_0", start=0, end=100, kind="python"),
        Range(text="aten::linear", start=10, end=20, sequence=41),
        Range(text="nn.Module: TopKRouter_0", start=200, end=300, kind="python"),
        Range(text="aten::linear", start=210, end=220, sequence=42),
        Range(
            text="autograd::engine::evaluate_function: AddmmBackward0",
            start=500,
            end=600,
            thread=2,
            sequence=42,
            forward_thread=forward_thread,
        ),
        Range(text="AddmmBackward0", start=510, end=590, thread=2, sequence=42, forward_thread=forward_thread),
        Range(
            text="autograd::engine::evaluate_function: AddmmBackward0",
            start=700,
            end=800,
            thread=2,
            sequence=41,
            forward_thread=forward_thread,
        ),
        Range(
            text="autograd::engine::evaluate_function: MulBackward0",
            start=900,
            end=950,
            thread=2,
            sequence=40,
            forward_thread=forward_thread,
        ),
    ]
    launches = [Launch(name="k", at=at, thread=2) for at in (550, 750, 850, 920)]
    found = ids_at(trace_of(launches, ranges), taxonomy)
    assert found == [{"router", "backward"}, {"vision", "backward"}, set(), {"backward"}]


def test_a_number_used_again_links_to_the_operator_before(taxonomy: Taxonomy):
    ranges = [
        Range(text="nn.Module: TopKRouter_0", start=0, end=50, kind="python"),
        Range(text="aten::mm", start=10, end=20, sequence=1),
        Range(text="MmBackward0", start=100, end=150, thread=2, sequence=1, forward_thread=1),
        Range(text="nn.Module: SharedExpertMLP_0", start=200, end=250, kind="python"),
        Range(text="aten::mm", start=210, end=220, sequence=1),
        Range(text="MmBackward0", start=300, end=350, thread=2, sequence=1, forward_thread=1),
    ]
    found = ids_at(trace_of([Launch(name="k", at=120, thread=2), Launch(name="k", at=320, thread=2)], ranges), taxonomy)
    assert found == [{"router", "backward"}, {"shared_experts", "backward"}]


def test_recorded_operators_are_forward_and_backward_nodes_are_not(taxonomy: Taxonomy):
    ranges = [
        Range(text="aten::mul", start=0, end=50, sequence=3),
        Range(text="MulBackward0", start=100, end=150, sequence=3),
    ]
    found = ids_at(trace_of([Launch(name="k", at=20), Launch(name="k", at=120)], ranges), taxonomy)
    assert found == [{"FORWARD"}, {"backward"}]


def test_the_kernel_s_own_description_comes_first_and_the_innermost_range_s_second(taxonomy: Taxonomy):
    ranges = [
        Range(text="record_param_comms", start=0, end=100, kind="comms", payload=0),
        Range(text="record_param_comms", start=20, end=40, kind="comms", payload=1),
    ]
    launches = [
        Launch(name="ncclDevKernel_SendRecv()", at=10),
        Launch(name="ncclDevKernel_SendRecv()", at=30),
        Launch(name="ncclDevKernel_SendRecv()", at=60),
        Launch(name="ncclDevKernel_SendRecv()", at=30, payload=2),
        Launch(name="ncclDevKernel_SendRecv()", at=120),
    ]
    trace = trace_of(launches, ranges, groups=["A", "B", "C"])
    assert host_context(trace, attribute(trace), taxonomy).payload_id.to_list() == [0, 1, 0, 2, None]


@pytest.mark.parametrize("seed", range(5))
def test_innermost_agrees_with_a_search_through_all_ranges(seed: int):
    rng = random.Random(seed)
    rows: list[tuple[int, int, int]] = []

    def nest(start: int, end: int, depth: int) -> None:
        at = start
        while depth and at < end - 2:
            begin = at + rng.randrange(3)
            stop = min(end, begin + rng.randrange(1, 30))
            if stop <= begin:
                break
            rows.append((begin, stop, len(rows)))
            nest(begin, stop, depth - 1)
            at = stop

    nest(0, 120, 4)
    frame = pl.DataFrame(rows, schema={"start": pl.Int64, "end": pl.Int64, "value": pl.Int64}, orient="row")
    segments = innermost(frame.sample(fraction=1.0, shuffle=True, seed=seed))
    assert segments["start"].is_sorted()
    for time in range(125):
        held = [row for row in rows if row[0] <= time < row[1]]
        here = segments.filter((pl.col("start") <= time) & (pl.col("end") > time))
        assert here.height == bool(held)
        if held:
            shortest = min(row[1] - row[0] for row in held)
            assert here["value"].item() in {row[2] for row in held if row[1] - row[0] == shortest}


def test_times_beyond_the_key_s_reach_are_coarsened_not_overflown(taxonomy: Taxonomy):
    far = 1 << 61
    ranges = [Range(text="_GroupedLinear", start=far, end=far + (1 << 58))]
    launches = [Launch(name="k", at=far + (1 << 57), thread=1), Launch(name="k", at=5, thread=1), Launch(name="k", at=5, thread=2)]
    assert ids_at(trace_of(launches, ranges), taxonomy) == [{"expert_operator", "forward"}, set(), set()]


def test_masks_of_texts_are_those_of_ranges(taxonomy: Taxonomy):
    masks = masks_of([{"module": ["nn.Module: TopKRouter_3"], "operator": ["aten::mm"]}, {}], taxonomy)
    assert masks == [1 << taxonomy.bit("router"), 0]
