"""One mixture-of-experts layer, averaged.

Router → permute → dispatch → experts → combine → unpermute, forward and backward, busy and exposed.

A *pass* is one layer's way through the experts for one micro-batch. Expert GEMMs of one phase between which no token is packed or exchanged
are one pass; what lies between the GEMMs of two passes belongs to the first up to the longest pause between these operations (there the
rest of the model runs), and to the second from there on. So the parts go by place: an exchange before the experts brings tokens to them,
one behind them brings them back. Backward runs the same way with gradients: its exchange before the experts is the gradient of combine, and
the parts are named by what they are the gradient of.

*Busy* is the union of a part's operations in its pass; *exposed* is when nothing else ran on the device. The spread is over the passes of a
step (layers × micro-batches), each averaged over the steps, so that it shows how layers differ and not how steps do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import polars as pl

from diagnose.document.device import LayerPart, LayerPass
from diagnose.measure.buckets.line import LOOP
from diagnose.model.intervals import covered, lasting, merge, sweep
from diagnose.model.vocabulary import DISPATCH, EXPERT_GEMM, MOE_PARTS, ROUTER

# of the passes of a phase must hold both exchanges' sides alike; else layers overlap and no pass can be told (our own choice)
TOLD_APART = 0.8
_GATE, _PERMUTE, _TO, _EXPERTS, _BACK, _UNPERMUTE = MOE_PARTS
_BEFORE = {_GATE: _GATE, "packing": _PERMUTE, "transport": _TO, _EXPERTS: _EXPERTS}
_AFTER = {_GATE: _GATE, "packing": _UNPERMUTE, "transport": _BACK, _EXPERTS: _EXPERTS}
_MIRROR = {_PERMUTE: _UNPERMUTE, _TO: _BACK, _BACK: _TO, _UNPERMUTE: _PERMUTE}
_Row = tuple[int, int, str, int]  # an operation: start, end, sort, index of its step


def moe_layer(inside: pl.DataFrame, classes: pl.DataFrame) -> tuple[LayerPass, ...]:
    """The passes of one device by phase; none where no experts ran. `inside`: operations in steps, with index; `classes`: their kinds."""
    expert = classes.filter(pl.col("kind").is_null() | (pl.col("kind") == "expert"))["class_id"].implode()
    sort = (
        pl.when(pl.col("bucket") == EXPERT_GEMM)
        .then(pl.lit(_EXPERTS))
        .when(pl.col("bucket") == ROUTER)
        .then(pl.lit(_GATE))
        .when((pl.col("bucket") == DISPATCH) & pl.col("role").is_in(["packing", "transport"]) & pl.col("class_id").is_in(expert))
        .then(pl.col("role").cast(pl.String))
    )
    told = (
        inside.select("index", "start", "end", "phase", sort.alias("sort"))
        .filter(pl.col("sort").is_not_null())
        .sort("index", "start", "end")
    )
    if not (told["sort"] == _EXPERTS).any() or (classes["rule"] == LOOP).any():  # the turns of a loop look like passes
        return ()
    # An exchange is often launched outside of what tells phases: it goes with what ran before it.
    phase = pl.col("phase").cast(pl.String)
    phased = told.with_columns(
        phase.fill_null(phase.forward_fill().over("index")).fill_null(phase.backward_fill().over("index")).alias("phase")
    )
    solo = _alone(inside)
    found: list[LayerPass] = []
    for name in ("forward", "recompute", "backward", None):
        mine = phased.filter(pl.col("phase").eq_missing(pl.lit(name, dtype=pl.String)))
        most = found[0].passes if name == "backward" and found else None
        steps = groupby(mine.select("start", "end", "sort", "index").iter_rows(), key=itemgetter(3))
        placed = [one for _, rows in steps for one in _passes(list(rows), most)]
        number = pl.Series("pass", [place for place, _ in placed], dtype=pl.Int64)
        passed = mine.with_columns(number, pl.Series("part", [part for _, part in placed], dtype=pl.String)).filter(number.is_not_null())
        if not passed.is_empty():
            found.append(_mean(passed, name, solo))
    return tuple(found)


def _passes(rows: list[_Row], most: int | None) -> list[tuple[int | None, str | None]]:
    """Of each operation of one step and phase the number of its pass and its part; (None, None) of all where no experts ran.

    `most`: passes that the step can have, where that is known. Expert GEMMs in more runs are weight gradients that were put off.
    """
    runs = list(_runs(rows))
    if not runs:
        return [(None, None)] * len(rows)
    if most and len(runs) > most:
        runs = _as_exchanged(rows, runs, most)
    cuts = [0, *(_longest_pause(rows, last + 1, first) for (_, last), (first, _) in pairwise(runs)), len(rows)]
    return [
        (place, (_BEFORE if row < first else _AFTER)[rows[row][2]])
        for place, (first, _) in enumerate(runs)
        for row in range(cuts[place], cuts[place + 1])
    ]


def _runs(rows: list[_Row]) -> Iterator[tuple[int, int]]:
    """First and last row of the experts of each pass: tokens were packed or exchanged before the next one's."""
    first = last = -1
    between = False
    for place, (_, _, kind, _) in enumerate(rows):
        if kind != _EXPERTS:
            between = between or (last >= 0 and kind != _GATE)
            continue
        if last >= 0 and between:
            yield first, last
            first = -1
        first, last, between = (place if first < 0 else first), place, False
    if last >= 0:
        yield first, last


def _as_exchanged(rows: list[_Row], runs: list[tuple[int, int]], passes: int) -> list[tuple[int, int]]:
    """Runs joined to so many passes: one ends when as many exchanges have begun as belong to one."""
    exchanged = [0]
    for _, _, kind, _ in rows:
        exchanged.append(exchanged[-1] + (kind == "transport"))
    share = exchanged[-1] / passes
    joined = [runs[0]]
    for first, last in runs[1:]:
        if exchanged[first] - exchanged[joined[-1][0]] < max(share, 1) and len(joined) <= passes:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return joined


def _longest_pause(rows: list[_Row], begin: int, end: int) -> int:
    """The row behind the longest pause between the rows `begin` - 1 … `end`."""
    reach, best, longest = rows[begin - 1][1], begin, -1
    for place in range(begin, end + 1):
        pause = rows[place][0] - reach
        if pause > longest:
            best, longest = place, pause
        reach = max(reach, rows[place][1])
    return best


def _alone(inside: pl.DataFrame) -> pl.DataFrame:
    """Stretches (start, end), disjoint and sorted, in which operations of one bucket and role ran, and no other."""
    kinds = inside.select("start", "end", pl.struct("bucket", "role").rank("dense").cast(pl.Int64).sub(1).alias("bit"))
    return sweep(kinds).filter((pl.col("mask") > 0) & (pl.col("mask") & (pl.col("mask") - 1) == 0)).select("start", "end")


def _mean(ops: pl.DataFrame, phase: str | None, solo: pl.DataFrame) -> LayerPass:
    """One pass, averaged over those of all steps; `solo` as `_alone` gives it."""
    steps = ops["index"].n_unique()
    backward = phase == "backward"
    named = ops.with_columns(pl.col("part").replace(_MIRROR)) if backward else ops
    keys = ["index", "pass", "part"]
    pieces = merge(named.sort("start"), keys)
    length = lasting.sum().alias("busy_ns")
    by_pass = (
        pieces.with_columns(covered(pieces, solo).alias("exposed")).group_by(keys).agg(length, pl.col("exposed").sum().alias("exposed_ns"))
    )
    counts = named.group_by(keys).len("kernels")
    spans = ops.group_by("index", "pass").agg((pl.col("end").max() - pl.col("start").min()).alias("span_ns"))
    total = spans.height
    alike = by_pass.filter(pl.col("part").is_in([_TO, _BACK])).group_by("index", "pass").len().filter(pl.col("len") == 2).height
    return LayerPass(
        phase=phase,  # type: ignore[arg-type]
        passes=round(total / steps),
        status="measured" if phase is not None and alike >= TOLD_APART * total else "inferred",
        **_spread(spans, "span_ns", total),
        parts=tuple(
            LayerPart(
                part=part,
                kernels=round(int(counts.filter(pl.col("part") == part)["kernels"].sum()) / total, 1),
                busy_ns=round(int(mine["busy_ns"].sum()) / total),
                exposed_ns=round(int(mine["exposed_ns"].sum()) / total),
                **{f"busy_{end}_ns": value for end, value in _ends(mine, "busy_ns", total, steps).items()},
            )
            for part in (reversed(MOE_PARTS) if backward else MOE_PARTS)
            if not (mine := by_pass.filter(pl.col("part") == part)).is_empty()
        ),
    )


def _spread(spans: pl.DataFrame, column: str, total: int) -> dict[str, Any]:
    ends = _ends(spans, column, total, spans["index"].n_unique())
    return {column: round(int(spans[column].sum()) / total), "span_min_ns": ends["min"], "span_max_ns": ends["max"]}


def _ends(frame: pl.DataFrame, column: str, total: int, steps: int) -> dict[str, int]:
    """Least and most over the passes of a step, each the mean of its place over the steps; a place without it counts as 0."""
    places = frame.group_by("pass").agg(pl.col(column).sum() / steps)[column]
    missing = round(total / steps) > places.len()
    return {"min": 0 if missing else round(places.min() or 0), "max": round(places.max() or 0)}  # type: ignore[arg-type]
