"""Example jobs in the shape of published recipes (Megatron-Bridge perf recipes for Qwen3-30B-A3B and DeepSeek-V3)."""

from __future__ import annotations

import yaml

from diagnose.job import Job, parse_job

# Qwen3-30B-A3B on 16 H100, EP16, all-to-all
A1: dict[str, object] = {
    "model.tensor_model_parallel_size": 1,
    "model.pipeline_model_parallel_size": 1,
    "model.context_parallel_size": 1,
    "model.expert_model_parallel_size": 16,
    "model.expert_tensor_parallel_size": 1,
    "model.num_moe_experts": 128,
    "model.num_layers": 48,
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_permute_fusion": False,
    "model.moe_grouped_gemm": True,
    "model.cuda_graph_impl": "none",
    "model.moe_shared_expert_overlap": False,
    "comm_overlap.overlap_moe_expert_parallel_comm": False,
    "comm_overlap.delay_wgrad_compute": False,
    "train.global_batch_size": 1024,
    "train.micro_batch_size": 1,
    "mixed_precision": "bf16_mixed",
    "world_size": 16,
}

# DeepSeek-V3 on 256 GB200, HybridEP, BF16
B1: dict[str, object] = {
    "model.tensor_model_parallel_size": 1,
    "model.pipeline_model_parallel_size": 4,
    "model.virtual_pipeline_model_parallel_size": 4,
    "model.expert_model_parallel_size": 64,
    "model.num_moe_experts": 256,
    "model.moe_token_dispatcher_type": "flex",
    "model.moe_flex_dispatcher_backend": "hybridep",
    "model.recompute_granularity": "selective",
    "model.recompute_modules": ["mla_up_proj"],
    "model.multi_latent_attention": True,
    "model.moe_grouped_gemm": True,
    "model.cuda_graph_impl": "transformer_engine",
    "model.cuda_graph_scope": ["attn", "moe_router", "moe_preprocess"],
    "ddp.overlap_grad_reduce": True,
    "train.global_batch_size": 4096,
    "train.micro_batch_size": 1,
    "mixed_precision": "bf16_mixed",
    "env_vars.CUDA_DEVICE_MAX_CONNECTIONS": 32,
    "env_vars.NCCL_GRAPH_REGISTER": 0,
    "env_vars.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "world_size": 256,
}


def job(base: dict[str, object] | None = None, **changes: object) -> Job:
    """A job from dotted keys; in `changes` two underscores stand for a dot, and None removes a key."""
    merged = {**(A1 if base is None else base), **{key.replace("__", "."): value for key, value in changes.items()}}
    return parse_job(yaml.safe_dump({key: value for key, value in merged.items() if value is not None}), source="job.yaml")
