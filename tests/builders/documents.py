"""A document of every kind that is written: full ones, small ones, and ones whose every text is hostile."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TypeVar

import msgspec

from diagnose.document import job as j
from diagnose.document.baselines import Baselines, StoredBaseline
from diagnose.document.device import TimelineColumns
from diagnose.knowledge.rulebook import load_rulebook
from diagnose.knowledge.taxonomy import load_taxonomy
from diagnose.render.figures.figure import Figure
from diagnose.render.reports import KINDS
from diagnose.render.reports.explanation import Explanation
from diagnose.render.reports.kernels import KernelAnswer, KernelAnswers
from tests.builders import bisection, comparison, diagnosis, hostile
from tests.builders.kept import DATA

Sample = Callable[[], object]
T = TypeVar("T")


def check(text: str = "") -> j.CheckReport:
    """A check with one result of each kind; every text ends with `text`."""
    return _ending(j.CheckReport, "check", text)


def patch(text: str = "") -> j.PatchReport:
    """A patch of one fix, with all that may be left; every text ends with `text`."""
    return _ending(j.PatchReport, "patch", text)


def _ending(kind: type[T], name: str, text: str) -> T:
    """A kept document with `text` where it says {text}."""
    return msgspec.json.decode((DATA / f"{name}.json").read_text(encoding="utf-8").replace("{text}", json.dumps(text)[1:-1]), type=kind)


def baselines(text: str = "") -> Baselines:
    """One that can be read, one that can't."""
    good = StoredBaseline(
        name=f"main{text}",
        fingerprint="0a1b",
        bytes=2048,
        job={"model": f"qwen{text}"},
        device=f"H100{text}",
        step_ns=1_500_000,
        steps=3,
        target_wall="memory",
    )
    return Baselines(entries=(good, StoredBaseline(name="old", fingerprint="ff", bytes=3, problem=f"It is no JSON.{text}")))


class Verdict:
    """What is known of a kernel's name."""

    def __init__(self, text: str) -> None:
        self.bucket, self.role, self.kind, self.backend, self.phase = "dispatch", "transport", "expert", f"deepep{text}", "forward"
        self.operation, self.evidence, self.rule, self.weak = f"dispatch{text}", "name", f"deepep{text}", True
        self.alternatives, self.not_understood = ("collective",), (f"pg_desc{text}",)


def kernels(text: str = "") -> KernelAnswers:
    """An answer, and a line without one."""
    return KernelAnswers(
        answers=(KernelAnswer(line=1, name=f"dispatch{text}", found=Verdict(text)), KernelAnswer(line=2, name="{", error=f"no JSON{text}"))
    )


def explanation(name: str) -> Explanation:
    """What is known of a name, in the numbers of a run."""
    return Explanation(name=name, book=load_rulebook(), taxonomy=load_taxonomy(), diagnosis=diagnosis.rich())


DOCUMENTS: Mapping[str, Sample] = {
    "diagnosis": diagnosis.rich,
    "small diagnosis": diagnosis.minimal,
    **{f"{name} comparison": make for name, make in comparison.SAMPLES.items()},
    **{f"{name} bisection": make for name, make in bisection.SAMPLES.items()},
    "check": check,
    "patch": patch,
    "baselines": baselines,
    "no baselines": lambda: Baselines(entries=()),
    "kernels": kernels,
    "fix": lambda: explanation("COM-06"),
    "bucket": lambda: explanation("router"),
    "facts": lambda: explanation("facts"),
    "rules": load_rulebook,
}
_ALL = " ".join(hostile.PAYLOADS)
HOSTILE: Mapping[str, Sample] = {
    "hostile diagnosis": lambda: hostile.hostile_diagnosis(None),
    "hostile comparison": lambda: hostile.hostile_comparison(None),
    "hostile bisection": lambda: hostile.hostile_bisection(None),
    "hostile check": lambda: check(_ALL),
    "hostile patch": lambda: patch(_ALL),
    "hostile baselines": lambda: baselines(_ALL),
    "hostile kernels": lambda: kernels(_ALL),
}


def _columns(count: int = 20_000) -> TimelineColumns:
    """A step of that many kernels on two streams, with three gaps, of times as irregular as those of a real one."""
    chance = random.Random(20)
    starts = [0, *accumulate(chance.randrange(500, 9_000) for _ in range(count - 1))]
    half = count // 2
    return TimelineColumns(
        streams=(7, None),
        buckets=("attention", "dispatch"),
        names=("flash", "combine", "mlp(F)"),
        causes=("blocking_transport", "python", "sunspots"),
        start_ns=tuple(starts),
        duration_ns=tuple(chance.randrange(300, 9_000) for _ in range(count)),
        stream=(0, 1) * half,
        bucket=(0, 1) * half,
        name=(0, 1) * half,
        queued_ns=tuple(value for _ in range(half) for value in (chance.randrange(1_000, 900_000), None)),
        range=(2, None) * half,
        gap_start_ns=(300, 10_000, 20_000),
        gap_duration_ns=(200, 900, 4_000),
        gap_cause=(0, 1, 2),
        gap_blocked_by=(1, None, None),
    )


COLUMNS = _columns()


def figures_of(document: object) -> dict[str, Figure]:
    """The figures of a document's report, by their key."""
    builder = next(kind for kind in KINDS if kind.type == type(document).__name__).builder()
    return {block.content.key: block.content for block in builder.report(document).blocks if isinstance(block.content, Figure)}
