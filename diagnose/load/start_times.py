"""When a trace was captured: enough to put traces in order without reading them."""

from __future__ import annotations

import sqlite3
import zipfile
import zlib
from pathlib import Path

from diagnose.errors import InputError
from diagnose.load.files import is_parquet_folder
from diagnose.load.inputs import expand
from diagnose.load.readers import sniff


def start_of(path: Path) -> int | None:
    """Start of a capture in ns since 1970 as the trace tells it (of a folder of ranks, the earliest); None where it does not.

    Never raises for what is in a file.
    """
    try:
        if path.is_dir() and not is_parquet_folder(path):
            starts = [start_of(rank) for rank in expand([path]).traces]
            known = [start for start in starts if start is not None]
            return min(known) if known and len(known) == len(starts) else None
        return sniff(path).start(path)
    except (InputError, OSError, sqlite3.Error, zlib.error, zipfile.BadZipFile, EOFError, ValueError):
        return None
