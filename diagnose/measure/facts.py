"""Facts by which a trace shows whether a configured feature is at work: what ran beside compute, and names that prove it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import polars as pl
from msgspec import structs

from diagnose.document.device import Communication
from diagnose.document.diagnosis import Fact
from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.exchanges import OTHER, bus_factor
from diagnose.knowledge.features import Features, matching
from diagnose.knowledge.load import Knowledge
from diagnose.knowledge.taxonomy import HostRules, StartUpLimits
from diagnose.measure.device import DeviceMeasure, step_mean, step_median
from diagnose.measure.host import calls_named, python_seen, texts_of
from diagnose.measure.kernels import synchronous_share
from diagnose.measure.phases import longest_cost, mostly_clean, pays_again
from diagnose.measure.records import DeviceRecords
from diagnose.model.environment import EnvironmentItem
from diagnose.model.intervals import earliest, lasting, latest, merge, overlaps, total_length
from diagnose.model.names import shorten
from diagnose.model.statistics import integer_median
from diagnose.model.trace import Provenance, Trace
from diagnose.model.vocabulary import (
    COMM_KINDS,
    DENSE_GEMM,
    DISPATCH,
    EXPERT_GEMM,
    GROUP_OF_KIND,
    LOSS,
    OPTIMIZER,
    ROUTER,
    CommKind,
    FactValue,
    Status,
)

SHOWN_NAME = 80  # characters of a kernel's name in a sentence
_OVERLAPPED: tuple[CommKind, ...] = ("expert", "data", "tensor")


def feature_facts(one: DeviceMeasure, communication: Sequence[Communication], features: Features) -> dict[str, FactValue]:
    """The facts of one device, by name."""
    packing = (pl.col("bucket") == DISPATCH) & (pl.col("role") == "packing")
    return {
        **{f"{GROUP_OF_KIND[kind]}_beside_compute_ns": _beside_compute(one, kind) for kind in _OVERLAPPED},
        "expert_exchange_nccl_share": _nccl_share(communication, "expert"),
        "expert_exchange_blocks": _blocks(one, "expert"),
        **{f"{GROUP_OF_KIND[kind]}_typical_ns": _typical_length(one, kind) for kind in _OVERLAPPED if kind != "data"},
        "expert_exchange_shortest_ns": _shortest_length(one, "expert"),
        "tensor_parallel_nccl_share": _nccl_share(communication, "tensor"),
        **_low_precision_shares(one, features),
        "fused_router_kernels_per_step": _kernels_of(one, features["fused_router"], ROUTER),
        "fused_permutation_kernels_per_step": _kernels_of(one, features["fused_permutation"], DISPATCH),
        "padding_kernels_per_step": _kernels_of(one, features["row_padding"], DISPATCH),
        "unfused_update_kernels_per_step": _kernels_of(one, features["unfused_update"], OPTIMIZER),
        "unfused_update_share": _share_of(one, features["unfused_update"], OPTIMIZER),
        "unfused_loss_kernels_per_step": _kernels_of(one, features["unfused_loss"], LOSS),
        "fused_exchange_kernels_per_step": _kernels_of(one, features["fused_exchange"], EXPERT_GEMM),
        "permutation_kernels_per_step": _per_step(one, one.usage.names.filter(packing)),  # fused or not
    }


FRAMEWORKS = ("megatron", "fsdp")  # what is built on the second shows the first


def program_facts(trace: Trace, devices: Sequence[DeviceMeasure], features: Features) -> dict[str, FactValue]:
    """What kind of program one input is: rules and fixes of another kind are left out.

    Lines of Python say little about training: hooks have such names too.
    """
    names = texts_of(trace)
    details = pl.concat([one.usage.details.cast({"bucket": pl.String, "phase": pl.String}) for one in devices])
    experts = details.filter(
        pl.col("bucket").is_in([DISPATCH, EXPERT_GEMM]) | ((pl.col("bucket") == ROUTER) & (pl.col("decided_by") != "name"))
    )
    fused = any(_kernels_of(one, features["fused_router"], ROUTER) for one in devices)
    steps_back = details["phase"].is_in(["backward", OPTIMIZER]).any() or details["bucket"].is_in([OPTIMIZER]).any()
    computed = any(int(one.counts["compute_kernels"].sum() or 0) for one in devices)
    return {
        "has_experts": fused or not experts.is_empty(),
        "is_training": bool(steps_back) or any(features["training"].search(name) for name in names if ".py(" not in name)
        if computed
        else None,
        "python_seen": python_seen(trace, features),
        "framework_seen": next((name for name in FRAMEWORKS if any(map(features[name].search, names))), "none"),
    }


def of_all(inputs: Sequence[Mapping[str, FactValue]]) -> dict[str, FactValue]:
    """The kind of program that several inputs show together: what one of them shows holds for the run."""
    found: dict[str, FactValue] = {}
    for name in ("has_experts", "is_training", "python_seen"):
        values = [facts[name] for facts in inputs if facts[name] is not None]
        found[name] = any(values) if values else None
    found["framework_seen"] = next((one for facts in inputs if (one := facts["framework_seen"]) != "none"), "none")
    return found


def hierarchical_context_groups(trace: Trace, features: Features) -> bool | None:
    """Whether the context-parallel exchange has groups of several levels; None where no context-parallel group is named."""
    described = trace.payloads["group"].drop_nulls().unique().to_list()
    if matching(features["hierarchical_groups"], described):
        return True
    return False if matching(features["context_groups"], described) else None


def graph_launch_calls(trace: Trace, hosts: HostRules) -> int | None:
    """API calls of the capture that launched a CUDA graph (not all formats tell it of kernels); None where no call was recorded."""
    return None if trace.calls.is_empty() else calls_named(trace, hosts.call_pattern("graph_launch")).height


def _beside_compute(one: DeviceMeasure, kind: CommKind) -> int:
    """Time per step (ns) in which transport of a kind ran beside compute."""
    own = one.communication.beside.filter(pl.col("kind") == kind).select("index", "ns")
    return step_mean(one.budget.per_step.select("index").join(own, on="index", how="left")["ns"].fill_null(0))


def _nccl_share(communication: Sequence[Communication], kind: CommKind) -> float | None:
    """Share of the busy time of one kind of transport that NCCL's kernels carry; None where none ran."""
    own = [row for row in communication if row.kind == kind]
    busy = sum(row.busy_ns for row in own)
    return sum(row.busy_ns for row in own if row.backend == "nccl") / busy if busy else None


def _low_precision_shares(one: DeviceMeasure, features: Features) -> dict[str, float | None]:
    """Shares of GEMM work in FP8 or FP4, and in FP4, among the kernels whose names tell their operands; None where less than half of the
    work does.
    """
    gemms = one.usage.names.filter(
        pl.col("bucket").is_in([DENSE_GEMM, EXPERT_GEMM])
        & pl.col("operation").is_in(["gemm", "grouped_gemm"])  # not what comes after a product
    )
    names = gemms["name"].drop_nulls().unique().to_list()
    narrow = matching(features["narrow_gemm"], names)
    told = _work(gemms, narrow | matching(features["wide_gemm"], names))
    known = told and 2 * told >= int(gemms["work_ns"].sum())
    shares = {"low_precision_gemm_share": narrow, "fp4_gemm_share": narrow & matching(features["fp4_gemm"], names)}
    return {name: _work(gemms, own) / told if known else None for name, own in shares.items()}


def _work(frame: pl.DataFrame, names: frozenset[str]) -> int:
    """Work (ns, over all steps) of the kernels of these names."""
    return int(frame.filter(pl.col("name").is_in(sorted(names)))["work_ns"].sum())


def _kernels_of(one: DeviceMeasure, feature: re.Pattern[str], bucket: str) -> int:
    """Mean number of kernels per step, rounded up, whose names prove a feature."""
    return _per_step(one, _proving(_in_bucket(one, bucket), feature))


def _share_of(one: DeviceMeasure, feature: re.Pattern[str], bucket: str) -> float | None:
    """Share of a bucket's kernel time in kernels whose names prove a feature; None where none of the bucket ran."""
    own = _in_bucket(one, bucket)
    total = int(own["work_ns"].sum())
    return int(_proving(own, feature)["work_ns"].sum()) / total if total else None


def _in_bucket(one: DeviceMeasure, bucket: str) -> pl.DataFrame:
    """The names of a bucket's operations, with their work and number."""
    return one.usage.names.filter(pl.col("bucket").cast(pl.String) == bucket)


def _proving(own: pl.DataFrame, feature: re.Pattern[str]) -> pl.DataFrame:
    """Those rows whose names prove a feature."""
    found = matching(feature, own["name"].drop_nulls().unique().to_list())
    return own.filter(pl.col("name").is_in(sorted(found)))


def _per_step(one: DeviceMeasure, rows: pl.DataFrame) -> int:
    """Mean number of kernels per step, rounded up."""
    return -(-int(rows["kernels"].sum()) // max(one.budget.per_step.height, 1))


_OTHERWISE_NAMED = {  # fact → column of the budget
    "step_ns": "window_ns",
    "transport_blocking_ns": "blocking_transport_ns",
    "packing_blocking_ns": "blocking_packing_ns",
    "copy_blocking_ns": "blocking_copy_ns",
    "host_copy_blocking_ns": "blocking_host_copy_ns",
    "packing_exclusive_ns": "packing_exposed_ns",
}
_LATENCIES = ("launch_handover_ns", "transport_handover_ns", "host_copy_handover_ns")  # of dependency_stalled_ns: each goes with its cause
# Facts that are not known where the trace does not tell these things.
_OF_LAUNCHES = (
    "launch_starved_ns", "launch_handover_ns", "launch_shadowed_ns", "host_work_ns", "longest_host_gap_ns", "host_gap_excess_ns",
    "batch_pauses_ns", "layer_pauses_ns", "data_loading_ns", "recompilation_ns", "synchronous_launch_ns", "synchronous_launch_share",
)  # fmt: skip
_OF_CALLS = (
    "allocator_ns", "first_use_ns", "allocator_shadowed_ns", "allocator_restart_ns", "host_sync_ns", "sync_restart_ns", "python_gap_ns",
    "launch_calls_per_step", "graph_launches_per_step", "sync_calls_per_step", "dispatch_syncs_per_step", "optimizer_syncs_per_step",
    "allocator_calls_per_step",
)  # fmt: skip
_OF_GC_RANGES = ("gc_ns", "gc_ranges_per_step")
_OF_OVERHEAD = ("host_gap_profiler_ns",)
_OF_PINNED = ("pageable_copy_ns",)
_OF_BYTES = ("copy_h2d_bytes", "copy_d2h_bytes", "copy_d2h_rare_share", "copy_d2h_forward_bytes")


def device_facts(one: DeviceMeasure, records: DeviceRecords, knowledge: Knowledge) -> dict[str, FactValue]:
    """All facts that one device's measurements give."""
    names = knowledge.rulebook.facts
    values = {
        **_per_step_facts(_columns(one, names)),
        **_buckets(one, knowledge.buckets, names),
        **_steps(one),
        **_start_up(one, knowledge.hosts.start_up),
        **_long_steps(one),
        **_exchanges(records.communication),
        "other_reduction_share": _shape_share(one, "other", _REDUCING),
        "other_statistics_share": _statistics_share(one),
        "data_gather_share": _shape_share(one, "data", ("all_gather",)),
        "data_gather_blocking_ns": _gathers_awaited(one, "data"),
        "other_gather_blocking_ns": _gathers_awaited(one, "other"),
        "other_gather_share": _shape_share(one, "other", ("all_gather",)),
        "narrow_reduction_share": _narrow_share(one),
        "gradient_rounds_per_step": _gradient_rounds(one),
        "data_uneven_ns": _uneven_ns(one),
        "transport_bus_bytes": _bus_bytes(one),
        **_kernels(one),
        **_memory(one, records),
        "host_pauses": _pauses(one),
        "host_pause_most": next(iter(_named_pauses(one)["name"]), None),
        "launch_starved_range": one.causes.late_range,
        "other_processes": one.others,
        "copy_d2h_rare_share": _rare_share(one.counts["copy_d2h_bytes"]),
        "unexplained_wait_calls": _unexplained(one),
        **feature_facts(one, records.communication, knowledge.features),
        "gpu_name": one.info.name if one.info else None,
        "gpu_compute_major": one.info.compute_major if one.info else None,
        "correlation_rate": _share(one.recorded.launched, one.recorded.operations),
        "lost_launches_share": one.recorded.lost,
        "resolved_wait_rate": one.recorded.resolved_wait_rate,
    }
    values["batch_pauses_ns"] = values["batch_pauses_ns"] or None  # nothing comes back there
    values |= dict.fromkeys(_not_recorded(one))
    if not one.recorded.python:
        values["python_gap_ns"] = None
    stems = [name.removesuffix("_share") for name in names if name.endswith("_share")]
    return {**{f"{stem}_share": _share(values[f"{stem}_ns"], one.mean_step_ns) for stem in stems if f"{stem}_ns" in values}, **values}


def _share(part: FactValue, whole: int | None) -> float | None:
    """None where either is not known, or the whole is nought."""
    return part / whole if isinstance(part, int | float) and whole else None


def _rare_share(values: pl.Series) -> float | None:
    """Share of the sum over the steps that goes beyond the usual step's (median; of two in the middle the lesser)."""
    usual = values.quantile(0.5, interpolation="lower")
    return None if usual is None else _share(int((values - int(usual)).clip(lower_bound=0).sum()), int(values.sum()))


def _columns(one: DeviceMeasure, names: Collection[str]) -> dict[str, pl.Series]:
    """Facts that are columns: one value per step."""
    per_step = one.budget.per_step
    columns = {name: frame[name] for frame in (per_step, one.counts) for name in frame.columns if name in names}
    columns |= {fact: per_step[column] for fact, column in _OTHERWISE_NAMED.items()}
    latencies = [pl.col(name).fill_null(0) for name in _LATENCIES if name in per_step.columns]
    columns["unexplained_wait_ns"] = per_step.select(pl.col("dependency_stalled_ns") - pl.sum_horizontal(pl.lit(0), *latencies)).to_series()
    recomputed = one.memory.recompute.per_window
    return (
        columns
        if recomputed is None
        else columns
        | {"recompute_ns": recomputed["ns"], "recompute_lower_ns": recomputed["lower"], "recompute_light_ns": recomputed["light"]}
    )


def _per_step_facts(columns: Mapping[str, pl.Series]) -> dict[str, FactValue]:
    """The columns as sums over the steps that have a value ÷ their number (a median of kernels: the median); None where none has."""
    usual = {name: step_median if name.endswith("_median_ns") else step_mean for name in columns}
    return {name: None if values.null_count() == len(values) else usual[name](values) for name, values in columns.items()}


def typical_facts(one: DeviceMeasure, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """The facts with those that are told step by step as they are in the typical step alone; what was not measured stays so."""
    place = one.budget.per_step["index"].to_list().index(one.listed.typical)
    columns = _columns(one, facts)
    for chosen in ("recompute_lower_ns", "recompute_light_ns"):  # the job file spoke for it
        if "recompute_ns" in columns and facts["recompute_ns"].value == step_mean(columns[chosen]):
            columns["recompute_ns"] = columns[chosen]
            break
    return {
        name: structs.replace(fact, value=columns[name][place]) if name in columns and fact.value is not None else fact
        for name, fact in facts.items()
    }


def _not_recorded(one: DeviceMeasure) -> Sequence[str]:
    """Names of the facts of what the trace does not tell."""
    told = one.recorded
    groups = (
        (told.launched > 0, _OF_LAUNCHES),
        (told.calls, _OF_CALLS),
        (told.gc_ranges, _OF_GC_RANGES),
        (told.overhead and told.launched > 0, _OF_OVERHEAD),
        (told.pinned, _OF_PINNED),
        (told.bytes, _OF_BYTES),
    )
    return [name for recorded, facts in groups if not recorded for name in facts]


def _buckets(one: DeviceMeasure, buckets: Buckets, names: Collection[str]) -> dict[str, FactValue]:
    """Busy time per step and share of all work of the buckets that have such facts."""
    rows = one.usage.buckets.with_columns(pl.col("bucket").cast(pl.String))
    steps, work = one.budget.per_step.select("index"), int(rows["work_ns"].sum())
    found: dict[str, FactValue] = {}
    for bucket in buckets:
        own = rows.filter(pl.col("bucket") == bucket)
        if f"{bucket}_busy_ns" in names:
            found[f"{bucket}_busy_ns"] = step_mean(steps.join(own, on="index", how="left")["busy_ns"].fill_null(0))
        if f"{bucket}_share" in names:
            found[f"{bucket}_share"] = _share(int(own["work_ns"].sum()), work)
        if f"{bucket}_backward_ns" in names:
            phases = next((row["phase"] for row in one.listed.buckets if row["bucket"] == bucket), {"backward": 0})
            known = 10 * phases.get("unknown", 0) <= sum(phases.values())
            found[f"{bucket}_backward_ns"] = phases["backward"] + phases.get("recompute", 0) if known else None
    return found


def _steps(one: DeviceMeasure) -> dict[str, FactValue]:
    """What steps are cut by and how they differ, and shares of other things than the step."""
    per_step, longest = one.budget.per_step, one.counts["longest_host_gap_ns"].max()
    lengths, step = per_step["window_ns"], one.median_step_ns
    exposed, busy = int(per_step["transport_exposed_ns"].sum()), int(per_step["transport_busy_ns"].sum())
    return {
        "steps_n": per_step.height,
        "steps_anchored": one.steps.anchor != "capture",
        "unseen_work_ns": one.steps.unseen_ns,
        "unseen_work_call": one.steps.unseen_call,
        "step_lead_ns": one.steps.lead.ns if one.steps.lead is not None else None,
        "step_lead_range": one.steps.lead.range if one.steps.lead is not None else None,
        "step_spread": (latest(lengths) - earliest(lengths)) / step if len(lengths) > 1 and step else None,
        "longest_host_gap_ns": longest if isinstance(longest, int) else None,
        "blocking_inferred_share": _share(int(per_step["blocking_inferred_ns"].sum()), int(per_step["blocking_ns"].sum())),
        "transport_hidden_share": 1 - exposed / busy if busy else None,
    }


CUT = 0.1  # of the time: a window that begins earlier is as good as the whole capture; this project's choice, as where it is said


def _start_up(one: DeviceMeasure, limits: StartUpLimits) -> dict[str, FactValue]:
    """How much of which time is start-up, its longest call, and the longest first-use cost that lies among the work."""
    begun = one.start_up
    among, anew = (longest_cost(costs, one.steps.frame) for costs in (begun.costs, begun.again))
    per_step = one.budget.per_step
    paid = per_step["first_use_ns"] / per_step["window_ns"]
    again = per_step["index"].filter(pays_again(paid))
    every = max((phase.longest_call for phase in begun.phases if phase.longest_call), key=lambda call: call.duration_ns, default=None)
    first_use, judged = one.budget.per_step.select(pl.col("first_use_ns", "window_ns").sum()).row(0)
    span = int(one.budget.totals["last_ns"]) - int(one.budget.totals["first_ns"])
    little = begun.left < limits.run_share and judged <= limits.only_share * span
    alone = one.steps.anchor == "capture" and (begun.share >= limits.only_share or little)
    only = alone or (first_use >= limits.only_share * max(judged, 1) and not mostly_clean(paid))
    return {
        "start_up_only": only,
        "start_up_cut": one.steps.anchor == "capture" and begun.begin is not None and begun.before > CUT,
        "start_up_share": max(begun.before, begun.share) if only else begun.before,  # nothing need lie before steps that are start-up too
        "start_up_span_ns": begun.span_ns,
        "start_up_call": every.name if every is not None else None,
        "start_up_call_ns": every.duration_ns if every is not None else None,
        "first_use_call": among.name if among is not None else None,
        "first_use_call_ns": among.duration_ns if among is not None else None,
        "first_use_again_step": int(again[0]) if len(again) else None,
        "recompilation_call": anew.name if anew is not None else None,
        "recompilation_call_ns": anew.duration_ns if anew is not None else None,
    }


def _long_steps(one: DeviceMeasure) -> dict[str, FactValue]:
    """How many steps are of a kind that takes longer than most, and what made them long; None where all are of one kind."""
    long = one.classes.long
    told = (long.n, long.each_ns, long.per_step_ns, long.more_work, long.cause, long.range) if long is not None else (None,) * 6
    names = ("long_steps_n", "long_steps_excess_ns", "long_steps_ns", "long_steps_more_work", "long_steps_cause", "long_steps_range")
    return {"step_classes_n": len(one.classes.classes), **dict(zip(names, told, strict=True))}


PAUSES_NAMED = 3
PAUSE_NAMED = 0.05  # of the long pauses: what holds less of them is no place where most of them are; this project's choice
UNEXPLAINED_NAMED = 0.05  # of the time without a known cause: a call that held the host for less tells nothing; this project's choice


def _pauses(one: DeviceMeasure) -> str | None:
    """The calls and ranges that take most of the long pauses, with their time per step; None where none or less than half is named."""
    named = _named_pauses(one)
    return _calls_told(one, named.filter(pl.col("ns") >= PAUSE_NAMED * pl.col("ns").sum())) or None


def _named_pauses(one: DeviceMeasure) -> pl.DataFrame:
    """The calls and ranges that name long pauses (name, ns of all steps), most first; none where they name less than half of them."""
    named = one.causes.host.filter(pl.col("pause")).group_by("name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
    return named.clear() if 2 * int(named["ns"].sum()) < int(one.counts["host_gap_excess_ns"].sum()) else named


def _unexplained(one: DeviceMeasure) -> str | None:
    """The synchronising calls that the host was in while compute waited for something unknown; None without recorded calls."""
    stalled = int(one.budget.per_step["dependency_stalled_ns"].sum())
    long = one.causes.unexplained.filter(pl.col("ns") >= UNEXPLAINED_NAMED * stalled)
    return (_calls_told(one, long) or "no synchronising call for long") if one.recorded.calls else None


def _calls_told(one: DeviceMeasure, named: pl.DataFrame) -> str:
    """The first of these calls (name, ns), with their time per step."""
    steps = max(one.budget.per_step.height, 1)
    return ", ".join(f"{name[:80]} ({ns / steps / 1e6:.2f} ms)" for name, ns in named.head(PAUSES_NAMED).iter_rows())


def _exchanges(rows: tuple[Communication, ...]) -> dict[str, FactValue]:
    """Busy, exposed and blocking time by kind of exchange. Backends of one kind are summed: they rarely run together."""
    found: dict[str, FactValue] = {}
    for kind in COMM_KINDS:
        own = [row for row in rows if row.kind == kind]
        prefix = GROUP_OF_KIND[kind]
        found[f"{prefix}_busy_ns"] = sum(row.busy_ns for row in own)
        found[f"{prefix}_exposed_ns"] = sum(row.exposed_ns for row in own)
        found[f"{prefix}_blocking_ns"] = sum(row.blocking_ns or 0 for row in own)
    expert = [row for row in rows if row.kind == "expert"]
    found["expert_exchange_count"] = sum(row.count for row in expert)
    found["expert_exchange_backend"] = max(expert, key=lambda row: row.busy_ns).backend if expert else None
    return found


SMALL_EXCHANGE = 0.1  # of the largest, or the longest: what is less moves counts, not tokens
NARROW = 0.5  # of the widest grid: an exchange on fewer blocks moves less


def _typical_length(one: DeviceMeasure, kind: CommKind) -> int | None:
    """Median length of an exchange of this kind that moves more than counts, ns."""
    lengths = _of_tokens(one, one.exchanges.lanes_of(kind))["ns"].to_list()
    return integer_median(lengths) if lengths else None


def _shortest_length(one: DeviceMeasure, kind: CommKind) -> int | None:
    """What nine in ten exchanges of this kind that move more than counts take longer than, ns."""
    lengths = _of_tokens(one, one.exchanges.lanes_of(kind))["ns"].sort()
    return None if lengths.is_empty() else int(lengths[len(lengths) // 10])


def _of_tokens(one: DeviceMeasure, lanes: Collection[int]) -> pl.DataFrame:
    """The exchanges on these lanes that move more than counts, with their lengths (ns).

    Their bytes tell. Where none are recorded their lengths do, and their grids, since counts that wait for a late rank last as long as
    tokens: NCCL gives a message the more blocks the larger it is.
    """
    instances = one.exchanges.instances.filter(pl.col("lane").is_in(lanes)).with_columns(lasting.alias("ns"))
    told = pl.col("bytes").is_not_null()
    sized = instances.filter(told & (pl.col("bytes") >= SMALL_EXCHANGE * pl.col("bytes").max()))
    timed = instances.filter(~told).filter(pl.col("ns") >= SMALL_EXCHANGE * pl.col("ns").max())
    wide = (pl.col("blocks") >= NARROW * pl.col("blocks").max()).fill_null(value=True)
    return pl.concat([sized, timed.filter(wide)]).sort("start")


def _blocks(one: DeviceMeasure, kind: CommKind) -> int | None:
    """Median of the thread blocks of NCCL's exchanges of this kind that move more than counts; None where no grid is known."""
    lanes = [number for number in one.exchanges.lanes_of(kind) if one.exchanges.lanes[number].backend == "nccl"]
    blocks = _of_tokens(one, lanes)["blocks"].drop_nulls().to_list()
    return integer_median(blocks) if blocks else None


_REDUCTIONS = ("all_reduce", "reduce_scatter")
_REDUCING = (*_REDUCTIONS, "all_gather")


def _shape_share(one: DeviceMeasure, kind: str, shapes: Collection[str]) -> float | None:
    """Share of the time of transport of one kind in exchanges of these shapes; None where none of the kind ran in the steps."""
    return _share(int(one.exchanges.in_steps(kind, shapes)["ns"].sum()), int(one.exchanges.in_steps(kind)["ns"].sum()))


def _gathers_awaited(one: DeviceMeasure, kind: CommKind) -> int | None:
    """How long compute is stalled on all-gathers of one kind, ns per step; None where the name of what it awaits does not tell."""
    awaited = one.exchanges.instances.filter(pl.col("held_ns") > 0)
    if any(one.exchanges.lanes[lane].operation == OTHER.id for lane in set(awaited["lane"]) & set(one.exchanges.lanes_of(kind))):
        return None
    gathers = awaited.filter(pl.col("lane").is_in(one.exchanges.lanes_of(kind, ("all_gather",))))
    return int(gathers["held_ns"].sum()) // max(one.budget.per_step.height, 1)


def _narrow_share(one: DeviceMeasure) -> float | None:
    """Share of the time of data-parallel reductions in elements of 16 bits or fewer; None where less than half of it tells its elements."""
    ran = one.exchanges.in_steps("data", _REDUCTIONS)
    told = int(ran.filter(pl.col("item").is_not_null())["ns"].sum())
    return _share(int(ran.filter(pl.col("item") <= 2)["ns"].sum()), told) if 2 * told >= int(ran["ns"].sum()) else None


# equal exchanges differ by less where they share the links with others: what takes as many times the usual waits; this project's choice
UNEVEN = 3
_EQUAL = 4  # exchanges of equal size in the steps from which on there is a usual one: this project's choice


def _uneven_ns(one: DeviceMeasure) -> int | None:
    """What data-parallel exchanges take per step beyond the usual (median) of their group, operation and size, where it is many times it.

    Bytes and links are the same, so a rank came late. None where sizes were not recorded, or none came back often enough.
    """
    equal = (
        one.exchanges.in_steps("data").filter(pl.col("bytes") > 0).with_columns(pl.col("ns").median().over("lane", "bytes").alias("usual"))
    )
    equal = equal.filter(pl.len().over("lane", "bytes") >= _EQUAL)
    if equal.is_empty():
        return None
    late = equal.filter(pl.col("ns") > UNEVEN * pl.col("usual"))
    return int((late["ns"] - late["usual"]).sum()) // max(one.budget.per_step.height, 1)


LARGE_BYTES = 1 << 20  # what moves less is held up by latency, not by links; this project's choice


def _bus_bytes(one: DeviceMeasure) -> int | None:
    """Bytes a second of large collectives in the steps, as nccl-tests count a bus bandwidth, with their waiting for other ranks.

    None where none ran whose size and number of ranks are recorded.
    """
    instances = one.exchanges.instances
    factors = pl.Series("factor", [bus_factor(lane.shape, lane.size or 0) for lane in one.exchanges.lanes], dtype=pl.Float64)
    large = instances.with_columns(factors.gather(instances["lane"])).filter(
        pl.col("index").is_not_null() & (pl.col("bytes") >= LARGE_BYTES) & pl.col("factor").is_not_null()
    )
    taken = total_length(large)
    return round(1e9 * float((large["factor"] * large["bytes"]).sum()) / taken) if taken else None


ANOTHER_FORWARD = 0.5  # of the forward compute before a step's first reduction: as much between two of them is the next micro-batch's


def _gradient_rounds(one: DeviceMeasure) -> int | None:
    """After how many forward passes of a step gradients are all-reduced (median over the steps); None where that can't be seen.

    Layers that are recomputed between the reductions of one backward pass are far less than a forward pass each.
    """
    whole = [number for number, lane in enumerate(one.exchanges.lanes) if lane.shape == "all_reduce"]
    ran = one.exchanges.in_steps("data", _REDUCTIONS)
    large = ran.filter(pl.col("ns") >= SMALL_EXCHANGE * pl.col("ns").max()).filter(pl.col("lane").is_in(whole))
    if large.is_empty():
        return 0
    after = large.with_columns(pl.col("forward_ns").first().over("index").alias("first")).filter(pl.col("first") > 0)
    more = (pl.col("forward_ns").diff() >= ANOTHER_FORWARD * pl.col("first").first()).sum()
    rounds = after.group_by("index").agg(more.alias("more"))["more"].to_list()
    return 1 + integer_median(rounds) if rounds else None


# Gradient norms, overflow flags, losses and counts of tokens carry less, a bucket of gradients carries more; this project's choice.
_STATISTICS_BYTES = 65_536


def _statistics_share(one: DeviceMeasure) -> float | None:
    """Share of the time of transport of an unknown group in all-reduces of statistics; None where none of it ran in the steps.

    Such are small; where sizes are not recorded, the optimizer launches them: gradients are reduced before it begins.
    """
    small = pl.coalesce(pl.col("bytes") <= _STATISTICS_BYTES, pl.col("phase") == OPTIMIZER).fill_null(value=False)
    statistics = one.exchanges.in_steps("other", ("all_reduce",)).filter(small)
    return _share(int(statistics["ns"].sum()), int(one.exchanges.in_steps("other")["ns"].sum()))


def _kernels(one: DeviceMeasure) -> dict[str, FactValue]:
    """Shares of kernels and of work, over all steps."""
    summed = {name: int(one.counts[name].sum() or 0) for name in one.counts.columns}
    opaque = summed["opaque_work_ns"]
    computing = ~pl.col("role").is_in(["transport", "packing", "copy"]) & (pl.col("kernels") > 0)
    named = one.usage.names.filter(computing).group_by("name").agg(pl.col("work_ns").sum())
    name, work = max(named.drop_nulls().iter_rows(), key=lambda row: (row[1], row[0]), default=(None, None))
    return {
        "costliest_kernel": None if name is None else shorten(name, SHOWN_NAME),
        "costliest_kernel_share": _share(work, int(named["work_ns"].sum())),
        "operations_n": summed["operations"],
        "tiny_kernel_share": _share(summed["tiny_kernels_per_step"], summed["compute_kernels"]),
        "graph_kernel_share": None if opaque else _share(summed["graph_kernels"], summed["kernels_per_step"]),
        "opaque_graph_share": _share(opaque, summed["work_ns"]),
        "synchronous_launch_share": synchronous_share(one.counts),
        "expert_gemm_grouped_share": _share(summed["expert_grouped_ns"], summed["expert_work_ns"]),
        "contention_loss_share": _share(summed["contention_ns"], summed["compared_ns"]),
        "contention_known_share": _share(summed["compared_ns"] or None, summed["compute_beside_transport_ns"]),
    }


def _memory(one: DeviceMeasure, records: DeviceRecords) -> dict[str, FactValue]:
    """Recompute, the allocator's peaks, and how far kernels fill the SMs."""
    memory = records.memory
    return {
        "recompute_ns": memory.recompute_ns,
        "recompute_lower_ns": memory.recompute_lower_ns,
        "recompute_light_ns": None if one.memory.recompute.per_window is None else step_mean(one.memory.recompute.per_window["light"]),
        "attention_forward_per_backward": one.memory.recompute.ratio,
        "experts_recompute_told": one.memory.recompute.experts_told,
        "peak_allocated_bytes": memory.peak_allocated_bytes,
        "peak_reserved_bytes": memory.peak_reserved_bytes,
        "device_memory_bytes": memory.capacity_bytes,
        "expert_gemm_fill": one.occupancy.fills.get(EXPERT_GEMM),
        "compute_fill": one.occupancy.fills.get(""),
    }


def trace_facts(trace: Trace, devices: Sequence[DeviceMeasure], knowledge: Knowledge, ranks_captured: int) -> dict[str, FactValue]:
    """Facts of the capture as a whole."""
    worlds = [rank.world_size for rank in trace.ranks if rank.world_size is not None]
    return {
        **program_facts(trace, devices, knowledge.features),
        "world_size": max(worlds, default=None),
        "ranks_captured": ranks_captured,
        "hip_version": _hip_version(trace.provenance.environment),
        "graph_launch_calls": graph_launch_calls(trace, knowledge.hosts),
        "hierarchical_context_groups": hierarchical_context_groups(trace, knowledge.features),
        "interleaved_schedule_seen": any(map(knowledge.features["interleaved_schedule"].search, texts_of(trace))),
        "python_stacks": trace.provenance.has_python_stacks,
        "profiler_overhead_ns": _overhead(trace.provenance, devices),
        "out_of_memory_events": _out_of_memory(trace, knowledge.features),
        "lost_event_warnings": len(matching(knowledge.features["lost_events"], trace.provenance.diagnostics)),
    }


def _overhead(told: Provenance, devices: Sequence[DeviceMeasure]) -> int | None:
    """What the profiler took itself inside the kept steps; None where it does not tell."""
    if told.overhead is None:
        return None
    common = overlaps(told.own_spans(), merge(pl.concat([one.steps.frame.select("start", "end") for one in devices])))
    return total_length(common)


def _hip_version(environment: Collection[EnvironmentItem]) -> int | None:
    """HIP's version as major × 1,000,000 + minor × 1,000, the form of versions in rules; None where the trace tells none."""
    told = next((item.value for item in environment if item.name == "HIP runtime"), "")
    found = re.fullmatch(r"(\d+)\.(\d+)\.\d+", told)
    return int(found[1]) * 1_000_000 + int(found[2]) * 1_000 if found else None


def _out_of_memory(trace: Trace, features: Features) -> int | None:
    """How many allocations of device memory failed, as the profiler noted; None where no allocator's level shows that one was profiled."""
    failed = sum(bool(features["out_of_memory"].search(text)) for text in trace.provenance.diagnostics)
    return failed if failed or trace.memory["total_allocated"].count() else None


def typed_facts(values: Mapping[str, FactValue], units: Mapping[str, str], inferred: frozenset[str] = frozenset()) -> dict[str, Fact]:
    """Facts with units, in the order of the facts table. Raises KeyError for a value that the table does not know."""
    unknown = set(values) - set(units)
    if unknown:
        raise KeyError(f"not in facts.yaml: {sorted(unknown)}")

    def status(name: str) -> Status:
        return "inferred" if name in inferred else "measured"

    return {name: Fact(value=values.get(name), unit=unit, status=status(name)) for name, unit in units.items()}
