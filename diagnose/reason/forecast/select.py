"""SELECT: the language of conditions, asked of the nodes of a graph."""

from __future__ import annotations

import polars as pl

from diagnose.knowledge.effects import PARTS, SELECT_COLUMNS, compile_select
from diagnose.measure.replay.graph import Graph

HOST_COLUMNS = ("node", "cause")  # a SELECT that reads neither speaks of device operations alone


def described(graph: Graph) -> pl.DataFrame:
    """The columns that a SELECT reads, one row per node in order."""
    nodes = graph.nodes
    names = graph.names.select(pl.col("id").cast(pl.Int32).alias("name_id"), pl.col("text").alias("name"))
    classes = graph.classes.select(
        pl.col("class_id").cast(pl.Int32),
        *(
            pl.col(name).cast(pl.String) if name in graph.classes.columns else pl.lit(None, dtype=pl.String).alias(name)
            for name in ("operation", "backend")
        ),
    )
    told = nodes.with_columns(pl.col("class_id").cast(pl.Int32)).join(names, on="name_id", how="left", maintain_order="left")
    part = pl.when(pl.col("bucket").is_in(PARTS) & (pl.col("kind") == "op")).then("bucket")
    awaited = graph.edges.filter(pl.col("kind") == "awaited")["src"].unique()
    told = told.with_row_index("node").with_columns(
        pl.col("node").is_in(awaited.implode()).alias("awaited"),
        part.forward_fill().shift(1).over("lane").alias("after"),
        part.backward_fill().shift(-1).over("lane").alias("before"),
    )
    told = told.drop("node").join(classes, on="class_id", how="left", maintain_order="left")
    return told.rename({"kind": "node"}).select(
        *(pl.col(name).cast(kind) for name, kind in SELECT_COLUMNS.items() if name != "us"), (pl.col("duration") / 1000).alias("us")
    )


def selected(graph: Graph, text: str) -> pl.Series:
    """Whether each node is what a SELECT asks for; a node of which it can't be told is not. Raises ConditionError."""
    expression = compile_select(text)
    found = described(graph).select(expression.compiled.fill_null(value=False).alias("selected"), pl.col("node"))
    if not set(expression.names) & set(HOST_COLUMNS):
        return found.select(pl.col("selected") & (pl.col("node") == "op"))["selected"]
    return found["selected"]
