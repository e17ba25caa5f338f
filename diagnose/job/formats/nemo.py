"""Configurations of NeMo 1 (nemo/collections/nlp, until 2.0): YAML with a trainer of Lightning and a model in Megatron's own names.

Its command lines hold the same keys as overrides. They are read in the keys of Megatron-Bridge; what NeMo makes of settings that a
file leaves out is not known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from diagnose.document.diagnosis import ScriptDefault
from diagnose.job.formats import hydra
from diagnose.job.formats.reader import Reader, interpolated, world_size
from diagnose.job.model import UNRESOLVED, Leaf, Parsed
from diagnose.job.text import JobText, is_override, leaves_of
from diagnose.knowledge import strict_yaml

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
_BATCHES = ("micro_batch_size", "global_batch_size")
_TUNED = "model.data.train_ds."  # NeMo's and NeMo-Aligner's tuning take the batches from their data (megatron_gpt_sft_model.py)
_FALLBACK = re.compile(r"\$\{oc\.decode:\$\{oc\.env:(?P<name>\w+),(?P<value>[^${}]*)\}\}")  # OmegaConf: a variable's value, or else this
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
    if text.command is not None:
        return _of_command(text)
    if text.yaml is None or not _is_nemo(text.yaml.data):
        return None
    given = list(leaves_of(text.yaml.data, text.yaml.lines))
    leaves = interpolated([_or_fallback(leaf) for leaf in given])
    switches = {key for spec in text.table.specs.values() if spec.type == "bool" for key in spec.keys_in("megatron-bridge")}
    return Parsed(
        format=NAME,
        leaves=tuple(_switched(leaf, switches) for leaf in (*_translated(leaves), *_ranks(given), *_precision(leaves))),
        notes=(*text.yaml.notes, _NOTE),
        rules=text.yaml.rules,
        defaults=tuple(_fallbacks(given)),
        open_ended=True,
    )


def _of_command(text: JobText) -> Parsed | None:
    """Overrides of a command: of a trainer of Lightning, and of the model. The ranks are the trainer's, whatever starts them."""
    words = () if text.command is None else [token.text for token in text.command.arguments if is_override(token.text)]
    keys = {word.lstrip("+~").partition("=")[0] for word in words}
    trainer = {key.removeprefix("trainer.") for key in keys if key.startswith("trainer.")}
    if not trainer & _OF_LIGHTNING or not any(key.startswith("model.") for key in keys):
        return None
    found = hydra.read(text, NAME, lambda leaves: (*_translated(leaves), *_ranks(leaves), *_precision(leaves)), of_program=True)
    if found is None or not any(leaf.shown.startswith("trainer.") for leaf in found.leaves if leaf.key == "world_size"):
        return found
    ranks = [leaf for leaf in found.leaves if leaf.key == "world_size" and not leaf.shown.startswith("trainer.")]
    return replace(found, leaves=tuple(leaf for leaf in found.leaves if leaf not in ranks))


def _or_fallback(leaf: Leaf) -> Leaf:
    """A value with the fallback of its variable put in, which the environment goes before."""
    match = _FALLBACK.fullmatch(leaf.value) if isinstance(leaf.value, str) else None
    if match is None:
        return leaf
    try:
        return replace(leaf, value=strict_yaml.load(match["value"]), assumed=True)
    except (strict_yaml.YamlError, ValueError):
        return leaf


def _switched(leaf: Leaf, switches: Collection[str]) -> Leaf:
    """A switch that says 0 or 1, as variables do: nothing in NeMo asks for more than that it counts as true."""
    number = leaf.key in switches and type(leaf.value) is int and leaf.value in (0, 1)
    return replace(leaf, value=bool(leaf.value)) if number else leaf


def _fallbacks(leaves: Sequence[Leaf]) -> Iterator[ScriptDefault]:
    for leaf in leaves:
        if isinstance(leaf.value, str) and leaf.line is not None and (match := _FALLBACK.fullmatch(leaf.value)):
            yield ScriptDefault(variable=match["name"], value=match["value"], line=leaf.line)


def _translated(leaves: Sequence[Leaf]) -> Iterator[Leaf]:
    given = {leaf.key: leaf.value for leaf in leaves}
    for leaf in leaves:
        key = _KEYS.get(leaf.key, leaf.key)
        if leaf.key == "model.seq_length" or (leaf.key == "model.data.seq_length" and "model.encoder_seq_length" in given):
            continue
        name = leaf.key.rpartition(".")[2]
        if name in _BATCHES and isinstance(given.get(_TUNED + name), int):
            if leaf.key == _TUNED + name:
                yield replace(leaf, key=f"train.{name}")
            continue
        if leaf.key == "model.fp8" and not isinstance(leaf.value, str):
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
    sizes = [replace(leaf, forced=False) for leaf in leaves if leaf.key in ("trainer.devices", "trainer.num_nodes")]
    if all(isinstance(leaf.value, int) and leaf.value > 0 for leaf in sizes):
        yield from world_size(sizes, "trainer.devices × trainer.num_nodes")


def _precision(leaves: Sequence[Leaf]) -> Iterator[Leaf]:
    found = next((leaf for leaf in leaves if leaf.key == "trainer.precision"), None)
    if found is not None and str(found.value) in _PRECISION:
        yield replace(found, key=_PRECISION[str(found.value)], value=True, forced=False)


READER = Reader(name=NAME, read=_read)
