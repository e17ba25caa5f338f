"""Whether compute gets slower over a capture, on kernels made by hand."""

import polars as pl

from diagnose.measure.slowing import compute_kernels, paces, slowing
from tests.builders.cases import for_each

WINDOWS = pl.DataFrame({"index": range(6)}, schema={"index": pl.Int64})


def kernels_of(factors: tuple[float, ...], *, kernels: int, of: int, bucket: str, grid: bool, experts: int) -> pl.DataFrame:
    rows = [
        {
            "index": step,
            "start": 0,
            "end": round((100 + 100 * place) * (factor if place < of else 1.0)),
            "kind": "kernel",
            "role": "compute",
            "bucket": bucket if place >= experts else "expert_gemm",
            "name_id": place,
            **{f"grid_{axis}": 1 if grid else step for axis in "xyz"},
            **{f"block_{axis}": None for axis in "xyz"},
        }
        for step, factor in enumerate(factors)
        for place in range(kernels)
    ]
    return pl.DataFrame(rows)


def paced(*factors: float, kernels: int = 4, of: int = 4, bucket: str = "dense_gemm", grid: bool = True) -> list[float | None]:
    """The pace of each step."""
    ran = kernels_of(factors, kernels=kernels, of=of, bucket=bucket, grid=grid, experts=0)
    return paces(compute_kernels(ran, ["expert_gemm"]), WINDOWS.head(len(factors))).sort("index")["pace"].to_list()


def slowed(
    *factors: float, kernels: int = 4, of: int = 4, bucket: str = "dense_gemm", grid: bool = True, experts: int = 0
) -> list[int] | None:
    """slowed_ns by step; None where nothing is told. A step holds kernels of 100 to 400 ns times its factor in `of` of them."""
    ran = kernels_of(factors, kernels=kernels, of=of, bucket=bucket, grid=grid, experts=experts)
    found = slowing(compute_kernels(ran, ["expert_gemm"]), WINDOWS.head(len(factors)))
    return None if found.is_empty() else found.sort("index")["slowed_ns"].to_list()


def test_kernels_that_all_get_slower_show_by_how_much() -> None:
    assert slowed(1.0, 1.0, 1.1, 1.1, 1.2, 1.3) == [0, 0, 100, 100, 200, 300]
    assert slowed(1.0, 1.0, 1.3, 1.3, 1.3, 1.3) == [0, 0, 300, 300, 300, 300], "at once, and it stays"
    assert slowed(1.0, 1.0, 1.1, 1.1, 1.2, 1.2, of=3) == [0, 0, 0, 0, 0, 0], "60 % of the work alone: the work grew"


def test_products_of_several_sizes_under_one_name_and_shape_are_held_against_their_like() -> None:
    """Persistent kernels launch the same grid for each size: a fast later step's small product is no equal of a middling earlier one."""

    def slowed_mixture(*factors: float) -> list[int]:
        ran = kernels_of(factors, kernels=4, of=4, bucket="dense_gemm", grid=True, experts=0).with_columns(name_id=pl.lit(0))
        return slowing(compute_kernels(ran, []), WINDOWS).sort("index")["slowed_ns"].to_list()

    assert slowed_mixture(1.0, 1.0, 1.1, 1.1, 1.2, 1.3) == [0, 0, 100, 100, 200, 300]
    assert slowed_mixture(1.0, 1.0, 1.0, 1.0, 1.0, 1.0) == [0] * 6


@for_each(
    "factors",
    (1.0, 1.0, 1.0, 1.0, 1.03, 1.03), (1.3, 1.3, 1.1, 1.1, 1.0, 1.0), (1.1, 1.1, 1.0, 1.0, 1.2, 1.2),
    (1.0, 1.0, 1.5, 1.5, 1.0, 1.0), (1.0, 1.0, 1.3, 1.0, 1.3, 1.0),
)  # fmt: skip
def test_scatter_a_warm_up_and_what_comes_back_are_no_slowing(factors: tuple[float, ...]) -> None:
    assert slowed(*factors) == [0] * 6


def test_kernels_that_hold_more_or_less_work_are_as_slow_as_the_rest() -> None:
    assert slowed(1.0, 1.0, 1.1, 1.1, 1.2, 1.3, experts=1) == slowed(1.0, 1.0, 1.1, 1.1, 1.2, 1.3)


def test_what_can_t_be_compared_tells_nothing() -> None:
    assert slowed(1.0, 1.0, 1.1, 1.2, 1.3) is None, "five steps"
    assert slowed(1.0, 1.0, 1.1, 1.1, 1.3, 1.3, bucket="expert_gemm") is None, "tokens per expert differ"
    assert slowed(1.0, 1.0, 1.1, 1.1, 1.3, 1.3, grid=False) is None, "no shape runs twice"


def test_the_pace_of_a_step_is_that_of_nearly_all_its_kernels() -> None:
    assert paced(1.0, 1.0, 1.3, 1.0, 1.5, 1.0) == [1.0, 1.0, 1.3, 1.0, 1.5, 1.0]
    assert paced(1.0, 1.0, 1.3, 1.0, of=3) == [1.0] * 4, "60 % of the work alone: the work grew"
    assert paced(1.0, 1.02, 1.0, 1.0) == [1.0] * 4, "scatter"


def test_slow_steps_cost_what_all_their_compute_takes_longer() -> None:
    ran = kernels_of((1.0, 1.0, 1.25, 1.0), kernels=4, of=4, bucket="dense_gemm", grid=True, experts=0)
    assert paces(compute_kernels(ran, []), WINDOWS.head(4)).sort("index")["slow_steps_ns"].to_list() == [0, 0, 250, 0], "of 1000 ns"


def test_dense_kernels_tell_the_pace_where_experts_hold_most_of_compute() -> None:
    def paced_with(experts: int) -> list[float | None]:
        ran = kernels_of((1.0, 1.0, 1.3, 1.0), kernels=20, of=20, bucket="dense_gemm", grid=True, experts=experts)
        return paces(compute_kernels(ran, ["expert_gemm"]), WINDOWS.head(4)).sort("index")["pace"].to_list()

    assert paced_with(16) == [1.0, 1.0, 1.3, 1.0], "a third of compute is dense"
    assert paced_with(19) == [None] * 4, "less than a tenth is"


def test_no_pace_is_told_of_steps_that_can_t_be_compared() -> None:
    assert paced(1.0, 1.3) == [None] * 2
    assert paced(1.0, 1.0, 1.3, bucket="expert_gemm") == [None] * 3, "tokens per expert differ"
    assert paced(1.0, 1.0, 1.3, grid=False) == [None] * 3, "no shape runs twice"


def of_lengths(*lengths: int, elementwise: int = 2) -> pl.DataFrame:
    """Kernels of steps over sequences of those lengths: four persistent ones, and some that launch a block for so many tokens."""
    made = kernels_of(tuple(length / 100 for length in lengths), kernels=6, of=6, bucket="dense_gemm", grid=True, experts=0)
    blocks = pl.when(pl.col("name_id") >= 6 - elementwise).then(pl.lit(pl.Series(lengths)).gather("index")).otherwise("grid_x")
    return made.with_columns(blocks.alias("grid_x"))


def test_longer_sequences_are_no_slow_gpu() -> None:
    """Products of persistent kernels keep their shape whatever they are given; the blocks of the others tell how much it was."""
    varied = paces(compute_kernels(of_lengths(100, 100, 130, 100), []), WINDOWS.head(4))
    assert varied["pace"].to_list() == varied["slow_steps_ns"].to_list() == [None] * 4
    assert slowing(compute_kernels(of_lengths(100, 100, 115, 115, 130, 130), []), WINDOWS).is_empty(), "a curriculum of lengths"
    steady = kernels_of((1.0, 1.0, 1.3, 1.0), kernels=6, of=6, bucket="dense_gemm", grid=True, experts=0)
    assert paces(compute_kernels(steady, []), WINDOWS.head(4))["pace"].to_list() == [1.0, 1.0, 1.3, 1.0]


def test_two_long_micro_batches_and_a_short_one_are_no_slow_step() -> None:
    """As many tokens as in the other steps: the median is longer, and so are the launches' blocks at the same places."""
    batches = [of_lengths(*step) for step in ((100, 100, 130, 100), (100, 100, 130, 100), (100, 100, 40, 100))]
    assert (
        paces(compute_kernels(pl.concat(batches).sort("index", maintain_order=True), []), WINDOWS.head(4))["pace"].to_list() == [None] * 4
    )


def test_a_slow_step_is_slow_launch_by_launch() -> None:
    """Two long kernels hold most of compute: their medians differ by chance, while many of their launches take no longer."""

    def step_of(index: int, *lengths: int) -> list[dict[str, object]]:
        shape = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1)
        one = {"index": index, "start": 0, "kind": "kernel", "role": "compute", "bucket": "attention", "name_id": 0, **shape}
        return [{**one, "end": length} for length in lengths]

    def paced_by(*steps: tuple[int, ...]) -> list[float | None]:
        ran = pl.DataFrame([row for index, lengths in enumerate(steps) for row in step_of(index, *lengths)])
        return paces(compute_kernels(ran, []), WINDOWS.head(len(steps)))["pace"].to_list()

    assert paced_by((100, 96, 104), (104, 100, 97), (97, 107, 106)) == [1.0] * 3, "the median is 6 % longer, a third of the launches is not"
    assert paced_by((100, 96, 104), (104, 100, 97), (108, 105, 107)) == [1.0, 1.0, 1.07]
