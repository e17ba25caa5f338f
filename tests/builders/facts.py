"""Facts for tests of the reasoning: all absent unless given."""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.document.diagnosis import Fact
from diagnose.knowledge.rulebook import load_rulebook
from diagnose.model.vocabulary import FactValue, Status

BOOK = load_rulebook()

# One clean measurement: five even steps of 100 ms, everything resolved, nothing wrong.
CLEAN: Mapping[str, FactValue] = {
    "step_ns": 100_000_000,
    "steps_n": 5,
    "steps_anchored": True,
    "step_spread": 0.02,
    "compute_busy_ns": 95_000_000,
    "compute_busy_share": 0.95,
    "compute_absent_ns": 5_000_000,
    "launch_starved_ns": 2_000_000,
    "launch_starved_share": 0.02,
    "allocator_ns": 0,
    "allocator_shadowed_ns": 0,
    "allocator_restart_ns": 0,
    "launch_handover_ns": 0,
    "launch_shadowed_ns": 0,
    "host_sync_ns": 500_000,
    "sync_restart_ns": 0,
    "host_work_ns": 1_500_000,
    "blocking_ns": 3_000_000,
    "blocking_inferred_share": 0.0,
    "dependency_stalled_ns": 0,
    "transport_busy_ns": 10_000_000,
    "transport_busy_share": 0.1,
    "transport_exposed_ns": 3_000_000,
    "transport_exposed_share": 0.03,
    "transport_blocking_ns": 3_000_000,
    "transport_blocking_share": 0.03,
    "transport_handover_ns": 0,
    "transport_follow_ns": 0,
    "transport_restart_ns": 0,
    "expert_exchange_busy_ns": 10_000_000,
    "expert_exchange_exposed_ns": 3_000_000,
    "expert_exchange_blocking_ns": 3_000_000,
    "expert_exchange_blocking_share": 0.03,
    "expert_exchange_backend": "nccl",
    "expert_exchange_nccl_share": 1.0,
    "graph_launch_calls": 0,
    "data_parallel_blocking_ns": 0,
    "tensor_parallel_blocking_ns": 0,
    "pipeline_parallel_blocking_ns": 0,
    "context_parallel_blocking_ns": 0,
    "other_collective_blocking_ns": 0,
    "packing_busy_ns": 1_000_000,
    "packing_busy_share": 0.01,
    "packing_exclusive_ns": 100_000,
    "copy_blocking_ns": 0,
    "copy_blocking_share": 0.0,
    "host_copy_blocking_ns": 0,
    "host_copy_blocking_share": 0.0,
    "host_copy_handover_ns": 0,
    "host_copy_restart_ns": 0,
    "recompute_ns": 0,
    "recompute_share": 0.0,
    "opaque_graph_share": 0.0,
    "other_share": 0.0,
    "correlation_rate": 1.0,
    "resolved_wait_rate": 0.99,
    "python_stacks": False,
    "platform": "h100",
    "gpu_compute_major": 9,
    "nvlink_domain": 8,
}


def facts(base: Mapping[str, FactValue] | None = None, *, inferred: tuple[str, ...] = (), **values: FactValue) -> dict[str, Fact]:
    """The full table of facts: `base` (default CLEAN) with `values` on top."""
    given = {**(CLEAN if base is None else base), **values}
    unknown = set(given) - set(BOOK.facts)
    assert not unknown, unknown

    def status(name: str) -> Status:
        return "inferred" if name in inferred else "measured"

    return {name: Fact(value=given.get(name), unit=spec.unit, status=status(name)) for name, spec in BOOK.facts.items()}
