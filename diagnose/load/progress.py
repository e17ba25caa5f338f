"""How far reading is: readers tell how much of an input they have read, and who watches hears of it now and then.

A process reads one input at a time, from several threads, so that there is one listener per process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Heard = Callable[[int, int, str], None]
EVERY_S = 0.2  # seconds between two tellings


class _Listener:
    """Who hears, and when it was told last."""

    def __init__(self) -> None:
        self.heard: Heard | None = None
        self.last = 0.0


LISTENER = _Listener()


def tell(done: int, whole: int, unit: str) -> None:
    """So much of an input is read: `unit` is bytes or the rows of a table; `whole` is 0 where it is not known."""
    if LISTENER.heard is None:
        return
    now = time.monotonic()
    if now - LISTENER.last >= EVERY_S:
        LISTENER.last = now
        LISTENER.heard(done, whole, unit)


@contextmanager
def listening(heard: Heard) -> Iterator[None]:
    """Tell `heard` while an input is read."""
    before, LISTENER.heard = LISTENER.heard, heard
    try:
        yield
    finally:
        LISTENER.heard = before
