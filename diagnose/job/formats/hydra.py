"""Settings of Megatron in the files of reinforcement-learning frameworks: verl, NeMo RL, SkyRL, ROLL and AReaL; overrides, or YAML.

Their groups hold Megatron's own names, so a job is read in the keys of Megatron-Bridge; what the recipe behind it sets is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from diagnose.job.command_line import parsed_command
from diagnose.job.formats import hydra_files, rl_programs
from diagnose.job.formats.reader import Reader, interpolated, world_size
from diagnose.job.model import Leaf, Parsed
from diagnose.job.text import JobText, is_override, is_override_line, override_word

NAME = "rl"

# verl verl/workers/config/engine.py (McoreEngineConfig); NeMo RL examples/configs/grpo_math_1B.yaml. The first that fits counts.
_GROUPS: Mapping[str, str] = {
    "actor_rollout_ref.actor.megatron.override_transformer_config.": "model.",
    "actor_rollout_ref.actor.megatron.override_ddp_config.": "ddp.",
    "actor_rollout_ref.actor.megatron.": "model.",
    "engine.override_transformer_config.": "model.",
    "engine.": "model.",
    "actor_train.strategy_args.strategy_config.": "model.",  # ROLL roll/configs/worker_config.py
    "actor.megatron.ddp.": "ddp.",  # AReaL areal/api/cli_args.py (MegatronEngineConfig)
    "actor.megatron.": "model.",
    "trainer.policy.megatron_config.ddp_config.": "ddp.",  # SkyRL skyrl/train/config/config.py (MegatronConfig)
    "trainer.policy.megatron_config.optimizer_config_kwargs.": "optimizer.",
    "trainer.policy.megatron_config.transformer_config_kwargs.": "model.",
    "trainer.policy.megatron_config.": "model.",
    "megatron_config.transformer_config_kwargs.": "model.",  # its supervised trainer, main_sft
    "megatron_config.": "model.",
    "policy.megatron_cfg.optimizer.": "optimizer.",
    "policy.megatron_cfg.distributed_data_parallel_config.": "ddp.",
    "policy.megatron_cfg.model_overrides.": "model.",
    "policy.megatron_cfg.env_vars.": "env_vars.",
    "policy.megatron_cfg.": "model.",
}
_KEYS: Mapping[str, str] = {
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "train.micro_batch_size",
    "actor_rollout_ref.model.path": "model_name",
    "actor_rollout_ref.actor.megatron.use_distributed_optimizer": "ddp.use_distributed_optimizer",
    "engine.use_distributed_optimizer": "ddp.use_distributed_optimizer",
    "actor_train.strategy_args.strategy_config.use_distributed_optimizer": "ddp.use_distributed_optimizer",
    "actor_train.strategy_args.strategy_config.overlap_grad_reduce": "ddp.overlap_grad_reduce",
    "actor_train.training_args.per_device_train_batch_size": "train.micro_batch_size",
    "actor_train.training_args.gradient_accumulation_steps": "gradient_accumulation_steps",
    "trainer.micro_train_batch_size_per_gpu": "train.micro_batch_size",
    "trainer.policy.model.path": "model_name",
    "actor.megatron.virtual_pipeline_parallel_size": "model.virtual_pipeline_model_parallel_size",
    "actor.megatron.fp8_config.mode": "model.fp8",  # areal/api/cli_args.py (FP8EngineConfig)
    "actor.megatron.fp8_config.recipe": "model.fp8_recipe",
    "actor.megatron.fp8_config.param": "mixed_precision.fp8_param",
    "actor.path": "model_name",
    "policy.model_name": "model_name",
    "policy.train_global_batch_size": "train.global_batch_size",
    "policy.train_micro_batch_size": "train.micro_batch_size",
    "policy.max_total_sequence_length": "model.seq_length",
    "policy.megatron_cfg.fp8_cfg.fp8": "model.fp8",
    "policy.megatron_cfg.fp8_cfg.fp8_recipe": "model.fp8_recipe",
    "policy.megatron_cfg.fp8_cfg.fp8_param": "mixed_precision.fp8_param",
}
_RANKS = (("trainer.nnodes", "trainer.n_gpus_per_node"), ("cluster.num_nodes", "cluster.gpus_per_node"), *rl_programs.RANKS)
_KNOWN = re.compile(
    r"actor_rollout_ref\.|policy\.|trainer\.(nnodes|n_gpus_per_node|placement\.policy_num_\w+)|(trainer\.policy\.)?megatron_config\.|cluster\.(num_nodes|gpus_per_node)|engine\.\w+_parallel_size|grpo\.|distillation\."
)
_COLOCATED = "policy.generation.colocated.enabled"
_OTHERS = ("env.reward_model.resources.", "on_policy_distillation.non_colocated_teachers.")  # nodes for models of their own
_VERL = "actor_rollout_ref.actor.megatron."
_NEMO_RL = "policy.megatron_cfg."
_FP8 = "policy.megatron_cfg.fp8_cfg."
_CHECKPOINTING = f"{_NEMO_RL}activation_checkpointing"
_SWITCHES = frozenset({f"{_NEMO_RL}enabled", _CHECKPOINTING, f"{_FP8}enabled"})  # what others hang on
_SECTIONS = frozenset(
    {
        "policy",
        "grpo",
        "actor_rollout_ref",
        "dpo",
        "sft",
        "distillation",
        "cluster",
        "actor_train",
        "sft_train",
        "student",
        "student_train",
        "actor",
    }
)
_LETTERS = {"d": "data_parallel_size", "t": "tensor_model_parallel_size", "p": "pipeline_model_parallel_size", "c": "context_parallel_size"}
_BACKEND = re.compile(
    r"(megatron|fsdp|archon):(?:\(attn:)?((?:[dtpce]\d{1,5})+)(?:\|ffn:((?:[dtpce]\d{1,5})+)\))?"
)  # AReaL: how a role is spread over its devices


def read(text: JobText, format_: str, translated: Callable[[Sequence[Leaf]], Iterable[Leaf]], *, of_program: bool = False) -> Parsed | None:
    """What overrides, or a file of groups, say in the keys that `translated` gives; None for what is of no such framework.

    `of_program` says that the command starts a program of it, whatever it is told.
    """
    command = text.command
    if command is not None:
        # An override of a key that stands in no section would be anything of another program.
        kinds = (is_override, is_override_line) if of_program else (is_override,)
        given = [token for token in command.arguments if any(kind(token.text) for kind in kinds)]
        words = [token.text for token in command.arguments if "=" in token.text and not token.unresolved]
        base, said = hydra_files.followed(hydra_files.named(command), text, words)
        if not of_program and not any(map(_ours, base)) and not any(_KNOWN.match(token.text.lstrip("+~")) for token in given):
            return None
        leaves = [override_word(token, text.source) for token in given]
        hidden = any(token.unresolved and token not in given and not token.text.startswith("-") for token in command.arguments)
        notes = ["an argument that is not known may hold more overrides"] if hidden else []
        return parsed_command(
            command,
            text.source,
            format_=format_,
            leaves=tuple(translated(interpolated(hydra_files.laid(base, leaves)))),
            notes=[*notes, *said],
            more=() if base and not said else _MORE,
            open_ended=True,
        )
    if text.syntax == "overrides":
        leaves = [leaf for leaf in text.overrides if leaf.value is not None]
        return Parsed(format=format_, leaves=tuple(translated(leaves)), notes=_MORE) if any(map(_ours, leaves)) else None
    tree = text.yaml
    if tree is None or "model" in tree.data:
        return None
    own = any(key in _SECTIONS and isinstance(value, dict) for key, value in tree.data.items())
    if not own and "defaults" not in tree.data:
        return None
    whole, said = hydra_files.whole(text)
    found = interpolated(whole)
    if not own and not any(leaf.shown.partition(".")[0] in _SECTIONS for leaf in found):  # what it lies on may be of such a framework
        return None
    return Parsed(format=format_, leaves=tuple(translated(found)), notes=(*tree.notes, *said), rules=tree.rules)


_MORE = ("the configuration that the overrides lie on decides what they leave out",)


def _ours(leaf: Leaf) -> bool:
    return any(rl_programs.canonical(leaf.shown).startswith(group) for group in _GROUPS if group != "engine.")


def shares_nodes(by_key: Mapping[str, Leaf]) -> bool:
    """Whether NeMo RL's cluster has ranks that do not train the policy: they generate, judge or teach, or may for all that is known."""
    colocated = by_key.get(_COLOCATED)
    return (colocated is not None and colocated.value is not True) or any(key.startswith(_OTHERS) for key in by_key)


def _translated(leaves: Sequence[Leaf]) -> Iterable[Leaf]:
    """The values under the keys of Megatron-Bridge; what belongs to other parts of the framework counts as known."""
    by_key = {leaf.shown: leaf for leaf in leaves}
    own = {**_KEYS, **rl_programs.supervised(by_key)}
    yield from (_renamed(leaf, by_key, own) for leaf in leaves)
    recompute = by_key.get(_CHECKPOINTING)
    told = recompute is not None and recompute.value and f"{_NEMO_RL}recompute_granularity" in by_key
    if recompute is not None and isinstance(recompute.value, bool) and not told:
        yield replace(recompute, key="model.recompute_granularity", value="full" if recompute.value else "none", forced=False)
    yield from rl_programs.set_by_program(by_key)
    yield from rl_programs.nodes(by_key)
    yield from _spread(by_key)
    for nodes, each in () if shares_nodes(by_key) or "actor.backend" in by_key else _RANKS:
        sizes = [replace(by_key[key], forced=False) for key in (nodes, each) if key in by_key]
        yield from world_size(sizes, f"{nodes} × {each}")


def _renamed(leaf: Leaf, by_key: Mapping[str, Leaf], own: Mapping[str, str]) -> Leaf:
    """A value under the key of Megatron-Bridge; one that does nothing beside the others keeps its own, as known."""
    shown = rl_programs.canonical(leaf.shown)
    group = next((one for one in _GROUPS if shown.startswith(one)), None)
    known = leaf.known or group is None or leaf.shown in _SWITCHES
    if leaf.shown.endswith("._target_"):  # the program's class, not the model's
        return replace(leaf, key=leaf.shown, forced=False, known=True)
    off = _switched_off(leaf.shown, by_key)
    if off or (isinstance(leaf.value, str) and leaf.value.startswith("${")):  # an interpolation of another key
        return replace(leaf, key=leaf.shown, forced=False, known=True)
    key, value = own.get(shown) or (_GROUPS[group] + shown.removeprefix(group) if group else leaf.shown), leaf.value
    if leaf.shown.startswith(f"{_NEMO_RL}recompute_") and _CHECKPOINTING in by_key and by_key[_CHECKPOINTING].value is False:
        value = None  # not looked at, nemo_rl/models/megatron/setup.py
    if rl_programs.unread(leaf.shown, by_key) or (leaf.shown.endswith(".virtual_pipeline_parallel_size") and value == 1):
        value = None  # of one virtual stage AReaL says nothing
    if leaf.shown.endswith(".moe_enable_deepep"):  # the older switch: on it names the backend, off it says nothing
        key, value = "model.moe_flex_dispatcher_backend", "deepep" if value is True else None
    if leaf.shown == f"{_VERL}sequence_parallel" and f"{_VERL}tensor_model_parallel_size" in by_key:
        value = value and by_key[f"{_VERL}tensor_model_parallel_size"].value != 1  # McoreEngineConfig.__post_init__ turns it off
    if leaf.shown == "policy.precision":  # nemo_rl/models/megatron/setup.py
        key, value = "model.bf16", value == "bfloat16"
    return replace(leaf, key=key, value=value, forced=False, known=known)


def _switched_off(shown: str, by_key: Mapping[str, Leaf]) -> bool:
    """Whether a key of NeMo RL stands under Megatron, or under FP8, and that is off."""
    megatron, fp8 = by_key.get(f"{_NEMO_RL}enabled"), by_key.get(f"{_FP8}enabled")
    without = megatron is not None and megatron.value is False and shown.startswith(_NEMO_RL)
    return without or (fp8 is not None and fp8.value is not True and shown.startswith(_FP8))


def _spread(by_key: Mapping[str, Leaf]) -> Iterable[Leaf]:
    """What ROLL and AReaL say of the devices that the actor trains on; those of other roles are others, or the same again."""
    yield from rl_programs.devices(by_key)
    backend = by_key.get("actor.backend")
    if backend is None or not (spread := _BACKEND.fullmatch(str(backend.value))):
        return
    sizes, ranks = rl_programs.spread(spread[2])
    yield replace(backend, key="world_size", value=ranks, forced=False)
    for letter, name in _LETTERS.items() if spread[1] == "megatron" else ():
        if letter != "d":
            yield replace(backend, key=name, value=sizes.get(letter, 1), forced=False)
    experts = {letter: int(number) for letter, number in re.findall(r"([et])(\d+)", spread[3] or "")}
    for letter, name in (("e", "expert_model_parallel_size"), ("t", "expert_tensor_parallel_size")):
        if letter in experts:
            yield replace(backend, key=name, value=experts[letter], forced=False)


def started(text: JobText) -> bool:
    """Whether a script starts SkyRL's supervised trainer."""
    return text.command is not None and rl_programs.SUPERVISED.search(text.command.program) is not None


READER = Reader(name=NAME, read=lambda text: read(text, NAME, _translated, of_program=started(text)))
