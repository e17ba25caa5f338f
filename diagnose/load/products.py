"""Operations of matrix products by the shapes that PyTorch's profilers record of their operators (`record_shapes`)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# By operator, where the two factors of a product stand among its inputs (ATen native_functions.yaml, PyTorch 2.13). Those of which each
# calls another (aten::linear, aten::matmul) are left out: what they call is recorded too.
FACTORS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(
        ("aten::mm", "aten::bmm", "aten::_scaled_mm", "aten::_int_mm", "aten::_grouped_mm", "aten::_scaled_grouped_mm"), (0, 1)
    ),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm"), (1, 2)),
}
_GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm")
_SHAPES = msgspec.json.Decoder(list[object])


def operations(operator: str, shapes: bytes | str) -> int | None:
    """Floating-point operations (two per multiply-add) of a product, by the shapes of its inputs as JSON; None where they do not tell them,
    and of another operator.

    In a grouped product the groups share one dimension of a matrix, all of which is counted: rows that only pad it too.
    """
    if operator not in FACTORS:
        return None
    try:
        inputs = _SHAPES.decode(shapes)
    except (ValueError, RecursionError):
        return None
    first, second = FACTORS[operator]
    left, right = (_matrices(inputs[place]) if place < len(inputs) else None for place in (first, second))
    if left is None or right is None or left[2] != right[1]:
        return None
    if left[0] != right[0] and not (operator in _GROUPED and 1 in (left[0], right[0])):
        return None
    multiplied = left[1] * left[2] * right[2]
    return 2 * multiplied * (left[0] if left[0] == right[0] else 1)


def _matrices(shape: object) -> tuple[int, int, int] | None:
    """How many matrices there are, their rows and columns; None for another shape."""
    if not isinstance(shape, list) or not 2 <= len(shape) <= 3 or not all(type(extent) is int and extent > 0 for extent in shape):
        return None
    count, rows, columns = shape if len(shape) == 3 else (1, *shape)
    return count, rows, columns
