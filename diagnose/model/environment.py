"""One thing that a capture tells about the world around the code: a version, a variable, a clock, hardware."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

EnvironmentKind = Literal["version", "variable", "clock", "hardware"]


class EnvironmentItem(Struct, frozen=True, kw_only=True):
    """One thing around the code that the capture tells.

    What may be private in a value (a path, a host) is replaced by a digest, so that it can still be told apart.

    Where inputs differ the value begins with "differs between inputs:".
    """

    name: str
    kind: EnvironmentKind
    value: str
    source: str  # the table, key or field that tells it
