"""From what the user named (files, folders, patterns, standard input) to the inputs of a run, in a stable order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.errors import ForeignInputError, InputError
from diagnose.load.inputs import expand
from diagnose.load.readers import STDIN
from diagnose.model.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a run, those of them that nobody named but that lay in a folder, and what folders held besides: (bare name, reason)."""

    paths: tuple[str | Path, ...]
    in_folders: frozenset[str | Path]
    ignored: tuple[tuple[str, str], ...]


def find_inputs(given: Sequence[str | Path]) -> Inputs:
    """Every input that `given` stands for, once. Raises InputError for a folder without traces and a pattern without matches."""
    paths: dict[str | Path, str | Path] = {}
    ignored: list[tuple[str, str]] = []
    in_folders: set[str | Path] = set()
    named: set[str | Path] = set()
    for one in given:
        if str(one) == STDIN:
            paths.setdefault(STDIN, STDIN)
            continue
        found = expand([Path(one)])
        for path in found.traces or (Path(one),):
            paths.setdefault(_same_file(path), path)
            (named if path == Path(one) or not Path(one).is_dir() else in_folders).add(path)
        ignored += found.ignored
    return Inputs(paths=tuple(paths.values()), in_folders=frozenset(in_folders - named), ignored=tuple(dict.fromkeys(ignored)))


def _same_file(path: Path) -> Path:
    """What two names of one file share; the path itself where it can't be followed (its reader will say why)."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path


def name_of(path: str | Path) -> str:
    """How people know an input: its bare name."""
    return Path(path).name if str(path) != STDIN else "standard input"


def sorted_out(refused: Sequence[tuple[str | Path, InputError]], found: Inputs) -> tuple[list[InputError], list[tuple[str, str]]]:
    """Inputs that failed, and those that are no traces at all and that nobody named: other files of a folder, as (bare name, reason)."""
    failed: list[InputError] = []
    unfit: list[tuple[str, str]] = []
    for path, error in refused:
        if isinstance(error, ForeignInputError) and path in found.in_folders:
            unfit.append((name_of(path), error.what))
        else:
            failed.append(error)
    return failed, unfit


def with_inputs_left_out(ledger: Ledger, refused: Sequence[InputError], ignored: Sequence[tuple[str, str]]) -> Ledger:
    """The ledger with an entry for every input that was refused and for every file of a folder that is no input."""
    for error in refused:
        ledger = ledger.note("refused_input", "inputs", detail=error.what)
    for name, reason in ignored:
        ledger = ledger.note("ignored_file", "inputs", detail=f"{name}: {reason}")
    return ledger
