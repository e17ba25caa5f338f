"""What is told of an exchange's size."""

from dataclasses import replace

import polars as pl

from diagnose.measure.exchanges import _sizes
from diagnose.model.trace import PAYLOADS
from tests.builders.small_traces import trace_of


def test_the_bytes_that_a_trace_tells_go_before_what_elements_make() -> None:
    """Of what NCCL describes per rank, for all ranks of the group; elements where no bytes are told."""
    usual = {"dtype": "BFloat16", "elements_in": 100, "elements_out": 800, "group_size": 8}
    rows = [
        {"id": 0, "collective": "ncclAllGather", "bytes": 60, **usual},
        {"id": 1, "collective": "ncclAllReduce", "bytes": 60, **usual},
        {"id": 2, "collective": "allreduce", "bytes": None, **usual},
        {"id": 3, "collective": "allreduce", "bytes": None, **usual, "dtype": "Unheard"},
    ]
    found = _sizes(replace(trace_of([]), payloads=pl.DataFrame(rows, schema=dict(PAYLOADS))))
    assert found["bytes"].to_list() == [8 * 60, 60, 2 * 800, None]
