"""The closed vocabularies that rules, measures and the document share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta

# The walls are the rows of trace_rules/walls.yaml; JSON schemas say which there are (document/files.py).
Wall: TypeAlias = Annotated[str, Meta(extra_json_schema={"x-words": "walls"})]
CAPTURE = "capture"  # stands where a wall does for what is about the capture and not about the run
Topic: TypeAlias = Annotated[str, Meta(extra_json_schema={"x-words": "topics"})]  # a wall, or CAPTURE
# The formats of job files are the rows of trace_rules/job_formats.yaml.
JobFormatName: TypeAlias = Annotated[str, Meta(extra_json_schema={"x-words": "job formats"})]
Status = Literal["measured", "inferred", "config", "hypothesis"]
Certainty = Literal["high", "medium", "low"]
Level = Literal["low", "medium", "high"]
FixState = Literal["applicable", "already_on", "blocked", "unknown"]
Role = Literal["compute", "transport", "packing", "copy"]
CommKind = Literal["expert", "data", "tensor", "pipeline", "context", "other"]
Cause = Literal["allocator", "sync", "gc", "loading", "recompilation", "message_passing", "python", "host", "launch", "first_use"]
FactValue = int | float | bool | str | None
UNKNOWN_KIND: CommKind = "other"  # of a group that nothing tells, or of none of the purposes before
COMM_KINDS: tuple[CommKind, ...] = ("expert", "data", "tensor", "pipeline", "context", "other")
GROUP_OF_KIND: Mapping[CommKind, str] = {  # how the facts of a kind begin
    "expert": "expert_exchange",
    "data": "data_parallel",
    "tensor": "tensor_parallel",
    "pipeline": "pipeline_parallel",
    "context": "context_parallel",
    "other": "other_collective",
}
# Buckets that measures and the rules about neighbours go by themselves. All buckets, these among them, are the rows of
# trace_rules/buckets.yaml.
ATTENTION = "attention"
COLLECTIVE = "collective"
DENSE_GEMM = "dense_gemm"
DISPATCH = "dispatch"
ELEMENTWISE = "elementwise"
EXPERT_GEMM = "expert_gemm"
LOSS = "loss"
NORM = "norm"
OPTIMIZER = "optimizer"
OTHER_BUCKET = "other"
QUANTIZE = "quantize"
ROUTER = "router"
VISION_ENCODER = "vision_encoder"
MEMCPY, MEMSET = "memcpy", "memset"
NO_KERNELS = (MEMCPY, MEMSET)  # what the copy engines do
METHOD_BUCKETS = (
    *NO_KERNELS,
    ATTENTION,
    COLLECTIVE,
    DENSE_GEMM,
    DISPATCH,
    ELEMENTWISE,
    EXPERT_GEMM,
    LOSS,
    NORM,
    OPTIMIZER,
    OTHER_BUCKET,
    QUANTIZE,
    ROUTER,
    VISION_ENCODER,
)
# What is known of an operation beyond its class: a product on FP32 cores, a copy into another type, a copy into another layout, a part
# of attention step by step.
FP32_PRODUCT, CAST, LAYOUT_COPY, UNFUSED_ATTENTION = TRAITS = ("fp32_product", "cast", "layout_copy", "unfused_attention")
Phase = Literal["forward", "backward", "recompute", "optimizer"]
PHASES: tuple[Phase, ...] = get_args(Phase)
MoePart = Literal[
    "router", "permute", "dispatch", "experts", "combine", "unpermute"
]  # of a mixture-of-experts layer, in the order of its forward pass
MOE_PARTS: tuple[MoePart, ...] = get_args(MoePart)
EVIDENCE = ("rule", "module", "operator", "name", "neighbours")
Outcome = Literal["assert", "error", "out_of_memory", "wrong_result", "hang", "silently_off", "slow", "not_trustworthy"]
Group = Literal["will_fail", "will_hang", "silently_off", "doubtful"]
GROUPS: tuple[Group, ...] = get_args(Group)
GROUP_OF: Mapping[Outcome, Group] = {
    "assert": "will_fail",
    "error": "will_fail",
    "out_of_memory": "will_fail",
    "wrong_result": "will_fail",
    "hang": "will_hang",
    "silently_off": "silently_off",
    "slow": "doubtful",
    "not_trustworthy": "doubtful",
}

# What an operation counts as in the budget, as people write it where that differs.
ROLE_TITLES: Mapping[str, str] = {"transport": "communication", "packing": "permute/unpermute"}
