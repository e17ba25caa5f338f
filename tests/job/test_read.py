"""Job files of every shape that frameworks write, and every way in which one can be wrong."""

from pathlib import Path

import pytest

from diagnose.errors import JobFileError
from tests.builders.cases import for_each
from tests.builders.jobs import parse_job, read, read_job

BRIDGE = """
_target_: megatron.bridge.training.config.ConfigContainer
env_vars:
  CUDA_DEVICE_MAX_CONNECTIONS: "32"
  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True
  NCCL_GRAPH_REGISTER: 0
train:
  _target_: megatron.bridge.training.config.TrainingConfig
  global_batch_size: 4096
  micro_batch_size: 1
  manual_gc: true
  manual_gc_interval: 100
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  attention_backend: {_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [5], _name_: auto}
  init_method: {_target_: torch.nn.init.xavier_uniform_, _call_: false}
  transformer:
    _target_: megatron.core.transformer.transformer_config.TransformerConfig
    num_layers: 61
    num_moe_experts: 256
    pipeline_model_parallel_size: 4
    virtual_pipeline_model_parallel_size: 4
    expert_model_parallel_size: 64
    params_dtype: {_target_: torch.bfloat16, _call_: false}
    recompute_granularity: selective
    recompute_modules: [mla_up_proj]
    cuda_graph_impl: transformer_engine
    cuda_graph_scope:
      - {_target_: megatron.core.transformer.enums.CudaGraphScope, _call_: true, _args_: [2], _name_: attn}
      - moe_router
    moe_token_dispatcher_type: flex
    moe_flex_dispatcher_backend: hybridep
    mtp_num_layers: null
    multi_latent_attention: true
    moe_a2a_overlap: true
optimizer:
  _target_: megatron.core.optimizer.OptimizerConfig
  exp_avg_dtype: {_target_: torch.bfloat16, _call_: false}
  use_distributed_optimizer: false
  overlap_param_gather_with_optimizer_step: true
ddp:
  overlap_grad_reduce: true
  use_distributed_optimizer: true
comm_overlap: null
peft: null
mixed_precision: bf16_mixed
dataset:
  _target_: megatron.bridge.data.MockGPTDatasetConfig
  seq_length: 4096
"""

MEGATRON = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
  NCCL_NVLS_ENABLE: 0
TEST_TYPE: regular
MODEL_ARGS:
  --num-layers: 48
  --num-experts: "128"
  --seq-length: 4096
  --bf16: true
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 4
  --num-layers-per-virtual-pipeline-stage: 6
  --expert-model-parallel-size: 8
  --sequence-parallel: true
  --moe-token-dispatcher-type: alltoall
  --recompute-granularity: selective
  --recompute-modules: moe_act layernorm
  --disable-bias-linear: true
  --no-rope-fusion: true
  --moe-layer-freq: ([0]*3+[1]*11)
  --overlap-grad-reduce: true
  --optimizer-offload-fraction: 0.5
"""

FLAT_ARGS = """
num_layers: 48
num_experts: 128
tensor_model_parallel_size: 1
expert_model_parallel_size: 16
bf16: true
world_size: 16
overlap_moe_expert_parallel_comm: false
recompute_granularity: null
some_other_argument: 3
"""

# Qwen3-VL MoE on 64 GB200 with mock data, as dotted keys
PLAIN = """
model.tensor_model_parallel_size: 1
model.pipeline_model_parallel_size: 8
model.expert_model_parallel_size: 8
train.global_batch_size: 1024
train.micro_batch_size: 2
model.moe_token_dispatcher_type: flex
model.moe_flex_dispatcher_backend: hybridep
model.moe_router_force_load_balancing: true
model.cuda_graph_impl: transformer_engine
model.cuda_graph_scope: [moe_router, moe_preprocess]
model.apply_rope_fusion: false
ddp.overlap_grad_reduce: false
model.freeze_language_model: true
mixed_precision: bf16_mixed
tokenizer.tokenizer_type: NullTokenizer
tokenizer.vocab_size: 151936
platform: gb200
world_size: 64
versions: {torch: 2.6.0a0+git1, transformer_engine: "2.10"}
step_range: iteration [0-9]+
"""


def test_bridge_dump() -> None:
    job = parse_job(BRIDGE)
    assert job.format == "megatron-bridge"
    assert read(job) == {
        "pipeline_model_parallel_size": 4, "virtual_pipeline_model_parallel_size": 4, "expert_model_parallel_size": 64,
        "global_batch_size": 4096, "micro_batch_size": 1, "seq_length": 4096, "context_parallel_chunk": 2048, "num_layers": 61,
        "model_target": "megatron.bridge.models.gpt_provider.GPTModelProvider", "multi_latent_attention": True, "num_moe_experts": 256,
        "moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep", "moe_a2a_overlap": True,
        "overlap_grad_reduce": True, "overlap_param_gather_with_optimizer_step": True, "use_distributed_optimizer": True,
        "recompute_granularity": "selective", "recompute_modules": ("mla_up_proj",), "cuda_graph_impl": "transformer_engine",
        "cuda_graph_modules": ("attn", "moe_router"), "mixed_precision": "bf16_mixed", "bf16": True, "fp16": False, "fp8": "none",
        "fp4": "none", "exp_avg_dtype": "bf16", "manual_gc": True, "manual_gc_interval": 100,
        "dataset_target": "megatron.bridge.data.MockGPTDatasetConfig", "cuda_device_max_connections": 32,
        "pytorch_cuda_alloc_conf": "expandable_segments:True", "expandable_segments": True, "nccl_graph_register": 0,
        "attention_backend": "auto",
    }  # fmt: skip


def test_bridge_keys_defaults_and_unknown_keys() -> None:
    job = parse_job(BRIDGE)
    assert job.get("overlap_moe_expert_parallel_comm") is False, "moe_a2a_overlap is an attribute that nothing reads"
    assert job.settings["num_layers"].key == "model.transformer.num_layers"
    assert job.settings["bf16"].key == "mixed_precision (bf16_mixed)"
    assert job.settings["expandable_segments"].key == "env_vars.PYTORCH_CUDA_ALLOC_CONF"
    assert (job.get("mtp_num_layers"), job.settings["mtp_num_layers"].source) == (0, "default")
    assert job.get("moe_permute_fusion_into_hybridep") is None, "a dump that lacks the key tells nothing"
    assert job.unknown == ("comm_overlap", "model.init_method", "model.transformer.params_dtype", "peft")
    assert "mtp_num_layers" not in {row.name for row in job.read().settings}


@for_each(
    "text, misspelt",
    ("{world_size: 8, expert_model_paralel_size: 8}", {"expert_model_paralel_size": "expert_model_parallel_size"}),
    ("model: {hidden_size: 64, num_layer: 4}", {"model.num_layer": "model.num_layers"}),
    ("torchrun pretrain_gpt.py --num-layers 2 --moe-grouped-gem", {"--moe-grouped-gem": "--moe-grouped-gemm"}),
    ("model: {num_layer: 4, num_layers: 4}", {}),  # the one that it may be meant for is set
    ("torchrun pretrain_gpt.py --num-layers 2 --no-bias-gelu-fusion", {}),  # another word, not a slip in --no-bias-swiglu-fusion
    ("{model: {hidden_size: 64}, train: {num_layer: 4}}", {}),  # like a key of another section
)
def test_a_key_that_is_nearly_one_that_is_read_is_told(text: str, misspelt: dict[str, str]) -> None:
    found = parse_job(text)
    assert found.misspelt == misspelt
    assert [one.text.partition(" ")[0] for one in found.read().problems] == list(misspelt)


def test_megatron_arguments() -> None:
    job = parse_job(MEGATRON)
    assert (job.format, job.unknown, job.get("moe_layer_freq")) == ("megatron-lm", (), ("0",) * 3 + ("1",) * 11)
    got = read(job)
    assert (got["num_moe_experts"], got["virtual_pipeline_model_parallel_size"]) == (128, 2)
    assert (got["add_bias_linear"], got["apply_rope_fusion"]) == (False, False)
    assert (got["recompute_modules"], got["optimizer_offload_fraction"]) == (("moe_act", "layernorm"), 0.5)
    assert (got["cuda_device_max_connections"], got["nccl_nvls_enable"]) == (1, 0)
    assert job.settings["num_moe_experts"].key == "MODEL_ARGS.--num-experts"
    assert job.get("moe_grouped_gemm") is False, "a flag that is not given is off"


def test_flat_arguments() -> None:
    job = parse_job(FLAT_ARGS)
    assert (job.format, job.unknown, job.get("num_moe_experts")) == ("megatron-lm", ("some_other_argument",), 128)
    assert job.get("recompute_granularity") == "none"


def test_plain_file() -> None:
    job = parse_job(PLAIN)
    assert (job.format, job.unknown) == ("plain", ("tokenizer.vocab_size",))
    assert job.get("tokenizer_type") == "NullTokenizer"
    assert (job.get("cuda_graph_modules"), job.get("platform")) == (("moe_router", "moe_preprocess"), "gb200")
    assert (job.step_range, job.columns()["job_torch_version"]) == ("iteration [0-9]+", 2_006_000)
    assert (job.columns()["job_transformer_engine_version"], job.get("overlap_param_gather")) == (2_010_000, None)


def test_normalised_names_make_a_plain_file() -> None:
    job = parse_job("expert_model_parallel_size: 16\nmoe_token_dispatcher_type: alltoall\n")
    assert job.format == "plain"
    assert read(job) == {"expert_model_parallel_size": 16, "moe_token_dispatcher_type": "alltoall"}


@for_each(
    "text, key, expected",
    ("model: {num_layers: '48'}", "model.num_layers = '48' (text)", "expected int"),
    ("model: {num_layers: 48.0}", "model.num_layers = 48.0 (float)", "expected int"),
    ("model: {num_layers: true}", "model.num_layers = True (bool)", "expected int"),
    ("model: {sequence_parallel: 1}", "model.sequence_parallel = 1 (int)", "expected bool"),
    ("model: {sequence_parallel: 'yes'}", "model.sequence_parallel = 'yes' (text)", "expected bool"),
    ("model: {moe_token_dispatcher_type: 3}", "model.moe_token_dispatcher_type = 3 (int)", "expected text"),
    ("model: {recompute_modules: [1.5]}", "model.recompute_modules = [1.5] (list)", "expected list of names"),
    ("model: {window_size: '4096, 0'}", "model.window_size = '4096, 0' (text)", "expected list of names"),
    ("model: {num_layers: {a: 1}}", "model.num_layers = {'a': 1} (a map)", "expected int"),
    ("model: {transformer: {num_layers: {a: {b: 1}}}}", "model.transformer.num_layers = {'a.b': 1} (a map)", "expected int"),
    ("optimizer: {optimizer_offload_fraction: .nan}", "optimizer.optimizer_offload_fraction = nan (float)", "expected float"),
    ("optimizer: {optimizer_offload_fraction: .inf}", "optimizer.optimizer_offload_fraction = inf (float)", "expected float"),
    ("model: {num_layers: 99999999999999999999999}", "model.num_layers = 99999999999999999999999 (int)", "expected int"),
    ("versions: {torch: 2.6}", "versions.torch = 2.6 (float)", 'expected version in quotes, such as "2.6.0"'),
    ("MODEL_ARGS: {--num-layers: 8.7}", "MODEL_ARGS.--num-layers = 8.7 (float)", "expected int"),
    ("MODEL_ARGS: {--num-layers: '8.7'}", "MODEL_ARGS.--num-layers = '8.7' (text)", "expected int"),
    ("MODEL_ARGS: {--no-rope-fusion: 3}", "MODEL_ARGS.--no-rope-fusion = 3 (int)", "expected bool"),
    ("MODEL_ARGS: [1]", "MODEL_ARGS = [1] (list)", "expected map"),
    ("model: {}\nenv_vars: {NCCL_GRAPH_REGISTER: off}", "env_vars.NCCL_GRAPH_REGISTER = False (bool)", "expected int"),
)
def test_wrong_types_name_the_key_and_both_types(text: str, key: str, expected: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job(text, source="job.yaml")
    assert caught.value.what == f"job.yaml has {key}, but {expected}."
    assert caught.value.exit_code == 2


@for_each(
    "text, first, second",
    ("model: {seq_length: 4096}\ndataset: {seq_length: 8192}", "model.seq_length = 4096", "dataset.seq_length = 8192"),
    ("model: {num_layers: 4, transformer: {num_layers: 8}}", "model.num_layers = 4", "model.transformer.num_layers = 8"),
    ("num_layers: 4\nmodel.num_layers: 8", "num_layers = 4", "model.num_layers = 8"),
    ("MODEL_ARGS: {--seq-length: 1}\nseq_length: 2", "MODEL_ARGS.--seq-length = 1", "seq_length = 2"),
    (
        "model: {cuda_graph_modules: [attn], cuda_graph_scope: [moe]}",
        "model.cuda_graph_modules = ('attn',)",
        "model.cuda_graph_scope = ('moe',)",
    ),
    ("bf16: false\nmixed_precision: bf16_mixed", "mixed_precision = 'bf16_mixed'", "bf16 = False"),
)
def test_conflicts_name_both_keys(text: str, first: str, second: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job(text)
    assert f"says {first} and {second}, which are the same setting" in caught.value.what


def test_the_framework_copies_overlap_settings_over_the_model() -> None:
    job = parse_job("model: {overlap_moe_expert_parallel_comm: false}\ncomm_overlap: {overlap_moe_expert_parallel_comm: true}")
    assert job.get("overlap_moe_expert_parallel_comm") is True
    assert job.settings["overlap_moe_expert_parallel_comm"].key == "comm_overlap.overlap_moe_expert_parallel_comm"


def test_precision_as_a_map_and_by_name() -> None:
    job = parse_job("model: {bf16: false}\nmixed_precision: {bf16: true, fp8: e4m3, fp8_recipe: mxfp8}")
    assert (job.get("bf16"), job.get("fp8"), job.get("fp8_recipe")) == (True, "e4m3", "mxfp8")
    named = parse_job("model: {bf16: false}\nmixed_precision: bf16_with_nvfp4_mixed")
    assert (named.get("bf16"), named.get("fp8"), named.get("fp4")) == (True, "none", "e2m1")
    custom = parse_job("model: {num_layers: 2}\nmixed_precision: my_own_mixed")
    assert custom.get("fp8") is None, "an unknown name decides the precision, so no default may"


@for_each(
    "text, name, value",
    # names in one text are a list where the setting takes a single one too, and in flags
    ("model: {recompute_modules: 'moe, mlp'}", "recompute_modules", ("moe", "mlp")),
    ("MODEL_ARGS: {--window-size: '4096,0'}", "window_size", ("4096", "0")),
    ("model: {seq_length: 4096}\ndataset: {seq_length: 4096}", "seq_length", 4096),  # the same under two keys
    ("recompute_modules: [up_proj, norm, moe_act]", "recompute_modules", ("mla_up_proj", "layernorm", "moe_act")),  # older names
)
def test_one_setting_is_read(text: str, name: str, value: object) -> None:
    assert parse_job(text).get(name) == value


def test_of_a_key_that_stands_twice_the_last_counts_as_in_the_loaders_of_the_frameworks() -> None:
    job = parse_job("MODEL_ARGS:\n  --num-layers: 4\n  --init-method-std: 0.1\n  --num-layers: 8\n")
    assert (job.get("num_layers"), job.settings["num_layers"].line) == (8, 4)
    assert job.notes == ("--num-layers stands in line 2 and in line 4; the last one counts",)
    with_anchors = parse_job("base: &b {num_layers: 4}\nmodel:\n  <<: *b\n  num_layers: 2\n  num_layers: 6\n")
    assert (with_anchors.get("num_layers"), len(with_anchors.notes)) == (6, 1)


@for_each(
    "flags, expected",
    ("--pipeline-model-parallel-layout: Et*3|(tt|)*6mL", 4),
    ("--pipeline-model-parallel-layout: Ett|ttL", 1),
    ("--num-layers-per-virtual-pipeline-stage: 2", 4),
    (
        "--num-layers-per-virtual-pipeline-stage: 1\n  --account-for-embedding-in-pipeline-split: true\n  --account-for-loss-in-pipeline-split: true",
        9,
    ),
    ("--num-virtual-stages-per-pipeline-rank: 3", 3),
)
def test_virtual_stages_by_all_their_names(flags: str, expected: int) -> None:
    job = parse_job(f"MODEL_ARGS:\n  --num-layers: 16\n  --pipeline-model-parallel-size: 2\n  {flags}\n")
    assert job.get("virtual_pipeline_model_parallel_size") == expected


def test_merge_keys_bring_the_entries_of_other_maps_with_their_lines() -> None:
    job = parse_job("base: &base\n  num_layers: 4\n  hidden_size: 64\nmodel:\n  <<: *base\n  hidden_size: 128\n")
    assert (job.get("num_layers"), job.get("hidden_size")) == (4, 128)
    assert (job.settings["num_layers"].line, job.settings["hidden_size"].line) == (2, 6)
    several = parse_job("a: &a {num_layers: 4}\nb: &b {num_layers: 8, seq_length: 2}\nmodel: {<<: [*a, *b]}\n")
    assert (several.get("num_layers"), several.get("seq_length")) == (4, 2), "the first map of the list holds"


def test_read_job_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(PLAIN, encoding="utf-8")
    assert read_job(path) == parse_job(PLAIN, source="job.yaml")
    with pytest.raises(JobFileError, match="cannot be read"):
        read_job(tmp_path / "absent.yaml")
    with pytest.raises(JobFileError, match="cannot be read"):
        read_job(tmp_path)
