"""The numbers that a search goes by (trace_rules/bisection.yaml): what is assumed of noise, and how sure an answer has to be."""

from __future__ import annotations

from msgspec import Struct

from diagnose.knowledge.data import checked, converted, packaged

_FILE = "bisection.yaml"


class Number(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number with its meaning and source."""

    value: float
    meaning: str
    source: str


class Numbers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of a search; the file says what each means."""

    run_noise: Number
    count_noise: Number
    noise_weight: Number
    alike: Number
    ends_error: Number
    step_error: Number
    answer_error: Number
    range_error: Number
    flaky_error: Number
    further_step: Number
    no_step: Number
    level_range: Number
    smallest_step: Number
    drift: Number
    failures: Number
    verdict_error: Number
    line_error: Number


def parse_numbers(data: bytes) -> Numbers:
    """The numbers in `data` (YAML). Raises RuleFileError."""
    with checked(_FILE, effect="Nothing was searched.", next_step="Correct the file; each number needs value, meaning and source."):
        return converted(data, Numbers)


def load_numbers() -> Numbers:
    """The numbers in use."""
    return parse_numbers(packaged(_FILE))
