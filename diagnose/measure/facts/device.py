"""Facts of the device that the verdict speaks of: the names of trace_rules/facts.yaml, each with one producer here."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from diagnose.document.device import Communication, Memory
from diagnose.document.diagnosis import Fact
from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.load import Knowledge
from diagnose.measure.device import DeviceMeasure, median
from diagnose.measure.facts.features import graph_launch_calls, hierarchical_context_groups, proof_facts
from diagnose.model.trace import Trace
from diagnose.model.vocabulary import COMM_KINDS, EXPERT_GEMM, OTHER_BUCKET, FactValue, Status

GROUP_OF_KIND = {
    "expert": "expert_exchange",
    "data": "data_parallel",
    "tensor": "tensor_parallel",
    "pipeline": "pipeline_parallel",
    "context": "context_parallel",
    "other": "other_collective",
}


def _share(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


def _time_facts(one: DeviceMeasure) -> dict[str, FactValue]:
    """Step, busy and stall times; shares of the median step."""
    middle = {name: median(one.budget[name]) for name in one.budget.columns if name.endswith("_ns")}
    step = middle["window_ns"]
    lengths = one.budget["window_ns"]
    spread = (int(lengths.max()) - int(lengths.min())) / step if len(lengths) > 1 and step else None  # type: ignore[arg-type]
    launched = one.launched > 0
    starved = {
        "launch_starved_ns": middle["launch_starved_ns"] if launched else None,
        "launch_starved_share": _share(middle["launch_starved_ns"], step) if launched else None,
        "allocator_ns": middle["allocator_ns"] if one.has_calls else None,
        "allocator_shadowed_ns": middle["allocator_shadowed_ns"] if one.has_calls else None,
        "allocator_restart_ns": middle["allocator_restart_ns"] if one.has_calls else None,
        "launch_handover_ns": middle["launch_handover_ns"] if launched else None,
        "launch_shadowed_ns": middle["launch_shadowed_ns"] if launched else None,
        "host_sync_ns": middle["host_sync_ns"] if one.has_calls else None,
        "sync_restart_ns": middle["sync_restart_ns"] if one.has_calls else None,
        "host_work_ns": middle["host_work_ns"] if launched else None,
        "gc_ns": middle["gc_ns"] if one.has_gc_ranges else None,
        "python_gap_ns": middle["python_gap_ns"] if one.has_calls else None,
        "longest_host_gap_ns": _largest(one.counts["longest_gap_ns"]) if launched else None,
        "host_gap_excess_ns": median(one.counts["gap_excess_ns"].fill_null(0)) if launched else None,
    }
    return {
        "step_ns": step,
        "steps_n": one.budget.height,
        "steps_anchored": one.steps.anchor != "capture",
        "step_spread": spread,
        **{name: middle[name] for name in ("device_busy_ns", "device_idle_ns", "compute_busy_ns", "compute_absent_ns")},
        "device_idle_share": _share(middle["device_idle_ns"], step),
        "compute_busy_share": _share(middle["compute_busy_ns"], step),
        **starved,
        "blocking_ns": middle["blocking_ns"],
        "dependency_stalled_ns": middle["dependency_stalled_ns"],
        "blocking_inferred_share": _share(int(one.budget["blocking_inferred_ns"].sum()), int(one.budget["blocking_ns"].sum())),
        "communication_busy_ns": middle["communication_busy_ns"],
        "communication_exposed_ns": middle["communication_exposed_ns"],
        "transport_busy_ns": middle["transport_busy_ns"],
        "transport_busy_share": _share(middle["transport_busy_ns"], step),
        "transport_exposed_ns": middle["transport_exposed_ns"],
        "transport_exposed_share": _share(middle["transport_exposed_ns"], step),
        "transport_hidden_share": 1 - middle["transport_exposed_ns"] / middle["transport_busy_ns"] if middle["transport_busy_ns"] else None,
        "transport_blocking_ns": middle["blocking_transport_ns"],
        "transport_handover_ns": middle["transport_handover_ns"],
        "transport_follow_ns": middle["transport_follow_ns"],
        "transport_restart_ns": middle["transport_restart_ns"],
        "host_copy_restart_ns": middle["host_copy_restart_ns"],
        "host_copy_handover_ns": middle["host_copy_handover_ns"],
        "transport_blocking_share": _share(middle["blocking_transport_ns"], step),
        "packing_busy_ns": middle["packing_busy_ns"],
        "packing_busy_share": _share(middle["packing_busy_ns"], step),
        "packing_exclusive_ns": middle["packing_exposed_ns"],
        "copy_busy_ns": middle["copy_busy_ns"],
        "copy_exposed_ns": middle["copy_exposed_ns"],
        "copy_blocking_ns": middle["blocking_copy_ns"],
        "packing_blocking_ns": middle["blocking_packing_ns"],
        "host_copy_blocking_ns": middle["blocking_host_copy_ns"],
        "host_copy_blocking_share": _share(middle["blocking_host_copy_ns"], step),
        "copy_blocking_share": _share(middle["blocking_copy_ns"], step),
    }


def _largest(values: pl.Series) -> int | None:
    largest = values.max()
    return largest if isinstance(largest, int) else None


def _exchange_facts(rows: tuple[Communication, ...], step: int) -> dict[str, FactValue]:
    """Busy, exposed and blocking time by kind of exchange. Backends of one kind are summed: they rarely run together."""
    found: dict[str, FactValue] = {}
    for kind in COMM_KINDS:
        own = [row for row in rows if row.kind == kind]
        prefix = GROUP_OF_KIND[kind]
        blocking = sum(row.blocking_ns or 0 for row in own)
        found[f"{prefix}_busy_ns"] = sum(row.busy_ns for row in own)
        found[f"{prefix}_exposed_ns"] = sum(row.exposed_ns for row in own)
        found[f"{prefix}_blocking_ns"] = blocking
        found[f"{prefix}_blocking_share"] = _share(blocking, step)
    expert = [row for row in rows if row.kind == "expert"]
    found["expert_exchange_count"] = sum(row.count for row in expert)
    found["expert_exchange_backend"] = max(expert, key=lambda row: row.busy_ns).backend if expert else None
    return found


def _bucket_facts(one: DeviceMeasure, buckets: Buckets) -> dict[str, FactValue]:
    windows = one.budget["index"]
    work = int(one.buckets["work_ns"].sum())

    def busy(bucket: str) -> int:
        own = one.buckets.filter(pl.col("bucket") == bucket).select("index", "busy_ns")
        return median(pl.DataFrame({"index": windows}).join(own, on="index", how="left")["busy_ns"].fill_null(0))

    def share(bucket: str) -> float | None:
        return _share(int(one.buckets.filter(pl.col("bucket") == bucket)["work_ns"].sum()), work)

    return {
        **{spec.busy_fact: busy(bucket) for bucket, spec in buckets.items() if spec.busy_fact is not None},
        "expert_gemm_share": share(EXPERT_GEMM),
        "other_share": share(OTHER_BUCKET),
    }


def _count_facts(one: DeviceMeasure) -> dict[str, FactValue]:
    counts = one.counts

    def middle(column: str) -> int:
        return median(counts[column].fill_null(0))

    def known(column: str) -> int | None:
        values = counts[column].drop_nulls()
        return None if values.is_empty() else median(values)

    def of_calls(column: str) -> int | None:
        return middle(column) if one.has_calls else None

    kernels, compute = int(counts["kernels"].sum() or 0), int(counts["compute_kernels"].sum() or 0)
    expert_work = int(counts["expert_work_ns"].sum() or 0)
    opaque = int(counts["opaque_work_ns"].sum() or 0)
    return {
        "kernels_per_step": middle("kernels"),
        "kernel_median_ns": known("kernel_median_ns"),
        "tiny_kernels_per_step": middle("tiny_kernels"),
        "tiny_kernel_share": _share(int(counts["tiny_kernels"].sum() or 0), compute),
        "tiny_kernel_busy_ns": middle("tiny_busy_ns"),
        "packing_kernels_per_step": middle("packing_kernels"),
        "router_kernels_per_step": middle("router_kernels"),
        "launch_calls_per_step": of_calls("launch_calls"),
        "graph_launches_per_step": of_calls("graph_launches"),
        "graph_kernel_share": None if opaque else _share(int(counts["graph_kernels"].sum() or 0), kernels),
        "opaque_graph_share": _share(opaque, int(counts["work_ns"].sum() or 0)),
        "sync_calls_per_step": of_calls("sync_calls"),
        "allocator_calls_per_step": of_calls("allocator_calls"),
        "expert_gemm_kernels_per_step": middle("expert_kernels"),
        "expert_gemm_grouped_share": _share(int(counts["expert_grouped_ns"].sum() or 0), expert_work),
        "expert_gemm_median_ns": known("expert_median_ns"),
        "quantize_busy_ns": middle("quantize_busy_ns"),
        "pageable_copy_ns": middle("pageable_busy_ns") if one.has_pinned else None,
        "copy_h2d_bytes": middle("h2d_bytes") if one.has_bytes else None,
        "copy_d2h_bytes": middle("d2h_bytes") if one.has_bytes else None,
    }


def _memory_facts(one: DeviceMeasure, memory: Memory, step: int) -> dict[str, FactValue]:
    return {
        "recompute_ns": memory.recompute_ns,
        "recompute_share": _share(memory.recompute_ns, step),
        "attention_forward_per_backward": one.recompute.ratio,
        "peak_allocated_bytes": memory.peak_allocated_bytes,
        "peak_reserved_bytes": memory.peak_reserved_bytes,
        "device_memory_bytes": memory.capacity_bytes,
        "expert_gemm_fill": one.fills.get(EXPERT_GEMM),
        "compute_fill": one.fills.get(""),
    }


def device_facts(
    one: DeviceMeasure, communication: tuple[Communication, ...], memory: Memory, knowledge: Knowledge
) -> dict[str, FactValue]:
    """All facts that one device's measurements give."""
    times = _time_facts(one)
    step = one.median_step_ns
    info = one.info
    return {
        **times,
        **_exchange_facts(communication, step),
        **_bucket_facts(one, knowledge.buckets),
        **_count_facts(one),
        **_memory_facts(one, memory, step),
        **proof_facts(one, communication, knowledge.features),
        "gpu_name": info.name if info else None,
        "gpu_compute_major": info.compute_major if info else None,
        "correlation_rate": _share(one.launched, one.operations),
        "resolved_wait_rate": one.resolved_wait_rate,
        "gc_ranges_per_step": median(one.counts["gc_ranges"].fill_null(0)) if one.has_gc_ranges else None,
    }


def trace_facts(trace: Trace, knowledge: Knowledge, ranks_captured: int) -> dict[str, FactValue]:
    """Facts of the capture as a whole."""
    worlds = [rank.world_size for rank in trace.ranks if rank.world_size is not None]
    return {
        "world_size": max(worlds, default=None),
        "ranks_captured": ranks_captured,
        "graph_launch_calls": graph_launch_calls(trace, knowledge.hosts),
        "hierarchical_context_groups": hierarchical_context_groups(trace, knowledge.features),
        "python_stacks": trace.provenance.has_python_stacks,
        "profiler_overhead_ns": trace.provenance.overhead_ns,
    }


def typed_facts(values: Mapping[str, FactValue], units: Mapping[str, str], inferred: frozenset[str] = frozenset()) -> dict[str, Fact]:
    """Facts with units, in the order of the facts table. Raises KeyError for a value that the table does not know."""
    unknown = set(values) - set(units)
    if unknown:
        raise KeyError(f"not in facts.yaml: {sorted(unknown)}")

    def status(name: str) -> Status:
        return "inferred" if name in inferred else "measured"

    return {name: Fact(value=values.get(name), unit=unit, status=status(name)) for name, unit in units.items()}
