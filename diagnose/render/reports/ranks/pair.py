"""Two ranks side by side: the numbers of every rank for the page's script, and the table as it stands without one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import Ranks, RankSurvey
from diagnose.model.names import shorten
from diagnose.render import units, words
from diagnose.render.report import SideBySide, Versus
from diagnose.render.reports.diagnosis.tables import file_label, per
from diagnose.render.reports.ranks import story
from diagnose.render.reports.ranks.story import MOST_RANKS

SAME = "Both hold the same part of the model: their differences may be compared."
UNKNOWN = "Which parts of the model these two hold is not known: their differences may have many reasons."
DIFFERENT = "These two hold different parts of the model: their differences do not tell who is slow."

_Value = int | str | None


def comparison(document: Diagnosis, ranks: Ranks) -> SideBySide | None:
    """Two ranks to begin with, and the numbers of all; None where only one was surveyed."""
    start = story.compared(ranks)
    if start is None:
        return None
    kept = sorted({*story.chosen_places(ranks, MOST_RANKS), *start})
    names, late = story.labels(ranks), {one.rank for one in ranks.late if one.rank is not None}
    known = {one.id for one in ranks.groups}
    sections = _rows(document, ranks)
    rows = [row for _, part in sections for row in part]
    first, second = (ranks.survey[place] for place in start)
    left, right = ([of(one) for _, _, of in rows] for one in (first, second))
    longest = max(
        (
            abs(a - b)
            for a, b, (_, unit, _) in zip(left, right, rows, strict=True)
            if unit == "ms" and isinstance(a, int) and isinstance(b, int)
        ),
        default=0,
    )
    lines = (_line(place, label, unit, left[place], right[place], longest) for place, (label, unit, _) in enumerate(rows))
    return SideBySide(
        first=names[start[0]],
        second=names[start[1]],
        note=UNKNOWN if not known.issuperset((first.group, second.group)) else SAME if first.group == second.group else DIFFERENT,
        sections=tuple((title, tuple(islice(lines, len(part)))) for title, part in sections if part),
        data={
            "same": SAME,
            "different": DIFFERENT,
            "unknown": UNKNOWN,
            "start": [kept.index(place) for place in start],
            "ranks": [
                {
                    "label": names[place],
                    "remark": " · late" if ranks.survey[place].rank in late else "",
                    "group": ranks.survey[place].group if ranks.survey[place].group in known else None,
                    "values": [of(ranks.survey[place]) for _, _, of in rows],
                }
                for place in kept
            ],
        },
    )


_Row = tuple[str, str, Callable[[RankSurvey], _Value]]


def _rows(document: Diagnosis, ranks: Ranks) -> list[tuple[str, list[_Row]]]:
    """Sections with their rows: label, unit, and what each says of a rank.

    No work in a bucket is zero work; what was not measured is None.
    """
    buckets = sorted(
        {name for one in ranks.survey for name in one.buckets},
        key=lambda name: (-max(one.buckets.get(name, 0) for one in ranks.survey), name),
    )
    counted = sorted({name for one in ranks.survey for name in one.collectives})
    about: list[_Row] = [
        ("group", "text", lambda one: shorten(one.group, 60)),
        ("host", "text", lambda one: shorten(one.host, 60)),
        ("file", "text", lambda one: shorten(file_label(one.file), 60)),
        ("steps", "count", lambda one: one.step.n),
    ]
    times: list[_Row] = [
        ("step, median", "ms", lambda one: one.step.median),
        ("step, shortest", "ms", lambda one: one.step.min),
        ("step, longest", "ms", lambda one: one.step.max),
        ("time without waiting for others", "ms", story.own_time),
        ("waiting in matched collectives", "ms", lambda one: one.wait_ns),
        ("transfer in matched collectives", "ms", lambda one: one.transfer_ns),
        ("compute active", "ms", lambda one: one.compute_busy_ns),
        ("communication busy", "ms", lambda one: one.transport_busy_ns),
        ("permute/unpermute", "ms", lambda one: one.packing_busy_ns),
        ("copies", "ms", lambda one: one.copy_busy_ns),
        ("GPU idle", "ms", lambda one: one.device_idle_ns),
        ("launch-bound", "ms", lambda one: one.launch_starved_ns),
        ("compute stalled on communication", "ms", lambda one: one.blocking_transport_ns),
        ("begins after the middle of its group", "ms", lambda one: one.start_skew_ns),
    ]
    return [
        ("What it is", about),
        (f"Times, ms {per(document)}", times),
        (f"Work by bucket, ms {per(document)}", [(shorten(words.bucket(name), 60), "ms", _of_bucket(name)) for name in buckets]),
        (f"Communication operations {per(document)}", [(shorten(name, 60), "count", _of_kind(name)) for name in counted]),
    ]


def _of_bucket(name: str) -> Callable[[RankSurvey], _Value]:
    return lambda one: one.buckets.get(name, 0)


def _of_kind(name: str) -> Callable[[RankSurvey], _Value]:
    return lambda one: one.collectives.get(name, 0)


def _line(place: int, label: str, unit: str, left: _Value, right: _Value, longest: int) -> Versus:
    more = left - right if isinstance(left, int) and isinstance(right, int) else None
    return Versus(
        place=place,
        label=label,
        unit=unit,
        first=_shown(left, unit),
        second=_shown(right, unit),
        difference="" if unit == "text" else units.signed_ms(more) if unit == "ms" else _signed_count(more),
        more=more is None or more >= 0,
        width=f"{50 * abs(more) / longest:.2f}" if unit == "ms" and more is not None and longest else "0.00",
    )


def _signed_count(value: int | None) -> str:
    if value is None:
        return units.MISSING
    return f"{value:+,}" if value else "0"


def _shown(value: _Value, unit: str) -> str:
    if value is None:
        return units.MISSING
    if isinstance(value, str):
        return value
    return units.ms(value) if unit == "ms" else units.count(value)
