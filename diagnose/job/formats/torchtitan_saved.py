"""Configurations that torchtitan saved or printed: whole, with every layer of the model.

`debug.save_config_file` writes JSON into the dump folder, `debug.print_config` (of 2025: `job.print_config`, `job.print_args`) puts the
same into the log, and `python -m torchtitan.config.manager` shows the objects as rich or Python print them (trainer.py, config/manager.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from diagnose.job.model import UNRESOLVED, Leaf, job_error, positive
from diagnose.job.text import PRINTED, JobText, KeyPath, Tree, leaves_of, line_of

_MODEL = ("model_spec", "model")
_GROUPS = "optimizer.param_groups"


def saved(text: JobText) -> Tree | None:
    """The configuration in a text that torchtitan saved or printed; None for another text. Raises JobFileError."""
    tree = _printed(text) if text.syntax == "printed" else text.yaml
    return tree if tree is not None and _is_saved(tree.data) else None


def _is_saved(data: Mapping[object, object]) -> bool:
    parallelism = data.get("parallelism")
    return (
        isinstance(data.get("training"), dict)
        and isinstance(parallelism, dict)
        and any(str(key).endswith("_degree") for key in parallelism)
    )


def saved_leaves(tree: Tree) -> Iterator[Leaf]:
    """The values of such a configuration. Of the model's layers their sizes are read, where all layers agree."""
    for leaf in leaves_of(tree.data, tree.lines):
        if not leaf.key.startswith("model_spec.model."):
            yield leaf
    policy = tree.data.get("activation_checkpoint")
    if isinstance(policy, dict) and "mode" not in policy:  # the fields of its class, which is not named: FullAC has none of its own
        own = {"force_recompute_mm_shapes_by_fqns": "selective", "memory_budget": "memory_budget"}
        mode = next((own[key] for key in own if key in policy), "full")
        yield Leaf(
            key="activation_checkpoint.mode",
            shown="activation_checkpoint",
            value=mode,
            line=tree.lines.get(("activation_checkpoint",)),
        )
    groups = _at(tree.data, _GROUPS)
    names = {_at(one, "optimizer_name") for one in groups} if isinstance(groups, list) else set()
    if len(names) == 1:
        line = line_of(tree.lines, tuple(_GROUPS.split(".")))
        yield Leaf(key="optimizer.name", shown=f"{_GROUPS}.0.optimizer_name", value=names.pop(), line=line)
    model = _at(tree.data, "model_spec.model")
    if isinstance(model, dict):
        for key, value, path in _sizes(model):
            yield Leaf(key=key, shown=".".join((*_MODEL, *path)), value=value, line=line_of(tree.lines, (*_MODEL, *path)))


def saved_notes(tree: Tree) -> tuple[str, ...]:
    """What such a configuration can't tell: of a layer's parts the fields are in it, not the classes."""
    if _at(tree.data, "model_spec.model") is None:
        return ()
    return ("whether layers compute in FP8 or FP4 is not known: a saved configuration does not hold their classes",)


# --- the model --------------------------------------------------------------------------------------------------------

_Size = tuple[str, object, KeyPath]  # a setting, its value, and where it stands below the model


def _sizes(model: Mapping[str, object]) -> Iterator[_Size]:
    for key, name in (("hidden_size", "dim"), ("num_layers", "n_layers"), ("num_attention_heads", "n_heads")):
        if positive(model.get(name)):
            yield key, model[name], (name,)
    if positive(model.get("vocab_size")):  # torchtitan's output layer is as large as the vocabulary
        yield "vocab_size", model["vocab_size"], ("vocab_size",)
        yield "padded_vocab_size", model["vocab_size"], ("vocab_size",)
    held = model.get("layers")
    layers = [one for one in (held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()) if isinstance(one, dict)]
    if not layers:
        return
    yield "num_layers", len(layers), ("layers",)
    predicted = model.get("mtp_layers")
    if isinstance(predicted, list):
        yield "mtp_num_layers", len(predicted), ("mtp_layers",)
    yield from _of_attention(layers)
    yield from _of_experts(layers)


def _of_attention(layers: Sequence[Mapping[str, object]]) -> Iterator[_Size]:
    latent = all(_at(one, "attention.kv_lora_rank") for one in layers)
    names = {"num_attention_heads": "n_heads", "num_query_groups": "n_kv_heads", "kv_channels": "head_dim"}
    if latent:
        yield "multi_latent_attention", True, ("layers",)
        names = {
            "num_attention_heads": "n_heads",
            "q_lora_rank": "q_lora_rank",
            "kv_lora_rank": "kv_lora_rank",
            "qk_head_dim": "qk_nope_head_dim",
            "qk_pos_emb_head_dim": "qk_rope_head_dim",
            "v_head_dim": "v_head_dim",
        }
    yield from _common(layers, {key: f"attention.{name}" for key, name in names.items()})
    if latent and all(_at(one, "attention.q_lora_rank") == 0 for one in layers):
        yield "q_lora_rank", 0, ("layers",)  # queries are not compressed
    windows = [window for one in layers if (window := _at(one, "attention.sliding_window_size"))]
    if windows:
        yield "window_size", [str(windows[0])], ("layers",)


def _of_experts(layers: Sequence[Mapping[str, object]]) -> Iterator[_Size]:
    """Sizes of dense and of routed MLPs, and which layers have experts."""
    dense = [one for one in layers if isinstance(one.get("feed_forward"), dict)]
    sparse = [one for one in layers if isinstance(one.get("moe"), dict)]
    yield from _common(dense, {"ffn_hidden_size": "feed_forward.w1.out_features"})
    if _all_told(dense, "feed_forward.w3") and _all_told(sparse, "moe.routed_experts.inner_experts.param_init.w3_EFD"):
        yield "gated_linear_unit", True, ("layers",)
    if not sparse:
        return
    experts = {
        "num_moe_experts": "moe.num_experts",
        "moe_router_topk": "moe.routed_experts.token_dispatcher.top_k",
        "moe_ffn_hidden_size": "moe.routed_experts.inner_experts.hidden_dim",
        "moe_shared_expert_intermediate_size": "moe.shared_experts.w1.out_features",
    }
    yield from _common(sparse, experts)
    yield "moe_layer_freq", [int(isinstance(one.get("moe"), dict)) for one in layers], ("layers",)
    exchanges = {_exchange(_at(one, "moe.routed_experts.token_dispatcher")) for one in sparse}
    told = exchanges.pop() if len(exchanges) == 1 else None
    if told or _all_told(sparse, "moe.routed_experts.token_dispatcher"):
        yield "model_spec.moe_comm_backend", told or f"{UNRESOLVED} = the class of the token dispatcher", ("layers",)


_EXCHANGES: Mapping[str, str] = {
    "non_blocking_capacity_factor": "hybridep",
    "cudagraphable": "deepep",
    "device": "minimal_async_ep",
}  # fields that the configuration of one class of dispatchers alone has (models/common/token_dispatcher.py)


def _exchange(dispatcher: object) -> str | None:
    """The backend of a dispatcher by the fields of its class, which is not named; None where they leave it open."""
    if not isinstance(dispatcher, dict):
        return None
    own = next((_EXCHANGES[field] for field in _EXCHANGES if field in dispatcher), None)
    return own or ("standard" if {"num_experts", "top_k"} <= dispatcher.keys() <= {"num_experts", "top_k", "pad_multiple"} else None)


def _common(layers: Sequence[Mapping[str, object]], names: Mapping[str, str]) -> Iterator[_Size]:
    """Each size that all of `layers` say alike."""
    for key, name in names.items():
        values = [_at(one, name) for one in layers]
        if values and positive(values[0]) and values.count(values[0]) == len(values):
            yield key, values[0], ("layers",)


def _all_told(layers: Sequence[Mapping[str, object]], name: str) -> bool:
    return all(_at(one, name) is not None for one in layers)


def _at(node: object, name: str) -> object:
    """What stands under a dotted name; None where nothing does."""
    for key in name.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


# --- what is printed --------------------------------------------------------------------------------------------------

_PART = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|<[^<>]*(?:<[^<>]*>[^<>]*)*>|[(\[{]|[)\]}]""", re.DOTALL)
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None}


def _printed(text: JobText) -> Tree:
    """The last configuration that a log or a terminal shows, on the lines on which it stands there."""
    *_, found = PRINTED.finditer(text.text)
    rank = text.text[found.start() : found.end()].partition("[titan]")
    own = rank[0] if rank[1] else ""  # torchrun puts the rank before every line of a process
    first, *rest = text.text[found.end() :].split("\n")
    lines = [line.removeprefix(own) if line.startswith(own) else "" for line in rest]
    before = "\n" * text.text.count("\n", 0, found.end())
    shown = _expression("\n".join((first, *lines)))
    try:
        node = ast.parse(f"({before}{shown})", mode="eval").body
        at: dict[KeyPath, int] = {}
        data = _value(node, (), at.setdefault)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = f"holds a configuration in line {len(before) + 1} that can't be read: {str(error)[:100]}"
        raise job_error(text.source, what, "Give the file that torchtitan writes with debug.save_config_file.") from error
    return Tree(data=data if isinstance(data, dict) else {}, lines=at)


def _expression(shown: str) -> str:
    """The text up to the bracket that closes its first one. Objects without a value of their own are None; strings keep to one line."""
    parts: list[str] = []
    depth = end = 0
    for found in _PART.finditer(shown):
        part = found[0]
        parts += [shown[end : found.start()], _plain(part)]
        end = found.end()
        depth += (part in "([{") - (part in ")]}")
        if depth == 0 and part in ")]}":
            return "".join(parts)
    return shown  # cut: Python says what is missing


def _plain(part: str) -> str:
    broken = "\n" * part.count("\n")
    return f"None{broken}" if part.startswith("<") else part.replace("\n", "") + broken


def _value(node: ast.expr, path: KeyPath, seen: Callable[[KeyPath, int], object]) -> object:
    """The plain value of an expression: an object is the map of its fields, a list keeps its order; what can't be known is None."""
    seen(path, node.lineno)
    if isinstance(node, ast.Call):
        return {one.arg: _value(one.value, (*path, one.arg), seen) for one in node.keywords if one.arg is not None}
    if isinstance(node, ast.Dict):
        keys = [(str(key.value) if isinstance(key, ast.Constant) else "", value) for key, value in zip(node.keys, node.values, strict=True)]
        return {key: _value(value, (*path, key), seen) for key, value in keys}
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_value(one, (*path, str(place)), seen) for place, one in enumerate(node.elts)]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int | float) else None
    return _WORDS.get(node.id) if isinstance(node, ast.Name) else None
