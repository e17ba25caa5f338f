"""The figures of each document as parts of its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.document.bisection import Bisection
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Diagnosis
from diagnose.render import drawings, figures, rank_figures, units, words
from diagnose.render.bisection import figures as bisection_figures
from diagnose.render.comparison import figures as comparison_figures
from diagnose.render.rank_figures import Cell, Heat
from diagnose.render.report import Figure
from diagnose.render.reports.diagnosis import tables

_LEVELS = 5  # shades of the heat map as a table


def _drawn(figure: Mapping[str, Any], drawing: drawings.Drawing, table: object = None) -> Figure:
    return Figure(key=drawing.key, title=drawing.title, drawing=drawing, plotly=figure, table=table)


def comparison(document: Comparison) -> Iterator[Figure]:
    """Both steps as bars, and the way from one to the other."""
    for figure, drawing in comparison_figures.drawn(document).values():
        yield _drawn(figure, drawing)


def bisection(document: Bisection) -> Iterator[Figure]:
    """The metric over the candidates."""
    plain = bisection_figures.plain(document)
    for figure, drawing in bisection_figures.drawn(document).values() if plain is not None else ():
        yield _drawn(figure, drawing, (plain, bisection_figures.WIDTH, bisection_figures.HEIGHT))


def ranks(document: Diagnosis) -> Iterator[Figure]:
    """What differs between like ranks, and each rank's steps."""
    if document.ranks is None:
        return
    heat, strips = rank_figures.heat(document.ranks), rank_figures.strip_drawing(document.ranks)
    if heat is not None:
        yield _drawn(rank_figures.heat_figure(document, heat), _heat_drawing(), _heat_table(heat))
    if strips is not None:
        yield _drawn(*strips)


@dataclass(frozen=True, kw_only=True)
class HeatTable:
    """The heat map as a table: one row per rank, a text and a shade (`m3`: three of five steps more, `l3`: less) per bucket."""

    buckets: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]



def diagnosis(document: Diagnosis) -> Iterator[tuple[Figure, int]]:
    """Each figure that has something to show, and the column that it stands in."""
    device = tables.focus(document)
    if device is None:
        return
    label, rank, number = tables.device_label(device.rank, device.device), device.rank, device.device
    longest = f" The first {figures.MOST_STEPS} steps are drawn." if len(device.per_step) > figures.MOST_STEPS else ""
    plain = (
        (
            "budget",
            "Where the capture went" if document.steps.anchor == "capture" else "Where each step went",
            f"{label}. The parts of a bar add up to its window, exactly.{longest}",
            figures.budget(document, device),
        ),
        (
            "buckets",
            "Buckets: busy and exclusive time",
            f"{label}, {tables.median_per(document)}. Buckets overlap in time.",
            figures.buckets(document, rank, number),
        ),
        (
            "communication",
            "Communication: exposed and hidden",
            f"{label}, {tables.median_per(document)}. Exposed is an upper bound; only blocking time makes a bottleneck.",
            figures.communication(document, rank, number),
        ),
    )
    for key, title, caption, figure in plain:
        if any(trace["x"] for trace in figure["data"]):
            yield _drawn(figure, drawings.stacked(key, title, caption, figure)), {"buckets": 1, "communication": 2}.get(key, 0)
    if document.timeline is not None:
        yield _drawn(figures.timeline(document.timeline), _timeline(document)), 0


def _timeline(document: Diagnosis) -> drawings.Drawing:
    """The static form of the timeline: one lane per stream, and one for the gaps."""
    found = document.timeline
    if found is None:
        raise ValueError("no timeline")
    figure = figures.timeline(found)
    lanes: dict[str, list[drawings.Part]] = {lane: [] for lane in figure["layout"]["yaxis"]["categoryarray"]}
    scale = 100 / (figure["layout"]["xaxis"]["range"][1] or 1)
    for trace in figure["data"]:
        for lane, base, length in zip(trace["y"], trace["base"], trace["x"], strict=True):
            lanes[lane].append(drawings.part_of(trace, base * scale, length * scale, f"{length:,.3f} ms"))
    _, omitted = figures.drawn(found)
    short = f" {units.plural(omitted, 'bar')} too short to draw." if omitted else ""
    window = "The whole capture" if document.steps.anchor == "capture" else f"Step {found.step}"
    return drawings.Drawing(
        key="timeline",
        title="Timeline of one step by stream" if document.steps.anchor != "capture" else "Timeline by stream",
        caption=f"{window} on {tables.device_label(found.rank, found.device)}, {units.ms(found.end_ns - found.start_ns)} ms. Above the streams: when no compute ran, and why.{short}",
        bars=tuple(drawings.Bar(label=lane, text="", parts=tuple(parts)) for lane, parts in lanes.items()),
        legend=drawings.legend_of(figure["data"]),
        timeline=True,
    )


def _heat_drawing() -> drawings.Drawing:
    return drawings.Drawing(
        key="rank-heat",
        title="What differs between like ranks, by bucket",
        caption="Work of each rank less the median of its like group. Orange: more, blue: less. Empty: nothing like it to compare with. "
        "Lines part the groups. Buckets with transport (dispatch, collective) hold the waiting for others too: a late rank has less of it.",
        bars=(),
        legend=(),
    )


def _heat_table(found: Heat) -> HeatTable:
    return HeatTable(
        buckets=tuple(words.words(bucket) for bucket in found.buckets),
        rows=tuple(
            (label, tuple(_heat_cell(row[place], found.largest_ns) for row in found.cells)) for place, label in enumerate(found.labels)
        ),
    )


def _heat_cell(cell: Cell, largest: float) -> tuple[str, str]:
    difference = cell.difference_ns
    if difference is None:
        return units.MISSING, ""
    level = round(_LEVELS * abs(difference) / largest) if largest else 0
    return units.signed_ms(difference), f"{'m' if difference > 0 else 'l'}{level}" if level else ""
