"""Configurations of DeepSpeed: JSON with ZeRO, precision, batch and offload; GPT-NeoX has the model in the same file.

Values that say "auto" are filled in by the trainer that takes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from diagnose.job.edit import Edit, section_editor
from diagnose.job.edit_yaml import Node
from diagnose.job.formats.reader import Reader
from diagnose.job.model import UNRESOLVED, Leaf, Parsed
from diagnose.job.text import JobText, Tree, leaves_of

NAME = "deepspeed"
_OWN = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer", "autotuning"})
_SECTIONS = _OWN | {  # DeepSpeed deepspeed/runtime/constants.py and config.py
    "activation_checkpointing", "aio", "amp", "autotuning", "bf16", "bfloat16", "checkpoint", "comms_logger", "communication_data_type",
    "compile", "compression_training", "csv_monitor", "curriculum_learning", "data_efficiency", "data_types", "dataloader_drop_last",
    "disable_allgather", "dump_state", "eigenvalue", "elasticity", "expert_parallel", "flops_profiler", "fp16", "fp32_allreduce",
    "gradient_accumulation_steps", "gradient_clipping", "gradient_predivide_factor", "graph_harvesting", "hybrid_engine", "memory_breakdown",
    "optimizer", "pipeline", "prescale_gradients", "progressive_layer_drop", "quantize_training", "scheduler", "seq_parallel_communication_data_type",
    "sequence_parallel_size", "sparse_attention", "sparse_gradients", "steps_per_print", "tensor_parallel", "tensorboard", "torch_autocast",
    "train_batch_size", "use_data_before_expert_parallelism", "wall_clock_breakdown", "wandb", "weight_quantization", "zero_force_ds_cpu_optimizer",
    "checkpoint_tag_validation", "allgather_size", "allreduce_always_fp32", "autotp_size", "zenflow", "nebula", "random_ltd",
}  # fmt: skip
_UNUSED_AT_ZERO = frozenset({"tensor_parallel.autotp_size", "expert_parallel.autoep_size", "pipe_parallel_size"})
# transformers/integrations/deepspeed.py, trainer_config_process: a value that differs from the arguments is an error
_OF_TRAINER = frozenset(
    {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size", "fp16.enabled", "bf16.enabled"}
)
_PLACED = re.compile(r"<[^<>]+>|\$\{?\w+\}?|[A-Z][A-Z_]+")  # what a script puts a value in place of
_WHOLE = re.compile(r"[+-]?\d+(\.0*)?([eE]\+?\d+)?")


def is_deepspeed(data: Mapping[object, object]) -> bool:
    """Whether a map is a configuration of DeepSpeed."""
    maps = sum(isinstance(data.get(name), dict) for name in ("fp16", "bf16", "optimizer", "scheduler", "amp"))
    return (
        bool(_OWN & data.keys())
        or ("train_batch_size" in data and maps > 0)
        or (maps > 0 and len(_SECTIONS & data.keys()) > 2 and "steps_per_print" in data)
    )


def taken(tree: Tree) -> tuple[list[Leaf], list[str]]:
    """The values of a configuration, and what has to be said of it."""
    leaves = list(_leaves(tree))
    auto = [leaf.shown for leaf in leaves if leaf.value == "auto"]
    notes = [f"{', '.join(auto[:6])}{' …' if len(auto) > 6 else ''}: auto is filled in by the trainer that takes this file"] if auto else []
    return [replace(leaf, value=None) if leaf.value == "auto" else leaf for leaf in leaves], notes


def number(value: object) -> object:
    """A whole number as one, whichever way it is written: JSON knows one kind of number, and 5e8 is the usual way."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**62 else value


def _leaves(tree: Tree) -> Iterator[Leaf]:
    for leaf in leaves_of(tree.data, tree.lines):
        value = number(leaf.value)
        if isinstance(value, str) and _PLACED.fullmatch(value) and not leaf.key.startswith(("optimizer", "scheduler")):
            value = f"{UNRESOLVED} = {value}"
        off = leaf.key in _UNUSED_AT_ZERO and value == 0
        yield replace(leaf, value=None if off else value, known=leaf.key.partition(".")[0] in _SECTIONS)


def _read(text: JobText) -> Parsed | None:
    tree = text.yaml
    if tree is None or not is_deepspeed(tree.data):
        return None
    leaves, notes = taken(tree)
    return Parsed(format=NAME, leaves=tuple(leaves), rules=tree.rules, notes=(*tree.notes, *notes))


def _refused(root: Node, edit: Edit) -> str | None:
    """Why a value can't be written: the Trainer fills auto in from its own arguments, and refuses a file that says another number."""
    node = root.at(tuple(edit.key.split(".")))
    if edit.key not in _OF_TRAINER or node is None or node.value != "auto":
        return None
    return f"{edit.key} is auto, which the trainer fills in from its own arguments: the change belongs there"


READER = Reader(name=NAME, read=_read, editor=lambda text: section_editor(text, _refused))
