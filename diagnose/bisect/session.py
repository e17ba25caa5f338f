"""One search from its question to its document: a folder, a log to begin or to go on with, the runs, the report."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from diagnose import __version__
from diagnose.bisect import driver, git, journal, measure
from diagnose.bisect.checkout import Checkout
from diagnose.bisect.folder import DEFAULT, Folder
from diagnose.bisect.journal import Asked, Entry, Header, Journal, Judging
from diagnose.bisect.measure import How
from diagnose.bisect.numbers import load_numbers
from diagnose.bisect.orders import Order
from diagnose.bisect.report import report
from diagnose.bisect.runs import Runs
from diagnose.bisect.search import Answer
from diagnose.document.bisection import Bisection, encode
from diagnose.document.diagnosis import Diagnosis, Tool
from diagnose.errors import InputError, UsageError
from diagnose.reason.compare.metrics import place_of

_REPORT = "report.json"
_LONGEST_MERGE = 12


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may differ between runs of one search: how patient, which candidates to leave out, and how traces are measured (`measuring`: engine, nsys, notice of the pipeline)."""

    timeout: float | None = None
    skip: tuple[str, ...] = ()
    measuring: Mapping[str, Any] = field(default_factory=dict)


def folder_for(asked: Asked, base: Path) -> Path:
    """The folder of a search in the repository at `base`, where no other is named: the same question has the same one."""
    return base / DEFAULT / f"{asked.mode}-{hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:10]}"


def latest(base: Path) -> Path:
    """The folder of the search in the repository at `base` that ran last. Raises UsageError."""
    found = [(path.stat().st_mtime_ns, path.parent) for path in (base / DEFAULT).glob(f"*/{journal.NAME}")]
    if not found:
        raise UsageError(
            f"There is no search to go on with in {base / DEFAULT}.", effect="Nothing was run.", next_step="Name its folder with --state."
        )
    return max(found)[1]


def begin(path: Path, asked: Asked, judging: Judging, order: Order, work: Path) -> Folder:
    """A new search. Raises UsageError where the folder holds one already."""
    folder = Folder(path)
    folder.make()
    header = Header(
        schema=journal.SCHEMA,
        version=__version__,
        asked=asked,
        judging=judging,
        work=str(work),
        order=order.how,
        notes=order.notes,
    )
    journal.begin(folder.log, header)
    return folder


def run(folder: Folder, asked: Asked | None, judging: Callable[[Judging], Judging], options: Options, say: driver.Say) -> Bisection:
    """Go on with the search in `folder` to its end, and its document, which is kept there too. `asked`: the question, if the user repeated it. Raises StoppedError when interrupted."""
    if not folder.path.is_dir():
        raise InputError(f"There is no search in {folder.path}.", effect="Nothing was run.", next_step="Check --state.")
    with ExitStack() as stack:
        lock = stack.enter_context(folder.locked(say))
        log, said = journal.resume(folder.log)
        if said:
            say(said)
        if asked is not None:
            journal.check_same(asked, log.header.asked)
        judged = judging(log.header.judging)
        driver.skip(log, [_place(log.header.asked, name) for name in options.skip])
        answer = driver.search(log, judged, _runs(folder, log, options, lock), load_numbers(), say)
        found = document(folder, log, judged, answer)
        temporary = folder.path / f".{_REPORT}.tmp"
        temporary.write_bytes(encode(found))
        temporary.replace(folder.path / _REPORT)
        return found


def _runs(folder: Folder, log: Journal, options: Options, lock: int) -> Runs:
    asked, work = log.header.asked, Path(log.header.work)
    checkout = None
    if asked.mode == "commits":
        checkout = Checkout(folder.clone, work, keep=asked.keep_untracked)
        checkout.prepare()
    how = How(
        config=asked.config,
        overrides=asked.overrides,
        rules=tuple(Path(rule) for rule in asked.rules),
        options={**options.measuring, "rank": asked.rank, "step_range": asked.step_range},
    )
    first = _first_document(folder, log)
    return Runs(
        asked=asked,
        folder=folder,
        how=how,
        lock=lock,
        work=work if checkout is None else checkout.folder,
        checkout=checkout,
        timeout=options.timeout,
        where=None if first is None else place_of(first),
    )


def _first_document(folder: Folder, log: Journal) -> Diagnosis | None:
    """The first diagnosis of the search, where its file is still there."""
    names = (trial.document for trial in log.trials if trial.document is not None)
    path = next((path for path in (folder.documents / name for name in names) if path.is_file()), None)
    return None if path is None else measure.read(path)


def _place(asked: Asked, name: str) -> int:
    """The candidate that --skip names: by its label, its item, or the beginning of a commit. Raises UsageError."""
    found = [index for index, entry in enumerate(asked.entries) if name in (entry.label, entry.item)]
    if not found and asked.mode == "commits" and len(name) >= 4:
        found = [index for index, entry in enumerate(asked.entries) if entry.item.startswith(name)]
    if len(found) != 1:
        raise UsageError(
            f"--skip {name} names {len(found)} candidates.", effect="Nothing was run.", next_step="Give a label as the list has it."
        )
    return found[0]


def document(folder: Folder, log: Journal, judging: Judging, answer: Answer) -> Bisection:
    """The document of a finished search."""
    state = driver.state_of(log.header, judging, log.lines, load_numbers())
    first = _first_document(folder, log)
    tool = Tool(name="diagnose", version=__version__, rules_sha256="" if first is None else first.tool.rules_sha256)
    work = Path(log.header.work)

    def message(entry: Entry) -> tuple[str, str]:
        return _commit(work, entry) if log.header.asked.mode == "commits" else ("", "")

    return report(log.header, judging, log.lines, state, answer, documents=folder.documents, message=message, tool=tool)


def _commit(work: Path, entry: Entry) -> tuple[str, str]:
    """What a commit says, and of a merge how to look inside it."""
    parents = git.parents_of(work, entry.item)
    if len(parents) < 2:
        return git.message_of(work, entry.item), ""
    brought = git.git(work, "rev-list", f"{parents[0]}..{entry.item}").split()
    note = (
        f"{entry.item[:_LONGEST_MERGE]} is a merge that brings {len(brought) - 1} commits. To look inside: "
        f"diagnose bisect --good {git.git(work, 'merge-base', parents[0], parents[1]).strip()[:_LONGEST_MERGE]} --bad {parents[1][:_LONGEST_MERGE]} …"
    )
    return git.message_of(work, entry.item), note
