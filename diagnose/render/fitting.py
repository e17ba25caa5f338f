"""What fits where room is scarce: pieces of known worth, of which the least is left out whole, never cut in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Piece(Struct, Generic[T], frozen=True, kw_only=True):
    """Lines that stand or fall together. `worth`: what is left out first has the least.

    `under`: they stand only below the piece of that `name`. `room`: how many lines it is taken for, where not for those it has.
    """

    worth: int
    lines: tuple[T, ...]
    name: str = ""
    under: str = ""
    room: int | None = None


def fitted(pieces: Sequence[Piece[T]], most: int) -> list[Piece[T]]:
    """The pieces that fit into `most` lines, taken by their worth, of equal worth the first; in their order."""
    kept: set[int] = set()
    names: set[str] = set()
    for place in sorted(range(len(pieces)), key=lambda place: (-pieces[place].worth, place)):
        piece = pieces[place]
        room = len(piece.lines) if piece.room is None else piece.room
        if room <= most and (not piece.under or piece.under in names):
            most -= room
            kept.add(place)
            names.add(piece.name)
    return [piece for place, piece in enumerate(pieces) if place in kept]
