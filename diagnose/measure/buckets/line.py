"""Device operations in the order in which they ran, each with a sign of what it tells the ones around it.

The rules about neighbours work on this. The sign comes from an operation's verdict; where a rule decides more, `Line.decided` gives the
operations their new signs, so that the next rule can build on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.taxonomy import Mark, Taxonomy
from diagnose.model.vocabulary import ATTENTION, COMM_KINDS, DENSE_GEMM, DISPATCH, ELEMENTWISE, OPTIMIZER, ROUTER

EDGE = 255  # in place of a sign: nothing more in that direction
GENERIC = ("elementwise", "layout", "reduce", "sort", "gather", "softmax", "random", "router", "copy", "tail")
LOOP = "experts_in_a_loop"
_RULES = (
    "between_gate_and_permutation", "products_after_the_selection_s_backward", "kernel_of_the_known_gates", "between_return_and_gate",
    "around_the_experts", "between_permutation_and_return", "on_the_experts_streams", "between_router_exchange_and_experts",
    "collective_by_stream_and_neighbours", "beside_the_optimizer", "unlike_the_decoder", "unlike_the_decoder_in_backward",
    "behind_the_decoder_s_backward", "outside_the_decoder_s_ranges", "tail_of_the_product_before",
    "softmax_between_products", "beside_the_loss", LOOP,
)  # fmt: skip
PHASES = {
    "unlike_the_decoder": "forward",
    "unlike_the_decoder_in_backward": "backward",
    "behind_the_decoder_s_backward": "backward",
    "outside_the_decoder_s_ranges": "forward",
}  # what a rule says of the phase, where nothing else does
_KIND = pl.Enum(COMM_KINDS)
_KINDS = len(COMM_KINDS) + 1
_DECISIONS = {"at": pl.UInt32, "choice": pl.UInt16, "sign": pl.UInt8}


class Sign(IntEnum):
    """What an operation tells its neighbours."""

    NONE = 0  # nothing: generic kernels, copies, collectives
    PRODUCT = 1  # an undecided matrix product
    LINEAR = 2  # a product of a plain linear layer, by its operator alone
    DENSE = 3  # any other product that is decided
    EXPERT = 4
    ROUTER = 5
    OPEN = 6  # brings tokens to the experts
    CLOSE = 7  # takes them back
    PACKING = 8  # anything else that rearranges tokens
    EXCHANGE = 9  # from every rank to every rank: of experts, or unknown
    ATTENTION = 10
    NORM = 11
    ACTIVATION = 12
    OPTIMIZER = 13
    OTHER = 14  # loss, embedding, vision


EXPERT_SIDE = (Sign.EXPERT, Sign.ROUTER, Sign.OPEN, Sign.CLOSE, Sign.PACKING)
BREAKS = (Sign.ATTENTION, Sign.NORM, Sign.ROUTER, Sign.OPTIMIZER, Sign.OTHER)  # none of them runs between the way out and the way back


def facts_of(verdicts: pl.DataFrame, taxonomy: Taxonomy) -> pl.DataFrame:
    """One row per verdict: what the rules ask about an operation, and its sign."""
    hinted = [family.id for family in taxonomy.families if family.phase is not None]
    attend = [family for family in taxonomy.families if family.operation == ATTENTION]  # which is called as its bucket

    def marked(*marks: Mark) -> pl.Expr:
        return family.is_in(taxonomy.marked(*marks))

    weak, operation, bucket, family, role, phase = (pl.col(name) for name in ("weak", "operation", "bucket", "family", "role", "phase"))
    gemm, routes, exchanges = operation == "gemm", operation == "router", operation == "exchange"
    linear = gemm & pl.col("rule").is_in(taxonomy.marked_contexts("linear"))
    back = (phase == "backward").fill_null(value=False)
    nccl = pl.col("backend").is_in(["nccl", "rccl"]).fill_null(value=False)
    unknown = nccl & (pl.col("decided_by") == "name") & (pl.col("kind") == "other")
    return verdicts.select(
        "bucket",
        "kind",
        "operation",
        unknown=unknown,
        sign=_sign(taxonomy, linear, unknown),
        part=weak & (role == "compute"),
        tail=weak & (operation == "tail"),
        linear=linear,
        any_product=operation.is_in(["gemm", "grouped_gemm"]),
        multiplies=operation.is_in(["gemm", "grouped_gemm", "tail"]),
        weighs=weak & (operation == "softmax") & (bucket == ATTENTION),
        pointwise=weak & operation.is_in(["tail", "elementwise", "layout", "reduce", "random", "softmax"]),
        copies=role == "copy",
        generic=operation.is_in(list(GENERIC)) & ~marked("rows"),
        gate=gemm & (weak | (bucket == ROUTER)),
        likely=gemm & (marked("fp32_product") | (bucket == ROUTER)),
        selects=(routes & ~back) | marked("top_k"),
        routes=routes & ~back,
        routes_back=routes & back,
        moves=weak & (role == "compute") & (marked("concatenation") | (operation.is_in(["gather", "sort"]) & ~marked("top_k"))),
        adds=marked("adds"),
        rows=marked("rows"),
        casts=marked("cast") & (bucket == ELEMENTWISE) & phase.is_null(),
        transports=role == "transport",
        moving=nccl,
        no_collective=~nccl,
        exchange=exchanges,
        carries=exchanges & (bucket == DISPATCH) & ~nccl,
        gathers=marked("all_gather"),
        unphased_gather=marked("all_gather", "reduce_scatter") & (phase.is_null() | (phase == OPTIMIZER)),
        reduces=marked("all_reduce", "reduce_scatter"),
        goes_forward=((role == "compute") & (phase == "forward")).fill_null(value=False),
        goes_back=((role == "compute") & phase.is_in(["backward", "recompute"])).fill_null(value=False),
        telling=(role == "compute") & ~family.is_in(hinted),  # a name's own hint proves no range
        phased=phase.is_not_null(),
        userbuffers=(pl.col("backend") == "userbuffers").fill_null(value=False),
        other_norm=(operation == "norm") & ~marked("layer_norm"),
        layer_norm=marked("layer_norm"),
        gelu=marked("gelu"),
        patches=marked("patches"),
        biased=marked("biased_product"),
        by_place=pl.col("decided_by").is_in(["name", "operator"]) & (role == "compute"),  # nothing says whose layer it is
        ranged=pl.col("decided_by").is_in(["module", "operator"]) | (phase.is_not_null() & ~family.is_in(hinted)),
        attends_ahead=family.is_in([one.id for one in attend if one.phase == "forward"]),
        attends_back=family.is_in([one.id for one in attend if one.phase == "backward"]),
    )


def _sign(taxonomy: Taxonomy, linear: pl.Expr, unknown: pl.Expr) -> pl.Expr:
    """The sign of a verdict. `linear`: whether it is a product of a plain linear layer, by its operator alone; `unknown`: of what its name
    does not tell what it exchanges.
    """
    markers = {family.id: family.marker for family in taxonomy.families if family.marker is not None}
    marker = pl.col("family").replace_strict(markers, default=None, return_dtype=pl.String)
    operation, bucket, weak, role = (pl.col(name) for name in ("operation", "bucket", "weak", "role"))
    tokens = (bucket == DISPATCH) | ((operation == "exchange") & unknown)
    foreign = (role == "transport") & ~tokens
    gemm = operation == "gemm"
    cases: list[tuple[pl.Expr, Sign]] = [
        (marker == "open", Sign.OPEN),
        (marker == "close", Sign.CLOSE),
        (foreign | (role == "copy"), Sign.NONE),
        (role == "transport", Sign.EXCHANGE),
        (weak & gemm, Sign.PRODUCT),
        (weak, Sign.NONE),
        (linear, Sign.LINEAR),
        (gemm & (bucket == DENSE_GEMM), Sign.DENSE),
        *((bucket == name, Sign[spec.sign.upper()]) for name, spec in taxonomy.buckets.items() if spec.sign is not None),
    ]
    return pl.coalesce(*(pl.when(holds).then(pl.lit(int(sign))) for holds, sign in cases), pl.lit(int(Sign.NONE))).cast(pl.UInt8)


class Line(Struct, frozen=True, kw_only=True):
    """The operations of a trace along their streams.

    `rows`: at (its place here), row (of `ops`), lane, start, case, first (of its lane), sign, and choice: what the rules have said
    so far, a number for `chosen`, 0 for nothing. `lanes` holds each lane's device: lane, place. `facts` is indexed by case. `buckets`: the
    vocabulary in order.
    """

    ops: pl.DataFrame
    rows: pl.DataFrame
    lanes: pl.DataFrame
    facts: pl.DataFrame
    buckets: tuple[str, ...]

    def known(self, frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """`frame` (rows of this line) with columns of `facts`."""
        return frame.with_columns(self.facts[column].gather(frame["case"]) for column in columns)

    def those(self, *columns: str) -> pl.DataFrame:
        """The rows for which one of the columns of `facts` is true."""
        chosen = self.facts.select(pl.any_horizontal(*columns).alias("chosen"))["chosen"]
        return self.rows.filter(chosen.gather(self.rows["case"]))

    def signed(self, signs: Iterable[Sign]) -> pl.DataFrame:
        """The rows that have one of the signs."""
        return self.rows.filter(pl.col("sign").is_in([int(sign) for sign in signs]))

    def placed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` in order of start on each device, with the column place."""
        return frame.with_columns(self.lanes["place"].gather(frame["lane"])).sort("place", "start", maintain_order=True)

    def decided(self, made: pl.DataFrame) -> Line:
        """This line with the decisions `made`, over what was decided before, and with the signs that follow from them."""
        if made.is_empty():
            return self
        changed = (self.rows[name].clone().scatter(made["at"], made[name]) for name in ("sign", "choice"))
        return replace(self, rows=self.rows.with_columns(changed))

    def has(self, *signs: Sign) -> bool:
        """Whether any operation has one of the signs."""
        return bool(self.rows["sign"].is_in([int(sign) for sign in signs]).any())


def line_of(ops: pl.DataFrame, case: pl.Series, facts: pl.DataFrame, buckets: Buckets) -> Line:
    """The operations along each stream, in order of start."""
    grouped = (
        ops.lazy()
        .select("rank", "device", "stream", "start", case.alias("case"))
        .with_row_index("row")
        .group_by("rank", "device", "stream")
        .agg("row", "start", "case")  # in the order of ops
        .sort("rank", "device", "stream")
        .with_row_index("lane")
        .collect()
    )
    places = grouped.select("lane", pl.struct("rank", "device").rank("dense").alias("place"))
    rows = grouped.explode("row", "start", "case").select("row", "lane", "start", "case").with_row_index("at")
    first = (rows["lane"] != rows["lane"].shift(1)).fill_null(value=True)
    signs = facts["sign"].gather(rows["case"])
    known = rows.with_columns(first.alias("first"), signs, pl.lit(0, dtype=pl.UInt16).alias("choice"))
    return Line(ops=ops, rows=known, lanes=places, facts=facts, buckets=tuple(buckets))


def nothing() -> pl.DataFrame:
    """No decision: the columns of `decisions`."""
    return pl.DataFrame(schema=_DECISIONS)


def decisions(
    line: Line, frame: pl.DataFrame, bucket: str | pl.Expr, rule: str, *, sign: pl.Expr | Sign, kind: pl.Expr | None = None
) -> pl.DataFrame:
    """Decisions on the rows of `frame`: at, choice, sign. `bucket` and `kind` are expressions over strings."""
    where = pl.lit(bucket) if isinstance(bucket, str) else bucket
    of_kind = pl.lit(0) if kind is None else (kind.cast(_KIND).to_physical().cast(pl.UInt16) + 1).fill_null(0)
    place = where.cast(pl.Enum(line.buckets)).to_physical().cast(pl.UInt16)
    choice = _RULES.index(rule) * len(line.buckets) * _KINDS + place * _KINDS + of_kind + 1
    return frame.select(
        "at", choice.cast(pl.UInt16).alias("choice"), (pl.lit(int(sign)) if isinstance(sign, Sign) else sign).cast(pl.UInt8).alias("sign")
    )


def chosen(buckets: Iterable[str]) -> pl.DataFrame:
    """What each number of a choice stands for: bucket, kind, rule, by number; the first row is none."""
    known = tuple(buckets)
    per_rule = len(known) * _KINDS
    numbers = pl.DataFrame({"number": range(len(_RULES) * per_rule)})
    place = pl.col("number") % per_rule
    meant = numbers.select(
        (place // _KINDS).replace_strict(dict(enumerate(known)), return_dtype=pl.String).alias("bucket"),
        (place % _KINDS - 1).replace_strict(dict(enumerate(COMM_KINDS)), default=None, return_dtype=pl.String).alias("kind"),
        (pl.col("number") // per_rule).replace_strict(dict(enumerate(_RULES)), return_dtype=pl.String).alias("rule"),
    )
    return pl.concat([meant.clear(1), meant])


def is_sign(column: str, *signs: Sign) -> pl.Expr:
    """Whether a column of signs holds one of these; not where it is null."""
    return pl.col(column).is_in([int(sign) for sign in signs]).fill_null(value=False)


def before(column: pl.Expr, group: str) -> pl.Expr:
    """The nearest value of `column` that is not null in the rows before each one of its `group`; EDGE where none is."""
    first = (pl.col(group) != pl.col(group).shift(1)).fill_null(value=True)
    return pl.when(first).then(pl.lit(EDGE)).otherwise(column.shift(1)).cast(pl.UInt8).forward_fill()


def after(column: pl.Expr, group: str) -> pl.Expr:
    """The nearest value of `column` that is not null in the rows after each one of its `group`; EDGE where none is."""
    last = (pl.col(group) != pl.col(group).shift(-1)).fill_null(value=True)
    return pl.when(last).then(pl.lit(EDGE)).otherwise(column.shift(-1)).cast(pl.UInt8).backward_fill()
