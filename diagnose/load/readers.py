"""The table of readers, and what is asked of all of them: which one takes an input, its trace, when it was captured."""

from __future__ import annotations

import sys
from pathlib import Path

from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load import nsys_parquet, nsys_report, nsys_sqlite, torch_json
from diagnose.load.conform import conform
from diagnose.load.files import opening, refusal
from diagnose.load.reader import Reader
from diagnose.model.trace import Trace

STDIN = "-"
READERS = (nsys_sqlite.READER, nsys_parquet.READER, torch_json.READER, nsys_report.READER)  # the first that recognises an input reads it


def load(source: str | Path, *, rank: int | None = None, nsys: Path | None = None, rules: EnvironmentRules | None = None) -> Trace:
    """Read one trace: a path, or "-" for JSON on standard input.

    `rank` names the global rank where the trace does not tell it (or overrides it); `nsys` is the program that exports a report;
    `rules` say what of the environment may be taken out (by default the program's own).
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
