"""What a job file says of the graph that its trace leaves open: how far recompute goes."""

from __future__ import annotations

import dataclasses

import polars as pl

from diagnose.job import Job
from diagnose.measure.replay.graph import Graph
from diagnose.reason.forecast.select import selected

# Modules of selective recompute that hold no matrix product (Megatron-Core, transformer_config.py: recompute_modules).
NO_PRODUCTS = frozenset({"core_attn", "layernorm", "moe_act"})
_REPEATED = "phase = 'recompute'"
_PRODUCTS = f"{_REPEATED} AND operation IN ('gemm', 'grouped_gemm')"


def repeats_no_products(job: Job | None) -> bool:
    """Whether the job recomputes only modules without matrix products."""
    modules = None if job is None or job.get("recompute_granularity") != "selective" else job.get("recompute_modules")
    return isinstance(modules, tuple) and bool(modules) and set(modules) <= NO_PRODUCTS


def as_configured(graph: Graph, job: Job | None) -> Graph:
    """The graph in which what looks repeated by the order of its kernels is part of backward where the job recomputes no such thing."""
    if not repeats_no_products(job):
        return graph
    products = selected(graph, _PRODUCTS)
    buckets = graph.nodes["bucket"]
    left = buckets.filter(selected(graph, _REPEATED) & ~products & (graph.nodes["kind"] == "op")).unique()
    launching = (graph.nodes["kind"] != "op") & buckets.is_in(buckets.filter(products).unique().implode()) & ~buckets.is_in(left.implode())
    back = products | (launching & (graph.nodes["phase"] == "recompute")).fill_null(value=False)
    phase = pl.when(back).then(pl.lit("backward")).otherwise(pl.col("phase").cast(pl.String)).cast(graph.nodes.schema["phase"])
    return dataclasses.replace(graph, nodes=graph.nodes.with_columns(phase.alias("phase")))
