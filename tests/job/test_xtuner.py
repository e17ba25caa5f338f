"""XTuner's configurations: what a TrainerConfig is told, and the sizes of the model's class where XTuner lies beside the file."""

from pathlib import Path

import pytest

from diagnose.errors import JobFileError
from tests.builders.cases import for_each
from tests.builders.jobs import parse_job, read_job

CONFIG = """import os

from xtuner.v1.config import FSDPConfig
from xtuner.v1.datasets.config import DataloaderConfig
from {module} import {model}
from xtuner.v1.train import TrainerConfig

moe_cfg = {model}(ep_size=8{more})
fsdp_cfg = FSDPConfig(cpu_offload=False, ep_size=moe_cfg.ep_size{fsdp})
trainer = TrainerConfig(
    load_from=os.environ["MODEL"], model_cfg=moe_cfg, fsdp_cfg=fsdp_cfg, dataloader_cfg=DataloaderConfig(pack_max_length=16384),
    global_batch_size=16{trainer},
)
"""
SOURCES = {
    "xtuner/__init__.py": "",
    "xtuner/v1/model/__init__.py": "from .moe.qwen3 import Qwen3MoE30BA3Config\nfrom .compose import VLConfig\n",
    "xtuner/v1/model/compose.py": (
        "from .moe.qwen3 import Qwen3MoE30BA3Config\n\n\nclass VLConfig(Base):\n    text_config: Qwen3MoE30BA3Config = Qwen3MoE30BA3Config()\n"
    ),
    "xtuner/v1/model/moe/qwen3.py": (
        "from .base import MoEConfig\n\n\nclass Qwen3MoE30BA3Config(MoEConfig):\n    num_hidden_layers: int = 48\n    hidden_size: int = 2048\n"
        "    attention: MHAConfig = MHAConfig(num_attention_heads=32, num_key_value_heads=4, head_dim=128)\n    n_routed_experts: int = 128\n"
    ),
    "xtuner/v1/model/moe/base.py": "class MoEConfig:\n    num_experts_per_tok: int = 8\n    hidden_size: int = 1\n",
}
SIZES = ("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "num_moe_experts", "moe_router_topk")
TOLD = (
    "expert_model_parallel_size", "tensor_model_parallel_size", "context_parallel_size", "seq_length", "global_batch_size",
    "recompute_granularity",
)  # fmt: skip


def config(
    module: str = "xtuner.v1.model.moe.qwen3", model: str = "Qwen3MoE30BA3Config", more: str = "", fsdp: str = "", trainer: str = ""
) -> str:
    return CONFIG.format(module=module, model=model, more=more, fsdp=fsdp, trainer=trainer)


@for_each(
    "text, wanted",
    (config(), [8, 1, 1, 16384, 16, "full"]),
    (config(fsdp=", recompute_ratio=0.5", trainer=", sp_size=4"), [8, 1, 4, 16384, 16, None]),
    (config(fsdp=", tp_size=int(os.environ['TP'])"), [8, None, 1, 16384, 16, "full"]),
)
def test_what_the_trainer_is_told_is_read_and_what_only_the_process_knows_is_not(text: str, wanted: list[object]) -> None:
    job = parse_job(text)
    assert (job.format, [job.get(name) for name in TOLD], job.get("num_layers")) == ("xtuner", wanted, None)


@for_each(
    "text, wanted",
    (config(), [48, 2048, 32, 4, 128, 8]),
    (config(module="xtuner.v1.model"), [48, 2048, 32, 4, 128, 8]),  # a package that hands the class on
    (config(module="xtuner.v1.model", model="VLConfig"), [48, 2048, 32, 4, 128, 8]),
    (config(more=", num_hidden_layers=4"), [4, 2048, 32, 4, 128, 8]),
    (config(module="mine.models", model="MyConfig"), [None] * 6),
)
def test_sizes_follow_from_the_models_class_or_are_unknown(text: str, wanted: list[object], tmp_path: Path) -> None:
    """InternLM/xtuner autotest/config/qwen3_moe_30BA3_ep8.py."""
    for path, source in {**SOURCES, "autotest/config/a.py": text}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    assert [read_job(tmp_path / "autotest/config/a.py").get(name) for name in SIZES] == wanted


def test_a_configuration_without_a_trainer_is_refused_by_name() -> None:
    with pytest.raises(JobFileError, match="is of XTuner, which"):
        parse_job("from xtuner.v1.train.rl_trainer import RLColocateTrainerConfig\n\ntrainer = RLColocateTrainerConfig(a=1)\n")
