"""The tables about how evenly work is spread over ranks: experts, pipeline stages, the tail of the data-parallel exchange; and notes."""

from __future__ import annotations

from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import ExpertImbalance, Layer, Ranks
from diagnose.render.reports.ranks import story as rank_story, tables as rank_tables
from diagnose.render import units
from diagnose.render.report import Table, columns, rows_of
from diagnose.render.reports.diagnosis.tables import per, whole

MOST_GROUPS = 8  # expert groups whose places are listed


def experts(document: Diagnosis, ranks: Ranks) -> Table:
    """How unevenly the experts' work is spread, by expert-parallel group."""
    found = _by_loss(ranks)
    received = any(one.elements_spread is not None for one in found)
    return Table(
        key="rank-experts",
        title=f"Expert imbalance · {per(document)}",
        columns=columns(
            "ranks",
            "#lost ≤ ms",
            "#longest / mean",
            "#places",
            "busiest",
            "#of places",
            *(("#received, most / mean?",) if received else ()),
        ),
        rows=rows_of(
            [
                [
                    rank_story.ranges(one.ranks),
                    units.ms(one.lost_ns),
                    units.factor(one.spread),
                    units.count(one.places),
                    f"rank {one.busiest}",
                    units.percent(one.busiest_share),
                    *((units.factor(one.elements_spread),) if received else ()),
                ]
                for one in found
            ]
        ),
        note="A place is one expert exchange of the step: a layer and a micro-batch. Lost: at each place the longest expert work less the mean, added up: "
        "the most that perfect balance could win. Longest / mean: the median over places.",
        empty="not measured",
    )


def _by_loss(ranks: Ranks) -> list[ExpertImbalance]:
    return sorted(ranks.experts, key=lambda one: (-one.lost_ns, one.ranks))


def places(document: Diagnosis, ranks: Ranks, most: int = MOST_GROUPS) -> list[Table]:
    """The places that lose most, one table for each of the `most` groups that lose most."""
    return [_places(document, one, index) for index, one in enumerate([one for one in _by_loss(ranks) if one.layers][:most])]


def _places(document: Diagnosis, group: ExpertImbalance, index: int) -> Table:
    received = any(one.elements for one in group.layers)
    return Table(
        key=f"rank-places-{index}",
        title=f"Places that lose most · {rank_story.these(group.ranks)} · {per(document)}",
        columns=columns(
            "#place", "#lost ms", "#longest ms", "on", "#mean ms", "#longest / mean", *(("#received, most / mean?",) if received else ())
        ),
        rows=rows_of(
            [_place(group, layer)[: None if received else -1] for layer in sorted(group.layers, key=lambda one: (-_lost(one), one.place))]
        ),
        note="Place: counted through the step, in order of its expert exchanges.",
    )


def _lost(layer: Layer) -> float:
    return max(layer.work_ns, default=0) - _mean(layer.work_ns)


def _mean(values: tuple[int, ...]) -> float:
    return sum(values) / len(values) if values else 0.0


def _place(group: ExpertImbalance, layer: Layer) -> list[str]:
    longest, mean = max(layer.work_ns, default=0), _mean(layer.work_ns)
    on = next((rank for rank, work in zip(group.ranks, layer.work_ns, strict=False) if work == longest), None)
    received = layer.elements
    return [
        str(layer.place),
        units.ms(_lost(layer)),
        units.ms(longest),
        units.MISSING if on is None else f"rank {on}",
        units.ms(mean),
        units.factor(longest / mean if mean else None),
        units.factor(max(received) / _mean(received) if received and any(received) else None),
    ]


def pipeline(document: Diagnosis, ranks: Ranks) -> Table:
    """The stages with their bubbles."""
    found = ranks.pipeline
    return Table(
        key="rank-pipeline",
        title=f"Pipeline stages, in ms {per(document)}",
        columns=columns("stage", "#compute", "#bubble", "#warm-up", "#steady", "#cool-down", "ranks?"),
        rows=rows_of(
            [
                [
                    f"stage {one.stage}",
                    units.ms(one.compute_busy_ns),
                    units.ms(one.bubble_ns),
                    units.ms(one.warm_up_ns),
                    units.ms(one.steady_ns),
                    units.ms(one.cool_down_ns),
                    rank_story.ranges(one.ranks, 4),
                ]
                for one in (() if found is None else found.stages)
            ]
        ),
        note=_pipeline_note(document, ranks),
        empty="no pipeline, or its stages could not be told",
    )


def _pipeline_note(document: Diagnosis, ranks: Ranks) -> str:
    found = ranks.pipeline
    if found is None:
        return ""
    expected = (
        ""
        if found.expected_share is None
        else f"; even stages would leave {units.percent(found.expected_share)}: (p − 1) / (v · m + p − 1)"
    )
    saves = (
        ""
        if found.virtual_saves_ns is None
        else f" Twice the virtual stages could win at most {units.ms_unit(found.virtual_saves_ns)} {per(document)}."
    )
    means = (
        "Means over the captured ranks of a stage. Bubble: waiting for other stages, before the first backward (warm-up), after the last forward "
        f"(cool-down), and between; {units.percent(found.bubble_share)} of the {whole(document)} on average{expected}."
    )
    parts = (means, f"The slowest stage computes {units.ms_unit(found.imbalance_ns)} more than the mean.{saves}", found.note)
    return " ".join(part for part in parts if part)


def tail(document: Diagnosis, ranks: Ranks) -> Table:
    """How long compute waits for the data-parallel exchange at the end of a step."""
    return Table(
        key="rank-tail",
        title=f"Data-parallel tail · {per(document)}",
        columns=columns("rank", "#tail ms"),
        rows=rows_of(
            [[f"rank {one.rank}", units.ms(one.tail_ns)] for one in sorted(ranks.tail, key=lambda one: (-one.tail_ns, one.rank))]
            if any(one.tail_ns for one in ranks.tail)
            else []
        ),
        note="How long compute waits for the data-parallel exchange at the end of a step; longest first.",
        empty="compute waits for no data-parallel exchange there" if ranks.tail else "not measured",
    )


def notes(ranks: Ranks) -> Table:
    """What can't be said of these ranks."""
    return Table(
        key="rank-notes",
        title="What can't be said of these ranks",
        columns=columns("#no.", "note"),
        rows=rows_of([[str(number), note] for number, note in enumerate(ranks.notes, start=1)]),
        empty="nothing was found that keeps ranks from being compared",
    )


def sections(document: Diagnosis, ranks: Ranks) -> list[Table]:
    """The tables after the survey that have something to say, in the order in which they are read; who is late, clocks and exchanges always."""
    after = (rank_tables.skew(ranks),)
    rest = (experts(document, ranks), *places(document, ranks, 1), pipeline(document, ranks), tail(document, ranks), notes(ranks))
    return [
        *(table for table in after if table.rows),
        rank_tables.clocks(ranks),
        rank_tables.exchanges(document, ranks),
        *(table for table in rest if table.rows),
    ]
