"""What is said of several ranks of real captures, against figures counted straight from the files."""

import sqlite3
from pathlib import Path

from diagnose.pipeline import diagnose
from tests.builders.cases import for_each
from tests.builders.ranks import ranks_of

MFU = "nsys/GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_{}.sqlite"
EXCERPTS = (
    "kineto/facebookresearch_HolisticTraceAnalysis_tests.data.timeline_analysis.sampled_rank-0.json.gz",
    "kineto/facebookresearch_HolisticTraceAnalysis_tests.data.trace_filter.sampled_rank-1.json.gz",
)


def transfers(path: Path) -> list[list[tuple[int, int]]]:
    """Start and end of the NCCL kernels of each device, in order."""
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as base:
        rows = base.execute(
            "SELECT k.deviceId, k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName"
            " WHERE s.value LIKE 'nccl%' ORDER BY k.start"
        ).fetchall()
    return [[(start, end) for device, start, end in rows if device == number] for number in sorted({device for device, *_ in rows})]


@for_each("when", "before", "after")
def test_two_devices_of_one_report_are_matched_by_their_ends(when: str, real_traces: Path) -> None:
    """No communicator is described there: only the ends, on one clock, tell that the sends and receives of both are one exchange."""
    path = real_traces / MFU.format(when)
    first, second = transfers(path)
    pairs = list(zip(first, second, strict=True))
    assert max(abs(a[1] - b[1]) for a, b in pairs) < 100_000  # they do end together
    ranks = ranks_of(diagnose([path]))
    (exchange,) = ranks.exchanges
    assert (exchange.by, exchange.matched, exchange.unmatched, exchange.ranks) == ("common ends", len(pairs), 0, (0, 1))
    inside = [min(a[1] - a[0], b[1] - b[0]) for a, b in pairs]
    assert exchange.transfer_ns == sum(inside)
    assert [wait.wait_ns for wait in exchange.waits] == [sum(end - start for start, end in own) - sum(inside) for own in (first, second)]
    assert ranks.clocks == ()  # one report, one clock
    assert ranks.pipeline is None


def test_excerpts_that_lost_rows_are_not_matched_and_say_so(real_traces: Path) -> None:
    """Ranks 0 and 1 of 128, of whose events their publisher kept a sample: no two sequences fit."""
    ranks = ranks_of(diagnose([real_traces / name for name in EXCERPTS]))
    assert (ranks.world_size, ranks.captured) == (128, 2)
    (missing,) = (problem for problem in ranks.problems if problem.kind == "missing")
    assert missing.count == 126
    assert (ranks.exchanges, ranks.late) == ((), ())
    assert any("not matched" in note for note in ranks.notes)
    assert any("stragglers" in note for note in ranks.notes)


def test_unrelated_captures_are_told_apart_and_nothing_is_made_up(real_traces: Path) -> None:
    """Two files that both say to be rank 0: the second is named and not compared."""
    found = diagnose([real_traces / EXCERPTS[0], real_traces / "kineto/deepseek-ai_profile-data_train.json"])
    assert found.ranks is None
    assert any(entry.code == "renumbered_rank" for entry in found.ledger)
