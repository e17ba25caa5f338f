"""The facts table and its producers: the same names, and null exactly where the table says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.knowledge.rulebook import Rulebook, load_rulebook
from diagnose.measure.facts.device import device_facts, trace_facts, typed_facts
from diagnose.measure.ranks.facts import rank_facts
from diagnose.measure.records import device_records
from diagnose.model.trace import Device, Provenance, Rank
from diagnose.model.vocabulary import FactValue
from tests.builders.scene import KNOWLEDGE, Item, Scene, Span, await_event, call, record, run, scene

FROM_THE_PLATFORM = {"platform", "nvlink_domain"}  # added where the platform table is known


@pytest.fixture(scope="module")
def rulebook() -> Rulebook:
    return load_rulebook(())


def facts_of(one: Scene, place: int = 0) -> dict[str, FactValue]:
    measured = one.measure()[place]
    own = device_facts(measured, device_records(measured), KNOWLEDGE)
    return {**trace_facts(one.trace, KNOWLEDGE, 1), **own, **rank_facts(None, measured.median_step_ns)}


# One step with compute, exchange, permute, copies of known kind and size, allocator, synchronisation, an event and a device row.
PROGRAM = [
    run("gemm", 0, 100, 0, phase="forward"),
    call("cudaMalloc", 5, 10),
    run("nccl", 110, 200, 12, stream=20),
    record(14, 20, sync=1),
    await_event(16, 7, sync=1),
    run("permute", 205, 215, 18),
    run("expert", 220, 300, 20, phase="forward"),
    run("memcpy", 310, 350, 22, pinned=False, copy_kind="h2d", bytes=64, until=30),
    run("memcpy", 355, 360, 32, pinned=True, copy_kind="d2h", bytes=8),
    call("cudaStreamSynchronize", 40, 365, wait="stream_sync", stream=7),
    run("gemm", 400, 500, 370, phase="backward"),
]
FULL = scene(
    PROGRAM, [Span(text="gc.collect", start=366, end=369)], devices=[Device(rank=0, device=0, name="X", compute_major=9, total_memory=80)]
)
BARE = scene([run("gemm", 0, 10), run("gemm", 50, 60)])  # no API call, no launch, no device row, one window without anchor


def test_every_fact_of_the_table_has_a_producer_and_none_is_unknown_to_it(rulebook: Rulebook) -> None:
    assert set(facts_of(FULL)) | FROM_THE_PLATFORM == set(rulebook.facts)
    assert set(facts_of(BARE)) | FROM_THE_PLATFORM == set(rulebook.facts)


@pytest.mark.parametrize("one", [FULL, BARE])
def test_a_fact_that_is_never_null_never_is(one: Scene, rulebook: Rulebook) -> None:
    found = facts_of(one)
    never = [name for name, spec in rulebook.facts.items() if spec.null.startswith("never")]
    assert len(never) > 60
    assert [name for name in never if found[name] is None] == []


def test_types_are_those_of_the_units(rulebook: Rulebook) -> None:
    kinds = {"ns": int, "count": int, "bytes": int, "share": float, "text": str, "bool": bool}
    found = facts_of(FULL)
    wrong = [name for name, spec in rulebook.facts.items() if found.get(name) is not None and type(found[name]) is not kinds[spec.unit]]
    assert wrong == []


def test_shares_lie_between_nought_and_one(rulebook: Rulebook) -> None:
    found = facts_of(FULL)
    shares = {name: found[name] for name, spec in rulebook.facts.items() if spec.unit == "share" and found.get(name) is not None}
    shares.pop("attention_forward_per_backward", None)  # a ratio
    assert {name: value for name, value in shares.items() if not 0 <= float(value or 0) <= 1} == {}


def test_the_values_of_a_small_step() -> None:
    expected = {
        "step_ns": 500,
        "steps_n": 1,
        "steps_anchored": False,
        "device_busy_ns": 425,
        "device_idle_ns": 75,
        "compute_busy_ns": 280,
        "compute_busy_share": 280 / 500,
        "compute_absent_ns": 220,
        "transport_busy_ns": 90,
        "transport_exposed_ns": 90,
        "transport_hidden_share": 0.0,
        "packing_busy_ns": 10,
        "packing_kernels_per_step": 1,
        "copy_busy_ns": 45,
        "copy_h2d_bytes": 64,
        "copy_d2h_bytes": 8,
        "pageable_copy_ns": 40,
        "expert_exchange_busy_ns": 90,
        "expert_exchange_count": 1,
        "expert_exchange_backend": "nccl",
        "data_parallel_busy_ns": 0,
        "dispatch_busy_ns": 100,
        "expert_gemm_busy_ns": 80,
        "expert_gemm_kernels_per_step": 1,
        "expert_gemm_grouped_share": 1.0,
        "kernels_per_step": 5,
        "tiny_kernel_share": 1.0,
        "sync_calls_per_step": 1,
        "allocator_calls_per_step": 1,
        "correlation_rate": 1.0,
        "resolved_wait_rate": 1.0,
        "gpu_name": "X",
        "gpu_compute_major": 9,
        "device_memory_bytes": 80,
        "ranks_captured": 1,
        "launch_starved_ns": 26,  # 345 … 371 of the last gap
        "host_sync_ns": 20,  # under the call, before its copy began and after it ended
        "gc_ns": 3,
        "python_gap_ns": 2,
        "allocator_ns": 0,
    }
    found = facts_of(FULL)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "names",
    [
        ("launch_starved_ns", "launch_starved_share", "host_work_ns", "longest_host_gap_ns", "host_gap_excess_ns"),  # no launch
        (
            "allocator_ns",
            "host_sync_ns",
            "python_gap_ns",
            "launch_calls_per_step",
            "graph_launches_per_step",
            "sync_calls_per_step",
        ),  # no call
        ("gpu_name", "gpu_compute_major", "device_memory_bytes"),  # no device row
        ("step_spread",),  # one step
        ("peak_allocated_bytes", "peak_reserved_bytes"),  # no allocator events
        ("resolved_wait_rate",),  # no stream wait
        ("gc_ns", "gc_ranges_per_step"),  # no range that would show it
        ("pageable_copy_ns", "copy_h2d_bytes", "copy_d2h_bytes"),  # neither kind nor size recorded
        ("expert_gemm_fill", "compute_fill"),  # neither shapes nor limits
        ("recompute_ns", "recompute_share", "attention_forward_per_backward"),
        ("expert_exchange_backend", "transport_hidden_share", "expert_gemm_median_ns", "expert_gemm_grouped_share"),  # nothing of it ran
        ("blocking_inferred_share",),  # nothing blocked
        ("world_size", "profiler_overhead_ns"),
    ],
)
def test_what_was_not_recorded_is_null_never_zero(names: tuple[str, ...]) -> None:
    found = facts_of(BARE)
    assert {name: found[name] for name in names} == dict.fromkeys(names)


def test_without_compute_there_is_no_kernel_median() -> None:
    found = facts_of(scene([run("nccl", 0, 10, 0), run("nccl", 20, 30, 11)]))
    assert (found["kernel_median_ns"], found["tiny_kernel_share"], found["compute_busy_ns"]) == (None, None, 0)


def test_an_opaque_graph_hides_how_many_kernels_graphs_launched() -> None:
    opaque = facts_of(scene([run("gemm", 0, 30, 0), run("gemm", 40, 110, 31, opaque=True)]))
    assert (opaque["graph_kernel_share"], opaque["opaque_graph_share"]) == (None, 0.7)
    nodes = facts_of(scene([run("gemm", 0, 30, 0), run("gemm", 40, 110, 31, node=4)]))
    assert (nodes["graph_kernel_share"], nodes["opaque_graph_share"]) == (0.5, 0.0)


def test_the_spread_needs_two_steps() -> None:
    items = [run("gemm", 10, 100, 1), run("gemm", 200, 290, 191), run("gemm", 300, 350, 295)]
    spans = [Span(text=f"iteration {n}", start=start, end=end) for n, (start, end) in enumerate([(0, 190), (190, 292), (292, 400)])]
    found = facts_of(scene(items, spans))
    assert (found["step_ns"], found["steps_n"], found["steps_anchored"]) == (100, 3, True)
    assert found["step_spread"] == (190 - 50) / 100


def test_facts_of_the_capture() -> None:
    trace = replace(
        BARE.trace,
        ranks=(Rank(rank=3, world_size=8), Rank(rank=4)),
        provenance=Provenance(file="f", size=1, format="torch-json", profiler="p", has_python_stacks=True, overhead_ns=5),
    )
    assert trace_facts(trace, KNOWLEDGE, 2) == {
        "world_size": 8,
        "ranks_captured": 2,
        "python_stacks": True,
        "profiler_overhead_ns": 5,
        "graph_launch_calls": None,
        "hierarchical_context_groups": None,
    }


def test_a_fact_that_the_table_lacks_is_a_fault() -> None:
    with pytest.raises(KeyError, match="absent_fact"):
        typed_facts({"absent_fact": 1}, {"step_ns": "ns"})


def test_typed_facts_follow_the_table_and_carry_their_status() -> None:
    found = typed_facts({"b": 2}, {"a": "ns", "b": "count"}, frozenset({"b"}))
    assert [(name, fact.value, fact.unit, fact.status) for name, fact in found.items()] == [
        ("a", None, "ns", "measured"),
        ("b", 2, "count", "inferred"),
    ]


# ---------------------------------------------------------------------------------------------------- known to be wrong


def two_at_once(**more: object) -> list[Item]:
    return [
        run("gemm", 0, 10, 0),
        run("memcpy", 20, 100, 1, stream=8, **more),
        run("memcpy", 20, 100, 2, stream=9, **more),
        run("gemm", 110, 120, 3),
    ]


def test_pageable_copies_that_run_together_count_once() -> None:
    assert facts_of(scene(two_at_once(pinned=False, copy_kind="h2d")))["pageable_copy_ns"] == 80


def test_tiny_kernels_that_run_together_count_once() -> None:
    assert facts_of(scene([run("gemm", 0, 10, 0), run("gemm", 0, 10, 1, stream=9)]))["tiny_kernel_busy_ns"] == 10


@pytest.mark.parametrize("busy", [True, False])
def test_garbage_collections_are_counted_as_ranges(busy: bool) -> None:
    between = [run("gemm", 10, 290, 1)] if busy else [run("gemm", 100, 110, 90), run("gemm", 200, 210, 190)]
    one = scene([run("gemm", 0, 10, 0), *between, run("gemm", 300, 310, 290)], [Span(text="gc.collect", start=5, end=285)])
    assert facts_of(one)["gc_ranges_per_step"] == 1


def test_synchronisations_of_threads_that_launch_nothing_are_not_counted() -> None:
    assert (
        facts_of(scene([run("gemm", 0, 10, 0), call("cudaEventSynchronize", 2, 3, thread=5), run("gemm", 20, 30, 6)]))[
            "sync_calls_per_step"
        ]
        == 0
    )


def test_launches_belong_to_the_step_of_what_they_launched() -> None:
    found = facts_of(scene([run("gemm", 100 + 10 * n, 110 + 10 * n, 2 * n + 1) for n in range(10)]))
    assert (found["kernels_per_step"], found["launch_calls_per_step"]) == (10, 10)
