"""DeepSeek-V3 on 256 GB200, tuned step by step (Megatron-LM docs/discussions/deepseek-v3-gb200-optimization): the next step is never
blocked.

MXFP8, TP1 PP8 VPP4 EP32, micro-batch 1, global batch 2048. TFLOPS per GPU of that document. The job file of each rung holds what the rungs
below have changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from diagnose.document.diagnosis import Fix
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import job

START: dict[str, object] = {
    "model.tensor_model_parallel_size": 1,
    "model.pipeline_model_parallel_size": 8,
    "model.virtual_pipeline_model_parallel_size": 4,
    "model.context_parallel_size": 1,
    "model.expert_model_parallel_size": 32,
    "model.expert_tensor_parallel_size": 1,
    "model.num_moe_experts": 256,
    "model.mtp_num_layers": 1,
    "model.multi_latent_attention": True,
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_grouped_gemm": True,
    "model.moe_permute_fusion": False,
    "model.moe_router_fusion": False,
    "model.cross_entropy_loss_fusion": False,
    "model.recompute_granularity": "selective",
    "model.recompute_modules": ["mla_up_proj"],
    "model.cuda_graph_impl": "none",
    "model.moe_shared_expert_overlap": False,
    "comm_overlap.overlap_moe_expert_parallel_comm": False,
    "comm_overlap.delay_wgrad_compute": False,
    "train.global_batch_size": 2048,
    "train.micro_batch_size": 1,
    "mixed_precision": "bf16_with_mxfp8_mixed",
    "env_vars.NCCL_GRAPH_REGISTER": 0,
    "env_vars.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "world_size": 256,
}


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One step of the ladder: the fixes that stand for it, the throughput after it, and what it changes in the job file."""

    what: str
    fixes: tuple[str, ...]
    tflops: float
    changes: dict[str, object] = field(default_factory=dict)


# The document ran DeepEP on GB200 under Megatron-LM; Megatron-Bridge's gate refuses that, and the playbook follows the code.
REFUSED_ON_GB200 = "Megatron-Bridge allows DeepEP on Ampere, Hopper, B200 and B300, not on gb200"
BASELINE = 494.46
LADDER = (
    Rung(what="permute kernel, fused zeros", fixes=("CMP-03", "HOST-07"), tflops=529.55, changes={"model.moe_permute_fusion": True}),
    Rung(what="router fusion", fixes=("CMP-02", "HOST-07"), tflops=540.00, changes={"model.moe_router_fusion": True}),
    Rung(
        what="DeepEP",
        fixes=("COM-01",),
        tflops=566.07,
        changes={"model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "deepep"},
    ),
    Rung(
        what="no recompute of the MLA up-projection",
        fixes=("MEM-03",),
        tflops=610.71,
        changes={"model.recompute_granularity": None, "model.recompute_modules": None},
    ),
    Rung(
        what="graphs of attention, router and preprocessing",
        fixes=("HOST-01",),
        tflops=663.27,
        changes={
            "model.cuda_graph_impl": "transformer_engine",
            "model.cuda_graph_modules": ["attn", "moe_router", "moe_preprocess"],
            "model.use_te_rng_tracker": True,
        },
    ),
    Rung(what="DeepEP tuned", fixes=("COM-03",), tflops=691.49, changes={"model.moe_flex_dispatcher_num_sms": 24}),
    Rung(what="processes bound", fixes=("HOST-04",), tflops=762.12),
    Rung(what="programmatic launches, fused swizzle", fixes=("HOST-07",), tflops=797.67),
    Rung(what="shared experts in graphs too", fixes=("HOST-01",), tflops=829.93),
    Rung(what="HybridEP", fixes=("COM-02",), tflops=943.56, changes={"model.moe_flex_dispatcher_backend": "hybridep"}),
    Rung(what="host once more", fixes=("HOST-04",), tflops=956.21),
    Rung(what="norm and quantisation fused", fixes=("CMP-08",), tflops=970.01),
)


def before(place: int) -> dict[str, object]:
    """The job file with every change below rung `place`."""
    settings = dict(START)
    for rung in LADDER[:place]:
        settings |= rung.changes
    return settings


def read(key: str, place: int, platform: str = "gb200") -> Fix:
    domain = 72 if platform.startswith("gb") else 8
    given = facts(
        platform=platform, gpu_compute_major=10, nvlink_domain=domain, expert_exchange_backend=None, expert_exchange_nccl_share=None
    )
    return FixReader(context=make_context(given, job(before(place)), BOOK)).fix(BOOK.fixes[key])


@pytest.mark.parametrize("place", range(len(LADDER)), ids=[rung.what for rung in LADDER])
def test_the_next_rung_is_known_and_not_blocked(place: int) -> None:
    for key in LADDER[place].fixes:
        found = read(key, place)
        if key == "COM-01":
            assert found.state == "blocked"
            assert found.blocked_by[0].startswith(REFUSED_ON_GB200)
            found = read(key, place, "b200")
        assert found.blocked_by == ()
        assert found.state in ("applicable", "already_on", "unknown")
        assert any(key in rule.fixes for rule in BOOK.rules.values()), "a rule offers it"


@pytest.mark.parametrize(
    ("key", "place"),
    [("CMP-03", 0), ("CMP-02", 1), ("MEM-03", 3), ("HOST-01", 4), ("COM-03", 5), ("COM-02", 9), ("CMP-08", 11)],
)
def test_what_the_job_file_decides_is_applicable_on_its_rung(key: str, place: int) -> None:
    assert read(key, place).state == "applicable"


@pytest.mark.parametrize(("key", "place"), [("CMP-03", 1), ("CMP-02", 2), ("MEM-03", 4), ("HOST-01", 5), ("COM-02", 10)])
def test_a_rung_that_was_climbed_is_already_on(key: str, place: int) -> None:
    assert read(key, place).state == "already_on"


@pytest.mark.parametrize(
    ("key", "place"),
    [("MEM-03", 3), ("HOST-01", 4), ("COM-03", 5), ("HOST-04", 6), ("HOST-01", 8), ("COM-02", 9), ("HOST-04", 10), ("CMP-08", 11)],
)
def test_the_published_throughput_stands_with_the_fix(key: str, place: int) -> None:
    """The rounded figures before and after the rung are in one of the fix's published effects."""
    old = LADDER[place - 1].tflops if place else BASELINE
    wanted = {str(round(old)), str(round(LADDER[place].tflops))}
    texts = [item.text for item in BOOK.fixes[key].expected if "deepseek-v3-gb200" in item.source]
    assert any(wanted <= set(re.findall(r"\d+", text)) for text in texts), (wanted, texts)
