"""One step, thinned for drawing: bars too close to tell apart are drawn as one, and those too short are counted, not drawn."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from diagnose.document.device import TimelineGap, TimelineOp
from diagnose.measure.waits.stalls import Stalls
from diagnose.model.trace import Trace

BARS = 3000  # a page stays quick with about this many
GAPS = 1500
UNSEEN = 20_000  # a gap shorter than this part of the step is narrower than a fraction of a pixel


@dataclass(frozen=True, kw_only=True)
class DrawnStep:
    """The fields of the document's `Timeline` but for rank and device."""

    step: int
    start_ns: int
    end_ns: int
    ops: tuple[TimelineOp, ...]
    gaps: tuple[TimelineGap, ...]
    omitted: int = 0


def timeline(inside: pl.DataFrame, found: Stalls, windows: pl.DataFrame, trace: Trace, roles: pl.Series) -> DrawnStep:
    """The step of median length; blocking pieces are named by the role of what blocked. `roles`: of every operation, by row number."""
    ordered = windows.with_columns((pl.col("end") - pl.col("start")).alias("length")).sort("length", "index")
    index, start, end = ordered.select("index", "start", "end").row((ordered.height - 1) // 2)
    own = inside.filter(pl.col("index") == index).select("start", "end", "stream", "bucket", "role", "name_id")
    pieces = found.pieces.filter(pl.col("index") == index)
    role = roles.gather(pieces["producer"]).cast(pl.String)
    by_role = pl.when(pl.col("cause") == "blocking").then(pl.concat_str(pl.lit("blocking_"), role)).otherwise(None)
    named = pieces.select("start", "end", pl.coalesce(by_role, "cause").alias("cause"))
    return drawn(own, named, (index, start, end), trace.names["text"])


def drawn(work: pl.DataFrame, pieces: pl.DataFrame, window: tuple[int, int, int], names: pl.Series) -> DrawnStep:
    """Thin one step. `work`: start, end, stream, bucket, role, name_id; `pieces`: start, end, cause; `window`: (index, start, end)."""
    index, begin, close = window
    bars, hidden = _bars(work.with_columns(pl.col("start").clip(begin, close), pl.col("end").clip(begin, close)), close - begin)
    gaps, left_out = _thin_gaps(pieces.select("start", "end", "cause"), close - begin)
    times = (pl.col("start").alias("start_ns"), pl.col("end").alias("end_ns"))
    named = bars.select("stream", *times, "bucket", "role", names.gather(bars["name_id"]).str.slice(0, 300).alias("name"), "kernels")
    return DrawnStep(
        step=index,
        start_ns=begin,
        end_ns=close,
        ops=tuple(TimelineOp(**row) for row in named.iter_rows(named=True)),
        gaps=tuple(TimelineGap(**row) for row in gaps.select(*times, "cause").iter_rows(named=True)),
        omitted=hidden + left_out,
    )


def _runs(frame: pl.DataFrame, begins: pl.Expr, *told: pl.Expr) -> pl.DataFrame:
    """Rows joined up to the next one that begins a run: start, end, and what is told of each run; longest first."""
    numbered = frame.with_columns(begins.fill_null(value=True).cum_sum().alias("run"))
    joined = numbered.group_by("run").agg(pl.col("start").min(), pl.col("end").max(), *told)
    return joined.sort(pl.col("end") - pl.col("start"), "start", descending=[True, False])


def _bars(work: pl.DataFrame, length: int) -> tuple[pl.DataFrame, int]:
    """The BARS longest runs of one bucket on one stream, joined across distances too short to see and shorter than what ran before."""
    sight = max(1, length // 2000)
    lasting = pl.col("end") - pl.col("start")
    begins = (pl.col("bucket") != pl.col("bucket").shift(1)) | (pl.col("stream") != pl.col("stream").shift(1))
    begins |= pl.col("start") - pl.col("end").shift(1) > pl.min_horizontal(pl.lit(sight), lasting.shift(1))
    name = pl.col("name_id").sort_by(lasting).last()
    runs = _runs(work.sort("stream", "start", "end"), begins, pl.col("stream", "bucket", "role").first(), name, pl.len().alias("kernels"))
    drawn = runs.head(BARS).sort("stream", "start", "end")
    return drawn, int(runs.slice(BARS)["kernels"].sum())


def _thin_gaps(pieces: pl.DataFrame, length: int) -> tuple[pl.DataFrame, int]:
    """Touching pieces of one cause joined; the GAPS longest of them, and how many are left out. Nothing is drawn where compute ran."""
    seen = pieces.filter(pl.col("end") - pl.col("start") >= length // UNSEEN).sort("start")
    begins = (pl.col("cause") != pl.col("cause").shift(1)) | (pl.col("start") > pl.col("end").shift(1))
    runs = _runs(seen, begins, pl.col("cause").first())
    left_out = pieces.height - seen.height + max(0, runs.height - GAPS)
    return runs.head(GAPS).sort("start").select("start", "end", "cause"), left_out
