"""Arguments of Megatron-LM: YAML with MODEL_ARGS, a flat dump of them, a file of flags, or the script that starts a training with them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from diagnose.job.command_line import Command, by_flag, flag_leaf, parsed_command
from diagnose.job.edit import ENVIRONMENT, Editor, flag_editor, map_editor
from diagnose.job.edit_yaml import compose
from diagnose.job.formats import megatron_bridge
from diagnose.job.formats.reader import Key, Reader, keys_of
from diagnose.job.model import UNRESOLVED, Leaf, Parsed, job_error, wrong_type
from diagnose.job.shell import Token
from diagnose.job.text import JobText, Tree, leaves_of, line_of, plain_value
from diagnose.knowledge.settings import JobSettings, SettingSpec, flag_name

NAME = "megatron-lm"
_SECTIONS = ("MODEL_ARGS", "ENV_VARS")
_MODEL = frozenset({"--num-layers", "--hybrid-layer-pattern"})  # a program that is not told its layers so has its model from elsewhere
_PROGRAM = re.compile(r"pretrain|^$")  # of Megatron-LM; a file of flags alone names none
_PREPARES = re.compile(r"preprocess|convert|download|tokeniz|export|merge")
_YAML = "yaml_cfg"
_VARIABLE = re.compile(r"\$\{?\w+\}?")
_OTHER = frozenset({"TEST_TYPE", "METRICS", "LAUNCHER", "MODE"})


def _read(text: JobText) -> Parsed | None:
    if text.yaml is not None and _is_arguments(text.yaml.data, text.table):
        given, said = _shortened(tuple(_of_tree(text.yaml, text.source, text.table)))
        return Parsed(format=NAME, leaves=tuple(given), rules=text.yaml.rules, notes=(*text.yaml.notes, *said))
    if text.command is None:
        return None
    found, notes, open_ended = _flags(text.command.arguments, text.table)
    leaves, more = _shortened(found)
    notes += more
    flags = {flag_name(flag) for spec in text.table.specs.values() for flag in spec.keys_in(NAME)}
    another = not (_PROGRAM.search(text.command.program) or any(leaf.shown in _MODEL for leaf in leaves))
    known = flags if another else flags | set(text.table.specs)  # what a home-made program calls like a setting is not Megatron's
    if text.command.program and not any(leaf.key in known for leaf in leaves):
        return None
    if another and _PREPARES.search(name := text.command.program.rpartition("/")[2]) and "train" not in name:
        raise job_error(text.source, f"starts {name}, which prepares data or weights and trains nothing", "Give the training's command.")
    ours, said = _set_by_trainer(leaves, sized=any(leaf.key == "world_size" for leaf in text.command.around))
    if _is_swift(text.command):
        ours += _set_by_swift(leaves)
        leaves = [replace(leaf, key=_OF_SWIFT.get(leaf.key, leaf.key), known=leaf.known or leaf.key in _OF_SWIFT) for leaf in leaves]
    ours += _model_of(text.command)
    open_ended |= another  # it has some flags of the same names
    if (whole := next((leaf for leaf in leaves if leaf.key == _YAML), None)) is not None:  # parse_args: its file replaces all flags
        raise job_error(text.source, f"starts a training whose arguments are those of {whole.value}", "Give that file.")
    if any(leaf.key.startswith("moe_") for leaf in leaves) and not any(leaf.key == "num_experts" for leaf in leaves):
        leaves.append(Leaf(key="num_experts", shown="--num-experts", value=UNRESOLVED, known=True))  # a fork says it in a flag of its own
    told = parsed_command(text.command, text.source, format_=NAME, leaves=[*leaves, *ours], notes=[*notes, *said], open_ended=open_ended)
    return replace(told, another_program=another)


# --- YAML -------------------------------------------------------------------------------------------------------------


def _is_arguments(data: Mapping[Any, object], table: JobSettings) -> bool:
    """Whether a map holds arguments: MODEL_ARGS, keys with dashes, or arguments that are no setting's own name."""
    keys = {str(key) for key in data}
    if "MODEL_ARGS" in keys or any(key.startswith("--") for key in keys):
        return True
    if megatron_bridge.has_sections(data) or any("." in key for key in keys):
        return False
    names = set(table.specs) | {"versions", "env_vars"}
    flags = {flag_name(flag) for spec in table.specs.values() for flag in spec.keys_in(NAME)}
    return any(key in flags and key not in names for key in keys)


def _of_tree(tree: Tree, source: str, table: JobSettings) -> Iterator[Leaf]:
    """Arguments with underscores; what stands outside the known sections counts as one too (a flat dump of them).

    An argument with a value that says false is not given.
    """
    valued = {
        flag_name(flag) for spec in table.specs.values() if spec.type in ("text", "list") for flag in spec.keys_in(NAME) if "=" not in flag
    }
    sections: dict[str, Mapping[object, object]] = {}
    for name in _SECTIONS:
        value = tree.data.get(name) or {}
        if not isinstance(value, dict):
            raise wrong_type(source, name, "map", value)
        sections[name] = value
    arguments: list[tuple[tuple[str, ...], object, object]] = [
        (("MODEL_ARGS", str(key)), key, value) for key, value in sections["MODEL_ARGS"].items()
    ]
    arguments += [((str(key),), key, value) for key, value in tree.data.items() if key not in (*_SECTIONS, *_OTHER)]
    for path, key, value in arguments:
        if key in ("versions", "env_vars") and isinstance(value, dict):
            yield from leaves_of({key: value}, tree.lines, below=path[:-1])
        else:
            held = None if value is False and flag_name(str(key)) in valued else plain_value(value)
            if isinstance(held, str) and _VARIABLE.fullmatch(held.strip()):  # put in by what starts the job
                held = f"{UNRESOLVED} = {held.strip()}"
            yield Leaf(key=flag_name(str(key)), shown=".".join(path), value=held, line=line_of(tree.lines, path))
    if tree.data.get("MODE") == "inference":  # as the functional tests of Megatron-LM say it
        yield Leaf(key="is_training", shown="MODE", value=False, line=line_of(tree.lines, ("MODE",)))
    for key, value in sections["ENV_VARS"].items():
        yield Leaf(key=f"env_vars.{key}", shown=f"ENV_VARS.{key}", value=value, line=line_of(tree.lines, ("ENV_VARS", str(key))))


# --- flags ------------------------------------------------------------------------------------------------------------


def _flags(tokens: Sequence[Token], table: JobSettings) -> tuple[list[Leaf], list[str], bool]:
    """Flags with their words (of one given twice the last, as in argparse), notes on them, and whether a word may stand for more flags."""
    found: dict[str, Leaf] = {}
    notes: list[str] = []
    open_ended = False
    flags = ((flag, spec) for spec in table.specs.values() for flag in spec.keys_in(NAME))
    switches = {flag_name(flag) for flag, spec in flags if spec.type == "bool" or flag.startswith("!") or "=" in flag}  # take no value
    for flag, values in by_flag(tokens, lambda token: token.text.startswith("--")):
        alone = flag is None or flag_name(flag.text) in switches
        more = [one for place, one in enumerate(values) if one.unresolved and (alone or place or one.several)]
        notes += [f"line {one.line}: {one.unresolved} may hold more flags, so what is not given is not known" for one in more]
        open_ended |= bool(more)
        if flag is None:
            continue
        name = flag.text.split("=")[0]
        if flag_name(name) in found:
            notes.append(f"{name} is given twice; line {flag.line} counts")
        told = values[: values.index(more[0])] if more else values  # what comes behind such a word is of flags that it holds
        found[flag_name(name)] = flag_leaf(flag, told or (values[:1] if not alone else []))
    return list(found.values()), notes, open_ended


def _shortened(leaves: Sequence[Leaf]) -> tuple[list[Leaf], list[str]]:
    """Leaves as validate_args of Megatron-LM takes its short flags of recompute, with notes on what they overrule.

    --recompute-activations stands for selective, whatever the granularity says; the older --checkpoint-activations for every layer, which
    Megatron-LM stops at by now, and Megatron-DeepSpeed takes.
    """
    short = next((leaf for leaf in leaves if leaf.key == "recompute_activations" and leaf.value is True), None)
    older = next((leaf for leaf in leaves if leaf.key == "checkpoint_activations" and leaf.value is True), None)
    other = next((leaf for leaf in leaves if leaf.key == "recompute_granularity" and leaf.value not in (None, "selective")), None)
    notes: list[str] = []
    kept = list(leaves)
    if older is not None:
        given = {leaf.key for leaf in leaves}
        means = {"recompute_method": "uniform", "recompute_num_layers": 1}
        kept += [replace(older, key=key, value=value) for key, value in means.items() if key not in given]
        notes.append(f"{older.shown} is full recompute in Megatron-DeepSpeed; today's Megatron-LM stops at it: {_FULL_RECOMPUTE}")
    if short is not None and other is not None:
        kept.remove(other)
        notes.append(f"{short.shown} means selective recompute and overrules {other.shown}")
    return kept, notes


_FULL_RECOMPUTE = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
_NODES, _EACH, _LORA = "actor_num_nodes", "actor_num_gpus_per_node", "multi_lora_n_adapters"


def _set_by_trainer(leaves: Sequence[Leaf], *, sized: bool) -> tuple[list[Leaf], list[str]]:
    """What slime and miles set whatever the flags say (slime/backends/megatron_utils/arguments.py, and miles'): none for other trainers.

    `sized` says that the world size is known.
    """
    given = {leaf.key: leaf for leaf in leaves}
    each, nodes = given.get(_EACH), given.get(_NODES)
    if each is None:
        return [], []
    found: list[Leaf] = []
    place = "set by the trainer itself"
    chosen = given.get(flag_name("--optimizer"))
    if (chosen is None or str(chosen.value).lower() == "adam") and _LORA not in given:
        found.append(Leaf(key="use_distributed_optimizer", shown="--use-distributed-optimizer", value=True, place=place))
    if "fp16" not in given and "bf16" not in given:
        found.append(Leaf(key="bf16", shown="--bf16", value=True, place=place))
    sizes = [str(leaf.value) for leaf in (each, nodes) if leaf is not None]
    if not sized:
        told = (
            math.prod(int(one) for one in sizes)
            if all(re.fullmatch(r"\d{1,6}", one) for one in sizes)
            else f"{UNRESOLVED} (--actor-num-gpus)"
        )
        found.append(replace(each, key="world_size", shown="--actor-num-nodes × --actor-num-gpus-per-node", value=told))
    return found, ["the trainer sets the distributed optimizer and bf16 by itself"]


_MODELS = {"pretrain_gpt.py": "GPTModel", "pretrain_mamba.py": "MambaModel", "pretrain_hybrid.py": "HybridModel"}


def _model_of(command: Command) -> list[Leaf]:
    """The class of the model that a script of Megatron-LM trains whatever its flags say; none where it is another script."""
    name = command.program.rpartition("/")[2]
    line = next((token.line for token in command.words if token.text == command.program), None)
    return [Leaf(key="model_target", shown=name, value=_MODELS[name], line=line)] if name in _MODELS else []


_OF_SWIFT = {"model": "model_name", "model_name": "the name that the model learns to call itself"}  # ms-swift's dataset arguments


def _is_swift(command: Command) -> bool:
    """Whether ms-swift starts Megatron: `megatron sft` and the like."""
    texts = [token.text.rpartition("/")[2] for token in command.words]
    return any(one == "megatron" and after == command.program for one, after in pairwise(texts))


def _set_by_swift(leaves: Sequence[Leaf]) -> list[Leaf]:
    """What ms-swift gives Megatron where the flags do not (swift/megatron/arguments/megatron_args.py and megatron_base_args.py).

    Packs are as long as packing_length says, else as the longest sample may be; without packs a batch is as long as its longest sample.
    """
    given = {leaf.key: leaf for leaf in leaves}
    found: list[Leaf] = []
    chosen = given.get(flag_name("--optimizer"))  # Muon goes without
    if (chosen is None or chosen.value == "adam") and not given.keys() & {"use_distributed_optimizer", "use_megatron_fsdp"}:
        place = "set by ms-swift itself"
        found.append(Leaf(key="use_distributed_optimizer", shown="--use_distributed_optimizer", value=True, place=place))
    long = given.get("packing_length") or given.get("max_length")
    if long is not None and "seq_length" not in given and str(given["packing"].value if "packing" in given else "").lower() == "true":
        found.append(replace(long, key="seq_length"))
    return found


# --- keys and edits ---------------------------------------------------------------------------------------------------


def _keys(spec: SettingSpec, table: JobSettings) -> Iterator[Key]:
    """Versions stand under the same keys as in Megatron-Bridge: no flag tells them."""
    for key in keys_of(megatron_bridge.NAME, spec, table):
        if key.spellings[0].startswith("versions."):
            yield key
    yield from keys_of(NAME, spec, table)


def _editor(text: str) -> Editor | None:
    """What writes into flags or YAML. Bare arguments are handed on one by one: among them a section for the environment is none."""
    found = map_editor(text)
    if found is None:
        return flag_editor(text)
    root = compose(text)
    holds = any(root.entry(name) is not None for name in (*_SECTIONS, "env_vars"))
    return found if holds else replace(found, takes=lambda edit: edit.framework != ENVIRONMENT)


READER = Reader(name=NAME, read=_read, keys=_keys, editor=_editor)
