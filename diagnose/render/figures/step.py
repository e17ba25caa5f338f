"""The figures of a diagnosis: where each step went, the timeline of one step, buckets, communication; those on ranks are in `ranks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.document.device import DeviceBudget, Timeline, TimelineOp
from diagnose.document.diagnosis import Diagnosis
from diagnose.render import units, words
from diagnose.render.figures.figure import Axis, Bars, Figure, Hover, label, layer, ms, stacked
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
    names = ["capture" if capture else f"step {step.index}" for step in steps]
    longest = f" The first {MOST_STEPS} steps are drawn." if len(device.per_step) > MOST_STEPS else ""

    def said(segment: words.Segment) -> tuple[tuple[str, ...], ...]:
        return tuple(
            (segment.label, units.ms(segment.of(step)), units.percent(segment.of(step) / step.window_ns if step.window_ns else None), name)
            for step, name in zip(steps, names, strict=True)
        )

    return stacked(
        "budget",
        "Where the capture went" if capture else "Where each step went",
        f"{tables.device_label(device.rank, device.device)}. The parts of a bar add up to its window, exactly.{longest}",
        "ms",
        names,
        [
            layer(
                segment.label,
                segment.colour,
                segment.pattern,
                [segment.of(step) for step in steps],
                Hover(text="{0}\n{1} ms · {2} of {3}", rows=said(segment)),
            )
            for segment in tables.shown_segments(steps)
        ],
    )


def buckets(document: Diagnosis, device: DeviceBudget) -> Figure:
    """Busy against exclusive time of each bucket."""
    rows = tables.bucket_order([row for row in document.buckets if (row.rank, row.device) == (device.rank, device.device)])
    names = [label(words.bucket(row.bucket)) for row in rows]
    hover = Hover(
        text="{0}\nbusy {1} ms, exclusive {2} ms\n{3} kernels",
        rows=tuple(
            (name, units.ms(row.busy_ns), units.ms(row.exclusive_ns), units.count(row.kernels))
            for name, row in zip(names, rows, strict=True)
        ),
    )
    return stacked(
        "buckets",
        "Buckets: busy and exclusive time",
        f"{tables.device_label(device.rank, device.device)}, {tables.median_per(document)}. Buckets overlap in time.",
        f"busy, ms {tables.per(document)}",
        names,
        [
            layer("exclusive: nothing else ran", "#0072b2", "", [row.exclusive_ns for row in rows], hover),
            layer("shared: something else ran as well", "#56b4e9", "/", [row.busy_ns - row.exclusive_ns for row in rows], hover),
        ],
        half=True,
    )


def communication(document: Diagnosis, device: DeviceBudget) -> Figure:
    """Hidden against exposed time of each kind and backend, with the part that blocked compute."""
    rows = [row for row in document.communication if (row.rank, row.device) == (device.rank, device.device)]
    rows.sort(key=lambda row: (-row.busy_ns, row.kind, row.backend))
    names = [f"{words.COMM_KIND[row.kind]} · {label(row.backend)}" for row in rows]
    hover = Hover(
        text="{0}\nbusy {1} ms, exposed {2} ms\nblocking: {3}\nhidden: {4}",
        rows=tuple(
            (name, units.ms(row.busy_ns), units.ms(row.exposed_ns), units.ms_unit(row.blocking_ns), units.percent(row.overlap))
            for name, row in zip(names, rows, strict=True)
        ),
    )
    return stacked(
        "communication",
        "Communication: exposed and hidden",
        f"{tables.device_label(device.rank, device.device)}, {tables.median_per(document)}. "
        "Exposed is an upper bound; only blocking time makes a bottleneck.",
        f"busy, ms {tables.per(document)}",
        names,
        [
            layer("exposed: nothing else ran", "#d55e00", "", [row.exposed_ns for row in rows], hover),
            layer("hidden behind other work", "#56b4e9", "/", [row.busy_ns - row.exposed_ns for row in rows], hover),
        ],
        half=True,
    )


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
    by_look: dict[words.Look, list[tuple[int, int]]] = {}
    for gap in shown.gaps[: MOST_BARS // 2]:
        by_look.setdefault(words.gap_look(gap.cause), []).append((gap.start_ns - shown.start_ns, gap.end_ns - gap.start_ns))
    for look in sorted(by_look, key=lambda look: (look.order, look.label)):
        spans = by_look[look]
        yield Bars(
            label=label(f"no compute: {look.label}"),
            colour=look.colour,
            pattern=look.pattern,
            rows=(0,) * len(spans),
            starts=tuple(ms(start) for start, _ in spans),
            lengths=tuple(ms(length) for _, length in spans),
            hover=Hover(
                text="{0}\n{1} ms, from {2} ms",
                rows=tuple((label(look.label), units.ms(length), units.ms(start)) for start, length in spans),
            ),
        )


def _ops(shown: Timeline, ops: Sequence[TimelineOp], row_of: dict[str, int]) -> Iterator[Bars]:
    """The operations of each bucket, the one with most work first."""
    by_bucket: dict[str, list[TimelineOp]] = {}
    for op in ops:
        by_bucket.setdefault(op.bucket, []).append(op)
    for bucket in sorted(by_bucket, key=lambda name: (-sum(op.end_ns - op.start_ns for op in by_bucket[name]), name)):
        mine = by_bucket[bucket]
        yield Bars(
            label=label(words.bucket(bucket)),
            colour=words.bucket_colour(bucket),
            rows=tuple(row_of[f"stream {op.stream}"] for op in mine),
            starts=tuple(ms(op.start_ns - shown.start_ns) for op in mine),
            lengths=tuple(ms(op.end_ns - op.start_ns) for op in mine),
            hover=Hover(
                text="{0}\nspans {1} ms from {2} ms · {3} · kernels: {4}",
                rows=tuple(
                    (label(op.name), units.ms(op.end_ns - op.start_ns), units.ms(op.start_ns - shown.start_ns), op.role, str(op.kernels))
                    for op in mine
                ),
            ),
        )
