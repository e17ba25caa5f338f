"""What a caller may choose about an output's looks; no choice changes a number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    """`width` in characters and `color` are for the terminal; the other outputs ignore them."""

    width: int = 100
    color: bool = False


NARROWEST, WIDEST = 60, 140  # beyond these a terminal's width no longer helps reading
