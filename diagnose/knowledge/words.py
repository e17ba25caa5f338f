"""The small grammar in which `trace_rules/buckets` says what the words of a name must be.

A name is taken apart into words first (`diagnose.measure.buckets.names`): small letters, a blank before and after each. A line of a rule lists
terms, divided by blanks, that must all hold:

    gemm|matmul      one of these words
    @product         one of the words of a set
    top_k            words that stand next to each other
    quant*           a word that begins so
    group..gemm      the first somewhere before the second
    -kv|@rotary      none of these
    =@carrier|main   there is nothing but these

A word also stands for its plural, and for itself with a number or a dimension behind it (`expert`: `experts`, `expert2`; `rope`: `rope2d`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

Sets = Mapping[str, Sequence[str]]
_WORD = re.compile(r"[a-z0-9*]+(_[a-z0-9*]+)*")
_ENDING = "s?(?:[0-9]+d?)?"


class WrongLineError(ValueError):
    """A line that is not in the grammar."""


def matcher(lines: Sequence[str], sets: Sets, text: str) -> pl.Expr:
    """Whether one of `lines` holds for the words in the column `text`. Raises WrongLineError."""
    alone, together = [], []
    for line in lines:
        terms = line.split()
        if not terms:
            raise WrongLineError("a line without a word")
        patterns = [_pattern(term.removeprefix("-"), sets) for term in terms]
        if all(term.startswith("-") for term in terms):
            raise WrongLineError(f"{line!r} only says what must not be there")
        if len(terms) == 1:
            alone.append(patterns[0])
            continue
        holds = [pl.col(text).str.contains(pattern) for pattern in patterns]
        together.append(pl.all_horizontal(~one if term.startswith("-") else one for term, one in zip(terms, holds, strict=True)))
    if not lines:
        return pl.lit(value=False)
    plain = [pl.col(text).str.contains("|".join(alone))] if alone else []
    return pl.any_horizontal(*plain, *together).fill_null(value=False)


def _pattern(term: str, sets: Sets) -> str:
    """The regular expression of one term, without the sign of a negation."""
    if term.startswith("="):
        return f"^(?: (?:{_words(term[1:], sets)}){_ENDING})+ $"
    return "(?: .*)?".join(f" (?:{_words(part, sets)}){_ENDING}" for part in term.split("..")) + " "


def _words(choice: str, sets: Sets) -> str:
    """The alternatives of a choice such as `gemm|@product|top_k`."""
    found: list[str] = []
    for word in choice.split("|"):
        if word.startswith("@"):
            if word[1:] not in sets:
                raise WrongLineError(f"there is no set {word!r}")
            found += (_words(one, sets) for one in sets[word[1:]])
        elif _WORD.fullmatch(word) is None:
            raise WrongLineError(f"{word!r} is no word")
        else:
            found.append(word.replace("_", " ").replace("*", "[a-z0-9]*"))
    return "|".join(dict.fromkeys(found))
