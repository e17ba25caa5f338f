"""Launch shapes: kernels of one name, grid and block do the same work each time."""

from __future__ import annotations

import polars as pl

SHAPE = ("name_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def blocks() -> pl.Expr:
    """Thread blocks of a launch; null without its grid."""
    return pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")
