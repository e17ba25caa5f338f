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


_LISTENER = _Listener()


def tell(done: int, whole: int, unit: str) -> None:
    """So much of an input is read: `unit` is bytes or the rows of a table; `whole` is 0 where it is not known."""
    if _LISTENER.heard is None:
        return
    now = time.monotonic()
    if now - _LISTENER.last >= EVERY_S:
        _LISTENER.last = now
        _LISTENER.heard(done, whole, unit)


@contextmanager
def listening(heard: Heard) -> Iterator[None]:
    """Tell `heard` while an input is read."""
    before, _LISTENER.heard = _LISTENER.heard, heard
    try:
        yield
    finally:
        _LISTENER.heard = before
