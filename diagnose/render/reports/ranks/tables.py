"""The tables about ranks: problems, groups, survey, who is late, clocks, exchanges, and how evenly work is spread over them."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.document.device import Spread
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import ExpertImbalance, Layer, MatchedExchange, Ranks, RankSurvey
from diagnose.render.reports.ranks import story
from diagnose.render import units, words
from diagnose.render.reports.ranks.story import MOST_RANKS
from diagnose.render.report import Column, Row, Table, columns, rows_of
from diagnose.render.reports.diagnosis.tables import per, whole

_FIGURES = (
    # label, field, whether the column is left out where there is little room
    ("own", "", False),
    ("waiting", "wait_ns", False),
    ("transfer", "transfer_ns", True),
    ("compute", "compute_busy_ns", True),
    ("idle", "device_idle_ns", True),
    ("transport", "transport_busy_ns", True),
    ("packing", "packing_busy_ns", True),
    ("copies", "copy_busy_ns", True),
)


def problems(ranks: Ranks) -> Table:
    """Ranks that are missing, given twice, differ in their steps, or failed."""
    return Table(
        key="rank-problems",
        title="Ranks that are missing or can't be compared",
        columns=columns("what", "#ranks", "which", "meaning"),
        rows=rows_of(
            [[words.RANK_PROBLEM[one.kind], units.count(one.count), _some(one.ranks, one.count), one.text] for one in ranks.problems]
        ),
        empty="none",
        whole=True,
    )


def _some(numbers: Sequence[int], count: int) -> str:
    """The listed ranks, and that the list was cut where it was."""
    return story.ranges(numbers, 6) + (" …" if count > len(numbers) else "")


def groups(ranks: Ranks) -> Table:
    """Which ranks may be compared with each other, and how slow and fast they are."""
    return Table(
        key="rank-groups",
        title="Like groups: only these ranks are compared with each other",
        columns=columns("group", "#ranks", "which", "holds", "told by?", "#slowest?", "#fastest?"),
        rows=rows_of(
            [
                [
                    one.id,
                    units.count(len(one.ranks)),
                    story.ranges(one.ranks, 4),
                    one.holds or units.MISSING,
                    words.LIKE_GROUP_BY[one.by],
                    *_ends([survey for survey in ranks.survey if survey.group == one.id]),
                ]
                for one in ranks.groups
            ]
        ),
        note="Slowest and fastest by the median own time of a step (without waiting for others); where nothing was matched, by the step itself.",
        empty="the ranks could not be sorted into groups",
    )


def _ends(members: Sequence[RankSurvey]) -> list[str]:
    pace = story.by_pace(members)
    if not pace:
        return [units.MISSING, units.MISSING]
    return [_paced(pace[0]), _paced(pace[-1]) if len(pace) > 1 else units.MISSING]


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
    for name, _, places in story.grouped(ranks):
        mine = [place for place in places if place in shown]
        if not mine:
            left_groups += 1
            continue
        called = units.shorten(name, 24) or "not grouped"
        if len(places) == 1:  # its medians are the rank's own figures
            rows.append(_rank_row(names[places[0]], ranks.survey[places[0]], called, _mark(ranks, ranks.survey[places[0]].rank, late)))
            continue
        rows.append(_group_row(called, [ranks.survey[place] for place in places]))
        rows += [_rank_row(names[place], ranks.survey[place], "", _mark(ranks, ranks.survey[place].rank, late)) for place in mine]
    return Table(
        key="rank-survey",
        title=f"Ranks, in ms · {'whole capture' if document.steps.anchor == 'capture' else 'median per step'}",
        columns=columns(
            "rank",
            "remark?",
            "#step",
            *(f"#{label}{'?' if weak else ''}" for label, _, weak in _FIGURES),
            "#min–max?",
            "#steps?",
            "host?",
        ),
        rows=tuple(rows),
        note=f"{_left_out(ranks, shown, left_groups)}A group's row: how many ranks it has, and the median over all of them. Own: the step less its waiting for others, in exchanges (as far as compute can have waited for them) and for other pipeline stages. {story.WAIT_AND_TRANSFER} "
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
    return f"{left:,} of {len(ranks.survey):,} ranks are left out{whole}: shown are the late, the slowest and fastest of each group, and the next slowest; the HTML and JSON outputs hold all. "


def _mark(ranks: Ranks, rank: int, late: set[int]) -> str:
    return ", ".join(text for text, holds in (("late", rank in late), ("verdict", rank == ranks.slowest)) if holds)


def _rank_row(label: str, one: RankSurvey, alone: str, mark: str) -> Row:
    """One rank; `alone` names its group where that has no row of its own."""
    values = [story.own_time(one) if not field else getattr(one, field) for _, field, _ in _FIGURES]
    cells = [
        label,
        ", ".join(part for part in (alone, mark) if part),
        units.ms(one.step.median),
        *(units.ms(value) for value in values),
        _span(one.step),
        units.count(one.step.n),
        one.host,
    ]
    return Row(cells=tuple(cells), indent=0 if alone else 1)


def _group_row(name: str, members: Sequence[RankSurvey]) -> Row:
    steps = [one.step.median for one in members]
    known = [step for step in steps if step is not None]
    values = [
        story.middle([story.own_time(one) if not field else getattr(one, field) for one in members]) for _, field, _ in _FIGURES
    ]
    spread = _span(Spread(median=None, min=min(known, default=None), max=max(known, default=None)))
    cells = [
        f"{name} ({len(members):,})",
        "",
        units.ms(story.middle(steps)),
        *(units.ms(value) for value in values),
        spread,
        "",
        "",
    ]
    return Row(cells=tuple(cells), strong=True)


def _span(spread: Spread) -> str:
    return units.MISSING if spread.min is None else f"{units.ms(spread.min)}–{units.ms(spread.max)}"


# --- lateness ---------------------------------------------------------------------------------------------------------


def late(document: Diagnosis, ranks: Ranks) -> Table:
    """Who keeps the others waiting."""
    return Table(
        key="rank-late",
        title="Who keeps others waiting",
        columns=(
            *columns("rank", "#comes last", "#costs others ms", "because", "#longer ms?", "among?", "in?", "pattern?", "status?"),
            Column(label="evidence", only="wide"),
        ),
        rows=rows_of(
            [
                [
                    "none alone" if one.rank is None else f"rank {one.rank}",
                    units.percent(one.last_share),
                    units.ms(one.wait_ns),
                    ": ".join(part for part in (words.LATE_CAUSE[one.cause], story.longer(one)) if part),
                    units.ms(one.longer_ns),
                    story.ranges(one.ranks, 4),
                    ", ".join(words.COMM_KIND[kind] for kind in one.kinds),
                    words.LATE_PATTERN[one.pattern],
                    one.status,
                    one.evidence,
                ]
                for one in story.ordered_late(ranks)
            ]
        ),
        note=f"Comes last: share of the exchanges with noticeable waiting. Costs others: the mean of their waits, {per(document)}. Longer: how much more of that the rank has than the others.",
        empty="no captured rank stands out"
        if any(one.matched for one in ranks.exchanges)
        else "not known: no exchange was matched between ranks",
    )


def skew(ranks: Ranks) -> Table:
    """Ranks whose windows begin at another time though they end together."""
    return Table(
        key="rank-skew",
        title="Start skew",
        columns=columns("rank", "#begins ms", "#ends ms", "meaning"),
        rows=rows_of([[f"rank {one.rank}", units.signed_ms(one.begins_ns), units.signed_ms(one.ends_ns), one.text] for one in ranks.skew]),
        note="Against the middle of its group; + is later. A window that begins at another time and ends with the others makes no straggler.",
        empty="no window begins apart from the others of its group",
    )


def clocks(ranks: Ranks) -> Table:
    """How far the clocks of hosts agree."""
    return Table(
        key="rank-clocks",
        title="Clocks",
        columns=columns(
            "clocks of", "and", "#offset ms", "#residual p5 ms", "#p95 ms", "verdict", "#limit ms?", "#matched ends?", "start times?"
        ),
        rows=tuple(
            Row(
                cells=(
                    f"{one.reference_host} (rank {one.reference})",
                    f"{one.host} (rank {one.rank})",
                    units.signed_ms(one.offset_ns),
                    units.signed_ms(one.residual_p5_ns),
                    units.signed_ms(one.residual_p95_ns),
                    "aligned" if one.aligned else "not aligned",
                    units.ms(one.limit_ns),
                    units.count(one.n),
                    "both recorded" if one.by_start_times else "not recorded",
                ),
                strong=not one.aligned,
            )
            for one in sorted(ranks.clocks, key=lambda one: one.aligned)
        ),
        note="Offset: what the second clock shows more after alignment by start times, the median over the ends of matched exchanges. "
        "Residual: what is left around it. Not aligned: it is above the limit, and who came late by the clock is not stated between the two.",
        empty="one clock, or no matched exchange to compare clocks by",
    )


# --- exchanges --------------------------------------------------------------------------------------------------------


def exchanges(document: Diagnosis, ranks: Ranks) -> Table:
    """Exchanges that were matched between ranks, with what was transfer and what waiting."""
    rows = sorted(ranks.exchanges, key=lambda one: (-one.wait_ns, -one.transfer_ns, one.kind, one.ranks))
    rated = any(one.algorithm_gb_s is not None or one.bus_gb_s is not None for one in rows)
    return Table(
        key="rank-exchanges",
        title=f"Matched exchanges, in ms {per(document)}",
        columns=columns(
            "kind",
            "#wait",
            "#transfer",
            "#matched / not",
            "ranks?",
            "operation?",
            *(("#bus GB/s, of link?", "#algorithm GB/s?") if rated else ()),
            "last most often?",
            "matched by?",
            "remark?",
        ),
        rows=rows_of([_exchange(one, rated) for one in rows]),
        note=f"{story.WAIT_AND_TRANSFER} Shown is the mean over members. Waiting above transfer is a matter of balance, not of bandwidth."
        + (" Bandwidth: sizes over transfer time." if rated else ""),
        empty="no exchange was matched between ranks",
    )


def _exchange(one: MatchedExchange, rated: bool) -> list[str]:
    of = f" of {one.size}" if one.size is not None and one.size > len(one.ranks) else ""
    last = max(one.waits, key=lambda wait: (wait.last_share, -wait.rank), default=None)
    rates = [_of_link(one), units.rate(one.algorithm_gb_s)] if rated else []
    return [
        words.COMM_KIND[one.kind],
        units.ms(one.wait_ns),
        units.ms(one.transfer_ns),
        f"{units.count(one.matched)} / {units.count(one.unmatched)}",
        f"{story.ranges(one.ranks, 4)}{of and f' ({len(one.ranks)}{of})'}",
        f"{one.backend} {one.operation}".strip(),
        *rates,
        units.MISSING if last is None else f"rank {last.rank}: {units.percent(last.last_share)}",
        words.MATCHED_BY[one.by],
        one.note or units.MISSING,
    ]


def _of_link(one: MatchedExchange) -> str:
    """Bus bandwidth, and what share of the link's it is."""
    if one.bus_gb_s is None or not one.link_gb_s:
        return units.rate(one.bus_gb_s)
    return f"{units.rate(one.bus_gb_s)} of {units.rate(one.link_gb_s)} ({units.percent(one.bus_gb_s / one.link_gb_s)})"


def balanced(document: Diagnosis, ranks: Ranks) -> list[Table]:
    """The tables after the survey, up to that of experts, that have something to say; clocks and exchanges always."""
    begun, unequal = skew(ranks), experts(document, ranks)
    return [
        *([begun] if begun.rows else []),
        clocks(ranks),
        exchanges(document, ranks),
        *([unequal] if unequal.rows else []),
    ]


# --- how evenly work is spread ----------------------------------------------------------------------------------------

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
                    story.ranges(one.ranks),
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
        title=f"Places that lose most · {story.these(group.ranks)} · {per(document)}",
        columns=columns(
            "#place", "#lost ms", "#longest ms", "on", "#mean ms", "#longest / mean", *(("#received, most / mean?",) if received else ())
        ),
        rows=rows_of(
            [_place_cells(group, layer)[: None if received else -1] for layer in sorted(group.layers, key=lambda one: (-_lost(one), one.place))]
        ),
        note="Place: counted through the step, in order of its expert exchanges.",
    )


def _lost(layer: Layer) -> float:
    return max(layer.work_ns, default=0) - _mean(layer.work_ns)


def _mean(values: tuple[int, ...]) -> float:
    return sum(values) / len(values) if values else 0.0


def _place_cells(group: ExpertImbalance, layer: Layer) -> list[str]:
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
                    story.ranges(one.ranks, 4),
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
