"""The graded cases of Megatron-Bridge's trace-analysis skill (evals/evals.json); docs/graded-cases.md lists them."""

from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.load.trainer_log import load_specs, logged_run
from diagnose.model.vocabulary import FactValue
from diagnose.reason.findings import find
from diagnose.reason.walls import bounds, verdict
from tests.builders.facts import BOOK, facts
from tests.builders.simulated import document

LINE = " [2026-11-01 10:00:00] iteration {at:8d}/     500 | consumed samples: {at:12d} | elapsed time per iteration (ms): {ms:.1f} | loss: 1 |\n"


def written(folder: Path, *times: float) -> Path:
    path = folder / "train.log"
    path.write_text("starting\n" + "".join(LINE.format(at=at, ms=ms) for at, ms in enumerate(times, 1)), encoding="utf-8")
    return path


def test_the_unprofiled_step_is_the_median_of_what_was_not_profiled(tmp_path: Path) -> None:
    log = written(tmp_path, 61000.0, 29391.0, 29390.0, 34600.0, 34610.0, 29390.0)
    assert logged_run(log, load_specs(), profiled=range(4, 6)).step_ns == 29.390e9
    started = logged_run(written(tmp_path, 40868.3, 481.2, 391.5, 385.2, 396.4, 2533.4), load_specs())
    assert started.step_ns == 393.95e6, "neither start-up nor a file being written is a step"
    alone = logged_run(written(tmp_path, 10.0), load_specs(), profiled=range(1, 3))
    assert alone.step_ns == 10e6, "where all were profiled, all count"
    with pytest.raises(InputError, match="does not tell how long"):
        logged_run(written(tmp_path), load_specs())
    with pytest.raises(InputError, match="can't be read"):
        logged_run(tmp_path / "none.log", load_specs())


def test_slowdown_is_the_trainers_not_the_overhead_table() -> None:
    slow = 34.60 / 29.39 - 1
    assert round(100 * slow, 1) == 17.7
    given: dict[str, FactValue] = {"step_ns": 34_600_000_000, "steps_n": 1, "profiler_overhead_ns": 230_000_000}
    alone = facts(**given)
    assert verdict(bounds(alone, BOOK), alone, BOOK).perturbed is False, "0.23 s of 34.6 s tell nothing"
    told = facts(**given, unprofiled_step_ns=29_390_000_000, profiler_slowdown=slow)
    judged = verdict(bounds(told, BOOK), told, BOOK)
    assert judged.perturbed is True
    assert judged.certainty != "high"
    assert any("17.7 % longer than the 29,390 ms of the trainer's log" in reason for reason in judged.certainty_reasons)
    assert "capture-perturbed" in {one.id for one in find(told, job=None, rulebook=BOOK)[0]}
    fast = facts(profiler_overhead_ns=400_000_000, steps_n=5, unprofiled_step_ns=99_000_000, profiler_slowdown=0.01)
    assert verdict(bounds(fast, BOOK), fast, BOOK).perturbed is False, "a sum over threads beside the run is no slowdown"


def test_a_warning_of_the_profiler_lowers_certainty() -> None:
    given = facts(lost_event_warnings=2)
    judged = verdict(bounds(given, BOOK), given, BOOK)
    assert judged.certainty == "medium"
    assert "the profiler warns that events may be missing" in judged.certainty_reasons


def test_summed_transport_names_no_wall() -> None:
    """38 % of summed kernel time in NCCL, all of it beside compute: hidden, and no wall."""
    hidden = facts(
        transport_busy_ns=38_000_000, transport_busy_share=0.38, transport_exposed_ns=1_000_000, transport_exposed_share=0.01,
        transport_blocking_ns=0,
    )  # fmt: skip
    judged = verdict(bounds(hidden, BOOK), hidden, BOOK)
    assert judged.target_wall != "communication"


@pytest.mark.deep
def test_the_same_share_of_transport_is_a_wall_only_where_compute_waits_for_it() -> None:
    """A quarter of all kernel time is transport in a run that hides it: no wall, and no gain from summed time. Exposed, it is the wall."""
    hidden, exposed = document("healthy-expert-overlap"), document("demo")
    for found in (hidden, exposed):
        summed = sum(row.work_ns for row in found.buckets)
        assert sum(row.work_ns for row in found.communication) > 0.2 * summed
        for row in found.communication:
            assert row.blocking_ns is not None
            assert row.exposed_ns <= row.busy_ns
    assert hidden.verdict.target_wall == "compute"
    rows = {one.id: one for one in hidden.findings}
    assert rows["communication-hidden"].bound_ns is None
    assert all((one.bound_ns or 0) < 0.1 * sum(row.busy_ns for row in hidden.communication) for one in hidden.findings)
    assert exposed.verdict.target_wall == "communication"
    first = exposed.findings[0]
    assert first.bound_ns == sum(row.blocking_ns or 0 for row in exposed.communication if row.kind == "expert"), (
        "no more than was waited for"
    )


def test_kernel_rewrites_are_left_to_a_kernel_profiler() -> None:
    assert any("Nsight Compute" in f"{change.to} {change.key}" for change in BOOK.fixes["CMP-11"].changes)
