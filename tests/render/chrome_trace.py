"""A strict reading of Chrome's trace event format, as Perfetto's importer and Chrome read it: what is wrong with a trace, as sentences."""

import json
from collections import defaultdict
from decimal import Decimal
from typing import Any

FIELDS = {
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "M": {"ph", "name", "pid", "tid", "args"},
    "s": {"ph", "name", "cat", "id", "pid", "tid", "ts"},
    "f": {"ph", "name", "cat", "id", "pid", "tid", "ts", "bp"},
}
NAMES = {"process_name": str, "thread_name": str, "process_sort_index": int, "thread_sort_index": int}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), f"a key stands twice: {pairs}"
    return dict(pairs)


def nanoseconds(number: Decimal) -> int:
    """A time in microseconds as Perfetto reads it: digits beyond a nanosecond cut off, by decimal text and by binary fractions alike."""
    exact = int(number * 1000)
    assert int(float(number) * 1000.0) == exact, f"{number} µs loses a nanosecond as a binary fraction"
    assert number * 1000 - exact < Decimal("0.5"), f"{number} µs is rounded up by some"
    return exact


def parsed(text: str) -> dict[str, Any]:
    """The trace, times as Decimal; every key of an object stands once, and no number is NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return dict(json.loads(text, parse_float=Decimal, object_pairs_hook=_once, parse_constant=refuse))


def faults(text: str) -> list[str]:
    """Everything that is wrong with a trace."""
    trace = parsed(text)
    wrong = [f"{key!r} at the top" for key in trace if key not in ("displayTimeUnit", "otherData", "traceEvents")]
    wrong += [] if trace.get("displayTimeUnit") in ("ns", "ms") else ["displayTimeUnit is ns or ms"]
    named: dict[str, set[Any]] = defaultdict(set)
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    latest = -1
    for event in trace["traceEvents"]:
        phase = event.get("ph")
        if phase not in FIELDS:
            wrong.append(f"phase {phase!r}")
            continue
        wrong += [f"{phase}: field {name!r}" for name in event.keys() - FIELDS[phase]]
        optional = {"tid"} if phase == "M" else set()
        wrong += [f"{phase}: lacks {name}" for name in FIELDS[phase] - optional - event.keys()]
        wrong += [f"{phase}: {name} is {event[name]!r}" for name in ("pid", "tid", "id") if name in event and not _number(event[name])]
        if phase == "M":
            kind = NAMES.get(event["name"])
            value = next(iter(event["args"].values()), None)
            if kind is None or not isinstance(value, kind) or len(event["args"]) != 1 or value == "":
                wrong.append(f"metadata {event}")
            key = (event["pid"], event.get("tid"))
            if key in named[event["name"]] or slices:
                wrong.append(f"{event['name']} of {key} twice, or after the first slice")
            named[event["name"]].add(key)
            continue
        if not isinstance(event["name"], str) or not event["name"] or not isinstance(event["cat"], str) or not event["cat"]:
            wrong.append(f"no name or category: {event}")
        times = [nanoseconds(Decimal(event[name])) for name in ("ts", "dur") if name in event]
        wrong += [f"a time below zero: {event}"] if min(times) < 0 else []
        wrong += [f"not in order of time: {event}"] if times[0] < latest else []
        latest = times[0]
        track = (event["pid"], event["tid"])
        if phase == "X":
            slices[track].append((times[0], times[0] + times[1]))
        else:
            flows[event["cat"], event["name"], event["id"]].append({**event, "at": times[0], "track": track})
    wrong += [f"track {track} has no name" for track in slices if track not in named["thread_name"]]
    wrong += [f"process {pid} has no name" for pid, _ in slices if (pid, None) not in named["process_name"]]
    wrong += [f"name {key} of nothing" for key in named["thread_name"] if key not in slices]
    wrong += [f"thread {tid} in two processes" for tid in {tid for _, tid in slices} if sum(tid == other for _, other in slices) > 1]
    for track, spans in slices.items():
        wrong += _crossing(track, spans)
    for key, ends in flows.items():
        if [one["ph"] for one in ends] != ["s", "f"] or ends[-1].get("bp") != "e":
            wrong.append(f"arrow {key}: {[one['ph'] for one in ends]}")
        wrong += [f"arrow {key} ends in no slice at {one['at']}" for one in ends if not _inside(slices[one["track"]], one["at"])]
    return wrong


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _crossing(track: tuple[int, int], spans: list[tuple[int, int]]) -> list[str]:
    """Slices of one track that neither lie apart nor one in the other."""
    open_ends: list[int] = []
    found = []
    for start, end in spans:  # in the order of the file, in which a reader meets them
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            found.append(f"track {track}: a slice from {start} to {end} crosses one that ends at {open_ends[-1]}")
        open_ends.append(end)
    return found


def _inside(spans: list[tuple[int, int]], at: int) -> bool:
    return any(start <= at <= end for start, end in spans)
