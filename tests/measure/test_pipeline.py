"""load → measure → reason over several inputs: ranks, the device that stands for all, the job's step range, and equal bytes."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from diagnose.document.diagnosis import Diagnosis, decode
from diagnose.document.encoding import encode
from diagnose.errors import DiagnoseError, UsageError
from diagnose.knowledge.load import Knowledge
from diagnose.load.readers import load
from diagnose.measure.capture import Measured, measure
from diagnose.pipeline import diagnose
from diagnose.reason.conclude import conclude
from diagnose.render.reports.diagnosis import lost
from tests.builders.cases import for_each
from tests.builders.kineto import call, document, kernel, small
from tests.builders.records import replace
from tests.builders.simulated import AFRESH


def annotation(ts: int, dur: int, name: str) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 10, "tid": 11, "ts": ts, "dur": dur, "args": {}}


def write(folder: Path, name: str, *, step: int = 100, n: int = 3, rank: int | None = 3, devices: Sequence[int] = (0,)) -> Path:
    """A trace of `n` steps of `step` µs; each is two halves named outer, and its kernels run for a tenth of it."""
    events = []
    for number in range(n):
        begin = 1000 + number * step
        events.append(annotation(begin, step, f"ProfilerStep#{number}"))
        for half in range(2):
            events.append(annotation(begin + half * step // 2, step // 2, "outer"))
            for device in devices:
                identity = 100 * number + 10 * half + device + 1
                at = begin + half * step // 2
                events += [call(at + 1, 1, correlation=identity), kernel(at + 3, step // 10, correlation=identity, device=device)]
    keys: dict[str, Any] = {"distributedInfo": {"rank": rank, "world_size": 8}} if rank is not None else {"distributedInfo": {}}
    path = folder / f"{name}.json"
    path.write_bytes(document(events, **keys))
    return path


def ranks(found: Diagnosis) -> list[tuple[int, str, str]]:
    return [(rank.rank, rank.source, rank.file) for rank in found.capture.ranks]


def codes(found: Diagnosis) -> dict[str, int]:
    """Occurrences by code, over all tables and files."""
    return dict(sum((Counter({entry.code: entry.count}) for entry in found.ledger), start=Counter()))


# ---------------------------------------------------------------------------------------------------- ranks


def test_claimed_ranks_are_kept_or_renumbered_and_the_others_numbered_in_order(tmp_path: Path) -> None:
    found = diagnose([write(tmp_path, "a", rank=5), write(tmp_path, "b", rank=2)])
    assert ranks(found) == [(5, "trace", "a.json"), (2, "trace", "b.json")]
    assert [total.rank for total in found.totals] == [5, 2]
    assert found.facts["ranks_captured"].value == 2
    assert "renumbered_rank" not in codes(found)
    found = diagnose([write(tmp_path, "a", rank=3), write(tmp_path, "b", rank=3), write(tmp_path, "c", rank=4)])
    assert [rank for rank, _, _ in ranks(found)] == [3, 5, 4], "a rank that is given twice takes no other's number"
    assert codes(found)["renumbered_rank"] == 1
    for part in (found.totals, found.budget, found.buckets, found.steps.windows):
        assert sorted({row.rank for row in part}) == [3, 4, 5]
    found = diagnose([write(tmp_path, name, rank=None) for name in "abc"])
    assert [(rank, source) for rank, source, _ in ranks(found)] == [(0, "assigned"), (1, "assigned"), (2, "assigned")]
    assert "renumbered_rank" not in codes(found)
    found = diagnose([write(tmp_path, "a", rank=None), write(tmp_path, "b", rank=0)])
    assert [rank for rank, _, _ in ranks(found)] == [1, 0]


def test_a_rank_that_the_trace_does_not_tell_is_that_of_the_file_s_name(tmp_path: Path) -> None:
    def named(*names: str) -> list[tuple[int, str]]:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
        return [(rank, source) for rank, source, _ in ranks(diagnose([write(tmp_path, name, rank=None) for name in names]))]

    assert named("rank_1", "job7-rank3") == [(1, "name"), (3, "name")]
    assert named("rank2/trace", "rank0/trace") == [(2, "name"), (0, "name")]
    assert named("node0.rank0", "node0.rank1", "node1.rank0") == [(0, "assigned"), (1, "assigned"), (2, "assigned")], "ranks on their host"
    assert named("local_rank3", "prank2", "rank1of2_rank5") == [(0, "assigned"), (1, "assigned"), (2, "assigned")]
    told = diagnose([write(tmp_path, "rank5", rank=2)])
    assert ranks(told) == [(2, "trace", "rank5.json")]
    assert "assigned_rank" not in codes(diagnose([write(tmp_path, "rank4", rank=None)]))


def test_what_says_to_be_a_rank_that_another_is_does_not_count_as_one_more(tmp_path: Path) -> None:
    found = diagnose([write(tmp_path, "a", rank=3), write(tmp_path, "b", rank=3, step=101)])
    assert found.identity is not None
    assert (found.identity.ranks_captured, found.identity.rank, found.identity.file) == (1, 3, "a.json")
    assert found.facts["ranks_captured"].value == 1


def test_ranks_of_jobs_of_different_sizes_are_told(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a", rank=0), write(tmp_path, "b", rank=1)
    assert not any("several jobs" in text for text in lost.remarks(diagnose([first, second])))
    second.write_bytes(second.read_bytes().replace(b'"world_size": 8', b'"world_size": 16'))
    assert any("several jobs, with 8 and 16 ranks" in text for text in lost.remarks(diagnose([first, second])))


def test_of_several_captures_the_damaged_one_is_named(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a", rank=0), write(tmp_path, "b", rank=1)
    second.write_bytes(second.read_bytes()[:-40])
    empty = tmp_path / "c.json"
    empty.write_bytes(b"")
    (cut,) = (entry for entry in diagnose([first, second]).ledger if entry.code == "cut_file")
    assert cut.files == ("b.json",)
    assert "Data was lost: the file ends before its content does (b.json); see --section ledger." in lost.remarks(diagnose([first, second]))
    second.unlink()
    assert "Data was lost: c.json is an empty file; see --section ledger." in lost.remarks(diagnose([tmp_path]))
    assert lost.named("abcde") == "a, b, c and 2 more"


def test_inputs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}").mkdir()
    found = diagnose([write(tmp_path, f"rank{rank}/profile", rank=rank) for rank in range(2)])
    assert [file for _, _, file in ranks(found)] == ["rank0/profile.json", "rank1/profile.json"]


def test_a_folder_is_all_of_its_traces(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path, name, rank=ord(name))
    assert [rank for rank, _, _ in ranks(diagnose([tmp_path]))] == [97, 98]


# ---------------------------------------------------------------------------------------------------- who stands for all


@for_each("steps, shown", ((100, 300, 200), 2), ((400, 100, 300, 200), 3), ((300, 100), 1), ((100, 100, 100), 1))
def test_the_verdict_speaks_of_the_device_in_the_middle(tmp_path: Path, steps: tuple[int, ...], shown: int) -> None:
    """Of an even number, the quicker of the two in the middle."""
    found = diagnose([write(tmp_path, str(place), step=step, rank=place) for place, step in enumerate(steps)])
    assert found.timeline is not None
    assert found.timeline.rank == shown
    assert found.steps.duration_ns.median == 1000 * steps[shown]
    assert found.facts["step_ns"].value == found.steps.duration_ns.mean, (
        "shares are of the mean step; the last one ends with its last operation"
    )
    assert len(found.budget) == len(steps)


def test_each_device_of_a_process_is_measured_and_they_are_one_rank(tmp_path: Path) -> None:
    found = diagnose([write(tmp_path, "a", devices=(0, 1))])
    assert [(row.rank, row.device, len(row.per_step)) for row in found.budget] == [(3, 0, 3), (3, 1, 3)]
    assert diagnose([write(tmp_path, "a", devices=(0, 1))]).facts["ranks_captured"].value == 1


# ---------------------------------------------------------------------------------------------------- step range, host, bytes


def test_the_jobs_step_range_is_used_and_the_callers_goes_before_it(tmp_path: Path) -> None:
    trace = write(tmp_path, "a")
    job = tmp_path / "job.yaml"
    job.write_text('step_range: "^outer$"\n')
    found = diagnose([trace], config=job)
    assert (found.steps.anchor, found.steps.n) == ("step range outer", 6)
    assert diagnose([trace], config=job, step_range=r"^ProfilerStep#(\d+)$").steps.anchor == "step range ProfilerStep#N"


def hosted(tmp_path: Path, knowledge: Knowledge) -> Measured:
    measured = measure(load(write(tmp_path, "a")), knowledge)
    return replace(measured, ranks=tuple(replace(rank, host="node-17.example") for rank in measured.ranks))


def test_host_names_are_kept_only_on_request(tmp_path: Path, knowledge: Knowledge) -> None:
    measured = hosted(tmp_path, knowledge)
    assert b"node-17" not in encode(conclude([measured], None, knowledge))
    shown = conclude([measured], None, knowledge, include_host_info=True)
    assert [rank.host for rank in shown.capture.ranks] == ["node-17.example"]


def test_equal_inputs_give_equal_bytes_that_hold_no_path(tmp_path: Path) -> None:
    assert str(tmp_path).encode() not in encode(diagnose([write(tmp_path, "a")]))
    paths = [write(tmp_path, name, step=step, rank=place) for place, (name, step) in enumerate({"a": 100, "b": 300, "c": 200}.items())]
    first = encode(diagnose(paths))
    assert [encode(diagnose(paths)) for _ in range(2)] == [first] * 2
    assert encode(decode(first)) == first


def test_progress_is_told_input_by_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AFRESH, "1")
    said: list[str] = []
    diagnose([write(tmp_path, "a", rank=0), write(tmp_path, "b", rank=1)], progress=said.append)
    assert next(line.partition(" · ")[2] for line in said if " MB of " in line) == "reading a.json · 0 MB of 0 MB, 100 %, about 0:00 left"
    assert [re.sub(r"[0-9:]+ (so far|to go)", r"T \1", line) for line in said if " MB of " not in line] == [
        "0 of 2 traces measured, 2 left, T so far · reading a.json",
        "0 of 2 traces measured, 2 left, T so far · measuring a.json",
        "1 of 2 traces measured, 1 left, T so far, about T to go",
        "1 of 2 traces measured, 1 left, T so far, about T to go · reading b.json",
        "1 of 2 traces measured, 1 left, T so far, about T to go · measuring b.json",
        "2 of 2 traces measured, 0 left, T so far",
        "drawing conclusions",
        "replaying",
    ]
    said.clear()
    diagnose([write(tmp_path, "a", rank=0)], progress=said.append)
    assert [line for line in said if " MB of " not in line] == ["reading a.json", "measuring a.json", "drawing conclusions", "replaying"]


# ---------------------------------------------------------------------------------------------------- known to be wrong


def test_a_step_range_that_is_no_pattern_or_marks_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match="step"):
        diagnose([write(tmp_path, "a")], step_range="[")
    with pytest.raises(UsageError, match=r"marks no step in .* Leave it out, or name one of the ranges"):
        diagnose([write(tmp_path, "a")], step_range="absent")


def test_a_folder_s_other_files_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write(folder, "a")
    (folder / "notes.txt").write_text("not a trace")
    (entry,) = [entry for entry in diagnose([folder]).ledger if entry.code == "ignored_file"]
    assert entry.severity == "info"
    assert entry.detail.startswith("notes.txt: ")


def test_nothing_given_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="No trace was given"):
        diagnose([])


def test_copies_between_devices_hold_compute_up_as_communication(tmp_path: Path) -> None:
    """A ring of copy engines: six products of 100 µs a step, each behind a peer copy of 60 µs on its stream.

    No kernel of a collective runs.
    """
    events = []
    for number in range(4):
        begin = 1000 + 1000 * number
        events.append(annotation(begin, 990, f"ProfilerStep#{number}"))
        for turn in range(6):
            at, first = begin + 20 + 160 * turn, 100 * number + 10 * turn + 1
            copy = kernel(at, 60, name="Memcpy PtoP (Device -> Device)", correlation=first)
            events += [call(begin + 2 * turn, 1, correlation=first), {**copy, "cat": "gpu_memcpy"}]
            events += [call(begin + 2 * turn + 1, 1, correlation=first + 1), kernel(at + 60, 100, correlation=first + 1)]
    path = tmp_path / "t.json"
    path.write_bytes(document(events))
    found = diagnose([path])
    (row,) = found.communication
    assert (row.backend, row.kind, row.busy_ns, row.exposed_ns, row.blocking_ns) == ("peer_copy", "other", 360_000, 360_000, 360_000)
    communication = next(wall for wall in found.walls if wall.wall == "communication")
    assert communication.bound_ns is not None
    assert 0.3 < communication.bound_ns / 1_000_000 < 0.4
    assert [row.bucket for row in found.buckets] == ["dense_gemm", "collective"]


def test_totals_of_kernels_hold_kernels_alone_and_a_copy_between_devices_is_communication(tmp_path: Path) -> None:
    """What anybody can add up of the table of kernels: such a copy is no row of it."""
    copy = {**kernel(1400, 70, name="Memcpy PtoP (Device -> Device)", stream=20, correlation=99), "cat": "gpu_memcpy"}
    path = tmp_path / "trace.json"
    path.write_bytes(document([*small(12), call(1390, 2, name="cudaMemcpyPeerAsync", correlation=99), copy]))
    (found,) = diagnose([path]).totals
    assert (found.kernel_count, found.kernel_work_ns, found.kernel_busy_ns, found.transport_busy_ns) == (12, 60_000, 60_000, 70_000)
