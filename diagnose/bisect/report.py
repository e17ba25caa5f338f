"""From a log and an answer to the document `bisect/1`. The same log, documents and options give the same bytes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from diagnose.bisect import measure
from diagnose.bisect.journal import Entry, Header, Judging, Line
from diagnose.bisect.search import Answer, Found
from diagnose.bisect.state import State
from diagnose.bisect.told import notes_of, sentence_of
from diagnose.document.bisection import SCHEMA, Bisection, BisectResult, Candidate, CandidateState, Culprit
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Diagnosis, Tool
from diagnose.errors import DiagnoseError, InputError
from diagnose.model.statistics import median_with_error, t_quantile
from diagnose.reason.compare import compare

Message = Callable[[Entry], tuple[str, str]]  # a candidate's whole message, and a note about it


def report(
    header: Header, judging: Judging, lines: Sequence[Line], state: State, answer: Answer, *, documents: Path, message: Message, tool: Tool
) -> Bisection:
    """The document. `documents`: the folder of saved diagnoses; `message` tells what a commit says."""
    builder = _Builder(header, lines, state, documents, message)
    result = result_of(state, answer)
    culprits = tuple(builder.culprit(one) for one in answer.found) if result != "cannot_tell" else ()
    good, bad = (median_of(state, place) for place in (0, state.last))
    unit = next((line.unit for line in lines if line.unit), "")
    told = sentence_of(header, state, answer, result, culprits, unit, [line.trial for line in lines])
    return Bisection(
        schema=SCHEMA,
        tool=tool,
        metric=header.asked.metric,
        unit=unit,
        result=result,
        sentence=told,
        good=header.asked.entries[0].label,
        bad=header.asked.entries[-1].label,
        good_value=good,
        bad_value=bad,
        noise=_noise(state),
        monotone=monotone(state, answer),
        culprits=culprits,
        candidates=tuple(_candidate(header, state, answer, place) for place in range(len(header.asked.entries))),
        trials=tuple(line.trial for line in lines),
        notes=(*header.notes, *notes_of(header, state, answer, lines, unit), *builder.notes),
        kind=header.asked.mode,
        order=header.order,
        larger_is_worse=next((line.larger_is_worse for line in lines if line.unit), True),
        max_regression=judging.max_regression,
    )


def result_of(state: State, answer: Answer) -> BisectResult:
    """The result in a word. A stretch from end to end that stayed open tells nothing."""
    if answer.ends != "differ":
        return "ends_alike" if answer.ends == "alike" else "cannot_tell"
    if not answer.found or (len(answer.found) == 1 and _says_nothing(state, answer.found[0])):
        return "cannot_tell"
    if len(answer.found) > 1:
        return "several"
    return "found" if answer.found[0].place == answer.found[0].before + 1 else "range"


def _says_nothing(state: State, found: Found) -> bool:
    return found.before == 0 and found.place == state.last and found.place > 1


def monotone(state: State, answer: Answer) -> bool:
    """Whether all levels follow each other in one direction."""
    if answer.ends != "differ":
        return True
    rises = [new > old for old, new in pairwise(state.steps.levels) if abs(new - old) >= state.smallest / 2]
    return len(set(rises)) < 2


def median_of(state: State, place: int) -> float | None:
    """The median of a candidate's captures, those left out that contradict the others; None where there is none."""
    kept = [value for index, value in enumerate(state.raw.get(place, ())) if index not in state.flaky.get(place, ())]
    return statistics.median(kept) if kept else None


def _noise(state: State) -> float | None:
    """Relative noise of one capture, where anything was captured twice (or shares a level with others)."""
    return rounded(state.noise.scale) if state.raw and state.noise.freedom > state.prior.freedom else None


def rounded(value: float) -> float:
    """Nine digits: what lies beyond depends on the machine's mathematics."""
    return float(f"{value:.9g}")


# --- candidates -------------------------------------------------------------------------------------------------------


def _candidate(header: Header, state: State, answer: Answer, place: int) -> Candidate:
    entry = header.asked.entries[place]
    value = median_of(state, place)
    low = high = None
    if value is not None:
        found = next(one for one in state.found if one.place == place)
        reach = t_quantile(0.025, state.noise.freedom) * state.noise.scale / math.sqrt(found.count)
        low, high = (rounded(state.scale.back(found.mean + sign * reach)) for sign in (-1, 1))
    tried = len(state.raw.get(place, ()))
    return Candidate(
        label=entry.label, subject=entry.subject, state=_standing(state, answer, place), trials=tried, value=value, low=low, high=high
    )


def _standing(state: State, answer: Answer, place: int) -> CandidateState:
    if place not in state.raw:
        return "skipped" if place in state.exhausted else "untested"
    if answer.ends == "alike" and place in (0, state.last):
        return "good"
    if answer.ends != "differ" or any(one.before < place < one.place for one in answer.found):
        return "cannot_tell"
    index = next(index for index, one in enumerate(state.found) if one.place == place)
    level, levels = state.steps.level_of(index), state.steps.levels
    near = state.smallest / 2
    if abs(level - levels[0]) < near:
        return "good"
    if abs(level - levels[-1]) < near:
        return "bad"
    return "between" if min(levels[0], levels[-1]) < level < max(levels[0], levels[-1]) else "outside"


# --- culprits ---------------------------------------------------------------------------------------------------------


class _Builder:
    """Makes culprits, and collects what has to be said about them."""

    def __init__(self, header: Header, lines: Sequence[Line], state: State, documents: Path, message: Message) -> None:
        self.header, self.lines, self.state, self.documents, self.message = header, lines, state, documents, message
        self.notes: list[str] = []

    def culprit(self, found: Found) -> Culprit:
        """One step with what it is called, what it says, and what moved."""
        entries = self.header.asked.entries
        entry = entries[found.place]
        message, note = self.message(entry)
        if note and found.place == found.before + 1:
            self.notes.append(note)
        base, new = rounded(found.base), rounded(found.new)
        return Culprit(
            label=entry.label,
            subject=entry.subject,
            message=message,
            before=entries[found.before].label,
            base=base,
            new=new,
            relative=rounded((new - base) / abs(base)) if base else None,
            among=tuple(one.label for one in entries[found.before + 1 : found.place]),
            comparison=self._comparison(found),
        )

    def _comparison(self, found: Found) -> Comparison | None:
        """The typical capture before the step against that after it."""
        names = (self.header.asked.entries[found.before].label, self.header.asked.entries[found.place].label)
        try:
            base, new = self._typical(found.before), self._typical(found.place)
            return compare(base, new, base_label=names[0], new_label=names[1], metric=self.header.asked.metric, anyway=True)
        except DiagnoseError as fault:
            self.notes.append(f"What moved between {names[0]} and {names[1]} can't be told: {fault.what}")
            return None

    def _typical(self, place: int) -> Diagnosis:
        """The saved diagnosis of the capture that is nearest to its candidate's median. Raises InputError."""
        middle = median_of(self.state, place)
        mine = [
            line.trial for line in self.lines if line.trial.candidate == place and line.trial.document is not None and line.trial.values
        ]
        if middle is None or not mine:
            raise InputError("no diagnosis of it was kept.")
        nearest = min(mine, key=lambda trial: (abs(median_with_error(trial.values)[0] - middle), trial.number))
        return measure.read(self.documents / str(nearest.document))
