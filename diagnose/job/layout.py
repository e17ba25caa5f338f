"""Pipeline layouts: letters for layers (E embedding, t transformer, m multi-token prediction, L loss), | between stages."""

from __future__ import annotations

import re

_MAX_LAYOUT = 100_000  # letters of an unfolded layout; a longer one is a mistake or an attack
_REPEATED = re.compile(r"([EtmL|])\*(\d{1,6})")
_REPEATED_GROUP = re.compile(r"\(([EtmL|]*)\)\*(\d{1,6})")


def stages_of(layout: str) -> tuple[str, ...] | None:
    """The letters of each stage, with every repetition written out; None for a text that is no layout."""
    text = re.sub(r"[\s,]", "", layout)
    for pattern in (_REPEATED, _REPEATED_GROUP):
        if len(text) + sum(len(match[1]) * int(match[2]) for match in pattern.finditer(text)) > _MAX_LAYOUT:
            return None
        text = pattern.sub(lambda match: match[1] * int(match[2]), text)
    return tuple(text.split("|")) if re.fullmatch(r"[EtmL|]+", text) else None


def layers_of(stages: tuple[str, ...]) -> int:
    """The transformer layers in all stages, those of multi-token prediction not counted."""
    return sum(stage.count("t") for stage in stages)
