"""What a kernel is, by its name alone.

The same kernel is spelled differently by each profiler: names are brought to one spelling first, so that a pattern in
`trace_rules/buckets` is written once.
"""

from __future__ import annotations

import re

import polars as pl

from diagnose.knowledge.taxonomy import Taxonomy, union

# A literal template argument, a floating type, a substitution, a length-prefixed identifier: the parts of a mangled name with digits.
_MANGLED = re.compile(r"L(?:[a-z]|N\d\w*?E)n?\d+E|DF\d+[b_x]?|[ST]\d*_|(\d+)|[^\d]")


def demangled(name: str) -> str:
    """The identifiers of an Itanium-mangled symbol joined by `::`, ahead of the symbol itself; other names unchanged.

    Profilers hand over the mangled symbol when the demangled name would exceed their limit. Templates are not rebuilt: only
    the words matter here. Enumerator arguments keep their mangled form in the symbol.
    """
    if not name.startswith("_Z"):
        return name
    words: list[str] = []
    at = 2
    while at < len(name):
        match = _MANGLED.match(name, at)
        if match is None:
            break
        at = match.end()
        digits = match.group(1)
        if digits:
            length = int(digits[:4])
            words.append(name[at : at + length])
            at += length
    return "::".join([*(word for word in words if word), " " + name])


def normalised(names: pl.Series) -> pl.Series:
    """`names` in one spelling: no leading `void`, no unnamed namespaces, no casts before literals, `>>` without blanks."""
    frame = pl.DataFrame({"name": names.cast(pl.String)})
    mangled = frame["name"].str.starts_with("_Z").fill_null(value=False)
    if mangled.any():
        found = frame["name"].filter(mangled).unique()
        plain = pl.Series([demangled(name) for name in found], dtype=pl.String)
        frame = frame.with_columns(pl.col("name").replace(found, plain))
    text = (
        pl.col("name")
        .str.replace(r"\.kd$", "")
        .str.replace(r"^void ", "")
        .str.replace_all(r"\(anonymous namespace\)::|<unnamed>::|_GLOBAL__N_\w*::", "")
        .str.replace_all(r"\(bool\)1", "true")
        .str.replace_all(r"\(bool\)0", "false")
        .str.replace_all(r"\((?:unsigned )?(?:int|long|short|char|long long)\)(-?\d)", "${1}")
        .str.replace_all(r"\s+([>*&])", "${1}")
    )
    return frame.select(text)["name"]


def families(names: pl.Series, kinds: pl.Series, taxonomy: Taxonomy) -> pl.Series:
    """Index of each name's family in `taxonomy.families` (UInt16): the first whose patterns match; the last family otherwise.

    `kinds` holds the operation kinds (kernel, memcpy, memset, graph). Copies, sets and graphs take the family of their kind,
    whatever they are called.
    """
    left = pl.DataFrame({"name": normalised(names), "kind": kinds.cast(pl.String)}).with_row_index("row")
    unknown = len(taxonomy.families) - 1
    parts = []
    for index, family in enumerate(taxonomy.families):
        if left.is_empty():
            break
        matches = pl.col("kind") == family.op_kind
        if family.op_kind == "kernel":
            matches &= pl.col("name").str.contains(union(family.patterns)).fill_null(value=False)
        hit = left.select(matches).to_series()
        if hit.any():
            parts.append(left.filter(hit).select("row", pl.lit(index, dtype=pl.UInt16).alias("family")))
            left = left.filter(~hit)
    parts.append(left.select("row", pl.lit(unknown, dtype=pl.UInt16).alias("family")))
    return pl.concat(parts).sort("row")["family"]


def op_kinds(names: pl.Series, taxonomy: Taxonomy) -> pl.Series:
    """The operation kind that each bare name stands for: a copy, a set, a graph, otherwise a kernel."""
    kinds = [
        pl.when(pl.col("name").str.contains(union(family.patterns))).then(pl.lit(family.op_kind))
        for family in taxonomy.families
        if family.op_kind != "kernel"
    ]
    return pl.DataFrame({"name": names.cast(pl.String)}).select(pl.coalesce(*kinds, pl.lit("kernel")).alias("kind"))["kind"]
