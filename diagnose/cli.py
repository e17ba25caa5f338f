"""The command line: the group of verbs, and the one place where every run ends.

The result goes to standard output and to the files of `-o`; everything else goes to standard error. The verbs are in `commands/`.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose.commands import project
from diagnose.commands.options import write_panels
from diagnose.commands.output import EXIT_GATE, ClosedPipeError, say, silence
from diagnose.commands.verbs import BISECT_STEP, VERBS, Commands
from diagnose.errors import DiagnoseError, InputError, TerminatedError, UsageError, nearest
from diagnose.render import WRITERS
from diagnose.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["EXIT_GATE", "cli", "main"]

_NO_MEMORY = (
    "Memory ran out. There is no result. Give fewer traces at once (--jobs 1), raise the limit of this process, or use a larger machine."
)
QUIET = "diagnose.quiet"  # whether the command line asks for silence
_QUIET = re.compile(r"--quiet$|-[hv]*q")  # also among other flags in one word: -qv, -vq, -qo
EXIT_USAGE, EXIT_FAULT, EXIT_OUTPUT, EXIT_INTERRUPTED = 2, 70, 74, 130


class Verbs(click.Group):
    """A group whose verb is `analyse` when the first word names no other; its help shows the options of that verb as well."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default verb."""
        ctx.meta[QUIET] = any(map(_QUIET.match, takewhile(lambda word: word != "--", args)))
        ctx.meta["diagnose.arguments"] = tuple(args)
        own = {*self.commands, "--help", "-h", "--version"}
        if args and args[0] not in own:
            _refuse_mistyped(args[0], self.commands)
            args = ["analyse", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb, which a signal ends in good order; what the project says are its defaults."""
        found = project.said_by(Path.cwd())
        if found is not None:
            path, options = found
            ctx.default_map = project.defaults(options, self.commands)
            if not ctx.meta.get(QUIET):
                say(f"using {path.name}: {', '.join(options)}")
        with _terminable():
            return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs, options of the default verb, and files: the first word may be a trace."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for a shell that asks

        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            known = {item.value for item in found}
            return [*found, *(item for item in self.commands["analyse"].shell_complete(ctx, incomplete) if item.value not in known)]
        return [*found, CompletionItem(incomplete, type="file")]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both ways to call it."""
        formatter.write_usage(ctx.command_path, "TRACE... [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGUMENTS]", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The default verb's options, then the other commands."""
        *params, asked = self.commands["analyse"].get_params(ctx)
        version = next(param for param in self.params if param.name == "version")
        write_panels([*params, version, asked], ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with what each says of itself, none of which is imported for that."""
        limit = formatter.width - 6 - max(map(len, VERBS))  # what click leaves for the text beside the longest name
        said = [(verb, click.Command(verb, help=VERBS[verb].says).get_short_help_str(limit)) for verb in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(said)


def _refuse_mistyped(word: str, verbs: Iterable[str]) -> None:
    """Raise UsageError for a word that is nearly a verb, has nothing of a path, and is none."""
    if word.startswith("-") or set("./\\*?[") & set(word) or os.path.exists(word):  # noqa: PTH110 - never raises
        return
    for verb in nearest(word, verbs, alike=0.7):
        raise UsageError(f"There is no command or file {word!r}.", effect="Nothing was done.", next_step=f"Did you mean `diagnose {verb}`?")


@click.group(
    cls=Verbs,
    commands=Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(__version__, prog_name="diagnose", message="%(prog)s %(version)s")
def cli() -> None:
    """Say what holds a training run back, how much could be won, and which setting to change.

    TRACE is an Nsight Systems report or export (.nsys-rep, .sqlite, parquetdir), a PyTorch profiler trace (.json, .json.gz, .zip), a
    folder of them, or - for standard input.

    \b
    diagnose run.nsys-rep --config job.yaml -o report.html

    Exit codes: 0 analysed; 1 --fail-on or check not met; 2 usage, job file or rule file wrong; 3 input can't be analysed; 4 data lost, with
    --strict; 70 internal fault; 74 output could not be written; 130 interrupted.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"


SELDOM = 100_000  # objects from one search for garbage to the next: nearly all of a run's live to its end, and frames are in no cycles


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never raises."""
    _occupy_closed_streams()
    gc.set_threshold(SELDOM)
    try:
        status = cli.main(None if arguments is None else list(arguments), prog_name="diagnose", standalone_mode=False)
    except BaseException as fault:  # noqa: BLE001 - the boundary: polars panics derive from BaseException, and no traceback may reach a user
        verb = next(iter(sys.argv[1:] if arguments is None else arguments), "")
        code = _ended(fault)
        if verb != BISECT_STEP:
            return code
        from diagnose.commands.bisect_step import aborting  # noqa: PLC0415 - only where a step of a search has failed

        return aborting(code)
    return status if isinstance(status, int) else 0


def _occupy_closed_streams() -> None:
    """Let no file get the number of a standard stream that is closed (`2>&-`, daemons): what libraries write there would go into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process like Ctrl-C, so that what it started and wrote is cleared away."""
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415

    def stop(number: int, _: object) -> None:
        raise TerminatedError(number)

    ours = [signal.SIGTERM, signal.SIGHUP] if threading.current_thread() is threading.main_thread() else []
    before = {number: handler for number in ours if (handler := signal.getsignal(number)) is signal.SIG_DFL}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(fault: BaseException) -> int:
    """Say why the run ended, and give the exit code for it."""
    code, said = EXIT_FAULT, ""
    match fault:
        case ClosedPipeError():
            code = 0
        case DiagnoseError():
            code, said = fault.exit_code, f"error: {fault}"
        case click.exceptions.NoArgsIsHelpError():
            code, said = EXIT_USAGE, fault.format_message()
        case click.NoSuchOption():
            code, said = EXIT_USAGE, f"error: {_no_such_option(fault)} Try `diagnose --help`."
        case click.ClickException():
            code, said = EXIT_USAGE, f"error: {fault.format_message()} Try `diagnose --help`."
        case TerminatedError(exit_code=number) | click.Abort(__cause__=TerminatedError(exit_code=number)):
            code, said = number, "terminated"
        case click.Abort() | KeyboardInterrupt():
            code, said = EXIT_INTERRUPTED, "interrupted"
        case SystemExit():  # click ends so when the reader of its help has gone
            code = 0
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EROFS):
            silence()
            code, said = EXIT_OUTPUT, f"error: Something could not be written: {fault.strerror}. There is no result. Make room."
        case MemoryError():
            code, said = InputError.exit_code, f"error: {_NO_MEMORY}"
        case _:
            said = _internal(fault)
    say(said)
    return code


def _no_such_option(fault: click.NoSuchOption) -> str:
    """That there is no such option, in the same words with every click; where it is a format that the verb knows, how that is asked for."""
    params = {} if fault.ctx is None else {param.name: param for param in fault.ctx.command.params}
    known = params["format"].type if "format" in params else None
    asked = next((one for one in WRITERS if fault.option_name == f"--{one.name}"), None)
    if asked is None or not isinstance(known, click.Choice) or asked.name not in known.choices:
        meant = f" Did you mean {' or '.join(sorted(fault.possibilities))}?" if fault.possibilities else ""
        return f"No such option {fault.option_name!r}.{meant}"
    file = f"-o FILE{asked.extensions[0]} writes it to a file, " if asked.extensions and "output" in params else ""
    return f"No such option {fault.option_name!r}. It is a format: {file}--format {asked.name} prints it."


def _internal(fault: BaseException) -> str:
    """That this is our fault and how to report it; the traceback only when asked for."""
    trace = ""
    if os.environ.get("DIAGNOSE_DEBUG"):
        import traceback  # noqa: PLC0415

        trace = "".join(traceback.format_exception(fault))
    first = (str(fault).splitlines() or [""])[0][:300]
    return (
        f"{trace}error: internal fault, {type(fault).__name__}: {first}. There is no result. "
        "Please report it with what the same command says under DIAGNOSE_DEBUG=1."
    )
