"""Sizes that follow from a job and that advice asks for: context-parallel ranks for its sequence, virtual stages for its pipeline.

Context parallelism: a rank keeps 4096 to 8192 tokens of a sequence (Megatron-Bridge, guide to MoE training at long context), so the size is
the sequence over 4096, as a power of two that the ranks and the sequence can be split by and that leaves one data-parallel rank at least.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from diagnose.job.model import Job

_COUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")  # each as one layer
TOKENS = 4096  # of a sequence on one rank; twice as many are not too many


class Advised(Struct, frozen=True, kw_only=True):
    """A size and how it follows."""

    value: int
    how: str


def advised(job: Job) -> dict[str, Advised]:
    """The sizes by the name of the setting that stands for them; what lacks a setting, or fits nowhere, is absent."""
    found = {"advised_context_parallel_size": _context(job), "advised_virtual_pipeline_size": _virtual(job)}
    return {name: one for name, one in found.items() if one is not None}


def _context(job: Job) -> Advised | None:
    length, present = job.count("seq_length"), job.count("context_parallel_size") or 1
    if length is None:
        return None
    tensor = job.count("tensor_model_parallel_size") or 1
    split = tensor if job.get("sequence_parallel") is True else 1
    if present * TOKENS * split <= length <= 2 * present * TOKENS * split or (present == 1 and length <= 2 * TOKENS * split):
        divisor = f"CP {present}" + (f" / TP {split}" if split > 1 else "")
        return Advised(value=present, how=f"{length:,} tokens / {divisor} = {length // (present * split):,} on a rank")
    wanted = max(length // (TOKENS * split), 1)
    fitting = next(_fitting(job, wanted, length), None)
    if fitting is None:
        return None
    value, floor = fitting
    over = f" / TP {tensor}" if split > 1 else ""
    return Advised(value=value, how=f"{length:,} tokens / {TOKENS:,}{over} = {wanted:,}{floor}")


def _fitting(job: Job, wanted: int, length: int) -> Iterator[tuple[int, str]]:
    """Powers of two up to `wanted` that the ranks and the sequence can be split by, largest first, each with what it leaves."""
    world, tensor, pipeline = (job.count(name) for name in ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size"))
    others = (tensor or 1) * (pipeline or 1)
    size = 1 << (wanted.bit_length() - 1)
    while size >= 1:
        ranks = size * others
        if length % (2 * size) == 0 and (world is None or (ranks <= world and world % ranks == 0)):
            rest = (
                "" if world is None else f"; {world} ranks / (TP {tensor or 1} × PP {pipeline or 1} × CP {size}) leave DP {world // ranks}"
            )
            below = "" if size * 2 > wanted else f", of which {size} fits"
            yield size, below + rest
        size //= 2


def _virtual(job: Job) -> Advised | None:
    layers, stages = job.count("num_layers"), job.count("pipeline_model_parallel_size")
    uneven = ("pipeline_model_parallel_layout", "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
    if layers is None or stages is None or stages == 1 or any(job.get(name) is not None for name in uneven):
        return None
    counted = layers + sum(job.get(name) is True for name in _COUNTED)
    if counted % stages:
        return None
    each = counted // stages
    value = next((size for size in range(2, each + 1) if each % size == 0), None)
    if value is None:
        return None
    return Advised(value=value, how=f"{counted} layers / PP {stages} = {each} a stage, whose smallest divisor above 1 is {value}")
