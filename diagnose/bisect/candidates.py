"""The candidates of a search in their order, from good to bad: commits of a repository, lines of a file, traces that a pattern matches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from diagnose.bisect import git
from diagnose.bisect.log import Entry, SearchError
from diagnose.document.files import schema_of
from diagnose.errors import InputError, UsageError
from diagnose.load.files import is_parquet_folder
from diagnose.load.readers import expand, is_damaged, start_of

_NOTHING = "Nothing was run."
_DATE = re.compile(
    r"(?<!\d)20\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])(?:[T_-]?[0-2]\d[-_.:]?[0-5]\d(?:[-_.:]?[0-5]\d)?)?(?!\d)"
)
_HASH = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{7,40}(?![0-9a-zA-Z])")


class Order(Struct, frozen=True, kw_only=True):
    """The candidates; `how` says in a sentence how they were put in order."""

    entries: tuple[Entry, ...]
    how: str
    notes: tuple[str, ...] = ()


def commits(folder: Path, good: str, bad: str) -> Order:
    """The commits from `good` to `bad` along first parents; a merge is one step, with all that it brings. Raises GitError, UsageError."""
    git.check_repository(folder)
    first, last = git.commit_of(folder, good), git.commit_of(folder, bad)
    if first == last:
        raise SearchError(f"{good} and {bad} are the same commit.", next_step="Name two commits.")
    if not git.is_ancestor(folder, first, last):
        raise _not_in_line(folder, (good, bad), (first, last))
    line = git.line_of(folder, first, last)
    notes: tuple[str, ...] = ()
    if first not in git.parents_of(folder, line[0][0])[:1]:
        notes = (f"{good} is not on the line of first parents that leads to {bad}: it came in by the merge {line[0][0][:12]}.",)
    subject = git.subjects(folder, [first])[first]
    entries = tuple(Entry(label=commit, subject=text, item=commit) for commit, text in ((first, subject), *line))
    return Order(entries=entries, how="Commits along first parents; a merge is one candidate with all that it brings.", notes=notes)


def _not_in_line(folder: Path, names: tuple[str, str], ends: tuple[str, str]) -> UsageError:
    """Why no line of history leads from the good commit to the bad one, and what to name instead."""
    good, bad = names
    base = git.output_or_empty(folder, "merge-base", *ends)  # empty: they have none
    if base == ends[1]:
        return SearchError(
            f"The good commit {good} comes after the bad one, {bad}.", next_step="Swap them; a change for the better is found as well."
        )
    return SearchError(
        f"The bad commit {bad} does not descend from the good one, {good}.",
        next_step=f"Both go back to {base[:12]}: try that one as good."
        if base
        else "They have no history in common. Name two commits of one line.",
    )


def items(path: Path) -> Order:
    """The lines of a file, each ITEM or LABEL, a tab, ITEM; empty lines and lines after # do not count. Raises InputError or UsageError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(
            f"{path} can't be read: {fault}.", effect=_NOTHING, next_step="Give a text file with one artefact a line."
        ) from fault
    found = []
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            label, tab, item = line.strip().partition("\t")
            found.append(Entry(label=label.strip(), subject=item.strip() if tab else "", item=(item if tab else label).strip()))
    _check([one.label for one in found], f"{path.name}")
    return Order(entries=tuple(found), how=f"As they stand in {path.name}.")


def traces(named: Sequence[str], folder: Path) -> Order:
    """Traces by their names or patterns (a folder: one capture) by commit in the name, time of capture, date in the name, or name.

    Raises InputError, UsageError.
    """
    found = [path for one in named for path in _matching(one, folder)]
    found = sorted({path.resolve(): path for path in found}.values(), key=_natural)
    _check([path.name for path in found], f"--traces {' '.join(named)}")
    return _ordered(found, folder)


def runs(inputs: Sequence[str], folder: Path) -> Order:
    """Runs that files, patterns and folders name, in the order that `traces` has: of a folder each folder in it, else each trace in it.

    Raises InputError.
    """
    found = [path for one in inputs for path in (_inside(Path(one)) if Path(one).is_dir() else _matching(one, folder))]
    return _ordered(list({path.resolve(): path for path in found}.values()), folder)


def _inside(folder: Path) -> list[Path]:
    """The runs in a folder: its folders, its traces and saved diagnoses."""
    if is_parquet_folder(folder):
        return [folder]
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    saved = [path for path in entries if (schema_of(path) or "").startswith("diagnosis/")]
    below = [path for path in entries if path.is_dir()]
    try:
        traces = [path for path in expand([folder]).traces if path.parent == folder]
    except InputError:
        if not saved and not below:
            raise
        traces = []
    empty = [
        path for path in entries if path.suffix in {one.suffix for one in traces} and not path.stat().st_size
    ]  # of a night that failed
    return sorted({*below, *traces, *saved, *empty}, key=_natural)


def _ordered(found: list[Path], folder: Path) -> Order:
    """Captures by commit in the name, time of capture, date in the name, or name."""
    starts = {path: start_of(path) for path in found}
    alike = None not in starts.values() and len(set(starts.values())) < len(found)
    why = "several record the same time of capture" if alike else "not every trace records when it was captured"
    by_name = Order(entries=_entries(found, [""] * len(found)), how=f"By name, because {why}.")
    ordered = _by_commit(found, folder) or _by_time(found, starts) or _by_date(found, why)
    times = [start for path in found if (start := starts[path]) is not None]
    if ordered is not None or times == sorted(set(times)):  # the names tell where a damaged one belongs
        return ordered or by_name
    broken = [path for path in found if starts[path] is None and is_damaged(path)]
    return _by_time([path for path in found if path not in broken], starts, broken) or by_name


def _matching(pattern: str, folder: Path) -> list[Path]:
    """What a pattern matches, or the file of that very name."""
    if (folder / pattern).exists():
        return [folder / pattern]
    anchor = Path(pattern).anchor
    base, relative = (Path(anchor), pattern[len(anchor) :]) if anchor else (folder, pattern)
    named = [path for path in base.glob(relative) if not path.name.startswith(".")]
    if not named:
        raise InputError(f"No file matches {pattern}.", effect=_NOTHING, next_step="Check the pattern, and quote it for the shell.")
    if any(path.is_dir() and not is_parquet_folder(path) for path in named):
        return sorted(named, key=_natural)
    return sorted(expand([base / relative]).traces if len(named) > 1 else named, key=_natural)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key in which night-2 comes before night-10."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", str(path))]


def _entries(found: Sequence[Path], subjects: Sequence[str]) -> tuple[Entry, ...]:
    names = [path.name for path in found]
    alike = len(set(names)) < len(names)
    return tuple(
        Entry(label=f"{path.parent.name}/{path.name}" if alike else path.name, subject=subject, item=str(path))
        for path, subject in zip(found, subjects, strict=True)
    )


def _by_time(found: list[Path], starts: Mapping[Path, int | None], broken: Sequence[Path] = ()) -> Order | None:
    """By the time of capture, where all tell one and no two the same; `broken`: those that can't be read, and have no place."""
    known = {start: path for path, start in starts.items() if start is not None}
    if len(known) < max(len(found), 2):
        return None
    paths = [known[start] for start in sorted(known)]
    left = f" Left out, as they can't be read: {', '.join(path.name for path in broken)}." if broken else ""
    return Order(entries=_entries(paths, [""] * len(paths)), how=f"By the time of capture that each trace records.{left}")


def _by_date(found: list[Path], why: str) -> Order | None:
    """By the date (and time) that the names hold, year first, where each holds another one."""
    dates = {match.group(): path for path in found if (match := _DATE.search(path.name))}
    keys = {re.sub(r"\D", "", text).ljust(14, "0"): path for text, path in dates.items()}
    if len(keys) < len(found):
        return None
    paths = [keys[key] for key in sorted(keys)]
    return Order(entries=_entries(paths, [""] * len(paths)), how=f"By the date in the names, because {why}.")


def _by_commit(found: list[Path], folder: Path) -> Order | None:
    """By the commits that the names hold, where each holds one and they lie on one line of history."""
    try:
        git.git(folder, "rev-parse", "--git-dir")
    except git.GitError:
        return None
    named = {path: commit_in(path.name, folder) for path in found}
    chosen = {commit for commit in named.values() if commit is not None}
    if None in named.values() or len(chosen) < 2:
        return None
    history = git.git(folder, "rev-list", "--topo-order", "--reverse", *sorted(chosen)).split()
    place = {commit: index for index, commit in enumerate(history) if commit in chosen}
    ordered = sorted(chosen, key=lambda commit: place[commit])
    if not all(git.is_ancestor(folder, old, new) for old, new in pairwise(ordered)):
        return None
    paths = sorted(found, key=lambda path: (place[str(named[path])], _natural(path)))
    subjects = git.subjects(folder, ordered)
    return Order(
        entries=_entries(paths, [f"{str(named[path])[:12]} {subjects[str(named[path])]}" for path in paths]),
        how="By the commit that each file's name holds.",
    )


def commit_in(name: str, folder: Path) -> str | None:
    """The commit that a file name holds, if the repository at `folder` knows it."""
    for text in _HASH.findall(name):
        try:
            return git.commit_of(folder, text)
        except git.GitError:
            continue
    return None


def date_in(name: str) -> str | None:
    """The date that a file name holds, as it stands there."""
    found = _DATE.search(name)
    return None if found is None else found.group()


def _check(labels: Sequence[str], where: str) -> None:
    if len(labels) < 2:
        raise SearchError(f"{where} gives {'1 candidate' if labels else 'no candidates'}.", next_step="At least two are needed.")


def between(order: Order, good: str | None, bad: str | None) -> Order:
    """The part of an order from the label `good` to the label `bad`. Raises UsageError."""
    first, last = _index(order, good, 0), _index(order, bad, len(order.entries) - 1)
    if first >= last:
        raise SearchError("The good end comes after the bad one in this order.", next_step=f"{order.how} Swap them.")
    return replace(order, entries=order.entries[first : last + 1])


def _index(order: Order, name: str | None, otherwise: int) -> int:
    if name is None:
        return otherwise
    found = [index for index, entry in enumerate(order.entries) if name in (entry.label, entry.item, Path(entry.item).name)]
    if len(found) != 1:
        raise SearchError(f"{name!r} names {len(found)} candidates.", next_step="Give a label as it stands in the list, or an item.")
    return found[0]
