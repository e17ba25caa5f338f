"""Expert imbalance from traces alone.

The work of the experts behind each exchange of an expert-parallel group, on every captured member.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import polars as pl

from diagnose.document.ranks import ExpertImbalance, Layer
from diagnose.measure.ranks.slowness import Slowness
from diagnose.measure.ranks.transfers import Transfers

SHOWN = 32
SMALL = (
    0.02  # of the largest place: places with less work are no expert layers (a count exchange, an overlap's edge); this project's choice
)


def experts(every: Sequence[Transfers], slow: Mapping[int, Slowness]) -> tuple[ExpertImbalance, ...]:
    """One entry for each group of ranks that exchange tokens, costliest first.

    Work on a device that is slow anyway is brought to the others' speed.
    """
    groups: dict[tuple[int, ...], list[Transfers]] = defaultdict(list)
    for found in every:
        if found.group.kind == "expert" and found.group.shape == "all_to_all":
            groups[tuple(part.member.place for part in found.group.parts)].append(found)
    entries = [entry for own in groups.values() if (entry := _imbalance(own, slow)) is not None]
    return tuple(sorted(entries, key=lambda entry: (-entry.lost_ns, entry.ranks)))


def _imbalance(every: Sequence[Transfers], slow: Mapping[int, Slowness]) -> ExpertImbalance | None:
    """Compare one group's members place by place; None where no expert work shows."""
    places = _places(every)
    if places.is_empty():
        return None
    ranks = every[0].group.ranks
    n = len(ranks)
    table = (
        places.pivot(on="member", index=["step", "place"], values="work", aggregate_function="first").sort("step", "place")
        if places.height
        else places
    )
    columns = [str(number) for number in range(n)]
    speeds = [slow[part.member.place].ratio if part.member.place in slow else 1.0 for part in every[0].group.parts]
    table = table.with_columns((pl.col(column) / speed).cast(pl.Int64) for column, speed in zip(columns, speeds, strict=True))
    table = table.drop_nulls(columns).with_columns(pl.max_horizontal(columns).alias("longest"), pl.mean_horizontal(columns).alias("mean"))
    largest = table["longest"].max()
    table = table.filter(pl.col("longest") > SMALL * (largest if isinstance(largest, int) else 0))
    if table.is_empty():
        return None
    steps = table["step"].n_unique()
    lost = (table["longest"] - table["mean"]).sum()
    by_place = (
        table.group_by("place")
        .agg(pl.col(*columns, "longest", "mean").mean())
        .with_columns((pl.col("longest") - pl.col("mean")).alias("lost"))
    )
    worst = by_place.sort("lost", "place", descending=[True, False]).head(SHOWN).sort("place")
    tops = Counter(max(range(n), key=lambda number: (row[number], -number)) for row in table.select(columns).iter_rows())
    busiest, times = max(tops.items(), key=lambda item: (item[1], -item[0]))
    received = _received(places, worst["place"], n)
    return ExpertImbalance(
        ranks=ranks,
        places=table.height // steps,
        lost_ns=int(lost) // steps,
        spread=round(float((table["longest"] / table["mean"]).median() or 1.0), 4),  # type: ignore[arg-type]
        busiest=ranks[busiest],
        busiest_share=round(times / table.height, 4),
        layers=tuple(
            Layer(place=row["place"], work_ns=tuple(int(row[column]) for column in columns), elements=received.get(row["place"]))
            for row in worst.iter_rows(named=True)
        ),
        elements_spread=_elements(places, table, n),
    )


def _places(every: Sequence[Transfers]) -> pl.DataFrame:
    """step, place (the exchange's number in the step), member, work (of the experts between this exchange and the next), elements received.

    An exchange belongs to the step that it lies in on the first member; its place counts the group's exchanges of all operations in the
    order of their ends there.
    """
    rows = pl.concat([found.rows.with_columns(pl.lit(number).alias("lane")) for number, found in enumerate(every)])
    first = rows.filter(pl.col("place") == 0).sort("end", "lane").select("lane", "ordinal", pl.col("index").alias("step"))
    numbered = first.filter(pl.col("step").is_not_null()).with_columns(pl.int_range(pl.len()).over("step").alias("number"))
    ordered = (
        rows.select("lane", "ordinal", "place", "end", "expert_ns", "elements")
        .join(numbered, on=["lane", "ordinal"])
        .rename({"place": "member"})
    )
    ordered = ordered.sort("member", "step", "number")
    work = (pl.col("expert_ns") - pl.col("expert_ns").shift(1)).over("member")
    return ordered.select(
        "step", pl.col("number").alias("place"), "member", work.clip(0, None).alias("work"), pl.col("elements").shift(1).over("member")
    )


def _received(places: pl.DataFrame, shown: pl.Series, members: int) -> dict[int, tuple[int, ...]]:
    """By place, the elements that each member received before it worked, the mean over steps.

    Places where a trace does not tell are absent.
    """
    told = places.filter(pl.col("place").is_in(shown.implode()) & pl.col("elements").is_not_null())
    means = told.group_by("place", "member").agg(pl.col("elements").mean().cast(pl.Int64)).sort("place", "member")
    found = {int(place): tuple(rows["elements"].to_list()) for (place,), rows in means.group_by("place", maintain_order=True)}
    return {place: elements for place, elements in found.items() if len(elements) == members}


def _elements(places: pl.DataFrame, kept: pl.DataFrame, members: int) -> float | None:
    """Median over places of the largest over the mean number of received elements; None where sizes are not recorded."""
    sizes = (
        places.join(kept.select("step", "place"), on=["step", "place"], how="semi")
        .group_by("step", "place")
        .agg(pl.col("elements").max().alias("largest"), pl.col("elements").mean().alias("mean"), pl.col("elements").count().alias("n"))
    )
    told = sizes.filter((pl.col("n") == members) & (pl.col("mean") > 0))
    return round(float((told["largest"] / told["mean"]).median() or 1.0), 4) if told.height else None  # type: ignore[arg-type]
