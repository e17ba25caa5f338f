"""`diagnose run -- COMMAND`: capture a training command with Nsight Systems, and diagnose what was captured."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands.capture import NSYS, RANGE, TORCH
from diagnose.commands.options import CAPTURE, PATH, Detail, Gate, Group, JobFile, Measuring, Output, Verb, option, takes
from diagnose.commands.output import check_outputs, check_sections, progress, say, write_diagnosis, write_stdout
from diagnose.errors import InputError, OutputError, TerminatedError, UsageError

if TYPE_CHECKING:
    from diagnose.job import Job

FOLDER = "diagnose_run"
_STARTERS = frozenset({"srun", "mpirun", "mpiexec", "orterun", "prun", "flux", "ray", "kubectl", "ssh", "pdsh"})  # start ranks elsewhere
_OPENS_RANGE = re.compile(r"--profile|(?:.*\.)?use_nsys_profiler=(?:true|True|1)|-en|--enable_nsys")  # in a command's own words
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0  # for a command that was told to end


class Capturing(Group):
    """How the command is captured."""

    panel = CAPTURE
    to: Path | None = option("--to", type=PATH, metavar="FOLDER", help=f"New folder for the capture. [default: {FOLDER}, {FOLDER}_2 …]")
    delay: int | None = option(
        "--delay", type=click.IntRange(min=0), metavar="SECONDS", help="Wait so long after the start before capturing."
    )
    duration: int | None = option("--duration", type=click.IntRange(min=1), metavar="SECONDS", help="Capture so long.")
    dry_run: bool = option("--dry-run", is_flag=True, help="Print the nsys command and run nothing.")


@click.command(cls=Verb, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@takes(job=JobFile, capturing=Capturing, measuring=Measuring, output=Output, gate=Gate, detail=Detail)
def run(
    command: tuple[str, ...], job: JobFile, capturing: Capturing, measuring: Measuring, output: Output, gate: Gate, detail: Detail
) -> int:
    """Run a training command under nsys, then diagnose the capture.

    What the command prints goes to standard error. Where it fails nothing is diagnosed, and its exit code is passed on; Ctrl-C ends it and
    lets nsys write what it has. Without nsys the snippet for PyTorch's profiler is printed, and nothing is run. The command stands after
    --, as a shell takes it: `diagnose run -- torchrun train.py`; --command and --set are about the job file.
    """
    _check_command(command, job)
    check_outputs(output, inputs=(job.config,) if job.config else ())
    check_sections(output, "diagnosis", detail.sections)
    measuring.check()
    _check_starter(command)
    from diagnose.load.nsys_report import find_nsys  # noqa: PLC0415 - imports polars
    from diagnose.scale.engine import prepare  # noqa: PLC0415 - the same

    # a wrong job file, rule or pattern shows before anything is run
    read = prepare(**measuring.reading(job)).job

    nsys = find_nsys(measuring.nsys)
    if nsys is None and not capturing.dry_run:
        write_stdout(TORCH)
        raise UsageError(
            "There is no nsys on this machine.",
            effect="Nothing was run.",
            next_step="Install Nsight Systems, name it with --nsys, or capture with PyTorch's profiler as printed and give its trace to diagnose.",
        )
    folder = _folder(capturing.to)
    ranged = opens_range(read, command) and capturing.delay is None and capturing.duration is None
    line = [str(nsys or "nsys"), "profile", *_options(nsys, capturing, ranged=ranged), "--output", str(folder / "trace"), *command]
    if capturing.dry_run:
        write_stdout(shlex.join(line) + "\n")
        return 0
    if not ranged and capturing.delay is None and capturing.duration is None and not output.quiet:
        say("the whole run is captured: no sign that it opens a range by itself (`diagnose capture JOB` prints the settings that do)")
    with OutputError.where_refused(f"{folder} could not be made", effect="Nothing was run.", next_step="Choose another --to."):
        folder.mkdir(parents=True)
    if not output.quiet:
        say(f"capturing into {folder}: {shlex.join(line)}")
    status, reports = _run(line), _reports(folder)
    if status:
        left = f"What was captured until then: diagnose {shlex.join(reports)}" if reports else "Nothing was captured."
        say(f"the command ended with {status}; nothing was diagnosed. {left}")
        return status
    if not reports:
        raise InputError(
            "nsys wrote no report: the command opened no capture range, or started nothing that uses a GPU.",
            effect="Nothing was analysed.",
            next_step="Leave --profile and the like out of the job, or give --duration SECONDS.",
        )
    captured = reports if len(reports) == 1 else [str(folder)]
    with progress(shown=not output.quiet and output.format == "text") as report:
        document = measuring.diagnose(reports, job, progress=report, notice=None if output.quiet else say)
    return write_diagnosis(document, output, config=job.config, fail_on=gate.fail_on, detail=detail, typed=job.typed(captured))


def _check_command(command: Sequence[str], job: JobFile) -> None:
    """Refuse what is no command as a shell takes it. Raises UsageError."""
    line = next(iter(command), "") if len(command) < 2 else ""
    if not command and job.job_command is not None:
        line = job.job_command
        what = f"--command {shlex.quote(line)} names one of several commands in the job file of --config; what is to be run was not given."
    elif not command:
        what = "What is to be run was not given."
    elif " " in line.strip() and shutil.which(line) is None:
        what = f"There is no program {line!r}: with its arguments in one word a command is not found."
    else:
        return
    example = line if " " in line else "torchrun train.py"
    raise UsageError(what, effect="Nothing was run.", next_step=f"It stands after --, word by word: diagnose run -- {example}")


def _check_starter(command: Sequence[str]) -> None:
    """Refuse a command that starts its ranks elsewhere, where this nsys would not see them. Raises UsageError."""
    starter = Path(command[0]).name
    if starter in _STARTERS:
        raise UsageError(
            f"{starter} starts the ranks outside of what nsys would follow.",
            effect="Nothing was run.",
            next_step=f"Put nsys between {starter} and the program: `diagnose capture JOB` prints the line.",
        )


def opens_range(job: Job | None, command: Sequence[str]) -> bool:
    """Whether the run opens cudaProfilerApi's range around the steps to capture, as its job file or its own words tell."""
    return (job is not None and job.get("use_nsys_profiler") is True) or any(map(_OPENS_RANGE.fullmatch, command))


def _options(nsys: Path | None, capturing: Capturing, *, ranged: bool) -> Iterator[str]:
    """What to capture; an option that this nsys does not know is left out."""
    wanted = [*NSYS, *(RANGE if ranged else ())]
    if capturing.delay is not None:
        wanted.append(f"--delay={capturing.delay}")
    if capturing.duration is not None:
        wanted.append(f"--duration={capturing.duration}")
    known = "" if nsys is None else _help(nsys)
    yield from (one for one in wanted if not known or one.partition("=")[0] in known)


def _help(nsys: Path) -> str:
    """What `nsys profile --help` says; nothing where it fails."""
    try:
        said = subprocess.run([str(nsys), "profile", "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = said.stdout.decode(errors="replace")
    return text if "--trace" in text else ""


def _folder(given: Path | None) -> Path:
    """The folder for the capture, which does not exist yet. Raises UsageError."""
    if given is not None:
        if given.exists():
            raise UsageError(f"{given} exists.", effect="Nothing was run.", next_step="Choose another --to.")
        return given
    number = 1
    while Path(FOLDER if number == 1 else f"{FOLDER}_{number}").exists():
        number += 1
    return Path(FOLDER if number == 1 else f"{FOLDER}_{number}")


def _run(line: Sequence[str]) -> int:
    """The exit code of the command, 128 and its number for a signal. Ctrl-C is passed on once; a second one ends it.

    Raises KeyboardInterrupt then.
    """
    from diagnose.bisect.guard import end_group  # noqa: PLC0415

    sys.stderr.flush()
    with _noted_interrupts() as asked:  # noted and not raised: an error while the command starts would leave it alone
        with UsageError.where_refused(f"{line[0]} could not be run", effect="Nothing was run.", next_step="Check --nsys."):
            child = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                list(line),
                stdin=subprocess.DEVNULL,
                stdout=2,
                env={"NVTE_NVTX_ENABLED": "1", **os.environ},  # Transformer Engine's ranges
                start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
            )
        try:
            code = _ended(child, asked)
        except TerminatedError:
            end_group(child, _PATIENCE_SECONDS)
            raise
    if asked:
        end_group(child, _PATIENCE_SECONDS)  # what it left running
        raise KeyboardInterrupt
    return code if code >= 0 else 128 - code


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """The interrupts that come meanwhile, instead of KeyboardInterrupt."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _ended(child: subprocess.Popen[bytes], asked: Sequence[int]) -> int:
    """The command's exit code; after a second interrupt that of what is left, whatever it is."""
    passed_on = False
    while True:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=_POLL_SECONDS)
        if asked and not passed_on:
            passed_on = True
            say("interrupted: nsys is told to end and to write what it has; once more to end it at once")
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGINT)
        elif len(asked) > 1:
            return 128 + signal.SIGINT


def _reports(folder: Path) -> list[str]:
    """What nsys wrote: its reports; a raw stream where it has no importer beside it, of which the reader says what to do."""
    kinds = ([str(path) for path in sorted(folder.glob(f"*{ending}"))] for ending in (".nsys-rep", ".qdrep", ".qdstrm"))
    return next(filter(None, kinds), [])
