"""The small grammar in which `trace_rules/buckets` says what the words of a name must be.

A name is taken apart into words first (`diagnose.measure.buckets.names`): small letters, a blank before and after each. A line of a rule
lists terms, divided by blanks, that must all hold:

    gemm|matmul      one of these words
    @product         one of the words of a set
    top_k            words that stand next to each other
    quant*           a word that begins so
    group..gemm      the first somewhere before the second
    -kv|@rotary      none of these
    =@carrier|main   there is nothing but these, and words of the set `manner`, which say how, not what

A word also stands for its plural, and for itself with a number or a dimension behind it (`expert`: `experts`, `expert2`; `rope`: `rope2d`).
A letter with a number is a word of its own: `q4` is a format of four bits, no query.

A text is looked up, not searched: its words lead to the few lines that ask for one of them, and only those are tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import polars as pl
from msgspec import Struct

Sets = Mapping[str, Sequence[str]]
_WORD = re.compile(r"[a-z0-9*]+(_[a-z0-9*]+)*")
_ENDING = "s?(?:[0-9]+d?)?"
_ENDS = re.compile(_ENDING)


class WrongLineError(ValueError):
    """A line that is not in the grammar."""


class _Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the entry with that number: one of each of the words in `needs`, none of `without`, and what has an order besides."""

    entry: int
    needs: tuple[frozenset[str], ...]
    without: frozenset[str]
    shapes: tuple[tuple[bool, str], ...]  # patterns: whether the pattern has to be there or must not
    asks: frozenset[str]  # a text in which none of these stands can't hold


class Lines:
    """Entries, each with its lines, of which one has to hold. Raises WrongLineError."""

    def __init__(self, entries: Sequence[Sequence[str]], sets: Sets) -> None:
        choices = _Choices(sets)
        self._lines = [_line(number, line, choices) for number, lines in enumerate(entries) for line in lines]
        self._asking: dict[str, list[int]] = {}
        for number, line in enumerate(self._lines):
            for word in line.asks:
                self._asking.setdefault(word, []).append(number)
        words = {word for line in self._lines for word in (*line.asks, *line.without, *(one for need in line.needs for one in need))}
        single = [word for word in sorted(words) if "_" not in word]
        self._plain = frozenset(word for word in single if "*" not in word)
        self._open = [(word, word[: word.find("*")], word[word.rfind("*") + 1 :]) for word in single if "*" in word]
        self._begins = tuple(begin for _, begin, _ in self._open if begin)
        self._ends = tuple(end for _, begin, end in self._open if end and not begin)
        self._other = any(not begin and not end for _, begin, end in self._open)
        self._phrases: dict[str, list[tuple[str, ...]]] = {}
        for word in sorted(words - set(single)):
            first, *rest = word.split("_")
            if "*" in first:
                raise WrongLineError(f"{word!r}: the first of several words has no open end")
            self._phrases.setdefault(first, []).append((first, *rest))
        self._known: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def holding(self, text: str) -> Iterator[int]:
        """The numbers of the entries that hold for a text of words, in order."""
        said = self._words_in(text)
        last = None
        for number in self._tried(said):
            line = self._lines[number]
            if line.entry != last and _holds(line, said, text):
                last = line.entry
                yield last

    def hold(self, texts: pl.Series) -> pl.Series:
        """Whether any entry holds for each text."""
        return pl.Series([text is not None and any(True for _ in self.holding(text)) for text in texts.to_list()], dtype=pl.Boolean)

    def _tried(self, said: Iterable[str]) -> list[int]:
        return sorted(set().union(*(self._asking[word] for word in said if word in self._asking)))

    def _words_in(self, text: str) -> set[str]:
        """The words of the rules for which those of a text stand."""
        tokens = text.split()
        said = set().union(*(self._stands_for(token)[0] for token in tokens))
        for place, token in enumerate(tokens):
            for phrase in self._phrases.get(token, ()):
                here = tokens[place : place + len(phrase)]
                if len(here) == len(phrase) and self._is_phrase(phrase, here):
                    said.add("_".join(phrase))
        return said

    def _is_phrase(self, phrase: Sequence[str], here: Sequence[str]) -> bool:
        """Whether the words are these; only the last may have an ending."""
        if any(
            part != token and not ("*" in part and _exact(part).fullmatch(token)) for part, token in zip(phrase[:-1], here, strict=False)
        ):
            return False
        last = phrase[-1]
        return last in self._stands_for(here[-1])[1] or ("*" in last and _glob(last).fullmatch(here[-1]) is not None)

    def _stands_for(self, token: str) -> tuple[frozenset[str], frozenset[str]]:
        """The words of the rules that a word of a text stands for, and all that it could."""
        known = self._known.get(token)
        if known is None:
            stems = _stems(token)
            words = frozenset(stem for stem in stems if len(stem) > 1 or stem == token) & self._plain
            if self._other or token.startswith(self._begins) or any(stem.endswith(self._ends) for stem in stems):
                words |= {
                    word
                    for word, begin, end in self._open
                    if token.startswith(begin) and any(stem.endswith(end) for stem in stems) and _glob(word).fullmatch(token)
                }
            known = self._known[token] = (words, stems)
        return known


def _holds(line: _Line, said: set[str], text: str) -> bool:
    for need in line.needs:
        if need.isdisjoint(said):
            return False
    return line.without.isdisjoint(said) and all((_shape(pattern).search(text) is not None) == wanted for wanted, pattern in line.shapes)


def _stems(token: str) -> frozenset[str]:
    """A word of a text, and what is left of it without an ending."""
    found = [token]
    for cut in range(len(token) - 1, 0, -1):
        if token[cut] not in "sd0123456789":
            break
        if _ENDS.fullmatch(token, cut):
            found.append(token[:cut])
    return frozenset(found)


@cache
def _exact(word: str) -> re.Pattern[str]:
    return re.compile(word.replace("*", "[a-z0-9]*"))


@cache
def _shape(pattern: str) -> re.Pattern[str]:
    """A line's pattern, compiled when a text first meets it: most lines are done with before."""
    return re.compile(pattern)


@cache
def _glob(word: str) -> re.Pattern[str]:
    return re.compile(word.replace("*", "[a-z0-9]*") + _ENDING)


def _line(entry: int, line: str, choices: _Choices) -> _Line:
    terms = line.split()
    if not terms:
        raise WrongLineError("a line without a word")
    if all(term.startswith("-") for term in terms):
        raise WrongLineError(f"{line!r} only says what must not be there")
    needs: list[frozenset[str]] = []
    without: frozenset[str] = frozenset()
    shapes: list[tuple[bool, str]] = []
    ordered: list[frozenset[str]] = []
    for term in terms:
        wanted, plain = not term.startswith("-"), term.removeprefix("-")
        parts = [choices.words(part) for part in plain.removeprefix("=").split("..")]
        if plain.startswith("="):
            parts = [parts[0] | choices.manner]
        if plain.startswith("=") or len(parts) > 1:
            shapes.append((wanted, _only(parts[0]) if plain.startswith("=") else _in_order(parts)))
            ordered += [parts[0]] if wanted else []
        elif wanted:
            needs.append(parts[0])
        else:
            without |= parts[0]
    return _Line(entry=entry, needs=tuple(needs), without=without, shapes=tuple(shapes), asks=min([*needs, *ordered], key=len))


def _only(words: Iterable[str]) -> str:
    return f"^(?: (?:{_alternatives(words)}){_ENDING})+ $"


def _in_order(parts: Iterable[Iterable[str]]) -> str:
    return "(?: .*)?".join(f" (?:{_alternatives(part)}){_ENDING}" for part in parts) + " "


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(word.replace("_", " ").replace("*", "[a-z0-9]*") for word in sorted(words))


class _Choices:
    """The alternatives of choices such as `gemm|@product|top_k`, each worked out once."""

    def __init__(self, sets: Sets) -> None:
        self._sets = sets
        self._known: dict[str, frozenset[str]] = {}

    @property
    def manner(self) -> frozenset[str]:
        """The words that say how something is done; none where no set holds them."""
        return self.words("@manner") if "manner" in self._sets else frozenset()

    def words(self, choice: str) -> frozenset[str]:
        """All words of a choice. Raises WrongLineError."""
        known = self._known.get(choice)
        if known is None:
            known = self._known[choice] = self._expanded(choice)
        return known

    def _expanded(self, choice: str) -> frozenset[str]:
        if "|" in choice:
            return frozenset().union(*map(self.words, choice.split("|")))
        if not choice.startswith("@"):
            if _WORD.fullmatch(choice) is None:
                raise WrongLineError(f"{choice!r} is no word")
            return frozenset([choice])
        if choice[1:] not in self._sets:
            raise WrongLineError(f"there is no set {choice!r}")
        return frozenset().union(*map(self.words, self._sets[choice[1:]]))
