"""The program against the expert sheets: each line true, or named in `misses.yaml` with the reason; a miss that has become true goes."""

from pathlib import Path

import pytest

from tests.builders.suites import deep_unless
from tests.conftest import SHARED
from tests.expert.held import held
from tests.expert.sheet import misses, sheets

SHEETS = {sheet.name: sheet for sheet in sheets()}
QUICK = ("addition-alone", "compiled-block", "dlrm-thinned-test", "no-device-work")


@pytest.mark.parametrize("name", deep_unless(QUICK, SHEETS))
def test_every_line_is_true_or_a_known_miss(name: str, real_traces: Path) -> None:
    sheet, known = SHEETS[name], misses().get(name, {})
    results = held(sheet, real_traces)
    false = {line.name: f"{file}: {line.why}" for file, lines in results.items() for line in lines if not line.true}
    assert all([line.name for line in lines] == sheet.lines for lines in results.values())
    unknown = {line: why for line, why in false.items() if line not in known}
    assert not unknown, unknown
    mended = sorted(set(known) - set(false))
    assert not mended, f"true by now, so to be struck from misses.yaml: {mended}"


def test_a_miss_names_a_line() -> None:
    for name, lines in misses().items():
        assert name in SHEETS
        assert set(lines) <= set(SHEETS[name].lines)
        assert all(lines.values())


def test_every_real_trace_has_one_sheet(real_traces: Path) -> None:
    listed = [file for sheet in SHEETS.values() for file in sheet.files]
    assert len(listed) == len(set(listed))
    assert sorted(listed) == sorted(path.relative_to(SHARED / "traces").as_posix() for path in real_traces.glob("*/*"))
