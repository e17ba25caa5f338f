"""Reports of Nsight Systems (.nsys-rep, .qdrep): found exported beside them, or exported here with the user's own nsys."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from diagnose.errors import InputError
from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load import nsys_parquet, nsys_sqlite
from diagnose.load.files import REPORT, Reader, is_parquet_folder, may_be_report, opening, private_folder, refused
from diagnose.model.ledger import Ledger
from diagnose.model.trace import Trace

_TIMEOUT_S = 3600.0
_NEWER = re.compile(
    r"newer than your current version|created (?:in|with|by) .*newer|unsupported report version|version number is invalid", re.IGNORECASE
)
_VERSION = re.compile(r"\b\d{4}\.\d+(?:\.\d+)*\b")
_MAX_OUTPUT = 1 << 20


# The export to read (a SQLite file or a Parquet folder), sentences on how it was obtained, and their ledger entries.
Export = tuple[Path, tuple[str, ...], Ledger]


def _sibling(report: Path) -> Path | None:
    """An export of the report beside it that is at least as new; SQLite before Parquet."""
    candidates = (report.with_suffix(".sqlite"), report.with_name(report.stem + "_pqtdir"))
    written = report.stat().st_mtime_ns
    for path in candidates:
        if path.is_dir() and is_parquet_folder(path):
            newest = max(item.stat().st_mtime_ns for item in path.iterdir())
            if newest >= written:
                return path
        elif path.is_file() and path.stat().st_mtime_ns >= written and _is_sqlite(path):
            return path
    return None


def _is_sqlite(path: Path) -> bool:
    try:
        return nsys_sqlite.READER.recognises(opening(path))
    except InputError:
        return False


def find_nsys(given: Path | None) -> Path | None:
    """The nsys to use: the one given (InputError where it can't be run), else the first on PATH, absolute; None: there is none."""
    if given is None:
        found = shutil.which("nsys")
        return Path(found).absolute() if found else None
    path = shutil.which(str(given.absolute())) if given.exists() else None
    if path is None:
        raise refused(f"The nsys that was given ({given.name}) is not a program that can be run.", "Check the path given with --nsys.")
    return Path(path)


def _run(arguments: list[str], workdir: Path, timeout_s: float) -> tuple[int, str]:
    """Exit status and output of a program in its own process group, which is stopped as a whole when time is up.

    The output goes through a file: a helper that the program leaves running would keep a pipe open.
    """
    log = workdir / "nsys.log"
    process: subprocess.Popen[bytes] | None = None
    with log.open("wb") as output:
        try:
            with _uninterrupted():
                process = subprocess.Popen(  # noqa: S603  # an argument list, no shell; the program is the user's own nsys
                    arguments, cwd=workdir, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
            status = process.wait(timeout=timeout_s)
        except BaseException:
            if process is not None:
                stop(process)
            raise
    with log.open("rb") as output:
        return status, output.read(_MAX_OUTPUT).decode(errors="replace")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and other signals that end this program come after the block: what it was just starting would run on, known to nobody."""
    came: list[int] = []
    ours = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP] if threading.current_thread() is threading.main_thread() else []
    before = {number: handler for number in ours if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda one, _: came.append(one))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for one in came:
        signal.raise_signal(one)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started in its session: asked first, killed where that is not heeded in five seconds."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue
        return


def version(nsys: Path, workdir: Path) -> str | None:
    """The version that `nsys --version` tells; None where it tells none."""
    try:
        _, output = _run([str(nsys), "--version"], workdir, 60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(output)
    return found.group() if found else None


def _useful_line(output: str, report: Path) -> str:
    """The line of nsys' output that says why it failed, without paths."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", output) if line.strip() and "%" not in line]
    named = [line for line in lines if re.search(r"error|fail|newer|cannot|unable|exception|not ", line, re.IGNORECASE)]
    chosen = (named or lines or ["it gave no reason"])[0].replace(str(report), report.name)
    return re.sub(r"(?:/[^\s/]+){2,}", "…", chosen)[:300].rstrip(".")


def _command(report: Path) -> str:
    return shlex.join(["nsys", "export", "--type", "sqlite", "--output", f"{report.stem}.sqlite", report.name])


def resolve(path: Path, *, nsys: Path | None = None, workdir: Path, timeout_s: float = _TIMEOUT_S) -> Export:
    """The export to read for the report `path`.

    An export beside the report that is not older is used; otherwise nsys writes one into `workdir`, a private folder of the
    caller. Raises InputError when there is no nsys, it fails, or it takes longer than `timeout_s` seconds.
    """
    report = path.resolve()
    try:
        beside = _sibling(report)
    except OSError as error:
        raise refused(f"{path.name} cannot be read: {error.strerror}.", "Check the path and its permissions.") from None
    if beside is not None:
        note = f"{beside.name}, an export that lay beside the report and is not older, was read instead of {path.name}."
        return beside, (note,), Ledger().note("sibling_export", "all")
    program = find_nsys(nsys)
    if program is None:
        raise refused(
            f"{path.name} is an Nsight Systems report, and there is no nsys on this machine to export it.",
            f"Where Nsight Systems is installed, run: {_command(report)} — then give the .sqlite file. Or give the program with --nsys.",
        )
    return _export(path, report, program, workdir, timeout_s)


def _export(path: Path, report: Path, program: Path, workdir: Path, timeout_s: float) -> Export:
    target = workdir / f"{report.stem}.sqlite"
    own_version = version(program, workdir)
    with_version = f"nsys {own_version}" if own_version else "nsys"
    try:
        status, output = _run([str(program), "export", "--type", "sqlite", "--output", str(target), str(report)], workdir, timeout_s)
    except subprocess.TimeoutExpired:
        raise refused(
            f"{with_version} did not finish the export of {path.name} in {timeout_s:.0f} s, and was stopped.",
            f"Export it beforehand: {_command(report)}",
        ) from None
    except OSError as error:
        raise refused(f"{with_version} cannot be run: {error.strerror}.", "Check the installation, or give another with --nsys.") from None
    if _NEWER.search(output):
        raise refused(
            f"{path.name} was captured by a newer Nsight Systems than the one here ({with_version}), which cannot read it.",
            f"Export it with the nsys that captured it: {_command(report)} — or give a newer one with --nsys.",
        )
    # a failed export can leave a valid but empty database, so the exit status counts
    if status != 0 or not target.is_file():
        raise refused(
            f"{with_version} could not export {path.name}: {_useful_line(output, report)}.",
            f"Try it by hand to see all its messages: {_command(report)}",
        )
    note = f"{path.name} was exported to a private folder with {with_version}."
    return target.rename(workdir / path.name), (note,), Ledger().note("exported", "all")  # messages then name what the user gave


# --- the reader -------------------------------------------------------------------------------------------------------


def _load(path: Path, rank: int | None, nsys: Path | None, rules: EnvironmentRules | None) -> Trace:
    """The trace of a report, from its newer sibling export, or exported to a private folder first."""
    with private_folder() as folder:
        export, notes, ledger = resolve(path, nsys=nsys, workdir=folder)
        given = opening(export)
        reader = next((reader for reader in (nsys_sqlite.READER, nsys_parquet.READER) if reader.recognises(given)), None)
        if reader is None:
            raise refused(f"{export.name} beside {path.name} is no export that can be read.", "Remove it, or export the report again.")
        trace = reader.load(export, rank, nsys, rules)
    provenance = replace(trace.provenance, file=path.name, notes=(*notes, *trace.provenance.notes))
    return replace(trace, provenance=provenance, ledger=trace.ledger + ledger)


def _start(path: Path) -> int | None:
    """A report tells nothing without nsys; its export beside it does."""
    export = path.with_suffix(".sqlite")
    return nsys_sqlite.start(export) if export.is_file() else None


READER = Reader(
    name="nsys-report", recognises=lambda given: given.head.startswith(REPORT) or may_be_report(given), load=_load, start=_start
)
