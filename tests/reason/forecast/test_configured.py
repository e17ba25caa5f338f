"""What the job file says of the graph that the order of kernels leaves open."""

import polars as pl

from diagnose.reason.forecast.configured import as_configured
from tests.builders.cases import for_each
from tests.builders.graphs import small_graph
from tests.builders.jobs import job
from tests.builders.records import replace

# In backward an activation and the products after it look repeated: a recompute of the activation alone repeats no product.
NODES = [
    ("call", {"kind": "call", "duration": 5, "cause": "launch", "bucket": "expert_gemm", "phase": "recompute"}),
    ("silu", {"duration": 10, "bucket": "activation", "role": "compute", "phase": "recompute", "class_id": 0}),
    ("gemm", {"duration": 100, "bucket": "expert_gemm", "role": "compute", "phase": "recompute", "class_id": 1}),
]


@for_each(
    "settings, phases",
    ({"recompute_granularity": "selective", "recompute_modules": ["moe_act"]}, ["backward", "recompute", "backward"]),
    ({"recompute_granularity": "selective", "recompute_modules": ["moe_act", "mlp"]}, ["recompute"] * 3),
    ({"recompute_granularity": "full"}, ["recompute"] * 3),
    ({}, ["recompute"] * 3),
)
def test_products_are_repeated_only_where_the_job_recomputes_some(settings: dict[str, object], phases: list[str]) -> None:
    classes = pl.DataFrame({"class_id": [0, 1], "operation": ["activation", "grouped_gemm"], "backend": [None, None]})
    graph = replace(small_graph(NODES, []), classes=classes)
    assert as_configured(graph, job(settings or {"micro_batch_size": 1})).nodes["phase"].to_list() == phases
    assert as_configured(graph, None) is graph
