"""Throughput and MFU against figures worked out by hand, and the reason for each part that is not told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from diagnose.document.diagnosis import Diagnosis, Efficiency, Fact, Identity, JobProblem, JobRead, JobSize
from diagnose.reason.efficiency import efficiency, identity
from tests.builders.cases import for_each
from tests.builders.facts import facts
from tests.builders.kept import kept
from tests.builders.scene import KNOWLEDGE

# 8 GPUs, 4 s per step: 3.2e15 FLOP a step are 100 TFLOP/s per GPU, 64,000 tokens 2,000 per second and GPU.
KNOWN = Identity(
    model=None,
    layers=None,
    experts=None,
    gpus=8,
    gpu="NVIDIA H100",
    layout={},
    precision="BF16",
    precision_from="trace",
    rank=0,
    ranks_captured=1,
    file="a.json",
    job_file="job.yaml",
)
FACTS: dict[str, Any] = {"step_ns": 4_000_000_000, "steps_anchored": True}
FLOP, TOKENS = 3.2e15, 64_000


def size(name: str, value: float | None, source: str = "the job file") -> JobSize:
    return JobSize(name=name, value=value, unit="count", from_=source)


def job(flop: float | None = FLOP, tokens: int | None = TOKENS, *problems: JobProblem) -> JobRead:
    sizes = (size("flop_per_step", flop), size("tokens_per_step", tokens))
    return JobRead(format="megatron-bridge", settings=(), derived=sizes, problems=problems)


def told(read: JobRead | None, facts: dict[str, Any] | None = None, platform: str | None = "h100", **known: Any) -> Efficiency:
    values = {
        name: Fact(value=value, unit="", status="measured" if value is not None else "not_measured")
        for name, value in {**FACTS, **(facts or {})}.items()
    }
    return efficiency(structs.replace(KNOWN, **known), read, values, KNOWLEDGE.rulebook, platform=platform)


def test_the_figures_are_those_of_megatron_s_formula() -> None:
    found = told(job())
    assert (found.tflops_per_gpu, found.tokens_per_second_per_gpu) == (pytest.approx(100), pytest.approx(2_000))
    assert found.peak_tflops == 989, "dense BF16 of an H100 SXM (NVIDIA H100 data sheet)"
    assert found.mfu == pytest.approx(100 / 989)
    assert (
        found.how
        == "3,200 TFLOP per step as Megatron counts them / 4,000.0 ms (mean step, profiled) / 8 GPUs; MFU of 989 dense BF16 TFLOP/s"
    )
    assert found.lacking == ""
    assert told(job(), precision_from="job file").how.endswith("(precision by the job file: kernel names do not tell)")
    assert told(job(), precision="FP16").mfu == found.mfu
    assert told(job(), precision="FP8").mfu == pytest.approx(100 / 1979)


@for_each(
    "change, rate, tflops, lacking",
    ({"read": None}, None, None, "no job file (--config)"),
    ({"facts": {"steps_anchored": False}}, None, None, "the capture is not cut into steps"),
    ({"facts": {"step_ns": None}}, None, None, "the capture is not cut into steps"),
    ({"gpus": None}, None, None, "neither the job file nor the trace says how many GPUs the job has (world_size)"),
    ({"facts": {"is_training": False}}, None, None, "nothing trains in this capture: the count is that of a training step"),
    ({"read": job(None)}, 2_000, None, "TFLOP/s: the job file"),
    ({"read": job(FLOP, None)}, None, 100, ""),
    ({"platform": None}, 2_000, 100, "MFU: the peak of NVIDIA H100 is not in the platform table"),
    ({"precision": None}, 2_000, 100, "MFU: neither kernel names nor the job file tell the precision"),
    ({"precision": "FP4"}, 2_000, 100, "MFU: no peak of FP4 is known for h100"),
    (
        {"read": job(100 * FLOP)},
        None,
        None,
        "10,000 TFLOP/s per GPU would be 10.1 times the peak: the job file is not that of this capture",
    ),
)
def test_what_is_not_told_has_its_reason(change: dict[str, Any], rate: float | None, tflops: float | None, lacking: str) -> None:
    found = told(**{"read": job(), **change})
    assert (found.tokens_per_second_per_gpu, found.tflops_per_gpu) == (rate, tflops)
    assert found.lacking == lacking
    assert (found.mfu is None) == (found.tflops_per_gpu is None or lacking.startswith("MFU"))
    assert bool(found.how) == (rate is not None or tflops is not None)


def test_without_a_whole_count_its_lower_end_and_without_a_precision_the_highest_peak_decide() -> None:
    least = structs.replace(job(None), derived=(*job(None).derived, size("flop_per_step_at_least", 100 * FLOP)))
    beyond = "at least 10,000 TFLOP/s per GPU would be 10.1 times the peak: the job file is not that of this capture"
    assert (told(least).tokens_per_second_per_gpu, told(least).lacking) == (None, beyond)
    assert told(least, precision=None).lacking.startswith("at least 10,000 TFLOP/s per GPU would be 5.1 times the peak")
    few = structs.replace(least, derived=(*job(None).derived, size("flop_per_step_at_least", FLOP)))
    assert told(few).tokens_per_second_per_gpu == pytest.approx(2_000)
    assert told(job(100 * FLOP), precision=None).tflops_per_gpu is None
    assert told(job(100 * FLOP)).peak_tflops is None, "the precision of another capture's job file tells no peak of this one"
    assert told(None).peak_tflops == 989, "what the products of a bucket are held against needs no count"


@for_each("low, fp4, named", (0.9, 0.9, "FP4"), (0.9, 0.1, "FP8"), (0.9, None, "FP8"), (0.1, 0.1, None))
def test_fp4_is_told_from_fp8_by_the_names_of_kernels(low: float, fp4: float | None, named: str | None) -> None:
    found = identity(kept(Diagnosis).capture, None, facts(low_precision_gemm_share=low, fp4_gemm_share=fp4), rank=0, device=0, captured=1)
    assert (found.precision, found.precision_from) == (named, "trace")
