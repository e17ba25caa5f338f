"""The plotly figures of the HTML report, as plain data: traces and layout, without plotly itself.

Every text from a trace goes through `customdata` and `literal`; a hover template is always our own. The same document gives the
same bytes: no ids, no clock.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from diagnose.document.device import DeviceBudget, Timeline, TimelineOp
from diagnose.document.diagnosis import Diagnosis
from diagnose.render import units, words
from diagnose.render.reports.diagnosis import tables

MOST_BARS = 4_000
MOST_STEPS = 40
_NAME = 90

Figure = dict[str, Any]


def literal(text: str) -> str:
    """A text from a trace as plotly shows it literally: plotly reads a few tags inside labels."""
    return html.escape(units.shorten(text, _NAME), quote=False)


def layout_of(height: int, **more: Any) -> Figure:
    """The layout that all figures share."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 44},
        "bargap": 0.25,
        "font": {"size": 12},
        "hoverlabel": {"align": "left", "font": {"size": 12}},
        "showlegend": False,  # the page has one that wraps at any width
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        **more,
    }


def _milliseconds(values: Iterable[int]) -> list[float]:
    return [round(value / 1e6, 6) for value in values]


def axis_of(title: str = "", **more: Any) -> Figure:
    """One axis."""
    return {"title": {"text": title}, "automargin": True, "zeroline": False, **more}


def _bar(**more: Any) -> Figure:
    return {"type": "bar", "orientation": "h", **more}


def marker_of(colour: str, pattern: str = "") -> Figure:
    """The look of one kind of bar."""
    marker: Figure = {"color": colour, "line": {"width": 0}}
    if pattern:
        marker["pattern"] = {
            "shape": pattern,
            "size": 6,
            "solidity": 0.25,
            "fillmode": "overlay",
            "bgcolor": colour,
            "fgcolor": "rgba(255,255,255,0.55)",
        }
    return marker


def budget(document: Diagnosis, device: DeviceBudget) -> Figure:
    """Stacked bars, one per step, whose parts add up to the step exactly."""
    steps = device.per_step[:MOST_STEPS]
    labels = ["capture" if document.steps.anchor == "capture" else f"step {step.index}" for step in steps]
    traces = [
        _bar(
            name=segment.label,
            y=labels,
            x=_milliseconds(segment.of(step) for step in steps),
            customdata=[[units.percent(segment.of(step) / step.window_ns if step.window_ns else None)] for step in steps],
            hovertemplate=f"{segment.label}<br>%{{x:.3f}} ms · %{{customdata[0]}} of %{{y}}<extra></extra>",
            marker=marker_of(segment.colour, segment.pattern),
        )
        for segment in tables.shown_segments(steps)
    ]
    return {
        "data": traces,
        "layout": layout_of(
            66 + 34 * len(steps), barmode="stack", xaxis=axis_of("ms"), yaxis=axis_of(autorange="reversed", type="category")
        ),
    }


def buckets(document: Diagnosis, rank: int, device: int) -> Figure:
    """Busy against exclusive time of each bucket."""
    rows = tables.bucket_order([row for row in document.buckets if (row.rank, row.device) == (rank, device)])
    names = [literal(words.bucket(row.bucket)) for row in rows]
    parts = (
        ("exclusive: nothing else ran", [row.exclusive_ns for row in rows], ""),
        ("shared: something else ran as well", [row.busy_ns - row.exclusive_ns for row in rows], "/"),
    )
    traces = [
        _bar(
            name=name,
            y=names,
            x=_milliseconds(values),
            customdata=[[units.ms(row.busy_ns), units.ms(row.exclusive_ns), units.count(row.kernels)] for row in rows],
            hovertemplate="%{y}<br>busy %{customdata[0]} ms, exclusive %{customdata[1]} ms<br>%{customdata[2]} kernels<extra></extra>",
            marker=marker_of("#0072b2" if not pattern else "#56b4e9", pattern),
        )
        for name, values, pattern in parts
    ]
    return {
        "data": traces,
        "layout": layout_of(
            66 + 24 * len(rows), barmode="stack", xaxis=axis_of(f"busy, ms {tables.per(document)}"), yaxis=axis_of(autorange="reversed")
        ),
    }


def communication(document: Diagnosis, rank: int, device: int) -> Figure:
    """Hidden against exposed time of each kind and backend, with the part that blocked compute."""
    rows = [row for row in document.communication if (row.rank, row.device) == (rank, device)]
    rows.sort(key=lambda row: (-row.busy_ns, row.kind, row.backend))
    names = [f"{words.COMM_KIND[row.kind]} · {literal(row.backend)}" for row in rows]
    parts = (
        ("exposed: nothing else ran", [row.exposed_ns for row in rows], "#d55e00", ""),
        ("hidden behind other work", [row.busy_ns - row.exposed_ns for row in rows], "#56b4e9", "/"),
    )
    traces = [
        _bar(
            name=name,
            y=names,
            x=_milliseconds(values),
            customdata=[
                [units.ms(row.busy_ns), units.ms(row.exposed_ns), units.ms_unit(row.blocking_ns), units.percent(row.overlap)]
                for row in rows
            ],
            hovertemplate="%{y}<br>busy %{customdata[0]} ms, exposed %{customdata[1]} ms<br>blocking: %{customdata[2]}<br>hidden: %{customdata[3]}<extra></extra>",
            marker=marker_of(colour, pattern),
        )
        for name, values, colour, pattern in parts
    ]
    return {
        "data": traces,
        "layout": layout_of(
            66 + 30 * len(rows), barmode="stack", xaxis=axis_of(f"busy, ms {tables.per(document)}"), yaxis=axis_of(autorange="reversed")
        ),
    }


# --- timeline ---------------------------------------------------------------------------------------------------------


def drawn(timeline: Timeline) -> tuple[list[TimelineOp], int]:
    """The bars that are drawn, longest first chosen, in their order of time; and how many were left out in all."""
    ops = list(timeline.ops)
    room = MOST_BARS - min(len(timeline.gaps), MOST_BARS // 2)
    if len(ops) <= room:
        return ops, timeline.omitted
    longest = sorted(range(len(ops)), key=lambda index: (ops[index].start_ns - ops[index].end_ns, index))[:room]
    return [ops[index] for index in sorted(longest)], timeline.omitted + len(ops) - room


def lanes(ops: Sequence[TimelineOp]) -> list[int | None]:
    """The streams in the order of their work, busiest first; None where the trace does not tell the stream."""
    work: dict[int | None, int] = {}
    for op in ops:
        work[op.stream] = work.get(op.stream, 0) + op.end_ns - op.start_ns
    return sorted(work, key=lambda stream: (-work[stream], -1 if stream is None else stream))


GAP_LANE = "no compute, because"


def gap_parts(timeline: Timeline) -> list[tuple[str, str, str, list[tuple[int, int]]]]:
    """Label, colour, pattern and gaps of each cause, in the order of the budget's parts; unknown causes last."""
    found: dict[words.Look, list[tuple[int, int]]] = {}
    for gap in timeline.gaps[: MOST_BARS // 2]:
        found.setdefault(words.gap_look(gap.cause), []).append((gap.start_ns, gap.end_ns))
    return [(look.label, look.colour, look.pattern, found[look]) for look in sorted(found, key=lambda look: (look.order, look.label))]


def timeline(found: Timeline) -> Figure:
    """One step by stream, and above it the stretches without compute coloured by their cause."""
    ops, _ = drawn(found)
    streams = lanes(ops)
    zero = found.start_ns
    traces = [
        _bar(
            name=literal(f"no compute: {label}"),
            y=[GAP_LANE] * len(gaps),
            base=_milliseconds(start - zero for start, _ in gaps),
            x=_milliseconds(end - start for start, end in gaps),
            customdata=[[literal(label)]] * len(gaps),
            hovertemplate="%{customdata[0]}<br>%{x:.3f} ms, from %{base:.3f} ms<extra></extra>",
            marker=marker_of(colour, pattern),
        )
        for label, colour, pattern, gaps in gap_parts(found)
    ]
    grouped: dict[str, list[TimelineOp]] = {}
    for op in ops:
        grouped.setdefault(op.bucket, []).append(op)
    for bucket in sorted(grouped, key=lambda name: (-sum(op.end_ns - op.start_ns for op in grouped[name]), name)):
        mine = grouped[bucket]
        traces.append(
            _bar(
                name=literal(words.bucket(bucket)),
                y=[f"stream {op.stream}" for op in mine],
                base=_milliseconds(op.start_ns - zero for op in mine),
                x=_milliseconds(op.end_ns - op.start_ns for op in mine),
                customdata=[[literal(op.name), op.kernels, op.role] for op in mine],
                hovertemplate="%{customdata[0]}<br>spans %{x:.3f} ms from %{base:.3f} ms · %{customdata[2]} · kernels: %{customdata[1]}<extra></extra>",
                marker=marker_of(words.bucket_colour(bucket)),
            )
        )
    order = [GAP_LANE, *(f"stream {stream}" for stream in streams)]
    end = round((found.end_ns - zero) / 1e6, 6)
    layout = layout_of(
        66 + 34 * len(order),
        barmode="overlay",
        bargap=0.2,
        xaxis=axis_of("ms from its start", range=[0, end]),
        yaxis=axis_of(type="category", categoryorder="array", categoryarray=order, range=[len(order) - 0.5, -0.5], fixedrange=True),
    )
    return {"data": traces, "layout": layout}
