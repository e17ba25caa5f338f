"""The closed vocabularies that rules, measures and the document share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

Wall = Literal["memory", "communication", "host_overhead", "compute"]
Status = Literal["measured", "inferred", "config", "hypothesis"]
Certainty = Literal["high", "medium", "low"]
Level = Literal["low", "medium", "high"]
FixState = Literal["applicable", "already_on", "blocked", "unknown"]
Role = Literal["compute", "transport", "packing", "copy"]
CommKind = Literal["expert", "data", "tensor", "pipeline", "context", "other"]
Cause = Literal["allocator", "sync", "gc", "python", "launch"]
FactValue = int | float | bool | str | None
WALLS: tuple[Wall, ...] = ("memory", "communication", "host_overhead", "compute")
COMM_KINDS: tuple[CommKind, ...] = ("expert", "data", "tensor", "pipeline", "context", "other")
Bucket = Literal[
    "vision_encoder",
    "attention",
    "router",
    "dispatch",
    "expert_gemm",
    "optimizer",
    "dense_gemm",
    "norm",
    "activation",
    "embedding",
    "loss",
    "collective",
    "memcpy",
    "memset",
    "elementwise",
    "other",
]
BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
Phase = Literal["forward", "backward", "recompute", "optimizer"]
PHASES: tuple[Phase, ...] = get_args(Phase)
EVIDENCE = ("rule", "module", "operator", "name", "neighbours")
Outcome = Literal["assert", "error", "out_of_memory", "wrong_result", "hang", "silently_off", "slow", "not_trustworthy"]
Group = Literal["will_fail", "will_hang", "silently_off", "doubtful"]
GROUPS: tuple[Group, ...] = get_args(Group)
GROUP_OF: Mapping[Outcome, Group] = MappingProxyType(
    {
        "assert": "will_fail",
        "error": "will_fail",
        "out_of_memory": "will_fail",
        "wrong_result": "will_fail",
        "hang": "will_hang",
        "silently_off": "silently_off",
        "slow": "doubtful",
        "not_trustworthy": "doubtful",
    }
)
