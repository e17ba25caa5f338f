"""Two diagnoses become one comparison: may they be compared, what changed around the code, what moved, and is it more than noise."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from statistics import median

from diagnose.document.comparison import SCHEMA, Comparability, Comparison, Effect, Normalised, Side
from diagnose.document.device import Spread
from diagnose.document.diagnosis import Diagnosis, Tool
from diagnose.knowledge.comparison import ComparisonRules, NoiseLimits
from diagnose.model.vocabulary import Level
from diagnose.reason.compare.baselines import fingerprint
from diagnose.reason.compare.comparable import Judgement, device, environment, judge, settings
from diagnose.reason.compare.delta import overlap, step_delta
from diagnose.reason.compare.findings import findings, gate, walls
from diagnose.reason.compare.kernels import KernelChanges, kernels
from diagnose.reason.compare.metrics import STEP_TIME, Samples, samples, split_of, step_times, steps_of
from diagnose.reason.compare.noise import Design, decide
from diagnose.reason.compare.outcome import outcome
from diagnose.version import __version__

__all__ = ["compare"]
_NO_SPLIT = (
    "The {side} document does not hold its steps split by category, so the delta is not told by category: diagnose its trace again "
    "with this version of the program."
)


def compare(
    base: Diagnosis,
    new: Diagnosis,
    *,
    rules: ComparisonRules,
    base_label: str,
    new_label: str,
    metric: str = STEP_TIME,
    anyway: bool = False,
    max_regression: float | None = None,
    fail_on: Level | None = None,
    tokens: tuple[float, float] | None = None,
    tokens_source: str = "",
) -> Comparison:
    """Hold `new` against `base`. Reads the documents only.

    `metric` is one of `metrics.samples`. `anyway`: give figures and a verdict although the runs can't be compared. `max_regression` (a
    share) and `fail_on` make a gate. `tokens`: useful tokens per step of both runs, as `tokens_source` tells them. Raises MetricError where
    a document does not hold the metric.
    """
    judged = judge(base, new, rules=rules, anyway=anyway, tokens=tokens, tokens_source=tokens_source)
    limits = rules.limits.noise
    here, there = (samples(document, metric, place, rules=rules) for document, place in zip((base, new), judged.places, strict=True))
    refused = not judged.comparability.comparable and not anyway
    effect = _refused(here, there) if refused else _effect(here, there, judged, max_regression, limits)
    delta = (
        None
        if refused
        else step_delta(
            split_of(base, judged.places[0]),
            split_of(new, judged.places[1]),
            judged.scale,
            _corresponding(*(step_times(document, place) for document, place in zip((base, new), judged.places, strict=True))),
            limits=limits,
        )
    )
    changes = KernelChanges() if refused else kernels(base, new, judged.places, judged.scale, limits=rules.limits)
    overlaps = () if refused else overlap(base, new, judged.places, judged.scale)
    around, alike, around_notes = environment(base, new)
    changed, setting_notes = settings(base, new, rules.job)
    found = () if refused else findings(base, new, judged, rules)
    return Comparison(
        schema=SCHEMA,
        tool=Tool(name="diagnose", version=__version__, rules_sha256=new.tool.rules_sha256),
        outcome=outcome(effect, judged, base, new, delta, changes.changes, overlaps, rules, max_regression),
        base=_side(base, base_label, judged.places[0], rules),
        new=_side(new, new_label, judged.places[1], rules),
        comparability=judged.comparability,
        environment=around,
        settings=changed,
        effect=effect,
        delta=delta,
        walls=() if refused else walls(base, new, judged.scale),
        kernels=changes.changes,
        overlap=overlaps,
        findings=found,
        gate=gate(effect, found, max_regression, fail_on),
        notes=(*(() if refused else _notes(base, new, judged)), *changes.notes, *around_notes, *setting_notes),
        environment_same=alike,
        kernels_same=changes.same,
    )


def _corresponding(here: Samples, there: Samples) -> Design:
    """How the values of both sides correspond: the last steps if both are cut short, all of them if both captured the same steps."""
    return Design(last_apart=here.last_is_short and there.last_is_short, paired=bool(here.steps) and here.steps == there.steps)


def _side(document: Diagnosis, label: str, place: tuple[int, int], rules: ComparisonRules) -> Side:
    lengths = sorted(step.window_ns for step in steps_of(document, place))
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
    )


def _refused(here: Samples, there: Samples) -> Effect:
    """The medians as they are, without a verdict on them."""
    first, second = median(here.values), median(there.values)
    untold = dict.fromkeys(("relative", "worse", "low", "high", "p_value", "smallest"))
    return Effect(
        metric=here.metric,
        unit=here.unit,
        base=first,
        new=second,
        delta=second - first,
        n_base=len(here.values),
        n_new=len(there.values),
        basis="none",
        result="refused",
        **untold,
    )


def _effect(here: Samples, there: Samples, judged: Judgement, tolerance: float | None, limits: NoiseLimits) -> Effect:
    """The samples, per token or for the same work where that is needed, and what they say."""
    unit, first, second = _weighed(here, there, judged.comparability, judged.scale)
    design = _corresponding(here, there)
    decision = asdict(decide(first, second, limits=limits, larger_is_worse=here.larger_is_worse, tolerance=tolerance, design=design))
    del decision["spread"]
    return Effect(metric=here.metric, unit=unit, n_base=len(first), n_new=len(second), **decision)


def _weighed(here: Samples, there: Samples, comparability: Comparability, scale: Fraction) -> tuple[str, list[float], list[float]]:
    first, second = list(here.values), list(there.values)
    tokens = _tokens(comparability.normalised)
    if here.unit not in {"ns", "count"}:
        return here.unit, first, second
    if tokens is not None and here.unit == "ns":
        return "ns per token", [value / tokens[0] for value in first], [value / tokens[1] for value in second]
    return here.unit, first, [float(value * scale) if scale != 1 else value for value in second]


def _tokens(normalised: Normalised | None) -> tuple[float, float] | None:
    return (normalised.base_tokens, normalised.new_tokens) if normalised is not None and normalised.unit == "tokens" else None


def _notes(base: Diagnosis, new: Diagnosis, judged: Judgement) -> tuple[str, ...]:
    """What has to be said of the tables."""
    found = [
        _NO_SPLIT.format(side=side)
        for side, document, place in (("base", base, judged.places[0]), ("new", new, judged.places[1]))
        if not split_of(document, place)
    ]
    if _tokens(judged.comparability.normalised) is not None:
        found.append(
            "The verdict is per token; categories, kernels, walls and findings are per step, and a step holds another number of "
            "tokens in each run."
        )
    if (base.tool.version, base.tool.rules_sha256) != (new.tool.version, new.tool.rules_sha256):
        found.append(
            "The documents were made by different versions of the program or its rules, so findings, walls and buckets may differ "
            "for that reason: diagnose both traces with the same."
        )
    if judged.scale != 1:
        found.append(
            f"All times and launches of the new run are multiplied by {float(judged.scale):.4f}, so that both runs do the base's "
            "amount of work."
        )
    return tuple(found)
