"""The step as a trace for Perfetto.

Strictly in Chrome's format, every time the document's to the nanosecond, arrows from cause to effect.
"""

import gzip
import json
import random
import tempfile
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from msgspec import structs

from diagnose import diagnose
from diagnose.document.device import HostColumns, TimelineColumns
from diagnose.document.diagnosis import Diagnosis
from diagnose.render import format_of, write
from diagnose.render.writers.perfetto import DEVICE, DIAGNOSIS, HOST, micro
from tests.builders.diagnosis import rich
from tests.builders.documents import DOCUMENTS, HOSTILE
from tests.builders.hostile import PAYLOADS
from tests.render.chrome_trace import faults, nanoseconds, parsed

TRACES = Path(__file__).parents[3] / "shared" / "traces"
SAMPLE = Path(__file__).parents[2] / "fixtures" / "traces" / "demo.sqlite.gz"


def small(**changes: object) -> Diagnosis:
    """A step of 10 µs that begins 1,234,567 ns into the capture: two streams, overlapping operations on one, a call before the step."""
    columns = TimelineColumns(
        streams=(7, None), buckets=("dense_gemm", "dispatch"), names=("gemm", "nccl", "aten::mm"),
        causes=("launch", "blocking_transport"), start_ns=(1, 1_001, 2_000, 5_003), duration_ns=(1_000, 4_002, 3_500, 0),
        stream=(0, 1, 1, 0), bucket=(0, 1, 1, 0), name=(0, 1, 1, 0), queued_ns=(3_000, None, None, 5), range=(2, None, None, None),
        gap_start_ns=(0, 1_001), gap_duration_ns=(1, 4_002), gap_cause=(0, 1), gap_blocked_by=(None, 1), omitted=3,
    )  # fmt: skip
    host = HostColumns(
        threads=("thread 5 main",), names=("cudaLaunchKernel", "aten::mm", "crossing"), call_start_ns=(-3_999, 4_990),
        call_duration_ns=(1_000, 8), call_thread=(0, 0), call_name=(0, 0), range_start_ns=(-5_000, -3_500),
        range_duration_ns=(2_500, 9_000), range_thread=(0, 0), range_name=(1, 2), launched_by=(0, None, None, 1), omitted=1,
    )  # fmt: skip
    document = rich()
    assert document.timeline is not None
    shown = structs.replace(document.timeline, start_ns=1_234_567, end_ns=1_244_567, columns=columns, host=host)
    finding = structs.replace(document.findings[0], where=structs.replace(document.findings[0].where, spans=((1_001, 4_002),)))
    return structs.replace(document, timeline=structs.replace(shown, **changes), findings=(finding, *document.findings[1:]))


def unpacked(sample: Path, folder: Path) -> Path:
    path = folder / sample.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(sample.read_bytes()))
    return path


@cache
def demo() -> Diagnosis:
    with tempfile.TemporaryDirectory() as folder:
        return diagnose(unpacked(SAMPLE, Path(folder)))


def check_times(document: Diagnosis) -> None:
    """Every operation, gap, call and range of the document stands in the trace once, with its times."""
    shown = document.timeline
    assert shown is not None
    assert shown.columns is not None
    columns, host = shown.columns, shown.host
    slices = [event for event in parsed(write(document, "perfetto"))["traceEvents"] if event["ph"] == "X"]
    told: dict[str, list[tuple[int, int]]] = {}
    for event in slices:
        times = (nanoseconds(Decimal(event["ts"])) - shown.start_ns, nanoseconds(Decimal(event["dur"])))
        told.setdefault(event["cat"], []).append(times)
    assert sorted(told.get("operation", [])) == sorted(zip(columns.start_ns, columns.duration_ns, strict=True))
    assert sorted(told.get("gap", [])) == sorted(zip(columns.gap_start_ns, columns.gap_duration_ns, strict=True))
    assert told["step"] == [(0, shown.end_ns - shown.start_ns)]
    if host is not None:
        assert sorted(told.get("call", [])) == sorted(zip(host.call_start_ns, host.call_duration_ns, strict=True))
        assert sorted(told.get("range", [])) == sorted(zip(host.range_start_ns, host.range_duration_ns, strict=True))
    spans = [span for finding in document.findings for span in finding.where.spans or ((0, shown.end_ns - shown.start_ns),)]
    assert sorted(told.get("finding", [])) == sorted(spans)


def test_the_trace_is_strictly_in_chromes_format_whatever_the_document() -> None:
    documents = {name: make for name, make in {**DOCUMENTS, **HOSTILE}.items() if isinstance(make(), Diagnosis)}
    assert len(documents) == 3
    found = {name: faults(write(make(), "perfetto"))[:3] for name, make in documents.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert faults(write(small(), "perfetto")) == []
    shown = small().timeline
    assert shown is not None
    assert shown.host is not None
    hostile = small(host=structs.replace(shown.host, names=(PAYLOADS[0], '"}]\n\0\u202e', ""), threads=("\x1b]0;x\x07",)))
    assert faults(write(hostile, "perfetto")) == []


def test_times_are_the_documents_to_the_nanosecond() -> None:
    check_times(small())
    numbers = [*range(3_000), *(random.Random(7).randrange(10**13) for _ in range(20_000))]
    assert [ns for ns in numbers if nanoseconds(Decimal(micro(ns))) != ns] == []
    assert max(len(micro(ns).partition(".")[2]) for ns in numbers) <= 4


def test_arrows_go_from_calls_to_operations_and_from_what_blocked_to_the_gap() -> None:
    text = write(small(), "perfetto")
    events = parsed(text)["traceEvents"]
    ends = [(event["ph"], event["cat"], event["pid"], nanoseconds(Decimal(event["ts"])) - 1_234_567) for event in events if "id" in event]
    assert sorted(ends) == sorted(
        [
            ("s", "launch", HOST, -3_999),
            ("f", "launch", DEVICE, 1),
            ("s", "launch", HOST, 4_990),
            ("f", "launch", DEVICE, 5_003),
            ("s", "wait", DEVICE, 1_001),
            ("f", "wait", DIAGNOSIS, 1_001),
        ]
    )
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert "stream not recorded (overlapping, 1)" in names
    assert "thread 5 main (overlapping, 1)" in names
    assert json.loads(text)["otherData"]["left_out"] == 4


def test_operations_say_how_long_before_they_were_launched_and_inside_which_range() -> None:
    events = parsed(write(small(), "perfetto"))["traceEvents"]
    found = {
        nanoseconds(Decimal(event["ts"])) - 1_234_567: (event["args"].get("launched_before_ns"), event["args"].get("range"))
        for event in events
        if event.get("cat") == "operation"
    }
    assert found == {1: (3_000, "aten::mm"), 1_001: (None, None), 2_000: (None, None), 5_003: (5, None)}


def test_findings_say_their_id_and_what_is_before_the_capture_is_left_out() -> None:
    document = small()
    found = [event for event in parsed(write(document, "perfetto"))["traceEvents"] if event.get("cat") == "finding"]
    assert {event["args"]["finding"] for event in found} == {finding.id for finding in document.findings}
    early = small(start_ns=1_000, end_ns=11_000)
    assert faults(write(early, "perfetto")) == []


def test_a_report_says_when_to_look() -> None:
    said = write(small(), "markdown")
    assert "look at 1.0 to 5.0 µs of step" in said or "look at 1.001 to 5.003 µs of step" in said


def test_packed_by_its_ending_and_the_same_each_time(tmp_path: Path) -> None:
    assert format_of(Path("run.perfetto.json.gz"), "diagnosis") == "perfetto"
    assert format_of(Path("run.json"), "diagnosis") == "json"
    assert format_of(Path("run.perfetto.json"), "comparison") == "json"
    first, second = small().save(tmp_path / "a.perfetto.json.gz"), small().save(tmp_path / "b.perfetto.json.gz")
    assert first.read_bytes() == second.read_bytes()
    assert gzip.decompress(first.read_bytes()).decode() == write(small(), "perfetto")


@pytest.mark.deep
def test_every_launch_of_the_demo_has_its_arrow() -> None:
    document = demo()
    assert document.timeline is not None
    assert document.timeline.host is not None
    check_times(document)
    text = write(document, "perfetto")
    assert faults(text) == []
    launched = [call for call in document.timeline.host.launched_by if call is not None]
    assert len(launched) > 600
    assert text.count('"ph":"s","cat":"launch"') == len(launched)
    exchange = next(one for one in document.findings if one.id == "communication-blocking-expert-exchange")
    assert len(exchange.where.spans) == 42


@pytest.mark.deep
@pytest.mark.parametrize("name", ["kineto/deepseek-ai_profile-data_train.json", "nsys/zx3xyy_assignment2-systems_result_2_7B_nvtx.sqlite"])
def test_a_real_trace(name: str) -> None:
    if not (TRACES / name).exists():
        pytest.skip("the real traces are not here")
    document = diagnose(TRACES / name)
    assert faults(write(document, "perfetto")) == []
    check_times(document)
