"""One search from its experiment to its document: a folder, its log, advice and trials until there is an answer, the report."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from diagnose import __version__
from diagnose.bisect import git, log, report, sentences
from diagnose.bisect.candidates import Order
from diagnose.bisect.git import Checkout
from diagnose.bisect.log import DEFAULT_FOLDER, Criteria, Entry, Experiment, Header, Line, Log, SearchError, SearchFolder
from diagnose.bisect.model import Numbers
from diagnose.bisect.report import Origin
from diagnose.bisect.search import Answer, Measurement, Question, State, advise
from diagnose.bisect.trial import (
    StopRequestedError,
    TraceOptions,
    Trials,
    UnusableError,
    is_saved,
    no_value,
    read_capture,
    unusable,
)
from diagnose.document.bisection import Bisection, Trial, TrialState
from diagnose.document.comparison import Effect, RunRead
from diagnose.document.diagnosis import Diagnosis, Tool
from diagnose.document.encoding import encode
from diagnose.document.files import read_diagnosis, write_file
from diagnose.errors import DiagnoseError, InputError
from diagnose.knowledge.comparison import ComparisonRules, load_comparison_rules
from diagnose.model.statistics import median_with_error
from diagnose.reason.compare.metrics import place_of

_REPORT = "report.json"
_SHORT_HASH = 12
Say = Callable[[str], None]
Runner = Callable[[int, int], Line]  # candidate, number of the trial → the trial


class StoppedError(DiagnoseError):
    """The search stopped, and can be gone on with."""

    exit_code = 130


class Options(Struct, frozen=True, kw_only=True):
    """What may differ between runs of one search.

    How patient (seconds), which candidates to leave out and which that failed to try afresh, and what measures `traces`.
    """

    timeout: float | None = None
    skip: tuple[str, ...] = ()
    retry: tuple[str, ...] = ()
    traces: TraceOptions = field(default_factory=TraceOptions)


def folder_for(experiment: Experiment, base: Path) -> Path:
    """The folder of a search in the repository at `base`, where no other is named: the same experiment has the same one."""
    return base / DEFAULT_FOLDER / f"{experiment.mode}-{hashlib.sha256(msgspec.json.encode(experiment)).hexdigest()[:10]}"


def latest(base: Path) -> Path:
    """The folder of the search in the repository at `base` that ran last. Raises UsageError."""
    logs = [folder.log for folder in map(SearchFolder, (base / DEFAULT_FOLDER).glob("*")) if folder.log.is_file()]
    if not logs:
        raise SearchError(f"There is no search to go on with in {base / DEFAULT_FOLDER}.", next_step="Name its folder with --state.")
    return max((path.stat().st_mtime_ns, path.parent) for path in logs)[1]


def begin(path: Path, experiment: Experiment, criteria: Criteria, order: Order, work: Path, repeat: tuple[str, ...] = ()) -> SearchFolder:
    """A new search. Raises UsageError where the folder holds one already."""
    folder = SearchFolder(path)
    folder.make()
    header = Header(
        schema=log.SCHEMA,
        version=__version__,
        experiment=experiment,
        criteria=criteria,
        work=str(work),
        order=order.how,
        notes=order.notes,
        repeat=repeat,
    )
    log.begin(folder.log, header)
    return folder


def lines_of(effect: Effect, runs: Sequence[RunRead]) -> tuple[Line, ...]:
    """Runs that a comparison has read, as trials of a candidate that is not known yet (0): one value each, the median of its steps."""
    larger = effect.relative is None or effect.worse is None or (effect.relative > 0) == (effect.worse > 0)
    return tuple(
        Line(
            trial=Trial(candidate=0, number=0, state="measured", values=(run.value,), text=""),
            seconds=0.0,
            unit=effect.unit,
            larger_is_worse=larger,
        )
        for run in runs
    )


def measured_before(folder: SearchFolder, seen: Mapping[str, Sequence[Line]]) -> int:
    """Put runs that were read elsewhere into the log of a search that has just begun; how many. `seen`: by the candidate's item."""
    kept, _ = log.resume(folder.log)
    places = {entry.item: place for place, entry in enumerate(kept.header.experiment.entries)}
    for item, lines in seen.items():
        for line in lines:
            if item in places:
                trial = replace(line.trial, candidate=places[item], number=len(kept.lines) + 1)
                kept.append(replace(line, trial=trial))
    return len(kept.lines)


def run(
    folder: SearchFolder,
    experiment: Experiment | None,
    criteria: Callable[[Criteria], Criteria],
    options: Options,
    numbers: Numbers,
    say: Say,
) -> Bisection:
    """Go on with the search in `folder` to its end, and its document, which is kept there too.

    `experiment`: what the user asked for again, if so; `criteria` makes those of this run from those of the log. Raises StoppedError when
    interrupted.
    """
    if not folder.path.is_dir():
        raise InputError(f"There is no search in {folder.path}.", effect="Nothing was run.", next_step="Check --state.")
    with ExitStack() as stack:
        lock = stack.enter_context(folder.locked(say))
        kept, warning = log.resume(folder.log)
        if warning:
            say(warning)
        if experiment is not None:
            log.check_same(experiment, kept.header.experiment)
        judged_by = criteria(kept.header.criteria)
        named = partial(_candidate_named, kept.header.experiment)
        leave_out(kept, [named(name, "--skip") for name in options.skip])
        try_again(kept, [named(name, "--retry") for name in options.retry])
        rules = load_comparison_rules(tuple(map(Path, kept.header.experiment.rules)))  # a search that is gone on with keeps its rules
        trials = _trials(folder, kept, options, lock, rules)
        if not kept.header.experiment.command:
            measure_series(kept, trials, say)
        answer = search(kept, judged_by, trials.run, numbers, say)
        result = document(folder, kept, judged_by, answer, numbers, rules)
        write_file(folder.path / _REPORT, encode(result).decode(), force=True)
        return result


def _trials(folder: SearchFolder, kept: Log, options: Options, lock: int, rules: ComparisonRules) -> Trials:
    experiment, work = kept.header.experiment, Path(kept.header.work)
    checkout = None
    if experiment.mode == "commits":
        checkout = Checkout(folder.clone, work, keep=experiment.keep_untracked)
        checkout.prepare()
    how = replace(
        options.traces,
        reading={
            **options.traces.reading,
            "config": experiment.config,
            "command": experiment.job_command,
            "overrides": experiment.overrides,
            "rules": experiment.rules,
            "step_range": experiment.step_range,
        },
        rank=experiment.rank,
    )
    first = _first_document(folder, kept)
    return Trials(
        experiment=experiment,
        folder=folder,
        options=how,
        rules=rules,
        lock=lock,
        work=work if checkout is None else checkout.folder,
        checkout=checkout,
        timeout=options.timeout,
        place=None if first is None else place_of(first),
        first=first,
    )


def _first_document(folder: SearchFolder, kept: Log) -> Diagnosis | None:
    """The first diagnosis of the search, where its file is still there."""
    names = (trial.document for trial in kept.trials if trial.document is not None)
    path = next((path for path in (folder.documents / name for name in names) if path.is_file()), None)
    return None if path is None else read_diagnosis(path)


def _candidate_named(experiment: Experiment, name: str, option: str) -> int:
    """The candidate that an option names: by its label, its item, or the beginning of a commit. Raises UsageError."""
    entries = experiment.entries
    named = [index for index, entry in enumerate(entries) if name in (entry.label, entry.item)]
    if not named and experiment.mode == "commits" and len(name) >= 4:
        named = [index for index, entry in enumerate(entries) if entry.item.startswith(name)]
    if len(named) != 1:
        raise SearchError(f"{option} {name} names {len(named)} candidates.", next_step="Give a label as the list has it.")
    return named[0]


def leave_out(kept: Log, candidates: Sequence[int]) -> None:
    """Leave candidates out of the search from here on, as the user asked."""
    for candidate in candidates:
        if _last_state(kept, candidate) != "left_out":
            kept.append(no_value(candidate, len(kept.lines) + 1, "left_out", "Left out with --skip."))


def try_again(kept: Log, candidates: Sequence[int]) -> None:
    """Forget that candidates gave nothing, as the user asked: what failed was no fault of theirs."""
    for candidate in candidates:
        if _last_state(kept, candidate) not in (None, "measured", "retried"):
            kept.append(no_value(candidate, len(kept.lines) + 1, "retried", "To be tried again, as asked with --retry."))


def _last_state(kept: Log, candidate: int) -> TrialState | None:
    """What the last trial of a candidate came to; None where it had none."""
    return next((trial.state for trial in reversed(kept.trials) if trial.candidate == candidate), None)


# --- captures that are there already ----------------------------------------------------------------------------------


def measure_series(kept: Log, trials: Trials, say: Say) -> None:
    """Measure every candidate of which the log holds no trial, all of them by one engine; each is in the log once those before it are."""
    left = [candidate for candidate in range(len(trials.experiment.entries)) if _last_state(kept, candidate) in (None, "retried")]
    if not left:
        return
    from diagnose.pipeline import diagnose_each  # noqa: PLC0415 - imports polars

    captures = [[trials.work / trials.experiment.entries[candidate].item] for candidate in left]
    saved = [is_saved(capture) for capture in captures]
    unsaved = [capture for capture, known in zip(captures, saved, strict=True) if not known]
    with closing(diagnose_each(unsaved, **trials.options.within(trials.work))) as stream:
        for candidate, capture, known in zip(left, captures, saved, strict=True):
            number = len(kept.lines) + 1
            try:
                outcome = read_capture(capture) if known else next(stream)
                if isinstance(outcome, DiagnoseError):
                    raise unusable(outcome, capture) from outcome
                line = trials.measured(candidate, number, outcome)
            except UnusableError as fault:
                line = no_value(candidate, number, "unusable", fault)
            except KeyboardInterrupt as fault:
                raise _stopped(kept, "Interrupted.") from fault
            kept.append(line)
            say(sentences.series_outcome(kept, line))


# --- captures that cost something -------------------------------------------------------------------------------------


def search(kept: Log, criteria: Criteria, run: Runner, numbers: Numbers, say: Say) -> Answer:
    """Go on until there is an answer; each trial is in the log before the next one begins. An interruption is told with how to go on."""
    while True:
        advice = advise(state_of(kept.header, criteria, kept.lines, numbers))
        if isinstance(advice, Answer):
            return advice
        number = len(kept.lines) + 1
        say(sentences.plan(kept, advice, number))
        try:
            line = run(advice.place, number)
        except KeyboardInterrupt as fault:
            raise _stopped(kept, "Interrupted.") from fault
        except StopRequestedError as fault:
            what = f"{fault} That asks for the end of the search (a signal, or 128 and more); it was {fault.label}."
            raise _stopped(kept, what, f" What it printed is in {fault.log}; --skip {fault.label} leaves this candidate out.") from fault
        kept.append(line)
        say(f"  {sentences.outcome(line)}")


def _stopped(kept: Log, what: str, more: str = "") -> StoppedError:
    """What an interruption cost, and how to go on."""
    return StoppedError(
        what,
        effect=f"Kept: {sentences.runs(len(kept.lines))}; the last one is lost.",
        next_step=f"Go on with: diagnose bisect --resume --state {kept.path.parent}{'.' if more else ''}{more}",
    )


_STANDING: Mapping[TrialState, Literal["tried", "hopeless", "left out", "afresh"]] = {
    "measured": "tried",
    "failed": "tried",
    "unusable": "tried",
    "skipped": "hopeless",
    "left_out": "left out",
    "retried": "afresh",
}


def state_of(header: Header, criteria: Criteria, lines: Sequence[Line], numbers: Numbers) -> State:
    """What a log says, as the search sees it: of each capture the median of its values, and how sure that is."""
    question = Question(
        count=len(header.experiment.entries),
        repeats=criteria.repeats,
        again=bool(header.experiment.command),
        first=criteria.first,
        limit=criteria.max_regression,
        smallest=criteria.smallest,
        noise=criteria.noise,
        counts=next((line.unit for line in lines if line.unit), "") == "count",
        retries=criteria.retries,
        reverts=tuple(place for place, entry in enumerate(header.experiment.entries) if git.is_revert(entry.subject)),
    )
    taken = []
    for trial in (line.trial for line in lines):
        value, error = median_with_error(trial.values) if trial.values else (None, 0.0)
        taken.append(Measurement(trial.candidate, value, error, standing=_STANDING[trial.state]))
    return State(question, numbers, taken)


# --- the document -----------------------------------------------------------------------------------------------------


def document(folder: SearchFolder, kept: Log, criteria: Criteria, answer: Answer, numbers: Numbers, rules: ComparisonRules) -> Bisection:
    """The document of a finished search."""
    state = state_of(kept.header, criteria, kept.lines, numbers)
    first = _first_document(folder, kept)
    tool = Tool(name="diagnose", version=__version__, rules_sha256="" if first is None else first.tool.rules_sha256)
    work = Path(kept.header.work)
    origin = partial(_commit, work) if kept.header.experiment.mode == "commits" else lambda _: Origin()
    builder = report.CulpritBuilder(
        header=kept.header, lines=kept.lines, state=state, documents=folder.documents, origin=origin, rules=rules
    )
    return report.report(builder, criteria, answer, tool)


def _commit(work: Path, entry: Entry) -> Origin:
    """Who made a commit, what it says and changes, and of a merge how to look inside it."""
    parents = git.parents_of(work, entry.item)
    author, date = git.author_of(work, entry.item)
    told = Origin(message=git.message_of(work, entry.item), author=author, date=date, diff_stat=git.diff_stat_of(work, entry.item))
    if len(parents) < 2:
        return told
    brought = git.git(work, "rev-list", f"{parents[0]}..{entry.item}").split()
    note = (
        f"{entry.item[:_SHORT_HASH]} is a merge that brings {len(brought) - 1} commits. To look inside: diagnose bisect "
        f"--good {git.git(work, 'merge-base', parents[0], parents[1]).strip()[:_SHORT_HASH]} --bad {parents[1][:_SHORT_HASH]} …"
    )
    return replace(told, note=note)
