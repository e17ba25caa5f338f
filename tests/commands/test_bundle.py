"""The bundle for a report of a fault: complete, the same each time, and without what is private."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from msgspec import structs

from diagnose.cli import main
from diagnose.commands.bundle import bundle
from diagnose.document.diagnosis import decode
from diagnose.model.environment import EnvironmentItem
from tests.builders.diagnosis import rich

JOB = Path(__file__).parents[2] / "fixtures" / "jobs" / "a1_qwen3_30b_h100.sh"
PRIVATE = ("mallory", "topsecret1", "0123456789abcdef0123456789abcdef01234567", "box-9", "10.1.2.3", "customer-x")
HEAD = """\
#!/bin/bash
export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
export HF_TOKEN="topsecret1"
export MASTER_ADDR=box-9.cluster.internal NODE_IP=10.1.2.3
cd /home/mallory/customer-x/run
"""


def members(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def hostile(folder: Path) -> tuple[Path, Path]:
    """A job file and a trace whose names and texts tell what is private."""
    job = folder / "mallory_job.sh"
    job.write_text(HEAD + JOB.read_text(encoding="utf-8"), encoding="utf-8")
    return job, folder / "mallory_trace.sqlite"


def test_it_holds_everything_and_nothing_private(tmp_path: Path) -> None:
    job, trace = hostile(tmp_path)
    document = rich()
    names = [structs.replace(one, file="mallory_trace.sqlite", host="box-9") for one in document.capture.ranks]
    item = EnvironmentItem(name="MY_TOKEN", kind="variable", value="topsecret1", source="x")
    assert document.timeline is not None
    columns = document.timeline.columns
    columns = structs.replace(columns, names=("/home/mallory/customer-x/train.py(35): step", *columns.names[1:]))
    document = structs.replace(
        document,
        capture=structs.replace(document.capture, ranks=tuple(names), notes=("read from mallory@box-9",)),
        environment=(item, EnvironmentItem(name="PyTorch", kind="version", value="2.9.0", source="x")),
        timeline=structs.replace(document.timeline, columns=columns),
    )
    typed = [str(trace), "--config", str(job), "--bundle", "/home/mallory/bug.zip"]
    data = bundle(document, job, typed, redact=True)
    assert bundle(document, job, typed, redact=True) == data
    (tmp_path / "bug.zip").write_bytes(data)
    found = members(tmp_path / "bug.zip")
    assert sorted(found) == sorted(
        ["README.txt", "report.html", "report.md", "diagnosis.json", "job.sh", "versions.json", "command.txt", "redacted.txt"]
    )
    assert {name: [one for one in PRIVATE if one in text] for name, text in found.items() if any(one in text for one in PRIVATE)} == {}
    again = decode(found["diagnosis.json"].encode())
    assert [one.bound_ns for one in again.findings] == [one.bound_ns for one in document.findings]
    assert again.steps == document.steps
    assert "--num-layers" in found["job.sh"]
    assert found["command.txt"].startswith("diagnose redacted-path-")
    assert "beside WANDB_API_KEY" in found["redacted.txt"]
    versions = json.loads(found["versions.json"])
    assert versions["recorded in the capture"] == {"PyTorch": "2.9.0"}
    assert versions["libraries"]["polars"]


def test_nothing_is_redacted_when_told_so_and_it_is_said(tmp_path: Path) -> None:
    job, trace = hostile(tmp_path)
    (tmp_path / "bug.zip").write_bytes(bundle(rich(), job, [str(trace)], redact=False))
    found = members(tmp_path / "bug.zip")
    assert found["job.sh"] == job.read_text(encoding="utf-8")
    assert "NOTHING WAS REDACTED" in found["README.txt"]


def test_refusals_come_before_any_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["missing.sqlite", "--no-redact"]) == 2
    assert main(["missing.sqlite", "--bundle", str(tmp_path / "bug.tar")]) == 2
    (tmp_path / "bug.zip").write_text("mine")
    assert main(["missing.sqlite", "--bundle", str(tmp_path / "bug.zip")]) == 2
    said = capfd.readouterr().err
    assert "Give --bundle" in said
    assert "is no .zip" in said
    assert "exists" in said


@pytest.mark.deep
def test_the_command_line_writes_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.render.test_perfetto import SAMPLE, unpacked

    trace = unpacked(SAMPLE, tmp_path)
    job = tmp_path / "job.sh"
    shutil.copy(JOB, job)
    assert main([str(trace), "--config", str(job), "--bundle", str(tmp_path / "bug.zip")]) == 0
    assert "look through it" in capfd.readouterr().err
    found = members(tmp_path / "bug.zip")
    assert str(tmp_path) not in "".join(found.values())
    assert decode(found["diagnosis.json"].encode()).findings
