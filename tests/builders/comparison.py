"""Invented comparisons: one that holds everything a renderer can meet, one that holds almost nothing, and one for each result."""

from __future__ import annotations

from msgspec import structs

from diagnose.document import comparison as c
from diagnose.document.device import Spread, Why
from diagnose.document.diagnosis import Tool
from diagnose.model.vocabulary import Wall
from tests.builders.diagnosis import HOSTILE, LONG_KERNEL

GROUPED = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int>>, "
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90ArrayTmaGmmaWarpSpecialized<4>>>>(Params)"
)
FLASH = "void cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0(tensorMap, tensorMap)"


def _ms(value: float) -> int:
    return round(value * 1_000_000)


def side(label: str, step: float, low: float, high: float, wall: Wall, **more: object) -> c.Side:
    found = c.Side(
        label=label,
        rank=0,
        device=0,
        gpu="NVIDIA H100 80GB HBM3",
        steps=Spread(median=_ms(step), min=_ms(low), max=_ms(high), n=5),
        anchor="iteration NVTX range",
        dominant_wall=wall,
        certainty="high",
        sentence=f"{wall} dominates {label}.",
        fingerprint="5f3a9c1e7b20d844",
    )
    return structs.replace(found, **more)


def category(name: str, base: float, new: float, *, moved: bool, spread: float = 0.6, parts: tuple[c.Part, ...] = ()) -> c.Category:
    delta = _ms(new) - _ms(base)
    return c.Category(
        category=name,
        base_ns=_ms(base),
        new_ns=_ms(new),
        delta_ns=delta,
        moved=moved,
        low=delta - _ms(spread),
        high=delta + _ms(spread),
        parts=parts,
    )


def part(why: Why, base: float, new: float) -> c.Part:
    return c.Part(why=why, base_ns=_ms(base), new_ns=_ms(new), delta_ns=_ms(new) - _ms(base))


def categories() -> tuple[c.Category, ...]:
    """An expert exchange that lost its overlap, and a container whose grouped GEMM is slower."""
    return (
        category(
            "transport",
            12.311,
            41.876,
            moved=True,
            parts=(part("transport", 10.101, 38.004), part("host_work", 2.21, 3.872)),
        ),
        category("compute:expert_gemm", 31.004, 36.519, moved=True, spread=0.2),
        category("launch_starved", 9.873, 12.94, moved=True, parts=(part("host_work", 8.872, 11.9), part("allocator", 1.001, 1.04))),
        category("compute:attention", 28.75, 28.912, moved=False),
        category("compute:dense_gemm", 14.008, 13.921, moved=False),
        category("compute:router", 3.377, 3.4, moved=False),
        category("compute:norm", 2.221, 2.221, moved=False, spread=0.0),
        category("compute:elementwise", 5.2, 4.102, moved=True, spread=0.3),
        category("compute:optimizer", 7.702, 7.69, moved=False),
        category("packing", 4.61, 4.588, moved=False, parts=(part("packing", 4.61, 4.588),)),
        category("copy", 0.75, 0.751, moved=False, parts=(part("copy", 0.75, 0.751),)),
        category("host_sync", 0.51, 0.499, moved=False, parts=(part("host_sync", 0.51, 0.499),)),
        category("dependency_stalled", 0.354, 0.36, moved=False, parts=(part("dependency_stalled", 0.354, 0.36),)),
        category("idle", 0.021, 0.02, moved=False, parts=(part("step_end", 0.021, 0.02),)),
    )


def delta() -> c.StepDelta:
    rows = categories()
    base, new = sum(row.base_ns for row in rows), sum(row.new_ns for row in rows)
    return c.StepDelta(base_ns=base, new_ns=new, delta_ns=new - base, base_steps=(3,), new_steps=(4, 6), categories=rows)


def kernel(kind: c.KernelChangeKind, name: str, bucket: str, base: float, new: float, **more: object) -> c.KernelChange:
    found = c.KernelChange(
        kind=kind,
        name=name,
        bucket=bucket,
        was=None,
        stream=7,
        was_stream=7,
        base_launches=48,
        new_launches=48,
        base_launch_ns=_ms(base) // 48,
        new_launch_ns=_ms(new) // 48,
        base_work_ns=_ms(base),
        new_work_ns=_ms(new),
        delta_ns=_ms(new) - _ms(base),
    )
    return structs.replace(found, **more)


def kernels() -> tuple[c.KernelChange, ...]:
    return (
        kernel("slower", "deep_ep::internode::dispatch<8, 8192>", "dispatch", 19.2, 30.15, stream=20, was_stream=20),
        kernel(
            "renamed",
            GROUPED,
            "expert_gemm",
            31.004,
            36.519,
            was=GROUPED.replace("Sm90Array", "Sm90"),
            why="same place in the sequence, 48 launches in both",
        ),
        kernel("new", LONG_KERNEL, "router", 0.0, 3.1, base_launches=0, base_launch_ns=None, was_stream=None),
        kernel("gone", "fused_router_kernel", "router", 2.98, 0.0, new_launches=0, new_launch_ns=None, stream=None),
        kernel("more", "vectorized_elementwise_kernel", "elementwise", 1.0, 1.8, new_launches=96, new_launch_ns=_ms(1.8) // 96),
        kernel("fewer", HOSTILE[4], "elementwise", 1.9, 0.7, new_launches=12, new_launch_ns=_ms(0.7) // 12),
        kernel(
            "moved", "ncclDevKernel_AllGather_RING_LL", "collective", 2.4, 2.41, stream=7, was_stream=24, why="same launches, other stream"
        ),
        kernel("faster", FLASH, "attention", 28.75, 28.2),
        *(kernel("slower", f"{name} {index}", "other", 0.1, 0.11 - index / 10_000) for index, name in enumerate(HOSTILE)),
    )


def findings() -> tuple[c.FindingChange, ...]:
    return (
        c.FindingChange(
            id="COM-06",
            name="expert exchange blocks compute",
            severity="high",
            state="new",
            summary="Compute had been issued and waited 38.004 ms of each step for the DeepEP dispatch and combine.",
            base_bound_ns=None,
            new_bound_ns=38_004_000,
            wall="communication",
            key="comm_overlap.overlap_moe_expert_parallel_comm",
            line=14,
            fix="Overlap the expert exchange with the compute of another micro-batch",
            why="Nothing of this micro-batch can run before the exchange ends.",
        ),
        c.FindingChange(
            id="HOST-01",
            name="the host does not launch in time",
            severity="medium",
            state="worse",
            summary=f"The GPU idled 12.940 ms of each step before the host had issued the next kernel ({HOSTILE[0]}).",
            base_bound_ns=9_873_000,
            new_bound_ns=12_940_000,
            wall="host_overhead",
            key="model.external_cuda_graph",
        ),
        c.FindingChange(
            id="CAP-03",
            name="kernels that no rule knows",
            severity="low",
            state="new",
            summary="2.9 % of device time went to kernels that no rule knows.",
            base_bound_ns=None,
            new_bound_ns=None,
            wall="capture",
        ),
        c.FindingChange(
            id="MEM-02",
            name="recompute",
            severity="medium",
            state="gone",
            summary="Recompute cost 5.911 ms of each step.",
            base_bound_ns=5_911_000,
            new_bound_ns=None,
            wall="memory",
        ),
        c.FindingChange(
            id="CMP-04",
            name="GEMMs of few waves",
            severity="low",
            state="better",
            summary="Small GEMMs.",
            base_bound_ns=3_000_000,
            new_bound_ns=1_000_000,
            wall="compute",
        ),
        c.FindingChange(
            id="CMP-05",
            name="unfused norm",
            severity="low",
            state="same",
            summary="Norms are not fused.",
            base_bound_ns=1_000_000,
            new_bound_ns=1_001_000,
            wall="compute",
        ),
        c.FindingChange(
            id="RNK-02",
            name="one rank keeps the others waiting",
            severity="high",
            state="not_assessed",
            summary="Rank 3 came late.",
            base_bound_ns=2_000_000,
            new_bound_ns=None,
            wall="communication",
        ),
    )


def effect() -> c.Effect:
    rows = delta()
    return c.Effect(
        metric="step_time",
        unit="ns",
        base=float(rows.base_ns),
        new=float(rows.new_ns),
        delta=float(rows.delta_ns),
        relative=rows.delta_ns / rows.base_ns,
        worse=rows.delta_ns / rows.base_ns,
        low=float(rows.delta_ns - 2_100_000),
        high=float(rows.delta_ns + 2_400_000),
        p_value=0.0079,
        n_base=5,
        n_new=5,
        smallest=0.021,
        basis="interval and rank test",
        result="regression",
    )


def rich() -> c.Comparison:
    """A regression with every section filled and hostile texts in every field that a trace or a job file can fill."""
    rows = delta()
    return c.Comparison(
        schema=c.SCHEMA,
        tool=Tool(name="diagnose", version="0.1.0", rules_sha256="4be1" + "0" * 56 + "77aa"),
        outcome=c.Outcome(
            result="regression",
            sentence="Each step takes 37.108 ms longer: 157.799 ms instead of 120.691 ms (+30.7 %; 95 % interval +35.008 to +39.508 ms).",
            moved="Transport with nothing beside it took 29.565 ms more, expert GEMMs 5.515 ms, the host 3.067 ms.",
            reasons=("5 steps against 5 steps", "NCCL differs: 2.26.5 → 2.27.3", f"the new run's capture is named {HOSTILE[1]}"),
        ),
        base=side("before.sqlite", rows.base_ns / 1e6, 119.9, 121.8, "compute"),
        new=side(HOSTILE[0], rows.new_ns / 1e6, 156.1, 160.4, "communication", certainty="medium", gpu=None),
        comparability=c.Comparability(
            comparable=True,
            anyway=False,
            mismatches=(
                c.Mismatch(
                    aspect="tokens",
                    name="tokens per step",
                    base="65,536",
                    new="131,072",
                    state="normalised",
                    text="The new run does twice the tokens per step; the effect is per token.",
                ),
                c.Mismatch(
                    aspect="kernels",
                    name="launches per step",
                    base="7,996",
                    new="8,204",
                    state="noted",
                    text="2.6 % more kernels are launched.",
                ),
            ),
            unknown=("precision", "sequence"),
        ),
        environment=(
            c.EnvironmentChange(name="NCCL", kind="version", base="2.26.5", new="2.27.3"),
            c.EnvironmentChange(name="NCCL_P2P_NET_CHUNKSIZE", kind="variable", base=None, new="524288"),
            c.EnvironmentChange(name="NVTE_FLASH_ATTN", kind="variable", base="1", new=None),
            c.EnvironmentChange(name="SM clock", kind="clock", base="1,980 MHz", new=HOSTILE[8]),
            c.EnvironmentChange(name="driver", kind="hardware", base="570.124", new="575.51"),
        ),
        settings=(
            c.SettingChange(name="overlap_ep", key="comm_overlap.overlap_moe_expert_parallel_comm", base="true", new="false", line=14),
            c.SettingChange(name="router_fusion", key="model.moe_router_fusion", base="true", new=None),
            c.SettingChange(name="run_name", key=HOSTILE[6], base=None, new=HOSTILE[9], line=3),
        ),
        effect=effect(),
        delta=rows,
        walls=(
            c.WallChange(wall="memory", base_ns=_ms(1.001), new_ns=_ms(1.04), delta_ns=_ms(0.039)),
            c.WallChange(wall="communication", base_ns=_ms(12.311), new_ns=_ms(41.876), delta_ns=_ms(29.565)),
            c.WallChange(wall="host_overhead", base_ns=None, new_ns=_ms(12.94), delta_ns=None),
            c.WallChange(wall="compute", base_ns=_ms(92.262), new_ns=_ms(96.765), delta_ns=_ms(4.503)),
        ),
        kernels=kernels(),
        overlap=(
            c.OverlapChange(
                kind="expert",
                backend="deepep",
                base_busy_ns=_ms(77.896),
                new_busy_ns=_ms(79.112),
                base_exposed_ns=_ms(10.101),
                new_exposed_ns=_ms(38.004),
                base_overlap=0.8703,
                new_overlap=0.5196,
                lost_ns=_ms(27.745),
            ),
            c.OverlapChange(
                kind="data",
                backend=HOSTILE[4],
                base_busy_ns=_ms(18.2),
                new_busy_ns=0,
                base_exposed_ns=_ms(2.21),
                new_exposed_ns=0,
                base_overlap=0.8786,
                new_overlap=None,
                lost_ns=None,
            ),
        ),
        findings=findings(),
        gate=c.Gate(
            limit=0.05,
            fail_on="high",
            met=False,
            sentence="The gate is not met: 30.7 % slower, 5.0 % allowed; 1 new finding of severity high.",
        ),
        notes=("The reconciliation closes: 14 categories add up to +37.108 ms.", HOSTILE[5]),
        environment_same=12,
        kernels_same=181,
    )


def minimal() -> c.Comparison:
    """One step against one step from documents that hold no split: almost everything is not known."""
    return c.Comparison(
        schema=c.SCHEMA,
        tool=Tool(name="diagnose", version="0.1.0", rules_sha256=""),
        outcome=c.Outcome(
            result="cannot_tell",
            sentence="It can't be told whether the step time changed: one step against one step.",
            moved="",
            reasons=("a single step on both sides",),
        ),
        base=structs.replace(
            side("a.json", 10, 10, 10, "compute"),
            steps=Spread(median=10_000_000, min=10_000_000, max=10_000_000, n=1),
            anchor="capture",
            gpu=None,
        ),
        new=structs.replace(side("b.json", 10, 10, 10, "compute"), steps=Spread(median=None, min=None, max=None, n=0), gpu=None),
        comparability=c.Comparability(comparable=True, anyway=False, mismatches=(), unknown=("model", "layers", "batch")),
        environment=(),
        settings=(),
        effect=c.Effect(
            metric="blocking_dispatch",
            unit="ns",
            base=0.0,
            new=104_000.0,
            delta=104_000.0,
            relative=None,
            worse=None,
            low=None,
            high=None,
            p_value=None,
            n_base=1,
            n_new=1,
            smallest=None,
            basis="single step",
            result="cannot_tell",
        ),
        delta=None,
        walls=(),
        kernels=(),
        overlap=(),
        findings=(),
    )


def refused() -> c.Comparison:
    """Two runs that are not the same work."""
    found = rich()
    return structs.replace(
        found,
        outcome=c.Outcome(
            result="refused",
            sentence="These two runs are not the same work: the model and the device differ.",
            moved="",
            reasons=("Give --anyway to see the figures all the same.",),
        ),
        comparability=c.Comparability(
            comparable=False,
            anyway=False,
            mismatches=(
                c.Mismatch(
                    aspect="layers",
                    name="layers",
                    base="48",
                    new="64",
                    state="refused",
                    text="The job files give another number of layers.",
                ),
                c.Mismatch(
                    aspect="device", name="GPU", base="NVIDIA H100 80GB HBM3", new="NVIDIA B200", state="refused", text="Another GPU model."
                ),
            ),
            unknown=(),
        ),
        effect=structs.replace(
            found.effect, relative=None, worse=None, low=None, high=None, p_value=None, smallest=None, result="refused", basis="none"
        ),
        delta=None,
        walls=(),
        kernels=(),
        overlap=(),
        findings=(),
        notes=(),
        kernels_same=0,
        gate=c.Gate(limit=0.05, fail_on=None, met=None, sentence="The gate can't be judged: the comparison is refused."),
    )


def anyway() -> c.Comparison:
    """The same, with figures, because they were asked for."""
    return structs.replace(
        rich(),
        outcome=structs.replace(rich().outcome, reasons=("The two runs are not the same work; the figures were asked for anyway.",)),
        comparability=structs.replace(refused().comparability, anyway=True),
        gate=None,
    )


def identical() -> c.Comparison:
    """A trace with itself."""
    rows = delta()
    same = structs.replace(
        rows,
        new_ns=rows.base_ns,
        delta_ns=0,
        new_steps=rows.base_steps,
        categories=tuple(
            structs.replace(
                row,
                new_ns=row.base_ns,
                delta_ns=0,
                low=0,
                high=0,
                moved=False,
                parts=tuple(structs.replace(one, new_ns=one.base_ns, delta_ns=0) for one in row.parts),
            )
            for row in rows.categories
        ),
    )
    base = side("run.sqlite", rows.base_ns / 1e6, 119.9, 121.8, "compute")
    return structs.replace(
        rich(),
        outcome=c.Outcome(result="no_change", sentence="No change: both are the same 5 steps of 120.691 ms.", moved="", reasons=()),
        base=base,
        new=base,
        comparability=c.Comparability(comparable=True, anyway=False, mismatches=(), unknown=()),
        environment=(),
        settings=(),
        effect=structs.replace(
            effect(),
            new=effect().base,
            delta=0.0,
            relative=0.0,
            worse=0.0,
            low=0.0,
            high=0.0,
            p_value=1.0,
            basis="identical",
            result="no_change",
        ),
        delta=same,
        walls=tuple(structs.replace(row, new_ns=row.base_ns, delta_ns=None if row.base_ns is None else 0) for row in rich().walls),
        kernels=(),
        overlap=(),
        findings=tuple(structs.replace(one, state="same") for one in findings()[3:6]),
        gate=c.Gate(limit=0.05, fail_on=None, met=True, sentence="The gate is met: no change, 5.0 % allowed."),
        notes=(),
        kernels_same=189,
    )


def improvement() -> c.Comparison:
    """The other direction, per token, without a gate."""
    found = rich()
    return structs.replace(
        found,
        outcome=c.Outcome(
            result="improvement",
            sentence="Each token takes 4.2 % less time: 1,765.3 ns instead of 1,842.7 ns.",
            moved="The exchange is hidden better.",
            reasons=(),
        ),
        comparability=structs.replace(
            found.comparability,
            normalised=c.Normalised(base_tokens=65_536.0, new_tokens=131_072.0, source="the job files"),
        ),
        effect=structs.replace(
            found.effect,
            unit="ns per token",
            base=1842.7,
            new=1765.3,
            delta=-77.4,
            relative=-0.042,
            worse=-0.042,
            low=-90.0,
            high=-60.1,
            result="improvement",
        ),
        findings=(),
        gate=None,
    )


def huge() -> c.Comparison:
    """Far more of everything than a page can hold."""
    found = rich()
    return structs.replace(
        found,
        kernels=tuple(structs.replace(found.kernels[2], name=f"{LONG_KERNEL}{index}") for index in range(3_000)),
        environment=tuple(
            c.EnvironmentChange(name=f"NCCL_{index}", kind="variable", base="é" * 500, new="ü" * 5_000) for index in range(800)
        ),
        settings=tuple(
            c.SettingChange(name=f"s{index}", key=f"model.s{index}" * 40, base="x" * 3_000, new="|" * 3_000) for index in range(900)
        ),
        findings=tuple(structs.replace(found.findings[0], id=f"X-{index:03}", summary="é" * 9_000, line=index + 1) for index in range(400)),
        notes=("é" * 50_000,) * 30,
        outcome=structs.replace(found.outcome, reasons=("é" * 20_000,) * 40),
        overlap=found.overlap * 60,
        comparability=structs.replace(
            found.comparability, mismatches=found.comparability.mismatches * 200, unknown=tuple(f"aspect {index}" for index in range(5_000))
        ),
    )


SAMPLES = {
    "rich": rich,
    "minimal": minimal,
    "refused": refused,
    "anyway": anyway,
    "identical": identical,
    "improvement": improvement,
}
