"""One step for drawing, column by column."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct, field

from diagnose.document.device import HostColumns, TimelineColumns
from diagnose.document.diagnosis import MOST_SPANS
from diagnose.measure.buckets.context import innermost
from diagnose.measure.step_host import host_columns, median_step
from diagnose.measure.waits.stalls import Stalls
from diagnose.model.intervals import lasting, merge
from diagnose.model.trace import Trace

# operations of a step that are kept one by one: about 1.5 MB of JSON; what is longer is a capture that was not cut into steps
WHOLE = 50_000
LONGEST_NAME = 300


class DrawnStep(Struct, frozen=True, kw_only=True):
    """The fields of the document's `Timeline` but for rank and device; the columns packed, since a worker hands over one of each device.

    `spans`: when a place of `catalogue.places_of` shows in the step, as `Where.spans`.
    """

    step: int
    start_ns: int
    end_ns: int
    packed: bytes
    packed_host: bytes = b""
    spans: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @property
    def columns(self) -> TimelineColumns:
        """The operations of the step, and what was without compute."""
        return msgspec.json.decode(zlib.decompress(self.packed), type=TimelineColumns)

    @property
    def host(self) -> HostColumns | None:
        """What the host did for it; None where that was not recorded."""
        return msgspec.json.decode(zlib.decompress(self.packed_host), type=HostColumns | None) if self.packed_host else None


def timeline(
    inside: pl.DataFrame,
    found: Stalls,
    windows: pl.DataFrame,
    trace: Trace,
    work: pl.DataFrame,
    classes: pl.DataFrame,
    ranges: pl.DataFrame,
    rank: int,
) -> DrawnStep:
    """The step of median length; blocking pieces are named by the role of what blocked. `ranges`: as `step_ranges` gives them."""
    index, start, end = median_step(windows)
    own = inside.filter(pl.col("index") == index)
    roles = work["role"]
    pieces = found.pieces.filter(pl.col("index") == index)
    role = roles.gather(pieces["producer"]).cast(pl.String)
    by_role = pl.when(pl.col("cause") == "blocking").then(pl.concat_str(pl.lit("blocking_"), role)).otherwise(None)
    named = pieces.select("start", "end", "producer", pl.coalesce(by_role, "cause").alias("cause"))
    ops = kept_operations(own, (start, end))
    return DrawnStep(
        step=index,
        start_ns=start,
        end_ns=end,
        packed=_packed(whole(ops, named, start, trace, omitted=own.height - ops.height)),
        packed_host=_packed(host_columns(ops, ranges, (start, end), trace, rank)),
        spans=spans(ops, pieces, work, classes, start),
    )


def _packed(columns: TimelineColumns | HostColumns | None) -> bytes:
    return zlib.compress(msgspec.json.encode(columns), 1)


def spans(
    ops: pl.DataFrame, pieces: pl.DataFrame, work: pl.DataFrame, classes: pl.DataFrame, begin: int
) -> dict[str, tuple[tuple[int, int], ...]]:
    """By place, when it shows in the step: where compute waited for it, or, if it never did, where it ran.

    The longest MOST_SPANS stretches, in order.

    `ops`: operations of the step; `pieces`: those of `Stalls` in it; `work`: every operation, by row number.
    """
    kinds = classes.select("class_id", "kind")
    told = ops.select("start", "end", "bucket", "role", "class_id").join(kinds, on="class_id", how="left", maintain_order="left")
    blocked = pieces.filter(pl.col("producer").is_not_null())
    held = work.select("role", "class_id").select(pl.all().gather(blocked["producer"])).hstack(blocked.select("start", "end"))
    waited = held.join(kinds, on="class_id", how="left", maintain_order="left")
    rows = [
        _placed(told, "bucket", "bucket:"),
        *_where_waited(told, waited, "role", "role:"),
        *_where_waited(told, waited, "kind", "communication:"),
        _placed(pieces.with_columns(pl.col("cause").cast(pl.String).str.strip_prefix("host_")), "cause", "host:"),
    ]
    return _longest(pl.concat(rows), begin)


def _placed(frame: pl.DataFrame, column: str, kind: str) -> pl.DataFrame:
    """Place, start, end: the rows that have a value of a column, at the place that it names."""
    named = pl.concat_str(pl.lit(kind), pl.col(column).cast(pl.String)).alias("place")
    return frame.select(named, "start", "end").drop_nulls("place")


def _where_waited(told: pl.DataFrame, waited: pl.DataFrame, column: str, kind: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The same of operations at whose place nothing waited, and of waits."""
    waits = _placed(waited, column, kind)
    return _placed(told, column, kind).join(waits, on="place", how="anti", maintain_order="left"), waits


def _longest(rows: pl.DataFrame, begin: int) -> dict[str, tuple[tuple[int, int], ...]]:
    """By place, its MOST_SPANS longest stretches since the step began, in order."""
    stretches = merge(rows, ["place"]).select("place", pl.col("start") - begin, lasting.alias("length"))
    kept = stretches.sort("length", "start", descending=[True, False]).group_by("place", maintain_order=True).head(MOST_SPANS).sort("start")
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, start, length in kept.iter_rows():
        found[place].append((start, length))
    return {place: tuple(one) for place, one in found.items()}


def kept_operations(own: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """The operations of a step (`own`: rows of `inside`) that are kept one by one, cut at its edges, in order of start."""
    begin, close = window
    cut = own.with_columns(pl.col("start").clip(begin, close), pl.col("end").clip(begin, close))
    return cut.sort(pl.col("start") - pl.col("end"), "start", "op").head(WHOLE).sort("start", "end", "op")


def whole(ops: pl.DataFrame, pieces: pl.DataFrame, begin: int, trace: Trace, *, omitted: int) -> TimelineColumns:
    """The operations of a step one by one, and what was without compute.

    `ops`: as `kept_operations` gives them. `pieces`: start, end, cause, producer. `begin`: of the step. `omitted`: operations left out.
    """
    names, numbers = _numbered(ops["name_id"], _ranges(ops, trace), trace.names["text"])
    streams, stream = _places(ops["stream"])
    buckets, bucket = _places(ops["bucket"].cast(pl.String))
    gaps = joined_pieces(pieces)
    causes, cause = _places(gaps["cause"])
    place = ops.select("op").with_row_index("place")
    return TimelineColumns(
        streams=streams,
        buckets=buckets,
        names=names,
        causes=causes,
        start_ns=tuple((ops["start"] - begin).to_list()),
        duration_ns=tuple((ops["end"] - ops["start"]).to_list()),
        stream=stream,
        bucket=bucket,
        name=numbers[0],
        queued_ns=tuple((ops["start"] - ops["issued"]).to_list()),
        range=numbers[1],
        gap_start_ns=tuple((gaps["start"] - begin).to_list()),
        gap_duration_ns=tuple((gaps["end"] - gaps["start"]).to_list()),
        gap_cause=cause,
        gap_blocked_by=tuple(
            gaps.select(pl.col("producer").alias("op")).join(place, on="op", how="left", maintain_order="left")["place"].to_list()
        ),
        omitted=omitted,
    )


def _ranges(ops: pl.DataFrame, trace: Trace) -> pl.Series:
    """Text id of the innermost range around each operation's launching call; null where there is none."""
    rows = ops.select("thread", pl.col("call_start").fill_null(pl.col("issued")).alias("time")).with_row_index("row")
    found = [rows.head(0).select("row", pl.lit(None, dtype=pl.Int32).alias("value"))]
    for (thread,), calls in rows.drop_nulls().group_by("thread"):
        mine = trace.ranges.filter(
            (pl.col("thread") == thread)
            & (pl.col("kind") != "frame")
            & (pl.col("end") >= calls["time"].min())
            & (pl.col("start") <= calls["time"].max())
        )
        around = innermost(mine.select("start", "end", pl.col("text_id").alias("value")))
        if around.height:
            joined = calls.sort("time").join_asof(around, left_on="time", right_on="start", strategy="backward")
            found.append(joined.filter(pl.col("time") < pl.col("end")).select("row", "value"))
    return rows.join(pl.concat(found), on="row", how="left", maintain_order="left")["value"]


def _places(values: pl.Series) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The distinct values in the order of their first mention, and the place of each among them."""
    distinct = values.unique(maintain_order=True).to_list()
    at = {value: place for place, value in enumerate(distinct)}
    return tuple(distinct), tuple(at[value] for value in values.to_list())


def _numbered(
    first: pl.Series, second: pl.Series, texts: pl.Series
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], tuple[int | None, ...]]]:
    """The texts of two columns of text ids, each once, and the columns as places among them; the second may hold nulls."""
    ids = pl.concat([first, second.drop_nulls()]).unique(maintain_order=True)
    names = texts.gather(ids).str.slice(0, LONGEST_NAME).fill_null("")
    at = dict(zip(ids.to_list(), range(len(ids)), strict=True))
    one = tuple(at[value] for value in first.to_list())
    return tuple(names.to_list()), (one, tuple(None if value is None else at[value] for value in second.to_list()))


def joined_pieces(pieces: pl.DataFrame) -> pl.DataFrame:
    """Touching pieces of one cause and one producer as one: start, end, cause, producer, in order of start."""
    ordered = pieces.sort("start")
    begins = (pl.col("cause") != pl.col("cause").shift(1)) | (pl.col("start") > pl.col("end").shift(1))
    begins |= pl.col("producer").ne_missing(pl.col("producer").shift(1))
    return _runs(ordered, begins, pl.col("cause", "producer").first()).sort("start").head(WHOLE)


def _runs(frame: pl.DataFrame, begins: pl.Expr, *told: pl.Expr) -> pl.DataFrame:
    """Rows joined up to the next one that begins a run: start, end, and what is told of each run; longest first."""
    numbered = frame.with_columns(begins.fill_null(value=True).cum_sum().alias("run"))
    joined = numbered.group_by("run").agg(pl.col("start").min(), pl.col("end").max(), *told)
    return joined.sort(lasting, "start", descending=[True, False])
