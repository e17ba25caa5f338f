"""Which fixes go together: the settings of some applied to the job, and all others asked again."""

from msgspec import structs

from diagnose.knowledge.load import load_knowledge
from diagnose.knowledge.rulebook import load_rulebook
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
