"""A device's clock that is off by a constant is told by what can't be, and put right; nothing else moves a time."""

import polars as pl
import pytest

from diagnose.knowledge.load import Knowledge
from diagnose.load.readers import load
from diagnose.measure.capture import Measured, measure
from diagnose.measure.clocks import TOLERATED_NS, Contradictions, contradictions, on_host_clock
from diagnose.measure.host import attribute
from diagnose.model.trace import Trace
from diagnose.model.vocabulary import FactValue
from fixtures.sample import NSYS, TORCH, unpack
from tests.builders.cases import for_each
from tests.builders.records import replace

NEAR_NS = 15_000  # a launch takes some µs before its kernel begins, and a wait some to return: so much of a shift contradicts nothing


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    """The demo's capture by both profilers."""
    paths = {name: tmp_path_factory.mktemp("demo") / name.removesuffix(".gz") for name in (NSYS, TORCH)}
    for name, path in paths.items():
        unpack(name, path)
    return {name: load(path) for name, path in paths.items()}


def off(trace: Trace, by: int) -> Trace:
    """All device operations later by so much (ns)."""
    return replace(trace, ops=trace.ops.with_columns(pl.col("start", "end") + by))


@pytest.fixture(scope="module")
def plain(demos: dict[str, Trace], knowledge: Knowledge) -> dict[str, Measured]:
    return {name: measure(trace, knowledge) for name, trace in demos.items()}


def said(one: Measured | Trace) -> dict[str, str]:
    return {entry.code: entry.detail for entry in one.ledger.entries}


def put_right(trace: Trace) -> tuple[dict[str, str], dict[str, FactValue]]:
    """What is said and found, without measuring all else."""
    moved, shifts = on_host_clock(trace, attribute(trace))
    return said(moved), dict(shifts.facts)


@for_each("name, by", (TORCH, -300_000), (NSYS, -300_000), (NSYS, 800_000))
def test_a_clock_that_is_off_leaves_the_stalls_as_they_are(
    name: str, by: int, demos: dict[str, Trace], plain: dict[str, Measured], knowledge: Knowledge
) -> None:
    assert "moved_clock" not in said(plain[name])
    found = measure(off(demos[name], by), knowledge)
    told = said(found)
    assert ("later" if by < 0 else "earlier") in told["moved_clock"]
    assert found.facts["clock_moved_ns"] == pytest.approx(abs(by), abs=NEAR_NS)
    assert found.facts["clock_apart_ns"] == plain[name].facts["clock_moved_ns"] == 0
    before, after = plain[name].devices[0], found.devices[0]
    for cause in ("launch_starved_ns", "blocking_ns"):
        was, now = (one.budget.per_step[cause].sum() for one in (before, after))
        assert now == pytest.approx(was, rel=0.02, abs=NEAR_NS * before.steps.frame.height), cause


def test_what_a_real_clock_does_moves_nothing(demos: dict[str, Trace]) -> None:
    told, _ = put_right(off(demos[NSYS], -TOLERATED_NS // 2))
    assert "moved_clock" not in told


WORK = {"start": pl.Int64, "end": pl.Int64, "stream": pl.Int64, "call_start": pl.Int64, "issued": pl.Int64}
WAITS = {"stream": pl.Int64, "begin": pl.Int64, "returned": pl.Int64}


def device(early: int, late: int, rows: int = 10, stray: int = 0) -> Contradictions:
    """Of ten launches 1 ms apart with a wait after each: kernels begin `early` ns before the call, and end `late` ns after the wait."""
    work, waits = [], []
    for n in range(rows):
        at, before = n * 10**6, stray if n == 0 else 0
        work.append({"stream": 7, "call_start": at, "issued": at + 10, "start": at - early - before, "end": at + 500_000 + late})
        waits.append({"stream": 7, "begin": at + 20, "returned": at + 500_000})
    return contradictions(pl.LazyFrame(work, schema=WORK), pl.DataFrame(waits, schema=WAITS))


def test_what_contradicts_is_measured_either_way() -> None:
    assert device(0, 0) == Contradictions()
    assert device(90_000, -90_000) == Contradictions(early_ns=90_000)
    assert device(-90_000, 90_000) == Contradictions(late_ns=90_000)
    assert [one.correction_ns for one in (device(90_000, 0), device(0, 90_000), device(90_000, 90_000))] == [90_000, -90_000, 0]


def test_a_few_rows_prove_nothing() -> None:
    assert device(0, 0, stray=10**9) == Contradictions()
    assert device(90_000, 90_000, rows=2) == Contradictions()
    assert device(90_000, 0, stray=10**9).early_ns == 90_000


def test_clocks_that_no_shift_puts_right_are_said(demos: dict[str, Trace]) -> None:
    trace = demos[NSYS]
    half = int(trace.ops["start"].median() or 0)  # type: ignore[arg-type]
    drifted = pl.when(pl.col("start") < half).then(pl.col("start", "end") - 300_000).otherwise(pl.col("start", "end") + 300_000)
    told, facts = put_right(replace(trace, ops=trace.ops.with_columns(drifted)))
    assert "clocks_disagree" in told
    assert "moved_clock" not in told
    assert facts["clock_moved_ns"] == 0
    assert facts["clock_apart_ns"] == pytest.approx(300_000, abs=NEAR_NS)


def test_without_launches_clocks_are_not_known(demos: dict[str, Trace]) -> None:
    trace = demos[NSYS]
    _, facts = put_right(replace(trace, calls=trace.calls.clear()))
    assert (facts["clock_moved_ns"], facts["clock_apart_ns"]) == (None, None)
