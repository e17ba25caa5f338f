"""Jobs of verl that train on FSDP: overrides of its configuration, or YAML, whose keys are verl's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from diagnose.job.formats import hydra
from diagnose.job.formats.reader import Reader, world_size
from diagnose.job.model import Leaf, Parsed
from diagnose.job.text import JobText

NAME = "verl-fsdp"

_ACTOR = "actor_rollout_ref.actor."
_FSDP = f"{_ACTOR}fsdp_config."
_STRATEGY = f"{_ACTOR}strategy"
_BATCH = f"{_ACTOR}ppo_micro_batch_size_per_gpu"
_RESHARD = f"{_FSDP}reshard_after_forward"
_MODEL = "actor_rollout_ref.model.path"
_RANKS = ("trainer.nnodes", "trainer.n_gpus_per_node")
# What may put another engine (verl/workers/engine/) in its place: a group of the actor or of engines, a configuration of another name.
_OTHERWISE = re.compile(
    r"[^=]*@|model_engine=|actor_rollout_ref\.actor\.engine\.|(--config-(name|path)|-cn|-cp)\b(?!=ppo_trainer(\.yaml)?$)"
)
_PROGRAM = re.compile(r"verl[./]trainer[./]main_ppo")  # its own configuration, ppo_trainer.yaml, is on FSDP


def _read(text: JobText) -> Parsed | None:
    found = hydra.read(text, NAME, _translated)
    return found if found is not None and _on_fsdp(found.leaves, text) else None


def _on_fsdp(leaves: Sequence[Leaf], text: JobText) -> bool:
    """Whether the actor trains on FSDP: by its strategy, by settings of FSDP alone, or because nothing names another engine."""
    said = {leaf.shown: leaf.value for leaf in leaves}
    if isinstance(strategy := said.get(_STRATEGY), str):
        return strategy in ("fsdp", "fsdp2")
    if any(key.startswith(f"{_ACTOR}megatron.") for key in said):
        return False
    if any(key.startswith(_FSDP) for key in said):
        return True
    words = [] if text.command is None else [token.text for token in text.command.arguments]
    program = "" if text.command is None else text.command.program
    return bool(_PROGRAM.search(program)) and not any(map(_OTHERWISE.match, words))


def _translated(leaves: Sequence[Leaf]) -> Iterable[Leaf]:
    """The values under verl's keys, with what follows from them; what belongs to other parts of it counts as known."""
    by_key = {leaf.shown: leaf for leaf in leaves}
    dynamic, size = (by_key[key].value if key in by_key else None for key in (f"{_ACTOR}use_dynamic_bsz", f"{_FSDP}fsdp_size"))
    unread = {_BATCH} if dynamic is True else set()  # tokens are counted instead
    unread |= {_RESHARD} if size == 1 else set()  # each rank holds all parameters
    for leaf in by_key.values():  # of a key that stands twice the last counts
        key = "model_name" if leaf.shown == _MODEL else leaf.shown
        yield replace(leaf, key=key, value=None if leaf.shown in unread else leaf.value, forced=False, known=True)
    if _RESHARD not in by_key or size == 1:
        split = "no_shard" if size == 1 else "optim_grads_params"
        yield Leaf(key="data_parallel_sharding_strategy", shown="fsdp_config", value=split, known=True, place="set by verl itself")
    yield from world_size([replace(by_key[key], forced=False) for key in _RANKS if key in by_key], " × ".join(_RANKS))


READER = Reader(name=NAME, read=_read)
