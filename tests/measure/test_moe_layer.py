"""One mixture-of-experts layer: the parts of its passes, what they add up to, and passes that are hard to tell apart."""

import polars as pl
import pytest

from diagnose.measure.moe_layer import moe_layer

KINDS = {"class_id": pl.UInt16, "kind": pl.String, "rule": pl.String}
CLASSES = pl.DataFrame({"class_id": [0, 1], "kind": [None, "data"], "rule": ["experts", "nccl"]}, schema=KINDS)
LETTERS = {
    "r": ("router", "compute"), "p": ("dispatch", "packing"), "x": ("dispatch", "transport"), "e": ("expert_gemm", "compute"),
    "a": ("attention", "compute"),
}  # fmt: skip
FORWARD, BACKWARD = "rpxeexp", "pxeeexpr"


def layers(line: str, phases: str = "", steps: int = 1, step_ns: int = 100_000) -> pl.DataFrame:
    """Operations one after the other, 10 ns each, by their letters.

    A space is a pause of 50 ns, a capital one runs beside the operation before.
    """
    rows = []
    for step in range(steps):
        now = step * step_ns
        for place, letter in enumerate(line):
            if letter == " ":
                now += 50
                continue
            start = now - 10 if letter.isupper() else now
            bucket, role = LETTERS[letter.lower()]
            phase = {"f": "forward", "b": "backward", "?": None}[(phases or "f" * len(line))[place]]
            rows.append((step, start, start + 10, bucket, role, 0, phase))
            now = max(now, start + 10)
    names = ["index", "start", "end", "bucket", "role", "class_id", "phase"]
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(pl.col("class_id").cast(pl.UInt16))


def told(line: str, phases: str = "", **more: int) -> list[tuple[str | None, int, dict[str, tuple[int, int]]]]:
    """Phase, passes, and busy and exposed time of each part."""
    found = moe_layer(layers(line, phases, **more), CLASSES)
    return [(one.phase, one.passes, {part.part: (part.busy_ns, part.exposed_ns) for part in one.parts}) for one in found]


def test_a_pass_is_cut_where_the_rest_of_the_model_runs_and_its_parts_go_by_place() -> None:
    once = {"router": (10, 10), "permute": (10, 10), "dispatch": (10, 10), "experts": (20, 20), "combine": (10, 10), "unpermute": (10, 10)}
    line = f"aa {FORWARD} aa {FORWARD} aa {FORWARD} aa"
    assert told(line) == told(line, steps=3) == [("forward", 3, once)]


def test_backward_is_named_by_what_it_is_the_gradient_of_in_its_own_order() -> None:
    line = f"{FORWARD} aa {BACKWARD}"
    phases = "f" * 11 + "b" * (len(line) - 11)
    (_, _, forward), (phase, passes, backward) = told(line, phases)
    assert (phase, passes, list(backward)) == ("backward", 1, list(reversed(forward)))
    assert backward["experts"] == (30, 30)


def test_what_runs_beside_is_busy_but_not_exposed() -> None:
    ((_, _, parts),) = told("rpxAeexAp")
    assert (parts["dispatch"], parts["combine"], parts["permute"]) == ((10, 0), (10, 0), (10, 10))


def test_the_spread_is_over_the_layers_and_not_over_the_steps() -> None:
    (one,) = moe_layer(layers(f"{FORWARD} aa rpxeeeexp", steps=2), CLASSES)
    experts = next(part for part in one.parts if part.part == "experts")
    assert (experts.busy_ns, experts.busy_min_ns, experts.busy_max_ns) == (30, 20, 40)
    assert (one.span_ns, one.span_min_ns, one.span_max_ns, one.status) == (80, 70, 90, "measured")


def test_weight_gradients_that_were_put_off_are_no_layers_of_their_own() -> None:
    forward, backward = f"{FORWARD} aa {FORWARD} aa ", "pxexe aa pxexe"
    phases = "f" * len(forward) + "b" * len(backward)
    (_, first, _), (_, second, parts) = told(forward + backward, phases)
    assert (first, second, parts["experts"]) == (2, 2, (20, 20))


def test_without_experts_there_is_no_layer() -> None:
    assert told("aaa") == told("rpx") == []


def test_an_exchange_of_no_phase_goes_with_what_ran_before_it() -> None:
    assert told(FORWARD, "ff?ffff") == told(FORWARD)


def test_where_nothing_tells_phases_the_mean_is_of_both() -> None:
    (one,) = moe_layer(layers(f"{FORWARD} aa {FORWARD}", "?" * 18), CLASSES)
    assert (one.phase, one.passes, one.status) == (None, 2, "inferred")


@pytest.mark.deep
def test_the_passes_of_the_demo_add_up_to_its_exchanges_and_experts(demo: object) -> None:
    found = demo.moe_layer  # type: ignore[attr-defined]
    assert [(one.phase, one.passes, one.status) for one in found.passes] == [("forward", 6, "measured"), ("backward", 6, "measured")]
    by_part: dict[str, int] = {}
    for one in found.passes:
        assert one.span_min_ns <= one.span_ns <= one.span_max_ns
        for part in one.parts:
            by_part[part.part] = by_part.get(part.part, 0) + part.busy_ns * one.passes
    expert = next(row for row in demo.communication if row.kind == "expert")  # type: ignore[attr-defined]
    assert by_part["dispatch"] + by_part["combine"] == pytest.approx(expert.busy_ns, rel=0.01)
    experts = next(row for row in demo.buckets if row.bucket == "expert_gemm")  # type: ignore[attr-defined]
    assert by_part["experts"] == pytest.approx(experts.busy_ns, rel=0.01)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The diagnosis of the sample."""
    from diagnose.pipeline import diagnose
    from fixtures.sample import unpack

    path = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    unpack("demo.sqlite.gz", path)
    return diagnose([path])
