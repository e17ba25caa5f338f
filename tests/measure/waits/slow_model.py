"""A slow model of the budget and of the stalls, written from the definitions, nanosecond by nanosecond.

A case is a small host program on one thread: launches, event records, stream waits, synchronisations, allocations. Streams run in
order. The model asks, for each nanosecond of the window, what ran and why compute did not.
"""

import random
from dataclasses import dataclass, field

import polars as pl

from diagnose.measure.waits.stalls import HOST_CAUSES
from diagnose.model.trace import CALLS, NAMES, OPS, RANGES, WAITS, Provenance, Rank, Trace

CALL_NAMES = [
    "cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaMalloc", "kernel", "Memcpy", "Memset",
]  # fmt: skip
ROLES = {0: "compute", 1: "transport", 2: "packing", 3: "copy"}


@dataclass
class Call:
    name: str
    correlation: int
    start: int
    end: int


@dataclass
class Op:
    row: int
    stream: int
    correlation: int
    start: int
    end: int
    class_id: int
    issued: int | None


@dataclass
class Case:
    calls: list[Call] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    records: dict[int, tuple[int, int]] = field(default_factory=dict)  # sync id → stream, correlation
    waits: list[tuple[int, int, int]] = field(default_factory=list)  # stream, correlation, sync id
    syncs: list[tuple[Call, int]] = field(default_factory=list)  # call, stream
    windows: list[tuple[int, int]] = field(default_factory=list)


def make_case(seed: int, *, with_dependencies: bool = True) -> Case:
    """A random, causally consistent case."""
    rng = random.Random(seed)
    case = Case()
    now = rng.randint(0, 5)
    stream_end = dict.fromkeys(range(3), 0)
    visible: dict[int, int] = {}  # sync id → time at which the record is reached
    for correlation in range(1, rng.randint(2, 23)):
        now += rng.choice([0, 0, 1, 3, 9])
        kind = rng.choice(["launch"] * 6 + ["record", "wait", "sync", "malloc"])
        stream = rng.randint(0, 2)
        length = rng.randint(1, 4)
        call = Call("cudaLaunchKernel", correlation, now, now + length)
        if kind == "launch":
            begin = max(stream_end[stream], now + rng.randint(0, length + 3))
            end = begin + rng.choice([0, 1, 2, 5, 12])
            case.ops.append(Op(0, stream, correlation, begin, end, rng.choice([0, 0, 0, 1, 1, 2, 3]), call.end))
            stream_end[stream] = end
        elif kind == "record" and with_dependencies:
            call.name = "cudaEventRecord"
            case.records[correlation] = (stream, correlation)
            visible[correlation] = max(stream_end[stream], now)
        elif kind == "wait" and visible:
            call.name = "cudaStreamWaitEvent"
            event = rng.choice(list(visible))
            case.waits.append((stream, correlation, event))
            stream_end[stream] = max(stream_end[stream], visible[event])
        elif kind == "sync":
            call.name = "cudaStreamSynchronize"
            call.end = max(call.end, stream_end[stream] + rng.randint(0, 2))
            case.syncs.append((call, stream))
        elif kind == "malloc":
            call.name = "cudaMalloc"
        case.calls.append(call)
        now = call.end
    if rng.random() < 0.2 and case.ops:
        rng.choice(case.ops).issued = None
    case.ops.sort(key=lambda op: op.start)
    for row, op in enumerate(case.ops):
        op.row = row
    if case.ops:
        first, last = case.ops[0].start, max(op.end for op in case.ops)
        cut = rng.randint(first, max(first, last))
        spans = [(first, cut), (cut, last)] if rng.random() < 0.5 else [(first, last)]
        case.windows = [(a, b) for a, b in spans if b > a]
    return case


def to_trace(case: Case) -> Trace:
    """The case as a Trace of rank 0, device 0."""
    names = pl.DataFrame({"id": range(len(CALL_NAMES)), "text": CALL_NAMES}, schema_overrides={"id": pl.Int32}).with_columns(
        pl.lit(None, dtype=pl.String).alias("short")
    )
    name_of = {name: index for index, name in enumerate(CALL_NAMES)}
    launched = {op.correlation for op in case.ops if op.issued is not None}
    of_ops = {op.correlation for op in case.ops}
    ops = pl.DataFrame(
        [
            {
                "rank": 0,
                "device": 0,
                "start": op.start,
                "end": op.end,
                "kind": "memcpy" if op.class_id == 3 else "kernel",
                "stream": op.stream,
                "name_id": name_of["kernel"],
                "correlation": op.correlation,
                "pinned": False if op.class_id == 3 else None,
                "copy_kind": "h2d" if op.class_id == 3 else None,
            }
            for op in case.ops
        ],
        schema_overrides={"start": pl.Int64},
    )
    calls = [
        {"rank": 0, "thread": 1, "start": call.start, "end": call.end, "name_id": name_of[call.name], "correlation": call.correlation}
        for call in case.calls
        if call.correlation not in of_ops or call.correlation in launched
    ]
    waits = [
        *(
            {"kind": "record", "stream": stream, "correlation": correlation, "sync_id": key}
            for key, (stream, correlation) in case.records.items()
        ),
        *({"kind": "stream_wait", "stream": stream, "correlation": correlation, "sync_id": key} for stream, correlation, key in case.waits),
        *({"kind": "stream_sync", "stream": stream, "correlation": call.correlation, "sync_id": None} for call, stream in case.syncs),
    ]
    return Trace(
        ops=_typed(ops, OPS),
        calls=_typed(pl.DataFrame(calls, schema_overrides={"start": pl.Int64}), CALLS),
        ranges=_typed(pl.DataFrame(), RANGES).clear(),
        waits=_typed(pl.DataFrame(waits).with_columns(pl.lit(0).alias("rank")) if waits else pl.DataFrame(), WAITS, empty=not waits),
        names=_typed(names, NAMES),
        ranks=(Rank(rank=0),),
        provenance=Provenance(file="case", size=0, format="torch-json", profiler="model"),
    )


def _typed(frame: pl.DataFrame, schema: object, *, empty: bool = False) -> pl.DataFrame:
    columns = [
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in dict(schema).items()  # type: ignore[call-overload]
    ]
    typed = frame.select(columns)
    return typed.clear() if empty or frame.is_empty() else typed


def running(case: Case, moment: int) -> set[int]:
    """Classes that run during [moment, moment + 1)."""
    return {op.class_id for op in case.ops if op.start <= moment < op.end}


def producers(case: Case, consumer: Op) -> list[Op]:
    """Operations that the consumer had to wait for, by definition."""
    order = sorted(case.ops, key=lambda op: op.correlation)
    before = [op for op in case.ops if op.stream == consumer.stream and op.start < consumer.start]
    found = [max(before, key=lambda op: op.row)] if before else []
    last_issued = max(
        (op.correlation for op in order if op.stream == consumer.stream and op.correlation < consumer.correlation), default=-1
    )
    for stream, correlation, event in case.waits:
        if stream == consumer.stream and last_issued < correlation < consumer.correlation and event in case.records:
            found += _covered(case, case.records[event], order)
    return found


def _covered(case: Case, record: tuple[int, int], order: list[Op]) -> list[Op]:
    stream, correlation = record
    before = [op for op in order if op.stream == stream and op.correlation < correlation]
    found = [before[-1]] if before else []
    since = before[-1].correlation if before else -1
    for other, waited, event in case.waits:
        if other == stream and since < waited < correlation and event in case.records:
            found += _covered(case, case.records[event], order)
    return found


def explain(case: Case, window: tuple[int, int]) -> dict[str, int]:
    """Nanoseconds of the window by cause, for the moments without compute; and blocking by the producer's role."""
    total: dict[str, int] = {}
    for moment in range(*window):
        if 0 in running(case, moment):
            continue
        cause = _cause(case, moment)
        total[cause] = total.get(cause, 0) + 1
    return total


def beside_transport(case: Case, window: tuple[int, int]) -> int:
    """Nanoseconds of the window in which nothing explains why nothing computed, and transport ran."""
    states = ((moment, running(case, moment)) for moment in range(*window))
    return sum(1 for moment, ran in states if 0 not in ran and 1 in ran and _cause(case, moment) == "dependency_stalled")


def split_cells(case: Case, window: tuple[int, int]) -> dict[tuple[str, str], int]:
    """Nanoseconds of the window without compute by what ran and why compute was absent."""
    total: dict[tuple[str, str], int] = {}
    for moment in range(*window):
        states = running(case, moment)
        if 0 in states:
            continue
        ran = next((ROLES[state] for state in sorted(states)), "nothing")  # the classes stand in the order in which they count
        cause = _cause(case, moment).removeprefix("blocking ")
        following = _next_compute(case, moment)
        if cause == "dependency_stalled" and ran == "nothing" and (following is None or following.start >= window[1]):
            cause = "step_end"
        cell = ran, "host_work" if cause in ("launch", "host", "gc") else cause
        total[cell] = total.get(cell, 0) + 1
    return total


def ends_idle(case: Case) -> bool:
    """Compute ended last, and the last window goes on: the gap after it then belongs to the same operation as the gap before it."""
    closing = _closing(case)
    return closing is not None and closing.class_id == 0 and closing.end < case.windows[-1][1]


def _closing(case: Case) -> Op | None:
    """The operation that ends the last step."""
    ending = [op for op in case.ops if op.end <= case.windows[-1][1] and op.end > op.start]
    return max(ending, key=lambda op: (op.end, op.row)) if ending else None


def explain_beyond(case: Case, window: tuple[int, int]) -> dict[str, int]:
    """What bounds count beyond the split: shadows, handovers, what follows transport, and restarts, in nanoseconds of the window.

    A gap is a stretch of the window without compute.
    """
    total: dict[str, int] = {}
    gap: list[int] = []
    for moment in range(*window):
        if 0 not in running(case, moment):
            gap.append(moment)
        if gap and (0 in running(case, moment) or moment + 1 == window[1]):
            for name, ns in _of_gap(case, gap).items():
                total[name] = total.get(name, 0) + ns
            gap = []
    return total


def _of_gap(case: Case, gap: list[int]) -> dict[str, int]:
    told = {moment: _cause_and_operation(case, moment) for moment in gap}
    causes = {moment: cause for moment, (cause, _) in told.items()}
    moved = [moment for moment, cause in causes.items() if cause == "blocking transport"]
    ahead = max((gap[0] - op.start for moment in moved if (op := told[moment][1]) is not None), default=0)
    followers = {moment: op for moment, (_, op) in told.items() if moved and moment > moved[0] and op is not None and moment not in moved}
    earlier = min(followers, default=0) - min((op.start for moment in moved if (op := told[moment][1]) is not None), default=0)
    issued = min((op.issued for op in followers.values() if op.issued is not None), default=None)
    beside = sum(1 for moment in gap if issued is not None and moment >= issued and causes[moment] in HOST_CAUSES)
    consumer = _next_compute(case, gap[0]) or _closing(case)
    unissued = [moment for moment in gap if consumer is not None and consumer.issued is not None and moment < consumer.issued]
    work = [moment for moment in unissued if causes[moment] in ("launch", "host")]
    synchronising = [moment for moment in unissued if causes[moment] not in ("launch", "host", "allocator")]
    late = [*work, *(moment for moment in synchronising if causes[moment] == "host_sync")]
    idle = [moment for moment in gap if causes[moment] == "dependency_stalled"]
    after = sum(1 for moment in idle if 1 not in running(case, moment))

    def shadowed(moments: list[int]) -> int:
        return sum(1 for moment in moments if consumer is not None and _would_wait(case, consumer, moment))

    def restart(held: list[int]) -> int:
        return sum(1 for moment in late if held and moment > max(held))

    def through_host(role: str) -> list[int]:
        return [moment for moment in synchronising if causes[moment] == f"blocking {role}" and _next_compute(case, gap[0]) is not None]

    copied = [op.start for moment in through_host("copy") if (op := told[moment][1]) is not None]

    return {
        "launch_shadowed_ns": shadowed(work),
        "allocator_shadowed_ns": shadowed([moment for moment in unissued if causes[moment] == "allocator"]),
        "launch_handover_ns": len(idle) if late else 0,
        "transport_handover_ns": after if "blocking transport" in causes.values() else 0,
        "host_copy_handover_ns": len(idle) if "blocking copy" in causes.values() else 0,
        "transport_follow_ns": min(len(followers), max(ahead, 0) + beside, max(earlier, 0)),
        "transport_restart_ns": min(restart(through_host("transport")), len(through_host("transport"))),
        "host_copy_restart_ns": min(restart(through_host("copy")), len(copied), max(gap[0] - min(copied, default=0), 0)),
    }


def _would_wait(case: Case, consumer: Op, moment: int) -> bool:
    """Something in the chain of what the consumer waits for runs."""
    if _next_compute(case, moment) is None:
        latest: Op | None = consumer
    else:
        found = producers(case, consumer)
        latest = max(found, key=lambda op: (op.end, op.row)) if found else None
    return latest is not None and moment < latest.end and _blame(case, latest, moment, "nothing")[1] is not None


def _next_compute(case: Case, moment: int) -> Op | None:
    later = [op for op in case.ops if op.class_id == 0 and op.start > moment and op.end > op.start]
    return min(later, key=lambda op: (op.start, op.row)) if later else None


def _cause(case: Case, moment: int) -> str:
    return _cause_and_operation(case, moment)[0]


def _cause_and_operation(case: Case, moment: int) -> tuple[str, Op | None]:
    """Why nothing computed at that moment, and the operation that blocked, if one did."""
    consumer = _next_compute(case, moment)
    if consumer is None:
        consumer = _closing(case)
        if consumer is None:
            return "dependency_stalled", None
        latest: Op | None = consumer
    else:
        found = producers(case, consumer)
        latest = max(found, key=lambda op: (op.end, op.row)) if found else None
    if consumer.issued is not None and moment < consumer.issued:
        return _host_cause(case, moment)
    if latest is not None and moment < latest.end:
        return _blame(case, latest, moment, "dependency_stalled")
    return "dependency_stalled", None


def _blame(case: Case, producer: Op, moment: int, otherwise: str) -> tuple[str, Op | None]:
    """While a producer ran the time is its own; before that it belongs to what the producer waited for; else nothing explains it."""
    while moment < producer.start:
        found = producers(case, producer)
        latest = max(found, key=lambda op: (op.end, op.row)) if found else None
        if latest is None or moment >= latest.end:
            return otherwise, None
        producer = latest
    return f"blocking {ROLES[producer.class_id]}", producer


def _host_cause(case: Case, moment: int) -> tuple[str, Op | None]:
    inside = [call for call in case.calls if call.start <= moment < call.end]
    recorded = [call for call in inside if not any(op.correlation == call.correlation and op.issued is None for op in case.ops)]
    if any(call.name == "cudaMalloc" for call in recorded):
        return "allocator", None
    for call, stream in case.syncs:
        if call.start <= moment < call.end:
            ended = [op for op in case.ops if op.stream == stream and op.end <= call.end]
            awaited = max(ended, key=lambda op: (op.end, op.row)) if ended else None
            if awaited is not None and moment < awaited.end:
                return _blame(case, awaited, moment, "host_sync")
            return "host_sync", None
    copy = _blocking_copy(case, moment)
    if copy is not None:
        return _blame(case, copy, moment, "host_sync") if moment < copy.end else ("host_sync", None)
    return ("launch" if recorded else "host"), None


def _blocking_copy(case: Case, moment: int) -> Op | None:
    """A copy of pageable memory that began before its launching call returned."""
    for op in case.ops:
        if op.class_id == 3 and op.issued is not None and op.start < op.issued:
            call = next(call for call in case.calls if call.correlation == op.correlation)
            if call.start <= moment < call.end:
                return op
    return None
