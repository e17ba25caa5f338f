"""The words, colours and sentences of a comparison that every output says alike."""

from __future__ import annotations

from diagnose.document.comparison import (
    Basis,
    Comparison,
    Effect,
    FindingChange,
    FindingState,
    KernelChangeKind,
    MismatchState,
    Normalised,
    Result,
    Side,
    Window,
)
from diagnose.document.device import Why
from diagnose.reason.compare.outcome import doubtful
from diagnose.render import units, words
from diagnose.render.figures.figure import Look

RESULT: dict[Result, str] = {
    "regression": "Regression",
    "improvement": "Improvement",
    "no_change": "No change",
    "cannot_tell": "Can't tell",
    "refused": "Refused",
}
# one run against one tells of two captures, not of the program
_CAPTURES: dict[Result, str] = {"regression": "The captures differ, for the worse", "improvement": "The captures differ, for the better"}
# and where runs that differ somewhat more than is assumed would look so too
_LIKELY: dict[Result, str] = {"regression": "Likely worse", "improvement": "Likely better"}
BASIS: dict[Basis, str] = {
    "runs": "Student's t over the medians of runs",
    "two captures": "one run against one: the noise between runs is assumed, not measured",
    "single step": "a single step on a side: the noise is assumed, not measured",
    "identical": "both sides hold the same samples",
    "none": "no verdict",
}
MISMATCH: dict[MismatchState, str] = {
    "refused": "no verdict because of it",
    "normalised": "taken out of the figures",
    "noted": "noted",
}
KERNEL: dict[KernelChangeKind, str] = {
    "new": "new",
    "gone": "gone",
    "renamed": "renamed",
    "slower": "slower",
    "faster": "faster",
    "more": "more often",
    "fewer": "less often",
    "moved": "moved",
}
FINDING: dict[FindingState, str] = {
    "new": "new",
    "worse": "worse",
    "gone": "gone",
    "better": "better",
    "not_assessed": "not assessed again",
    "same": "as before",
}
FINDING_ORDER: tuple[FindingState, ...] = ("new", "worse", "gone", "better", "not_assessed", "same")
WHY: dict[Why, str] = {
    "transport": "stalled on communication",
    "packing": "stalled on permute/unpermute",
    "copy": "stalled on a copy",
    "allocator": "CPU in the allocator",
    "host_sync": "CPU in a synchronising call",
    "host_work": "next kernel not launched",
    "dependency_stalled": "wait, cause unknown",
    "step_end": "no compute follows",
}
METRIC = {"step_time": "{window} time", "kernels": "launches"}

COMPUTE = "compute:"


# Greys where the device idles, warm colours where something else than compute ran.
_LOOKS = {
    "transport": Look("exposed communication", "#d55e00", "/", order=100),
    "packing": Look("exposed permute/unpermute", "#e69f00", "x", order=101),
    "copy": Look("exposed copies", "#cc79a7", "\\", order=102),
    "launch_starved": Look("launch-bound", "#4d4d4d", order=103),
    "host_sync": Look("CPU synchronisation", "#7a7a7a", "-", order=104),
    "dependency_stalled": Look("waiting, cause unknown", "#a3a3a3", ".", order=105),
    "idle": Look("idle", "#c8c8c8", order=106),
}


def look(category: str) -> Look:
    """How a category looks, `order` being its place in a bar; one that is not known keeps its own name."""
    if category.startswith(COMPUTE):
        bucket = category.removeprefix(COMPUTE)
        order = list(words.BUCKET_COLOUR).index(bucket) if bucket in words.BUCKET_COLOUR else 99
        return Look(f"compute: {words.bucket(bucket)}", words.bucket_colour(bucket), order=order)
    return _LOOKS.get(category) or Look(words.words(category), "#8c6d5a", ".", order=107)


def metric(name: str, window: Window = "step") -> str:
    """What a metric is called; `window`: what times are of."""
    if name in METRIC:
        return METRIC[name].format(window=window)
    if name in _LOOKS or name.startswith(COMPUTE):
        return look(name).label
    if name.startswith("bucket:"):
        return f"bucket {words.bucket(name.removeprefix('bucket:'))}"
    return words.words(name)


def value(amount: float | None, unit: str) -> str:
    """A value of the metric with its unit."""
    if amount is None:
        return units.NOT_MEASURED
    match unit:
        case "ns":
            return units.ms_unit(amount)
        case "ns per token":
            return f"{amount:,.1f} ns per token"
        case "share":
            return units.percent(amount, 2)
        case "bytes":
            return units.size(amount)
        case _:
            return f"{units.count(amount)} {'' if unit == 'count' else unit}".rstrip()


def signed(amount: float | None, unit: str) -> str:
    """A difference of two values, with its sign and unit."""
    if amount is None:
        return units.NOT_MEASURED
    text = value(abs(amount), unit)
    if not amount or not any(sign in "123456789" for sign in text):
        return text
    return f"{'+' if amount > 0 else '-'}{text}"


def headline(document: Comparison) -> str:
    """The result in a word or two."""
    effect = document.effect
    if effect.basis in ("two captures", "single step") and document.outcome.result in _CAPTURES:
        return (_LIKELY if doubtful(effect) else _CAPTURES)[document.outcome.result]
    if document.outcome.result == "no_change" and document.gate is not None and document.gate.met is False:
        return f"{_median(document).capitalize()} unchanged"  # long steps, or a finding, failed the gate
    return RESULT[document.outcome.result]


def gate(document: Comparison) -> str:
    """What became of the gate, in a word or two; empty where none was asked for."""
    if document.gate is None:
        return ""
    return {True: "Gate met", False: "Gate not met", None: "Gate not judged"}[document.gate.met]


def runs(effect: Effect) -> str:
    """How many runs and samples stand against how many, new against base as in every figure of a change."""
    of_runs = f"{units.plural(effect.runs_new, 'run')} against {effect.runs_base}"
    return f"{of_runs}, {units.plural(effect.n_new, 'sample')} against {effect.n_base}"


def movement(document: Comparison) -> str:
    """How the metric moved, as one phrase without a verdict."""
    effect = document.effect
    return f"{metric(effect.metric, document.window)} {_levels(effect)}{_relative(effect)}"


def _relative(effect: Effect) -> str:
    """The relative change behind two levels, to as many decimals as the table of where it comes from; nothing where it is not known."""
    return "" if effect.relative is None else f" ({units.signed_percent(effect.relative, 2)})"


def _levels(effect: Effect) -> str:
    return f"{value(effect.base, effect.unit)} → {value(effect.new, effect.unit)}"


def effect_lines(document: Comparison) -> list[tuple[str, str]]:
    """The effect with its interval and noise: label and text, one line each."""
    effect = document.effect
    interval = units.NOT_MEASURED
    if effect.low is not None and effect.high is not None:
        interval = f"{signed(effect.low, effect.unit)} to {signed(effect.high, effect.unit)}"
    p_value = "not possible" if effect.p_value is None else "p < 0.0001" if effect.p_value < 0.0001 else f"p = {effect.p_value:.4f}"
    normalised = document.comparability.normalised
    return [
        (f"{metric(effect.metric, document.window)}{_statistic(effect)}", _levels(effect)),
        ("difference of levels", f"{signed(effect.delta, effect.unit)}{_relative(effect)}"),
        (f"{effect.level * 100:.0f} % interval of it", interval),
        ("runs and samples", runs(effect)),
        ("noise between runs", _between(effect)),
        ("noise of steps in a run", units.NOT_MEASURED if effect.within is None else units.percent(effect.within, 2)),
        ("probability of as much by noise", p_value),
        (
            "found in four of five such comparisons",
            "unknown" if effect.smallest is None else f"a change of {units.percent(effect.smallest)} or more",
        ),
        ("the verdict rests on", BASIS[effect.basis]),
        *([] if normalised is None else [_normalised(normalised)]),
    ]


def _median(document: Comparison) -> str:
    """The statistic that a verdict is about."""
    return f"median {metric(document.effect.metric, document.window)}"


def _statistic(effect: Effect) -> str:
    """Which of a side's values its level is, where there are several."""
    return ", mean of the runs' medians" if max(effect.runs_base, effect.runs_new) > 1 else ", median" if effect.n_base > 1 else ""


def _between(effect: Effect) -> str:
    """The standard deviation of runs around their level, and where it is from."""
    if effect.between is None or effect.source is None:
        return units.NOT_MEASURED
    return f"{units.percent(effect.between, 2)}, {effect.source}"


def _normalised(found: Normalised) -> tuple[str, str]:
    """By what the figures are normalised."""
    if found.unit == "tokens":
        return "useful tokens", f"{units.count(found.base_tokens)} → {units.count(found.new_tokens)} per step, from {found.source}"
    return "work of the same kernels", f"{units.ms(found.base_tokens)} → {units.ms_unit(found.new_tokens)}, from {found.source}"


def whole(document: Comparison) -> str:
    """What is compared: the median step, or the capture where neither was cut into steps."""
    if "capture" in (document.base.anchor, document.new.anchor):  # of older documents too
        return "capture"
    several = max(len(document.base.runs), len(document.new.runs)) > 1
    return f"mean of the runs' median {document.window}s" if several else f"median {document.window}"


def per(document: Comparison) -> str:
    """What the figures of tables are per."""
    return "per capture" if whole(document) == "capture" else f"per {document.window}"


def comparable(document: Comparison) -> str:
    """Whether the two may be compared, in one sentence."""
    found = document.comparability
    if found.comparable:
        return "They may be compared: no recorded difference in the work."
    if found.anyway:
        return "They can't be compared as they are; the figures are given because --anyway asked for them."
    return "They can't be compared, so there is no verdict. --anyway gives the figures all the same."


def refused(document: Comparison) -> bool:
    """Whether there are no figures to show."""
    return document.outcome.result == "refused"


NO_FIGURES = "The comparison is refused, so there are no figures of what moved."


def no_settings(document: Comparison) -> str:
    """Why no setting is listed: none differs, or a job file is missing."""
    return "not compared: a job file is missing" if any("settings were not compared" in note for note in document.notes) else "no setting"


def unknown(document: Comparison, most: int = 12) -> str:
    """What one side or both did not record; empty where both did."""
    names = document.comparability.unknown
    return f"Not recorded on both sides, so not compared: {units.listed(names, most)}." if names else ""


def same_environment(document: Comparison) -> str:
    """How much around the code is the same."""
    return f"{units.plural(document.environment_same, 'thing')} around the code recorded on both sides, identical."


def runs_of(side: Side) -> str:
    """The runs of a side: how many, and from when to when and of which commits where that is known."""
    if len(side.runs) < 2:
        return "1"
    days = sorted(run.date[:10] for run in side.runs if run.date)
    when = "" if not days else f", {days[0]}" if days[0] == days[-1] else f", {days[0]} to {days[-1]}"
    return f"{len(side.runs)}{when}"


def step(side: Side, window: Window) -> str:
    """The step time of a side as one phrase: of several runs the median of all their steps, which is not the mean of their medians."""
    found = side.steps
    what = "capture, not cut into steps:" if side.anchor == "capture" else window
    if found.median is None:
        return "not measured"
    if found.n < 2:
        return f"{what} {units.ms_unit(found.median)} (1 only)"
    of_all = "" if len(side.runs) < 2 else f" of all {len(side.runs)} runs"
    return f"{what} {units.ms_unit(found.median)} (median of {found.n}{of_all}; {units.ms(found.min)} to {units.ms(found.max)})"


def reconciled(document: Comparison) -> str:
    """How the delta adds up."""
    found = document.delta
    if found is None:
        return ""
    told = whole(document) != "capture" and (found.base_steps or found.new_steps)
    sides = (_steps(steps, whose, document.window) for steps, whose in ((found.base_steps, "base"), (found.new_steps, "new")))
    which = f" ({'; '.join(sides)})" if told else ""
    return (
        f"{units.plural(len(found.categories), 'category', 'categories')}, each nanosecond in one of them: their deltas add up to "
        f"{units.signed_ms(found.delta_ns)} ms, that of the {whole(document)}, exactly{which}."
    )


def _steps(indices: tuple[int, ...], whose: str, window: Window) -> str:
    if len(indices) < 2:
        return f"{whose}: {window} {', '.join(map(str, indices))}" if indices else f"{whose}: mean of its runs' median {window}s"
    return f"{whose}: mean of {window}s {' and '.join(map(str, indices))}"


def finding_bound(one: FindingChange) -> str:
    """The bounds of a finding in both runs as one phrase; empty where neither has one."""
    if one.base_bound_ns is None and one.new_bound_ns is None:
        return ""
    if one.base_bound_ns is None:
        return f"at most {units.ms(one.new_bound_ns)} ms"
    if one.new_bound_ns is None:
        return f"was at most {units.ms(one.base_bound_ns)} ms"
    return f"at most {units.ms(one.base_bound_ns)} → {units.ms(one.new_bound_ns)} ms"


def finding_setting(one: FindingChange) -> str:
    """What to change for a finding, and where; empty where nothing is known."""
    if not one.fix:
        return ""
    line = f", line {one.line} of the job file" if one.line is not None else ""
    return f"{one.fix}{f' ({one.key}{line})' if one.key else ''}"


def ordered_findings(document: Comparison) -> list[FindingChange]:
    """New ones first, then worse, gone and better; severest and costliest first within. Those that are as before are left out."""
    return sorted(
        (one for one in document.findings if one.state != "same"),
        key=lambda one: (FINDING_ORDER.index(one.state), words.SEVERITY_RANK[one.severity], -finding_cost(one), one.id),
    )


def finding_cost(one: FindingChange) -> int:
    """What a finding costs more than before, in ns per step."""
    return (one.new_bound_ns or 0) - (one.base_bound_ns or 0)


def same_findings(document: Comparison) -> str:
    """How many findings are as before; empty where none is."""
    number = sum(one.state == "same" for one in document.findings)
    return f"{units.plural(number, 'finding')} {'is' if number == 1 else 'are'} as before." if number else ""
