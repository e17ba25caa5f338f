"""When a trace was captured, told from a few bytes of it: enough to put traces in order without reading them."""

from __future__ import annotations

import gzip
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from diagnose.errors import InputError
from diagnose.load.files import Kind, expand, is_parquet_folder, sniff

_HEAD, _TAIL = 4 * 2**20, 2**16
_UNIX_NS = 10**18  # from 2001 on: such a time is a date, a smaller one counts from the base that the file names
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*([0-9]{1,20})')
_TS = re.compile(rb'"ts"\s*:\s*"?([0-9]{1,20})(?:\.[0-9]*)?')


def start_of(path: Path) -> int | None:
    """Start of a capture in ns since 1970 as the trace tells it (of a folder of ranks, the earliest); None where it does not. Never raises for what is in a file."""
    try:
        if path.is_dir() and not is_parquet_folder(path):
            starts = [start_of(rank) for rank in expand([path]).traces]
            known = [start for start in starts if start is not None]
            return min(known) if known and len(known) == len(starts) else None
        return _READERS[sniff(path)](path)
    except (InputError, OSError, sqlite3.Error, zlib.error, zipfile.BadZipFile, EOFError, ValueError):
        return None


def _sqlite(path: Path) -> int | None:
    connection = sqlite3.connect(f"file:{path.resolve().as_posix().replace('?', '%3f').replace('#', '%23')}?mode=ro&immutable=1", uri=True)
    try:
        row = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1").fetchone()
    finally:
        connection.close()
    return row[0] if row and isinstance(row[0], int) and row[0] > 0 else None


def _parquet(path: Path) -> int | None:
    import polars as pl  # noqa: PLC0415 - heavy, and few orders need it

    file = path / "TARGET_INFO_SESSION_START_TIME.parquet"
    try:
        found = pl.read_parquet(file)["utcEpochNs"].drop_nulls().to_list() if file.is_file() else []
    except pl.exceptions.PolarsError:
        return None
    return int(found[0]) if found and int(found[0]) > 0 else None


def _report(path: Path) -> int | None:
    """A report tells nothing without nsys; its export beside it does."""
    export = path.with_suffix(".sqlite")
    return _sqlite(export) if export.is_file() else None


def _json(path: Path) -> int | None:
    with path.open("rb") as file:
        head = file.read(_HEAD)
        file.seek(max(0, path.stat().st_size - _TAIL))
        return _told(head, file.read())


def _gzip(path: Path) -> int | None:
    with gzip.open(path) as file:
        return _told(file.read(_HEAD), b"")


def _zip(path: Path) -> int | None:
    with zipfile.ZipFile(path) as archive, archive.open(archive.infolist()[0]) as file:
        return _told(file.read(_HEAD), b"")


def _told(head: bytes, tail: bytes) -> int | None:
    first, base = _TS.search(head), _BASE.search(head) or _BASE.search(tail)
    if first is None:
        return None
    start = int(first.group(1)) * 1000
    if start > _UNIX_NS:
        return start
    return None if base is None else int(base.group(1)) + start


_READERS: Mapping[Kind, Callable[[Path], int | None]] = {
    Kind.NSYS_SQLITE: _sqlite,
    Kind.NSYS_PARQUET: _parquet,
    Kind.NSYS_REPORT: _report,
    Kind.TORCH_JSON: _json,
    Kind.TORCH_JSON_GZIP: _gzip,
    Kind.TORCH_JSON_ZIP: _zip,
}
