"""Every real PyTorch trace: equal to an independent reading to the nanosecond, or a sentence that says what it is."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from diagnose.errors import InputError
from diagnose.load.conform import conform
from diagnose.load.torch_json import read
from diagnose.model.intervals import union_length
from diagnose.model.trace import Trace
from tests.load.kineto_reference import Totals, events_of, operations_of, totals_of

FOLDER = Path(__file__).parents[2].parent / "shared" / "traces" / "kineto"
FILES = sorted(path for path in FOLDER.iterdir() if path.name.endswith((".json", ".json.gz"))) if FOLDER.is_dir() else []
LOOKALIKES = ("execution_details", "simple_add_et.", "timeline-ST")


def totals(trace: Trace) -> dict[int, Totals]:
    origin = trace.provenance.origin_ns
    result = {}
    for (device,), ops in trace.ops.group_by("device"):
        kernels = ops.filter(pl.col("kind") == "kernel")
        result[device] = Totals(
            kernels=kernels.height,
            work=int((kernels["end"] - kernels["start"]).sum()),
            operations=ops.height,
            busy=union_length(ops["start"], ops["end"]),
            first=int(ops["start"].min()) + origin,
            last=int(ops["end"].max()) + origin,
        )
    return result


@pytest.mark.skipif(not FILES, reason="the folder of real traces (../shared/traces) is not here")
def test_the_corpus_is_there() -> None:
    assert len(FILES) >= 60


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[-70:])
def test_totals_equal_an_independent_reading(path: Path) -> None:
    events = events_of(path)
    expected = totals_of(events)
    if not expected:
        with pytest.raises(InputError) as caught:
            conform(read(path, display_name=path.name))
        assert path.name in caught.value.what
        assert caught.value.next_step
        assert any(mark in path.name for mark in LOOKALIKES) == ("holds no GPU work" not in caught.value.what)
        return
    trace = conform(read(path, display_name=path.name))
    assert totals(trace) == expected
    origin = trace.provenance.origin_ns
    rows = trace.ops.join(trace.names, left_on="name_id", right_on="id").select(
        "device", pl.col("start") + origin, pl.col("end") + origin, pl.col("kind").cast(pl.String), "text"
    )
    wanted = [(device, *row) for device, found in operations_of(events).items() for row in found]
    assert sorted(rows.rows()) == sorted(wanted)
    assert not {"data_loss", "error"} & {entry.severity for entry in trace.ledger.entries}
    assert trace.ranks[0].rank == trace.ops["rank"][0]
    listed = [event for event in events if "ph" in event]
    assert sum(row.read for row in trace.ledger.rows if row.table != "cuda_sync records") == len(listed)
