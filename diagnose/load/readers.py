"""The table of readers, and what is asked of all: which one takes an input, its trace, when it was captured, what paths stand for."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from diagnose.errors import InputError
from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load import nsys_parquet, nsys_report, nsys_sqlite, torch_json
from diagnose.load.conform import conform
from diagnose.load.files import (
    REPORT_SUFFIXES,
    Reader,
    folder_without_traces,
    is_parquet_folder,
    opening,
    refusal,
    refused,
    unreadable_folder,
)
from diagnose.model.trace import Trace

STDIN = "-"
READERS = (nsys_sqlite.READER, nsys_parquet.READER, torch_json.READER, nsys_report.READER)  # the first that recognises an input reads it


def load(source: str | Path, *, rank: int | None = None, nsys: Path | None = None, rules: EnvironmentRules | None = None) -> Trace:
    """Read one trace: a path, or "-" for JSON on standard input.

    `rank` names the global rank where the trace does not tell it (or overrides it); `nsys` is the program that exports a report;
    `rules` say what of the environment may be taken out (without them nothing is).
    Raises InputError for anything that holds no GPU work to diagnose.
    """
    if str(source) == STDIN:
        return conform(torch_json.read(sys.stdin.buffer, display_name="standard input", rank=rank, rules=rules))
    path = Path(source)
    return sniff(path).load(path, rank, nsys, rules)


def sniff(path: Path) -> Reader:
    """The reader of one input, told by its first bytes.

    Raises InputError for everything that no reader takes, saying what it is and what to export instead.
    """
    given = opening(path)
    reader = next((reader for reader in READERS if reader.recognises(given)), None)
    if reader is None:
        raise refusal(given)
    return reader


_SIDECARS = ("-wal", "-shm", "-journal")


class Inputs(Struct, frozen=True, kw_only=True):
    """Traces in a stable order, and what a folder held besides: (bare name, reason)."""

    traces: tuple[Path, ...]
    ignored: tuple[tuple[str, str], ...] = ()


def _natural(path: Path) -> tuple[tuple[int, int, str], ...]:
    """Sort key in which rank2 comes before rank10."""
    parts = re.split(r"(\d+)", path.name)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)


def _glob(pattern: Path) -> list[Path]:
    absolute = pattern if pattern.is_absolute() else Path.cwd() / pattern
    found = sorted(
        Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor))), key=lambda path: (str(path.parent), _natural(path))
    )
    if not found:
        raise refused(f"No file matches {pattern}.", "Check the pattern.")
    return found


def superseded(traces: Sequence[Path]) -> dict[Path, str]:
    """Reports with an export of the same name beside them, and exports older than their report: one of each pair is a duplicate."""
    out: dict[Path, str] = {}
    by_stem = {
        path: [
            other
            for other in traces
            if other != path
            and other.parent == path.parent
            and other.name.removesuffix("_pqtdir").removesuffix(other.suffix or " ") == path.stem
        ]
        for path in traces
        if path.suffix in REPORT_SUFFIXES
    }
    for report, exports in by_stem.items():
        known = [path for path in exports if path.is_dir() or path.suffix == ".sqlite"]
        fresh = [path for path in known if path.stat().st_mtime_ns >= report.stat().st_mtime_ns]
        for path in known:
            if fresh and path != fresh[0]:
                out[path] = f"another export of {report.name}"
            elif not fresh:
                out[path] = f"older than its report {report.name}"
        if fresh:
            out[report] = f"its export {fresh[0].name} is read instead"
    return out


def _scan(folder: Path) -> Inputs:
    """All traces directly inside a folder, with what is named like them but empty or damaged: its reading says so."""
    traces: list[Path] = []
    others: dict[Path, str] = {}
    try:
        items = sorted((item for item in folder.iterdir() if not item.name.startswith(".")), key=_natural)
    except OSError as error:
        raise unreadable_folder(folder, error) from None
    for item in items:
        if item.name.endswith(_SIDECARS):
            continue
        try:
            sniff(item)
            traces.append(item)
        except InputError as error:
            others[item] = error.what
    doubles = superseded(traces)
    endings = {path.suffix for path in traces if path.is_file()} - {""}
    damaged = {path for path in others if path.suffix in endings and path.is_file()}
    ignored = [(path.name, reason) for path, reason in (*others.items(), *sorted(doubles.items())) if path not in damaged]
    return Inputs(
        traces=tuple(path for path in items if path in damaged or (path in traces and path not in doubles)), ignored=tuple(ignored)
    )


_OF_A_JOB = re.compile(r"^\d+$|(?:rank|node|host|worker|task|proc|gpu)[-_.]?\d+", re.IGNORECASE)


def _below(folder: Path) -> Inputs:
    """The traces of a folder, or where it holds none, those of its folders if these are called like ranks or nodes of one job.

    Raises InputError where there are none either; folders of other names may be different runs.
    """
    found = _scan(folder)
    if found.traces:
        return found
    inner = {path: _scan(path) for path in _folders(folder)}
    traces = tuple(trace for one in inner.values() for trace in one.traces)
    if not traces:
        raise folder_without_traces(folder, len(found.ignored))
    if any(one.traces and not _OF_A_JOB.search(path.name) for path, one in inner.items()):
        raise refused(
            f"The folder {folder.name} holds no trace itself, but folders that do: whether they are ranks of one job or several runs is not told.",
            f"Give one of the folders, or where they are one job, a pattern: '{folder.name}/*/*'.",
        )
    names = {path.name for path in inner}
    ignored = [entry for entry in found.ignored if entry[0] not in names]
    return Inputs(traces=traces, ignored=(*ignored, *(entry for one in inner.values() for entry in one.ignored)))


def _folders(folder: Path) -> list[Path]:
    """Folders in a folder that can be listed."""
    visible = (item for item in folder.iterdir() if not item.name.startswith(".") and item.is_dir())
    return [item for item in sorted(visible, key=_natural) if os.access(item, os.R_OK | os.X_OK)]


def expand(inputs: Sequence[Path]) -> Inputs:
    """The traces that `inputs` (files, folders, patterns) stand for, without repetition.

    A file that is named stays, whatever it is; of a folder, what no reader takes is listed in `ignored`, and of a folder or pattern what
    another input stands for. A folder without traces stands for those in it that are called like ranks. A Parquet export folder is one
    input. Raises InputError for a folder without traces and for a pattern without matches.
    """
    traces: list[Path] = []
    ignored: list[tuple[str, str]] = []
    for given in inputs:
        named = [given]
        if any(char in str(given) for char in "*?[") and not given.exists():
            named = _glob(given)
            doubles = superseded(named)  # a pattern chooses no more on purpose than a folder does
            ignored += [(path.name, reason) for path, reason in sorted(doubles.items())]
            named = [path for path in named if path not in doubles]
        for path in named:
            if path.is_dir() and not is_parquet_folder(path):
                found = _below(path)
                traces += found.traces
                ignored += found.ignored
            else:
                traces.append(path)
    unique = {os.path.realpath(path): path for path in reversed(traces)}  # Path.resolve raises where links go round in a circle
    return Inputs(traces=tuple(path for path in dict.fromkeys(traces) if unique[os.path.realpath(path)] == path), ignored=tuple(ignored))


_DAMAGED = (InputError, OSError, sqlite3.Error, zlib.error, zipfile.BadZipFile, EOFError, ValueError)


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
    except _DAMAGED:
        return None


def is_damaged(path: Path) -> bool:
    """Whether a file is no trace, or one that ends or breaks before it tells when it was captured."""
    try:
        if not path.is_dir():
            sniff(path).start(path)
    except _DAMAGED:
        return True
    return False
