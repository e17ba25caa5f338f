"""The figures about ranks: what each rank's buckets take more or less than its like group; each rank's steps as own time and waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from statistics import median

from msgspec import Struct

from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import Ranks, StepTime
from diagnose.model.names import shorten
from diagnose.render import units, words
from diagnose.render.figures.figure import Axis, Band, Cell, Cells, Fields, Figure, Layer, Look, Note, label, stacked
from diagnose.render.reports.diagnosis.tables import per
from diagnose.render.reports.ranks import story as rank_story
from diagnose.render.reports.ranks.story import MOST_RANKS

MOST_STRIPS = 48  # beyond it steps are drawn as a map
MOST_STEPS = 10
# of the step: two captures of one program differ by as much (trace_rules/comparison.yaml, floor), so that less is no strong colour
LEAST_SCALE = 0.02
MORE, LESS = "#d55e00", "#0072b2"
_OWN = Look(label="without waiting", colour="#0072b2")
_WAIT = Look(label="waiting for others", colour="#e69f00", pattern="/")
_WHOLE = Look(label="not split: nothing was matched", colour="#8c8c8c", pattern="-")
_MOST_NAMED = 12  # groups whose names fit above the heat map
_HOVER = "{0}, {1}: {2} ms\nown {3} ms, waiting {4} ms"


def figures(document: Diagnosis) -> Iterator[Figure]:
    """Each figure that has something to show; none where only one rank was captured."""
    if document.ranks is None:
        return
    found = heat(document.ranks)
    if found is not None:
        yield heat_map(document, found)
    places = strip_places(document.ranks, MOST_RANKS)
    if places:
        yield strips(document.ranks, places) if len(document.ranks.survey) <= MOST_STRIPS else step_map(document.ranks, places)


# --- heat map ---------------------------------------------------------------------------------------------------------


class Work(Struct, frozen=True, kw_only=True):
    """Work of one rank in one bucket; the difference is None in a group of one rank, and where nobody in the group has that bucket."""

    work_ns: int
    median_ns: float
    difference_ns: float | None


class Heat(Struct, frozen=True, kw_only=True):
    """Difference of each rank from its group's median by bucket, largest difference first. `groups`: name and first column of each."""

    labels: tuple[str, ...]
    groups: tuple[tuple[str, int], ...]
    buckets: tuple[str, ...]
    cells: tuple[tuple[Work, ...], ...]  # one row per bucket, one cell per rank
    largest_ns: float


def heat(ranks: Ranks) -> Heat | None:
    """The heat map's numbers; None where no group holds two ranks."""
    names = rank_story.labels(ranks)
    kept = set(rank_story.chosen_places(ranks, MOST_RANKS))
    labels: list[str] = []
    starts: list[tuple[str, int]] = []
    columns: dict[str, list[Work]] = {bucket: [] for survey in ranks.survey for bucket in survey.buckets}
    for name, places in rank_story.grouped(ranks):
        shown = [place for place in places if place in kept]
        starts.append((name, len(labels)))
        labels += [names[place] for place in shown]
        for bucket, cells in columns.items():
            works = [ranks.survey[place].buckets.get(bucket, 0) for place in places]
            middle = median(works)
            even = len(works) < 2 or not any(works)
            cells += [
                Work(work_ns=work, median_ns=middle, difference_ns=None if even else work - middle)
                for place, work in zip(places, works, strict=True)
                if place in kept
            ]
    sizes = {
        bucket: max((abs(cell.difference_ns) for cell in cells if cell.difference_ns is not None), default=None)
        for bucket, cells in columns.items()
    }
    ordered = sorted(((size, bucket) for bucket, size in sizes.items() if size is not None), key=lambda pair: (-pair[0], pair[1]))
    if not ordered:
        return None
    return Heat(
        labels=tuple(labels),
        groups=tuple(starts),
        buckets=tuple(bucket for _, bucket in ordered),
        cells=tuple(tuple(columns[bucket]) for _, bucket in ordered),
        largest_ns=ordered[0][0],
    )


def heat_map(document: Diagnosis, found: Heat) -> Figure:
    """Ranks from left to right by group, buckets from the largest difference down."""
    limit = max(found.largest_ns / 1e6, round(LEAST_SCALE * (document.steps.duration_ns.median or 0) / 1e6, 3), 0.001)
    names = tuple(label(words.bucket(bucket)) for bucket in found.buckets)

    def cell(rank: str, name: str, work: Work) -> Cell:
        value = None if work.difference_ns is None else round(work.difference_ns / 1e6, 4)
        return Cell(value, (rank, name, units.ms(work.work_ns), units.signed_ms(work.difference_ns), units.ms(work.median_ns)))

    return Figure(
        key="rank-heat",
        title="What differs between peer ranks, by bucket",
        caption="Kernel time of each rank less the median of its peer group. Orange: more, blue: less. Empty: no peer to compare with. "
        "Lines part the groups. Full colour is 2 % of the step at least. Buckets with communication (dispatch, collective) hold the waiting for stragglers too: the straggler has less of it.",
        x=Axis(names=found.labels),
        y=Axis(names=names),
        marks=(
            Cells(
                data=tuple(tuple(map(cell, found.labels, repeat(name), row)) for name, row in zip(names, found.cells, strict=True)),
                hover="{0}, {1}: {2} ms\n{3} ms from {4} ms, the median of its group",
                low=-limit,
                high=limit,
                colours=(LESS, "", MORE),
                unit=f"ms {per(document)}",
            ),
        ),
        bands=tuple(Band(axis="x", low=start - 0.5, high=start - 0.5, colour="#8c8c8c") for _, start in found.groups[1:]),
        notes=tuple(Note(x=start - 0.4, text=shorten(name, 22)) for name, start in found.groups if 1 < len(found.groups) <= _MOST_NAMED),
    )


# --- steps ------------------------------------------------------------------------------------------------------------


def strip_places(ranks: Ranks, most: int) -> list[int]:
    """Places in the survey of the ranks whose steps are drawn, group by group."""
    kept = set(rank_story.chosen_places(ranks, most))
    return [place for _, places in rank_story.grouped(ranks) for place in places if place in kept and ranks.survey[place].steps]


def _numbers(ranks: Ranks, places: Sequence[int]) -> list[int]:
    """The steps that are drawn."""
    return sorted({step.index for place in places for step in ranks.survey[place].steps})[:MOST_STEPS]


def _steps(ranks: Ranks, places: Sequence[int]) -> list[tuple[str, list[StepTime | None]]]:
    """Name and drawn steps of each of these ranks, None where a rank has not that step."""
    names = rank_story.labels(ranks)
    numbers = _numbers(ranks, places)
    by_place = [(place, {step.index: step for step in ranks.survey[place].steps}) for place in places]
    return [(names[place], [steps.get(number) for number in numbers]) for place, steps in by_place]


def _fields(rank: str, step: StepTime | None) -> Fields:
    if step is None:
        return rank, "", units.MISSING, units.MISSING, units.MISSING
    wait = None if step.own_ns is None else step.window_ns - step.own_ns
    return rank, f"step {step.index}", units.ms(step.window_ns), units.ms(step.own_ns), units.ms(wait)


def _cut(ranks: Ranks) -> str:
    return f" The first {MOST_STEPS} steps are drawn." if max(len(survey.steps) for survey in ranks.survey) > MOST_STEPS else ""


def strips(ranks: Ranks, places: Sequence[int]) -> Figure:
    """One bar for each rank: its steps one after the other, each as own time and then waiting (whole, where nothing was matched)."""
    by_rank = _steps(ranks, places)
    layers: list[Layer] = []
    for number in range(len(_numbers(ranks, places))):
        known = [(row, rank, step) for row, (rank, steps) in enumerate(by_rank) if (step := steps[number]) is not None]
        split = [(row, step.own_ns, step.window_ns, _fields(rank, step)) for row, rank, step in known if step.own_ns is not None]
        layers += [
            (_OWN, [(row, own, fields) for row, own, _, fields in split]),
            (_WAIT, [(row, window - own, fields) for row, own, window, fields in split]),
            (_WHOLE, [(row, step.window_ns, _fields(rank, step)) for row, rank, step in known if step.own_ns is None]),
        ]
    figure = Figure(
        key="rank-strips",
        title="Each rank's steps: with and without waiting",
        caption="Each step of each rank: its time without waiting, then its waiting for others (in collectives, and for other pipeline "
        f"stages). The longest without waiting is the slowest path.{_cut(ranks)}",
        x=Axis(title="ms, steps one after the other"),
        y=Axis(names=tuple(rank for rank, _ in by_rank)),
    )
    return stacked(figure, _HOVER, layers, outlined=True)


def step_map(ranks: Ranks, places: Sequence[int]) -> Figure:
    """For hundreds of ranks.

    They from left to right, steps from the top down, coloured by own time (by the step, if nothing was matched).
    """
    by_rank = _steps(ranks, places)
    split = any(step.own_ns is not None for place in places for step in ranks.survey[place].steps)

    def cell(rank: str, step: StepTime | None) -> Cell:
        length = None if step is None else step.own_ns if split else step.window_ns
        return Cell(None if length is None else round(length / 1e6, 4), _fields(rank, step))

    numbers = _numbers(ranks, places)
    data = tuple(tuple(cell(rank, steps[row]) for rank, steps in by_rank) for row in range(len(numbers)))
    known = [one.value for row in data for one in row if one.value is not None] or [0.0]
    unit = f"{'without waiting' if split else 'step'}, ms"
    return Figure(
        key="rank-strips",
        title="Each rank's steps: time without waiting",
        caption="Each step without its waiting for others, in collectives or for other pipeline stages. "
        f"The bluer, the longer. The longest without waiting is the slowest path.{_cut(ranks)}",
        x=Axis(names=tuple(rank for rank, _ in by_rank)),
        y=Axis(names=tuple(f"step {number}" for number in numbers)),
        marks=(Cells(data=data, hover=_HOVER, low=min(known), high=max(known), colours=("", LESS), unit=unit),),
    )
