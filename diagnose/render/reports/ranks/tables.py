"""The tables about ranks: problems, groups, survey, who is late, clocks, exchanges, and how evenly work is spread over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import ExpertImbalance, Layer, MatchedExchange, Ranks, RankSurvey
from diagnose.model.names import shorten
from diagnose.render import units, words
from diagnose.render.report import Row, Table, rows_of
from diagnose.render.reports.diagnosis.tables import AT_MOST, per, whole
from diagnose.render.reports.ranks import story
from diagnose.render.reports.ranks.story import MOST_RANKS

_TIMES: dict[str, Callable[[RankSurvey], int | None]] = {
    "#step": lambda one: one.step.median,
    "#w/o wait": story.own_time,
    "#waiting": lambda one: one.wait_ns,
    "#transfer?": lambda one: one.transfer_ns,
    "#compute?": lambda one: one.compute_busy_ns,
    "#idle?": lambda one: one.device_idle_ns,
    "#comm.?": lambda one: one.transport_busy_ns,
    "#permute?": lambda one: one.packing_busy_ns,
    "#copies?": lambda one: one.copy_busy_ns,
}


def problems(ranks: Ranks) -> Table:
    """Ranks that are missing, given twice, differ in their steps, or failed."""
    return Table(
        "rank-problems",
        "Ranks that are missing or can't be compared",
        rows_of(
            {
                "what": words.RANK_PROBLEM[one.kind],
                "#ranks": units.count(one.count),
                "which": story.ranges(one.ranks, 6) + (" …" if one.count > len(one.ranks) else ""),
                "meaning": one.text,
            }
            for one in ranks.problems
        ),
        empty="none",
        whole=True,
    )


def groups(ranks: Ranks) -> Table:
    """Which ranks may be compared with each other, and how slow and fast they are."""
    paces = {one.id: story.by_pace([survey for survey in ranks.survey if survey.group == one.id]) for one in ranks.groups}
    return Table(
        "rank-groups",
        "Peer groups: only these ranks are compared with each other",
        rows_of(
            {
                "group": one.id,
                "#ranks": units.count(len(one.ranks)),
                "which": story.ranges(one.ranks, 4),
                "holds": one.holds or units.MISSING,
                "grouped by?": words.LIKE_GROUP_BY[one.by],
                "#slowest?": _paced(paces[one.id][0]) if paces[one.id] else units.MISSING,
                "#fastest?": _paced(paces[one.id][-1]) if len(paces[one.id]) > 1 else units.MISSING,
            }
            for one in ranks.groups
        ),
        note="Slowest and fastest by the median step without waiting for others; where nothing was matched, by the step itself.",
        empty="the ranks could not be sorted into groups",
    )


def _paced(one: RankSurvey) -> str:
    own = story.own_time(one)
    return f"rank {one.rank}: {units.ms_unit(one.step.median if own is None else own)}"


# --- survey -----------------------------------------------------------------------------------------------------------


def survey(document: Diagnosis, ranks: Ranks, most: int = MOST_RANKS) -> Table:
    """One row for every rank below the medians of its like group; of more than `most` ranks those that tell most."""
    shown = set(story.chosen_places(ranks, most))
    names = story.labels(ranks)
    late = {one.rank for one in ranks.late if one.rank is not None}
    rows: list[Row] = []
    left_groups = 0
    for name, places in story.grouped(ranks):
        mine = [place for place in places if place in shown]
        if not mine:
            left_groups += 1
            continue
        called = shorten(name, 24) or "not grouped"
        if len(places) == 1:  # its medians are the rank's own figures
            rows.append(_rank_row(names[places[0]], ranks.survey[places[0]], called, _mark(ranks, ranks.survey[places[0]].rank, late)))
            continue
        rows.append(_group_row(called, [ranks.survey[place] for place in places]))
        rows += [_rank_row(names[place], ranks.survey[place], "", _mark(ranks, ranks.survey[place].rank, late)) for place in mine]
    return Table(
        "rank-survey",
        f"Ranks, in ms · {'whole capture' if document.steps.anchor == 'capture' else 'median per step'}",
        tuple(rows),
        note=f"{_left_out(ranks, shown, left_groups)}A group's row: how many ranks it has, and the median over all of them. W/o wait: the step less its waiting for others, in collectives (as far as it can have stalled compute) and for other pipeline stages. {story.WAIT_AND_TRANSFER} "
        "Times are unions over streams and overlap each other. Min–max: over the steps of a rank; over the medians of a group.",
        empty="no rank was surveyed",
        whole=True,
        shorter=lambda fewer: survey(document, ranks, fewer),
    )


def _left_out(ranks: Ranks, shown: set[int], groups_left: int) -> str:
    left = len(ranks.survey) - len(shown)
    if not left:
        return ""
    whole = f", {units.plural(groups_left, 'group')} as a whole" if groups_left else ""
    return f"{left:,} of {len(ranks.survey):,} ranks are left out{whole}: shown are the stragglers, the slowest and fastest of each group, and the next slowest; the HTML and JSON outputs hold all. "


def _mark(ranks: Ranks, rank: int, late: set[int]) -> str:
    return ", ".join(text for text, holds in (("straggler", rank in late), ("verdict", rank == ranks.slowest)) if holds)


def _rank_row(label: str, one: RankSurvey, alone: str, mark: str) -> Row:
    """One rank; `alone` names its group where that has no row of its own."""
    first = {"rank": label, "remark?": ", ".join(part for part in (alone, mark) if part)}
    last = {"#min–max?": _span(one.step.min, one.step.max), "#steps?": units.count(one.step.n), "host?": one.host}
    return Row({**first, **_times([one]), **last}, indent=0 if alone else 1)


def _group_row(name: str, members: Sequence[RankSurvey]) -> Row:
    known = [one.step.median for one in members if one.step.median is not None]
    last = {"#min–max?": _span(min(known, default=None), max(known, default=None)), "#steps?": "", "host?": ""}
    return Row({"rank": f"{name} ({len(members):,})", "remark?": "", **_times(members), **last}, strong=True)


def _times(members: Sequence[RankSurvey]) -> dict[str, str]:
    """The median of each time."""
    return {label: units.ms(story.middle([of(one) for one in members])) for label, of in _TIMES.items()}


def _span(shortest: int | None, longest: int | None) -> str:
    return units.MISSING if shortest is None else f"{units.ms(shortest)}–{units.ms(longest)}"


# --- lateness ---------------------------------------------------------------------------------------------------------


def late(document: Diagnosis, ranks: Ranks) -> Table:
    """Who keeps the others waiting."""
    return Table(
        "rank-late",
        "Who keeps others waiting",
        rows_of(
            {
                "rank": "none alone" if one.rank is None else story.these(sorted((one.rank, *one.alike))),
                "#comes last": units.percent(one.last_share),
                "#costs others ms": units.ms(one.wait_ns),
                "because": ": ".join(part for part in (words.LATE_CAUSE[one.cause], story.longer(one)) if part),
                "#longer ms?": units.ms(one.longer_ns),
                "among?": story.ranges(one.ranks, 4),
                "in?": ", ".join(words.COMM_KIND[kind] for kind in one.kinds),
                "pattern?": words.LATE_PATTERN[one.pattern],
                "status?": one.status,
                "+evidence": one.evidence,
            }
            for one in story.ordered_late(ranks)
        ),
        note=f"Comes last: share of the collectives with notable waiting. Costs others: for so long all waited for it alone (in turn: the mean of waits), {per(document)}. Longer: how much more of that the straggler has than its peers.",
        empty="no captured rank is a straggler"
        if any(one.matched for one in ranks.exchanges)
        else "unknown: no collective was matched between ranks",
    )


def skew(ranks: Ranks) -> Table:
    """Ranks whose windows begin at another time though they end together."""
    return Table(
        "rank-skew",
        "Start skew",
        rows_of(
            {
                "rank": f"rank {one.rank}",
                "#begins ms": units.signed_ms(one.begins_ns),
                "#ends ms": units.signed_ms(one.ends_ns),
                "meaning": one.text,
            }
            for one in ranks.skew
        ),
        note="Against the middle of its group; + is later. A capture that begins at another time and ends with the others makes no straggler.",
        empty="no capture begins apart from the others of its group",
    )


def clocks(ranks: Ranks) -> Table:
    """How far the clocks of hosts agree."""
    return Table(
        "rank-clocks",
        "Clocks",
        tuple(
            Row(
                {
                    "clocks of": f"{one.reference_host} (rank {one.reference})",
                    "and": f"{one.host} (rank {one.rank})",
                    "#offset ms": units.signed_ms(one.offset_ns),
                    "#residual p5 ms": units.signed_ms(one.residual_p5_ns),
                    "#p95 ms": units.signed_ms(one.residual_p95_ns),
                    "verdict": "aligned" if one.aligned else "not aligned",
                    "#limit ms?": units.ms(one.limit_ns),
                    "#matched ends?": units.count(one.n),
                    "start times?": "both recorded" if one.by_start_times else "not recorded",
                },
                strong=not one.aligned,
            )
            for one in sorted(ranks.clocks, key=lambda one: one.aligned)
        ),
        note="Offset: what the second clock shows more after alignment by start times, the median over the ends of matched collectives. "
        "Residual: what is left around it. Not aligned: it is above the limit, and who came late by the clock is not stated between the two.",
        empty="one clock, or no matched collective to compare clocks by",
    )


# --- exchanges --------------------------------------------------------------------------------------------------------


def exchanges(document: Diagnosis, ranks: Ranks) -> Table:
    """Exchanges that were matched between ranks, with what was transfer and what waiting."""
    rows = sorted(ranks.exchanges, key=lambda one: (-one.wait_ns, -one.transfer_ns, one.kind, one.ranks))
    rated = any(one.algorithm_gb_s is not None or one.bus_gb_s is not None for one in rows)
    return Table(
        "rank-exchanges",
        f"Matched collectives, in ms {per(document)}",
        rows_of(_exchange(one, rated) for one in rows),
        note=f"{story.WAIT_AND_TRANSFER} Shown is the mean over members. Waiting above transfer is a balance problem, not a bandwidth problem."
        + (f" {AT_MOST}" if any(one.partial for one in rows) else "")
        + (" Bandwidth: sizes over transfer time." if rated else ""),
        empty="no collective was matched between ranks",
    )


def _exchange(one: MatchedExchange, rated: bool) -> dict[str, str]:
    of = f" of {one.size}" if one.partial else ""
    last = max(one.waits, key=lambda wait: (wait.last_share, -wait.rank), default=None)
    return {
        "kind": words.COMM_KIND[one.kind],
        "#wait": units.ms(one.wait_ns),
        "#transfer": f"{'≤ ' if of else ''}{units.ms(one.transfer_ns)}",
        "#matched / not": f"{units.count(one.matched)} / {units.count(one.unmatched)}",
        "ranks?": f"{story.ranges(one.ranks, 4)}{of and f' ({len(one.ranks)}{of})'}",
        "operation?": f"{one.backend} {one.operation}".strip(),
        **({"#bus GB/s, of link?": _of_link(one), "#algorithm GB/s?": units.rate(one.algorithm_gb_s)} if rated else {}),
        "last most often?": units.MISSING if last is None else f"rank {last.rank}: {units.percent(last.last_share)}",
        "matched by?": words.MATCHED_BY[one.by],
        "remark?": one.note or units.MISSING,
    }


def _of_link(one: MatchedExchange) -> str:
    """Bus bandwidth, and what share of the link's it is."""
    if one.bus_gb_s is None or not one.link_gb_s:
        return units.rate(one.bus_gb_s)
    return f"{units.rate(one.bus_gb_s)} of {units.rate(one.link_gb_s)} ({units.percent(one.bus_gb_s / one.link_gb_s)})"


def balanced(document: Diagnosis, ranks: Ranks) -> list[Table]:
    """The tables after the survey, up to that of experts, that have something to say; clocks and exchanges always."""
    found = ((skew(ranks), False), (clocks(ranks), True), (exchanges(document, ranks), True), (experts(document, ranks), False))
    return [table for table, always in found if table.rows or always]


# --- how evenly work is spread ----------------------------------------------------------------------------------------

MOST_GROUPS = 8  # expert groups whose places are listed


def experts(document: Diagnosis, ranks: Ranks) -> Table:
    """How unevenly the experts' work is spread, by expert-parallel group."""
    found = _by_loss(ranks)
    received = any(one.elements_spread is not None for one in found)
    return Table(
        "rank-experts",
        f"Expert imbalance · {per(document)}",
        rows_of(
            {
                "ranks": story.ranges(one.ranks),
                "#lost ≤ ms": units.ms(one.lost_ns),
                "#longest / mean": units.factor(one.spread),
                "#all-to-alls": units.count(one.places),
                "busiest": f"rank {one.busiest}",
                "#of them": units.percent(one.busiest_share),
                **({"#received, most / mean?": units.factor(one.elements_spread)} if received else {}),
            }
            for one in found
        ),
        note="One EP all-to-all per layer and micro-batch. Lost: at each the longest expert time less the mean, added up: "
        "what perfect balance would give back of them alone. Longest / mean: the median over them.",
        empty="not measured",
    )


def _by_loss(ranks: Ranks) -> list[ExpertImbalance]:
    return sorted(ranks.experts, key=lambda one: (-one.lost_ns, one.ranks))


def places(document: Diagnosis, ranks: Ranks) -> list[Table]:
    """The places that lose most, one table for each of the groups that lose most."""
    return [_places(document, one, index) for index, one in enumerate([one for one in _by_loss(ranks) if one.layers][:MOST_GROUPS])]


def _places(document: Diagnosis, group: ExpertImbalance, index: int) -> Table:
    received = any(one.elements for one in group.layers)
    return Table(
        f"rank-places-{index}",
        f"All-to-alls that lose most · {story.these(group.ranks)} · {per(document)}",
        rows_of(_place_row(group, layer, received) for layer in sorted(group.layers, key=lambda one: (-_lost(one), one.place))),
        note="Counted through the step, in order.",
    )


def _lost(layer: Layer) -> float:
    return max(layer.work_ns, default=0) - _mean(layer.work_ns)


def _mean(values: tuple[int, ...]) -> float:
    return sum(values) / len(values) if values else 0.0


def _place_row(group: ExpertImbalance, layer: Layer, received: bool) -> dict[str, str]:
    longest, mean, elements = max(layer.work_ns, default=0), _mean(layer.work_ns), layer.elements
    on = next((rank for rank, work in zip(group.ranks, layer.work_ns, strict=False) if work == longest), None)
    most = units.factor(max(elements) / _mean(elements) if elements and any(elements) else None)
    return {
        "#all-to-all": str(layer.place),
        "#lost ms": units.ms(_lost(layer)),
        "#longest ms": units.ms(longest),
        "on": units.MISSING if on is None else f"rank {on}",
        "#mean ms": units.ms(mean),
        "#longest / mean": units.factor(longest / mean if mean else None),
        **({"#received, most / mean?": most} if received else {}),
    }


def pipeline(document: Diagnosis, ranks: Ranks) -> Table:
    """The stages with their bubbles."""
    return Table(
        "rank-pipeline",
        f"Pipeline stages, in ms {per(document)}",
        rows_of(
            {
                "stage": f"stage {one.stage}",
                "#compute": units.ms(one.compute_busy_ns),
                "#bubble": units.ms(one.bubble_ns),
                "#warm-up": units.ms(one.warm_up_ns),
                "#steady": units.ms(one.steady_ns),
                "#cool-down": units.ms(one.cool_down_ns),
                "ranks?": story.ranges(one.ranks, 4),
            }
            for one in (() if ranks.pipeline is None else ranks.pipeline.stages)
        ),
        note=_pipeline_note(document, ranks),
        empty="no pipeline, or its stages are unknown",
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
        else f" Twice the virtual stages could give back at most {units.ms_unit(found.virtual_saves_ns)} {per(document)}."
    )
    means = (
        "Means over the captured ranks of a stage. Bubble: waiting for other stages, before the first backward (warm-up), after the last forward "
        f"(cool-down), and between; {units.percent(found.bubble_share)} of the {whole(document)} on average{expected}."
    )
    parts = (means, f"The slowest stage computes {units.ms_unit(found.imbalance_ns)} more than the mean.{saves}", found.note)
    return " ".join(part for part in parts if part)


def tail(document: Diagnosis, ranks: Ranks) -> Table:
    """How long compute waits for the data-parallel exchange at the end of a step."""
    waits = sorted(ranks.tail, key=lambda one: (-one.tail_ns, one.rank)) if any(one.tail_ns for one in ranks.tail) else []
    return Table(
        "rank-tail",
        f"Data-parallel tail · {per(document)}",
        rows_of({"rank": f"rank {one.rank}", "#tail ms": units.ms(one.tail_ns)} for one in waits),
        note="How long compute is stalled on DP collectives at the end of a step; longest first.",
        empty="compute is stalled on no DP collective there" if ranks.tail else "not measured",
    )


def notes(ranks: Ranks) -> Table:
    """What can't be said of these ranks."""
    return Table(
        "rank-notes",
        "What can't be said of these ranks",
        rows_of({"#no.": str(number), "note": note} for number, note in enumerate(ranks.notes, start=1)),
        empty="nothing keeps ranks from being compared",
    )
