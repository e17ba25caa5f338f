"""Fixes applied to job files: what is written where, what is refused, and that every applicable fix is on afterwards."""

import re
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.cli import main
from diagnose.document.job import AT_LAUNCH
from diagnose.errors import PatchRefusedError
from diagnose.job import edit_yaml as yaml_edit
from diagnose.job.edit import holds_already
from diagnose.knowledge import strict_yaml
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader
from diagnose.reason.patch import Patcher, Wanted, framework_of, is_step, plan
from diagnose.render import write
from fixtures import scenario
from tests.builders import advised
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import parse_job
from tests.job.test_edit_yaml import changed

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
DEMO = (JOBS / "qwen3_30b_a3b_alltoall_h100.yaml").read_text(encoding="utf-8")
H100 = {name: fact for name, fact in facts().items() if name in ("platform", "gpu_compute_major", "nvlink_domain")}

BRIDGE = """\
# our job
model:
  num_moe_experts: 8            # per layer
  expert_model_parallel_size: 8
  moe_token_dispatcher_type: alltoall
  recompute_granularity: null
  num_layers: 4
train: {manual_gc: false,  micro_batch_size: 1}
comm_overlap: null              # nothing yet
mixed_precision: bf16_mixed
env_vars:
  CUDA_DEVICE_MAX_CONNECTIONS: "1"
  PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb:128
"""

MEGATRON = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --num-experts: 8      # experts
  --expert-model-parallel-size: 8
  --moe-token-dispatcher-type: alltoall
  --bf16: true
  --moe-grouped-gemm: true
  --no-rope-fusion: true
TEST_TYPE: regular
"""


patched = partial(advised.patched, given=H100)


@cache
def state(text: str, fix: str) -> str:
    return FixReader(context=make_context(H100, parse_job(text), BOOK)).fix(BOOK.fixes[fix]).state


# --- where it is written ----------------------------------------------------------------------------------------------


def test_only_the_lines_that_change_change() -> None:
    done = patched(BRIDGE, "HOST-03")
    assert changed(BRIDGE, done.text) == (
        ["train: {manual_gc: false,  micro_batch_size: 1}\n"],
        ["train: {manual_gc: true,  micro_batch_size: 1, manual_gc_interval: 100}\n"],
    )
    assert [(row.key, row.from_, row.to) for row in done.report.written] == [
        ("train.manual_gc", "false", "true"),
        ("train.manual_gc_interval", None, "100"),
    ]


def test_a_section_that_is_null_becomes_a_map_and_a_new_one_names_its_class() -> None:
    assert changed(BRIDGE, patched(BRIDGE, "COM-06").text) == (
        ["comm_overlap: null              # nothing yet\n"],
        ["comm_overlap:              # nothing yet\n", "  overlap_moe_expert_parallel_comm: true\n"],
    )
    text = "_target_: megatron.bridge.training.config.ConfigContainer\n" + BRIDGE
    went, came = changed(text, patched(text, "COM-06").text)
    assert went == ["comm_overlap: null              # nothing yet\n"]
    assert came[1:] == [
        "  _target_: megatron.bridge.training.comm_overlap.CommOverlapConfig\n",
        "  tp_comm_overlap: false\n",
        "  overlap_moe_expert_parallel_comm: true\n",
    ]


def test_keys_precisions_and_quotes_are_written_as_the_file_has_them() -> None:
    text = "model:\n  transformer:\n    num_layers: 2\n    num_moe_experts: 8\n    moe_grouped_gemm: true\n    recompute_granularity: null\n  seq_length: 64\ntrain:\n  micro_batch_size: 1\n"
    assert changed(text, patched(text, "MEM-02").text) == (
        ["    recompute_granularity: null\n"],
        ["    recompute_granularity: selective\n", "    recompute_modules: [moe_act]\n"],
    )
    text = "optimizer:\n  exp_avg_dtype:\n    _target_: torch.float32\n    _call_: false\n  use_distributed_optimizer: true\n"
    done = patched(text, "MEM-05")
    assert "  exp_avg_dtype: {_target_: torch.bfloat16, _call_: false}\n" in done.text
    assert parse_job(done.text).get("exp_avg_dtype") == "bf16"
    text = BRIDGE.replace("comm_overlap: null ", "comm_overlap: {overlap_moe_expert_parallel_comm: true} ")
    done = patched(text, "COM-18")
    assert changed(text, done.text) == (['  CUDA_DEVICE_MAX_CONNECTIONS: "1"\n'], ['  CUDA_DEVICE_MAX_CONNECTIONS: "32"\n'])
    assert done.report.environment == ("export CUDA_DEVICE_MAX_CONNECTIONS=32",)


def test_every_key_that_sets_it_is_changed() -> None:
    """comm_overlap.overlap_grad_reduce goes before ddp.overlap_grad_reduce, so one of the two is not enough."""
    done = patched(DEMO, "COM-10")
    assert parse_job(done.text).get("overlap_grad_reduce") is True
    assert changed(DEMO, done.text)[0].count("  overlap_grad_reduce: false\n") == 2
    assert set(done.report.bridge_overrides) == {"ddp.overlap_grad_reduce=true", "comm_overlap.overlap_grad_reduce=true"}


def test_megatron_lm_arguments() -> None:
    done = patched(MEGATRON, "COM-06", "HOST-03")
    assert changed(MEGATRON, done.text) == (
        [],
        ["  --overlap-moe-expert-parallel-comm: true\n", "  --manual-gc: true\n", "  --manual-gc-interval: 100\n"],
    )
    assert done.report.megatron_flags == ("--overlap-moe-expert-parallel-comm", "--manual-gc", "--manual-gc-interval 100")
    assert "comm_overlap.overlap_moe_expert_parallel_comm=true" in done.report.bridge_overrides


def test_lists_of_megatron_lm_are_words_and_a_plain_job_keeps_its_way_of_naming() -> None:
    done = patched(MEGATRON, "MEM-02")
    assert "  --recompute-modules: moe_act\n" in done.text
    assert parse_job(done.text).get("recompute_modules") == ("moe_act",)
    flat = "num_moe_experts: 8\nexpert_model_parallel_size: 8\nmoe_token_dispatcher_type: alltoall\nbf16: true\n"
    assert patched(flat, "COM-06").text == flat + "overlap_moe_expert_parallel_comm: true\n"
    dotted = "model.num_moe_experts: 8\nmodel.expert_model_parallel_size: 8\nmodel.moe_token_dispatcher_type: alltoall\nmodel.bf16: true\n"
    assert patched(dotted, "COM-06").text == dotted + "comm_overlap.overlap_moe_expert_parallel_comm: true\n"


@for_each(
    "before, after",
    ("[moe, layernorm, shared_experts]", ("layernorm", "shared_experts", "moe_act")),
    ("[moe_act, layernorm, core_attn, moe]", ("moe_act", "layernorm")),
    ("[mlp]", ("mlp", "moe_act")),
    (None, ("moe_act",)),  # core_attn is Megatron-Core's own
)
def test_of_what_is_recomputed_only_the_costly_goes(before: str | None, after: tuple[str, ...]) -> None:
    text = "model:\n  num_moe_experts: 8\n  moe_grouped_gemm: true\n  recompute_granularity: selective\n"
    text += "" if before is None else f"  recompute_modules: {before}\n"
    assert parse_job(patched(text, "MEM-02").text).get("recompute_modules") == after


FLAGS = """\
# our flags
--num-experts 8 \\
--expert-model-parallel-size=8 \\
--moe-token-dispatcher-type alltoall \\
--bf16 \\
--moe-grouped-gemm \\
--recompute-granularity full
"""


def test_files_of_flags_and_of_overrides() -> None:
    text = FLAGS.replace("--recompute-granularity full", "--no-rope-fusion")
    assert changed(text, patched(text, "COM-06").text) == (
        ["--no-rope-fusion\n"],
        ["--no-rope-fusion \\\n", "--overlap-moe-expert-parallel-comm\n"],
    )
    less = patched(FLAGS, "MEM-03")
    assert parse_job(less.text).get("recompute_granularity") == "selective"
    assert changed(FLAGS, less.text)[0] == ["--recompute-granularity full\n"]
    text = (
        "# ours\nmodel.num_moe_experts=8\nmodel.expert_model_parallel_size=8\nmodel.moe_token_dispatcher_type=alltoall\nmodel.bf16=true\n"
    )
    text += "comm_overlap.overlap_moe_expert_parallel_comm=false\n"
    done = patched(text, "HOST-03")
    assert changed(text, done.text) == ([], ["train.manual_gc=true\n", "train.manual_gc_interval=100\n"])
    assert done.report.rewritten


@for_each("name", "a1_qwen3_30b_h100.sh", "a_recipe.sh", "torchtitan_deepseek_v3.toml")
def test_scripts_are_not_rewritten_but_the_change_is_judged_and_told(name: str) -> None:
    text = (JOBS / name).read_text(encoding="utf-8")
    done = patched(text, "MEM-01") if state(text, "MEM-01") in ("applicable", "unknown") else patched(text, "HOST-03")
    assert done.text == text
    assert not done.report.rewritten
    if done.report.applied:
        assert AT_LAUNCH in {row.why for row in done.report.left_to_you}
        told = " ".join(write(done.report, "text").split())
        assert "to give at launch; a file of this kind is not rewritten." in told  # as it is typed, and once
        assert AT_LAUNCH not in told
        assert "applied" not in told


# --- what is refused --------------------------------------------------------------------------------------------------


@for_each(
    "old, new, fix, sentence",
    ("recompute_granularity: null", "mtp_num_layers: 2", "COM-06", "At most one multi-token-prediction layer is allowed"),
    ("moe_token_dispatcher_type: alltoall", "moe_token_dispatcher_type: allgather", "COM-06", "The dispatcher is allgather"),
    ("comm_overlap: null ", "comm_overlap: &shared {tp_comm_overlap: false}\nother: *shared ", "COM-06", "by an anchor"),
    ("train: {", "train: &t {", "HOST-03", "by an anchor"),
)
def test_what_can_not_be_is_refused(old: str, new: str, fix: str, sentence: str) -> None:
    with pytest.raises(PatchRefusedError, match=sentence) as caught:
        patched(BRIDGE.replace(old, new), fix)
    assert caught.value.exit_code == 2


def test_a_change_that_breaks_an_earlier_one_or_a_check_is_refused() -> None:
    with pytest.raises(PatchRefusedError, match="COM-08 can't be applied"):
        patched(BRIDGE.replace("  num_layers: 4\n", "  num_layers: 4\n  moe_shared_expert_intermediate_size: 64\n"), "COM-06", "COM-08")
    # DeepEP's fix says nothing of padded capacity; the checks do
    text = BRIDGE.replace(
        "  num_layers: 4\n", "  num_layers: 4\n  moe_pad_expert_input_to_capacity: true\n  moe_expert_capacity_factor: 1.0\n"
    )
    with pytest.raises(PatchRefusedError, match=r"capacity|padded"):
        patched(text, "COM-01")


def test_what_was_wrong_before_is_said_and_stops_nothing() -> None:
    text = BRIDGE.replace("num_moe_experts: 8 ", "num_moe_experts: 9 ")
    done = patched(text, "HOST-03")
    assert [one.id for one in done.report.still_wrong] == ["experts-not-divisible"]
    assert done.report.applied


def test_for_a_finding_the_next_fix_is_taken() -> None:
    text = BRIDGE.replace("comm_overlap: null ", "comm_overlap: {overlap_moe_expert_parallel_comm: true} ")
    wanted = [Wanted(fixes=("COM-08", "HOST-03"), finding="some-finding")]
    done = Patcher(book=BOOK, tool=advised.TOOL, facts=H100).patch(text, "job.yaml", wanted)
    assert [one.id for one in done.report.skipped] == ["COM-08"]
    assert done.report.skipped[0].why
    assert [(one.id, one.for_finding) for one in done.report.applied] == [("HOST-03", "some-finding")]


@for_each("dtype, left", ("fp32", []), ("bf16", ["model.moe_router_dtype"]), (None, ["model.moe_router_dtype"]))
def test_for_a_finding_what_changes_numerics_is_left_to_a_person_unless_the_job_has_it(dtype: str | None, left: list[str]) -> None:
    text = BRIDGE.replace("model:\n", f"model:\n  moe_router_dtype: {dtype}\n", 1) if dtype else BRIDGE
    done = patched(text, "COM-02", finding="some-finding")
    assert [one.id for one in done.report.applied] == ["COM-02"]
    assert [row.key for row in done.report.left_to_you] == left


def test_what_a_person_has_to_do_is_left_and_a_fix_that_is_on_changes_nothing() -> None:
    done = patched(BRIDGE, "HOST-04")
    assert done.text == BRIDGE
    assert not done.report.applied
    assert {row.framework for row in done.report.left_to_you} <= {"launcher", "code", "environment", "megatron-bridge"}
    assert done.report.left_to_you
    once = patched(BRIDGE, "COM-06")
    again = patched(once.text, "COM-06")
    assert again.text == once.text
    assert [one.why for one in again.report.skipped] == ["It is on already."]


# --- every fix, every job ---------------------------------------------------------------------------------------------


@cache
def _texts() -> list[str]:
    """Job files of the fixtures, one of each content, and those of this file; made when first asked for."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(JOBS.iterdir()) if path.name != "README.md"] + [
        scenario.load(name).job_text() for name in scenario.names()
    ]
    different = {"\n".join(line for line in text.splitlines() if not line.startswith("#")): text for text in texts}
    return [*different.values(), BRIDGE, MEGATRON, FLAGS]


def _lines_kept(before: str, after: str) -> bool:
    """Whether every line of `before` that went held a setting, and the order of the others is the same."""
    old, new = changed(before, after)
    kept = [line for line in old if line in new]
    return [line for line in new if line in kept] == kept and not any(line.lstrip().startswith("#") and line not in new for line in old)


@cache
def _wrong(text: str) -> set[str]:
    job = parse_job(text)
    found = advised.checked(job, None if job.get("platform") else "h100")
    return {one.id for one in found.results if one.group != "doubtful"}


def _hold(text: str, fix: str) -> None:
    """The fix is on after it was applied, breaks no check that passed, and is not applied twice."""
    spec = BOOK.fixes[fix]
    if state(text, fix) != "applicable":
        return
    try:
        done = patched(text, fix)
    except PatchRefusedError as error:
        assert re.search(r"would go wrong|can't be written", error.what)  # noqa: PT017
        return
    assert _wrong(done.text) - _wrong(text) == set()
    assert _lines_kept(text, done.text)
    if done.report.applied and not done.report.left_to_you and not is_step(spec, BOOK):
        assert state(done.text, fix) == "already_on"
        assert patched(done.text, fix).text == done.text


@given(text=st.deferred(lambda: st.sampled_from(_texts())), fix=st.sampled_from(sorted(BOOK.fixes)))
def test_an_applicable_fix_is_on_afterwards(text: str, fix: str) -> None:
    _hold(text, fix)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(DEMO, id="demo", marks=pytest.mark.deep),
        pytest.param(BRIDGE, id="bridge", marks=pytest.mark.deep),
        pytest.param(MEGATRON, id="megatron-lm", marks=pytest.mark.deep),
    ],
)
def test_every_fix_on_the_jobs_of_this_file(text: str) -> None:
    for fix in sorted(BOOK.fixes):
        print(fix)  # noqa: T201 - shown where one fails
        _hold(text, fix)


@for_each("job", DEMO, MEGATRON)
def test_changes_are_values_or_said_to_be_choices(job: str) -> None:
    """What a fix asks for can be written as it stands, unless the fix says that a person has to choose."""
    parsed = parse_job(job)
    context = make_context(H100, parsed, BOOK)
    words = [
        row
        for spec in BOOK.fixes.values()
        for row in plan(spec, context, framework_of(parsed.format, BOOK.job)).left
        if row.why.endswith("is no value")
    ]
    assert [(row.fix, row.key, row.to) for row in words] == []


def test_the_expert_overlap_switches_off_the_overlap_that_it_excludes(tmp_path: Path) -> None:
    job, changed = tmp_path / "job.yaml", tmp_path / "changed.yaml"
    job.write_text(
        "model: {num_moe_experts: 128, expert_model_parallel_size: 16, moe_token_dispatcher_type: alltoall, "
        "moe_shared_expert_overlap: true, bf16: true}\nversions: {torch: 2.6.0}\n"
    )
    assert main(["patch", "--config", str(job), "--fix", "COM-06", "-o", str(changed)]) == 0
    said = strict_yaml.load(changed.read_bytes())
    assert isinstance(said, dict)
    assert said["comm_overlap"] == {"overlap_moe_expert_parallel_comm": True}
    assert said["model"]["moe_shared_expert_overlap"] is False


def test_a_value_that_can_not_be_computed_is_left_to_the_reader_and_nothing_is_unset() -> None:
    """CPY-02 halves the share of the optimizer on the host, which this job does not name."""
    job = parse_job("model: {num_layers: 4}\ntrain: {global_batch_size: 64}\n")
    found = plan(BOOK.fixes["CPY-02"], make_context(H100, job, BOOK), "megatron-bridge")
    assert [edit.key for edit in found.edits] == ["optimizer.overlap_cpu_optimizer_d2h_h2d"]
    assert next((row.key, row.why) for row in found.left) == (
        "optimizer.optimizer_offload_fraction",
        "the facts that it is computed from are not known",
    )


def test_a_list_that_holds_the_members_already_stays_as_it_is_written() -> None:
    text = BRIDGE.replace("recompute_granularity: null", "recompute_granularity: selective\n  recompute_modules: [ moe_act,  layernorm ]")
    node = yaml_edit.compose(text).at(("model", "recompute_modules"))
    assert node is not None
    assert holds_already(node, ("moe_act", "layernorm"))
    assert not holds_already(node, ("layernorm", "moe_act"))
    assert not holds_already(node, "moe_act")


def test_a_key_that_says_so_already_is_no_change() -> None:
    """Also where it is no setting that the program reads."""
    text = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "overlap_comm": false, "contiguous_gradients": %s}}\n'
    told = {value: patched(text % value, "COM-10").report.written for value in ("true", "false")}
    assert [row.key for row in told["true"]] == ["zero_optimization.overlap_comm"]
    assert [row.key for row in told["false"]] == ["zero_optimization.overlap_comm", "zero_optimization.contiguous_gradients"]


def test_an_option_joins_those_of_a_variable_that_holds_several() -> None:
    found = patched('model: {num_layers: 4}\nenv_vars: {PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:128"}\n', "MEM-01")
    assert "max_split_size_mb:128,expandable_segments:True" in found.text
