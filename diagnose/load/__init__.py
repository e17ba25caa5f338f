"""Foreign files in, a Trace out: one module per format, and `conform` as the only gate. `diagnose.load("run.sqlite")` reads one trace."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnose.model.trace import Trace


class _Load(ModuleType):
    """A package of readers that reads."""

    def __call__(self, source: str | Path, *, rank: int | None = None, nsys: str | Path | None = None) -> Trace:
        """One trace: a path, or "-" for JSON on standard input; see `diagnose.load.readers.load`. Raises InputError."""
        from diagnose.load.readers import load  # noqa: PLC0415 - imports polars

        return load(source, rank=rank, nsys=None if nsys is None else Path(nsys))


sys.modules[__name__].__class__ = _Load
