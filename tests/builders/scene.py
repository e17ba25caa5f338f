"""Small captures written as host programs: what the host called, what ran, and how it is classified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import polars as pl

from diagnose.knowledge.buckets import bucket_type
from diagnose.knowledge.load import load_knowledge
from diagnose.load.conform import typed
from diagnose.measure.buckets.classify import Classified
from diagnose.measure.device import DeviceMeasure, DeviceWork, device_work, measure_device, memory_of, names_inside, sweep
from diagnose.measure.facts import device_facts
from diagnose.measure.host import HostActivity, attribute, host_activity
from diagnose.measure.memory import MemoryUse
from diagnose.measure.phases import start_up, without_repeated
from diagnose.measure.products import product_ranges
from diagnose.measure.records import device_records
from diagnose.measure.step_classes import user_ranges
from diagnose.measure.step_host import step_ranges
from diagnose.measure.steps import StepWindows, find_steps, model_work
from diagnose.measure.waits.dependencies import resolve_waits
from diagnose.measure.waits.stalls import Stalls, stalls
from diagnose.model.trace import Device, Provenance, Rank, Trace
from diagnose.model.vocabulary import FactValue
from tests.builders.records import replace

KNOWLEDGE = load_knowledge()

# name → bucket, role, kind, backend, operation
CLASSES: dict[str, tuple[str, str, str | None, str | None, str]] = {
    "gemm": ("dense_gemm", "compute", None, None, "gemm"),
    "attention": ("attention", "compute", None, None, "attention"),
    "attention_bwd": ("attention", "compute", None, None, "attention"),
    "vision_attention": ("vision_encoder", "compute", None, None, "attention"),
    "expert": ("expert_gemm", "compute", None, None, "grouped_gemm"),
    "nvjet_tst_TNN": ("expert_gemm", "compute", None, None, "gemm"),
    "nvjet_tst_NNN": ("expert_gemm", "compute", None, None, "gemm"),
    "nvjet_tst_NTT": ("expert_gemm", "compute", None, None, "gemm"),
    "norm": ("norm", "compute", None, None, "norm"),
    "top_k": ("router", "compute", None, None, "router"),
    "top_k_bwd": ("router", "compute", None, None, "router"),
    "softmax": ("attention", "compute", None, None, "softmax"),
    "softmax_backward": ("attention", "compute", None, None, "softmax"),
    "elementwise": ("elementwise", "compute", None, None, "elementwise"),
    "adam": ("optimizer", "compute", None, None, "optimizer"),
    "at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>": ("optimizer", "compute", None, None, "optimizer"),
    "nccl": ("dispatch", "transport", "expert", "nccl", "exchange"),
    "allreduce": ("collective", "transport", "data", "nccl", "collective"),
    "allgather": ("collective", "transport", "data", "nccl", "collective"),
    "reducescatter": ("collective", "transport", "data", "nccl", "collective"),
    "gradients": ("collective", "transport", "data", "nccl", "collective"),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": ("collective", "transport", "data", "nccl", "collective"),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL": ("collective", "transport", "data", "nccl", "collective"),
    "send": ("collective", "transport", "pipeline", "nccl", "collective"),
    "permute": ("dispatch", "packing", None, None, "permute"),
    "memcpy": ("memcpy", "copy", None, None, "copy"),
    "memset": ("memset", "copy", None, None, "copy"),
}


@dataclass(frozen=True, kw_only=True)
class Item:
    """One host call. `name` is the call's; with `op` it launched an operation that ran `[start, end)` on `stream`.

    The correlation id is the place in the program, from 1, unless `correlation` says otherwise (0: not recorded). `wait` is one of
    trace.WAIT_KINDS with `event` and `sync`.
    """

    name: str = "cudaLaunchKernel"
    at: int | None = None  # None: the call was not recorded
    until: int | None = None
    thread: int = 1
    op: str | None = None
    start: int = 0
    end: int = 0
    stream: int | None = 7
    device: int = 0
    rank: int = 0
    phase: str | None = None
    pinned: bool | None = None
    copy_kind: str | None = None
    bytes: int | None = None
    node: int | None = None
    opaque: bool = False
    correlation: int | None = None
    wait: str | None = None
    event: int | None = None
    sync: int | None = None


@dataclass(frozen=True, kw_only=True)
class Span:
    """One host range."""

    text: str
    start: int
    end: int
    thread: int = 1
    kind: str = "push_pop"
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A trace and its classes."""

    trace: Trace
    classified: Classified
    _measured: dict[tuple[str | None, bool], list[DeviceMeasure]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def works(self) -> list[tuple[int, int, pl.DataFrame]]:
        """(rank, device, operations) of every device."""
        return list(device_work(self.trace, attribute(self.trace), self.classified))

    def work(self) -> pl.DataFrame:
        """The operations of the only device."""
        ((_, _, work),) = self.works()
        return work

    def host(self, rank: int = 0) -> HostActivity:
        """The host's activity as the first device sees it."""
        return host_activity(self.trace, self.works()[0][2], rank, KNOWLEDGE.hosts)

    def stalls(self, start: int, end: int, place: int = 0) -> Stalls:
        """The stalls of one device in the one window `[start, end)`."""
        rank, _, work = self.works()[place]
        window = pl.DataFrame(
            {"index": [0], "start": [start], "end": [end]}, schema={"index": pl.Int32, "start": pl.Int64, "end": pl.Int64}
        )
        waits = resolve_waits(self.trace.waits.filter(pl.col("rank") == rank), pl.Series(dtype=pl.Int64))
        return stalls(work, window, waits, host_activity(self.trace, work, rank, KNOWLEDGE.hosts))

    def measure(self, step_range: str | None = None, *, replay: bool = False) -> list[DeviceMeasure]:
        """All measurements of every device, made once; with its graph where `replay`."""
        key = (step_range, replay)
        if key not in self._measured:
            self._measured[key] = [
                measure_device(self.trace, one, self.classified, KNOWLEDGE, replay=replay) for one in self._devices(step_range)
            ]
        return list(self._measured[key])

    def memory(self) -> MemoryUse:
        """What `measure` says of the memory of the only device, without all else."""
        (one,) = self._devices()
        swept = sweep(self.trace, one, without_repeated(one.begun, one.steps.frame, one.operations), self.classified.classes, KNOWLEDGE)
        return memory_of(self.trace, one, swept, names_inside(self.trace, swept.inside), KNOWLEDGE)

    def _devices(self, step_range: str | None = None) -> Iterator[DeviceWork]:
        for rank, device, work in self.works():
            begun = start_up(self.trace, work, rank, KNOWLEDGE.hosts)
            steps = find_steps(self.trace, work, rank, KNOWLEDGE.hosts.steps, model_work(KNOWLEDGE.buckets), step_range, begun)
            yield DeviceWork(
                rank=rank,
                device=device,
                operations=work,
                steps=steps,
                begun=begun,
                marks=user_ranges(self.trace, rank, KNOWLEDGE.hosts),
                around=step_ranges(self.trace, rank, steps.frame),
                multiplied=product_ranges(self.trace),
            )

    def steps(self, step_range: str | None = None, place: int = 0) -> StepWindows:
        """The step windows of one device."""
        rank, _, work = self.works()[place]
        begun = start_up(self.trace, work, rank, KNOWLEDGE.hosts)
        return find_steps(self.trace, work, rank, KNOWLEDGE.hosts.steps, model_work(KNOWLEDGE.buckets), step_range, begun)


def run(op: str, start: int, end: int, at: int | None = None, **more: object) -> Item:
    """A launched operation; its call lasts 1 ns from `at` (not recorded where `at` is missing)."""
    return replace(Item(op=op, start=start, end=end, at=at), **more)  # type: ignore[arg-type]


def call(name: str, at: int, until: int, **more: object) -> Item:
    """A host call that launches nothing."""
    return replace(Item(name=name, at=at, until=until), **more)  # type: ignore[arg-type]


def record(at: int, stream: int, event: int | None = None, sync: int | None = None, **more: object) -> Item:
    """cudaEventRecord."""
    return replace(Item(name="cudaEventRecord", at=at, stream=stream, wait="record", event=event, sync=sync), **more)  # type: ignore[arg-type]


def await_event(at: int, stream: int, event: int | None = None, sync: int | None = None, **more: object) -> Item:
    """cudaStreamWaitEvent."""
    return replace(Item(name="cudaStreamWaitEvent", at=at, stream=stream, wait="stream_wait", event=event, sync=sync), **more)  # type: ignore[arg-type]


def scene(
    items: Sequence[Item], spans: Sequence[Span] = (), *, devices: Sequence[Device] = (), memory: Sequence[dict[str, int]] = ()
) -> Scene:
    """The capture of a host program; the same one for the same program, so that it is measured once."""
    return _scene(tuple(items), tuple(spans), tuple(devices), tuple(tuple(one.items()) for one in memory))


@lru_cache(maxsize=64)
def _scene(
    items: tuple[Item, ...], spans: tuple[Span, ...], devices: tuple[Device, ...], memory: tuple[tuple[tuple[str, int], ...], ...]
) -> Scene:
    texts = list(dict.fromkeys([item.name for item in items] + [item.op for item in items if item.op] + [span.text for span in spans]))
    ids = {text: number for number, text in enumerate(texts)}
    placed = [
        replace(item, correlation=place if item.correlation is None else item.correlation or None) for place, item in enumerate(items, 1)
    ]
    ran = sorted((item for item in placed if item.op), key=lambda item: item.start)
    called = sorted((item for item in placed if item.at is not None), key=lambda item: item.at or 0)
    classes = list(dict.fromkeys((str(item.op), item.phase) for item in ran))
    of_op = ("rank", "device", "start", "end", "stream", "correlation", "bytes", "copy_kind", "pinned")
    ops = [_row(item, *of_op, kind=_kind(item), name_id=ids[str(item.op)], graph_node=item.node) for item in ran]
    calls = [_row(item, "rank", "thread", "correlation", start=item.at, end=_returned(item), name_id=ids[item.name]) for item in called]
    of_wait = ("rank", "device", "stream", "event", "correlation")
    waits = [_row(item, *of_wait, kind=item.wait, sync_id=item.sync) for item in placed if item.wait]
    ordered = sorted(spans, key=lambda span: span.start)
    ranges = [_row(span, "rank", "thread", "start", "end", "kind", text_id=ids[span.text]) for span in ordered]
    trace = Trace(
        ops=_frame(ops, "ops"),
        calls=_frame(calls, "calls"),
        waits=_frame(waits, "waits"),
        ranges=_frame(ranges, "ranges"),
        memory=_frame([dict(one) for one in memory], "memory"),
        names=_frame([{"id": number, "text": text} for text, number in ids.items()], "names"),
        devices=devices,
        ranks=tuple(Rank(rank=rank) for rank in sorted({item.rank for item in items})),
        provenance=Provenance(file="scene", size=0, format="torch-json", profiler="test"),
    )
    numbers = pl.Series("class_id", [classes.index((str(item.op), item.phase)) for item in ran], dtype=pl.UInt16)
    return Scene(
        trace=trace,
        classified=Classified(
            class_id=numbers, classes=_classes(classes), payload_id=trace.ops["payload_id"], buckets=bucket_type(KNOWLEDGE.buckets)
        ),
    )


def _row(one: Item | Span, *fields: str, **columns: object) -> dict[str, object]:
    """A row of these fields under their names, and of other columns."""
    return {**{field: getattr(one, field) for field in fields}, **columns}


def _kind(item: Item) -> str | None:
    if item.opaque:
        return "graph"
    return item.op if item.op in ("memcpy", "memset") else "kernel"


def _returned(item: Item) -> int:
    """When a call that was recorded came back: without a word after 1 ns."""
    return item.until if item.until is not None else (item.at or 0) + 1


def _classes(keys: Sequence[tuple[str, str | None]]) -> pl.DataFrame:
    listed = [(*CLASSES[name], phase) for name, phase in keys]
    columns = ("bucket", "role", "kind", "backend", "operation", "phase")
    frame = pl.DataFrame(
        {column: [row[place] for row in listed] for place, column in enumerate(columns)}, schema=dict.fromkeys(columns, pl.String)
    )
    return frame.with_row_index("class_id").with_columns(
        pl.col("class_id").cast(pl.UInt16), pl.lit("name").alias("decided_by"), pl.lit("test").alias("rule")
    )


def _frame(rows: Sequence[Mapping[str, object]], schema: str) -> pl.DataFrame:
    return typed(pl.DataFrame(rows, infer_schema_length=None), schema) if rows else typed(pl.DataFrame(), schema).clear()


def facts_of(one: Scene) -> dict[str, FactValue]:
    """The facts of the only device."""
    (measured,) = one.measure()
    return device_facts(measured, device_records(measured), KNOWLEDGE)


def causes(found: Stalls) -> dict[str, int]:
    """Nanoseconds by cause."""
    summed = found.pieces.group_by("cause").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    return dict(sorted(summed.iter_rows()))


def blocked_by(found: Stalls, one: Scene, place: int = 0) -> dict[str, int]:
    """Nanoseconds of blocking by the name of the producer."""
    work = one.works()[place][2].select(pl.col("op").alias("producer"), "name_id")
    names = one.trace.names.select(pl.col("id").alias("name_id"), "text")
    pieces = found.pieces.filter(pl.col("cause") == "blocking").join(work, on="producer", how="left").join(names, on="name_id", how="left")
    summed = pieces.group_by("text").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    return dict(sorted(summed.iter_rows(), key=lambda pair: str(pair[0])))


@dataclass(frozen=True)
class Steps:
    """A training loop of `n` equal steps on one stream: forward, exchange, backward and optimizer kernels, 10 ns launches ahead."""

    n: int = 4
    period: int = 1000
    first: int = 0
    items: list[Item] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def build(self, text: str | None = "ProfilerStep#{}", kernels: int = 4) -> Steps:
        """Fill `items` and `spans`."""
        for number in range(self.n):
            begin = self.first + number * self.period
            each = self.period // (kernels + 1)
            for place in range(kernels):
                at = begin + place * each
                name = "adam" if place == kernels - 1 else "gemm"
                phase = "optimizer" if name == "adam" else ("forward" if place < kernels // 2 else "backward")
                self.items.append(run(name, at + 10, at + 10 + each // 2, at, phase=phase))
            if text is not None:
                self.spans.append(Span(text=text.format(number + 1), start=begin, end=begin + self.period - 1))
        return self


def host_gap(*between: Item, spans: tuple[Span, ...] = ()) -> Scene:
    """A GEMM until 10, and another that the host issues at 100 and that starts at 110."""
    return scene([run("gemm", 0, 10, 0), *between, run("gemm", 110, 120, 99)], spans)
