"""Which fixes go together: the settings of some applied to the job, and all others asked again."""

from diagnose.knowledge.rulebook import load_rulebook
from diagnose.reason.context import make_context
from diagnose.reason.forecast.plan import Compatible
from tests.builders.jobs import parse_job

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
