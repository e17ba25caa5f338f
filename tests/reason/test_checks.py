"""A job file alone: groups, defaults that are only assumed, what is not assessed, and what fixes that are on demand."""

from pathlib import Path

import pytest

from diagnose.document.job import CheckReport, CheckResult
from diagnose.errors import UsageError
from diagnose.knowledge.load import load_rulebook
from fixtures import scenario
from tests.builders.advised import checked
from tests.builders.cases import for_each
from tests.builders.jobs import A1, B1, job
from tests.builders.suites import SCENARIOS, kind_of

OVERLAP = {"comm_overlap__overlap_moe_expert_parallel_comm": True}


def report(base: dict[str, object] | None = None, platform: str | None = "h100", **changes: object) -> CheckReport:
    return checked(job(base, **changes), platform)


def result(found: CheckReport, key: str) -> CheckResult:
    return next(one for one in found.results if one.id == key)


def test_the_published_jobs_are_fine() -> None:
    for base, platform in ((A1, "h100"), (B1, "gb200")):
        found = report(base, platform, rng__te_rng_tracker=True)
        assert [one.id for one in found.results] == []
        assert not found.failed


@for_each(
    "change, key, group",
    ({**OVERLAP, "model__recompute_granularity": "full"}, "expert-overlap-with-full-recompute", "will_fail"),
    ({**OVERLAP, "versions__torch": "2.5.1"}, "expert-overlap-on-old-torch", "will_hang"),
    ({**OVERLAP, "dataset__packing_buffer_size": 8}, "expert-overlap-off-under-packing", "silently_off"),
    ({"model__moe_router_force_load_balancing": True}, "forced-load-balance", "doubtful"),
    ({"train__global_batch_size": 24}, "batch-not-divisible", "will_fail"),
    ({"model__context_parallel_size": 4, "model__seq_length": 4100}, "sequence-not-divisible-for-context-parallelism", "will_fail"),
)
def test_each_group(change: dict[str, object], key: str, group: str) -> None:
    found = report(**change)
    one = result(found, key)
    assert one.group == group
    assert found.failed == (group != "doubtful")
    assert one.assumed == ()


def test_the_reason_is_that_of_the_fix() -> None:
    """A job that has the overlap on beside full recompute fails once, with the settings that decide and the fix that helps."""
    found = report(**OVERLAP, model__recompute_granularity="full")
    assert [(one.id, one.group) for one in found.results] == [
        ("expert-overlap-with-full-recompute", "will_fail"),
        ("full-recompute-without-method", "doubtful"),  # none is only assumed
    ]
    one = found.results[0]
    assert one.summary == "overlap_moe_expert_parallel_comm is on and recompute_granularity is full, which the overlap refuses."
    assert [(row.name, row.value, row.source) for row in one.settings] == [
        ("overlap_moe_expert_parallel_comm", True, "read"),
        ("recompute_granularity", "full", "read"),
    ]
    assert [fix.id for fix in one.fixes] == ["MEM-03", "MEM-02"]


def test_what_follows_from_a_default_only_is_doubtful_but_for_megatron_lm_s() -> None:
    found = report(**OVERLAP, model__expert_model_parallel_size=None)
    one = result(found, "expert-overlap-without-expert-parallelism")
    assert (one.group, one.assumed) == ("doubtful", ("expert_model_parallel_size",))
    assert not found.failed
    found = checked("MODEL_ARGS:\n  --overlap-moe-expert-parallel-comm: true\n  --num-experts: 8\n  --bf16: true\n")
    assert found.failed
    assert {"expert-overlap-without-expert-parallelism", "expert-overlap-with-allgather"} <= {
        one.id for one in found.results if one.group == "will_fail"
    }


@for_each(
    "lines, mode",
    ("num-layers: 12, tensor-model-parallel-size: 2", ""),
    ("world-size: 12, tensor-model-parallel-size: 4", ""),
    ("sequence-parallel: true, num-layers: 12", ""),
    (
        (
            "num-layers: 6, pipeline-model-parallel-size: 4, num-virtual-stages-per-pipeline-rank: 2, "
            "account-for-embedding-in-pipeline-split: true, account-for-loss-in-pipeline-split: true"
        ),
        "",
    ),
    (
        (
            "num-layers: 15, pipeline-model-parallel-size: 2, pipeline-model-parallel-layout: Et*3|(tt|)*6mL, expert-model-parallel-size: 4, "
            "num-experts: 8, moe-token-dispatcher-type: alltoall, bf16: true, overlap-moe-expert-parallel-comm: true, mtp-num-layers: 1"
        ),
        "",
    ),
    ("num-experts: 8, tensor-model-parallel-size: 2, expert-model-parallel-size: 2, expert-tensor-parallel-size: 1", "inference"),
)
def test_a_job_that_runs_is_not_said_to_fail(lines: str, mode: str) -> None:
    """What the functional tests of Megatron-LM run: a word against it would be false."""
    flags = "".join(f"  --{line}\n" for line in lines.split(", "))
    found = checked(f"MODE: {mode}\nMODEL_ARGS:\n{flags}")
    assert not found.failed
    assert {one.id for one in found.results} <= {"sequence-parallel-switched-off"}


_SHARED = "moe_shared_expert_intermediate_size: 2048, use_grouped_gemm_for_shared_expert: true"
_ARGUMENTS = "torchrun pretrain_gpt.py --num-layers 4 --num-experts 8 --moe-pad-expert-input-to-capacity"


@for_each(
    "text, key, group",
    (_ARGUMENTS, "padding-without-capacity", "will_fail"),  # all there is
    (f"{_ARGUMENTS} --moe-expert-capacity-factor $FACTOR", "padding-without-capacity", "doubtful"),  # given, not known as what
    (f"{_ARGUMENTS} $MORE", "padding-without-capacity", "doubtful"),  # may hold it
    ("model: {moe_pad_expert_input_to_capacity: true}", "padding-without-capacity", "doubtful"),  # overrides: the recipe may set it
    (f"model: {{{_SHARED}}}", "shared-experts-grouped-without-interleaving", "doubtful"),
    (f"model: {{{_SHARED}}}", "shared-experts-grouped-without-their-path", "doubtful"),
    (f"model: {{{_SHARED}, add_bias_linear: true}}", "shared-experts-grouped-without-their-path", "will_fail"),  # whatever lies below
)
def test_what_holds_only_as_long_as_nothing_more_is_given_is_doubtful(text: str, key: str, group: str) -> None:
    assert result(checked(text), key).group == group


def test_checks_of_one_framework_are_not_asked_of_the_other_and_what_is_missing_is_named() -> None:
    lines = "  --sequence-parallel: true\n  --tensor-model-parallel-size: 1\n"
    megatron = checked(f"MODEL_ARGS:\n{lines}")
    bridge = checked("model:\n  sequence_parallel: true\n  tensor_model_parallel_size: 1\n")
    assert [one.id for one in megatron.results] == ["sequence-parallel-switched-off"]
    assert [one.id for one in bridge.results] == ["sequence-parallel-without-tensor-parallel"]
    found = report(**OVERLAP)
    lacking = {one.id: one for one in found.not_assessed}
    assert lacking["expert-overlap-on-old-torch"].missing == ("torch_version",)
    assert lacking["expert-overlap-on-old-torch"].how == "versions.torch"
    megatron = checked("MODEL_ARGS:\n  --context-parallel-size: 2\n")
    assert {one.id: one.how for one in megatron.not_assessed}["sequence-not-divisible-for-context-parallelism"] == "--seq-length"


def test_the_platform_comes_from_the_command_line_or_the_job_and_without_it_checks_are_not_assessed() -> None:
    change = {"model__moe_token_dispatcher_type": "flex", "model__moe_flex_dispatcher_backend": "deepep", "model__moe_router_dtype": "fp32"}
    assert not report(platform="h100", **change).failed
    off = result(report(platform="gb200", **change), "deepep-on-unsupported-gpu")
    assert off.group == "silently_off"
    told = [(one.name, one.value) for one in off.settings if one.source == "platform"]
    assert told == [("platform", "gb200"), ("gpu_compute_major", 10)]
    own = checked("platform: gb200\nmodel: {moe_token_dispatcher_type: flex, moe_flex_dispatcher_backend: deepep}\n")
    assert own.platform == "gb200"
    assert "deepep-on-unsupported-gpu" in {one.id for one in own.results}
    with pytest.raises(UsageError, match="tpu"):
        report(platform="tpu")
    change = {"model__moe_token_dispatcher_type": "flex", "model__moe_flex_dispatcher_backend": "deepep"}
    found = report(platform=None, **change)
    lacking = {one.id: one.how for one in found.not_assessed}
    assert lacking["deepep-on-unsupported-gpu"].startswith("--platform, or platform in the job file")


OWN_FIX = """
id: OWN-01
title: our own switch
walls: [communication]
phase: retune
evidence: candidate
changes: [{framework: megatron-bridge, key: model.sequence_parallel, to: "true", setting: sequence_parallel}]
already_on: job_sequence_parallel
needs:
  - {if: "job_num_layers > 100", say: "Worth while above 100 layers only."}
  - {if: "job_hidden_size > 64", say: "The hidden size is {job_hidden_size}.", outcome: error}
conflicts:
  - {if: "job_vocab_size < 100", say: "The vocabulary is small ({job_vocab_size})."}
expected: []
cost: none
risk: none
verify: step_ns falls
refs: [us]
no_effect: Nobody measured it.
"""


def test_fixes_that_are_on_are_asked_for_their_conflicts(tmp_path: Path) -> None:
    """A conflict without an outcome is doubtful, a need with one is what it says, a need without one is no matter."""
    (tmp_path / "playbook").mkdir()
    (tmp_path / "playbook" / "own.yaml").write_text(OWN_FIX, encoding="utf-8")
    lines = "  tensor_model_parallel_size: 2\n  num_layers: 4\n  hidden_size: 64\n  vocab_size: 99\n"
    found = checked(f"model:\n  sequence_parallel: true\n{lines}", book=load_rulebook([tmp_path]))
    own = [(one.summary, one.group, one.outcome, one.source) for one in found.results if one.id == "OWN-01-requirement"]
    assert own == [("The hidden size is 64.", "will_fail", "error", "fix"), ("The vocabulary is small (99).", "doubtful", None, "fix")]


def test_a_setting_that_a_fix_and_its_conflict_both_read_is_shown_once(tmp_path: Path) -> None:
    (tmp_path / "playbook").mkdir()
    both = OWN_FIX.replace('"job_vocab_size < 100"', '"job_vocab_size < 100 AND job_sequence_parallel"')
    (tmp_path / "playbook" / "own.yaml").write_text(both, encoding="utf-8")
    lines = "  tensor_model_parallel_size: 2\n  num_layers: 4\n  hidden_size: 128\n  vocab_size: 99\n"
    found = checked(f"model:\n  sequence_parallel: true\n{lines}", book=load_rulebook([tmp_path]))
    assert [(row.name, row.value) for row in result(found, "OWN-01-requirement").settings] == [
        ("sequence_parallel", True),
        ("vocab_size", 99),
    ]


def test_a_conflict_is_told_once_and_not_where_a_check_has_told_it(tmp_path: Path) -> None:
    """Two fixes that share a conflict, and one whose settings a check that fired has read."""
    (tmp_path / "playbook").mkdir()
    shared = OWN_FIX.replace("conflicts:\n", 'conflicts:\n  - {if: "job_tensor_model_parallel_size < 2", say: "One rank."}\n')
    (tmp_path / "playbook" / "own.yaml").write_text(shared, encoding="utf-8")
    (tmp_path / "playbook" / "other.yaml").write_text(shared.replace("OWN-01", "OWN-02"), encoding="utf-8")
    lines = "  tensor_model_parallel_size: 1\n  num_layers: 4\n  hidden_size: 128\n  vocab_size: 99\n"
    found = checked(f"model:\n  sequence_parallel: true\n{lines}", book=load_rulebook([tmp_path]))
    assert "sequence-parallel-without-tensor-parallel" in {one.id for one in found.results}
    assert [one.summary for one in found.results if one.source == "fix"] == ["The vocabulary is small (99)."]


@pytest.mark.parametrize("names", [SCENARIOS, pytest.param(scenario.names(), marks=pytest.mark.deep)], ids=["some", "all"])
def test_no_simulated_job_is_said_to_fail(names: tuple[str, ...]) -> None:
    """The scenarios' jobs run; what is said of them may be doubtful, never that they fail."""
    jobs: dict[tuple[str, str], str] = {}  # by what the file says, and the GPU; several scenarios run the same job
    for name in names:
        if kind_of(name) != "pair":
            one = scenario.load(name)
            lines = one.job_text().splitlines()
            jobs["\n".join(line for line in lines if not line.startswith("#")), one.plan.machine.gpu] = name
    found = {name: checked(text, gpu).results for (text, gpu), name in jobs.items()}
    assert {name: [one.id for one in rows if one.group != "doubtful"] for name, rows in found.items()} == {name: [] for name in found}


@for_each("release, groups", ("0.16.0", []), ("0.17.0", ["will_fail"]), (None, ["doubtful"]))
def test_what_a_newer_release_refuses_is_doubtful_where_the_job_does_not_say_its_own(release: str | None, groups: list[str]) -> None:
    changes = {**OVERLAP, "model__recompute_granularity": "selective", "model__recompute_modules": ["moe"]}
    found = report(**changes, **({} if release is None else {"versions__megatron_core": release}))
    assert [one.group for one in found.results if one.id == "expert-overlap-with-moe-recompute"] == groups
