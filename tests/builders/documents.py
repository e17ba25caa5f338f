"""A document of every kind that is written: full ones, small ones, and ones whose every text is hostile."""

import json
import random
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TypeVar

import msgspec
from msgspec import structs

from diagnose.document import forecast as f
from diagnose.document import job as j
from diagnose.document.baselines import Baselines, StoredBaseline
from diagnose.document.device import Timeline, TimelineColumns
from diagnose.document.diagnosis import PlanSetting, Tool
from diagnose.document.history import SCHEMA, CategoryMove, History, HistoryRun, HistoryStep
from diagnose.knowledge.load import load_rulebook
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


def history(text: str = "", *, runs: int = 6, steps: bool = True) -> History:
    """Runs of which the third gave nothing; a step in the middle that was taken back with the last; every text ends with `text`."""
    labels = [f"night-{number}{text}" for number in range(runs)]
    middle, last = runs // 2, runs - 1
    rows = tuple(
        HistoryRun(
            label=label,
            date=f"2026-10-{number + 1:02d}T00:00:00Z{text}" if number else None,
            commit=f"{number:08x}" * 5 + text if number else None,
            value=None if number == 2 else 1.0e7 + 1e6 * (middle <= number < last) * steps,
            steps=0 if number == 2 else 5,
            level=None if number == 2 else 1.0e7 + 1e6 * (middle <= number < last) * steps,
            categories={} if number == 2 else {"compute:expert_gemm": 6_000_000, f"transport{text}": 4_000_000},
            problem=f"It is cut off.{text}" if number == 2 else "",
        )
        for number, label in enumerate(labels)
    )
    up = HistoryStep(
        label=labels[middle],
        chance=0.8,
        before=labels[middle - 1],
        last=labels[middle],
        base=1.0e7,
        new=1.1e7,
        relative=0.1,
        base_commit=rows[middle - 1].commit,
        commit=rows[middle].commit,
        taken_back_by=labels[last],
        moved=(CategoryMove(category=f"transport{text}", base_ns=4_000_000, new_ns=5_000_000, delta_ns=1_000_000),),
    )
    down = msgspec.structs.replace(
        up, label=labels[last], before=labels[last - 1], last=labels[last], base=1.1e7, new=1.0e7, taken_back_by=None
    )
    return History(
        schema=SCHEMA,
        tool=Tool(name="diagnose", version="0.1.0", rules_sha256="0" * 64),
        name=f"nightly{text}",
        metric="step_time",
        unit="ns",
        larger_is_worse=True,
        sentence=f"Step time stepped twice.{text}" if steps else "No step of step time is seen in 6 runs.",
        noise=0.01 if steps else None,
        runs=rows,
        steps=(up, down) if steps else (),
        order=f"By name.{text}",
        notes=(f"1 run could not be read.{text}",),
    )


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


def forecast(text: str = "", *, told: bool = True) -> f.Forecast:
    """Two changes and one without an answer; not `told`: nothing could be answered."""
    refused = f.Refused(
        question="CMP-05", reason=f"Nothing ran in these steps that it would change.{text}", next_step=f"Look at the bound.{text}"
    )
    setting = PlanSetting(framework="megatron-bridge", key=f"k{text}", from_=None, text=f"k: true{text}", language="yaml")
    empty = f.Forecast(
        schema=f.SCHEMA,
        tool=Tool(name="diagnose", version="0.1.0", rules_sha256="0" * 64),
        identity=diagnosis.rich().identity,
        rank=0,
        device=0,
        sentence=f"No forecast.{text}",
        questions=(f.Question(id="CMP-05", title=f"Nothing{text}", fix="CMP-05", state="applicable"),),
        step_ns=None,
        sum_ns=None,
        refused=(refused,),
    )
    if not told:
        return empty
    step = f.Span(now=100_000_000, low=62_000_000, likely=65_000_000, high=90_000_000)
    first = f.Span(now=100_000_000, low=70_000_000, likely=75_000_000, high=95_000_000)
    columns = TimelineColumns(
        streams=(7,),
        buckets=("expert_gemm",),
        names=(f"gemm{text}",),
        causes=("host_work",),
        start_ns=(0,),
        duration_ns=(60_000_000,),
        stream=(0,),
        bucket=(0,),
        name=(0,),
        queued_ns=(None,),
        range=(None,),
        gap_start_ns=(60_000_000,),
        gap_duration_ns=(5_000_000,),
        gap_cause=(0,),
        gap_blocked_by=(None,),
    )
    shown = Timeline(rank=0, device=0, step=3, start_ns=0, end_ns=65_000_000, columns=columns)
    return structs.replace(
        empty,
        sentence=f"100.0 ms → about 65 ms with 2 changes (62 to 90).{text}",
        questions=(
            f.Question(id="COM-06", title=f"Overlap{text}", fix="COM-06", state="applicable", changes=(setting,), verify=f"Look.{text}"),
            f.Question(id=f"--scale bucket:expert_gemm=0.7{text}", title=f"bucket expert_gemm × 0.7{text}"),
            *empty.questions,
        ),
        step_ns=step,
        sum_ns=f.Span(now=200_000_000, low=124_000_000, likely=130_000_000, high=180_000_000),
        steps=tuple(f.Step(index=index, now_ns=100_000_000, likely_ns=65_000_000) for index in (3, 4)),
        categories=(
            f.Category(category="transport", now_ns=80_000_000, likely_ns=20_000_000, delta_ns=-60_000_000),
            f.Category(category="compute:expert_gemm", now_ns=100_000_000, likely_ns=90_000_000, delta_ns=-10_000_000),
            f.Category(category="launch_starved", now_ns=20_000_000, likely_ns=20_000_000, delta_ns=0),
        ),
        ingredients=(
            f.Ingredient(question="", text="durations", basis="measured", source="this trace"),
            f.Ingredient(question="COM-06", text=f"turns{text}", basis="assumed", source=f"a paper{text}"),
        ),
        assumptions=("the CPU does the same work",),
        capped_by=(f.Ceiling(question="COM-06", finding="COM-EXPOSED", bound_ns=40_000_000),),
        plan=(
            f.Planned(question="COM-06", title=f"Overlap{text}", step_ns=first, saves_ns=25_000_000, alone_ns=25_000_000),
            f.Planned(
                question=f"--scale bucket:expert_gemm=0.7{text}",
                title=f"bucket expert_gemm × 0.7{text}",
                step_ns=step,
                saves_ns=10_000_000,
                alone_ns=14_000_000,
                why="less than alone: the changes before it win a part of the same time",
            ),
        ),
        now=structs.replace(shown, end_ns=100_000_000),
        likely=shown,
    )


DOCUMENTS: Mapping[str, Sample] = {
    "diagnosis": diagnosis.rich,
    "small diagnosis": diagnosis.minimal,
    **{f"{name} comparison": make for name, make in comparison.SAMPLES.items()},
    **{f"{name} bisection": make for name, make in bisection.SAMPLES.items()},
    "history": history,
    "forecast": forecast,
    "forecast without an answer": lambda: forecast(told=False),
    "history without a step": lambda: history(steps=False),
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
    "hostile history": lambda: history(_ALL),
    "hostile forecast": lambda: forecast(_ALL),
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
