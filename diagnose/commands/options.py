"""The options of the verbs, each declared once: a `Group` is a frozen record, and every field carries the click option that fills it.

`takes` gives a command the options of its groups and hands it one typed instance of each. An option whose words differ from verb to verb
(`--set`, `--metric`) is a function here
that makes the field; what belongs to one verb alone stands in that verb's module.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

import click

from diagnose.errors import InputError
from diagnose.render import TypedFiles, extensions_for, formats_for
from diagnose.scale.choose import ENGINES, check_engine

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.model.vocabulary import Level
    from diagnose.scale.engine import Engine, MeasuringOptions, ReadingOptions, Say

LEVELS = ("low", "medium", "high")
PATH = click.Path(path_type=Path)
# Under these headings help lists the options of a verb that has many, in this order.
USUAL, CHANGE, SEARCH, SUBJECT, GATE, NOISE, COMMAND, CAPTURE = (
    "Usual", "The change", "The search", "What is compared", "The gate", "Noise", "The command", "The capture",
)  # fmt: skip
JOB, READING, OUTPUT, FAULT = "Job file", "Reading traces", "Output", "Report of a fault"
PANELS = (USUAL, CHANGE, SEARCH, SUBJECT, GATE, NOISE, COMMAND, CAPTURE, JOB, READING, OUTPUT, FAULT)


class PanelOption(click.Option):
    """An option that knows under which heading help lists it."""

    def __init__(self, *arguments: Any, panel: str = OUTPUT, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.panel = panel


class Verb(click.Command):
    """A verb whose help lists its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The panels in their order."""
        write_panels(self.get_params(ctx), ctx, formatter)


class RunsVerb(Verb):
    """A verb of which some options take all operands up to the next option: runs, as a shell makes them of a pattern without quotes."""

    def __init__(self, *arguments: Any, takes_runs: Sequence[str], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.takes_runs = tuple(takes_runs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--base A B --new C` as `--base A --base B --new C`, which click understands; what follows `--` is as it was."""
        found: list[str] = []
        of: str | None = None
        for place, word in enumerate(args):
            if word == "--":
                return super().parse_args(ctx, [*found, *args[place:]])
            if word.startswith("-") and word != "-":
                taken = word in self.takes_runs and not (place + 1 < len(args) and args[place + 1] in {*self.takes_runs, "--"})
                of = word if taken else None
                found += [] if taken else [word]
            else:
                found += [word] if of is None else [of, word]
        return super().parse_args(ctx, found)


def write_panels(params: Sequence[click.Parameter], context: click.Context, formatter: click.HelpFormatter) -> None:
    """The options under the headings of their panels; those of click itself stand with the output's."""
    found: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
    for param in params:
        record = param.get_help_record(context) if isinstance(param, click.Option) else None
        if record is not None:
            found[getattr(param, "panel", OUTPUT)].append(record)
    for panel, records in found.items():
        if records:
            with formatter.section(panel):
                formatter.write_dl(records)


class Share(click.ParamType):  # type: ignore[type-arg] # generic in some versions of click only
    """A share, as `3%` or `0.03`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a number; `3` alone is refused, because it may mean either."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = math.nan
        if math.isnan(number) or not 0 <= number <= (math.inf if text.endswith("%") else 1) or math.isinf(number):
            self.fail(f"{value!r} is no share. Write it as 3% or 0.03.", param, ctx)
        return number


def option(*names: str, before: str | None = None, panel: str | None = None, **attributes: Any) -> Any:
    """A field that the click option of these names fills.

    `before`: the field before whose option help lists it, where that is not the order of the groups. `panel`: the heading above it, where
    that is not its group's.
    """
    return _Option(names, before, panel, attributes)


class _Option(NamedTuple):
    """The click option of a field."""

    names: tuple[str, ...]
    before: str | None
    panel: str | None
    attributes: dict[str, Any]


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Group:
    """Options of one topic, as a frozen dataclass would hold them.

    Making one of those costs about a millisecond whenever the program starts.

    A field of a subclass comes after its parents' fields, or takes the place of the one of that name.
    """

    options: ClassVar[dict[str, _Option]] = {}
    panel: ClassVar[str] = OUTPUT

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, _Option)}
        cls.options = {**cls.options, **{name: value._replace(panel=value.panel or cls.panel) for name, value in own.items()}}

    def __init__(self, **values: Any) -> None:
        if values.keys() != self.options.keys():
            raise TypeError(f"{type(self).__name__} is made of {', '.join(self.options)}, not of {', '.join(values)}")
        vars(self).update(values)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def words(self, *without: str) -> list[str]:
        """The words of a command line that give these options again.

        Those that are not as they are by default, but for fields `without`.
        """
        found: list[str] = []
        for field, entry in self.options.items():
            value, multiple = getattr(self, field), entry.attributes.get("multiple", False)
            if field in without or value in (None, False, (), entry.attributes.get("default")):
                continue
            name = max(entry.names, key=len).partition("/")[0]
            found += [name] if value is True else [word for one in (value if multiple else (value,)) for word in (name, str(one))]
        return found

    def replace(self, **changes: Any) -> Self:
        """The same but for these fields."""
        return type(self)(**{**vars(self), **changes})


def takes(**groups: type[Group]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the options of these groups, in this order; it gets an instance of each group under the group's name here."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def called(*arguments: Any, **values: Any) -> int:
            filled = {name: group(**{field: values.pop(field) for field in group.options}) for name, group in groups.items()}
            return command(*arguments, **values, **filled)

        wrapped: Callable[..., int] = called
        for field, entry in reversed(_in_order(list(groups.values()))):
            wrapped = click.option(*entry.names, field, cls=PanelOption, panel=entry.panel, **entry.attributes)(wrapped)
        return wrapped

    return decorate


def _in_order(groups: Sequence[type[Group]]) -> list[tuple[str, _Option]]:
    """The fields of all groups, in the order in which help lists their options."""
    listed: list[tuple[str, _Option]] = []
    for field, entry in (option for group in groups for option in group.options.items()):
        listed.insert(len(listed) if entry.before is None else [other for other, _ in listed].index(entry.before), (field, entry))
    return listed


def rules_option(of: str = "rules, fixes and buckets") -> Any:
    """`--rules`: what the user's own files may hold."""
    return option("--rules", type=PATH, multiple=True, help=f"Folder or file of your own {of}. Repeatable.")


def set_option(on: str = "the job file") -> Any:
    """`--set`: settings on top of a job file."""
    return option("--set", panel=JOB, multiple=True, metavar="KEY=VALUE", help=f"A setting on top of {on}. Repeatable.")


def metric_option(asked: str = "", panel: str = USUAL) -> Any:
    """`--metric`: the quantity that two runs are held against each other by."""
    names = "step_time, a category, bucket:NAME, kernels, or any fact. [default: step_time]"
    return option("--metric", panel=panel, default="step_time", metavar="NAME", help=f"{asked}{names}")


def store_option() -> Any:
    """`--store`: the store of baselines."""
    return option(
        "--store",
        panel=SUBJECT,
        type=PATH,
        metavar="DIR",
        help="Where baselines are stored. [default: .diagnose/baselines of the repository]",
    )


def trace_option() -> Any:
    """`--trace`: what the user's command leaves."""
    return option(
        "--trace", panel=COMMAND, metavar="PATTERN", help="Where the command leaves its trace. [default: in the folder $DIAGNOSE_OUTPUT]"
    )


def timeout_option(of: str) -> Any:
    """`--timeout` in seconds of one run of the user's command."""
    return option(
        "--timeout", panel=COMMAND, type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help=f"Skip a {of} that takes longer."
    )


def format_option(kind: str, about: str = "", *, besides: Sequence[str] = ()) -> Any:
    """`--format` of standard output: what documents of this kind can be written as, and what else the verb can print."""
    return option("--format", type=click.Choice([*formats_for(kind), *besides]), default="text", help=f"{about}[default: text]")


def verbose_option(more: str) -> Any:
    """`-v`: how much more is printed."""
    return option("-v", "--verbose", panel=USUAL, count=True, help=f"Print {more}.", before="color")


def section_option(parts: str) -> Any:
    """`--section`: parts of a report, such as these."""
    told = f"Print this part alone: {parts} … Repeatable."
    return option("--section", panel=USUAL, multiple=True, metavar="NAME", help=told, before="color")


def output_option(kind: str) -> Any:
    """`-o`: files to write beside standard output, in the formats of this kind of document."""
    pages = sorted({*extensions_for(kind)} & {".html", ".json", ".md", ".txt"})
    others = [f"{ending} (JUnit)" if ending == ".xml" else ending for ending in extensions_for(kind) if ending not in pages]
    endings = " ".join([*pages, *others])
    return option(
        "-o", "--output", panel=USUAL, type=PATH, multiple=True, help=f"Write a file too; format by extension: {endings}. Repeatable."
    )


def color_option() -> Any:
    """`--color` of standard output."""
    choices = click.Choice(["auto", "always", "never"])
    return option("--color", type=choices, default="auto", help="Colours on standard output. [default: auto]")


# Bytes of address space, and open files: with less the libraries end the process without a word of ours.
LEAST_MEMORY, LEAST_FILES = 1 << 30, 32


def _check_limits() -> None:
    """Raise InputError where a limit of the process (ulimit, a batch system) leaves too little to read any trace."""
    with suppress(ImportError):  # there is none on Windows
        import resource  # noqa: PLC0415

        memory, files = resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        said = f"may use {memory >> 20} MiB of memory (ulimit -v)" if 0 <= memory < LEAST_MEMORY else ""
        said = said or (f"may open {files} files (ulimit -n)" if 0 <= files < LEAST_FILES else "")
        if said:
            raise InputError(
                f"This process {said}, and reading a trace takes at least {LEAST_MEMORY >> 20} MiB and {LEAST_FILES} files.",
                effect="Nothing was analysed.",
                next_step="Raise the limit.",
            )


def command_option() -> Any:
    """`--command`: which of several commands, or functions of a Python file, is the job."""
    return option(
        "--command",
        panel=JOB,
        metavar="N",
        help="Of several commands in a script the N-th; of a Python file the function. [default: the one that trains]",
    )


class JobFile(Group):
    """The job file of traces, and what is set on top of it."""

    panel = JOB
    config: Path | None = option("--config", panel=USUAL, type=PATH, help="Job file of the traces.")
    job_command: str | None = command_option()
    overrides: tuple[str, ...] = set_option()

    def typed(self, traces: Sequence[str]) -> TypedFiles:
        """The files of a run as the user named them."""
        return TypedFiles(traces=tuple(traces), job=None if self.config is None else str(self.config), command=self.job_command)


class Reading(Group):
    """How traces are read and understood."""

    panel = READING
    rules: tuple[Path, ...] = rules_option()
    rank: int | None = option("--rank", type=click.IntRange(min=0), metavar="N", help="Rank of a trace that does not record it.")
    step_range: str | None = option("--step-range", metavar="PATTERN", help="Pattern for the ranges that mark a step.")
    nsys: Path | None = option("--nsys", type=PATH, help="The nsys to export .nsys-rep files with. [default: the one found]")

    def chosen_engine(self) -> Engine | None:
        """Where traces are measured; None: in this process, one after the other."""
        return None

    def arguments(self, job: JobFile, notice: Say | None) -> MeasuringOptions:
        """These options and those of the job file, by the names that `diagnose.pipeline` gives them."""
        return {**self.reading(job), "rank": self.rank, "engine": self.chosen_engine(), "notice": notice}

    def reading(self, job: JobFile) -> ReadingOptions:
        """Those of them that say how job file and traces are read."""
        return {
            "config": job.config,
            "overrides": job.overrides,
            "command": job.job_command,
            "rules": self.rules,
            "step_range": self.step_range,
            "nsys": self.nsys,
        }

    def diagnose(
        self,
        traces: Sequence[str | Path],
        job: JobFile,
        *,
        log: Path | None = None,
        include_host_info: bool = False,
        forecasts: bool = True,
        progress: Say | None = None,
        notice: Say | None = None,
    ) -> Diagnosis:
        """Diagnose the traces of one run. Raises the errors of `diagnose.errors`."""
        _check_limits()
        from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

        return diagnose(
            traces,
            **self.arguments(job, notice),
            log=log,
            include_host_info=include_host_info,
            forecasts=forecasts,
            progress=progress,
        )


class Measuring(Reading):
    """How traces are read, and where they are measured."""

    jobs: int | None = option(
        "--jobs", type=click.IntRange(min=1), metavar="N", help="Traces measured at once. [default: one per processor]"
    )
    engine: str = option(
        "--engine", type=click.Choice(ENGINES), default="local", help="Where: processes here, or Dask workers. [default: local]"
    )
    scheduler: str | None = option(
        "--scheduler", metavar="ADDRESS|FILE", help="Dask scheduler that runs already. [default: a cluster of our own]"
    )

    def check(self) -> None:
        """Raise UsageError for options that do not go together."""
        check_engine(self.engine, jobs=self.jobs, scheduler=self.scheduler)

    def chosen_engine(self) -> Engine | None:
        """The engine that the options ask for. Raises UsageError."""
        from diagnose.scale.choose import engine_for  # noqa: PLC0415

        return engine_for(self.engine, jobs=self.jobs, scheduler=self.scheduler)


class Output(Group):
    """Where a document goes, and in which format."""

    format: str = format_option("diagnosis", "Format of standard output. ")
    output: tuple[Path, ...] = output_option("diagnosis")
    force: bool = option("--force", is_flag=True, help="Overwrite files of -o.")
    light: bool = option("--light", is_flag=True, help="HTML of at most 300 KB: figures without zoom.")
    color: str = color_option()
    quiet: bool = option("-q", "--quiet", is_flag=True, help="Print nothing but errors; for use with -o.")


class Detail(Group):
    """How much of a document is printed as text."""

    verbose: int = verbose_option("every finding too; -vv every table as well")
    sections: tuple[str, ...] = section_option("plan, findings, budget, buckets, ledger")


class Shown(Detail):
    """How much of a comparison or bisection is printed as text."""

    verbose: int = verbose_option("every table too, with all rows, notes and explanations")
    sections: tuple[str, ...] = section_option("changed, delta, kernels, overlap, notes")


class Explained(Detail):
    """How much of a forecast is printed as text."""

    verbose: int = verbose_option("what it rests on, with all sources and assumptions")
    sections: tuple[str, ...] = section_option("changes, where, verify")


def output_of(kind: str) -> type[Output]:
    """The same for documents of another kind, in the formats that there are for it."""
    return type(kind, (Output,), {"format": format_option(kind, "Format of standard output. "), "output": output_option(kind)})


class Gate(Group):
    """Which findings of a diagnosis fail it."""

    fail_on: Level | None = option(
        "--fail-on", panel=GATE, type=click.Choice(LEVELS), help="Exit 1 if a finding is that severe or more.", before="color"
    )
