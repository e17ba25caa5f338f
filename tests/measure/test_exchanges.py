"""What is told of an exchange: its size, and how long experts worked before it."""

import polars as pl

from diagnose.measure.exchanges import costliest_shapes, described_sizes
from diagnose.model.trace import PAYLOADS
from tests.builders.records import replace
from tests.builders.scene import run, scene
from tests.builders.small_traces import trace_of
from tests.measure.test_memory import STAGE, STAGE_BACK, Run, sequence


def test_the_bytes_that_a_trace_tells_go_before_what_elements_make() -> None:
    """Of what NCCL describes per rank, for all ranks of the group; elements where no bytes are told."""
    usual = {"dtype": "BFloat16", "elements_in": 100, "elements_out": 800, "group_size": 8}
    rows = [
        {"id": 0, "collective": "ncclAllGather", "bytes": 60, **usual},
        {"id": 1, "collective": "ncclAllReduce", "bytes": 60, **usual},
        {"id": 2, "collective": "allreduce", "bytes": None, **usual},
        {"id": 3, "collective": "allreduce", "bytes": None, **usual, "dtype": "Unheard"},
    ]
    found = described_sizes(replace(trace_of([]), payloads=pl.DataFrame(rows, schema=dict(PAYLOADS))))
    assert found["bytes"].to_list() == [8 * 60, 60, 2 * 800, None]


def test_experts_that_run_on_several_streams_at_once_work_as_long_as_they_take_together() -> None:
    """Products of 40 and 60 us that share 20, one of 10 within them, and one alone after the exchange."""
    (measured,) = scene([
        run("expert", 0, 40_000, 0),
        run("expert", 20_000, 80_000, 1, stream=8),
        run("expert", 30_000, 40_000, 2, stream=9),
        run("nccl", 80_000, 100_000, 3, stream=20),
        run("expert", 100_000, 150_000, 4),
        run("nccl", 150_000, 160_000, 5, stream=20),
    ]).measure()  # fmt: skip
    assert measured.exchanges.instances["expert_ns"].to_list() == [80_000, 130_000]


def test_a_stage_that_runs_forward_work_again_cools_down_from_its_first_forwards_on() -> None:
    """What it waits for after the last of these comes at the end of the pipeline, though forward kernels still run in backward."""
    waits: list[Run] = [("send", None, 1, 50)]
    ran = sequence(("norm", "forward", 1, 99), *STAGE * 2, *STAGE_BACK, *waits, *STAGE_BACK)
    (measured,) = scene([replace(item, at=place) for place, item in enumerate(ran)]).measure()
    assert measured.memory.recompute.per_window is not None
    assert measured.memory.recompute.per_window["ns"].to_list() == [2 * 53 + 1]  # and the ns behind the wait
    parts = measured.exchanges.stage_waits.select("warm_up_ns", "steady_ns", "cool_down_ns")
    assert parts.rows() == [(0, 0, 50)]


def test_a_kernel_that_serves_two_parts_of_the_model_counts_for_each_of_them() -> None:
    """A persistent product's grid is that of the GPU, for experts as for projections: what tokens do to one is not told of the other."""
    launch = {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "xyz"}
    ran = {"role": "compute", "kind": "kernel", "name_id": 0, "start": 0, **launch}
    inside = pl.DataFrame([
        {**ran, "bucket": "dense_gemm", "end": 100},
        {**ran, "bucket": "expert_gemm", "end": 300},
        {**ran, "bucket": "expert_gemm", "end": 300},
    ])  # fmt: skip
    trace = replace(trace_of([]), names=pl.DataFrame({"text": ["nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"]}))
    told = costliest_shapes(inside, trace).select("bucket", "kernels", "median_ns", "short_ns", "work_ns").rows()
    assert told == [("expert_gemm", 2, 300, 300, 600), ("dense_gemm", 1, 100, 100, 100)]
