"""The memory wall as time (recompute) and as level (allocator events)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from diagnose.measure.repeated_blocks import FAMILY, PRODUCT, Blocks, repeated_blocks
from diagnose.measure.steps import per_window
from diagnose.model.intervals import lasting, merge
from diagnose.model.vocabulary import EXPERT_GEMM, ROUTER, Status

# Forward kernels per backward kernel of one family. All are this project's choice.
CUT = 1.1  # a step's windows cut some off: below it nothing is repeated
REPEATED = 1.5  # from here on a repetition is inferred
EVERY = 1.9  # from here on every forward kernel is repeated, and not those of some layers only
SENSIBLE = 2.25  # recompute runs the forward once more: above it the count makes no sense
PHASED = 0.5  # of compute whose phase is known: names alone do not tell as much, products have none

# Families whose kernels' names tell forward from backward, by their operation.
_FAMILIES = ("attention", "norm", ROUTER)


class Recompute(Struct, frozen=True, kw_only=True):
    """Forward work repeated in backward, per window (index, ns, lower, light), and how that is known; None where it can't be told.

    `ns` is the whole repetition; `lower` what is certainly repeated. They differ only where no range tells how far a repetition goes.
    `light` is the whole less matrix products: what a job repeats whose recompute covers no module with products. `ops`: rows of the compute
    that is repeated, in the whole; `spans`: index, start, end of the time that this takes, with the gaps that it ends. `experts_told`:
    whether ranges, names of the experts' products or kernels between these tell if these are repeated; None where no expert computes.
    """

    per_window: pl.DataFrame | None
    status: Status | None
    forward: int | None  # attention kernels inside the steps
    backward: int | None
    experts_told: bool | None = None
    ops: pl.Series = field(default_factory=lambda: pl.Series("op", dtype=pl.UInt32))
    spans: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema={"index": pl.Int32, "start": pl.Int64, "end": pl.Int64}))

    @property
    def ratio(self) -> float | None:
        """Forward attention kernels per backward one."""
        return _ratio(self.forward, self.backward)


class Directions(Struct, frozen=True, kw_only=True):
    """name_ids of the products whose names tell which way they go: those of a forward pass, and of the gradient of its input."""

    ahead: pl.Series
    back: pl.Series


def _ratio(forward: int | None, backward: int | None) -> float | None:
    """How many run forward per one backward; None where nothing was counted (what is counted runs both ways)."""
    return None if forward is None or backward is None else forward / backward


class MemoryUse(Struct, frozen=True, kw_only=True):
    """Recompute, and the highest allocated and reserved bytes of a device; None without allocator events."""

    recompute: Recompute
    peak_allocated: int | None
    peak_reserved: int | None


def memory_use(
    inside: pl.DataFrame,
    windows: pl.DataFrame,
    pieces: pl.DataFrame,
    directions: Directions,
    events: pl.DataFrame,
    rank: int,
    device: int,
    *,
    whole: bool,
) -> MemoryUse:
    """`inside`: the operations in the steps, with index; `pieces`: the gaps without compute; `events`, `whole`: as `peaks` takes them."""
    allocated, reserved = peaks(events, rank, device, whole=whole)
    columns = ("index", "op", "stream", "start", "end", "role", "bucket", "operation", "phase", "name_id")
    work = inside.select(columns)
    units = _units(work)
    blocks = repeated_blocks(work, units.filter(pl.col("operation") == "attention"))
    products = _product_units(work, directions, blocks)
    found = replace(recompute(work, windows, pieces, units, products), experts_told=_experts_told(work, products, blocks))
    return MemoryUse(recompute=found, peak_allocated=allocated, peak_reserved=reserved)


def recompute(work: pl.DataFrame, windows: pl.DataFrame, pieces: pl.DataFrame, units: pl.DataFrame, products: pl.DataFrame) -> Recompute:
    """Find repeated forward work: by phase where ranges tell it, otherwise by how often the families of forward kernels run.

    It is the time in which repeated compute ran and the time in which compute was absent until repeated compute began: what the repetition
    exchanges, packs and launches goes with it. `work`: the operations inside the steps with index (window), op, stream, start, end, role,
    bucket, operation, phase, name_id. `pieces`: the gaps without compute, with index, start, end, op (the operation that ends the gap).
    `units`, `products`: what counts, of families whose names tell their direction, and of products that no range places.
    """
    families = _multiplicity(units)
    counts = _attention(families)
    marked = _plausible(work.filter(pl.col("role") == "compute"), families)
    if not marked.is_empty():
        # Ranges of checkpoints name products too. Where a backward range holds nothing but kernels whose names say forward, more may be.
        told = _has_products(marked)
        marked = _followed(marked, work) if told else marked
        far = marked if told else _stretches(work, _in_order(work, _surely_back(units), marked), stretches)
        certain = _spans(marked, work, pieces)
        whole = certain if told else _spans(far, work, pieces)
        found = _in_full(*(_lengths(spans, windows) for spans in (whole, certain, _spans(_light(far), work, pieces))))
        status: Status = "measured" if found["ns"].equals(found["lower"]) else "inferred"
        return Recompute(per_window=found, status=status, forward=counts[0], backward=counts[1], ops=far["op"], spans=whole)
    units = pl.concat([units, products]).sort("index", "start", maintain_order=True)
    families = _multiplicity(_without_evaluations(units))
    again = families.filter(pl.col("ratio").is_between(REPEATED, SENSIBLE))
    if (ratio := _ratio(*_attention(families))) is not None and ratio > SENSIBLE:
        return Recompute(per_window=None, status=None, forward=counts[0], backward=counts[1])
    if counts[0] is None and again.is_empty():
        return _without_backward_attention(work, windows)
    second = _second_times(units, again)
    order = _in_order(work, units, second)
    far, sure = (_stretches(work, order, found_in) for found_in in (stretches, certain_stretches))
    whole, light = (_spans(repeated, work, pieces) for repeated in (far, _light(far)))
    certain = _spans(sure, work, pieces.filter(pl.col("cause") == "blocking"))  # another gap may be there without
    lower = _greater(_extra_attention(units, windows), _lengths(certain, windows))
    found = _in_full(_lengths(whole, windows), lower, _lengths(light, windows))
    return Recompute(per_window=found, status="inferred", forward=counts[0], backward=counts[1], ops=far["op"], spans=whole)


def _without_backward_attention(work: pl.DataFrame, windows: pl.DataFrame) -> Recompute:
    """Nothing is recomputed where no backward kernel ran, or where ranges tell the phases and no forward kernel lies inside backward."""
    compute = work.filter(pl.col("role") == "compute").select(pl.col("phase").cast(pl.String), lasting.alias("ns"))
    phases = dict(compute.group_by("phase").agg(pl.col("ns").sum()).iter_rows())
    ranged = "backward" in phases and phases.get(None, 0) < (1 - PHASED) * sum(phases.values())
    if "forward" in phases and ("backward" not in phases or ranged):
        none = pl.lit(0, dtype=pl.Int64)
        found = windows.select("index", none.alias("ns"), none.alias("lower"), none.alias("light"))
        return Recompute(per_window=found, status="inferred", forward=None, backward=None)
    return Recompute(per_window=None, status=None, forward=None, backward=None)


def _lengths(spans: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Per window (index, ns): how long its spans are together."""
    spent = spans.group_by("index").agg(lasting.sum().alias("ns"))
    return per_window(windows, spent).fill_null(0)


def _spans(repeated: pl.DataFrame, work: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """index, start, end: when any of the operations ran, the gaps that they end, and waiting for transport inside a repetition; disjoint.

    Waiting before a repetition for transport that is not its own (the gradient from the next stage) is left out: it would be there without.
    """
    again = pl.col("op").is_in(repeated["op"].implode())
    compute = work.filter(pl.col("role") == "compute").sort("index", "start", "op").with_columns(again.alias("again"))
    first = compute.filter(~pl.col("again").shift(1).fill_null(value=False))["op"]
    follows = ~pl.col("op").is_in(first.implode())  # what computed before the gap is repeated
    moving = work.filter(pl.col("role") == "transport")
    repeating = (pl.col("phase") == "recompute").fill_null(value=False)
    own, foreign = moving.filter(repeating)["op"], moving.filter(~repeating)["op"]
    blocked = pl.col("cause") == "blocking"
    arriving = (blocked & ~follows & pl.col("producer").is_in(foreign.implode())).fill_null(value=False)
    last = (blocked & follows & pl.col("producer").is_in(own.implode())).fill_null(value=False)  # what it exchanges behind its last kernel
    waited = pieces.filter((again & ~arriving) | last)
    return merge(pl.concat([frame.select("index", "start", "end") for frame in (repeated, waited)]), ("index",))


def _in_full(whole: pl.DataFrame, lower: pl.DataFrame, light: pl.DataFrame) -> pl.DataFrame:
    """index, ns, lower, light of `Recompute`, each at least `lower`. Each frame: index and ns, `lower` perhaps by that name."""
    frames = whole.join(lower.rename({"ns": "lower"}, strict=False), on="index").join(light.rename({"ns": "light"}), on="index")
    return frames.select("index", pl.max_horizontal("ns", "lower"), "lower", pl.max_horizontal("light", "lower").alias("light"))


def _greater(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """index, lower: the greater of a `lower` and an `ns` of each window."""
    return one.join(other, on="index").select("index", pl.max_horizontal("lower", "ns").alias("lower"))


def _has_products(work: pl.DataFrame) -> bool:
    return bool(work.select(PRODUCT.any()).item())


def _light(work: pl.DataFrame) -> pl.DataFrame:
    """What is repeated but matrix products."""
    return work.filter(~PRODUCT)


def _surely_back(units: pl.DataFrame) -> pl.DataFrame:
    """The units without those of which a range alone says that they are backward's, and the same kernel runs forward elsewhere.

    A backward range that holds a repetition says so of all in it whose names do not say forward.
    """
    forward = units.filter("ahead")["name_id"].unique()
    return units.filter(pl.col("ahead") | ~pl.col("name_id").is_in(forward.implode()))


def _followed(marked: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """`marked` with the compute after it on its stream, as far as all kernels follow each other as they do in a first forward.

    Ranges lose some kernels of a repetition to backward: those that a compiled or a custom node launches beside its operators.
    """
    order = work.filter(pl.col("role").is_in(["compute", "packing"])).sort("index", "stream", "start", "op")
    place = ["index", "stream"]
    known = order.with_columns(
        pl.col("op").is_in(marked["op"].implode()).alias("again"),
        (pl.col("name_id").cast(pl.Int64) * (1 << 32) + pl.col("name_id").shift(-1).over(place).cast(pl.Int64)).alias("pair"),
        (pl.col("phase").is_null() | (pl.col("phase") == "forward")).alias("ahead"),
    )
    first = known.filter(~pl.col("again") & pl.col("ahead") & pl.col("ahead").shift(-1).over(place))["pair"].drop_nulls().unique()
    broken = (~pl.col("pair").is_in(first.implode())).fill_null(value=True).cast(pl.Int64)
    breaks = (broken.cum_sum() - broken).over(place)  # how many breaks lie before the kernel
    held = known.with_columns(breaks.alias("breaks")).with_columns(
        pl.when("again").then("breaks").forward_fill().over(place).alias("reached")
    )
    inside = held.filter((pl.col("role") == "compute") & (pl.col("again") | (pl.col("breaks") == pl.col("reached"))))
    return work.filter(pl.col("op").is_in(inside["op"].implode()))


# ------------------------------------------------------------------------------------------------ how often a family runs


def _units(work: pl.DataFrame) -> pl.DataFrame:
    """One kernel per call of the families, helpers left out: the columns of `work`, and whether it goes ahead (forward) or back.

    A family's kernel is the name that carries most work in each direction. The names of a router's forward kernels say nothing; they are
    forward where others say backward. A family without kernels of both directions (a frozen tower) has nothing to compare.
    """
    family = work.filter((pl.col("role") == "compute") & pl.col("operation").is_in(_FAMILIES))
    unsaid = pl.col("phase").is_null() & (pl.col("operation") == ROUTER)
    ahead = (
        pl.when(pl.col("phase").is_in(["forward", "recompute"]) | unsaid)
        .then(pl.lit(value=True))
        .when(pl.col("phase") == "backward")
        .then(pl.lit(value=False))
    )
    told = family.with_columns(ahead.alias("ahead")).filter(pl.col("ahead").is_not_null())
    key = [*FAMILY, "ahead"]
    by_name = told.group_by(*key, "name_id").agg(lasting.sum().alias("work")).sort("work", "name_id")
    main = by_name.unique(key, keep="last", maintain_order=True)
    units = told.join(main.select(*key, "name_id"), on=[*key, "name_id"], how="semi", maintain_order="left")
    both = units.group_by(FAMILY).agg(pl.col("ahead").n_unique().alias("ways")).filter(pl.col("ways") > 1)
    units = units.join(both, on=FAMILY, how="semi", maintain_order="left").sort("index", "start", maintain_order=True)
    return _with_backward(units)


def _with_backward(units: pl.DataFrame) -> pl.DataFrame:
    """Without the forward that no backward of its step follows, which repeats nothing: an evaluation, or what the next step begins with."""
    followed = pl.col("start") < pl.col("start").filter(~pl.col("ahead")).max().over("index")
    return units.filter(~pl.col("ahead") | followed)


def _product_units(work: pl.DataFrame, directions: Directions, blocks: Blocks) -> pl.DataFrame:
    """Products that no range places, with `ahead` as names tell it of the experts', and as the kernels around them tell it of others.

    Each layer's product runs forward once for each gradient of its input. Attention and dense layers share names with each other, and with
    layers that have no gradient of their input, so that names are asked of the experts' alone.
    """
    experts = work.filter((pl.col("role") == "compute") & (pl.col("bucket") == EXPERT_GEMM) & pl.col("phase").is_null())
    ahead = (
        pl.when(pl.col("name_id").is_in(directions.ahead.implode()))
        .then(pl.lit(value=True))
        .when(pl.col("name_id").is_in(directions.back.implode()))
        .then(pl.lit(value=False))
    )
    named = experts.with_columns(ahead.alias("ahead")).filter(pl.col("ahead").is_not_null())
    around = blocks.units
    if named["ahead"].n_unique() == 2:
        around = around.filter(pl.col("bucket") != EXPERT_GEMM)
    else:
        named = named.clear()
    return _with_backward(pl.concat([named, around]))


def _experts_told(work: pl.DataFrame, products: pl.DataFrame, blocks: Blocks) -> bool | None:
    """Whether anything tells if experts' products are repeated: ranges, names of both ways, or their order; None without experts."""
    experts = work.filter((pl.col("role") == "compute") & (pl.col("bucket") == EXPERT_GEMM))
    if experts.is_empty():
        return None
    both = products.filter(pl.col("bucket") == EXPERT_GEMM)["ahead"].n_unique() == 2
    return both or blocks.experts_told or experts["phase"].null_count() < experts.height


def _multiplicity(units: pl.DataFrame) -> pl.DataFrame:
    """Per family: bucket, operation, ahead, behind (kernels in the steps), ratio."""
    counted = units.group_by(FAMILY, maintain_order=True).agg(
        pl.col("ahead").sum().cast(pl.Int64), (~pl.col("ahead")).sum().cast(pl.Int64).alias("behind")
    )
    return counted.with_columns((pl.col("ahead") / pl.col("behind")).alias("ratio"))


def _attention(families: pl.DataFrame) -> tuple[int, int] | tuple[None, None]:
    """Attention kernels of all parts, forward and backward; None each where a part does not run both ways."""
    attention = families.filter(pl.col("operation") == "attention")
    return (int(attention["ahead"].sum()), int(attention["behind"].sum())) if attention.height else (None, None)


def _plausible(compute: pl.DataFrame, families: pl.DataFrame) -> pl.DataFrame:
    """Those operations that are marked as forward work inside backward and can be a repetition.

    What never ran before backward is not repeated there: a loss that a backward range encloses. Where a family among them runs forward
    no oftener than backward, the range holds the forward of another micro-batch (overlap of forward and backward), and where it runs
    too often, the count makes no sense; only families that do run twice stay then.
    """
    first = compute.filter(pl.col("phase").is_null() | (pl.col("phase") == "forward")).select("bucket", "name_id").unique()
    marked = compute.filter(pl.col("phase") == "recompute").join(first, on=["bucket", "name_id"], how="semi", maintain_order="left")
    counted = marked.join(families, on=FAMILY, how="inner")
    no = ~pl.col("ratio").is_between(CUT, SENSIBLE)
    if _has_products(marked) and not counted.select((pl.col("ratio") <= CUT).any()).item():
        return marked  # a checkpoint's range, whatever the counts say
    if counted.filter(no).is_empty():
        return marked
    return marked.join(counted.filter(~no).select("op"), on="op", how="semi", maintain_order="left")


def _extra_attention(units: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Time of forward attention beyond one kernel per backward one of the same part: at least that is repeated; 0 below REPEATED.

    In a step with more than SENSIBLE, forward passes ran for themselves (an evaluation), which repeat nothing.
    """
    keys = ["index", "bucket"]
    attention = units.filter(pl.col("operation") == "attention")
    ahead = attention.filter("ahead").group_by(keys).agg(pl.len().alias("n"), lasting.sum().alias("work"))
    behind = attention.filter(~pl.col("ahead")).group_by(keys).agg(pl.len().alias("m"))
    again = pl.col("n").is_between(REPEATED * pl.col("m"), SENSIBLE * pl.col("m"))
    extra = pl.when(again).then(pl.col("work") * (pl.col("n") - pl.col("m")) // pl.col("n")).otherwise(0)
    per_part = ahead.join(behind, on=keys, how="inner").select("index", extra.cast(pl.Int64).alias("lower"))
    return per_window(windows, per_part.group_by("index").sum()).fill_null(0)


# ------------------------------------------------------------------------------------------------ how far a repetition goes


def _without_evaluations(units: pl.DataFrame) -> pl.DataFrame:
    """Without the steps in which attention runs forward oftener than any recompute makes it, where it does not in others: they evaluate."""
    attends = pl.col("operation") == "attention"
    ahead, behind = ((attends & side).sum() for side in (pl.col("ahead"), ~pl.col("ahead")))
    steps = units.group_by("index").agg((ahead > SENSIBLE * behind).alias("more"))
    return units.join(steps.filter(~pl.col("more")), on="index", how="semi", maintain_order="left") if not steps["more"].all() else units


def _second_times(units: pl.DataFrame, again: pl.DataFrame) -> pl.DataFrame:
    """The forward units that run a second time: backward takes the last forward that is left before it.

    Where only some layers are repeated, backward takes first forwards as well; those stand in one run with others that are left over.
    `again`: the families that run again in steps without an evaluation; its forward passes are left over in a step that has one.
    """
    turn = (pl.col("ahead") != pl.col("ahead").shift(1)).fill_null(value=True)
    key = ["index", *FAMILY]
    ratio = (pl.col("ahead").sum() / (~pl.col("ahead")).sum()).over(key)
    runs = units.sort("index", "stream", "start").with_columns(turn.cum_sum().alias("run"), ratio.alias("ratio")).sort("index", "start")
    attends = ((pl.col("operation") == "attention") & (pl.col("ratio") >= EVERY)).any().over("index")
    every = attends | PRODUCT
    known = runs.with_columns(every.alias("every")).join(
        again.select(*FAMILY, known=pl.lit(value=True)), on=FAMILY, how="left", maintain_order="left"
    )
    often = known.filter(pl.col("ratio").is_between(REPEATED, SENSIBLE) | (pl.col("known") & (pl.col("ratio") > SENSIBLE)))
    taken = [family.with_columns(_taken(family["ahead"])) for _, family in often.group_by(key, maintain_order=True)]
    if not taken:
        return units.clear()
    ahead = pl.concat(taken).filter("ahead")
    second = pl.col("taken").all().over(*key, "run") | (pl.col("every") & (pl.col("ratio") >= EVERY))
    return ahead.filter(pl.col("taken") & second).select(units.columns)


def _taken(ahead: pl.Series) -> pl.Series:
    """Which of the units, in order, are a forward that backward takes next while another is left: each the last one.

    What runs again does so just before its backward. What a later one takes, behind another forward, is another micro-batch's.
    """
    left: list[int] = []
    taken = [False] * len(ahead)
    begun, before = 0, False  # where the last run of forwards begins
    for place, forward in enumerate(ahead):
        if forward:
            begun = begun if before else place
            left.append(place)
        elif left:
            last = left.pop()
            taken[last] = bool(left) and last >= begun
        before = forward
    return pl.Series("taken", taken, dtype=pl.Boolean)


def _in_order(work: pl.DataFrame, units: pl.DataFrame, repeated: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
    """The window and the kernels, in order, of each stream with units that are `repeated`: start, end, name_id, sign."""
    if repeated.is_empty():
        return []
    second = repeated.select("op", pl.lit(_SECOND).alias("sign"))
    first = units.filter("ahead").join(repeated, on=FAMILY, how="semi").select("op", pl.lit(_FIRST).alias("sign"))
    back = units.filter(~pl.col("ahead")).select("op", pl.lit(_BACK).alias("sign"))
    signs = pl.concat([second, first, back]).unique("op", keep="first", maintain_order=True)
    lines = _lines(work, repeated)
    order = work.filter(pl.col("role").is_in(["compute", "packing"])).join(lines, on="stream", how="inner", nulls_equal=True)
    order = order.join(repeated.select("index").unique(), on="index", how="semi")
    order = order.sort("start", "op").join(signs, on="op", how="left", maintain_order="left")
    return [(index, line) for (index, _), line in order.group_by("index", "line", maintain_order=True)]


def _lines(work: pl.DataFrame, repeated: pl.DataFrame) -> pl.DataFrame:
    """stream, line: the streams with `repeated` units; those that are read in one order have one line.

    Grouped products may run on streams beside the one that computes most, which then holds what lies between them.
    """
    products = repeated["stream"].filter(repeated["bucket"] == EXPERT_GEMM).unique()
    own = repeated.select("stream", pl.col("stream").alias("line")).unique(maintain_order=True)
    if products.is_empty():
        return own
    computes = work.filter(pl.col("role") == "compute").group_by("stream").agg(lasting.sum().alias("ns"))
    main = computes.sort("ns", "stream", nulls_last=True)["stream"].tail(1)
    beside = pl.concat([products, main]).unique(maintain_order=True)
    others = own.filter(~pl.col("stream").is_in(beside.implode()))
    return pl.concat([others, beside.to_frame("stream").with_columns(pl.lit(main.first(), dtype=main.dtype).alias("line"))])


def _stretches(
    work: pl.DataFrame, order: Sequence[tuple[int, pl.DataFrame]], found_in: Callable[[list[int], list[int | None]], list[tuple[int, int]]]
) -> pl.DataFrame:
    """The compute in the stretches of each stream that run again, as `found_in` tells them by names and signs.

    A stretch goes on to either side as long as its kernels follow each other as they do between first forwards on that stream. It ends
    at a backward unit and at the next forward one, and what follows a first forward so far belongs to that.
    """
    if not order:
        return work.clear()
    spans = [
        (index, stream["start"][begin], stream["end"][last])
        for index, stream in order
        for begin, last in found_in(stream["name_id"].to_list(), stream["sign"].to_list())
    ]
    schema: dict[str, pl.DataType | type[pl.DataType]] = {"index": work.schema["index"], "_from": pl.Int64, "_to": pl.Int64}
    places = pl.DataFrame(spans, schema=schema, orient="row").sort("_from")
    compute = work.filter(pl.col("role") == "compute").sort("start")
    inside = compute.join_asof(places, left_on="start", right_on="_from", by="index", strategy="backward", check_sortedness=False)
    return inside.filter(pl.col("start") < pl.col("_to")).select(work.columns)


_BACK, _FIRST, _SECOND = 0, 1, 2


def stretches(names: Sequence[int], signs: Sequence[int | None]) -> list[tuple[int, int]]:
    """First and last place of each stretch that runs again, in the order of the kernels `names` on one stream.

    `signs`: what a kernel is known as: 0 of the backward, 1 of a first forward, 2 of a repeated one; None for all others.
    """
    follows: set[tuple[int, int]] = set()
    leading: dict[int, set[tuple[int, ...]]] = defaultdict(set)  # by a first forward's name what leads up to it from behind a backward
    last, known = None, -1
    for place, sign in enumerate(signs):
        if sign is not None:
            if sign == _FIRST and last is not None:
                follows.update(zip(names[last:place], names[last + 1 : place + 1], strict=True))
            elif sign == _FIRST:
                leading[names[place]].add(tuple(names[known + 1 : place]))
            last, known = (place if sign == _FIRST else None), place

    def goes_on(place: int) -> bool:
        """Whether the kernel at `place` follows the one before it as in a first forward."""
        return (names[place - 1], names[place]) in follows

    def led_up(place: int, since: int) -> int:
        """Where the kernels begin that lead up to `place`, none before `since`, as they lead up to a first forward."""
        begin = place
        for lead in leading[names[place]]:
            at = place
            while at > since and signs[at - 1] is None and place - at < len(lead) and names[at - 1] == lead[at - 1 - place]:
                at -= 1
            begin = min(begin, at)
        return begin

    found, taken = [], 0
    for place, sign in enumerate(signs):
        if sign not in {_FIRST, _SECOND}:
            continue
        end = place + 1
        while end < len(names) and signs[end] is None and goes_on(end):
            end += 1
        begin = led_up(place, taken) if sign == _SECOND else place
        while sign == _SECOND and begin > taken and signs[begin - 1] is None and goes_on(begin):
            begin -= 1
        taken = end
        if sign == _SECOND:
            found.append((begin, end - 1))
    return found


def certain_stretches(names: Sequence[int], signs: Sequence[int | None]) -> list[tuple[int, int]]:
    """What of `stretches` lies between kernels that tell a repetition: repeated units, and names that run hardly anywhere in backward.

    What backward runs too (matrix products, sums) tells nothing at an end of a stretch: there it may be backward's. Between two kernels
    that tell, in a first forward's order, it is the forward's.
    """
    again = _joined(stretches(names, signs))
    expected = [False] * len(names)  # in a first forward, or in what runs again
    first = False
    for place, sign in enumerate(signs):
        first = first if sign is None else sign == _FIRST
        expected[place] = first
    for begin, last in again:
        expected[begin : last + 1] = [True] * (last + 1 - begin)
    every, elsewhere = Counter(names), Counter(name for name, known in zip(names, expected, strict=True) if not known)
    tells = {name for name, times in every.items() if elsewhere[name] < (CUT - 1) * times}
    told = ([place for place in range(begin, last + 1) if signs[place] == _SECOND or names[place] in tells] for begin, last in again)
    return [(places[0], places[-1]) for places in told]


def _joined(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and last places, those that follow each other without a gap as one."""
    found: list[tuple[int, int]] = []
    for begin, last in places:
        if found and found[-1][1] + 1 == begin:
            found[-1] = (found[-1][0], last)
        else:
            found.append((begin, last))
    return found


def peaks(events: pl.DataFrame, rank: int, device: int, *, whole: bool) -> tuple[int | None, int | None]:
    """Highest allocated and reserved bytes of a device; None where nothing tells them.

    Where no allocator gives its level (Nsight Systems records what CUDA allocates and frees), what is held is counted, but only where the
    `whole` process was captured: what one held before its capture nobody knows.
    """
    own = events.filter((pl.col("rank") == rank) & ((pl.col("device") == device) | pl.col("device").is_null()))
    allocated, reserved = own.select(pl.col("total_allocated", "total_reserved").max()).row(0)
    if whole and allocated is None and reserved is None:
        reserved = own.sort("time")["bytes"].cum_sum().max()
    return allocated, reserved
