"""Operations of matrix products by recorded shapes."""

import json
from pathlib import Path

import polars as pl

from diagnose.load.conform import conform
from diagnose.load.products import FACTORS, operations
from diagnose.load.torch_json import read
from tests.builders.cases import for_each
from tests.builders.kineto import call, document, kernel, operator

M, K, N, G = 96, 64, 32, 4


@for_each(
    "name, shapes, expected",
    ("aten::mm", [[M, K], [K, N]], 2 * M * K * N),
    ("aten::addmm", [[N], [M, K], [K, N], [], []], 2 * M * K * N),
    ("aten::bmm", [[G, M, K], [G, K, N]], 2 * G * M * K * N),
    ("aten::baddbmm", [[G, M, N], [G, M, K], [G, K, N], [], []], 2 * G * M * K * N),
    ("aten::_scaled_mm", [[M, K], [K, N], [], []], 2 * M * K * N),
    ("aten::_grouped_mm", [[M, K], [G, K, N], [G]], 2 * M * K * N),  # the rows are shared out among the groups
    ("aten::_grouped_mm", [[K, M], [M, N], [G]], 2 * M * K * N),  # gradients of weights: the groups share what is summed over
    ("aten::mm", [[M, K], [N, K]], None),
    ("aten::bmm", [[1, M, K], [G, K, N]], None),  # only groups share a matrix
    ("aten::mm", [[M, K]], None),
    ("aten::mm", [[M, 0], [0, N]], None),
    ("aten::mm", [[M, K], "?"], None),
    ("aten::mm", [[M, 2.5], [2.5, N]], None),
    ("aten::mm", {"a": 1}, None),
)
def test_two_operations_per_multiply_add_where_the_shapes_fit(name: str, shapes: object, expected: int | None) -> None:
    assert name in FACTORS
    assert operations(name, json.dumps(shapes).encode()) == expected


def test_damaged_shapes_and_operators_that_call_a_product_are_not_counted() -> None:
    assert operations("aten::mm", b"[[1, 2], [2") is None
    assert not FACTORS.keys() & {"aten::linear", "aten::matmul", "aten::add"}


def test_pytorch_s_shapes_reach_the_ranges(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[M, K], [K, N]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    events = [operator(0, 50, name="aten::matmul", **shapes), operator(1, 9, **shapes), operator(20, 9), call(2, 1), kernel(5, 9)]
    path = tmp_path / "t.json"
    path.write_bytes(document(events))
    ranges = conform(read(path, display_name="t")).ranges.sort("start")
    assert ranges["flop"].to_list() == [None, 2 * M * K * N, None]
    damaged = document(events).replace(b'"ts": 1,', b'"ts": NaN, "ts": 1,')  # event by event then, where shapes are not read
    path.write_bytes(damaged)
    assert conform(read(path, display_name="t")).ranges.sort("start").select(pl.col("flop").is_null().sum()).item() >= 2
