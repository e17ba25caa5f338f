"""Which run this is, and how fast: TFLOP/s and tokens per second per GPU, and the share of the peak (MFU), as Megatron counts them.

Megatron's throughput is `num_floating_point_operations(args, batch_size) / (elapsed_time_per_iteration * 10**12 * world_size)` (Megatron-LM
megatron/training/training.py); the count is `diagnose.job.flops`, the step here the mean of the profiled steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import structs

from diagnose.document.device import of_device
from diagnose.document.diagnosis import Capture, Efficiency, Fact, Identity, JobRead
from diagnose.job import Job, count_of
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.templates import decimal

# Where at least half of the matrix products take operands of 8 bits or fewer, the run is held against that peak: this project's choice.
LOW_PRECISION_SHARE = 0.5
_LAYOUT = {
    "TP": "tensor_model_parallel_size",
    "PP": "pipeline_model_parallel_size",
    "EP": "expert_model_parallel_size",
    "CP": "context_parallel_size",
    "DP": "data_parallel_size",
    "ETP": "expert_tensor_parallel_size",
    "VPP": "virtual_pipeline_model_parallel_size",
}
ANOTHER_CAPTURE = "the job file is not that of this capture"
_UNTOLD = frozenset({"ETP", "VPP"})  # told only where they say more than the others
_CLASS = re.compile(r"(?:Model)?(?:Provider|Config|Bridge)$")


def identity(capture: Capture, job: Job | None, facts: Mapping[str, Fact], *, rank: int, device: int, captured: int) -> Identity:
    """Which run the traces are of; `captured` ranks of it."""
    sizes = {} if job is None else {short: job.get(name) for short, name in _LAYOUT.items()}
    layout = {short: value for short, value in sizes.items() if isinstance(value, int) and not isinstance(value, bool)}
    layout = {short: value for short, value in layout.items() if short not in _UNTOLD or (value > 1 and value != layout.get("TP"))}
    own = next((one for one in capture.ranks if one.rank == rank), capture.ranks[0] if capture.ranks else None)
    shown = of_device(capture.devices, (rank, device))
    precision, source = _precision(job, facts)
    return Identity(
        model=None if job is None else _model(job),
        layers=count_of(job, "num_layers"),
        experts=count_of(job, "num_moe_experts"),
        gpus=count_of(job, "world_size") or _number(facts, "world_size"),
        gpu=None if shown is None else shown.name,
        layout=layout,
        precision=precision,
        precision_from=source,
        rank=None if own is None else rank,
        ranks_captured=captured,
        file=own.file if own is not None else "",
        job_file=None if job is None else job.file,
    )


def _model(job: Job) -> str | None:
    """The model as the job file calls it; the name of its class where it has no other."""
    named = job.get("model_name")
    if isinstance(named, str) and named:
        return named
    target = job.get("model_target")
    return _CLASS.sub("", target.rpartition(".")[2]) or None if isinstance(target, str) else None


def _number(facts: Mapping[str, Fact], name: str) -> int | None:
    found = facts.get(name)
    return found.value if found is not None and isinstance(found.value, int) else None


def _precision(job: Job | None, facts: Mapping[str, Fact]) -> tuple[str | None, Literal["trace", "job file", ""]]:
    """The precision of most matrix products: by the names of the kernels that ran, where they tell their operands, else by the job file."""
    share, narrowest = (facts[name].value if name in facts else None for name in ("low_precision_gemm_share", "fp4_gemm_share"))
    wanted = _configured(job)
    if isinstance(share, float | int):
        if share >= LOW_PRECISION_SHARE:
            mostly_fp4 = isinstance(narrowest, float | int) and 2 * narrowest >= share
            return ("FP4" if mostly_fp4 or wanted == "FP4" else "FP8"), "trace"
        return (wanted if wanted in ("BF16", "FP16") else _wide(job)), "trace"
    return wanted, "job file" if wanted else ""


def _configured(job: Job | None) -> str | None:
    """The narrowest precision that the job file asks for."""
    if job is None:
        return None
    for name, told in (("fp4", "FP4"), ("fp8", "FP8")):
        if job.get(name) not in (None, "none", False):
            return told
    return _wide(job)


def _wide(job: Job | None) -> str | None:
    """BF16 or FP16, whichever the job file says; without one the names of kernels do not tell them apart reliably."""
    if job is None:
        return None
    return next((name.upper() for name in ("bf16", "fp16") if job.get(name) is True), None)


def efficiency(known: Identity, job: JobRead | None, facts: Mapping[str, Fact], rulebook: Rulebook, *, platform: str | None) -> Efficiency:
    """The step's throughput; null parts with the reason."""
    sizes = {} if job is None else {one.name: one for one in job.derived}
    step = facts["step_ns"].value if "step_ns" in facts else None
    step_ns = step if isinstance(step, int) and step > 0 else None
    flop = _value(sizes.get("flop_per_step"))
    tokens = _value(sizes.get("tokens_per_step"))
    peak, why = _peak(known, platform, rulebook)
    refused = _refusal(job, facts, known, step_ns)
    if refused or step_ns is None or known.gpus is None:
        return _none(flop, step_ns, peak, refused)
    seconds = step_ns / 1e9
    rate = None if tokens is None else tokens / seconds / known.gpus
    if flop is None:
        least = _value(sizes.get("flop_per_step_at_least"))
        beyond = "" if least is None else _beyond(least / seconds / known.gpus / 1e12, known, platform, rulebook, limit="at least ")
        if beyond:
            return _none(None, step_ns, None, beyond)
        lacking = (
            f"TFLOP/s: {sizes['flop_per_step'].from_}"
            if "flop_per_step" in sizes
            else "TFLOP/s: the job file does not say what is computed"
        )
        how = "" if rate is None else f"{tokens:,.0f} tokens per step / {seconds * 1e3:,.1f} ms / {known.gpus} GPUs"
        return structs.replace(_none(flop, step_ns, peak, lacking), tokens_per_second_per_gpu=rate, how=how)
    achieved = flop / seconds / known.gpus / 1e12
    beyond = _beyond(achieved, known, platform, rulebook)
    if beyond:
        return _none(flop, step_ns, None, beyond)
    share = None if peak is None else achieved / peak
    how = (
        f"{decimal(flop / 1e12)} TFLOP per step as Megatron counts them / {seconds * 1e3:,.1f} ms (mean step, profiled) / {known.gpus} GPUs"
    )
    if peak is not None:
        how += f"; MFU of {peak:,.0f} dense {known.precision} TFLOP/s"
        how += "" if known.precision_from == "trace" else " (precision by the job file: kernel names do not tell)"
    return Efficiency(
        flop_per_step=flop,
        step_ns=step_ns,
        tflops_per_gpu=achieved,
        peak_tflops=peak,
        mfu=share,
        tokens_per_second_per_gpu=rate,
        how=how,
        lacking=why,
    )


def _beyond(achieved: float, known: Identity, platform: str | None, rulebook: Rulebook, limit: str = "") -> str:
    """Why a rate (TFLOP/s per GPU) can't be this run's; empty where it can. Without a precision it is held against the highest peak."""
    peak, _ = _peak(known, platform, rulebook)
    if peak is None and platform in rulebook.platforms.platforms:
        peak = max((rate for rate in rulebook.platforms.platforms[platform].peak_tflops.values() if rate), default=None)
    if peak is None or achieved <= peak:
        return ""
    return f"{limit}{achieved:,.0f} TFLOP/s per GPU would be {achieved / peak:.1f} times the peak: {ANOTHER_CAPTURE}"


def _refusal(job: JobRead | None, facts: Mapping[str, Fact], known: Identity, step_ns: int | None) -> str:
    """Why nothing can be said; empty where something can."""
    if job is None:
        return "no job file (--config)"
    if facts["steps_anchored"].value is not True or step_ns is None:
        return "the capture is not cut into steps"
    if known.gpus is None:
        return "neither the job file nor the trace says how many GPUs the job has (world_size)"
    wrong = next((problem.text for problem in job.problems if problem.id in ("world-size", "not-positive")), "")
    if wrong:
        return f"{wrong[:1].lower()}{wrong[1:].rstrip('.')}"
    if "is_training" in facts and facts["is_training"].value is False:
        return "nothing trains in this capture: the count is that of a training step"
    return ""


def _peak(known: Identity, platform: str | None, rulebook: Rulebook) -> tuple[float | None, str]:
    """Dense TFLOP/s of the precision that ran, and why there is none."""
    if platform is None or platform not in rulebook.platforms.platforms:
        return None, f"MFU: the peak of {known.gpu or 'this GPU, which the trace does not name,'} is not in the platform table"
    if known.precision is None:
        return None, "MFU: neither kernel names nor the job file tell the precision"
    key = {"FP16": "bf16"}.get(known.precision, known.precision.lower())  # tensor cores do both at one rate
    peak = rulebook.platforms.platforms[platform].peak_tflops.get(key)
    return peak, "" if peak is not None else f"MFU: no peak of {known.precision} is known for {platform}"


def _value(size: object) -> float | None:
    value = getattr(size, "value", None)
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _none(flop: float | None, step_ns: int | None, peak: float | None, why: str) -> Efficiency:
    return Efficiency(
        flop_per_step=flop,
        step_ns=step_ns,
        tflops_per_gpu=None,
        peak_tflops=peak,
        mfu=None,
        tokens_per_second_per_gpu=None,
        how="",
        lacking=why,
    )
