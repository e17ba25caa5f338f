"""How fast matrix products ran."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from diagnose.document.device import BucketTime
from diagnose.document.diagnosis import Diagnosis
from diagnose.pipeline import diagnose
from diagnose.render.reports.diagnosis import tables
from tests.builders.kineto import Event, call, kernel, operator

M, K, N = 4096, 1024, 2048
FLOP = 2 * M * K * N
SHAPES = {"Input Dims": [[M, K], [K, N]]}


def _product(at: float, number: int, *kernels: tuple[str, float], thread: int = 11, **args: object) -> list[Event]:
    """An operator with its launches; the kernels begin 40 µs later and last as long as they say."""
    events = [operator(at, 9, tid=thread, **args)]
    begin = at + 40
    for place, (name, lasting) in enumerate(kernels):
        correlation = 10 * number + place
        events += [
            call(at + 1 + place, 0.5, correlation=correlation, tid=thread),
            kernel(begin, lasting, name=name, correlation=correlation),
        ]
        begin += lasting
    return events


def _diagnosed(folder: Path, events: list[Event]) -> Diagnosis:
    path = folder / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return diagnose([path])


GEMM, REDUCE, ADD = "nvjet_tst_128x128_TNT", "cublasLt::splitKreduce_kernel<32, 16>", "at::native::vectorized_elementwise_kernel<4>"


def _row(document: Diagnosis, bucket: str) -> BucketTime:
    return next(one for one in document.buckets if one.bucket == bucket)


@pytest.fixture
def document(tmp_path: Path) -> Diagnosis:
    """Ten products of 30 + 2 µs, ten of 20 µs without shapes, and additions; launches of another thread lie inside the products' times."""
    events: list[Event] = []
    for number in range(10):
        at = 1000.0 + 200 * number
        events += _product(at, 3 * number, (GEMM, 30), (REDUCE, 2), **SHAPES)
        events += _product(at + 2, 3 * number + 1, (ADD, 5), thread=12, name="aten::add")
        events += _product(at + 80, 3 * number + 2, (GEMM, 20))
    return _diagnosed(tmp_path, events)


def test_the_rate_is_of_the_products_with_shapes_and_of_all_that_they_launched(document: Diagnosis) -> None:
    found = _row(document, "dense_gemm").products
    assert found is not None
    assert (found.flop, found.ns) == (10 * FLOP, 10 * 32_000)
    assert _row(document, "elementwise").products is None


def test_the_table_tells_it_where_most_of_the_bucket_is_known(document: Diagnosis) -> None:
    (gemm, other) = tables.buckets(document, 0, 0).rows[:2]
    assert gemm.texts["#TFLOP/s"] == f"{FLOP / 32e-6 / 1e12:,.0f}"
    assert other.texts["#TFLOP/s"] == "–"
    few = structs.replace(document, buckets=tuple(structs.replace(one, work_ns=3 * one.work_ns) for one in document.buckets))
    assert "#TFLOP/s" not in tables.buckets(few, 0, 0).rows[0].texts, "a third of the bucket's work is no rate of the bucket"
    tiny = structs.replace(
        document,
        buckets=tuple(structs.replace(one, products=one.products and structs.replace(one.products, flop=1e3)) for one in document.buckets),
    )
    assert tables.buckets(tiny, 0, 0).rows[0].texts["#TFLOP/s"] == "< 0.1"
    assert document.efficiency is not None
    peak = structs.replace(document, efficiency=structs.replace(document.efficiency, peak_tflops=1000.0))
    assert tables.buckets(peak, 0, 0).rows[0].texts["#TFLOP/s"] == f"{FLOP / 32e-6 / 1e12:,.0f} ({FLOP / 32e-6 / 1e15:.0%})".replace(
        "%", " %"
    )


def test_without_shapes_nothing_is_told(tmp_path: Path) -> None:
    plain = _diagnosed(tmp_path, [event for number in range(10) for event in _product(1000 + 100 * number, number, (GEMM, 30))])
    assert _row(plain, "dense_gemm").products is None
    assert "#TFLOP/s" not in tables.buckets(plain, 0, 0).rows[0].texts
