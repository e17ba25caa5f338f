"""The diagnosis as one HTML file: offline, without a single request, readable without JavaScript, in print and in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from diagnose.document.diagnosis import Diagnosis
from diagnose.render import drawings, figures, page, rank_page, units
from diagnose.render.options import Options
from diagnose.render.report import Table
from diagnose.render.reports.diagnosis import appendix, story, tables
from diagnose.render.reports.ranks import pair as rank_compare

MOST_DEVICES = 8


def render(document: Diagnosis, _options: Options) -> str:
    """The whole page."""
    ranks = rank_page.page(document)
    compared = None if ranks is None else ranks.comparison
    return page.filled(
        "report.html.j2",
        dict(_figures(document)) | ({} if ranks is None else ranks.figures),
        script="" if compared is None else rank_compare.SCRIPT,
        d=document,
        ranks=ranks,
        compare_json=page.data_block(None if compared is None else compared.data),
        walls=tables.walls(document),
        devices=[_device(document, budget.rank, budget.device, index) for index, budget in enumerate(_devices(document))],
        more_devices=max(0, len(document.budget) - MOST_DEVICES),
        problems=appendix.job_problems(document),
        findings=story.ordered_findings(document),
        tables=_appendix(document),
        unclassified=tables.unclassified(document),
        not_assessed=appendix.not_assessed(document),
        capture=appendix.capture(document),
        ledger=appendix.ledger(document),
        story=story,
        shown_parts=tables.shown_parts,
        known_parts=tables.known_parts,
        whole=tables.whole(document),
        lost=any(entry.severity in ("data_loss", "error") for entry in document.ledger),
        gpu=", ".join(dict.fromkeys(device.name or "GPU name not recorded" for device in document.capture.devices)),
    )


def _devices(document: Diagnosis) -> list[Any]:
    """The devices in their order, the one that the verdict speaks of first, at most MOST_DEVICES."""
    first = tables.focus(document)
    return sorted(document.budget, key=lambda one: one is not first)[:MOST_DEVICES]


def _device(document: Diagnosis, rank: int, device: int, index: int) -> dict[str, Any]:
    budget = next(one for one in document.budget if (one.rank, one.device) == (rank, device))
    return {
        "label": tables.device_label(rank, device),
        "first": index == 0,
        "budget": tables.budget(document, budget),
        "steps": tables.budget_steps(budget),
        "buckets": tables.buckets(document, rank, device),
        "communication": tables.communication(document, rank, device),
        "blocking": tables.blocking(document, rank, device),
        "host": tables.host(document, rank, device),
    }


def _appendix(document: Diagnosis) -> list[Table]:
    return [
        appendix.memory(document),
        appendix.fill(document),
        appendix.occupancy(document),
        appendix.job(document),
        *[table for table in (appendix.job_sizes(document),) if table.rows],
        appendix.totals(document),
        appendix.tables_read(document),
        appendix.facts(document),
    ]


# --- figures ----------------------------------------------------------------------------------------------------------


def _figures(document: Diagnosis) -> Iterator[tuple[str, tuple[figures.Figure, drawings.Drawing]]]:
    """Key, plotly figure and static drawing of each figure that has something to show."""
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
            yield key, (figure, drawings.stacked(key, title, caption, figure))
    if document.timeline is not None:
        yield "timeline", (figures.timeline(document.timeline), _timeline(document))


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
