"""Every before/after pair of the simulator.

The verdict is that of the truth, the deltas are those of the causal budget, and what moved most is named first.
"""

import pytest

from diagnose.document.comparison import Comparison, decode
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.encoding import encode
from fixtures import scenario
from fixtures.accuracy import Format
from fixtures.recording import Recording
from tests.builders.comparing import compare
from tests.builders.records import replace
from tests.builders.simulated import document, recordings
from tests.builders.suites import deep_unless, kind_of
from tests.fixtures.rank_captures import variant
from tests.reason.compare.truth import budget, relative, said

QUICK = ("pair-context-ring", "pair-fp8", "pair-router-fusion")
# the truth's causal budget is that of a training step
PAIRS = deep_unless(QUICK, [name for name in scenario.names() if kind_of(name) == "pair" and scenario.load(name).how.program == "training"])
# The pipeline starts empty in the simulator, so that the first step is a third shorter than the others; four steps are too few to see past
# it.
STEPS = {
    "pair-interleaving": 7, "held-pair-stages-interleaved": 7, "fresh-pair-four-stages-interleaved": 7, "fresh-pair-four-stages-both": 7,
}  # fmt: skip
OTHER_WORK = {
    "pair-fp8": "precision",
    "pair-fp8-dense": "precision",
    "held-pair-few-experts-selective-fp8": "precision",
    "fresh-pair-sixteen-fp8": "precision",
    "fresh-pair-long-hybridep-fp8": "precision",
    "pair-experts-inside-nvlink": "layout",
    "pair-frozen-vision": "model",
    "fresh-pair-wide-vision-frozen": "model",
    "fresh-pair-wide-vision-pinned-frozen": "model",
}
CHEAP = deep_unless(QUICK[:1], ["pair-context-ring", "pair-router-fusion", "pair-tensor-overlap"])
FLOOR = 0.02
CLOSE = 0.005  # of the step: what is in a wrong bucket, at most


def made(name: str, kind: Format, steps: int = 0, seed: int = 0) -> tuple[Diagnosis, tuple[Recording, ...]]:
    """A scenario's diagnosis with its job file, and what was simulated."""
    one = scenario.load(name)
    one = replace(one, steps=steps or one.steps, seed=seed or one.seed)
    return document(one, kind), recordings(one)


def pair(name: str, kind: Format) -> tuple[Comparison, Recording, Recording]:
    """The comparison of a pair's two halves, and what was simulated of the rank that it compares."""
    before = scenario.load(name).before
    assert before is not None
    steps = STEPS.get(name, 0)
    (base, here), (new, there) = made(before, kind, steps), made(name, kind, steps)
    found = compare(base, new, base_label="before", new_label="after", anyway=name in OTHER_WORK)
    rank = found.new.rank
    return found, *(next(one for one in side if one.rank == rank) for side in (here, there))


def check_verdict(found: Comparison, before: Recording, after: Recording) -> None:
    """The right direction where the truth is above what two runs differ by; no change below.

    Between what they differ by and what such runs show in four of five comparisons the question may stay open.
    """
    effect = relative(before, after)
    expected = "no_change" if abs(effect) < FLOOR else "regression" if effect > 0 else "improvement"
    smallest = found.effect.smallest
    open_too = {"cannot_tell"} if smallest is not None and FLOOR <= abs(effect) < smallest else set()
    assert found.outcome.result in {expected, *open_too}, found.outcome.sentence
    assert found.effect.relative == pytest.approx(effect, abs=0.002)


def check_delta(found: Comparison, before: Recording, after: Recording) -> None:
    """Every category and every cause within half a per cent of the step, on both sides; the sums close to the nanosecond."""
    delta = found.delta
    assert delta is not None
    assert sum(row.delta_ns for row in delta.categories) == delta.delta_ns == delta.new_ns - delta.base_ns
    assert sum(row.base_ns for row in delta.categories) == delta.base_ns
    assert sum(row.new_ns for row in delta.categories) == delta.new_ns
    for row in delta.categories:
        assert row.delta_ns == row.new_ns - row.base_ns
        assert not row.parts or sum(part.delta_ns for part in row.parts) == row.delta_ns
    true = {
        side: budget(recording, steps)
        for side, recording, steps in (("base_ns", before, delta.base_steps), ("new_ns", after, delta.new_steps))
    }
    told = {side: said(delta, side) for side in true}
    for name in sorted({*true["base_ns"], *true["new_ns"], *told["base_ns"], *told["new_ns"]}):
        error = (told["new_ns"][name] - told["base_ns"][name]) - (true["new_ns"][name] - true["base_ns"][name])
        assert abs(error) <= CLOSE * delta.base_ns, (name, error, {side: (told[side][name], true[side][name]) for side in true})


def check_first(found: Comparison, before: Recording, after: Recording) -> None:
    """The category that the headline names first is the one that moved most in the step's direction, in truth; a step that has not changed
    has no direction, and the one that moved most either way stands first.
    """
    delta = found.delta
    assert delta is not None
    here, there = budget(before, delta.base_steps), budget(after, delta.new_steps)
    way = 1 if delta.delta_ns > 0 else -1
    moved = {name: way * (there[name] - here[name]) for name in {*here, *there} if not name.startswith("why ")}
    if found.outcome.result == "no_change":
        moved = {name: abs(ns) for name, ns in moved.items()}
        first = max(delta.categories, key=lambda row: abs(row.delta_ns))
    else:
        first = next(row for row in delta.categories if row.delta_ns * way > 0)
    most = max(moved, key=lambda name: moved[name])
    name = "idle" if first.category in {"launch_starved", "host_sync", "dependency_stalled"} else first.category
    assert name == most, (first.category, moved)
    if first.category == "launch_starved":
        assert way * (there["why host"] - here["why host"]) > 0
    title = {
        "transport": "exposed communication", "copy": "exposed copies", "packing": "exposed permute/unpermute",
        "launch_starved": "launch-bound",
    }  # fmt: skip
    said_first = title.get(first.category, first.category.replace("compute:", "compute in ").replace("_", " "))
    # behind what was lost or swapped, which is said in sentences of its own
    said = [sentence for sentence in found.outcome.moved.lower().split(". ") if " grew by " in sentence or " shrank by " in sentence]
    if found.outcome.result == "no_change" and not said:
        return  # nothing moved that is worth a word
    assert said[0].startswith(said_first), found.outcome.moved


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair(name: str) -> None:
    found, before, after = pair(name, "nsys")
    check_verdict(found, before, after)
    check_delta(found, before, after)
    check_first(found, before, after)
    assert decode(encode(found)) == found
    before_it = scenario.load(name).before
    assert before_it is not None
    assert bool(found.settings) == (
        scenario.load(name).plan.job != scenario.load(before_it).plan.job
    )  # some fixes are none of the job file
    assert all(change.line is not None for change in found.settings if change.new is not None)


@pytest.mark.parametrize("name", CHEAP)
def test_a_pair_of_the_other_profiler(name: str) -> None:
    found, before, after = pair(name, "torch")
    check_verdict(found, before, after)
    check_delta(found, before, after)
    check_first(found, before, after)


@pytest.mark.parametrize("name", deep_unless(QUICK, sorted(OTHER_WORK)))
def test_a_pair_of_other_work_is_refused_unless_asked_for(name: str) -> None:
    before = scenario.load(name).before
    assert before is not None
    found = compare(made(before, "nsys")[0], made(name, "nsys")[0], base_label="before", new_label="after")
    assert found.outcome.result == "refused"
    assert {one.aspect for one in found.comparability.mismatches if one.state == "refused"} == {OTHER_WORK[name]}
    assert found.delta is None
    assert found.settings
    assert pair(name, "nsys")[0].outcome.reasons


@pytest.mark.parametrize("name", PAIRS)
def test_a_run_against_itself_has_not_changed(name: str) -> None:
    one = made(name, "nsys", STEPS.get(name, 0))[0]
    check_same(compare(one, one, base_label="same", new_label="same"))


def check_same(found: Comparison) -> None:
    """No change, delta 0, and nothing listed as changed."""
    assert (found.outcome.result, found.effect.basis, found.effect.delta) == ("no_change", "identical", 0.0)
    assert found.delta is not None
    assert found.delta.delta_ns == 0
    assert not [row for row in found.delta.categories if row.moved or row.delta_ns or any(part.delta_ns for part in row.parts)]
    assert [*found.kernels, *found.overlap, *found.environment, *found.settings] == []
    assert {one.state for one in found.findings} <= {"same"}
    assert {wall.delta_ns for wall in found.walls} <= {0, None}
    assert found.comparability.comparable
    assert not found.comparability.mismatches


@pytest.mark.parametrize("name", deep_unless(QUICK, ["pair-router-fusion", "pair-hybridep", "pair-pinned-images"]))
def test_another_run_of_the_same_program_has_not_changed(name: str) -> None:
    """Another seed: other noise on every kernel, every call and every peer."""
    found = compare(made(name, "nsys")[0], made(name, "nsys", seed=2)[0], base_label="one", new_label="two")
    assert found.outcome.result == "no_change", found.outcome.sentence
    assert not [row for row in found.kernels if row.kind in {"new", "gone", "renamed", "moved", "more", "fewer"}]


# What was lost or switched on, by the fix that was taken back: the first words of what is said to have moved. Of those in BY_CATEGORY the
# category that grew says it: there is no word for a micro-batch that is smaller, or for less offload.
TAKEN_BACK = {
    "fresh-pair-four-by-four-gradients": "DP collectives lost overlap",
    "fresh-pair-four-by-four-parameters": "DP collectives lost overlap",
    "fresh-pair-four-by-four-tensor": "TP collectives run over NCCL, no longer over userbuffers",
    "fresh-pair-four-stages-interleaved": "The exchange between pipeline stages lost overlap",
    "fresh-pair-long-no-recompute": "Recompute is switched on",
    "fresh-pair-many-small-deepep": "The EP all-to-all runs over NCCL, no longer over DeepEP",
    "fresh-pair-many-small-overlap": "The EP all-to-all lost overlap",
    "fresh-pair-nothing-fused-garbage": "Compute waits for Python's garbage collection",
    "fresh-pair-nothing-fused-no-host-sync": "The EP all-to-all runs over NCCL, no longer over HybridEP",
    "fresh-pair-one-by-one-grouped": "Experts run one GEMM after another",
    "fresh-pair-padded-graphs": "No kernel is launched from a CUDA graph any more",
    "fresh-pair-padded-whole-graph": "No kernel is launched from a CUDA graph any more",
    "fresh-pair-rack-graphs": "No kernel is launched from a CUDA graph any more",
    "fresh-pair-rack-hybridep": "The EP all-to-all runs over NCCL, no longer over HybridEP",
    "fresh-pair-sixteen-fp8": "No GEMM runs in a lower precision any more",
    "fresh-pair-sixteen-no-recompute": "Recompute is switched on",
    "fresh-pair-wide-vision-frozen": "The backward pass of the vision encoder takes longer",
    "fresh-pair-wide-vision-pinned": "Copies that were pinned are pageable now",
    "pair-context-ring": "CP communication lost overlap",
    "pair-deepep": "The EP all-to-all runs over NCCL, no longer over DeepEP",
    "pair-expandable-segments": "The allocator calls the driver while compute waits",
    "pair-expert-overlap": "The EP all-to-all lost overlap",
    "pair-fewer-kernels": "The router is no longer fused",
    "pair-fp8": "No GEMM runs in a lower precision any more",
    "pair-frozen-vision": "The vision encoder has a backward pass now",
    "pair-full-iteration-graph": "No kernel is launched from a CUDA graph any more",
    "pair-gradient-overlap": "DP collectives lost overlap",
    "pair-grouped-experts": "Experts run one GEMM after another",
    "pair-hybridep": "The EP all-to-all runs over NCCL, no longer over HybridEP",
    "pair-interleaving": "The exchange between pipeline stages lost overlap",
    "pair-launches-no-host-sync": "The EP all-to-all runs over NCCL, no longer over HybridEP",
    "pair-less-recompute": "Recompute is switched on",
    "pair-manual-gc": "Compute waits for Python's garbage collection",
    "pair-permute-fusion": "Tokens are no longer permuted by fused kernels",
    "pair-pinned-images": "Copies that were pinned are pageable now",
    "pair-router-fusion": "The router is no longer fused",
    # pair-scoped-graphs: 2.4 % of the step, which one run against one does not show, so that no cause is named
    "pair-recompute-of-activations": "More is recomputed",  # that of activations stays
    "pair-selective-recompute": "More is recomputed",
    "pair-tensor-overlap": "TP collectives run over NCCL, no longer over userbuffers",
    "pair-larger-micro-batch": "A step has 2 micro-batches, no longer 1. Launch-bound time",
    "pair-less-offload": "Exposed copies grew",
    "pair-no-host-sync": "The EP all-to-all runs over NCCL, no longer over HybridEP",
    "pair-parameter-overlap": "Exposed communication grew by 8.58 ms (41.3 → 49.8 ms), mostly of DP collectives (39.5 → 50.0 ms)",
}
BY_CATEGORY = {"pair-less-offload", "pair-parameter-overlap"}
QUICK_TAKEN_BACK = ("pair-context-ring",)
SMALL = 0.04  # of the step: a change below it is none that a cause has to be named for; it may be
BELOW = {"pair-permute-fusion"}  # 3.5 %


def test_changes_enough_are_named_by_their_cause() -> None:
    assert set(TAKEN_BACK) > BY_CATEGORY
    assert len(counted := set(TAKEN_BACK) - BELOW) >= 24
    assert len(counted - BY_CATEGORY) >= 22 / 24 * len(counted)


@pytest.mark.parametrize("name", deep_unless((), ("ranks-two-slow-gpu", "ranks-straggler")))
def test_a_gpu_that_became_slower_than_the_others_is_named_first(name: str) -> None:
    """One of two, and one of four: the others have not slowed down, so that a list of longer buckets would mislead."""
    (slow,) = scenario.load(name).plan.faults.slow_rank
    found = compare(document(variant(name, slow_rank={})), document(name), base_label="before", new_label="after")
    assert found.outcome.result == "regression"
    assert found.outcome.moved.startswith(f"The GPU of rank {slow} is slower than the others, which do not slow down. Compute in ")


@pytest.mark.parametrize("name", deep_unless(QUICK_TAKEN_BACK, list(TAKEN_BACK)))
def test_a_fix_that_was_taken_back_is_named_first(name: str) -> None:
    before = scenario.load(name).before
    assert before is not None
    base, new = (made(one, "nsys", STEPS.get(name, 0))[0] for one in (name, before))
    found = compare(base, new, base_label="with the fix", new_label="without", anyway=name in OTHER_WORK)
    assert found.outcome.result == "regression"
    assert found.effect.relative is not None
    assert (found.effect.relative > SMALL) == (name not in BELOW)
    assert found.outcome.moved.startswith(TAKEN_BACK[name]), found.outcome.moved
