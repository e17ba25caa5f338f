"""Settings of Megatron inside the configurations of reinforcement-learning frameworks: verl's overrides, and NeMo RL's YAML and overrides.

Their groups hold Megatron's own names, so a job is read in the keys of Megatron-Bridge; what the recipe behind it sets is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from diagnose.job.command_line import parsed_command
from diagnose.job.formats.reader import Reader
from diagnose.job.model import Leaf, Parsed
from diagnose.job.text import JobText, is_override, leaves_of, override_word

NAME = "rl"

# verl verl/workers/config/engine.py (McoreEngineConfig); NeMo RL examples/configs/grpo_math_1B.yaml. The first that fits counts.
_GROUPS: Mapping[str, str] = {
    "actor_rollout_ref.actor.megatron.override_transformer_config.": "model.",
    "actor_rollout_ref.actor.megatron.override_ddp_config.": "ddp.",
    "actor_rollout_ref.actor.megatron.": "model.",
    "engine.override_transformer_config.": "model.",
    "engine.": "model.",
    "policy.megatron_cfg.optimizer.": "optimizer.",
    "policy.megatron_cfg.distributed_data_parallel_config.": "ddp.",
    "policy.megatron_cfg.model_overrides.": "model.",
    "policy.megatron_cfg.env_vars.": "env_vars.",
    "policy.megatron_cfg.": "model.",
}
_KEYS: Mapping[str, str] = {
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "train.micro_batch_size",
    "actor_rollout_ref.model.path": "model_name",
    "policy.model_name": "model_name",
    "policy.train_global_batch_size": "train.global_batch_size",
    "policy.train_micro_batch_size": "train.micro_batch_size",
    "policy.max_total_sequence_length": "model.seq_length",
}
_RANKS = (("trainer.nnodes", "trainer.n_gpus_per_node"), ("cluster.num_nodes", "cluster.gpus_per_node"))
_KNOWN = re.compile(
    r"actor_rollout_ref\.|policy\.|trainer\.(nnodes|n_gpus_per_node)|cluster\.(num_nodes|gpus_per_node)|engine\.\w+_parallel_size|grpo\.|distillation\."
)
_SECTIONS = frozenset({"policy", "grpo", "actor_rollout_ref", "dpo", "sft", "distillation", "cluster"})


def _read(text: JobText) -> Parsed | None:
    command = text.command
    if command is not None:
        given = [token for token in command.arguments if is_override(token.text)]
        if not any(_KNOWN.match(token.text.lstrip("+~")) for token in given):
            return None
        leaves = [override_word(token, text.source) for token in given]
        hidden = any(token.unresolved and not is_override(token.text) and not token.text.startswith("-") for token in command.arguments)
        notes = ["an argument that is not known may hold more overrides"] if hidden else []
        return parsed_command(
            command, text.source, format_=NAME, leaves=tuple(_translated(leaves)), notes=notes, more=_MORE, open_ended=True
        )
    if text.syntax == "overrides":
        leaves = [leaf for leaf in text.overrides if leaf.value is not None]
        return Parsed(format=NAME, leaves=tuple(_translated(leaves)), notes=_MORE) if any(map(_ours, leaves)) else None
    tree = text.yaml
    if tree is None or not any(key in _SECTIONS and isinstance(value, dict) for key, value in tree.data.items()) or "model" in tree.data:
        return None
    found = tuple(_translated(list(leaves_of(tree.data, tree.lines))))
    base = tree.data.get("defaults")
    more = (f"{base if isinstance(base, str) else 'defaults'} decides what this file leaves out",) if base else ()
    return Parsed(format=NAME, leaves=found, notes=(*tree.notes, *more), rules=tree.rules)


_MORE = ("the configuration that the overrides lie on decides what they leave out",)


def _ours(leaf: Leaf) -> bool:
    return any(leaf.shown.startswith(group) for group in _GROUPS if group != "engine.")


def _translated(leaves: Sequence[Leaf]) -> Iterable[Leaf]:
    """The values under the keys of Megatron-Bridge; what belongs to other parts of the framework counts as known."""
    by_key = {leaf.shown: leaf for leaf in leaves}
    megatron = by_key.get("policy.megatron_cfg.enabled")
    for leaf in leaves:
        group = next((one for one in _GROUPS if leaf.shown.startswith(one)), None)
        key = _KEYS.get(leaf.shown) or (_GROUPS[group] + leaf.shown.removeprefix(group) if group else leaf.shown)
        off = megatron is not None and megatron.value is False and leaf.shown.startswith("policy.megatron_cfg.")
        plain = replace(leaf, key=key, forced=False, known=leaf.known or group is None or off)
        known_text = isinstance(leaf.value, str) and leaf.value.startswith("${")  # an interpolation of another key
        yield replace(plain, key=leaf.shown, known=True) if off or known_text else plain
    for nodes, each in _RANKS:
        sizes = [by_key.get(nodes), by_key.get(each)]
        values = [leaf.value for leaf in sizes if leaf is not None and isinstance(leaf.value, int)]
        first = sizes[0]
        if first is not None and len(values) == len(sizes):
            total = int(values[0]) * int(values[1])
            yield Leaf(key="world_size", shown=f"{nodes} × {each}", value=total, place=first.place, line=first.line)


READER = Reader(name=NAME, read=_read)
