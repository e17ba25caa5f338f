"""Which group NCCL kernels of unknown process group serve, by their streams and their places.

A communicator has a stream of its own, so its exchanges, and its other collectives, go with a clear majority of votes. A kernel of known
kind votes for it. An unknown one votes by its place:

* an exchange is of experts where a kernel that brings tokens to them ran last before it and none that takes them back, nor anything that
  never runs between (attention, norm, router, loss), and no such work starts while it runs. At the end of a micro-batch's layers tokens are
  back already, so a pipeline transfer, which stands there, does not pass for one. Where the capture shows no kernel that brings tokens out,
  an exchange with the experts' work on either side counts. Where another backend carries the tokens, none does;
* an exchange next to attention serves context parallelism, and one elsewhere is a pipeline's where its stream exchanges far less often than
  layers are passed, or where the job file has pipeline stages and no context parallelism;
* an all-gather is of experts (token counts, or a dispatcher that gathers tokens) where their work stands on both sides and nothing starts
  while it runs: parameters are gathered beside the forward pass, or before it. A reduce-scatter has no vote of its own and goes with the
  all-gathers of its stream; an all-reduce is never an exchange of tokens;
* a gather or reduce-scatter with the optimizer on either side moves parameters or gradients;
* reductions of which none lies in a step's first forward pass, from which no gradients can be there yet, add up gradients; a stream beside
  theirs that gathers once or twice for each, and not next to attention, gathers a sharded model's parameters (FSDP). Where gathers and such
  reductions stand next to attention, they are keys' and values' of a divided context;
* where most of the compute is launched inside forward or backward ranges, a gather or reduce-scatter launched outside all of them moves
  parameters or gradients.

Kinds that the job file rules out (their parallel size is 1) are not voted for; where it rules out all but data parallelism, what is no
exchange is data parallel without a vote. Tokens that are brought out have to travel: where nothing
carries them, and one undecided stream exchanges at least twice as often, it does, whatever runs beside it.

A kernel that nothing runs beside, in a place where none of the experts' would be, votes against them, unless its stream runs collectives
alone and all that are known of them are of one kind: it is one communicator's. Tokens travel over one communicator, so a stream with far
fewer votes for experts than another has them by chance. Without a majority nothing is said.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from diagnose.measure.buckets.line import BREAKS, EXPERT_SIDE, Line, Sign, decisions, is_sign, nothing
from diagnose.model.intervals import lasting
from diagnose.model.vocabulary import COLLECTIVE, COMM_KINDS, DISPATCH, OPTIMIZER, UNKNOWN_KIND, CommKind

MIN_VOTES = 2  # collectives of one stream that agree
MAJORITY = 0.7  # of the votes cast
TURNOUT = 0.1  # votes cast, of the stream's collectives
FEWEST = 0.5  # votes for experts, of those on the device's stream that has most: tokens travel over one communicator

_SIDES = (Sign.ATTENTION, Sign.NORM, Sign.OPTIMIZER, Sign.OTHER, *EXPERT_SIDE)
_AGAINST = "not expert"
BETWEEN_PASSES = 0.8  # exchanges for each forward pass of an attention: a pipeline's stand between passes over several layers
LEAST_TRANSFERS = 4  # of a stream, for its places to tell a pipeline: fewer are cut off by a capture's edges, or chance
HARDLY = 0.1  # of a collective's time: a kernel that runs on for less into it does not run beside it
LIKE_THE_OTHERS = 0.5  # of the mean reduction of its stream: what is shorter adds up losses, counts or statistics
FEWEST_GATHERS, MOST_GATHERS = 0.8, 2.2  # gathers for each reduction of gradients, where both serve a sharded model: one or two
EXCHANGES_PER_WAY_OUT = 1.8  # two, the way out and the way back, and what the capture's edges cut off


def transfers(line: Line, absent: frozenset[CommKind]) -> pl.DataFrame:
    """What the streams and places of unknown NCCL kernels say of them."""
    if not line.facts["unknown"].any():
        return nothing()
    moving = line.known(line.placed(line.those("moving")), "unknown", "exchange", "gathers", "kind", "unphased_gather", "reduces")
    moving = moving.with_columns(line.ops["end"].gather(moving["row"]).alias("end"))
    telling = line.known(line.those("telling"), "phased")["phased"]
    carried = bool(line.facts["carries"].any())
    vote = _vote(phased=int(telling.sum()) * 2 > telling.len(), marked=line.has(Sign.OPEN), carried=carried, absent=absent)
    rare = pl.col("lane").is_in(_between_passes(moving, line).implode())
    voted = _beside(moving, line).with_columns(rare.alias("rare")).with_columns(vote.alias("vote"))
    keys = ["lane", "exchange"]
    mute = pl.col("unphased_gather") & ~pl.col("gathers")  # a reduce-scatter goes with the all-gathers of its stream
    votes = (
        voted.with_columns((~mute | pl.col("vote").is_not_null()).sum().over(keys).alias("all"))
        .filter(pl.col("vote").is_not_null())
        .group_by(*keys, "vote")
        .agg(pl.len().alias("votes"), pl.col("all").first(), pl.col("place").first())
        .join(_unheard(voted, line), on=[*keys, "vote"], how="anti")
        .with_columns(
            pl.col("votes").sum().over(keys).alias("cast"),
            pl.col("votes").filter(pl.col("vote") == _AGAINST).sum().over(keys).alias("against"),
            pl.col("votes").max().over("place", "exchange", "vote").alias("most"),
        )
        .with_columns((pl.col("cast") - pl.when(pl.col("vote") == "expert").then(0).otherwise("against")).alias("cast"))
    )
    shares = votes.filter(
        pl.col("vote") != _AGAINST,
        pl.col("votes") >= MIN_VOTES,
        pl.col("votes") >= MAJORITY * pl.col("cast"),
        (pl.col("vote") != "expert") | (pl.col("votes") >= FEWEST * pl.col("most")),
        pl.col("cast") >= TURNOUT * pl.col("all"),
    )
    able = pl.col("exchange") | pl.col("gathers") | pl.col("unphased_gather") | (pl.col("vote") != "expert")
    shares = shares.select(*keys, "vote")
    staged = _staged(voted, line)
    if "tensor" not in absent:
        proved = _of_activations(staged)
        shares = pl.concat([shares.join(proved, on=keys, how="anti"), proved])
    if not carried and "expert" not in absent:
        carriers = _only_carrier(line, voted, shares)
        shares = pl.concat([shares.join(carriers, on=keys, how="anti"), carriers])
    gradients = _of_gradients(staged, line, absent)
    shares = pl.concat([shares, gradients.join(shares, on=keys, how="anti")])
    if frozenset(COMM_KINDS) - absent <= {"data", UNKNOWN_KIND}:
        gathers = (
            voted.filter("unknown", pl.col("gathers") | pl.col("unphased_gather") | pl.col("reduces"))
            .select(keys)
            .unique(maintain_order=True)
        )
        shares = gathers.with_columns(pl.lit("data").alias("vote"))
    clear = moving.filter("unknown").join(shares, on=keys, how="inner", maintain_order="left").filter(able)
    expert = pl.col("vote") == "expert"
    bucket = pl.when(expert).then(pl.lit(DISPATCH)).otherwise(pl.lit(COLLECTIVE))
    sign = pl.when(expert).then(pl.lit(int(Sign.EXCHANGE))).otherwise(pl.lit(int(Sign.NONE)))
    return decisions(line, clear, bucket, "collective_by_stream_and_neighbours", sign=sign, kind=pl.col("vote"))


def _between_passes(moving: pl.DataFrame, line: Line) -> pl.Series:
    """The lanes that exchange far less often than layers are passed, as a pipeline's stages do: once for a pass over several of them."""
    passes = line.placed(line.those("attends_ahead")).group_by("place").agg(pl.len().alias("passes"))
    often = moving.filter("exchange").group_by("lane", maintain_order=True).agg(pl.len().alias("n"), pl.col("place").first())
    some = often.filter(pl.col("n") >= LEAST_TRANSFERS).join(passes, on="place")
    return some.filter(pl.col("n") <= BETWEEN_PASSES * pl.col("passes"))["lane"]


def _unheard(voted: pl.DataFrame, line: Line) -> pl.DataFrame:
    """Votes that do not count: against experts, on the stream of a communicator of which something is known: lane, exchange, vote.

    Nothing but collectives runs there (PyTorch may launch what it waits for on the stream of compute, whatever the group), and all that are
    known of them are of one kind.
    """
    known = voted.filter(~pl.col("unknown") & (pl.col("kind") != UNKNOWN_KIND))
    agreed = known.group_by("lane", "exchange", maintain_order=True).agg(pl.len().alias("n"), pl.col("kind").n_unique().alias("kinds"))
    alike = agreed.filter(pl.col("n") >= MIN_VOTES, pl.col("kinds") == 1)
    if not alike.is_empty():
        others = line.rows["lane"].filter(line.facts["no_collective"].gather(line.rows["case"])).unique()
        alike = alike.filter(~pl.col("lane").is_in(others.implode()))
    return alike.select("lane", "exchange", pl.lit(_AGAINST).alias("vote"))


def _only_carrier(line: Line, voted: pl.DataFrame, shares: pl.DataFrame) -> pl.DataFrame:
    """The stream that exchanges at least twice for each time that tokens are brought out, where it alone can: lane, exchange, vote.

    Nothing there votes for context parallelism. Both ways are needed, so exchanges of a pipeline, a few for each micro-batch, do not reach
    that.
    """
    known = shares.filter(pl.col("vote") == "expert").select("lane").join(line.lanes, on="lane", how="left")
    told = voted.filter(~pl.col("unknown") & (pl.col("kind") == "expert")).select("place")
    other = voted.filter(pl.col("vote").is_not_null() & ~pl.col("vote").is_in(["expert", "pipeline", _AGAINST])).select("lane")
    out = line.placed(line.signed((Sign.OPEN,))).group_by("place").agg(pl.len().alias("out"))
    open_lanes = (
        voted.filter("unknown", "exchange")
        .join(shares.filter(pl.col("vote") != "pipeline"), on=["lane", "exchange"], how="anti")
        .join(other, on="lane", how="anti")
        .group_by("lane", "exchange", maintain_order=True)
        .agg(pl.len().alias("n"), pl.col("place").first())
        .join(out, on="place", how="inner")
        .filter(pl.col("n") >= EXCHANGES_PER_WAY_OUT * pl.col("out"), pl.len().over("place") == 1)
        .join(known, on="place", how="anti")
        .join(told, on="place", how="anti")
    )
    return open_lanes.select("lane", "exchange", pl.lit("expert").alias("vote"))


def _staged(voted: pl.DataFrame, line: Line) -> pl.DataFrame:
    """The unknown collectives of `voted` that are no exchanges, with the passes around them.

    `was`, `then`: what ran last before and first after (forward, backward, optimizer); `turn`: the last of backward and optimizer. `large`:
    of a reduction, whether it is no shorter than half of its stream's mean. `beside`: whether compute runs at the same time.
    """
    stages = pl.concat(
        line.placed(rows).select("place", "start", pl.lit(stage).alias("stage"))
        for stage, rows in (
            ("forward", line.those("goes_forward")),
            ("backward", line.those("goes_back")),
            (OPTIMIZER, line.signed((Sign.OPTIMIZER,))),
        )
    )
    mean = lasting.filter("reduces").mean().over("lane")
    found = voted.filter("unknown", ~pl.col("exchange")).with_columns((lasting >= LIKE_THE_OTHERS * mean).alias("large"))
    found = _joined(found, stages.rename({"stage": "was"}), backward=True)
    found = _joined(found, stages.rename({"stage": "then"}), backward=False)
    found = _joined(found, stages.filter(pl.col("stage") != "forward").rename({"stage": "turn"}), backward=True)
    computing = line.placed(line.those("telling", "goes_forward", "goes_back"))
    reach = computing.select("place", pl.col("start").alias("until"), line.ops["end"].gather(computing["row"]).alias("reach"))
    reach = reach.sort("until").with_columns(pl.col("reach").cum_max().over("place"))
    found = found.sort("end").join_asof(
        reach, left_on="end", right_on="until", by="place", strategy="backward", allow_exact_matches=False, check_sortedness=False
    )
    shared = pl.min_horizontal("reach", "end") - pl.col("start")
    return found.with_columns((shared > HARDLY * lasting).fill_null(value=False).alias("beside"))


_IN_FIRST_FORWARD = (pl.col("was") == "forward") & (pl.col("then") == "forward") & (pl.col("turn") == OPTIMIZER)


def _of_activations(staged: pl.DataFrame) -> pl.DataFrame:
    """The streams whose unknown reductions add up activations, as those inside forward passes show: lane, exchange, vote."""
    inside = staged.filter(
        "reduces", "large", "alone", *(is_sign(side, Sign.ATTENTION, Sign.NORM) for side in ("before", "after")), _IN_FIRST_FORWARD
    )
    many = inside.group_by("lane", "exchange", maintain_order=True).len("n").filter(pl.col("n") >= MIN_VOTES)
    return many.select("lane", "exchange", pl.lit("tensor").alias("vote"))


def _of_gradients(staged: pl.DataFrame, line: Line, absent: frozenset[CommKind]) -> pl.DataFrame:
    """The streams whose unknown reductions add up gradients: none lies in a forward pass from which no gradients can be there yet.

    Some lie before backward's end, as a norm of the gradients does not. Next to attention, with nothing beside, these are keys' and values'
    of a divided context, which gathers them there too. A stream that gathers alone is a sharded model's where it gathers once or twice for
    each reduction of gradients, as FSDP does (forward, and backward again), and not next to attention. lane, exchange, vote.
    """
    keys = ["lane", "exchange"]
    forward = line.placed(line.those("goes_forward")).select("place", "start")
    turns = line.placed(line.signed((Sign.OPTIMIZER,))).select("place", pl.col("start").alias("turned"), "start")
    first = _joined(forward, turns, backward=True).filter(pl.col("turned").is_not_null()).select("place").unique()
    attended = ~pl.col("beside") & (is_sign("before", Sign.ATTENTION) | is_sign("after", Sign.ATTENTION))
    reduces, gathers = pl.col("reduces"), pl.col("gathers")
    lanes = (
        staged.join(first, on="place", how="semi")
        .group_by(*keys, maintain_order=True)
        .agg(
            pl.col("place").first(),
            (reduces & pl.col("large")).sum().alias("added"),
            gathers.sum().alias("gathered"),
            (reduces & pl.col("large") & (pl.col("turn") == "backward") & (pl.col("then") != OPTIMIZER)).sum().alias("late"),
            (reduces & pl.col("large") & _IN_FIRST_FORWARD).any().alias("early"),
            attended.filter(reduces).mean().fill_null(0).alias("added_there"),
            attended.filter(gathers).mean().fill_null(0).alias("gathered_there"),
        )
    )
    late = lanes.filter(pl.col("late") >= MIN_VOTES, ~pl.col("early"))
    sums = late.filter(pl.col("added_there") <= 1 - MAJORITY)
    both = late.filter(pl.col("added_there") >= MAJORITY, pl.col("gathered_there") >= MAJORITY)
    beside = lanes.filter(pl.col("added") == 0, pl.col("gathered_there") <= 1 - MAJORITY)
    most = sums.group_by("place").agg(pl.col("added").max().alias("most"))
    often = pl.col("gathered").is_between(FEWEST_GATHERS * pl.col("most"), MOST_GATHERS * pl.col("most"))
    kinds: tuple[tuple[CommKind, pl.DataFrame], ...] = (
        ("data", sums),
        ("data", beside.join(most, on="place").filter(often)),
        ("context", both),
    )
    return pl.concat(found.select(*keys, pl.lit(kind).alias("vote")) for kind, found in kinds if kind not in absent)


def _beside(moving: pl.DataFrame, line: Line) -> pl.DataFrame:
    """`moving` with the signs on either side of its start (before, after), and two columns more.

    `alone`: nothing that tells starts while it runs. `last`: of what brings and takes tokens, and what never runs between, the one
    that ran last.
    """
    rows = line.placed(line.signed(_SIDES))
    rows = line.known(rows, "transports")
    marks = rows.filter(~pl.col("transports")).select("place", "start", "sign")
    states = rows.filter(is_sign("sign", Sign.OPEN, Sign.CLOSE, *BREAKS)).select("place", "start", "sign")

    found = _joined(moving, marks.rename({"sign": "before"}), backward=True)
    found = _joined(found, marks.with_columns(pl.col("start").alias("soonest")).rename({"sign": "after"}), backward=False)
    found = _joined(found, states.rename({"sign": "last"}), backward=True)
    return found.with_columns((pl.col("soonest") >= pl.col("end")).fill_null(value=True).alias("alone"))


def _joined(left: pl.DataFrame, right: pl.DataFrame, *, backward: bool) -> pl.DataFrame:
    """`left` with the columns of what started last before, or first after, each row on its device."""
    strategy: Literal["backward", "forward"] = "backward" if backward else "forward"
    return left.sort("start").join_asof(right.sort("start"), on="start", by="place", strategy=strategy, check_sortedness=False)


def _vote(*, phased: bool, marked: bool, carried: bool, absent: frozenset[CommKind]) -> pl.Expr:
    """Which kind each collective speaks for; null where it has nothing to say.

    `phased`: most of the compute is launched inside phases. `marked`: the capture has kernels that bring tokens out. `carried`:
    kernels of another library carry the tokens. `absent`: kinds that the job file rules out.
    """
    experts = "expert" not in absent and not carried
    contexts = "context" not in absent
    stages = pl.lit(value=False) if "pipeline" in absent else pl.lit(not contexts) | pl.col("rare")
    optimizer = is_sign("before", Sign.OPTIMIZER) | is_sign("after", Sign.OPTIMIZER)
    sides = [is_sign(side, *EXPERT_SIDE) for side in ("before", "after")]
    context = is_sign("before", Sign.ATTENTION) | is_sign("after", Sign.ATTENTION)
    in_window = is_sign("last", Sign.OPEN)
    of_experts = in_window & pl.col("alone") if marked else sides[0] | sides[1]
    elsewhere = ~in_window & pl.col("alone") if marked else pl.lit(value=True)
    known = pl.when(pl.col("kind") != UNKNOWN_KIND).then("kind")
    return (
        pl.when(~pl.col("unknown"))
        .then(known)
        .when(pl.col("exchange") & of_experts & pl.lit(experts))
        .then(pl.lit("expert"))
        .when(pl.col("gathers") & pl.col("alone") & sides[0] & sides[1] & pl.lit("expert" not in absent))
        .then(pl.lit("expert"))
        .when(pl.col("exchange") & context & pl.lit(contexts))
        .then(pl.lit("context"))
        .when(pl.col("exchange") & ~in_window & stages)
        .then(pl.lit("pipeline"))
        .when(pl.col("unphased_gather") & optimizer)
        .then(pl.lit("data"))
        .when(pl.lit(phased) & pl.col("unphased_gather"))
        .then(pl.lit("data"))
        .when((pl.col("exchange") & elsewhere) | (pl.col("gathers") & (~pl.col("alone") | ~(sides[0] | sides[1]))))
        .then(pl.lit(_AGAINST))
    )
