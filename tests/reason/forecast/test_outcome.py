"""Forecasts of small graphs worked out by hand: ranges, ceilings, categories that close, sequences and the search for a plan."""

from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from msgspec import structs

from diagnose.document.diagnosis import WINS_NOTHING, PlanSetting, PlanStep
from diagnose.errors import UsageError
from diagnose.knowledge.forecast import ForecastRules
from diagnose.knowledge.load import Knowledge
from diagnose.knowledge.rulebook import Rulebook
from diagnose.measure.replay.graph import Graph
from diagnose.model.vocabulary import FixState
from diagnose.reason.context import Context, make_context
from diagnose.reason.forecast import outcome as made
from diagnose.reason.forecast.categories import drawn
from diagnose.reason.forecast.changes import Change
from diagnose.reason.forecast.outcome import Replays, categories_of, ingredients_of, per_step, sequence, steps_of
from diagnose.reason.forecast.plan import forecast_of, foreseen, search, undecided
from diagnose.reason.forecast.questions import Free, Question, free_questions
from tests.builders.cases import for_each
from tests.builders.graphs import small_graph
from tests.builders.records import replace

MS = 1_000_000
# One stream of compute and one of exchange, ms:       product 0..40 | combine waits for the exchange: 70..80
#                                                      exchange      40..70
STEP = [
    ("call", {"kind": "call", "duration": 0, "cause": "launch"}),
    ("product", {"duration": 40 * MS, "bucket": "expert_gemm", "role": "compute"}),
    ("exchange", {"duration": 30 * MS, "bucket": "collective", "role": "transport", "comm": "expert", "lane": 11}),
    ("combine", {"duration": 10 * MS, "bucket": "dispatch", "role": "packing"}),
]
WAITS = [
    ("call", "product", "issue", 0),
    ("call", "exchange", "issue", 0),
    ("call", "combine", "issue", 0),
    ("product", "exchange", "event", 0),
    ("exchange", "combine", "event", 0),
    ("product", "combine", "stream", 0),
]


@pytest.fixture
def rules(knowledge: Knowledge) -> ForecastRules:
    return knowledge.forecast


def graph() -> Graph:
    found = small_graph(STEP, WAITS)
    return replace(found, steps=found.steps.with_columns(pl.lit(80 * MS).alias("end")))


def question(key: str, select: str, by: tuple[float, float, float] | None = None, **told: Any) -> Question:
    change = Change(transformation="remove" if by is None else "scale", select=select, by=by, basis="assumed", why="why", source="source")
    return Question(id=key, title=key, changes=(change,), **told)


HALF_LINK = question("link", "role = 'transport'", (0.4, 0.5, 1.0))
NO_PACKING = question("packing", "role = 'packing'")


def test_a_forecast_rests_on_nothing_that_the_program_does_not_run() -> None:
    routing = replace(question("", "bucket = 'router'").changes[0], why="routing becomes two kernels")
    fused = replace(NO_PACKING, changes=(routing, *NO_PACKING.changes))
    told = {one.text for one in ingredients_of(graph(), [fused])}
    assert "why" in told
    assert routing.why not in told
    assert routing.why in {one.text for one in ingredients_of(graph(), [replace(fused, changes=(routing,))])}, "all that it is made of"


def test_a_range_is_as_wide_as_its_ends_and_what_the_replay_leaves_out(rules: ForecastRules) -> None:
    span = Replays(graph(), rules).after([HALF_LINK]).span
    # 40 + 15 + 10 likely, 40 + 12 + 10 at best, 80 at worst; the margin is the law's share of the 15 saved and 0.5 % of the step.
    assert (span.now, span.likely, span.high) == (80 * MS, 65 * MS, 80 * MS)
    assert span.low == min(62 * MS, 65 * MS - round(15 * MS * rules.margin.of_saving["scale"] + 80 * MS * rules.margin.of_step))


def test_other_stages_of_a_pipeline_change_as_this_one_does(rules: ForecastRules) -> None:
    """The combine of 10 waits for another stage: with the exchange half as long the other 70 of the step take 55, and so 10 take 8."""
    pipeline = [(name, {**told, "role": "transport", "comm": "pipeline"} if name == "combine" else told) for name, told in STEP]
    found = small_graph(pipeline, WAITS)
    replays = Replays(replace(found, steps=found.steps.with_columns(pl.lit(80 * MS).alias("end"))), rules)
    exchange = question("exchange", "role = 'transport' AND comm = 'expert'", (0.5, 0.5, 1.0))
    assert replays.without_stages == 70 * MS
    assert replays.after([exchange]).span.likely == 55 * MS + round(10 * MS * 55 / 70)
    assert replays.after([exchange]).span.high == 80 * MS
    once = question("once", "role = 'transport' AND comm = 'expert'", (0.5, 0.5, 0.5))
    assert replays.after([once]).span.high >= 65 * MS, "at worst the other stage takes its 10"
    slower = question("slower", "bucket = 'expert_gemm'", (1.5, 1.5, 1.5))
    assert replays.after([slower]).span.high >= replays.after([slower]).span.likely > 80 * MS
    # What this stage alone has the others do not get: 40 of encoder in place of the product, half as long, and 10 stay 10.
    vision = [(name, {**told, "bucket": "vision_encoder"} if name == "product" else told) for name, told in pipeline]
    found = small_graph(vision, WAITS)
    alone = Replays(replace(found, steps=found.steps.with_columns(pl.lit(80 * MS).alias("end"))), rules)
    assert alone.after([question("frozen", "bucket = 'vision_encoder'", (0.5, 0.5, 0.5))]).span.likely == 60 * MS
    # An all-reduce of unknown ranks is a stage's waiting in a pipeline alone.
    other = [(name, {**told, "comm": "other", "exchange": "all-reduce"} if name == "exchange" else told) for name, told in STEP]
    assert Replays(small_graph(other, WAITS), rules).without_stages == 0


def test_what_goes_beyond_what_was_tried_is_told_so(rules: ForecastRules) -> None:
    """A fix that would leave 30 of 80 ms: at worst a quarter of what it saves comes true. A question of a user is taken at its word."""
    far = question("far", "bucket = 'expert_gemm' OR bucket = 'dispatch'", fix="far")
    found = Replays(graph(), rules).after([far])
    assert (found.span.likely, found.span.high) == (30 * MS, 80 * MS - 50 * MS // 4)
    assert found.doubt.startswith("Low certainty")
    assert forecast_of(Replays(graph(), rules), [far]).doubt == found.doubt
    free = Replays(graph(), rules).after([question("far", "bucket = 'expert_gemm' OR bucket = 'dispatch'")])
    assert (free.span.likely, free.doubt) == (30 * MS, "")
    assert free.span.high < 40 * MS


def test_at_worst_one_change_more_takes_nothing_from_those_before_it(rules: ForecastRules) -> None:
    """A third fix made 46.4 ms at the worst 69: with it, more than half would be saved (of a public capture: 685, then 872 ms)."""
    first, second = replace(NO_PACKING, fix="packing"), question("link", "role = 'transport'", fix="link")
    third = question("product", "bucket = 'expert_gemm'", (0.9, 0.9, 0.9), fix="product")
    replays = Replays(graph(), rules)
    alone, both = replays.after([first, second]), replays.after([first, second, third])
    assert (alone.doubt, bool(both.doubt)) == ("", True)
    assert both.span.high <= alone.span.high


def test_what_still_computes_is_the_least_that_is_told(rules: ForecastRules) -> None:
    """The product computes for 40 ms, at best for 10, however wide the margin."""
    wide = structs.replace(rules, margin=structs.replace(rules.margin, of_saving=dict.fromkeys(rules.margin.of_saving, 0.9)))
    moved = question("moved", "role = 'transport' OR role = 'packing'")
    assert Replays(graph(), wide).after([moved]).span.low == 40 * MS
    faster = question("faster", "role = 'compute'", (0.25, 0.5, 0.5))
    assert Replays(graph(), wide).after([moved, faster]).span.low == 10 * MS


def test_no_forecast_goes_beyond_the_bounds_of_the_diagnosis(rules: ForecastRules) -> None:
    capped = question("exchange", "role = 'transport'", ceilings={"communication": 12 * MS})
    replays = Replays(graph(), rules)
    found = replays.after([capped])
    # at its ceiling it saves 12 of 80; the margin is 15 % of that and 0.5 % of the step: 1.8 + 0.4
    assert (found.span.low, found.span.likely, found.span.high) == (68 * MS, 68 * MS, 70_200_000)
    assert found.cut == Fraction(12, 30)
    assert [one.finding for one in found.capped_by] == ["communication"]
    assert sum(row.delta_ns for row in categories_of(replays.now, found)) == -12 * MS
    assert [one.likely_ns for one in steps_of(replays.now, found)] == [68 * MS]
    # where the mean of all steps is 1.2 of that of the replayed ones, a bound of 12 of all is 10 of these
    assert Replays(graph(), rules, stretch=Fraction(6, 5)).after([capped]).span.likely == 70 * MS
    asked_by_a_finding = question("other", "role = 'transport'", bounds={"COM-EXPOSED": 12 * MS})  # a fix may do more than it asks for
    assert replays.after([asked_by_a_finding]).span.likely == 50 * MS


@for_each("asked", HALF_LINK, NO_PACKING, question("all", "role = 'compute'"))
def test_categories_close_to_the_nanosecond(asked: Question, rules: ForecastRules) -> None:
    replays = Replays(graph(), rules)
    found = replays.after([asked])
    rows = categories_of(replays.now, found)
    assert sum(row.now_ns for row in rows) == found.span.now
    assert sum(row.likely_ns for row in rows) == found.span.likely
    assert sum(row.delta_ns for row in rows) == found.span.likely - found.span.now


def test_where_a_saving_lands(rules: ForecastRules) -> None:
    replays = Replays(graph(), rules)
    assert replays.now.categories == {"compute:expert_gemm": 40 * MS, "transport": 30 * MS, "packing": 10 * MS}
    rows = {row.category: row.delta_ns for row in categories_of(replays.now, replays.after([HALF_LINK]))}
    assert rows == {"transport": -15 * MS, "compute:expert_gemm": 0, "packing": 0}


def test_the_step_after_each_change_and_why_savings_do_not_add_up(rules: ForecastRules) -> None:
    faster = question("faster", "role = 'transport'", (0.25, 0.25, 0.25))
    first, second = sequence(Replays(graph(), rules), [HALF_LINK, faster])
    # What both shorten takes a quarter, not an eighth: 40 + 7.5 + 10. At best their factors multiply: 40 + 0.4 × 0.25 × 30 + 10.
    assert (first.step_ns.likely, second.step_ns.likely, second.step_ns.low) == (65 * MS, 57_500_000, 53 * MS)
    assert (second.saves_ns, second.alone_ns) == (7_500_000, 22_500_000)
    assert second.why.startswith("less than alone")
    assert not first.why


class Free4All:
    """Everything goes with everything, but what is named."""

    def __init__(self, *apart: tuple[str, str]) -> None:
        self.apart = {frozenset(pair) for pair in apart}

    def goes_with(self, chosen: Any, key: str) -> bool:
        return all(frozenset((one, key)) not in self.apart for one in chosen)


def test_the_plan_is_the_smallest_set_that_saves_most(rules: ForecastRules) -> None:
    gone = question("gone", "role = 'transport'")
    nothing = question("nothing", "bucket = 'router'")
    unknown = Question(id="unknown", title="unknown", refused="It hangs on what is not known.")
    everything = [HALF_LINK, gone, NO_PACKING, nothing, unknown]
    found = search(Replays(graph(), rules), everything, Free4All(), rules)  # type: ignore[arg-type]
    assert [one.id for one in found.chosen] == ["gone", "packing"]  # half a link saves nothing once there is no exchange
    assert [one.id for one in found.without] == ["nothing", "unknown"]
    assert found.replays <= rules.replays
    apart = search(Replays(graph(), rules), everything, Free4All(("gone", "packing")), rules)  # type: ignore[arg-type]
    assert [one.id for one in apart.chosen] == ["gone"]


def planned(fix: str, instead_of: str | None = None, state: FixState = "applicable") -> PlanStep:
    told: dict[str, Any] = {
        "finding": "f", "title": fix, "bound_ns": None, "speedup_ceiling": None, "changes": (), "needs": (), "published": (),
    }  # fmt: skip
    return PlanStep(fix=fix, state=state, cost="", instead_of=instead_of, **told)


def test_of_alternatives_the_one_goes_first_that_is_better_at_its_worst(rules: ForecastRules) -> None:
    # Alone: a link of 0.9 gives 77 ms, without exchange 50, without packing 70; the ranges of the first two do not touch.
    little = question("little", "role = 'transport'", (0.9, 0.9, 0.9))
    gone, unknown = (
        question("gone", "role = 'transport'"),
        Question(id="unknown", title="unknown", refused="It hangs on what is not known."),
    )
    asked = {one.id: one for one in (little, gone, NO_PACKING, HALF_LINK, unknown)}
    steps = [planned("little"), planned("gone", "little"), planned("unknown", "little"), planned("packing")]
    found, last = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert [(one.fix, one.instead_of) for one in found] == [("gone", None), ("little", "gone"), ("unknown", "gone"), ("packing", None)]
    assert [one.forecast and one.forecast.likely_ns for one in found] == [50 * MS, 77 * MS, None, 40 * MS]
    assert (found[2].no_forecast, found[3].forecast and found[3].forecast.with_) == ("It hangs on what is not known.", ("gone", "packing"))
    assert last is not None
    assert (last.likely_ns, last.with_) == (40 * MS, ("gone", "packing"))


def test_an_alternative_goes_first_that_likely_wins_far_more_than_the_other_at_its_best(rules: ForecastRules) -> None:
    """Of 30 ms exchange a tenth at best; likely half of it, likely a sixth, and half with a worst end that is worse than the first's."""
    little = question("little", "role = 'transport'", (0.9, 0.95, 1.0))
    half = question("half", "role = 'transport'", (0.1, 0.5, 0.98))
    risky = question("risky", "role = 'transport'", (0.1, 0.5, 1.2))
    sixth = question("sixth", "role = 'transport'", (0.1, 0.83, 0.98))
    asked = {one.id: one for one in (little, half, sixth, risky)}
    for other, first in ((half, "half"), (sixth, "little"), (risky, "little")):
        steps = [planned("little"), planned(other.id, "little")]
        found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
        assert found[0].fix == first


@for_each("exclusive, order", (("packing",), ["gone", "packing", "little"]), ((), ["gone", "little", "packing"]))
def test_behind_the_first_what_is_surely_better_passes_what_sets_the_same(
    exclusive: tuple[str, ...], order: list[str], rules: ForecastRules
) -> None:
    """Alone 50, 77 and 70 of 80 ms: two values of one setting stand in the order of what they win, other changes in that of the rule."""
    asked = {
        one.id: one for one in (question("gone", "role = 'transport'"), question("little", "role = 'transport'", (0.9,) * 3), NO_PACKING)
    }
    steps = [planned("gone"), structs.replace(planned("little", "gone"), exclusive_with=exclusive), planned("packing", "gone")]
    found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert [one.fix for one in found] == order
    assert [one.instead_of for one in found] == [None, "gone", "gone"]


def test_what_wins_nothing_does_not_stand_before_what_wins(rules: ForecastRules) -> None:
    """The alternative likely wins 15 of 80 ms, and at its worst it loses: still it goes before what is sure to win nothing."""
    first = question("first", "role = 'transport'", (1.0, 1.0, 1.0))
    risky = question("risky", "role = 'transport'", (0.2, 0.5, 1.2))
    asked = {one.id: one for one in (first, risky)}
    steps = [planned("first"), planned("risky", "first")]
    found, last = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert [(one.fix, one.instead_of, one.no_forecast) for one in found] == [("risky", None, ""), ("first", "risky", WINS_NOTHING)]
    assert last is not None
    assert (last.likely_ns, last.high_ns > 80 * MS, last.with_) == (65 * MS, True, ("risky",))


@for_each(
    "bounds, tie, order",
    ((30, 29), 3, ["gone", "little"]), ((30, 26), 3, ["little", "gone"]), ((30, 29), 0, ["little", "gone"]),
    ((30, 31), 3, ["gone", "little"]),
)  # fmt: skip
def test_of_findings_that_tie_the_one_goes_first_that_surely_wins_more(
    rules: ForecastRules, bounds: tuple[int, int], tie: int, order: list[str]
) -> None:
    asked = {one.id: one for one in (question("little", "role = 'transport'", (0.9, 0.9, 0.9)), question("gone", "role = 'transport'"))}
    steps = [structs.replace(planned(key), bound_ns=bound * MS) for key, bound in zip(asked, bounds, strict=True)]
    free: Any = Free4All()
    found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), free, tie_ns=tie * MS, stay=None)
    assert [one.fix for one in found] == order


SURE_PACKING = replace(NO_PACKING, changes=tuple(replace(one, basis="measured") for one in NO_PACKING.changes))


@for_each(
    "second, by, bound, stay, first",
    (SURE_PACKING, (0.0, 0.9, 1.0), 12, (), "packing"),  # likely 3 of 80 ms; without packing 10, and 8 at worst
    (SURE_PACKING, (0.0, 0.6, 1.0), 12, (), "loose"),  # likely 12
    (SURE_PACKING, (0.0, 0.9, 1.0), 3, (), "loose"),  # what it is about leaves no room for more
    (SURE_PACKING, (0.0, 0.9, 1.0), 12, ("packing",), "loose"),
    (SURE_PACKING, (0.0, 0.9, 1.0), 12, None, "loose"),
    (SURE_PACKING, (1.0, 1.0, 1.0), 12, (), "packing"),  # it wins nothing
    (SURE_PACKING, None, 12, (), "loose"),  # nor is it known
    (NO_PACKING, (0.0, 0.9, 1.0), 12, (), "loose"),  # its size is assumed
)
def test_what_wins_more_at_its_worst_than_the_first_likely_does_goes_first(
    second: Question, by: tuple[float, float, float] | None, bound: int, stay: tuple[str, ...] | None, first: str, rules: ForecastRules
) -> None:
    """The first has a loose bound of 40 ms: what it is about at most."""
    refused = Question(id="loose", title="loose", refused="It hangs on what is not known.")
    asked = {"loose": refused if by is None else question("loose", "role = 'transport'", by), "packing": second}
    steps = [structs.replace(planned(key), bound_ns=most * MS) for key, most in zip(asked, (40, bound), strict=True)]
    free: Any = Free4All()
    found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), free, stay=stay)
    assert found[0].fix == first


def test_what_has_to_be_asked_for_or_written_takes_no_place_of_a_setting_by_what_it_surely_wins(rules: ForecastRules) -> None:
    setting = PlanSetting(framework="f", key="a", from_=None, text="a: true", language="yaml", stays=False)
    asked = {"loose": question("loose", "role = 'transport'", (0.0, 0.9, 1.0)), "packing": SURE_PACKING}
    free: Any = Free4All()
    first = structs.replace(planned("loose"), bound_ns=40 * MS, changes=(setting,))
    others: list[tuple[FixState, tuple[PlanSetting, ...]]] = [("unknown", (setting,)), ("applicable", ())]
    for state, changes in others:
        second = structs.replace(planned("packing", state=state), bound_ns=12 * MS, changes=changes)
        found, _ = foreseen([first, second], asked.__getitem__, Replays(graph(), rules), free)
        assert [one.fix for one in found] == ["loose", "packing"]
    stays = structs.replace(setting, key="b", text="b: 1", stays=True)
    chosen = structs.replace(setting, key="c", text="c: choose a divisor", language="words")  # beside a setting that is as it has to be
    second = structs.replace(planned("packing"), bound_ns=12 * MS, changes=(chosen, stays))
    found, _ = foreseen([first, second], asked.__getitem__, Replays(graph(), rules), free)
    assert [one.fix for one in found] == ["loose", "packing"]
    flag = structs.replace(setting, key="--a", text="leave out --a", language="words")  # no line of a job file, but an edit of it
    for change in (setting, flag):
        written = structs.replace(planned("packing"), bound_ns=12 * MS, changes=(change,))
        found, _ = foreseen([first, written], asked.__getitem__, Replays(graph(), rules), free)
        assert [one.fix for one in found] == ["packing", "loose"]


def test_what_would_change_nothing_that_ran_is_no_alternative_of_what_was_replayed(rules: ForecastRules) -> None:
    unknown = Question(id="unknown", title="unknown", refused="It hangs on what is not known.")
    asked = {one.id: one for one in (NO_PACKING, question("router", "bucket = 'router'"), HALF_LINK, unknown)}
    steps = [planned("packing"), planned("router", "packing"), structs.replace(planned("link", "packing"), exclusive_with=("router",))]
    found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert [(one.fix, one.exclusive_with) for one in found] == [("packing", ()), ("link", ())]
    for alone in ([planned("router")], [planned("unknown"), planned("router", "unknown")]):
        assert len(foreseen(alone, asked.__getitem__, Replays(graph(), rules), Free4All())[0]) == len(alone)  # type: ignore[arg-type]


def test_what_has_to_be_asked_for_and_can_t_be_replayed_goes_behind_what_it_ties_with(rules: ForecastRules) -> None:
    unknown = Question(id="unknown", title="unknown", refused="It hangs on what is not known.")
    asked = {one.id: one for one in (unknown, question("gone", "role = 'transport'"))}
    for state, order in (("unknown", ["gone", "unknown"]), ("applicable", ["unknown", "gone"])):
        steps = [structs.replace(planned("unknown", state=state), bound_ns=30 * MS), structs.replace(planned("gone"), bound_ns=29 * MS)]
        found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All(), tie_ns=3 * MS)  # type: ignore[arg-type]
        assert [one.fix for one in found] == order


def test_what_somebody_has_to_write_takes_no_place_of_a_setting(rules: ForecastRules) -> None:
    little, gone = question("little", "role = 'transport'", (0.9, 0.9, 0.9)), question("gone", "role = 'transport'")
    asked = {one.id: one for one in (little, gone)}
    setting = PlanSetting(
        framework="torchtitan", key="compile.enable", from_=None, text="compile.enable: true", language="yaml", stays=False
    )
    steps = [structs.replace(planned("little"), changes=(setting,)), planned("gone", "little")]
    found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert [one.fix for one in found] == ["little", "gone"]


def test_what_a_change_wins_at_most_is_no_less_than_what_it_is_forecast_to_win(rules: ForecastRules) -> None:
    """80 ms now, 50 without exchange, 45.1 at best (15 % of the 30 and 0.5 % of the step); findings are about 20 and 40 of these."""
    gone = question("gone", "role = 'transport'")
    told = [structs.replace(planned("gone"), bound_ns=bound * MS, speedup_ceiling=80 / (80 - bound)) for bound in (20, 40)]
    small, large = (foreseen([one], lambda _: gone, Replays(graph(), rules), Free4All())[0][0] for one in told)  # type: ignore[arg-type]
    assert (small.bound_ns, small.speedup_ceiling) == (34_900_000, pytest.approx(80 / 45.1))
    assert (large.bound_ns, large.speedup_ceiling) == (40 * MS, 2.0)


def test_what_a_forecast_may_err_by_raises_no_bound(rules: ForecastRules) -> None:
    """Likely 30 ms are won, at best 34.9: of a finding that holds 31 no more is promised, one of 29 holds less than its change wins."""
    gone = question("gone", "role = 'transport'")
    for bound, most in ((31 * MS, 31 * MS), (29 * MS, 34_900_000)):
        step = structs.replace(planned("gone"), bound_ns=bound)
        ((found,), _) = foreseen([step], lambda _: gone, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
        assert found.bound_ns == most


@for_each("bound, most", (70, 57_500_000), (55, 55 * MS))
def test_what_fewer_launches_win_at_most_is_what_they_take(bound: int, most: int, rules: ForecastRules) -> None:
    """Two kernels of 50 ms together become one of 25: no more than 50 ms can be won, and 15 % that the law leaves out."""
    merge = Change(
        transformation="merge", select="bucket IN ('expert_gemm', 'dispatch')", by=(0.5, 0.5, 0.5), basis="assumed", why="why",
        source="source",
    )  # fmt: skip
    asked = Question(id="merged", title="merged", changes=(merge,))
    steps = [structs.replace(planned("merged"), bound_ns=bound * MS)]
    ((found,), _) = foreseen(steps, lambda _: asked, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert found.forecast is not None
    assert found.bound_ns == most


def test_what_wins_nothing_goes_behind_what_wins_and_what_is_undecided(rules: ForecastRules) -> None:
    idle = question("idle", "role = 'transport'", (1.0, 1.0, 1.0))
    other = question("other", "role = 'packing'", (1.0, 1.0, 1.0))
    unknown = Question(id="unknown", title="unknown", refused="It hangs on what is not known.")
    asked = {one.id: one for one in (idle, other, unknown, HALF_LINK)}
    steps = [planned("idle"), planned("other", "idle"), planned("unknown"), planned("link")]
    found, last = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert [(one.fix, one.instead_of) for one in found] == [("unknown", None), ("link", None), ("idle", None), ("other", "idle")]
    assert [one.no_forecast for one in found] == ["It hangs on what is not known.", "", WINS_NOTHING, WINS_NOTHING]
    assert last is not None
    assert last.with_ == ("link",)


def test_what_wins_next_to_nothing_of_its_bound_goes_behind_too(rules: ForecastRules) -> None:
    """A link of 0.99 wins 0.3 of 80 ms: of a bound of 40 ms that is not what the step is in the plan for, of one of 4 ms it is."""
    hardly = question("hardly", "role = 'transport'", (0.99, 0.99, 0.99))
    asked = {one.id: one for one in (hardly, NO_PACKING)}

    def order(bound: int) -> list[str | None]:
        steps = [structs.replace(planned("hardly"), bound_ns=bound * MS), planned("packing")]
        return [one.fix for one in foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())[0]]  # type: ignore[arg-type]

    assert order(40) == ["packing", "hardly"]
    assert order(4) == ["hardly", "packing"]


def test_what_wins_nothing_by_itself_is_asked_again_after_the_others(rules: ForecastRules) -> None:
    """The exchange ends 30 ms after the product; a copy of 25 ms beside it is waited for only once the link is faster."""
    rows = [*STEP[:3], ("copy", {"duration": 25 * MS, "bucket": "router", "role": "copy", "lane": 12}), STEP[3]]
    waits = [*WAITS, ("call", "copy", "issue", 0), ("product", "copy", "event", 0), ("copy", "combine", "event", 0)]
    found = small_graph(rows, waits)
    replays = Replays(replace(found, steps=found.steps.with_columns(pl.lit(80 * MS).alias("end"))), rules)
    asked = {one.id: one for one in (question("copy", "role = 'copy'"), question("idle", "role = 'packing'", (1.0, 1.0, 1.0)), HALF_LINK)}
    steps = [planned("idle"), planned("copy"), planned("link")]
    told, last = foreseen(steps, asked.__getitem__, replays, Free4All())  # type: ignore[arg-type]
    assert [(one.fix, one.forecast and one.forecast.likely_ns) for one in told] == [("link", 75 * MS), ("copy", 65 * MS), ("idle", None)]
    assert last is not None
    assert last.with_ == ("link", "copy")


def launched_late(rules: ForecastRules) -> Replays:
    """The second product is launched at 30 ms, when the first has 10 of its 40 ms left."""
    rows = [
        ("call", {"kind": "call", "duration": 0, "cause": "launch"}),
        ("work", {"kind": "host", "duration": 30 * MS, "cause": "host"}),
        ("again", {"kind": "call", "start": 30 * MS, "duration": 0, "cause": "launch"}),
        ("first", {"duration": 40 * MS, "bucket": "expert_gemm", "role": "compute"}),
        ("second", {"start": 40 * MS, "duration": 10 * MS, "bucket": "dense_gemm", "role": "compute"}),
    ]
    waits = [
        ("call", "work", "thread", 0), ("work", "again", "thread", 0), ("call", "first", "issue", 0), ("again", "second", "issue", 0),
        ("first", "second", "stream", 0),
    ]  # fmt: skip
    found = small_graph(rows, waits)
    return Replays(replace(found, steps=found.steps.with_columns(pl.lit(50 * MS).alias("end"))), rules)


@for_each("bound, told", (40, ("launch_starved", 20, 30)), (10, None))
def test_a_step_that_wins_far_less_than_its_bound_says_what_becomes_of_the_time(
    bound: int, told: tuple[str, int, int] | None, rules: ForecastRules
) -> None:
    """Of 30 ms that are freed 20 are no gain."""
    short = question("short", "bucket = 'expert_gemm'", (0.25, 0.25, 0.25))
    step = structs.replace(planned("short"), bound_ns=bound * MS, speedup_ceiling=2.0)
    ((step,), _) = foreseen([step], lambda _: short, launched_late(rules), Free4All())  # type: ignore[arg-type]
    assert step.forecast is not None
    assert step.forecast.likely_ns == 40 * MS
    moved = step.forecast.displaced
    assert (moved and (moved.category, moved.ns // MS, moved.freed_ns // MS)) == told


@for_each("by, told", (0.2, True), (0.2499, False))
def test_a_step_that_frees_next_to_nothing_displaces_nothing(by: float, *, told: bool, rules: ForecastRules) -> None:
    """The second step wins by its wall, which the first one's bound left out; of the product it shortens 2 ms or 4 us more."""
    first = question("first", "bucket = 'expert_gemm'", (0.25, 0.25, 0.25), ceilings={"compute": 5 * MS})
    more = question("more", "bucket = 'expert_gemm'", (by, by, by), ceilings={"memory": 5 * MS})
    steps = [structs.replace(planned(one), bound_ns=40 * MS, speedup_ceiling=2.0) for one in ("first", "more")]
    (_, last), _ = foreseen(steps, {one.id: one for one in (first, more)}.__getitem__, launched_late(rules), Free4All())  # type: ignore[arg-type]
    assert last.forecast is not None
    assert (last.forecast.displaced is not None) is told


def test_what_a_step_wins_at_most_is_its_own(rules: ForecastRules) -> None:
    """The link before it may win 18 of 80 ms where it likely wins 15; without packing 10 more are won whatever that does."""
    asked = {one.id: one for one in (HALF_LINK, NO_PACKING)}
    steps = [planned("link"), structs.replace(planned("packing"), bound_ns=10 * MS, speedup_ceiling=80 / 70)]
    (_, last), _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert last.bound_ns == pytest.approx(10 * MS, rel=0.2)


def test_an_alternative_that_wins_for_sure_goes_before_one_that_wins_nothing(rules: ForecastRules) -> None:
    idle, half = (question(name, "role = 'transport'", (by, by, by)) for name, by in (("idle", 1.0), ("half", 0.5)))
    asked = {one.id: one for one in (idle, half, NO_PACKING)}
    for before in ([], [planned("packing")]):
        steps = [*before, planned("idle"), planned("half", "idle")]
        found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
        assert [(one.fix, one.instead_of) for one in found] == [*((one.fix, None) for one in before), ("half", None), ("idle", "half")]
        assert found[-1].no_forecast.startswith("Replayed, it wins nothing")


@for_each(
    "steps",
    [planned("half"), planned("little", "half")],  # less likely
    [planned("half"), planned("link", "half")],  # as good
    [planned("little"), planned("gone", "little", "unknown")],  # better, but not known to be had
)
def test_alternatives_keep_their_order_where_none_is_better_for_sure(steps: list[PlanStep], rules: ForecastRules) -> None:
    little, half = question("little", "role = 'transport'", (0.9, 0.9, 0.9)), question("half", "role = 'transport'", (0.4, 0.5, 1.0))
    asked = {one.id: one for one in (little, half, HALF_LINK, question("gone", "role = 'transport'"))}
    found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert [(one.fix, one.instead_of) for one in found] == [(one.fix, one.instead_of) for one in steps]


@for_each("more, first", (True, "both"), (False, "half"))
def test_a_fix_that_makes_all_changes_of_another_and_more_goes_first_where_it_likely_wins_more(
    more: bool, first: str, rules: ForecastRules
) -> None:
    """The ranges touch (62 to 80 and 50 to 80 ms), so neither is better for sure; what both hold errs alike in both."""
    half, both = question("half", "role = 'transport'", (0.4, 0.5, 1.0)), question("both", "role = 'transport'", (0.0, 0.2, 1.0))
    own, other = (PlanSetting(framework="f", key=key, from_=None, text=f"{key}: true", language="yaml", stays=False) for key in "ab")
    steps = [
        structs.replace(planned("half"), changes=(own,)),
        structs.replace(planned("both", "half"), changes=(own, other) if more else (other,)),
    ]
    asked = {one.id: one for one in (half, both)}
    found, _ = foreseen(steps, asked.__getitem__, Replays(graph(), rules), Free4All())  # type: ignore[arg-type]
    assert found[0].fix == first


def test_a_search_needs_the_order_of_a_plan_only_where_a_fix_of_numerics_has_alternatives() -> None:
    steps = [planned("precise"), planned("fused"), planned("graphs", "fused")]
    assert [undecided(steps, numerics) for numerics in ((), ("precise",), ("graphs",), ("fused",))] == [False, False, False, True]


def test_a_question_about_nothing_that_is_there_is_refused(rules: ForecastRules) -> None:
    refused = Replays(graph(), rules).unanswered(question("router", "bucket = 'router'"))
    assert refused is not None
    assert refused.reason == made.NOTHING_THERE
    there = sorted(graph().nodes["bucket"].drop_nulls().unique().cast(pl.String).to_list())
    assert refused.next_step == f"Here bucket is one of {', '.join(there)}."
    several = Replays(graph(), rules).unanswered(question("several", "bucket = 'router' AND us > 5"))
    assert several is not None
    assert several.next_step == ""


def test_a_timeline_of_what_was_replayed(rules: ForecastRules) -> None:
    replays = Replays(graph(), rules)
    shown = drawn(replays.after([HALF_LINK]).likely, 0)
    assert shown.columns is not None
    assert (shown.end_ns - shown.start_ns, shown.columns.duration_ns) == (65 * MS, (40 * MS, 15 * MS, 10 * MS))
    assert shown.columns.gap_duration_ns == (15 * MS, 10 * MS)


def test_the_mean_step_of_a_sum() -> None:
    from diagnose.document.forecast import Span

    assert per_step(Span(now=10, low=3, likely=4, high=5), 2) == Span(now=5, low=2, likely=2, high=2)


# --- questions in words -----------------------------------------------------------------------------------------------


@pytest.fixture
def context(rulebook: Rulebook) -> Context:
    return make_context({}, None, rulebook)


def test_a_wall_that_is_asked_away(context: Context, rules: ForecastRules) -> None:
    (asked,) = free_questions(Free(remove=("communication",)), context, rules)
    assert Replays(graph(), rules).after([asked]).span.likely == 50 * MS  # product and combine


@pytest.fixture
def rulebook(knowledge: Knowledge) -> Rulebook:
    return knowledge.rulebook


@for_each(
    "free, select, by",
    (Free(remove=("communication",)), "(node = 'op' AND role = 'transport' OR cause = 'message_passing')", None),
    (Free(remove=("cause:host_sync",)), "cause = 'host_sync'", None),
    (Free(remove=("bucket:router",)), "bucket = 'router'", None),
    (Free(remove=("name:it's",)), "name = 'it''s'", None),
    (Free(scale=("bucket:expert_gemm=0.7",)), "bucket = 'expert_gemm'", (0.7, 0.7, 0.7)),
    (Free(scale=("bucket = 'router' AND us > 5=2",)), "bucket = 'router' AND us > 5", (2.0, 2.0, 2.0)),
    (Free(link="2x"), "role = 'transport'", (0.5, 0.5, 1.0)),
)
def test_what_stands_on_the_command_line(free: Free, select: str, by: object, context: Context, rules: ForecastRules) -> None:
    (found,) = free_questions(free, context, rules)
    assert (found.changes[0].select, found.changes[0].by) == (select, by)


@for_each(
    "here, there, scaled",
    ("h100", "H200", {"memory bandwidth": 3.35 / 4.8}),
    ("h100", "h800", {"NVLink bandwidth": 450 / 200}),
    ("gb200", "b200", {"dense bf16 peak": 2500 / 2250}),
)
def test_another_gpu_scales_by_what_it_has_more_of_or_less(
    here: str, there: str, scaled: dict[str, float], context: Context, rules: ForecastRules
) -> None:
    asked = free_questions(Free(gpu=there), replace(context, values={**context.values, "platform": here}), rules)
    (change,) = asked[0].changes
    ((what, by),) = scaled.items()
    selects = {"memory bandwidth": rules.gpu.memory, "NVLink bandwidth": rules.gpu.link, "dense bf16 peak": rules.gpu.products}
    assert (change.transformation, change.select, change.basis) == ("scale", selects[what], "assumed")
    assert change.by == tuple(sorted((by, (by + 1) / 2, 1.0)))
    assert what in change.why


@for_each(
    "here, there, said",
    (None, "h200", "It is not known which GPU the trace ran on."),
    ("h100", "b200", "From hopper to blackwell kernels are others, and peaks tell little of them."),
    ("h100", "gh200", "Not known of both GPUs: memory bandwidth, NVLink bandwidth."),
    ("h100", "h100", "Peak, memory bandwidth and link are the same: nothing here would change."),
)
def test_another_gpu_of_which_too_little_is_known_is_refused(
    here: str | None, there: str, said: str, context: Context, rules: ForecastRules
) -> None:
    (asked,) = free_questions(Free(gpu=there), replace(context, values={**context.values, "platform": here}), rules)
    assert (asked.refused, asked.changes) == (said, ())


@for_each(
    "free, said",
    (Free(remove=("comunication",)), "Did you mean communication?"),
    (Free(scale=("bucket:router",)), "there is no factor"),
    (Free(link="fast"), "is no factor"),
    (Free(gpu="h300"), "no such platform"),
)
def test_what_can_not_be_understood(free: Free, said: str, context: Context, rules: ForecastRules) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        free_questions(free, context, rules)
