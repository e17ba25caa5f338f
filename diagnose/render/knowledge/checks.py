"""Entries of checks of job files."""

from __future__ import annotations

from diagnose.model.vocabulary import GROUP_OF
from diagnose.render import words
from diagnose.render.knowledge.entries import Catalogue, Entry, Ref, column, expression, paragraph, rows, sources, unfilled
from diagnose.render.knowledge.rules import meaning
from diagnose.render.reports.diagnosis import story


def check(know: Catalogue, key: str) -> Entry:
    """One way in which a job goes wrong."""
    one = know.book.checks[key]
    names = () if one.when is None else know.book.expression(one.when).names
    group = GROUP_OF[one.outcome] if one.sure else "doubtful"
    asked = f"; asked of {' and '.join(story.framework(name) for name in one.frameworks)} jobs only" if one.frameworks else ""
    shown = "shown by a job file alone" if one.when is not None else "no job file shows it: a log or a run has to"
    return Entry(
        kind="check",
        id=key,
        title=one.title,
        about=f"check of job files ({words.words(group)}), outcome: {words.OUTCOME[one.outcome]}; {shown}{asked}",
        brief=words.OUTCOME[one.outcome],
        parts=(
            *paragraph("says", unfilled(one.say)),
            *paragraph("seen as", one.symptom),
            *expression("goes wrong when", one.when),
            *paragraph("to tell", one.confirm),
            *paragraph("remedy", one.remedy),
            *rows("reads", ("fact or setting", "meaning"), (((column(name),), (meaning(know, name),)) for name in names)),
            *rows("fixes", ("fix", "what"), (((Ref("fix", fix),), (know.book.fixes[fix].title,)) for fix in one.fixes)),
            *sources("see", one.refs),
        ),
    )
