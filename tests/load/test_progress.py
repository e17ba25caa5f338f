"""How far reading is: told by the readers, in bytes or rows, with the time that is left."""

import gzip
from pathlib import Path

import pytest

from diagnose.load import progress
from diagnose.load.readers import load
from diagnose.scale.engine import far
from tests.builders.cases import for_each
from tests.conftest import ROOT


@for_each(
    "told, said",
    ((50_000_000, 200_000_000, "bytes", 5.0), "50 MB of 200 MB, 25 %, about 0:15 left"),
    (
        (1_500, 3_000, "rows of CUPTI_ACTIVITY_KIND_KERNEL", 2.0),
        "1,500 of 3,000 rows of CUPTI_ACTIVITY_KIND_KERNEL, 50 %, about 0:02 left",
    ),
    ((50_000_000, 0, "bytes", 5.0), "50 MB"),
    ((0, 10, "bytes", 0.0), "0 MB of 0 MB, 0 %"),
)
def test_how_far_reading_is_is_said_with_percent_and_time_left(told: tuple[int, int, str, float], said: str) -> None:
    assert far(*told) == said


def test_readers_of_both_kinds_tell_how_far_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    export = tmp_path / "demo.sqlite"
    export.write_bytes(gzip.decompress((ROOT / "fixtures" / "traces" / "demo.sqlite.gz").read_bytes()))
    for path in (ROOT / "fixtures" / "traces" / "vision.pt.trace.json.gz", export):
        heard: list[tuple[int, int, str]] = []
        with progress.listening(lambda *told: heard.append(told)):  # noqa: B023 - called at once
            load(path)
        assert heard
        assert all(0 < done <= whole for done, whole, _ in heard if whole)
        if path != export:
            assert heard[-1][:2] == (path.stat().st_size, path.stat().st_size)
    load(path)
    assert progress.LISTENER.heard is None
