"""Named baselines in a folder: what is kept, what is found again, and what is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from msgspec import structs

from diagnose.document.diagnosis import Diagnosis, decode
from diagnose.errors import OutputError, UsageError
from diagnose.reason.compare import baselines
from diagnose.reason.compare.baselines import BaselineError, check_name, remove
from tests.builders.cases import for_each
from tests.builders.compared import document, job
from tests.builders.comparing import find, fingerprint, listed, save
from tests.builders.diagnosis import rich

STEPS = [{"attention": 1_000_000 + step} for step in range(4)]


def run(**changes: object) -> Diagnosis:
    return document(STEPS, job=job(**changes))


def test_a_baseline_is_found_again_by_name_and_fingerprint(tmp_path: Path) -> None:
    path = save(tmp_path / "b", "main", run(), force=False)
    assert path == tmp_path / "b" / "main" / f"{fingerprint(run())}.json"
    assert find(tmp_path / "b", "main", run(micro_batch_size=4)) == run(), "a tunable makes no other job"
    with pytest.raises(BaselineError, match="num_layers 48"):
        find(tmp_path / "b", "main", run(num_layers=64))


def test_one_name_holds_one_for_each_job_and_device(tmp_path: Path) -> None:
    others = [run(), run(num_layers=64), document(STEPS, job=job(), gpu="NVIDIA B200")]
    for one in others:
        save(tmp_path, "main", one, force=False)
    assert [find(tmp_path, "main", one) for one in others] == others
    assert len(listed(tmp_path)) == 3


def test_neither_hosts_nor_the_timeline_are_kept(tmp_path: Path) -> None:
    found = rich()
    named = structs.replace(
        found, capture=structs.replace(found.capture, ranks=tuple(structs.replace(rank, host="node-17") for rank in found.capture.ranks))
    )
    assert named.timeline is not None
    path = save(tmp_path, "main", named, force=False)
    assert b"node-17" not in path.read_bytes()
    kept = decode(path.read_bytes())
    assert kept.timeline is None
    assert kept == structs.replace(found, timeline=None)
    assert fingerprint(kept) == fingerprint(named) == path.stem


def test_an_existing_one_is_kept_without_force(tmp_path: Path) -> None:
    path = save(tmp_path, "main", run(), force=False)
    before = path.read_bytes()
    later = document([{"attention": 2_000_000}], job=job())
    with pytest.raises(UsageError, match="exists for this job and device"):
        save(tmp_path, "main", later, force=False)
    assert path.read_bytes() == before
    assert save(tmp_path, "main", later, force=True) == path
    assert decode(path.read_bytes()) == later
    assert [one.name for one in path.parent.iterdir()] == [path.name], "nothing else is left behind"


@for_each(
    "name",
    *["", ".", "..", "../x", "a/b", "a\\b", "/x", "-x", ".hidden", "x.", "a b", "a\nb", "ä", "x" * 101],
    *["con", "NUL.txt", "com1", "a:b", "~", "x\0"],
)
def test_names_that_are_no_plain_names_are_refused(tmp_path: Path, name: str) -> None:
    for call in (lambda: check_name(name), lambda: save(tmp_path, name, run(), force=True), lambda: remove(tmp_path, name)):
        with pytest.raises(UsageError, match="can't be the name of a baseline"):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["main", "h100-nightly", "v1.2_a", "0", "console"])
def test_plain_names_are_taken(name: str) -> None:
    assert check_name(name) == name


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "main").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="is a link to somewhere else"):
        save(tmp_path / "b", "main", run(), force=True)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_link_to_the_whole_folder_is_the_user_s_own_choice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "real")
    save(tmp_path / "b", "main", run(), force=False)
    assert find(tmp_path / "b", "main", run()) == run()


def test_no_baseline_at_all_says_how_to_save_one(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="diagnose baseline save main TRACE"):
        find(tmp_path / "nowhere", "main", run())
    assert listed(tmp_path / "nowhere") == ()


@for_each("content, said", (b"", "damaged"), (b"{}", "damaged"), (b"\xff\xfe", "damaged"), (b"[" * 100_000, "damaged"))
def test_damaged_files_are_named_and_listed(tmp_path: Path, content: bytes, said: str) -> None:
    path = save(tmp_path, "main", run(), force=False)
    path.write_bytes(content)
    with pytest.raises(BaselineError, match=said) as fault:
        find(tmp_path, "main", run())
    assert "--force" in fault.value.next_step
    assert fault.value.exit_code == 3
    with pytest.raises(BaselineError, match=said):
        find(tmp_path, "main", run(num_layers=64))
    assert [(one.name, one.bytes, one.job, said in one.problem) for one in listed(tmp_path)] == [("main", len(content), None, True)]


def test_a_newer_schema_is_said_to_be_one(tmp_path: Path) -> None:
    path = save(tmp_path, "main", run(), force=False)
    path.write_bytes(path.read_bytes().replace(b'"diagnosis/2"', b'"diagnosis/7"'))
    with pytest.raises(BaselineError, match="its schema is diagnosis/7"):
        find(tmp_path, "main", run())


def test_a_document_under_another_job_s_name_is_not_used(tmp_path: Path) -> None:
    path = save(tmp_path, "main", run(), force=False)
    other = save(tmp_path, "other", run(num_layers=64), force=False)
    path.write_bytes(other.read_bytes())
    with pytest.raises(BaselineError, match="another job's than its name says"):
        find(tmp_path, "main", run())


def test_other_things_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    save(tmp_path, "main", run(), force=False)
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "main" / "notes.txt").write_text("mine")
    (tmp_path / "main" / ".x.json.1.tmp").write_text("half")
    assert [one.name for one in listed(tmp_path)] == ["main"]
    remove(tmp_path, "main")
    assert sorted(path.name for path in (tmp_path / "main").iterdir()) == [".x.json.1.tmp", "notes.txt"]


def test_removing_takes_all_of_a_name_or_one(tmp_path: Path) -> None:
    for one in (run(), run(num_layers=64)):
        save(tmp_path, "main", one, force=False)
    first = fingerprint(run())
    assert remove(tmp_path, "main", lambda stem: stem == first) == (first,)
    assert remove(tmp_path, "main") == (fingerprint(run(num_layers=64)),)
    assert not (tmp_path / "main").exists()
    with pytest.raises(BaselineError, match="There is no such baseline main"):
        remove(tmp_path, "main")


def test_what_is_listed_is_what_tells_baselines_apart(tmp_path: Path) -> None:
    save(tmp_path, "main", run(), force=False)
    row = listed(tmp_path)[0]
    assert row.device == "NVIDIA H100 80GB HBM3"
    assert row.job is not None
    assert "num_layers 48" in row.job["layers"]
    assert (row.step_ns, row.steps, row.target_wall, row.problem) == (1_000_002, 4, run().verdict.target_wall, "")


def test_a_folder_that_cannot_be_made_is_74(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="could not be made"):
        save(tmp_path / "file", "main", run(), force=False)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_cannot_be_written_is_74(tmp_path: Path) -> None:
    (tmp_path / "main").mkdir(mode=0o500)
    with pytest.raises(OutputError):
        save(tmp_path, "main", run(), force=False)


def test_a_full_disk_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, "main", run(), force=False)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        save(tmp_path, "main", document([{"attention": 5}], job=job()), force=True)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_the_default_folder_is_in_the_repository() -> None:
    assert baselines.FOLDER.as_posix() == ".diagnose/baselines"
