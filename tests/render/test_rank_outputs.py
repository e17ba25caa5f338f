"""What the outputs say about ranks: numbers, sentences, sizes with hundreds of ranks, and silence where one rank was captured."""

import json
import re
from collections.abc import Sequence

import msgspec

from diagnose.document import diagnosis as d
from diagnose.document import ranks as k
from diagnose.document.device import Spread
from diagnose.render import units, words
from diagnose.render.report import Table
from diagnose.render.reports.diagnosis import tables
from diagnose.render.reports.ranks import pair as rank_compare
from diagnose.render.reports.ranks import story as rank_story
from diagnose.render.reports.ranks import tables as rank_tables
from diagnose.render.writers.markdown.page import MOST_BYTES, MOST_RANKS
from tests.builders.cases import for_each
from tests.builders.diagnosis import many_ranks, minimal, ms, rich, rich_ranks
from tests.render.reading import PAGES, rendered


def having(ranks: k.Ranks | None) -> d.Diagnosis:
    return msgspec.structs.replace(rich(), ranks=ranks)


def changed(**fields: object) -> k.Ranks:
    return msgspec.structs.replace(rich_ranks(), **fields)


def visible(page: str) -> str:
    """What a page says, without its scripts."""
    return re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)


def column(table: Table, label: str) -> list[str]:
    labels = [one.label for one in table.columns]
    return [row.cells[labels.index(label)] for row in table.rows]


# --- one rank ---------------------------------------------------------------------------------------------------------


@for_each("format_", *PAGES)
def test_one_rank_is_told_nothing_about_ranks(format_: str) -> None:
    for document in (minimal(), having(None)):
        report = visible(rendered(format_, document))
        for said in (
            "are stragglers", "Like groups", "Matched exchanges", "Clocks", "are unknown", 'id="ranks"', "side by side",
        ):  # fmt: skip
            assert said not in report


def test_a_page_of_one_rank_has_no_script_for_ranks() -> None:
    assert "rank-data" not in rendered("html", having(None))


def _nothing() -> k.Ranks:
    """A section in which everything that may be empty is."""
    return k.Ranks(
        world_size=None, captured=2, slowest=0, chosen="", problems=(), groups=(), survey=(), clocks=(), exchanges=(), late=(), skew=(),
        experts=(), pipeline=None, tail=(),
    )  # fmt: skip


def _unmeasured() -> k.Ranks:
    """Two ranks that no group names, without steps, buckets, exchanges."""
    bare = [
        msgspec.structs.replace(
            one,
            step=Spread(median=None, min=None, max=None),
            steps=(),
            buckets={},
            collectives={},
            wait_ns=None,
            transfer_ns=None,
            group="",
        )
        for one in rich_ranks().survey[:2]
    ]
    return msgspec.structs.replace(_nothing(), survey=tuple(bare))


@for_each("ranks", _nothing(), _unmeasured())
@for_each("format_", *PAGES)
def test_what_was_not_measured_of_ranks_is_never_zero(format_: str, ranks: k.Ranks) -> None:
    report = visible(rendered(format_, having(ranks)))
    assert "he straggler is unknown" in report
    assert "The verdict is of rank 0." in report
    assert "()" not in report
    assert "no collective was matched between ranks" in report
    table = rank_tables.survey(rich(), ranks, 16)
    assert {cell for label in ("step", "w/o wait", "waiting", "transfer", "min–max") for cell in column(table, label)} <= {units.MISSING}


# --- names and choices ------------------------------------------------------------------------------------------------


@for_each(
    "numbers, said",
    ([], ""),
    ([4], "4"),
    ([4, 5], "4, 5"),
    ([7, 5, 6, 6], "5–7"),
    ([0, 1, 2, 8, 9, 10, 12], "0–2, 8–10, 12"),
    (range(0, 40, 4), "0, 4, 8, 12, 16, 20, 24, 28 and 2 more"),
    ([0, 1, 2, *range(4, 40, 2)], "0–2, 4, 6, 8, 10, 12, 14, 16 and 11 more"),
)
def test_ranks_are_listed_as_runs(numbers: Sequence[int], said: str) -> None:
    assert rank_story.ranges(numbers) == said


def test_each_surveyed_device_has_a_name_of_its_own() -> None:
    first, second = rich_ranks().survey[:2]
    twice = changed(survey=(first, msgspec.structs.replace(first, device=1), first, second))
    assert rank_story.labels(twice) == ["rank 0, device 0", "rank 0, device 1", "rank 0, device 0 (2)", "rank 1"]


@for_each("most", 16, 24, 48)
def test_a_short_table_shows_the_verdict_the_late_and_the_ends_of_each_group(most: int) -> None:
    ranks = many_ranks(512, stages=4)
    ranks = msgspec.structs.replace(
        ranks, slowest=300, late=ranks.late[:2], skew=(k.StartSkew(rank=401, begins_ns=-1, ends_ns=0, text=""),)
    )
    shown = {ranks.survey[place].rank for place in rank_story.chosen_places(ranks, most)}
    assert len(shown) == most
    ends = {one.rank for _, places in rank_story.grouped(ranks) for one in _ends(ranks, places)}
    assert shown >= {300, 5, 69, 401} | ends


def _ends(ranks: k.Ranks, places: list[int]) -> tuple[k.RankSurvey, k.RankSurvey]:
    pace = rank_story.by_pace([ranks.survey[place] for place in places])
    return pace[0], pace[-1]


def test_who_is_slow_is_told_by_own_time_and_not_by_the_common_step() -> None:
    members = [one for one in rich_ranks().survey if one.group == "stage 1"]
    assert [one.rank for one in rank_story.by_pace(members)] == [5, 4, 6]  # nothing of rank 7 was matched
    unmatched = [msgspec.structs.replace(one, steps=()) for one in members]
    assert rank_story.by_pace(unmatched)[0].step.median == max(one.step.median or 0 for one in members)


def test_the_slowest_is_compared_with_the_one_in_the_middle_of_its_group() -> None:
    places = rank_story.compared(many_ranks(512))
    assert places is not None
    first, second = (many_ranks(512).survey[place] for place in places)
    assert first.rank == 5
    assert second.group == first.group
    assert rank_story.own_time(second) == ms(196.72)
    assert rank_story.compared(changed(survey=rich_ranks().survey[:1])) is None


# --- the headline -----------------------------------------------------------------------------------------------------


@for_each(
    "ranks, title",
    (changed(late=()), "No captured rank is a straggler"),
    (changed(late=(), exchanges=()), "The straggler is unknown: no collective was matched between ranks"),
    (
        changed(late=(), clocks=(), survey=tuple(msgspec.structs.replace(one, host="unknown") for one in rich_ranks().survey)),
        "The straggler is unknown: too few collectives were matched to compare the clocks of the ranks",
    ),
    (
        changed(late=(), exchanges=tuple(msgspec.structs.replace(one, matched=0) for one in rich_ranks().exchanges)),
        "The straggler is unknown: no collective was matched between ranks",
    ),
    (changed(late=rich_ranks().late[1:2]), "Rank 5 is the straggler"),
    (changed(late=(msgspec.structs.replace(rich_ranks().late[1], alike=(6,)),)), "Ranks 5 and 6 are stragglers"),
    (changed(late=rich_ranks().late[2:]), "Ranks take turns as the straggler; no single one is"),
    (many_ranks(512), "Ranks 5, 69, 133, 197, 261, 325, 389, 453 are stragglers"),
)
def test_the_title_says_plainly_who_is_late(ranks: k.Ranks, title: str) -> None:
    assert rank_story.headline(having(ranks), ranks).title == title


def test_the_title_names_the_rank_that_single_steps_make_late() -> None:
    """By the median it takes as long as the others; in one of four steps 9 ms more."""
    steps = [k.StepTime(index=number, window_ns=ms(120), own_ns=ms(100)) for number in range(4)]
    late_once = [*steps[:3], msgspec.structs.replace(steps[3], own_ns=ms(109))]
    survey = [msgspec.structs.replace(one, steps=tuple(late_once if one.rank == 0 else steps)) for one in rich_ranks().survey]
    found = changed(late=(), survey=tuple(survey), slowest=0)
    assert rank_story.headline(having(found), found).title == (
        "No captured rank is a straggler in most steps; in single ones the others wait for rank 0"
    )
    assert rank_story.headline(having(found), changed(late=(), survey=tuple(survey), slowest=1)).title == "No captured rank is a straggler"


def test_late_ranks_beyond_three_are_counted() -> None:
    said = rank_story.headline(having(many_ranks(512)), many_ranks(512))
    assert (len(said.points), said.more) == (3, 5)


@for_each(
    "world, captured, said",
    (16, 8, "8 of 16 ranks were captured (0–7); the other 8 are unknown."),
    (9, 8, "8 of 9 ranks were captured (0–7); the other one is unknown."),
    (8, 8, "All 8 ranks of the job were captured."),
    (None, 8, "8 ranks were captured (0–7); the size of the job is not recorded."),
)
def test_of_how_many_ranks_it_speaks(world: int | None, captured: int, said: str) -> None:
    assert rank_story.coverage(changed(world_size=world, captured=captured)) == said


@for_each(
    "world, said",
    (16, "8 of 16 ranks were captured (0–7); the other 8 are unknown, and these may wait for one of them."),
    (9, "8 of 9 ranks were captured (0–7); the other one is unknown, and these may wait for it."),
)
def test_where_no_captured_rank_is_late_another_may_be(world: int, said: str) -> None:
    assert rank_story.coverage(changed(world_size=world, captured=8, late=())) == said
    assert "may wait" not in rank_story.coverage(changed(world_size=world, captured=8, late=(), exchanges=())), "nothing was matched"


@for_each("format_", *PAGES)
def test_nothing_is_called_network_time(format_: str) -> None:
    ours = [
        rank_tables.groups(rich_ranks()),
        rank_tables.survey(rich(), rich_ranks(), 16),
        rank_tables.late(rich(), rich_ranks()),
        *rank_tables.balanced(rich(), rich_ranks()),
    ]
    assert [table.key for table in ours if "network" in f"{table.title}{table.columns}{table.note}".lower()] == []
    assert "network time" not in visible(rendered(format_, rich())).lower()
    assert rank_story.WAIT_AND_TRANSFER.split(":")[0] == "Transfer"


# --- numbers ----------------------------------------------------------------------------------------------------------


@for_each("width", 60, 80, 100, 140)
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    lines = rendered("text", rich(), width=width).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("Ranks, in ms"))
    end = next(index for index, line in enumerate(lines) if line.startswith("Budget"))
    assert [line for line in lines[start:end] if re.search(r"\d…", line)] == []


def test_transfer_among_some_of_a_group_is_an_upper_bound() -> None:
    one = rich_ranks().exchanges[0]
    rows = (msgspec.structs.replace(one, size=len(one.ranks)), msgspec.structs.replace(one, size=2 * len(one.ranks)))
    table = rank_tables.exchanges(rich(), changed(exchanges=rows))
    assert column(table, "transfer") == [units.ms(one.transfer_ns), f"≤ {units.ms(one.transfer_ns)}"]
    assert "upper bound" in table.note
    assert "upper bound" not in rank_tables.exchanges(rich(), changed(exchanges=rows[:1])).note
    for of_all, mark in ((rows[:1], ""), (rows[1:], "≤ ")):
        table = tables.communication(having(changed(exchanges=of_all)), 0, 0)
        assert column(table, "transfer ms")[0].startswith(f"{mark}54.5")
        assert ("so the transfer is an upper bound" in table.note) == bool(mark)


def test_words_exist_for_every_member_of_every_vocabulary() -> None:
    for record, name, known in (
        (k.Late, "pattern", words.LATE_PATTERN),
        (k.Late, "cause", words.LATE_CAUSE),
        (k.MatchedExchange, "by", words.MATCHED_BY),
        (k.LikeGroup, "by", words.LIKE_GROUP_BY),
        (k.RankProblem, "kind", words.RANK_PROBLEM),
    ):
        types = {one.name: one.type for one in msgspec.structs.fields(record)}
        assert set(known) == set(msgspec.inspect.type_info(types[name]).values)  # type: ignore[attr-defined]


# --- two ranks ---------------------------------------------------------------------------------------------------------


def test_two_ranks_side_by_side() -> None:
    found = rank_compare.comparison(rich(), rich_ranks())
    assert found is not None
    assert (found.first, found.note) == ("rank 0", rank_compare.SAME)
    lines = {line.label: line for _, part in found.sections for line in part}
    assert (lines["time without waiting for others"].first, lines["time without waiting for others"].difference) == ("214.810", "+20.400")
    assert (lines["waiting in matched collectives"].difference, lines["waiting in matched collectives"].more) == ("-20.400", False)
    assert (lines["permute/unpermute"].difference, lines["expert alltoall"].first) == ("0.000", "192")
    places = {line.label: line.place for _, part in found.sections for line in part}
    assert found.data["ranks"][5]["values"][places["attention"]] == ms(30.9 * 1.09)
    assert found.data["ranks"][7]["values"][places["waiting in matched collectives"]] is None
    assert found.data["ranks"][1]["values"][places["loss"]] == 0
    assert [one["remark"] for one in found.data["ranks"]] == [" · late", "", "", "", "", " · late", "", ""]


def test_a_rank_that_makes_none_of_an_exchange_has_none_of_it_and_not_one() -> None:
    first, second, *_ = rich_ranks().survey
    found = rank_compare.comparison(rich(), changed(survey=(first, msgspec.structs.replace(second, collectives={}, buckets={}))))
    assert found is not None
    places = {line.label: line.place for _, part in found.sections for line in part}
    assert [found.data["ranks"][1]["values"][places[name]] for name in ("expert alltoall", "attention")] == [0, 0]


def test_ranks_of_different_or_unnamed_groups_are_not_called_alike_in_silence() -> None:
    lonely = changed(survey=(rich_ranks().survey[0], rich_ranks().survey[4]))
    found = rank_compare.comparison(rich(), lonely)
    assert found is not None
    assert found.note == rank_compare.DIFFERENT
    found = rank_compare.comparison(rich(), _unmeasured())
    assert found is not None
    assert found.note == rank_compare.UNKNOWN
    assert [one["group"] for one in found.data["ranks"]] == [None, None]


# --- hundreds of ranks ------------------------------------------------------------------------------------------------


def test_five_hundred_ranks_fit_into_markdown() -> None:
    report = rendered("markdown", having(many_ranks(512)))
    assert len(report.encode()) <= MOST_BYTES
    assert "Left out to stay below" not in report
    assert len([line for line in report.splitlines() if line.startswith("| &emsp;rank ")]) == MOST_RANKS
    assert "488 of 512 ranks are left out" in report
    assert [line for line in report.splitlines() if line.startswith("| **stage ")] != []


def test_a_terminal_shows_a_few_of_five_hundred_ranks_and_says_so() -> None:
    report = rendered("text", having(many_ranks(512)))
    assert "496 of 512 ranks are left out" in report
    assert len(re.findall(r"^   rank \d+ .*\d\.\d{3}", report, flags=re.MULTILINE)) == 16
    assert len(report.splitlines()) < len(rendered("text", rich()).splitlines()) + 60


def test_a_page_of_five_hundred_ranks_holds_all_and_stays_small() -> None:
    page = rendered("html", having(many_ranks(512)))
    assert len(page) - len(rendered("html", having(None))) < 3_000_000
    survey = page[page.index('id="rank-survey"') :]
    survey = re.sub(r"\s+", " ", survey[: survey.index("</table>")]).replace(" </th>", "</th>")
    assert [rank for rank in range(512) if f">rank {rank}</th>" not in survey] == []
    assert len(json.loads(re.search(r'id="rank-data">(.*?)</script>', page).group(1))["ranks"]) == 512  # type: ignore[union-attr]
