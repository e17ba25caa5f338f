"""Which part of the model each device operation serves, its role, its phase, and on what evidence.

A name is read as `names` says: brought to one spelling, tried against the patterns of known families, then read by its words. The decision
is made once for each distinct combination of name family, launch context and process group, by `decide`, and joined back to the operations;
what stays undecided then asks its neighbours on the stream. `describe` uses the same decision for single names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby

import polars as pl
from msgspec import Struct

from diagnose.knowledge.buckets import Buckets, bucket_type
from diagnose.knowledge.taxonomy import Context, Family, Group, Taxonomy, own_id, union
from diagnose.measure.buckets.context import AGAIN_BIT, FORWARD_BIT, TAIL_BIT, HostContext, host_context
from diagnose.measure.buckets.line import PHASES, chosen
from diagnose.measure.buckets.names import namespaces_of, normalised, structures_of, words_of
from diagnose.measure.buckets.neighbours import neighbours
from diagnose.measure.host import Launches
from diagnose.model.trace import OP_KINDS, Trace
from diagnose.model.vocabulary import (
    COLLECTIVE,
    DENSE_GEMM,
    DISPATCH,
    ELEMENTWISE,
    EXPERT_GEMM,
    OPTIMIZER,
    OTHER_BUCKET,
    ROUTER,
    UNKNOWN_KIND,
    CommKind,
)

WORLD_GROUP = "default_pg"  # as PyTorch describes the group of all ranks


def families(names: pl.Series, kinds: pl.Series, taxonomy: Taxonomy) -> pl.Series:
    """Index of each name's family in `taxonomy.families` (UInt16): the first whose patterns match; the last family otherwise.

    `kinds` holds the operation kinds (kernel, memcpy, memset, graph). Copies, sets and graphs that no pattern names take the last family of
    their kind. Ranks share most of their names: what one was decided to be is kept with the taxonomy.
    """
    asked, known = pl.DataFrame({"name": names.cast(pl.String), "kind": kinds.cast(pl.String)}), taxonomy.decided
    keys = asked.rows()
    new = pl.Series([key not in known for key in keys], dtype=pl.Boolean).arg_true()
    if new.len():
        found = dict(zip(asked[new].iter_rows(), _decided(asked[new], taxonomy), strict=True))
        if len(known) + len(found) <= _MOST_KEPT:
            known.update(found)
        else:
            known = {**known, **found}
    return pl.Series([known[key] for key in keys], dtype=pl.UInt16)


_MOST_KEPT = 1 << 16  # names


def _decided(asked: pl.DataFrame, taxonomy: Taxonomy) -> pl.Series:
    """The index of the family of each row (name, kind)."""
    left = asked.with_columns(normalised(asked["name"])).with_row_index("row")
    last: dict[str, int] = {family.op_kind: index for index, family in enumerate(taxonomy.families)}
    parts = []
    for reads, families_in_order in groupby(enumerate(taxonomy.families), key=lambda entry: _reads(entry[1])):
        block = list(families_in_order)
        if reads != "patterns" and "words" not in left.columns:  # of what the patterns before leave
            spaces = namespaces_of(left["name"])
            left = left.with_columns(
                words_of(left["name"], taxonomy).alias("words"),
                spaces.alias("spaces"),
                (spaces + structures_of(left["name"])).alias("around"),
            )
        found = _by_patterns(left, block, last) if reads == "patterns" else _by_words(left, block, reads, taxonomy)
        parts.append(found)
        left = left.join(found, on="row", how="anti", maintain_order="left")
    parts.append(left.select("row", pl.lit(len(taxonomy.families) - 1, dtype=pl.UInt16).alias("family")))
    return pl.concat(parts).sort("row")["family"]


_AT_ONCE = 8  # families that a name is held against before those that one has named are left out


def _by_patterns(left: pl.DataFrame, block: Sequence[tuple[int, Family]], last: Mapping[str, int]) -> pl.DataFrame:
    """The rows of `left` (row, name, kind) that a family of the block names by a pattern: row, family."""
    parts = [left.select("row", pl.lit(0, dtype=pl.UInt16).alias("family")).clear()]
    for first in range(0, len(block), _AT_ONCE):
        if left.is_empty():
            break
        named = []
        for index, family in block[first : first + _AT_ONCE]:
            matches = pl.col("kind") == family.op_kind
            if family.op_kind == "kernel" or index != last[family.op_kind]:
                matches &= pl.col("name").str.contains(union(family.patterns))
            named.append(pl.when(matches).then(pl.lit(index, dtype=pl.UInt16)))
        found = left.select("row", pl.coalesce(named).alias("family"))
        parts.append(found.drop_nulls())
        left = left.filter(found["family"].is_null())
    return pl.concat(parts)


def _reads(family: Family) -> str:
    """What of a name a family goes by."""
    return "words" if family.words else "spaces" if family.namespaces else "patterns"


def _by_words(left: pl.DataFrame, block: Sequence[tuple[int, Family]], reads: str, taxonomy: Taxonomy) -> pl.DataFrame:
    """The rows of `left` (row, kind, words, spaces, around) that a family names by words of the function or its namespaces: row, family.

    What a function is handed counts beside its own words alone (`around`), never by itself.
    """
    read = left.filter(pl.col("kind") == "kernel").select("row", pl.col(reads).alias("words"), "around")
    texts = read.select("words", "around").unique().drop_nulls()
    lines = taxonomy.lines(*(family.words or family.namespaces for _, family in block))
    around = {number: taxonomy.lines(family.namespaces) for number, (_, family) in enumerate(block) if family.words and family.namespaces}
    numbers = [
        next(
            (
                block[number][0]
                for number in lines.holding(text)
                if number not in around or any(True for _ in around[number].holding(space))
            ),
            None,
        )
        for text, space in texts.iter_rows()
    ]
    found = texts.with_columns(pl.Series("family", numbers, dtype=pl.UInt16)).drop_nulls()
    return read.join(found, on=["words", "around"], how="inner").select("row", "family")


def op_kinds(names: pl.Series, taxonomy: Taxonomy) -> pl.Series:
    """The operation kind that each bare name stands for: a copy, a set, a graph, otherwise a kernel."""
    kinds = [
        pl.when(pl.col("name").str.contains(union(family.patterns))).then(pl.lit(family.op_kind))
        for family in taxonomy.families
        if family.op_kind != "kernel"
    ]
    return pl.DataFrame({"name": names.cast(pl.String)}).select(pl.coalesce(*kinds, pl.lit("kernel")).alias("kind"))["kind"]


NO_GROUP = -1
_EXPERT_BUCKETS = (ROUTER, DISPATCH, EXPERT_GEMM)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One decision. `rule` is the id of the family, context, group or neighbour rule that decided; `weak`: by default only."""

    bucket: str
    role: str
    kind: str | None
    backend: str | None
    phase: str | None
    operation: str
    decided_by: str
    rule: str
    weak: bool
    family: str


class Classified(Struct, frozen=True, kw_only=True):
    """The decision for every row of `Trace.ops`.

    `class_id` (UInt16) and `payload_id` (Int32: the collective's description; null where none is known) have one value per operation, in
    order. `classes` has one row per distinct decision: class_id, bucket, role, kind, backend, phase, operation, decided_by, rule, weak,
    family. `buckets`: the type of a column of buckets in the order of the vocabulary.
    """

    class_id: pl.Series
    classes: pl.DataFrame
    payload_id: pl.Series
    buckets: pl.Enum


CLASS_SCHEMA: dict[str, type[pl.DataType]] = {one.name: pl.Boolean if one.name == "weak" else pl.String for one in fields(Verdict)}


def _phase(family: Family, contexts: Sequence[Context], *, recorded: bool, again: bool) -> str | None:
    """Phase of a kernel of `family` launched under `contexts`; `recorded`, `again`: as `decide` takes them."""
    said = {context.phase for context in contexts}
    if "optimizer" in said or family.phase == "optimizer":
        return "optimizer"
    if "backward" in said and not again:
        # A forward kernel or operator inside a backward node is work done a second time.
        repeated = family.phase == "forward" or ("forward" in said and family.phase != "backward")
        return "recompute" if repeated else "backward"
    if again or "recompute" in said:
        return "backward" if family.phase == "backward" else "recompute"
    if family.phase is not None:
        return family.phase
    return "forward" if recorded or "forward" in said else None


def _applies(context: Context, family: Family, present: frozenset[str], own: frozenset[str]) -> bool:
    """Whether a context speaks of a family; against a name that decides, only the vision tower's and the user's own do."""
    if context.operations and family.operation not in context.operations:
        return False
    if family.decisive and not context.overrides and own_id(context) not in own:
        return False
    return present.isdisjoint(context.outside) and (not context.requires or not present.isdisjoint(context.requires))


def _transport(family: Family, contexts: Sequence[Context], group: Group | None, own: frozenset[str]) -> tuple[str, str | None, str, str]:
    """Bucket, kind, evidence and rule of a kernel that moves data between ranks."""
    present = frozenset(context.id for context in contexts)
    telling = next((context for context in contexts if context.kind and _applies(context, family, present, own)), None)
    kind: str | None
    users = next((one for one in (telling, group) if one is not None and own_id(one) in own), None)
    if users is not None and (family.kind is None or family.id not in own):
        kind, evidence, rule = users.kind, "rule", users.id
    elif family.kind is not None:
        kind, evidence, rule = family.kind, "name", family.id
    elif group is not None:
        kind, evidence, rule = group.kind, "operator", group.id
    elif telling is not None:
        kind, evidence, rule = telling.kind, telling.evidence, telling.id
    else:
        return family.bucket or family.default or COLLECTIVE, None, "name", family.id
    return (DISPATCH if kind == "expert" else COLLECTIVE), kind, evidence, rule


def decide(
    family: Family,
    contexts: Sequence[Context],
    group: Group | None,
    *,
    own: frozenset[str],
    buckets: Buckets,
    recorded: bool = False,
    again: bool = False,
) -> Verdict:
    """The decision for a kernel of `family` launched under `contexts` (in order of precedence) for process group `group`.

    `own` holds the ids of the user's entries, which win over all others; `recorded`: inside an operator that autograd recorded;
    `again`: while a backward node ran.
    """
    phase = _phase(family, contexts, recorded=recorded, again=again)
    base = Verdict(
        bucket=family.bucket or family.default or OTHER_BUCKET,
        role=family.role,
        kind=None,
        backend=family.backend,
        phase=phase,
        operation=family.operation,
        decided_by="rule" if family.id in own else "name",
        rule=family.id,
        weak=family.bucket is None,
        family=family.id,
    )
    if family.role == "transport":
        bucket, kind, evidence, rule = _transport(family, contexts, group, own)
        by = base.decided_by if evidence == "name" else evidence
        return dataclasses.replace(base, bucket=bucket, kind=kind or "other", decided_by=by, rule=rule, weak=base.weak and kind is None)
    if family.id in own:
        return base
    present = frozenset(context.id for context in contexts)
    for context in contexts:
        if context.bucket is not None and _applies(context, family, present, own):
            evidence = "rule" if own_id(context) in own else context.evidence
            return dataclasses.replace(
                base,
                bucket=context.bucket,
                # generic kernels that rearrange tokens are packing
                role="copy" if family.role == "copy" else buckets[context.bucket].role,
                decided_by=evidence,
                rule=context.id,
                weak=False,
            )
    return base


def verdict_of(family: int, mask: int, group: int, taxonomy: Taxonomy) -> Verdict:
    """The decision for a family, a mask of contexts and a group, all by their numbers in `taxonomy`."""
    told = tuple(context for bit, context in enumerate(taxonomy.contexts) if mask >> bit & 1)
    if mask >> TAIL_BIT & 1 and taxonomy.families[family].role != "transport" and all(context.phase is None for context in told):
        told += tuple(context for context in taxonomy.contexts if "phase" in context.marks and context.phase == OPTIMIZER)
    return decide(
        taxonomy.families[family],
        told,
        None if group == NO_GROUP else taxonomy.groups[group],
        own=taxonomy.own,
        buckets=taxonomy.buckets,
        recorded=bool(mask >> FORWARD_BIT & 1),
        again=bool(mask >> AGAIN_BIT & 1),
    )


def group_index(payloads: pl.DataFrame, taxonomy: Taxonomy, absent: frozenset[CommKind] = frozenset()) -> pl.Series:
    """Index of the group entry that tells each collective's process group (Int16); NO_GROUP where none does.

    `payloads`: group, collective, dtype, elements_in. The first description that matches wins; only where none does, what the
    collective carries decides. `absent`: kinds of exchange that a job file rules out.
    """
    numbered = sorted(enumerate(taxonomy.groups), key=lambda entry: entry[1].payload is not None)
    able = [(index, one) for index, one in numbered if one.payload is None or not one.payload.sharded or UNKNOWN_KIND in absent]
    found = [pl.when(_tells(group)).then(pl.lit(index, dtype=pl.Int16)) for index, group in able]
    return payloads.select(pl.coalesce(*found, pl.lit(NO_GROUP, dtype=pl.Int16)).alias("group"))["group"]


def _tells(group: Group) -> pl.Expr:
    """Whether a group entry speaks of a collective."""
    pattern = union(group.patterns)
    if group.payload is None:
        return pl.col("group").cast(pl.String).str.contains(pattern)
    told = pl.col("collective").cast(pl.String).str.contains(pattern) & (pl.col("elements_in") >= group.payload.min_elements)
    if group.payload.sharded:
        told &= pl.col("group").cast(pl.String) == WORLD_GROUP
    if group.payload.dtypes:
        told &= pl.col("dtype").is_in(list(group.payload.dtypes))
    return told if group.payload.max_elements is None else told & (pl.col("elements_in") <= group.payload.max_elements)


def _family_of_ops(trace: Trace, taxonomy: Taxonomy) -> pl.Series:
    """Family index (UInt16) of every operation."""
    name, kind = pl.col("name_id").fill_null(-1).cast(pl.Int64), pl.col("kind").to_physical().fill_null(len(OP_KINDS))
    named = trace.ops.select("name_id", "kind", both=name * (len(OP_KINDS) + 1) + kind)  # joins on one number take a quarter of the time
    used = named.unique().sort("name_id", "kind")
    names = trace.names["text"].gather(used["name_id"])
    known = used.select("both").with_columns(families(names, used["kind"], taxonomy).alias("family"))
    return named.select("both").join(known, on="both", how="left", maintain_order="left")["family"]


def _group_of_ops(trace: Trace, family: pl.Series, context: HostContext, taxonomy: Taxonomy, absent: frozenset[CommKind]) -> pl.Series:
    """Group index (Int16) of every operation; NO_GROUP for all but collectives whose process group is described."""
    moving = pl.Series([item.role == "transport" for item in taxonomy.families], dtype=pl.Boolean)
    groups = trace.payloads.select("id", group_index(trace.payloads, taxonomy, absent).alias("group"))
    frame = pl.DataFrame({"id": context.payload_id, "moving": moving.gather(family)})
    wanted = frame.select(pl.when("moving").then("id").alias("id"))
    return wanted.join(groups, on="id", how="left", maintain_order="left")["group"].fill_null(NO_GROUP)


def classify(trace: Trace, launches: Launches, taxonomy: Taxonomy, absent: frozenset[CommKind] = frozenset()) -> Classified:
    """Decide bucket, role, kind, backend and phase of every device operation. `absent`: kinds of exchange that a job file rules out."""
    family = _family_of_ops(trace, taxonomy)
    context = host_context(trace, launches, taxonomy)
    group = _group_of_ops(trace, family, context, taxonomy, absent)
    keys = pl.DataFrame({"family": family, "mask": context.mask, "group": group})
    distinct = keys.unique(maintain_order=True).with_row_index("case")
    verdicts = [verdict_of(item, mask, number, taxonomy) for item, mask, number in distinct.select("family", "mask", "group").iter_rows()]
    case = keys.join(distinct, on=["family", "mask", "group"], how="left", maintain_order="left")["case"]
    launched = launches.frame["thread"].is_not_null()
    changed = neighbours(trace.ops, case, pl.DataFrame(verdicts, schema=CLASS_SCHEMA), taxonomy, absent, launched)
    numbers, classes = _numbered(case, verdicts, changed, taxonomy.buckets)
    return Classified(class_id=numbers, classes=classes, payload_id=context.payload_id, buckets=bucket_type(taxonomy.buckets))


def _numbered(case: pl.Series, verdicts: Sequence[Verdict], changed: pl.DataFrame, buckets: Buckets) -> tuple[pl.Series, pl.DataFrame]:
    """The number of each operation's verdict, and the distinct verdicts. `changed`: row of ops, choice of its neighbours."""
    said = changed.with_columns(case.gather(changed["row"]).alias("case"))
    cases = said.select("case", "choice").unique(maintain_order=True).with_row_index("extra")
    meant = chosen(buckets)[cases["choice"]].select("bucket", "kind", "rule").rows()
    extra = [
        by_neighbours(verdicts[number], buckets, bucket=bucket, kind=kind, rule=rule)
        for number, (bucket, kind, rule) in zip(cases["case"], meant, strict=True)
    ]
    every = [*verdicts, *extra]
    numbers = {verdict: number for number, verdict in enumerate(dict.fromkeys(every))}
    number = pl.Series([numbers[verdict] for verdict in every], dtype=pl.UInt16)
    new = said.join(cases, on=["case", "choice"], how="left", maintain_order="left")
    final = case.scatter(new["row"], new["extra"] + len(verdicts)) if new.height else case
    experts = any(verdict.bucket in _EXPERT_BUCKETS for verdict in every)
    classes = pl.DataFrame([settled(verdict, experts=experts) for verdict in numbers], schema=CLASS_SCHEMA)
    ids = pl.Series("class_id", range(len(numbers)), dtype=pl.UInt16)
    return number.gather(final).alias("class_id"), classes.insert_column(0, ids)


def by_neighbours(verdict: Verdict, buckets: Buckets, *, bucket: str, kind: str | None, rule: str) -> Verdict:
    """`verdict` as its neighbours decide it."""
    moved = dataclasses.replace(verdict, bucket=bucket, decided_by="neighbours", rule=rule, weak=False)
    if verdict.role == "transport":
        return dataclasses.replace(moved, kind=kind)
    phase = "optimizer" if bucket == OPTIMIZER else verdict.phase or PHASES.get(rule)
    return dataclasses.replace(moved, kind=None, role=buckets[bucket].role if verdict.role == "compute" else verdict.role, phase=phase)


def settled(verdict: Verdict, *, experts: bool) -> Verdict:
    """`verdict` as shown: unclaimed generic kernels are elementwise, not weakly so; without `experts` here a plain product is dense."""
    honest = verdict.bucket == ELEMENTWISE or (verdict.bucket == DENSE_GEMM and not experts)
    return dataclasses.replace(verdict, weak=False) if honest else verdict
