"""The candidates and their order: commits along first parents, lines of a file, traces by commit, time or name."""

import shutil
import sqlite3
import zipfile
from pathlib import Path

import polars as pl
import pytest

from diagnose.bisect import candidates
from diagnose.errors import InputError, UsageError
from diagnose.load.files import REPORT
from diagnose.load.readers import start_of
from fixtures.__main__ import NSYS, TORCH, unpack
from fixtures.simulated_capture import START_UNIX_NS
from tests.bisect.repositories import line, new
from tests.builders.cases import for_each

# --- items ------------------------------------------------------------------------------------------------------------


def test_items_stand_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# containers\n\nnvcr.io/x:24.01\nfebruary\tnvcr.io/x:24.02\n  nvcr.io/x:24.03  \n")
    order = candidates.items(tmp_path / "list.txt")
    assert [(entry.label, entry.item) for entry in order.entries] == [
        ("nvcr.io/x:24.01", "nvcr.io/x:24.01"),
        ("february", "nvcr.io/x:24.02"),
        ("nvcr.io/x:24.03", "nvcr.io/x:24.03"),
    ]
    assert [entry.label for entry in candidates.between(order, "february", None).entries] == ["february", "nvcr.io/x:24.03"]
    assert [entry.label for entry in candidates.between(order, None, "nvcr.io/x:24.02").entries] == ["nvcr.io/x:24.01", "february"]
    with pytest.raises(UsageError, match="after the bad"):
        candidates.between(order, "nvcr.io/x:24.03", "february")
    for good, bad in (("nvcr.io/x:24.03", None), (None, "nvcr.io/x:24.01"), ("february", "february")):
        with pytest.raises(UsageError, match="after the bad"):
            candidates.between(order, good, bad)
    with pytest.raises(UsageError, match="names 0"):
        candidates.between(order, "march", None)


def test_a_list_that_gives_nothing_to_search_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("one\n# two\n")
    with pytest.raises(UsageError, match="gives 1"):
        candidates.items(tmp_path / "list.txt")
    with pytest.raises(InputError, match="can't be read"):
        candidates.items(tmp_path / "none.txt")
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="can't be read"):
        candidates.items(tmp_path / "list.txt")


# --- traces -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    unpack(NSYS, folder / "demo.sqlite")
    unpack(TORCH, folder / "demo.pt.trace.json")
    return folder


def test_every_format_tells_its_start_from_a_few_bytes(traces: Path, tmp_path: Path) -> None:
    assert start_of(traces / "demo.sqlite") == START_UNIX_NS
    torch = start_of(traces / "demo.pt.trace.json")
    assert torch is not None
    assert abs(torch - START_UNIX_NS) < 10**10
    shutil.copy(Path(__file__).parents[2] / "fixtures" / "traces" / TORCH, tmp_path / "packed.json.gz")
    assert start_of(tmp_path / "packed.json.gz") == torch
    (tmp_path / "night").mkdir()
    shutil.copy(traces / "demo.sqlite", tmp_path / "night" / "rank0.sqlite")
    assert start_of(tmp_path / "night") == START_UNIX_NS
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("night/", b"")  # as zip -r writes it
        archive.write(traces / "demo.pt.trace.json", "night/rank0.json", compress_type=zipfile.ZIP_DEFLATED)
    assert start_of(tmp_path / "packed.zip") == torch
    session = tmp_path / "tables" / "TARGET_INFO_SESSION_START_TIME.parquet"
    session.parent.mkdir()
    for name, told in (("StringIds", {"id": [0], "value": ["a"]}), (session.stem, {"utcEpochNs": [START_UNIX_NS]})):
        pl.DataFrame(told).write_parquet(session.with_stem(name))
    assert start_of(session.parent) == START_UNIX_NS
    session.unlink()
    assert start_of(session.parent) is None
    for folder, told in ((tmp_path / "night", START_UNIX_NS), (tmp_path, None)):  # by the export beside it
        (folder / "rank0.nsys-rep").write_bytes(REPORT + b" and the rest")
        assert start_of(folder / "rank0.nsys-rep") == told
    base, first = b'"baseTimeNanoseconds": 1700000000000000000', b'{"traceEvents": [{"ts": 5}]'
    (tmp_path / "long.json").write_bytes(
        first + b" " * 2**23 + b', "schemaVersion": 1, ' + base + b"}"
    )  # the base behind what is read from the front
    assert start_of(tmp_path / "long.json") == 1_700_000_000_000_005_000
    for wrong in (b"", b"not a trace", b'{"traceEvents": []}', b"SQLite format 3\0 and no more"):
        (tmp_path / "wrong.sqlite").write_bytes(wrong)
        assert start_of(tmp_path / "wrong.sqlite") is None
    assert start_of(tmp_path / "missing") is None


def at(source: Path, target: Path, hours: int | None) -> None:
    """A copy of a trace that was captured some hours later, or does not tell when."""
    shutil.copy(source, target)
    with sqlite3.connect(target) as trace:
        if hours is None:
            trace.execute("DELETE FROM TARGET_INFO_SESSION_START_TIME")
        else:
            trace.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?", (hours * 3600 * 10**9,))
    trace.close()


@for_each(
    "hours, order, how",
    ({"b": 1, "a": 2, "c": 0}, ["c", "b", "a"], "time of capture"),
    ({"night-10": 1, "night-9": 2, "night-11": None}, ["night-9", "night-10", "night-11"], "name"),
)
def test_traces_are_ordered_by_their_time_of_capture_or_by_name_where_one_has_none(
    hours: dict[str, int | None], order: list[str], how: str, traces: Path, tmp_path: Path
) -> None:
    for name, later in hours.items():
        at(traces / "demo.sqlite", tmp_path / f"{name}.sqlite", later)
    found = candidates.traces(["*.sqlite"], tmp_path)
    assert [entry.label for entry in found.entries] == [f"{name}.sqlite" for name in order]
    assert how in found.how
    assert candidates.traces([str(tmp_path / "*.sqlite")], Path("/")).entries == found.entries
    expanded = sorted(str(path) for path in tmp_path.glob("*.sqlite"))  # as a shell makes it of a pattern without quotes
    assert candidates.traces([*expanded, "*.sqlite"], tmp_path).entries == found.entries


def test_a_damaged_trace_does_not_put_the_others_out_of_their_order(traces: Path, tmp_path: Path) -> None:
    for name, hours in (("b", 1), ("a", 2), ("c", 0)):
        at(traces / "demo.sqlite", tmp_path / f"{name}.sqlite", hours)
    (tmp_path / "d.sqlite").write_bytes((traces / "demo.sqlite").read_bytes()[:20_000])
    (tmp_path / "e.sqlite").touch()
    for order in (candidates.traces(["*.sqlite"], tmp_path), candidates.runs([str(tmp_path)], tmp_path)):
        assert [entry.label for entry in order.entries] == ["c.sqlite", "b.sqlite", "a.sqlite"]
        assert order.how == "By the time of capture that each trace records. Left out, as they can't be read: d.sqlite, e.sqlite."


def test_a_damaged_trace_keeps_its_place_where_the_names_are_in_order_of_time(traces: Path, tmp_path: Path) -> None:
    for name, hours in (("night-1", 0), ("night-10", 2)):
        at(traces / "demo.sqlite", tmp_path / f"{name}.sqlite", hours)
    (tmp_path / "night-2.sqlite").write_bytes((traces / "demo.sqlite").read_bytes()[:20_000])
    order = candidates.traces(["*.sqlite"], tmp_path)
    assert [entry.label for entry in order.entries] == ["night-1.sqlite", "night-2.sqlite", "night-10.sqlite"]


def test_traces_that_tell_one_time_are_ordered_by_the_dates_in_their_names(traces: Path, tmp_path: Path) -> None:
    """Copies, and captures of a machine whose clock was set back, tell times that order nothing."""
    for name in ("x-2026-10-09_run", "y-2026-10-07", "a-20261008"):
        at(traces / "demo.sqlite", tmp_path / f"{name}.sqlite", 0)
    order = candidates.traces(["*.sqlite"], tmp_path)
    assert [entry.label[:1] for entry in order.entries] == ["y", "a", "x"]
    assert order.how == "By the date in the names, because several record the same time of capture."
    at(traces / "demo.sqlite", tmp_path / "b-20261008.sqlite", 0)
    assert candidates.traces(["*.sqlite"], tmp_path).how == "By name, because several record the same time of capture."


def test_traces_that_name_commits_are_ordered_by_them(traces: Path, tmp_path: Path) -> None:
    folder = new(tmp_path / "repository")
    commits = line(folder, 8)
    (folder / "nightly").mkdir()
    for number, hours in ((4, 0), (1, 3), (6, 1)):
        at(traces / "demo.sqlite", folder / "nightly" / f"20260101-{commits[number][:10]}.sqlite", hours)
    order = candidates.traces(["nightly/*.sqlite"], folder)
    assert [entry.subject.split()[0] for entry in order.entries] == [commits[number][:12] for number in (1, 4, 6)]
    assert "commit" in order.how
    at(traces / "demo.sqlite", folder / "nightly" / "other.sqlite", 9)
    assert "time" in candidates.traces(["nightly/*.sqlite"], folder).how


def test_a_folder_of_ranks_is_one_candidate_and_exports_are_not_counted_twice(traces: Path, tmp_path: Path) -> None:
    for name, hours in (("n1", 0), ("n2", 1)):
        (tmp_path / name).mkdir()
        at(traces / "demo.sqlite", tmp_path / name / "rank0.sqlite", hours)
        at(traces / "demo.sqlite", tmp_path / name / "rank1.sqlite", hours)
    assert [entry.label for entry in candidates.traces(["n*"], tmp_path).entries] == ["n1", "n2"]
    for name, hours in (("x", 1), ("y", 0)):
        (tmp_path / f"{name}.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 64)
        at(traces / "demo.sqlite", tmp_path / f"{name}.sqlite", hours)
    assert [entry.label for entry in candidates.traces(["[xy].*"], tmp_path).entries] == ["y.sqlite", "x.sqlite"]
    with pytest.raises(InputError, match="No file matches"):
        candidates.traces(["nothing*"], tmp_path)
    with pytest.raises(UsageError, match="gives 1"):
        candidates.traces(["x.sqlite"], tmp_path)
