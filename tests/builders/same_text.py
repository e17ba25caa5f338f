"""Comparing long generated texts: pytest's own explanation of a difference takes minutes for a text of 100 KB where CI is set."""

import difflib

import pytest

LINES = 12
WIDTH = 200


def check_same(name: str, kept: str, made: str, remedy: str) -> None:
    """Fail with the first lines that differ and what to do about it, unless both texts are equal."""
    if kept != made:
        lines = difflib.unified_diff(kept.splitlines(), made.splitlines(), "kept", "made", lineterm="", n=0)
        shown = "\n".join(line[:WIDTH] for line, _ in zip(lines, range(LINES), strict=False))
        pytest.fail(f"{name}: {remedy}\n{shown or 'they differ in line ends only'}", pytrace=False)
