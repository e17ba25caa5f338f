"""Relevance.

Fixes of another kind of program are not offered, a framework's settings only where it is known, and findings stand by what takes the step.
"""

import re

from diagnose.document.diagnosis import Fix
from diagnose.knowledge.catalogue import GENERAL
from diagnose.model.vocabulary import FactValue
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader, find
from diagnose.reason.forecast.changes import effect_of
from diagnose.render.reports.diagnosis import story
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import job, parse_job

STARVED: dict[str, FactValue] = {"launch_starved_ns": 40_000_000, "host_gap_excess_ns": 20_000_000, "host_sync_ns": 9_000_000}
PLAIN: dict[str, FactValue] = {
    "has_experts": False, "is_training": False, "python_seen": False, "framework_seen": "none", "vision_encoder_share": 0.0,
}  # fmt: skip
PROGRAMS = BOOK.relevance.programs


def offered(**values: FactValue) -> dict[str, Fix]:
    """The fixes of all findings without a job file."""
    found, _ = find(facts(**{**STARVED, **PLAIN, **values}), job=None, rulebook=BOOK)
    return {fix.id: fix for finding in found for fix in finding.fixes}


def test_a_program_without_experts_python_or_training_gets_no_advice_on_them() -> None:
    told = set(offered())
    assert {"HOST-02", "HOST-04", "HOST-09"} <= told
    for kind in ("experts", "python", "training"):
        assert told.isdisjoint(PROGRAMS[kind].fixes), kind


def test_what_ran_or_the_job_file_brings_its_advice_back() -> None:
    assert "HOST-03" in offered(python_seen=True, is_training=True)
    assert "CMP-01" in offered(has_experts=True, is_training=True)
    found, _ = find(facts(**{**STARVED, **PLAIN}), job=job(), rulebook=BOOK)
    told = {fix.id for finding in found for fix in finding.fixes}
    assert {"HOST-01", "HOST-03", "HOST-05"} <= told, "the job file shows a training of experts, whatever was captured"


def test_what_is_not_known_leaves_nothing_out() -> None:
    found, _ = find(facts(**STARVED), job=None, rulebook=BOOK)
    assert {"HOST-01", "HOST-03", "HOST-05", "CMP-01"} <= {fix.id for finding in found for fix in finding.fixes}


def test_a_framework_s_settings_are_offered_where_it_is_known_and_told_in_words_elsewhere() -> None:
    def frameworks(fix: Fix) -> set[str]:
        return {change.framework for change in fix.changes}

    assert frameworks(offered(python_seen=True, is_training=True)["HOST-03"]) == {GENERAL}
    assert frameworks(offered(python_seen=True, is_training=True, framework_seen="megatron")["HOST-03"]) == {
        "megatron-bridge",
        "megatron-lm",
    }
    bridge = parse_job("train:\n  micro_batch_size: 4\nmodel:\n  num_layers: 4\nddp:\n  overlap_grad_reduce: true\n")
    assert bridge.format == "megatron-bridge"
    assert frameworks(FixReader(context=make_context(facts(**PLAIN), bridge, BOOK)).fix(BOOK.fixes["HOST-03"])) == {"megatron-bridge"}
    assert offered(python_seen=True, is_training=True)["HOST-03"].unknown == ("The trace does not show whether this is done already.",)
    assert "CMP-08" not in offered(has_experts=True, is_training=True), "a setting of one framework alone can't be told in words"


def test_without_a_job_file_a_fix_whose_needs_cannot_be_asked_is_no_surer_than_others() -> None:
    exchange: dict[str, FactValue] = {
        "has_experts": True, "is_training": True, "transport_busy_ns": 30_000_000, "expert_exchange_backend": "nccl",
        "expert_exchange_blocking_ns": 20_000_000, "expert_exchange_blocking_share": 0.2, "platform": "h100", "gpu_compute_major": 9,
    }  # fmt: skip
    found = offered(**exchange)
    assert found["COM-27"].state == found["COM-01"].state == "unknown", "the library for other networks is not the sure one on an H100"


def test_gradients_reduced_beside_compute_are_overlapped_already() -> None:
    """DistributedDataParallel: nothing is gathered, and only the last buckets are exposed."""
    reduced: dict[str, FactValue] = {
        "is_training": True, "transport_busy_ns": 36_000_000, "data_parallel_busy_ns": 36_000_000, "data_gather_share": 0.0,
        "data_parallel_blocking_ns": 9_000_000, "data_parallel_blocking_share": 0.09,
    }  # fmt: skip
    assert offered(**reduced, data_parallel_exposed_ns=9_000_000)["COM-10"].state == "already_on"
    assert offered(**reduced, data_parallel_exposed_ns=34_000_000)["COM-10"].state == "unknown"


@for_each(
    "exposed, reduces, gathers",
    (5_000_000, "already_on", "already_on"),  # less than half of the 14.4 ms of reductions
    (9_000_000, "unknown", "already_on"),  # these may all be exposed, half of the 21.6 ms of gathers can't
    (30_000_000, "unknown", "unknown"),
)
def test_where_parameters_are_gathered_what_is_exposed_tells_what_overlaps(exposed: int, reduces: str, gathers: str) -> None:
    """Fully sharded: an all-gather and a reduce-scatter for each layer, most of it beside compute."""
    found = offered(
        is_training=True, transport_busy_ns=36_000_000, data_parallel_busy_ns=36_000_000, data_gather_share=0.6,
        data_parallel_blocking_ns=4_000_000, data_parallel_blocking_share=0.04, data_parallel_exposed_ns=exposed,
    )  # fmt: skip
    assert [found[one].state for one in ("COM-10", "COM-11")] == [reduces, gathers]


def test_accumulation_without_no_sync_is_told_although_the_reductions_overlap() -> None:
    told: dict[str, FactValue] = {
        "is_training": True, "data_parallel_busy_ns": 36_000_000, "data_parallel_beside_compute_ns": 27_000_000, "data_gather_share": 0.0,
        "data_parallel_blocking_ns": 8_000_000, "data_parallel_blocking_share": 0.08, "transport_busy_ns": 36_000_000,
    }  # fmt: skip
    found = {one.id: one for one in find(facts(**{**PLAIN, **told, "gradient_rounds_per_step": 4}), job=None, rulebook=BOOK)[0]}
    repeated = found["communication-gradients-each-micro-batch"]
    assert (repeated.bound_ns, [(fix.id, fix.state) for fix in repeated.fixes]) == (6_000_000, [("COM-29", "applicable")])
    assert "no_sync()" in repeated.fixes[0].changes[0].to
    once = find(facts(**{**PLAIN, **told, "gradient_rounds_per_step": 1}), job=None, rulebook=BOOK)[0]
    assert "COM-29" not in {fix.id for one in once for fix in one.fixes}


def test_gradients_that_are_reduced_in_bf16_are_halved_no_further() -> None:
    stalled: dict[str, FactValue] = {
        "is_training": True, "transport_busy_ns": 36_000_000, "data_parallel_busy_ns": 36_000_000, "data_parallel_blocking_ns": 20_000_000,
        "data_parallel_blocking_share": 0.2,
    }  # fmt: skip
    lacking = "It hangs on narrow_reduction_share, grad_reduce_in_fp32, which is not known here."
    for narrow, state, effect in (
        (1.0, "already_on", "None of what it changes applies to this job."),
        (0.0, "unknown", ""),
        (None, "unknown", lacking),
    ):
        assert offered(**stalled, narrow_reduction_share=narrow)["COM-12"].state == state
        found = effect_of(BOOK.fixes["COM-12"], make_context(facts(**stalled, narrow_reduction_share=narrow), None, BOOK))
        assert found == effect if isinstance(found, str) else not effect


def test_a_variable_of_megatron_s_overlap_is_not_for_every_program() -> None:
    layers: dict[str, FactValue] = {
        "is_training": True, "tensor_parallel_busy_ns": 20_000_000, "tensor_parallel_blocking_ns": 20_000_000,
        "tensor_parallel_blocking_share": 0.2, "transport_busy_ns": 20_000_000, "gpu_compute_major": 9,
    }  # fmt: skip
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in {change.key for change in offered(**layers)["COM-09"].changes}
    titan = parse_job("[parallelism]\ntensor_parallel_degree = 4\n[compile]\nenable = false\n")
    written = FixReader(context=make_context(facts(**layers), titan, BOOK)).fix(BOOK.fixes["COM-09"]).changes
    assert {change.framework for change in written} == {"torchtitan"}


def test_activations_that_leave_in_forward_are_no_offloaded_optimizer() -> None:
    """Equal amounts both ways: gradients go to the host after backward, activations while forward runs."""
    copies: dict[str, FactValue] = {
        "is_training": True, "host_copy_blocking_ns": 9_000_000, "host_copy_blocking_share": 0.09,
        "copy_h2d_bytes": 800_000_000, "copy_d2h_bytes": 800_000_000,
    }  # fmt: skip
    gradients, activations = (offered(**copies, copy_d2h_forward_bytes=bytes_) for bytes_ in (0, 799_000_000))
    checkpoint = offered(**{**copies, "copy_h2d_bytes": 2_000_000}, copy_d2h_forward_bytes=0)
    assert "CPY-03" in checkpoint
    assert "CPY-02" not in checkpoint, "nothing comes back from the host"
    assert "CPY-02" in gradients
    assert {"CPY-01", "CPY-03", "CPY-05"} <= set(activations)
    assert "CPY-02" not in activations
    assert "CPY-05" not in gradients
    assert "CPY-05" not in checkpoint


def test_an_unset_variable_has_its_default_and_the_rule_s_order_holds() -> None:
    stalls: dict[str, FactValue] = {"allocator_ns": 20_000_000, "allocator_restart_ns": 0}
    found, _ = find(facts(**stalls), job=job(), rulebook=BOOK)
    first = next(finding for finding in found if finding.id == "memory-allocator-stalls").fixes[0]
    assert (first.id, first.state) == ("MEM-01", "applicable")


def test_what_an_applicable_fix_still_needs_is_told() -> None:
    fix = FixReader(context=make_context(facts(), job(versions__torch=None), BOOK)).fix(BOOK.fixes["COM-06"])
    assert fix.state == "applicable"
    said = story.fix_reason(fix)
    assert "PyTorch 2.6.0" in said
    assert "CUDA_DEVICE_MAX_CONNECTIONS is not in the job file and was taken as its default, 8." in said
    assert "framework's default" not in said, "what a framework takes by itself is no need"


def test_findings_stand_by_what_takes_the_step() -> None:
    vision: dict[str, FactValue] = {
        "vision_encoder_share": 0.72,
        "vision_encoder_busy_ns": 70_000_000,
        "vision_encoder_backward_ns": 45_000_000,
    }
    idle = {"comm_overlap__overlap_moe_expert_parallel_comm": True}
    found, _ = find(facts(**vision, expert_exchange_busy_ns=9_000_000, expert_exchange_beside_compute_ns=0), job=job(**idle), rulebook=BOOK)
    assert (found[0].id, found[0].severity, found[0].bound_ns) == ("compute-vision-encoder-heavy", "high", 45_000_000)
    assert found[0].fixes[0].id == "VLM-01"
    notes = [one.bound_ns is None and (one.status == "config" or one.wall == "capture") for one in found]
    assert notes == sorted(notes)


def test_what_holds_compute_up_goes_before_the_ceilings_of_compute_s_own_quality() -> None:
    found, _ = find(
        facts(
            **{
                **PLAIN,
                "other_collective_blocking_share": 0.12,
                "other_collective_blocking_ns": 12_000_000,
                "fp32_product_busy_ns": 40_000_000,
            }
        ),
        job=None,
        rulebook=BOOK,
    )
    order = [one.id for one in found if one.id in ("communication-blocking-other", "compute-fp32-products")]
    assert order == ["communication-blocking-other", "compute-fp32-products"]


def test_a_gather_of_parameters_is_offered_where_parameters_are_gathered() -> None:
    stalled: dict[str, FactValue] = {"data_parallel_blocking_ns": 9_000_000, "data_parallel_blocking_share": 0.09, "is_training": True}
    assert "COM-11" not in offered(**stalled, data_gather_share=0.0)  # all-reduces alone: each rank holds all parameters
    assert {"COM-10", "COM-11"} <= set(offered(**stalled, data_gather_share=0.2))
    unknown: dict[str, FactValue] = {"is_training": True, "transport_busy_ns": 36_000_000, "other_collective_blocking_share": 0.2}
    assert "COM-11" not in offered(**unknown, other_reduction_share=1.0, other_gather_share=0.0)
    assert "COM-11" in offered(**unknown, other_reduction_share=1.0, other_gather_share=0.2)
    assert "COM-11" in offered(**stalled)


def test_a_driver_call_for_every_tensor_is_no_fragmentation() -> None:
    calls: dict[str, FactValue] = {
        "allocator_ns": 9_000_000, "allocator_shadowed_ns": 0, "allocator_restart_ns": 0, "kernels_per_step": 470,
    }  # fmt: skip
    off = offered(**calls, python_seen=True, allocator_calls_per_step=564)
    assert off["MEM-23"].state == "applicable"
    assert offered(**calls, python_seen=True, allocator_calls_per_step=90)["MEM-23"].state == "already_on"
    assert "MEM-23" not in offered(**calls, allocator_calls_per_step=564)
    few: dict[str, FactValue] = {**calls, "kernels_per_step": 3, "allocator_calls_per_step": 4}  # the cache's own first calls
    assert offered(**few, python_seen=True)["MEM-23"].state == "already_on"


def test_an_emptied_cache_may_be_what_allocator_calls_come_from_where_no_job_file_denies_it() -> None:
    stalls: dict[str, FactValue] = {"allocator_ns": 9_000_000, "allocator_shadowed_ns": 0, "allocator_restart_ns": 0, "python_seen": True}
    assert offered(**stalls)["MEM-22"].state == "unknown"
    assert "MEM-22" not in offered(**{**stalls, "python_seen": False})
    found, _ = find(facts(**{**PLAIN, **stalls}), job=job(), rulebook=BOOK)
    assert {fix.state for one in found for fix in one.fixes if fix.id == "MEM-22"} == {"already_on"}, (
        "Megatron empties it only where it is told to"
    )


def test_products_off_the_tensor_cores_are_told_in_the_types_that_the_gpu_has() -> None:
    slow: dict[str, FactValue] = {"fp32_product_busy_ns": 40_000_000, "python_seen": True}
    told = {
        major: " ".join(change.to or "" for change in offered(**slow, gpu_compute_major=major)["CMP-12"].changes) for major in (7, 8, None)
    }
    assert "TF32; or autocast to BF16" in told[8]
    assert told[7].startswith("FP16 with a gradient scaler")
    assert "from compute capability 8.0 on" in told[None]
    assert "FP16 with a gradient scaler before 8.0" in told[None]


DEEPSPEED = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "overlap_comm": false}}'


@for_each(
    "key, state, sentence",
    ("COM-26", "blocked", "No dispatcher beside all-to-all is configured, so nothing fell back."),
    ("COM-03", "blocked", "only flex backends have this knob"),
    ("COM-07", "blocked", "It requires EP overlap, which is off."),
    ("COM-08", "unknown", "Only for models with a shared expert (the job file names none)."),
    ("COM-10", "applicable", ""),  # its own framework's
)
def test_what_the_framework_has_no_setting_for_is_not_there_rather_than_met(key: str, state: str, sentence: str) -> None:
    stalled = facts(
        expert_exchange_blocking_ns=40_000_000, expert_exchange_blocking_share=0.4, has_experts=True, is_training=True, world_size=16
    )
    fix = FixReader(context=make_context(stalled, parse_job(DEEPSPEED), BOOK)).fix(BOOK.fixes[key])
    assert fix.state == state
    assert sentence in " ".join((*fix.blocked_by, *fix.unknown))


def test_a_dispatcher_is_named_in_torchtitan_s_own_key_and_its_default_is_known() -> None:
    titan = parse_job('[model]\nname = "deepseek_v3"\n[parallelism]\nexpert_parallel_degree = 8\ndata_parallel_shard_degree = 8\n')
    stalled = facts(
        expert_exchange_blocking_ns=40_000_000, expert_exchange_backend="nccl", has_experts=True, is_training=True, world_size=8
    )
    reader = FixReader(context=make_context(stalled, titan, BOOK))
    for key, backend in (("COM-01", "deepep"), ("COM-02", "hybridep")):
        fix = reader.fix(BOOK.fixes[key])
        assert fix.state == "applicable"
        written = {change.key: change.to for change in fix.changes if change.framework == "torchtitan"}
        assert written == {"parallelism.expert_parallel_comm_backend": backend}
    assert reader.fix(BOOK.fixes["COM-26"]).state == "blocked"  # the default is all-to-all, so nothing fell back


def test_what_needs_experts_is_offered_to_models_with_experts_alone() -> None:
    needing = {
        key for key, fix in BOOK.fixes.items() if any(re.fullmatch("job_num_moe_experts >=? [12]", need.condition) for need in fix.needs)
    }
    assert {"HOST-01", "HOST-15"} <= needing <= set(PROGRAMS["experts"].fixes)


def test_what_is_advised_on_amd_names_no_tool_of_nvidias() -> None:
    def advice(maker: str | None) -> str:
        lacking: dict[str, FactValue] = dict.fromkeys(("host_sync_ns", "peak_reserved_bytes", "gc_ns", "pageable_copy_ns"))
        findings, unknown = find(facts(gpu_maker=maker, opaque_graph_share=0.5, resolved_wait_rate=0.1, **lacking), job=None, rulebook=BOOK)
        return " ".join((*(one.summary + one.check for one in findings), *(one.how for one in unknown)))

    nvidia, amd = advice("nvidia"), advice("amd")
    assert [tool in amd for tool in ("Nsight", "nsys", "torch.profiler")] == [False, False, True]
    assert "nsys" in nvidia
    assert advice(None) == nvidia
