"""Values of job files in the types of their settings."""

from __future__ import annotations

import ast
import math
import re

from diagnose.job.model import Origin, SettingValue
from diagnose.knowledge.settings import SettingSpec, version_number

_INTEGER = re.compile(r"-?\d{1,15}")
_DECIMAL = re.compile(r"-?(\d{1,15}(\.\d{0,15})?|\.\d{1,15})([eE]-?\d{1,2})?")
_TRUE, _FALSE = frozenset({"1", "t", "true", "y", "yes"}), frozenset({"0", "f", "false", "n", "no"})
MAX_ITEMS = 10_000  # no model has more layers; a longer one is a mistake or an attack


def list_expression(raw: object) -> tuple[str, ...] | None:
    """Numbers as text: a list of them, one number, or a sum of repeated lists such as ([0]*3+[1]*58); None for anything else."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        return (str(raw),)
    if isinstance(raw, list):
        whole = all(isinstance(item, int) and not isinstance(item, bool) for item in raw)
        return tuple(str(item) for item in raw) if whole and len(raw) <= MAX_ITEMS else None
    if not isinstance(raw, str) or len(raw) > 10 * MAX_ITEMS:
        return None
    try:
        tree = ast.parse(raw.strip(), mode="eval").body
        numbers = _evaluated(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tuple(str(number) for number in numbers)


def _evaluated(node: ast.expr) -> list[int]:
    """Raises ValueError for what is no list of integers."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _short(_evaluated(node.left), _evaluated(node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        if isinstance(node.left, ast.Constant):
            return _repeated(_evaluated(node.right), _integer(node.left))
        return _repeated(_evaluated(node.left), _integer(node.right))
    if isinstance(node, ast.List | ast.Tuple):
        return _short([_integer(item) for item in node.elts], [])
    return [_integer(node)]


def _integer(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError


def _repeated(items: list[int], times: int) -> list[int]:
    if times < 0 or len(items) * times > MAX_ITEMS:
        raise ValueError
    return items * times


def _short(left: list[int], right: list[int]) -> list[int]:
    if len(left) + len(right) > MAX_ITEMS:
        raise ValueError
    return left + right


def typed(raw: object, spec: SettingSpec, origin: Origin) -> SettingValue | None:
    """A file's value in the setting's type; None where it has another.

    Flags, options and environment variables are text by nature, so a number or a switch may be written as text there.
    """
    match spec.type:
        case "bool":
            return boolean(raw, origin)
        case "int" | "float":
            return _number(raw, spec.type, origin)
        case "list":
            return list_expression(raw) if spec.expression else _list(raw, spec, origin)
        case "version":
            return raw if isinstance(raw, str) and _is_version(raw) else None
        case "text":
            found = _stages(raw, spec) if spec.nested and isinstance(raw, list) else raw
            return found if isinstance(found, str) else None


def _is_version(text: str) -> bool:
    try:
        version_number(text)
    except ValueError:
        return False
    return True


def boolean(raw: object, origin: Origin) -> bool | None:
    """A switch; where values are text, the words that argument parsers and shells take for one."""
    if isinstance(raw, bool):
        return raw
    if origin == "env":
        return {"0": False, "1": True}.get(str(raw))
    if origin == "key" or not isinstance(raw, str):
        return None
    word = raw.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _number(raw: object, kind: str, origin: Origin) -> int | float | None:
    if isinstance(raw, str) and origin != "key":
        text = raw.strip()
        if _INTEGER.fullmatch(text):
            raw = int(text)
        elif kind == "float" and _DECIMAL.fullmatch(text):
            raw = float(text)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not -(2**63) <= raw < 2**63:  # NaN and infinities fail here too
        return None
    if kind == "int":
        return raw if isinstance(raw, int) else None
    return float(raw) if math.isfinite(raw) else None


def _list(raw: object, spec: SettingSpec, origin: Origin) -> tuple[str, ...] | None:
    if isinstance(raw, str) and (spec.scalar or origin in ("flag", "option")):
        return tuple(part for part in re.split(r"[\s,\[\]'\"]+", raw) if part)
    if isinstance(raw, list) and all(isinstance(item, str | int) and not isinstance(item, bool) for item in raw):
        return tuple(str(item) for item in raw)
    if spec.scalar and isinstance(raw, int) and not isinstance(raw, bool):
        return (str(raw),)
    return None


def _stages(raw: list[object], spec: SettingSpec) -> str | None:
    """A list of stages, each a list of layers, in Megatron's letters: [[embedding, decoder], [decoder, loss]] is Et|tL."""
    if not all(isinstance(stage, list) and all(isinstance(layer, str) for layer in stage) for stage in raw):
        return None
    return "|".join("".join(spec.aliases.get(str(layer), str(layer)) for layer in stage) for stage in raw if isinstance(stage, list))
