"""The report model: what a builder of `reports/` makes of a document, and what each writer of `writers/` writes, whatever the document.

Every text may come from a trace: it is each writer's duty to make it harmless. No number is made here; builders bring them as texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from diagnose.render.figures.figure import Figure

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Tool


# What a text or a row means, for writers that colour: no writer relies on colour alone.
Tone = Literal["", "strong", "weak", "good", "warning", "bad", "code"]

# --- tables -----------------------------------------------------------------------------------------------------------

Kind = Literal["text", "number", "name"]  # a name is shortened where it does not fit


class Column(Struct, frozen=True, kw_only=True):
    """One column.

    `weak` ones are left out where there is little room; `only` wide media show a sentence, only plain ones a bar made of signs.
    """

    label: str
    kind: Kind = "text"
    weak: bool = False
    only: Literal["", "wide", "plain"] = ""


class Row(Struct, frozen=True):
    """One row: what each of its columns says, in their order (see `Table.columns`). `indent` nests the first cell below the row above."""

    texts: Mapping[str, str]
    indent: int = 0
    strong: bool = False
    bar: float | None = None  # share of the longest bar of the table, 0..1
    colour: str = ""
    line: str = ""  # what stands behind the first cell where the table is listed

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts alone."""
        return tuple(self.texts.values())


class Table(Struct, frozen=True, dict=True):
    """A titled table. `note` explains its terms; `empty` is said instead when it has no rows; `copy` is a text to copy, below it.

    `whole`: its rows were chosen already, so that no writer cuts it. `listed`: the last cell of a row is sentences, which narrow media
    write below the others. `of`: how many things the rows tell of, where a row may tell of several. `shorter`: the same table for media
    that have room for fewer entries.
    """

    key: str
    title: str
    rows: tuple[Row, ...]
    note: str = ""
    empty: str = "nothing to show"
    copy: str = ""
    whole: bool = False
    listed: bool = False
    of: int | None = None
    shorter: Callable[[int], Table] | None = None

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns as every row spells them; none where there are no rows."""
        return tuple(map(_column, self.rows[0].texts)) if self.rows else ()


_MARKS = {"#": {"kind": "number"}, "$": {"kind": "name"}, "+": {"only": "wide"}, "~": {"only": "plain"}}


def _column(spelled: str) -> Column:
    """A column from its spelling: `#` before the label makes numbers, `$` names, `+` is for wide media only, `~` for plain ones.

    A `?` after it: weak.
    """
    label = spelled.lstrip("".join(_MARKS))
    marks: dict[str, Any] = {}
    for sign in spelled.removesuffix(label):
        marks |= _MARKS[sign]
    return Column(label=label.rstrip("?"), weak=label.endswith("?"), **marks)


def rows_of(texts: Iterable[Mapping[str, str]]) -> tuple[Row, ...]:
    """Plain rows."""
    return tuple(map(Row, texts))


def without(table: Table, only: Literal["wide", "plain"]) -> Table:
    """The table without the columns that `only` such media show."""
    left_out = {spelled for spelled in table.rows[0].texts if _column(spelled).only == only} if table.rows else set()
    rows = (replace(row, texts={spelled: text for spelled, text in row.texts.items() if spelled not in left_out}) for row in table.rows)
    return replace(table, rows=tuple(rows)) if left_out else table


# --- texts ------------------------------------------------------------------------------------------------------------


class Text(Struct, frozen=True, kw_only=True):
    """A paragraph; `quoted` is somebody else's text, line by line. `hint`: a remark about the report itself."""

    text: str
    tone: Tone = ""
    quoted: bool = False
    hint: bool = False


class Label(Struct, frozen=True, kw_only=True):
    """A text with what it is: `why: …`. `full` is the label where there is room for more words."""

    label: str
    text: str
    full: str = ""
    tone: Tone = ""


class Listing(Struct, frozen=True, kw_only=True):
    """Texts, one on a line; of many each writer shows the first."""

    texts: tuple[str, ...]


class Pairs(Struct, frozen=True, kw_only=True):
    """Two columns without a rule between them: what it is called on the left, what is said of it on the right."""

    rows: tuple[tuple[str, str], ...]
    head: tuple[str, str] = ("", "")


class Lines(Struct, frozen=True, kw_only=True):
    """Texts that are read letter by letter, one on a line: patterns, commands, code."""

    texts: tuple[str, ...]


class Entry(Struct, frozen=True, kw_only=True):
    """Something with a name and a title, and what is to be said of it. `about` says what kind of thing it is."""

    name: str
    title: str = ""
    about: str = ""
    parts: tuple[Label | Text | Labelled | Pairs, ...] = ()
    spaced: bool = False  # an empty line between its parts


class Labelled(Struct, frozen=True, kw_only=True):
    """A list, a pair of columns, or code, with what it is."""

    label: str
    content: Listing | Pairs | Lines


# --- the large parts --------------------------------------------------------------------------------------------------


class Phrase(Struct, frozen=True, kw_only=True):
    """A short remark that stands with others on a line. `to`: the part of the report that it points at.

    `wide`: only where there is room.
    """

    text: str
    tone: Tone = ""
    to: str = ""
    wide: bool = False


class Panel(Struct, frozen=True, kw_only=True):
    """The result in short. `look` is a key of `words.LOOKS`, `headline` the result in a word or two, `title` the same as a heading.

    `caption`: of what it is the result, where no page's head tells it.
    """

    name: str
    look: str
    headline: str
    title: str
    sentence: str
    caption: str = ""
    phrases: tuple[Phrase, ...] = ()
    texts: tuple[Text, ...] = ()
    reasons: tuple[str, ...] = ()
    reasons_label: str = ""


# --- the answer: what every output of a diagnosis begins with, in this order --------------------------------------------


class Masthead(Struct, frozen=True, kw_only=True):
    """Which run this is, and how fast, each as phrases for one line; `note` says how that was reckoned, or why it can't be told."""

    run: tuple[str, ...]
    speed: tuple[str, ...]
    note: str = ""


class Part(Struct, frozen=True, kw_only=True):
    """A part of the step: its name, colour, amount and percentage as text, and its share, 0..1."""

    key: str
    label: str
    colour: str
    amount: str
    percent: str
    share: float


class Claim(Struct, frozen=True, kw_only=True):
    """What of the step a wall claims, on the bar's scale: it begins where the first of its parts does, and is as long as its bound.

    Both are shares of the step, 0..1. Claims may overlap: each says what its wall alone would give back. `lower`: how much of it is sure.
    `line`: on which line below the bar there is room for it.
    """

    look: str
    title: str
    text: str
    meaning: str
    mark: str
    start: float
    share: float
    lower: float
    line: int = 1


class Bar(Struct, frozen=True, kw_only=True):
    """Where the step goes, on one bar: parts that add up to all of it.

    `unit` is that of the amounts, `whole` what they add up to, with its unit.

    `claims`: what of it each wall claims.
    """

    title: str
    unit: str
    whole: str
    parts: tuple[Part, ...]
    claims: tuple[Claim, ...] = ()
    empty: str = ""


class Written(Struct, frozen=True, kw_only=True):
    """Settings to copy, as they are written: lines of one language, with where they belong. `words` are for a person to choose by."""

    where: str
    language: Literal["yaml", "sh", "words"]
    lines: tuple[str, ...]


CHECK_FIRST = "check first"  # what a step needs, and what is not known of it


class Step(Struct, frozen=True, kw_only=True):
    """One thing to change.

    `number` is "1", or "1b" for what could be had instead, which `instead` says; `bound` and `faster` are "at most", and stand with the
    first of several that would win the same time.

    `needs`: what it needs and what is not known about it. `why`: the id of its finding. `forecast`: the step after it.
    """

    number: str
    title: str
    id: str
    state: str
    why: str
    bound: str
    faster: str
    settings: tuple[Written, ...]
    published: tuple[tuple[str, str], ...] = ()  # text, source
    needs: tuple[str, ...] = ()
    cost: str = ""
    instead: str = ""
    forecast: str = ""

    @property
    def details(self) -> Iterator[tuple[int, str, str]]:
        """What stands below a step where there is room: how much less each is worth than the step, its label, and its text."""
        if self.needs:
            yield 1, CHECK_FIRST, " ".join(self.needs)
        if self.published:
            text, source = self.published[0]
            yield 18, "published", f"{text} [{source}]"
        if self.cost:
            yield 24, "costs", self.cost


class Plan(Struct, frozen=True, kw_only=True):
    """What to change, in order.

    `empty` is said instead of steps; `ask` what a job file would decide; `forecast` what all of it would come to; `not_worth` what brings
    little here; `blocked` what can't be had now; `unanswered` why nothing can be set for the largest finding. `decided`: a job file decided
    which steps can be had.
    """

    title: str
    steps: tuple[Step, ...]
    decided: bool = True
    empty: str = ""
    blocked: tuple[str, ...] = ()
    unanswered: str = ""
    not_worth: str = ""
    ask: str = ""
    forecast: str = ""

    @property
    def ranked(self) -> Iterator[tuple[Step, int, int]]:
        """Each step, how many steps stand up to it, and, of what could be had instead of one, how many of these."""
        main = others = 0
        for step in self.steps:
            main, others = (main, others + 1) if step.instead else (main + 1, 0)
            yield step, main, others


class Remarks(Struct, frozen=True, kw_only=True):
    """What to know before the answer is believed, of most worth first."""

    title: str
    texts: tuple[str, ...]


class Commands(Struct, frozen=True, kw_only=True):
    """What to do next: what for, and the exact command; a closing line about what is not shown here.

    `typed`: the same rows for the user's own screen, with files as he typed them.
    """

    title: str
    rows: tuple[tuple[str, str], ...]
    typed: tuple[tuple[str, str], ...]
    closing: str = ""


class Point(Struct, frozen=True, kw_only=True):
    """One of a few points: who or what it is about, short parts, and what it rests on."""

    name: str
    parts: tuple[str, ...]
    evidence: str


class Points(Struct, frozen=True, kw_only=True):
    """A few points below a title, and lines that hold for all. `more` more are in the table called `more_in`, whose key is `to`."""

    name: str
    title: str
    points: tuple[Point, ...]
    more: int
    more_in: str
    to: str
    lines: tuple[str, ...]


class Setting(Struct, frozen=True, kw_only=True):
    """One setting that a fix changes.

    `line` says it all in short; `to` is what to do with it, `exact` whether that is written letter by letter.
    """

    framework: str
    key: str
    now: str | None
    verb: str
    to: str
    exact: bool
    stays: bool
    line: str


class Remedy(Struct, frozen=True, kw_only=True):
    """A fix of a finding. `sign` and `word` tell its `state`, `notes` what is told only of one that can be applied.

    `above`: title and id of the finding before this one under which the same is told in full.

    `settings_line`: by framework, what changes; empty where that is not to be told in short.
    """

    id: str
    title: str
    state: str
    sign: str
    word: str
    open: bool
    reasons: tuple[str, ...]
    settings: tuple[Setting, ...]
    settings_line: tuple[tuple[str, str], ...]
    unread: str  # what stands for the present value of a setting that the job file does not hold
    expected: tuple[tuple[str, str], ...]  # text, source
    forecast: str  # the step with it alone
    notes: tuple[Label, ...]
    evidence: str
    refs: tuple[str, ...]
    above: tuple[str, str] | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """One finding.

    `state` says what became of it between two runs; `loud` ones are told in full, `opened` ones are so on a page from the start.

    `meaning` says in full what `kind` is short for. `notes` are told after the evidence.
    """

    id: str
    title: str
    severity: str
    look: str
    kind: tuple[str, ...]
    meaning: str
    bound: str
    summary: str
    state: str = ""
    loud: bool = True
    opened: bool = False
    evidence: tuple[tuple[str, str], ...] = ()
    where: str = ""
    top: tuple[str, ...] = ()
    notes: tuple[Label, ...] = ()
    refs: tuple[str, ...] = ()
    fixes: tuple[Remedy, ...] = ()


class Findings(Struct, frozen=True, kw_only=True):
    """Findings as a list: each in short, of many the first. `more`: how many were left out of it."""

    findings: tuple[Finding, ...]
    more: int = 0


class Versus(Struct, frozen=True, kw_only=True):
    """One figure of two things: texts of both, the difference, and a bar of `width` percent (first more: to the right)."""

    place: int
    label: str
    unit: str  # ms, count or text
    first: str
    second: str
    difference: str
    more: bool
    width: str


class SideBySide(Struct, frozen=True, kw_only=True):
    """Two of many things side by side, in sections, to be chosen by the reader of a page that runs our script.

    `data`: all of them, for the script.
    """

    first: str
    second: str
    note: str
    sections: tuple[tuple[str, tuple[Versus, ...]], ...]
    data: Mapping[str, Any]


Answer = Masthead | Bar | Plan | Remarks | Commands
Content = Text | Listing | Pairs | Lines | Entry | Table | Panel | Points | Finding | Findings | Figure | SideBySide | Answer

# How much a medium has room for: a terminal, a text of limited length, a page.
TERMINAL, LIMITED, PAGE = 0, 1, 2
# How much of a report a reader asked a terminal for: the answer, every finding, everything.
ANSWER, FINDINGS, EVERYTHING = 0, 1, 2


class Block(Struct, frozen=True, kw_only=True):
    """Where a part of the report stands.

    `section`: the one that it belongs to on a page (none: above all sections). `worth`: where length is limited the parts of most worth
    come first. `least`, `most`: the room between which it is written. `aside`: folded where length is limited; `folded`: on pages, under
    `fold` where several share one. `brief`: stands for it where length is limited, and the whole comes folded, later. `column`: left (1) or
    right (2) where two stand side by side. `detail`: what has to be asked for before a terminal writes it; `until`: up to what that it
    still does.
    """

    content: Content
    section: str = ""
    name: str = ""
    worth: int = 0
    least: int = TERMINAL
    most: int = PAGE
    aside: bool = False
    folded: bool = False
    fold: str = ""
    brief: Table | None = None
    column: int = 0
    detail: int = ANSWER
    until: int = EVERYTHING

    @property
    def names(self) -> frozenset[str]:
        """What the part is called by those who ask for it alone."""
        key = getattr(self.content, "key", "") if isinstance(self.content, Table) else ""
        plain = key.rstrip("0123456789-")
        kind = type(self.content).__name__.lower() if isinstance(self.content, Answer) else ""
        names = (self.section, self.section.rstrip("0123456789-"), self.name, plain, kind)
        return frozenset(name.lower().replace(" ", "-") for name in names if name)


class Section(Struct, frozen=True, kw_only=True):
    """A section of a page. Without a title its only table gives one. `headed`: other media give it a heading too, with `count`.

    `folded`: a page opens it with a click, in `printed` ones for print as well.
    """

    id: str
    title: str = ""
    nav: str = ""
    headed: bool = False
    count: int | None = None
    folded: bool = False
    printed: bool = False


class Report(Struct, frozen=True, kw_only=True):
    """A document as something to read. `title` names a page, `heading` says above it what it is about, `about` of which runs.

    `sentence` and `first_try` are said again at the end of what scrolls by; `terms` explains signs there. Without a `tool` nothing is said
    of it. `more`: how to see the rest, where a terminal that was asked for no more than the answer cuts lists short.
    """

    title: str
    heading: str
    about: str
    blocks: tuple[Block, ...]
    sections: tuple[Section, ...] = ()
    tool: Tool | None = None
    schema: str = ""
    sentence: str = ""
    first_try: str = ""
    terms: str = ""
    more: str = ""
