"""Tokens per step from a trainer's log, in the line formats of Megatron-LM, Megatron-Bridge and Megatron-DeepSpeed."""

from functools import partial
from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.load import trainer_log
from diagnose.load.trainer_log import load_specs
from diagnose.pipeline import diagnose
from tests.builders.cases import for_each
from tests.builders.kineto import document, small

BRIDGE = " [2026-11-01 10:00:{second:02d}] iteration {iteration:8d}/{whole:8d} | consumed samples: {samples:12d} | elapsed time per iteration (ms): 1234.5 | global batch size: {batch:5d} |\n"
DEEPSPEED = " iteration {iteration:8d}/{whole:8d} | consumed samples: {samples:12d} | consumed tokens: {tokens:12d} | elapsed time per iteration (ms): 1234.5 |\n"

tokens_per_step = partial(trainer_log.tokens_per_step, specs=load_specs())


def written(folder: Path, lines: list[str]) -> Path:
    path = folder / "train.log"
    path.write_text("setting up\n" + "".join(lines) + "done: consumed samples: 1 |\n", encoding="utf-8")
    return path


def bridge(iteration: int, samples: int, batch: int = 256) -> str:
    return BRIDGE.format(second=iteration % 60, iteration=iteration, whole=500, samples=samples, batch=batch)


def test_tokens_of_a_step_follow_from_tokens_or_samples_of_iterations_counted_once(tmp_path: Path) -> None:
    found = tokens_per_step(written(tmp_path, [bridge(number, 256 * number) for number in range(1, 9)]), 4096)
    assert (found.tokens, found.source.endswith("median of 7 iterations")) == (256 * 4096, True)
    assert "padding included" in found.source
    found = tokens_per_step(written(tmp_path, [bridge(number, 64 * number, 64) for number in (10, 20, 30)]), 8192)
    assert found.tokens == 64 * 8192
    tokens = [100_000, 190_000, 290_000, 380_000]  # packing: not the same in every step
    lines = [DEEPSPEED.format(iteration=at, whole=9, samples=8 * at, tokens=count) for at, count in enumerate(tokens, 1)]
    assert tokens_per_step(written(tmp_path, lines), None).tokens == 90_000
    first = [bridge(number, 32 * number, 32) for number in range(1, 6)]
    again = [bridge(number, 32 * number, 32) for number in range(3, 9)]
    found = tokens_per_step(written(tmp_path, first + again), 1024)
    assert (found.tokens, found.source.endswith("median of 7 iterations")) == (32 * 1024, True)


@for_each(
    "lines, sequence, says",
    ([], 4096, "does not tell"),
    ([bridge(1, 256)], 4096, "two iterations"),
    ([bridge(1, 256), bridge(2, 512)], None, "sequence length is not known"),
)
def test_a_log_that_does_not_tell_is_refused(tmp_path: Path, lines: list[str], sequence: int | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        tokens_per_step(written(tmp_path, lines), sequence)


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        tokens_per_step(tmp_path / "no.log", 4096)


MEMORY = "[Rank {rank}] (after 2 iterations) memory (MB) | allocated: 7.5 | max allocated: {allocated} | reserved: 9.0 | max reserved: {reserved}\n"
FAILED = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def test_the_memory_of_a_run_is_that_of_the_rank_that_reserved_most_and_only_the_last_attempt_fails(tmp_path: Path) -> None:
    levels = [MEMORY.format(rank=0, allocated="1024.0", reserved=2048), MEMORY.format(rank=8, allocated="1536.25", reserved=1792)]
    found = trainer_log.logged_run(written(tmp_path, [FAILED, bridge(1, 256), *levels]), load_specs())
    assert (found.peak_allocated, found.peak_reserved, found.out_of_memory) == (1 << 30, 2 << 30, 0)
    assert found.step_ns == 1234.5e6
    found = trainer_log.logged_run(written(tmp_path, [bridge(1, 256), FAILED, FAILED]), load_specs())
    assert (found.peak_allocated, found.peak_reserved, found.out_of_memory) == (None, None, 2)
    assert trainer_log.logged_run(written(tmp_path, [FAILED]), load_specs()).step_ns is None


def test_a_trace_without_memory_takes_it_from_the_log_and_a_failure_goes_before_every_wall(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document(small(120)))
    log = written(tmp_path, [MEMORY.format(rank=0, allocated="1024.0", reserved=2048), FAILED])
    found = diagnose([path], log=log)
    assert found.memory is not None
    assert (found.memory.peak_allocated_bytes, found.memory.peak_reserved_bytes) == (1 << 30, 2 << 30)
    assert (found.facts["peak_reserved_bytes"].value, found.findings[0].id) == (2 << 30, "memory-out-of-memory")


def test_every_pattern_has_a_source() -> None:
    specs = load_specs()
    assert all(getattr(specs, name).source.strip() for name in specs.__struct_fields__)
