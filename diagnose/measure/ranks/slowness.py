"""Devices that run kernels of like shape slower than their likes: a matter of clocks, not of work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from diagnose.knowledge.buckets import Buckets
from diagnose.measure.ranks.members import Member

# All of these are this project's choice.
SLOWER = 1.03  # kernels of like shape take this much longer on a slow GPU …
AGREE = 0.8  # … in this share of their work


@dataclass(frozen=True, kw_only=True)
class Slowness:
    """`ratio`: the median over shapes, weighted by work, of a kernel's duration over that on the group's median device.

    `shapes`: how many were compared.
    """

    ratio: float
    shapes: int


def slow_devices(members: Sequence[Member], groups: Mapping[int, str], buckets: Buckets) -> Mapping[int, Slowness]:
    """By a member's place, the devices on which kernels of like shape take longer than on the others of their group."""
    uneven = [bucket for bucket, spec in buckets.items() if spec.data_dependent]
    pools: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        pools[groups[member.place]].append(member)
    found = {}
    for pool in pools.values():
        if len(pool) < 2:
            continue
        shapes = [member.device.exchanges.shapes.filter(~pl.col("bucket").is_in(uneven)) for member in pool]
        usual = (
            pl.concat(shapes)
            .group_by("name", "launch")
            .agg(pl.col("median_ns").quantile(0.5, "lower").alias("usual"), pl.len().alias("devices"))
        )
        usual = usual.filter((pl.col("devices") > 1) & (pl.col("usual") > 0))
        for member, own in zip(pool, shapes, strict=True):
            slowness = _slowness(own.join(usual, on=["name", "launch"]))
            if slowness is not None:
                found[member.place] = slowness
    return found


def _slowness(shapes: pl.DataFrame) -> Slowness | None:
    """`shapes`: median_ns, usual, work_ns. None unless most of the work takes longer."""
    if shapes.is_empty():
        return None
    ratios = shapes.select((pl.col("median_ns") / pl.col("usual")).alias("ratio"), "work_ns").sort("ratio", "work_ns")
    whole = int(ratios["work_ns"].sum())
    middle = float(ratios.filter(pl.col("work_ns").cum_sum() * 2 >= whole)["ratio"][0])
    agreeing = int(ratios.filter(pl.col("ratio") >= 1 + (SLOWER - 1) / 2)["work_ns"].sum()) / whole if whole else 0.0
    return Slowness(ratio=middle, shapes=ratios.height) if middle >= SLOWER and agreeing >= AGREE else None
