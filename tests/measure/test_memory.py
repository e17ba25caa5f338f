"""Recompute by phase and by count, and the peaks of the allocator."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from diagnose.document.device import Memory
from diagnose.job.derived import completed
from diagnose.measure.facts import trace_facts
from diagnose.measure.memory import Recompute, certain_stretches, peaks
from diagnose.measure.records import memory
from diagnose.model.trace import Device
from diagnose.pipeline import diagnose
from diagnose.reason.conclude import configured_recompute, repeated_in_other_stages
from fixtures.accuracy import capture_of, write
from fixtures.scenario import load
from tests.builders.cases import for_each
from tests.builders.jobs import parse_job
from tests.builders.kineto import document, small
from tests.builders.records import replace
from tests.builders.scene import KNOWLEDGE, Item, Span, run, scene
from tests.builders.simulated import recordings


def sequence(*runs: tuple[str, str | None, int, int]) -> list[Item]:
    """(name, phase, how many, ns each), one after another on one stream, 1 ns apart."""
    items: list[Item] = []
    now = 0
    for name, phase, number, length in runs:
        for _ in range(number):
            items.append(run(name, now, now + length, max(now - 1, 0), phase=phase))
            now += length + 1
    return items


def recompute(*runs: tuple[str, str | None, int, int]) -> Recompute:
    return scene(sequence(*runs)).memory().recompute


def in_steps(*steps: Sequence[tuple[str, str | None, int, int]]) -> Recompute:
    """The same for steps that follow each other, each in a range of its own."""
    lengths = [sum(number * (length + 1) for _, _, number, length in runs) for runs in steps]
    ends = list(accumulate(lengths))
    spans = [
        Span(text=f"iteration {n}", start=max(end - length - 1, 0), end=end - 1)
        for n, (end, length) in enumerate(zip(ends, lengths, strict=True))
    ]
    return scene(sequence(*(run for runs in steps for run in runs)), spans).memory().recompute


def outcome(found: Recompute) -> tuple[list[int] | None, str | None, int | None, int | None]:
    return (None if found.per_window is None else found.per_window["ns"].to_list(), found.status, found.forward, found.backward)


Run = tuple[str, str | None, int, int]
FORWARD, BACKWARD = ("attention", "forward", 4, 10), ("attention_bwd", "backward", 4, 25)
FIRST: list[Run] = [
    ("norm", "forward", 1, 10), ("gemm", None, 1, 10), ("attention", "forward", 1, 10), ("permute", None, 1, 10), ("nccl", None, 1, 50),
    ("gemm", None, 1, 10),
]  # fmt: skip
GRADIENT: list[Run] = [("expert", None, 1, 30), ("attention_bwd", "backward", 1, 25), ("norm", "backward", 1, 20)]
AGAIN: list[Run] = [*FIRST, *GRADIENT]
COMPILED = [
    ("gemm", "recompute", 10), ("attention", "recompute", 10), ("norm", "backward", 10), ("nccl", None, 50), ("gemm", "recompute", 10),
    ("elementwise", "backward", 10),
]  # fmt: skip
ROUTED: list[Run] = [(name, "forward", 1, 10) for name in ("norm", "attention", "top_k", "gemm")]
RANGED: list[Run] = [
    ("norm", "recompute", 1, 10), ("attention", "recompute", 1, 10), ("top_k", "backward", 1, 12), ("gemm", "backward", 1, 10),
    ("elementwise", "backward", 1, 10), ("top_k_bwd", "backward", 1, 10), ("attention_bwd", "backward", 1, 25), ("norm", "backward", 1, 20),
]  # fmt: skip
# A layer of experts, two products each way, in a capture without ranges: products tell by the order of their operands which way they go.
EXPERTS: list[Run] = [
    ("softmax", None, 1, 5), ("permute", None, 1, 10), ("nccl", None, 1, 50), ("nvjet_tst_TNN", None, 2, 20), ("permute", None, 1, 10),
]  # fmt: skip
BACK: list[Run] = [
    ("nvjet_tst_NNN", None, 1, 20), ("nvjet_tst_NTT", None, 1, 20), ("nvjet_tst_NNN", None, 1, 20), ("nvjet_tst_NTT", None, 1, 20),
    ("elementwise", None, 1, 9),
]  # fmt: skip
# The same where names tell nothing, the activation between the products: two layers, the second one's passes on either side of the loss.
BLOCK: list[Run] = [("expert", None, 2, 20), ("softmax", None, 1, 5), ("expert", None, 2, 20)]
BLOCK_BACK: list[Run] = [("expert", None, 4, 20), ("elementwise", None, 1, 9), ("expert", None, 4, 20)]
LAYER, LAYER_BACK = ("attention", "forward", 1, 10), ("attention_bwd", "backward", 1, 25)
AHEAD: list[Run] = [LAYER, *BLOCK, ("gemm", None, 1, 10), LAYER, *BLOCK, ("gemm", None, 2, 10)]
FEED: list[Run] = [("gemm", None, 1, 20), ("softmax", None, 1, 5), ("gemm", None, 1, 20)]
FEED_BACK: list[Run] = [("gemm", None, 2, 20), ("elementwise", None, 1, 9), ("gemm", None, 2, 20)]
DENSE: list[Run] = [LAYER, *FEED, ("elementwise", None, 1, 5)]
# Of a pipeline's stage, which runs another micro-batch forward between two backward passes: of its second norm and its experts once more.
ROUTED_EXPERTS: list[Run] = [("top_k", "forward", 1, 10), ("nvjet_tst_TNN", None, 2, 20)]
STAGE: list[Run] = [
    ("norm", "forward", 1, 10), ("gemm", None, 1, 15), ("attention", "forward", 1, 10), ("norm", "forward", 1, 10), *ROUTED_EXPERTS,
    ("elementwise", None, 1, 9),
]  # fmt: skip
STAGE_BACK: list[Run] = [
    ("norm", "forward", 1, 10), *ROUTED_EXPERTS, *BACK, ("top_k_bwd", "backward", 1, 10), ("norm", "backward", 1, 20),
    ("attention_bwd", "backward", 1, 25), ("norm", "backward", 1, 20),
]  # fmt: skip
# Kernels in a row, and what is found: repeated ns in the only window, its status, forward and backward attention kernels.
FOUND: dict[str, tuple[list[Run], tuple[list[int] | None, str | None, int | None, int | None]]] = {
    # Seven kernels and the seven gaps before them.
    "checkpoint ranges measure it": (
        [("gemm", "forward", 3, 20), FORWARD, ("gemm", "recompute", 3, 20), ("attention", "recompute", 4, 10), BACKWARD], ([107], "measured", 8, 4)),
    # Softmax, permute, exchange and two products with the gaps before them, as they stand before the first product.
    "experts whose products run forward twice for one gradient are repeated with what leads to them": (
        [FORWARD, *EXPERTS, ("elementwise", None, 1, 9), *EXPERTS, *BACK, BACKWARD], ([6 + 11 + 51 + 21 + 21], "inferred", 4, 4)),
    # Norm, router and two products, four times. The fourth micro-batch's forward stands between two backward passes, and repeats nothing.
    "another micro-batch's forward before a backward pass is not repeated": (
        [*STAGE * 3, *STAGE_BACK, *STAGE, *STAGE_BACK * 3], ([4 * (11 + 11 + 21 + 21 - 11)], "inferred", 4, 4)),
    "an evaluation behind the backward pass repeats no experts": (
        [FORWARD, *EXPERTS, ("elementwise", None, 1, 9), *BACK, BACKWARD, *EXPERTS], ([0], "inferred", 4, 4)),
    "experts whose products run forward as often as back are not repeated": (
        [FORWARD, *EXPERTS, ("elementwise", None, 1, 9), *BACK, BACKWARD], ([0], "inferred", 4, 4)),
    # Five kernels each and the gaps before them.
    "experts whose kernels run in the order of a first forward before backward are repeated, whatever their names": (
        [*AHEAD, *BLOCK, *BLOCK_BACK, LAYER_BACK, ("gemm", None, 1, 10), *BLOCK, *BLOCK_BACK, LAYER_BACK],
        ([2 * (4 * 21 + 6)], "inferred", 2, 2)),
    "experts that run in another order before backward are not": (
        [*AHEAD, *BLOCK_BACK, LAYER_BACK, ("gemm", None, 1, 10), *BLOCK_BACK, LAYER_BACK], ([0], "inferred", 2, 2)),
    # The dense part of a layer: both products, the activation between them, and the gaps before these.
    "dense products whose kernels run in that order are repeated too": (
        [*DENSE, *DENSE, *FEED, *FEED_BACK, LAYER_BACK, ("norm", "backward", 1, 20), *FEED, *FEED_BACK, LAYER_BACK],
        ([2 * (21 + 6 + 21)], "inferred", 2, 2)),
    "products that nothing lies between tell nothing": (
        [LAYER, ("expert", None, 2, 20), LAYER, ("expert", None, 8, 20), LAYER_BACK, ("expert", None, 6, 20), LAYER_BACK],
        ([0], "inferred", 2, 2)),
    "what did not run before is not repeated: a loss inside a range named backward": (
        [FORWARD, ("norm", "recompute", 3, 20), BACKWARD], ([0], "inferred", 4, 4)),
    # The 50 ns exchange and the two gaps beside it: without the repetition none of them would be there.
    "what a repetition exchanges goes with it": (
        [("gemm", "forward", 1, 10), ("nccl", "recompute", 1, 50), ("gemm", "recompute", 1, 7), ("gemm", "backward", 1, 10)],
        ([59], "measured", None, None)),
    # Sequence parallelism gathers once more what forward had gathered, and computes nothing again.
    "an exchange that a range calls repeated repeats nothing by itself": (
        [FORWARD, ("nccl", "recompute", 1, 50), ("gemm", "backward", 1, 10), BACKWARD], ([0], "inferred", 4, 4)),
    # A compiled node launches a norm and its last kernel beside its operators, and ranges call them backward: all six kernels and the gaps
    # before them, the exchange too. The gradient's own product follows nothing that ran forward.
    "what ranges lose of a repetition follows as in a first forward": (
        [
            *((name, phase and "forward", 1, ns) for name, phase, ns in COMPILED),
            *((name, phase, 1, ns) for name, phase, ns in COMPILED),
            *GRADIENT,
        ],
        ([5 * 11 + 51], "measured", 2, 1)),
    # From one and a half forward kernels per backward one, the kernels beyond one per backward kernel are repeated work. Where each runs
    # twice, those that backward takes are the repeated ones, and the gap before each goes with it.
    **{f"{forward} forward and 4 backward kernels": ([("attention", "forward", forward, 10), BACKWARD], ([extra], "inferred", forward, 4))
       for forward, extra in [(4, 0), (5, 0), (6, 20), (8, 44)]},
    "a forward that no backward follows is an evaluation's": (
        [*FIRST, *FIRST, *GRADIENT, *GRADIENT, *FIRST, *FIRST], ([0], "inferred", 2, 2)),
    "more than two forward kernels per backward one is no recompute": (
        [("attention", "forward", 20, 10), BACKWARD], (None, None, 20, 4)),
    "nor is it where backward ranges hold some of them": (
        [("attention", "forward", 12, 10), ("attention", "recompute", 8, 10), BACKWARD], (None, None, 20, 4)),
    "the forward of another micro-batch inside a backward range is no recompute": (
        [("attention", "recompute", 4, 10), ("gemm", "recompute", 4, 20), BACKWARD], ([0], "inferred", 4, 4)),
    # The exchange and the packing around what is repeated go with it, and the product after it; the backward's product does not.
    "a layer that runs again without any range": (
        [*FIRST, *FIRST, *AGAIN, *AGAIN], ([2 * (4 * 10 + 3 * 1 + 10 + 50 + 3)], "inferred", 4, 2)),
    "a checkpoint around two layers": (
        [*FIRST, *FIRST, *FIRST, *FIRST, *GRADIENT, *GRADIENT], ([2 * (4 * 10 + 3 * 1 + 10 + 50 + 3)], "inferred", 4, 2)),
    # A user's backward range names as repeated what says so by its name; the product between is found by the order.
    "a backward range without checkpoint ranges": (
        [*FIRST, ("norm", "recompute", 1, 10), ("gemm", "backward", 1, 10), ("attention", "recompute", 1, 10),
         ("permute", "backward", 1, 10), *GRADIENT],
        ([3 * 11], "inferred", 2, 1)),
    # A range calls a router's kernel backward's whose name says nothing: it runs forward too, and the order goes on across it.
    "a backward range without checkpoint ranges, with kernels whose names do not say forward": (
        [*ROUTED, *ROUTED, *RANGED, *RANGED], ([2 * (4 * 11 + 2)], "inferred", 4, 2)),
    "helper kernels of attention are left out": ([FORWARD, ("vision_attention", "forward", 8, 1), BACKWARD], ([0], "inferred", 4, 4)),
    "forward work alone repeats nothing": ([FORWARD, ("gemm", "forward", 4, 10)], ([0], "inferred", None, None)),
    "ranges that tell the phases, and nothing forward inside backward": (
        [("gemm", "forward", 4, 10), ("gemm", "backward", 4, 25)], ([0], "inferred", None, None)),
    "phases of a few kernels alone": (
        [("gemm", "forward", 1, 10), ("gemm", None, 4, 25), ("gemm", "backward", 1, 25)], (None, None, None, None)),
    "without attention, ranges and phases": ([("gemm", None, 4, 10), ("gemm", None, 4, 25)], (None, None, None, None)),
    "a vision tower beside the language model is no recompute": (
        [("vision_attention", "forward", 12, 10), ("attention", "forward", 6, 12), ("attention_bwd", "backward", 6, 40),
         ("vision_attention", "backward", 12, 5)],
        ([0], "inferred", 18, 18)),
}  # fmt: skip


@for_each("runs, expected", *FOUND.values())
def test_recompute(runs: list[Run], expected: tuple[list[int] | None, str | None, int | None, int | None]) -> None:
    found = recompute(*runs)
    assert outcome(found) == expected
    *_, forward, backward = expected
    assert found.ratio == (forward / backward if forward and backward else None)


def test_a_step_that_begins_with_an_evaluation_repeats_as_much_as_the_others() -> None:
    ahead, back = ("attention", "forward", 4, 10), ("attention_bwd", "backward", 4, 25)
    step = [ahead, ("norm", None, 1, 9), ahead, back]
    once = in_steps(step, step, step)
    assert once.per_window is not None
    assert once.per_window["lower"].to_list() == [40, 40, 40]
    found = in_steps(step, [ahead, *step], step)
    assert found.per_window is not None
    assert found.per_window["ns"].to_list() == once.per_window["ns"].to_list()
    assert in_steps([ahead, *step], [ahead, *step]).per_window is None, "no step tells what is an evaluation's"


# Names of kernels in a row: capitals are signs, N and A forward units, n and a those that run again, B a backward unit; the rest is unsaid.
@for_each("kernels, certain",
    # a whole layer: products (g) and sums (+) run in backward too, packing (p, u) and the rotary embedding (r) don't
    ("NgArg+pgu+NgArg+pgu+NgArg+pgu+ngarg+pgu+BgggB+gnarg", ["ngarg+pgu", "nar"]),
    # attention alone: the product before and the one behind may be the backward's
    ("NgAgpuNgAgpuggaBggaB", ["a", "a"]),
    # a product that runs nowhere else in backward tells
    ("NgAqpuNgAqpuggaqBggaqB", ["aq", "aq"]),
)  # fmt: skip
def test_what_is_repeated_for_certain_lies_between_kernels_that_tell(kernels: str, certain: list[str]) -> None:
    signs = [{"B": 0, "N": 1, "A": 1, "n": 2, "a": 2}.get(kernel) for kernel in kernels]
    names = [ord(kernel.lower()) for kernel in kernels]
    assert [kernels[begin : last + 1] for begin, last in certain_stretches(names, signs)] == certain


def test_what_arrives_before_a_repetition_is_not_its_own() -> None:
    """Waiting for another stage's gradient would be there without the repetition; the gaps of 1 ns on either side go with it."""
    items = [
        run("gemm", 0, 10, 0, phase="forward"),
        run("allreduce", 11, 61, 1),
        run("gemm", 62, 69, 2, phase="recompute"),
        run("gemm", 70, 80, 3, phase="backward"),
    ]
    (one,) = scene(items).measure()
    assert outcome(one.memory.recompute)[:2] == ([9], "measured")


def test_repeated_kernels_on_two_streams_count_once_in_each_window() -> None:
    items = [
        run("gemm", 0, 10, 0, phase="forward"),
        run("gemm", 20, 40, 1, phase="recompute"),
        run("gemm", 30, 50, 2, phase="recompute", stream=9),
    ]
    (one,) = scene(items).measure()
    assert outcome(one.memory.recompute)[:2] == ([40], "measured"), "30 ns of two kernels, 10 ns until the first"
    # The second of two steps repeats its forward pass
    plain = (("attention", "forward", 2, 10), ("attention_bwd", "backward", 2, 20))
    twice = (("attention", "forward", 4, 10), ("attention_bwd", "backward", 2, 20))
    items = sequence(*plain, *twice)
    spans = [Span(text="iteration 1", start=0, end=62), Span(text="iteration 2", start=62, end=200)]
    (one,) = scene(items, spans).measure()
    assert one.memory.recompute.per_window is not None
    assert one.memory.recompute.per_window.rows() == [(1, 0, 0, 0), (2, 22, 20, 22)]


def test_an_evaluation_inside_a_step_is_no_recompute_of_it() -> None:
    """The last of seven steps begins with an evaluation: six forward passes for its one backward; the steps together have under two."""
    plain = (("attention", "forward", 2, 10), ("attention_bwd", "backward", 2, 20))
    items = sequence(*plain * 6, ("attention", "forward", 10, 10), *plain)
    spans = [Span(text=f"iteration {place}", start=62 * place - 62, end=62 * place) for place in range(1, 7)]
    (one,) = scene(items, [*spans, Span(text="iteration 7", start=372, end=600)]).measure()
    found = one.memory.recompute
    assert (found.forward, found.backward) == (24, 14)
    assert found.per_window is not None
    assert set(found.per_window["ns"]) == {0}


def test_the_documents_part() -> None:
    items = sequence(("attention", "forward", 4, 10), ("attention_bwd", "backward", 2, 25))
    info = Device(rank=0, device=0, total_memory=80)
    events = [{"rank": 0, "device": 0, "time": 1, "bytes": 7, "total_allocated": 7}]
    (one,) = scene(items, devices=[info], memory=events).measure()
    assert memory(one) == Memory(
        recompute_ns=22, recompute_lower_ns=20, recompute_status="inferred", attention_forward_kernels=4, attention_backward_kernels=2,
        peak_allocated_bytes=7, peak_reserved_bytes=None, capacity_bytes=80,
    )  # fmt: skip


def test_peaks_are_those_of_the_device() -> None:
    events = [
        {"rank": 0, "device": 0, "time": 1, "bytes": 5, "total_allocated": 5, "total_reserved": 20},
        {"rank": 0, "device": 0, "time": 2, "bytes": 9, "total_allocated": 14, "total_reserved": 20},
        {"rank": 0, "device": 0, "time": 3, "bytes": -9, "total_allocated": 5, "total_reserved": 25},
        {"rank": 0, "device": 1, "time": 3, "bytes": 90, "total_allocated": 90, "total_reserved": 90},
        {"rank": 1, "device": 0, "time": 3, "bytes": 91, "total_allocated": 91, "total_reserved": 91},
        {"rank": 0, "time": 3, "bytes": 1, "total_allocated": 15},
    ]
    recorded = scene([run("gemm", 0, 10, 0)], memory=events).trace.memory
    assert peaks(recorded, 0, 0, whole=True) == (15, 25)
    assert peaks(recorded, 0, 1, whole=True) == (90, 90)
    assert peaks(recorded, 2, 0, whole=True) == (None, None)


@for_each("begins_with, expected", ("cuModuleGetLoadingMode", 70), ("cudaLaunchKernel", None))
def test_what_cuda_holds_is_counted_where_the_process_was_captured_from_its_start(begins_with: str, expected: int | None) -> None:
    events = [{"rank": 0, "device": 0, "time": at, "bytes": size} for at, size in ((1, 40), (2, 30), (3, -30), (4, 10))]
    ran = scene([Item(name=begins_with, at=0), run("gemm", 20, 30, 15)], memory=events)
    (one,) = ran.measure()
    assert (one.memory.peak_allocated, one.memory.peak_reserved) == (None, expected)
    told = trace_facts(ran.trace, [one], KNOWLEDGE, ranks_captured=1)
    assert told["out_of_memory_events"] is None, "such events hold no allocation that failed"


@pytest.mark.deep
@pytest.mark.parametrize(("name", "least"), [("memory-full-recompute", 0.9), ("memory-recompute-moe", 0.6)])
def test_what_is_repeated_is_found_without_any_range(name: str, least: float, tmp_path: Path) -> None:
    """Of the same run, once with all ranges and once with the steps alone, the same kernels are found again, most of them for sure."""
    one = load(name)
    (recording,) = recordings(one)
    found = {}
    for ranges in (True, False):
        folder = tmp_path / str(ranges)
        folder.mkdir()
        document = diagnose([write("nsys", recording, folder, capture_of(one.plan, ranges=ranges))])
        assert document.memory is not None
        found[ranges] = document.memory
    told, counted = found[True], found[False]
    assert (told.recompute_status, counted.recompute_status) == ("measured", "inferred")
    assert told.recompute_ns == told.recompute_lower_ns
    assert counted.recompute_ns == pytest.approx(told.recompute_ns, rel=0.02)
    assert counted.recompute_lower_ns is not None
    assert least * (told.recompute_ns or 0) < counted.recompute_lower_ns <= 1.01 * (told.recompute_ns or 0)


@pytest.mark.deep
def test_a_rotary_embedding_that_outweighs_attention_is_no_second_attention(tmp_path: Path) -> None:
    """At 512 tokens two rotary kernels take longer than the attention between them; nothing is repeated all the same."""
    one = load("host-ungrouped-experts")
    job = {**one.plan.job, "model": {**one.plan.job["model"], "seq_length": 512}}
    short = replace(one, plan=replace(one.plan, job=job))
    document = diagnose([write("nsys", short.record()[0], tmp_path, capture_of(short.plan))])
    assert document.memory is not None
    assert document.memory.attention_forward_kernels == document.memory.attention_backward_kernels
    assert document.memory.recompute_ns == 0


@pytest.mark.deep
def test_a_job_file_that_configures_recompute_picks_the_value(tmp_path: Path) -> None:
    """Full recompute repeats all that the order of the kernels shows, recompute of core_attn attention alone; then there is no range."""
    one = load("memory-full-recompute")
    (recording,) = recordings(one)
    trace = write("nsys", recording, tmp_path, capture_of(one.plan, ranges=False))
    job = tmp_path / "job.yaml"
    alone = diagnose([trace])
    assert alone.facts["recompute_ns"].status == "inferred"
    for configured, chosen in [
        ("full", "recompute_ns"),
        ("selective, recompute_modules: [core_attn]", "recompute_lower_ns"),
        ("selective, recompute_modules: [core_attn, layernorm, moe_act]", "recompute_light_ns"),
    ]:
        job.write_text(f"model: {{recompute_granularity: {configured}}}\n", encoding="utf-8")
        told = diagnose([trace], config=job)
        assert told.facts["recompute_ns"].status == "config"
        assert told.facts["recompute_ns"].value == told.facts["recompute_lower_ns"].value == alone.facts[chosen].value


@for_each(
    "configured, chosen",
    ("full", 100),
    ("selective, recompute_modules: [core_attn]", 40),
    ("selective, recompute_modules: [layernorm, moe_act]", 70),
    ("selective, recompute_modules: [mlp]", 100),  # products
    ("null", None),
)
def test_the_value_that_a_job_file_picks(configured: str, chosen: int | None) -> None:
    values = {"recompute_ns": 100, "recompute_lower_ns": 40, "recompute_light_ns": 70, "recompute_restart_ns": 10, "step_ns": 1000}
    job = parse_job(f"model: {{num_layers: 4, recompute_granularity: {configured}}}\n")
    found = configured_recompute(values, job)
    share = None if chosen is None else chosen / 1000
    assert [found.get(name) for name in ("recompute_ns", "recompute_lower_ns", "recompute_share")] == [chosen, chosen, share]
    assert configured_recompute({**values, "recompute_ns": 0}, job) == {}, "the trace shows none"


@for_each(
    "waiting, repeated, sizes, won",
    (20, 40, "", 10),  # a quarter of what lies outside the bubble
    (20, 40, "pipeline_model_parallel_size: 4}\ntrain: {global_batch_size: 8, micro_batch_size: 1", 15),  # (4 - 1) / 8 of it
    (5, 40, "pipeline_model_parallel_size: 4}\ntrain: {global_batch_size: 8, micro_batch_size: 1", 5),  # no more than is waited
    (
        20,
        40,
        "pipeline_model_parallel_size: 4, virtual_pipeline_model_parallel_size: 2}\ntrain: {global_batch_size: 8, micro_batch_size: 1",
        10,
    ),
    (0, 40, "", None),
    (20, 0, "", None),
    (20, None, "", None),
)
def test_other_stages_of_a_pipeline_repeat_as_much(waiting: int, repeated: int | None, sizes: str, won: int | None) -> None:
    values = {"recompute_ns": repeated, "pipeline_parallel_blocking_ns": waiting, "step_ns": 100}
    job = completed(parse_job(f"model: {{num_layers: 8, {sizes}}}\n"), world_size=4) if sizes else None
    assert repeated_in_other_stages(values, job) == won


@for_each("modules, told, known", ("[moe]", False, False), ("[moe]", True, True), ("[moe]", None, True), ("[mlp]", False, True))
def test_where_nothing_tells_of_experts_that_the_job_repeats_nothing_is_known(modules: str, told: bool | None, known: bool) -> None:
    values = {"recompute_ns": 0, "recompute_lower_ns": 0, "recompute_light_ns": 0, "experts_recompute_told": told, "step_ns": 1000}
    job = parse_job(f"model: {{num_layers: 4, recompute_granularity: selective, recompute_modules: {modules}}}\n")
    found = configured_recompute(values, job)
    assert found == (
        {}
        if known
        else dict.fromkeys(("recompute_ns", "recompute_lower_ns", "recompute_share", "recompute_restart_ns", "recompute_light_ns"))
    )


@for_each(
    "names, told",
    (("nvjet_tst_TNN", "nvjet_tst_NNN"), True), (("nvjet_tst_TNN",), False), (("expert",), False), ((), None),
)  # fmt: skip
def test_names_of_both_ways_tell_of_experts(names: tuple[str, ...], told: bool | None) -> None:
    assert (
        recompute(
            ("attention", "forward", 1, 10), *((name, None, 2, 20) for name in names), ("attention_bwd", "backward", 1, 25)
        ).experts_told
        is told
    )


@for_each("forward, again, told", (BLOCK, [], True), (BLOCK, BLOCK, True), ([("expert", None, 4, 20)], [], False))
def test_the_kernels_between_products_tell_of_experts(forward: list[Run], again: list[Run], told: bool) -> None:
    ahead = [LAYER, *forward, ("gemm", None, 1, 10), LAYER, *forward]
    assert recompute(*ahead, *again, *BLOCK_BACK, LAYER_BACK, *again, *BLOCK_BACK, LAYER_BACK).experts_told is told


def test_a_failed_allocation_outranks_every_wall(tmp_path: Path) -> None:
    failed = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[OutOfMemory]", "pid": 10, "tid": 11, "ts": 1050,
              "args": {"Device Type": 1, "Device Id": 0, "Bytes": 1 << 33, "Total Allocated": 1 << 36, "Total Reserved": 1 << 36}}  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_bytes(document([*small(120), *({**failed, "ts": 1050 + at} for at in range(25))]))
    found = diagnose([path])
    assert found.facts["out_of_memory_events"].value == 25
    assert found.findings[0].id == "memory-out-of-memory"
    assert found.verdict.sentence.startswith("The GPU ran out of memory (25 failed allocations). ")
    assert len(found.capture.diagnostics) == 1
    path.write_bytes(document(small(120)))
    assert diagnose([path]).facts["out_of_memory_events"].value is None, "memory was not profiled"
