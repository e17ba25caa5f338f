"""Every real Nsight Systems export in the folder of real traces against an independent brute-force reference."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

from diagnose.errors import InputError
from diagnose.load import nsys_parquet, nsys_sqlite
from diagnose.load.conform import conform
from diagnose.model.intervals import union_length
from diagnose.model.trace import Trace
from tests.builders.cases import for_each

# Kernels by file, as the corpus's own manifest counts them; None: a readable export without GPU work or a failed one.
KERNELS = {
    "0x822a5b87_test-cuda_report1": 4,
    "Baardrw_SIGMA_report2": 22,
    "Better-Call-Paul_CUDA-Transformer_src.report1-67de7242": 1,
    "Better-Call-Paul_CUDA-Transformer_src.report1-80f24580": None,
    "CO18326_uvmTorch_report1": None,
    "GindaChen_nsys-ai_tests.fixtures.h100_2gpu_1s-cfa580dc": 3442,
    "GindaChen_nsys-ai_tests.fixtures.healthy_1pct-71048757": 400,
    "GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_after": 3587,
    "GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_before": 4010,
    "GindaChen_nsys-ai_tests.fixtures.mock-9d9d2ff8": 2,
    "LeiWang1999_memfusion_artifact_report1.nsys-rep-nsys-2023.4.4.54": 36,
    "LeiWang1999_memfusion_artifact_report1.nsys-rep-nsys-2024.2.3.38+lazy-false": 36,
    "LeiWang1999_memfusion_artifact_report1.nsys-rep-nsys-2024.2.3.38+tables-kernel-only": 36,
    "LeiWang1999_memfusion_artifact_report1.nsys-rep-nsys-2024.2.3.38+times-20ms-23ms": 20,
    "LeiWang1999_memfusion_artifact_report1.nsys-rep-nsys-2024.2.3.38+ts-normalize": 36,
    "LeiWang1999_memfusion_artifact_report1.nsys-rep-nsys-2024.2.3.38": 36,
    "LeiWang1999_memfusion_artifact_report1": 36,
    "Meghakoranga_cupqc-openssl-core_report1": None,
    "Mlightsnow_DD2360-llm.c_report1.nsys-rep-nsys-2024.2.3.38": 0,
    "NVIDIA_Fuser_report1-57da9a1f": 18,
    "NVIDIA_Fuser_report2-bab69540": 19,
    "Qcompiler_MIXQ_src.report1": 14,
    "StellaWava_benchmarking-n-profiling-_report1": None,
    "YoonKyonghwan_EfficientCenterFormer_poolformer-18a90564": None,
    "Young768_profiling__new.nsys-rep-nsys-2024.2.3.38": 1002,
    "Yu-gyoung-Yun_alpa_examples.jax_profile_mem.nsys-rep-nsys-2024.2.3.38": 14,
    "amir-ghz_DynamicViT_nsys_profile": None,
    "bwyogatama_Mordred-Deprecated_report1-95afc3a6": 12,
    "bwyogatama_Mordred-Deprecated_report1-bb50baf9": 12,
    "bwyogatama_Mordred-Deprecated_report1.qdrep-nsys-2020.4.3.7": None,
    "bwyogatama_Mordred-Deprecated_report1.qdrep-nsys-2022.4.2.1": 12,
    "lighttransport_gemm_profile": None,
    "mabdullahsoyturk_cardiac-simulation_report1": None,
    "mariamiiiiii_my_clue_report3": 100,
    "nikitinvv_recon-stream_prof35.nvvp": None,
    "nikitinvv_recon-stream_report13": 11,
    "zx3xyy_assignment2-systems_result": 2768,
    "zx3xyy_assignment2-systems_result_2_7B_compile_ro": 30,
    "zx3xyy_assignment2-systems_result_2_7B_nvtx": 7328,
}
VERSIONS = {"3.0.0", "3.1.2", "3.1.7", "3.7.2", "3.11.1", "3.16.1", "3.17.1", "3.24.14", "3.25.0", None}
REPORT = "LeiWang1999_memfusion_artifact_report1"
EXPORT = f"{REPORT}.nsys-rep-nsys-2024.2.3.38"


Load = Callable[[str], Trace]


@pytest.fixture(scope="module")
def load(real_traces: Path) -> Load:
    """The trace of an export, read once for all tests."""
    return cache(lambda stem: conform(nsys_sqlite.read(real_traces / "nsys" / f"{stem}.sqlite")))


def test_the_list_is_complete(real_traces: Path) -> None:
    assert {path.stem for path in (real_traces / "nsys").glob("*.sqlite")} == set(KERNELS)


@for_each("stem", *(stem for stem, kernels in KERNELS.items() if kernels is not None))
def test_totals_equal_the_reference(real_traces: Path, load: Load, reference: ModuleType, stem: str) -> None:
    trace = load(stem)
    expected = {key: value for key, value in reference.measure(str(real_traces / "nsys" / f"{stem}.sqlite")).items() if "/" in key}
    pids = {rank.rank: rank.pid or 0 for rank in trace.ranks}
    origin = trace.provenance.origin_ns
    got = {}
    for (rank, device), ops in trace.ops.group_by("rank", "device"):
        kernels = ops.filter(kind="kernel")
        got[f"{pids[rank]}/{device}"] = {
            "kernel_count": kernels.height,
            "kernel_sum_ns": int((kernels["end"] - kernels["start"]).sum()),
            "busy_ns": union_length(ops["start"], ops["end"]),
            "kernel_busy_ns": union_length(kernels["start"], kernels["end"]) if kernels.height else 0,
            "first_ns": int(ops["start"].min()) + origin,
            "last_ns": int(ops["end"].max()) + origin,
        }
    assert got == {key: {name: value[name] for name in got[key]} for key, value in expected.items()}
    assert trace.ops.filter(kind="kernel").height == KERNELS[stem]


@for_each("stem", *(stem for stem, kernels in KERNELS.items() if kernels is None))
def test_exports_without_gpu_work_are_refused(load: Load, stem: str) -> None:
    with pytest.raises(InputError, match=r"no GPU work|export that failed"):
        load(stem)


def test_every_schema_version_of_the_corpus_is_read(load: Load) -> None:
    got = {load(stem).provenance.schema_version for stem, kernels in KERNELS.items() if kernels is not None}
    assert got == VERSIONS


def test_most_operations_join_their_launch_within_their_process(load: Load) -> None:
    trace = load("GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_before")
    kernels = trace.ops.filter(kind="kernel")
    joined = kernels.join(trace.calls.select("rank", "correlation"), on=["rank", "correlation"])
    ambiguous = kernels.join(trace.calls.select("correlation"), on="correlation")
    assert (kernels.height, joined.height, ambiguous.height) == (4010, 3986, 4280)


def test_waits_of_the_two_process_trace_lie_on_the_process_s_own_device(load: Load) -> None:
    trace = load("GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_before")
    counts = {(rank, device, kind): count for rank, device, kind, count in trace.waits.group_by("rank", "device", "kind").len().iter_rows()}
    assert counts == {
        (0, 0, "stream_wait"): 98, (1, 1, "stream_wait"): 102, (0, 0, "stream_sync"): 16, (1, 1, "stream_sync"): 17,
        (0, 0, "event_sync"): 64, (1, 1, "event_sync"): 69,
    }  # fmt: skip


@for_each("stem", *(stem for stem, kernels in KERNELS.items() if kernels))
def test_the_kind_of_each_synchronisation_fits_its_api_call(load: Load, stem: str) -> None:
    trace = load(stem)
    names = trace.names["text"]
    waits = trace.waits.filter(pl.col("kind") != "record").join(
        trace.calls.select("rank", "correlation", "name_id"), on=["rank", "correlation"]
    )
    pairs = {(names[name], kind) for name, kind in waits.select("name_id", "kind").unique().iter_rows()}
    allowed = {
        "cudaDeviceSynchronize": "device_sync",
        "cuCtxSynchronize": "device_sync",
        "cudaStreamSynchronize": "stream_sync",
        "cudaStreamWaitEvent": "stream_wait",
        "cuStreamWaitEvent": "stream_wait",
        "cudaEventSynchronize": "event_sync",
        "cudaEventQuery": "event_sync",
        "cuEventQuery": "event_sync",
    }
    assert pairs <= set(allowed.items())


def test_api_names_lose_their_version(load: Load) -> None:
    for stem, kernels in KERNELS.items():
        if kernels:
            trace = load(stem)
            called = trace.names["text"].gather(trace.calls["name_id"].unique()).to_list()
            assert [name for name in called if re.search(r"_v\d+$|_ptsz", name)] == []


COMPARED = ("ops", "calls", "ranges", "waits", "names", "threads")


@for_each("other", f"{REPORT}.nsys-rep-nsys-2023.4.4.54", REPORT, f"{EXPORT}+ts-normalize", f"{EXPORT}+lazy-false")
def test_the_same_report_through_another_exporter_is_the_same_trace(load: Load, other: str) -> None:
    one, two = load(EXPORT), load(other)
    for table in ("ops", "calls", "ranges", "waits"):
        assert _spelled(one, table).equals(_spelled(two, table)), table
    assert one.devices == two.devices
    assert [rank.start_unix_ns for rank in one.ranks] == [rank.start_unix_ns for rank in two.ranks]


def _spelled(trace: Trace, table: str) -> pl.DataFrame:
    """A frame with names in place of their ids, in one order."""
    frame: pl.DataFrame = getattr(trace, table)
    column = {"ranges": "text_id", "waits": None}.get(table, "name_id")
    if column:
        frame = frame.with_columns(trace.names["text"].gather(frame[column]).alias(column))
    return frame.sort(frame.columns)


def test_parquet_and_sqlite_exports_give_the_same_trace(real_traces: Path, load: Load) -> None:
    one = load(EXPORT)
    two = conform(nsys_parquet.read(real_traces / "nsys" / f"{EXPORT}_pqtdir"))
    for table in COMPARED:
        assert getattr(one, table).equals(getattr(two, table)), table
    assert one.devices == two.devices
    assert (two.provenance.format, two.provenance.schema_version) == ("nsys-parquet", "3.11.1")
    assert one.ledger == two.ledger


def test_nothing_private_of_a_capture_is_passed_on(load: Load) -> None:
    for stem, kernels in KERNELS.items():
        if kernels is not None:
            provenance = load(stem).provenance
            assert re.findall(r"(?:/[\w.\-]+){2,}|\S+@\S+", " ".join((*provenance.diagnostics, *provenance.notes))) == []
