"""Long-context, vision-language and packing advice on jobs in the shape of published layouts."""

from pathlib import Path
from typing import Literal

from diagnose.knowledge.catalogue import ChangeSpec
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader, find
from diagnose.reason.walls import bounds
from tests.builders import yaml_text
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import A1, JOBS, job, parse_job

DSV3_128K, QWEN3_128K, QWEN3_VL = (JOBS[name] for name in ("DSV3_128K", "QWEN3_128K", "QWEN3_VL"))
DSV3_256K = {**DSV3_128K, "model.context_parallel_size": 64, "model.seq_length": 262144, "world_size": 512}
LENGTH = {"memory-context-parallel-small", "communication-context-parallel-large", "capture-sequence-not-divisible"}


def ids(base: dict[str, object], **values: float | str | bool | None) -> set[str]:
    return {finding.id for finding in find(facts(**values), job=job(base), rulebook=BOOK)[0]}


def test_what_may_be_wrong_asks_for_no_ranks_that_were_captured() -> None:
    """It stands beside a finding of one rank and of all of them."""
    assert [key for key, rule in BOOK.rules.items() if "capture several ranks" in rule.wrong_when] == []


@for_each("layout", DSV3_128K, DSV3_256K, QWEN3_128K)
def test_published_long_context_layouts_keep_4096_to_8192_tokens_on_a_rank(layout: dict[str, object]) -> None:
    assert not ids(layout) & (LENGTH | {"memory-attention-recompute-long-context", "memory-very-long-context"})


@for_each("length, size", (8192, 1), (16384, 2), (32768, 4), (65536, 8), (131072, 16), (262144, 32))
def test_the_size_that_leaves_8192_tokens_is_neither_small_nor_large(length: int, size: int) -> None:
    def at(context: int) -> set[str]:
        layout = {**DSV3_128K, "model.seq_length": length, "model.context_parallel_size": context, "world_size": 4096}
        return ids(layout) & LENGTH

    assert at(size) == set()
    assert at(4 * size) == {"communication-context-parallel-large"}
    if size > 1:
        assert at(size // 2) == {"memory-context-parallel-small"}


def test_both_tables_are_told() -> None:
    fix = BOOK.fixes["LCX-01"]
    assert "4096 to 8192" in fix.disputed
    assert "8K to 32K size 2, above 32K size 4 to 8" in fix.disputed
    for rule in ("memory-context-parallel-small", "communication-context-parallel-large"):
        assert "parallelism guide" in BOOK.rules[rule].summary


def test_every_case_of_a_job_and_its_advice() -> None:
    offenders = []
    for case in yaml_text.load((Path(__file__).parent / "cases" / "advice.yaml").read_text(encoding="utf-8")):
        on = job({**JOBS[case["job"]], **case.get("with", {})})
        findings, unknown = find(facts(**case.get("facts", {})), job=on, rulebook=BOOK)
        found = {one.id for one in findings}
        right = set(case.get("found", ())) <= found and not found & set(case.get("silent", ()))
        if not right or not set(case.get("not_assessed", ())) <= {one.id for one in unknown}:
            offenders.append((case, found))
    assert offenders == []


def test_image_free_data_is_severe_but_not_for_a_text_job() -> None:
    given = facts(vision_encoder_share=0.0, pipeline_parallel_busy_ns=0)
    found = {finding.id: finding for finding in find(given, job=job(QWEN3_VL), rulebook=BOOK)[0]}
    assert found["capture-image-free-data"].severity == "high"
    assert [fix.id for fix in found["capture-image-free-data"].fixes] == ["VLM-02", "VLM-08"]
    found = ids({**A1, "tokenizer.tokenizer_type": "NullTokenizer"}, vision_encoder_share=0.0)
    assert not {name for name in found if "vision" in name or "image" in name}


def test_expert_parallelism_takes_over_what_split_the_experts_inside() -> None:
    on = job({**A1, "model.expert_model_parallel_size": 4, "model.expert_tensor_parallel_size": 2})
    found = FixReader(context=make_context(facts(), on, BOOK)).fix(BOOK.fixes["CMP-09"])
    assert found.state == "applicable"
    assert {(change.key, change.to) for change in found.changes if change.framework == "megatron-bridge"} == {
        ("model.expert_model_parallel_size", "8"),
        ("model.expert_tensor_parallel_size", "1"),
    }


def test_the_last_tensor_parallel_rank_takes_its_companions_along() -> None:
    on = job({**A1, "model.tensor_model_parallel_size": 2, "model.sequence_parallel": True, "comm_overlap.tp_comm_overlap": True})
    found = FixReader(context=make_context(facts(), on, BOOK)).fix(BOOK.fixes["HOST-06"])
    assert {(change.key, change.to) for change in found.changes if change.framework == "megatron-bridge"} == {
        ("model.tensor_model_parallel_size", "1"),
        ("model.sequence_parallel", "false"),
        ("comm_overlap.tp_comm_overlap", "false"),
    }


def test_a_full_iteration_graph_changes_all_that_goes_with_it() -> None:
    on = job({**A1, "model.moe_pad_expert_input_to_capacity": True, "env_vars.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    found = FixReader(context=make_context(facts(), on, BOOK)).fix(BOOK.fixes["HOST-02"])
    assert found.state == "applicable"
    assert {
        ("model.cuda_graph_impl", "full_iteration"),
        ("model.cuda_graph_modules", "[]"),
        ("model.use_te_rng_tracker", "true"),
        ("rerun_state_machine.check_for_nan_in_loss", "false"),
        ("ddp.check_for_nan_in_grad", "false"),
        ("NCCL_GRAPH_REGISTER", "0"),
    } <= {(change.key, change.to) for change in found.changes}


def test_router_padding_does_not_go_with_a_captured_preprocessing_of_all_to_all() -> None:
    captured = {**A1, "model.cuda_graph_impl": "transformer_engine", "model.cuda_graph_modules": ["moe_router", "moe_preprocess"]}
    found = FixReader(context=make_context(facts(), job(captured), BOOK)).fix(BOOK.fixes["CMP-05"])
    assert found.state == "blocked"
    assert found.blocked_by[0].endswith("First: COM-02, HybridEP as token dispatcher.")


OURS = [
    *(f"HOST-{number:02}" for number in range(1, 9)),
    *(f"CMP-{number:02}" for number in range(1, 12)),
    *(f"VLM-{number:02}" for number in range(1, 13)),
    *(f"LCX-{number:02}" for number in range(1, 13)),
    "PCK-01",
    "PCK-02",
]


def test_every_entry_is_there_with_its_place() -> None:
    fixes = {key: BOOK.fixes[key] for key in OURS}
    assert [key for key, fix in fixes.items() if fix.step < 1 or not fix.cost or not fix.risk] == []
    assert [key for key in OURS if not any(key in rule.fixes for rule in BOOK.rules.values())] == []


def test_what_sources_disagree_about_is_told() -> None:
    """Section 10 of the playbook: graph scope and naming, interval of collections, FP8 by GPU, context size, offload, FSDP against 3D,
    Qwen3-VL.
    """
    disputed = ("HOST-01", "HOST-02", "HOST-03", "CMP-05", "LCX-01", "LCX-07", "VLM-04", "VLM-06")
    assert [key for key in disputed if len(BOOK.fixes[key].disputed) <= 80] == []


UNRESOLVED = "torchrun pretrain_gpt.py --num-layers 4 --recompute-method $METHOD\n"
SILENT = '{"train_batch_size": 16, "zero_optimization": {"stage": 1}}'  # of a format that tells no defaults


@for_each(
    "text, op, kept",
    (SILENT, "unset", False),  # the file gives nothing that could be taken out
    (SILENT, "set", True),
    (UNRESOLVED, "unset", True),  # nobody can decide it: left in, for a reader to weigh
    (UNRESOLVED, "set", True),
    (None, "unset", True),
)
def test_a_change_whose_condition_nobody_can_decide_stays_unless_there_is_nothing_to_take_out(
    text: str | None, op: Literal["unset", "set"], kept: bool
) -> None:
    reader = FixReader(context=make_context(facts(), None if text is None else parse_job(text), BOOK))
    change = ChangeSpec(framework="megatron-lm", key="--recompute-method", to="null", op=op, only="job_recompute_method <> 'none'")
    assert reader.is_wanted(change, framework_known=True) == kept


def test_expandable_segments_ask_nothing_of_hip_where_there_is_none() -> None:
    given = facts(allocator_ns=20_000_000, launch_starved_ns=20_000_000)
    found, _ = find(given, job=job(), rulebook=BOOK, walls=bounds(given, BOOK))
    (fix,) = (fix for one in found for fix in one.fixes if fix.id == "MEM-01" and one.id == "memory-allocator-stalls")
    assert not [text for text in fix.unknown if "hip" in text]
