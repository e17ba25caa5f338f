"""How long experts take that run one after the other, and an optimizer that updates parameter by parameter."""

import polars as pl

from diagnose.measure.kernels import experts_one_by_one, optimizer_stretches

BUCKETS = ["optimizer", "attention", "dense_gemm", "dispatch", "expert_gemm", "elementwise", "collective"]
Row = tuple[str, str, int, int]  # bucket, role, start, end


def operations(*rows: Row, late: int = 5, operation: str = "gemm", streams: int = 1) -> pl.DataFrame:
    """Operations of one step that are launched `late` before they start, by a call that takes 1."""
    return pl.DataFrame(
        {
            "index": [0] * len(rows),
            "stream": [place % streams for place in range(len(rows))],
            "bucket": [bucket for bucket, *_ in rows],
            "role": [role for _, role, *_ in rows],
            "operation": [operation if bucket == "expert_gemm" else "other" for bucket, *_ in rows],
            "start": [start for *_, start, _ in rows],
            "end": [end for *_, end in rows],
            "call_start": [start - late * (place + 1) for place, (*_, start, _) in enumerate(rows)],
            "issued": [start - late * (place + 1) + 1 for place, (*_, start, _) in enumerate(rows)],
        },
        schema_overrides={"bucket": pl.Enum(BUCKETS)},
    )


def taken(*rows: Row, late: int = 5, operation: str = "gemm") -> list[int]:
    """Time of the experts by step."""
    return experts_one_by_one(operations(*rows, late=late, operation=operation))["experts_one_by_one_ns"].to_list()


def product(start: int) -> Row:
    return "expert_gemm", "compute", start, start + 10


PACK: Row = ("dispatch", "packing", 100, 110)
TURNS = [product(at) for at in (120, 150, 200, 230)]


def test_a_stretch_goes_from_the_first_packing_to_the_last_product_waiting_and_all_else_between_included() -> None:
    between: Row = ("elementwise", "compute", 170, 190)
    assert taken(("attention", "compute", 0, 90), PACK, *TURNS[:2], between, *TURNS[2:], ("dense_gemm", "compute", 300, 400)) == [140]


def test_what_other_layers_compute_and_exchanges_end_it_and_one_expert_is_no_stretch() -> None:
    assert taken(*TURNS[:2], ("dense_gemm", "compute", 180, 190), *TURNS[2:]) == []
    assert taken(*TURNS[:2], ("dispatch", "transport", 180, 190), *TURNS[2:]) == []
    assert taken(PACK, *TURNS, ("dispatch", "transport", 300, 390), ("dispatch", "packing", 400, 410)) == [140]
    assert taken(PACK, *TURNS, operation="grouped_gemm") == []


def test_a_transport_in_which_no_kernel_begins_ends_a_stretch_and_one_beside_experts_does_not() -> None:
    """Behind its last layer's experts a pipeline's stage receives, and goes back through the same experts."""
    back = [product(at) for at in (1000, 1010, 1030, 1040)]
    assert taken(*TURNS, ("collective", "transport", 245, 990), *back) == [120 + 50]
    assert taken(TURNS[0], ("collective", "transport", 125, 235), *TURNS[1:]) == [120]


def test_products_on_several_streams_are_grouped_by_them() -> None:
    assert experts_one_by_one(operations(*TURNS, streams=2)).is_empty()


def test_a_cpu_that_takes_longer_than_the_device_counts() -> None:
    assert taken(*TURNS, late=-20) == [110 + 3 * 20 + 1]


def test_an_optimizer_takes_from_its_first_to_its_last_kernel_but_for_what_else_computes() -> None:
    def updated(*rows: Row) -> list[int]:
        return optimizer_stretches(operations(*rows))["optimizer_stretch_ns"].to_list()

    update: list[Row] = [("optimizer", "compute", at, at + 10) for at in (100, 120, 150)]
    copied: Row = ("elementwise", "copy", 131, 139)
    assert updated(*update[:2], copied, update[2]) == [60], "copies between are part of it"
    assert updated(*update[:2], ("dense_gemm", "compute", 132, 140), update[2]) == [30 + 10]
    assert updated(*update[:2], ("dispatch", "transport", 132, 140), update[2]) == [30 + 10]
