"""XTuner's configurations: a Python file, never run, that builds a TrainerConfig; sizes are its model's class's, where that lies beside it.

Sources: xtuner/v1/train/trainer.py, xtuner/v1/config/fsdp.py, xtuner/v1/model, InternLM/xtuner b934f46209.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from diagnose.job.formats.reader import Reader
from diagnose.job.model import UNRESOLVED, Leaf, Parsed
from diagnose.job.text import JobText

NAME = "xtuner"

_TRAINER = "TrainerConfig"
_PACKAGE = "xtuner."
_PARTS = ("model_cfg", "fsdp_cfg", "dataloader_cfg")
_TEXT = "text_config"
_MAX_BASES = 6
_DEFAULTS: Mapping[str, object] = {  # FSDPConfig's and TrainerConfig's own
    "fsdp_cfg.tp_size": 1,
    "fsdp_cfg.ep_size": 1,
    "fsdp_cfg.reshard_after_forward": True,
    "fsdp_cfg.cpu_offload": False,
    "fsdp_cfg.recompute_ratio": 1.0,
    "sp_size": 1,
}


def _read(text: JobText) -> Parsed | None:
    imports = () if text.python is None else (node.module or "" for node in text.python.body if isinstance(node, ast.ImportFrom))
    if text.python is None or not any(module.startswith(_PACKAGE) for module in imports):
        return None
    names = _assigned(text.python)
    trainers = [node for node in names.values() if isinstance(node, ast.Call) and _name(node.func) == _TRAINER]
    if len(trainers) != 1:
        return None  # of several none is chosen, and what trains by reinforcement is another class
    leaves = list(_of_call(trainers[0], names, ""))
    model = _call(_keyword(trainers[0], "model_cfg"), names)
    sizes = [] if model is None else list(_of_class(text, _name(model.func)))
    leaves += sizes
    if _call(_keyword(trainers[0], "fsdp_cfg"), names) is not None:
        leaves += [Leaf(key=key, shown=key, value=value, place="XTuner's default") for key, value in _DEFAULTS.items()]
    named = "its model" if model is None else _name(model.func)
    notes = [] if sizes else [f"{named} is not in a file beside {text.source}: the model's sizes are not known"]
    return Parsed(format=NAME, leaves=tuple(_settled(leaves)), notes=tuple(notes), open_ended=not sizes)


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """What the names of a module stand for that are set once, and under no condition."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(node.value if node in tree.body else None)
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0] is not None}


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def _call(node: ast.expr | None, names: Mapping[str, ast.expr]) -> ast.Call | None:
    """The configuration that a value is, itself or under a name."""
    node = names.get(node.id) if isinstance(node, ast.Name) else node
    return node if isinstance(node, ast.Call) and _name(node.func).endswith("Config") else None


def _value(node: ast.expr, names: Mapping[str, ast.expr], level: int = 0) -> object:
    """A literal, that of a name, or a keyword of what a name was made with; anything else only the process knows."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names and level < _MAX_BASES:
        return _value(names[node.id], names, level + 1)
    if isinstance(node, ast.Attribute) and _name(node) in ("bfloat16", "float16", "float32"):
        return node.attr
    made = _call(node.value, names) if isinstance(node, ast.Attribute) else None
    given = None if made is None or not isinstance(node, ast.Attribute) else _keyword(made, node.attr)
    return _value(given, names, level + 1) if given is not None and level < _MAX_BASES else f"{UNRESOLVED} = {ast.unparse(node)[:40]}"


def _of_call(call: ast.Call, names: Mapping[str, ast.expr], below: str) -> Iterator[Leaf]:
    """The keywords of a call, with those of the parts of a trainer."""
    for one in call.keywords:
        if one.arg is None:
            continue
        part = _call(one.value, names) if below or one.arg in _PARTS else None
        if part is not None:
            yield from _of_call(part, names, f"{below}{one.arg}.")
        elif below or one.arg not in _PARTS:
            key = f"{below}{one.arg}"
            yield Leaf(key=key, shown=key, value=_value(one.value, names), known=True, line=one.value.lineno)


def _of_class(text: JobText, name: str, level: int = 0) -> Iterator[Leaf]:
    """The fields of a model's class, over those of its bases, where its file is at hand; of one key the first counts."""
    found = _defined(text, name)
    if found is None or level > _MAX_BASES:
        return
    at, node = found
    for one in node.body:
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name) or one.value is None:
            continue
        key = f"model_cfg.{one.target.id}"
        place = f"line {one.lineno} of {at.source}"
        if one.target.id == _TEXT and isinstance(one.value, ast.Call):  # of a model with an encoder the language model's sizes
            yield from _of_class(at, _name(one.value.func), level + 1)
        elif isinstance(one.value, ast.Call) and _name(one.value.func).endswith("Config"):
            yield from (replace(leaf, line=None, place=place) for leaf in _of_call(one.value, {}, f"{key}."))
        elif isinstance(one.value, ast.Constant):
            yield Leaf(key=key, shown=key, value=one.value.value, known=True, place=place)
    for base in node.bases:
        yield from _of_class(at, _name(base), level + 1)


def _defined(text: JobText, name: str, level: int = 0) -> tuple[JobText, ast.ClassDef] | None:
    """The class of a name, in this file or in the one that it is imported from, over packages that hand it on."""
    body = [] if text.python is None else text.python.body
    node = next((one for one in body if isinstance(one, ast.ClassDef) and one.name == name), None)
    if node is not None:
        return text, node
    for one in body if level < _MAX_BASES else ():
        for alias in one.names if isinstance(one, ast.ImportFrom) else ():
            if isinstance(one, ast.ImportFrom) and (alias.asname or alias.name) == name and one.module:
                path = "../" * max(one.level - 1, 0) + one.module.replace(".", "/")
                inner = text.beside(f"{path}.py") or text.beside(f"{path}/__init__.py")
                return None if inner is None else _defined(inner, alias.name, level + 1)
    return None


def _settled(leaves: Iterable[Leaf]) -> Iterable[Leaf]:
    """The first value of each key: what the trainer is told, then the class, then its bases, then defaults."""
    found: dict[str, Leaf] = {}
    for leaf in leaves:
        found.setdefault(leaf.key, leaf)
    return found.values()


READER = Reader(name=NAME, read=_read)
