"""How every document is written as JSON."""

from __future__ import annotations

import re

import msgspec

_UNSEEN = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # signs that steer a terminal or turn the reading direction


def encode(document: object) -> bytes:
    """The document as JSON bytes that people can read, fields in their order, ending in a line feed.

    Signs that steer a terminal are escaped.
    """
    text = (msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n").decode()
    return _UNSEEN.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text).encode()
