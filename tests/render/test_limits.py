"""What writers with little room leave out is counted: a list that just fits is shown whole, of a longer one the rest is a number."""

import re
from collections.abc import Callable
from types import ModuleType

from diagnose.render import report as r
from diagnose.render.writers import Options
from diagnose.render.writers.markdown import page
from diagnose.render.writers.terminal import layout
from tests.builders.cases import for_each

WRITE: dict[str, tuple[ModuleType, Callable[[r.Report], str]]] = {
    "terminal": (layout, lambda report: layout.printed(report, Options(width=100))),
    "markdown": (page, page.page),
}
PANEL = {"name": "verdict", "look": "result-open", "headline": "open", "title": "open", "sentence": "Nobody knows."}
FINDING = {"severity": "high", "look": "", "kind": (), "meaning": "", "bound": "", "summary": "slow", "state": "worse"}


def names(count: int) -> tuple[str, ...]:
    return tuple(f"item{place:03d}x" for place in range(count))


def findings(count: int) -> r.Findings:
    return r.Findings(findings=tuple(r.Finding(id=name, title="found", **FINDING) for name in names(count)))  # type: ignore[arg-type]


CONTENTS: dict[str, tuple[str, Callable[[int], r.Content]]] = {
    "a listing": ("MOST_LISTED", lambda count: r.Listing(texts=names(count))),
    "findings": ("MOST_LISTED", findings),
    "reasons": ("MOST_REASONS", lambda count: r.Panel(reasons=names(count), **PANEL)),
    "rows": ("MOST_ROWS", lambda count: r.Table("kernels", "Kernels", r.rows_of({"name": name} for name in names(count)))),
    "all rows": ("MOST_ROWS", lambda count: r.Table("plan", "Plan", r.rows_of({"name": name} for name in names(count)), whole=True)),
}


@for_each("writer, what", *((writer, what) for writer in WRITE for what in CONTENTS))
def test_a_list_is_whole_up_to_its_limit_and_what_is_beyond_is_counted(writer: str, what: str) -> None:
    module, write = WRITE[writer]
    named, content = CONTENTS[what]
    most = getattr(module, named)
    for count in (most, most + 1, most + 30):
        beyond = 0 if what == "all rows" else count - most
        said = write(r.Report(title="t", heading="h", about="", blocks=(r.Block(content=content(count)),)))
        assert tuple(re.findall(r"item\d{3}x", said)) == names(count - beyond)
        assert re.findall(r"(\d+) more\b", said) == [str(beyond)] * (beyond > 0)


@for_each("writer", *WRITE)
def test_every_remark_of_a_panel_that_is_not_for_wide_media_is_said(writer: str) -> None:
    _, write = WRITE[writer]
    phrases = (r.Phrase(text="plain"), r.Phrase(text="grave", tone="bad"), r.Phrase(text="broad", wide=True))
    panel = r.Panel(phrases=phrases, texts=(r.Text(text="above"),), **PANEL)  # type: ignore[arg-type]
    said = write(r.Report(title="t", heading="h", about="", blocks=(r.Block(content=panel),)))
    assert sorted(re.findall("plain|grave|broad|above", said)) == ["above", "grave", "plain"]


def test_pairs_stand_below_each_other_on_a_terminal_where_the_left_one_is_a_sentence() -> None:
    def lines(left: int) -> list[str]:
        pairs = r.Pairs(rows=(("a" * left, "b"), ("c", "d")))
        said = layout.printed(r.Report(title="t", heading="h", about="", blocks=(r.Block(content=pairs),)), Options(width=100))
        return [line.strip() for line in said.splitlines()]

    assert lines(40) == [f"{'a' * 40}  b", f"c{' ' * 39}  d"]
    assert lines(41) == [f"- {'a' * 41}", "[b]", "- c", "[d]"]


@for_each("wide, left_out", (6, False), (7, True))
def test_columns_for_which_a_terminal_has_no_room_are_named(wide: int, left_out: bool) -> None:
    """Three columns, each three signs wider than what stands in it, on 60."""
    table = r.Table("kernels", "Kernels", r.rows_of([{"first": "1", "#second?": "2" * 40, "#third?": "3" * wide}]))
    said = layout.printed(r.Report(title="t", heading="h", about="", blocks=(r.Block(content=table),)), Options(width=60))
    assert ("Left out for lack of room: third." in said) == left_out
    assert ("333" in said) != left_out
