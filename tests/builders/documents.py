"""A document of every kind that is written: full ones, small ones, and ones whose every text is hostile."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diagnose.document import job as j
from diagnose.document.baselines import Baselines, StoredBaseline
from diagnose.document.diagnosis import Expected, JobRead, JobSetting, Tool
from diagnose.knowledge.rulebook import load_rulebook
from diagnose.render.figures.figure import Figure
from diagnose.render.reports import KINDS
from diagnose.render.reports.explanation import Explanation
from diagnose.render.reports.kernels import KernelAnswer, KernelAnswers
from tests.builders import bisection, comparison, diagnosis, hostile

Sample = Callable[[], object]
TOOL = Tool(name="diagnose", version="0.1", rules_sha256="ab" * 32)


def check(text: str = "") -> j.CheckReport:
    """A check with one result of each kind; every text ends with `text`."""
    result = j.CheckResult(
        id=f"check-hang{text}",
        title=f"It hangs{text}",
        group="will_hang",
        outcome="hang",
        summary=f"The job would hang: 8 is no multiple of 3.{text}",
        symptom=f"a timeout after 10 minutes{text}",
        settings=(
            j.Deciding(name=f"tp{text}", value=8, key=f"model.tp{text}", source="read"),
            j.Deciding(name="modules", value=(f"mlp{text}", "moe"), key="modules", source="default"),
            j.Deciding(name="fused", value=False, key="fused", source="read"),
        ),
        assumed=(f"tp{text}",),
        remedy=f"Set tp to 4.{text}",
        fixes=(j.FixName(id=f"MEM-01{text}", title=f"A fix{text}"),),
        refs=(f"https://example.invalid/{text}",),
        source="check",
    )
    plain = j.CheckResult(
        id="other",
        title="",
        group="doubtful",
        outcome=None,
        summary="Odd.",
        symptom="",
        settings=(),
        assumed=(),
        remedy="",
        fixes=(),
        refs=(),
        source="fix",
    )
    job = JobRead(format="megatron-bridge", settings=(JobSetting(name="tp", value=8, key="model.tp"),))
    unknown = j.NotAssessed(id=f"needs-more{text}", title="", missing=("ep",), how=f"The job file does not say ep.{text}")
    return j.CheckReport(
        schema=j.CHECK_SCHEMA,
        tool=TOOL,
        job=job,
        platform=f"h100{text}",
        failed=True,
        checked=7,
        results=(result, plain),
        not_assessed=(unknown,),
    )


def patch(text: str = "") -> j.PatchReport:
    """A patch of one fix, with all that may be left; every text ends with `text`."""
    return j.PatchReport(
        schema=j.PATCH_SCHEMA,
        tool=TOOL,
        source=f"job.yaml{text}",
        rewritten=True,
        applied=(
            j.Applied(
                id=f"COM-06{text}",
                title=f"Overlap{text}",
                for_finding=f"blocking-exchange{text}",
                expected=(Expected(text=f"1.06×{text}", source=f"a paper{text}"),),
                verify=f"It falls.{text}",
                unknown=(f"Whether it fits.{text}",),
            ),
        ),
        skipped=(j.Skipped(id=f"MEM-02{text}", title=f"Another{text}", why=f"it is on already{text}"),),
        written=(j.Written(fix=f"COM-06{text}", framework="megatron-bridge", key=f"comm.overlap{text}", from_="false", to="true"),),
        left_to_you=(j.LeftToYou(fix="COM-06", framework="code", key=f"train.py{text}", to="by hand", why=f"it is code{text}"),),
        still_wrong=check(text).results,
        bridge_overrides=(f"comm.overlap=true{text}",),
        megatron_flags=(f"--overlap{text}",),
        environment=(f"NCCL_DEBUG=INFO{text}",),
    )


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
        dominant_wall="memory",
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
    return Explanation(name=name, book=load_rulebook(), diagnosis=diagnosis.rich())


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


def figures_of(document: object) -> dict[str, Figure]:
    """The figures of a document's report, by their key."""
    builder = next(kind for kind in KINDS if kind.type == type(document).__name__).builder()
    return {block.content.key: block.content for block in builder.report(document).blocks if isinstance(block.content, Figure)}
