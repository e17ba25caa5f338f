"""Figures per step that only facts use; a column that has a fact's name is that fact, by its median over the steps."""

from __future__ import annotations

import polars as pl

from diagnose.measure.host import HostActivity, host_counts
from diagnose.measure.waits.stalls import Stalls, long_gaps
from diagnose.model.intervals import merge, overlaps
from diagnose.model.vocabulary import EXPERT_GEMM, ROUTER

TINY_NS = 10_000  # a kernel shorter than this costs about as much to launch as to run
_MAY_LACK = ("kernel_median_ns", "expert_gemm_median_ns", "longest_host_gap_ns")  # null in a step without any; all else is 0 there


def step_counts(inside: pl.DataFrame, windows: pl.DataFrame, found: Stalls, host: HostActivity, graphs: pl.Series) -> pl.DataFrame:
    """One row per window.

    `inside`: the operations in the steps, with index; `graphs`: correlation ids of the calls that launched a CUDA graph.
    """
    of_graph = pl.col("graph_node").is_not_null() | (pl.col("correlation").is_in(graphs.implode()) & pl.col("correlation").is_not_null())
    length = pl.col("end") - pl.col("start")
    kernel, compute = pl.col("kind") == "kernel", (pl.col("kind") == "kernel") & (pl.col("role") == "compute")
    by_ops = inside.group_by("index").agg(
        kernel.sum().alias("kernels_per_step"),
        compute.sum().alias("compute_kernels"),
        (compute & (length < TINY_NS)).sum().alias("tiny_kernels_per_step"),
        length.filter(compute).median().cast(pl.Int64).alias("kernel_median_ns"),
        (kernel & of_graph).sum().alias("graph_kernels"),
        pl.col("correlation").filter(pl.col("issued").is_not_null()).n_unique().alias("launch_calls_per_step"),
        pl.col("correlation").filter(of_graph | (pl.col("kind") == "graph")).n_unique().alias("graph_launches_per_step"),
        length.filter(pl.col("kind") == "graph").sum().alias("opaque_work_ns"),
        length.sum().alias("work_ns"),
        (pl.col("role") == "packing").sum().alias("packing_kernels_per_step"),
        (pl.col("bucket") == ROUTER).sum().alias("router_kernels_per_step"),
        ((pl.col("bucket") == EXPERT_GEMM) & kernel).sum().alias("expert_gemm_kernels_per_step"),
        length.filter(pl.col("bucket") == EXPERT_GEMM).median().cast(pl.Int64).alias("expert_gemm_median_ns"),
        length.filter(pl.col("bucket") == EXPERT_GEMM).sum().alias("expert_work_ns"),
        length.filter((pl.col("bucket") == EXPERT_GEMM) & (pl.col("operation") == "grouped_gemm")).sum().alias("expert_grouped_ns"),
        pl.col("bytes").filter(pl.col("copy_kind") == "h2d").sum().alias("copy_h2d_bytes"),
        (pl.col("copy_kind") == "p2p").sum().alias("peer_copies_per_step"),
        pl.col("bytes").filter(pl.col("copy_kind") == "d2h").sum().alias("copy_d2h_bytes"),
    )
    table = (
        windows.select("index")
        .join(by_ops, on="index", how="left", maintain_order="left")
        .join(_busy(inside, windows), on="index", how="left", maintain_order="left")
        .join(host_counts(host, windows), on="index", how="left", maintain_order="left")
        .join(long_gaps(found), on="index", how="left", maintain_order="left")
    )
    return table.with_columns(pl.exclude("index", *_MAY_LACK).fill_null(0))


def _busy(inside: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """index, tiny_kernel_busy_ns, quantize_busy_ns, pageable_copy_ns: unions per window."""
    short = (pl.col("kind") == "kernel") & (pl.col("role") == "compute") & (pl.col("end") - pl.col("start") < TINY_NS)
    subsets = {
        "tiny_kernel_busy_ns": short,
        "quantize_busy_ns": pl.col("operation") == "quantize",
        "pageable_copy_ns": ~pl.col("pinned"),
    }
    table = windows.select("index")
    for name, condition in subsets.items():
        common = overlaps(merge(inside.filter(condition)), windows)
        summed = (
            pl.DataFrame({"index": windows["index"].gather(common["right"]), name: common["end"] - common["start"]}).group_by("index").sum()
        )
        table = table.join(summed, on="index", how="left", maintain_order="left").with_columns(pl.col(name).fill_null(0))
    return table
