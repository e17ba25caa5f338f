"""Ranks beside their likes: which hold the same part of the model, which of them are slow, stages of a pipeline, and expert imbalance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median_low
from typing import Literal

import polars as pl
from msgspec import Struct

from diagnose.document.ranks import DataTail, ExpertImbalance, Layer, LikeGroup, Pipeline, Stage
from diagnose.knowledge.buckets import Buckets
from diagnose.measure.device import step_median
from diagnose.measure.ranks.members import STAGE_PARTS, Member, Mesh
from diagnose.measure.ranks.schedule import Schedule
from diagnose.measure.ranks.stages import Stages
from diagnose.measure.ranks.transfers import Transfers, medians
from diagnose.model.statistics import integer_median

TOLERANCE = 0.1  # counts of kernels that differ by less are alike; this project's choice


def like_groups(members: Sequence[Member], mesh: Mesh | None, buckets: Buckets) -> tuple[tuple[LikeGroup, ...], Mapping[int, str]]:
    """The groups, and by a member's place the group that it is in. By pipeline stage where the job tells, else by what the ranks run."""
    by: Literal["job", "fingerprint"]
    if mesh is not None and all(member.rank.rank < mesh.world for member in members):
        by, keys = "job", [mesh.stage(member.rank.rank) for member in members]
    else:
        by, keys = "fingerprint", _by_fingerprint(members, buckets)
    pools: dict[int, list[Member]] = defaultdict(list)
    for member, key in zip(members, keys, strict=True):
        pools[key].append(member)
    groups: list[LikeGroup] = []
    of: dict[int, str] = {}
    for number, (key, own) in enumerate(sorted(pools.items())):
        name = f"stage {key}" if by == "job" and mesh is not None and mesh.pipeline > 1 else _letter(number)
        groups.append(
            LikeGroup(
                id=name,
                ranks=tuple(member.rank.rank for member in own),
                stage=key if by == "job" else None,
                by=by,
                holds=_holds(own, buckets),
            )
        )
        of |= {member.place: name for member in own}
    return tuple(groups), of


def _letter(number: int) -> str:
    """The name of the `number`-th group: A to Z, then A1 to Z1, and so on."""
    return chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")


def _by_fingerprint(members: Sequence[Member], buckets: Buckets) -> list[int]:
    """Like ranks run the same of certain buckets, and about as many kernels in a step of others; buckets.yaml says which."""
    held = [bucket for bucket, spec in buckets.items() if spec.alike == "held"]
    counted = [bucket for bucket, spec in buckets.items() if spec.alike == "counted"]
    found: list[tuple[tuple[bool, ...], tuple[int, ...]]] = []
    keys = []
    for member in members:
        counts = member.kernels
        has = tuple(counts.get(bucket, 0) > 0 for bucket in held)
        numbers = tuple(counts.get(bucket, 0) for bucket in counted)
        same = (place for place, (kept, others) in enumerate(found) if kept == has and _near(numbers, others))
        place = next(same, None)
        if place is None:
            place = len(found)
            found.append((has, numbers))
        keys.append(place)
    return keys


def _near(numbers: Sequence[int], others: Sequence[int]) -> bool:
    return all(abs(mine - theirs) <= TOLERANCE * max(mine, theirs) for mine, theirs in zip(numbers, others, strict=True))


def _holds(members: Sequence[Member], buckets: Buckets) -> str:
    """What the group's ranks run, in words."""
    seen = {bucket for member in members for bucket, count in member.kernels.items() if count}
    parts = sorted((spec.part.order, spec.part.words) for bucket, spec in buckets.items() if spec.part is not None and bucket in seen)
    words = [text for _, text in parts]
    return ", ".join(words) if words else "none of the model's own parts"


# All of these are this project's choice.
SLOWER = 1.03  # kernels of like shape take this much longer on a slow GPU …
AGREE = 0.8  # … in this share of their work
SLOWER_STAGE = 1.06  # likewise of all GPUs of a stage: other stages' kernels of one shape need not do quite the same …
SHARED = 0.5  # … of kernels that make up this share of its work …
SAME = 1.1  # … and of which the shortest and the middle launches are longer by factors that differ by less than this


class Slowness(Struct, frozen=True, kw_only=True):
    """`ratio`: median over `shapes` shapes, weighted by work, of a kernel's duration over that on the group's median device."""

    ratio: float
    shapes: int

    def longer_ns(self, work_ns: int) -> int:
        """How much of its work the others would not need."""
        return round(work_ns * (1 - 1 / self.ratio))


def slow_devices(
    members: Sequence[Member], groups: Mapping[int, str], buckets: Buckets, stages: Stages | None = None
) -> Mapping[int, Slowness]:
    """By a member's place, the devices on which kernels of like shape take longer than on the others of their group.

    All of a pipeline's stage may be slow: then kernels that its stages have in common take longer than on the others, all launches of one
    by the same factor. A persistent kernel has one grid for every product: where a stage has others (a vision encoder's), factors differ.
    """
    uneven = [bucket for bucket, spec in buckets.items() if spec.data_dependent]
    pools: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        pools[groups[member.place]].append(member)
    held = [member.device.exchanges.shapes.with_columns(pl.lit(member.place).alias("member")) for member in members]
    shapes = pl.concat(held).filter(~pl.col("bucket").is_in(uneven))
    found = {place: slow for pool in pools.values() for place, (slow, _) in _slower(pool, shapes).items()}
    if stages is None:
        return found
    across = {
        place: slow for place, (slow, shared) in _slower(members, shapes, SAME).items() if slow.ratio >= SLOWER_STAGE and shared >= SHARED
    }
    for pool in pools.values():
        if all(member.place in across for member in pool):
            found |= {member.place: across[member.place] for member in pool}
    return found


def _slower(pool: Sequence[Member], shapes: pl.DataFrame, same: float | None = None) -> dict[int, tuple[Slowness, float]]:
    """Those of the pool that are slower than its median device, with the share of their work that others do too.

    `shapes`: member (its place), name, launch, bucket, median_ns, short_ns, work_ns. Slower is a device on which most of the common work
    takes longer, the shortest launches of a kernel too: one that keeps its grid whatever it is given may hold other products there. With
    `same`, a kernel whose shortest and middle launches differ so much in how much longer they take is left out: it does hold others.
    """
    if len(pool) < 2:
        return {}
    own = shapes.filter(pl.col("member").is_in([member.place for member in pool]))
    usual = (
        own.group_by("name", "launch", "bucket")
        .agg(pl.col("median_ns", "short_ns").quantile(0.5, "lower").name.prefix("usual_"), pl.len().alias("devices"))
        .filter((pl.col("devices") > 1) & (pl.col("usual_median_ns") > 0) & (pl.col("usual_short_ns") > 0))
    )
    ratio, work = pl.col("ratio"), pl.col("work_ns")
    ratios = [pl.col(name) / pl.col(f"usual_{name}") for name in ("median_ns", "short_ns")]
    least, most = pl.min_horizontal(ratios), pl.max_horizontal(ratios)
    told = (
        own.join(usual, on=["name", "launch", "bucket"])
        .filter(pl.lit(value=True) if same is None else most < same * least)
        .select("member", least.alias("ratio"), "work_ns")
        .sort("member", "ratio", "work_ns")
        .group_by("member", maintain_order=True)
        .agg(
            ratio.filter(work.cum_sum() * 2 >= work.sum()).first(),
            pl.len().alias("shapes"),
            work.sum().alias("common"),
            work.filter(ratio >= 1 + (SLOWER - 1) / 2).sum().alias("agreeing"),
        )
        .join(own.group_by("member").agg(work.sum().alias("whole")), on="member", maintain_order="left")
    )
    slower = told.filter((ratio >= SLOWER) & (pl.col("agreeing") / pl.col("common") >= AGREE))
    return {
        row["member"]: (Slowness(ratio=row["ratio"], shapes=row["shapes"]), row["common"] / row["whole"])
        for row in slower.iter_rows(named=True)
    }


INFERRED_STAGES = "the stages are inferred from which ranks hold the first and the last part of the model"
OTHER_SCHEDULE = (
    "the stages wait less than in Megatron-Core's order of passes, 1F1B or interleaved, so that the schedule is another (split backward "
    "passes, or passes side by side), and what other work or more chunks could win in it is not worked off"
)
NO_PHASES = "forward and backward could not be told apart, so that all waiting for other stages is called steady"


def pipeline(
    members: Sequence[Member],
    known: Stages | None,
    schedule: Schedule | None,
    own: Mapping[int, int],
    slow: Mapping[int, Slowness],
) -> Pipeline | None:
    """The pipeline as captured; None without one that is known, or with one stage captured.

    `own`: by place, a rank's time per step without waiting for others. What the stages have uneven is their work: what slow devices take
    longer for it is theirs, and stays where the work is evened.
    """
    if known is None or known.count < 2:
        return None
    by_stage: dict[int, list[Member]] = defaultdict(list)
    for member in members:
        if member.rank.rank in known.of:
            by_stage[known.of[member.rank.rank]].append(member)
    if len(by_stage) < 2:
        return None
    stages = tuple(_stage(number, mates) for number, mates in sorted(by_stage.items()))
    bubble, step = mean(one.bubble_ns for one in stages), mean(member.median.window_ns for member in members)
    longer = {
        member.place: slow[member.place].longer_ns(member.median.compute_busy_ns) if member.place in slow else 0 for member in members
    }
    compute = [mean(member.median.compute_busy_ns - longer[member.place] for member in mates) for mates in by_stage.values()]
    work = {number: median_low([own[member.place] - longer[member.place] for member in mates]) for number, mates in by_stage.items()}
    slower = {number: max(longer[member.place] for member in mates) for number, mates in by_stage.items()}
    now = {number: ns + slower[number] for number, ns in work.items()}
    other = schedule is not None and schedule.contradicted(now)
    schedule = None if other else schedule
    evened = {number: int(mean(work.values())) + slower[number] for number in work}
    even = schedule.saves(now, evened) if schedule is not None else None
    virtual = schedule.interleaved(work) if schedule is not None else None
    imbalance = int(max(compute) - mean(compute))
    return Pipeline(
        stages=stages,
        bubble_share=round(bubble / step, 6) if step else 0.0,
        expected_share=None if schedule is None else round(schedule.bubble_share, 6),
        imbalance_ns=imbalance,
        even_saves_ns=imbalance if even is None else even,
        virtual_saves_ns=None if virtual is None else min(virtual, int(bubble) // 2),
        note=" ".join(_notes(members, known, other=other)),
    )


def _notes(members: Sequence[Member], known: Stages, *, other: bool) -> Iterator[str]:
    if known.inferred:
        yield INFERRED_STAGES
    if not all(member.device.exchanges.has_phases for member in members):
        yield NO_PHASES
    if other:
        yield OTHER_SCHEDULE


def _stage(number: int, members: Sequence[Member]) -> Stage:
    """One stage: the mean over its captured ranks, per step."""
    waits = {part: [step_median(member.device.exchanges.stage_waits[part]) for member in members] for part in STAGE_PARTS}
    return Stage(
        stage=number,
        ranks=tuple(member.rank.rank for member in members),
        compute_busy_ns=int(mean(member.median.compute_busy_ns for member in members)),
        bubble_ns=int(mean(integer_median(member.bubble) for member in members)),
        warm_up_ns=int(mean(waits["warm_up_ns"])),
        steady_ns=int(mean(waits["steady_ns"])),
        cool_down_ns=int(mean(waits["cool_down_ns"])),
    )


def tails(members: Sequence[Member]) -> tuple[DataTail, ...]:
    """How long each rank's compute waits for data-parallel exchanges after its last backward; absent where not told, or without any."""
    told = [
        member
        for member in members
        if member.device.exchanges.has_phases and any(lane.kind == "data" for lane in member.device.exchanges.lanes)
    ]
    return tuple(DataTail(rank=member.rank.rank, tail_ns=step_median(member.device.exchanges.stage_waits["tail_ns"])) for member in told)


SHOWN = 32
# Of the largest place: places with less work are no expert layers (a count exchange, an overlap's edge); this project's choice.
SMALL = 0.02
# longest / mean work must differ by so much from place to place (standard deviation) before transfers are held against it; likewise
VARIES = 0.1


def experts(every: Sequence[Transfers], slow: Mapping[int, Slowness]) -> tuple[ExpertImbalance, ...]:
    """One entry per group of ranks that exchange tokens, costliest first; work on a device slow anyway is brought to others' speed."""
    groups: dict[tuple[int, ...], list[Transfers]] = defaultdict(list)
    for found in every:
        if found.group.kind == "expert" and found.group.shape == "all_to_all":
            groups[tuple(part.member.place for part in found.group.parts)].append(found)
    places = {members: rows for members, own in groups.items() if not (rows := _places(own)).is_empty()}
    tables = {members: table for members, rows in places.items() if not (table := _compared(groups[members], rows, slow)).is_empty()}
    following = followed_shares(tables)
    entries = [_imbalance(groups[members], places[members], table, following[members]) for members, table in tables.items()]
    return tuple(sorted(entries, key=lambda entry: (-entry.lost_ns, entry.ranks)))


def _compared(every: Sequence[Transfers], places: pl.DataFrame, slow: Mapping[int, Slowness]) -> pl.DataFrame:
    """One group's places: step, place, the work of each member (its number), longest, mean, transfer; those of little work left out."""
    table = places.pivot(on="member", index=["step", "place"], values="work", aggregate_function="first").sort("step", "place")
    columns = [str(number) for number in range(len(every[0].group.parts))]
    even = []
    for column, part in zip(columns, every[0].group.parts, strict=True):
        known = slow.get(part.member.place)
        speed = [part.member.pace(step) * (1.0 if known is None else known.ratio) for step in table["step"]]
        even.append((pl.col(column) / pl.Series(speed, dtype=pl.Float64)).cast(pl.Int64))
    table = (
        table.with_columns(even)
        .drop_nulls(columns)
        .with_columns(pl.max_horizontal(columns).alias("longest"), pl.mean_horizontal(columns).alias("mean"))
    )
    largest = table["longest"].max()
    moved = places.group_by("step", "place").agg(pl.col("transfer").max())
    return table.filter(pl.col("longest") > SMALL * (largest if isinstance(largest, int) else 0)).join(moved, on=["step", "place"])


def followed_shares(tables: Mapping[tuple[int, ...], pl.DataFrame]) -> dict[tuple[int, ...], float]:
    """By group: the share of its transfers that grows with longest / mean work, by places of all groups as large; 1 if not told."""
    spread = (pl.col("longest") / pl.col("mean")).alias("spread")
    of_size: dict[int, list[pl.DataFrame]] = defaultdict(list)
    for members, table in tables.items():
        of_size[len(members)].append(table.select(spread, "transfer"))
    how = pl.col("spread").std(), pl.cov("spread", "transfer").alias("together")
    told = {size: pl.concat(own).select(how).row(0) for size, own in of_size.items()}
    found = dict.fromkeys(tables, 1.0)
    for members, table in tables.items():
        varies, together = told[len(members)]
        usual, taken = table.select(spread.mean(), pl.col("transfer").mean()).row(0)
        if varies is not None and varies >= VARIES and taken:
            found[members] = min(max(together / varies**2 * usual / taken, 0.0), 1.0)
    return found


def _imbalance(every: Sequence[Transfers], places: pl.DataFrame, table: pl.DataFrame, following: float) -> ExpertImbalance:
    """One group's members, compared place by place. `following`: the share of transfers that grows with the longest work."""
    ranks = every[0].group.ranks
    n = len(ranks)
    columns = [str(number) for number in range(n)]
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
        transfer_ns=round(following * max(sum(medians(found, place)[0] for found in every) for place in range(n))),
    )


def _places(every: Sequence[Transfers]) -> pl.DataFrame:
    """step, place (an exchange's number in the step), member, work (of the experts before it), transfer (of both exchanges), elements.

    An exchange belongs to the step that it lies in on the first member; its place counts the group's exchanges of all operations in the
    order of their ends there.
    """
    rows = pl.concat([found.rows.with_columns(pl.lit(number).alias("lane")) for number, found in enumerate(every)])
    first = rows.filter(pl.col("place") == 0).sort("end", "lane").select("lane", "ordinal", pl.col("index").alias("step"))
    numbered = first.filter(pl.col("step").is_not_null()).with_columns(pl.int_range(pl.len()).over("step").alias("number"))
    ordered = (
        rows.select("lane", "ordinal", "place", "end", "expert_ns", "elements", "transfer")
        .join(numbered, on=["lane", "ordinal"])
        .rename({"place": "member"})
    )
    ordered = ordered.sort("member", "step", "number")
    work = (pl.col("expert_ns") - pl.col("expert_ns").shift(1)).over("member")
    return ordered.select(
        "step", pl.col("number").alias("place"), "member", work.clip(0, None).alias("work"),
        pl.col("transfer") + pl.col("transfer").shift(1).over("member"), pl.col("elements").shift(1).over("member"),
    )  # fmt: skip


def _received(places: pl.DataFrame, shown: pl.Series, members: int) -> dict[int, tuple[int, ...]]:
    """By place, the elements each member received before it worked, mean over steps; places where a trace does not tell are absent."""
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
