"""How a report is laid out on a terminal, with rich.

Nothing from a trace reaches the terminal as anything but visible text: no markup, no escape codes, no line of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from msgspec.structs import replace
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel as Frame
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text as Words

from diagnose.knowledge.templates import capitalised
from diagnose.model.names import shorten, visible
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.writers import NARROWEST, WIDEST, Options
from diagnose.render.writers.terminal import answer

MOST_ROWS = 12  # rows of a list that grows with the trace; the other outputs hold all
MOST_ON_SCREEN = 4  # of its rows, of findings and of reasons, where the answer alone was asked for
MOST_ROWS_LONG = 40  # of lists that are as long as the vocabulary
MOST_RANKS = 16  # entries of a table that can be made shorter
MOST_REASONS = 8
MOST_LISTED = 12  # texts of a list, findings of a list, lines of somebody's text
MOST_TOP = 5
_LEFT = 40  # the widest left one of two columns; longer ones are sentences, which stand above what belongs to them
_LOOKS = {
    **{name: words.VOCABULARY.wall_style(name) for name in words.WALL},
    "result-bad": "red",
    "result-good": "green",
    "result-same": "blue",
    "result-open": "yellow",
    "result-refused": "magenta",
}
_SEVERITY = {"high": "bold red", "medium": "yellow", "low": "dim"}
_STATE = {"applicable": "bold green", "already_on": "dim", "blocked": "red", "unknown": "yellow"}
_TONES = {"": "", "strong": "bold", "weak": "dim", "good": "green", "warning": "yellow", "bad": "bold red", "code": "cyan"}

# A number keeps its unit on its line: rich breaks at every kind of space, so a private sign (which no visible text holds) stands in.
_GLUE = "\ue000"

# A line that starts so is an order to a CI runner, even behind spaces.
_WORKFLOW_COMMAND = re.compile(r"^(\s*)(?=::|##\[|##vso|##teamcity)", re.MULTILINE)


def printed(report: r.Report, options: Options) -> str:
    """The report as text of `options.width` columns, as far as that helps reading, with colours where `options.color` is set."""
    width = min(max(options.width, NARROWEST), WIDEST)
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=options.color,
        no_color=not options.color,
        color_system="standard" if options.color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        force_jupyter=False,  # in a notebook it would show every line by itself, and the text would stay empty
        _environ={},
    )
    shown = _asked(report, options)
    for part in _arranged(shown, width, options):
        console.print(part)
    lines = [line.rstrip() for line in out.getvalue().replace(_GLUE, " ").splitlines()]
    first = next((place for place, line in enumerate(lines) if line), 0)
    return _WORKFLOW_COMMAND.sub(r"\1\\", "\n".join(lines[first:])) + "\n"


def _asked(report: r.Report, options: Options) -> r.Report:
    """The report with what was asked for: named parts alone, or all up to a detail. What scrolls by ends with the verdict."""
    blocks = [block for block in report.blocks if block.least <= r.TERMINAL <= block.most]
    if options.sections:
        wanted = [block for block in blocks if block.names & set(options.sections) and block.until == r.EVERYTHING]
        return replace(report, blocks=tuple(wanted), sentence="")
    shown = replace(report, blocks=tuple(block for block in blocks if block.detail <= options.detail <= block.until))
    if options.detail > r.ANSWER:
        return shown
    answered = any(isinstance(block.content, r.Masthead) for block in blocks)
    return _on_a_screen(shown) if report.more else replace(shown, sentence="" if answered else report.sentence)


def _on_a_screen(report: r.Report) -> r.Report:
    """The report with its lists cut short and what is brief in place of the whole."""
    first, *others = (replace(block, content=_cut(block.content if block.brief is None else block.brief)) for block in report.blocks)
    caption = first.content.caption if isinstance(first.content, r.Panel) else ""
    of, more = ([r.Block(content=r.Text(text=text, hint=True))] if text else [] for text in (caption, report.more))
    return replace(report, blocks=(first, *of, *others, *more), sentence="")


def _cut(content: r.Content) -> r.Content:
    """The beginning of what lists many things; of findings those that came or got worse, without their explanations."""
    match content:
        case r.Table(rows=rows, whole=False) if len(rows) > MOST_ON_SCREEN:
            return replace(content, rows=rows[:MOST_ON_SCREEN], note=f"… and {len(rows) - MOST_ON_SCREEN} more with -v")
        case r.Table():
            return replace(content, note="")
        case r.Panel(reasons=reasons) if len(reasons) > MOST_ON_SCREEN:
            return replace(content, reasons=(*reasons[: MOST_ON_SCREEN - 1], f"{len(reasons) - MOST_ON_SCREEN + 1} more with -v"))
        case r.Findings(findings=findings):
            loud = [replace(one, summary="", notes=()) for one in findings if one.loud]
            return r.Findings(findings=tuple(loud[:MOST_ON_SCREEN]), more=max(len(loud) - MOST_ON_SCREEN, 0))
    return content


def _arranged(report: r.Report, width: int, options: Options) -> Iterator[RenderableType]:
    """What is printed, one after the other.

    The answer, the blocks in their order, with the headings of their sections, then the closing lines.
    """
    answers = any(isinstance(block.content, r.Masthead) for block in report.blocks)
    first = [block for block in report.blocks if isinstance(block.content, r.Answer) or (answers and block.name == "verdict")]
    if first:
        look = next((_LOOKS[block.content.look] for block in first if isinstance(block.content, r.Panel)), "")
        whole = options.detail > r.ANSWER or bool(options.sections)
        yield from answer.lines([block.content for block in first], look, width, whole=whole)
        report = replace(report, blocks=tuple(block for block in report.blocks if block not in first))
    sections = {section.id: section for section in report.sections}
    headed: set[str] = set()
    last = ""
    for block in report.blocks:
        section = sections.get(block.section)
        titled = section is not None and section.headed
        if section is not None and titled and section.id not in headed:
            headed.add(section.id)
            yield _heading(section.title if section.count is None else f"{section.title} ({section.count})")
        elif isinstance(block.content, r.Text | r.Listing) and block.section != last:
            yield Words()
        last = block.section
        heading = section.title if section is not None and titled else ""
        yield from _content(block, heading, width, short=bool(report.more) and options.detail == r.ANSWER)
    if report.sentence:
        yield Words()
        yield Rule(style="dim", characters="─")
        yield _closing(report)


def _closing(report: r.Report) -> RenderableType:
    line = Words(_shown(report.sentence))
    if report.first_try:
        line.append("\nfirst to try: ", style="dim")
        line.append(_shown(report.first_try))
    if report.tool is not None:
        rules = report.tool.rules_sha256[:12]
        tool = f"{report.tool.name} {report.tool.version}{f', rules {rules}' if rules else ''}"
        terms = f"{report.terms}; " if report.terms else ""
        line.append(f"\n{_shown(tool)}; {terms}“{units.MISSING}” means not measured", style="dim")
    return line


# --- texts ------------------------------------------------------------------------------------------------------------


def _shown(text: str) -> str:
    """A text from anywhere as it may stand on the terminal."""
    return units.glued(visible(text), _GLUE)


def _heading(title: str) -> Words:
    """A heading with an empty line above it."""
    return Words(f"\n{_shown(title)}", style="bold underline")


def _hint(text: str) -> RenderableType:
    """A remark."""
    return Padding(Words(_shown(text), style="dim"), (0, 0, 0, 1))


def _line(*spans: tuple[str, str]) -> Words:
    """Texts from anywhere on one line, each in its style."""
    return Words.assemble(*((_shown(text), style) for text, style in spans))


def _label(body: list[RenderableType], label: str, text: str, style: str = "") -> None:
    """Append `label: text`, unless there is no text."""
    if text:
        body.append(_line((f"{label}: ", "dim"), (text, style)))


def _indented(body: list[RenderableType], left: int) -> RenderableType:
    return Padding(Group(*body), (0, 0, 0, left))


def _content(block: r.Block, heading: str, width: int, *, short: bool) -> Iterator[RenderableType]:
    """One part of the report; figures and what a reader chooses on a page have nothing to say here. `short`: hints are left out."""
    match block.content:
        case r.Panel() as panel:
            yield _panel(panel)
        case r.Points() as points:
            yield _points(points)
        case r.Table() as table:
            yield from _table(table, width, heading, short=short)
        case r.Finding() as finding:
            yield _finding(finding, width)
        case r.Findings(findings=findings, more=more):
            yield from (_brief(finding) for finding in findings[:MOST_LISTED])
            if more:
                yield _hint(f"… and {more} more with -v")
            if len(findings) > MOST_LISTED:
                yield _hint(f"… and {len(findings) - MOST_LISTED} more in the HTML and JSON outputs")
        case r.Entry() as entry:
            yield _entry(entry, 1 if block.section else 0)
        case r.Text() as text:
            yield _text(text, 1 if block.section else 0)
        case r.Listing() as listing:
            yield from _listing(listing)
        case r.Pairs() as pairs:
            yield _indented([_pairs(pairs)], 1)
        case r.Lines(texts=texts):
            yield _indented([Words(_shown(text), style="cyan") for text in texts], 1)


def _text(text: r.Text, left: int) -> RenderableType:
    if text.hint:
        return _hint(text.text)
    if not text.quoted:
        return _indented([_line((text.text, _TONES[text.tone]))], left)
    lines = [line.rstrip() for line in text.text.splitlines()]
    body: list[RenderableType] = [Words(_shown(line), style="cyan") for line in lines[:MOST_LISTED]]
    if len(lines) > MOST_LISTED:
        body.append(Words(f"… {len(lines) - MOST_LISTED} more lines in the HTML and JSON outputs", style="dim"))
    return _indented(body, left)


def _listing(listing: r.Listing) -> Iterator[RenderableType]:
    yield from (_hint(text) for text in listing.texts[:MOST_LISTED])
    if len(listing.texts) > MOST_LISTED:
        yield _hint(f"… and {len(listing.texts) - MOST_LISTED} more in the JSON output")


def _pairs(pairs: r.Pairs) -> RenderableType:
    """Two columns; where the left one is sentences, each with the other below it."""
    if max((len(left) for left, _ in pairs.rows), default=0) > _LEFT:
        body: list[RenderableType] = []
        for left, right in pairs.rows:
            body += [Words(f"- {_shown(left)}"), _indented([Words(f"[{_shown(right)}]", style="dim")], 2)]
        return Group(*body)
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for left, right in pairs.rows:
        grid.add_row(Words(_shown(left), style="dim"), Words(_shown(right)))
    return grid


def _entry(entry: r.Entry, left: int) -> RenderableType:
    """A name and title, then what is to be said, below it."""
    body: list[RenderableType] = [Words(_shown(entry.about), style="dim")] if entry.about else []
    for part in entry.parts:
        before = len(body)
        match part:
            case r.Label(label=label, text=text, tone=tone):
                _label(body, label, text, _TONES[tone])
            case r.Text() as text:
                body.append(Words(_shown(text.text), style=_TONES[text.tone]))
            case r.Pairs() as pairs:
                body.append(_pairs(pairs))
            case r.Labelled(label=label, content=content):
                body += [Words(f"{_shown(label)}:", style="dim"), _indented([_inner(content)], 2)]
        if entry.spaced and len(body) > before:
            body.insert(before, Words())
    name = _line((entry.name, "bold"), (f": {entry.title}" if entry.title else "", ""))
    return Padding(Group(name, _indented(body, 2)), (1, 0, 0, left))


def _inner(content: r.Listing | r.Pairs | r.Lines) -> RenderableType:
    match content:
        case r.Pairs() as pairs:
            return _pairs(pairs)
        case r.Lines(texts=texts):
            return Group(*(Words(_shown(text), style="cyan") for text in texts))
        case r.Listing(texts=texts):
            return Group(*(Words(f"- {_shown(text)}") for text in texts))


# --- the large parts --------------------------------------------------------------------------------------------------


def _panel(panel: r.Panel) -> RenderableType:
    style = _LOOKS[panel.look]
    phrases = [phrase for phrase in panel.phrases if not phrase.wide]
    short = " · ".join(phrase.text for phrase in phrases if not phrase.tone)
    head = _line((panel.headline.upper(), f"bold {style}"), (f"  {short}", "dim"))
    body: list[RenderableType] = [head, Words(_shown(panel.sentence), style="bold")]
    body += [Words(_shown(text.text), style=_TONES[text.tone]) for text in panel.texts]
    if panel.reasons_label and panel.reasons:
        body.append(Words(_shown(f"{panel.reasons_label}: {'; '.join(panel.reasons)}"), style="dim"))
    elif panel.reasons:
        body += [Words(_shown(f"· {reason}"), style="dim") for reason in panel.reasons[:MOST_REASONS]]
        if len(panel.reasons) > MOST_REASONS:
            body.append(Words(f"· {len(panel.reasons) - MOST_REASONS} more in the JSON output", style="dim"))
    body += [Words(_shown(phrase.text), style=_TONES[phrase.tone]) for phrase in phrases if phrase.tone]
    return Frame(Group(*body), box=box.ROUNDED, border_style=style, title=panel.name, title_align="left")


def _points(points: r.Points) -> RenderableType:
    body: list[RenderableType] = [Words(_shown(points.title), style="bold")]
    for point in points.points:
        head = _line((point.name, "bold"), (f": {'; '.join(point.parts)}.", ""))
        body += [head, _indented([Words(_shown(point.evidence))], 2)]
    if points.more:
        body.append(Words(f"{points.more} more in the table of {points.more_in}", style="dim"))
    body += [Words(_shown(line), style="dim") for line in points.lines]
    return Frame(Group(*body), box=box.ROUNDED, border_style="dim", title=points.name, title_align="left")


def _finding(finding: r.Finding, width: int) -> RenderableType:
    head = _line((f"{finding.severity.upper():<6} ", _SEVERITY[finding.severity]), (finding.title, "bold"))
    kind = " · ".join((*finding.kind, finding.id))
    body: list[RenderableType] = [Words(_shown(kind), style="dim"), Words(_shown(finding.summary))]
    _label(body, "bound", finding.bound)
    _label(body, "evidence", " · ".join(f"{fact} {value}" for fact, value in finding.evidence))
    _label(body, "where", finding.where)
    top = (f"· {shorten(name, width - 12)}" for name in finding.top[:MOST_TOP])
    body.extend(Words(line, style="dim", no_wrap=True, overflow="ellipsis") for line in top)
    for note in finding.notes:
        _label(body, note.label, note.text, _TONES[note.tone])
    body.extend(_remedy(fix) for fix in finding.fixes)
    return Padding(Group(head, _indented(body, 3)), (1, 0, 0, 0))


def _remedy(fix: r.Remedy) -> RenderableType:
    said = f"  {fix.forecast}" if fix.forecast else ""
    head = _line(
        (f"{fix.sign} {fix.word}: ", _STATE[fix.state]), (fix.title, "bold" if fix.open else ""), (f"  {fix.id}", "dim"), (said, "")
    )
    body: list[RenderableType] = []
    if fix.above is not None:
        return Group(head, _indented([Words(_shown(f"as above, under “{fix.above[0]}”"), style="dim")], 4))
    _label(body, words.reason_label(fix.state), " ".join(fix.reasons))
    for framework, changes in fix.settings_line:
        _label(body, f"set ({framework})", changes, "cyan")
    if fix.open:  # of the others pages tell the rest
        for text, source in fix.expected:
            _label(body, "published", f"{text} [{source}]")
        for note in fix.notes:
            _label(body, note.label, note.text)
    return Group(head, _indented(body, 4)) if body else head


def _brief(finding: r.Finding) -> RenderableType:
    """A finding of a list: what became of it, and where it costs more what it says."""
    head = _line(
        (f"{finding.state.upper() if finding.loud else finding.state} ", "bold red" if finding.loud else "dim"),
        (f"{finding.severity} ", _SEVERITY[finding.severity]),
        (capitalised(finding.title), "bold" if finding.loud else ""),
        (f"  {finding.id}", "dim"),
    )
    if not finding.summary:  # on a screen
        return _indented([head.append(_shown(f"  {finding.bound}"), style="dim")], 1)
    body: list[RenderableType] = [Words(_shown(finding.summary))] if finding.loud else []
    _label(body, "bound", finding.bound)
    if finding.loud:
        for note in finding.notes[:1]:
            _label(body, note.label, note.text, _TONES[note.tone])
    return _indented([head, _indented(body, 3)] if body else [head], 1)


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(full: r.Table, width: int, heading: str = "", *, short: bool = False) -> Iterator[RenderableType]:
    """A titled table without the weak columns that do not fit, cut to what a terminal can hold; `heading` stands above it already."""
    found = r.without(full if full.shorter is None else full.shorter(MOST_RANKS), "wide")
    if found.title != heading:
        yield _heading(found.title if found.of is None else f"{found.title} ({found.of})")
    if not found.rows:
        yield _hint(f"{found.empty}.")
        return
    if found.listed:
        yield from _listed(found)
        return
    kept = _fitting(found, width)
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True, padding=(0, 1), header_style="dim")
    for index in kept:
        _add_column(grid, found.columns[index], first=index == 0)
    others = sum(_widest(found, index) + 3 for index in kept if found.columns[index].kind != "name")
    columns = sum(found.columns[index].kind == "name" for index in kept) or 1
    names = max(_least_name(width), (width - 6 - others - 3 * (columns - 1)) // columns)
    for row in found.rows[: _most(found)]:
        grid.add_row(*(_cell(row, index, found.columns[index], names) for index in kept), style="bold" if row.strong else None)
    yield grid
    if len(found.rows) > _most(found):
        yield _hint(f"… and {len(found.rows) - _most(found)} more in the HTML and JSON outputs")
    dropped = [column.label for index, column in enumerate(found.columns) if index not in kept]
    if dropped and not short:
        yield _hint(f"Left out for lack of room: {', '.join(dropped)}.")
    if found.note:
        yield _hint(found.note)
    if found.copy:
        yield Words("\n".join(_shown(line) for line in ("", *found.copy.splitlines())), no_wrap=True, overflow="ignore")


def _listed(table: r.Table) -> Iterator[RenderableType]:
    """Rows whose last cell is sentences: the other cells on a line, those below it."""
    if table.note:
        yield _hint(table.note)
    for row in table.rows:
        yield _line((f" {row.cells[0]}", "bold red" if row.strong else ""), (f"  {row.line}", "bold" if row.strong else "dim"))
        yield _indented([Words(_shown(row.cells[-1]), style="dim")], 4)


def _fitting(table: r.Table, width: int) -> list[int]:
    """The columns that fit, without weak ones from the right where there is too little room."""
    kept = list(range(len(table.columns)))
    for index in reversed(kept.copy()):
        if sum(3 + _needed(table, one, width) for one in kept) > width and table.columns[index].weak:
            kept.remove(index)
    return kept


def _needed(table: r.Table, index: int, width: int) -> int:
    """Columns of text that a table's column needs at least: text can fold and names can be shortened."""
    widest = _widest(table, index)
    return {"number": widest, "text": widest if index == 0 else min(widest, 22), "name": _least_name(width)}[table.columns[index].kind]


def _least_name(width: int) -> int:
    """How far a name is shortened before columns are left out."""
    return 36 if width >= 80 else 28


def _most(table: r.Table) -> int:
    if table.whole:
        return len(table.rows)
    return MOST_ROWS_LONG if table.key.startswith(("budget", "buckets", "capture")) else MOST_ROWS


def _add_column(grid: Grid, column: r.Column, *, first: bool) -> None:
    grid.add_column(
        Words(_shown(column.label)),
        justify="right" if column.kind == "number" else "left",
        no_wrap=first or column.kind != "text",
        overflow="ellipsis" if column.kind != "text" else "fold",
    )


def _widest(table: r.Table, index: int) -> int:
    longest = max((len(row.cells[index]) + (0 if index else 2 * row.indent) for row in table.rows), default=0)
    return min(max(longest, len(table.columns[index].label)), 40)


def _cell(row: r.Row, index: int, column: r.Column, names: int) -> Words:
    text = row.cells[index]
    said = shorten(text, names) if column.kind == "name" else _shown(text)
    return Words("  " * row.indent + said if index == 0 else said)
