"""The table of readers: from one input to a Trace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from diagnose.errors import InputError
from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load import nsys_parquet, nsys_report, nsys_sqlite, torch_json
from diagnose.load.conform import RawTrace, conform
from diagnose.load.files import Kind, private_folder, sniff
from diagnose.model.ledger import Ledger
from diagnose.model.trace import Trace

STDIN = "-"


def load(source: str | Path, *, rank: int | None = None, nsys: Path | None = None, rules: EnvironmentRules | None = None) -> Trace:
    """Read one trace: a path, or "-" for JSON on standard input.

    `rank` names the global rank where the trace does not tell it (or overrides it); `nsys` is the program that exports a report;
    `rules` say what of the environment may be taken out (by default the program's own).
    Raises InputError for anything that holds no GPU work to diagnose.
    """
    if str(source) == STDIN:
        return conform(torch_json.read(sys.stdin.buffer, display_name="standard input", rank=rank, rules=rules))
    path = Path(source)
    kind = sniff(path)
    if kind is Kind.NSYS_REPORT:
        return _load_report(path, rank, nsys, rules)
    return conform(_READERS[kind](path, rank, rules))


def _sqlite(path: Path, rank: int | None, rules: EnvironmentRules | None) -> RawTrace:
    return nsys_sqlite.read(path, rank=rank, rules=rules)


def _parquet(path: Path, rank: int | None, rules: EnvironmentRules | None) -> RawTrace:
    return nsys_parquet.read(path, rank=rank, rules=rules)


def _torch(path: Path, rank: int | None, rules: EnvironmentRules | None) -> RawTrace:
    return torch_json.read(path, display_name=path.name, rank=rank, rules=rules)


_READERS: dict[Kind, Callable[[Path, int | None, EnvironmentRules | None], RawTrace]] = {
    Kind.NSYS_SQLITE: _sqlite,
    Kind.NSYS_PARQUET: _parquet,
    Kind.TORCH_JSON: _torch,
    Kind.TORCH_JSON_GZIP: _torch,
    Kind.TORCH_JSON_ZIP: _torch,
}


def _load_report(path: Path, rank: int | None, nsys: Path | None, rules: EnvironmentRules | None) -> Trace:
    """Read a report through its newer sibling export, or export it to a private folder first."""
    with private_folder() as folder:
        export, notes, ledger = nsys_report.resolve(path, nsys=nsys, workdir=folder)
        kind = sniff(export)
        if kind not in (Kind.NSYS_SQLITE, Kind.NSYS_PARQUET):
            raise InputError(
                f"{export.name} beside {path.name} is no export that can be read.",
                effect="Nothing was analysed.",
                next_step="Remove it, or export the report again.",
            )
        trace = conform(_READERS[kind](export, rank, rules))
    return _noted(trace, path.name, notes, ledger)


def _noted(trace: Trace, name: str, notes: tuple[str, ...], ledger: Ledger) -> Trace:
    provenance = replace(trace.provenance, file=name, notes=(*notes, *trace.provenance.notes))
    return replace(trace, provenance=provenance, ledger=trace.ledger + ledger)
