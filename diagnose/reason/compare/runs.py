"""The runs of two sides become one comparison: may they be compared, what changed around the code, what moved, is it beyond noise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean, median, median_low
from typing import Any, NamedTuple

from msgspec import Struct, structs
from msgspec.structs import replace

from diagnose.document.comparison import (
    SCHEMA,
    Comparison,
    Effect,
    Gate,
    Mismatch,
    Normalised,
    OnUnclear,
    RunRead,
    Side,
    Window,
)
from diagnose.document.device import Spread
from diagnose.document.diagnosis import Diagnosis, Tool
from diagnose.knowledge.comparison import ComparisonRules
from diagnose.model.vocabulary import Level
from diagnose.reason.compare.baselines import fingerprint
from diagnose.reason.compare.causes import Changes, common_pace
from diagnose.reason.compare.comparable import Judgement, Tokens, environment, judge, settings
from diagnose.reason.compare.delta import SplitRun, overlap, step_delta
from diagnose.reason.compare.findings import findings, gate, walls
from diagnose.reason.compare.kernels import KernelChanges, kernels
from diagnose.reason.compare.metrics import NO_STEPS, STEP_TIME, Samples, samples, split_of, steps_of
from diagnose.reason.compare.noise import decide
from diagnose.reason.compare.outcome import Remarks, besides, held_in_long_steps, outcome
from diagnose.reason.compare.patterns import NO_LONG_STEPS, Held, LongSteps, long_steps, patterns, what_long_steps_hold
from diagnose.reason.compare.work import Place, device
from diagnose.reason.context import window_of
from diagnose.version import __version__

__all__ = ["Named", "Runs", "Terms", "compare", "lone"]
_NO_SPLIT = (
    "The {side} document does not hold its steps split by category, so the delta has no categories: diagnose its trace again "
    "with this version of the program."
)


class Named(NamedTuple):
    """One run of a side: its label and document, and what a store tells of it."""

    label: str
    document: Diagnosis
    date: str = ""
    commit: str | None = None


class Runs(NamedTuple):
    """One side of a comparison: its label, and its run or runs."""

    label: str
    runs: Sequence[Named]


def lone(label: str, document: Diagnosis) -> Runs:
    """A side of one run."""
    return Runs(label, [Named(label, document)])


class Terms(Struct, frozen=True, kw_only=True):
    """How two sides are held against each other. `metric` is one of `metrics.samples`.

    `anyway`: give figures and a verdict although the runs can't be compared. `max_regression` (a share) and `fail_on` make a gate,
    `on_unclear` what it comes to where it can't be judged. `run_noise`: relative standard deviation between runs, where these do not
    measure it. `tokens`: useful tokens per step of both, where they are known from elsewhere than the job files.
    """

    metric: str = STEP_TIME
    anyway: bool = False
    max_regression: float | None = None
    fail_on: Level | None = None
    on_unclear: OnUnclear | None = None
    run_noise: float | None = None
    tokens: Tokens | None = None


class _Read(Struct, frozen=True, kw_only=True):
    """One run of a side as it is weighed: the metric, in the effect's unit; `scale` is what its times were multiplied by."""

    run: Named
    place: Place
    samples: Samples
    values: Sequence[float]
    scale: Fraction


class _Side(Struct, frozen=True, kw_only=True):
    """One side as it is weighed: its runs, and the document of the one that stands for it."""

    label: str
    runs: Sequence[_Read]
    document: Diagnosis

    @property
    def values(self) -> list[Sequence[float]]:
        """The metric of each run."""
        return [one.values for one in self.runs]

    def splits(self, share: Fraction = Fraction(1)) -> list[SplitRun]:
        """The steps of each run by category, multiplied by `share`."""
        return [SplitRun(steps=split_of(one.run.document, one.place), scale=one.scale * share) for one in self.runs]


class _Pair(Struct, frozen=True, kw_only=True):
    """Both sides, what was found of their work, and how they are held against each other."""

    base: _Side
    new: _Side
    judged: Judgement
    terms: Terms
    rules: ComparisonRules
    window: Window  # what a step is called, in the words of `rules` too

    @property
    def refused(self) -> bool:
        """Whether no verdict is given."""
        return not self.judged.comparability.comparable and not self.terms.anyway

    @property
    def share(self) -> Fraction:
        """By what a step of new is multiplied for the tokens of one of base; one where the comparison is not per token."""
        tokens = _tokens(self.judged.comparability.normalised)
        return Fraction(1) if tokens is None else Fraction(tokens[0]) / Fraction(tokens[1])


def compare(base: Runs, new: Runs, *, rules: ComparisonRules, terms: Terms) -> Comparison:
    """Hold `new` against `base`, each one run or several; reads the documents only. Raises MetricError where one has no such metric."""
    pair = _pair(base, new, rules, terms)
    first, second, judged, rules = pair.base.document, pair.new.document, pair.judged, pair.rules
    effect = _effect(pair)
    around, alike, around_notes = environment(first, second)
    changed, setting_notes = settings(first, second, rules.job)
    compared = KernelChanges() if pair.refused else kernels(first, second, judged.places, judged.scale, limits=rules.limits)
    changes = _changes(pair, compared)
    spoken = replace(changes, kernels=changes.kernels if pair.share == 1 else ())  # kernels are per step of another number of tokens
    remarks = _remarks(pair, effect, besides(around, changed))
    return Comparison(
        schema=SCHEMA,
        tool=Tool(name="diagnose", version=__version__, rules_sha256=second.tool.rules_sha256),
        outcome=outcome(effect, judged, spoken, rules, remarks),
        base=_described(pair.base, rules),
        new=_described(pair.new, rules),
        comparability=judged.comparability,
        environment=around,
        settings=changed,
        effect=effect,
        delta=changes.delta,
        walls=() if pair.refused else walls(first, second, judged.scale),
        kernels=compared.changes,
        overlap=tuple(changes.overlaps),
        findings=tuple(changes.findings),
        gate=_gate(pair, effect, changes, remarks.long_steps),
        notes=(*(() if pair.refused else _notes(pair)), *compared.notes, *around_notes, *setting_notes),
        environment_same=alike,
        kernels_same=compared.same,
        window=pair.window,
    )


def _pair(base: Runs, new: Runs, rules: ComparisonRules, terms: Terms) -> _Pair:
    """Both sides with their values, in the words for what a step of theirs is."""
    sides = base.runs, new.runs
    first, second = (_middle(side, terms.metric, rules) for side in sides)
    judged, scales = _judged(sides, first, second, rules, terms)
    read = (
        [_read(run, terms.metric, place, scales[id(run.document)], _tokens_of(judged, index), rules) for run in side]
        for index, (side, place) in enumerate(zip(sides, judged.places, strict=True))
    )
    here, there = read
    kinds = {window_of(first), window_of(second)}
    window: Window = "capture" if "capture" in kinds else "iteration" if kinds == {"iteration"} else "step"
    return _Pair(
        base=_Side(label=base.label, runs=here, document=first),
        new=_Side(label=new.label, runs=there, document=second),
        judged=judged,
        terms=terms,
        rules=replace(rules, words=replace(rules.words, step=window)),
        window=window,
    )


def _changes(pair: _Pair, compared: KernelChanges) -> Changes:
    """What changed between the runs of both sides; nothing where no verdict is given."""
    first, second, judged, rules = pair.base.document, pair.new.document, pair.judged, pair.rules
    if pair.refused:
        return Changes(base=first, new=second, delta=None)
    limits, run_noise = rules.limits.noise, pair.terms.run_noise
    return Changes(
        base=first,
        new=second,
        delta=step_delta(pair.base.splits(), pair.new.splits(pair.share), limits=limits, run_noise=run_noise),
        kernels=compared.changes,
        overlaps=overlap(first, second, judged.places, judged.scale * pair.share),
        findings=findings(first, second, judged, rules),
    )


def _remarks(pair: _Pair, effect: Effect, besides: str) -> Remarks:
    """What is said beside the result; of sides without a verdict only what differs besides the code."""
    if pair.refused:
        return Remarks(besides=besides)
    base, new, metric, words = pair.base.values, pair.new.values, pair.terms.metric, pair.rules.words
    labels = [[one.run.label for one in side.runs] for side in (pair.base, pair.new)]
    by_mean = NO_LONG_STEPS if effect.unit != "ns" else long_steps(base, new, metric=metric, step=words.step)
    held = what_long_steps_hold((pair.new if by_mean.change > 0 else pair.base).splits()) if by_mean.sentence else Held()
    return Remarks(
        patterns=patterns(base, new, labels, metric=metric, rules=pair.rules),
        long_steps=by_mean._replace(sentence=f"{by_mean.sentence}{held_in_long_steps(held, words)}"),
        besides=besides,
    )


def _gate(pair: _Pair, effect: Effect, changes: Changes, long: LongSteps) -> Gate | None:
    """Whether the gate that the terms make is met; None where they make none."""
    terms, limits, delta = pair.terms, pair.rules.limits, changes.delta
    return gate(
        effect,
        changes.findings,
        terms.max_regression,
        terms.fail_on,
        terms.on_unclear,
        limits=limits.noise,
        step=pair.rules.words.step,
        long=long,
        one_pace=delta is not None and bool(common_pace(delta.categories, delta.delta_ns, changes.kernels, limits.causes)),
    )


def _middle(side: Sequence[Named], metric: str, rules: ComparisonRules) -> Diagnosis:
    """The run that stands for its side: the middle one by the metric; the first of captures without steps, whose lengths say nothing."""
    if len(side) == 1 or any(run.document.steps.anchor == NO_STEPS for run in side):
        return side[0].document
    values = [median(samples(run.document, metric, rules=rules).values) for run in side]
    return side[values.index(median_low(values))].document


def _judged(
    sides: tuple[Sequence[Named], Sequence[Named]], first: Diagnosis, second: Diagnosis, rules: ComparisonRules, terms: Terms
) -> tuple[Judgement, dict[int, Fraction]]:
    """May the middle runs be compared, and every other run with base's; what each run's times are to be multiplied by, by its document."""
    judged = judge(first, second, rules=rules, anyway=terms.anyway, tokens=terms.tokens)
    scales = {id(first): Fraction(1), id(second): judged.scale}
    found = {(one.aspect, one.name) for one in judged.comparability.mismatches if one.state == "refused"}
    further: list[Mismatch] = []
    for side, middle in zip(sides, (first, second), strict=True):
        for run in side:
            if run.document is middle:
                continue
            own = judge(first, run.document, rules=rules, tokens=terms.tokens if middle is second else None)
            scales.setdefault(id(run.document), own.scale)
            refused = [one for one in own.comparability.mismatches if one.state == "refused" and (one.aspect, one.name) not in found]
            found |= {(one.aspect, one.name) for one in refused}
            further += [replace(one, text=f"{run.label}: {one.text}") for one in refused]
    if not further:
        return judged, scales
    seen = judged.comparability
    return replace(
        judged, comparability=replace(seen, comparable=False, anyway=terms.anyway, mismatches=(*seen.mismatches, *further))
    ), scales


def _read(run: Named, metric: str, place: Place, scale: Fraction, tokens: float | None, rules: ComparisonRules) -> _Read:
    found = samples(run.document, metric, place, rules=rules)
    values: Sequence[float] = found.values
    if tokens is not None and found.unit == "ns":
        values = [value / tokens for value in values]
    elif scale != 1 and found.unit in {"ns", "count"}:
        values = [float(value * scale) for value in values]
    return _Read(run=run, place=place, samples=found, values=values, scale=scale)


def _tokens_of(judged: Judgement, side: int) -> float | None:
    """Useful tokens per step of a side, where the comparison is per token."""
    tokens = _tokens(judged.comparability.normalised)
    return None if tokens is None else tokens[side]


def _described(side: _Side, rules: ComparisonRules) -> Side:
    """One side by its middle run; the lengths are of the steps of all runs."""
    place, document = side.runs[0].place, side.document
    lengths = sorted(step.window_ns for run in side.runs for step in steps_of(run.run.document, place))
    return Side(
        label=side.label,
        rank=place[0],
        device=place[1],
        gpu=device(document, place),
        steps=Spread(median=int(median(lengths)), min=lengths[0], max=lengths[-1], n=len(lengths)),
        anchor=document.steps.anchor,
        target_wall=document.verdict.target_wall,
        certainty=document.verdict.certainty,
        sentence=document.verdict.sentence,
        fingerprint=fingerprint(document, rules),
        runs=tuple(
            RunRead(label=one.run.label, value=median(one.values), n=len(one.values), date=one.run.date, commit=one.run.commit)
            for one in side.runs
        ),
    )


def _effect(pair: _Pair) -> Effect:
    """The runs, per token or for the same work where that is needed, and what they say; refused: their levels without a verdict."""
    here, there, limits = pair.base.runs, pair.new.runs, pair.rules.limits.noise
    known = here[0].samples
    per_token = known.unit == "ns" and _tokens(pair.judged.comparability.normalised) is not None
    of_both: dict[str, Any] = {
        "metric": known.metric,
        "unit": "ns per token" if per_token else known.unit,
        "n_base": sum(len(one.values) for one in here),
        "n_new": sum(len(one.values) for one in there),
        "runs_base": len(here),
        "runs_new": len(there),
        "level": limits.confidence.value,
    }
    if pair.refused:
        first, second = (fmean(median(one.samples.values) for one in side) for side in (here, there))
        untold: dict[str, Any] = dict.fromkeys(("relative", "worse", "low", "high", "p_value", "smallest"))
        of_both["unit"] = known.unit
        return Effect(base=first, new=second, delta=second - first, basis="none", result="refused", **of_both, **untold)
    found = decide(
        pair.base.values,
        pair.new.values,
        limits=limits,
        larger_is_worse=known.larger_is_worse,
        tolerance=pair.terms.max_regression,
        paired=bool(known.steps) and known.steps == there[0].samples.steps,
        run_noise=pair.terms.run_noise,
        counts=known.unit == "count",
    )
    said = structs.asdict(found)
    more = said.pop("more") or (None, None)
    return Effect(**of_both, **said, more_base=more[0], more_new=more[1])


def _tokens(normalised: Normalised | None) -> tuple[float, float] | None:
    return (normalised.base_tokens, normalised.new_tokens) if normalised is not None and normalised.unit == "tokens" else None


def _notes(pair: _Pair) -> tuple[str, ...]:
    """What has to be said of the tables."""
    base, new, judged = pair.base.document, pair.new.document, pair.judged
    found = [
        _NO_SPLIT.format(side=side)
        for side, own in (("base", pair.base), ("new", pair.new))
        if not all(split_of(one.run.document, one.place) for one in own.runs)
    ]
    if _tokens(judged.comparability.normalised) is not None:
        found.append(
            "The verdict is per token, and categories and overlap of the new run are of as many tokens as a step of base has; kernels, walls "
            "and findings are per step, which holds another number of tokens in each run."
        )
    if (base.tool.version, base.tool.rules_sha256) != (new.tool.version, new.tool.rules_sha256):
        found.append(
            "The documents were made by different versions of the program or its rules, so findings, walls and buckets may differ "
            "for that reason: diagnose both traces with the same."
        )
    if max(len(pair.base.runs), len(pair.new.runs)) > 1:
        found.append(
            "Figures of the step and its categories are means over the runs of a side; kernels, overlap, walls, findings and what is "
            "around the code are of the run in the middle of each side."
        )
    if judged.scale != 1:
        found.append(
            f"All times and launches of the new run are multiplied by {float(judged.scale):.4f}, so that both runs do the base's "
            "amount of work."
        )
    return tuple(found)
