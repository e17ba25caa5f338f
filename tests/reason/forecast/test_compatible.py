"""Which fixes go together: the settings of some applied to the job, and all others asked again."""

from msgspec import structs

from diagnose.knowledge.load import load_knowledge, load_rulebook
from diagnose.reason.context import make_context
from diagnose.reason.forecast.answer import answer
from diagnose.reason.forecast.plan import Compatible
from tests.builders.diagnosis import minimal
from tests.builders.facts import facts
from tests.builders.jobs import job, parse_job

JOB = """\
_target_: megatron.bridge.training.config.ConfigContainer
model: {num_moe_experts: 8}
env_vars: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:False"}
"""


def test_options_in_one_text_are_a_text_after_a_fix_too() -> None:
    book = load_rulebook()
    context = make_context({}, parse_job(JOB), book)
    assert context.values["job_pytorch_cuda_alloc_conf"] == "expandable_segments:False"
    after = Compatible(context=context).after(("MEM-01",))
    assert after.values["job_pytorch_cuda_alloc_conf"] == "expandable_segments:True"


def test_fixes_that_clear_each_other_s_way_are_asked_for_together() -> None:
    """Delayed weight gradients need the overlap of the exchange, in either order of asking."""
    document, knowledge = structs.replace(minimal(), findings=(), facts=facts(gpu_compute_major=9, platform="h100")), load_knowledge()

    def states(*fixes: str) -> dict[str, str]:
        return {one.id: one.state or "" for one in answer(document, None, job(), knowledge, fixes=fixes).questions}

    assert states("COM-07")["COM-07"] == "blocked"
    assert "blocked" not in states("COM-06", "COM-07").values()
    assert "blocked" not in states("COM-07", "COM-06").values()
    assert states("COM-07", "COM-10")["COM-07"] == "blocked"


def test_a_change_that_can_be_made_once_goes_with_others() -> None:
    """Two micro-batches per rank: one twice as large leaves none to double, which keeps no other fix from going with it."""
    text = "_target_: megatron.bridge.training.config.ConfigContainer\nmodel: {recompute_granularity: full}\n"
    text += "train: {micro_batch_size: 1, global_batch_size: 16}\nworld_size: 8\n"
    together = Compatible(context=make_context({}, parse_job(text), load_rulebook()))
    assert together.goes_with((), "HOST-05")
    assert together.goes_with(("HOST-05",), "MEM-03")
    assert together.goes_with(("MEM-03",), "HOST-05")
    assert not together.goes_with(("HOST-05",), "HOST-05")
    assert not together.goes_with(("COM-06",), "MEM-19")  # full recompute, which the overlap refuses
