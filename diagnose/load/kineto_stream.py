"""The list of events of a Chrome-trace JSON file, decoded chunk by chunk.

Good chunks are decoded in one call. A chunk that fails (a damaged event, NaN, a boundary inside a nested list, the list's
end) is salvaged event by event: what can be decoded is kept, the rest is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from diagnose.load.json_chunks import BOUNDARY, CHUNK, CutError, last_boundary
from diagnose.load.kineto_events import EXACT_EVENTS, UNDECODABLE, WHOLE_EVENTS, Events, ExactEvent, one_event

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]]', re.DOTALL)
_BETWEEN = re.compile(rb"[\s,]*")
_SCALAR = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[^,\[{\s"]+', re.DOTALL)
_LIST_END = re.compile(rb"\}\s*\]\s*(?:,\s*\"|\}|\Z)")
_AFTER_END = re.compile(rb"\]\s*+(?:,\s*+(?!\{)|\}|\Z|[^\s,])")
_MAX_EVENT = 1 << 19  # an unbalanced event is given up after this many bytes
_MAX_PENDING = 64 << 20  # without any boundary; then what can be decoded is taken and the rest given up
_MAX_TAIL = 64 << 20
_LONG_SCAN = 1 << 16
_MAX_SCANS = 60  # long ones, of unbalanced events; after that the next boundary decides


@dataclass
class EventStream:
    """Iterate to get lists of events; afterwards `tail` is the text from the list's closing bracket on.

    `undecodable` counts events that were given up, `bad_text` those with text that is no Unicode, and `cut` says why the
    input ended early. `open_end`: the text is a part of a larger list, so that no closing bracket is expected.
    """

    blocks: Iterator[bytes]
    start: bytes
    chunk: int = CHUNK
    open_end: bool = False
    tail: bytes | None = None
    cut: str | None = None
    undecodable: int = 0
    bad_text: int = 0
    _exact_times: bool = False
    _scans: int = 0

    def __iter__(self) -> Iterator[Events]:
        pending, size = [self.start] if self.start else [], len(self.start)  # the first piece is where separators are stripped
        while self.tail is None:
            block = self._next_block()
            pending.append(block)
            size += len(block)
            if block and size < self.chunk:
                continue
            if not block:
                yield from self._take_last(b"".join(pending))
                return
            end = last_boundary(block)
            if end is None:  # none in the last block: it may lie across blocks, or further back
                pending = [b"".join(pending)]
                end = last_boundary(pending[0])
            if end is None and size < _MAX_PENDING:
                continue
            after = pending[-1][end:] if end is not None else b""
            pending[-1] = pending[-1][:end]
            events, rest = self._take(pending)
            if events:
                yield events
            del events
            pending = [rest + after]
            size = len(pending[0])
        self._collect_tail(b"".join(pending))

    def _next_block(self) -> bytes:
        try:
            return next(self.blocks, b"")
        except CutError as error:
            self.cut = str(error)
            return b""

    def _take(self, pieces: list[bytes]) -> tuple[Events, bytes]:
        """Decode a chunk that is followed by more input: its events, and what must wait for the next chunk."""
        events = self._decode(pieces)
        if events is not None:
            return events, b""
        text = b"".join(pieces)
        events, rest = self._decode_up_to_end(text)
        if events is not None:
            self.tail = b""
            return events, rest
        salvaged, position, ended = self._salvage(text, last=False)
        if ended:
            self.tail = b""
        return salvaged, text[position:]

    def _take_last(self, text: bytes) -> Iterator[Events]:
        if not text.strip(b", \t\r\n"):
            self._end_missing()
            return
        events, rest = self._decode_up_to_end(text)
        if events is not None:
            self.tail = rest
        else:
            salvaged, position, ended = self._salvage(text, last=True)
            events = salvaged
            if ended:
                self.tail = text[position:]
            else:
                self._end_missing()
        if events:
            yield events

    def _end_missing(self) -> None:
        if not self.open_end and self.cut is None:
            self.cut = "the list of events has no end"

    def _collect_tail(self, start: bytes) -> None:
        tail = [start]
        size = len(start)
        while block := self._next_block():
            size += len(block)
            if size < _MAX_TAIL:
                tail.append(block)
        self.tail = b"".join(tail)

    def _decode(self, pieces: list[bytes]) -> Events | None:
        """All of the joined `pieces` as events; None when any part is something else. Whole microseconds while they last."""
        wrapped = b"".join((b"[", pieces[0].lstrip(b", \t\r\n"), *pieces[1:], b"]"))
        if not self._exact_times:
            try:
                return WHOLE_EVENTS.decode(wrapped)
            except UNDECODABLE:
                pass
        try:
            events = EXACT_EVENTS.decode(wrapped)
        except UNDECODABLE:
            return None
        self._exact_times = True
        return events

    def _decode_up_to_end(self, text: bytes) -> tuple[Events | None, bytes]:
        """The events before the list's closing bracket and the text from it on, when all of them are good."""
        for match in list(zip(_LIST_END.finditer(text), range(3), strict=False)):
            bracket = text.index(b"]", match[0].start())
            events = self._decode([text[: match[0].start() + 1]])
            if events is not None:
                return events, text[bracket:]
        return None, b""

    def _salvage(self, text: bytes, *, last: bool) -> tuple[Events, int, bool]:
        """Decode event by event: the good ones, where reading stopped, and whether that is the list's end."""
        events: list[ExactEvent] = []
        self._exact_times = True
        position = 0
        while True:
            position = cast("re.Match[bytes]", _BETWEEN.match(text, position)).end()
            if position >= len(text):
                return events, position, False
            sign = text[position]
            if sign == 0x5D:  # a closing bracket
                if not last and len(text) - position < 64:
                    return events, position, False
                if _AFTER_END.match(text, position):
                    return events, position, True
                position += 1
                self.undecodable += 1
                continue
            if sign in b"{[":
                following = self._salvage_one(text, position, events, last=last)
                if following is None:
                    return events, position, False
                position = following
                continue
            self.undecodable += 1
            scalar = _SCALAR.match(text, position)
            position = max(scalar.end() if scalar else 0, position + 1)

    def _salvage_one(self, text: bytes, position: int, events: list[ExactEvent], *, last: bool) -> int | None:
        """Decode the event at `position`; where the next one starts, or None when this one goes on beyond `text`."""
        boundary = BOUNDARY.search(text, position)
        if boundary is not None:
            event = self._decode_one(text[position : boundary.start() + 1])
            if event is not None:
                events.append(event)
                return boundary.start() + 1
        end = self._balanced_end(text, position)
        if end is not None and (boundary is None or end != boundary.start() + 1):
            event = self._decode_one(text[position:end])
            if event is not None:
                events.append(event)
                return end
        if end is None and not last and len(text) - position < _MAX_EVENT:
            return None
        if end is None and boundary is None and last:
            self.undecodable += self.open_end
            self._end_missing()
            return len(text)
        self.undecodable += 1
        return boundary.start() + 1 if boundary else (end or len(text))

    def _balanced_end(self, text: bytes, position: int) -> int | None:
        """Where the JSON value that opens at `position` is closed; None when that isn't within reach."""
        if self._scans > _MAX_SCANS:
            return None
        depth = 0
        for token in _TOKEN.finditer(text, position, position + _MAX_EVENT):
            sign = text[token.start()]
            if sign in b"{[":
                depth += 1
            elif sign in b"}]":
                depth -= 1
                if depth == 0:
                    return token.end()
        self._scans += len(text) - position > _LONG_SCAN
        return None

    def _decode_one(self, text: bytes) -> ExactEvent | None:
        event, bad = one_event(text)
        self.bad_text += bad
        return event
