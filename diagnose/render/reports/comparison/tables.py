"""The tables of a comparison, the same in every output. Cells are plain text that may come from a trace: each output makes it harmless."""

from __future__ import annotations

from collections.abc import Callable

from diagnose.document.comparison import Category, Comparison, KernelChange, Part, Side, Window
from diagnose.model.names import shorten
from diagnose.render import units, words
from diagnose.render.report import Row, Table, rows_of
from diagnose.render.reports.comparison import story

LONGEST_NAME = 60  # of a kernel on a line with another one
LONGEST_VALUE = 160  # of a setting or variable; the JSON output holds all
ABSENT = "(not there)"


def _value(text: str | None) -> str:
    if text is None:
        return ABSENT
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


# --- what is compared -------------------------------------------------------------------------------------------------

_SIDE: tuple[tuple[str, Callable[[Side, Window], str]], ...] = (
    ("run", lambda side, _: _value(side.label)),
    ("compared", lambda side, _: f"rank {side.rank}, device {side.device}"),
    ("GPU", lambda side, _: side.gpu or "not recorded"),
    ("runs", lambda side, _: story.runs_of(side)),
    ("time", story.step),
    ("steps from", lambda side, _: side.anchor),
    ("first target", lambda side, _: f"{words.target(side.target_wall)}, {side.certainty} certainty"),
)


def sides(document: Comparison) -> Table:
    """The two runs."""
    return Table(
        "sides",
        "What is compared",
        rows_of(
            {"figure": label, "base": of(document.base, document.window), "new": of(document.new, document.window)}
            for label, of in _SIDE
            if label != "runs" or max(len(document.base.runs), len(document.new.runs)) > 1
        ),
        whole=True,
    )


def mismatches(document: Comparison) -> Table:
    """In what the two are not the same work."""
    return Table(
        "mismatches",
        "May they be compared?",
        tuple(
            Row(
                {
                    "what": _value(one.name),
                    "base": _value(one.base),
                    "new": _value(one.new),
                    "so": story.MISMATCH[one.state],
                    "why?": one.text,
                },
                strong=one.state == "refused",
            )
            for one in document.comparability.mismatches
        ),
        empty="no recorded difference",
    )


def environment(document: Comparison) -> Table:
    """What changed around the code."""
    return Table(
        "environment",
        "What changed around the code",
        rows_of(
            {"what": _value(one.name), "kind?": one.kind, "base": _value(one.base), "new": _value(one.new)} for one in document.environment
        ),
        note=story.same_environment(document),
        empty=f"nothing: {story.same_environment(document).rstrip('.')}"
        if document.environment_same
        else "not known: the captures do not record it",
    )


def settings(document: Comparison) -> Table:
    """What changed in the job file."""
    return Table(
        "settings",
        "What changed in the job file",
        rows_of(
            {
                "setting": _value(one.name),
                "key": _value(one.key),
                "#line?": units.MISSING if one.line is None else str(one.line),
                "base": _value(one.base),
                "new": _value(one.new),
            }
            for one in document.settings
        ),
        empty=story.no_settings(document),
    )


def effect(document: Comparison) -> Table:
    """How the metric moved, and how sure that is."""
    lines = rows_of({"figure": label, "value": text} for label, text in story.effect_lines(document))
    return Table("effect", "The effect and its noise", lines, whole=True)


# --- the delta, reconciled --------------------------------------------------------------------------------------------


def ordered_categories(document: Comparison) -> list[Category]:
    """Those that moved most first; those without any time on either side are left out."""
    found = () if document.delta is None else document.delta.categories
    return sorted((row for row in found if row.base_ns or row.new_ns), key=lambda row: (-abs(row.delta_ns), story.look(row.category).order))


_UNKNOWN_DELTA = "not known: a document on one side does not hold the split of its steps; make it again from the trace"


def delta(document: Comparison, *, moved_only: bool = False) -> Table:
    """The delta of the median step by category; with `moved_only` those within noise are one row, and causes are left out."""
    found = document.delta
    if found is None:
        return Table("delta", "Where the difference comes from", (), empty=_UNKNOWN_DELTA)
    longest = max((abs(row.delta_ns) for row in found.categories), default=0)
    rows = [Row(_figures(story.whole(document), found.base_ns, found.new_ns, found.base_ns), strong=True)]
    quiet = [row for row in ordered_categories(document) if moved_only and not row.moved]
    for row in ordered_categories(document):
        if row in quiet:
            continue
        rows.append(_category(row, found.base_ns, longest))
        rows += (
            []
            if moved_only
            else [Row(_figures(story.WHY[one.why], one.base_ns, one.new_ns, found.base_ns), indent=2) for one in _shown_parts(row)]
        )
    if quiet:
        label = f"{units.plural(len(quiet), 'category', 'categories')} small or within noise"
        sums = (sum(row.base_ns for row in quiet), sum(row.new_ns for row in quiet))
        rows.append(Row(_figures(label, *sums, found.base_ns), indent=1))
    note = story.reconciled(document)
    return Table(
        "delta-moved" if moved_only else "delta",
        "Where the difference comes from",
        tuple(rows),
        note=note if moved_only else f"{note} Indented: why nothing computed meanwhile.",
        whole=True,
    )


def _figures(label: str, base_ns: int, new_ns: int, whole_ns: int, noise: str = "", interval: str = "") -> dict[str, str]:
    """Label, both times, their difference, and its share of base's step."""
    difference = new_ns - base_ns
    return {
        "category": label,
        "#base ms?": units.ms(base_ns),
        "#new ms?": units.ms(new_ns),
        "#delta ms": units.signed_ms(difference),
        "#of base?": units.signed_percent(difference / whole_ns if whole_ns else None, 2),
        "noise": noise,
        "#95 % interval, ms?": interval,
    }


def _category(row: Category, whole_ns: int, longest: int) -> Row:
    noise = row.state or ("moved" if row.moved else "within noise" if row.delta_ns else "same")  # older documents do not tell the state
    return Row(
        _figures(story.look(row.category).label, row.base_ns, row.new_ns, whole_ns, noise, _interval(row)),
        indent=1,
        strong=row.moved,
        bar=abs(row.delta_ns) / longest if longest else None,
        colour=story.look(row.category).colour,
    )


def _interval(row: Category) -> str:
    if row.low is None or row.high is None:
        return units.MISSING
    return f"{units.signed_ms(row.low)} to {units.signed_ms(row.high)}"


def _shown_parts(row: Category) -> list[Part]:
    """Parts with any time; none where a single one says what the category says."""
    parts = [one for one in row.parts if one.base_ns or one.new_ns]
    return sorted(parts, key=lambda one: -abs(one.delta_ns)) if len(parts) > 1 or any(one.why == "host_work" for one in parts) else []


# --- kernels, overlap, walls ------------------------------------------------------------------------------------------


def kernels(document: Comparison) -> Table:
    """Kernels that changed, those that cost or save most first."""
    rows = sorted(document.kernels, key=lambda one: (-abs(one.delta_ns), one.name))
    same = (
        f"{units.plural(document.kernels_same, 'other kernel')} are as before, or changed by too little to be listed."
        if document.kernels_same
        else ""
    )
    return Table(
        "kernels",
        "Kernels that changed",
        rows_of(
            {
                "change": story.KERNEL[one.kind],
                "$kernel": one.name,
                "#delta ms": units.signed_ms(one.delta_ns),
                "#launches?": _pair(units.count(one.base_launches), units.count(one.new_launches)),
                "#work, ms?": _pair(units.ms(one.base_work_ns), units.ms(one.new_work_ns)),
                "#per launch, µs?": _pair(_micro(one.base_launch_ns), _micro(one.new_launch_ns)),
                "stream?": _pair(_stream(one.was_stream), _stream(one.stream)),
                "bucket?": words.bucket(one.bucket),
            }
            for one in rows
        ),
        note=f"Work {story.per(document)}, median. Slower, faster: per launch; moved: to another stream. {same}".rstrip(),
        empty="none" if document.kernels_same else "not known, or none",
    )


def _pair(base: str, new: str) -> str:
    return base if base == new else f"{base} → {new}"


def _micro(ns: int | None) -> str:
    return units.MISSING if ns is None else f"{ns / 1e3:,.1f}"


def _stream(number: int | None) -> str:
    return units.MISSING if number is None else str(number)


def renamed(document: Comparison) -> Table:
    """Kernels of which more is to be said than figures: above all why renamed and moved ones are taken as the same."""
    return Table(
        "renamed",
        "More on single kernels: how renamed and moved ones were recognised",
        tuple(
            Row(
                {"change?": story.KERNEL[one.kind], "$kernel": one.name, "$in base": _before(one), "why?": one.why},
                line=" ← ".join(shorten(name, LONGEST_NAME) for name in (one.name, one.was or "") if name),
            )
            for one in document.kernels
            if one.why
        ),
        listed=True,
        empty="none",
    )


def _before(one: KernelChange) -> str:
    """What a kernel was in base."""
    if one.kind == "new":
        return units.MISSING
    return one.was or (f"the same, on stream {_stream(one.was_stream)}" if one.kind == "moved" else "the same")


def overlap(document: Comparison) -> Table:
    """Communication whose time or overlap with compute changed, and what was lost of that."""
    return Table(
        "overlap",
        "Overlap of communication with other work",
        rows_of(
            {
                "$communication": f"{words.COMM_KIND[one.kind]}, {_value(one.backend)}",
                "#hidden": _pair(units.percent(one.base_overlap), units.percent(one.new_overlap)),
                "#lost ms": units.signed_ms(one.lost_ns),
                "#exposed, ms?": _pair(units.ms(one.base_exposed_ns), units.ms(one.new_exposed_ns)),
                "#busy, ms?": _pair(units.ms(one.base_busy_ns), units.ms(one.new_busy_ns)),
            }
            for one in document.overlap
        ),
        note="Hidden: beside compute or another exchange. Lost: exposed time that the base's share of overlap would have hidden.",
        empty="no communication whose time or overlap changed",
    )


def walls(document: Comparison) -> Table:
    """The bounds of the walls in both runs."""
    return Table(
        "walls",
        "Walls",
        rows_of(
            {
                "wall": words.wall(one.wall),
                "#base, ≤ ms": units.ms(one.base_ns),
                "#new, ≤ ms": units.ms(one.new_ns),
                "#delta ms": units.signed_ms(one.delta_ns),
            }
            for one in document.walls
        ),
        note=f"Bounds {story.per(document)}; they do not add up.",
        empty="not known",
        whole=True,
    )
