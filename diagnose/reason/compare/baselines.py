"""Named baselines: the last runs of a job, as files in a folder, found again by name and by the fingerprint of job and device.

`.diagnose/baselines/NAME/FINGERPRINT/RUN.json` is one run: its diagnosis with date, commit and host class. A name may hold several jobs and
kinds of GPU, so that `nightly` is the right one on every machine, and the wrong one is never used. Every run is a file of its own, written
whole or not at all, so that two writers at once lose nothing, and git merges what two branches added. Host names are never kept, nor is the
timeline, which no comparison reads.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, stdev

from msgspec import MsgspecError, Struct, structs

from diagnose.document.baselines import RUN_SCHEMA, RunRow, StoredBaseline, StoredRun, decode_run
from diagnose.document.diagnosis import SCHEMA, Diagnosis
from diagnose.document.encoding import encode
from diagnose.document.files import write_file
from diagnose.errors import InputError, OutputError, UsageError
from diagnose.knowledge.comparison import JOB_ASPECTS, ComparisonRules, JobAspect
from diagnose.reason.compare.comparable import Job, job_of, shown, world_size
from diagnose.reason.compare.metrics import UnmeasuredError, place_of, step_times
from diagnose.reason.compare.work import device

FOLDER = Path(".diagnose") / "baselines"
KEPT = 10  # runs of a job and device, unless another number is asked for: enough to know the noise between runs to a quarter
LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # no file on Windows may be called so
_DEVICE = "device"
NOT_TOLD = "not told"
_DIGITS = 16
_FINGERPRINT = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")
_RUN_DIGITS = 8


class BaselineError(InputError):
    """No stored baseline fits, or the one that would can't be used."""


class Run(Struct, frozen=True, kw_only=True):
    """One stored run. `run` names it within its name and fingerprint; `date` is UTC in ISO 8601, empty where it was never told."""

    fingerprint: str
    run: str
    date: str
    commit: str | None
    host_class: str | None
    label: str
    document: Diagnosis


class Added(Struct, frozen=True, kw_only=True):
    """What storing a run did: its file, whether it was there before, and how many older ones went."""

    path: Path
    known: bool
    dropped: int


def check_name(name: str) -> str:
    """`name` if it can be the name of a folder everywhere and of nothing else. Raises UsageError."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or name.endswith(".") or _RESERVED.fullmatch(name):
        raise UsageError(
            f"{name[:LONGEST_NAME]!r} can't be the name of a baseline.",
            effect="Nothing was done.",
            next_step="Use letters, digits, dots, hyphens and underscores, a letter or digit first, such as main or h100-nightly.",
        )
    return name


class Store(Struct, frozen=True, kw_only=True):
    """The baselines of a folder. `option`: what a command says besides to mean it, where it is not the usual one."""

    folder: Path
    rules: ComparisonRules
    option: str = ""

    def add(
        self,
        name: str,
        document: Diagnosis,
        *,
        date: datetime,
        commit: str | None = None,
        host_class: str | None = None,
        label: str = "",
        keep: int = KEPT,
    ) -> Added:
        """Store a run of `date`, and drop the oldest of its job and device beyond `keep`. Raises UsageError (name), OutputError.

        A run that is stored already (the same diagnosis) is not stored again, because it would tell nothing of noise.
        """
        kept = _kept(document)
        place = self._folder_of(name) / fingerprint(document, self.rules)
        when = date.astimezone(UTC)
        content = hashlib.sha256(encode(kept)).hexdigest()[:_RUN_DIGITS]
        known = next((path for path in _files(place) if path.stem.endswith(f"-{content}")), None)
        path = known or place / f"{when:%Y%m%dT%H%M%SZ}-{content}.json"
        if known is None:
            run = StoredRun(
                schema=RUN_SCHEMA, date=f"{when:%Y-%m-%dT%H:%M:%SZ}", commit=commit, host_class=host_class, label=label, diagnosis=kept
            )
            told = f"The folder {place} could not be made"
            with OutputError.where_refused(told, effect="Nothing was stored.", next_step="Name another place with --store."):
                place.mkdir(parents=True, exist_ok=True)
            write_file(path, encode(run).decode("utf-8"), force=True)
        return Added(path=path, known=known is not None, dropped=_drop(place, keep))

    def find(self, name: str, new: Diagnosis) -> tuple[Run, ...]:
        """The runs of this name for the job and kind of device of `new`, oldest first. Raises BaselineError, which says how they differ."""
        place = self._folder_of(name)
        found = self.runs(name, fingerprint(new, self.rules))
        if found:
            return found
        stored = list(_paths(place))
        if not stored:
            raise BaselineError(
                f"There is no baseline {name} in {self.folder}.",
                effect="Nothing was compared.",
                next_step=f"Store one: diagnose baseline add {name} TRACE{self.option}; `diagnose baseline list{self.option}` shows what there is.",
            )
        newest = {_fingerprint_of(path): path for path in stored}
        said = " ".join(_difference(one, new, self.rules) for one in newest.values())
        raise BaselineError(
            f"The baseline {name} was made from another job or device. {said}",
            effect="Nothing was compared, because a difference between them would say nothing about the change.",
            next_step=f"Store a run of this job: diagnose baseline add {name} TRACE{self.option}, or compare with a file of your choice."
            + ("" if new.job is not None else " The new run has no job file: give it with --config."),
        )

    def runs(self, name: str, fingerprint: str | None = None) -> tuple[Run, ...]:
        """The stored runs of a name, oldest first; of all jobs and devices unless one is named.

        Raises BaselineError for one that can't be used.
        """
        found = []
        for path in _paths(self._folder_of(name)):
            if fingerprint is not None and _fingerprint_of(path) != fingerprint:
                continue
            run, problem = _read(path, self.rules)
            if run is None:
                raise BaselineError(
                    f"The baseline {name} can't be used: {path.stem}: {problem}.",
                    effect="Nothing was compared.",
                    next_step=f"Remove that run: diagnose baseline remove {name} --run {path.stem}{self.option}.",
                )
            found.append(run)
        return tuple(sorted(found, key=lambda one: (one.date, one.run)))

    def listed(self, name: str | None = None) -> tuple[StoredBaseline, ...]:
        """All that is stored, or of one name, each job and device by itself; what can't be used with the reason."""
        if not self.folder.is_dir():
            return ()
        names = sorted(path for path in self.folder.iterdir() if path.is_dir() and _NAME.fullmatch(path.name) and name in (None, path.name))
        found = []
        for place in names:
            paths: dict[str, list[Path]] = {}
            for path in _paths(place):
                paths.setdefault(_fingerprint_of(path), []).append(path)
            found += [_listed(place.name, fingerprint, files, self.rules) for fingerprint, files in paths.items()]
        return tuple(found)

    def remove(self, name: str, fingerprint: str | None = None, run: str | None = None) -> tuple[tuple[str, str], ...]:
        """Delete the name's runs, of one fingerprint or one of them where told; both of each. Raises BaselineError (none), OutputError."""
        place = self._folder_of(name)
        found = [path for path in _paths(place) if fingerprint in (None, _fingerprint_of(path)) and run in (None, path.stem)]
        if not found:
            part = f"no run {run} of the baseline" if run is not None else "no such baseline"
            of_job = f" of the fingerprint {fingerprint}" if fingerprint is not None else ""
            shows = f"show {name}{self.option}` shows its runs" if any(_paths(place)) else f"list{self.option}` shows all"
            raise BaselineError(
                f"There is {part} {name}{of_job} in {self.folder}.", effect="Nothing was removed.", next_step=f"`diagnose baseline {shows}."
            )
        _unlink(found)
        for one in (*dict.fromkeys(path.parent for path in found if path.parent != place), place):
            with OutputError.where_refused(f"The folder {one} could not be removed", effect="It is empty, and still there."):
                if one.is_dir() and not any(one.iterdir()):
                    one.rmdir()
        return tuple((_fingerprint_of(path), path.stem) for path in found)

    def lacks(self, name: str) -> BaselineError:
        """That nothing is stored under a name that was to be shown."""
        told, next_step = f"There is no baseline {name} in {self.folder}.", f"`diagnose baseline list{self.option}` shows what there is."
        return BaselineError(told, effect="Nothing was shown.", next_step=next_step)

    def _folder_of(self, name: str) -> Path:
        """The folder of one name, which is really in this one. Raises UsageError."""
        place = self.folder / check_name(name)
        if place.resolve().parent != self.folder.resolve():
            raise UsageError(
                f"{place} is a link to somewhere else.", effect="Nothing was done.", next_step="Remove the link, or choose another name."
            )
        return place


# --- storing ----------------------------------------------------------------------------------------------------------


def _drop(place: Path, keep: int) -> int:
    """Delete the oldest runs beyond `keep`; how many. One that another writer has dropped meanwhile is no fault."""
    stored = list(_files(place))
    gone = stored[: max(len(stored) - keep, 0)]
    _unlink(gone)
    return len(gone)


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        with OutputError.where_refused(f"{path} could not be removed", effect="It is still there."):
            path.unlink(missing_ok=True)


def _kept(document: Diagnosis) -> Diagnosis:
    """The document without host names and without its timeline."""
    ranks = tuple(structs.replace(rank, host=None) for rank in document.capture.ranks)
    return structs.replace(document, capture=structs.replace(document.capture, ranks=ranks), timeline=None)


# --- reading ----------------------------------------------------------------------------------------------------------


def _fingerprint_of(path: Path) -> str:
    """The fingerprint under which a run lies: its folder's name."""
    return path.parent.name


def _difference(path: Path, new: Diagnosis, rules: ComparisonRules) -> str:
    """In what a stored document is another job than the new one."""
    run, problem = _read(path, rules)
    if run is None:
        return f"{_fingerprint_of(path)}: {problem}."
    parts = differing(run.document, new, rules)
    untold = [aspect for aspect, _, there in parts if there == NOT_TOLD and new.job is None and aspect != _DEVICE]
    differ = [f"{aspect} {here!r} there, {there!r} here" for aspect, here, there in parts if aspect not in untold]
    if untold:
        differ.append(f"it was stored with a job file, and the new run has none, which would tell {', '.join(untold)}")
    return f"{_fingerprint_of(path)}: {'; '.join(differ) or 'made by another version of this program'}."


def _read(path: Path, rules: ComparisonRules) -> tuple[Run | None, str]:
    """A stored run, or None and why not."""
    try:
        data = path.read_bytes()
        stored = decode_run(data)
    except OSError as fault:
        return None, f"it could not be read ({fault.strerror})"
    except (MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        return None, f"the file is damaged, or a newer version of this program wrote it ({fault})"
    for schema, wanted in ((stored.schema, RUN_SCHEMA), (stored.diagnosis.schema, SCHEMA)):
        if schema != wanted:
            return None, f"its schema is {schema[:40]}, and this version of the program reads {wanted}"
    found = fingerprint(stored.diagnosis, rules)
    if found != _fingerprint_of(path):
        return None, "its content is another job's than its name says, or another version of this program named it"
    return (
        Run(
            fingerprint=found,
            run=path.stem,
            date=stored.date,
            commit=stored.commit,
            host_class=stored.host_class,
            label=stored.label,
            document=stored.diagnosis,
        ),
        "",
    )


def _files(place: Path) -> Iterator[Path]:
    return iter(sorted(path for path in place.glob("*.json") if not path.name.startswith(".")))


def _paths(place: Path) -> Iterator[Path]:
    """The files of one name: by fingerprint, oldest first."""
    folders = sorted(path for path in place.iterdir() if path.is_dir() and _FINGERPRINT.fullmatch(path.name)) if place.is_dir() else []
    yield from (path for one in folders for path in _files(one))


def _listed(name: str, fingerprint: str, paths: list[Path], rules: ComparisonRules) -> StoredBaseline:
    read = [(path, *_read(path, rules)) for path in paths]
    rows = tuple(sorted((_row(*one) for one in read), key=lambda row: (row.date, row.run)))
    whole = [run.document for _, run, _ in read if run is not None]
    problems = "; ".join(f"{path.stem}: {problem}" for path, run, problem in read if run is None)
    size = sum(row.bytes for row in rows)
    if not whole:
        return StoredBaseline(name=name, fingerprint=fingerprint, bytes=size, runs=rows, problem=problems)
    told = dict(describe(whole[-1], rules))
    steps = [row.step_ns for row in rows if row.step_ns]
    return StoredBaseline(
        name=name,
        fingerprint=fingerprint,
        bytes=size,
        runs=rows,
        device=told.pop(_DEVICE, None),
        job=told,
        step_ns=int(median(steps)) if steps else None,
        steps=sum(row.steps or 0 for row in rows),
        noise=stdev(math.log(one) for one in steps) if len(steps) > 1 else None,
        target_wall=whole[-1].verdict.target_wall,
        problem=problems,
    )


def _row(path: Path, run: Run | None, problem: str) -> RunRow:
    size = path.stat().st_size
    if run is None:
        return RunRow(run=path.stem, date="", commit=None, host_class=None, label="", bytes=size, problem=problem)
    steps = _step_times(run.document)
    return RunRow(
        run=run.run,
        date=run.date,
        commit=run.commit,
        host_class=run.host_class,
        label=run.label,
        bytes=size,
        step_ns=round(median(steps)) if steps else None,
        steps=len(steps),
    )


def _step_times(document: Diagnosis) -> tuple[float, ...]:
    """The lengths of the steps that a comparison would take of this run, in ns; none where it holds none."""
    try:
        return step_times(document, place_of(document)).values
    except UnmeasuredError:
        return ()


# --- the fingerprint --------------------------------------------------------------------------------------------------
# The fingerprint of a job and its device: what a named baseline has to share with the run that is held against it. It is made of the
# aspects that make two jobs the same work (their refused settings, trace_rules/comparison.yaml), the number of ranks and the GPU. Tunables
# are not part of it, because changing them is what a baseline is for; neither are the ranks that were captured, the profiler and its mode,
# which `comparable` judges for each comparison.


def fingerprint(document: Diagnosis, rules: ComparisonRules) -> str:
    """Sixteen hexadecimal digits over the named parts; the same for every run of one job on one kind of GPU."""
    text = "\n".join(f"{name}={value}" for name, value in describe(document, rules))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def describe(document: Diagnosis, rules: ComparisonRules) -> tuple[tuple[str, str], ...]:
    """The named parts, in a fixed order: each job aspect, then the device. What is not known reads "not told"."""
    job = job_of(document, rules.job)
    parts = [(aspect, _aspect(document, job, aspect, rules)) for aspect in JOB_ASPECTS]
    return (*parts, ("device", device(document) or NOT_TOLD))


def differing(base: Diagnosis, new: Diagnosis, rules: ComparisonRules) -> tuple[tuple[str, str, str], ...]:
    """The parts that differ: name, value in base, value in new."""
    sides = zip(describe(base, rules), describe(new, rules), strict=True)
    return tuple((name, here, there) for (name, here), (_, there) in sides if here != there)


def _aspect(document: Diagnosis, job: Job | None, aspect: JobAspect, rules: ComparisonRules) -> str:
    if aspect == "world":
        ranks = world_size(document, rules.job)
        return NOT_TOLD if ranks is None else f"{ranks} ranks"
    if job is None:
        return NOT_TOLD
    known = [(name, job.value(name)) for name in rules.limits.aspects[aspect].refused]
    return ", ".join(f"{name} {shown(value)}" for name, value in known if value is not None) or NOT_TOLD
