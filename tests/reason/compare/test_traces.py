"""Whole traces: the two real captures of one program before and after, copies with noise, and a trace against itself in another format."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Diagnosis
from diagnose.pipeline import diagnose
from fixtures.__main__ import NSYS, unpack
from tests.builders.cases import for_each
from tests.builders.comparing import compare
from tests.reason.compare.test_pairs import check_same

MFU = "nsys/GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_{}.sqlite"
TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


@pytest.fixture(scope="module")
def real(real_traces: Path) -> tuple[Diagnosis, Diagnosis]:
    before, after = (diagnose([real_traces / MFU.format(when)]) for when in ("before", "after"))
    return before, after


def flash_period(path: Path, device: int) -> float:
    """Median time from one layer's attention to the next one's, counted straight from the file (two launches a layer)."""
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as base:
        starts = [
            start
            for (start,) in base.execute(
                "SELECT k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"
                " WHERE s.value LIKE '%flash_fwd_kernel%' AND k.deviceId = ? ORDER BY k.start",
                (device,),
            )
        ]
    return (starts[-1 - len(starts) % 2] - starts[0]) / (len(starts) // 2 - 0.5) if len(starts) > 2 else 0.0


def test_the_two_real_captures(real: tuple[Diagnosis, Diagnosis], real_traces: Path) -> None:
    """Both last as long as each other, because somebody cut them so; the second does less in it, as the host launches later."""
    found = compare(*real, base_label="before", new_label="after")
    assert (found.outcome.result, found.effect.basis) == ("regression", "single step")
    assert "1 capture against 1" in found.outcome.sentence
    assert found.comparability.normalised is not None
    assert found.comparability.normalised.unit == "ns of kernel work"
    periods = [flash_period(real_traces / MFU.format(when), found.new.device) for when in ("before", "after")]
    assert found.effect.relative == pytest.approx(periods[1] / periods[0] - 1, abs=0.03)
    delta = found.delta
    assert delta is not None
    assert sum(row.delta_ns for row in delta.categories) == delta.delta_ns
    assert delta.categories[0].category == "launch_starved"
    assert delta.categories[0].delta_ns > 0.9 * delta.delta_ns
    assert found.outcome.moved.startswith("Launch-bound time")
    compute = [row for row in delta.categories if row.category.startswith("compute:")]
    assert compute
    assert not any(row.moved for row in compute)  # the kernels themselves are as fast as before
    assert not [row for row in found.kernels if row.kind in {"new", "gone", "renamed", "moved"}]


def test_the_real_captures_the_other_way_round_and_against_themselves(real: tuple[Diagnosis, Diagnosis]) -> None:
    before, after = real
    assert compare(after, before, base_label="after", new_label="before").outcome.result == "improvement"
    for one in real:
        check_same(compare(one, one, base_label="same", new_label="same"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    unpack(NSYS, path)
    yield path
    path.unlink()


def copied(demo: Path, folder: Path, change: Callable[[sqlite3.Connection], None]) -> Diagnosis:
    copy = folder / "copy.sqlite"
    shutil.copyfile(demo, copy)
    with sqlite3.connect(copy) as base:
        change(base)
    base.close()
    return diagnose([copy])


def tables(base: sqlite3.Connection) -> list[str]:
    return [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'") if name in TABLES]


def noisy_kernels(base: sqlite3.Connection) -> None:
    """The duration of every operation on the device off by 1 % (standard deviation)."""
    chance = random.Random(5)
    for table in tables(base):
        rows = base.execute(f'SELECT rowid, start, "end" FROM {table}').fetchall()
        changed = [(start + max(0, round((end - start) * (1 + chance.gauss(0, 0.01)))), row) for row, start, end in rows]
        base.executemany(f'UPDATE {table} SET "end" = ? WHERE rowid = ?', changed)


def one_per_cent_slower(base: sqlite3.Connection) -> None:
    """All times 1 % longer: another day, another node."""
    for (table,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = {name for _, name, *_ in base.execute(f'PRAGMA table_info("{table}")')}
        if {"start", "end"} <= columns:
            base.execute(f'UPDATE "{table}" SET start = CAST(start * 1.01 AS INTEGER), "end" = CAST("end" * 1.01 AS INTEGER)')


def compared(base: Diagnosis, new: Diagnosis) -> Comparison:
    return compare(base, new, base_label="demo", new_label="copy")


@for_each("change, longer", (noisy_kernels, 0.0), (one_per_cent_slower, 0.01))
def test_a_copy_with_noise_on_every_kernel_or_slower_by_a_common_factor_has_not_changed(
    change: Callable[[sqlite3.Connection], None], longer: float, demo: Path, tmp_path: Path
) -> None:
    found = compared(diagnose([demo]), copied(demo, tmp_path, change))
    assert found.effect.relative == pytest.approx(longer, abs=0.001)
    assert found.outcome.result == "no_change", found.outcome.sentence
    assert found.kernels == ()
    assert found.delta is not None
    assert not [row.category for row in found.delta.categories if row.moved]
