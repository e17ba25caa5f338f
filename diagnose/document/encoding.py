"""How every document is written as JSON."""

from __future__ import annotations

import re

import msgspec

_UNSEEN = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # signs that steer a terminal or turn the reading direction


def encode(document: object) -> bytes:
    """The document as JSON bytes that people can read, fields in their order, ending in a line feed.

    Signs that steer a terminal are escaped; bytes of a file's name that are no UTF-8 become question marks.
    """
    try:
        raw = msgspec.json.encode(document)
    except UnicodeEncodeError:
        raw = msgspec.json.encode(_readable(msgspec.to_builtins(document)))
    text = (msgspec.json.format(raw, indent=1) + b"\n").decode()
    return _UNSEEN.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text).encode()


def _readable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items()}
    return [_readable(inner) for inner in value] if isinstance(value, list | tuple) else value
