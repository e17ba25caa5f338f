"""Sentences about a bisection that every output says alike."""

from __future__ import annotations

from diagnose.document.bisection import Bisection, Culprit
from diagnose.render import units
from diagnose.render.reports.bisection import words
from diagnose.render.reports.comparison.story import value


def headline(document: Bisection) -> str:
    """The result in a word or two."""
    return words.RESULT[document.result]


def effort(document: Bisection) -> str:
    """How much was run."""
    tried = sum(one.state != "untested" for one in document.candidates)
    runs = units.plural(len(document.trials), "run")
    return f"{runs} of {units.plural(tried, words.NOUN[document.kind], words.NOUNS[document.kind])} out of {len(document.candidates):,}"


def noise(document: Bisection) -> str:
    """The noise between captures."""
    return "noise between captures not known" if document.noise is None else f"noise between captures {units.percent(document.noise)}"


def ends(document: Bisection) -> str:
    """Both ends with their values."""
    return (
        f"good end {words.short(document.good)} {value(document.good_value, document.unit)}, "
        f"bad end {words.short(document.bad)} {value(document.bad_value, document.unit)}"
    )


def title_of(document: Bisection, culprit: Culprit) -> str:
    """What a step is called: its candidate, or the stretch that holds it."""
    if culprit.among:
        count = len(culprit.among) + 1
        return f"One of {count} {words.NOUNS[document.kind]} up to {words.short(culprit.label)}"
    return f"{words.NOUN[document.kind].capitalize()} {words.short(culprit.label)}"


def change_of(document: Bisection, culprit: Culprit) -> str:
    """How the metric moved with a step."""
    relative = "" if culprit.relative is None else f" ({units.signed_percent(culprit.relative)})"
    return f"{words.metric(document.metric)} {value(culprit.base, document.unit)} → {value(culprit.new, document.unit)}{relative}"


def among(document: Bisection, culprit: Culprit, most: int = 30) -> str:
    """The candidates that could be it; empty where it is one."""
    if not culprit.among:
        return ""
    names = [words.short(label) for label in (*culprit.among, culprit.label)]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"It is one of {', '.join(names[:most])}{more}. The {words.NOUNS[document.kind]} among them could not be measured, or their captures did not decide."


def shape(document: Bisection) -> str:
    """That the metric goes up and down; empty where it does not."""
    return "" if document.monotone else "The metric does not go one way: between the ends it steps back as well."
