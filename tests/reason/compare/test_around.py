"""What changed around the code, in the job file, in findings and walls; the fingerprint; the gate; and the file of limits."""

from importlib.resources import files
from typing import Any

import pytest
from msgspec import structs

from diagnose.document.comparison import FindingState
from diagnose.document.device import Communication
from diagnose.document.diagnosis import Change, Diagnosis, Evidence, Fact, Finding, Fix, LedgerEntry, NotAssessed, WallBound, Where
from diagnose.document.encoding import encode
from diagnose.errors import RuleFileError
from diagnose.knowledge.comparison import parse_limits
from diagnose.model.environment import EnvironmentItem, EnvironmentKind
from diagnose.model.vocabulary import FixState, Level, Wall
from diagnose.reason.compare.baselines import NOT_TOLD
from diagnose.reason.compare.comparable import environment
from diagnose.reason.compare.runs import Named
from diagnose.render.reports.comparison import story
from tests.builders.cases import for_each
from tests.builders.compared import SETTINGS, capture, document, job, kernel, sequence
from tests.builders.comparing import RULES, compare, describe, differing, fingerprint, run, settings

STEPS = ({"attention": 1_000_000},) * 4
SLOWER = ({"attention": 1_120_000},) * 4


def item(name: str, value: str, kind: EnvironmentKind = "version") -> EnvironmentItem:
    return EnvironmentItem(name=name, kind=kind, value=value, source="test")


# --- environment and settings -----------------------------------------------------------------------------------------


def test_what_changed_around_the_code() -> None:
    both = [item("driver", "550"), item("SM clock", "1980 MHz", "clock")]
    base = document(STEPS, environment=[item("NCCL_ALGO", "Ring", "variable"), item("CUDA", "12.4"), *both])
    new = document(STEPS, environment=[item("NCCL_NVLS_ENABLE", "1", "variable"), item("CUDA", "12.8"), *both])
    changes, same, notes = environment(base, new)
    assert [(one.name, one.base, one.new) for one in changes] == [
        ("CUDA", "12.4", "12.8"),
        ("NCCL_ALGO", "Ring", None),
        ("NCCL_NVLS_ENABLE", None, "1"),
    ]
    assert (same, notes) == (2, ())


def test_what_a_capture_does_not_tell_is_not_gone() -> None:
    changes, same, (note,) = environment(document(STEPS), document(STEPS, environment=[item("CUDA", "12.8")]))
    assert (changes, same) == ((), 0)
    assert note.startswith("The capture of base does not record")
    assert environment(document(STEPS), document(STEPS))[2][0].startswith("Neither capture records")
    base = document(STEPS, environment=[item("CUDA", "12.8"), item("NCCL_ALGO", "Ring", "variable")])
    changes, same, (note,) = environment(base, document(STEPS, environment=[item("CUDA", "12.8")]))
    assert (changes, same) == ((), 1)
    assert note == "The capture of new records no variables, so those were not compared."
    base, new = (
        document(STEPS, environment=[item("CUDA", "12.8"), item("bandwidth", "3352 GB/s", "hardware"), *more])
        for more in ([item("NCCL", "2.27.5"), item("GPUs of the machine", "8", "hardware")], [])
    )
    assert [(one.name, one.new) for one in environment(base, new)[0]] == [("NCCL", None)], "no machine loses its GPUs"
    assert environment(base, capture(new, format="nsys-sqlite"))[0] == (), "another profiler records other versions"


def test_what_changed_in_the_job_file_with_its_lines() -> None:
    base = document(STEPS, job=job(moe_permute_fusion=False, recompute_modules=("moe_act",), recompute_granularity=None))
    new = document(STEPS, job=job(moe_permute_fusion=True, recompute_modules=None, recompute_granularity="full"))
    changes, notes = settings(base, new)
    rows = {one.name: (one.base, one.new, one.line is not None) for one in changes}
    assert rows == {
        "moe_permute_fusion": ("false", "true", True),
        "recompute_modules": ("moe_act", None, False),
        "recompute_granularity": (None, "full", True),
    }
    assert notes == ()


def test_a_missing_job_file_and_keys_that_nobody_knows_are_said() -> None:
    assert settings(document(STEPS), document(STEPS, job=job()))[1][0].startswith("The base run has no job file")
    assert settings(document(STEPS), document(STEPS))[1][0].startswith("Neither run has a job file")
    one = structs.replace(job(), unknown=("model.mine", "model.ours"))
    two = structs.replace(job(), unknown=("model.ours", "model.yours"))
    (note,) = settings(document(STEPS, job=one), document(STEPS, job=two))[1]
    assert note.endswith("model.mine, model.yours.")


# --- fingerprint ------------------------------------------------------------------------------------------------------


def test_the_fingerprint_is_of_the_job_and_the_device_and_what_is_not_told_is_said_so() -> None:
    one = document(STEPS, job=job())
    assert len(fingerprint(one)) == 16
    assert fingerprint(one) == fingerprint(document(SLOWER, ranks=(0, 1), job=job(micro_batch_size=4, moe_permute_fusion=True)))
    assert fingerprint(one) == fingerprint(capture(one, format="nsys-sqlite"))
    parts = dict(describe(document(STEPS, gpu=None)))
    assert set(parts.values()) == {NOT_TOLD}
    assert dict(describe(document(STEPS, job=job())))["world"] == "16 ranks"
    named = document(STEPS, job=job({**SETTINGS, "mixed_precision": "bf16_mixed", "fp16": False, "fp4": "none"}))
    assert fingerprint(named) == fingerprint(document(STEPS, job=job()))


@for_each(
    "part, other",
    ("model", document(STEPS, job=job(hidden_size=4096))),
    ("layers", document(STEPS, job=job(num_layers=2))),
    ("batch", document(STEPS, job=job(global_batch_size=64))),
    ("sequence", document(STEPS, job=job(seq_length=8192))),
    ("layout", document(STEPS, job=job(tensor_model_parallel_size=2))),
    ("precision", document(STEPS, job=job(fp8="hybrid"))),
    ("world", document(STEPS, job=job(world_size=8))),
    ("device", document(STEPS, job=job(), gpu="NVIDIA A100-SXM4-80GB")),
)
def test_another_job_or_device_has_another_fingerprint_and_says_why(part: str, other: Diagnosis) -> None:
    one = document(STEPS, job=job())
    assert fingerprint(one) != fingerprint(other)
    assert [name for name, _, _ in differing(one, other)] == [part]


# --- findings, walls, gate --------------------------------------------------------------------------------------------


def finding(
    name: str, severity: Level = "medium", bound: int | None = 100_000, wall: Wall | str = "communication", fixes: tuple[Fix, ...] = ()
) -> Finding:
    return Finding(
        id=name,
        name=name,
        wall=wall,  # type: ignore[arg-type]
        severity=severity,
        status="measured",
        summary=f"{name} it is.",
        evidence=(),
        bound_ns=bound,
        speedup_ceiling=None,
        where=Where(ranks=(0,), steps=()),
        fixes=fixes,
        wrong_when="",
    )


def fix(state: FixState, framework: str, key: str) -> Fix:
    return Fix(
        id="X-1",
        title="do it",
        state=state,
        blocked_by=(),
        changes=(Change(framework=framework, key=key, from_=None, to="true"),),
        expected=(),
        cost="",
        risk="",
        verify="",
        refs=(),
    )


def with_findings(*found: Finding, unasked: tuple[str, ...] = (), **fields: Any) -> Diagnosis:
    base = document(STEPS, job=job(moe_permute_fusion=False), **fields)
    return structs.replace(base, findings=found, not_assessed=tuple(NotAssessed(id=one, missing=(), how="") for one in unasked))


def test_findings_side_by_side() -> None:
    base = with_findings(
        finding("gone"), finding("lost"), finding("grew"), finding("shrank", bound=300_000), finding("level", "low"), finding("same")
    )
    new = with_findings(
        finding("new", "high"),
        finding("grew", bound=200_000),
        finding("shrank", bound=100_000),
        finding("level", "high"),
        finding("same", bound=110_000),
        unasked=("lost",),
    )
    found = run(base, new).findings
    assert {one.id: one.state for one in found} == {
        "new": "new", "grew": "worse", "level": "worse", "shrank": "better", "gone": "gone", "lost": "not_assessed", "same": "same",
    }  # fmt: skip
    assert [one.state for one in found][:3] == ["new", "worse", "worse"]


@for_each(
    "before, now, states",
    # (ns, launches) in base and new: what only a shorter step makes a larger share of it is no new finding, nor one that is gone
    ((3_132, 36), (3_139, 36), ("same", "same")),
    ((3_132, 36), (2_604, 36), ("same", "gone")),
    ((3_132, 36), (3_500, 36), ("new", "same")),
    ((3_132, 36), (3_132, 72), ("new", "gone")),
    (None, (3_132, 36), ("new", "same")),
)
def test_what_is_only_another_share_of_the_step_is_neither_new_nor_gone(
    before: tuple[int, int] | None, now: tuple[int, int], states: tuple[str, str]
) -> None:
    names = (("packing_busy_ns", "ns"), ("packing_kernels_per_step", "count"))

    def side(figures: tuple[int, int] | None, *, told: bool) -> Diagnosis:
        known = [] if figures is None else [(name, value, unit) for (name, unit), value in zip(names, figures, strict=True)]
        rests = tuple(Evidence(fact=name, value=value, unit=unit) for name, value, unit in (*known, ("packing_busy_share", 0.03, "share")))
        facts = {name: Fact(value=value, unit=unit, status="measured") for name, value, unit in known}
        return with_findings(*([structs.replace(finding("packing"), evidence=rests)] if told else []), facts=facts)

    assert [one.state for one in run(side(before, told=False), side(now, told=True)).findings] == [states[0]]
    if before is not None:
        assert [one.state for one in run(side(before, told=True), side(now, told=False)).findings] == [states[1]]


@for_each(
    "levels, bounds, state",
    (("low", "medium"), (5_220, 5_212), "same"),
    (("low", "medium"), (5_220, 5_220), "worse"),
    (("low", "low"), (5_220, 90_000), "worse"),
    (("medium", "low"), (5_212, 5_220), "same"),
    (("medium", "low"), (5_220, 5_212), "better"),
    (("low", "medium"), (90_000, 5_220), "better"),
)
def test_a_level_alone_is_not_worse_where_the_bound_is_no_larger(
    levels: tuple[Level, Level], bounds: tuple[int, int], state: FindingState
) -> None:
    base, new = (with_findings(finding("one", level, bound=bound)) for level, bound in zip(levels, bounds, strict=True))
    assert [one.state for one in run(base, new).findings] == [state]


def test_more_severe_by_a_shorter_step_alone_is_not_worse() -> None:
    rests = (Evidence(fact="packing_busy_ns", value=3_132, unit="ns"), Evidence(fact="packing_busy_share", value=0.03, unit="share"))
    facts = {"packing_busy_ns": Fact(value=3_132, unit="ns", status="measured")}
    base, new = (with_findings(structs.replace(finding("packing", level), evidence=rests), facts=facts) for level in ("low", "medium"))
    assert [one.state for one in run(base, new).findings] == ["same"]
    more = with_findings(
        structs.replace(finding("packing", "medium"), evidence=(structs.replace(rests[0], value=3_500), rests[1])),
        facts={"packing_busy_ns": Fact(value=3_500, unit="ns", status="measured")},
    )
    assert [one.state for one in run(base, more).findings] == ["worse"]


def test_a_capture_without_steps_is_not_held_against_a_step_by_its_kernels() -> None:
    one, many = (
        document(STEPS, kernels=sequence([kernel(name, launches, 9_000) for name in ("a", "b", "c")]), anchor=anchor)
        for launches, anchor in ((10, "range ProfilerStep#N"), (40, "capture"))
    )
    assert {row.name for row in run(one, many).comparability.mismatches if row.state == "refused"} == {"steps"}


def test_a_finding_names_the_setting_of_its_first_applicable_fix() -> None:
    fixes = (fix("blocked", "megatron-bridge", "model.other"), fix("applicable", "megatron-bridge", "model.moe_permute_fusion"))
    (found,) = run(with_findings(), with_findings(finding("one", fixes=fixes))).findings
    assert (found.key, found.line, found.fix) == ("model.moe_permute_fusion", len(SETTINGS) + 1, "do it")
    (absent,) = run(
        with_findings(), with_findings(finding("one", fixes=(fix("applicable", "megatron-bridge", "ddp.overlap_grad_reduce"),)))
    ).findings
    assert (absent.key, absent.line) == ("ddp.overlap_grad_reduce", None)


def test_walls_side_by_side() -> None:
    def walls(bound: int | None) -> tuple[WallBound, ...]:
        return tuple(structs.replace(wall, bound_ns=bound if wall.wall == "memory" else 5) for wall in document(STEPS).walls)

    found = {one.wall: one.delta_ns for one in run(document(STEPS, walls=walls(100)), document(STEPS, walls=walls(130))).walls}
    assert found == {"memory": 30, "communication": 0, "host_overhead": 0, "compute": 0}
    assert run(document(STEPS, walls=walls(None)), document(STEPS, walls=walls(130))).walls[0].delta_ns is None


@for_each(
    "steps, limit, met, words",
    (SLOWER, 0.03, False, "not met: +12.0 %"),
    (SLOWER, 0.20, True, "within the 20.0 %"),
    (STEPS, 0.03, True, "no regression"),
    (({"attention": 900_000},) * 4, 0.03, True, "no regression"),
    (({"attention": 900_000}, {"attention": 1_200_000}, {"attention": 1_300_000}, {"attention": 950_000}), 0.03, None, "can't be judged"),
)
def test_the_largest_regression_allowed(steps: tuple[dict[str, int], ...], limit: float, met: bool | None, words: str) -> None:
    base = (
        ({"attention": 990_000}, {"attention": 1_000_000}, {"attention": 1_010_000}, {"attention": 1_000_000})
        if steps is not STEPS
        else STEPS
    )
    found = run(document(base, anchor="recurring kernels"), document(steps, anchor="recurring kernels"), max_regression=limit)
    assert found.gate is not None
    assert found.gate.met is met
    assert words in found.gate.sentence


def test_noise_that_can_only_hide_an_improvement_meets_the_gate() -> None:
    base = ({"attention": 1_000_000}, {"attention": 1_010_000}, {"attention": 990_000}, {"attention": 1_005_000})
    new = ({"attention": 985_000}, {"attention": 960_000}, {"attention": 995_000}, {"attention": 972_000})
    found = run(document(base, anchor="recurring kernels"), document(new, anchor="recurring kernels"), max_regression=0.03)
    assert found.outcome.result == "cannot_tell"
    assert found.gate is not None
    assert found.gate.met is True


def test_what_is_refused_or_was_not_asked_for_is_not_judged() -> None:
    found = run(document(STEPS, job=job()), document(STEPS, job=job(num_layers=2)), max_regression=0.03, fail_on="low")
    assert found.gate is not None
    assert found.gate.met is None
    assert "--anyway" in found.gate.sentence
    assert run(document(STEPS), document(STEPS)).gate is None


@for_each(
    "new, level, met",
    (finding("other", "medium"), "medium", False),
    (finding("other", "medium"), "high", True),
    (finding("other", "high", wall="capture"), "low", True),
    (finding("known", "medium", 200_000), "medium", False),
    (finding("known", "medium"), "low", True),
)
def test_findings_that_may_not_be_new_or_worse(new: Finding, level: Level, met: bool) -> None:
    found = run(with_findings(finding("known")), with_findings(new), fail_on=level)
    assert found.gate is not None
    assert (found.gate.met, found.gate.fail_on, found.gate.limit) == (met, level, None)
    assert met or new.id in found.gate.sentence


# --- the headline -----------------------------------------------------------------------------------------------------

BOTH = ({"attention": 30_000_000, ("transport", "transport"): 10_000_000, ("nothing", "host_work"): 5_000_000},) * 4
WORSE = ({"attention": 30_600_000, ("transport", "transport"): 14_000_000, ("nothing", "host_work"): 5_900_000},) * 4


def test_the_headline_has_the_figures_and_names_a_bucket_with_its_kernel() -> None:
    found = run(document(BOTH), document(WORSE))
    assert (
        found.outcome.sentence
        == "These two captures differ: the step is 12.2 % slower: 45.0 → 50.5 ms (+5.50 ms, 95 % interval +4.12 … +6.92 ms, 1 run against "
        "1 run, 3 steps against 3; run-to-run noise assumed 1.0 % (not measured))."
    )
    assert found.outcome.moved.startswith("Exposed communication grew by 4.00 ms (10.0 → 14.0 ms); launch-bound time")
    assert run(document(WORSE), document(BOTH)).outcome.sentence.startswith("These two captures differ: the step is 10.9 % faster")
    base = document(({"attention": 10_000_000},) * 4, kernels=[kernel("flash_fwd", 10, 1_000_000)])
    new = document(({"attention": 13_000_000},) * 4, kernels=[kernel("flash_fwd", 10, 1_300_000)])
    assert (
        "Compute in attention grew by 3.00 ms (10.0 → 13.0 ms), mostly flash_fwd, slower per launch (1,000.0 → 1,300.0 µs)."
        in run(base, new).outcome.moved
    )


FUSED = ({"dense_gemm": 30_000_000, "norm": 2_000_000, "elementwise": 500_000},) * 4
CHAINS = ({"dense_gemm": 30_000_000, "elementwise": 17_500_000},) * 4
COMPUTES = ({"dense_gemm": 15_000_000, "expert_gemm": 20_000_000, "attention": 10_000_000, "optimizer": 2_000_000},) * 4
THROTTLED = ({"dense_gemm": 15_950_000, "expert_gemm": 21_150_000, "attention": 10_500_000, "optimizer": 2_000_000},) * 4
ONE_SLOWER = ({"dense_gemm": 15_000_000, "expert_gemm": 22_600_000, "attention": 10_000_000, "optimizer": 2_000_000},) * 4


@for_each(
    "base, new, begins",
    (FUSED, CHAINS, "Norms run as chains of elementwise kernels, no longer fused. Compute in elementwise grew by 17.0 ms"),
    (CHAINS, FUSED, "Norms run fused now, no longer as chains of elementwise kernels. Compute in elementwise shrank by 17.0 ms"),
    (FUSED, ({**FUSED[0], "elementwise": 17_500_000},) * 4, "Compute in elementwise grew"),  # the norms are as they were
    (COMPUTES, THROTTLED, "GEMMs and attention take 1.06 times as long, all alike, as they do at a lower clock"),
    (THROTTLED, COMPUTES, "GEMMs and attention take 0.945 times as long, all alike, as they do at a higher clock"),
    (COMPUTES, ONE_SLOWER, "Compute in expert GEMM grew"),
)
def test_a_fusion_that_is_lost_and_a_lower_clock_are_named_before_what_grew(base: Any, new: Any, begins: str) -> None:
    assert run(document(base), document(new)).outcome.moved.startswith(begins)


SLOWED = ({"dense_gemm": 16_350_000, "expert_gemm": 21_800_000, "attention": 10_900_000, "optimizer": 2_100_000},) * 4


@for_each(
    "n_base, n_new, after, met",
    (1, 1, SLOWED, None),
    (6, 1, SLOWED, None),
    (6, 2, SLOWED, False),
    (1, 1, ({**COMPUTES[0], "attention": 15_000_000},) * 4, False),
)
def test_one_run_that_is_slower_all_over_does_not_fail_a_gate(n_base: int, n_new: int, after: Any, met: bool | None) -> None:
    sides = ([Named(str(place), document(steps)) for place in range(n)] for n, steps in ((n_base, COMPUTES), (n_new, after)))
    gate = compare(*sides, base_label="base", new_label="new", max_regression=0.05).gate
    assert gate is not None
    assert gate.met is met
    assert ("Capture 1 more run of new, on another node or with locked clocks." in gate.sentence) == (met is None)


@for_each("left_out, said", (30, True), (35, False))  # pieces for each of ten fused kernels, or of something else
def test_a_fused_kernel_may_replace_a_piece_of_its_own_bucket(left_out: int, said: bool) -> None:
    base = document(
        ({"activation": 5_000_000, "elementwise": 20_000_000},) * 4,
        kernels=sequence(
            [kernel("silu", 10, 500_000, bucket="activation"), kernel("elementwise", 40, 500_000, bucket="elementwise")],
        ),
    )
    new = document(
        ({"activation": 6_000_000, "elementwise": 5_000_000},) * 4,
        kernels=sequence(
            [kernel("fused_swiglu", 10, 600_000, bucket="activation"), kernel("elementwise", 40 - left_out, 500_000, bucket="elementwise")]
        ),
    )
    assert run(base, new).outcome.moved.startswith("Activations run fused now") == said
    assert run(new, base).outcome.moved.startswith("Activations run as chains of elementwise kernels, no longer fused") == said


def test_other_kernels_are_no_other_clock() -> None:
    longer = {"dense_gemm": 1_063_333, "expert_gemm": 1_057_500, "attention": 1_050_000}
    base = [kernel(f"{name}_a", cells // 1_000_000, 1_000_000, bucket=name) for name, cells in COMPUTES[0].items()]
    new = [kernel(f"{name}_b", cells // 1_000_000, longer.get(name, 1_000_000), bucket=name) for name, cells in COMPUTES[0].items()]
    moved = run(document(COMPUTES, kernels=sequence(base)), document(THROTTLED, kernels=sequence(new))).outcome.moved
    assert "clock" not in moved
    assert "expert GEMM grew" in moved


def test_a_kernel_of_which_only_template_arguments_differ_says_which() -> None:
    name = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape, cute::C<128>, cute::C<{}>>>(int)"
    base = document(
        ({"attention": 10_000_000},) * 4, kernels=sequence([kernel(name.format(128), 10, 1_000_000), kernel("flash_fwd", 10, 9)])
    )
    new = document(({"attention": 13_000_000},) * 4, kernels=sequence([kernel(name.format(64), 10, 1_300_000), kernel("flash_fwd", 10, 9)]))
    assert (
        "mostly cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::g…> with other template arguments (128 → 64)."
        in run(base, new).outcome.moved
    )


@for_each(
    "calls, said", (0, "Compute waits for synchronising calls, which it did not."), (1, "Compute waits longer for synchronising calls.")
)
def test_synchronising_calls_that_were_there_before_are_no_new_ones(calls: int, said: str) -> None:
    before = document(STEPS, facts={"sync_calls_per_step": Fact(value=calls, unit="count", status="measured")})
    slower = structs.replace(document(SLOWER), findings=(finding("host-synchronisation", wall="host_overhead"),))
    assert run(before, slower).outcome.moved.startswith(said)


@for_each("most, where", ("write_metrics", " in write_metrics"), (None, ""))
def test_long_pauses_of_the_cpu_say_where_it_was(most: str | None, where: str) -> None:
    facts = {"host_pause_most": Fact(value=most, unit="text", status="measured" if most else "unknown")}
    pauses = document(SLOWER, facts=facts)
    pauses = structs.replace(pauses, findings=(finding("host-named-pauses", wall="host_overhead"),))
    assert run(document(STEPS), pauses).outcome.moved.startswith(f"Compute waits through long pauses of the CPU{where}, which it did not.")
    assert run(pauses, document(STEPS)).outcome.moved.startswith(f"Compute no longer waits through long pauses of the CPU{where}.")


def test_another_number_of_micro_batches_is_said_first() -> None:
    base, new = document(BOTH, job=job(num_microbatches=2)), document(WORSE, job=job(num_microbatches=4, micro_batch_size=2))
    assert run(base, new).outcome.moved.startswith("A step has 4 micro-batches, no longer 2. Exposed communication grew")


def exchange(busy: int, exposed: int, backend: str = "nccl") -> Communication:
    return Communication(
        rank=0, device=0, kind="expert", backend=backend, count=4, work_ns=busy, busy_ns=busy, exposed_ns=exposed, blocking_ns=exposed,
        overlap=1 - exposed / busy,
    )  # fmt: skip


@for_each("before, after, said", (13_000_000, 3_000_000, True), (3_000_000, 3_000_000, False), (None, 3_000_000, True))
def test_what_runs_beside_another_exchange_lost_no_overlap_of_its_own(before: int | None, after: int, said: bool) -> None:
    """An exchange of 20 ms of which 6 ms less run beside other work; how much of it ran beside compute is known or not."""
    known = (
        ("expert_exchange_busy_ns", 20_000_000),
        ("expert_exchange_beside_compute_ns", before),
        ("expert_exchange_beside_compute_ns", after),
    )
    facts = [{name: Fact(value=value, unit="ns", status="measured") for name, value in (known[0], one)} for one in known[1:]]
    base = document(BOTH, communication=(exchange(20_000_000, 10_000_000),), facts=facts[0])
    new = document(WORSE, communication=(exchange(20_000_000, 16_000_000),), facts=facts[1])
    assert ("lost overlap" in run(base, new).outcome.moved) == said


@for_each("busy, before, after, said", (20_000_000, 9_000_000, 15_000_000, True), (3_000_000, 1_500_000, 2_300_000, False))
def test_a_second_cause_is_named_beside_the_largest(busy: int, before: int, after: int, said: bool) -> None:
    """Of a step in which recompute takes 10 ms more, a tenth at least."""
    base, new = (
        document(({"dense_gemm": gemm, ("transport", "transport"): exposed},) * 4, communication=(exchange(busy, exposed),))
        for gemm, exposed in ((50_000_000, before), (60_000_000, after))
    )
    recomputed = structs.replace(new, findings=(finding("memory-recompute", wall="memory", bound=10_000_000),))
    moved = run(base, recomputed).outcome.moved
    assert moved.startswith("Recompute is switched on.")
    assert ("The EP all-to-all lost overlap" in moved) == said


@for_each(
    "base, new, words",
    (exchange(20_000_000, 10_000_000), exchange(20_000_000, 14_000_000), "because less of it runs beside other work (50.0 % → 30.0 %)"),
    (exchange(20_000_000, 10_000_000), exchange(28_000_000, 14_000_000), "because it runs longer (20.0 → 28.0 ms)"),
    (exchange(20_000_000, 10_000_000), exchange(28_000_000, 14_000_000, "deepep"), "because it runs longer (20.0 → 28.0 ms)"),
)
def test_exposed_transport_says_which_exchange_and_why(base: Communication, new: Communication, words: str) -> None:
    found = run(document(BOTH, communication=(base,)), document(WORSE, communication=(new,)))
    assert f"Exposed communication of the EP all-to-all grew by 4.00 ms (10.0 → 14.0 ms), {words}" in found.outcome.moved
    swapped = "The EP all-to-all runs over DeepEP, no longer over NCCL" if new.backend == "deepep" else ""
    assert found.outcome.moved.partition("Exposed communication")[0].startswith(swapped)
    assert found.overlap[0].lost_ns == (4_000_000 if "less" in words else None if new.backend == "deepep" else 0)


@for_each(
    "world, busy, said",
    (8, 28_000_000, True),
    (1, 28_000_000, False),
    (None, 28_000_000, False),
    (8, 20_000_000, False),  # less of it runs beside other work
)
def test_longer_exchanges_may_wait_for_ranks_that_were_not_captured(world: int | None, busy: int, said: bool) -> None:
    facts = {} if world is None else {"world_size": Fact(value=world, unit="count", status="measured")}
    base = document(BOTH, communication=(exchange(20_000_000, 10_000_000),), facts=facts)
    new = document(WORSE, communication=(exchange(busy, 14_000_000),), facts=facts)
    assert any(reason.startswith(f"1 of {world} ranks was captured") for reason in run(base, new).outcome.reasons) == said
    assert not any("captured: waiting" in reason for reason in run(new, base).outcome.reasons)


def test_the_time_of_all_exchanges_is_not_given_as_that_of_one() -> None:
    gathers = structs.replace(exchange(9_000_000, 6_000_000), kind="data")
    base, new = (
        document(steps, communication=(exchange(20_000_000, own), gathers)) for steps, own in ((BOTH, 4_000_000), (WORSE, 8_000_000))
    )
    said = "Exposed communication grew by 4.00 ms (10.0 → 14.0 ms), mostly of the EP all-to-all (4.00 → 8.00 ms), because less of it runs"
    assert said in run(base, new).outcome.moved


def test_a_collective_of_another_algorithm_is_named() -> None:
    names = [f"ncclDevKernel_AllReduce_Sum_bf16_{one}" for one in ("RING_LL", "TREE_LL")]
    base, new = (
        document(
            steps,
            communication=(exchange(took, took),),
            kernels=sequence([kernel(name, 4, took // 4, bucket="collective", role="transport"), kernel("flash_fwd", 10, 9)]),
        )
        for steps, name, took in ((BOTH, names[0], 10_000_000), (WORSE, names[1], 14_000_000))
    )
    said = f"because it runs longer (10.0 → 14.0 ms), {names[1]}, which takes the place of {names[0]}"
    assert said in run(base, new).outcome.moved


def test_another_wall_lost_data_and_a_single_step_are_said() -> None:
    new = document(WORSE)
    other = structs.replace(new, verdict=structs.replace(new.verdict, target_wall="host_overhead"))
    assert run(document(BOTH), other).outcome.moved.endswith("The first target is CPU overhead now; it was compute before.")
    nothing = structs.replace(new, verdict=structs.replace(new.verdict, dominant_wall=None, target_wall=None, runner_up=None))
    compared = run(document(BOTH), nothing)
    assert "attacked first" not in compared.outcome.moved
    assert compared.new.target_wall is None
    assert b'"target_wall": null' in encode(compared) or b'"target_wall":null' in encode(compared)
    entry = LedgerEntry(
        code="cut_file",
        severity="data_loss",
        origin="capture",
        table="x",
        count=3,
        meaning="The file ends before its content does. Copy it again.",
    )
    found = run(document(BOTH), document(WORSE, ledger=(entry,)))
    assert "Data was lost in the new run: the file ends before its content does (3)." in found.outcome.reasons
    whole = run(document(BOTH), document(WORSE, anchor="capture", ledger=(entry,))).outcome.reasons
    assert any("its file ends too early, write or copy it again" in reason for reason in whole)
    assert any("--step-range" in reason for reason in run(document(BOTH), document(WORSE, anchor="capture")).outcome.reasons)
    found = run(document(BOTH[:1]), document(WORSE[:1]))
    assert found.effect.basis == "single step"
    assert "1 step against 1" in found.outcome.sentence
    assert "run-to-run noise assumed 1.0 % (not measured), and one step can't show how much steps differ" in found.outcome.sentence
    assert any("Capture several steps" in reason for reason in found.outcome.reasons)


def test_a_clock_that_differs_stands_beside_the_verdict() -> None:
    clocks = [item("highest GPU clock", f"{mhz} MHz", "clock") for mhz in (1980, 1755)]
    found = run(document(STEPS, environment=clocks[:1]), document(SLOWER, environment=clocks[1:]))
    assert found.outcome.reasons[0] == "What differs besides the code: highest GPU clock 1980 MHz → 1755 MHz."
    alike = run(document(STEPS), document(({"attention": 1_019_000},) * 4)).outcome.sentence
    assert alike.startswith("Between these two captures the step did not change beyond noise: 1.00 → 1.02 ms")
    assert alike.endswith("in four of five such comparisons; a smaller one may be there.")
    same = run(document(STEPS, environment=clocks[:1]), document(STEPS, environment=clocks[1:]))
    assert not [reason for reason in same.outcome.reasons if "besides the code" in reason]


def test_a_metric_of_the_whole_capture_asks_for_runs_not_for_steps() -> None:
    found = run(document(BOTH), document(WORSE), metric="bucket:attention", max_regression=0.01)
    assert "1 value against 1" in found.outcome.sentence
    assert any("Capture several runs of both." in reason for reason in found.outcome.reasons)
    assert found.gate is not None
    assert found.gate.sentence.endswith("Capture several runs of both.")


def test_a_gate_that_is_met_says_what_noise_leaves_possible() -> None:
    found = run(document(STEPS), document(({"attention": 1_045_000},) * 4), max_regression=0.05)
    assert found.gate is not None
    assert found.gate.met
    assert found.gate.sentence.startswith("The gate is met: +4.5 % is within the 5.0 % that the gate allows, though noise leaves +7.")


@for_each(
    "new, met, sentence",
    (50_000, False, "The gate is not met: the metric is nought in base, and any growth is beyond it."),
    (0, True, "The gate is met: the metric did not get worse."),
)
def test_a_gate_on_what_base_has_nothing_of(new: int, met: bool, sentence: str) -> None:
    found = run(
        document(({"attention": 1_000_000},) * 6),
        document(({"attention": 1_000_000, "norm": new},) * 6),
        metric="bucket:norm",
        max_regression=0.03,
    )
    assert found.effect.relative is None
    assert found.gate is not None
    assert (found.gate.met, found.gate.sentence) == (met, sentence)


def test_an_older_document_is_compared_as_far_as_it_goes_and_other_rules_are_said() -> None:
    old = structs.replace(document(BOTH), split=(), kernels=(), environment=())
    found = run(old, document(WORSE, kernels=[kernel("a", 1, 5)]))
    assert found.outcome.result == "regression"
    assert (found.delta, found.kernels, found.outcome.moved) == (None, (), "")
    assert sum("diagnose its trace again" in note for note in found.notes) == 2
    same = run(old, old)
    assert same.outcome.result == "no_change"
    other = document(BOTH)
    other = structs.replace(other, tool=structs.replace(other.tool, rules_sha256="another"))
    assert any("different versions" in note for note in run(document(BOTH), other).notes)
    assert not any("different versions" in note for note in run(other, other).notes)


@for_each("metric", "step_time", "transport", "launch_starved", "compute:attention", "bucket:attention")
def test_other_metrics_have_a_verdict_of_their_own(metric: str) -> None:
    found = run(document(BOTH), document(WORSE), metric=metric)
    assert found.effect.metric == metric
    # 2 % of attention is within what runs are assumed to differ by; of the bucket there is one value of each run
    assert found.effect.result == {"compute:attention": "no_change", "bucket:attention": "cannot_tell"}.get(metric, "regression")
    assert found.outcome.sentence[0].isupper()


# --- the file of limits -----------------------------------------------------------------------------------------------


def text(old: str = "", new: str = "") -> bytes:
    data = (files("trace_rules") / "comparison.yaml").read_text(encoding="utf-8")
    assert old in data
    return data.replace(old, new, 1).encode()


@for_each(
    "old, new, words",
    ("  floor: {value: 0.02", "  flor: {value: 0.02", "flor"),
    ("  floor: {value: 0.02", "  floor: {value: much", "value"),
    ("num_layers, moe_layer_freq", "number_of_layers, num_layers, moe_layer_freq", "no job setting"),
    ("refused: [num_layers, ", "refused: [num_layers, hidden_size, ", "two places"),
    ("proves: [num_layers]", "proves: [hidden_size]", "does not hold"),
    (
        'source: "our own choice, where noise between runs is measured: less is of no use to anybody"',
        'source: ""',
        "noise.floor_measured has no source",
    ),
    ("  world:\n", "  planet:\n", "planet"),
)
def test_a_wrong_file_is_refused_with_the_place(old: str, new: str, words: str) -> None:
    with pytest.raises(RuleFileError, match=words):
        parse_limits(RULES.job, text(old, new))


def test_the_file_that_comes_along_is_right() -> None:
    assert parse_limits(RULES.job, text()) == RULES.limits


def test_one_run_against_one_is_likely_worse_up_to_what_twice_the_assumed_noise_allows() -> None:
    def said(more: float, **options: Any) -> tuple[str, str]:
        found = run(document(STEPS), document(({"attention": round(1_000_000 * (1 + more))},) * 4), **options)
        return story.headline(found), " ".join(found.outcome.reasons)

    headline, reasons = said(0.05)
    assert headline == "Likely worse"
    assert "not measured; if it is 2.0 % (standard deviation), one run of each can't tell a change below 5.7 %." in reasons
    assert said(-0.04)[0] == "Likely better"
    likely, more, known = (
        run(document(STEPS), document(({"attention": amount},) * 4), max_regression=0.03, **options).gate
        for amount, options in ((1_050_000, {}), (1_060_000, {}), (1_050_000, {"run_noise": 0.01}))
    )
    assert [gate.met for gate in (likely, more, known) if gate] == [None, False, False], "what is only likely fails no gate"
    assert likely is not None
    assert likely.sentence.startswith("The gate can't be judged: +5.0 % is more than the 3.0 % that the gate allows, but the noise")
    headline, reasons = said(0.06)
    assert headline == "The captures differ, for the worse"
    assert "can't tell a change" not in reasons
    assert said(0.05, run_noise=0.01)[0] == "The captures differ, for the worse", "the user knows it"
    several = [Named(str(place), document(STEPS)) for place in range(3)]
    slower = [Named(str(place), document(({"attention": 1_050_000 + place},) * 4)) for place in range(3)]
    found = compare(several, slower, base_label="base", new_label="new")
    assert (story.headline(found), found.effect.doubt) == ("Regression", None)


@for_each(
    "slower, begins",
    (
        10_400_000,
        "+4.0 % is within the 5.0 % that the gate allows. The gate is not met: new or worse, of severity medium or above: new (new).",
    ),
    (10_000_000, "No regression beyond the 5.0 % that the gate allows was found. The gate is not met: new or worse"),
    (13_000_000, "The gate is not met: +30.0 % is more than the 5.0 % that the gate allows. The gate is not met: new or worse"),
)
def test_a_gate_that_fails_by_a_finding_alone_does_not_say_that_it_is_met(slower: int, begins: str) -> None:
    base = document(({"attention": 10_000_000},) * 4)
    new = structs.replace(document(({"attention": slower},) * 4), findings=(finding("new"),))
    found = run(base, new, max_regression=0.05, fail_on="medium", run_noise=0.001)
    assert found.gate is not None
    assert found.gate.met is False
    assert found.gate.sentence.startswith(begins), found.gate.sentence


def test_what_moved_in_the_step_is_not_given_as_the_cause_of_another_metric() -> None:
    found = run(document(BOTH), document(WORSE), metric="transport")
    assert found.outcome.moved.startswith("In the whole step: Exposed communication grew")
    assert run(document(BOTH), document(WORSE)).outcome.moved.startswith("Exposed communication grew")
