"""The diagnosis as one HTML file: offline, without a single request, readable without JavaScript, in print and in the dark."""

from __future__ import annotations

from typing import Any

from diagnose.document.diagnosis import Diagnosis
from diagnose.render import page, rank_page
from diagnose.render.figures import figures_of
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
        figures_of(document),
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
