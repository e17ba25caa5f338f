"""The figures of a forecast: what changes by category, and the shown step now and likely, on one scale."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from diagnose.document.device import Timeline
from diagnose.document.forecast import Forecast
from diagnose.render import units
from diagnose.render.figures.comparison import LESS, MORE
from diagnose.render.figures.figure import Axis, Bar, Bars, Figure, Note, label, ms
from diagnose.render.figures.step import stream_figure
from diagnose.render.reports.comparison.story import look

MOST_BARS = 14  # categories that have a bar of their own
_WORTH = 0.005  # of the largest change


def width(document: Forecast) -> int:
    """How wide the range of the forecast step is, in ns: its parts are known no better."""
    return 0 if document.step_ns is None else document.step_ns.high - document.step_ns.low


def deltas(document: Forecast) -> Iterator[Figure]:
    """One bar for each category that changes, per step, most first."""
    count, known = max(len(document.steps), 1), width(document)
    rows = [row for row in document.categories if row.delta_ns]
    rows = [row for row in rows if abs(row.delta_ns) >= _WORTH * abs(rows[0].delta_ns)][:MOST_BARS]
    if not rows:
        return
    low, high = min(0, *(row.delta_ns for row in rows)) / count, max(0, *(row.delta_ns for row in rows)) / count
    room = (high - low) / 6
    bars: dict[bool, list[Bar]] = {True: [], False: []}
    for place, row in enumerate(rows):
        mean = row.delta_ns / count
        fields = (
            label(look(row.category).label),
            *(units.ms(ns / count, known) for ns in (row.now_ns, row.likely_ns)),
            units.signed_ms(mean, known),
        )
        bars[row.delta_ns > 0].append(Bar(place, ms(min(mean, 0)), ms(abs(mean)), fields))
    yield Figure(
        key="delta",
        title="What changes, by category",
        caption="Per step (mean), likely less now, what changes most first. Each moment of a step counts once, so that the bars add up to the step.",
        x=Axis(title="ms", low=ms(low - room), high=ms(high + room)),
        y=Axis(names=tuple(label(look(row.category).label) for row in rows)),
        marks=tuple(
            Bars(look=kind, hover="{0}\nnow {1} ms, likely {2} ms\nchange {3} ms", data=tuple(bars[more]))
            for more, kind in ((True, MORE), (False, LESS))
            if bars[more]
        ),
        notes=tuple(
            Note(x=ms(max(row.delta_ns / count, 0)), y=place, text=f"{units.signed_ms(row.delta_ns / count, known)} ms")
            for place, row in enumerate(rows)
        ),
    )


def timelines(document: Forecast) -> Iterator[Figure]:
    """The shown step now and likely, both as long as the longer one."""
    if document.now is None or document.likely is None:
        return
    longest = max(_length(document.now), _length(document.likely))
    for key, title, shown in (("timeline-now", "Now", document.now), ("timeline-likely", "Likely", document.likely)):
        about = f"Step {shown.step}, {units.ms(_length(shown))} ms. Above the streams: gaps without compute, and why."
        figure = stream_figure(shown, key=key, title=title, caption=about)
        yield replace(figure, x=replace(figure.x, high=ms(longest)))


def _length(shown: Timeline) -> int:
    return shown.end_ns - shown.start_ns
