"""Long pauses of the host: which stand out, and which recur in one layer after the other."""

import polars as pl

from diagnose.measure.waits.hold_ups import LONG_NS, host_work, pauses, restarts

KERNELS = 30  # that compute, in each pass
PAUSE = 3 * LONG_NS


def compute(steps: int, *, batches: int = 1, attends: int = 10, ways: tuple[str, ...] = ("forward", "backward")) -> pl.DataFrame:
    """Forward and backward of each micro-batch: the same kernels, of a name each, but that every tenth is called 7; every so often
    attention, two kernels of it.
    """
    phases = [phase for _ in range(steps * batches) for phase in ways for _ in range(KERNELS)]
    names = [7 if place % 10 == 5 else 100 + place % KERNELS for place in range(len(phases))]
    operations = ["attention" if place % attends in {1, 2} else None for place in range(len(phases))]
    columns = {"op": range(len(phases)), "name_id": names, "phase": phases, "operation": operations}
    return pl.DataFrame(columns, schema_overrides={"op": pl.UInt32})


def recurring(
    waits: dict[int, int],
    steps: int,
    *,
    batches: int = 1,
    kind: str = "recurs",
    attends: int = 10,
    ways: tuple[str, ...] = ("forward", "backward"),
) -> set[int]:
    """Of pauses before these operations (ns), those that recur, or are of another `kind`."""
    length = len(ways) * KERNELS * batches
    pieces = pl.DataFrame(
        [(op // length, op, op * 10_000_000, op * 10_000_000 + ns, "python") for op, ns in waits.items()],
        schema={"index": pl.Int64, "op": pl.UInt32, "start": pl.Int64, "end": pl.Int64, "cause": pl.String},
        orient="row",
    )
    found = pauses(pieces, compute(steps, batches=batches, attends=attends, ways=ways))
    assert set(found["op"]) == {op for op, ns in waits.items() if ns > LONG_NS}
    return set(found.filter(kind)["op"])


def test_a_pause_in_every_layer_recurs() -> None:
    layers = {step * 2 * KERNELS + layer: PAUSE for step in range(3) for layer in (5, 15, 25)}
    assert recurring(layers, 3) == set(layers)
    assert recurring({**layers, 12: PAUSE}, 3) == set(layers)


def test_a_pause_in_every_micro_batch_does_not() -> None:
    batches = {batch * 2 * KERNELS + 5: PAUSE for batch in range(12)}
    assert recurring(batches, 3, batches=4) == set()


def test_neither_does_a_pause_in_each_of_a_pipelines_first_forward_passes() -> None:
    """No backward one lies between them, but more than a layer does, and all stand where a batch is fetched."""
    ways = ("forward", "forward", "forward", "backward")
    batches = {step * 4 * KERNELS + batch * KERNELS: PAUSE for step in range(3) for batch in range(3)}
    assert recurring(batches, 3, ways=ways) == set()
    assert recurring(batches, 3, ways=ways, kind="opens") == set(batches)
    assert recurring(batches, 3, ways=ways, attends=KERNELS) == set(batches)  # one layer each: nothing tells it from a layer's own


def test_neither_do_pauses_unequally_far_apart_nor_those_of_one_step() -> None:
    uneven = {0 * 60 + 5: PAUSE, 0 * 60 + 15: PAUSE, 1 * 60 + 5: PAUSE, 1 * 60 + 25: PAUSE}
    assert recurring(uneven, 2) == set()
    assert recurring({5: PAUSE, 15: PAUSE, 25: PAUSE}, 1) == set()


def test_pauses_before_forward_passes_are_told_where_most_steps_have_them() -> None:
    """There the next batch is fetched; a pause in another place, or in one step of four, is something else."""
    forward = {batch * 2 * KERNELS: PAUSE for batch in range(8)}
    inside = {17: PAUSE, 2 * KERNELS + KERNELS: PAUSE}
    assert recurring({**forward, **inside}, 4, batches=2, kind="opens") == set(forward)
    assert recurring({0: PAUSE, 2 * 2 * KERNELS: PAUSE}, 4, batches=2, kind="opens") == {0, 2 * 2 * KERNELS}
    assert recurring({0: PAUSE, 17: PAUSE}, 4, batches=2, kind="opens") == set()
    assert recurring({0: PAUSE}, 1, kind="opens") == set()


def test_a_pause_before_the_kernel_that_opens_passes_opens_one_whatever_comes_next() -> None:
    """Passes of two micro-batches take turns: after the second one's first kernel, whose phase nothing tells, a backward pass goes on."""
    phases = ["optimizer", None, "forward", "forward", None, "backward", None, "forward", "backward"] * 2
    names = [9, 1, 2, 2, 1, 3, 4, 2, 3] * 2
    columns = {"op": range(len(phases)), "name_id": names, "phase": phases, "operation": [None] * len(phases)}
    schema = {"op": pl.UInt32, "operation": pl.String}

    def opens(paused: list[int], names: list[int]) -> list[int]:
        rows = [(op // 9, op, op * 10_000_000, op * 10_000_000 + PAUSE, "python") for op in paused]
        pieces = pl.DataFrame(rows, schema=["index", "op", "start", "end", "cause"], schema_overrides={"op": pl.UInt32}, orient="row")
        found = pauses(pieces, pl.DataFrame({**columns, "name_id": names}, schema_overrides=schema))
        return sorted(found.filter("opens")["op"])

    assert opens([1, 4, 10, 13], names) == [1, 4, 10, 13]
    often = [1 if name in (2, 4) else name for name in names]  # the same kernel runs within passes too, mostly without a pause
    assert opens([1, 4, 10, 13], often) == [1, 10]


def test_what_a_synchronising_call_is_charged_with_leaves_pauses_out() -> None:
    """A call drains the queue; the gap after it is its doing, unless the host paused there: that has a cause of its own."""
    us = 1_000
    calls = pl.DataFrame({"start": [100 * us], "end": [1_100 * us]})
    launched = [(0, 1_000 * us, 0), (1_300 * us, 1_400 * us, 1_250 * us), (5_000 * us, 5_100 * us, 4_950 * us)]
    work = pl.DataFrame(launched, schema=["start", "end", "issued"], orient="row")

    def charged(length: int) -> list[int]:
        gap = [(0, 1, 1_100 * us, 1_100 * us + length, "python")]
        pieces = pl.DataFrame(
            gap, schema={"index": pl.Int64, "op": pl.UInt32, "start": pl.Int64, "end": pl.Int64, "cause": pl.String}, orient="row"
        )
        worked = host_work(pieces, pl.DataFrame(schema={"start": pl.Int64, "ns": pl.Int64}), compute(1))
        assert worked["pause"].to_list() == [length > LONG_NS]
        return restarts(worked, pieces, calls, work)["ns"].to_list()

    assert charged(200 * us) == [200 * us]
    assert charged(PAUSE) == []
