"""The facts table and its producers: the same names, and null exactly where the table says so."""

import polars as pl
import pytest

from diagnose.knowledge.features import matching
from diagnose.knowledge.load import load_rulebook
from diagnose.knowledge.rulebook import Rulebook
from diagnose.measure.clocks import on_host_clock
from diagnose.measure.facts import (
    _bus_bytes,
    _statistics_share,
    device_facts,
    graph_launch_calls,
    hierarchical_context_groups,
    of_all,
    trace_facts,
    typed_facts,
    typical_facts,
)
from diagnose.measure.host import attribute
from diagnose.measure.kernels import SmOccupancy, limits, occupancy, residency
from diagnose.measure.ranks.facts import rank_facts
from diagnose.measure.records import device_records
from diagnose.model.environment import EnvironmentItem
from diagnose.model.trace import PAYLOADS, Device, Provenance, Rank
from diagnose.model.vocabulary import FactValue
from diagnose.reason.walls import bounds, verdict
from tests.builders.cases import for_each
from tests.builders.records import replace
from tests.builders.scene import KNOWLEDGE, Item, Scene, Span, await_event, call, record, run, scene
from tests.measure.ranks.job_of_ranks import Did, Ran, lane, members

FROM_THE_PLATFORM = {"gpu_maker", "platform", "nvlink_domain"}  # added where the platform table is known
FROM_THE_JOB = {"recompute_stages_ns"}  # the sizes of its pipeline take part; null where no stage is waited for
FROM_THE_LOG = {"profiler_slowdown", "profiler_starved_ns", "unprofiled_step_ns"}  # added where a log is given, null without one


@pytest.fixture(scope="module")
def rulebook() -> Rulebook:
    return load_rulebook(())


def facts_of(one: Scene, place: int = 0) -> dict[str, FactValue]:
    measured = one.measure()[place]
    own = device_facts(measured, device_records(measured), KNOWLEDGE)
    _, shifts = on_host_clock(one.trace, attribute(one.trace))
    return {**trace_facts(one.trace, [measured], KNOWLEDGE, 1), **shifts.facts, **own, **rank_facts(None, measured.median_step_ns)}


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
    assert set(facts_of(FULL)) | FROM_THE_PLATFORM | FROM_THE_LOG | FROM_THE_JOB == set(rulebook.facts)
    assert set(facts_of(BARE)) | FROM_THE_PLATFORM | FROM_THE_LOG | FROM_THE_JOB == set(rulebook.facts)


@for_each("one", FULL, BARE)
def test_a_fact_that_is_never_null_never_is(one: Scene, rulebook: Rulebook) -> None:
    found = facts_of(one)
    never = [name for name, spec in rulebook.facts.items() if spec.null.startswith("never")]
    assert len(never) > 60
    assert [name for name in never if found[name] is None] == []


def test_types_are_those_of_the_units_and_shares_lie_between_nought_and_one(rulebook: Rulebook) -> None:
    kinds = {"ns": int, "count": int, "bytes": int, "share": float, "text": str, "bool": bool}
    found = facts_of(FULL)
    wrong = [name for name, spec in rulebook.facts.items() if found.get(name) is not None and type(found[name]) is not kinds[spec.unit]]
    assert wrong == []
    shares = {name: found[name] for name, spec in rulebook.facts.items() if spec.unit == "share" and found.get(name) is not None}
    shares.pop("attention_forward_per_backward", None)  # a ratio
    assert {name: value for name, value in shares.items() if not 0 <= float(value or 0) <= 1} == {}


def test_the_values_of_a_small_step() -> None:
    expected = {
        "step_ns": 500, "steps_n": 1, "steps_anchored": False, "device_busy_ns": 425, "device_idle_ns": 75, "compute_busy_ns": 280,
        "compute_busy_share": 280 / 500, "compute_absent_ns": 220, "transport_busy_ns": 90, "transport_exposed_ns": 90,
        "transport_hidden_share": 0.0, "packing_busy_ns": 10, "packing_kernels_per_step": 1, "copy_busy_ns": 45, "copy_h2d_bytes": 64,
        "copy_d2h_bytes": 8, "pageable_copy_ns": 40, "expert_exchange_busy_ns": 90, "expert_exchange_count": 1,
        "expert_exchange_typical_ns": 90, "expert_exchange_shortest_ns": 90, "tensor_parallel_typical_ns": None, "expert_exchange_backend": "nccl",
        "data_parallel_busy_ns": 0, "expert_gemm_busy_ns": 80, "expert_gemm_kernels_per_step": 1,
        "expert_gemm_grouped_share": 1.0, "kernels_per_step": 5, "tiny_kernel_share": 1.0, "sync_calls_per_step": 1,
        "allocator_calls_per_step": 1, "correlation_rate": 1.0, "resolved_wait_rate": 1.0, "gpu_name": "X", "gpu_compute_major": 9,
        "device_memory_bytes": 80, "ranks_captured": 1,
        "launch_starved_ns": 26,  # 345 … 371 of the last gap
        "host_sync_ns": 20,  # under the call, before its copy began and after it ended
        "gc_ns": 3,
        "python_gap_ns": None,  # nothing shows Python
        "data_loading_ns": 0, "message_passing_ns": 0, "allocator_ns": 0,
    }  # fmt: skip
    found = facts_of(FULL)
    assert {name: found[name] for name in expected} == expected


@for_each(
    "names",
    ("launch_starved_ns", "launch_starved_share", "host_work_ns", "longest_host_gap_ns", "host_gap_excess_ns"),  # no launch
    ("allocator_ns", "host_sync_ns", "python_gap_ns", "launch_calls_per_step", "graph_launches_per_step", "sync_calls_per_step"),  # no call
    ("gpu_name", "gpu_compute_major", "device_memory_bytes"),  # no device row
    ("step_spread", "step_lead_ns", "step_lead_range"),  # one step, which no range marks
    ("unseen_work_call",),  # nothing ran from before the capture
    ("peak_allocated_bytes", "peak_reserved_bytes"),  # no allocator events
    ("resolved_wait_rate",),  # no stream wait
    ("gc_ns", "gc_ranges_per_step"),  # no range that would show it
    ("pageable_copy_ns", "copy_h2d_bytes", "copy_d2h_bytes"),  # neither kind nor size recorded
    ("expert_gemm_fill", "compute_fill"),  # neither shapes nor limits
    ("recompute_ns", "recompute_share", "attention_forward_per_backward"),
    ("expert_exchange_backend", "transport_hidden_share", "expert_gemm_median_ns", "expert_gemm_grouped_share"),  # nothing of it ran
    ("blocking_inferred_share",),  # nothing blocked
    ("world_size", "profiler_overhead_ns"),
)
def test_what_was_not_recorded_is_null_never_zero(names: tuple[str, ...]) -> None:
    found = facts_of(BARE)
    assert {name: found[name] for name in names} == dict.fromkeys(names)


@for_each(
    "returns_after, kernels, share, ns",
    (3_000, 60, 1.0, 60 * 34_000),  # each call waits for its kernel
    (-20_000, 60, 0.0, 0),
    (3_000, 40, None, None),  # too few to tell
)
def test_a_launch_that_returns_only_after_its_kernel_waited_for_it(
    returns_after: int, kernels: int, share: float | None, ns: int | None
) -> None:
    """Kernels of 30 µs, 50 µs apart, each launched 1 µs before it starts."""
    starts = [1_000 + 50_000 * place for place in range(kernels)]
    found = facts_of(scene([run("gemm", at, at + 30_000, at - 1_000, until=at + 30_000 + returns_after) for at in starts]))
    assert (found["synchronous_launch_share"], found["synchronous_launch_ns"]) == (share, ns)


def test_short_kernels_and_graphs_do_not_tell_whether_launches_wait() -> None:
    short = [run("gemm", at, at + 5_000, at - 1_000, until=at + 9_000) for at in range(1_000, 5_000_000, 50_000)]
    nodes = [run("gemm", at, at + 30_000, at - 1_000, until=at + 33_000, node=1) for at in range(1_000, 5_000_000, 50_000)]
    for items in (short, nodes):
        assert facts_of(scene(items))["synchronous_launch_share"] is None


def test_the_kernel_median_needs_compute_and_the_spread_two_steps() -> None:
    found = facts_of(scene([run("nccl", 0, 10, 0), run("nccl", 20, 30, 11)]))
    assert (found["kernel_median_ns"], found["tiny_kernel_share"], found["compute_busy_ns"]) == (None, None, 0)
    items = [run("gemm", 10, 100, 1), run("gemm", 200, 290, 191), run("gemm", 300, 350, 295)]
    spans = [Span(text=f"iteration {n}", start=start, end=end) for n, (start, end) in enumerate([(0, 190), (190, 292), (292, 400)])]
    found = facts_of(scene(items, spans))
    assert (found["step_ns"], found["steps_n"], found["steps_anchored"]) == (113, 3, True), "the mean of 190, 100 and 50"
    assert found["step_spread"] == (190 - 50) / 100


def test_launches_are_counted_of_the_operations_in_the_steps() -> None:
    """A capture begins in the middle of a run: what was launched before it says nothing about its steps."""
    before = [run("gemm", start, start + 90) for start in range(0, 900, 100)]
    inside = [
        run("gemm", 1_010, 1_100, 1_001),
        run("gemm", 1_110, 1_150),
        run("gemm", 1_200, 1_290, 1_191),
        run("gemm", 1_300, 1_350, 1_295),
    ]
    spans = [Span(text=f"iteration {n}", start=start, end=end) for n, (start, end) in enumerate([(1_000, 1_190), (1_190, 1_400)])]
    assert facts_of(scene([*before, *inside], spans))["correlation_rate"] == 3 / 4
    assert facts_of(scene([*before, *inside]))["correlation_rate"] == 3 / 13, "without steps the capture is what counts"


def test_a_stall_in_one_step_of_three_counts_and_the_typical_step_is_without_it() -> None:
    """Steps of 1, 1 and 4 ms: in the last the host issues a GEMM 3 ms late. The median of each figure would say nothing of it."""
    us = 1000
    at = [(0, 900, 0), (1000, 1900, 990), (2000, 2100, 1990), (5100, 5500, 5100), (5500, 6000, 5101)]
    items = [run("gemm", start * us, end * us, issued * us) for start, end, issued in at]
    spans = [
        Span(text=f"iteration {n}", start=start * us, end=end * us) for n, (start, end) in enumerate([(0, 980), (980, 1980), (1980, 6000)])
    ]
    (one,) = scene(items, spans).measure()
    book = KNOWLEDGE.rulebook
    facts = typed_facts(device_facts(one, device_records(one), KNOWLEDGE), {name: spec.unit for name, spec in book.facts.items()})
    alone = typical_facts(one, facts)
    assert (facts["step_ns"].value, alone["step_ns"].value) == (2_000_000, 1_000_000)
    late = sum(one.budget.per_step["launch_starved_ns"]) / 3
    assert facts["launch_starved_ns"].value == pytest.approx(late, abs=0.5)
    assert (late > 1_000_000, alone["launch_starved_ns"].value) == (True, 90_001)
    walls = {wall.wall: wall for wall in bounds(facts, book, alone)}
    assert walls["host_overhead"].share == pytest.approx(0.53, abs=0.005)
    assert walls["host_overhead"].typical_ns == pytest.approx(100_000, abs=10)
    said = verdict(tuple(walls.values()), facts, book, typical_step_ns=1_000_000)
    assert said.target_wall == "host_overhead"
    assert "steps differ: CPU overhead takes 53" in said.sentence
    assert "10.0 % of the typical one (1.00 ms)" in said.sentence


def test_an_opaque_graph_hides_how_many_kernels_graphs_launched() -> None:
    opaque = facts_of(scene([run("gemm", 0, 30, 0), run("gemm", 40, 110, 31, opaque=True)]))
    assert (opaque["graph_kernel_share"], opaque["opaque_graph_share"]) == (None, 0.7)
    nodes = facts_of(scene([run("gemm", 0, 30, 0), run("gemm", 40, 110, 31, node=4)]))
    assert (nodes["graph_kernel_share"], nodes["opaque_graph_share"]) == (0.5, 0.0)


# Messages of Nsight Systems; only one of them says that events of the device or its API may be missing.
WARNINGS = (
    "Not all NVTX events might have been collected.",
    "Number of CUPTI events produced: 31, CUPTI buffers: 49 of 50. Some CUPTI events might be missing.",
    "CUDA hardware tracing is not supported on this system. A legacy (software instrumented) trace was collected instead.",
    "Buffers holding CUDA trace data will be flushed on CudaProfilerStop() call.",
)


def test_what_the_profiler_took_outside_the_steps_slowed_none_of_them() -> None:
    """A library that loads while the program warms up."""
    items = [run("gemm", start + 10, start + 90, start) for start in range(0, 600, 100)]
    spans = [Span(text=f"iteration {n}", start=start, end=start + 200) for n, start in enumerate((200, 400))]
    seen = scene(items, spans)
    for told, expected in ((((0, 205), (250, 270)), 20), (((0, 205),), 0), ((), 0), (None, None)):
        provenance = replace(seen.trace.provenance, overhead=told)
        found = trace_facts(replace(seen.trace, provenance=provenance), seen.measure(), KNOWLEDGE, 1)
        assert found["profiler_overhead_ns"] == expected


def test_facts_of_the_capture() -> None:
    trace = replace(
        BARE.trace,
        ranks=(Rank(rank=3, world_size=8), Rank(rank=4)),
        provenance=Provenance(
            file="f",
            size=1,
            format="torch-json",
            profiler="p",
            has_python_stacks=True,
            overhead=((20, 25),),
            diagnostics=WARNINGS,
            environment=(EnvironmentItem(name="HIP runtime", kind="version", value="7.2.53211", source="hip_runtime_version"),),
        ),
    )
    assert trace_facts(trace, BARE.measure(), KNOWLEDGE, 2) == {
        "hip_version": 7_002_000, "has_experts": False, "is_training": False, "python_seen": True, "framework_seen": "none",
        "world_size": 8, "ranks_captured": 2, "python_stacks": True, "profiler_overhead_ns": 5, "lost_event_warnings": 1,
        "graph_launch_calls": None, "hierarchical_context_groups": None, "interleaved_schedule_seen": False, "out_of_memory_events": None,
    }  # fmt: skip


def test_typed_facts_follow_the_table_and_carry_their_status() -> None:
    with pytest.raises(KeyError, match="absent_fact"):
        typed_facts({"absent_fact": 1}, {"step_ns": "ns"})
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


def test_copies_and_tiny_kernels_that_run_together_count_once() -> None:
    assert facts_of(scene(two_at_once(pinned=False, copy_kind="h2d")))["pageable_copy_ns"] == 80
    assert facts_of(scene([run("gemm", 0, 10, 0), run("gemm", 0, 10, 1, stream=9)]))["tiny_kernel_busy_ns"] == 10


@for_each("busy", *(True, False))
def test_garbage_collections_are_counted_as_ranges(busy: bool) -> None:
    between = [run("gemm", 10, 290, 1)] if busy else [run("gemm", 100, 110, 90), run("gemm", 200, 210, 190)]
    one = scene([run("gemm", 0, 10, 0), *between, run("gemm", 300, 310, 290)], [Span(text="gc.collect", start=5, end=285)])
    assert facts_of(one)["gc_ranges_per_step"] == 1


def test_synchronisations_of_idle_threads_do_not_count_and_launches_belong_to_their_step() -> None:
    found = facts_of(scene([run("gemm", 0, 10, 0), call("cudaEventSynchronize", 2, 3, thread=5), run("gemm", 20, 30, 6)]))
    assert found["sync_calls_per_step"] == 0
    found = facts_of(scene([run("gemm", 100 + 10 * n, 110 + 10 * n, 2 * n + 1) for n in range(10)]))
    assert (found["kernels_per_step"], found["launch_calls_per_step"]) == (10, 10)


# -------------------- facts that prove a feature

NARROW = [
    "nvjet_qqtst_128x128_128x6_2x1_v_bz_TNN",
    "nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_h_bz_ptrGroup_TNT",
    "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 1u, 128u, (deep_gemm::GemmType)1>(float*)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::float_e4m3_t, cutlass::bfloat16_t>>",
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_dynBatch_sm100f",
    "_matmul_ogs_NNT_bf16xfp8e4nvxmxfp4_16x128x256x1",
]
WIDE = [
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
    "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(cutlass_80_simt_sgemm_64x64_8x5_nn_align1::Params)",
    "Cijk_Ailk_Bjlk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1",
    "_matmul_ogs_NNT_fp16xfp16xfp8e5_128x128x64x1",
]
SILENT = ["fused_moe_kernel", "_p_matmul_ogs", "setup_grouped_gemm_kernel", "nvjet_sm100_ootst_128x256_TNT"]


def test_every_feature_has_a_pattern_that_tells_its_kernels_from_others() -> None:
    every = [*NARROW, *WIDE, *SILENT]
    assert matching(KNOWLEDGE.features["narrow_gemm"], every) == set(NARROW)
    assert matching(KNOWLEDGE.features["wide_gemm"], every) - matching(KNOWLEDGE.features["narrow_gemm"], every) == set(WIDE)
    assert set(KNOWLEDGE.features) == {
        "narrow_gemm", "fp4_gemm", "narrow_reduction", "wide_reduction", "fused_exchange", "wide_gemm", "forward_product", "backward_product", "backward_softmax", "fused_router", "fused_permutation", "row_padding", "unfused_update", "unfused_loss", "lost_events", "out_of_memory",
        "hierarchical_groups", "context_groups", "interleaved_schedule", "fp32_product", "cast", "layout_copy", "python", "training", "fsdp", "megatron",
    }  # fmt: skip


def test_the_type_that_gradients_are_reduced_in() -> None:
    bf16, f32 = (f"ncclDevKernel_AllReduce_Sum_{one}_RING_LL" for one in ("bf16", "f32"))

    def share(*reductions: tuple[str, int]) -> FactValue:
        items = [run("gemm", 0, 10, 0)]
        for name, length in reductions:
            items.append(run(name, items[-1].end + 10, items[-1].end + 10 + length, items[-1].end, stream=20))
        return facts_of(scene(items))["narrow_reduction_share"]

    assert share((bf16, 100)) == 1.0
    assert share((bf16, 30), (f32, 10), ("allreduce", 40)) == 0.75
    assert share((bf16, 30), ("allreduce", 40)) is None, "of more than half the name tells nothing"
    assert share() is None


def test_the_type_of_an_element_in_the_call_goes_before_the_kernel_s_name() -> None:
    seen = scene([run("gemm", 0, 10, 0), run("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 90, 11, stream=20)])
    payload = dict.fromkeys(PAYLOADS) | {"id": 0, "collective": "allreduce", "dtype": "BFloat16", "elements_in": 5}
    trace = replace(seen.trace, payloads=pl.DataFrame([payload], schema=PAYLOADS))
    classified = replace(seen.classified, payload_id=pl.Series([None, 0], dtype=seen.classified.payload_id.dtype))
    assert facts_of(replace(seen, trace=trace, classified=classified))["narrow_reduction_share"] == 1.0


def test_equal_exchanges_that_differ_show_a_late_rank() -> None:
    def uneven(*reductions: tuple[int, int]) -> FactValue:
        """Of all-reduces of so many elements that take so long."""
        items = [run("gemm", 0, 10, 0)]
        for _, length in reductions:
            items.append(run("ncclDevKernel_AllReduce_Sum_f32_RING_LL", items[-1].end, items[-1].end + length, items[-1].end, stream=20))
        seen = scene(items)
        sizes = sorted({elements for elements, _ in reductions})
        told = {"collective": "allreduce", "dtype": "Float"}
        payloads = [dict.fromkeys(PAYLOADS) | told | {"id": n, "elements_in": size} for n, size in enumerate(sizes)]
        ids = [None, *(sizes.index(elements) for elements, _ in reductions)]
        classified = replace(seen.classified, payload_id=pl.Series(ids, dtype=seen.classified.payload_id.dtype))
        return facts_of(replace(seen, trace=replace(seen.trace, payloads=pl.DataFrame(payloads, schema=PAYLOADS)), classified=classified))[
            "data_uneven_ns"
        ]

    assert uneven(*[(5, 100)] * 4, (5, 900)) == 800
    assert uneven(*[(5, 100)] * 4, (5, 290)) == 0, "within what sharing links does"
    assert uneven(*[(5, 100)] * 4, (50, 900)) == 0, "more bytes take longer"
    assert uneven(*[(5, 100)] * 2, (5, 900)) is None, "too few to have a usual one"


# Two micro-batches of 100 ns forward and 200 ns backward; the optimizer ends the step.
FORWARD, BACKWARD = ((0, 100), (300, 400)), ((100, 300), (400, 600))


@for_each(
    "reductions, repeated, rounds",
    (((150, 200), (250, 290), (450, 500), (550, 590)), 0, 2),  # DistributedDataParallel in every backward pass
    (((450, 500), (550, 590)), 0, 1),  # under no_sync but for the last
    (((450, 500), (550, 590)), 30, 1),  # with layers that are run again between the buckets
    (((150, 152), (450, 500), (550, 590)), 0, 1),  # what is logged is no gradient
    (((0, 50), (250, 290)), 0, None),  # no forward before the first
    ((), 0, 0),
)
def test_in_how_many_micro_batches_gradients_are_reduced(
    reductions: tuple[tuple[int, int], ...], repeated: int, rounds: int | None
) -> None:
    items = [
        *(run("gemm", start, end, start, phase="forward") for start, end in FORWARD),
        *(run("gemm", start, end, start, phase="backward") for start, end in BACKWARD),
        *(run("allreduce", start, end, start, stream=20) for start, end in reductions),
        *([run("gemm", 505, 505 + repeated, 505, stream=21, phase="forward")] if repeated else ()),
        run("adam", 610, 640, 610),
    ]
    assert facts_of(scene(sorted(items, key=lambda item: item.at or 0)))["gradient_rounds_per_step"] == rounds


FUSED = ["_permute_kernel", "_unpermute_kernel", "_row_id_map_pass_2_kernel", "_sort_chunks_by_map_kernel", "moe_permute_kernel<float>"]
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<{}>, at::native::{}<float, 1, 1, 0>>"
)

UPDATE = "at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>"  # of one parameter
LOOP = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul> >(int, at::native::)"
OPERATIONS = ("BinaryFunctor<float, float, float, MulFunctor<float> >", "addcdiv_cuda_kernel(at::TensorIteratorBase&)::{lambda()#1}")


@for_each(
    "feature, shown, silent",
    (
        "fused_router",
        ["void transformer_engine::fused_router::fused_moe_aux_loss_forward_kernel<float, int>(float const*)"],
        ["topkGatingSoftmax", "softmax_warp_forward", "routingIndicesKernel"],
    ),
    ("fused_permutation", FUSED, ["indexSelectLargeIndex", "hybrid_ep::permute_preprocessing_kernel"]),
    (
        "row_padding",
        ["void transformer_engine::multi_padding_kernel<2, int>(transformer_engine::MultiPaddingArgs)", "multi_unpadding_kernel"],
        [*FUSED, "constant_pad_nd", "pad_sequences"],
    ),
    (
        "fused_exchange",
        ["mega_moe_kernel", "dispatch_gemm_combine_kernel"],
        ["fused_moe_kernel", "deep_ep::intranode::dispatch<8>"],
    ),
    (
        "unfused_update",
        [FOREACH.format(2, "BinaryOpListAlphaFunctor"), FOREACH.format(4, "PointwiseOpScalarListFunctor"), *map(LOOP.format, OPERATIONS)],
        [
            *(FOREACH.format(lists, functor) for lists, functor in ((4, "FusedAdamMathFunctor"), (1, "LpNormFunctor"), (2, "CopyFunctor"))),
            LOOP.format("direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"),
            LOOP.format("FillFunctor<float>"),
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float, float>>>",
        ],
    ),
    (
        "unfused_loss",
        [
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)",
            "void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true, false>(float*, float const*, float const*, int, int, int)",
            "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>(float*, float const*, long const*)",
        ],
        [
            "online_softmax_kernel",
            "triton_red_fused__log_softmax_nll_loss_forward_3",
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*, float const*, int, int, int)",
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)",
        ],
    ),
    (
        "interleaved_schedule",
        [
            "megatron.core.pipeline_parallel.schedules.forward_backward_pipelining_with_interleaving.warmup",
            "megatron/core/pipeline_parallel/schedules.py(812): forward_backward_pipelining_with_interleaving",
        ],
        ["megatron/core/pipeline_parallel/schedules.py(1789): forward_backward_pipelining_without_interleaving"],
    ),
    (
        "narrow_reduction",
        [
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_AllReduce_RING_LL_Sum___nv_bfloat16(ncclWorkElem)",
            "ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)",
            "ncclAllReduceRingLLKernel_sum_f16(ncclColl)",
            "ncclSymkDevKernel_ReduceScatter_LDMC_sum_bf16",
            "ncclDevKernel_AllReduce_Sum_f8e4m3_RING_LL",
        ],
        [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_AllReduce_RING_LL_Sum_int8_t(ncclWorkElem)",
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        ],
    ),
    (
        "wide_reduction",
        [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        ],
        ["ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "ncclKernel_AllReduce_RING_LL_Sum_int8_t(ncclWorkElem)"],
    ),
    (
        "fp32_product",
        [
            "ampere_sgemm_128x64_tn",
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(T1::Params)",
            "volta_scudnn_128x64_relu_interior_nn_v1",
            "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int)",
            "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int)",
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_execute_kernel__5x_cublas",
        ],
        [
            "sm80_xmma_gemm_tf32f32_tf32f32_f32_nn_n",
            "ampere_bf16_s16816gemm_bf16_128x64",
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_nn_align4>(T1::Params)",
            "nvjet_tst_192x192_TNN",
            "ampere_hgemm_64x64",
            "void cudnn::cnn::wgrad_alg0_engine<__half, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int)",
            "ampere_dgemm_64x64",
        ],
    ),
    (
        "forward_product",
        [
            "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
            "Cijk_Alik_Bljk_BBS_BH_MT256x128x64",
        ],
        [
            "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNN",
            "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NTT",
            "ampere_sgemm_128x64_nt",
            "Cijk_Ailk_Bljk_BBS_BH",
            "grouped_gemm_attn",
        ],
    ),
    (
        "backward_product",
        [
            "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNN",
            "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
            "Cijk_Ailk_Bljk_BBS_BH",
        ],
        [
            "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
            "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NTN",
            "Cijk_Ailk_Bjlk_BBS_BH",
            "gemm_inner_product",
        ],
    ),
    (
        "backward_softmax",
        [
            "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, SoftMaxBackwardEpilogue>()",
            "void transformer_engine::scaled_upper_triang_masked_softmax_warp_backward<__nv_bfloat16, __nv_bfloat16, float, 0>()",
        ],
        [
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, SoftMaxForwardEpilogue>()",
            "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 7, false, true>()",
        ],
    ),
    (
        "cast",
        [
            "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)",
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&), at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1>>",
        ],
        [
            "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>",
            "void broadcast_kernel(float*)",
        ],
    ),
    (
        "layout_copy",
        [
            "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(cudnn::ops::nchw2nhwc_params_t<float>)",
            "void cudnn::engines_precompiled::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true, false>()",
            "batched_transpose_16x64_pack_1x4_ediv_1x2_half",
        ],
        [
            "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x128x32",
            "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32",
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>(cudnnTensorStruct)",
            "void transpose_kernel(float*)",
        ],
    ),
    (
        "python",
        [
            "aten::add",
            "train.py(12): step",
            "ProfilerStep#3",
            "void at::native::fill_kernel<float>()",
            "nn.Module: Linear_0",
            "triton_poi_fused_add_0",
        ],
        ["sm90_xmma_gemm_f32", "void heat(float*)", "cudaLaunchKernel", "ncclDevKernel_AllReduce_Sum_f32", "copy"],
    ),
    (
        "training",
        [
            "autograd::engine::evaluate_function: MmBackward0",
            "void layernorm_backward_kernel<float>()",
            "Optimizer.step#AdamW.step",
            "adamw_kernel",
            "MmBackward0",
        ],
        ["torch/autograd/grad_mode.py(27): decorate_context", "aten::mm", "gradient_of_heat_magnitude"],
    ),
    (
        "megatron",
        [
            "megatron/core/transformer/moe/router.py(3): forward",
            "EXPERT_MODEL_PARALLEL_GROUP",
            "DATA_PARALLEL_GROUP_WITH_CP",
            "TENSOR_MODEL_PARALLEL_GROUP",
        ],
        ["void transformer_engine::normalization::ln_fwd_general_kernel<int>()", "default_pg", "TransformerEncoderLayer_0", "mesh_dp"],
    ),
)
def test_names_show_what_kind_of_program_ran(feature: str, shown: list[str], silent: list[str]) -> None:
    assert matching(KNOWLEDGE.features[feature], [*shown, *silent]) == set(shown)


def test_attention_that_is_computed_step_by_step() -> None:
    """Softmax between two products on one stream, with what lies between; a router's softmax and a fused kernel are none."""
    line = ["gemm", "elementwise", "softmax", "elementwise", "gemm", "norm", "gemm"]
    one = scene([run(kind, 100 * index, 100 * index + 100) for index, kind in enumerate(line)])
    assert facts_of(one)["unfused_attention_busy_ns"] == 500
    beside = [run("elementwise", 100 * index, 100 * index + 100, stream=9) for index in range(7)]
    assert (
        facts_of(scene([run(kind, 100 * index, 100 * index + 100) for index, kind in enumerate(line)] + beside))[
            "unfused_attention_busy_ns"
        ]
        == 500
    )
    for others in (
        ["gemm", "softmax", "norm", "gemm"],
        ["gemm", "attention", "gemm"],
        ["norm", "softmax", "gemm"],
        ["gemm", *["elementwise"] * 9, "softmax", "gemm"],
    ):
        one = scene([run(kind, 100 * index, 100 * index + 100) for index, kind in enumerate(others)])
        assert facts_of(one)["unfused_attention_busy_ns"] == 0, others


def test_backward_each_product_of_attention_has_two() -> None:
    """The gradients of the probabilities and the values come before the softmax's, those of queries and keys after it."""
    line = ["gemm", "norm", "gemm", "elementwise", "gemm", "softmax_backward", "elementwise", "gemm", "gemm", "norm", "gemm"]

    def busy(kinds: list[str]) -> FactValue:
        return facts_of(scene([run(kind, 100 * index, 100 * index + 100) for index, kind in enumerate(kinds)]))["unfused_attention_busy_ns"]

    assert busy(line) == 700
    assert busy(["softmax" if kind == "softmax_backward" else kind for kind in line]) == 400
    assert busy(["gemm", "norm", "gemm", "softmax_backward", "gemm", "norm", "gemm"]) == 300, "no second product beside them"


@for_each("update, share", ({"adam": 30}, 0.0), ({"adam": 30, UPDATE: 90}, 0.75), ({"gemm": 30}, None))
def test_what_share_of_the_update_takes_a_kernel_for_each_operation(update: dict[str, int], share: float | None) -> None:
    found = facts_of(scene([run("gemm", 0, 50), *(run(name, 100, 100 + length) for name, length in update.items())]))
    assert found["unfused_update_share"] == share
    assert found["unfused_update_kernels_per_step"] == int(UPDATE in update)


def test_only_copies_between_devices_are_peer_copies() -> None:
    copies = [run("memcpy", 20 * n, 20 * n + 10, copy_kind=kind) for n, kind in enumerate(["p2p", "h2d", "p2p", "d2h", "d2d", None])]
    assert facts_of(scene([*copies, run("gemm", 200, 300)]))["peer_copies_per_step"] == 2


def test_transport_beside_compute_counts_once_copies_do_not_and_without_it_shares_are_null() -> None:
    # 100 ns of exchange, of which 30 lie beside one product and 20 beside another that overlaps it by 10
    one = scene([run("gemm", 0, 30), run("nccl", 0, 100, stream=20), run("gemm", 20, 40, stream=9), run("gemm", 150, 160)])
    found = facts_of(one)
    assert (found["expert_exchange_busy_ns"], found["expert_exchange_beside_compute_ns"]) == (100, 40)
    assert (found["data_parallel_beside_compute_ns"], found["tensor_parallel_beside_compute_ns"]) == (0, 0)
    assert found["expert_exchange_nccl_share"] == 1.0
    one = scene([run("nccl", 0, 100, stream=20), run("memcpy", 0, 100, copy_kind="d2h", bytes=8), run("gemm", 100, 110)])
    assert facts_of(one)["expert_exchange_beside_compute_ns"] == 0
    found = facts_of(scene([run("attention", 0, 10)]))
    assert (found["expert_exchange_nccl_share"], found["tensor_parallel_nccl_share"]) == (None, None)
    assert (found["low_precision_gemm_share"], found["vision_encoder_share"]) == (None, 0.0)


@for_each("saves, rare", ([1], 1.0), ([0, 2], 1.0), ([0, 1, 3], 0.0), ([0, 1, 2, 3], 0.0))
def test_copies_that_half_of_the_steps_make_at_most_are_rare(saves: list[int], rare: float) -> None:
    spans = [Span(text=f"iteration {n}", start=100 * n, end=100 * n + 90) for n in range(4)]
    steps = [run("gemm", 100 * n + 10, 100 * n + 60, 100 * n + 5) for n in range(4)]
    copies = [run("memcpy", 100 * n + 60, 100 * n + 80, 100 * n + 7, copy_kind="d2h", bytes=800) for n in saves]
    assert facts_of(scene([*steps, *copies], spans))["copy_d2h_rare_share"] == rare


def test_graph_launches_are_counted_by_call() -> None:
    assert graph_launch_calls(scene([run("gemm", 0, 10)]).trace, KNOWLEDGE.hosts) is None
    assert graph_launch_calls(scene([run("gemm", 5, 10, 1)]).trace, KNOWLEDGE.hosts) == 0
    twice = scene([run("gemm", 5, 10, 1), call("cudaGraphLaunch", 20, 30), call("cudaGraphLaunch", 40, 50)])
    assert graph_launch_calls(twice.trace, KNOWLEDGE.hosts) == 2


@for_each(
    "groups, known",
    ([], None),
    (["DATA_PARALLEL_GROUP"], None),
    (["CONTEXT_PARALLEL_GROUP", "DATA_PARALLEL_GROUP"], False),
    (["CONTEXT_PARALLEL_GROUP", "HIERARCHICAL_CONTEXT_PARALLEL_GROUPS_L0"], True),
)
def test_levels_of_the_context_exchange(groups: list[str], known: bool | None) -> None:
    trace = scene([run("gemm", 0, 10)]).trace
    rows = [{"id": index, "group": group} for index, group in enumerate(groups)]
    payloads = pl.DataFrame([{name: row.get(name) for name in PAYLOADS} for row in rows], schema=dict(PAYLOADS))
    assert hierarchical_context_groups(replace(trace, payloads=payloads), KNOWLEDGE.features) is known


def test_kernels_of_a_graph_are_told_by_the_call_where_they_do_not_say_so() -> None:
    """Older PyTorch profilers record no graph node: kernels share the correlation of the call that launched the graph."""
    one = scene([run("gemm", 0, 10, 1), run("gemm", 40, 50, 2), run("gemm", 60, 70, 3)])
    name = one.trace.names.height
    graph = one.trace.names.head(1).with_columns(pl.lit(name, dtype=pl.Int32).alias("id"), pl.lit("cudaGraphLaunch").alias("text"))
    second = one.trace.calls["correlation"].sort()[1]
    calls = one.trace.calls.with_columns(
        pl.when(pl.col("correlation") == second).then(pl.lit(name, dtype=pl.Int32)).otherwise("name_id").alias("name_id")
    )
    found = facts_of(replace(one, trace=replace(one.trace, names=pl.concat([one.trace.names, graph]), calls=calls)))
    assert found["graph_launches_per_step"] == 1
    assert found["graph_kernel_share"] == pytest.approx(1 / 3)


# -------------------- occupancy against figures worked out by hand from the CUDA C++ Programming Guide's rules

H100 = Device(
    rank=0, device=0, name="NVIDIA H100 80GB HBM3", sm_count=132, compute_major=9, compute_minor=0, max_threads_per_sm=2048,
    registers_per_sm=65536, shared_memory_per_sm=233472,
)  # fmt: skip
LIMIT = limits(H100, load_rulebook(()).platforms.sm_limits)


def shape(grid: int, block: int, registers: int | None, shared: int | None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "grid_x": [grid],
            "grid_y": [1],
            "grid_z": [1],
            "block_x": [block],
            "block_y": [1],
            "block_z": [1],
            "registers": [registers],
            "shared_memory": [shared],
        },
        schema_overrides={"registers": pl.Int32, "shared_memory": pl.Int32},
    )


@for_each(
    "grid, block, registers, shared, resident, limited_by",
    (132, 128, 32, 0, 16, "warps"),  # 64 warps / 4 warps per block
    (132, 32, 32, 0, 32, "blocks"),  # 64 blocks by warps, but 32 blocks at most
    (132, 384, 168, 0, 1, "registers"),  # 168·32 = 5376 registers per warp; 16384 // 5376 = 3 per scheduler, 12 warps, 1 block of 12
    (132, 128, 32, 199 * 1024, 1, "shared memory"),  # 200 KiB of 228 KiB
)
def test_resident_blocks(grid: int, block: int, registers: int, shared: int, resident: int, limited_by: str) -> None:
    assert LIMIT is not None
    row = residency(shape(grid, block, registers, shared), LIMIT).row(0, named=True)
    assert row["limited_by"] == limited_by
    assert row["occupancy"] == pytest.approx(min(1.0, resident * (block / 32) / 64))
    assert row["waves"] == pytest.approx(grid / (resident * 132))


@for_each(
    "grid, waves, fill",
    (132, 132 / 2112, 1.0),  # one block on each SM: every SM has work, though sixteen would fit
    (66, 66 / 2112, 0.5),  # half of the SMs have none
    (132 * 16 + 132 * 8, 1.5, 1.0),  # the last wave reaches every SM
    (132 * 16 + 33, 2145 / 2112, (1 + 0.25) / 2),  # the last wave reaches a quarter of them
)
def test_fill_counts_the_sms_that_the_last_wave_reaches(grid: int, waves: float, fill: float) -> None:
    assert LIMIT is not None
    row = residency(shape(grid, 128, 32, 0), LIMIT).row(0, named=True)
    assert row["waves"] == pytest.approx(waves)
    assert row["fill"] == pytest.approx(fill)


@for_each(
    "starts, fill",
    ((0, 100, 200), 0.5),  # one after the other
    ((0, 0, 100), (1.0 + 0.5) / 2),  # two at once fill all SMs for half of the time
    ((0, 0, 0), 1.0),  # three at once fill no more than all
    ((0, 50, 500), (0.5 + 1.0 + 0.5 + 2 * 0.5) / 5),  # what does not run at all counts nowhere
)
def test_kernels_that_run_at_once_fill_sms_together(starts: tuple[int, ...], fill: float) -> None:
    """Kernels of 100 ns with a block on half of the SMs each."""
    kernels = pl.concat([
        shape(66, 128, 32, 0).with_columns(name_id=0, bucket=pl.lit("expert_gemm"), kind=pl.lit("kernel"), role=pl.lit("compute"), start=at, end=at + 100)
        for at in starts
    ])  # fmt: skip
    found = occupancy(kernels, pl.Series(["k"]), None, LIMIT)
    assert found.fills == pytest.approx({"expert_gemm": fill, "": fill})


def test_without_whole_shapes_or_limits_nothing_is_claimed() -> None:
    assert LIMIT is not None
    assert residency(shape(10, 128, None, 0), LIMIT)["fill"][0] is None
    assert residency(shape(10, 128, 32, 240_000), LIMIT)["fill"][0] is None
    kernels = shape(10, 128, 32, 0).with_columns(name_id=0, bucket=pl.lit("norm"), start=0, end=5)
    assert occupancy(kernels, pl.Series(["k"]), None, limits(None, {})) == SmOccupancy()
    assert limits(H100, {}) is None


def test_what_one_input_shows_of_the_program_holds_for_the_run() -> None:
    """Null where none could tell."""
    nothing: dict[str, FactValue] = {"has_experts": None, "is_training": None, "python_seen": False, "framework_seen": "none"}
    shown: dict[str, FactValue] = {"has_experts": True, "is_training": False, "python_seen": False, "framework_seen": "megatron"}
    assert of_all([nothing, shown]) == shown
    assert of_all([shown, {**shown, "has_experts": False, "framework_seen": "none"}]) == shown
    assert of_all([nothing]) == nothing


def test_counts_are_no_typical_exchange() -> None:
    # Tokens in 90, 100 and 120; an exchange of counts takes 9, less than a tenth of the longest.
    spans = ((10, 19), (20, 110), (120, 220), (230, 350))
    found = facts_of(scene([run("gemm", 0, 5), *(run("nccl", start, end, stream=20) for start, end in spans), run("gemm", 360, 400)]))
    assert (found["expert_exchange_typical_ns"], found["expert_exchange_shortest_ns"]) == (100, 90)


@for_each("grids, expected", ([2, 16, 16, None], 16), ([1, 16, 16, 2], 16), ([16, 1, 2, 1], 1), ([16, None, None, None], None))
def test_the_usual_blocks_of_an_exchange_are_those_of_tokens_whose_grid_is_known(grids: list[int | None], expected: int | None) -> None:
    spans = ((10, 19), (20, 110), (120, 220), (230, 350))
    ran = scene([run("nccl", start, end, stream=20) for start, end in spans])
    sizes = pl.Series("grid_x", grids, dtype=ran.trace.ops.schema["grid_x"])
    one = pl.lit(1, dtype=ran.trace.ops.schema["grid_y"])
    trace = replace(ran.trace, ops=ran.trace.ops.with_columns(sizes, one.alias("grid_y"), one.alias("grid_z")))
    assert facts_of(replace(ran, trace=trace))["expert_exchange_blocks"] == expected


def test_counts_that_wait_for_a_late_rank_are_no_tokens() -> None:
    """A block each: two that wait and one that does not; tokens on 16 blocks take 100."""
    spans = ((0, 300), (310, 410), (420, 720), (730, 830), (840, 849), (860, 960))
    ran = scene([run("nccl", start, end, stream=20) for start, end in spans])
    grid = pl.Series("grid_x", [1, 16] * 3, dtype=ran.trace.ops.schema["grid_x"])
    one = pl.lit(1, dtype=ran.trace.ops.schema["grid_y"])
    trace = replace(ran.trace, ops=ran.trace.ops.with_columns(grid, one.alias("grid_y"), one.alias("grid_z")))
    found = facts_of(replace(ran, trace=trace))
    assert (found["expert_exchange_blocks"], found["expert_exchange_typical_ns"]) == (16, 100)


def test_launch_latency_is_no_unexplained_wait() -> None:
    # After a starved gap the kernel begins 5 ns after its launch; nothing explains why the last one waits for 30 µs.
    found = facts_of(
        scene(
            [run("gemm", 0, 100, 0), run("gemm", 400, 500, 385, until=395), run("gemm", 30_600, 31_000, 396)],
            [Span(text="s", start=0, end=1)],
        )
    )
    assert found["launch_handover_ns"] == 5
    assert found["dependency_stalled_ns"] == 30_105
    assert found["unexplained_wait_ns"] == 30_100


@for_each("name, share", ("allreduce", 0.0), ("nccl", None))
def test_parameters_are_gathered_only_where_an_all_gather_of_data_parallelism_ran(name: str, share: float | None) -> None:
    found = facts_of(scene([run("gemm", 0, 5), run(name, 10, 40, stream=20), run("gemm", 50, 60)]))
    assert found["data_gather_share"] == share


@for_each(
    "names, waiting",
    (("allgather", "reducescatter"), 30),
    (("reducescatter", "allreduce"), 0),
    (("allgather", "gradients"), None),  # of the second nothing tells what it does
)
def test_waiting_for_gathers_is_told_from_waiting_for_reductions(names: tuple[str, str], waiting: int | None) -> None:
    """Compute is stalled for 30 on the first collective and for 40 on the second."""
    first, second = names
    gathered = [run("gemm", 0, 10, 0), run(first, 10, 40, 1, stream=20), record(2, 20, sync=1), await_event(3, 7, sync=1)]
    reduced = [run("gemm", 40, 50, 4), run(second, 50, 90, 5, stream=20), record(6, 20, sync=2), await_event(7, 7, sync=2)]
    found = facts_of(scene([*gathered, *reduced, run("gemm", 90, 99, 8)]))
    assert (found["data_parallel_blocking_ns"], found["data_gather_blocking_ns"]) == (70, waiting)


@for_each(
    "operation, shape, ran, share",
    ("all-reduce", "all_reduce", Ran(start=0, end=10, bytes=4), 1.0),
    ("all-reduce", "all_reduce", Ran(start=0, end=10, bytes=65_536), 1.0),
    ("all-reduce", "all_reduce", Ran(start=0, end=10, bytes=65_537, phase="optimizer"), 0.0),  # a recorded size tells more
    ("all-reduce", "all_reduce", Ran(start=0, end=10, phase="optimizer"), 1.0),
    ("all-reduce", "all_reduce", Ran(start=0, end=10, phase="backward"), 0.0),
    ("all-reduce", "all_reduce", Ran(start=0, end=10), 0.0),
    ("all-reduce", "all_reduce", Ran(start=0, end=10, bytes=4, step=None), None),
    ("all-gather", "all_gather", Ran(start=0, end=10, phase="optimizer"), 0.0),  # of parameters, say
)
def test_all_reduces_of_statistics_are_small_or_the_optimizer_s(operation: str, shape: str, ran: Ran, share: float | None) -> None:
    named = lane(kind="other", operation=operation, shape=shape)
    (member,) = members([Did(rank=0, lanes={named: [ran], lane(kind="data"): [Ran(start=20, end=90, bytes=4)]})])
    assert _statistics_share(member.device) == share


def test_how_fast_large_collectives_move_is_told_as_their_own_benchmark_counts_it() -> None:
    """4 MiB all-reduced by 8 ranks in 2 ms cross a link 1.75 times: 3.67 GB/s. Small ones and those of unknown size say nothing."""

    def moved(size: int | None, *ran: Ran) -> int | None:
        (member,) = members([Did(rank=0, lanes={lane(kind="data", operation="all-reduce", shape="all_reduce", size=size): list(ran)})])
        return _bus_bytes(member.device)

    large = Ran(start=0, end=2_000_000, bytes=4 << 20)
    assert moved(8, large) == round(1.75 * (4 << 20) / 0.002)
    assert moved(8, large, Ran(start=2_000_000, end=9_000_000, bytes=4)) == moved(8, large)
    assert moved(8, large, Ran(start=2_000_000, end=9_000_000, bytes=4 << 20, step=None)) == moved(8, large)
    assert moved(None, large) is None
    assert moved(8, Ran(start=0, end=2_000_000)) is None
