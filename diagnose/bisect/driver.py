"""The search itself: advice, a trial, a line in the log, and again, until there is an answer."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from diagnose.bisect.journal import Header, Journal, Judging, Line
from diagnose.bisect.numbers import Numbers
from diagnose.bisect.runs import AskedToStopError, Runner
from diagnose.bisect.search import Answer, Next, Reason, advice_of
from diagnose.bisect.state import Question, State, Taken
from diagnose.document.bisection import Trial
from diagnose.errors import DiagnoseError
from diagnose.model.statistics import median_with_error
from diagnose.render import units
from diagnose.render.reports.bisection import words
from diagnose.render.reports.comparison.story import value


class StoppedError(DiagnoseError):
    """The search stopped, and can be gone on with."""

    exit_code = 130


Say = Callable[[str], None]

_WHY: dict[Reason, str] = {
    "good end": "the good end",
    "bad end": "the bad end",
    "halve": "halves what is left",
    "again": "once more, for certainty",
    "verify": "verifies the step",
}


def question_of(header: Header, judging: Judging, unit: str) -> Question:
    """The question as the search sees it."""
    return Question(
        count=len(header.asked.entries),
        repeats=judging.repeats,
        again=bool(header.asked.command),
        first=judging.first,
        limit=judging.max_regression,
        smallest=judging.smallest,
        noise=judging.noise,
        counts=unit == "count",
    )


def taken_of(trials: Sequence[Trial]) -> list[Taken]:
    """Trials as the search sees them: of each capture the median of its values, and how sure that is."""
    found = []
    for trial in trials:
        value, error = median_with_error(trial.values) if trial.values else (None, 0.0)
        found.append(Taken(trial.candidate, value, error, hopeless=trial.state == "failed"))
    return found


def state_of(header: Header, judging: Judging, lines: Sequence[Line], numbers: Numbers) -> State:
    """What a log says."""
    unit = next((line.unit for line in lines if line.unit), "")
    return State(question_of(header, judging, unit), numbers, taken_of([line.trial for line in lines]))


def search(journal: Journal, judging: Judging, run: Runner, numbers: Numbers, say: Say) -> Answer:
    """Go on until there is an answer; each trial is in the log before the next one begins. An interruption is told with how to go on."""
    while True:
        advice = advice_of(state_of(journal.header, judging, journal.lines, numbers))
        if isinstance(advice, Answer):
            return advice
        number = len(journal.lines) + 1
        say(_plan(journal, advice, number))
        try:
            line = run(advice.place, number)
        except KeyboardInterrupt as fault:
            raise _stopped(journal, "Interrupted.", "") from fault
        except AskedToStopError as fault:
            what = f"{fault} That asks for the end of the search (a signal, or 128 and more); it was {fault.label}."
            raise _stopped(journal, what, f" What it printed is in {fault.log}; --skip {fault.label} leaves this candidate out.") from fault
        journal.append(line)
        say(_outcome(line))


def _stopped(journal: Journal, what: str, more: str) -> StoppedError:
    return StoppedError(
        what,
        effect=f"{units.plural(len(journal.lines), 'run')} are kept, the last one is lost.",
        next_step=f"Go on with: diagnose bisect --resume --state {journal.path.parent}{'.' if more else ''}{more}",
    )


def skip(journal: Journal, places: Sequence[int]) -> None:
    """Leave candidates out of the search, as the user asked."""
    known = {trial.candidate for trial in journal.trials if trial.state == "failed"}
    for place in places:
        if place not in known:
            trial = Trial(candidate=place, number=len(journal.lines) + 1, state="failed", text="Left out with --skip.")
            journal.append(Line(trial=trial, seconds=0.0))


def _plan(journal: Journal, advice: Next, number: int) -> str:
    """What is run next, why, and how much is left."""
    entry = journal.header.asked.entries[advice.place]
    subject = f" ({entry.subject[:60]})" if entry.subject else ""
    return f"run {number}: {words.short(entry.label)}{subject}, {_WHY[advice.why]}; {_left(journal, advice)}"


def _left(journal: Journal, advice: Next) -> str:
    spent = [line.seconds for line in journal.lines if line.trial.state == "measured"]
    runs = (
        f"about {advice.expected} runs left, {advice.most} at most"
        if advice.most > advice.expected
        else f"about {advice.expected} runs left"
    )
    return runs if not spent else f"{runs}; about {duration(statistics.median(spent) * advice.expected)}"


def duration(seconds: float) -> str:
    """A time to wait, roughly."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _outcome(line: Line) -> str:
    if line.trial.state != "measured":
        return f"  {line.trial.state}: {line.trial.text}"
    return f"  {value(median_with_error(line.trial.values)[0], line.unit)}{f'. {line.trial.text}' if line.trial.text else ''}"
