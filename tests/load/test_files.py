"""What a path is, told by content; which traces a folder or a pattern holds."""

import gzip
import json
import os
import sqlite3
import stat
import zipfile
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from diagnose.errors import InputError
from diagnose.load.files import private_folder
from diagnose.load.readers import expand, sniff
from tests.builders.cases import for_each

TRACE = json.dumps({"schemaVersion": 1, "traceEvents": []}).encode()


def sqlite(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    return path


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def pqtdir(path: Path) -> Path:
    path.mkdir()
    pl.DataFrame({"start": [1]}).write_parquet(path / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    return path


def test_kinds_follow_from_content_not_from_the_suffix(tmp_path: Path) -> None:
    assert sniff(sqlite(tmp_path / "a.json")).name == "nsys-sqlite"
    assert sniff(write(tmp_path / "b.sqlite", TRACE)).name == "torch-json"
    assert sniff(write(tmp_path / "b2", b"\xef\xbb\xbf\n  [" + b" " * 10)).name == "torch-json"
    assert sniff(write(tmp_path / "c.json", gzip.compress(TRACE))).name == "torch-json"
    with zipfile.ZipFile(tmp_path / "d.json", "w") as archive:
        archive.writestr("trace.json", TRACE)
    assert sniff(tmp_path / "d.json").name == "torch-json"
    assert sniff(write(tmp_path / "e.bin", b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal\0")).name == "nsys-report"
    assert sniff(write(tmp_path / "f.nsys-rep", b"A NEW HEADER\0\1\2\3")).name == "nsys-report"
    assert sniff(pqtdir(tmp_path / "g")).name == "nsys-parquet"


FOREIGN = [
    ("a.json", b'{"data":["[Unknown]","a"]}\n{"Type":48}\n', "nsys JSON export"),
    ("a.info", b'{\n    "VmSystemInformation": []}', "nsys info export"),
    ("a.h5", b"\x89HDF\r\n\x1a\n" + bytes(90), "HDF5"),
    ("a.arrows", b"\xff\xff\xff\xff\xf0\0\0\0", "Arrow"),
    ("a.arrow", b"ARROW1\0\0", "Arrow"),
    ("a.txt", b'data: "[Unknown]"\ndata: "x"\n', "nsys text export"),
    ("a.qdstrm", b"U3w[END]NVIDIA Nsight Systems Stream 2022.4.2.1", "never imported"),
    ("a.ncu-rep", b"NVR\0\1\2\3\0", "Nsight Compute"),
    ("a.pftrace", b"\x0a\x80\x02\x08\x01\0\0\0\0\0", "Perfetto"),
    ("a", b"\x0a\x80\x02\x08\x01\0\0\0\0\0", "Perfetto"),
    ("et.json", b'{"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1}]}', "execution trace"),
    ("d.json", b'{"schema": "diagnosis/2", "tool": {}}', "a result that diagnose itself wrote"),
    ("a.json", "[]".encode("utf-16"), "text in UTF-16"),
    ("a.parquet", b"PAR1\x15\x04", "one Parquet file"),
    ("a.json", b"", "empty file"),
    ("a.sqlite", bytes(5000), "zero bytes"),
    ("a.zst", b"\x28\xb5\x2f\xfd\0\0", "compressed"),
    ("a.tar", b"x" * 257 + b"ustar\0" + bytes(100), "tar archive"),
    ("snapshot.pickle", b"\x80\x04\x95\x10\0\0\0", "a Python pickle"),
    ("a.sqlite", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
    ("a.json", b"<!DOCTYPE html><html>", "web page"),
    ("a.csv", b"Time (%),Total Time (ns),Instances\n50.0,1,1\n", "nsys stats"),
    ("job.yaml", b"model: mixtral\n", "text file"),
    ("a.nsys-rep", b"not a report\n", "text file"),
    ("a.sqlite", bytes(range(1, 255)) * 9 + b"\0", "no format that is known"),
    ("a.gz", b"\x1f\x8b\x07\0" + b"broken" * 20, "damaged gzip"),
    ("a.gz", gzip.compress(b""), "nothing inside"),
    ("a.gz", gzip.compress(b"hello " * 9), "text file"),
    ("a.sqlite.gz", gzip.compress(b"SQLite format 3\0" + bytes(90)), "gzip-compressed database"),
    ("a.tgz", gzip.compress(b"x" * 257 + b"ustar\0" + bytes(100)), "archive"),
    ("a.zip", b"PK\x03\x04 broken", "zip archive"),
]


@for_each("name, content, words", *FOREIGN)
def test_foreign_content_is_named_and_the_way_out_is_told(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    with pytest.raises(InputError) as caught:
        sniff(write(tmp_path / name, content))
    assert words in caught.value.what.replace(name, "")
    assert name in caught.value.what
    assert caught.value.next_step
    assert caught.value.exit_code == 3
    assert str(tmp_path) not in str(caught.value)


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one.json", TRACE)
        archive.writestr("two.json", TRACE)
    with pytest.raises(InputError, match="zip archive of 2 files"):
        sniff(tmp_path / "a.zip")


def test_things_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        sniff(tmp_path / "nothing.sqlite")
    with pytest.raises(InputError, match="cannot be read"):
        sniff(Path("a\0b"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        sniff(tmp_path / "pipe")
    (tmp_path / "arrows").mkdir()
    write(tmp_path / "arrows" / "StringIds.arrow", b"x")
    with pytest.raises(InputError, match="arrowdir"):
        sniff(tmp_path / "arrows")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="without the tables"):
        sniff(tmp_path / "other")


def test_a_folder_is_read_in_natural_order_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    for name in ("rank10.json", "rank2.json", "rank1.json.gz"):
        write(tmp_path / name, gzip.compress(TRACE) if name.endswith("gz") else TRACE)
    sqlite(tmp_path / "x.sqlite")
    write(tmp_path / "x.sqlite-wal", b"")
    write(tmp_path / "notes.txt", b"hello\n")
    write(tmp_path / ".hidden.json", TRACE)
    pqtdir(tmp_path / "y_pqtdir")
    found = expand([tmp_path])
    assert [path.name for path in found.traces] == ["rank1.json.gz", "rank2.json", "rank10.json", "x.sqlite", "y_pqtdir"]
    assert [name for name, _ in found.ignored] == ["notes.txt"]
    assert "text file" in found.ignored[0][1]


def test_an_empty_file_that_is_named_like_the_traces_of_its_folder_is_a_lost_one(tmp_path: Path) -> None:
    for name, content in (("rank0.json", TRACE), ("rank1.json", b""), ("rank2.json", bytes(40)), ("notes.txt", b""), ("x.sqlite", b"")):
        write(tmp_path / name, content)
    found = expand([tmp_path])
    assert [path.name for path in found.traces] == ["rank0.json", "rank1.json", "rank2.json"]
    assert [name for name, _ in found.ignored] == ["notes.txt", "x.sqlite"]


def test_a_report_and_its_exports_are_one_trace(tmp_path: Path) -> None:
    report = write(tmp_path / "run.nsys-rep", b"NVIDIA Tegra Profiler Report 1.\n")
    export = sqlite(tmp_path / "run.sqlite")
    pqtdir(tmp_path / "run_pqtdir")
    os.utime(report, (100, 100))
    found = expand([tmp_path])
    assert found.traces == (export,)
    assert dict(found.ignored) == {"run.nsys-rep": "its export run.sqlite is read instead", "run_pqtdir": "another export of run.nsys-rep"}
    os.utime(report, (2**32, 2**32))
    assert expand([tmp_path]).traces == (report,)


def test_patterns_files_and_repetitions(tmp_path: Path) -> None:
    names = ["b.json", "a.json"]
    first, second = (write(tmp_path / name, TRACE) for name in names)
    assert expand([tmp_path / "*.json"]).traces == (second, first)
    assert expand([first, second, first, tmp_path / "*.json"]).traces == (first, second)
    assert expand([tmp_path / "missing.json"]).traces == (tmp_path / "missing.json",)
    folder = pqtdir(tmp_path / "run_pqtdir")
    assert expand([folder]).traces == (folder,)
    literal = write(tmp_path / "x[1].json", TRACE)
    assert expand([literal]).traces == (literal,)
    with pytest.raises(InputError, match="No file matches"):
        expand([tmp_path / "*.sqlite"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no trace"):
        expand([tmp_path / "empty"])


def test_a_folder_without_traces_stands_for_the_folders_in_it(tmp_path: Path) -> None:
    for rank in (10, 2):
        (tmp_path / f"rank{rank}").mkdir()
        write(tmp_path / f"rank{rank}" / "trace.json", TRACE)
    write(tmp_path / "rank2" / "notes.txt", b"hello\n")
    found = expand([tmp_path])
    assert [path.parent.name for path in found.traces] == ["rank2", "rank10"]
    assert [name for name, _ in found.ignored] == ["notes.txt"]
    (tmp_path / "rank2").rename(tmp_path / "before")
    with pytest.raises(InputError, match="ranks of one job or several runs"):
        expand([tmp_path])
    write(tmp_path / "whole.json", TRACE)
    assert expand([tmp_path]).traces == (tmp_path / "whole.json",), "a folder with traces is those traces"


def test_links_in_a_circle_and_folders_of_arrow_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to("loop.json")
    assert expand([tmp_path / "loop.json"]).traces == (tmp_path / "loop.json",)
    with pytest.raises(InputError, match="cannot be read"):
        sniff(tmp_path / "loop.json")
    (tmp_path / "arrows").mkdir()
    write(tmp_path / "arrows" / "StringIds.arrow", b"x")
    with pytest.raises(InputError, match="arrowdir"):
        expand([tmp_path / "arrows"])


def test_patterns_reach_into_folders_and_choose_one_of_a_report_and_its_export(tmp_path: Path) -> None:
    for node in ("node1", "node0"):
        (tmp_path / node).mkdir()
        os.utime(write(tmp_path / node / "rank0.nsys-rep", b"NVIDIA Tegra Profiler Report 1.\n"), (100, 100))
    exports = [sqlite(tmp_path / node / "rank0.sqlite") for node in ("node0", "node1")]
    assert expand([tmp_path / "node*" / "*.sqlite"]).traces == tuple(exports)
    assert expand([tmp_path / "**" / "*.sqlite"]).traces == tuple(exports)
    exports[1].unlink()
    found = expand([tmp_path / "node*" / "*"])
    assert found.traces == (exports[0], tmp_path / "node1" / "rank0.nsys-rep"), "an export stands for the report beside it only"
    assert found.ignored == (("rank0.nsys-rep", "its export rank0.sqlite is read instead"),)
    both = [tmp_path / "node0" / "rank0.nsys-rep", exports[0]]
    assert expand(both).traces == tuple(both), "what is named stays"


def test_the_private_folder_is_private_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with private_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "x").write_text("x")
    assert list(tmp_path.iterdir()) == []
