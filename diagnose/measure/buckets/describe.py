"""What single kernel names are, with as much of their launch context as somebody can tell.

The decision is the one that traces get: the same families, contexts and groups (`classify`), and for a kernel between
two others the same rules about neighbours (`neighbours`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from diagnose.knowledge.taxonomy import Family, Source, Taxonomy
from diagnose.measure.buckets.classify import (
    CLASS_SCHEMA,
    NO_GROUP,
    Verdict,
    by_neighbours,
    families,
    group_index,
    op_kinds,
    settled,
    verdict_of,
)
from diagnose.measure.buckets.context import inherited_mask, masks_of
from diagnose.measure.buckets.line import chosen
from diagnose.measure.buckets.neighbours import neighbours
from diagnose.model.vocabulary import PHASES

Context = Mapping[str, object]

# Texts of the ranges that enclose a launch, by the kind of range.
RANGE_KEYS: Mapping[str, Source] = {
    "ops": "operator",
    "collective": "operator",
    "nvtx": "nvtx",
    "annotation": "annotation",
    "modules": "module",
    "python": "module",
}
FORWARD_KEY = "fwd_modules"  # modules of the forward operator that a backward kernel belongs to
GROUP_KEY, PHASE_KEY, BETWEEN_KEY = "pg_desc", "phase", "between"
ELEMENTS_KEY, TYPE_KEY = "in_msg_nelems", "dtype"  # what a collective carries: counts where its group is not described
TEXT_KEYS = (*RANGE_KEYS, FORWARD_KEY, GROUP_KEY, TYPE_KEY, PHASE_KEY, BETWEEN_KEY)
# What describes a launch without deciding about it: in a trace, too, only its order and its ranges do.
SILENT_KEYS = ("group_size", "stream", "grid", "block", "mean_us", "count", "stream_role", "origin")

_PHASE = re.compile(r"^\W*(?:(?:start|middle|end) of |in )?(" + "|".join(PHASES) + r")\b", re.IGNORECASE)
_APART = re.compile(r"\s*(?:->|→|…|\.\.+|,|;|\||\band\b)\s*")
_REPEATS = 4  # times that a place between two kernels is laid out: the rules about neighbours want more than one


@dataclass(frozen=True, kw_only=True)
class NameVerdict(Verdict):
    """What a kernel name means, with the context given.

    `weak`: neither name nor context decides; `bucket` is what is most likely then. `alternatives`: other buckets that the name may
    have. `not_understood`: keys of the context that had no meaning here, or a value that says nothing.
    """

    alternatives: tuple[str, ...]
    not_understood: tuple[str, ...] = ()

    @property
    def evidence(self) -> str:
        """The kind of evidence that decided."""
        return self.decided_by


def describe(name: str, taxonomy: Taxonomy, context: Context | None = None) -> NameVerdict:
    """What the kernel `name` is, by name and by the launch context given (keys: TEXT_KEYS and SILENT_KEYS)."""
    return describe_all([(name, context)], taxonomy)[0]


def describe_all(cases: Sequence[tuple[str, Context | None]], taxonomy: Taxonomy) -> list[NameVerdict]:
    """`describe` for several names with their contexts, at the cost of one."""
    if not cases:
        return []
    names = pl.Series([name for name, _ in cases], dtype=pl.String)
    found = families(names, op_kinds(names, taxonomy), taxonomy)
    given = [context or {} for _, context in cases]
    groups = group_index(_payloads(given), taxonomy)
    masks = _masks(given, taxonomy)
    return [
        _named(_placed(name, verdict_of(family, mask, group, taxonomy), context, taxonomy), taxonomy.families[family], context)
        for name, family, mask, group, context in zip(names, found, masks, groups, given, strict=True)
    ]


def _payloads(given: Sequence[Context]) -> pl.DataFrame:
    """What the contexts tell of collectives, as a trace's payloads would."""
    columns = {"group": GROUP_KEY, "collective": "collective", "dtype": TYPE_KEY}
    told = {column: pl.Series([" ".join(texts(one, key)) or None for one in given], dtype=pl.String) for column, key in columns.items()}
    return pl.DataFrame({**told, "elements_in": pl.Series([_elements(one) for one in given], dtype=pl.Int64)})


def _elements(context: Context) -> int | None:
    value = context.get(ELEMENTS_KEY)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def texts(context: Context, key: str) -> list[str]:
    """The texts under `key`: a string, or the strings of a list; nothing for anything else."""
    value = context.get(key)
    listed = [value] if isinstance(value, str) else value
    return [text for text in listed if isinstance(text, str)] if isinstance(listed, list | tuple) else []


def _masks(given: Sequence[Context], taxonomy: Taxonomy) -> list[int]:
    """The contexts of each launch: its own ranges', its forward operator's as far as inherited, and its phase's unless a range tells it."""
    own = masks_of([_ranges(one) for one in given], taxonomy)
    forward = masks_of([{"module": texts(one, FORWARD_KEY)} for one in given], taxonomy)
    phased = sum(1 << bit for bit, context in enumerate(taxonomy.contexts) if context.phase is not None)
    keep = inherited_mask(taxonomy)
    told = [0 if mine & phased else _phase_bit(one, taxonomy) for mine, one in zip(own, given, strict=True)]
    return [mine | (theirs & keep) | bit for mine, theirs, bit in zip(own, forward, told, strict=True)]


def _ranges(context: Context) -> dict[Source, list[str]]:
    """The texts in `context` by the kind of range that they come from."""
    found: dict[Source, list[str]] = {}
    for key, source in RANGE_KEYS.items():
        found.setdefault(source, []).extend(texts(context, key))
    return found


def _phase(context: Context) -> str | None:
    """The phase that `context` tells, in the vocabulary's words."""
    match = _PHASE.match(" ".join(texts(context, PHASE_KEY)))
    return match.group(1).lower() if match else None


def _phase_bit(context: Context, taxonomy: Taxonomy) -> int:
    """The bit of the context that is marked as standing for the phase told."""
    phase = _phase(context)
    return sum(1 << bit for bit, one in enumerate(taxonomy.contexts) if phase is not None and "phase" in one.marks and one.phase == phase)


def _placed(name: str, verdict: Verdict, context: Context, taxonomy: Taxonomy) -> Verdict:
    """`verdict`, or what the kernels on either side say where it was not decided."""
    sides = _sides(context)
    if sides is None:
        return settled(verdict, experts=True)
    row = [sides[0], name, sides[1]] * _REPEATS
    cases = [verdict if place % 3 == 1 else verdict_of(_family_of(text, taxonomy), 0, NO_GROUP, taxonomy) for place, text in enumerate(row)]
    times = pl.Series(range(len(row)), dtype=pl.Int64) * 1000
    ops = pl.DataFrame({"start": times, "end": times + 900}).with_columns(
        *(pl.lit(0, dtype=kind).alias(column) for column, kind in (("rank", pl.Int32), ("device", pl.Int32), ("stream", pl.Int64))),
        pl.Series("name_id", [place % 3 for place in range(len(row))], dtype=pl.Int32),
    )
    said = neighbours(ops, pl.Series("case", range(len(row)), dtype=pl.UInt32), pl.DataFrame(cases, schema=CLASS_SCHEMA), taxonomy)
    mine = said.filter(pl.col("row") == len(row) // 2 - 2)
    if mine.is_empty():
        return settled(verdict, experts=True)
    bucket, kind, rule = chosen(taxonomy.buckets)[mine["choice"]].select("bucket", "kind", "rule").row(0)
    return settled(by_neighbours(verdict, taxonomy.buckets, bucket=bucket, kind=kind, rule=rule), experts=True)


def _sides(context: Context) -> tuple[str, str] | None:
    """The kernels before and after: two texts, or one with a mark between them."""
    told = texts(context, BETWEEN_KEY)
    parts = [part for part in _APART.split(told[0]) if part] if len(told) == 1 else told
    return (parts[0], parts[-1]) if len(parts) > 1 else None


def _family_of(text: str, taxonomy: Taxonomy) -> int:
    """The family of a kernel that is given by its name, or by the word in the middle of it."""
    spelled = pl.Series([text, f"_{text.strip().replace(' ', '_')}_kernel"], dtype=pl.String)
    found = families(spelled, op_kinds(spelled, taxonomy), taxonomy).to_list()
    return int(next((one for one in found if one != len(taxonomy.families) - 1), found[0]))


def _named(verdict: Verdict, family: Family, context: Context) -> NameVerdict:
    possible = dict.fromkeys(bucket for bucket in (family.bucket, family.default, *family.alternatives) if bucket is not None)
    return NameVerdict(
        **vars(verdict),
        alternatives=tuple(bucket for bucket in possible if bucket != verdict.bucket),
        not_understood=_not_understood(context),
    )


def _not_understood(context: Context) -> tuple[str, ...]:
    """Keys that are not known, and those whose value could not be read."""
    silent = {
        PHASE_KEY: _phase(context) is None,
        BETWEEN_KEY: _sides(context) is None,
        ELEMENTS_KEY: _elements(context) is None,
        **{key: not texts(context, key) for key in (*RANGE_KEYS, FORWARD_KEY, GROUP_KEY, TYPE_KEY)},
    }
    known = (*TEXT_KEYS, ELEMENTS_KEY, *SILENT_KEYS)
    return tuple(
        key for key, value in context.items() if key not in known or (value is not None and value != [] and silent.get(key, False))
    )
