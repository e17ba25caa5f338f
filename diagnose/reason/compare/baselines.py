"""Named baselines: diagnosis documents in a folder of the repository, found again by name and by the fingerprint of job and device.

`.diagnose/baselines/NAME/FINGERPRINT.json` is one document. A name may hold several, one for each job and kind of GPU, so that `nightly` is
the right one on every machine, and the wrong one is never used. Host names are never kept, nor is the timeline, which no comparison reads.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import MsgspecError, structs

from diagnose.document.baselines import StoredBaseline
from diagnose.document.diagnosis import SCHEMA, Diagnosis, decode
from diagnose.document.encoding import encode
from diagnose.document.files import write_file
from diagnose.errors import InputError, OutputError, UsageError
from diagnose.knowledge.comparison import JOB_ASPECTS, ComparisonRules, JobAspect
from diagnose.reason.compare.comparable import Job, device, job_of, shown, world_size

FOLDER = Path(".diagnose") / "baselines"
LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # no file on Windows may be called so
_DEVICE = "device"
NOT_TOLD = "not told"
_DIGITS = 16


class BaselineError(InputError):
    """No stored baseline fits, or the one that would can't be used."""


def check_name(name: str) -> str:
    """`name` if it can be the name of a folder everywhere and of nothing else. Raises UsageError."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or name.endswith(".") or _RESERVED.fullmatch(name):
        raise UsageError(
            f"{name[:LONGEST_NAME]!r} can't be the name of a baseline.",
            effect="Nothing was done.",
            next_step="Use letters, digits, dots, hyphens and underscores, a letter or digit first, such as main or h100-nightly.",
        )
    return name


def save(folder: Path, name: str, document: Diagnosis, rules: ComparisonRules, *, force: bool) -> Path:
    """Store the document; its path. Raises UsageError where there is one already and not `force`, OutputError where it can't be written."""
    place = _folder_of(folder, name)
    path = place / f"{fingerprint(document, rules)}.json"
    if path.exists() and not force:
        raise UsageError(
            f"The baseline {name} exists for this job and device.",
            effect="It was kept as it was.",
            next_step="Give --force to replace it, or choose another name.",
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise OutputError(
            f"The folder {place} could not be made: {fault.strerror}.",
            effect="Nothing was stored.",
            next_step="Name another place with --folder.",
        ) from fault
    write_file(path, encode(_kept(document)).decode("utf-8"), force=force)
    return path


def _folder_of(folder: Path, name: str) -> Path:
    """The folder of one name, which is really in `folder`. Raises UsageError."""
    place = folder / check_name(name)
    if place.resolve().parent != folder.resolve():
        raise UsageError(
            f"{place} is a link to somewhere else.", effect="Nothing was done.", next_step="Remove the link, or choose another name."
        )
    return place


def _kept(document: Diagnosis) -> Diagnosis:
    """The document without host names and without its timeline."""
    ranks = tuple(structs.replace(rank, host=None) for rank in document.capture.ranks)
    return structs.replace(document, capture=structs.replace(document.capture, ranks=ranks), timeline=None)


def find(folder: Path, name: str, new: Diagnosis, rules: ComparisonRules) -> Diagnosis:
    """The baseline of this name for the job and kind of device of `new`. Raises BaselineError, which says how those there differ."""
    place, wanted = _folder_of(folder, name), fingerprint(new, rules)
    path = place / f"{wanted}.json"
    if path.is_file():
        document, problem = _read(path, rules)
        if document is None:
            raise BaselineError(
                f"The baseline {name} can't be used: {problem}.",
                effect="Nothing was compared.",
                next_step=f"Save it again: diagnose baseline save {name} TRACE --force.",
            )
        return document
    stored = list(_files(place))
    if not stored:
        raise BaselineError(
            f"There is no baseline {name} in {folder}.",
            effect="Nothing was compared.",
            next_step=f"Save one: diagnose baseline save {name} TRACE; `diagnose baseline list` shows what there is.",
        )
    said = " ".join(_difference(one, new, rules) for one in stored)
    raise BaselineError(
        f"The baseline {name} was made from another job or device. {said}",
        effect="Nothing was compared, because a difference between them would say nothing about the change.",
        next_step=f"Save one of this job: diagnose baseline save {name} TRACE, or compare with a file of your choice.",
    )


def _difference(path: Path, new: Diagnosis, rules: ComparisonRules) -> str:
    """In what a stored document is another job than the new one."""
    document, problem = _read(path, rules)
    if document is None:
        return f"{path.stem}: {problem}."
    differ = [f"{name} {here!r} there, {there!r} here" for name, here, there in differing(document, new, rules)]
    return f"{path.stem}: {'; '.join(differ) or 'made by another version of this program'}."


def _read(path: Path, rules: ComparisonRules) -> tuple[Diagnosis | None, str]:
    """A stored document, or None and why not."""
    try:
        document = decode(path.read_bytes())
    except OSError as fault:
        return None, f"it could not be read ({fault.strerror})"
    except (MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        return None, f"the file is damaged, or a newer version of this program wrote it ({fault})"
    if document.schema != SCHEMA:
        return None, f"its schema is {document.schema[:40]}, and this version of the program reads {SCHEMA}"
    if fingerprint(document, rules) != path.stem:
        return None, "its content is another job's than its name says, or another version of this program named it"
    return document, ""


def _files(place: Path) -> Iterator[Path]:
    return iter(sorted(path for path in place.glob("*.json") if not path.name.startswith(".")))


def listed(folder: Path, rules: ComparisonRules) -> tuple[StoredBaseline, ...]:
    """All that are stored, by name; those that can't be used with the reason."""
    if not folder.is_dir():
        return ()
    names = sorted(path for path in folder.iterdir() if path.is_dir() and _NAME.fullmatch(path.name))
    return tuple(_listed(place.name, path, rules) for place in names for path in _files(place))


def _listed(name: str, path: Path, rules: ComparisonRules) -> StoredBaseline:
    document, problem = _read(path, rules)
    size = path.stat().st_size
    if document is None:
        return StoredBaseline(name=name, fingerprint=path.stem, bytes=size, problem=problem)
    told = dict(describe(document, rules))
    return StoredBaseline(
        name=name,
        fingerprint=path.stem,
        bytes=size,
        device=told.pop(_DEVICE, None),
        job=told,
        step_ns=document.steps.duration_ns.median,
        steps=document.steps.n,
        target_wall=document.verdict.target_wall,
    )


def remove(folder: Path, name: str, chosen: Callable[[str], bool] = lambda _: True) -> tuple[str, ...]:
    """Delete the name's documents whose fingerprint is `chosen`; their fingerprints. Raises BaselineError (none), OutputError."""
    place = _folder_of(folder, name)
    found = [path for path in _files(place) if chosen(path.stem)]
    if not found:
        raise BaselineError(
            f"There is no such baseline {name} in {folder}.", effect="Nothing was removed.", next_step="`diagnose baseline list` shows all."
        )
    try:
        for path in found:
            path.unlink()
        if not any(place.iterdir()):
            place.rmdir()
    except OSError as fault:
        raise OutputError(f"A baseline of {place} could not be removed: {fault.strerror}.", effect="It is still there.") from fault
    return tuple(path.stem for path in found)


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
