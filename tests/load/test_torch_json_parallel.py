"""A file decoded in parts, by one or several processes, is the same trace."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import pytest

from diagnose.load import kineto_stream, torch_json
from diagnose.load.conform import conform
from diagnose.load.torch_json import read
from diagnose.model.trace import Trace
from tests.builders.kineto import call, document, small

COMMS = {"Collective name": "allreduce", "Group size": 8, "dtype": "Float"}


def events(count: int) -> list[dict[str, object]]:
    made = small(count)
    for index, event in enumerate(made):
        if index % 9 == 0:
            event.setdefault("args", {}).update(
                COMMS | {"In msg nelems": index % 4, "list": [{"ph": "X"}, {"name": "no event"}, {"id": 3}]}
            )
        if event.get("cat") == "kernel":
            event["name"] = f"kernel_{index * index % 37}"
    return [*made, call(5, 1, tid=3), {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "ts": 0, "args": {"name": "last"}}]


def as_rows(trace: Trace) -> dict[str, list[tuple[object, ...]]]:
    """All frames with their texts and payloads in place of ids, which may be numbered otherwise."""
    payloads = trace.payloads.rename({"id": "payload_id"})
    texts = trace.names.rename({"text": "name"}).drop("short")
    return {
        "ops": trace.ops.join(texts.rename({"id": "name_id"}), on="name_id", how="left", maintain_order="left")
        .join(payloads, on="payload_id", how="left", maintain_order="left")
        .drop("name_id", "payload_id")
        .rows(),
        "calls": trace.calls.join(texts.rename({"id": "name_id"}), on="name_id", how="left", maintain_order="left").drop("name_id").rows(),
        "ranges": trace.ranges.join(texts.rename({"id": "text_id"}), on="text_id", how="left", maintain_order="left")
        .join(payloads, on="payload_id", how="left", maintain_order="left")
        .drop("text_id", "payload_id")
        .rows(),
        "threads": trace.threads.rows(),
    }


def test_two_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_json, "PAYS_FROM", 0)
    path = tmp_path / "t.json"
    path.write_bytes(document(events(3000), record_shapes=1) + b"\n")
    one = conform(read(path, display_name="t"))
    assert len(kineto_stream._splits(path, path.read_bytes().index(b"[{") + 1, 2)) == 3
    two = conform(read(path, display_name="t", processes=2))
    assert as_rows(two) == as_rows(one)
    assert (two.ledger, two.provenance, two.ranks, two.devices) == (one.ledger, one.provenance, one.ranks, one.devices)


@pytest.mark.parametrize("count", [1, 40, 400])
@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_ranges_join_to_the_whole(count: int, pieces: int, tmp_path: Path) -> None:
    data = document(events(count))
    path = tmp_path / "t.json"
    path.write_bytes(data)
    start = data.index(b'"traceEvents": [') + 16
    ends = kineto_stream._splits(path, start, pieces)
    assert ends == sorted(set(ends))
    parts = [kineto_stream._decode_range(path, low, high, 500, is_last=high == ends[-1]) for low, high in itertools.pairwise(ends)]
    assert sum(part.undecodable for part in parts) == 0
    assert [part.cut for part in parts] == [None] * len(parts)
    whole = kineto_stream.joined([part.part for part in parts])
    single = kineto_stream.decode_stream(kineto_stream.EventStream(iter([data[start:]]), b""))
    assert (whole.read, whole.refused, whole.pids, whole.thread_names) == (
        single.part.read,
        single.part.refused,
        single.part.pids,
        single.part.thread_names,
    )
    assert sorted(whole.names) == sorted(single.part.names)
    assert parts[-1].tail == single.tail


def test_a_cut_in_the_last_part_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_json, "PAYS_FROM", 0)
    path = tmp_path / "t.json"
    path.write_bytes(json.dumps({"traceEvents": small(2000)}).encode()[:-3000])
    trace = conform(read(path, display_name="t", processes=2))
    same = conform(read(io.BytesIO(path.read_bytes()), display_name="t"))
    assert trace.ledger == same.ledger
    assert {"data_loss", "error"} & {entry.severity for entry in trace.ledger.entries}
    assert trace.ops.height == same.ops.height
