"""What a search found: from a log and an answer to the document `bisect/1`; its words are in `sentences`.

The same log, documents and options give the same bytes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, field

from diagnose.bisect import sentences
from diagnose.bisect.log import Criteria, Entry, Header, Line
from diagnose.bisect.model import readings
from diagnose.bisect.search import Answer, ChangePoint, State
from diagnose.bisect.trial import no_value
from diagnose.document.bisection import SCHEMA, Bisection, BisectResult, Candidate, CandidateState, Culprit
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Tool
from diagnose.document.files import read_diagnosis
from diagnose.errors import DiagnoseError, InputError
from diagnose.knowledge.comparison import ComparisonRules
from diagnose.model.statistics import t_quantile
from diagnose.reason.compare.runs import Named, Runs, Terms, compare

_LEFT = 0.25  # of a step: one that leaves more of it took it back in part, which is not said to be undone
_MOST = 5  # traces of a side of a step that are compared


class Origin(Struct, frozen=True, kw_only=True):
    """Where a candidate comes from.

    A commit's whole message, its author's name, its date (ISO 8601), and what git counts as changed; a note about it. Empty of anything
    else.
    """

    message: str = ""
    note: str = ""
    author: str = ""
    date: str = ""
    diff_stat: str = ""


OriginOf = Callable[[Entry], Origin]


# --- the document -----------------------------------------------------------------------------------------------------


def report(builder: CulpritBuilder, criteria: Criteria, answer: Answer, tool: Tool) -> Bisection:
    """The document of the search whose culprits `builder` makes."""
    header, lines, state = builder.header, builder.lines, builder.state
    result = result_of(state, answer)
    culprits = builder.culprits(answer.found) if result != "cannot_tell" else ()
    good, bad = (median_of(state, place) for place in (0, state.last))
    told = next((line for line in lines if line.unit), no_value(0, 0, "failed", ""))
    return Bisection(
        schema=SCHEMA,
        tool=tool,
        metric=header.experiment.metric,
        unit=told.unit,
        result=result,
        sentence=sentences.sentence(header, state, answer, result, culprits, told, [line.trial for line in lines]),
        good=header.experiment.entries[0].label,
        bad=header.experiment.entries[-1].label,
        good_value=good,
        bad_value=bad,
        # known where anything was captured twice, or shares a level with others
        noise=rounded(state.noise.scale) if state.raw and state.noise.freedom > state.prior.freedom else None,
        monotone=monotone(state, answer),
        culprits=culprits,
        candidates=tuple(_candidate(header, state, answer, place) for place in range(len(header.experiment.entries))),
        trials=tuple(line.trial for line in lines),
        notes=(*header.notes, *sentences.notes(header, state, answer, lines, told.unit), *builder.notes),
        kind=header.experiment.mode,
        order=header.order,
        larger_is_worse=told.larger_is_worse,
        window=told.window,
        max_regression=criteria.max_regression,
        command=header.repeat,
    )


def result_of(state: State, answer: Answer) -> BisectResult:
    """The result in a word. A stretch from end to end that stayed open tells nothing."""
    if answer.ends != "differ":
        return "ends_alike" if answer.ends == "alike" else "cannot_tell"
    if len(answer.found) > 1:
        return "several"
    if not answer.found or (answer.found[0].before == 0 and answer.found[0].place == state.last > 1):
        return "cannot_tell"
    return "found" if answer.found[0].place == answer.found[0].before + 1 else "range"


def monotone(state: State, answer: Answer) -> bool:
    """Whether all levels follow each other in one direction."""
    if answer.ends != "differ" or answer.creeping is not None:
        return True
    rises = [new > old for old, new in pairwise(state.posterior.levels) if abs(new - old) >= state.smallest / 2]
    return len(set(rises)) < 2


def median_of(state: State, place: int) -> float | None:
    """The median of a candidate's captures, those left out that contradict the others; None where there is none."""
    kept = [value for index, value in enumerate(state.raw.get(place, ())) if index not in state.flaky.get(place, ())]
    return statistics.median(kept) if kept else None


def rounded(value: float) -> float:
    """Nine digits: what lies beyond depends on the machine's mathematics."""
    return float(f"{value:.9g}")


def taken_back(found: Sequence[ChangePoint]) -> dict[int, ChangePoint]:
    """Steps that a later one took back: place in `found` → the first step after which the metric is nearly where it was before."""
    undone: dict[int, ChangePoint] = {}
    for place, one in enumerate(found):
        if any(one is other for other in undone.values()):
            continue  # it takes a step back itself
        back = (later for later in found[place + 1 :] if abs(later.new - one.base) < _LEFT * abs(one.new - one.base))
        if (last := next(back, None)) is not None:
            undone[place] = last
    return undone


# --- candidates -------------------------------------------------------------------------------------------------------


def _candidate(header: Header, state: State, answer: Answer, place: int) -> Candidate:
    entry = header.experiment.entries[place]
    value = median_of(state, place)
    low = high = None
    if value is not None:
        found = next((one for one in state.measured if one.place == place), readings(place, state.values[place]))
        reach = t_quantile(0.025, state.noise.freedom) * state.noise.scale / math.sqrt(found.count)
        low, high = (rounded(state.transform.back(found.mean + sign * reach)) for sign in (-1, 1))
    tried = len(state.raw.get(place, ()))
    return Candidate(
        label=entry.label, subject=entry.subject, state=_standing(state, answer, place), trials=tried, value=value, low=low, high=high
    )


def _standing(state: State, answer: Answer, place: int) -> CandidateState:
    if place not in state.raw:
        return "skipped" if place in state.exhausted else "untested"
    if answer.ends == "alike" and place in (0, state.last):
        return "good"
    if (
        answer.ends != "differ"
        or answer.creeping is not None
        or place in state.aside
        or any(one.before < place < one.place for one in answer.found)
    ):
        return "cannot_tell"
    index = next(index for index, one in enumerate(state.measured) if one.place == place)
    level, levels = state.posterior.level_of(index), state.posterior.levels
    near = state.smallest / 2
    if abs(level - levels[0]) < near:
        return "good"
    if abs(level - levels[-1]) < near:
        return "bad"
    return "between" if min(levels[0], levels[-1]) < level < max(levels[0], levels[-1]) else "outside"


# --- culprits ---------------------------------------------------------------------------------------------------------


class CulpritBuilder(Struct, frozen=True, kw_only=True):
    """Makes culprits of a search, and collects in `notes` what has to be said about them.

    `documents`: the folder of saved diagnoses; `origin` tells where a commit comes from.
    """

    header: Header
    lines: Sequence[Line]
    state: State
    documents: Path
    origin: OriginOf
    rules: ComparisonRules
    notes: list[str] = field(default_factory=list)

    def culprits(self, found: Sequence[ChangePoint]) -> tuple[Culprit, ...]:
        """The steps, in the order of the candidates."""
        undone = taken_back(found)
        return tuple(self.culprit(one, undone.get(place), *self.sides(found, place)) for place, one in enumerate(found))

    def sides(self, found: Sequence[ChangePoint], number: int) -> tuple[Sequence[int], Sequence[int]]:
        """The candidates before and after a step whose captures are compared.

        The two beside it; of traces, of which each has one capture, the nearest that lie at one level with these.
        """
        one = found[number]
        if self.header.experiment.command:
            return (one.before,), (one.place,)
        first = found[number - 1].place if number else 0
        last = found[number + 1].before if number + 1 < len(found) else self.state.last
        known = [place for place in range(first, last + 1) if place in self.state.raw and place not in self.state.aside]
        return [place for place in known if place <= one.before][-_MOST:], [place for place in known if place >= one.place][:_MOST]

    def culprit(self, found: ChangePoint, undone: ChangePoint | None, before: Sequence[int], after: Sequence[int]) -> Culprit:
        """One step with what it is called, what it says, and what moved from the candidates `before` to those `after`.

        `undone`: the later step that took it back.
        """
        entries = self.header.experiment.entries
        entry = entries[found.place]
        origin = self.origin(entry)
        alone = found.place == found.before + 1
        if origin.note and alone:
            self.notes.append(origin.note)
        base, new = rounded(found.base), rounded(found.new)
        return Culprit(
            label=entry.label,
            subject=entry.subject,
            message=origin.message,
            before=entries[found.before].label,
            base=base,
            new=new,
            relative=rounded((new - base) / abs(base)) if base else None,
            among=tuple(one.label for one in entries[found.before + 1 : found.place]),
            comparison=self._comparison(before, after),
            taken_back_by=None if undone is None else entries[undone.place].label,
            author=(origin.author or None) if alone else None,
            date=(origin.date or None) if alone else None,
            diff_stat=(origin.diff_stat or None) if alone else None,
        )

    def _comparison(self, before: Sequence[int], after: Sequence[int]) -> Comparison | None:
        """All captures before the step against all after it."""
        entries = self.header.experiment.entries
        names = (entries[before[-1]].label, entries[after[0]].label)
        try:
            base, new = Runs(names[0], self._captures(before)), Runs(names[1], self._captures(after))
            return compare(base, new, rules=self.rules, terms=Terms(metric=self.header.experiment.metric, anyway=True))
        except DiagnoseError as fault:
            self.notes.append(f"What moved between {names[0]} and {names[1]} is not known: {fault.what}")
            return None

    def _captures(self, places: Sequence[int]) -> list[Named]:
        """The saved diagnoses of candidates' captures, without those that contradict the others of theirs. Raises InputError."""
        found = []
        for place in places:
            taken = [line.trial for line in self.lines if line.trial.candidate == place and line.trial.values]
            kept = [trial for index, trial in enumerate(taken) if index not in self.state.flaky.get(place, ())]
            found += [
                Named(self.header.experiment.entries[place].label, read_diagnosis(self.documents / str(trial.document)))
                for trial in kept
                if trial.document is not None
            ]
        if not found:
            raise InputError("no diagnosis of it was kept.")
        return found
