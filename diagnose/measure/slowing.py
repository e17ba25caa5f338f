"""Whether compute gets slower while the capture runs, all kernels alike: a clock that falls (power, heat), or somebody else on the GPU.

Kernels of one name, grid and block do the same work in every step. Where nearly all of them take longer in the last third of the steps
than in the first, or in single steps, the GPU itself became slower; where some do, their work grew. Persistent kernels keep their grid
whatever they are given, so their work is held against that of kernels which launch as many blocks as their input asks for: where those
launch more in the slow steps, the steps hold more work, as with sequences of another length.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from diagnose.measure.shapes import SHAPE, blocks
from diagnose.model.intervals import lasting

LEAST_STEPS = 6  # two to each third; with fewer a single slow step looks like a trend. All numbers here are this project's choice
LEAST_SLOWING = 1.04  # of a kernel's length: below it is scatter
LEAST_LONGER = 1 + (LEAST_SLOWING - 1) / 2  # times as long, or as many blocks, from which a kernel counts among those that follow
LEAST_PACED = 3  # with fewer steps it is not known which are the slow ones
ALIKE = 0.75  # share of compute that must have become slower: memory-bound kernels follow the clock less
KNOWN = 0.5  # share of compute of even work whose shapes run in every third: else the steps do other work
LEAST_GROWN = 0.1  # share of even work launched in more blocks than in other steps: activations and casts of experts alone are less
LEAST_EVEN = 0.1  # share of all compute that these shapes are: what experts do tells nothing of the GPU, and may be most


def compute_kernels(inside: pl.DataFrame, uneven: Collection[str]) -> pl.DataFrame:
    """index, shape, ns, uneven: the kernels of compute in the steps.

    `inside`: operations in the steps, with index; `uneven`: buckets whose kernels of one shape hold more or less work.
    """
    return inside.filter((pl.col("role") == "compute") & (pl.col("kind") == "kernel")).select(
        "index", *SHAPE, lasting.alias("ns"), pl.col("bucket").is_in(list(uneven)).alias("uneven")
    )


def speeds(inside: pl.DataFrame, windows: pl.DataFrame, uneven: Collection[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What `slowing` and `paces` tell of the kernels in the steps; arguments as for `compute_kernels`."""
    compute = compute_kernels(inside, uneven)
    return slowing(compute, windows), paces(compute, windows)


def _tells(work: int, compute: pl.DataFrame) -> bool:
    """Whether kernels of so much work, of shapes that come back, speak for the GPU."""
    even, every = int(compute["ns"].filter(~compute["uneven"]).sum()), int(compute["ns"].sum())
    return work > 0 and work >= KNOWN * even and work >= LEAST_EVEN * every


def _grows(steady: pl.DataFrame) -> bool:
    """Whether kernels launch more blocks in the last third of the steps than before; `steady`: compute of even work, with `third`."""
    launched = steady.with_columns(blocks().alias("blocks")).group_by("third", "name_id").agg(pl.col("blocks").mean(), pl.col("ns").sum())
    last = launched.with_columns(pl.col("blocks").min().over("name_id").alias("usual")).filter(pl.col("third") == 2)
    return int(last.filter(_more("blocks", "usual"))["ns"].sum()) >= LEAST_GROWN * int(last["ns"].sum()) > 0


def _more(name: str, than: str) -> pl.Expr:
    return (pl.col(name) >= LEAST_LONGER * pl.col(than)).fill_null(value=False)


def slowing(compute: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """index, slowed_ns: what the compute of each step takes longer than in the first third of the steps; 0 where it does not get slower.

    No rows where that can't be told. `compute`: as `compute_kernels` gives it.
    """
    steps = windows["index"].sort()
    nothing = pl.DataFrame(schema={"index": windows.schema["index"], "slowed_ns": pl.Int64})
    if len(steps) < LEAST_STEPS:
        return nothing
    place = pl.int_range(len(steps), eager=True) * 3 // len(steps)
    steady = compute.filter(~pl.col("uneven")).join(pl.DataFrame({"index": steps, "third": place}), on="index")
    if _grows(steady):
        return nothing
    # a name and a shape may stand for products of several sizes: the mean of a step holds the same mixture in each
    by_step = steady.group_by(*SHAPE, "index", "third").agg(pl.col("ns").sum().alias("work"), pl.col("ns").mean().alias("mean"))
    usual = (
        by_step.group_by(SHAPE)
        .agg(
            pl.col("work").sum(),
            pl.col("mean").filter(pl.col("third") == 0).median().alias("first"),
            # single slow steps are no trend: of later steps the faster ones have to be slower
            *(
                pl.col("mean").filter(pl.col("third") == third).quantile(0.25, "lower").alias(name)
                for third, name in ((1, "middle"), (2, "last"))
            ),
        )
        .drop_nulls(["first", "middle", "last"])
    )
    work = int(usual["work"].sum())
    if not _tells(work, compute):
        return nothing
    slower = (pl.col("last") > LEAST_SLOWING * pl.col("first")) & (pl.col("middle") >= pl.col("first"))
    if int(usual.filter(slower)["work"].sum()) < ALIKE * work:
        return pl.DataFrame({"index": steps, "slowed_ns": pl.Series([0] * len(steps), dtype=pl.Int64)})
    told = steady.join(usual, on=SHAPE, nulls_equal=True).group_by("index").agg(pl.col("ns").sum(), pl.col("first").sum())
    every = compute.group_by("index").agg(pl.col("ns").sum().alias("all"))  # a slow GPU is slow for the kernels that tell nothing too
    over = ((pl.col("ns") - pl.col("first")) * pl.col("all") / pl.col("ns")).round().cast(pl.Int64).clip(lower_bound=0)
    summed = told.join(every, on="index").select("index", over.alias("slowed_ns"))
    return pl.DataFrame({"index": steps}).join(summed, on="index", how="left").fill_null(0)


def paces(compute: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """index, pace: how many times as long as in faster steps nearly all kernels take in a step; 1 where they do not, null: not told.

    slow_steps_ns: what the compute of the step takes longer by that. Arguments as for `slowing`. Nothing is told where a slow step holds
    more work than the others.
    """
    even = compute.filter(~pl.col("uneven"))
    steady = even.group_by("index", *SHAPE).agg(pl.col("ns").median().alias("median"), pl.col("ns").sum())
    usual = pl.col("median").quantile(0.25, "lower").over(SHAPE)
    told = (
        steady.filter(pl.len().over(SHAPE) == windows.height).with_columns((pl.col("median") / usual).alias("ratio")).sort("ratio", *SHAPE)
    )
    nothing = windows.select("index", pl.lit(None, dtype=pl.Float64).alias("pace"), pl.lit(None, dtype=pl.Int64).alias("slow_steps_ns"))
    if windows.height < LEAST_PACED or not _tells(int(told["ns"].sum()), compute):
        return nothing
    middle = pl.col("ratio").filter(pl.col("ns").cum_sum() * 2 >= pl.col("ns").sum()).first()
    slower = pl.col("ns").filter(pl.col("ratio") >= LEAST_LONGER).sum() >= ALIKE * pl.col("ns").sum()
    by_step = told.group_by("index").agg(pl.when(slower & (middle >= LEAST_SLOWING)).then(middle).otherwise(1.0).alias("pace"))
    seen, grown = _launch_by_launch(even, by_step.filter(pl.col("pace") > 1)["index"])
    if grown:
        return nothing
    by_step = by_step.with_columns(pl.when(pl.col("index").is_in(seen.implode())).then("pace").otherwise(1.0).alias("pace"))
    every = compute.group_by("index").agg(pl.col("ns").sum().alias("all"))
    longer = (pl.col("all") * (1 - 1 / pl.col("pace"))).round().cast(pl.Int64).alias("slow_steps_ns")
    return windows.select("index").join(by_step, on="index", how="left").join(every, on="index", how="left").select("index", "pace", longer)


def _launch_by_launch(even: pl.DataFrame, slow: pl.Series) -> tuple[pl.Series, bool]:
    """Those of the `slow` steps in which nearly every launch takes longer than the same launch of the other steps, and whether they hold
    more work: many of their launches have more blocks.

    Under a slow clock all take longer. The medians of a few long kernels also differ by chance, and then many of their launches do not.
    """
    if slow.is_empty():
        return slow, False
    is_slow = pl.col("index").is_in(slow.implode())

    def paired(keys: Sequence[str], value: str) -> pl.DataFrame:
        each = even.with_columns(blocks().alias("blocks"), pl.int_range(pl.len()).over("index", *keys).alias("place"))
        usual = each.filter(~is_slow).group_by(*keys, "place").agg(pl.col(value).mean().alias("usual"))
        share = pl.col("ns").filter(_more(value, "usual")).sum() / pl.col("ns").sum()
        return each.filter(is_slow).join(usual, on=[*keys, "place"], nulls_equal=True).group_by("index").agg(share.alias("share"))

    seen = paired(SHAPE, "ns").filter(pl.col("share") >= ALIKE)["index"]
    grown = paired(["name_id"], "blocks").filter(pl.col("index").is_in(seen.implode()), pl.col("share") >= LEAST_GROWN)
    return seen, not grown.is_empty()
