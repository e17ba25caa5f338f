"""What a device ran in its steps: work by bucket and by name, and how each name was used on each stream.

Of a name on a stream: launches, work, the usual duration of a launch, and what ran before and after. Two captures are compared by these
rows: a kernel that was renamed stands at the same place in the sequence. Every operation gets one number, its *code*, for what is told
apart; grouping ten million rows by one number is several times as fast as by the columns that it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from diagnose.measure.buckets.classify import Classified
from diagnose.measure.budget import Concurrency
from diagnose.model.trace import OpKind, Trace

KEPT = 400  # rows of one device; our own choice: steps of training seldom run more names, and the rest has little work
Role = pl.Enum(["compute", "transport", "packing", "copy"])
NAME = ["name_id", "bucket", "role", "kind"]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Work in the steps of one device.

    `buckets`: index, bucket, kernels, work_ns, busy_ns, exclusive_ns. `details`: bucket, phase, decided_by, work_ns over all steps.
    `names`: name, bucket, role, operation, kernels, work_ns over all steps, costliest first. `kernels` is what two captures are compared
    by.
    """

    buckets: pl.DataFrame
    details: pl.DataFrame
    names: pl.DataFrame
    kernels: KernelTable


@dataclass(frozen=True, kw_only=True)
class Uses:
    """All operations in the steps of one device, told apart by name, bucket, role, kind and stream.

    `per_step`: code, index, name_id, bucket, role, kind, operation, stream, kernels, work_ns. `coded`: code, index, ns of every operation,
    on each stream in order of start.
    """

    per_step: pl.DataFrame
    coded: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class KernelTable:
    """One device's names by use, most work first.

    `frame`: place (row of `Usage.names`), stream, launches, work_ns (medians over the steps), launch_ns (median over all launches),
    previous, next (rows of this frame; null where nothing ran, and where what ran is left out). `omitted` rows with `omitted_ns` of work
    per step (median) are left out.
    """

    frame: pl.DataFrame
    omitted: int
    omitted_ns: int


def usage(inside: pl.DataFrame, ran: Concurrency, windows: pl.DataFrame, classified: Classified, trace: Trace) -> Usage:
    """Count what ran. `inside`: the operations in the steps as `uses` needs them, with class_id."""
    used = uses(inside, classified.buckets)
    names = by_name(used.per_step, trace)
    return Usage(
        buckets=by_bucket(ran, used.per_step, windows, classified.buckets),
        details=by_evidence(inside, classified.classes),
        names=names.drop("name_id", "kind"),
        kernels=kernel_table(used, windows, names),
    )


def by_bucket(ran: Concurrency, per_step: pl.DataFrame, windows: pl.DataFrame, buckets: pl.Enum) -> pl.DataFrame:
    """index, bucket, busy_ns, exclusive_ns, kernels, work_ns."""
    counted = per_step.group_by("index", "bucket").agg(pl.col("kernels", "work_ns").sum())
    times = bucket_times(ran, windows).with_columns(pl.col("bucket").cast(buckets))
    return times.join(counted, on=["index", "bucket"], how="left", maintain_order="left").with_columns(
        pl.col("kernels", "work_ns").fill_null(0)
    )


def bucket_times(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Busy and exclusive time per window and bucket: index, bucket, busy_ns, exclusive_ns."""
    parts = []
    for bucket in sorted({one.bucket for one in ran.classes}):
        mask = sum(one.mask for one in ran.classes if one.bucket == bucket)
        parts.append(
            pl.DataFrame({"index": windows["index"], "busy_ns": ran.busy(mask, windows), "exclusive_ns": ran.alone(mask, windows)}).select(
                "index", pl.lit(bucket).alias("bucket"), "busy_ns", "exclusive_ns"
            )
        )
    return pl.concat(parts)


def by_evidence(inside: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """bucket, phase, decided_by (the kind of evidence), work_ns over all steps."""
    work = inside.group_by("class_id").agg((pl.col("end") - pl.col("start")).sum().alias("work_ns"))
    return (
        work.join(classes.select("class_id", "bucket", "phase", "decided_by"), on="class_id")
        .group_by("bucket", "phase", "decided_by")
        .agg(pl.col("work_ns").sum())
        .sort("bucket", "phase", "decided_by", nulls_last=True)
    )


def by_name(per_step: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Work by name inside the steps: name_id, kind, name, bucket, role, operation, kernels, work_ns; costliest first."""
    return (
        per_step.group_by("name_id", "bucket", "role", "kind")
        .agg(pl.col("operation").first(), pl.col("kernels", "work_ns").sum())
        .join(trace.names.select(pl.col("id").alias("name_id"), pl.col("text").alias("name")), on="name_id", how="left")
        .sort("work_ns", "name", "bucket", "role", "kind", descending=[True, False, False, False, False])
        .select("name_id", "kind", "name", "bucket", "role", "operation", "kernels", "work_ns")
    )


# ------------------------------------------------------------------------------------------------ names by stream


def uses(inside: pl.DataFrame, buckets: pl.Enum) -> Uses:
    """Count the operations in the steps.

    `buckets`: the type of the column bucket. `inside`: index, name_id, bucket, role, kind, operation, stream, start, end, in order of
    start.
    """
    streams = inside["stream"].unique().sort()
    number = streams.search_sorted(inside["stream"]).alias("number")
    code = pl.col("name_id").cast(pl.Int64).fill_null(-1) + 1
    for column, dtype in (("bucket", buckets), ("role", Role), ("kind", OpKind)):
        code = code * len(dtype.categories) + pl.col(column).to_physical().cast(pl.Int64)
    length = (pl.col("end") - pl.col("start")).alias("ns")
    rows = inside.select((code * len(streams) + number.cast(pl.Int64)).alias("code"), "index", length, "operation", number)
    coded = pl.concat(rows.partition_by("number", maintain_order=True)) if rows.height else rows
    first, last = (int(value) if isinstance(value, int) else 0 for value in (inside["index"].min(), inside["index"].max()))
    per_step = (
        coded.group_by((pl.col("code") * (last - first + 1) + pl.col("index") - first).alias("use"))
        .agg(pl.col("code", "index", "operation").first(), pl.len().alias("kernels"), pl.col("ns").sum().alias("work_ns"))
        .sort("index", "code")
    )
    return Uses(per_step=_decoded(per_step, streams, buckets), coded=coded.select("code", "index", "ns"))


def _decoded(frame: pl.DataFrame, streams: pl.Series, buckets: pl.Enum) -> pl.DataFrame:
    """What each code stands for."""
    several = max(1, len(streams))
    found, rest = [streams.gather(frame["code"] % several).alias("stream")], frame["code"] // several
    for column, dtype in (("kind", OpKind), ("role", Role), ("bucket", buckets)):
        values = dtype.categories.cast(dtype)
        found.append(values.gather(rest % len(values)).alias(column))
        rest //= len(values)
    name = pl.when(pl.col("rest") > 0).then(pl.col("rest") - 1).cast(pl.Int32).alias("name_id")
    return frame.hstack(found).with_columns(pl.DataFrame({"rest": rest}).select(name)["name_id"]).drop("use")


def kernel_table(found: Uses, windows: pl.DataFrame, names: pl.DataFrame, kept: int = KEPT) -> KernelTable:
    """The rows of one device. `windows` has index; `names` has name_id, bucket, role, kind in the order of `Usage.names`."""
    keys = (
        found.per_step.group_by("code", *NAME, "stream")
        .agg(pl.col("work_ns").sum().alias("total"))
        .join(names.select(NAME).with_row_index("place"), on=NAME, how="left", nulls_equal=True)
        .sort("total", "place", "stream", descending=[True, False, False])
        .with_row_index("key")
    )
    per_step = found.per_step.join(keys.select("code", "key"), on="code")
    lengths = found.coded.group_by("code").agg(pl.col("ns").median().floor().cast(pl.Int64).alias("launch_ns"))
    ordered = (
        keys.head(kept)
        .join(_medians(per_step.filter(pl.col("key") < kept), windows), on="key", how="left")
        .join(lengths, on="code", how="left")
        .join(_neighbours(found.coded, keys), on="key", how="left")
        .sort("work_ns", "key", descending=[True, False])
        .with_row_index("row")
    )
    rest = per_step.filter(pl.col("key") >= kept).group_by("index").agg(pl.col("work_ns").sum())
    middle = windows.select("index").join(rest, on="index", how="left")["work_ns"].fill_null(0).median()
    return KernelTable(
        frame=_neighbour_rows(ordered), omitted=max(0, keys.height - kept), omitted_ns=int(middle) if isinstance(middle, int | float) else 0
    )


def _medians(per_step: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """key, launches, work_ns: medians over all steps, in which a step without the key counts as 0."""
    every = per_step.select("key").unique().join(windows.select("index"), how="cross")
    filled = every.join(per_step.select("key", "index", pl.col("kernels").alias("launches"), "work_ns"), on=["key", "index"], how="left")
    return filled.fill_null(0).group_by("key").agg(pl.col("launches", "work_ns").median().floor().cast(pl.Int64))


def _neighbours(coded: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """key, previous, next: the keys that most often ran just before and after on the same stream within a step.

    Of equally frequent ones that with more work.
    """
    told = keys.select("code", "key", "stream")
    pairs = (
        coded.select("code", pl.when(pl.col("index") == pl.col("index").shift(1)).then(pl.col("code").shift(1)).alias("before"))
        .drop_nulls()
        .group_by("code", "before")
        .agg(pl.len().alias("times"))
        .join(told, on="code")
        .join(told.rename({"code": "before", "key": "earlier", "stream": "beside"}), on="before")
        .filter(pl.col("stream").eq_missing(pl.col("beside")))
    )
    previous = pairs.group_by("key").agg(pl.col("earlier").sort_by("times", "earlier", descending=[True, False]).first().alias("previous"))
    following = pairs.group_by("earlier").agg(pl.col("key").sort_by("times", "key", descending=[True, False]).first().alias("next"))
    return previous.join(following, left_on="key", right_on="earlier", how="full", coalesce=True)


def _neighbour_rows(ordered: pl.DataFrame) -> pl.DataFrame:
    """Neighbours as rows of the frame instead of keys."""
    rows = ordered.select("key", pl.col("row").cast(pl.UInt16))
    for side in ("previous", "next"):
        told = rows.rename({"key": side, "row": f"{side}_row"})
        ordered = ordered.join(told, on=side, how="left", maintain_order="left").drop(side).rename({f"{side}_row": side})
    return ordered.select(pl.col("place").cast(pl.UInt32), "stream", "launches", "work_ns", "launch_ns", "previous", "next")
