"""Jobs of Hugging Face's Trainer and of what is built on it: TrainingArguments as flags or YAML (TRL, LLaMA-Factory, Axolotl, ms-swift).

What `accelerate launch` is told, its configuration and DeepSpeed's file are read where they lie beside; the script decides what they leave
out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from diagnose.job.command_line import Command, by_flag, parsed_command
from diagnose.job.edit import Edit, section_editor
from diagnose.job.edit_yaml import Node
from diagnose.job.formats import accelerate, deepspeed
from diagnose.job.formats.reader import Key, Reader, keys_of
from diagnose.job.model import UNRESOLVED, Leaf, Parsed
from diagnose.job.shell import Token
from diagnose.job.text import JobText, leaves_of, token_value
from diagnose.knowledge.settings import JobSettings, SettingSpec

NAME = "hugging-face"
_OWN = frozenset(  # transformers TrainingArguments; base_model is Axolotl's, finetuning_type LLaMA-Factory's
    {
        "per_device_train_batch_size",
        "model_name_or_path",
        "per_gpu_train_batch_size",
        "finetuning_type",
        "base_model",
        "gradient_checkpointing",
    }
)
_TRAINER = frozenset({"per_device_train_batch_size", "per_gpu_train_batch_size"})  # no one else's
_WITH = frozenset(
    {"output_dir", "micro_batch_size", "gradient_accumulation_steps", "learning_rate", "sequence_len", "cutoff_len", "deepspeed"}
)
_LLAMA_FACTORY = frozenset({"stage", "finetuning_type"})  # arguments that its training needs, and no other has
_INSTEAD: Mapping[str, str] = {  # its own names, src/llamafactory/hparams/model_args.py
    "gradient_checkpointing": "LLaMA-Factory recomputes unless disable_gradient_checkpointing is true: that is the key to set",
    "attn_implementation": "LLaMA-Factory takes no attn_implementation; flash_attn: fa2 asks for the same",
    "use_liger_kernel": "LLaMA-Factory takes no use_liger_kernel; enable_liger_kernel asks for the same",
}
_IN_AXOLOTL: Mapping[str, str] = {  # src/axolotl/utils/schemas
    "optim": "Axolotl takes no optim; optimizer: adamw_torch_fused asks for the same",
    "dataloader_persistent_workers": "Axolotl has no such argument",
    "full_determinism": "Axolotl has no such argument",
    "use_liger_kernel": "Axolotl takes Liger as a plugin, axolotl.integrations.liger.LigerPlugin",
    "fsdp_config.backward_prefetch": "Axolotl's fsdp_config has no prefetches",
    "fsdp_config.forward_prefetch": "Axolotl's fsdp_config has no prefetches",
}
_FILE = re.compile(r"[\w./${}~+-]+\.(ya?ml|json)")
_OF_MEGATRON = re.compile(r"--?(tensor[-_]model[-_]parallel[-_]size|num[-_]layers|micro[-_]batch[-_]size|hidden[-_]size)(=.*)?")
_OTHERS = frozenset(
    {"fp8", "model_name", "platform", "gpu", "vocab_size"}
)  # arguments that mean something else than the settings of these names
_LENGTHS = ("max_seq_length", "max_length", "max_seq_len", "sequence_len", "cutoff_len", "model_max_length")
_LAUNCH = re.compile(r"(.*/)?accelerate(-launch)?")
_BUILT_ON = re.compile(r"(.*/)?swift[./]cli[./](pt|sft|rlhf)(\.py)?")  # programs on the Trainer, and their words; `megatron sft` is none
_VERBS = re.compile(r"swift (pt|sft|rlhf)|trl (sft|dpo|grpo|kto|reward|rloo)|(llamafactory-cli|llamafactory|axolotl) train")


def _read(text: JobText) -> Parsed | None:
    if text.yaml is not None:
        data = text.yaml.data
        if not _is_trainer(data):
            return None
        leaves, notes = _of_map(text)
        return Parsed(format=NAME, leaves=tuple(leaves), rules=text.yaml.rules, notes=(*text.yaml.notes, *notes))
    return None if text.command is None else _of_command(text.command, text)


def _is_trainer(data: Mapping[object, object]) -> bool:
    """Whether a map holds arguments of the Trainer."""
    flat = {key for key, value in data.items() if not isinstance(value, dict)}
    if flat & _TRAINER:
        return True
    return bool(flat & (_OWN | {"model"})) and len(flat & (_OWN | _WITH)) > 1


def _of_map(text: JobText) -> tuple[list[Leaf], list[str]]:
    """The arguments in a YAML or JSON file, with those of DeepSpeed's file that it names."""
    if text.yaml is None:
        return [], []
    leaves = [replace(leaf, known=True) for leaf in leaves_of(text.yaml.data, text.yaml.lines)]
    inner = text.yaml.data.get("deepspeed")
    if isinstance(inner, dict):  # DeepSpeed's configuration itself
        leaves = [replace(leaf, value=deepspeed.number(leaf.value)) if leaf.key.startswith("deepspeed.") else leaf for leaf in leaves]
        return list(_settled(leaves)), []
    below, notes = _below([leaf for leaf in leaves if leaf.key in ("deepspeed", "dist_config.config_file")], text)
    return list(_settled([*leaves, *below])), notes


def _below(named: Sequence[Leaf], text: JobText) -> tuple[list[Leaf], list[str]]:
    """DeepSpeed's file, where arguments name one."""
    for leaf in named:
        if isinstance(leaf.value, str) and leaf.value.startswith(UNRESOLVED):
            return [], [f"{leaf.shown} names a file that is not known: what it sets is not known"]
        if isinstance(leaf.value, str) and leaf.value:
            inner = text.beside(leaf.value)
            if inner is None or inner.yaml is None:
                return [], [f"{leaf.value}, which {leaf.shown} names, is not beside {text.source}: what it sets is not known"]
            below, _ = deepspeed.taken(inner.yaml)
            return [accelerate.prefixed(one).moved(inner.source) for one in below], []
    return [], []


_CONFIGURED = frozenset({"deepspeed", "deepspeed_config", "ds_config"})  # arguments that name a configuration of DeepSpeed


# --- commands ---------------------------------------------------------------------------------------------------------


def _of_command(command: Command, text: JobText) -> Parsed | None:
    names = {token.text.partition("=")[0].lstrip("-").replace("-", "_") for token in command.arguments if token.text.startswith("-")}
    launched = any(_LAUNCH.fullmatch(token.text) for token in command.words[: len(command.words) - len(command.arguments)])
    files = [token for token in command.arguments if _FILE.fullmatch(token.text.rpartition("=")[2])]
    ours = bool(names & _OWN) or bool(names & _CONFIGURED) or launched or (bool(files) and _verb(command)) or _of_trainer(command)
    if not ours or (not names & _TRAINER and any(_OF_MEGATRON.fullmatch(token.text) for token in command.arguments)):
        return None
    flags, notes = _flags(command.arguments)
    if files and files[0] is command.arguments[0]:
        flags += [leaf for leaf in map(_override, command.arguments[1:]) if leaf is not None]
    around, more = _launched(command, text) if launched else ([], [])
    base: list[Leaf] = []
    for token in _configurations(command, flags, files):
        found, said = _file(token, text)
        base += found
        notes += said
    own = {leaf.key for leaf in flags}
    around = list(_asked(around, [*base, *flags]))
    if any(leaf.key == "launch.fsdp_config.fsdp_activation_checkpointing" and leaf.value is True for leaf in around):
        flags = [leaf for leaf in flags if leaf.key != "gradient_checkpointing"]  # FSDP recomputes instead
    below, said = _below([leaf for leaf in flags if leaf.key in _CONFIGURED], text)
    leaves = [*(leaf for leaf in base if leaf.key not in own), *flags, *below, *_asked_of_deepspeed(flags)]
    told = {leaf.key for leaf in command.around}
    return parsed_command(
        command,
        text.source,
        format_=NAME,
        leaves=[*(leaf for leaf in around if leaf.key not in told), *_settled(leaves)],
        notes=[*notes, *said, *more],
        more=["the script decides what its arguments leave out"],
        open_ended=True,
    )


def _asked_of_deepspeed(flags: Sequence[Leaf]) -> Iterator[Leaf]:
    """`--deepspeed --zero_stage 2 --offload`: the arguments of DeepSpeed-Chat and its kin, which make the configuration of them."""
    given = {leaf.key: leaf for leaf in flags}
    if "deepspeed" not in given or given["deepspeed"].value is not True or "zero_stage" not in given:
        return
    yield replace(given["zero_stage"], key="deepspeed.zero_optimization.stage")
    if "offload" in given and given["offload"].value is True:
        yield replace(given["offload"], key="deepspeed.zero_optimization.offload_optimizer.device", value="cpu")


def _of_trainer(command: Command) -> bool:
    """Whether a command is of a program built on the Trainer, whatever its arguments are."""
    texts = [token.text.rpartition("/")[2] for token in command.words]
    return bool(_BUILT_ON.fullmatch(command.program)) or any(_VERBS.fullmatch(f"{one} {after}") for one, after in pairwise(texts))


def _verb(command: Command) -> bool:
    return not command.program.endswith((".py", ".sh"))


def _flags(tokens: Sequence[Token]) -> tuple[list[Leaf], list[str]]:
    found: dict[str, Leaf] = {}
    notes: list[str] = []
    for flag, values in by_flag(tokens, lambda token: token.text.startswith("--")):
        if flag is None:
            notes += [f"line {one.line}: {one.unresolved} may hold more arguments" for one in values if one.unresolved]
            continue
        name, equals, inline = flag.text.partition("=")
        word = dataclasses.replace(flag, text=inline) if equals else values[0] if values else None
        notes += [f"line {one.line}: {one.unresolved} may hold more arguments" for one in values[0 if equals else 1 :] if one.unresolved]
        key = name.removeprefix("--").replace("-", "_")
        value = True if word is None else token_value(word)
        found[key] = Leaf(key=key, shown=name, value=value, known=True, line=flag.line, place=f"line {flag.line}").moved(flag.source)
    return list(found.values()), notes


def _override(token: Token) -> Leaf | None:
    """`key=value` behind the file that a program takes first: over it, as OmegaConf merges them (LLaMA-Factory hparams/parser.py)."""
    name, equals, value = token.text.partition("=")
    if not equals or not re.fullmatch(r"[a-z_][\w.]*", name):
        return None
    word = dataclasses.replace(token, text=value)
    return Leaf(key=name, shown=name, value=token_value(word), known=True, line=token.line, place=f"line {token.line}").moved(token.source)


def _asked(around: Sequence[Leaf], arguments: Sequence[Leaf]) -> Iterator[Leaf]:
    """What the launcher is told, but for a precision that the Trainer's own arguments replace (training_args.py, __post_init__)."""
    named = {leaf.key: leaf.value for leaf in arguments if leaf.key in ("bf16", "fp16")}
    own = next((key for key in ("fp16", "bf16") if named.get(key) in (True, "True")), None)
    for leaf in around:
        yield replace(leaf, value=own) if own is not None and leaf.key == "launch.mixed_precision" else leaf


def _configurations(command: Command, flags: Sequence[Leaf], files: Sequence[Token]) -> Iterator[str]:
    """The files of arguments that a command names: behind `--config`, or as its first word."""
    yield from (str(leaf.value) for leaf in flags if leaf.key in ("config", "config_file") and isinstance(leaf.value, str))
    if _verb(command) or any(token is command.arguments[0] for token in files):
        yield from (token.text for token in files if not token.text.startswith("-") and token is command.arguments[0])


def _file(name: str, text: JobText) -> tuple[list[Leaf], list[str]]:
    shown = name.removeprefix(UNRESOLVED).lstrip(" =")
    inner = None if name.startswith(UNRESOLVED) else text.beside(name)
    if inner is None or inner.yaml is None:
        return [], [f"{shown} is not beside {text.source}: what it sets is not known"]
    leaves, notes = _of_map(inner)
    return [leaf.moved(inner.source) for leaf in leaves], notes


_OF_LAUNCH: Mapping[str, str] = {
    "num_processes": "num_processes",
    "mixed_precision": "mixed_precision",
    "zero_stage": "deepspeed_config.zero_stage",
    "offload_optimizer_device": "deepspeed_config.offload_optimizer_device",
    "fsdp_activation_checkpointing": "fsdp_config.fsdp_activation_checkpointing",
    "fsdp_sharding_strategy": "fsdp_config.fsdp_sharding_strategy",
    "dynamo_backend": "dynamo_config.dynamo_backend",
}


def _launched(command: Command, text: JobText) -> tuple[list[Leaf], list[str]]:
    """What `accelerate launch` is told: its configuration, and its own flags over it."""
    words = command.words[: len(command.words) - len(command.arguments) - 1]
    place = next(at for at, token in enumerate(words) if _LAUNCH.fullmatch(token.text))
    flags, _ = _flags(words[place + 1 :])
    notes: list[str] = []
    found: dict[str, Leaf] = {}
    for leaf in flags:
        if leaf.key == "config_file" and isinstance(leaf.value, str):
            inner = None if leaf.value.startswith(UNRESOLVED) else text.beside(leaf.value)
            if inner is None:
                notes.append(f"{leaf.value.removeprefix(UNRESOLVED).lstrip(' =')} is not beside {text.source}: what it sets is not known")
            else:
                below, said = accelerate.taken(inner)
                found |= {one.key: one.moved(inner.source) for one in below}
                notes += said
    found |= {_OF_LAUNCH[leaf.key]: replace(leaf, key=_OF_LAUNCH[leaf.key]) for leaf in flags if leaf.key in _OF_LAUNCH}
    found.pop("fsdp_config.fsdp_version", None)  # which of the two the Trainer itself is told decides what it takes
    given = {f"launch.{key}": replace(leaf, key=f"launch.{key}") for key, leaf in found.items() if not key.startswith("deepspeed.")}
    given |= {key: leaf for key, leaf in found.items() if key.startswith("deepspeed.")}
    return list(given.values()), notes


# --- values and keys --------------------------------------------------------------------------------------------------


_SPLITS = frozenset({"full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2", "no_shard"})
_OF_FSDP = "launch.fsdp_config.fsdp_"


def _of_fsdp(leaves: Sequence[Leaf]) -> Iterator[Leaf]:
    """Arguments with those of FSDP under the names that Accelerate has for them (transformers training_args.py, _process_fsdp_args).

    What `fsdp` names counts unless the configuration asks for the second FSDP. Without a version Transformers 4 takes the first and
    5 the second; both take the word so.
    """
    split = next((leaf for leaf in leaves if leaf.key == "fsdp" and leaf.value), None)
    told = {}
    for leaf in leaves:
        section, _, name = leaf.key.partition(".")
        if section == "fsdp_config" and name and split is not None:
            told[name.removeprefix("fsdp_")] = leaf
        else:
            yield leaf
    yield from (replace(leaf, key=_OF_FSDP + name) for name, leaf in told.items())
    if split is None:
        return
    words = split.value if isinstance(split.value, list) else str(split.value).split()
    named = next((str(word) for word in words if word in _SPLITS), None)
    version = told.get("version")
    if "offload" in words:
        yield replace(split, key=f"{_OF_FSDP}offload_params", value=True)
    if version is None or version.value == 1:
        yield replace(split, key=f"{_OF_FSDP}sharding_strategy", value=None if named is None else named.upper())


def _settled(leaves: Sequence[Leaf]) -> Iterator[Leaf]:
    """A longest sequence is every sequence's length only where samples are packed; LLaMA-Factory recomputes unless it is told not to."""
    by_key = {leaf.key: leaf.value for leaf in leaves}
    if by_key.keys() >= _LLAMA_FACTORY and by_key.get("disable_gradient_checkpointing") is not True:
        leaves = [leaf for leaf in leaves if leaf.key != "gradient_checkpointing" or leaf.value is True]
        if (
            by_key.get("gradient_checkpointing") is not True
        ):  # src/llamafactory/model/model_utils/checkpointing.py, prepare_model_for_training
            yield Leaf(
                key="gradient_checkpointing", shown="gradient_checkpointing", value=True, known=True, place="set by LLaMA-Factory itself"
            )
    packed = any(by_key.get(key) is True for key in ("packing", "sample_packing", "neat_packing"))
    for leaf in _of_fsdp(leaves):
        value = None if leaf.value in ("auto", "", -1) else leaf.value
        if leaf.key in _OTHERS or leaf.key.startswith("model."):  # a section of the program's own, not its name
            yield replace(leaf, key=f"{NAME}.{leaf.key}")
        elif leaf.key == "optimizer":  # Axolotl's name of optim
            yield replace(leaf, key="optim", value=value)
        elif leaf.key in _LENGTHS:
            yield replace(leaf, value=value if packed and isinstance(value, int) else None)
        elif isinstance(value, str) and re.fullmatch(r"\$\{.*\}|\{\{.*\}\}", value):
            yield replace(leaf, value=f"{UNRESOLVED} = {value}")
        elif (leaf.key, leaf.value) == ("torch_compile", "auto"):  # Axolotl asks PyTorch's version
            yield replace(leaf, value=f"{UNRESOLVED} = auto")
        else:
            yield replace(leaf, value=value)


def _keys(spec: SettingSpec, table: JobSettings) -> Iterator[Key]:
    """Arguments of the script go before what its launcher and DeepSpeed's file say."""
    yield from keys_of(NAME, spec, table)
    yield from accelerate.keys_below(spec, table)
    for key in keys_of(accelerate.NAME, spec, table):
        yield replace(key, spellings=tuple(f"launch.{one}" for one in key.spellings), level=2)


def _refused(root: Node, edit: Edit) -> str | None:
    """Why LLaMA-Factory or Axolotl would not heed, or refuse, an argument of the Trainer."""
    if root.entry("base_model") is not None:
        return _IN_AXOLOTL.get(edit.key)
    return _INSTEAD.get(edit.key) if all(root.entry(name) is not None for name in _LLAMA_FACTORY) else None


READER = Reader(name=NAME, read=_read, keys=_keys, editor=lambda text: section_editor(text, _refused))
