"""Scripts of Megatron-DeepSpeed: a fork with flags of an older Megatron-LM, and experts and optimizers of its own.

Read as Megatron-LM's, and told by their --deepspeed; what its defaults are is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from diagnose.job.formats import deepspeed, megatron_lm
from diagnose.job.formats.reader import Reader
from diagnose.job.model import UNRESOLVED, Leaf, Parsed
from diagnose.job.text import JobText
from diagnose.knowledge.settings import flag_name

NAME = "megatron-deepspeed"


def _read(text: JobText) -> Parsed | None:
    flags = () if text.command is None else (token.text for token in text.command.arguments if token.text.startswith("--"))
    if "deepspeed" not in map(flag_name, flags):
        return None
    found = megatron_lm.READER.read(text)
    return None if found is None else replace(found, format=NAME, leaves=(*found.leaves, *_split(found.leaves, text)))


_SPLITS: Mapping[int, str] = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}


def _split(leaves: Sequence[Leaf], text: JobText) -> Iterator[Leaf]:
    """What ZeRO splits, as DeepSpeed's file says, else --zero-stage, which scripts write into that file."""
    given = {leaf.key: leaf for leaf in leaves}
    named = given.get("deepspeed_config")
    path = named.value if named is not None and isinstance(named.value, str) and not named.value.startswith(UNRESOLVED) else ""
    inner = text.beside(path) if path else None
    below = [] if inner is None or inner.yaml is None else deepspeed.taken(inner.yaml)[0]
    told = next((leaf.moved("" if inner is None else inner.source) for leaf in below if leaf.key == "zero_optimization.stage"), None)
    stage = told or given.get(flag_name("--zero-stage"))
    number = None if stage is None else deepspeed.number(stage.value)
    if stage is not None and isinstance(number, int) and not isinstance(number, bool) and number in _SPLITS:
        yield replace(stage, key="data_parallel_sharding_strategy", value=_SPLITS[number], known=True)
        yield replace(stage, key="use_distributed_optimizer", value=number > 0, known=True)


READER = Reader(name=NAME, read=_read, keys=megatron_lm.READER.keys)
