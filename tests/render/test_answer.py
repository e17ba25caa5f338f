"""The answer on one screen, and as the visible part of a comment: short on every input, whole, and with nothing dropped that decides."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from rich.cells import cell_len

from diagnose.document.diagnosis import (
    NOT_WAITED_FOR,
    WINS_NOTHING,
    Change,
    Diagnosis,
    Displaced,
    Fact,
    Identity,
    LedgerEntry,
    PlanStep,
    StepForecast,
    decode,
)
from diagnose.document.forecast import Span
from diagnose.errors import InputError
from diagnose.model.ledger import CODES
from diagnose.model.vocabulary import CAPTURE, Wall
from diagnose.pipeline import diagnose
from diagnose.reason.plan import settings, written
from diagnose.render import Options, TypedFiles, report, section_names, units, words, write
from diagnose.render.reports.diagnosis import advice, answer, composition, lost, story, tables
from diagnose.render.writers.terminal import answer as terminal
from fixtures import gallery
from fixtures.gallery import GOLDEN, GOLDEN_FOLDER
from tests.builders import simulated
from tests.builders.cases import for_each
from tests.builders.diagnosis import minimal, rich, rich_ranks
from tests.builders.suites import deep_unless
from tests.conftest import ROOT
from tests.render.reading import plain
from tests.test_real_traces import every_trace

STEP: dict[str, Any] = {
    "fix": "COM-06", "finding": "x", "title": "overlap", "state": "applicable", "bound_ns": 1, "speedup_ceiling": 1.1, "cost": "",
    "changes": (), "needs": (), "published": (),
}  # fmt: skip
LINES = {100: 45, 140: 45, 80: 60}
NO_PYTHON = Fact(value=False, unit="bool", status="measured")
MOST_VISIBLE = 40
JOB = ROOT / "fixtures" / "jobs" / "qwen3_30b_a3b_alltoall_h100.yaml"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """The demo with its job file."""
    return diagnose([_unpacked("demo.sqlite.gz", tmp_path_factory.mktemp("demo"))], config=JOB)


def _unpacked(name: str, folder: Path) -> Path:
    import gzip

    path = folder / name.removesuffix(".gz")
    path.write_bytes(gzip.decompress((ROOT / "fixtures" / "traces" / name).read_bytes()))
    return path


def visible(markdown: str) -> list[str]:
    """The lines of a comment that stand open and are not empty."""
    return [line for line in re.sub(r"<details>.*?</details>", "", markdown, flags=re.DOTALL).splitlines() if line.strip()]


def check_short(document: Diagnosis) -> None:
    """No more lines than a screen has, none wider than it; and a comment of at most 40 lines and 60 KB."""
    for width, most in LINES.items():
        lines = write(document, "text", Options(width=width)).splitlines()
        assert len(lines) <= most, width
        assert max(map(len, lines)) <= width + 1
        assert any("What next" in line for line in lines)
    markdown = write(document, "markdown")
    assert len(visible(markdown)) <= MOST_VISIBLE
    assert len(markdown.encode()) <= 60_000
    check_adds_up(document)


def check_adds_up(document: Diagnosis) -> None:
    """The rows of the bar add up, as they are and as they are printed."""
    bar = composition.bar(document)
    assert len(bar.parts) <= composition.MOST_PARTS
    if bar.parts:
        assert sum(part.share for part in bar.parts) == pytest.approx(1.0)
        assert sum(round(10 * float(part.percent.replace(",", ""))) for part in bar.parts) == 1000


@pytest.mark.parametrize("name", ["rich", "minimal", *GOLDEN])
def test_the_answer_fits_on_a_screen(name: str) -> None:
    kept = {"rich": rich, "minimal": minimal}
    check_short(kept[name]() if name in kept else decode((GOLDEN_FOLDER / f"{name}.json").read_bytes()))


@pytest.mark.deep
@pytest.mark.parametrize("name", gallery.shown())
def test_the_answer_to_every_scenario_fits_on_a_screen(name: str) -> None:
    check_short(simulated.document(name))


@pytest.mark.parametrize("name", deep_unless([], every_trace()))
def test_the_answer_to_every_real_trace_fits_on_a_screen(name: str, real_traces: Path) -> None:
    try:
        document = diagnose([real_traces / name])
    except InputError:
        return
    check_short(document)


def test_the_demo_says_which_run_how_fast_and_what_to_change(demo: Diagnosis) -> None:
    check_short(demo)
    text = write(demo, "text")
    first, second = text.splitlines()[0], " ".join(text.splitlines()[:3])
    assert "16× H100" in first
    assert "TP1 PP1 EP16 CP1 DP16 · BF16 · rank 0 of 16" in first
    assert "222 TFLOP/s/GPU   MFU 22.5 %   69.7k tokens/s/GPU" in second
    assert demo.efficiency is not None
    assert demo.efficiency.tflops_per_gpu == pytest.approx(417_883_138_031_616 / (demo.efficiency.step_ns or 1) / 16 * 1e-3)
    assert "Needs PyTorch 2.6.0 or newer" in text, "what an applicable fix needs is never dropped"
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in text
    assert "comm_overlap.overlap_moe_expert_parallel_comm: true" in text
    assert "ddp.overlap_grad_reduce: true   comm_overlap.overlap_grad_reduce: true" in text, "all settings of a fix"
    # HybridEP leaves 91 ms at its worst, the overlap 101 ms at its best; the overlap of gathers holds that of reductions and wins more
    assert text.index("COM-02") < text.index("COM-06") < text.index("COM-11")
    assert "Forecast: 117.5 ms → 88 ms (83–93) with 1 → 78 ms (72–85) with 2." in text
    assert "(instead of 1" in text
    assert "diagnose patch demo.sqlite --config qwen3_30b_a3b_alltoall_h100.yaml -o new.yaml" in text
    markdown = write(demo, "markdown")
    yaml = "  ```yaml\n  # Megatron-Bridge\n  model.moe_token_dispatcher_type: flex\n  model.moe_flex_dispatcher_backend: hybridep\n  ```"
    assert yaml in markdown
    assert "Needs PyTorch 2.6.0 or newer" in markdown
    shown = "\n".join(visible(markdown))
    told = [need for step in demo.plan if f"(`{step.fix}`)" in shown for need in step.needs]
    assert [need for need in told if need[:30] not in shown] == [], "a step stands open with all that it needs, or not at all"
    assert "\\(" not in markdown


@for_each("format_", "text", "markdown", "html")
def test_what_the_first_advice_needs_stands_beside_it(format_: str) -> None:
    """An applicable fix is never told without what has to be checked first."""
    needs = "Needs something 2.6 or newer (version not in the job file)."
    step = PlanStep(**STEP | {"needs": (needs,)})
    assert needs in plain(write(structs.replace(rich(), plan=(step,)), format_, Options(width=200, detail=0)))


def test_commands_name_files_as_they_were_typed_and_the_screen_hangs_on_no_path(demo: Diagnosis) -> None:
    def next_of(text: str) -> tuple[str, dict[str, list[str]]]:
        before, _, after = text.partition("\nWhat next\n")
        lines = re.sub(r"\\\n( {9})?", "", after).splitlines()
        return before, {words[0]: words[1:] for line in lines if (words := shlex.split(line.replace("·", ""), comments=False))}

    bare, plain = next_of(write(demo, "text"))
    assert plain["apply"][:3] == ["diagnose", "patch", "demo.sqlite"]
    folder = "/folders/of/somebody/" + "that/go/on/" * 12 + "with a space"
    for trace, job in (
        ("reports/demo.sqlite", "../jobs/a b.yaml"),
        (f"{folder}/demo.sqlite", f"{folder}/job.yaml"),
        ("'*.sqlite'", "j.yaml"),
    ):
        typed = TypedFiles(traces=(trace,), job=job)
        before, said = next_of(write(demo, "text", Options(typed=typed)))
        assert before == bare, "what fits on the screen hangs on nobody's folders"
        assert said["apply"] == ["diagnose", "patch", trace, "--config", job, "-o", "new.yaml"]
        assert said["check"] == ["diagnose", "compare", trace, "AFTER", "--config", job]
        for format_name in ("markdown", "html", "json"):
            assert write(demo, format_name, Options(typed=typed)) == write(demo, format_name), "files say nothing of anybody's folders"
    several = TypedFiles(traces=("a/0.sqlite", "b/1.sqlite"), job="job.sh", command="2")
    said = next_of(write(demo, "text", Options(typed=several)))[1]
    assert said["apply"][:7] == ["diagnose", "patch", "a/0.sqlite", "b/1.sqlite", "--config", "job.sh", "--command"]
    assert said["check"] == ["diagnose", "compare", "FOLDER", "AFTER", "--config", "job.sh", "--command", "2"]
    assert next_of(write(demo, "text", Options(typed=TypedFiles(traces=("-",)))))[1]["apply"][2] == "demo.sqlite"


def test_more_is_told_to_who_asks(demo: Diagnosis) -> None:
    short, findings, everything = (write(demo, "text", Options(detail=detail)) for detail in (0, 1, 2))
    assert "not this if" not in short
    assert "Budget ·" not in findings
    assert len(short) < len(findings) < len(everything)
    assert "Findings (5)" in findings
    assert "Budget ·" in everything
    part = write(demo, "text", Options(sections=("budget",)))
    assert part.startswith("Budget ·")
    assert "What to change" not in part
    assert {"plan", "findings", "budget", "ledger", "verdict"} <= set(section_names(demo))


def test_without_a_job_file_one_line_says_what_it_would_decide(demo: Diagnosis) -> None:
    fixes = tuple(structs.replace(fix, state="unknown") for fix in demo.findings[0].fixes)
    bare = structs.replace(demo, job=None, findings=(structs.replace(demo.findings[0], fixes=fixes),))
    text = " ".join(write(bare, "text").split())
    assert text.count("may be on already or blocked: --config JOB decides") == 1
    assert "diagnose demo.sqlite --config JOB" in text


@for_each(
    "key, framework, op, now, to, language, text",
    ("model.moe_permute_fusion", "megatron-bridge", "set", None, "true", "yaml", "model.moe_permute_fusion: true"),
    ("--moe-permute-fusion", "megatron-lm", "set", "false", "true", "sh", "--moe-permute-fusion"),
    ("--fp8-format", "megatron-lm", "set", "none", "e4m3", "sh", "--fp8-format e4m3"),
    (
        "--accumulate-allreduce-grads-in-fp32",
        "megatron-lm",
        "unset",
        "true",
        "null",
        "words",
        "leave out --accumulate-allreduce-grads-in-fp32",
    ),
    ("--recompute-modules", "megatron-lm", "add", "[core_attn]", "moe_act", "sh", "--recompute-modules core_attn moe_act"),
    (
        "model.recompute_modules",
        "megatron-bridge",
        "add",
        "[core_attn]",
        "moe_act",
        "yaml",
        "model.recompute_modules: [core_attn, moe_act]",
    ),
    ("model.recompute_modules", "megatron-bridge", "add", None, "moe_act", "words", "add moe_act to model.recompute_modules"),
    ("CUDA_DEVICE_MAX_CONNECTIONS", "environment", "set", None, "8", "sh", "export CUDA_DEVICE_MAX_CONNECTIONS=8"),
    ("schedule", "general", "set", None, "two micro-batches in flight", "words", "schedule: two micro-batches in flight"),
)
def test_a_setting_is_written_as_it_is_typed(key: str, framework: str, op: str, now: str | None, to: str, language: str, text: str) -> None:
    assert written(Change(framework=framework, key=key, from_=now, to=to, op=op)) == (language, text)  # type: ignore[arg-type]


def test_a_setting_that_is_told_twice_is_written_once_as_a_value() -> None:
    told = (
        Change(framework="environment", key="N", from_=None, to="the expert-parallel ranks in one NVLink domain"),
        Change(framework="environment", key="N", from_=None, to="8"),
    )
    assert [one.text for one in settings(told)] == ["export N=8"]


def test_forecasts_of_short_steps_are_no_coarser_than_what_they_tell() -> None:
    """0.3 ms → 0.2 ms (0.2) was said of these."""
    short = Span(now=263_000, low=148_000, likely=171_000, high=194_000)
    assert (units.forecast(short.likely, short), units.between(short)) == ("0.17 ms", "0.15–0.19 ms")


def test_times_are_told_in_the_unit_that_suits_them() -> None:
    assert [units.time(ns) for ns in (20, 4_310, 99_000, 100_000, 263_400, 117_499_972, 2_500_000_000, 240_000_000_000, None)] == [
        "20 ns", "4.3 µs", "99.0 µs", "0.100 ms", "0.263 ms", "117.5 ms", "2,500.0 ms", "240.0 s", "not measured",
    ]  # fmt: skip


def recomputing(document: Diagnosis, **phases: int) -> Diagnosis:
    """Attention has these phases, and one part of recompute."""
    phase = {**phases, "recompute": 1}
    return structs.replace(
        document, buckets=tuple(structs.replace(row, phase=phase) if row.bucket == "attention" else row for row in document.buckets)
    )


def test_what_is_recomputed_has_a_row_of_its_own(demo: Diagnosis) -> None:
    changed = recomputing(demo, forward=1, backward=2)
    assert demo.memory is not None
    changed = structs.replace(changed, memory=structs.replace(demo.memory, recompute_ns=6_500_000 // 4))
    check_adds_up(changed)
    rows = {part.label: float(part.amount) for part in composition.bar(changed).parts}
    before = {part.label: float(part.amount) for part in composition.bar(demo).parts}
    assert rows["compute: recomputed in backward"] == pytest.approx(6.5 / 4, abs=0.1)
    assert rows["compute active"] + rows["compute: recomputed in backward"] == pytest.approx(before["compute active"], abs=0.11)
    counted = structs.replace(changed, memory=structs.replace(demo.memory, recompute_ns=0))
    check_adds_up(counted)
    assert "compute: recomputed in backward" not in {part.label for part in composition.bar(counted).parts}, (
        "the memory wall says that none is"
    )


def test_walls_claim_their_part_of_the_one_bar(demo: Diagnosis) -> None:
    """Where a wall's first part stands, as long as its bound.

    One that would reach past the end stands against it, over what others claim.
    """
    bar = composition.bar(demo)
    starts = {part.key: sum(one.share for one in bar.parts[:place]) for place, part in enumerate(bar.parts)}
    bound = {wall.wall: wall for wall in demo.walls}
    claims = {claim.look: claim for claim in bar.claims}
    assert list(claims) == ["compute", "communication"]  # the others are below 3 % of the step: told as not worth it
    assert claims["communication"].start == pytest.approx(starts["waiting_expert"])
    assert claims["communication"].share == bound["communication"].share
    assert claims["communication"].text == "at most 55.0 ms, 46.8 %"
    assert (claims["compute"].start, claims["compute"].line, claims["communication"].line) == (0, 1, 1)

    host = structs.replace(
        bound["host_overhead"], bound_ns=demo.steps.duration_ns.mean // 2, share=0.5, lower_ns=demo.steps.duration_ns.mean // 4
    )
    shifted = composition.bar(structs.replace(demo, walls=tuple(host if wall.wall == "host_overhead" else wall for wall in demo.walls)))
    claim = next(claim for claim in shifted.claims if claim.look == "host_overhead")
    assert (claim.start, claim.share, claim.line) == (0.5, 0.5, 2)
    assert claim.lower == pytest.approx(0.25)
    assert claim.text == "29.4 ms to 58.7 ms, 50.0 %"


def test_one_colour_has_one_meaning() -> None:
    """Over the bar, the figures of the step and the buckets: who has learnt a colour in one finds it in the others."""
    meaning = {spec.colour.lower(): {f"bucket {name}"} for name, spec in words.VOCABULARY.buckets.items()}
    looks = list(words.CAUSE_LOOKS.values())
    same = {"waiting: permute/unpermute": "stalled on permute/unpermute"}
    for label, colour in [
        *((look.label, look.colour) for look in looks),
        *((composition.LABELS[key], composition.COLOURS[key]) for key in composition.COLOURS),
    ]:
        meaning.setdefault(colour.lower(), set()).add(same.get(label, label))
    assert {colour: found for colour, found in meaning.items() if len(found) > 1} == {}


@for_each("name", "run.sqlite", "my run's trace.sqlite", "x" * 300 + ".sqlite", "名前" * 60 + " b.sqlite", "a 'b' \"c\" $d `e`.sqlite")
def test_a_command_can_be_copied_from_a_narrow_terminal(name: str) -> None:
    told = {
        "model": None, "layers": None, "experts": None, "gpus": 8, "gpu": None, "precision": None, "precision_from": "",
        "job_file": None,
    }  # fmt: skip
    identity = Identity(**told, layout={}, rank=0, ranks_captured=1, file=name)
    document = structs.replace(rich(), identity=identity, plan=(PlanStep(**STEP),))
    for width in (60, 80, 100):
        text = write(document, "text", Options(width=width))
        shown = text.split("What next\n")[1].split("\n more ")[0]
        typed = shown.replace("\\\n", "")  # as a shell reads it
        found = [shlex.split(re.sub(r"^ [a-z]+ +", "", line)) for line in typed.splitlines()]
        wanted = [shlex.split(command) for _, command in answer.commands(document).rows if command.startswith("diagnose ")]
        assert all(one in wanted for one in found), (width, shown)
        assert any(name in one for one in found)
        assert max(map(cell_len, shown.splitlines())) <= width, shown


def test_settings_that_need_several_lines_are_all_written() -> None:
    lines = tuple(f"model.setting_{number}: {number * 1000}" for number in range(9))
    writer = terminal.AnswerWriter(width=80, look="screen", whole=False)
    told = [str(line) for line in writer.settings(report.Written(where="job.yaml", language="yaml", lines=lines))]
    assert [word for line in told for word in re.findall(r"model\.setting_\d: \d+", line)] == list(lines)
    assert 1 < len(told) < len(lines)
    assert max(map(len, told)) <= 80


def test_a_job_file_is_asked_for_only_where_there_is_none_and_it_would_decide_something() -> None:
    known = rich()
    undecided = (PlanStep(**{**STEP, "state": "unknown"}),)
    for document, asked in (
        (structs.replace(known, plan=undecided), False),
        (structs.replace(known, plan=undecided, job=None), True),
        (structs.replace(known, plan=(), job=None), False),
        (structs.replace(known, plan=undecided, job=None, facts={"python_seen": NO_PYTHON}), False),
    ):
        assert ("decide" in dict(answer.commands(document).rows)) == asked


def test_the_last_line_names_the_first_of_the_plan_that_may_win_something(demo: Diagnosis) -> None:
    first, second = (
        next(fix for one in demo.findings for fix in one.fixes if fix.id == step.fix) for step in demo.plan if not step.instead_of
    )
    assert story.first_try(demo).startswith(f"{first.title} (")
    (at, hopeless), *_ = [(place, step) for place, step in enumerate(demo.plan) if step.fix == first.id]
    nothing = structs.replace(hopeless, forecast=None, no_forecast=WINS_NOTHING)
    told = structs.replace(demo, plan=(*demo.plan[:at], nothing, *demo.plan[at + 1 :]))
    assert story.first_try(told).startswith(f"{second.title} (")
    assert story.first_try(structs.replace(demo, plan=())) == ""


def test_what_changes_the_numerics_is_told_beside_a_plan_that_wins_less(demo: Diagnosis) -> None:
    """No step of the plan, since what is computed is the user's to choose; silent where the plan wins as much."""
    assert "changes what is computed" not in advice.plan(demo).forecast
    finding = next(one for one in demo.findings if one.fixes)
    last = [one.forecast for one in demo.plan if one.forecast is not None and one.instead_of is None][-1]

    def told(likely: int, *, numerics: bool = True) -> str:
        found = structs.replace(last, likely_ns=likely)
        fix = structs.replace(finding.fixes[0], id="CMP-05", title="FP8", state="applicable", numerics=numerics, forecast=found)
        return advice.plan(structs.replace(demo, findings=(structs.replace(finding, fixes=(fix,)),))).forecast

    assert "More would come of CMP-05 (FP8), which changes what is computed: likely " in told(last.likely_ns // 2)
    assert "changes what is computed" not in told(last.likely_ns // 2, numerics=False)
    assert "changes what is computed" not in told(last.likely_ns)


@for_each("ns, digits", (117_500_000, 1), (10_000_000, 1), (7_740_000, 2), (400_000, 3))
def test_the_parts_of_a_short_step_show_more_than_zero(demo: Diagnosis, ns: int, digits: int) -> None:
    assert composition.decimals(ns / 1e6) == digits
    parts = units.adding_up([ns / 1e6 * share for share in (0.55, 0.166, 0.284)], round(ns / 1e6, digits), digits)
    assert all(len(part.partition(".")[2]) == digits for part in parts)
    assert sum(map(float, parts)) == pytest.approx(round(ns / 1e6, digits))


def test_what_rounding_leaves_makes_no_part_wrong() -> None:
    """The large parts stand in sentences too, as they are rounded there; the last took all that was left: 0.0 ms beside 0.9 %."""
    shares = [46.355, 35.954, 10.253, 3.456, 2.734, 0.908, 0.34]
    assert units.adding_up(shares, 100.0) == ["46.4", "36.0", "10.3", "3.4", "2.7", "0.9", "0.3"]
    decode = [5.586, 1.298, 1.285, 2.064, 1.657, 0.358, 0.11]
    for values, whole in ((shares, 100.0), (decode, 12.4)):
        shown = list(map(float, units.adding_up(values, whole)))
        assert sum(shown) == pytest.approx(whole)
        assert all(abs(said - value) < 0.1 for said, value in zip(shown, values, strict=True))
    assert units.adding_up([33.34, 33.34, 33.32], 100.0) == ["33.3", "33.3", "33.4"]
    assert units.adding_up([50.05001, 49.94, 0.0], 100.0) == ["50.1", "49.9", "0.0"]
    whole, in_sentences = [25.74, 29.14, 12.22, 4.77], (False, True, True, True)
    assert units.adding_up(whole, 71.9) == ["25.7", "29.1", "12.3", "4.8"], "the last large one"
    assert units.adding_up(whole, 71.9, told=in_sentences) == ["25.8", "29.1", "12.2", "4.8"], "the one that no sentence tells"
    assert units.adding_up([9.46, 0.46, 0.06, 0.98], 10.9) == ["9.5", "0.4", "0.0", "1.0"], (
        "small ones, nearest to the other neighbour first"
    )


def test_several_ranks_of_one_file_are_asked_for_by_its_name_and_stragglers_only_where_something_is_exchanged(demo: Diagnosis) -> None:
    known = rich()
    assert demo.identity is not None
    several = structs.replace(demo.identity, ranks_captured=2, file="both.sqlite")
    for files, trace in ((("both.sqlite", "both.sqlite"), "both.sqlite"), (("a.sqlite", "b.sqlite"), "FOLDER")):
        ranks = tuple(structs.replace(known.capture.ranks[0], rank=rank, file=file) for rank, file in enumerate(files))
        document = structs.replace(
            known, identity=several, capture=structs.replace(known.capture, ranks=ranks), plan=(PlanStep(**{**STEP, "state": "unknown"}),)
        )
        assert dict(answer.commands(document).rows)["check"].startswith(f"diagnose compare {trace} AFTER")
    unmatched = structs.replace(known, ranks=structs.replace(rich_ranks(), late=(), exchanges=()))
    said = "The straggler is unknown: no collective was matched between ranks."
    assert said in answer.remarks(unmatched).texts
    assert said not in answer.remarks(structs.replace(unmatched, communication=())).texts


def test_why_nothing_can_be_set_for_the_largest_finding_is_said() -> None:
    """Where another finding has a fix that wins less, the largest is not left unsaid."""
    known = rich()
    named = structs.replace(next(one for one in known.findings if one.wall != "capture"), bound_ns=2_000_000)
    fix = structs.replace(named.fixes[0], id="CMP-08", title="fused", state="blocked", blocked_by=("Blackwell only.",))
    large = structs.replace(named, id="large", name="casts take long", bound_ns=22_180_000, fixes=(fix,), check="Look.")
    step = PlanStep(**{**STEP, "bound_ns": 2_000_000})
    document = structs.replace(known, plan=(step,), findings=(named, large))
    said = "Nothing can be set for the largest finding: casts take long (22.2 ms). CMP-08 (fused) is blocked: Blackwell only. Look."
    assert advice.plan(document).unanswered == said
    for kind in ("text", "markdown", "html"):
        assert said in " ".join(write(document, kind).split()), kind
    others = [
        structs.replace(large, fixes=(structs.replace(fix, state="applicable", blocked_by=()),)),
        structs.replace(large, fixes=()),
        structs.replace(large, wall="capture"),
        structs.replace(large, bound_ns=1_900_000),
    ]
    for other in others:
        assert advice.plan(structs.replace(document, findings=(named, other))).unanswered == ""
    assert advice.plan(structs.replace(document, plan=())).unanswered == ""


def test_where_no_setting_wins_anything_what_was_found_is_said() -> None:
    known = rich()
    told = advice.plan(structs.replace(known, plan=())).empty
    named = next(one for one in known.findings if one.wall != "capture")
    assert told == f"No setting is known that would win a hundredth of the step. {named.name[0].upper()}{named.name[1:]}: {named.summary}"
    likely = foreseen(98)["forecast"]
    (first, *others), *rest = named.fixes, *(one for one in known.findings if one is not named)
    open_ = structs.replace(named, fixes=(structs.replace(first, forecast=likely, state="unknown"), *others))
    told = advice.plan(structs.replace(known, plan=(), findings=(open_, *rest))).empty
    assert told == (
        "No finding with a bound of a hundredth of the step has a setting to change. By forecast most would come of "
        f"{first.id} ({first.title}): {advice.alone(likely)}; the trace does not show whether it is done already."
    )
    assert advice.plan(minimal()).empty == "No rule found anything to change."


@for_each(
    "bound, said",
    (None, "likely 80 ms (79–81), -20 %"),
    (20_000_000, "likely 80 ms (79–81), -20 %"),
    (12_000_000, "likely 80 ms (79–81), -20 %; more than this finding's bound: it ends other waiting too"),
)
def test_a_fix_that_wins_more_than_its_finding_is_about_says_so(bound: int | None, said: str) -> None:
    assert advice.alone(foreseen(80)["forecast"], bound) == said


@for_each(
    "holds, bound, wall, said",
    (9_000_000, 9_000_000, "memory", ""),
    (9_000_000, 9_040_000, "memory", ""),  # the same figure
    (None, 3_000_000, "memory", ""),  # a finding without a bound, which nothing can be more than
    (9_000_000, 12_000_000, "host_overhead", "1 may win more than the 9.0 ms of its finding: it ends other waiting too."),
    (9_000_000, 12_000_000, "memory", "1 may win more than the 9.0 ms of its finding: a finding on another wall asks for it too."),
)
def test_a_step_of_the_plan_that_may_win_more_than_its_finding_says_why(holds: int | None, bound: int, wall: str, said: str) -> None:
    known = next(one for one in rich().findings if one.fixes)
    own = structs.replace(known, id="own", wall="host_overhead", bound_ns=holds)
    other = structs.replace(known, id="other", wall=wall, bound_ns=3_000_000)
    step = PlanStep(**{**STEP, "fix": known.fixes[0].id, "finding": "own", "bound_ns": bound}, **foreseen(80))
    told = advice.plan(structs.replace(minimal(), plan=(step,), findings=(own, other))).forecast
    assert told.partition(" with 1.")[2].strip() == said


def test_steps_of_the_plan_that_may_win_more_for_one_reason_share_a_sentence() -> None:
    first = next(one for one in rich().findings if one.fixes)
    second = structs.replace(first, fixes=(structs.replace(first.fixes[0], id="HOST-99"),))
    findings = [structs.replace(one, id=name, wall="host_overhead", bound_ns=9_000_000) for one, name in ((first, "a"), (second, "b"))]
    plan = [
        PlanStep(**{**STEP, "fix": one.fixes[0].id, "finding": name, "bound_ns": 12_000_000}, **foreseen(80))
        for one, name in ((first, "a"), (second, "b"))
    ]
    told = advice.plan(structs.replace(minimal(), plan=tuple(plan), findings=tuple(findings))).forecast
    assert told.endswith("1 and 2 may win more than the 9.0 ms and 9.0 ms of their findings: they end other waiting too.")


def test_no_wall_claims_a_part_of_what_is_not_judged(demo: Diagnosis) -> None:
    assert composition.bar(demo).claims
    unjudged = structs.replace(demo.verdict, dominant_wall=None, target_wall=None, cause=None)
    assert composition.bar(structs.replace(demo, verdict=unjudged)).claims == ()


def foreseen(likely: int, **told: Any) -> dict[str, Any]:
    """A step of 100 ms that becomes so many."""
    low, high = (round(1_000_000 * likely * by) for by in (0.99, 1.01))
    span = {"now_ns": 100_000_000, "low_ns": low, "likely_ns": 1_000_000 * likely, "high_ns": high, "basis": "assumed"}
    return {"forecast": StepForecast(**span, **told)}


@for_each(
    "steps, said",
    ([{"no_forecast": WINS_NOTHING}], f"Forecast: 1 wins nothing: {NOT_WAITED_FOR}"),
    (
        [{"no_forecast": WINS_NOTHING}, {"no_forecast": "Not known."}],
        f"Forecast: 1 wins nothing: {NOT_WAITED_FOR} Of 2 only the bound is known.",
    ),
    ([{"no_forecast": "Not known."}], "No forecast, only bounds: not known."),
    (
        [foreseen(80), {"no_forecast": WINS_NOTHING}, {"no_forecast": "Not known."}, {"no_forecast": WINS_NOTHING}],
        "Forecast: 100.0 ms → 80 ms (79–81) with 1. Then 2 and 4 win nothing. Of 3 only the bound is known.",
    ),
    (
        [foreseen(96, displaced=Displaced(category="launch_starved", ns=36_000_000, freed_ns=40_000_000))],
        "Forecast: 100.0 ms → 96 ms (95–97) with 1. Of 40.0 ms that 1 frees, 36.0 ms become launch-bound.",
    ),
)
def test_the_forecast_of_a_plan_in_a_sentence(steps: list[dict[str, Any]], said: str) -> None:
    plan = tuple(PlanStep(**{**STEP, "fix": f"X-{place}"}, **told) for place, told in enumerate(steps))
    assert advice.plan(structs.replace(minimal(), plan=plan)).forecast == said


def test_steps_that_the_screen_has_no_room_for_are_named(demo: Diagnosis) -> None:
    """The forecast speaks of every step."""
    long = tuple(PlanStep(**{**STEP, "fix": f"X-{place}", "needs": ("word " * 60,)}) for place in range(12))
    lines = write(structs.replace(demo, plan=long), "text", Options(width=100)).splitlines()
    shown = [line.split()[0] for line in lines if re.match(r" \d+  ", line)]
    (told,) = [line for line in lines if line.endswith(" with -v")]
    assert len(lines) <= LINES[100]
    assert [*shown, *told.removesuffix(" with -v").strip().replace(" and ", ", ").split(", ")] == [str(number) for number in range(1, 13)]
    assert not any(
        line.endswith(" with -v") for line in write(structs.replace(demo, plan=long), "text", Options(width=100, detail=1)).splitlines()
    )


def test_launch_latency_that_a_wall_owns_is_no_wait_without_a_cause(demo: Diagnosis) -> None:
    """The bar and the verdict's sentence speak of the same amounts."""
    device = tables.focus(demo)
    step = None if device is None else tables.usual(device)
    assert device is not None
    assert step is not None
    stalled = structs.replace(step, dependency_stalled_ns=step.host_work_ns, host_work_ns=step.dependency_stalled_ns)
    owned = stalled.dependency_stalled_ns * 3 // 4
    walls = tuple(
        structs.replace(
            one, parts=one.parts | ({"handover": owned if one.wall == "host_overhead" else 0} if "handover" in one.parts else {})
        )
        for one in demo.walls
    )
    budgets = tuple(structs.replace(one, mean=stalled) if one is device else one for one in demo.budget)
    changed = structs.replace(demo, walls=walls, budget=budgets)
    check_adds_up(changed)
    amounts = dict(composition.amounts_of(changed, stalled))
    assert (amounts["latency"], amounts["unknown"]) == (owned, stalled.dependency_stalled_ns - owned)
    assert "launch latency" in {part.label for part in composition.bar(changed).parts}


@for_each(
    "target, busy, waiting, other, said",
    ("compute", 0.4, 0.5, 0.09, "Waits without a known cause"),
    ("compute", 0.46, 0.41, 0.09, "Waits without a known cause"),  # compute takes more, but less than half
    ("compute", 0.4, 0.08, 0.09, "Compute-bound"),  # another wall holds more than what nobody knows
    ("compute", 0.55, 0.4, 0.05, "Compute-bound"),
    ("communication", 0.16, 0.6, 0.14, "Waits without a known cause"),
    ("communication", 0.18, 0.56, 0.14, "Communication first"),  # all that is known together holds more
)
def test_no_wall_is_the_headline_where_more_of_the_step_waits_for_nobody_knows_what(
    demo: Diagnosis, target: Wall, busy: float, waiting: float, other: float, said: str
) -> None:
    step = demo.steps.duration_ns.mean or 0
    told = structs.replace(demo.verdict, target_wall=target, dominant_wall="compute", cause=None)
    walls = tuple(
        structs.replace(one, bound_ns=round(busy * step), share=busy, beside={"unexplained_wait": round(waiting * step)})
        if one.wall == "compute"
        else structs.replace(one, bound_ns=round(other * step), share=other)
        for one in demo.walls
    )
    assert story.headline(structs.replace(demo, verdict=told, walls=walls)) == said


@for_each(
    "file, written_to",
    ("job.yaml", " -o new.yaml"), ("job.yml", " -o new.yml"), ("train.sh", ""), ("zero3.json", " -o new.json"),
    ("train.toml", ""),
)  # fmt: skip
def test_a_patch_is_told_to_write_only_what_it_can_write(file: str, written_to: str) -> None:
    known = rich()
    assert known.job is not None
    document = structs.replace(known, job=structs.replace(known.job, file=file), plan=(PlanStep(**STEP | {"state": "applicable"}),))
    assert dict(answer.commands(document).rows)["apply"].endswith(f"--config {file}{written_to}")


def test_what_one_rank_can_not_tell_of_communication_goes_before_what_the_profiler_did(demo: Diagnosis) -> None:
    slowed = structs.replace(demo.findings[0], wall=CAPTURE, summary="The profiler slowed this run. More.")
    said = answer.remarks(structs.replace(demo, findings=(slowed, *demo.findings), ranks=None)).texts
    alone = next(place for place, text in enumerate(said) if text.startswith("One of 16 ranks was captured"))
    assert alone < said.index("The profiler slowed this run.")
    assert sum("profiler" in text for text in said) == 1
    moved = demo.facts | {"transport_bus_bytes": Fact(value=2_600_000_000, unit="bytes", status="measured")}
    fast = answer.remarks(structs.replace(demo, facts=moved, ranks=None)).texts
    assert "looks like slow communication (its large collectives: 2.6 GB/s of bus bandwidth, waiting included)." in fast[alone]


@for_each(
    "rank, gpus, wanted", (0, 2, "0, 1"), (1, 2, "0, 1"), (2, 3, "0, 1, 2"), (0, 16, "0, 1, 8"), (8, 16, "0, 8, 15"), (15, 16, "0, 8, 15")
)
def test_other_ranks_than_the_captured_one_are_asked_for(demo: Diagnosis, rank: int, gpus: int, wanted: str) -> None:
    assert demo.identity is not None
    alone = structs.replace(demo, ranks=None, identity=structs.replace(demo.identity, rank=rank, gpus=gpus, ranks_captured=1))
    assert f"Capture ranks {wanted} in the same steps" in " ".join(answer.remarks(alone).texts)


@for_each("stages, wanted", (4, "1, 5, 9, 13"), (3, "0, 1, 8"), (16, "0, 1, 8"))
def test_where_the_pipeline_is_waited_for_most_a_rank_of_each_stage_is_asked_for(demo: Diagnosis, stages: int, wanted: str) -> None:
    """Not where stages do not divide the ranks, nor of very many."""
    assert demo.identity is not None
    most = structs.replace(demo.communication[0], kind="pipeline", blocking_ns=10**12)
    identity = structs.replace(demo.identity, rank=1, gpus=16, ranks_captured=1, layout={"PP": stages})
    alone = structs.replace(demo, ranks=None, communication=(*demo.communication, most), identity=identity)
    assert f"Capture ranks {wanted} in the same steps" in " ".join(answer.remarks(alone).texts)


def test_a_trace_of_recompute_has_no_row_of_its_own(demo: Diagnosis) -> None:
    assert composition.bar(recomputing(demo, forward=10_000, backward=20_000)) == composition.bar(demo)


def test_fsdp_s_buffers_are_no_permutation(demo: Diagnosis) -> None:
    """What packs for a collective of parameters is told apart from what rearranges tokens, in a model with experts too."""
    device = tables.focus(demo)
    step = None if device is None else tables.usual(device)
    assert device is not None
    assert step is not None
    before = dict(composition.amounts_of(demo, step))
    packed = step.blocking_packing_ns
    assert (before["packing"], before["buffers"]) == (packed, 0)
    rows = tuple(structs.replace(row, bucket="collective") if row.role == "packing" else row for row in demo.blocking)
    amounts = dict(composition.amounts_of(structs.replace(demo, blocking=rows), step))
    assert amounts["packing"] + amounts["buffers"] == packed
    assert amounts["buffers"] > 0.9 * packed > 0


def test_what_the_ledger_tells_is_said_in_words() -> None:
    def entry(code: str, table: str, count: int, detail: str = "") -> LedgerEntry:
        known = CODES[code]
        return LedgerEntry(
            code=code, severity=known.severity, origin=known.origin, table=table, count=count, meaning=known.meaning, detail=detail
        )

    def said(*entries: LedgerEntry, hidden: bool = False) -> list[str]:
        document = minimal()
        return list(lost.remarks(structs.replace(document, ledger=entries, verdict=structs.replace(document.verdict, hidden=hidden))))

    assert said(entry("negative_duration", "KERNEL", 3)) == [
        "Data was lost: rows that end before they start (3 in KERNEL); see --section ledger."
    ]
    assert said(entry("refused_input", "inputs", 1, "b.json is damaged.")) == ["Data was lost: b.json is damaged; see --section ledger."]
    assert (
        "a.json and b.json: of a rank that another file is of too (a second capture, or a copy)"
        in said(*(entry("renumbered_rank", "ranks", 1, name) for name in ("a.json", "b.json")))[0]
    )
    assert said(entry("no_copies", "ops", 8))[0].startswith("8 calls for copies, none of which the capture holds.")
    unnamed = entry("unknown_name", "KERNEL", 200)
    assert said(unnamed) == []
    assert said(unnamed, hidden=True)[0].startswith("200 rows whose name is not in the export's string table.")


def test_nothing_is_said_to_be_absent_where_kernels_have_no_names() -> None:
    document = minimal()
    walls = tuple(structs.replace(wall, share=0.0) if wall.wall == "communication" else wall for wall in document.walls)
    for hidden in (False, True):
        judged = structs.replace(document.verdict, hidden=hidden)
        assert ("communication (none)" in advice.plan(structs.replace(document, walls=walls, verdict=judged)).not_worth) is not hidden


def test_a_wall_that_a_step_of_the_plan_is_for_is_not_said_to_bring_little(demo: Diagnosis) -> None:
    small = structs.replace(demo, walls=tuple(structs.replace(wall, share=0.01) for wall in demo.walls))
    planned = {step.finding for step in small.plan}
    answered = {finding.wall for finding in small.findings if finding.id in planned}
    assert answered == {"communication"}
    assert advice.plan(small).not_worth.startswith("memory (at most 1.0 %), CPU overhead (at most 1.0 %)")
