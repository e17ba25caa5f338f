"""Everything that is measured of one input: what one task of a run over many ranks returns; and what several inputs share."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.device import MetricSamples
from diagnose.errors import UsageError
from diagnose.knowledge.environment import digest
from diagnose.knowledge.forecast import Report
from diagnose.knowledge.load import Knowledge
from diagnose.measure.buckets.classify import classify
from diagnose.measure.budget import check_split
from diagnose.measure.clocks import on_host_clock
from diagnose.measure.device import DeviceMeasure, DeviceWork, check_identities, device_work, measure_device
from diagnose.measure.facts import trace_facts
from diagnose.measure.host import attribute, kept_ranges
from diagnose.measure.phases import StartUp, start_up
from diagnose.measure.products import product_ranges
from diagnose.measure.sharing import guests, named, shared, trains, without
from diagnose.measure.step_classes import user_ranges
from diagnose.measure.step_host import step_ranges
from diagnose.measure.steps import STEP_RANGE, StepWindows, find_steps, inside_windows, model_work
from diagnose.model.environment import EnvironmentItem
from diagnose.model.ledger import Ledger
from diagnose.model.trace import Provenance, Rank, Trace
from diagnose.model.vocabulary import CommKind, FactValue

SHOWN_VALUES = 3  # of one thing that differs between inputs
NOT_SET = "(not set)"


def merged(parts: Sequence[tuple[EnvironmentItem, ...]]) -> tuple[EnvironmentItem, ...]:
    """One list of what all inputs tell.

    What they share is said once, what differs with its few values, or with their number and a digest of all.

    An input that tells nothing of a thing does not count against it, but for a variable: there an input that tells others has it not set.
    """
    told = [part for part in parts if part]
    with_variables = sum(1 for part in told if any(item.kind == "variable" for item in part))
    found: dict[tuple[str, str], list[EnvironmentItem]] = {}
    for part in told:
        for item in part:
            found.setdefault((item.kind, item.name), []).append(item)
    kinds = list(dict.fromkeys(item.kind for part in told for item in part))
    joined = []
    for (kind, _), items in found.items():
        values = sorted({item.value for item in items})
        if kind == "variable" and len(items) < with_variables:
            values.append(NOT_SET)
        joined.append(items[0] if len(values) == 1 else _differing(items, values))
    return tuple(sorted(joined, key=lambda item: (kinds.index(item.kind), item.name if item.kind == "variable" else "")))


def _differing(items: Sequence[EnvironmentItem], values: Sequence[str]) -> EnvironmentItem:
    short = " | ".join(values) if len(values) <= SHOWN_VALUES else f"{len(values)} values, {digest(repr(values))}"
    first = items[0]
    return EnvironmentItem(name=first.name, kind=first.kind, value=f"differs between inputs: {short}", source=first.source)


class Measured(Struct, frozen=True, kw_only=True):
    """What is kept of one input once its trace is measured; the frames of the trace itself are let go."""

    provenance: Provenance
    ranks: tuple[Rank, ...]
    ledger: Ledger
    devices: tuple[DeviceMeasure, ...]
    facts: dict[str, FactValue]
    samples: tuple[MetricSamples, ...]


def measure(
    trace: Trace,
    knowledge: Knowledge,
    step_range: str | None = None,
    absent: frozenset[CommKind] = frozenset(),
    *,
    replay: bool = False,
    most: Report | None = None,
) -> Measured:
    """Measure every device of one trace. `absent`: kinds of exchange that a job file rules out; `replay`: whether graphs are built,
    of all kept steps or (`most`) of as many as a report replays.
    """
    launches = attribute(trace)
    trace, shifts = on_host_clock(trace, launches)
    classified = classify(trace, launches, knowledge.taxonomy, absent)
    ledger = trace.ledger.note("no_launch", "ops", launches.frame["issued"].null_count())
    ledger = ledger.note("duplicate_launch", "calls", launches.duplicates)
    sharing = shared(trace.devices)
    found = {}
    for rank, device, work in device_work(trace, launches, classified):
        found[rank, device] = _preview(trace, work, rank, knowledge, step_range, shares=(rank, device) in sharing)
    hosted = guests(sharing, {key: one.trains for key, one in found.items() if one.trains is not None})
    if step_range and not any(one.steps.anchor.startswith(STEP_RANGE) for one in found.values()):
        raise _unmarked(trace, step_range)
    marks = {rank: user_ranges(trace, rank, knowledge.hosts) for rank, _ in found}
    multiplied = product_ranges(trace)
    trace = replace(trace, ranges=kept_ranges(trace, knowledge.hosts))  # only the host's ranges are still needed
    devices: list[DeviceMeasure] = []
    samples: list[MetricSamples] = []
    for rank, device, work in device_work(trace, launches, classified):  # again, so that one device's operations are held at a time
        if (rank, device) in hosted:
            continue
        source = DeviceWork(
            rank=rank,
            device=device,
            operations=work,
            steps=found[rank, device].steps,
            begun=found[rank, device].begun,
            marks=marks[rank],
            around=found[rank, device].around,
            multiplied=multiplied,
            others={named(trace, other): found[other, seen].ran for other, seen in sharing.get((rank, device), ())},
        )
        one = measure_device(trace, source, classified, knowledge, replay=replay, most=most)
        check_identities(one.listed.steps, rank)
        for step_split, step_budget in zip(one.split, one.listed.steps, strict=True):
            check_split(step_split, step_budget)
        ledger = ledger.note("merged_classes", "ops", one.budget.merged_classes)
        devices.append(one)
        samples += metric_samples(trace, work, one.steps.frame, rank, device)
    return Measured(
        provenance=trace.provenance,
        ranks=without(trace.ranks, hosted, found),
        ledger=ledger,
        devices=tuple(devices),
        facts={**trace_facts(trace, devices, knowledge, ranks_captured=0), **shifts.facts},
        samples=tuple(samples),
    )


class _Preview(Struct, frozen=True, kw_only=True):
    """What is found of a device before it is measured: its start-up, its steps and the ranges around them.

    Where processes share it, also whether this one trains, and when it ran (start, end; empty where it is nobody else's).
    """

    begun: StartUp
    steps: StepWindows
    around: pl.DataFrame
    trains: bool | None
    ran: pl.DataFrame


def _preview(trace: Trace, work: pl.DataFrame, rank: int, knowledge: Knowledge, step_range: str | None, *, shares: bool) -> _Preview:
    """What is found of one device's operations."""
    begun, ran = start_up(trace, work, rank, knowledge.hosts), work.select("start", "end")
    steps = find_steps(trace, work, rank, knowledge.hosts.steps, model_work(knowledge.buckets), step_range, begun)
    around = step_ranges(trace, rank, steps.frame)
    return _Preview(begun=begun, steps=steps, around=around, trains=trains(work) if shares else None, ran=ran if shares else ran.clear())


def metric_samples(trace: Trace, work: pl.DataFrame, windows: pl.DataFrame, rank: int, device: int) -> list[MetricSamples]:
    """What the hardware metrics of one device show inside its steps, by name. `work`: all its operations."""
    own = trace.counters.filter((pl.col("rank") == rank) & (pl.col("device") == device)).sort("time")
    if own.is_empty():
        return []
    begun, ended = (work[edge].sort().search_sorted(own["time"], side="right").cast(pl.Int64) for edge in ("start", "end"))
    held = inside_windows(own.with_columns(((begun - ended) == 1).alias("alone")).rename({"time": "start"}), windows)
    names = own.select(pl.col("name_id").alias("id")).unique().join(trace.names, on="id").sort("text")
    return [
        MetricSamples(
            rank=rank,
            device=device,
            name=name,
            samples=(found := held.filter(pl.col("name_id") == name_id)).height,
            alone=int(found["alone"].sum()),
            mean=_mean_of(found["value"]),
            mean_alone=_mean_of(found["value"].filter(found["alone"])),
        )
        for name_id, name in names.select("id", "text").iter_rows()
    ]


def _mean_of(values: pl.Series) -> float | None:
    """The mean of what is known; None where nothing is."""
    mean = values.mean()
    return round(mean, 3) if isinstance(mean, float) else None


def _unmarked(trace: Trace, step_range: str) -> UsageError:
    """The error for a pattern of the user's that marks no step, naming ranges that the trace does hold."""
    marks = trace.ranges.filter(pl.col("kind").is_in(["annotation", "push_pop", "start_end"]))
    used = trace.names.join(marks.select(pl.col("text_id").alias("id")), on="id", how="semi")["text"].to_list()
    seen = ", ".join(repr(text[:60]) for text in used[:12])
    return UsageError(
        f"The step range {step_range!r} marks no step in {trace.provenance.file}: no range of that name launched work on a GPU.",
        effect="Nothing was analysed.",
        next_step=f"Leave it out, or name one of the ranges that the trace holds{': ' + seen if seen else ' (it holds none)'}.",
    )


def typical(keys: Sequence[tuple[float, int, int]]) -> tuple[float, int, int]:
    """Of (median step, rank, device), the one in the middle: the lower median."""
    return sorted(keys)[(len(keys) - 1) // 2]
