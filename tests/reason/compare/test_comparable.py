"""May two runs be compared? One test per kind of mismatch, and what proves that the work is the same."""

from typing import Any

import pytest
from msgspec import structs

from diagnose.document.comparison import Comparison
from diagnose.document.device import KernelOccupancy, KernelUse, Occupancy
from diagnose.document.diagnosis import Diagnosis, Fact, JobRead
from diagnose.knowledge.comparison import JOB_ASPECTS
from diagnose.reason.compare.comparable import Tokens
from tests.builders.cases import for_each
from tests.builders.compared import SETTINGS, capture, document, job, kernel
from tests.builders.comparing import RULES, run

STEPS = ({"attention": 1_000_000},) * 4
SLOWER = ({"attention": 1_200_000},) * 4


def shaped(steps: Any) -> Diagnosis:
    """A capture that tells the launch shape of a kernel."""
    one = KernelOccupancy(
        name="gemm", bucket="dense_gemm", kernels=4, work_ns=9, occupancy=0.5, waves=2.0, fill=0.9, limited_by="registers"
    )
    return structs.replace(document(steps), occupancy=Occupancy(device=None, sm_count=132, buckets={}, kernels=(one,)))


def refused(found: Comparison) -> set[tuple[str, str]]:
    assert (found.outcome.result, found.effect.result) == ("refused", "refused")
    assert (found.delta, found.kernels, found.findings) == (None, (), ())
    assert "can't be compared" in found.outcome.sentence
    return {(one.aspect, one.name) for one in found.comparability.mismatches if one.state == "refused"}


CHANGES: list[tuple[str, str, object]] = [
    ("model", "hidden_size", 4096),
    ("model", "num_moe_experts", 64),
    ("layers", "num_layers", 24),
    ("batch", "global_batch_size", 64),
    ("sequence", "seq_length", 8192),
    ("layout", "tensor_model_parallel_size", 2),
    ("layout", "expert_model_parallel_size", 8),
    ("layout", "pipeline_model_parallel_size", 2),
    ("precision", "fp8", "hybrid"),
    ("precision", "bf16", False),
    ("world", "world_size", 32),
]


@for_each("aspect, setting, value", *CHANGES)
def test_other_work_is_refused_with_its_reason(aspect: str, setting: str, value: object) -> None:
    base, new = document(STEPS, job=job()), document(STEPS, job=job(**{setting: value}))
    found = run(base, new)
    assert refused(found) == {(aspect, setting)}
    (mismatch,) = [one for one in found.comparability.mismatches if one.state == "refused"]
    assert setting in mismatch.text
    assert mismatch.text in found.outcome.reasons
    assert setting in found.outcome.sentence
    assert found.settings  # what differs in the job files is shown all the same


def test_every_aspect_of_the_job_is_among_them_and_has_settings_with_a_source() -> None:
    assert {aspect for aspect, _, _ in CHANGES} == set(JOB_ASPECTS)
    limits = RULES.limits
    assert set(limits.aspects) == set(JOB_ASPECTS)
    assert all(spec.source and spec.refused for spec in limits.aspects.values())


@for_each("aspect, setting, value", *CHANGES[:5])
def test_anyway_gives_the_figures_and_says_what_differs(aspect: str, setting: str, value: object) -> None:
    base, new = document(STEPS, job=job()), document(SLOWER, job=job(**{setting: value}))
    found = run(base, new, anyway=True)
    assert found.outcome.result == "regression"
    assert found.delta is not None
    assert (found.comparability.comparable, found.comparability.anyway) == (False, True)
    assert any(setting in reason for reason in found.outcome.reasons)


def test_anyway_changes_nothing_where_runs_can_be_compared() -> None:
    found = run(document(STEPS, job=job()), document(STEPS, job=job()), anyway=True)
    assert (found.comparability.comparable, found.comparability.anyway) == (True, False)


@for_each(
    "aspect, changes",
    ("batch", {"micro_batch_size": 2}),
    ("layout", {"virtual_pipeline_model_parallel_size": 2}),
    ("model", {"moe_router_force_load_balancing": True}),
    ("sequence", {"enable_offline_packing": True}),
)
def test_the_same_work_in_another_way_is_noted(aspect: str, changes: dict[str, object]) -> None:
    base = document(STEPS, job=job(moe_router_force_load_balancing=False, virtual_pipeline_model_parallel_size=1))
    settings = {"moe_router_force_load_balancing": False, "virtual_pipeline_model_parallel_size": 1, **changes}
    found = run(base, document(STEPS, job=job(**settings)))
    assert found.outcome.result == "no_change"
    (mismatch,) = found.comparability.mismatches
    assert (mismatch.aspect, mismatch.state) == (aspect, "noted")


def test_tunables_and_defaults_spelt_out_are_no_other_work() -> None:
    base = document(STEPS, job=job(moe_permute_fusion=False, recompute_granularity="full"))
    found = run(base, document(STEPS, job=job(moe_permute_fusion=True, recompute_granularity="none")))
    assert found.comparability.comparable
    assert not found.comparability.mismatches
    assert len(found.settings) == 2
    base, new = document(STEPS, job=job(pipeline_model_parallel_size=None)), document(STEPS, job=job(pipeline_model_parallel_size=1))
    found = run(base, new)
    assert found.comparability.comparable
    assert found.settings == ()
    assert refused(run(base, document(STEPS, job=job(pipeline_model_parallel_size=4)))) == {("layout", "pipeline_model_parallel_size")}


def test_an_override_file_leaves_things_open_and_a_named_precision_is_what_it_stands_for() -> None:
    # What a recipe decides is not the framework's default
    part = structs.replace(job({"fp8": "hybrid"}), format="overrides")
    found = run(document(STEPS, job=part), document(STEPS, job=job(fp8="hybrid")))
    assert found.comparability.comparable
    assert {"model", "layers", "layout", "batch", "sequence", "precision"} <= set(found.comparability.unknown)
    script = structs.replace(job({"fp8": "hybrid"}), notes=("line 3: $EXTRA may hold more flags, so what is not given is not known",))
    assert "layout" in run(document(STEPS, job=script), document(STEPS, job=job())).comparability.unknown
    named = job({**SETTINGS, "mixed_precision": "bf16_mixed"})
    found = run(document(STEPS, job=named), document(STEPS, job=job()))
    assert found.comparability.comparable
    assert [change.name for change in found.settings] == ["mixed_precision"]


# --- tokens -----------------------------------------------------------------------------------------------------------


def tokens_job(batch: int, **changes: object) -> JobRead:
    return job(global_batch_size=batch, tokens=batch * 4096, **changes)


def test_another_batch_is_compared_per_token_where_both_files_tell() -> None:
    base, new = document(STEPS, job=tokens_job(32)), document(({"attention": 1_900_000},) * 4, job=tokens_job(64))
    found = run(base, new)
    assert found.outcome.result == "improvement"
    assert (found.effect.unit, found.effect.base) == ("ns per token", pytest.approx(1_000_000 / (32 * 4096)))
    assert found.effect.relative == pytest.approx(-0.05)
    assert found.comparability.normalised is not None
    assert any("The verdict is per token" in note for note in found.notes)
    assert (found.comparability.normalised.base_tokens, found.comparability.normalised.new_tokens) == (32 * 4096, 64 * 4096)
    assert {(one.aspect, one.state) for one in found.comparability.mismatches} == {("batch", "normalised"), ("tokens", "normalised")}
    assert found.delta is not None
    assert found.delta.delta_ns == -50_000  # of as many tokens as a step of base has: else it grew, and the verdict is that it shrank
    assert any("per step" in note for note in found.notes)
    assert "per token" in found.outcome.sentence


def test_tokens_of_a_log_go_before_the_job_files_and_the_same_are_not_normalised() -> None:
    base, new = document(STEPS, job=tokens_job(32)), document(STEPS, job=tokens_job(32))
    found = run(base, new, tokens=Tokens(100_000.0, 125_000.0, "train.log"))
    assert found.comparability.normalised is not None
    assert found.comparability.normalised.source == "train.log"
    assert found.effect.relative == pytest.approx(-0.2)
    found = run(document(STEPS, job=tokens_job(32)), document(STEPS, job=tokens_job(32)))
    assert (found.comparability.normalised, found.effect.unit) == (None, "ns")
    assert not any("The verdict is per token" in note for note in found.notes)


def test_another_sequence_length_and_another_batch_without_tokens_are_refused() -> None:
    base, new = document(STEPS, job=tokens_job(32)), document(STEPS, job=tokens_job(16, seq_length=8192))
    assert refused(run(base, new, tokens=Tokens(1000.0, 1000.0))) >= {("sequence", "seq_length")}
    assert refused(run(document(STEPS, job=job()), document(STEPS, job=job(global_batch_size=64)))) == {("batch", "global_batch_size")}


# --- ranks, device, capture -------------------------------------------------------------------------------------------


def test_other_ranks_and_none_in_common_are_refused() -> None:
    found = run(document(STEPS, ranks=(0, 1), job=job()), document(STEPS, ranks=(0, 1, 2, 3), job=job()))
    assert refused(found) == {("ranks", "captured ranks")}
    found = run(document(STEPS, rank=0, job=job()), document(STEPS, rank=5, job=job()))
    assert refused(found) == {("ranks", "captured ranks")}
    assert (found.base.rank, found.new.rank) == (0, 5)


def test_a_rank_that_was_only_numbered_is_no_other_rank_than_one_that_is_told() -> None:
    told, numbered = document(STEPS, rank=5, job=job()), document(STEPS, rank=0, job=job())
    ranks = tuple(structs.replace(one, source="assigned") for one in numbered.capture.ranks)
    numbered = structs.replace(numbered, capture=structs.replace(numbered.capture, ranks=ranks))
    for base, new in ((told, numbered), (numbered, told)):
        found = run(base, new)
        assert found.comparability.comparable
        assert {found.base.rank, found.new.rank} == {0, 5}


def test_the_rank_compared_is_the_new_runs_then_the_bases_then_the_lowest_common() -> None:
    both = document(STEPS, rank=1, ranks=(0, 1, 2), job=job())
    assert run(document(STEPS, rank=0, ranks=(0, 1, 2), job=job()), both).new.rank == 1
    assert any(
        "own verdict is of rank 0" in reason for reason in run(document(STEPS, rank=0, ranks=(0, 1, 2), job=job()), both).outcome.reasons
    )
    of_two = run(document(STEPS, rank=2, ranks=(2, 3), job=job()), document(STEPS, rank=9, ranks=(2, 3, 9), job=job()), anyway=True)
    assert (of_two.base.rank, of_two.new.rank) == (2, 2)
    neither = run(document(STEPS, rank=8, ranks=(2, 3, 8), job=job()), document(STEPS, rank=9, ranks=(2, 3, 9), job=job()), anyway=True)
    assert (neither.base.rank, neither.new.rank) == (2, 2)


def test_another_gpu_and_a_world_that_only_the_traces_tell_are_refused() -> None:
    found = run(document(STEPS, job=job()), document(STEPS, gpu="NVIDIA A100-SXM4-80GB", job=job()))
    assert refused(found) == {("device", "GPU")}
    unknown = run(document(STEPS, job=job()), document(STEPS, gpu=None, job=job()))
    assert unknown.comparability.comparable
    assert "device" in unknown.comparability.unknown

    def told(ranks: int) -> Diagnosis:
        return document(STEPS, facts={"world_size": Fact(value=ranks, unit="count", status="measured")})

    assert refused(run(told(8), told(16))) == {("world", "world_size")}
    assert run(told(8), told(8)).comparability.comparable


@for_each(
    "here, there, name",
    ({"format": "nsys-sqlite"}, {"format": "torch-json"}, "format"),
    ({"cuda_graphs": "nodes"}, {"cuda_graphs": "opaque"}, "CUDA graphs"),
)
def test_another_way_of_capturing_is_refused(here: dict[str, str], there: dict[str, str], name: str) -> None:
    base = document(STEPS, job=job())
    assert refused(run(capture(base, **here), capture(base, **there))) == {("capture", name)}


def test_formats_graphs_and_steps_mismatch_only_where_they_hide_something() -> None:
    base = document(STEPS, job=job())
    assert run(capture(base, format="nsys-sqlite"), capture(base, format="nsys-parquet")).comparability.mismatches == ()
    assert run(capture(base, cuda_graphs="none"), capture(base, cuda_graphs="nodes")).comparability.mismatches == ()
    found = run(capture(base, cuda_graphs="none"), capture(base, cuda_graphs="opaque"))
    assert [(one.aspect, one.state) for one in found.comparability.mismatches] == [("capture", "noted")]
    assert found.outcome.reasons
    unproved = run(capture(document(STEPS), cuda_graphs="none"), capture(document(STEPS), cuda_graphs="opaque"))
    assert refused(unproved) == {("kernels", "hidden in graphs")}
    assert refused(run(document(STEPS, job=job()), document(STEPS[:1], anchor="capture", job=job()))) == {("capture", "steps")}
    found = run(document(STEPS, job=job()), document(STEPS, anchor="optimizer kernels", job=job()))
    assert [(one.name, one.state) for one in found.comparability.mismatches] == [("steps", "noted")]


def test_a_capture_of_nothing_but_start_up_gives_no_verdict_on_a_step() -> None:
    cold, warm = ({"start_up_only": Fact(value=value, unit="bool", status="measured")} for value in (True, False))
    base = document(STEPS, job=job(), facts=warm)
    assert refused(run(base, document(SLOWER, job=job(), facts=cold))) == {("capture", "start-up")}
    assert refused(run(document(STEPS, job=job(), facts=cold), document(SLOWER, job=job(), facts=cold))) == {("capture", "start-up")}
    assert run(base, document(SLOWER, job=job(), facts=warm)).comparability.comparable


def test_a_perturbed_run_and_what_nothing_proves_or_tells_are_said() -> None:
    base = document(STEPS, job=job())
    slow = structs.replace(base, verdict=structs.replace(base.verdict, perturbed=True))
    found = run(base, slow)
    assert any("slowed the new run" in reason for reason in found.outcome.reasons)
    assert any("Nothing proves" in reason for reason in run(document(STEPS), document(SLOWER)).outcome.reasons)
    for both in (True, False):
        (said,) = [
            one for one in run(shaped(STEPS), shaped(SLOWER) if both else document(SLOWER)).outcome.reasons if "Nothing proves" in one
        ]
        assert ("Launch shapes" in said) != both, "without them another model looks like another speed"
    (said,) = [one for one in run(document(STEPS, job=job(bf16=None)), document(SLOWER, job=job())).outcome.reasons if "Nothing" in one]
    assert said.endswith("Base's job file does not tell bf16 (add --base-set bf16=…).")
    (only,) = run(document(STEPS, job=job()), document(SLOWER, job=job())).outcome.reasons
    assert only.startswith("One run against one shows that two captures differ, not that the program does")
    found = run(document(STEPS, gpu=None), document(STEPS, job=job()))
    assert set(found.comparability.unknown) == {*JOB_ASPECTS, "tokens", "device"}
    assert run(document(STEPS, job=tokens_job(32)), document(STEPS, job=tokens_job(32))).comparability.unknown == ()


# --- the work by its kernels ------------------------------------------------------------------------------------------


def noted(found: Comparison) -> dict[str, str]:
    return {one.name: one.text for one in found.comparability.mismatches if one.state == "noted" and one.aspect == "kernels"}


def test_a_bucket_of_one_side_is_said_and_refuses_nothing() -> None:
    """It may be the very change: an overlap that was switched off, a gather that is gone."""
    both: tuple[dict[str, int], ...] = ({"attention": 900_000, "expert_gemm": 100_000},) * 4
    found = run(document(both), document(STEPS))
    assert found.comparability.comparable
    assert "Neither run has a job file" in noted(found)["expert_gemm"]
    little = ({"attention": 990_000, "expert_gemm": 10_000},) * 4
    assert noted(run(document(little), document(STEPS))) == {}
    assert noted(run(document(both, job=job()), document(STEPS, job=job()))) == {}  # proven by the job files


def test_a_world_that_the_job_files_leave_out_is_told_by_traces_of_all_ranks_and_is_named_otherwise() -> None:
    lacking = job(world_size=None)
    both: tuple[dict[str, int], ...] = ({"attention": 900_000, "expert_gemm": 100_000},) * 4
    world = {"world_size": Fact(value=16, unit="count", status="measured")}
    known = run(document(both, job=lacking, facts=world), document(STEPS, job=lacking, facts=world))
    assert (known.comparability.comparable, noted(known), "world" in known.comparability.unknown) == (True, {}, False)
    unknown = run(document(both, job=lacking), document(STEPS, job=job()))
    assert unknown.comparability.comparable
    assert noted(unknown)["expert_gemm"].endswith("Base's job file does not tell world_size (add --base-set world_size=…).")


def uses(*rows: tuple[str, str, int, int]) -> list[KernelUse]:
    return [structs.replace(kernel(name, launches, launch_ns), bucket=bucket) for name, bucket, launches, launch_ns in rows]


MODEL = (
    ("gemm", "dense_gemm", 12, 40_000), ("flash", "attention", 4, 50_000), ("norm", "norm", 8, 20_000), ("silu", "activation", 4, 30_000),
)  # fmt: skip
UPDATE = ("adam", "optimizer", 2, 100_000)


def of(*rows: tuple[str, str, int, int], job_file: JobRead | None = None) -> Diagnosis:
    """Four steps that run these kernels: name, bucket, launches per step, ns per launch."""
    work: dict[str, int] = {}
    count: dict[str, int] = {}
    for _, bucket, launches, launch_ns in rows:
        work[bucket] = work.get(bucket, 0) + launches * launch_ns
        count[bucket] = count.get(bucket, 0) + launches
    made = document((work,) * 4, kernels=uses(*rows), job=job_file)
    return structs.replace(made, buckets=tuple(structs.replace(row, kernels=count[row.bucket]) for row in made.buckets))


OTHER_AMOUNTS: dict[str, tuple[tuple[tuple[str, str, int, int], ...], set[tuple[str, str]]]] = {
    "half as many layers again": (
        tuple((name, bucket, 3 * often // 2, ns) for name, bucket, often, ns in MODEL),
        {("kernels", "launches")},
    ),
    "sequences of twice the length": (
        tuple((name, bucket, often, ns * (4 if bucket == "attention" else 2)) for name, bucket, often, ns in MODEL),
        {("kernels", "work per launch")},
    ),
    "very many more kernels": ((*MODEL, ("more", "elementwise", 200, 100)), {("kernels", "kernels per step")}),
    "a slower clock": (
        tuple((name, bucket, often, ns * 5 // 4 if bucket == "dense_gemm" else ns) for name, bucket, often, ns in MODEL),
        set(),
    ),
    "a forward pass that is computed again": (
        tuple((name, bucket, often * 2 if bucket in ("attention", "norm") else often, ns) for name, bucket, often, ns in MODEL),
        set(),
    ),
    "slower memory": (
        (*((name, bucket, often, ns * 3 // 2) for name, bucket, often, ns in MODEL), ("adam", "optimizer", 2, 150_000)),
        set(),
    ),
}


@for_each("case", *OTHER_AMOUNTS)
def test_another_amount_of_work_is_told_from_launches_and_what_they_do(case: str) -> None:
    """Without job files. What a slower machine or a changed setting does to some kernels is no other amount of work."""
    rows, wanted = OTHER_AMOUNTS[case]
    new = rows if any(name == "adam" for name, *_ in rows) else (*rows, UPDATE)
    found = run(of(*MODEL, UPDATE), of(*new))
    assert {(one.aspect, one.name) for one in found.comparability.mismatches if one.state == "refused"} == wanted
    agreed = run(of(*MODEL, UPDATE, job_file=job(world_size=None)), of(*new, job_file=job(world_size=None)))
    assert agreed.comparability.comparable  # the job files agree in all that they tell: it is said and not weighed
    assert set(noted(agreed)) == {name for _, name in wanted}


def test_a_layer_more_that_is_computed_again_is_no_other_amount_of_work() -> None:
    """What is launched as often as before did not change alike with what is launched a tenth more."""
    same = (("dgrad", "dense_gemm", 18, 250_000), ("flash_bwd", "attention", 8, 900_000), UPDATE)
    base = of(("grouped", "expert_gemm", 36, 600_000), ("norm", "norm", 40, 40_000), *same)
    new = of(("grouped", "expert_gemm", 41, 600_000), ("norm", "norm", 45, 40_000), *same)
    assert run(base, new).comparability.comparable


@for_each(
    "times, attention, said, back",
    ("often", 1, "are launched 1.50 times as often per step", "are launched 0.67 times as often per step"),
    ("long", 4, "takes 2.00 times as long per launch", "takes 0.50 times as long per launch"),
    ("long", 2, "takes 2.00 times as long per launch", "takes 0.50 times as long per launch"),
)
def test_another_amount_of_work_is_told_as_the_new_one_by_that_of_base(times: str, attention: int, said: str, back: str) -> None:
    """What attention does grows faster than the tokens where it is the sequences that are longer."""
    if times == "often":
        rows = tuple((name, bucket, 3 * often // 2, ns) for name, bucket, often, ns in MODEL)
    else:
        rows = tuple((name, bucket, often, ns * (attention if bucket == "attention" else 2)) for name, bucket, often, ns in MODEL)
    base, new = of(*MODEL, UPDATE), of(*rows, UPDATE)
    for pair, text in (((base, new), said), ((new, base), back)):
        (found,) = (one.text for one in run(*pair).comparability.mismatches if one.state == "refused")
        assert text in found
        assert ("(the sequence length)" in found) == (attention == 4)
        assert ("(the batch or the sequence length)" in found) == (attention == 2)


def whole(kernels: list[KernelUse], idle: int) -> Diagnosis:
    """A capture without steps."""
    work = sum(row.work_ns for row in kernels)
    return document(({"attention": work, ("nothing", "host_work"): idle},), anchor="capture", kernels=kernels)


def test_captures_of_different_length_are_brought_to_the_same_work() -> None:
    base = whole([kernel("a", 100, 10_000), kernel("b", 50, 20_000)], idle=500_000)
    new = whole([kernel("a", 80, 10_000), kernel("b", 40, 20_000)], idle=1_600_000)
    found = run(base, new)
    assert found.comparability.normalised is not None
    assert (found.comparability.normalised.unit, found.effect.unit) == ("ns of kernel work", "ns")
    assert found.effect.new == pytest.approx(3_200_000 * 100 / 80)
    assert found.outcome.result == "regression"
    assert found.delta is not None
    moved = {row.category: row.delta_ns for row in found.delta.categories}
    assert moved == {"launch_starved": 1_500_000, "compute:attention": 0}
    assert (found.delta.delta_ns, found.kernels) == (1_500_000, ())
    facts = (
        structs.replace(side, facts={"compute_busy_share": Fact(value=value, unit="share", status="measured")})
        for side, value in ((base, 0.8), (new, 0.5))
    )
    busy = run(*facts, metric="compute_busy_share")
    assert busy.comparability.normalised is not None
    assert (busy.effect.base, busy.effect.new) == (0.8, 0.5)  # a share of a capture has no length


def test_slower_kernels_are_not_more_work_and_unlike_ones_are_refused() -> None:
    base = whole([kernel("a", 100, 10_000), kernel("b", 50, 20_000)], idle=500_000)
    new = whole([kernel("a", 100, 20_000), kernel("b", 50, 20_000)], idle=500_000)
    found = run(base, new)
    assert found.comparability.normalised is None
    assert found.effect.relative == pytest.approx(1_000_000 / 2_500_000)
    assert [(row.kind, row.name) for row in found.kernels] == [("slower", "a")]
    new = whole([kernel("a", 100, 10_000), kernel("c", 50, 20_000)], idle=500_000)
    assert refused(run(base, new)) == {("kernels", "work in the capture")}


def test_captures_of_very_different_length_are_refused_but_launches_at_the_edges_do_not_count() -> None:
    rows = [kernel("a", 100, 10_000), kernel("b", 50, 20_000)]
    long = [structs.replace(row, launches=5 * row.launches, work_ns=5 * row.work_ns) for row in rows]
    assert refused(run(whole(rows, idle=0), whole(long, idle=0))) == {("kernels", "work in the capture")}
    few = [structs.replace(row, launches=row.launches // 25, work_ns=row.work_ns // 25) for row in rows]
    more = [structs.replace(row, launches=row.launches // 10, work_ns=row.work_ns // 10) for row in rows]
    assert refused(run(whole(few, idle=0), whole(more, idle=0))) == {("kernels", "work in the capture")}
    assert run(whole(few, idle=0), whole(few, idle=0)).outcome.result == "no_change"
    base = whole([kernel("a", 100, 10_000), kernel("b", 5, 20_000)], idle=0)
    new = whole([kernel("a", 80, 10_000), kernel("b", 2, 20_000)], idle=0)
    assert run(base, new).comparability.comparable


def test_another_gpu_is_no_other_amount_of_work() -> None:
    """Launches of the same blocks are fewer waves on a GPU of more SMs."""
    rows = [kernel(name, 10, 1_000_000, bucket="dense_gemm") for name in ("gemm", "other")]

    def of(gpu: str, waves: float) -> Diagnosis:
        occupancy = [
            KernelOccupancy(
                name=row.name, bucket="dense_gemm", kernels=10, work_ns=10**7, occupancy=0.5, waves=waves, fill=0.9, limited_by="registers"
            )
            for row in rows
        ]
        return document(STEPS, kernels=rows, gpu=gpu, occupancy=Occupancy(device=None, sm_count=None, buckets={}, kernels=tuple(occupancy)))

    assert refused(run(of("H100", 2.0), of("H100", 1.6))) == {("kernels", "blocks per launch")}
    assert refused(run(of("H100", 2.0), of("B200", 1.6))) == {("device", "GPU")}


def test_stacks_in_one_capture_alone_are_told() -> None:
    with_stacks, without = (
        document(STEPS, facts={"python_stacks": Fact(value=value, unit="bool", status="measured")}) for value in (True, False)
    )
    assert any(one.startswith("Python stacks were recorded in new alone") for one in run(without, with_stacks).outcome.reasons)
    assert not any("stacks" in one for one in run(with_stacks, with_stacks).outcome.reasons)
