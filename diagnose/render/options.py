"""What a caller may choose about an output's looks; no choice changes a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from diagnose.model.vocabulary import Level


class Options(NamedTuple):
    """`width` in characters and `color` are for the terminal; the other outputs ignore them.

    `job_file` (its path within the repository) and `fail_on` (the severity from which a finding fails) are for outputs that a CI runner reads.
    """

    width: int = 100
    color: bool = False
    job_file: str = ""
    fail_on: Level | None = None


NARROWEST, WIDEST = 60, 140  # beyond these a terminal's width no longer helps reading
