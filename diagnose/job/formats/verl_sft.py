"""Jobs of verl's supervised trainer on FSDP: overrides of its configuration (verl/trainer/config/sft_trainer_engine.yaml).

The older trainer's whole configuration (sft_trainer.yaml) is read too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from diagnose.job.formats import hydra
from diagnose.job.formats.reader import Reader
from diagnose.job.formats.verl_fsdp import other_engine
from diagnose.job.model import Leaf, Parsed
from diagnose.job.text import JobText, leaves_of

NAME = "verl-sft"

_PROGRAM = re.compile(r"verl[./]trainer[./](?P<older>fsdp_)?sft_trainer(_ray)?(\.py)?")
_NAMES: Mapping[str, str] = {
    "data.train_batch_size": "global_batch_size",
    "model.path": "model_name",
    "model.partial_pretrain": "model_name",
}
_OLDER: Mapping[str, str] = {  # keys of fsdp_sft_trainer.py, until 2025, under those that took their place
    "ulysses_sequence_parallel_size": "engine.ulysses_sequence_parallel_size",
    "model.fsdp_config.cpu_offload": "engine.optimizer_offload",
}
_BATCH, _DYNAMIC, _RESHARD = "data.micro_batch_size_per_gpu", "data.use_dynamic_bsz", "engine.reshard_after_forward"


def _read(text: JobText) -> Parsed | None:
    tree = text.yaml
    if tree is not None:
        model = tree.data.get("model")
        own = isinstance(model, dict) and "partial_pretrain" in model and isinstance(tree.data.get("data"), dict)
        leaves = tuple(_translated(list(leaves_of(tree.data, tree.lines)), counts_tokens=False)) if own else ()
        return Parsed(format=NAME, leaves=leaves, notes=tree.notes, rules=tree.rules) if own else None
    started = None if text.command is None else _PROGRAM.search(text.command.program)
    if text.command is None or started is None:
        return None
    engine = next((token.text.partition("=")[2] for token in text.command.arguments if token.text.startswith("engine=")), "fsdp")
    if engine == "megatron":
        return None  # its settings are Megatron's
    if engine != "fsdp":
        raise other_engine(text, engine)
    return hydra.read(text, NAME, lambda leaves: _translated(leaves, counts_tokens=started["older"] is None), of_program=True)


def _translated(leaves: Sequence[Leaf], *, counts_tokens: bool) -> Iterable[Leaf]:
    """The values under verl's keys. Where tokens are counted, as the trainer on engines does by itself, no micro-batch is."""
    by_key = {leaf.shown: leaf for leaf in leaves}
    dynamic = by_key[_DYNAMIC].value if _DYNAMIC in by_key else counts_tokens
    alone = "engine.fsdp_size" in by_key and by_key["engine.fsdp_size"].value == 1  # each rank holds all parameters
    unread = ({_BATCH} if dynamic is True else set()) | ({_RESHARD} if alone else set())
    for leaf in by_key.values():  # of a key that stands twice the last counts
        key = _NAMES.get(leaf.shown) or _OLDER.get(leaf.shown, leaf.shown)
        yield replace(leaf, key=key, value=None if leaf.shown in unread else leaf.value, forced=False, known=True)
    if _RESHARD not in by_key or alone:
        split = "no_shard" if alone else "optim_grads_params"
        yield Leaf(key="data_parallel_sharding_strategy", shown="engine", value=split, known=True, place="set by verl itself")


READER = Reader(name=NAME, read=_read)
