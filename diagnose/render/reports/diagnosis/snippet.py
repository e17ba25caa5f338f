"""A file of one's own buckets, made from the kernels that no rule knows: to copy, to choose buckets in, and to give with --rules."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import accumulate


MOST_ENTRIES = 8
_WIDTH = 78  # characters of a line: whole on the narrowest terminal
_LONGEST = 50  # characters of a pattern for a name: longer ones are cut, since a pattern need not match to the end
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
# Functions that only carry what they are given: the first template argument says what runs.
_CARRIERS = frozenset({"Kernel", "Kernel2", "device_kernel", "kernel", "kentry", "execute", "global_kernel", "kernel_entry"})
_NO_NAMES = frozenset({"void", "anonymous", "namespace", "unnamed", "std", "const", "enable_if", "true", "false", "type"})


def function_name(name: str) -> str | None:
    """The word by which a kernel is best known: its function's name, or the name of what a carrier runs; None where there is none."""
    if name.startswith("_Z"):
        words = _mangled_words(name)
        return next((word for word in reversed(words) if word not in _CARRIERS), None)
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    head, _, inside = plain.partition("<")
    words = [word for word in _WORD.findall(head.partition("(")[0]) if word not in _NO_NAMES]
    if words and words[-1] not in _CARRIERS:
        return words[-1]
    carried = [word for word in _WORD.findall(re.split(r"[<,>(]", inside, maxsplit=1)[0]) if word not in _NO_NAMES]
    return (carried or words or [None])[-1]


def _mangled_words(name: str) -> list[str]:
    """The identifiers at the front of a mangled name: namespaces, then the function."""
    words: list[str] = []
    at = 3 if name.startswith("_ZN") else 2
    while (match := re.compile(r"\d{1,3}").match(name, at)) is not None:
        begin = match.end()
        at = begin + int(match.group())
        words.append(name[begin:at])
    return [word for word in words if _WORD.fullmatch(word) and not word.startswith("_GLOBAL__N")]


def pattern_of(word: str) -> str:
    """A pattern for kernels of that name, whatever its numbers: instances differ in them."""
    parts = re.findall(r"\d+|\D", word.lstrip("_"))
    spelled = [r"\d+" if part[0].isdigit() else part for part in parts]
    kept = [part for part, length in zip(spelled, accumulate(map(len, spelled)), strict=True) if length <= _LONGEST]
    return rf"(?:\b|_){''.join(kept)}" + (r"(?:_\d+)?\b" if len(kept) == len(parts) else "")


def snippet(names: Sequence[str], buckets: Iterable[str]) -> str:
    """A rules file (`buckets` to choose from) with a family for each of the first `names`, to be completed by a person; empty where no name can be used."""
    patterns: dict[str, str] = {}
    for word in map(function_name, names):
        if word is not None and len(patterns) < MOST_ENTRIES:
            patterns.setdefault(pattern_of(word), word)
    if not patterns:
        return ""
    lines = [
        "# own-buckets.yaml: choose buckets, delete what you do not know, then give",
        "# it with --rules own-buckets.yaml. The buckets are",
        *textwrap.wrap(f"{', '.join(buckets)}.", _WIDTH, initial_indent="# ", subsequent_indent="# "),
        "families:",
    ]
    taken: dict[str, int] = {}
    for pattern, word in patterns.items():
        name = f"own_{re.sub(r'[^a-z]+', '_', word.lower()).strip('_')[:_LONGEST] or 'kernel'}"
        taken[name] = taken.get(name, 0) + 1
        lines += [
            f"  - id: {name}" + (f"_{taken[name]}" if taken[name] > 1 else ""),
            f"    patterns: ['{pattern}']",
            "    operation: other",
            "    bucket: other  # choose",
        ]
    return "\n".join(lines) + "\n"
