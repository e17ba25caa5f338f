"""What `diagnose check` finds and `diagnose patch --checks` mends: every check that fails names a fix or says why there is none."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from diagnose.cli import main
from diagnose.document.diagnosis import PlanStep
from diagnose.errors import PatchRefusedError
from diagnose.job.advised import advised
from diagnose.knowledge.catalogue import CheckSpec
from diagnose.knowledge.glossary import load_glossary
from diagnose.knowledge.taxonomy import load_taxonomy
from diagnose.model.vocabulary import GROUP_OF
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader, find
from diagnose.reason.patch import wanted_by
from diagnose.render.knowledge.entries import Catalogue
from diagnose.render.knowledge.kinds import KINDS
from tests.builders import yaml_text
from tests.builders.advised import checked, patched, repaired
from tests.builders.cases import for_each
from tests.builders.diagnosis import rich
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import parse_job

H100 = {
    name: fact for name, fact in facts().items() if name in ("platform", "gpu_compute_major", "nvlink_domain", "interleaved_schedule_seen")
}
MOE = {"num_moe_experts": 128, "expert_model_parallel_size": 16, "moe_token_dispatcher_type": "alltoall", "bf16": True, "num_layers": 48}


def bridge(**sections: dict[str, Any]) -> str:
    return yaml_text.dump({"model": MOE | sections.pop("model", {}), "platform": "h100", **sections}, sort_keys=False)


def failing(text: str) -> set[str]:
    return {one.id for one in checked(text).results if one.group != "doubtful"}


CHAT = "deepspeed main.py --actor_model_name_or_path x --per_device_training_batch_size 16 --deepspeed --output_dir out"


# --- every check ------------------------------------------------------------------------------------------------------


def _fails(spec: CheckSpec) -> bool:
    return spec.when is not None and spec.sure and GROUP_OF[spec.outcome] != "doubtful"


def test_what_fails_has_a_fix_or_says_why_there_is_none() -> None:
    assert [key for key, spec in BOOK.checks.items() if _fails(spec) and not (spec.fixes or spec.repair or spec.no_fix)] == []


def _job_of(spec: CheckSpec) -> str:
    """A plain job that holds what the check's first example holds; versions and variables where they are read."""
    assert spec.examples is not None
    found: dict[str, Any] = {}
    for name, value in spec.examples.fires[0].items():
        setting = name.removeprefix("job_")
        if name == "nvlink_domain":
            found["platform"] = "gb200" if value == 72 else "h100"
        elif name == "gpu_compute_major":
            found.setdefault("platform", "b200" if value == 10 else "h100")
        elif name == "platform":
            found["platform"] = value
        elif BOOK.settings[setting].type == "version":
            number = int(str(value))
            found[setting] = f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
        elif not setting.startswith("advised_"):
            numbers = isinstance(value, list) and setting == "moe_layer_freq"
            found[setting] = [int(one) for one in value] if numbers and isinstance(value, list) else value
    return yaml_text.dump(found, sort_keys=False)


@pytest.mark.deep
def test_each_repair_silences_its_check_and_breaks_none() -> None:
    """On the check's own example, as a plain job; what changes the numerics is named instead."""
    loud, broken = [], {}
    for key, spec in BOOK.checks.items():
        if not _fails(spec) or not (spec.repair or spec.fixes):
            continue
        text = _job_of(spec)
        if spec.frameworks == ("megatron-lm",) or key not in failing(text):
            continue  # a plain job is asked both frameworks' checks, but a version or platform may be beyond it
        done = repaired(text)
        left = any("changes what is computed" in row.why for row in (*done.report.left_to_you, *done.report.skipped))
        if key in failing(done.text) and not left:
            loud.append((key, [row.why for row in done.report.skipped]))
        if new := failing(done.text) - failing(text):
            broken[key] = new
    assert (loud, broken) == ([], {})


# --- the gaps of a review: settings of current releases that make a run fail, or cost time ---------------------------


@for_each(
    "text, key, group",
    (bridge(optimizer={"optimizer": "muon", "use_precision_aware_optimizer": True}), "precision-aware-optimizer-without-adam", "will_fail"),
    (bridge(ddp={"use_megatron_fsdp": True, "megatron_fsdp_version": 2}), "fsdp-v2-with-what-it-lacks", "will_fail"),
    (bridge(ddp={"use_megatron_fsdp": True, "megatron_fsdp_version": 2}), "fsdp-v2-with-model-parallelism", "will_fail"),
    (
        "ddp: {use_megatron_fsdp: true, megatron_fsdp_version: 2}\noptimizer: {optimizer_cuda_graph: true, clip_grad: 0.0}\n",
        "fsdp-v2-with-what-it-lacks",
        "will_fail",
    ),
    (bridge(ddp={"use_megatron_fsdp": True}, optimizer={"optimizer": "muon"}), "emerging-optimizer-with-fsdp", "doubtful"),
    ("MODEL_ARGS: {--use-megatron-fsdp: true, --optimizer: muon}", "optimizer-with-fsdp", "will_fail"),
    (bridge(train={"empty_unused_memory_level": 2}), "cache-emptied-each-step", "doubtful"),
    (bridge(train={"train_sync_interval": 1}), "host-waits-each-interval", "doubtful"),
    (bridge(model={"deterministic_mode": True}), "deterministic-kernels", "doubtful"),
    (bridge(model={"deterministic_mode": True, "cross_entropy_loss_fusion": True}), "deterministic-with-fused-loss", "will_fail"),
    (bridge(logger={"timing_log_level": 2}), "timers-that-wait", "doubtful"),
    (bridge(model={"moe_dispatch_fwd_dtype": "mxfp8"}), "low-precision-exchange-without-its-path", "will_fail"),
    (bridge(model={"attention_backend": "unfused"}), "attention-without-fused-kernels", "doubtful"),
    (
        bridge(model={"experimental_attention_variant": "dsa", "dsa_kernel_backend": "none"}),
        "sparse-attention-without-fused-kernels",
        "doubtful",
    ),
    (bridge(ddp={"use_megatron_fsdp": True, "outer_dp_sharding_strategy": "optim"}), "outer-sharding-without-outer-groups", "doubtful"),
    (bridge(model={"fused_residual_rmsnorm": True, "normalization": "LayerNorm"}), "residual-fused-with-another-norm", "will_fail"),
    (bridge(model={"high_priority_a2a_comm_stream": True}), "exchange-stream-priority-without-overlap", "doubtful"),
    (bridge(optimizer={"optimizer": "adam", "muon_use_syrk": True}), "syrk-without-muon", "doubtful"),
    (
        "MODEL_ARGS: {--use-grouped-gemm-for-shared-expert: true, --moe-shared-expert-intermediate-size: 64, --num-experts: 8}",
        "shared-experts-grouped-without-interleaving",
        "will_fail",
    ),
    (bridge(model={"tensor_model_parallel_size": 0}), "parallel-size-below-one", "will_fail"),
    (bridge(model={"num_layers": -1}), "model-size-below-one", "will_fail"),
    (
        "MODEL_ARGS: {--hybrid-context-parallel: true, --pipeline-model-parallel-size: 2}",
        "hybrid-context-parallelism-with-what-it-lacks",
        "will_fail",
    ),
    (
        "MODEL_ARGS: {--fake-process-group: true, --moe-token-dispatcher-type: flex, --num-experts: 8}",
        "flex-in-fake-process-group",
        "will_fail",
    ),
    (
        "MODEL_ARGS: {--fake-init-process-group: true, --moe-token-dispatcher-type: flex, --num-experts: 8}",
        "flex-in-fake-process-group",
        "will_fail",
    ),
)
def test_settings_of_current_releases(text: str, key: str, group: str) -> None:
    found = {one.id: one.group for one in checked(text).results}
    assert found.get(key) == group, found


def test_a_trial_on_one_process_is_no_world_of_one() -> None:
    flags = "--num-experts 8 --expert-model-parallel-size 8 --fake-process-group"
    for spelling in (flags, flags.replace("--fake-process", "--fake-init-process")):
        job = parse_job(f"WORLD_SIZE=64 RANK=0 torchrun --nproc_per_node 1 pretrain_gpt.py {spelling}\n")
        assert job.get("fake_process_group") is True
        assert job.get("world_size") in (None, 64)
        assert "world-not-divisible-for-experts" not in {one.id for one in checked(job).results}


@for_each("fix", "MEM-05", "MEM-06", "LCX-07", "MEM-10")
def test_what_is_adam_s_alone_is_not_written_into_a_job_of_another_optimizer(
    fix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(bridge(optimizer={"optimizer": "muon", "use_distributed_optimizer": True}, world_size=32), encoding="utf-8")
    assert main(["patch", "--config", str(job), "--fix", fix]) == 2
    assert "optimizer is muon" in capsys.readouterr().err


def test_no_flag_is_written_that_megatron_lm_does_not_have() -> None:
    text = "MODEL_ARGS: {--cuda-graph-impl: full_iteration, --num-experts: 8}\n"
    done = patched(text, "MEM-14", given=H100)
    assert done.text == text
    assert any(row.key == "--cuda-graph-impl" for row in done.report.left_to_you)


# --- repairs ----------------------------------------------------------------------------------------------------------


def test_checks_repair_a_job_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = bridge(
        model={"moe_shared_expert_overlap": True, "mtp_num_layers": 1},
        comm_overlap={"overlap_moe_expert_parallel_comm": True},
        ddp={"use_megatron_fsdp": True, "megatron_fsdp_version": 2},
    )
    job, new = tmp_path / "job.yaml", tmp_path / "new.yaml"
    job.write_text(wrong, encoding="utf-8")
    assert failing(wrong) == {"expert-overlap-with-shared-expert-overlap", "fsdp-v2-with-model-parallelism", "fsdp-v2-with-what-it-lacks"}
    assert main(["patch", "--config", str(job), "--checks", "-o", str(new)]) == 0
    assert "megatron_fsdp_version: 2 → 1" in capsys.readouterr().out
    assert failing(new.read_text(encoding="utf-8")) == set()


def test_a_check_may_be_named_as_a_fix() -> None:
    text = bridge(model={"sequence_parallel": True, "tensor_model_parallel_size": 1})
    done = patched(text, "sequence-parallel-without-tensor-parallel")
    assert parse_job(done.text).get("sequence_parallel") is False


def test_fp8_on_the_wrong_platform_is_patched_where_the_user_names_the_fix() -> None:
    text = bridge(mixed_precision="bf16_with_mxfp8_mixed")  # type: ignore[arg-type]
    assert failing(text) == {"mxfp8-before-blackwell"}
    assert repaired(text).text == text, "precision is never changed unasked"
    assert "--fix CMP-05 writes it" in repaired(text).report.skipped[0].why
    done = patched(text, "CMP-05")
    assert parse_job(done.text).get("fp8_recipe") == "blockwise"
    assert failing(done.text) == set()


def test_a_chain_of_needs_is_applied_in_order() -> None:
    text = bridge(model={"pipeline_model_parallel_size": 4})
    done = patched(text, "COM-06")
    assert [one.id for one in done.report.applied] == ["COM-13", "COM-06"]
    new = parse_job(done.text)
    assert (new.get("virtual_pipeline_model_parallel_size"), new.get("overlap_moe_expert_parallel_comm")) == (2, True)
    row = next(row for row in done.report.written if "virtual" in row.key)
    assert row.how == "48 layers / PP 4 = 12 a stage, whose smallest divisor above 1 is 2"


def test_what_mends_two_checks_leaves_nothing_to_the_repair_of_one() -> None:
    shared = {"use_grouped_gemm_for_shared_expert": True, "moe_shared_expert_intermediate_size": 64}
    text = bridge(model={**shared, "add_bias_linear": True})
    assert {"shared-experts-grouped-without-interleaving", "shared-experts-grouped-without-their-path"} <= failing(text)
    done = repaired(text)
    assert [(one.key, one.to) for one in done.report.written] == [("model.use_grouped_gemm_for_shared_expert", "false")]
    assert failing(done.text) == failing(bridge())


def test_a_switch_that_a_script_sets_is_left_out_by_patch() -> None:
    done = patched(f"{CHAT} --actor_gradient_checkpointing", "MEM-03", source="run.sh")
    assert [(one.key, one.from_, one.to) for one in done.report.written] == [("actor_gradient_checkpointing", "full", None)]


def test_a_diagnosis_asks_for_what_has_a_bound_and_leaves_the_numerics_alone() -> None:
    asked = {one.finding for one in wanted_by(rich())}
    bounded = {one.id for one in rich().findings if one.bound_ns}
    assert asked <= bounded
    text = bridge(model={"moe_grouped_gemm": True})
    done = patched(text, "CMP-05", given=H100, finding="compute-bf16-gemms")
    assert done.text == text
    assert done.report.applied == ()


def test_a_patch_takes_the_fix_that_the_plan_takes() -> None:
    document = rich()
    finding = next(one for one in document.findings if one.bound_ns and one.wall != "capture" and one.fixes)
    twice = tuple(replace(finding.fixes[0], id=key, state="applicable") for key in ("COM-06", "COM-02"))
    found = replace(document, findings=(replace(finding, fixes=twice),), plan=())
    assert [one.fixes for one in wanted_by(found)] == [("COM-06", "COM-02")]
    told = {"bound_ns": None, "speedup_ceiling": None, "changes": (), "needs": (), "published": (), "cost": ""}
    step = PlanStep(fix="COM-02", finding=finding.id, title="", state="applicable", **told)
    instead = replace(step, fix="COM-06", instead_of="COM-02")
    assert [one.fixes for one in wanted_by(replace(found, plan=(step, instead)))] == [("COM-02", "COM-06")]


# --- sizes that follow from the job -----------------------------------------------------------------------------------


@for_each(
    "length, world, pipeline, present, value",
    (131072, 256, 8, 1, 32),  # DeepSeek-V3 as published: 4,096 tokens a rank, one data-parallel rank
    (131072, 128, 8, 1, 16),  # the ranks leave no more
    (131072, 256, 8, 16, 16),  # 8,192 tokens a rank are as good
    (4096, 256, 8, 1, 1),
    (65536, 24, 3, 1, 8),
)
def test_the_context_parallel_size_is_a_number_that_fits(length: int, world: int, pipeline: int, present: int, value: int) -> None:
    job = parse_job(
        f"model: {{seq_length: {length}, pipeline_model_parallel_size: {pipeline}, context_parallel_size: {present}}}\nworld_size: {world}\n"
    )
    assert advised(job)["advised_context_parallel_size"].value == value


def test_long_context_says_the_size_and_patch_writes_it() -> None:
    text = "model: {seq_length: 131072, pipeline_model_parallel_size: 8, context_parallel_size: 1, num_layers: 64}\nworld_size: 256\n"
    found = {one.id: one for one in checked(text).results}
    assert "32 leave 4096 to 8192 tokens" in found["long-context-on-few-ranks"].summary
    told = next(row for row in found["long-context-on-few-ranks"].settings if row.source == "computed")
    assert told.key == "131,072 tokens / 4,096 = 32; 256 ranks / (TP 1 × PP 8 × CP 32) leave DP 1"
    done = patched(text, "LCX-01")
    assert parse_job(done.text).get("context_parallel_size") == 32
    few = "model: {seq_length: 131072, tensor_model_parallel_size: 1, pipeline_model_parallel_size: 8, num_layers: 64}\nworld_size: 64\n"
    assert {"long-context-on-few-ranks", "long-context-beyond-the-ranks"} <= {one.id for one in checked(few).results}


# --- other frameworks -------------------------------------------------------------------------------------------------


def test_a_torchtitan_job_gets_changes_in_its_own_keys() -> None:
    text = '[activation_checkpoint]\nmode = "full"\n[training]\nlocal_batch_size = 2\nglobal_batch_size = 64\n'
    reader = FixReader(context=make_context(H100, parse_job(text), BOOK))
    keys = {fix: {change.key: change.to for change in reader.fix(BOOK.fixes[fix]).changes} for fix in ("MEM-02", "MEM-03", "HOST-05")}
    assert keys["MEM-02"] == {"activation_checkpoint.mode": "selective"}
    assert keys["MEM-03"] == {"activation_checkpoint.mode": "selective"}
    assert keys["HOST-05"] == {"training.local_batch_size": "4"}
    done = patched(text, "MEM-03", source="job.toml", given=H100)
    assert done.report.torchtitan_options == ("--activation_checkpoint.mode selective",)
    assert done.report.bridge_overrides == ()


def test_a_registry_of_torchtitan_gets_changes_in_the_words_of_today() -> None:
    """Policies are classes, the dispatcher an argument of the model, batches are tokens (b5bcd76)."""
    text = (
        "from torchtitan.trainer import Trainer\n\ndef one() -> Trainer.Config:\n    return Trainer.Config(\n"
        '        model_spec=model_registry("16B", num_experts=64), activation_checkpoint=FullAC.Config(),\n'
        "        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=8192, num_tokens_per_train_step=262144, max_context_length=4096,\n"
        "            disable_cuda_graphs=True),\n"
        "        parallelism=ParallelismConfig(expert_parallel_degree=8, data_parallel_shard_degree=8),\n"
        "        debug=DebugConfig(detect_anomaly=True),\n    )\n"
    )
    done = patched(text, "MEM-03", "HOST-05", "HOST-12", "COM-02", source="config_registry.py", given=H100)
    assert done.report.torchtitan_options == (
        "activation-checkpoint:selective",
        "--training.num_tokens_per_microbatch_per_dp_rank 16384",
        "--debug.no_detect_anomaly",
        "model_registry(…, moe_comm_backend=hybridep)",
    )
    assert {row.key for row in done.report.written if row.framework == "torchtitan"} == {
        "activation_checkpoint", "training.num_tokens_per_microbatch_per_dp_rank", "debug.detect_anomaly", "model_spec.moe_comm_backend",
    }  # fmt: skip
    with pytest.raises(PatchRefusedError, match="where their dispatcher does not wait"):
        patched(text, "HOST-02", source="config_registry.py", given=H100)
    dense = text.replace("expert_parallel_degree=8, ", "")
    graph = patched(dense, "HOST-02", source="config_registry.py", given=H100)
    assert graph.report.torchtitan_options == ("--training.no_disable_cuda_graphs",)


@for_each("values, found", ("training=TrainingConfig(disable_cuda_graphs=False), parallelism=ParallelismConfig(pipeline_parallel_degree=2)", "graphs-with-torchtitan-pipeline"),
        ("compile=CompileConfig(enable=False, enable_async_tensor_parallel=True)", "async-tensor-parallelism-without-compilation"),)  # fmt: skip
def test_what_torchtitan_itself_refuses_is_told(values: str, found: str) -> None:
    text = f"from torchtitan.trainer import Trainer\n\ndef one() -> Trainer.Config:\n    return Trainer.Config({values})\n"
    assert [one.id for one in checked(text).results if one.group == "will_fail"] == [found]


def test_what_a_framework_has_no_setting_for_is_not_open() -> None:
    """A torchtitan job can't say whether Megatron packs in the batch or fuses its router; no fix waits for that."""
    reader = FixReader(
        context=make_context(H100, parse_job("[training]\nlocal_batch_size = 2\nglobal_batch_size = 64\n[compile]\nenable = false\n"), BOOK)
    )
    for key in ("MEM-12", "HOST-07"):
        found = reader.fix(BOOK.fixes[key])
        assert found.state == "applicable", found
        assert not any("does not say" in line for line in found.unknown)


@for_each("word", "parallel folding", "three walls", "fit", "scale", "profile", "retune", "moe_dispatch_fwd_dtype")
def test_words_of_the_field_are_explained(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert word.lower() in capsys.readouterr().out.lower()


def test_the_glossary_leads_to_entries_that_exist() -> None:
    known = {kind.name: kind.ids(Catalogue(book=BOOK, taxonomy=load_taxonomy())) for kind in KINDS}
    named = [name.partition(":") for word in load_glossary().values() for name in word.see]
    assert [key for kind, _, key in named if key not in known[kind]] == []


def test_a_dispatcher_that_fell_back_is_looked_into_before_another_is_offered() -> None:
    on = parse_job(bridge(model={"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"}))
    given = facts(expert_exchange_backend="nccl", expert_exchange_nccl_share=1.0)
    found = {one.id: one for one in find(given, job=on, rulebook=BOOK)[0]}
    first = found["communication-dispatcher-not-active"].fixes[0]
    assert first.id == "COM-26"
    said = " ".join(f"{change.key} {change.to}" for change in first.changes)
    assert "apply_flex_dispatcher_backend" in said
    assert "import deep_ep" in said


def test_a_check_of_a_torchtitan_job_names_its_own_keys() -> None:
    report = checked("[training]\nseq_len = 4096\n[parallelism]\ntensor_parallel_degree = 2\n")
    assert report.checked + len(report.not_assessed) > 5
    keys = [key for one in report.not_assessed for key in one.how.split("; ")]
    own = {key for spec in BOOK.settings.values() for key in spec.keys_in("torchtitan")}
    assert [key for key in keys if key not in own and not key.startswith("--platform")] == []


@for_each(
    "schedule, state",
    ("1F1B", "applicable"),
    ("Interleaved1F1B", "already_on"),
    ("zbvzerobubble", "already_on"),
    (None, "applicable"),  # torchtitan's default is 1F1B
)
def test_interleaving_is_not_advised_where_the_schedule_has_several_stages_on_a_rank(schedule: str | None, state: str) -> None:
    told = "" if schedule is None else f'pipeline_parallel_schedule = "{schedule}"\n'
    torchtitan = parse_job(f"[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 4\n{told}")
    assert FixReader(context=make_context(H100, torchtitan, BOOK)).fix(BOOK.fixes["COM-13"]).state == state


def test_jobs_of_deepspeed_and_of_the_hugging_face_trainer_get_changes_in_their_own_keys() -> None:
    deepspeed = (
        '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2, "overlap_comm": false, "reduce_bucket_size": 5000000, '
        '"offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true}}'
    )
    trainer = (
        '{"output_dir": "out", "learning_rate": 1e-4, "per_device_train_batch_size": 2, "gradient_checkpointing": true, '
        '"dataloader_num_workers": 0, "torch_compile": false, "optim": "adamw_torch", "bf16": true}'
    )
    keys = {}
    for text in (deepspeed, trainer):
        reader = FixReader(context=make_context(H100, parse_job(text), BOOK))
        fixes = {key: reader.fix(BOOK.fixes[key]).changes for key in BOOK.fixes}
        keys[text] = {key: {change.key: change.to for change in changes} for key, changes in fixes.items()}
        assert not {change.framework for changes in fixes.values() for change in changes} & {"megatron-bridge", "megatron-lm"}
    assert keys[deepspeed]["COM-10"]["zero_optimization.overlap_comm"] == "true"
    assert keys[deepspeed]["COM-12"]["zero_optimization.reduce_bucket_size"] == "500000000"
    offloaded = {
        "zero_optimization.offload_optimizer.device": "none, where memory allows",
        "zero_optimization.offload_optimizer.pin_memory": "true",
    }
    assert keys[deepspeed]["CPY-02"] == offloaded, "DeepSpeed reads a ratio under stage 3 alone"
    third = FixReader(context=make_context(H100, parse_job(deepspeed.replace('"stage": 2', '"stage": 3')), BOOK))
    assert third.fix(BOOK.fixes["CPY-02"]).changes[0].key == "zero_optimization.offload_optimizer.ratio"
    gathered = {change.key: change.to for change in third.fix(BOOK.fixes["COM-11"]).changes}
    assert gathered == {"zero_optimization.overlap_comm": "true"}, "without it stage 3 gathers on the stream that computes"
    second = FixReader(context=make_context(H100, parse_job(deepspeed), BOOK))
    assert [fix.id for fix in second.read(["COM-11"])] == [], "a fix without a change in the job's own keys is none"
    assert [fix.id for fix in third.read(["COM-11"])] == ["COM-11"]
    assert keys[deepspeed]["HOST-05"] == {"train_micro_batch_size_per_gpu": "4"}
    accumulated = deepspeed.replace('"zero', '"gradient_accumulation_steps": 4, "train_batch_size": 64, "zero', 1)
    for fix, sizes in (("HOST-05", (4, 2)), ("MEM-12", (1, 8))):  # DeepSpeed refuses a batch that is not their product
        job = parse_job(patched(accumulated, fix, source="ds.json", given=H100).text)
        assert (job.get("micro_batch_size"), job.get("gradient_accumulation_steps")) == sizes
    with pytest.raises(PatchRefusedError, match="not even: twice the micro-batch is twice the global batch"):
        patched(accumulated.replace('steps": 4', 'steps": 3'), "HOST-05", source="ds.json", given=H100)
    assert keys[trainer]["HOST-05"] == {"per_device_train_batch_size": "4"}
    assert keys[trainer]["HOST-07"] == {"torch_compile": "true"}
    assert keys[trainer]["CMP-17"]["optim"] == "adamw_torch_fused"
    assert keys[trainer]["MEM-03"] == {"gradient_checkpointing": "false"}
    assert "dataloader_num_workers" in keys[trainer]["HOST-10"]


@for_each(
    "more, state, said",
    ("", "unknown", "a micro-batch twice as large doubles the global batch"),
    (
        ', "gradient_accumulation_steps": 1',
        "blocked",
        "gradient_accumulation_steps is 1, not even: twice the micro-batch is twice the global batch",
    ),
    (', "gradient_accumulation_steps": 4', "applicable", ""),
)
def test_a_larger_micro_batch_does_not_double_the_global_batch_in_silence(more: str, state: str, said: str) -> None:
    trainer = parse_job(f'{{"output_dir": "out", "learning_rate": 1e-4, "per_device_train_batch_size": 2{more}}}')
    found = FixReader(context=make_context(H100, trainer, BOOK)).fix(BOOK.fixes["HOST-05"])
    assert found.state == state
    assert said in " ".join((*found.blocked_by, *found.unknown))
    assert {change.key: change.to for change in found.changes}.get("gradient_accumulation_steps") == (
        "2" if state == "applicable" else None
    )


def test_a_smaller_micro_batch_keeps_the_global_batch_of_a_trainer_that_does_not_accumulate() -> None:
    trainer = parse_job('{"output_dir": "out", "learning_rate": 1e-4, "per_device_train_batch_size": 2}')
    found = FixReader(context=make_context(H100, trainer, BOOK)).fix(BOOK.fixes["MEM-12"])
    assert {change.key: change.to for change in found.changes} == {"per_device_train_batch_size": "1", "gradient_accumulation_steps": "2"}


@for_each(
    "text, fix, expected",
    (
        "base_model: x\nmicro_batch_size: 1\ngradient_accumulation_steps: 4\nsequence_len: 4096\n",
        "HOST-05",
        ("micro_batch_size", "1", "2"),
    ),  # Axolotl
    ('{"output_dir": "o", "learning_rate": 1e-4, "per_gpu_train_batch_size": 2}', "MEM-12", ("per_gpu_train_batch_size", "2", "1")),
    ('{"output_dir": "o", "learning_rate": 1e-4, "per_device_train_batch_size": 2}', "MEM-12", ("per_device_train_batch_size", "2", "1")),
    (
        "[training]\nbatch_size = 2\n[parallelism]\ntensor_parallel_degree = 1\n",
        "MEM-12",
        ("training.batch_size", "2", "1"),
    ),  # torchtitan, 2024
    (f"{CHAT} --actor_gradient_checkpointing", "MEM-03", ("actor_gradient_checkpointing", "full", "null")),  # a bare switch
    (f"{CHAT} --actor_gradient_checkpointing", "MEM-12", ("per_device_training_batch_size", "16", "8")),
    (f"{CHAT} --gradient_checkpointing true", "MEM-03", ("gradient_checkpointing", "full", "false")),
)
def test_a_change_names_the_key_that_the_job_file_has_as_patch_writes_it(text: str, fix: str, expected: tuple[str, str, str]) -> None:
    found = FixReader(context=make_context(H100, parse_job(text), BOOK)).fix(BOOK.fixes[fix])
    assert expected in [(change.key, change.from_, change.to) for change in found.changes]


def test_patch_writes_json_of_deepspeed_in_its_own_words() -> None:
    text = '{\n  "train_micro_batch_size_per_gpu": 2,\n  "zero_optimization": {\n    "stage": 0,\n    "overlap_comm": false\n  },\n  "bf16": {"enabled": true}\n}\n'
    done = patched(text, "MEM-04", "COM-10", "MEM-06", source="ds.json")
    held = json.loads(done.text)["zero_optimization"]
    assert held == {
        "stage": 1,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
    }
    assert done.report.rewritten
    told = {one.key: (one.from_, one.to) for one in done.report.written}
    assert told["zero_optimization.stage"] == ("0", "1")
    assert told["zero_optimization.offload_optimizer.device"] == (None, "cpu")
