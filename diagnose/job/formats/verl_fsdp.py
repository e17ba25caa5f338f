"""Jobs of verl that train on FSDP: overrides of its configuration, or YAML, whose keys are verl's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from diagnose.errors import JobFileError
from diagnose.job.formats import hydra
from diagnose.job.formats.reader import Reader, world_size
from diagnose.job.model import UNRESOLVED, Leaf, Parsed, job_error
from diagnose.job.text import JobText

NAME = "verl-fsdp"

_ACTOR = "actor_rollout_ref.actor."
_FSDP = f"{_ACTOR}fsdp_config."
_STRATEGY = f"{_ACTOR}strategy"
_BATCH = f"{_ACTOR}ppo_micro_batch_size_per_gpu"
_RESHARD = f"{_FSDP}reshard_after_forward"
_MODEL = "actor_rollout_ref.model.path"
_ULYSSES = (f"{_ACTOR}ulysses_sequence_parallel_size", f"{_FSDP}ulysses_sequence_parallel_size")
_RANKS = ("trainer.nnodes", "trainer.n_gpus_per_node")
# What may put another engine (verl/workers/engine/) in its place: a group of the actor or of engines, a configuration of another name.
_OTHERWISE = re.compile(
    r"[^=]*@|model_engine=|actor_rollout_ref\.actor\.engine\.|(--config-(name|path)|-cn|-cp)\b(?!=ppo_trainer(\.yaml)?$)"
)
_OF_FSDP = ("fsdp", "fsdp2", "fsdp_turbo")  # what FSDPEngineConfig takes (verl/workers/config/engine.py)
_OF_MEGATRON = ("megatron", "mindspeed")
_PROGRAM = re.compile(r"verl[./]trainer[./]main_ppo")  # its own configuration, ppo_trainer.yaml, is on FSDP


def _read(text: JobText) -> Parsed | None:
    found = hydra.read(text, NAME, _translated)
    if found is None or _on_fsdp(found.leaves, text):
        return found
    engine = _engine(found.leaves, text)
    if engine is not None and engine not in _OF_MEGATRON:
        raise other_engine(text, engine)
    return None


def other_engine(text: JobText, engine: str) -> JobFileError:
    """The error for a job of verl whose engine (verl/workers/engine/) is neither FSDP nor Megatron."""
    what = f"trains with verl's engine {engine}, which is not read as a job file"
    return job_error(text.source, what, "Give the settings as a plain job.yaml, in Megatron's own names.")


def _engine(leaves: Sequence[Leaf], text: JobText) -> str | None:
    """The engine that a command chooses by its group, or the actor by its strategy; None where neither tells it."""
    words = [] if text.command is None else [token for token in text.command.arguments if not token.unresolved]
    chosen = [word.text.partition("=")[2] for word in words if word.text.startswith("model_engine=")]
    said = [
        leaf.value for leaf in leaves if leaf.shown == _STRATEGY and isinstance(leaf.value, str) and not leaf.value.startswith(UNRESOLVED)
    ]
    return next((one for one in (*said, *chosen) if isinstance(one, str) and re.fullmatch(r"\w+", one)), None)


def _on_fsdp(leaves: Sequence[Leaf], text: JobText) -> bool:
    """Whether the actor trains on FSDP: by its strategy, by settings of FSDP alone, or because nothing names another engine."""
    said = {leaf.shown: leaf.value for leaf in leaves}
    if isinstance(strategy := said.get(_STRATEGY), str):
        return strategy in _OF_FSDP
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
    if all(key in by_key for key in _ULYSSES):  # the older key counts where it is above 1 (verl/workers/config/actor.py)
        older = by_key[_ULYSSES[0]].value
        unread |= {_ULYSSES[1] if isinstance(older, int) and older > 1 else _ULYSSES[0]}
    for leaf in by_key.values():  # of a key that stands twice the last counts
        key = "model_name" if leaf.shown == _MODEL else leaf.shown
        yield replace(leaf, key=key, value=None if leaf.shown in unread else leaf.value, forced=False, known=True)
    if _RESHARD not in by_key or size == 1:
        split = "no_shard" if size == 1 else "optim_grads_params"
        yield Leaf(key="data_parallel_sharding_strategy", shown="fsdp_config", value=split, known=True, place="set by verl itself")
    yield from world_size([replace(by_key[key], forced=False) for key in _RANKS if key in by_key], " × ".join(_RANKS))


READER = Reader(name=NAME, read=_read)
