"""The outcome of a comparison in words: the sentence, what moved, and what weakens it; how figures, categories and metrics are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from diagnose.document.comparison import (
    Category,
    CategoryState,
    Comparability,
    Effect,
    EnvironmentChange,
    KernelChange,
    NoiseSource,
    Normalised,
    Outcome,
    OverlapChange,
    Result,
    SettingChange,
)
from diagnose.document.device import Why
from diagnose.document.diagnosis import Diagnosis, LedgerEntry
from diagnose.knowledge.comparison import ComparisonRules, NoiseLimits
from diagnose.knowledge.templates import capitalised, decimal, enumerated, percent
from diagnose.knowledge.vocabulary import Vocabulary
from diagnose.model.names import shorten
from diagnose.reason.compare.causes import EXCHANGE, Changes, by_kind, causes, in_long_steps, together, uncovered
from diagnose.reason.compare.comparable import Judgement, world_size
from diagnose.reason.compare.metrics import BLOCKING, BUCKET, CATEGORIES, COMPUTE, KERNELS, NO_STEPS, STEP_TIME, place_of
from diagnose.reason.compare.patterns import NO_LONG_STEPS, Held, LongSteps

_CATEGORIES: Mapping[str, str] = {
    "transport": "exposed communication",
    "packing": "exposed permute/unpermute",
    "copy": "exposed copies",
    "launch_starved": "launch-bound time (the next kernel was not launched yet)",
    "host_sync": "idle time under synchronising calls",
    "dependency_stalled": "waiting without a known cause",
    "idle": "idle time without a cause",
}
_LONGEST_NAME = 72
_WORDS = re.compile(r"[\s<>(),]+")


def category_title(name: str, words: Vocabulary) -> str:
    """A category in words, without an article."""
    if name.startswith(COMPUTE):
        return f"compute in {words.bucket(name.removeprefix(COMPUTE))}"
    return _CATEGORIES.get(name, name.replace("_", " "))


def metric_title(metric: str, words: Vocabulary) -> str:
    """A metric as the subject of a sentence."""
    if metric == STEP_TIME:
        return f"the {words.step}"
    if metric == KERNELS:
        return f"the number of kernels per {words.step}"
    if metric.startswith(BUCKET):
        return f"the time in which {words.bucket(metric.removeprefix(BUCKET))} runs"
    if metric.startswith(BLOCKING):
        return f"the time that compute waits for {words.bucket(metric.removeprefix(BLOCKING))}"
    return category_title(metric, words)


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "ns": lambda value: f"{decimal(value / 1e6)} ms",
    "share": percent,
    "bytes": lambda value: f"{decimal(value / 2**30)} GiB",
    "count": lambda value: f"{value:,.0f}" if value == round(value) else f"{value:,.1f}",
    "ns per token": lambda value: f"{decimal(value)} ns per token",
}


def figure(value: float, unit: str) -> str:
    """A value with its unit."""
    return _FORMATS[unit](value) if unit in _FORMATS else f"{decimal(value)} {unit}"


def signed(value: float, unit: str) -> str:
    """A difference with its sign and unit; what is shown as nought has no sign."""
    return _with_sign(value, figure(abs(value), unit))


def signed_share(value: float) -> str:
    """A relative difference with its sign."""
    return _with_sign(value, percent(abs(value)))


def _with_sign(value: float, shown: str) -> str:
    sign = "-" if value < 0 else "+"  # as in every table
    return f"{sign}{shown}" if any(digit in "123456789" for digit in shown) else shown


def ms(ns: float) -> str:
    """Nanoseconds as milliseconds with the unit."""
    return figure(ns, "ns")


# --- the outcome ------------------------------------------------------------------------------------------------------

_SHOWN = 3  # categories that a sentence names
_LEAST = 0.1  # of the step's change that a category has to hold to be named
_WHY: Mapping[Why, str] = {
    "transport": "while compute was stalled on communication",
    "packing": "while compute was stalled on permute/unpermute",
    "copy": "while compute was stalled on a copy",
    "allocator": "under allocator calls",
    "host_sync": "under synchronising calls",
    "host_work": "while the next kernel was not launched yet",
    "dependency_stalled": "without a known cause",
    "step_end": "with no compute after it",
}


class Remarks(NamedTuple):
    """What else is said of a comparison: how steps and runs look, what a few long steps do to the mean, what differs besides the code."""

    patterns: Sequence[str] = ()
    long_steps: LongSteps = NO_LONG_STEPS
    besides: str = ""


def outcome(effect: Effect, judged: Judgement, changes: Changes, rules: ComparisonRules, remarks: Remarks) -> Outcome:
    """The result with its sentences."""
    comparability, limits, by_mean = judged.comparability, rules.limits.noise, remarks.long_steps
    allowed = effect.tolerance if effect.tolerance is not None else limits.tolerance.value
    known = (remarks.besides,) if remarks.besides and effect.result not in {"no_change", "refused"} else ()
    late = _late_rank(changes, rules) if effect.result not in {"no_change", "refused"} else ()
    reasons = (*known, *late, *_reasons(effect, judged, changes.base, changes.new, rules), *remarks.patterns)
    if effect.result == "refused":
        return Outcome(result="refused", sentence=_refusal(comparability), moved="", reasons=reasons)
    moved = effect.result in {"regression", "improvement"}
    return Outcome(
        result=effect.result,
        sentence=_joined(
            _sentence(effect, comparability.normalised, allowed, rules.words, typical=bool(by_mean.sentence)), by_mean.sentence
        ),
        moved=_of_step(
            effect.metric,
            rules.words,
            in_long_steps(changes, by_mean.change, rules.limits.causes),
            _divided(comparability) if moved else "",
            causes(changes, rules.limits.causes) if moved else "",
            _moved(effect.result, changes, rules),
            _walls(changes.base, changes.new, rules.words) if moved else "",
        ),
        reasons=reasons,
    )


def _of_step(metric: str, words: Vocabulary, *parts: str) -> str:
    """What moved in the step, which is said where the comparison is of another metric: it need not be what changed that one."""
    text = _joined(*parts)
    return text if metric == STEP_TIME or not text else f"In the whole {words.step}: {text}"


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def besides(around: Sequence[EnvironmentChange], settings: Sequence[SettingChange] = ()) -> str:
    """What differs besides the code, the device first: it may be the cause, and a reader has to know it; empty where nothing does."""
    device = [one for one in around if one.kind in {"hardware", "clock"}]
    every: list[EnvironmentChange | SettingChange] = [*device, *settings, *(one for one in around if one not in device)]
    said = [f"{one.name} {_shortened(one.base)} → {_shortened(one.new)}" for one in every[:_SHOWN]]
    more = f"; and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"What differs besides the code: {'; '.join(said)}{more}." if said else ""


def _shortened(text: str | None) -> str:
    if text is None:
        return "(not there)"
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def _divided(comparability: Comparability) -> str:
    """That the same batch is cut into another number of micro-batches, which launches everything more or less often."""
    found = next((one for one in comparability.mismatches if one.name == "num_microbatches" and one.state == "noted"), None)
    return f"A step has {found.new} micro-batches, no longer {found.base}." if found is not None else ""


def _refusal(comparability: Comparability) -> str:
    refused = [one for one in comparability.mismatches if one.state == "refused"]
    said = (one.text.partition(":")[0] if one.aspect == "kernels" else f"{one.name} {one.base} → {one.new}" for one in refused[:_SHOWN])
    what = "; ".join(said)
    more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
    return f"The two runs can't be compared, so no verdict is given: {what}{more}. With --anyway the figures are shown all the same."


def held_in_long_steps(held: Held, words: Vocabulary) -> str:
    """What the steps that stand far out have more of, as a sentence that follows; empty where no category holds half of it."""
    if not held.category:
        return ""
    return (
        f" {'It holds' if held.steps == 1 else 'Each holds'} {ms(held.ns)} more of {category_title(held.category, words)} than the others."
    )


# --- the sentence -----------------------------------------------------------------------------------------------------


def _sentence(effect: Effect, normalised: Normalised | None, allowed: float, words: Vocabulary, *, typical: bool = False) -> str:
    """What became of the metric; `typical`: the sentence that follows tells of steps that are not."""
    subject = (
        f"the typical {words.step}"
        if typical and effect.metric == STEP_TIME and normalised is None
        else _subject(effect, normalised, words)
    )
    first, second = figure(effect.base, effect.unit), figure(effect.new, effect.unit)
    figures = f"{without_unit(first, second)} → {second} ({_statistics(effect, words)})"
    if effect.basis == "identical":
        return (
            f"{capitalised(subject)} did not change: the samples of both {'sides' if _several(effect) else 'runs'} are the same, "
            f"{figure(effect.base, effect.unit)} in the median ({_samples(effect, words)})."
        )
    if effect.result == "no_change":
        what = (
            f"{capitalised(subject)} did not change"
            if _several(effect) or typical
            else f"Between these two captures {subject} did not change"
        )
        if _differs(effect):
            return f"{what} by {percent(allowed)} or more; that it did at all is likely, not sure: {figures}."
        return f"{what} beyond noise: {figures}.{_power(effect, allowed)}"
    if effect.result == "cannot_tell":
        return f"Whether {subject} changed is open: {figures}.{_power(effect, allowed)}"
    return f"{'' if _several(effect) else 'These two captures differ: '}{subject if not _several(effect) else capitalised(subject)} {_became(effect)}: {figures}."


def _several(effect: Effect) -> bool:
    """Whether one side at least holds several runs, so that noise between runs is more than an assumption."""
    return max(effect.runs_base, effect.runs_new) > 1


def _subject(effect: Effect, normalised: Normalised | None, words: Vocabulary) -> str:
    if effect.metric != STEP_TIME or normalised is None:
        return metric_title(effect.metric, words) + (" per token" if effect.unit == "ns per token" else "")
    return f"the {words.step}, per token," if normalised.unit == "tokens" else "the same work"


def _became(effect: Effect) -> str:
    size = percent(abs(effect.relative)) if effect.relative is not None else ""
    if effect.metric == STEP_TIME and effect.relative is not None:
        return f"{'became' if _several(effect) else 'is'} {size} {'slower' if effect.delta > 0 else 'faster'}"
    return f"{'grew' if effect.delta > 0 else 'shrank'}{f' by {size}' if size else ''}"


def doubtful(effect: Effect) -> bool:
    """Whether equal runs that differ by more than is assumed would lie as far apart."""
    return effect.doubt is not None and effect.relative is not None and abs(effect.relative) <= effect.doubt


def without_unit(first: str, second: str) -> str:
    """The first of two figures, without the unit that the second says too."""
    number, _, unit = first.partition(" ")
    return number if unit and second.endswith(f" {unit}") else first


def _statistics(effect: Effect, words: Vocabulary) -> str:
    parts = [signed(effect.delta, effect.unit)]
    if effect.relative is not None and effect.result not in {"regression", "improvement"}:
        parts[0] += f", {signed_share(effect.relative)}"
    if effect.low is not None and effect.high is not None:
        low, high = signed(effect.low, effect.unit), signed(effect.high, effect.unit)
        parts.append(f"{effect.level * 100:.0f} % interval {without_unit(low, high)} … {high}")
    parts.append(_runs(effect))
    if not _several(effect):
        parts.append(_samples(effect, words))
    noise = _noise(effect, words)
    return "; ".join(part for part in (", ".join(parts), noise) if part)


def _runs(effect: Effect) -> str:
    """How many runs stand against how many: "3 runs against 10", new against base."""
    if effect.runs_base == effect.runs_new == 1:
        return "1 run against 1 run"
    return f"{effect.runs_new} run{'' if effect.runs_new == 1 else 's'} against {effect.runs_base}"


_SOURCES: Mapping[NoiseSource, str] = {
    "measured": "noise between runs {between} (measured)",
    "partly assumed": "noise between runs {between} (partly assumed: too few runs to measure it)",
    "assumed": "run-to-run noise assumed {between} (not measured)",
    "given": "run-to-run noise taken for {between} (--run-noise, not measured)",
}


def _noise(effect: Effect, words: Vocabulary) -> str:
    """The noise that was reckoned with, and where it is from."""
    if effect.source is None or effect.between is None:
        return ""
    text = _SOURCES[effect.source].format(between=percent(effect.between))
    if effect.basis == "single step":
        text += f", and one {sample(effect, words.step)} can't show how much {sample(effect, words.step)}s differ"
    return f"{text}, within a run {percent(effect.within)}" if effect.within is not None and _several(effect) else text


def sample(effect: Effect, step: str) -> str:
    """What a run has several of: steps; of a metric that is told of a capture as a whole, values."""
    return step if effect.metric == STEP_TIME or effect.metric in CATEGORIES or effect.metric.startswith(COMPUTE) else "value"


def several(effect: Effect, step: str) -> str:
    """What to capture where one sample shows nothing."""
    word = sample(effect, step)
    return "Capture several runs of both." if word in {"value", "capture"} else f"Capture several {word}s of both runs."


def _samples(effect: Effect, words: Vocabulary) -> str:
    word = sample(effect, words.step)
    return f"{effect.n_base} {word}{'' if effect.n_base == 1 else 's'} against {effect.n_new}"


def _power(effect: Effect, allowed: float) -> str:
    if effect.smallest is None or effect.smallest >= 1:
        return ""
    if effect.result == "no_change":
        return f" A change of {percent(effect.smallest)} or more would have shown in four of five such comparisons; a smaller one may be there."
    likely = ""
    if _differs(effect):
        likely = (
            f" It is likely {'more' if effect.delta > 0 else 'less'} than before, but one comparison of equal runs in twenty looks so too."
        )
    return (
        f"{likely} Such runs show a change of {percent(effect.smallest)} or more in four of five comparisons.{_more_runs(effect, allowed)}"
    )


def _differs(effect: Effect) -> bool:
    """Whether the interval leaves out nought, as it does of equal runs in one comparison of twenty."""
    return effect.low is not None and effect.high is not None and (effect.low > 0 or effect.high < 0)


def _more_runs(effect: Effect, allowed: float) -> str:
    """How many runs more would show what is asked about."""
    if effect.more_base is None or effect.more_new is None:
        return ""
    parts = [f"{more} more of {side}" for more, side in ((effect.more_new, "new"), (effect.more_base, "base")) if more]
    return f" {capitalised(enumerated(parts))} would show {percent(allowed)}." if parts else ""


# --- what moved -------------------------------------------------------------------------------------------------------


def _moved(result: Result, changes: Changes, rules: ComparisonRules) -> str:
    """The largest parts of a step's change, up to the last beyond its own noise if one is, then what went against it beyond noise."""
    delta, kernels, overlaps = changes.delta, changes.kernels, changes.overlaps
    if delta is None:
        return ""
    moved = [row for row in delta.categories if row.moved]
    if result == "no_change":
        return _listed("", moved[:_SHOWN], kernels, overlaps, rules.words)
    least = max(_LEAST * abs(delta.delta_ns), rules.limits.noise.category_share.value * delta.base_ns)
    along = [row for row in delta.categories if (row.delta_ns > 0) == (delta.delta_ns > 0) and abs(row.delta_ns) >= least]
    with_it = along[: max((place for place, row in enumerate(along[:_SHOWN], 1) if row.moved), default=_SHOWN)]
    against = [row for row in moved if (row.delta_ns > 0) != (delta.delta_ns > 0)]
    parts = (
        _listed("", with_it, kernels, overlaps, rules.words),
        _listed("Against it, " if with_it else "", against[: _SHOWN - 1], kernels, overlaps, rules.words),
    )
    return " ".join(part for part in parts if part)


def _walls(base: Diagnosis, new: Diagnosis, words: Vocabulary) -> str:
    """Another wall than before."""
    here, there = base.verdict.target_wall, new.verdict.target_wall
    if here is None or there is None or here == there:
        return ""
    return f"The first target is {words.wall_in_text(there)} now; it was {words.wall_in_text(here)} before."


def _listed(
    lead: str, rows: Sequence[Category], kernels: Sequence[KernelChange], overlaps: Sequence[OverlapChange], words: Vocabulary
) -> str:
    return capitalised(f"{lead}{'; '.join(_say(row, kernels, overlaps, words) for row in rows)}.") if rows else ""


_STATES: Mapping[CategoryState, str] = {"small": "which is small", "within noise": "within noise", "same": "the same"}


def _say(row: Category, kernels: Sequence[KernelChange], overlaps: Sequence[OverlapChange], words: Vocabulary) -> str:
    """One category: how it moved, and the exchange, cause or kernel that moved most in it."""
    verb = "grew" if row.delta_ns > 0 else "shrank"
    title, extra = category_title(row.category, words), ""
    if row.category == "transport":
        one = moved_exchange(row, overlaps)
        of_which = "" if one is None else _of_which(row, one)
        extra = ", ".join(
            part for part in (of_which, "" if one is None else why_exposed(row, one, words), _algorithm(row, kernels, words)) if part
        )
        title = title if one is None or of_which else f"{title} of {EXCHANGE[one.kind]}"
    text = f"{title} {verb} by {ms(abs(row.delta_ns))} ({_from_to(row.base_ns, row.new_ns)})"
    text += "" if row.state in {None, "moved"} else f", {_STATES[row.state]}"
    extra = extra or (_kernel(row, kernels, words) if row.category.startswith(COMPUTE) else _cause(row))
    return f"{text}, {extra}" if extra else text


def _from_to(base_ns: int, new_ns: int) -> str:
    """`10.0 → 14.0 ms`."""
    return f"{without_unit(ms(base_ns), ms(new_ns))} → {ms(new_ns)}"


def _of_which(row: Category, one: OverlapChange) -> str:
    """The exchange that holds most of a change of all exposed communication, in its own figures; empty where there is no other."""
    own, whole = _from_to(one.base_exposed_ns, one.new_exposed_ns), _from_to(row.base_ns, row.new_ns)
    return "" if own == whole else f"mostly of {EXCHANGE[one.kind]} ({own})"


def moved_exchange(row: Category, overlaps: Sequence[OverlapChange]) -> OverlapChange | None:
    """The exchange of whatever backends whose exposed time moved with the category; None where no kind holds half of it."""
    summed = [together(rows) for rows in by_kind(overlaps).values()]
    most = max(summed, key=lambda one: abs(one.new_exposed_ns - one.base_exposed_ns), default=None)
    moved = 0 if most is None else most.new_exposed_ns - most.base_exposed_ns
    return most if moved * row.delta_ns > 0 and 2 * abs(moved) >= abs(row.delta_ns) else None


def why_exposed(row: Category, one: OverlapChange, words: Vocabulary) -> str:
    """Whether the exchange itself took another time, or less of that time ran beside other work; whichever explains more of the change."""
    if one.base_overlap is None or one.new_overlap is None:
        return ""
    by_time, by_overlap = one.new_busy_ns - one.base_busy_ns, uncovered(one)
    way = 1 if row.delta_ns > 0 else -1
    if way * by_overlap >= max(way * by_time, abs(row.delta_ns) / 2):
        return f"because {'less' if way > 0 else 'more'} of it runs beside other work ({percent(one.base_overlap)} → {percent(one.new_overlap)})"
    if way * by_time >= abs(row.delta_ns) / 2 and 2 * way * _by_count(one) >= abs(by_time):
        return f"because it runs {'more' if way > 0 else 'less'} often ({one.base_count} → {one.new_count} per {words.step})"
    if way * by_time >= abs(row.delta_ns) / 2:
        return f"because it runs {'longer' if way > 0 else 'shorter'} ({_from_to(one.base_busy_ns, one.new_busy_ns)})"
    return ""


def _late_rank(changes: Changes, rules: ComparisonRules) -> Iterator[str]:
    """That ranks which were not captured may be late, where exchanges take longer: the captured ones wait inside of them."""
    delta, new = changes.delta, changes.new
    row = None if delta is None else next((one for one in delta.categories if one.category == "transport"), None)
    one = None if row is None or row.delta_ns <= 0 or not row.moved else moved_exchange(row, changes.overlaps)
    captured, world = {place.rank for place in new.budget if place.per_step}, world_size(new, rules.job)
    if row is None or one is None or world is None or len(captured) >= world or "runs longer" not in why_exposed(row, one, rules.words):
        return
    yield (
        f"{len(captured)} of {world:,} ranks {'was' if len(captured) == 1 else 'were'} captured: waiting for a late one of the others looks "
        "like an exchange that runs longer. Capture all ranks, or those of one group, in the same steps of both runs."
    )


def _by_count(one: OverlapChange) -> float:
    """What an exchange takes more (ns per step) because it runs more often, at base's length; nought where that is not known."""
    if not one.base_count or one.new_count is None:
        return 0.0
    return (one.new_count / one.base_count - 1) * one.base_busy_ns


def _cause(row: Category) -> str:
    """The part of the category that moved most, where it has more than one; that compute waits for what runs need not be said."""
    parts = [part for part in row.parts if (part.delta_ns > 0) == (row.delta_ns > 0)]
    if len(row.parts) < 2 or not parts:
        return ""
    most = max(parts, key=lambda part: abs(part.delta_ns))
    if most.why == row.category:
        return ""
    return f"{ms(abs(most.delta_ns)) if abs(most.delta_ns) < abs(row.delta_ns) else 'all'} of it {_WHY[most.why]}"


def _algorithm(row: Category, kernels: Sequence[KernelChange], words: Vocabulary) -> str:
    """The collective in whose place another runs (ring or tree, LL or Simple), where it explains at least half of a change of transport."""
    way = 1 if row.delta_ns > 0 else -1
    own = [one for one in kernels if one.kind == "renamed" and one.role == "transport"]
    most = max(own, key=lambda one: way * one.delta_ns, default=None)
    return "" if most is None or 2 * way * most.delta_ns < abs(row.delta_ns) else _changed(most, words)


def _kernel(row: Category, kernels: Sequence[KernelChange], words: Vocabulary) -> str:
    """The kernel that explains most of a bucket's change."""
    bucket = row.category.removeprefix(COMPUTE)
    own = [one for one in kernels if one.bucket == bucket and (one.delta_ns > 0) == (row.delta_ns > 0)]
    most = max(own, key=lambda one: abs(one.delta_ns), default=None)
    if most is None or 4 * abs(most.delta_ns) < abs(row.delta_ns):
        return ""
    return f"mostly {_changed(most, words)}"


def _changed(one: KernelChange, words: Vocabulary) -> str:
    name = shorten(one.name, _LONGEST_NAME)
    if one.kind in {"slower", "faster"} and one.base_launch_ns is not None and one.new_launch_ns is not None:
        return f"{name}, {one.kind} per launch ({one.base_launch_ns / 1e3:,.1f} → {one.new_launch_ns / 1e3:,.1f} µs)"
    if one.kind in {"more", "fewer"}:
        return (
            f"{name}, launched {one.kind.replace('more', 'more often').replace('fewer', 'less often')} ({one.base_launches:,} → "
            f"{one.new_launches:,} per {words.step})"
        )
    if one.kind == "renamed" and name == shorten(one.was or "", _LONGEST_NAME):
        return f"{name} with other template arguments{_arguments(one.was or '', one.name)}"
    if one.kind == "renamed":
        return f"{name}, which takes the place of {shorten(one.was or '', _LONGEST_NAME)}"
    return f"{name}, which {'is new' if one.kind == 'new' else 'is gone' if one.kind == 'gone' else 'moved to another stream'}"


def _arguments(was: str, name: str) -> str:
    """The first few words in which two spellings of one kernel differ: " (128 → 64)"; empty where they differ in how many there are."""
    before, after = ([word for word in _WORDS.split(text) if word] for text in (was, name))
    found = [
        pair
        for kind, left, until, right, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if kind == "replace" and until - left == end - right
        for pair in zip(before[left:until], after[right:end], strict=True)
    ]
    said = dict.fromkeys(f"{_tail(old)} → {_tail(new)}" for old, new in found)
    shown = ", ".join([text for text in said if len(text) <= _LONGEST_NAME / 2][:_SHOWN])
    return f" ({shown})" if shown else ""


def _tail(word: str) -> str:
    """A word without the names around it."""
    return word.rpartition("::")[2]


# --- what weakens it --------------------------------------------------------------------------------------------------


def _reasons(effect: Effect, judged: Judgement, base: Diagnosis, new: Diagnosis, rules: ComparisonRules) -> Iterator[str]:
    """What a reader has to know before believing it."""
    weighed = [
        one.text
        for one in judged.comparability.mismatches
        if one.state == "refused" or one.aspect in {"capture", "tokens"} or (one.state == "normalised" and one.aspect == "kernels")
    ]
    yield from weighed
    if effect.result != "refused":
        yield from _samples_reasons(effect, rules.limits.noise, rules.words)
    if judged.lacking and effect.result != "refused" and effect.basis != "identical":
        shapes = " contradict it." if all(map(_shapes, (base, new))) else f" contradict it.{_NO_SHAPES}"
        yield f"Nothing proves that both runs do the same work; their kernels do not{shapes} {judged.lacking}"
    if base.steps.anchor == NO_STEPS == new.steps.anchor and not weighed:
        yield "Neither capture was cut into steps: figures are of the whole capture."
    if base.verdict.perturbed and new.verdict.perturbed:
        yield "The profiler slowed both runs noticeably."
    for side, document, place in (("base", base, judged.places[0]), ("new", new, judged.places[1])):
        if place_of(document) != place and effect.result != "refused":
            yield f"Compared is rank {place[0]}; the {side} run's own verdict is of rank {place_of(document)[0]}."
        lost = [entry for entry in document.ledger if entry.severity in {"data_loss", "error"}]
        if lost:
            yield f"Data was lost in the {side} run: {'; '.join(map(_loss, lost[:_SHOWN]))}."


def _loss(entry: LedgerEntry) -> str:
    """What was lost, by the first sentence that the ledger says of it; how often, where that is more than once."""
    first = entry.meaning.partition(". ")[0].rstrip(".")
    text = f"{first[:1].lower()}{first[1:]}" if first else entry.code
    return f"{text} ({entry.count:,})" if entry.count > 1 else text


_NO_SHAPES = (
    " Launch shapes, which show the size of a kernel's work, are not recorded in both: another size of the model, sequence length or "
    "batch looks like another speed."
)


def _shapes(document: Diagnosis) -> bool:
    """Whether the capture tells how many blocks its kernels have."""
    return document.occupancy is not None and any(row.waves is not None for row in document.occupancy.kernels)


def _samples_reasons(effect: Effect, limits: NoiseLimits, words: Vocabulary) -> Iterator[str]:
    if effect.basis == "single step":
        yield (
            f"{_samples(effect, words)}: how much {sample(effect, words.step)}s of a run differ by chance is not known, and a standard deviation of "
            f"{percent(limits.single_step.value)} is assumed. {several(effect, words.step)}"
        )
    if effect.source in {"assumed", "given"} and effect.basis != "identical":
        doubt = ""
        if effect.result in {"regression", "improvement"} and doubtful(effect) and effect.doubt is not None and effect.between is not None:
            doubt = (
                f"; if it is {percent(limits.doubt.value * effect.between)} (standard deviation), one run of each can't tell a change below "
                f"{percent(effect.doubt)}"
            )
        yield (
            "One run against one shows that two captures differ, not that the program does: how much its runs differ by chance is not "
            f"measured{doubt}. Three runs of each, or a baseline of five (`diagnose baseline add`), measure it."
        )
