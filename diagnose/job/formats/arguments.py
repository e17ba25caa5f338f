"""Megatron-LM's arguments inside the YAML of programs that start it: FlagScale's groups, MindSpeed RL's, and the modules of AMD's Primus.

They hand each value on as the argument of its name, whatever group it stands in; what their own base files and forks add is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from diagnose.job.formats import hydra, megatron_lm, torchtitan
from diagnose.job.formats.reader import Reader, keys_of, world_size
from diagnose.job.model import UNRESOLVED, Leaf, Parsed
from diagnose.job.text import JobText, Lines, Tree, leaves_of
from diagnose.knowledge.settings import flag_name

NAME = "megatron-arguments"
_MOST_BASES = 8
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_][A-Z0-9_]*):(?P<value>[^{}]*)\}")
_SYSTEM = frozenset({"precision", "checkpoint", "logging", "tensor_model_parallel_size", "pipeline_model_parallel_size"})
_FOLDER = "primus/configs/{kind}/{framework}/{name}"


def _read(text: JobText) -> Parsed | None:
    tree = text.yaml
    if tree is None:
        return None
    module = _module(tree.data)
    if module is not None:
        return _of_primus(text, *module)
    if all(isinstance(tree.data.get(name), dict) for name in _ACTOR):
        return _of_mindspeed_rl(text, tree)
    named = _training(tree.data)
    inner = text if named is None else text.beside(f"train/{named}.yaml")
    if inner is None or inner.yaml is None or not _is_flagscale(inner.yaml.data):
        return None
    leaves = [leaf for leaf in leaves_of(inner.yaml.data, inner.yaml.lines) if leaf.key.partition(".")[0] in ("system", "model", "data")]
    given = [_argument(leaf if named is None else leaf.moved(inner.source)) for leaf in leaves]
    if named is not None:
        given += _ranks(list(leaves_of(tree.data, tree.lines)))
    return Parsed(format=NAME, leaves=tuple(_without_denials(given, text)), notes=(*tree.notes, _FORK), rules=tree.rules)


_FORK = "FlagScale's own Megatron-LM decides what this file leaves out"


def _is_flagscale(data: Mapping[Any, object]) -> bool:
    system, model = data.get("system"), data.get("model")
    return isinstance(system, dict) and isinstance(model, dict) and bool(_SYSTEM & system.keys())


def _training(data: Mapping[Any, object]) -> str | None:
    """The file of the training that an experiment of FlagScale names (`defaults: [train: 7b]`)."""
    given = data.get("defaults")
    if not isinstance(data.get("experiment"), dict) or not isinstance(given, list):
        return None
    return next((str(one["train"]) for one in given if isinstance(one, dict) and "train" in one), None)


def _ranks(leaves: list[Leaf]) -> Iterator[Leaf]:
    sizes = [leaf for leaf in leaves if leaf.key in ("experiment.runner.nnodes", "experiment.runner.nproc_per_node")]
    yield from world_size(sizes, "experiment.runner.nnodes × nproc_per_node")


def _without_denials(leaves: list[Leaf], text: JobText) -> Iterator[Leaf]:
    """Leaves without those that say false where another name of the same argument says more: a false one is left out of the command."""
    names = {flag_name(flag): name for name, spec in text.table.specs.items() for flag in (name, *spec.keys_in(megatron_lm.NAME))}
    said = {names[leaf.key] for leaf in leaves if leaf.key in names and leaf.value not in (False, None)}
    yield from (leaf for leaf in leaves if leaf.value is not False or names.get(leaf.key) not in said)


def _argument(leaf: Leaf) -> Leaf:
    """A value under the name of the argument that it becomes: groups only order the file, and false leaves the argument out."""
    value = leaf.value
    if isinstance(value, str) and (found := _VARIABLE.fullmatch(value)):
        value = _plain(found["value"])
    if isinstance(value, str) and "${" in value:
        value = f"{UNRESOLVED} = {value[:40]}"
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # as on a command line, where a switch may be 1
    return replace(leaf, key=flag_name(leaf.key.rpartition(".")[2]), value=value)


def _plain(text: str) -> object:
    """What the fallback of ${NAME:fallback} stands for."""
    if re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    return {"null": None, "None": None, "true": True, "false": False, "True": True, "False": False}.get(text, text)


# --- MindSpeed RL -----------------------------------------------------------------------------------------------------

_ACTOR = ("megatron_training", "actor_config")


def _of_mindspeed_rl(text: JobText, tree: Tree) -> Parsed:
    """The actor's arguments over those of every role, over the model that they name (cli/train_grpo.py, config_cls/base_config.py)."""
    over = [leaf for leaf in leaves_of(tree.data, tree.lines) if leaf.key.partition(".")[0] in _ACTOR]
    below, said = _model_beside(next((leaf.value for leaf in over if leaf.key.endswith(".model")), None), text)
    given = {leaf.key: leaf for leaf in map(_argument, [*below, *over]) if leaf.key != "model"}  # the actor's come last
    devices = next((leaf for leaf in leaves_of(tree.data, tree.lines) if leaf.key == "rl_config.actor_resource.num_npus"), None)
    ranks = [] if devices is None or not isinstance(devices.value, int) else [replace(devices, key="world_size")]
    leaves = (*_without_denials(list(given.values()), text), *ranks)
    return Parsed(format=NAME, leaves=leaves, notes=(*tree.notes, *said, _MINDSPEED), rules=tree.rules)


def _model_beside(name: object, text: JobText) -> tuple[list[Leaf], list[str]]:
    """The arguments in model/NAME.yaml under the name of the model."""
    inner = text.beside(f"model/{name}.yaml")
    held = None if inner is None or inner.yaml is None else inner.yaml.data.get(name)
    if inner is None or inner.yaml is None or not isinstance(held, dict):
        return [], [f"model/{name}.yaml, which {text.source} lies on, is not beside it: what it sets is not known"]
    return [leaf.moved(inner.source) for leaf in leaves_of(held, inner.yaml.lines, below=(str(name),))], []


_MINDSPEED = "MindSpeed's own Megatron-LM decides what this file leaves out"

# --- Primus -----------------------------------------------------------------------------------------------------------


def _module(data: Mapping[Any, object]) -> tuple[str, Mapping[Any, object]] | None:
    """The module of a Primus experiment that trains, with its name."""
    modules = data.get("modules")
    found = ((str(key), one) for key, one in modules.items() if isinstance(one, dict)) if isinstance(modules, dict) else ()
    return next(
        ((key, one) for key, one in found if one.get("framework") in ("megatron", "torchtitan", "megatron_bridge") and "overrides" in one),
        None,
    )


def _of_primus(text: JobText, name: str, module: Mapping[Any, object]) -> Parsed:
    """The overrides of an experiment, over the model and the trainer that it names where Primus lies around it (primus/core/config)."""
    framework = str(module["framework"])
    lines: Lines = {} if text.yaml is None else text.yaml.lines
    given = module.get("overrides")
    over = list(leaves_of(given if isinstance(given, dict) else {}, lines, below=("modules", name, "overrides")))
    notes = [] if text.yaml is None else list(text.yaml.notes)
    if framework == "torchtitan":
        told = tuple(replace(leaf, value=_resolved(leaf.value)) for leaf in over)
        return Parsed(format=torchtitan.NAME, leaves=told, notes=(*notes, _LAID), open_ended=True)
    if framework == "megatron_bridge":  # arguments of a recipe, and what is laid over its model
        model = {} if text.yaml is None else text.yaml.data.get("model")
        over += leaves_of(model if isinstance(model, dict) else {}, lines, below=("model",))
        given = tuple(replace(leaf, key=_OF_RECIPES.get(leaf.key, leaf.key), value=_resolved(leaf.value)) for leaf in over)
        return Parsed(format=hydra.NAME, leaves=given, notes=(*notes, f"the recipe of {module.get('model')} decides the rest", _LAID))
    leaves = {leaf.key: leaf for leaf in map(_argument, over)}
    for kind, key in (("models", "model"), ("modules", "config")):
        file = _resolved(module.get(key))
        below = None if not isinstance(file, str) else _based(text, kind, framework, file)
        if below is None:
            notes.append(f"{file}, which {text.source} lies on, is not beside it: what it sets is not known")
        else:
            leaves = {**below, **leaves}
    return Parsed(format=NAME, leaves=tuple(_without_denials(list(leaves.values()), text)), notes=(*notes, _LAID))


_OF_RECIPES = {"precision_config": "mixed_precision", "packed_sequence": "enable_offline_packing", "peft": "peft_type"}
_LAID = "what Primus and its patches add to this file is not known"


def _resolved(value: object) -> object:
    """A value with the fallbacks of its variables put in; unresolved where one has none."""
    if not isinstance(value, str) or "${" not in value:
        return value
    text = _VARIABLE.sub(lambda found: found["value"], value)
    return f"{UNRESOLVED} = {value[:40]}" if "${" in text else _plain(text) if _VARIABLE.fullmatch(value) else text


def _based(text: JobText, kind: str, framework: str, name: str, level: int = 0) -> dict[str, Leaf] | None:
    """The values of one of Primus' own files over those of the files that it extends; None where it is not there."""
    inner = text.beside(_FOLDER.format(kind=kind, framework=framework, name=name)) if level < _MOST_BASES else None
    if inner is None or inner.yaml is None:
        return None
    found: dict[str, Leaf] = {}
    bases = inner.yaml.data.get("extends")
    for base in bases if isinstance(bases, list) else []:
        found |= _based(text, kind, framework, str(base), level + 1) or {}
    own = [leaf for leaf in leaves_of(inner.yaml.data, inner.yaml.lines) if leaf.key != "extends"]
    return found | {leaf.key: leaf for leaf in (_argument(one.moved(inner.source)) for one in own)}


READER = Reader(name=NAME, read=_read, keys=lambda spec, table: keys_of(megatron_lm.NAME, spec, table))
