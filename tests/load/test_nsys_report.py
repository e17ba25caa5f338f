"""Reports: the export beside them, the user's nsys (a stand-in script, and the real one where it is installed)."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import InputError
from diagnose.load import nsys_report, nsys_sqlite
from diagnose.load.conform import conform
from diagnose.load.readers import sniff
from tests.builders.nsys_db import basic
from tests.builders.processes import gone
from tests.load.test_files import pqtdir

VERSION = 'if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version 2024.2.3.38-242334140272v0"; exit 0; fi\n'


def report(folder: Path) -> Path:
    path = folder / "my run.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal\0")
    os.utime(path, (1_000_000, 1_000_000))
    return path


def program(folder: Path, body: str) -> Path:
    path = folder / "nsys"
    path.write_text("#!/bin/sh\n" + VERSION + body)
    path.chmod(0o755)
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir(mode=0o700)
    return folder


def test_an_export_beside_the_report_is_used_if_it_is_not_older(tmp_path: Path, work: Path) -> None:
    path = report(tmp_path)
    export = basic(tmp_path / "my run.sqlite")
    found, notes, ledger = nsys_report.resolve(path, workdir=work, nsys=None)
    assert found == export
    assert "lay beside" in notes[0]
    assert [entry.code for entry in ledger.entries] == ["sibling_export"]
    folder = pqtdir(tmp_path / "my run_pqtdir")
    os.utime(export, (1, 1))
    assert nsys_report.resolve(path, workdir=work)[0] == folder


def test_an_older_export_or_one_of_another_kind_is_not_used(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    path = report(tmp_path)
    (tmp_path / "my run.sqlite").write_text("not a database")
    with pytest.raises(InputError, match="no nsys") as caught:
        nsys_report.resolve(path, workdir=work)
    assert "nsys export --type sqlite --output 'my run.sqlite' 'my run.nsys-rep'" in caught.value.next_step
    basic(tmp_path / "other.sqlite").replace(tmp_path / "my run.sqlite")
    os.utime(tmp_path / "my run.sqlite", (1, 1))
    with pytest.raises(InputError, match="no nsys"):
        nsys_report.resolve(path, workdir=work)


def test_the_given_nsys_exports_into_the_private_folder(tmp_path: Path, work: Path) -> None:
    source = basic(tmp_path / "source.sqlite")
    seen = tmp_path / "seen"
    nsys = program(tmp_path, f'printf "%s\\n" "$@" > {seen}\ncp {source} "$5"\n')
    path = report(tmp_path)
    found, notes, ledger = nsys_report.resolve(path, nsys=nsys, workdir=work)
    assert found == work / "my run.nsys-rep"  # messages name what was given
    assert seen.read_text().splitlines() == ["export", "--type", "sqlite", "--output", str(work / "my run.sqlite"), str(path)]
    assert notes == ("my run.nsys-rep was exported to a private folder with nsys 2024.2.3.38.",)
    assert [entry.code for entry in ledger.entries] == ["exported"]
    assert conform(nsys_sqlite.read(found)).ops.height == 3
    assert sorted(item.name for item in tmp_path.iterdir()) == ["my run.nsys-rep", "nsys", "seen", "source.sqlite", "work"]


def test_nsys_is_found_on_the_path(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f'cp {basic(tmp_path / "source.sqlite")} "$5"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert nsys_report.resolve(report(tmp_path), workdir=work)[0].is_file()


def test_a_failed_export_is_told_in_nsys_own_words_without_paths(tmp_path: Path, work: Path) -> None:
    nsys = program(
        tmp_path,
        'printf "Exporting [1%%   ]\\rExporting [2%%   ]\\n"; echo "Exportation error: Cannot read from stream /home/alice/x."; echo > "$5"; exit 1\n',
    )
    with pytest.raises(InputError) as caught:
        nsys_report.resolve(report(tmp_path), nsys=nsys, workdir=work)
    assert caught.value.what == "nsys 2024.2.3.38 could not export my run.nsys-rep: Exportation error: Cannot read from stream …."
    assert "alice" not in str(caught.value)
    plain = report(tmp_path).rename(tmp_path / "run.nsys-rep")
    nsys = program(tmp_path, 'echo "Error: $6 is damaged."; exit 1\n')
    with pytest.raises(InputError, match=r"could not export run\.nsys-rep: Error: run\.nsys-rep is damaged\."):
        nsys_report.resolve(plain, nsys=nsys, workdir=work)


def test_a_report_of_a_newer_nsys_is_recognised(tmp_path: Path, work: Path) -> None:
    of_2024 = "Report was created in Nsight Systems version (2026.1.1.0), newer than your current version (2024.2.3.38)"
    of_2022 = "Importer error status: An unknown error occurred. Version number is invalid"
    for words in (of_2024, of_2022):
        with pytest.raises(InputError, match="captured by a newer Nsight Systems"):
            nsys_report.resolve(report(tmp_path), nsys=program(tmp_path, f'echo "{words}"; exit 1\n'), workdir=work)


@pytest.mark.deep
def test_an_export_that_never_ends_is_stopped_with_all_its_processes(tmp_path: Path, work: Path) -> None:
    child = tmp_path / "child"
    nsys = program(tmp_path, f"sleep 3600 &\necho $! > {child}\nwait\n")
    began = time.monotonic()
    with pytest.raises(InputError, match="did not finish"):
        nsys_report.resolve(report(tmp_path), nsys=nsys, workdir=work, timeout_s=3.0)
    assert time.monotonic() - began < 900, "it waited for the export"
    assert gone(int(child.read_text()))


def test_a_signal_that_comes_while_nsys_is_being_started_leaves_none_behind(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        nsys_report.resolve(report(tmp_path), nsys=program(tmp_path, "sleep 3600\n"), workdir=work)
    assert len(started) == 1
    assert gone(started[0])


def test_a_program_that_is_stopped_takes_what_it_started_along() -> None:
    process = subprocess.Popen(["/bin/sh", "-c", "sleep 3600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        started = int(process.stdout.readline())
        nsys_report.stop(process)
        assert process.poll() == -signal.SIGTERM
        assert gone(started)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_an_nsys_that_cannot_be_run_is_told(tmp_path: Path, work: Path) -> None:
    with pytest.raises(InputError, match="not a program"):
        nsys_report.resolve(report(tmp_path), nsys=tmp_path / "missing", workdir=work)
    (tmp_path / "plain").write_text("x")
    with pytest.raises(InputError, match="not a program"):
        nsys_report.resolve(report(tmp_path), nsys=tmp_path / "plain", workdir=work)
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with pytest.raises(InputError, match="cannot be run"):
        nsys_report.resolve(report(tmp_path), nsys=broken, workdir=work)


def _end_agents(session: str) -> None:
    """Stop the agent that nsys leaves running for `session`, which can outlive a capture in a container."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:
            continue
        if f"--session-name={session}".encode() in words.split(b"\0"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.parent.name), signal.SIGKILL)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a program without GPU work, made by the real nsys."""
    if shutil.which("nsys") is None:
        pytest.skip("NVIDIA's nsys is not installed here")
    folder = tmp_path_factory.mktemp("capture")
    arguments = ["nsys", "profile", f"--output={folder / 'cpu'}", "--trace=osrt", "--sample=none", "/bin/ls", "/"]
    # no pipe: the agent that nsys leaves running would hold it open
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(arguments, cwd=folder, **quiet) as process:
        try:
            process.wait(timeout=600)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.skip("nsys cannot capture on this machine: it did not end in ten minutes")
        finally:
            _end_agents(f"profile-ls-{process.pid}")
    path = folder / "cpu.nsys-rep"
    if not path.is_file():
        stream, importer = folder / "cpu.qdstrm", Path("/usr/lib/nsight-systems/host-linux-x64/QdstrmImporter")
        if not stream.is_file() or not importer.is_file():
            pytest.skip("nsys cannot capture on this machine")
        subprocess.run([str(importer), "-i", str(stream), "-o", str(path)], check=True, capture_output=True, timeout=600)
    return path


@pytest.mark.nsys
def test_the_real_nsys_exports_a_real_report(captured: Path, work: Path) -> None:
    assert sniff(captured).name == "nsys-report"
    found, notes, _ = nsys_report.resolve(captured, workdir=work)
    assert sniff(found).name == "nsys-sqlite"
    assert "exported to a private folder with nsys 20" in notes[0]
    with pytest.raises(InputError, match=r"^cpu\.nsys-rep holds no GPU work"):
        conform(nsys_sqlite.read(found))
    assert sorted(item.name for item in captured.parent.iterdir() if item.suffix == ".sqlite") == []


@pytest.mark.nsys
def test_the_real_nsys_refuses_a_cut_report(captured: Path, tmp_path: Path, work: Path) -> None:
    cut = tmp_path / "cut.nsys-rep"
    cut.write_bytes(captured.read_bytes()[:20_000])
    with pytest.raises(InputError, match=r"could not export cut\.nsys-rep: Exportation error"):
        nsys_report.resolve(cut, workdir=work)
