"""Records with changes, whichever kind they are: the program's are Structs, the simulator's dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

R = TypeVar("R")


def replace(record: R, /, **changes: Any) -> R:
    """The record with other values in some fields."""
    made: Any = structs.replace(record, **changes) if isinstance(record, Struct) else dataclasses.replace(record, **changes)  # type: ignore[type-var]
    return made  # type: ignore[no-any-return]
