"""What the HTML report says about ranks, put together for its template."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.document.diagnosis import Diagnosis
from diagnose.render.report import Table
from diagnose.render.reports.ranks import balance as rank_balance
from diagnose.render.reports.ranks import pair as rank_compare
from diagnose.render.reports.ranks import story as rank_story
from diagnose.render.reports.ranks import tables as rank_tables
from diagnose.render.reports.ranks.pair import Comparison
from diagnose.render.reports.ranks.story import Headline


@dataclass(frozen=True, kw_only=True)
class RankPage:
    """Everything of the section on ranks."""

    said: Headline
    problems: Table
    survey: Table
    groups: Table
    late: Table
    tables: tuple[Table, ...]
    folded: tuple[Table, ...]
    comparison: Comparison | None


def page(document: Diagnosis) -> RankPage | None:
    """None where only one rank was captured."""
    ranks = document.ranks
    if ranks is None:
        return None
    places = rank_balance.places(document, ranks)
    tail = rank_balance.tail(document, ranks)
    after = [table for table in rank_balance.sections(document, ranks) if not table.key.startswith(("rank-places", "rank-tail"))]
    return RankPage(
        said=rank_story.headline(document, ranks),
        problems=rank_tables.problems(ranks),
        survey=rank_tables.survey(document, ranks, rank_story.MOST_RANKS),
        groups=rank_tables.groups(ranks),
        late=rank_tables.late(document, ranks),
        tables=tuple(after),
        folded=(*places, *([tail] if tail.rows else [])),
        comparison=rank_compare.comparison(document, ranks),
    )
