"""The figures of a diagnosis: where each step went, the timeline of one step, buckets, communication; those on ranks are in `ranks`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from diagnose.document.device import DeviceBudget, Timeline, TimelineColumns, on_device
from diagnose.document.diagnosis import Diagnosis
from diagnose.render import units, words
from diagnose.render.figures.figure import Axis, Fields, Figure, Look, Spans, label, ms, stacked
from diagnose.render.reports.diagnosis import tables

COMMUNICATION = "communication"  # the figure's key, by which --section asks for it
MOST_STEPS = 40
GAP_LANE = "no compute, because"


def figures(document: Diagnosis) -> Iterator[Figure]:
    """Each figure that has something to show, on the device that the verdict speaks of."""
    device = tables.focus(document)
    if device is None:
        return
    for figure in (budget(document, device), buckets(document, device), communication(document, device)):
        if figure.marks:
            yield figure
    if document.timeline is not None:
        yield timeline(document, document.timeline)


def budget(document: Diagnosis, device: DeviceBudget) -> Figure:
    """One bar per step, whose parts add up to the step exactly."""
    capture = document.steps.anchor == "capture"
    steps = device.per_step[:MOST_STEPS]
    names = tuple("capture" if capture else f"step {step.index}" for step in steps)
    longest = f" The first {MOST_STEPS} steps are drawn." if len(device.per_step) > MOST_STEPS else ""

    def spans(segment: words.Segment) -> Iterator[tuple[int, int, Fields]]:
        for row, step in enumerate(steps):
            length = segment.of(step)
            share = units.percent(length / step.window_ns if step.window_ns else None)
            yield row, length, (segment.look.label, units.ms(length), share, names[row])

    figure = Figure(
        key="budget",
        title="Where the capture went" if capture else "Where each step went",
        caption=f"{tables.device_label(device.rank, device.device)}. The parts of a bar add up to the step, exactly.{longest}",
        x=Axis(title="ms"),
        y=Axis(names=names),
    )
    return stacked(figure, "{0}\n{1} ms · {2} of {3}", [(part.look, spans(part)) for part in tables.shown_segments(steps)])


Busy = tuple[Fields, int, int]  # of one row: its fields, the name first; how long nothing else ran; the whole


def buckets(document: Diagnosis, device: DeviceBudget) -> Figure:
    """Busy against exclusive time of each bucket."""
    rows = tables.bucket_order(on_device(document.buckets, (device.rank, device.device)))
    names = [label(words.bucket(row.bucket)) for row in rows]
    return _busy(
        _half(document, device, "buckets", "Buckets: busy and exclusive time", "Buckets overlap in time."),
        "{0}\nbusy {1} ms, exclusive {2} ms\n{3} kernels",
        (Look("exclusive: nothing else ran", "#0072b2"), Look("overlapped: something else ran too", "#56b4e9", "/")),
        [
            ((name, units.ms(row.busy_ns), units.ms(row.exclusive_ns), units.count(row.kernels)), row.exclusive_ns, row.busy_ns)
            for name, row in zip(names, rows, strict=True)
        ],
    )


def communication(document: Diagnosis, device: DeviceBudget) -> Figure:
    """Hidden against exposed time of each kind and backend, with the part that blocked compute."""
    rows = tables.communication_order(on_device(document.communication, (device.rank, device.device)))
    remark = "Only time that stalls compute makes a bottleneck; exposed time is its upper bound."
    told = [(units.ms(row.busy_ns), units.ms(row.exposed_ns), units.ms_unit(row.blocking_ns), units.percent(row.overlap)) for row in rows]
    return _busy(
        _half(document, device, COMMUNICATION, "Communication: exposed and hidden", remark),
        "{0}\nbusy {1} ms, exposed {2} ms\nstalls compute: {3}\nhidden: {4}",
        (Look("exposed: nothing else ran", "#d55e00"), Look("hidden", "#56b4e9", "/")),
        [
            ((f"{words.COMM_KIND[row.kind]} · {label(row.backend)}", *texts), row.exposed_ns, row.busy_ns)
            for texts, row in zip(told, rows, strict=True)
        ],
    )


def _half(document: Diagnosis, device: DeviceBudget, key: str, title: str, remark: str) -> Figure:
    """A figure of busy times without its rows."""
    caption = f"{tables.device_label(device.rank, device.device)}, {tables.mean_per(document)}. {remark}"
    return Figure(key=key, title=title, caption=caption, x=Axis(title=f"busy, ms {tables.per(document)}"), y=Axis(), half=True)


def _busy(figure: Figure, hover: str, looks: tuple[Look, Look], rows: Sequence[Busy]) -> Figure:
    """The figure with a bar for each row, first the part in which nothing else ran."""
    alone = [(place, part, fields) for place, (fields, part, _) in enumerate(rows)]
    shared = [(place, whole - part, fields) for place, (fields, part, whole) in enumerate(rows)]
    named = replace(figure, y=Axis(names=tuple(fields[0] for fields, _, _ in rows)))
    return stacked(named, hover, zip(looks, (alone, shared), strict=True))


# --- timeline ---------------------------------------------------------------------------------------------------------


def timeline(document: Diagnosis, shown: Timeline) -> Figure:
    """One step by stream, and above it the stretches without compute by their cause."""
    columns = shown.columns
    whole = document.steps.anchor == "capture"
    window = "The whole capture" if whole else f"Step {shown.step}"
    operations = units.plural(len(columns.start_ns), "operation")
    short = f" {units.count(columns.omitted)} shorter ones are left out." if columns.omitted else ""
    return stream_figure(
        shown,
        key="timeline",
        title="Timeline by stream" if whole else "Timeline of one step by stream",
        caption=f"{window} on {tables.device_label(shown.rank, shown.device)}, {units.ms(shown.end_ns - shown.start_ns)} ms, {operations}. "
        f"Above the streams: gaps without compute, and why.{short}",
    )


def stream_figure(shown: Timeline, *, key: str, title: str, caption: str) -> Figure:
    """A step by stream, below its stretches without compute."""
    columns = shown.columns
    order = lanes(columns)
    return Figure(
        key=key,
        title=title,
        caption=caption,
        x=Axis(title="ms from its start", high=ms(shown.end_ns - shown.start_ns)),
        y=Axis(
            names=(GAP_LANE, *(f"stream {'not recorded' if columns.streams[place] is None else columns.streams[place]}" for place in order))
        ),
        marks=(_spans(columns, order),) if columns.start_ns or columns.gap_start_ns else (),
    )


def lanes(columns: TimelineColumns) -> list[int]:
    """The streams (their places) in the order of their work, busiest first."""
    work = Counter(dict.fromkeys(range(len(columns.streams)), 0))
    for stream, length in zip(columns.stream, columns.duration_ns, strict=True):
        work[stream] += length
    return sorted(work, key=lambda place: (-work[place], columns.streams[place] or -1))


def _spans(columns: TimelineColumns, order: Sequence[int]) -> Spans:
    """First the stretches without compute in row 0, then the operations, each on its stream; the looks in the order of the legend."""
    gaps = len(columns.gap_start_ns)
    causes = [words.gap_look(cause) for cause in columns.causes]
    first = sorted(dict.fromkeys(causes), key=lambda look: (look.order, look.label))
    work = Counter(dict.fromkeys(range(len(columns.buckets)), 0))
    for bucket, length in zip(columns.bucket, columns.duration_ns, strict=True):
        work[bucket] += length
    by_work = sorted(work, key=lambda place: (-work[place], columns.buckets[place]))
    place_of = {bucket: len(first) + place for place, bucket in enumerate(by_work)}
    row_of = {stream: row for row, stream in enumerate(order, 1)}
    nothing, unknown = (-1,) * gaps, -1
    return Spans(
        looks=(
            *(replace(look, label=label(f"no compute: {look.label}")) for look in first),
            *(Look(label(words.bucket(columns.buckets[place])), words.bucket_colour(columns.buckets[place])) for place in by_work),
        ),
        names=tuple(map(label, columns.names)),
        row=(0,) * gaps + tuple(row_of[stream] for stream in columns.stream),
        start=columns.gap_start_ns + columns.start_ns,
        length=columns.gap_duration_ns + columns.duration_ns,
        look=tuple(first.index(causes[cause]) for cause in columns.gap_cause) + tuple(place_of[bucket] for bucket in columns.bucket),
        name=nothing + columns.name,
        queued=nothing + tuple(unknown if ns is None or ns < 0 else ns for ns in columns.queued_ns),
        range=nothing + tuple(unknown if place is None else place for place in columns.range),
        by=tuple(unknown if place is None else gaps + place for place in columns.gap_blocked_by) + (unknown,) * len(columns.start_ns),
    )
