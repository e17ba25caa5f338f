"""SkyRL, ROLL and AReaL: which engine of theirs trains the policy, and what they set of Megatron by themselves.

Sources: NovaSky-AI/SkyRL a9564572eb, alibaba/ROLL 8eb27cc2dc, inclusionAI/AReaL 4aef98d8d8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from diagnose.job.model import Leaf

MEGATRON = "megatron"
_SKYRL_POLICY = "trainer.policy.megatron_config."
_SKYRL_SFT = "megatron_config."
_SFT_PLACES = "placement.num_"
_AREAL = "actor.megatron."
SUPERVISED = re.compile(r"skyrl[./]train[./]main_sft(\.py)?")  # SkyRL's supervised trainer, whose keys stand in no section
_SUPERVISED_KEYS = {"micro_train_batch_size_per_gpu": "train.micro_batch_size", "batch_size": "train.global_batch_size"}
_BACKEND = "actor.backend"
_ROLL = "actor_train.strategy_args.strategy_name"
_ROLES = (
    "sft_train.",
    "student.",
    "student_train.",
)  # of ROLL's other pipelines, with the fields of actor_train (roll/pipeline/sft/sft_config.py, roll/pipeline/distill/distill_config.py)
_ENGINE: Mapping[
    str, tuple[str | tuple[str, ...], str | None]
] = {  # the key that names the engine, and what a program of keys that start so trains with where it is left out
    "trainer.strategy": (("trainer.policy.", "trainer.placement."), "fsdp"),  # skyrl/train/config/config.py (TrainerConfig)
    "strategy": (_SFT_PLACES, MEGATRON),  # skyrl/train/config/sft_config.py (SFTConfig)
    _ROLL: ("actor_train.strategy_args.", None),  # roll/configs/worker_config.py (StrategyArguments)
    _BACKEND: ("actor.", None),  # areal/api/cli_args.py (TrainEngineConfig)
}
# areal/api/cli_args.py (MegatronEngineConfig): no code of it hands these on
_UNUSED = frozenset(
    f"{_AREAL}{name}"
    for name in ("moe_router_dtype", "moe_shared_expert_overlap", "moe_enable_deepep", "moe_token_dispatcher_type", "moe_permute_fusion")
)
_MAPPED = re.compile(r"list\(range\(\s*(\d{1,6})\s*,\s*(\d{1,6})\s*\)\)")  # ROLL: the devices of a role
_LORA = "actor.use_lora"  # AReaL turns the distributed optimizer off beside it
RANKS = (
    ("trainer.placement.policy_num_nodes", "trainer.placement.policy_num_gpus_per_node"),
    ("placement.num_nodes", "placement.num_gpus_per_node"),
)
_RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


class Program(Struct, frozen=True, kw_only=True):
    """A program that hands settings to Megatron: where its keys lie, and the switch that its recompute hangs on."""

    title: str
    group: str
    transformer: str
    optimizer: str
    checkpointing: str
    checkpointing_default: bool


def _skyrl(group: str, checkpointing: str) -> Program:
    return Program(
        title="SkyRL",
        group=group,
        transformer=f"{group}transformer_config_kwargs.",
        optimizer=f"{group}optimizer_config_kwargs.",
        checkpointing=checkpointing,
        checkpointing_default=True,
    )


_PROGRAMS = (
    # its worker (init_configs, make_megatron_module): skyrl/backends/skyrl_train/workers/megatron/megatron_worker.py
    _skyrl(_SKYRL_POLICY, "trainer.gradient_checkpointing"),
    _skyrl(_SKYRL_SFT, ""),  # its supervised trainer has no switch of its own (skyrl/train/config/sft_config.py)
    # its engine (_build_hf_mcore_bridge) and the defaults of its dataclasses: areal/engine/megatron_engine.py, areal/api/cli_args.py
    Program(
        title="AReaL",
        group="actor.",
        transformer=_AREAL,
        optimizer=f"{_AREAL}ddp.",
        checkpointing="actor.gradient_checkpointing",
        checkpointing_default=False,
    ),
)


def canonical(shown: str) -> str:
    """A key of ROLL's with the role that trains under the name that most of its pipelines have for it."""
    role = next((one for one in _ROLES if shown.startswith(one)), None)
    return shown if role is None else f"actor_train.{shown.removeprefix(role)}"


def engine(by_key: Mapping[str, Leaf]) -> str | None:
    """The engine that trains the policy; None where the file is of none of the three, or leaves it open."""
    by_key = {canonical(key): leaf for key, leaf in by_key.items()}
    for key, (group, default) in _ENGINE.items():
        if key not in by_key and not any(other.startswith(group) for other in by_key):
            continue
        if key not in by_key:
            return MEGATRON if any(other.startswith((_SKYRL_POLICY, _AREAL)) for other in by_key) else default
        named = re.match(r"[a-z]{2,}", str(by_key[key].value))  # fsdp2_train, megatron:d4p1t1; nothing of what a variable holds
        return None if named is None else named[0]
    return None


def supervised(by_key: Mapping[str, Leaf]) -> Mapping[str, str]:
    """Keys of SkyRL's supervised trainer that stand in no section, under those of Megatron-Bridge; none for files of anything else."""
    packs = by_key.get("use_sequence_packing")  # tokens are counted then, not samples
    ours = any(key.startswith(_SFT_PLACES) for key in by_key) and (packs is None or packs.value is False)
    return _SUPERVISED_KEYS if ours else {}


def nodes(by_key: Mapping[str, Leaf]) -> Iterator[Leaf]:
    """SkyRL's ranks where only those of a node are given: it is one node then (PlacementConfig, SFTPlacementConfig)."""
    for count, each in RANKS:
        if each in by_key and count not in by_key and isinstance(by_key[each].value, int):
            yield replace(by_key[each], key="world_size", forced=False)


def devices(by_key: Mapping[str, Leaf]) -> Iterator[Leaf]:
    """The ranks that train by ROLL's mapping of devices, as far as it tells; those of other roles are others, or the same again."""
    given = next((leaf for key, leaf in by_key.items() if canonical(key) == "actor_train.device_mapping"), None)
    found = None if given is None else _MAPPED.fullmatch(str(given.value))
    if given is not None and found is not None:
        yield replace(given, key="world_size", value=int(found[2]) - int(found[1]), forced=False)


def spread(word: str) -> tuple[dict[str, int], int]:
    """The sizes by their letter in AReaL's word for how a role is spread, d4p1t2, and how many ranks they make: experts share those."""
    sizes = {letter: int(number) for letter, number in re.findall(r"([dtpce])(\d+)", word)}
    return sizes, math.prod(size for letter, size in sizes.items() if letter != "e")


def unread(shown: str, by_key: Mapping[str, Leaf]) -> bool:
    """Whether a program looks at a key not at all: it hands it on to nothing, or recompute is turned off elsewhere."""
    if shown in _UNUSED:
        return True
    if ".recompute_" not in shown:  # asked of every key: the program is looked for only where it matters
        return False
    program = _program(by_key)
    if program is None or not shown.startswith(f"{program.transformer}recompute_"):
        return False
    return _checkpoints(program, by_key) is False


def set_by_program(by_key: Mapping[str, Leaf]) -> Iterator[Leaf]:
    """What the program sets of Megatron where its file leaves it out, in the keys of Megatron-Bridge."""
    program = _program(by_key)
    if program is None:
        return
    place = f"set by {program.title} itself"
    given = {key.rpartition(".")[2] for key in by_key if key.startswith((program.transformer, program.optimizer))}
    checkpoints = _checkpoints(program, by_key)
    for name, value in _RECOMPUTE.items() if checkpoints is True else ():
        if name not in given:
            yield Leaf(key=f"model.{name}", shown=f"{program.transformer}{name}", value=value, known=True, place=place)
    if checkpoints is False:
        shown = f"{program.transformer}recompute_granularity"
        yield Leaf(key="model.recompute_granularity", shown=shown, value="none", known=True, place=place)
    split = _tensor(program, by_key)
    if split is not None and "sequence_parallel" not in given:
        yield Leaf(key="model.sequence_parallel", shown=f"{program.transformer}sequence_parallel", value=split > 1, known=True, place=place)
    if "use_distributed_optimizer" not in given and _LORA not in by_key:
        shown = f"{program.optimizer}use_distributed_optimizer"
        yield Leaf(key="ddp.use_distributed_optimizer", shown=shown, value=True, known=True, place=place)


def _program(by_key: Mapping[str, Leaf]) -> Program | None:
    """The program whose policy trains on Megatron."""
    found = next((one for one in _PROGRAMS if any(key.startswith(one.group) for key in by_key)), None)
    return found if engine(by_key) == MEGATRON else None


def _checkpoints(program: Program, by_key: Mapping[str, Leaf]) -> bool | None:
    """Whether the program recomputes; None where a variable decides."""
    leaf = by_key.get(program.checkpointing)
    if leaf is None:
        return program.checkpointing_default
    return leaf.value if isinstance(leaf.value, bool) else None


def _tensor(program: Program, by_key: Mapping[str, Leaf]) -> int | None:
    """Tensor-parallel ranks, as far as the file has a number for them."""
    leaf = by_key.get(f"{program.group}tensor_model_parallel_size")
    if leaf is not None:
        return leaf.value if isinstance(leaf.value, int) else None
    backend = by_key.get(_BACKEND)
    found = None if backend is None else re.search(r"t(\d+)", str(backend.value).partition(":")[2].replace("attn", ""))
    return None if found is None else int(found[1])
