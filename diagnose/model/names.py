"""Names from traces as people read them: without power over a terminal, and short enough for a sentence, a table or a figure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

LONGEST_NAME = 20_000  # shortening looks at no more than this much of a name

_SUSPECT = re.compile(r"[^\x20-\x7e]")


def visible(text: str) -> str:
    r"""`text` on one line with every control or direction-changing sign spelt out (an escape becomes the four signs `\x1b`)."""
    return text if text.isprintable() else _SUSPECT.sub(lambda found: _spelt(found.group()), text)


def _spelt(sign: str) -> str:
    if sign.isprintable() or unicodedata.category(sign) == "Zs":  # not: controls, invisible and direction-changing signs, lone surrogates
        return sign
    if sign in "\n\t\r":
        return " "
    number = ord(sign)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


@lru_cache(maxsize=8192)  # a few names stand in thousands of bars
def shorten(name: str, limit: int) -> str:
    """A kernel name in at most `limit` signs.

    What tells kernels apart goes last: first the return type and the call's arguments, then template arguments from the
    innermost, then namespaces, then the middle.
    """
    text = visible(name[:LONGEST_NAME])
    if len(text) <= limit and len(name) <= LONGEST_NAME:
        return text
    text = _without_arguments(
        text.removeprefix("void ")
        .replace("(anonymous namespace)::", "")
        .replace("<unnamed>::", "")
        .replace("> >", ">>")
        .replace("> >", ">>")
    )
    if len(text) > limit:
        text = _without_template_arguments(text, limit)
    while len(text) > limit and "::" in re.split(r"[<(\[{ ]", text, maxsplit=1)[0]:  # namespaces, from the outermost
        text = text[text.index("::") + 2 :]
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def _without_arguments(text: str) -> str:
    """Without the parameter list that ends a demangled signature; unchanged where there is none."""
    if not text.endswith(")"):
        return text
    level = 0
    for index in range(len(text) - 1, 0, -1):
        level += (text[index] == ")") - (text[index] == "(")
        if level == 0:
            return text[:index]
    return text


def _without_template_arguments(text: str, limit: int) -> str:
    """With template arguments left out from the innermost until it fits; where that leaves room, with as many of them as fit."""
    depths = _depths(text)
    if not depths:
        return text
    levels = [_collapsed(text, depths, depth) for depth in (4, 3, 2, 1)]
    fits = next((index for index, level in enumerate(levels) if len(level) <= limit), None)
    if fits is None:
        return levels[-1]
    roomy = levels[max(fits - 1, 0)]
    if len(levels[fits]) <= limit - 8 and len(roomy) > limit:
        return f"{roomy[: limit - 2]}…>"
    return levels[fits]


def _depths(text: str) -> list[int]:
    """Template depth after each sign; empty when the angle brackets do not pair up."""
    depths: list[int] = []
    level = 0
    for index, sign in enumerate(text):
        if sign == "<":
            level += 1
        elif sign == ">" and text[index - 1 : index] != "-":
            level -= 1
            if level < 0:
                return []
        depths.append(level)
    return depths if level == 0 else []


def _collapsed(text: str, depths: Sequence[int], depth: int) -> str:
    """`text` with everything inside the `depth`-th angle bracket and deeper replaced by an ellipsis."""
    out: list[str] = []
    previous = 0
    for sign, level in zip(text, depths, strict=True):
        if level < depth:
            out.append(">" if previous >= depth else sign)
        elif previous < depth:
            out.append("<…")
        previous = level
    return "".join(out)
