"""The command line: arguments → one call → one renderer → an exit code; nothing else.

The result goes to standard output and to the files of `-o`; everything else goes to standard error. Nothing heavy is imported before
the arguments are known to be right.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose import __version__
from diagnose.errors import DataLossError, DiagnoseError, InputError, UsageError
from diagnose.render import EXTENSIONS, RENDERERS, Options
from diagnose.render.deliver import ClosedPipeError, check_target, progress, silence, write_file, write_stdout

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis

EXIT_GATE, EXIT_USAGE, EXIT_FAULT, EXIT_OUTPUT, EXIT_INTERRUPTED = 1, 2, 70, 74, 130
LEVELS = ("low", "medium", "high")
_PATH = click.Path(path_type=Path)


class Verbs(click.Group):
    """A group whose verb is `analyse` when the first word names no other; its help shows the options of that verb as well."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default verb."""
        own = {*self.commands, "--help", "-h", "--version"}
        if args and args[0] not in own:
            args = ["analyse", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both ways to call it."""
        formatter.write_usage(ctx.command_path, "TRACE... [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGUMENTS]", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The default verb's options, then the other commands."""
        analysis = self.commands["analyse"]
        records = [
            record
            for param in analysis.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None
        ]
        version = next(param for param in self.params if param.name == "version")
        records[-1:-1] = [record for record in [version.get_help_record(ctx)] if record is not None]
        with formatter.section("Options"):
            formatter.write_dl(records)
        self.format_commands(ctx, formatter)


@click.group(
    cls=Verbs,
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

    Exit codes: 0 analysed; 1 --fail-on not met; 2 usage, job file or rule file wrong; 3 input can't be analysed; 4 data lost, with
    --strict; 70 internal fault; 74 output could not be written; 130 interrupted.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"


def _output_options(command: Any) -> Any:
    """The options that say where a diagnosis goes."""
    for option in reversed(
        [
            click.option(
                "--format", "format_", type=click.Choice(list(RENDERERS)), default="text", help="Format of standard output. [default: text]"
            ),
            click.option(
                "-o",
                "--output",
                "outputs",
                type=_PATH,
                multiple=True,
                help="Write a file too; format by extension: .html .json .md .txt. Repeatable.",
            ),
            click.option("--force", is_flag=True, help="Overwrite files of -o."),
            click.option("--fail-on", type=click.Choice(LEVELS), help="Exit 1 if a finding is that severe or more."),
            click.option(
                "--color",
                type=click.Choice(["auto", "always", "never"]),
                default="auto",
                help="Colours on standard output. [default: auto]",
            ),
            click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors; for use with -o."),
        ]
    ):
        command = option(command)
    return command


@cli.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--config", type=_PATH, help="Job file: Megatron-Bridge dump, Megatron-LM arguments, launch script, torchtitan TOML or plain job.yaml."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting on top of the job file, as Hydra writes it. Repeatable."
)
@click.option("--rules", type=_PATH, multiple=True, help="Folder or file of your own rules, fixes and buckets. Repeatable.")
@click.option("--rank", type=click.IntRange(min=0), help="Rank of a trace that does not tell it.")
@click.option("--step-range", metavar="PATTERN", help="Pattern for the ranges that mark a step.")
@click.option("--nsys", type=_PATH, help="The nsys to export .nsys-rep files with. [default: the one found]")
@click.option("--strict", is_flag=True, help="Exit 4 if data was lost.")
@click.option("--include-host-info", is_flag=True, help="Keep host names in the result.")
@_output_options
def analyse(
    traces: tuple[str, ...],
    *,
    config: Path | None,
    overrides: tuple[str, ...],
    rules: tuple[Path, ...],
    rank: int | None,
    step_range: str | None,
    nsys: Path | None,
    strict: bool,
    include_host_info: bool,
    **output: Any,
) -> int:
    """Analyse traces (the default command)."""
    _check_outputs(output, inputs=tuple(Path(trace) for trace in traces if trace != "-") + ((config,) if config else ()))
    with progress(shown=sys.stderr.isatty() and not output["quiet"] and output["format_"] == "text") as report:
        from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

        document = diagnose(
            traces,
            config=config,
            overrides=overrides,
            rules=rules,
            rank=rank,
            step_range=step_range,
            nsys=nsys,
            include_host_info=include_host_info,
            progress=report,
        )
    status = _deliver(document, **output)
    if strict and any(entry.severity in ("data_loss", "error") for entry in document.ledger):
        raise DataLossError(
            "Data was lost.",
            effect="The result is written but not complete.",
            next_step="Read its ledger; it says what is missing and why.",
        )
    return status


@cli.command()
@click.argument("diagnosis", type=_PATH, metavar="DIAGNOSIS.json")
@_output_options
def render(diagnosis: Path, **output: Any) -> int:
    """Write a diagnosis (JSON) in another format."""
    _check_outputs(output, inputs=(diagnosis,))
    return _deliver(_read(diagnosis), **output)


@cli.command()
@click.argument("id_", metavar="ID")
@click.argument("diagnosis", type=_PATH, required=False, metavar="[DIAGNOSIS.json]")
@click.option("--rules", type=_PATH, multiple=True, help="Folder or file of your own rules. Repeatable.")
def explain(id_: str, diagnosis: Path | None, rules: tuple[Path, ...]) -> int:
    """Explain a rule, fix, bucket, fact, job setting, platform, wall or ledger code; with a diagnosis, in its numbers.

    The name of a kind (rules, fixes, walls, buckets, families, contexts, groups, facts, settings, platforms, codes) lists all of it. Where
    several things have one name all are explained; `bucket:router` asks for one.
    """
    from diagnose.render.explain import explain as explained  # noqa: PLC0415
    from diagnose.rulebook import load_rulebook  # noqa: PLC0415
    from diagnose.taxonomy import load_taxonomy  # noqa: PLC0415

    own = [file for path in rules if path.is_dir() for file in sorted((path / "buckets").glob("*.yaml"))]
    write_stdout(explained(load_rulebook(rules), id_, None if diagnosis is None else _read(diagnosis), load_taxonomy(extra=own)))
    return 0


@cli.command("rules")
@click.option("--rules", type=_PATH, multiple=True, help="Folder or file of your own rules. Repeatable.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="[default: text]")
def list_rules(rules: tuple[Path, ...], format_: str) -> int:
    """List all rules and fixes."""
    from diagnose.render.explain import listing, listing_json  # noqa: PLC0415
    from diagnose.rulebook import load_rulebook  # noqa: PLC0415

    book = load_rulebook(rules)
    write_stdout(listing(book) if format_ == "text" else listing_json(book), utf8=format_ == "json")
    return 0


@cli.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--rules", type=_PATH, multiple=True, help="Folder or file of your own buckets. Repeatable.")
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", help="text, or one JSON object per line. [default: text]"
)
def kernel(names: tuple[str, ...], rules: tuple[Path, ...], format_: str) -> int:
    """Say which bucket a kernel name belongs to, and why; - reads names from standard input.

    A line (or NAME) may be a JSON object {"name": …, "context": {…}}; trace_rules/README.md lists the context's keys. Exit code 3 when
    a line could not be read; it is answered with an error, and the others are answered all the same.
    """
    from diagnose.kernel_lines import answers, as_json, as_text  # noqa: PLC0415
    from diagnose.taxonomy import load_taxonomy, own_bucket_files  # noqa: PLC0415

    taxonomy = load_taxonomy(extra=own_bucket_files(rules))
    found = answers([line for name in names for line in (_lines() if name == "-" else [name])], taxonomy)
    shown = as_text if format_ == "text" else as_json
    write_stdout("".join(shown(answer) for answer in found), utf8=format_ == "json")
    return InputError.exit_code if any(answer.error for answer in found) else 0


def _lines() -> list[str]:
    return sys.stdin.buffer.read().decode("utf-8", errors="replace").splitlines()


# --- reading and writing diagnoses ------------------------------------------------------------------------------------


def _read(path: Path) -> Diagnosis:
    """A diagnosis from its JSON file. Raises InputError."""
    import msgspec  # noqa: PLC0415

    from diagnose.diagnosis import SCHEMA, decode  # noqa: PLC0415

    wanted = "Give the JSON that `diagnose TRACE -o x.json` wrote."
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("schema", msgspec.Raw(b"null"))
        if msgspec.json.decode(schema) != SCHEMA:
            raise InputError(f"{path} is not a diagnosis of schema {SCHEMA}.", effect="Nothing was written.", next_step=wanted)
        return decode(data)
    except OSError as fault:
        raise InputError(f"{path} could not be read: {fault.strerror}.", effect="Nothing was written.", next_step=wanted) from fault
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise InputError(f"{path} is not a diagnosis: {fault}.", effect="Nothing was written.", next_step=wanted) from fault


def _check_outputs(output: dict[str, Any], inputs: tuple[Path, ...]) -> None:
    """Refuse outputs that can't be written before any work is done."""
    for path in output["outputs"]:
        if path.suffix.lower() not in EXTENSIONS:
            raise UsageError(
                f"-o {path}: the extension does not name a format.",
                effect="Nothing was analysed.",
                next_step=f"Use one of {' '.join(sorted(EXTENSIONS))}.",
            )
        check_target(path, force=output["force"], inputs=inputs)


def _deliver(
    document: Diagnosis, *, format_: str, outputs: Sequence[Path], force: bool, fail_on: str | None, color: str, quiet: bool
) -> int:
    """Write the document to its files and to standard output; 1 if the gate of `fail_on` is not met."""
    options = Options(width=_width(), color=_coloured(color))
    for path in outputs:
        write_file(path, RENDERERS[EXTENSIONS[path.suffix.lower()]](document, Options()), force=force)
    if not quiet:
        write_stdout(RENDERERS[format_](document, options), utf8=format_ != "text")
        if format_ == "text":
            for path in outputs:
                _say(f"wrote {path}")
    return EXIT_GATE if fail_on and _reaches(document, fail_on) else 0


def _reaches(document: Diagnosis, level: str) -> bool:
    """True when a finding about the run (not about its capture) is at least that severe."""
    return any(LEVELS.index(finding.severity) >= LEVELS.index(level) for finding in document.findings if finding.wall != "capture")


def _width() -> int:
    """Width of the terminal; 100 where there is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return Options().width
    import shutil  # noqa: PLC0415

    return shutil.get_terminal_size((Options().width, 24)).columns


def _coloured(choice: str) -> bool:
    """Whether to colour: as asked, else only for a terminal, heeding NO_COLOR and FORCE_COLOR."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


# --- the one place where everything ends ------------------------------------------------------------------------------


def _say(text: str) -> None:
    """Lines on standard error, made harmless; nothing if standard error is closed."""
    from diagnose.render.units import visible  # noqa: PLC0415

    with contextlib.suppress(OSError):
        for line in text.splitlines():
            click.echo(visible(line), err=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never raises."""
    try:
        status = cli.main(None if arguments is None else list(arguments), prog_name="diagnose", standalone_mode=False)
    except BaseException as fault:  # noqa: BLE001 - the boundary: polars panics derive from BaseException, and no traceback may reach a user
        return _ended(fault)
    return status if isinstance(status, int) else 0


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
        case click.ClickException():
            code, said = EXIT_USAGE, f"error: {fault.format_message()} Try `diagnose --help`."
        case click.Abort() | KeyboardInterrupt():
            code, said = EXIT_INTERRUPTED, "interrupted"
        case SystemExit():  # click ends so when the reader of its help has gone
            code = 0
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EROFS):
            silence()
            code, said = EXIT_OUTPUT, f"error: Something could not be written: {fault.strerror}. There is no result. Make room."
        case _:
            said = _internal(fault)
    _say(said)
    return code


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
