"""Two invented diagnoses that hold everything a renderer can meet, and almost nothing."""

from __future__ import annotations

from diagnose.document import device as r
from diagnose.document import diagnosis as d
from diagnose.knowledge.vocabulary import load_vocabulary
from diagnose.model import vocabulary as v
from tests.builders.rank_records import rich_ranks

LONG_KERNEL = "void cutlass::device_kernel<" + "cute::tuple<cute::C<(int)64>, cute::C<(int)128>>, " * 97 + "float>(T1::Params)"
SCRIPT = "</script><script>alert(1)</script>"
HOSTILE = (
    SCRIPT,
    "<img src=x onerror=alert(2)>",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "kernel_\u202eevil\u202c_name",
    "a|b`c`|d [link](https://example.invalid) **bold** @octocat #1",
    "::error::the build is broken",
    "%{customdata} <b>bold</b><a href='https://example.invalid'>x</a>",
    '" onmouseover="alert(3)',
    "{{ 7*7 }}{% raw %}",
    "line one\nline two\r\n::warning::x",
)


def _ms(value: float) -> int:
    return round(value * 1_000_000)


def step(index: int | None, scale: float = 1.0, slow: float = 0.0) -> r.StepBudget:
    """A step of 212.5 ms (times `scale`) plus `slow` ms of host work, all identities exact."""
    part = {name: _ms(value * scale) for name, value in _STEP_MS.items()}
    part["host_work"] += _ms(slow)
    starved = part["host_work"] + part["host_sync"] + part["allocator"]
    blocking = part["blocking_transport"] + part["blocking_packing"] + part["blocking_copy"]
    absent = starved + blocking + part["stalled"]
    busy = part["compute"] + blocking + _ms(0.25 * scale)
    return r.StepBudget(
        index=index,
        window_ns=part["compute"] + absent,
        device_busy_ns=busy,
        device_idle_ns=part["compute"] + absent - busy,
        compute_busy_ns=part["compute"],
        compute_absent_ns=absent,
        communication_busy_ns=_ms(121.337 * scale),
        communication_exposed_ns=_ms(56.120 * scale),
        transport_busy_ns=_ms(104.902 * scale),
        transport_exposed_ns=_ms(47.618 * scale),
        packing_busy_ns=_ms(16.435 * scale),
        packing_exposed_ns=_ms(8.502 * scale),
        copy_busy_ns=_ms(3.218 * scale),
        copy_exposed_ns=_ms(1.177 * scale),
        launch_starved_ns=starved,
        allocator_ns=part["allocator"],
        host_sync_ns=part["host_sync"],
        host_work_ns=part["host_work"],
        blocking_ns=blocking,
        blocking_transport_ns=part["blocking_transport"],
        blocking_packing_ns=part["blocking_packing"],
        blocking_copy_ns=part["blocking_copy"],
        blocking_host_copy_ns=part["blocking_copy"],
        dependency_stalled_ns=part["stalled"],
        blocking_lower_ns=blocking - _ms(3.1),
        blocking_upper_ns=blocking + _ms(4.4),
    )


_STEP_MS = {
    "compute": 128.412,
    "host_work": 13.874,
    "host_sync": 9.031,
    "allocator": 1.902,
    "blocking_transport": 45.273,
    "blocking_packing": 7.214,
    "blocking_copy": 1.101,
    "stalled": 5.693,
}


def _device_budget(rank: int, scale: float) -> r.DeviceBudget:
    steps = (step(3, scale), step(4, scale * 1.012), step(5, scale, slow=19.417))
    median = {name: sorted(getattr(one, name) for one in steps)[1] for name in r.StepBudget.__struct_fields__ if name != "index"}
    return r.DeviceBudget(rank=rank, device=rank, per_step=steps, median=r.StepBudget(index=None, **median))


_BUCKETS = (
    # bucket, kernels, work, busy, exclusive, forward share, evidence
    ("vision_encoder", 412, 11.204, 11.180, 9.951, 0.34, {"module": 1.0}),
    ("attention", 576, 31.550, 31.502, 18.331, 0.33, {"module": 0.82, "name": 0.18}),
    ("router", 1_344, 6.871, 6.860, 3.377, 0.52, {"module": 0.7, "name": 0.3}),
    ("dispatch", 1_152, 96.330, 94.011, 44.902, 0.5, {"operator": 0.64, "name": 0.36}),
    ("expert_gemm", 384, 48.118, 48.118, 24.640, 0.34, {"name": 0.91, "neighbours": 0.09}),
    ("optimizer", 96, 7.702, 7.702, 7.702, None, {"module": 1.0}),
    ("dense_gemm", 480, 14.008, 14.008, 7.100, 0.34, {"name": 1.0}),
    ("norm", 384, 4.102, 4.102, 2.221, 0.41, {"name": 1.0}),
    ("activation", 288, 3.310, 3.310, 1.870, 0.45, {"name": 1.0}),
    ("embedding", 6, 0.402, 0.402, 0.402, 0.3, {"name": 1.0}),
    ("loss", 9, 1.120, 1.120, 1.120, 0.5, {"name": 1.0}),
    ("collective", 64, 27.006, 26.902, 11.218, None, {"operator": 1.0}),
    ("memcpy", 310, 3.011, 3.004, 1.102, None, {"name": 1.0}),
    ("memset", 144, 0.214, 0.214, 0.075, None, {"name": 1.0}),
    ("elementwise", 2_304, 9.415, 9.388, 5.200, 0.48, {"name": 1.0}),
    ("other", 42, 7.903, 7.903, 6.115, None, {"name": 1.0}),
)


def _buckets(rank: int, scale: float) -> tuple[r.BucketTime, ...]:
    total = sum(row[2] for row in _BUCKETS)
    return tuple(
        r.BucketTime(
            rank=rank,
            device=rank,
            bucket=bucket,
            kernels=kernels,
            work_ns=_ms(work * scale),
            busy_ns=_ms(busy * scale),
            exclusive_ns=_ms(exclusive * scale),
            share=work / total,
            phase={"unknown": _ms(work * scale)}
            if forward is None
            else {"forward": _ms(work * scale * forward), "backward": _ms(work * scale) - _ms(work * scale * forward)},
            decided_by=evidence,
        )
        for bucket, kernels, work, busy, exclusive, forward, evidence in _BUCKETS
    )


def _communication(rank: int, scale: float) -> tuple[r.Communication, ...]:
    rows: tuple[tuple[v.CommKind, str, int, float, float, float, float | None], ...] = (
        ("expert", "deepep", 192, 78.402, 77.896, 38.114, 36.901),
        ("data", "nccl", 24, 18.224, 18.201, 8.312, 8.021),
        ("tensor", "nccl", 32, 7.511, 7.402, 1.192, 0.351),
        ("pipeline", "nccl", 8, 1.271, 1.271, 0.0, 0.0),
        ("other", "nccl", 2, 0.132, 0.132, 0.0, None),
    )
    return tuple(
        r.Communication(
            rank=rank,
            device=rank,
            kind=kind,
            backend=backend,
            count=number,
            work_ns=_ms(work * scale),
            busy_ns=_ms(busy * scale),
            exposed_ns=_ms(exposed * scale),
            blocking_ns=None if blocking is None else _ms(blocking * scale),
            overlap=1 - exposed / busy,
            transfer_ns=_ms(busy * 0.7 * scale) if kind == "expert" else None,
            wait_ns=_ms(busy * 0.3 * scale) if kind == "expert" else None,
            matched=number if kind == "expert" else None,
            unmatched=0 if kind == "expert" else None,
        )
        for kind, backend, number, work, busy, exposed, blocking in rows
    )


def _timeline() -> r.Timeline:
    names = ("fused_attention_fwd", "grouped_gemm_nn", HOSTILE[0], HOSTILE[6], "rmsnorm_fwd", LONG_KERNEL)
    kinds: tuple[tuple[str, v.Role], ...] = (
        ("attention", "compute"),
        ("expert_gemm", "compute"),
        ("norm", "compute"),
        ("router", "compute"),
        ("elementwise", "compute"),
        ("optimizer", "compute"),
    )
    ops: list[r.TimelineOp] = []
    gaps: list[r.TimelineGap] = []
    causes = (
        "blocking_transport",
        "host_work",
        "host_sync",
        "allocator",
        "blocking_packing",
        "blocking_copy",
        "dependency_stalled",
        "sunspots",
    )
    start, end = _ms(212.5), _ms(425.0)
    now, index = start, 0
    while now < end - _ms(3):
        bucket, role = kinds[index % len(kinds)]
        length = _ms(0.6 + (index * 37 % 23) / 10)
        ops.append(
            r.TimelineOp(
                stream=7, start_ns=now, end_ns=now + length, bucket=bucket, role=role, name=names[index % 6], kernels=1 + index % 9
            )
        )
        gap = _ms(0.2 + (index * 13 % 17) / 12)
        cause = causes[index * 7 % len(causes)]
        gaps.append(r.TimelineGap(start_ns=now + length, end_ns=now + length + gap, cause=cause))
        if cause.startswith("blocking"):
            role_of: v.Role = "transport" if cause.endswith("transport") else "packing" if cause.endswith("packing") else "copy"
            ops.append(
                r.TimelineOp(
                    stream=20 if role_of != "copy" else 24,
                    start_ns=now + length // 2,
                    end_ns=now + length + gap,
                    bucket="memcpy" if role_of == "copy" else "dispatch",
                    role=role_of,
                    name="deep_ep::internode::dispatch" if role_of == "transport" else "permute_rows",
                    kernels=1,
                )
            )
        now += length + gap
        index += 1
    ordered = tuple(sorted(ops, key=lambda op: (op.stream, op.start_ns)))
    return r.Timeline(rank=0, device=0, step=4, start_ns=start, end_ns=end, ops=ordered, gaps=tuple(gaps), omitted=1_287)


def _fixes() -> tuple[d.Fix, ...]:
    return (
        d.Fix(
            id="ep-overlap",
            title="Overlap the expert exchange with the compute of another micro-batch",
            state="applicable",
            blocked_by=(),
            changes=(
                d.Change(framework="megatron-bridge", key="comm_overlap.overlap_moe_expert_parallel_comm", from_="false", to="true"),
                d.Change(framework="megatron-bridge", key="comm_overlap.delay_wgrad_compute", from_=None, to="true"),
                d.Change(framework="megatron-lm", key="--overlap-moe-expert-parallel-comm", from_=None, to="(set)"),
            ),
            expected=(d.Expected(text="1.06× to 1.14× on 64 H100, EP 8 (published A/B)", source="example.invalid/benchmarks#ep-overlap"),),
            cost="more activation memory: one micro-batch in flight more",
            risk="needs PyTorch 2.6 or newer; recompute granularity full is refused",
            verify="expert_exchange_blocking_ns falls; expert_exchange_busy_ns stays",
            refs=("docs/training/communication-overlap.md",),
        ),
        d.Fix(
            id="hybrid-ep",
            title="Exchange tokens with HybridEP",
            state="blocked",
            blocked_by=(
                "HybridEP pays within one NVLink domain; EP 64 spans 8 nodes here.",
                "The platform H100 is not in its supported list.",
            ),
            changes=(d.Change(framework="megatron-bridge", key="model.moe_flex_dispatcher_backend", from_="deepep", to="hybridep"),),
            expected=(),
            cost="",
            risk="",
            verify="expert_exchange_busy_ns falls",
            refs=(),
        ),
        d.Fix(
            id="deepep",
            title="Exchange tokens with DeepEP",
            state="already_on",
            blocked_by=(),
            changes=(
                d.Change(framework="megatron-bridge", key="model.moe_token_dispatcher_type", from_="flex", to="flex"),
                d.Change(framework="megatron-lm", key="--moe-token-dispatcher-type", from_="flex", to="flex"),
            ),
            expected=(d.Expected(text="15.7 s → 10.5 s per step on the reporter's job", source="example.invalid/3654"),),
            cost="",
            risk="",
            verify="expert_exchange_backend is deepep",
            refs=(),
        ),
        d.Fix(
            id="larger-micro-batch",
            title="Raise the micro-batch size",
            state="unknown",
            blocked_by=(),
            changes=(d.Change(framework="megatron-lm", key="--micro-batch-size", from_="1", to="2"),),
            expected=(),
            cost="activation memory grows with it",
            risk="may not fit",
            verify="launch_starved_ns falls",
            refs=(),
            unknown=("Whether it fits: peak_reserved_bytes, device_memory_bytes are not measured.",),
        ),
    )


def _findings() -> tuple[d.Finding, ...]:
    return (
        d.Finding(
            id="comm-blocking-expert-exchange",
            name="Blocking expert exchange",
            wall="communication",
            severity="high",
            status="measured",
            summary="Compute had been issued and waited 36.901 ms of each step for the DeepEP dispatch and combine.",
            evidence=(
                d.Evidence(fact="expert_exchange_blocking_ns", value=36_901_000, unit="ns"),
                d.Evidence(fact="expert_exchange_busy_ns", value=77_896_000, unit="ns"),
                d.Evidence(fact="expert_exchange_blocking_share", value=0.17365, unit="share"),
                d.Evidence(fact="expert_exchange_backend", value="deepep", unit="text"),
                d.Evidence(fact="peak_reserved_bytes", value=None, unit="bytes"),
            ),
            bound_ns=36_901_000,
            speedup_ceiling=1.2101,
            where=d.Where(ranks=(0, 1), steps=(3, 4, 5), top=("deep_ep::internode::dispatch<8, 8192>", HOSTILE[4], LONG_KERNEL)),
            fixes=_fixes(),
            wrong_when="Another rank came late: then the exchange only shows the wait. Capture the slow rank and compare.",
            why="The exchange sits on the path from the router to the expert GEMMs; nothing of this micro-batch can run before it ends.",
            check="Look at the stream of the dispatch kernels: the next grouped GEMM starts within 10 µs of the dispatch's end.",
            refs=("arXiv:2603.07685",),
        ),
        d.Finding(
            id="host-launch-starved",
            name="Launch-starved",
            wall="host_overhead",
            severity="medium",
            status="inferred",
            summary=f"The GPU idled 13.874 ms of each step before the host had issued the next kernel ({SCRIPT}).",
            evidence=(
                d.Evidence(fact="host_work_ns", value=13_874_000, unit="ns"),
                d.Evidence(fact="kernels_per_step", value=7_996.5, unit="count"),
                d.Evidence(fact="steps_anchored", value=True, unit="bool"),
            ),
            bound_ns=13_874_000,
            speedup_ceiling=1.0698,
            where=d.Where(ranks=(0,), steps=(5,), top=("aten::item", HOSTILE[5])),
            fixes=(),
            wrong_when="Python stacks were recorded: they slow the host.",
        ),
        d.Finding(
            id="capture-unclassified",
            name="Unclassified time",
            wall="capture",
            severity="low",
            status="measured",
            summary="2.9 % of device time went to kernels that no rule knows.",
            evidence=(d.Evidence(fact="other_share", value=0.029, unit="share"),),
            bound_ns=None,
            speedup_ceiling=None,
            where=d.Where(ranks=(), steps=(), top=()),
            fixes=(),
            wrong_when="",
        ),
    )


_RICH_TOTALS = tuple(
    r.Totals(
        rank=rank,
        device=rank,
        kernel_count=23_989,
        kernel_work_ns=815_002_118,
        device_busy_ns=549_120_004,
        kernel_busy_ns=545_332_101,
        transport_busy_ns=315_002_000,
        transport_exposed_ns=143_001_221,
        first_ns=1_726_000_000_000_000_123,
        last_ns=1_726_000_000_668_010_456,
    )
    for rank in (0, 1)
)


def rich() -> d.Diagnosis:
    """Two devices, three steps, eight ranks, every section filled, hostile texts in every field that a trace can fill."""
    budget = (_device_budget(0, 1.0), _device_budget(1, 0.97))
    step_ns = budget[0].median.window_ns if budget[0].median else 1
    bounds: tuple[tuple[v.Wall, float, dict[str, float | None], v.Status], ...] = (
        ("memory", 8.914, {"recompute": 5.911, "blocking_copies": 1.101, "allocator": 1.902}, "inferred"),
        ("communication", 45.273, {"transfer": None, "wait": None}, "measured"),
        ("host_overhead", 22.905, {"host_work": 13.874, "host_sync": 9.031}, "measured"),
        ("compute", 128.412, {}, "measured"),
    )
    return d.Diagnosis(
        schema=d.SCHEMA,
        tool=d.Tool(name="diagnose", version="0.1.0", rules_sha256="4be1" + "0" * 56 + "77aa"),
        verdict=d.Verdict(
            dominant_wall="communication",
            runner_up="host_overhead",
            certainty="medium",
            sentence="Communication holds this run back: compute waited 45.273 ms of each 215.050 ms step for transport, mostly for the expert exchange over DeepEP.",
            perturbed=True,
            rank=0,
            device=0,
            certainty_reasons=("91.2 % of stream waits were resolved", "3 steps, spread 9.1 %", "Python stacks were recorded"),
        ),
        walls=tuple(
            d.WallBound(
                wall=wall,
                bound_ns=_ms(bound),
                share=_ms(bound) / step_ns,
                parts={name: None if value is None else _ms(value) for name, value in parts.items()},
                status=status,
                beside={"packing": 7_214_000} if wall == "communication" else {},
            )
            for wall, bound, parts, status in bounds
        ),
        job=d.JobRead(
            format="megatron-bridge",
            settings=(
                d.JobSetting(name="expert_parallel", value=64, key="model.expert_model_parallel_size"),
                d.JobSetting(name="recompute_modules", value=("moe_act", "layernorm"), key="model.recompute_modules"),
                d.JobSetting(name="overlap_ep", value=False, key="comm_overlap.overlap_moe_expert_parallel_comm"),
                d.JobSetting(name="run_name", value=HOSTILE[1], key="logger.name"),
            ),
            unknown=("model.my_own_switch", HOSTILE[8]),
        ),
        capture=d.Capture(
            format="Nsight Systems SQLite",
            profiler="NVIDIA Nsight Systems",
            profiler_version="2025.3.1",
            schema_version="3.23.0",
            devices=tuple(
                d.DeviceInfo(
                    rank=rank,
                    device=rank,
                    name="NVIDIA H100 80GB HBM3",
                    sm_count=132,
                    compute_capability="9.0",
                    memory_bytes=85_520_809_984,
                )
                for rank in (0, 1)
            ),
            ranks=(
                d.RankInfo(rank=0, world_size=64, source="trace", file="rank0.sqlite"),
                d.RankInfo(rank=1, world_size=64, source="trace", file=HOSTILE[1]),
            ),
            diagnostics=("Not all NVTX events might have been collected.", HOSTILE[2], HOSTILE[9]),
            cuda_graphs="nodes",
            correlation_rate=0.9987,
            resolved_wait_rate=0.912,
            metrics=(),
            slowdown=0.177,
            tables=(
                d.TableCount(table="CUPTI_ACTIVITY_KIND_KERNEL", read=47_981, kept=47_978, refused=3),
                d.TableCount(table="NVTX_EVENTS", read=120_003, kept=119_001, refused=1_002),
            ),
            notes=("Rank 1 lies in another file than rank 0.", HOSTILE[3], HOSTILE[4]),
        ),
        ledger=(
            d.LedgerEntry(
                code="negative_duration",
                severity="data_loss",
                origin="analysis",
                table="CUPTI_ACTIVITY_KIND_KERNEL",
                count=3,
                meaning="Rows that end before they start. They are left out of every figure; the profiler's clock jumped or the file was edited.",
            ),
            d.LedgerEntry(
                code="profiler_warning",
                severity="notice",
                origin="capture",
                table="DIAGNOSTIC_EVENT",
                count=2,
                meaning="Warnings that the profiler itself recorded while capturing. Read them under capture quality.",
                detail=HOSTILE[7],
            ),
            d.LedgerEntry(
                code="not_needed",
                severity="info",
                origin="analysis",
                table="NVTX_EVENTS",
                count=1_002,
                meaning="Events of a kind that no measure uses (flow arrows, span markers, empty names). Nothing is lost.",
            ),
        ),
        steps=r.Steps(
            anchor="iteration NVTX range",
            n=3,
            dropped=(
                r.Dropped(index=0, why="warm-up"),
                r.Dropped(index=1, why="graph capture"),
                r.Dropped(index=2, why="the profiler's start"),
            ),
            duration_ns=r.Spread(median=_ms(215.050), min=_ms(212.5), max=_ms(231.917), n=3),
            windows=tuple(
                r.Window(index=index, start_ns=_ms(212.5 * (index - 3)), end_ns=_ms(212.5 * (index - 2)), rank=rank, device=rank)
                for rank in (0, 1)
                for index in (3, 4, 5)
            ),
            cross_check=(r.CrossCheck(anchor="optimizer kernels", median_ns=_ms(213.9), n=3, disagrees=False),),
        ),
        totals=_RICH_TOTALS,
        budget=budget,
        buckets=_buckets(0, 1.0) + _buckets(1, 0.97),
        unclassified=(
            r.Unclassified(name=LONG_KERNEL, kernels=12, work_ns=_ms(3.114), share=0.0114),
            *(
                r.Unclassified(name=name, kernels=3 * (index + 1), work_ns=_ms(0.9 - index * 0.08), share=0.0033 - index * 0.0003)
                for index, name in enumerate(HOSTILE)
            ),
        ),
        communication=_communication(0, 1.0) + _communication(1, 0.97),
        blocking=tuple(
            r.Blocking(rank=rank, device=rank, bucket=bucket, role=role, kind=kind, blocking_ns=_ms(value), status=status)
            for rank in (0, 1)
            for bucket, role, kind, value, status in _BLOCKING
        ),
        host=(
            r.HostCost(rank=0, device=0, name="cudaStreamSynchronize", launch_starved_ns=_ms(9.031), count=48, cause="sync"),
            r.HostCost(rank=0, device=0, name="aten::item", launch_starved_ns=_ms(6.2), count=48, cause="python"),
            r.HostCost(rank=0, device=0, name="gc.collect", launch_starved_ns=_ms(4.18), count=1, cause="gc"),
            r.HostCost(rank=0, device=0, name="cudaMalloc", launch_starved_ns=_ms(1.902), count=6, cause="allocator"),
            r.HostCost(rank=0, device=0, name=HOSTILE[0], launch_starved_ns=_ms(1.1), count=2, cause="launch"),
        ),
        memory=r.Memory(
            recompute_ns=_ms(5.911),
            recompute_status="inferred",
            attention_forward_kernels=96,
            attention_backward_kernels=48,
            peak_allocated_bytes=71_200_000_000,
            peak_reserved_bytes=None,
            capacity_bytes=85_520_809_984,
        ),
        occupancy=r.Occupancy(
            device="NVIDIA H100 80GB HBM3",
            sm_count=132,
            buckets={"attention": 0.93, "expert_gemm": 0.612, "router": None},
            kernels=(
                r.KernelOccupancy(
                    name="grouped_gemm_nn",
                    bucket="expert_gemm",
                    kernels=384,
                    work_ns=_ms(44.2),
                    occupancy=0.25,
                    waves=1.22,
                    fill=0.61,
                    limited_by="registers",
                ),
                r.KernelOccupancy(
                    name=HOSTILE[6], bucket="router", kernels=96, work_ns=_ms(2.1), occupancy=None, waves=None, fill=None, limited_by=None
                ),
            ),
        ),
        ranks=rich_ranks(),
        facts={
            "step_ns": d.Fact(value=_ms(215.050), unit="ns", status="measured"),
            "gpu_name": d.Fact(value=HOSTILE[0], unit="text", status="measured"),
            "launch_starved_ns": d.Fact(value=_ms(24.807), unit="ns", status="measured"),
        },
        findings=_findings(),
        not_assessed=(
            d.NotAssessed(
                id="compute-low-sm-activity",
                missing=("sm_active_share",),
                how="capture with --gpu-metrics-devices=all, in a run of its own",
            ),
            d.NotAssessed(
                id="memory-fragmentation",
                missing=("peak_reserved_bytes", "peak_allocated_bytes"),
                how="record memory with the PyTorch profiler",
            ),
        ),
        timeline=_timeline(),
    )


_BLOCKING: tuple[tuple[str, v.Role, v.CommKind | None, float, v.Status], ...] = (
    ("dispatch", "transport", "expert", 36.901, "measured"),
    ("collective", "transport", "data", 8.021, "measured"),
    ("dispatch", "packing", None, 7.214, "inferred"),
    ("memcpy", "copy", None, 1.101, "measured"),
    ("collective", "transport", "tensor", 0.351, "inferred"),
)


def minimal() -> d.Diagnosis:
    """One device, the capture as its one window, no job, no finding, null wherever null is allowed."""
    only = r.StepBudget(
        index=0,
        window_ns=1_000,
        device_busy_ns=1_000,
        device_idle_ns=0,
        compute_busy_ns=1_000,
        compute_absent_ns=0,
        **dict.fromkeys(
            (name for name in r.StepBudget.__struct_fields__ if name not in _MINIMAL_SET),
            0,
        ),
    )
    return d.Diagnosis(
        schema=d.SCHEMA,
        tool=d.Tool(name="diagnose", version="0.1.0", rules_sha256=""),
        verdict=d.Verdict(
            dominant_wall="compute",
            runner_up="memory",
            certainty="low",
            sentence="Compute holds this run back.",
            perturbed=False,
            rank=0,
            device=0,
        ),
        walls=tuple(
            d.WallBound(wall=wall, bound_ns=None, share=None, parts={}, status="measured") for wall in load_vocabulary().walls.walls
        ),
        job=None,
        capture=d.Capture(
            format="torch-json",
            profiler="PyTorch profiler",
            profiler_version=None,
            schema_version=None,
            devices=(d.DeviceInfo(rank=0, device=0, name=None, sm_count=None, compute_capability=None, memory_bytes=None),),
            ranks=(d.RankInfo(rank=0, world_size=None, source="assigned", file="trace.json"),),
            diagnostics=(),
            cuda_graphs="none",
            correlation_rate=None,
            resolved_wait_rate=None,
            metrics=(),
            slowdown=None,
        ),
        ledger=(),
        steps=r.Steps(
            anchor="capture",
            n=1,
            dropped=(),
            duration_ns=r.Spread(median=None, min=None, max=None),
            windows=(r.Window(index=0, start_ns=0, end_ns=1_000),),
        ),
        totals=(
            r.Totals(
                rank=0,
                device=0,
                kernel_count=1,
                kernel_work_ns=1_000,
                device_busy_ns=1_000,
                kernel_busy_ns=1_000,
                transport_busy_ns=0,
                transport_exposed_ns=0,
                first_ns=0,
                last_ns=1_000,
            ),
        ),
        budget=(r.DeviceBudget(rank=0, device=0, per_step=(only,), median=None),),
        buckets=(),
        unclassified=(),
        communication=(),
        blocking=(),
        host=(),
        memory=None,
        occupancy=None,
        facts={"launch_starved_ns": d.Fact(value=None, unit="ns", status="measured")},
        findings=(),
        not_assessed=(),
    )


_MINIMAL_SET = ("index", "window_ns", "device_busy_ns", "device_idle_ns", "compute_busy_ns", "compute_absent_ns")
