"""What a diagnosis says about ranks; nothing where one rank was captured."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document.diagnosis import Diagnosis
from diagnose.render import report as r
from diagnose.render.figures import ranks as figures
from diagnose.render.report import LIMITED, PAGE, Block
from diagnose.render.reports.ranks import pair, story, tables


def first(document: Diagnosis) -> Iterator[Block]:
    """What stands right below the verdict: who is late, and the ranks that are missing or can't be compared."""
    ranks = document.ranks
    if ranks is None:
        return
    late = story.headline(document, ranks)
    yield Block(content=late, name="ranks", worth=99, most=LIMITED)
    yield Block(content=late, name="ranks", section="ranks", least=PAGE)
    if ranks.problems:
        yield Block(content=tables.problems(ranks), section="ranks", name="ranks", worth=98)


def blocks(document: Diagnosis) -> Iterator[Block]:
    """Figures and tables, in the order in which they are read; a page folds all but who is late and each rank's time."""
    ranks = document.ranks
    if ranks is None:
        return
    for figure in figures.figures(document):
        yield Block(content=figure, section="ranks", least=PAGE)
    yield Block(content=tables.groups(ranks), section="ranks", worth=78, folded=True)
    yield Block(content=tables.survey(document, ranks), section="ranks", worth=96, name="survey of ranks")
    late = tables.late(document, ranks)
    yield Block(content=late, section="ranks", worth=79, least=r.TERMINAL if ranks.late else PAGE)
    chosen = pair.comparison(document, ranks)
    if chosen is not None:
        yield Block(content=chosen, section="ranks", least=PAGE, folded=True)
    for table in tables.balanced(document, ranks):
        yield Block(content=table, section="ranks", worth=77, folded=True)
    for index, table in enumerate(tables.places(document, ranks)):
        yield Block(content=table, section="ranks", worth=77, folded=True, least=PAGE if index else r.TERMINAL)
    for table in (tables.pipeline(document, ranks), tables.tail(document, ranks), tables.notes(ranks)):
        if table.rows:
            yield Block(content=table, section="ranks", worth=77, folded=True)
