"""Tokens per step from a trainer's log, in the line formats of Megatron-LM, Megatron-Bridge and Megatron-DeepSpeed."""

from functools import partial
from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.load import trainer_log
from diagnose.load.trainer_log import load_specs
from tests.builders.cases import for_each

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


def test_every_pattern_has_a_source() -> None:
    specs = load_specs()
    assert all(spec.source.strip() for spec in (specs.iteration, specs.tokens, specs.samples))
