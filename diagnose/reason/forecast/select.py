"""SELECT: the language of conditions, asked of the nodes of a graph."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from diagnose.knowledge.effects import PARTS, SELECT_COLUMNS, compile_select
from diagnose.measure.replay.graph import Graph
from diagnose.model.vocabulary import DENSE_GEMM, LOSS, NORM

HOST_COLUMNS = ("node", "cause")  # a SELECT that reads neither speaks of device operations alone


def described(graph: Graph, wanted: Collection[str]) -> pl.DataFrame:
    """The columns that a SELECT reads, those wanted of SELECT_COLUMNS, one row per node in order."""
    told = graph.nodes.lazy()
    if "name" in wanted:
        names = graph.names.lazy().select(pl.col("id").cast(pl.Int32).alias("name_id"), pl.col("text").alias("name"))
        told = told.join(names, on="name_id", how="left", maintain_order="left")
    if not _OF_CLASSES.isdisjoint(wanted):
        classes = graph.classes.lazy().select(
            pl.col("class_id").cast(pl.Int32),
            *(
                pl.col(name).cast(pl.String) if name in graph.classes.columns else pl.lit(None, dtype=pl.String).alias(name)
                for name in sorted(_OF_CLASSES)
            ),
        )
        told = told.with_columns(pl.col("class_id").cast(pl.Int32)).join(classes, on="class_id", how="left", maintain_order="left")
    if "awaited" in wanted:
        awaited = graph.edges.filter(pl.col("kind") == "awaited")["src"].unique()
        told = told.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).is_in(awaited.implode()).alias("awaited"))
    part = pl.when(pl.col("bucket").is_in(PARTS) & (pl.col("kind") == "op")).then("bucket")
    around = pl.when(pl.col("role") != "packing").then(part)
    told = told.with_columns(
        around.forward_fill().shift(1).alias("behind"),
        around.backward_fill().shift(-1).alias("ahead"),
        part.forward_fill().shift(1).over("lane").alias("after"),
        part.backward_fill().shift(-1).over("lane").alias("before"),
        _head().alias("head"),
        (pl.col("duration") / 1000).alias("us"),
    )
    kept = [pl.col(name).cast(kind) for name, kind in SELECT_COLUMNS.items() if name in wanted]
    return told.rename({"kind": "node"}).select(kept).collect()


def _head() -> pl.Expr:
    """Products with nothing of a layer, and no norm, between them and the loss on their stream."""
    near = pl.when(pl.col("bucket").is_in((*PARTS, NORM, LOSS)) & (pl.col("kind") == "op")).then("bucket")
    around = (near.backward_fill().shift(-1).over("lane"), near.forward_fill().shift(1).over("lane"))
    return (pl.col("bucket") == DENSE_GEMM) & pl.any_horizontal((one == LOSS).fill_null(value=False) for one in around)


_OF_CLASSES = frozenset({"operation", "backend"})


def selected(graph: Graph, text: str) -> pl.Series:
    """Whether each node is what a SELECT asks for; a node of which it can't be told is not. Raises ConditionError."""
    return graph.once(("selected", text), lambda: _mask(graph, text))


def _mask(graph: Graph, text: str) -> pl.Series:
    expression = compile_select(text)
    found = described(graph, {*expression.names, "node"}).select(
        expression.compiled.fill_null(value=False).alias("selected"), pl.col("node")
    )
    if not set(expression.names) & set(HOST_COLUMNS):
        return found.select(pl.col("selected") & (pl.col("node") == "op"))["selected"]
    return found["selected"]
