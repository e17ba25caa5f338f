"""Jobs of NeMo RL whose policy trains on DTensor (its own FSDP2 worker, or Automodel's): YAML, or overrides of one, in NeMo RL's keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from diagnose.job.formats import hydra
from diagnose.job.formats.reader import Reader, world_size
from diagnose.job.model import Leaf, Parsed, job_error
from diagnose.job.text import JobText

NAME = "nemo-rl"

_DTENSOR, _MEGATRON = "policy.dtensor_cfg.", "policy.megatron_cfg."
_ENV = f"{_DTENSOR}env_vars."
_BATCH = "policy.train_micro_batch_size"
_BY_TOKENS = ("policy.sequence_packing.enabled", "policy.dynamic_batching.enabled")  # a micro-batch is as many tokens, not samples
_EXPERTS, _RESHARD = f"{_DTENSOR}expert_parallel_size", f"{_DTENSOR}moe_parallelizer.reshard_after_forward"
_RANKS = ("cluster.num_nodes", "cluster.gpus_per_node")
# The configuration that lies beneath where a command names none trains on DTensor (examples/run_*.py); the single controller's on Megatron.
_PROGRAM = re.compile(
    r"(^|/)run_(dpo|distillation|grpo|grpo_math|grpo_sliding_puzzle|ppo|rm|sft|vlm_grpo|xtoken_off_policy_distillation)\.py$"
)
_OWN_CONFIGURATION = re.compile(r"--config\b")
_ENGINE_UNKNOWN = (
    "whether the policy trains on Megatron or DTensor is not known, as the configuration that says it is not: advice is in Megatron's keys, "
    "which do nothing on DTensor"
)


def _read(text: JobText) -> Parsed | None:
    found = hydra.read(text, NAME, tuple)
    if found is None:
        return None
    by_key = {leaf.shown: leaf for leaf in found.leaves}  # of a key that stands twice the last counts
    whole = not found.notes  # nothing lies beneath that is not seen
    if not _on_dtensor(by_key, text, whole=whole):
        megatron = hydra.READER.read(text) if _of_unknown_engine(by_key, text) else None
        return None if megatron is None else replace(megatron, notes=(*megatron.notes, _ENGINE_UNKNOWN))
    return replace(found, leaves=tuple(_translated(by_key, whole=whole)))


def _on_dtensor(by_key: Mapping[str, Leaf], text: JobText, *, whole: bool) -> bool:
    """Whether the policy trains on DTensor; raises JobFileError where NeMo RL itself refuses the choice.

    Source: nemo_rl/models/policy/lm_policy.py.
    """
    dtensor, megatron = (_switch(by_key, f"{group}enabled") for group in (_DTENSOR, _MEGATRON))
    if dtensor and megatron:
        raise job_error(text.source, "turns on both DTensor and Megatron for its policy, which NeMo RL refuses", "Turn one of them off.")
    if dtensor is False and (megatron is False or (whole and f"{_MEGATRON}enabled" not in by_key)):
        what = "turns on neither DTensor nor Megatron for its policy, which NeMo RL refuses"
        advice = "Set policy.dtensor_cfg.enabled or policy.megatron_cfg.enabled to true (releases before 0.3 took FSDP1 then, which is not read)."
        raise job_error(text.source, what, advice)
    if dtensor is not None or megatron:
        return dtensor is True
    if any(key.startswith(_MEGATRON) and key != f"{_MEGATRON}enabled" for key in by_key) and megatron is None:
        return False
    if any(key.startswith(_DTENSOR) for key in by_key) or (megatron is False and not whole):
        return True
    command = text.command
    return (
        command is not None
        and bool(_PROGRAM.search(command.program))
        and not any(token.unresolved or _OWN_CONFIGURATION.match(token.text) for token in command.arguments)
    )


def _of_unknown_engine(by_key: Mapping[str, Leaf], text: JobText) -> bool:
    """Whether a command of NeMo RL tells neither that its policy trains on Megatron nor that it does on DTensor."""
    told = any(key.startswith(_MEGATRON) for key in by_key) or _switch(by_key, f"{_DTENSOR}enabled") is False
    return text.command is not None and _PROGRAM.search(text.command.program) is not None and not told


def _switch(by_key: Mapping[str, Leaf], key: str) -> bool | None:
    """What a switch says; None where it is not there, or only the process knew its value."""
    value = by_key[key].value if key in by_key else None
    return value if isinstance(value, bool) else None


def _translated(by_key: Mapping[str, Leaf], *, whole: bool) -> Iterable[Leaf]:
    """The values under NeMo RL's keys, with what follows from them; what belongs to other parts of it counts as known."""
    counted = [_switch(by_key, key) if key in by_key or not whole else False for key in _BY_TOKENS]
    for leaf in by_key.values():
        key = "model_name" if leaf.shown == "policy.model_name" else leaf.shown
        key = f"env_vars.{key.removeprefix(_ENV)}" if key.startswith(_ENV) else key
        value = None if leaf.shown == _BATCH and counted != [False, False] else leaf.value
        yield replace(leaf, key=key, value=value, forced=False, known=True)
    yield from _set_by_itself(by_key, whole=whole)
    if not hydra.shares_nodes(by_key):
        yield from world_size([replace(by_key[key], forced=False) for key in _RANKS if key in by_key], " × ".join(_RANKS))


def _set_by_itself(by_key: Mapping[str, Leaf], *, whole: bool) -> Iterable[Leaf]:
    """What the workers set without a key: no pipeline, and FSDP2 that splits everything. Of experts the parallelizer keeps gathered what
    the forward gathered, unless told to let go.
    """
    place = "set by NeMo RL itself"
    yield Leaf(key="pipeline_model_parallel_size", shown=_DTENSOR.rstrip("."), value=1, known=True, place=place)
    experts = by_key[_EXPERTS].value if _EXPERTS in by_key else 1 if whole else None
    if isinstance(experts, int):
        lets_go = experts == 1 or _switch(by_key, _RESHARD) is True
        split = "optim_grads_params" if lets_go else "optim_grads"
        if lets_go or _RESHARD in by_key or whole:
            yield Leaf(key="data_parallel_sharding_strategy", shown=_DTENSOR.rstrip("."), value=split, known=True, place=place)


READER = Reader(name=NAME, read=_read)
