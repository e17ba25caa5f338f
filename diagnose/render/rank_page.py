"""What the HTML report says about ranks, put together for its template."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.document.diagnosis import Diagnosis
from diagnose.render import drawings, figures, rank_figures, units, words
from diagnose.render.rank_figures import Cell, Heat
from diagnose.render.report import Table
from diagnose.render.reports.ranks import balance as rank_balance
from diagnose.render.reports.ranks import pair as rank_compare
from diagnose.render.reports.ranks import story as rank_story
from diagnose.render.reports.ranks import tables as rank_tables
from diagnose.render.reports.ranks.pair import Comparison
from diagnose.render.reports.ranks.story import Headline

_LEVELS = 5  # shades of the heat map as a table


@dataclass(frozen=True, kw_only=True)
class HeatTable:
    """The heat map as a table: one row per rank, a text and a shade (`m3`: three of five steps more, `l3`: less) per bucket."""

    buckets: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, kw_only=True)
class RankPage:
    """Everything of the section on ranks. `figures`: as in `html`, to be drawn by the page's script."""

    said: Headline
    problems: Table
    survey: Table
    groups: Table
    late: Table
    tables: tuple[Table, ...]
    folded: tuple[Table, ...]
    figures: dict[str, tuple[figures.Figure, drawings.Drawing]]
    heat: HeatTable | None
    comparison: Comparison | None


def page(document: Diagnosis) -> RankPage | None:
    """None where only one rank was captured."""
    ranks = document.ranks
    if ranks is None:
        return None
    heat, strips = rank_figures.heat(ranks), rank_figures.strip_drawing(ranks)
    drawn: dict[str, tuple[figures.Figure, drawings.Drawing]] = {}
    if heat is not None:
        drawn["rank-heat"] = (rank_figures.heat_figure(document, heat), _heat_drawing())
    if strips is not None:
        drawn["rank-strips"] = strips
    places = rank_balance.places(document, ranks)
    tail = rank_balance.tail(document, ranks)
    after = [table for table in rank_balance.sections(document, ranks) if not table.key.startswith(("rank-places", "rank-tail"))]
    return RankPage(
        said=rank_story.headline(document, ranks),
        problems=rank_tables.problems(ranks),
        survey=rank_tables.survey(document, ranks, rank_figures.MOST_RANKS),
        groups=rank_tables.groups(ranks),
        late=rank_tables.late(document, ranks),
        tables=tuple(after),
        folded=(*places, *([tail] if tail.rows else [])),
        figures=drawn,
        heat=None if heat is None else _heat_table(heat),
        comparison=rank_compare.comparison(document, ranks),
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
        buckets=tuple(words.bucket(bucket) for bucket in found.buckets),
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
