"""What compute loses beside transport: there the same kernel with the same launch shape takes longer than alone.

An exchange that compute hides takes SMs, memory bandwidth and power from it. What that costs no trace tells; it is estimated. Kernels of
one name, grid and block are put apart by the share of their time in which transport ran: those that ran (almost) alone and those that
ran beside it. One name serves products of several sizes, so those are compared that run between the same two kernels, on whatever stream;
a shape that has too few of these is compared as a whole. Neither is done where most of what ran beside transport stands where none ran
alone: the next two kernels around it, or these two, are others. What a step does once beside transport a capture of a few steps holds a
few times: a shape may have so few where they are nearly equal, and all shapes together have enough. The difference of their medians, over
the time beside transport, is the share that is lost there. It is laid on all the time that such kernels spent beside transport, and where
a good part of all compute beside transport could be compared, on the rest too.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from diagnose.measure.shapes import SHAPE
from diagnose.measure.steps import per_window
from diagnose.model.intervals import covered, lasting, merge

AT_LEAST = 5  # analysis contract: kernels alone, and as many beside transport, that a comparison takes, over all shapes
# Of one shape at least so many, this project's choice: a capture of three steps, after warm-up, holds what each does once three times.
OF_ONE_SHAPE = 3
# This project's choices. Shares of a kernel's time beside transport: it runs alone up to the one, beside from the other on.
ALONE, BESIDE = 0.1, 0.5
# The middle half of durations spans at most this share of their median: otherwise kernels of one shape do unlike work.
ALIKE_ALONE, ALIKE_BESIDE = 0.25, 0.5
ALIKE_FEW = 0.1  # either of them, where there are fewer than `AT_LEAST` of one: a median of three is one of them
# what transport slows down it slows down each time: the fastest tenth beside it lose at least this share of what the median does
EVEN = 0.25
# This project's choice. Transport speeds nothing up, so what seems faster than that beside it did less work there. It takes no more than
# half of the device either (published: 15 to 24 % of its SMs, trace_rules/forecast.yaml), so what seems slower than that did more.
FASTER, SLOWER = -0.05, 0.5
MOST = 0.5  # this project's choice: of what ran beside transport at least this share has its like alone, or the medians are of two sizes
SAMPLE = 0.25  # this project's choice: from this share of compute beside transport on what could be compared stands for the rest
_BETWEEN = (*SHAPE, "before", "after")  # the kernels of compute that begin next before and after it, on any stream
_AMONG = (*_BETWEEN, "before_that", "after_that")  # and the ones next to these
_SHARE = pl.col("beside") / pl.col("length")
_APART = {"alone": _SHARE <= ALONE, "beside": _SHARE >= BESIDE}


def contention(known: pl.DataFrame, windows: pl.DataFrame, together: pl.Series) -> pl.DataFrame:
    """Per window: index, compute_beside_transport_ns, the part compared_ns that the estimate stands for, and contention_ns, lost in that.

    Null where no kernel could be compared. All are time: of kernels that run at once each counts in part. `known` as `compared` gives it;
    `together`: time per window in which compute and transport ran at once.
    """
    at_once = windows.select("index", together.alias("compute_beside_transport_ns"))
    if known["rate"].null_count() == known.height:
        return at_once.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in ("compared_ns", "contention_ns"))
    summed = known.group_by("index").agg(
        (pl.col("rate") * pl.col("beside")).round().cast(pl.Int64).sum().alias("lost"),
        pl.col("beside").filter(pl.col("rate").is_not_null()).sum().alias("known"),
        pl.col("beside").sum().alias("work"),
    )
    ran_beside, compared_ns = int(summed["work"].sum()), int(summed["known"].sum())
    stands_for_all = bool(compared_ns) and compared_ns >= SAMPLE * ran_beside
    for_all = ran_beside / compared_ns if stands_for_all else 1.0
    time = pl.min_horizontal(pl.lit(1.0), pl.col("compute_beside_transport_ns") / pl.col("work").clip(1, None))
    return (
        per_window(windows, at_once, summed)
        .fill_null(0)
        .select(
            *at_once.columns,
            (pl.col("work" if stands_for_all else "known") * time).floor().cast(pl.Int64).alias("compared_ns"),
            (pl.col("lost") * _with_the_rest(known, for_all) * time).clip(0, None).floor().cast(pl.Int64).alias("contention_ns"),
        )
    )


def losses(known: pl.DataFrame) -> pl.DataFrame:
    """How much each operation of compute loses beside transport, as far as the trace tells: op, lost (ns). `known`: of `compared`."""
    compared_ns, all_beside = int(known["beside"].filter(known["rate"].is_not_null()).sum()), int(known["beside"].sum())
    usual = 0.0
    if compared_ns and SAMPLE * all_beside <= compared_ns < all_beside:
        lost = float((known["rate"] * known["beside"]).sum())
        usual = lost * (_with_the_rest(known, all_beside / compared_ns) - 1) / (all_beside - compared_ns)
    lost_ns = (pl.col("rate").fill_null(usual) * pl.col("beside")).round().cast(pl.Int64).clip(0, None)
    return known.select("op", lost_ns.alias("lost")).filter(pl.col("lost") > 0)


def _ran(inside: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The kernels of compute in the steps: index, op, their shape, the kernels next to them, length, and beside: ns beside transport."""
    computes = (pl.col("role") == "compute") & (pl.col("kind") == "kernel") & (pl.col("end") > pl.col("start"))
    kernels = inside.select(pl.col("index", "op", *SHAPE, "start", "end").filter(computes))
    beside = covered(kernels, merge(work.filter(pl.col("role") == "transport")))
    length = lasting.alias("length")
    places = ((1, "before"), (-1, "after"), (2, "before_that"), (-2, "after_that"))
    next_to = (pl.col("name_id").shift(step).alias(name) for step, name in places)
    return kernels.select("index", "op", *SHAPE, *next_to, length, beside.alias("beside"))


def _with_the_rest(known: pl.DataFrame, for_all: float) -> float:
    """By what the loss of what could be compared is multiplied for all.

    The rest loses at the mean rate, or the usual one where that is higher.

    Kernels of one shape that do unlike work seem to lose too little; they pull the mean down, not the median over time.
    """
    told = known.drop_nulls("rate").sort("rate")
    lost = float((told["rate"] * told["beside"]).sum())
    if for_all <= 1 or lost <= 0:
        return for_all
    until = told["beside"].cum_sum()
    whole = float(until[-1])
    usual = float(told["rate"][until.search_sorted(whole / 2)])
    return 1 + (for_all - 1) * max(1.0, usual * whole / lost)


def compared(inside: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """What ran beside transport (index, op, beside: ns of it), with the `rate` at which it loses there: between the same two kernels, or
    where no kernel of its shape could be compared so, by shape. Null: not known.

    `inside`: the operations in the steps, with index; `work`: all operations.
    """
    ran = _ran(inside, work)
    alike = _alike(_comparable(ran), _BETWEEN, _AMONG)
    closely = _rates(alike, _BETWEEN)
    by_shape = _rates(_alike(alike, SHAPE, _BETWEEN), SHAPE).join(closely, on=SHAPE, how="anti").rename({"rate": "by_shape"})
    beside = ran.filter(pl.col("beside") > 0)
    for same, rates in ((_BETWEEN, closely), (SHAPE, by_shape)):
        beside = beside.join(rates, on=same, how="left", nulls_equal=True, maintain_order="left")
    return beside.select("index", "op", "beside", pl.coalesce("rate", "by_shape"))


def _comparable(ran: pl.DataFrame) -> pl.DataFrame:
    """The kernels whose names ran both alone and beside transport: all that can be compared, often few of many."""
    found = ran.group_by("name_id").agg(where.any().alias(name) for name, where in _APART.items())
    return ran.filter(pl.col("name_id").is_in(found.filter(pl.all_horizontal(*_APART))["name_id"].implode()))


def _alike(ran: pl.DataFrame, same: Sequence[str], closer: Sequence[str]) -> pl.DataFrame:
    """The kernels without those that are the same, some alone and some beside transport, and unlike where one looks closer.

    A persistent kernel has one grid for products of every size: which one ran its place in the layer alone tells.
    """
    alone, beside = _APART.values()
    known = alone.any().over(closer).filter(beside).mean().over(same)
    return ran.filter(~(alone.any().over(same) & (known < MOST)).fill_null(value=False))


def _rates(ran: pl.DataFrame, same: Sequence[str]) -> pl.DataFrame:
    """By `same`: which share of its time beside transport a kernel loses there (negative: it ran faster); shapes that can be compared."""
    length = pl.col("length").cast(pl.Float64)
    grouped = (
        ran.filter(pl.all_horizontal(pl.col(name).is_not_null() for name in SHAPE))
        .group_by(same)
        .agg(
            *(where.sum().alias(f"{name}_n") for name, where in _APART.items()),
            *(length.filter(where).median().alias(f"{name}_median") for name, where in _APART.items()),
            *(
                (length.filter(where).quantile(0.75) - length.filter(where).quantile(0.25)).alias(f"{name}_half")
                for name, where in _APART.items()
            ),
            _SHARE.filter(_APART["beside"]).median().alias("share"),
            length.filter(_APART["beside"]).quantile(0.1).alias("fastest"),
        )
    )
    fewer = pl.min_horizontal("alone_n", "beside_n")
    few = fewer < AT_LEAST
    alike = pl.all_horizontal(
        pl.col(f"{name}_half") <= pl.when(few).then(ALIKE_FEW).otherwise(most) * pl.col(f"{name}_median")
        for name, most in (("alone", ALIKE_ALONE), ("beside", ALIKE_BESIDE))
    )
    slower = pl.col("beside_median") - pl.col("alone_median")
    even = (slower <= -FASTER * pl.col("alone_median")) | (pl.col("fastest") - pl.col("alone_median") >= EVEN * slower)
    rate = (slower / (pl.col("beside_median") * pl.col("share"))).alias("rate")
    found = grouped.filter((fewer >= OF_ONE_SHAPE) & alike & even).with_columns(rate).filter(pl.col("rate").is_between(FASTER, SLOWER))
    if min(int(found[f"{name}_n"].sum()) for name in _APART) < AT_LEAST:
        found = found.clear()
    return found.select(*same, "rate")
