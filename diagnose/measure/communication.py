"""Transport of one device by kind and backend: how often, how long, how much of it exposed, blocking, or beside compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from diagnose.measure.budget import Concurrency, SweepClass
from diagnose.model.vocabulary import COMM_KINDS, CommKind


@dataclass(frozen=True, kw_only=True)
class CommunicationTimes:
    """Transport per step window.

    `by_kind`: index, kind, backend, count, work_ns, busy_ns, exposed_ns, blocking_ns. `beside`: index, kind, ns (transport while compute
    ran).
    """

    by_kind: pl.DataFrame
    beside: pl.DataFrame


def communication(
    ran: Concurrency, inside: pl.DataFrame, windows: pl.DataFrame, classes: pl.DataFrame, blocking: pl.DataFrame
) -> CommunicationTimes:
    """`inside`: the operations in the steps, with index and class_id; `blocking`: the frame of `Causes`."""
    return CommunicationTimes(by_kind=by_kind(ran, inside, windows, classes, blocking), beside=beside_compute(ran, windows))


def by_kind(ran: Concurrency, inside: pl.DataFrame, windows: pl.DataFrame, classes: pl.DataFrame, blocking: pl.DataFrame) -> pl.DataFrame:
    """index, kind, backend, count, work_ns, busy_ns, exposed_ns, blocking_ns."""
    keys = ["index", "kind", "backend"]
    transport = classes.filter(pl.col("role") == "transport").select(
        "class_id", pl.col("kind").fill_null("other"), pl.col("backend").fill_null("other")
    )
    counted = (
        inside.select("index", "class_id", (pl.col("end") - pl.col("start")).alias("ns"))
        .join(transport, on="class_id", how="inner")
        .group_by(keys)
        .agg(pl.len().alias("count"), pl.col("ns").sum().alias("work_ns"))
    )
    blocked = blocking.filter(pl.col("role") == "transport").group_by(keys).agg(pl.col("ns").sum().alias("blocking_ns"))
    table = transport_times(ran, windows)
    for part in (counted, blocked):
        table = table.join(part, on=keys, how="left", maintain_order="left")
    return table.with_columns(pl.col("count", "work_ns", "blocking_ns").fill_null(0))


def is_transport(kind: CommKind | None = None, backend: str | None = None) -> Callable[[SweepClass], bool]:
    """Accepts transport, of one kind and backend where given."""
    return lambda one: (
        one.role == "transport"
        and (kind is None or (one.kind or "other") == kind)
        and (backend is None or (one.backend or "other") == backend)
    )


def transport_times(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Busy and exposed time per window, kind and backend of transport: index, kind, backend, busy_ns, exposed_ns."""
    pairs = sorted({(one.kind or "other", one.backend or "other") for one in ran.classes if one.role == "transport"})
    parts = [_transport(ran, windows, kind, backend) for kind in COMM_KINDS for other, backend in pairs if other == kind]
    empty = pl.DataFrame(schema={"index": pl.Int64, "kind": pl.String, "backend": pl.String, "busy_ns": pl.Int64, "exposed_ns": pl.Int64})
    return pl.concat([empty, *parts])


def _transport(ran: Concurrency, windows: pl.DataFrame, kind: CommKind, backend: str) -> pl.DataFrame:
    """The rows of one kind and backend."""
    mask = ran.mask(is_transport(kind, backend))
    return pl.DataFrame({"index": windows["index"], "busy_ns": ran.busy(mask, windows), "exposed_ns": ran.alone(mask, windows)}).select(
        "index", pl.lit(kind).alias("kind"), pl.lit(backend).alias("backend"), "busy_ns", "exposed_ns"
    )


def beside_compute(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Time per window and kind of transport in which compute ran too, or a graph whose content is unknown: index, kind, ns."""
    compute = ran.mask(lambda one: one.role == "compute" or one.opaque)
    return pl.concat(
        pl.DataFrame({"index": windows["index"], "ns": ran.together(ran.mask(is_transport(kind)), compute, windows)}).select(
            "index", pl.lit(kind).alias("kind"), "ns"
        )
        for kind in COMM_KINDS
    )
