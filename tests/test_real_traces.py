"""The whole path on every real trace that lies beside the project.

Each ends in a diagnosis or in an error that names the reason; every budget adds up; the totals are those of a brute-force reference.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from diagnose.document.device import StepBudget
from diagnose.document.diagnosis import Diagnosis, decode
from diagnose.document.encoding import encode
from diagnose.errors import InputError
from diagnose.pipeline import diagnose
from tests.builders.document_parts import check_parts
from tests.builders.suites import deep_unless
from tests.conftest import SHARED

DEEPSEEK = "kineto/deepseek-ai_profile-data_train.json"
TRACES = SHARED / "traces"


def every_trace() -> list[str]:
    """Relative paths of all inputs; a Parquet export folder is one."""
    found = sorted(path.relative_to(TRACES).as_posix() for path in TRACES.glob("*/*")) if TRACES.is_dir() else []
    return found or ["absent"]


@pytest.fixture(scope="session")
def deepseek(real_traces: Path) -> Diagnosis:
    """The public trace of DeepSeek-V3's EP64 training."""
    return diagnose([real_traces / DEEPSEEK])


def budgets(found: Diagnosis) -> Iterator[StepBudget]:
    for device in found.budget:
        yield from device.per_step


def comparable(group: dict[str, Any]) -> tuple[int, ...]:
    names = ("kernel_count", "kernel_sum_ns", "busy_ns", "kernel_busy_ns", "first_ns", "last_ns")
    return tuple(group[name] for name in names)


def diagnosed_or_refused(path: Path) -> Diagnosis | InputError:
    """What the program says; any other exception is a failure."""
    try:
        return diagnose([path])
    except InputError as error:
        return error


@pytest.mark.parametrize("name", deep_unless(every_trace()[::12], every_trace()))
def test_every_trace_is_diagnosed_or_refused_with_a_reason(name: str, real_traces: Path, reference: ModuleType) -> None:
    path = real_traces / name
    found = diagnosed_or_refused(path)
    if isinstance(found, InputError):
        assert len(str(found)) > 40
        assert found.next_step
        return
    for step in budgets(found):
        assert step.device_busy_ns + step.device_idle_ns == step.window_ns
        assert step.compute_busy_ns + step.compute_absent_ns == step.window_ns
        assert step.launch_starved_ns + step.blocking_ns + step.dependency_stalled_ns == step.compute_absent_ns
        assert step.allocator_ns + step.host_sync_ns + step.host_work_ns == step.launch_starved_ns
        assert 0 <= step.transport_exposed_ns <= step.transport_busy_ns <= step.communication_busy_ns
        assert step.communication_exposed_ns <= step.communication_busy_ns <= step.device_busy_ns <= step.window_ns
        assert step.blocking_lower_ns <= step.blocking_ns <= step.blocking_upper_ns
    check_parts(found)
    assert decode(encode(found)) == found
    if path.is_dir():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the reference leaves its file open
        groups = reference.measure(str(path))
    assert found.totals
    for total in found.totals:
        mine = (total.kernel_count, total.kernel_work_ns, total.device_busy_ns, total.kernel_busy_ns, total.first_ns, total.last_ns)
        alike = [group for key, group in groups.items() if key.rsplit("/")[-1] == str(total.device) and comparable(group) == mine]
        assert alike, f"rank {total.rank} device {total.device}: {mine} is in none of {groups}"
        assert total.transport_busy_ns >= alike[0]["comm_busy_ns"]


def test_an_export_folder_equals_the_sqlite_export_of_the_same_report(real_traces: Path) -> None:
    stem = "nsys/LeiWang1999_memfusion_artifact_report1.nsys-rep-nsys-2024.2.3.38"
    folder, database = diagnose([real_traces / f"{stem}_pqtdir"]), diagnose([real_traces / f"{stem}.sqlite"])
    assert folder.totals == database.totals
    assert folder.budget == database.budget
    assert folder.buckets == database.buckets


def test_deepseek_is_bound_by_compute_and_its_exchange_is_hidden(deepseek: Diagnosis) -> None:
    (step,) = budgets(deepseek)
    assert (step.window_ns, step.device_busy_ns, step.transport_busy_ns) == (129_012_000, 128_515_000, 113_030_000)
    assert step.transport_exposed_ns == 4_149_000
    assert deepseek.steps.anchor == "range ProfilerStep#N"
    assert deepseek.verdict.dominant_wall == "compute"
    hidden = next(finding for finding in deepseek.findings if finding.id == "communication-hidden")
    assert hidden.bound_ns is None
    (exchange,) = deepseek.communication
    assert (exchange.kind, exchange.backend, exchange.count) == ("expert", "deepep", 32)
    assert "hidden" in deepseek.verdict.sentence
    work = {row.bucket: row.work_ns for row in deepseek.buckets}
    assert all(work.get(bucket, 0) > 0 for bucket in ("router", "attention", "dispatch", "expert_gemm", "norm"))
    assert work.get("other", 0) / sum(work.values()) < 0.02


def test_equal_input_gives_equal_bytes(real_traces: Path, deepseek: Diagnosis) -> None:
    assert encode(diagnose([real_traces / DEEPSEEK])) == encode(deepseek)


@pytest.mark.deep
def test_several_inputs_are_several_ranks(real_traces: Path) -> None:
    pair = [real_traces / f"nsys/GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_{state}.sqlite" for state in ("before", "after")]
    found = diagnose(pair)
    assert [rank.rank for rank in found.capture.ranks] == [0, 1, 2, 3]
    assert [(total.rank, total.device) for total in found.totals] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    alone = diagnose([pair[1]])
    assert [total.kernel_work_ns for total in alone.totals] == [total.kernel_work_ns for total in found.totals[2:]]


def test_one_refused_input_among_several_is_counted_not_fatal(real_traces: Path) -> None:
    good, empty = real_traces / DEEPSEEK, real_traces / "nsys/StellaWava_benchmarking-n-profiling-_report1.sqlite"
    found = diagnose([empty, good])
    assert [rank.file for rank in found.capture.ranks] == [good.name]
    (entry,) = [entry for entry in found.ledger if entry.code == "refused_input"]
    assert (entry.severity, entry.count) == ("data_loss", 1)
    assert entry.detail.startswith(f"{empty.name} holds no GPU work")
