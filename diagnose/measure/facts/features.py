"""Facts by which a trace shows whether a configured feature is at work: what ran beside compute, and names that prove it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from diagnose.document.device import Communication
from diagnose.knowledge.features import Features, matching
from diagnose.knowledge.taxonomy import HostRules
from diagnose.measure.device import DeviceMeasure
from diagnose.measure.typical import step_median
from diagnose.model.trace import Trace
from diagnose.model.vocabulary import DENSE_GEMM, DISPATCH, EXPERT_GEMM, ROUTER, CommKind, FactValue

_OVERLAPPED: tuple[tuple[CommKind, str], ...] = (("expert", "expert_exchange"), ("data", "data_parallel"), ("tensor", "tensor_parallel"))


def feature_facts(one: DeviceMeasure, communication: Sequence[Communication], features: Features) -> dict[str, FactValue]:
    """The facts of one device, by name."""
    return {
        **{f"{prefix}_beside_compute_ns": _beside_compute(one, kind) for kind, prefix in _OVERLAPPED},
        "expert_exchange_nccl_share": _nccl_share(communication, "expert"),
        "tensor_parallel_nccl_share": _nccl_share(communication, "tensor"),
        "low_precision_gemm_share": _low_precision_share(one, features),
        "fused_router_kernels_per_step": _kernels(one, features["fused_router"], ROUTER),
        "fused_permutation_kernels_per_step": _kernels(one, features["fused_permutation"], DISPATCH),
        "permutation_kernels_per_step": _permutations(one),
    }


def hierarchical_context_groups(trace: Trace, features: Features) -> bool | None:
    """Whether the context-parallel exchange has groups of several levels; None where no context-parallel group is named."""
    described = trace.payloads["group"].drop_nulls().unique().to_list()
    if matching(features["hierarchical_groups"], described):
        return True
    return False if matching(features["context_groups"], described) else None


def graph_launch_calls(trace: Trace, hosts: HostRules) -> int | None:
    """API calls of the whole capture that launched a CUDA graph; None where no call was recorded.

    Kernels tell their graph only in some formats and versions, the calls always do.
    """
    if trace.calls.is_empty():
        return None
    pattern = hosts.call_pattern("graph_launch")
    ids = trace.names.filter(pl.col("text").str.contains(pattern))["id"]
    return trace.calls.filter(pl.col("name_id").is_in(ids.implode())).height


def _beside_compute(one: DeviceMeasure, kind: CommKind) -> int:
    """Time per step (ns) in which transport of a kind ran beside compute."""
    own = one.communication.beside.filter(pl.col("kind") == kind).select("index", "ns")
    return step_median(one.budget.per_step.select("index").join(own, on="index", how="left")["ns"].fill_null(0))


def _nccl_share(communication: Sequence[Communication], kind: CommKind) -> float | None:
    """Share of the busy time of one kind of transport that NCCL's kernels carry; None where none ran."""
    own = [row for row in communication if row.kind == kind]
    busy = sum(row.busy_ns for row in own)
    return sum(row.busy_ns for row in own if row.backend == "nccl") / busy if busy else None


def _low_precision_share(one: DeviceMeasure, features: Features) -> float | None:
    """Share of GEMM work in FP8 or FP4, among the kernels whose names tell their operands; None where less than half of the work does."""
    gemms = one.usage.names.filter(
        pl.col("bucket").cast(pl.String).is_in([DENSE_GEMM, EXPERT_GEMM])
        & pl.col("operation").cast(pl.String).is_in(["gemm", "grouped_gemm"])  # not what comes after a product
    )
    names = gemms["name"].drop_nulls().unique().to_list()
    narrow = matching(features["narrow_gemm"], names)
    wide = matching(features["wide_gemm"], names) - narrow
    low, high = _work(gemms, narrow), _work(gemms, wide)
    told = low + high
    return low / told if told and 2 * told >= int(gemms["work_ns"].sum()) else None


def _work(frame: pl.DataFrame, names: frozenset[str]) -> int:
    """Work (ns, over all steps) of the kernels of these names."""
    return int(frame.filter(pl.col("name").is_in(sorted(names)))["work_ns"].sum())


def _kernels(one: DeviceMeasure, feature: re.Pattern[str], bucket: str) -> int:
    """Mean number of kernels per step, rounded up, whose names prove a feature."""
    own = one.usage.names.filter(pl.col("bucket").cast(pl.String) == bucket)
    found = matching(feature, own["name"].drop_nulls().unique().to_list())
    return _per_step(one, own.filter(pl.col("name").is_in(sorted(found))))


def _permutations(one: DeviceMeasure) -> int:
    """Kernels that order tokens by expert or put them back, fused or not."""
    return _per_step(
        one, one.usage.names.filter((pl.col("bucket").cast(pl.String) == DISPATCH) & (pl.col("role").cast(pl.String) == "packing"))
    )


def _per_step(one: DeviceMeasure, rows: pl.DataFrame) -> int:
    """Mean number of kernels per step, rounded up."""
    return -(-int(rows["kernels"].sum()) // max(one.budget.per_step.height, 1))
