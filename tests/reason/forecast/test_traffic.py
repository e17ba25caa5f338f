"""Rows that a library sends, and what becomes of an exchange's length, worked out by hand."""

from typing import Any

import pytest

from diagnose.reason.context import make_context
from diagnose.reason.forecast.changes import effect_of
from diagnose.reason.forecast.traffic import rows_of, taken_over
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import job

LAYOUT = {"expert_model_parallel_size": 16, "moe_router_topk": 8, "seq_length": 4096, "micro_batch_size": 1, "hidden_size": 2048}
ROW = 4096 * 2048 * 2  # bytes of one vector for each token of a rank


def test_rows_of_two_nodes() -> None:
    # 2 experts, 4 ranks, 2 to a node. All-to-all: 2 rows, half to the other node; of the one that stays half stays on the rank. A library:
    # 2 · (1 − 1/4) = 1.5 nodes, half of them the own; 4 · (1 − 9/16) = 1.75 ranks, half of them where the row came in.
    rows = rows_of(ranks=4, domain=2, experts=2)
    assert (rows.nodes, rows.network_before, rows.network_after, rows.nvlink_before, rows.nvlink_after) == (2, 1, 0.75, 0.5, 0.875)


@for_each(
    "told, network, nvlink",
    ({"ranks": 8, "domain": 8, "experts": 1}, 0, 7 / 8),  # one node: nothing crosses the network
    ({"ranks": 64, "domain": 8, "experts": 8, "groups": 8, "of_groups": 1}, 7 / 8, 8 * (1 - (7 / 8) ** 8) * 7 / 8),  # held to one node
    (
        {"ranks": 16, "domain": 8, "experts": 8, "groups": 8, "of_groups": 4},
        1 - 2**-8,
        16 * (1 - (15 / 16) ** 8) * 7 / 8,
    ),  # to more than there are
)
def test_rows_of_other_layouts(told: dict[str, int], network: float, nvlink: float) -> None:
    rows = rows_of(**told)  # type: ignore[arg-type]
    assert (rows.network_after, rows.nvlink_after) == (pytest.approx(network), pytest.approx(nvlink))


def _factors(library: str, *, took: int | None, platform: str = "h100", **layout: Any) -> tuple[float, float, float] | None:
    known = facts(expert_exchange_backend="nccl", platform=platform, nvlink_domain=8, expert_exchange_typical_ns=took)
    found = taken_over(library, make_context(known, job(LAYOUT | layout), BOOK))
    return None if found is None else found.by


def test_what_an_exchange_between_nodes_waits_for_late_ranks_stays() -> None:
    """Nine in ten take longer than the 4 rows at 40 GB/s do, the usual one half as long again."""
    moves = round(4 * ROW / 40)
    took = round(1.5 * moves)
    known = {"expert_exchange_backend": "nccl", "platform": "h100", "nvlink_domain": 8, "expert_exchange_typical_ns": took}
    found = [
        taken_over("hybridep", make_context(facts(**known, expert_exchange_shortest_ns=shortest), job(LAYOUT), BOOK))
        for shortest in (moves, 1000)  # no port moves that in 1 µs
    ]
    assert found[0] is not None
    assert found[1] is not None
    waits, alone = took - moves, _factors("hybridep", took=moves)
    assert alone is not None
    assert found[0].by == pytest.approx((alone[0], *((one * moves + waits) / took for one in alone[1:])))
    assert "reaches 40 of 50 GB/s where it hardly waits: 5" in found[0].how
    assert found[1].by == _factors("hybridep", took=took)


def test_the_exchange_between_two_nodes_waits_for_what_is_handed_on_inside_them() -> None:
    # 4 rows of 16.8 MB in 1.678 ms: 40 GB/s. HybridEP: 1 − 1/256 rows at 40 GB/s take 0.418 ms, but 16 · (1 − (15/16)^8) · 7/8 = 5.65 rows
    # are handed on, at 220, 185 and 150 GB/s.
    took = round(4 * ROW / 40)
    handed_on = 16 * (1 - (15 / 16) ** 8) * 7 / 8 * ROW
    assert _factors("hybridep", took=took) == pytest.approx([handed_on / rate / took for rate in (220, 185, 150)])


def test_the_exchange_between_four_nodes_waits_for_the_network() -> None:
    # 8 · 3/4 = 6 rows before, 4 · (1 − (3/4)^8) · 3/4 = 2.7 after; the all-to-all reaches 30 of 50 GB/s. DeepEP: at best 0.89 of the port,
    # likely what the all-to-all reaches, at worst 0.6/0.82 of that.
    took = round(6 * ROW / 30)
    rows = 4 * (1 - 0.75**8) * 0.75
    assert _factors("deepep", took=took, expert_model_parallel_size=32) == pytest.approx(
        [rows * ROW / rate / took for rate in (0.89 * 50, 30, 30 * 0.6 / 0.82)]
    )


def test_inside_a_node_waiting_for_others_stays() -> None:
    # 7 rows before, which NVLink moves at 0.73 of 450 GB/s; it took 1 ms longer. After: 8 · (1 − (7/8)^8) · 7/8 = 4.59 rows.
    took = round(7 * ROW / (0.73 * 450)) + 1_000_000
    rows = 8 * (1 - (7 / 8) ** 8) * 7 / 8
    best, likely, worst = (rows * ROW / (share * 450) for share in (0.68, 0.5, 0.33))
    assert _factors("deepep", took=took, expert_model_parallel_size=8) == pytest.approx(
        [best / took, (likely + 1_000_000) / took, (worst + 1_000_000) / took], rel=1e-4
    )


@for_each(
    "platform, link, reached, slow, usual",
    ("h100", 450, 0.3, 0.33, 0.5),  # slower than its slowest published kernels explain: the rest is waiting, likely
    ("h100", 450, 0.4, None, 0.5),  # the slowest explain it: likely it is the library's own
    ("b200", 900, 0.2, None, 0.34),  # on Blackwell it reaches less of the links
)
def test_what_the_slowest_kernels_of_a_library_explain_is_likely_no_waiting(
    platform: str, link: float, reached: float, slow: float | None, usual: float
) -> None:
    rows = 8 * (1 - (7 / 8) ** 8) * 7 / 8 * ROW
    took = round(rows / (reached * link))
    known = facts(expert_exchange_backend="deepep", platform=platform, nvlink_domain=8, expert_exchange_typical_ns=took)
    found = taken_over("hybridep", make_context(known, job(LAYOUT | {"expert_model_parallel_size": 8}), BOOK))
    assert found is not None
    best, likely, worst = (reached / share for share in (0.72, 0.6, 0.45))
    waits = [0.0 if share is None else 1 - reached / share for share in (slow, usual)]
    assert found.by == pytest.approx((best, likely + waits[0], worst + waits[1]), rel=1e-4)


def test_a_library_in_place_of_another_sends_the_same_rows() -> None:
    # DeepEP over four nodes at 40 GB/s: HybridEP likely moves the same 2.7 rows as fast, at best at 0.89 of the port.
    took = round(4 * (1 - 0.75**8) * 0.75 * ROW / 40)
    known = facts(expert_exchange_backend="deepep", platform="h100", nvlink_domain=8, expert_exchange_typical_ns=took)
    found = taken_over("hybridep", make_context(known, job(LAYOUT | {"expert_model_parallel_size": 32}), BOOK))
    assert found is not None
    assert found.by == pytest.approx((40 / 44.5, 1.0, 0.86 / 0.6), rel=1e-4)
    assert found.how.endswith("leave its rank between 4 nodes; the present exchange reaches 40 of 50 GB/s: 100 % of its time.")


def test_user_buffers_push_faster_than_collectives_and_never_slower() -> None:
    # 4 tensor-parallel ranks, each with a quarter of 16.8 MB: three quarters come from the others, in 0.1 ms: 126 of 450 GB/s.
    layout = LAYOUT | {"expert_model_parallel_size": 4, "tensor_model_parallel_size": 4, "sequence_parallel": True}
    known = facts(platform="h100", nvlink_domain=8, tensor_parallel_typical_ns=100_000)
    found = taken_over("user_buffers", make_context(known, job(layout), BOOK))
    assert found is not None
    reached = ROW * 3 / 4 / 100_000
    assert found.by == pytest.approx((reached / (0.73 * 450), reached / (0.5 * 450), 1.0))


@for_each(
    "told",
    {"took": None},
    {"took": 1000},  # no port moves that in 1 µs: the job file is another job's
    {"took": round(4 * ROW / 40), "platform": "h100_nvl"},  # no NVLink domain known
    {"took": round(4 * ROW / 40), "hidden_size": None},
    {"took": round(4 * ROW / 40), "expert_tensor_parallel_size": 2},
)
def test_without_links_layout_or_bytes_the_factors_of_the_file_stand(told: dict[str, Any]) -> None:
    assert _factors("deepep", **told) is None


def test_the_effect_says_how_its_factor_comes_about() -> None:
    known = facts(expert_exchange_backend="nccl", platform="h100", nvlink_domain=8, expert_exchange_typical_ns=round(4 * ROW / 40))
    found = effect_of(BOOK.fixes["COM-02"], make_context(known, job(LAYOUT), BOOK))
    assert not isinstance(found, str)
    assert found[0].why.endswith(
        "Here 1.0 copies of a token leave its rank between 2 nodes in place of 4.0; the present exchange reaches 40 of 50 GB/s: "
        "31 % of its time, slowed by what is sent on inside them."
    )
