"""Configurations of NeMo 1 (nemo/collections/nlp, until 2.0): YAML with a trainer of Lightning and a model in Megatron's own names.

They are read in the keys of Megatron-Bridge; what NeMo makes of settings that a file leaves out is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from diagnose.job.formats.reader import Reader, world_size
from diagnose.job.model import UNRESOLVED, Leaf, Parsed
from diagnose.job.text import JobText, leaves_of

NAME = "nemo"
# examples/nlp/language_modeling/conf/megatron_gpt_config.yaml says of each what it is
_KEYS: Mapping[str, str] = {
    "model.micro_batch_size": "train.micro_batch_size",
    "model.global_batch_size": "train.global_batch_size",
    "model.encoder_seq_length": "model.seq_length",
    "model.data.seq_length": "model.seq_length",
    "model.activations_checkpoint_granularity": "model.recompute_granularity",
    "model.activations_checkpoint_method": "model.recompute_method",
    "model.activations_checkpoint_num_layers": "model.recompute_num_layers",
    "model.ub_tp_comm_overlap": "comm_overlap.tp_comm_overlap",
    "trainer.gradient_clip_val": "optimizer.clip_grad",
}
_PRECISION: Mapping[str, str] = {"bf16": "bf16", "bf16-mixed": "bf16", "16": "fp16", "16-mixed": "fp16"}
_OPEN = re.compile(r".*\$\{.*|\?\?\?|.*\{\{.*", re.DOTALL)  # taken from elsewhere, or to be given
_OF_LIGHTNING = frozenset({"devices", "num_nodes", "precision", "accelerator", "max_steps"})
_BESIDE = ("exp_manager", "model")
_NOTE = "NeMo decides what this file leaves out"


def _is_nemo(data: Mapping[object, object]) -> bool:
    """Whether a map is a configuration of NeMo 1: a trainer of Lightning beside what NeMo manages."""
    trainer = data.get("trainer")
    return isinstance(trainer, dict) and bool(_OF_LIGHTNING & trainer.keys()) and all(isinstance(data.get(name), dict) for name in _BESIDE)


def _read(text: JobText) -> Parsed | None:
    if text.yaml is None or not _is_nemo(text.yaml.data):
        return None
    leaves = list(leaves_of(text.yaml.data, text.yaml.lines))
    return Parsed(
        format=NAME,
        leaves=(*_translated(leaves), *_ranks(leaves), *_precision(leaves)),
        notes=(*text.yaml.notes, _NOTE),
        rules=text.yaml.rules,
        open_ended=True,
    )


def _translated(leaves: Sequence[Leaf]) -> Iterator[Leaf]:
    given = {leaf.key: leaf.value for leaf in leaves}
    for leaf in leaves:
        key = _KEYS.get(leaf.key, leaf.key)
        if leaf.key == "model.seq_length" or (leaf.key == "model.data.seq_length" and "model.encoder_seq_length" in given):
            continue
        if leaf.key == "model.fp8":
            yield replace(leaf, value=_fp8(given))
        elif isinstance(leaf.value, str) and _OPEN.fullmatch(leaf.value):
            yield replace(leaf, key=key, value=f"{UNRESOLVED} = {leaf.value[:40]}")
        elif not key.startswith(("exp_manager.", "model.tokenizer.")):
            yield replace(leaf, key=key)


def _fp8(given: Mapping[str, object]) -> str | None:
    if given.get("model.fp8") is not True:
        return None if given.get("model.fp8") is None else "none"
    return "hybrid" if given.get("model.fp8_hybrid") else "e4m3"


def _ranks(leaves: Sequence[Leaf]) -> Iterator[Leaf]:
    """Lightning starts one rank for each device of each node; -1 stands for all devices there are."""
    sizes = [leaf for leaf in leaves if leaf.key in ("trainer.devices", "trainer.num_nodes")]
    if all(isinstance(leaf.value, int) and leaf.value > 0 for leaf in sizes):
        yield from world_size(sizes, "trainer.devices × trainer.num_nodes")


def _precision(leaves: Sequence[Leaf]) -> Iterator[Leaf]:
    found = next((leaf for leaf in leaves if leaf.key == "trainer.precision"), None)
    if found is not None and str(found.value) in _PRECISION:
        yield replace(found, key=_PRECISION[str(found.value)], value=True)


READER = Reader(name=NAME, read=_read)
