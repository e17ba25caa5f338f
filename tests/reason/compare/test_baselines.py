"""Named baselines in a folder: what is kept, what is found again, and what is refused."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from diagnose.document.baselines import decode_run
from diagnose.document.diagnosis import Diagnosis
from diagnose.errors import OutputError, UsageError
from diagnose.reason.compare import baselines
from diagnose.reason.compare.baselines import BaselineError, check_name
from tests.builders.cases import for_each
from tests.builders.compared import document, job
from tests.builders.comparing import fingerprint, store
from tests.builders.comparing import run as compared
from tests.builders.diagnosis import rich

STEPS = [{"attention": 1_000_000 + step} for step in range(4)]


DAY = datetime(2026, 1, 1, 12, tzinfo=UTC)


def run(**changes: object) -> Diagnosis:
    return document(STEPS, job=job(**changes))


def night(number: int) -> Diagnosis:
    """A run of the same job with steps of its own."""
    return document([{"attention": 1_000_000 + 1000 * number + step} for step in range(4)], job=job())


def save(folder: Path, name: str, one: Diagnosis, **options: Any) -> Path:
    return store(folder).add(name, one, **{"date": DAY, **options}).path


def find(folder: Path, name: str, new: Diagnosis) -> Diagnosis:
    return store(folder).find(name, new)[-1].document


def test_a_baseline_is_found_again_by_name_and_fingerprint(tmp_path: Path) -> None:
    path = save(tmp_path / "b", "main", run())
    assert path.parent == tmp_path / "b" / "main" / fingerprint(run())
    assert path.name.startswith("20260101T120000Z-")
    assert find(tmp_path / "b", "main", run(micro_batch_size=4)) == run(), "a tunable makes no other job"
    with pytest.raises(BaselineError, match="num_layers 48"):
        find(tmp_path / "b", "main", run(num_layers=64))


def test_one_name_holds_one_for_each_job_and_device(tmp_path: Path) -> None:
    others = [run(), run(num_layers=64), document(STEPS, job=job(), gpu="NVIDIA B200")]
    for one in others:
        save(tmp_path, "main", one)
    assert [find(tmp_path, "main", one) for one in others] == others
    assert len(store(tmp_path).listed()) == 3


def test_neither_hosts_nor_the_timeline_are_kept(tmp_path: Path) -> None:
    found = rich()
    named = structs.replace(
        found, capture=structs.replace(found.capture, ranks=tuple(structs.replace(rank, host="node-17") for rank in found.capture.ranks))
    )
    assert named.timeline is not None
    path = save(tmp_path, "main", named)
    assert b"node-17" not in path.read_bytes()
    kept = decode_run(path.read_bytes()).diagnosis
    assert kept.timeline is None
    assert kept == structs.replace(found, timeline=None)
    assert fingerprint(kept) == fingerprint(named) == path.parent.name


def test_the_last_runs_of_a_job_are_kept_in_order_with_date_and_commit(tmp_path: Path) -> None:
    for number in (3, 1, 2, 4):
        done = store(tmp_path).add(
            "main", night(number), date=DAY + timedelta(days=number), commit=f"c{number}", host_class="west", label="t", keep=3
        )
    assert (done.known, done.dropped) == (False, 1)
    found = store(tmp_path).runs("main")
    assert [(one.date, one.commit, one.host_class) for one in found] == [
        (f"2026-01-0{n + 1}T12:00:00Z", f"c{n}", "west") for n in (2, 3, 4)
    ]
    assert [one.document for one in found] == [night(2), night(3), night(4)]
    row = store(tmp_path).listed()[0]
    assert row.noise == pytest.approx(0.001, rel=0.01)
    assert [one.run for one in row.runs] == [one.run for one in found]
    assert store(tmp_path).remove("main", run=found[0].run) == ((found[0].fingerprint, found[0].run),)
    assert len(store(tmp_path).runs("main")) == 2


def test_a_run_that_is_stored_already_is_not_stored_again(tmp_path: Path) -> None:
    first = store(tmp_path).add("main", run(), date=DAY)
    again = store(tmp_path).add("main", run(), date=DAY + timedelta(days=1))
    assert (again.known, again.path) == (True, first.path)
    assert len(store(tmp_path).runs("main")) == 1
    assert [one.name for one in first.path.parent.iterdir()] == [first.path.name], "nothing else is left behind"


_WRITER = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tests.builders.comparing import store
from tests.reason.compare.test_baselines import DAY, night
for number in range(int(sys.argv[2]), 20, 2):
    store(Path(sys.argv[1])).add("main", night(number), date=DAY + timedelta(days=number), keep=30)
"""


@pytest.mark.deep
def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), start], env=here) for start in "01"]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert [one.document for one in store(tmp_path).runs("main")] == [night(number) for number in range(20)]


@for_each(
    "name",
    *["", ".", "..", "../x", "a/b", "a\\b", "/x", "-x", ".hidden", "x.", "a b", "a\nb", "ä", "x" * 101],
    *["con", "NUL.txt", "com1", "a:b", "~", "x\0"],
)
def test_names_that_are_no_plain_names_are_refused(tmp_path: Path, name: str) -> None:
    for call in (lambda: check_name(name), lambda: save(tmp_path, name, run()), lambda: store(tmp_path).remove(name)):
        with pytest.raises(UsageError, match="can't be the name of a baseline"):
            call()
    assert list(tmp_path.iterdir()) == []


@for_each("name", "main", "h100-nightly", "v1.2_a", "0", "console")
def test_plain_names_are_taken(name: str) -> None:
    assert check_name(name) == name


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "main").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="is a link to somewhere else"):
        save(tmp_path / "b", "main", run())
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_link_to_the_whole_folder_is_the_user_s_own_choice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "real")
    save(tmp_path / "b", "main", run())
    assert find(tmp_path / "b", "main", run()) == run()


def test_no_baseline_at_all_says_how_to_save_one(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="diagnose baseline add main TRACE"):
        find(tmp_path / "nowhere", "main", run())
    assert store(tmp_path / "nowhere").listed() == ()


@for_each("content, said", (b"", "damaged"), (b"{}", "damaged"), (b"\xff\xfe", "damaged"), (b"[" * 100_000, "damaged"))
def test_damaged_files_are_named_and_listed(tmp_path: Path, content: bytes, said: str) -> None:
    path = save(tmp_path, "main", run())
    path.write_bytes(content)
    with pytest.raises(BaselineError, match=said) as fault:
        find(tmp_path, "main", run())
    assert f"baseline remove main --run {path.stem}" in fault.value.next_step
    assert fault.value.exit_code == 3
    with pytest.raises(BaselineError, match=said):
        find(tmp_path, "main", run(num_layers=64))
    assert [(one.name, one.bytes, one.job, said in one.problem) for one in store(tmp_path).listed()] == [("main", len(content), None, True)]


def test_a_newer_schema_is_said_to_be_one(tmp_path: Path) -> None:
    path = save(tmp_path, "main", run())
    path.write_bytes(path.read_bytes().replace(b'"diagnosis/2"', b'"diagnosis/7"'))
    with pytest.raises(BaselineError, match="its schema is diagnosis/7"):
        find(tmp_path, "main", run())


def test_a_document_under_another_job_s_name_is_not_used(tmp_path: Path) -> None:
    path = save(tmp_path, "main", run())
    other = save(tmp_path, "other", run(num_layers=64))
    path.write_bytes(other.read_bytes())
    with pytest.raises(BaselineError, match="another job's than its name says"):
        find(tmp_path, "main", run())


def test_other_things_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    save(tmp_path, "main", run())
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "main" / "notes.txt").write_text("mine")
    (tmp_path / "main" / ".x.json.1.tmp").write_text("half")
    assert [one.name for one in store(tmp_path).listed()] == ["main"]
    store(tmp_path).remove("main")
    assert sorted(path.name for path in (tmp_path / "main").iterdir()) == [".x.json.1.tmp", "notes.txt"]


def test_removing_takes_all_of_a_name_or_one(tmp_path: Path) -> None:
    for one in (run(), run(num_layers=64)):
        save(tmp_path, "main", one)
    with pytest.raises(BaselineError, match="There is no run nightly-7 of the baseline main in"):
        store(tmp_path).remove("main", run="nightly-7")
    first = fingerprint(run())
    assert [found for found, _ in store(tmp_path).remove("main", first)] == [first]
    with pytest.raises(BaselineError, match=f"There is no such baseline main of the fingerprint {first} in"):
        store(tmp_path).remove("main", first)
    assert [found for found, _ in store(tmp_path).remove("main")] == [fingerprint(run(num_layers=64))]
    assert not (tmp_path / "main").exists()
    with pytest.raises(BaselineError, match="There is no such baseline main"):
        store(tmp_path).remove("main")


def test_what_is_listed_is_what_tells_baselines_apart(tmp_path: Path) -> None:
    save(tmp_path, "main", run())
    row = store(tmp_path).listed()[0]
    assert row.device == "NVIDIA H100 80GB HBM3"
    assert row.job is not None
    assert "num_layers 48" in row.job["layers"]
    assert (row.step_ns, row.steps, row.target_wall, row.problem) == (1_000_001, 3, run().verdict.target_wall, "")
    taken = compared(run(), run()).effect
    assert (row.step_ns, row.steps) == (taken.base, taken.n_base), "one figure for one run"


def test_a_folder_that_cannot_be_made_is_74(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="could not be made"):
        save(tmp_path / "file", "main", run())


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_cannot_be_written_is_74(tmp_path: Path) -> None:
    (tmp_path / "main").mkdir(mode=0o500)
    with pytest.raises(OutputError):
        save(tmp_path, "main", run())


def test_a_full_disk_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, "main", run())
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        save(tmp_path, "main", night(5), keep=1)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_the_default_folder_is_in_the_repository() -> None:
    assert baselines.FOLDER.as_posix() == ".diagnose/baselines"


def test_a_new_run_without_a_job_file_is_told_to_give_it(tmp_path: Path) -> None:
    save(tmp_path, "main", run())
    with pytest.raises(BaselineError) as fault:
        find(tmp_path, "main", document(STEPS))
    assert "The new run has no job file: give it with --config." in fault.value.next_step
    assert "it was stored with a job file, and the new run has none, which would tell model, layers" in fault.value.what
    assert len(fault.value.what) < 300, "not a page of settings"
