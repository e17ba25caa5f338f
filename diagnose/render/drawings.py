"""The static form of the HTML report's figures, made from the same data as the drawn one: bars out of HTML alone."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Part:
    """One coloured piece of a static bar: place and length in percent of the widest bar."""

    left: float
    width: float
    colour: str
    pattern: str
    label: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One labelled static bar."""

    label: str
    text: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure: a key for the script, its title and words, and its static form."""

    key: str
    title: str
    caption: str
    bars: tuple[Bar, ...]
    legend: tuple[tuple[str, str, str], ...]  # label, colour, pattern
    timeline: bool = False
    legend_of_static: bool = False  # the legend explains the static form only
    floating: bool = False  # each bar has one part, which begins at its `left`


def stacked(key: str, title: str, caption: str, figure: dict[str, Any]) -> Drawing:
    """The static form of stacked horizontal bars."""
    traces = figure["data"]
    labels = list(traces[0]["y"])
    totals = [sum(trace["x"][index] for trace in traces) for index in range(len(labels))]
    scale = 100 / (max(totals) or 1)
    bars = []
    for index, label in enumerate(labels):
        left, parts = 0.0, []
        for trace in traces:
            width = trace["x"][index] * scale
            if width:
                parts.append(part_of(trace, left, width, f"{trace['x'][index]:,.3f} ms"))
            left += width
        bars.append(Bar(label=html.unescape(label), text=f"{totals[index]:,.3f} ms", parts=tuple(parts)))
    return Drawing(key=key, title=title, caption=caption, bars=tuple(bars), legend=legend_of(traces))


def part_of(trace: dict[str, Any], left: float, width: float, text: str) -> Part:
    """One bar of a plotly trace as a piece of a static bar."""
    marker = trace["marker"]
    return Part(
        left=round(left, 4),
        width=round(width, 4),
        colour=marker["color"],
        pattern=PATTERN.get(marker.get("pattern", {}).get("shape", ""), ""),
        label=html.unescape(trace["name"]),
        text=text,
    )


# The names that the page's styles have for plotly's fill patterns.
PATTERN = {"/": "slash", "\\": "backslash", "x": "cross", "+": "cross", "-": "dash", ".": "dots"}


def legend_of(traces: list[dict[str, Any]]) -> tuple[tuple[str, str, str], ...]:
    """Label, colour and pattern of each kind of bar, once."""
    parts = [part_of(trace, 0, 0, "") for trace in traces]
    return tuple(dict.fromkeys((part.label, part.colour, part.pattern) for part in parts))
