"""Values of job files that are written as expressions."""

from __future__ import annotations

import ast

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
