"""Damaged and hostile PyTorch JSON: the reader ends in a RawTrace or an InputError, in time, and says what was lost."""

import gzip
import io
import json
import random
import time
import zipfile
import zlib

import pytest

from diagnose.errors import InputError
from diagnose.load.conform import RawTrace, conform
from diagnose.load.torch_json import read
from diagnose.model.trace import Trace
from tests.builders.cases import for_each
from tests.builders.kineto import document, kernel, small

ENDLESS = 100  # s of processor time, a hundred times of what it takes: a reader that goes back and forth would take hours
WHOLE = document(small(30), deviceProperties=[{"id": 0, "name": "A"}], baseTimeNanoseconds=5)


def attempt(data: bytes) -> RawTrace | None:
    try:
        return read(io.BytesIO(data), display_name="t", chunk=3000)
    except InputError as error:
        return None if error.what and error.next_step else pytest.fail("an error without sentences")


def load(data: bytes) -> Trace:
    return conform(read(io.BytesIO(data), display_name="t"))


def counts(trace: Trace) -> dict[str, int]:
    return {entry.code: entry.count for entry in trace.ledger.entries}


def kernels(raw: RawTrace | None) -> int:
    return sum(table.frame.height for table in raw.tables if table.table == "kernel") if raw else 0


@pytest.mark.deep
def test_a_cut_anywhere_is_said_and_loses_only_what_came_after() -> None:
    ends = [index + 1 for index in range(len(WHOLE)) if WHOLE.startswith(b"}}", index)]
    for size in [*range(500), *range(500, len(WHOLE) - 600, 29), *range(len(WHOLE) - 600, len(WHOLE))]:
        raw = attempt(WHOLE[:size])
        if raw is None:
            assert size <= min(ends)
            continue
        assert any(entry.code == "cut_file" for entry in raw.ledger.entries), size
        whole_kernels = WHOLE[: max((end for end in ends if end < size), default=0)].count(b'"cat": "kernel"')
        assert kernels(raw) == whole_kernels, size
    assert not {"data_loss", "error"} & {entry.severity for entry in load(WHOLE).ledger.entries}


def test_a_cut_gzip_is_read_up_to_the_cut() -> None:
    data = gzip.compress(WHOLE)
    seen = set()
    for size in [*range(60), *range(60, len(data), 7), len(data) - 1]:
        raw = attempt(data[:size])
        plain = zlib.decompressobj(31).decompress(data[:size])
        if raw is not None:
            assert any(entry.code == "cut_file" for entry in raw.ledger.entries), size
            assert kernels(raw) >= plain.count(b'"cat": "kernel"') - 1
        seen.add(raw is not None)
    assert seen == {True, False}


@pytest.mark.parametrize("seed", [20260, pytest.param(20261, marks=pytest.mark.deep)])
@pytest.mark.parametrize("packing", ["plain", "gzip"])
def test_flipped_bytes_never_raise_anything_else(packing: str, seed: int) -> None:
    chance = random.Random(seed)
    base = gzip.compress(WHOLE) if packing == "gzip" else WHOLE
    for _ in range(200):
        data = bytearray(base)
        for _ in range(chance.choice([1, 1, 2, 8])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        raw = attempt(bytes(data))
        if raw is not None:
            try:
                conform(raw).ledger.check()
            except InputError:
                continue


@pytest.mark.parametrize("seed", [7, pytest.param(8, marks=pytest.mark.deep)])
def test_removed_blocks_never_raise_anything_else(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        low = chance.randrange(len(WHOLE))
        high = low + chance.randrange(400)
        raw = attempt(WHOLE[:low] + chance.choice([b"", b"\0" * 30, b'"', b"}]}", b"[[[{"]) + WHOLE[high:])
        assert raw is None or kernels(raw) <= 30


BAD_EVENTS = {
    "nothing": b"null",
    "number": b"17",
    "text": b'"text, with {\\"ph\\": 1}"',
    "list": b'[{"ph": "X"}]',
    "unquoted": b'{ph: "X"}',
    "no colon": b'{"ph" "X", "cat": "kernel"}',
    "unclosed text": b'{"ph": "X", "name": "abc}',
    "deep": b'{"ph": "X", "args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "unbalanced": b'{"ph": "X", "args": {"a": 1}',
    "long integer": b'{"ph": "X", "cat": "kernel", "ts": ' + b"9" * 5000 + b"x}",
}


@for_each("bad", *BAD_EVENTS)
def test_one_bad_event_is_counted_and_costs_nothing_else(bad: str) -> None:
    events = [json.dumps(event).encode() for event in small(40)]
    events.insert(100, BAD_EVENTS[bad])
    trace = load(b'{"schemaVersion": 1, "traceEvents": [' + b", ".join(events) + b'], "distributedInfo": {"rank": 2}}')
    assert trace.ops.height == 40
    assert counts(trace)["undecodable_event"] == 1
    assert trace.ranks[0].rank == 2
    assert {"data_loss", "error"} & {entry.severity for entry in trace.ledger.entries}


STRANGE = {
    "not a number": b'"est. achieved occupancy %": NaN',
    "infinity": b'"blocks per SM": -Infinity',
    "nan of C": b'"warps per SM": -nan',
    "control characters": b'"note": "a\x01\n\tb"',
    "lone surrogate": b'"note": "\\ud800"',
    "bytes that are no UTF-8": b'"note": "\xff\xfe"',
    "huge number": b'"stream": 1e999',
    "huge integer": b'"device": 99999999999999999999999',
    "duplicate keys": b'"correlation": 1, "correlation": 2',
    "wrong types": b'"correlation": {"a": 1}, "grid": "x", "Collective name": 5',
    "ragged grid": b'"grid": [1], "block": []',
}


@for_each("strange", *STRANGE)
def test_strange_values_do_not_cost_the_event(strange: str) -> None:
    addition = STRANGE[strange]
    events = [json.dumps(event).encode() for event in small(3)]
    events.insert(
        5, b'{"ph": "X", "cat": "kernel", "name": "odd", "pid": 0, "tid": 7, "ts": 5000.125, "dur": 2, "args": {' + addition + b"}}"
    )
    trace = load(b'{"traceEvents": [' + b", ".join(events) + b"]}")
    assert trace.ops.height == 4
    assert trace.ops["end"].max() == 5_002_125 - trace.provenance.origin_ns
    assert "bad_text" not in counts(trace)
    assert "undecodable_event" not in counts(trace)


def test_bad_bytes_in_a_name_are_replaced_and_counted() -> None:
    trace = load(json.dumps([kernel(0, 5, name="k_NAME")]).encode().replace(b"NAME", b"\xff"))
    assert trace.names["text"].to_list() == ["k_\ufffd"]
    assert counts(trace)["bad_text"] == 1


@for_each("number", "9" * 30, "-" + "9" * 19, "1e300", "9223372036854775807", "null", "true", "[1]", '"x"', '{"a":\n1}')
def test_times_out_of_reach_are_refused_and_counted(number: str) -> None:
    event = json.dumps(kernel(123456, 5)).replace("123456", number)
    trace = load(f'{{"traceEvents": [{event}, {json.dumps(kernel(7, 5))}]}}'.encode())
    assert (trace.ops.height, counts(trace)["missing_time"]) == (1, 1)


def test_extreme_times_do_not_overflow() -> None:
    most = 3 * 10**15
    trace = load(document([kernel(-most, 5), kernel(most, most), kernel(0, -7)]))
    assert trace.ops["end"].max() == 9 * 10**18
    assert (counts(trace)["negative_duration"], counts(trace)["implausible_span"]) == (1, 1)


@pytest.mark.deep
def test_bombs_are_stopped_early() -> None:
    began = time.process_time()
    head = b'{"traceEvents": [{"ph": "X", "name": "'
    with pytest.raises(InputError, match="implausible size"):
        read(io.BytesIO(gzip.compress(head + b" " * (80 << 20), 1)), display_name="t")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("t.json", head + b" " * (80 << 20))
    with pytest.raises(InputError, match="implausible size"):
        read(io.BytesIO(buffer.getvalue()), display_name="t")
    assert time.process_time() - began < ENDLESS


@pytest.mark.deep
@pytest.mark.parametrize(
    "data",
    [
        b'{"traceEvents": [' + b"{" * 3_000_000,
        b'{"traceEvents": [' + b'{"ph": "' * 300_000,
        b'{"traceEvents": [{"a": "' + b'\\"' * 2_000_000,
        b"[" * 2_000_000,
        b'{"a": ' * 500_000,
        b'{"traceEvents": [' + b'{"ph": "X", "args": {"a": {"ph": 1}, ' * 100_000,
        b'{"traceEvents": [{"ph": "X", "cat": "'
        + b'"}, {"ph": "X", "cat": "'.join(str(index).encode() for index in range(100_000))
        + b'"}]}',
    ],
    ids=["braces", "open texts", "escaped quotes", "brackets", "nested keys", "unbalanced events", "each its own category"],
)
def test_hostile_text_ends_soon(data: bytes) -> None:
    began = time.process_time()
    raw = attempt(data)
    assert raw is None
    assert time.process_time() - began < ENDLESS


def test_zip_files_that_hold_no_one_trace() -> None:
    for members in ([], ["a.txt"], ["a.json", "b.json"]):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for member in members:
                archive.writestr(member, b"{}")
        with pytest.raises(InputError, match="zip file"):
            read(io.BytesIO(buffer.getvalue() or b"PK\x03\x04"), display_name="t")
