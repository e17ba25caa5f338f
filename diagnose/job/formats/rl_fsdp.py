"""Jobs of SkyRL, ROLL and AReaL that train on FSDP, whose settings are the programs' own and not Megatron's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from diagnose.job.formats import hydra, rl_programs
from diagnose.job.formats.reader import Reader, world_size
from diagnose.job.model import Leaf, Parsed, job_error
from diagnose.job.text import JobText

NAME = "rl-fsdp"

_OF_FSDP = ("fsdp", "archon")  # AReaL's archon is torchtitan's FSDP (areal/experimental/engine/archon_engine.py)
_MODELS = ("trainer.policy.model.path", "model.path", "actor.path", "pretrain", "student_pretrain")
_ITSELF = {  # what SkyRL's trainers have where nothing is said; the supervised one has no switch of its own for recompute
    ("trainer.policy.", "trainer.policy.fsdp_config.reshard_after_forward"): ("data_parallel_sharding_strategy", "optim_grads_params"),
    ("trainer.policy.", "trainer.gradient_checkpointing"): ("recompute_granularity", "full"),
    ("placement.num_", "fsdp_config.reshard_after_forward"): ("data_parallel_sharding_strategy", "optim_grads_params"),
    ("placement.num_", "gradient_checkpointing"): ("recompute_granularity", "full"),
}
_SIZES = {
    "t": "tensor_model_parallel_size",
    "c": "context_parallel_size",
    "p": "pipeline_model_parallel_size",
    "e": "expert_model_parallel_size",
}


def _read(text: JobText) -> Parsed | None:
    found = hydra.read(text, NAME, _translated, of_program=hydra.started(text))
    if found is None:
        return None
    engine = rl_programs.engine({leaf.shown: leaf for leaf in reversed(found.leaves)})  # the file's own stand before those that follow
    if engine in _OF_FSDP:
        return found
    if engine not in (None, rl_programs.MEGATRON):
        what = f"trains on {engine}, which is not read as a job file of this program"
        raise job_error(text.source, what, "Give the settings as a plain job.yaml, in Megatron's own names.")
    return None


def _translated(leaves: Sequence[Leaf]) -> Iterable[Leaf]:
    """The values under the programs' keys, with what follows from them; what belongs to other parts of them counts as known."""
    by_key = {leaf.shown: leaf for leaf in leaves}
    for leaf in by_key.values():  # of a key that stands twice the last counts
        key = "model_name" if leaf.shown in _MODELS else rl_programs.canonical(leaf.shown)
        yield replace(leaf, key=key, forced=False, known=True)
    for (group, key), (name, value) in _ITSELF.items():
        if key not in by_key and any(other.startswith(group) for other in by_key):
            yield Leaf(key=name, shown=key, value=value, known=True, place="set by SkyRL itself")
    yield from rl_programs.nodes(by_key)
    for pair in rl_programs.RANKS:
        yield from world_size([replace(by_key[key], forced=False) for key in pair if key in by_key], " × ".join(pair))
    yield from _spread(by_key)


def _spread(by_key: Mapping[str, Leaf]) -> Iterator[Leaf]:
    """What AReaL's word for a backend and ROLL's list of devices say of the ranks that train."""
    yield from rl_programs.devices(by_key)
    backend = by_key.get("actor.backend")
    word = None if backend is None else re.fullmatch(r"[a-z]+:((?:[dtpce]\d{1,5})+)", str(backend.value))
    if backend is None or word is None:
        return
    sizes, ranks = rl_programs.spread(word[1])
    yield replace(backend, key="world_size", value=ranks, forced=False)
    for letter, name in _SIZES.items():
        if letter in sizes:
            yield replace(backend, key=name, value=sizes[letter], forced=False)


READER = Reader(name=NAME, read=_read)
