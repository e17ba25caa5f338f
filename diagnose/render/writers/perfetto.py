"""A diagnosis' step as a trace for ui.perfetto.dev, or any reader of Chrome's trace format.

What ran, what launched it, why nothing computed, and where findings show.

Chrome's format: Google, "Trace Event Format". Times are microseconds since the capture's start, written out so that they are exact to the
nanosecond however a reader rounds; the first track's slice is the step. What a track can't show nested goes to a lane of its own below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.model.names import visible
from diagnose.render.writers import Options, Writer

if TYPE_CHECKING:
    from diagnose.document.device import HostColumns, Timeline, TimelineColumns
    from diagnose.document.diagnosis import Diagnosis, Finding

DIAGNOSIS, DEVICE, HOST = 1, 2, 3  # processes, in the order of their tracks
_FIRST_THREAD = 100  # above every process id: a thread with its process' id is its main thread
LAUNCH, WAIT = "launch", "wait"  # categories of arrows


class Slice(NamedTuple):
    """Something that lasts, ns from the step's start."""

    start: int
    duration: int
    name: str
    category: str
    args: dict[str, Any]


class Track(NamedTuple):
    """One row, or several where slices would cut each other: its process, its name and its slices."""

    process: int
    name: str
    slices: Sequence[Slice]


class Point(NamedTuple):
    """An end of an arrow: the slice that it is in, by its track's and its own place, and when, ns from the step's start."""

    track: int
    slice: int
    at: int


def write(document: Diagnosis, _options: Options) -> str:
    """The trace as JSON, one event on a line."""
    events = list(_events(document))
    shown = document.timeline
    told: dict[str, Any] = {"tool": f"{document.tool.name} {document.tool.version}"}
    if shown is not None:
        told |= {
            "file": _text(next((one.file for one in document.capture.ranks if one.rank == shown.rank), "")),
            "step": shown.step,
            "step_start_ns": shown.start_ns,
            "step_end_ns": shown.end_ns,
            "left_out": shown.columns.omitted + (0 if shown.host is None else shown.host.omitted),
        }
    lines = ",\n".join(events)
    return f'{{"displayTimeUnit": "ns", "otherData": {_json(told)}, "traceEvents": [\n{lines}\n]}}\n'


def _events(document: Diagnosis) -> Iterator[str]:
    """Names of processes and tracks, then slices and arrows in order of time."""
    shown = document.timeline
    if shown is None:
        return
    columns = shown.columns
    own = [*_diagnosed(document, shown, columns)]
    streams, operations = _streams(columns)
    threads, calls = _threads(shown.host) if shown.host is not None else ([], [])
    tracks = [*own, *streams, *threads]
    laid = _laid(tracks)
    yield from _process_names(shown, {track.process for track in tracks})
    for track, places in zip(tracks, laid, strict=True):
        yield from _thread_names(shown, track, places)
    timed: list[tuple[int, int, str]] = []
    for track, places in zip(tracks, laid, strict=True):
        timed += [
            (shown.start_ns + one.start, -one.duration, _slice(one, shown, track, at)) for one, at in zip(track.slices, places, strict=True)
        ]
    first_stream, first_thread = len(own), len(own) + len(streams)
    arrows = [*_launches(shown, columns, operations, calls, first_stream, first_thread), *_waits(columns, operations, first_stream)]
    for number, (category, begin, end) in enumerate(arrows, 1):
        for sign, point in (("s", begin), ("f", end)):
            event = {"ph": sign, "cat": category, "name": category, "id": number, "pid": tracks[point.track].process}
            event |= {"tid": laid[point.track][point.slice]} | ({"bp": "e"} if sign == "f" else {})
            timed.append((shown.start_ns + point.at, 1 if sign == "s" else 2, _json(event, ts=shown.start_ns + point.at)))
    yield from (text for at, _, text in sorted(timed, key=lambda entry: entry[:2]) if at >= 0)


def _laid(tracks: Sequence[Track]) -> list[list[int]]:
    """By track the thread of each slice: one thread for each of the track's lanes."""
    laid = []
    first = _FIRST_THREAD
    for track in tracks:
        lanes = _lanes(track.slices)
        laid.append([first + lane for lane in lanes])
        first += max(lanes, default=0) + 1
    return laid


def _process_names(shown: Timeline, processes: Iterable[int]) -> Iterator[str]:
    titles = {
        DIAGNOSIS: f"Diagnosis of step {shown.step}",
        DEVICE: f"GPU: rank {shown.rank}, device {shown.device}",
        HOST: f"Host: rank {shown.rank}",
    }
    for process in sorted(processes):
        yield _named("process_name", process, None, {"name": titles[process]})
        yield _named("process_sort_index", process, None, {"sort_index": process})


def _thread_names(shown: Timeline, track: Track, places: Sequence[int]) -> Iterator[str]:
    """The name of each thread of a track that shows a slice: what begins before the capture is left out."""
    for place in sorted({place for place, one in zip(places, track.slices, strict=True) if shown.start_ns + one.start >= 0}):
        lane = place - min(places)
        name = _text(track.name) if lane == 0 else f"{_text(track.name)} (overlapping, {lane})"
        yield _named("thread_name", track.process, place, {"name": name})
        yield _named("thread_sort_index", track.process, place, {"sort_index": place})


# --- tracks of the diagnosis ------------------------------------------------------------------------------------------


def _diagnosed(document: Diagnosis, shown: Timeline, columns: TimelineColumns) -> Iterator[Track]:
    """The step, why nothing computed, each finding, each bucket."""
    from diagnose.render import units, words  # noqa: PLC0415

    length = shown.end_ns - shown.start_ns
    step = {"verdict": _text(document.verdict.sentence), "length": units.ms_unit(length), "start_ns": shown.start_ns}
    yield Track(DIAGNOSIS, "step", [Slice(0, length, f"step {shown.step}", "step", step)])
    gaps = zip(columns.gap_start_ns, columns.gap_duration_ns, columns.gap_cause, columns.gap_blocked_by, strict=True)
    yield Track(DIAGNOSIS, "no compute, because", [_gap(columns, *gap) for gap in gaps])
    for finding in document.findings:
        yield Track(DIAGNOSIS, f"finding: {finding.name}", list(_finding(finding, length)))
    for place, bucket in enumerate(columns.buckets):
        spans = _joined(
            (start, start + lasting)
            for start, lasting, of in zip(columns.start_ns, columns.duration_ns, columns.bucket, strict=True)
            if of == place
        )
        title = _text(words.bucket(bucket))
        yield Track(DIAGNOSIS, f"bucket: {title}", [Slice(start, end - start, title, "bucket", {}) for start, end in spans])


def _gap(columns: TimelineColumns, start: int, duration: int, cause: int, by: int | None) -> Slice:
    from diagnose.render import words  # noqa: PLC0415

    args = {} if by is None else {"waited_for": _text(columns.names[columns.name[by]]), "bucket": columns.buckets[columns.bucket[by]]}
    return Slice(start, duration, _text(words.gap_look(columns.causes[cause]).label), "gap", args)


def _finding(finding: Finding, length: int) -> Iterator[Slice]:
    """When it shows; all of the step where that is not known."""
    args: dict[str, Any] = {"finding": finding.id, "severity": finding.severity, "summary": _text(finding.summary)}
    if finding.bound_ns is not None:
        args["at_most_ns_per_step"] = finding.bound_ns
    name = f"{finding.id}: {_text(finding.name)}"
    spans = finding.where.spans
    if not spans:
        yield Slice(0, length, name, "finding", args | {"when": "not known: all of the step"})
    for place, (start, duration) in enumerate(spans, 1):
        yield Slice(start, duration, name, "finding", args | {"place": f"{place} of {len(spans)}"})


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Their union."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


# --- tracks of the trace ----------------------------------------------------------------------------------------------


def _streams(columns: TimelineColumns) -> tuple[list[Track], list[tuple[int, int]]]:
    """A track for each stream, busiest first, and of each operation the place of its track here, and its own place there."""
    from diagnose.render import words  # noqa: PLC0415
    from diagnose.render.figures.step import lanes  # noqa: PLC0415

    row = {stream: place for place, stream in enumerate(lanes(columns))}
    slices: list[list[Slice]] = [[] for _ in row]
    places = []
    for op, (start, duration) in enumerate(zip(columns.start_ns, columns.duration_ns, strict=True)):
        args: dict[str, Any] = {"bucket": _text(words.bucket(columns.buckets[columns.bucket[op]]))}
        queued, around = columns.queued_ns[op], columns.range[op]
        args |= ({} if queued is None else {"launched_before_ns": queued}) | (
            {} if around is None else {"range": _text(columns.names[around])}
        )
        own = slices[row[columns.stream[op]]]
        places.append((row[columns.stream[op]], len(own)))
        own.append(Slice(start, duration, _text(columns.names[columns.name[op]]), "operation", args))
    numbers = [columns.streams[place] for place in row]
    return [Track(DEVICE, f"stream {'not recorded' if n is None else n}", own) for n, own in zip(numbers, slices, strict=True)], places


def _threads(host: HostColumns) -> tuple[list[Track], list[tuple[int, int]]]:
    """A track for each host thread with ranges and calls, and of each call the place of its track here, and its own place there."""
    slices: list[list[Slice]] = [[] for _ in host.threads]
    for start, duration, thread, name in zip(host.range_start_ns, host.range_duration_ns, host.range_thread, host.range_name, strict=True):
        slices[thread].append(Slice(start, duration, _text(host.names[name]), "range", {}))
    places = []
    for start, duration, thread, name in zip(host.call_start_ns, host.call_duration_ns, host.call_thread, host.call_name, strict=True):
        places.append((thread, len(slices[thread])))
        slices[thread].append(Slice(start, duration, _text(host.names[name]), "call", {}))
    return [Track(HOST, name, own) for name, own in zip(host.threads, slices, strict=True)], places


def _lanes(slices: Sequence[Slice]) -> list[int]:
    """The lane of each slice, so that on a lane any two are apart or one holds the other; the first lane that takes it."""
    found = [0] * len(slices)
    open_ends: list[list[int]] = []  # by lane the ends of what is open
    for place in sorted(range(len(slices)), key=lambda at: (slices[at].start, -slices[at].duration)):
        start, end = slices[place].start, slices[place].start + slices[place].duration
        for lane in range(len(open_ends) + 1):
            if lane == len(open_ends):
                open_ends.append([])
            ends = open_ends[lane]
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                found[place] = lane
                break
    return found


# --- arrows -----------------------------------------------------------------------------------------------------------


def _launches(
    shown: Timeline,
    columns: TimelineColumns,
    operations: Sequence[tuple[int, int]],
    calls: Sequence[tuple[int, int]],
    first_stream: int,
    first_thread: int,
) -> Iterator[tuple[str, Point, Point]]:
    """From each call to what it launched."""
    host = shown.host
    if host is None:
        return
    for (stream, slot), call, start in zip(operations, host.launched_by, columns.start_ns, strict=True):
        if call is not None and -shown.start_ns <= host.call_start_ns[call] <= start:
            thread, at = calls[call]
            yield LAUNCH, Point(first_thread + thread, at, host.call_start_ns[call]), Point(first_stream + stream, slot, start)


def _waits(columns: TimelineColumns, operations: Sequence[tuple[int, int]], first_stream: int) -> Iterator[tuple[str, Point, Point]]:
    """From each operation that compute waited for to the stretch in which it did."""
    for gap, by in enumerate(columns.gap_blocked_by):
        if by is None:
            continue
        until = max(columns.gap_start_ns[gap], columns.start_ns[by])
        if until < columns.gap_start_ns[gap] + max(1, columns.gap_duration_ns[gap]):
            stream, slot = operations[by]
            yield WAIT, Point(first_stream + stream, slot, columns.start_ns[by]), Point(1, gap, until)


# --- events -----------------------------------------------------------------------------------------------------------


def _named(what: str, process: int, thread: int | None, args: dict[str, Any]) -> str:
    return _json({"ph": "M", "name": what, "pid": process, **({} if thread is None else {"tid": thread}), "args": args})


def _slice(one: Slice, shown: Timeline, track: Track, thread: int) -> str:
    event = {"ph": "X", "cat": one.category, "name": one.name or "(no name)", "pid": track.process, "tid": thread, "args": one.args}
    return _json(event, ts=shown.start_ns + one.start, dur=one.duration)


def micro(ns: int) -> str:
    """Nanoseconds as a JSON number of microseconds.

    Perfetto multiplies by 1000 and cuts the rest off, whole numbers and fractions apart or together: where that would lose a nanosecond to
    binary fractions a further digit, a fifth of a nanosecond, stands behind.
    """
    whole, rest = divmod(abs(ns), 1000)
    text = f"{whole}.{rest:03d}"
    exact = int(float(text) * 1000.0) == abs(ns) and int(float(f"0.{rest:03d}") * 1000.0) == rest
    return f"{'-' if ns < 0 else ''}{text}{'' if exact else '2'}"


def _json(event: dict[str, Any], **times: int) -> str:
    """An event as JSON, its times in microseconds."""
    import msgspec  # noqa: PLC0415 - so that the command line starts quickly

    told = msgspec.json.encode(event).decode("utf-8")
    written = "".join(f',"{name}":{micro(ns)}' for name, ns in times.items())
    return f"{told[:-1]}{written}}}"


def _text(text: str) -> str:
    """A text of the trace without control signs."""
    return visible(text)


WRITER = Writer(name="perfetto", extensions=(".perfetto.json", ".perfetto.json.gz"), takes="timeline", place=8, write=write)
