"""The figures of a diagnosis: where each step went, the timeline of one step, buckets, communication; those on ranks are in `ranks`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from diagnose.document.device import DeviceBudget, Timeline, TimelineOp
from diagnose.document.diagnosis import Diagnosis
from diagnose.render import units, words
from diagnose.render.figures.figure import Axis, Bar, Bars, Fields, Figure, Look, label, ms, stacked
from diagnose.render.reports.diagnosis import tables

MOST_BARS = 4_000
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
        caption=f"{tables.device_label(device.rank, device.device)}. The parts of a bar add up to its window, exactly.{longest}",
        x=Axis(title="ms"),
        y=Axis(names=names),
    )
    return stacked(figure, "{0}\n{1} ms · {2} of {3}", [(part.look, spans(part)) for part in tables.shown_segments(steps)])


Busy = tuple[Fields, int, int]  # of one row: its fields, the name first; how long nothing else ran; the whole


def buckets(document: Diagnosis, device: DeviceBudget) -> Figure:
    """Busy against exclusive time of each bucket."""
    rows = tables.bucket_order(tables.on(document.buckets, device.rank, device.device))
    names = [label(words.bucket(row.bucket)) for row in rows]
    return _busy(
        _half(document, device, "buckets", "Buckets: busy and exclusive time", "Buckets overlap in time."),
        "{0}\nbusy {1} ms, exclusive {2} ms\n{3} kernels",
        (Look("exclusive: nothing else ran", "#0072b2"), Look("shared: something else ran as well", "#56b4e9", "/")),
        [
            ((name, units.ms(row.busy_ns), units.ms(row.exclusive_ns), units.count(row.kernels)), row.exclusive_ns, row.busy_ns)
            for name, row in zip(names, rows, strict=True)
        ],
    )


def communication(document: Diagnosis, device: DeviceBudget) -> Figure:
    """Hidden against exposed time of each kind and backend, with the part that blocked compute."""
    rows = tables.communication_order(tables.on(document.communication, device.rank, device.device))
    remark = "Exposed is an upper bound; only blocking time makes a bottleneck."
    told = [(units.ms(row.busy_ns), units.ms(row.exposed_ns), units.ms_unit(row.blocking_ns), units.percent(row.overlap)) for row in rows]
    return _busy(
        _half(document, device, "communication", "Communication: exposed and hidden", remark),
        "{0}\nbusy {1} ms, exposed {2} ms\nblocking: {3}\nhidden: {4}",
        (Look("exposed: nothing else ran", "#d55e00"), Look("hidden behind other work", "#56b4e9", "/")),
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
    ops, omitted = drawn_ops(shown)
    streams = [f"stream {stream}" for stream in lanes(ops)]
    whole = document.steps.anchor == "capture"
    window = "The whole capture" if whole else f"Step {shown.step}"
    short = f" {units.plural(omitted, 'bar')} too short to draw." if omitted else ""
    return Figure(
        key="timeline",
        title="Timeline by stream" if whole else "Timeline of one step by stream",
        caption=f"{window} on {tables.device_label(shown.rank, shown.device)}, {units.ms(shown.end_ns - shown.start_ns)} ms. "
        f"Above the streams: when no compute ran, and why.{short}",
        x=Axis(title="ms from its start", high=ms(shown.end_ns - shown.start_ns)),
        y=Axis(names=(GAP_LANE, *streams)),
        marks=(*_gaps(shown), *_ops(shown, ops, {name: row for row, name in enumerate(streams, 1)})),
    )


def drawn_ops(shown: Timeline) -> tuple[list[TimelineOp], int]:
    """The bars that are drawn, longest first chosen, in their order of time; and how many were left out in all."""
    ops = list(shown.ops)
    room = MOST_BARS - min(len(shown.gaps), MOST_BARS // 2)
    if len(ops) <= room:
        return ops, shown.omitted
    longest = sorted(range(len(ops)), key=lambda index: (ops[index].start_ns - ops[index].end_ns, index))[:room]
    return [ops[index] for index in sorted(longest)], shown.omitted + len(ops) - room


def lanes(ops: Sequence[TimelineOp]) -> list[int | None]:
    """The streams in the order of their work, busiest first; None where the trace does not tell the stream."""
    work: dict[int | None, int] = {}
    for op in ops:
        work[op.stream] = work.get(op.stream, 0) + op.end_ns - op.start_ns
    return sorted(work, key=lambda stream: (-work[stream], -1 if stream is None else stream))


def _gaps(shown: Timeline) -> Iterator[Bars]:
    """The stretches without compute of each cause, in the order of the budget's parts; unknown causes last."""
    by_look: dict[Look, list[Bar]] = {}
    for gap in shown.gaps[: MOST_BARS // 2]:
        look, start, length = words.gap_look(gap.cause), gap.start_ns - shown.start_ns, gap.end_ns - gap.start_ns
        bar = Bar(0, ms(start), ms(length), (label(look.label), units.ms(length), units.ms(start)))
        by_look.setdefault(look, []).append(bar)
    for look in sorted(by_look, key=lambda look: (look.order, look.label)):
        yield Bars(
            look=replace(look, label=label(f"no compute: {look.label}")), hover="{0}\n{1} ms, from {2} ms", data=tuple(by_look[look])
        )


def _ops(shown: Timeline, ops: Sequence[TimelineOp], row_of: dict[str, int]) -> Iterator[Bars]:
    """The operations of each bucket, the one with most work first."""
    by_bucket: dict[str, list[Bar]] = {}
    work: Counter[str] = Counter()
    for op in ops:
        start, length = op.start_ns - shown.start_ns, op.end_ns - op.start_ns
        fields = (label(op.name), units.ms(length), units.ms(start), op.role, str(op.kernels))
        by_bucket.setdefault(op.bucket, []).append(Bar(row_of[f"stream {op.stream}"], ms(start), ms(length), fields))
        work[op.bucket] += length
    for bucket in sorted(by_bucket, key=lambda name: (-work[name], name)):
        look = Look(label(words.bucket(bucket)), words.bucket_colour(bucket))
        yield Bars(look=look, hover="{0}\nspans {1} ms from {2} ms · {3} · kernels: {4}", data=tuple(by_bucket[bucket]))
