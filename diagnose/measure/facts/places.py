"""Where a finding shows: ranks, steps, and the costliest names, by the places that rules name (rulebook.PLACES and "run")."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from diagnose.document.device import Communication, HostCost
from diagnose.document.diagnosis import Where
from diagnose.measure.device import DeviceMeasure
from diagnose.model.vocabulary import COMM_KINDS

TOP = 5


def places(one: DeviceMeasure, communication: tuple[Communication, ...], host: tuple[HostCost, ...]) -> Mapping[str, Where]:
    """The places of one device."""
    ranks, steps = (one.rank,), tuple(one.budget["index"].to_list())

    def named(frame: pl.DataFrame) -> Where:
        top = frame.group_by("name").agg(pl.col("work_ns").sum()).sort("work_ns", "name", descending=[True, False]).head(TOP)
        return Where(ranks=ranks, steps=steps, top=tuple(top["name"].to_list()))

    found = {"run": Where(ranks=ranks, steps=steps)}
    for (bucket,), part in one.names.group_by("bucket"):
        found[f"bucket:{bucket}"] = named(part)
    for (role,), part in one.names.group_by("role"):
        found[f"role:{role}"] = named(part)
    for kind in COMM_KINDS:
        rows = [row for row in communication if row.kind == kind]
        if rows:
            backends = tuple(f"{row.backend}: {row.count} per step" for row in rows)
            found[f"communication:{kind}"] = Where(ranks=ranks, steps=steps, top=backends)
    for cause in sorted({cost.cause for cost in host}):
        own = tuple(cost.name for cost in host if cost.cause == cause)[:TOP]
        found[f"host:{cause}"] = Where(ranks=ranks, steps=steps, top=own)
    tiny = one.names.filter(
        (pl.col("role") == "compute") & (pl.col("kernels") > 0) & (pl.col("work_ns") // pl.col("kernels").clip(lower_bound=1) < 10_000)
    )
    if not tiny.is_empty():
        most = tiny.sort("kernels", "name", descending=[True, False]).head(TOP)
        found["tiny"] = Where(ranks=ranks, steps=steps, top=tuple(most["name"].to_list()))
    return found
