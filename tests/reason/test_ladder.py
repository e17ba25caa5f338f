"""DeepSeek-V3 on 256 GB200, tuned step by step (Megatron-LM docs/discussions/deepseek-v3-gb200-optimization): the next step is never
blocked.

MXFP8, TP1 PP8 VPP4 EP32, micro-batch 1, global batch 2048. TFLOPS per GPU of that document. The job file of each rung holds what the rungs
below have changed.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from diagnose.document.diagnosis import Fix
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader
from tests.builders import yaml_text
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import JOBS, job


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One step of the ladder: the fixes that stand for it, the throughput after it, and what it changes in the job file."""

    what: str
    fixes: list[str]
    tflops: float
    changes: dict[str, object] = field(default_factory=dict)


# The document ran DeepEP on GB200 under Megatron-LM; Megatron-Bridge's gate refuses that, and the playbook follows the code.
REFUSED_ON_GB200 = "Megatron-Bridge allows DeepEP on Ampere, Hopper, B200 and B300, not on gb200"
BASELINE = 494.46
LADDER = tuple(Rung(**row) for row in yaml_text.load((Path(__file__).parent / "cases" / "ladder.yaml").read_text(encoding="utf-8")))


def before(place: int) -> dict[str, object]:
    """The job file with every change below rung `place`."""
    settings = dict(JOBS["LADDER"])
    for rung in LADDER[:place]:
        settings |= rung.changes
    return settings


def read(key: str, place: int, platform: str = "gb200") -> Fix:
    domain = 72 if platform.startswith("gb") else 8
    given = facts(
        platform=platform, gpu_compute_major=10, nvlink_domain=domain, expert_exchange_backend=None, expert_exchange_nccl_share=None
    )
    return FixReader(context=make_context(given, job(before(place)), BOOK)).fix(BOOK.fixes[key])


@for_each("place", *range(len(LADDER)))
def test_the_next_rung_is_known_and_not_blocked(place: int) -> None:
    for key in LADDER[place].fixes:
        found = read(key, place)
        if key == "COM-01":
            assert found.state == "blocked"
            assert found.blocked_by[0].startswith(REFUSED_ON_GB200)
            found = read(key, place, "b200")
        assert found.blocked_by == ()
        assert found.state in ("applicable", "already_on", "unknown")
        assert any(key in rule.fixes for rule in BOOK.rules.values()), "a rule offers it"


@for_each(
    "key, applicable, climbed",
    ("CMP-03", 0, 1), ("CMP-02", 1, 2), ("MEM-03", 3, 4), ("HOST-01", 4, 5), ("COM-03", 5, None), ("COM-02", 9, 10), ("CMP-08", 11, None),
)  # fmt: skip
def test_what_the_job_file_decides_is_applicable_on_its_rung_and_on_once_that_is_climbed(
    key: str, applicable: int, climbed: int | None
) -> None:
    assert read(key, applicable).state == "applicable"
    assert climbed is None or read(key, climbed).state == "already_on"


@for_each(
    "key, place",
    ("MEM-03", 3), ("HOST-01", 4), ("COM-03", 5), ("HOST-04", 6), ("HOST-01", 8), ("COM-02", 9), ("HOST-04", 10), ("CMP-08", 11),
)  # fmt: skip
def test_the_published_throughput_stands_with_the_fix(key: str, place: int) -> None:
    """The rounded figures before and after the rung are in one of the fix's published effects."""
    old = LADDER[place - 1].tflops if place else BASELINE
    wanted = {str(round(old)), str(round(LADDER[place].tflops))}
    texts = [item.text for item in BOOK.fixes[key].expected if "deepseek-v3-gb200" in item.source]
    assert any(wanted <= set(re.findall(r"\d+", text)) for text in texts), (wanted, texts)
