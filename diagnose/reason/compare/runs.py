"""The runs of two sides become one comparison: may they be compared, what changed around the code, what moved, is it beyond noise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean, median, median_low
from typing import Any, NamedTuple

from msgspec import Struct, structs
from msgspec.structs import replace

from diagnose.document.comparison import SCHEMA, Comparison, Effect, Mismatch, Normalised, OnUnclear, RunRead, Side, Window
from diagnose.document.device import Spread
from diagnose.document.diagnosis import Diagnosis, Tool
from diagnose.knowledge.comparison import ComparisonRules, NoiseLimits
from diagnose.model.vocabulary import Level
from diagnose.reason.compare.baselines import fingerprint
from diagnose.reason.compare.comparable import Judgement, environment, judge, settings
from diagnose.reason.compare.delta import SplitRun, overlap, step_delta
from diagnose.reason.compare.findings import findings, gate, walls
from diagnose.reason.compare.kernels import KernelChanges, kernels
from diagnose.reason.compare.metrics import NO_STEPS, STEP_TIME, Samples, samples, split_of, steps_of
from diagnose.reason.compare.noise import decide
from diagnose.reason.compare.outcome import besides, held_in_long_steps, outcome
from diagnose.reason.compare.patterns import NO_LONG_STEPS, Held, LongSteps, long_steps, patterns, what_long_steps_hold
from diagnose.reason.compare.work import Place, device
from diagnose.reason.context import window_of
from diagnose.version import __version__

__all__ = ["Named", "compare"]
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


class _Read(Struct, frozen=True, kw_only=True):
    """One run of a side as it is weighed: the metric, in the effect's unit; `scale` is what its times were multiplied by."""

    run: Named
    place: Place
    samples: Samples
    values: Sequence[float]
    scale: Fraction


def compare(
    base: Diagnosis | Sequence[Named],
    new: Diagnosis | Sequence[Named],
    *,
    rules: ComparisonRules,
    base_label: str,
    new_label: str,
    metric: str = STEP_TIME,
    anyway: bool = False,
    max_regression: float | None = None,
    fail_on: Level | None = None,
    on_unclear: OnUnclear | None = None,
    run_noise: float | None = None,
    tokens: tuple[float, float] | None = None,
    tokens_source: str = "",
) -> Comparison:
    """Hold `new` against `base`, each one run or several. Reads the documents only.

    `metric` is one of `metrics.samples`. `anyway`: give figures and a verdict although the runs can't be compared. `max_regression` (a
    share) and `fail_on` make a gate, `on_unclear` what it comes to where it can't be judged. `run_noise`: relative standard deviation
    between runs, where these do not measure it. `tokens`: useful tokens per step of both, as `tokens_source` tells them. Raises MetricError
    where a document does not hold the metric.
    """
    sides = _named(base, base_label), _named(new, new_label)
    first, second = (_middle(side, metric, rules) for side in sides)
    judged, scales = _judged(sides, first, second, rules=rules, anyway=anyway, tokens=tokens, tokens_source=tokens_source)
    here, there = (
        [_read(run, metric, place, scales[id(run.document)], _tokens_of(judged, index), rules) for run in side]
        for index, (side, place) in enumerate(zip(sides, judged.places, strict=True))
    )
    kinds, limits = {window_of(first), window_of(second)}, rules.limits.noise
    window: Window = "capture" if "capture" in kinds else "iteration" if kinds == {"iteration"} else "step"
    rules = replace(rules, words=replace(rules.words, step=window))
    refused = not judged.comparability.comparable and not anyway
    effect = _effect(here, there, judged, max_regression, limits, run_noise, refused=refused)
    changes = KernelChanges() if refused else kernels(first, second, judged.places, judged.scale, limits=rules.limits)
    shared = judged.scale * _share(judged)
    overlaps = () if refused else overlap(first, second, judged.places, shared)
    delta = None if refused else step_delta(_splits(here), _splits(there, _share(judged)), limits=limits, run_noise=run_noise)
    around, alike, around_notes = environment(first, second)
    changed, setting_notes = settings(first, second, rules.job)
    found = () if refused else findings(first, second, judged, rules)
    base_runs, new_runs = ([one.values for one in side] for side in (here, there))
    labels = [[one.run.label for one in side] for side in (here, there)]
    seen = () if refused else patterns(base_runs, new_runs, labels, metric=metric, rules=rules)
    by_mean = NO_LONG_STEPS if refused or effect.unit != "ns" else long_steps(base_runs, new_runs, metric=metric, step=rules.words.step)
    held = what_long_steps_hold(_splits(there if by_mean.change > 0 else here)) if by_mean.sentence else Held()
    return Comparison(
        schema=SCHEMA,
        tool=Tool(name="diagnose", version=__version__, rules_sha256=second.tool.rules_sha256),
        outcome=outcome(
            effect,
            judged,
            first,
            second,
            delta,
            changes.changes if _share(judged) == 1 else (),  # which are per step of another number of tokens
            overlaps,
            rules,
            seen,
            found,
            LongSteps(by_mean.change, f"{by_mean.sentence}{held_in_long_steps(held, rules.words)}"),
            besides(around, changed),
        ),
        base=_side(here, first, base_label, rules),
        new=_side(there, second, new_label, rules),
        comparability=judged.comparability,
        environment=around,
        settings=changed,
        effect=effect,
        delta=delta,
        walls=() if refused else walls(first, second, judged.scale),
        kernels=changes.changes,
        overlap=overlaps,
        findings=found,
        gate=gate(effect, found, max_regression, fail_on, on_unclear, limits=limits, step=rules.words.step),
        notes=(*(() if refused else _notes(here, there, first, second, judged)), *changes.notes, *around_notes, *setting_notes),
        environment_same=alike,
        kernels_same=changes.same,
        window=window,
    )


def _named(side: Diagnosis | Sequence[Named], label: str) -> Sequence[Named]:
    return [Named(label, side)] if isinstance(side, Diagnosis) else side


def _middle(side: Sequence[Named], metric: str, rules: ComparisonRules) -> Diagnosis:
    """The run that stands for its side: the middle one by the metric; the first of captures without steps, whose lengths say nothing."""
    if len(side) == 1 or any(run.document.steps.anchor == NO_STEPS for run in side):
        return side[0].document
    values = [median(samples(run.document, metric, rules=rules).values) for run in side]
    return side[values.index(median_low(values))].document


def _judged(
    sides: tuple[Sequence[Named], Sequence[Named]],
    first: Diagnosis,
    second: Diagnosis,
    *,
    rules: ComparisonRules,
    anyway: bool,
    tokens: tuple[float, float] | None,
    tokens_source: str,
) -> tuple[Judgement, dict[int, Fraction]]:
    """May the middle runs be compared, and every other run with base's; what each run's times are to be multiplied by, by its document."""
    judged = judge(first, second, rules=rules, anyway=anyway, tokens=tokens, tokens_source=tokens_source)
    scales = {id(first): Fraction(1), id(second): judged.scale}
    found = {(one.aspect, one.name) for one in judged.comparability.mismatches if one.state == "refused"}
    further: list[Mismatch] = []
    for side, middle in zip(sides, (first, second), strict=True):
        for run in side:
            if run.document is middle:
                continue
            own = judge(first, run.document, rules=rules, tokens=tokens if middle is second else None)
            scales.setdefault(id(run.document), own.scale)
            refused = [one for one in own.comparability.mismatches if one.state == "refused" and (one.aspect, one.name) not in found]
            found |= {(one.aspect, one.name) for one in refused}
            further += [replace(one, text=f"{run.label}: {one.text}") for one in refused]
    if not further:
        return judged, scales
    seen = judged.comparability
    return replace(judged, comparability=replace(seen, comparable=False, anyway=anyway, mismatches=(*seen.mismatches, *further))), scales


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


def _share(judged: Judgement) -> Fraction:
    """By what a step of new is multiplied for the tokens of one of base; one where the comparison is not per token."""
    tokens = _tokens(judged.comparability.normalised)
    return Fraction(1) if tokens is None else Fraction(tokens[0]) / Fraction(tokens[1])


def _splits(side: Sequence[_Read], share: Fraction = Fraction(1)) -> list[SplitRun]:
    return [SplitRun(steps=split_of(one.run.document, one.place), scale=one.scale * share) for one in side]


def _side(runs: Sequence[_Read], document: Diagnosis, label: str, rules: ComparisonRules) -> Side:
    """One side by its middle run; the lengths are of the steps of all runs."""
    place = runs[0].place
    lengths = sorted(step.window_ns for run in runs for step in steps_of(run.run.document, place))
    return Side(
        label=label,
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
            for one in runs
        ),
    )


def _effect(
    here: Sequence[_Read],
    there: Sequence[_Read],
    judged: Judgement,
    tolerance: float | None,
    limits: NoiseLimits,
    run_noise: float | None,
    *,
    refused: bool,
) -> Effect:
    """The runs, per token or for the same work where that is needed, and what they say; refused: their levels without a verdict."""
    known = here[0].samples
    per_token = known.unit == "ns" and _tokens(judged.comparability.normalised) is not None
    of_both: dict[str, Any] = {
        "metric": known.metric,
        "unit": "ns per token" if per_token else known.unit,
        "n_base": sum(len(one.values) for one in here),
        "n_new": sum(len(one.values) for one in there),
        "runs_base": len(here),
        "runs_new": len(there),
        "level": limits.confidence.value,
    }
    if refused:
        first, second = (fmean(median(one.samples.values) for one in side) for side in (here, there))
        untold: dict[str, Any] = dict.fromkeys(("relative", "worse", "low", "high", "p_value", "smallest"))
        of_both["unit"] = known.unit
        return Effect(base=first, new=second, delta=second - first, basis="none", result="refused", **of_both, **untold)
    found = decide(
        [one.values for one in here],
        [one.values for one in there],
        limits=limits,
        larger_is_worse=known.larger_is_worse,
        tolerance=tolerance,
        paired=bool(known.steps) and known.steps == there[0].samples.steps,
        run_noise=run_noise,
        counts=known.unit == "count",
    )
    said = structs.asdict(found)
    more = said.pop("more") or (None, None)
    return Effect(**of_both, **said, more_base=more[0], more_new=more[1])


def _tokens(normalised: Normalised | None) -> tuple[float, float] | None:
    return (normalised.base_tokens, normalised.new_tokens) if normalised is not None and normalised.unit == "tokens" else None


def _notes(here: Sequence[_Read], there: Sequence[_Read], base: Diagnosis, new: Diagnosis, judged: Judgement) -> tuple[str, ...]:
    """What has to be said of the tables."""
    found = [
        _NO_SPLIT.format(side=side)
        for side, runs in (("base", here), ("new", there))
        if not all(split_of(one.run.document, one.place) for one in runs)
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
    if max(len(here), len(there)) > 1:
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
