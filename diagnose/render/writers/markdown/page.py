"""A report as GitHub-flavoured Markdown, to paste into a bug report or a pull request: at most 60 KB by construction.

Parts are added in the order of their worth until the room is used up; what was left out is said. Texts that a trace can fill lose every
power over the page: no HTML, no links, no mentions, no table cells of their own, no orders to a CI runner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from diagnose.model.names import shorten, visible
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.writers.markdown import answer

MOST_BYTES = 60_000
MOST_ROWS = 20
MOST_RANKS = 24  # entries of a table that can be made shorter
MOST_LISTED = 12  # texts of a list, findings of a list
MOST_REASONS = 8
MOST_TOP = 5
LONGEST_TEXT = 800
LONGEST_NAME = 90
LONGEST_SENTENCE = 400  # of a list
LONGEST_QUOTE = 2_000
_LATER = 10  # by how much the whole of something is worth less than its short form
_RESERVE = 800  # bytes for the line about what was left out

# What Markdown reads as markup wherever it stands: `_` only beside a space or sign, `(` behind a bracket, `#`, `>` and `-` only where a
# line begins.
_SPECIAL = re.compile(r"([\\`*\[\]<|~$]|(?<=\])\(|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^\s*[#>+-](?=\s)|^\s*\d+(?=[.)]\s))")
_MENTION = re.compile(r"(?<=[@#])(?=\w)|(?<=\bGH)(?=-\d)|(?<=://)|(?<=\bwww)(?=\.)", re.IGNORECASE)
_JOINER = "\u200b"  # keeps a mention, a reference or an address from becoming a link


def page(report: r.Report) -> str:
    """The report in at most `MOST_BYTES` bytes."""
    closing = _closing(report)
    room = MOST_BYTES - _RESERVE - len(closing.encode("utf-8"))
    kept: list[str] = []
    left_out: list[str] = []
    for title, block in _arranged(report):
        need = len(block.encode("utf-8")) + 2
        if need > room:
            left_out.append(title)
            continue
        room -= need
        kept.append(block)
    if left_out:
        named = text(", ".join(shorten(title, 40) for title in dict.fromkeys(left_out[:5])))
        kept.append(
            f"_Left out to stay below {MOST_BYTES // 1000} KB: {len(left_out)} parts ({named}…); the JSON and HTML outputs hold all._"
        )
    return "\n\n".join([*kept, *([closing] if closing else [])]) + "\n"


def _closing(report: r.Report) -> str:
    if report.tool is None:
        return ""
    rules = f", rules {code(report.tool.rules_sha256[:12])}" if report.tool.rules_sha256 else ""
    return f"<sub>{text(report.tool.name)} {text(report.tool.version)}{rules}; “{units.MISSING}” means not measured</sub>"


def _arranged(report: r.Report) -> Iterator[tuple[str, str]]:
    """Title and text of every part, in the order of their worth, with the headings of their sections."""
    first = [block for block in report.blocks if block.most >= r.LIMITED and _answers(block, report)]
    if first:
        yield "answer", answer.lines([block.content for block in first], text, code)
        yield from _behind([block for block in report.blocks if block not in first and block.least <= r.LIMITED <= block.most])
        return
    sections = {section.id: section for section in report.sections}
    headed: set[str] = set()
    ranked: list[tuple[int, r.Block, str]] = []
    for block in report.blocks:
        if block.least <= r.LIMITED <= block.most:
            ranked.append((block.worth, block, _content(block, sections.get(block.section))))
            if block.brief is not None and isinstance(block.content, r.Table):
                ranked[-1] = (block.worth, block, table(block.brief))
                ranked.append((block.worth - _LATER, block, folded(block.content)))
    for _, block, shown in sorted(ranked, key=lambda part: -part[0]):
        section = sections.get(block.section)
        title = block.name or (block.content.title if isinstance(block.content, r.Table) else "")
        folds = block.aside and isinstance(block.content, r.Table | r.Listing)  # under a title of its own
        if section is not None and section.headed and section.id not in headed and not folds:
            headed.add(section.id)
            yield title, f"### {text(section.title)}" + ("" if section.count is None else f" ({section.count})")
        if shown:
            yield title, shown


def _answers(block: r.Block, report: r.Report) -> bool:
    """Whether a part belongs to the answer, if the report begins with one."""
    if not any(isinstance(one.content, r.Masthead) for one in report.blocks):
        return False
    return isinstance(block.content, r.Answer) or (isinstance(block.content, r.Panel) and block.least <= r.LIMITED)


def _behind(blocks: Sequence[r.Block]) -> Iterator[tuple[str, str]]:
    """What stands behind an answer, in the order of its worth, each part folded under its title."""
    for block in sorted(blocks, key=lambda block: -block.worth):
        match block.content:
            case r.Finding() as finding:
                bound = f": {finding.bound}" if finding.bound else ""
                title = f"{finding.severity} · {finding.title}{bound}"
                yield title, _details(title, _finding(finding, headed=False))
            case r.Table() as found:
                short = found if found.shorter is None else found.shorter(MOST_RANKS)
                yield found.title, folded(short)
            case r.Points() as points:
                yield points.name, _details(f"{points.name.capitalize()}: {points.title}", _points(points))
            case r.Listing(texts=texts):
                yield block.name, _folded(block.name, len(texts), _listed(texts))


def _details(title: str, content: str) -> str:
    return f"<details><summary>{text(title)}</summary>\n\n{content}\n\n</details>"


def _content(block: r.Block, section: r.Section | None) -> str:
    """One part of the report; nothing for figures and for what a reader chooses on a page."""
    match block.content:
        case r.Panel() as panel:
            return _panel(panel)
        case r.Points() as points:
            return _points(points)
        case r.Table() as found:
            short = found if found.shorter is None else found.shorter(MOST_RANKS)
            titled = section is not None and section.headed and section.title == found.title
            return folded(short) if block.aside else table(short, heading=not titled)
        case r.Finding() as finding:
            return _finding(finding)
        case r.Findings(findings=findings):
            more = f"\n- {len(findings) - MOST_LISTED} more in the JSON and HTML outputs" if len(findings) > MOST_LISTED else ""
            return "\n".join(_brief(finding) for finding in findings[:MOST_LISTED]) + more
        case r.Entry() as entry:
            return _entry(entry)
        case r.Text() as said:
            return _text(said)
        case r.Listing(texts=texts):
            return _folded(block.name, len(texts), _listed(texts)) if block.aside else _listed(texts)
        case r.Pairs() as pairs:
            return _pairs(pairs)
        case r.Lines(texts=texts):
            return _lines(texts)
        case _:
            return ""


# --- texts and lists --------------------------------------------------------------------------------------------------


def _text(said: r.Text) -> str:
    if said.quoted:
        return "\n".join(f"> {text(line)}  " for line in said.text[:LONGEST_QUOTE].splitlines())
    shown = text(said.text)
    return f"<sub>{shown}</sub>" if said.hint else f"**{shown}**" if said.tone == "strong" else shown


def _listed(texts: tuple[str, ...], most: int = MOST_LISTED) -> str:
    lines = [f"- {_sentence(one)}" for one in texts[:most]]
    if len(texts) > most:
        lines.append(f"- {len(texts) - most} more in the JSON output")
    return "\n".join(lines)


def _sentence(said: str) -> str:
    return text(said if len(said) <= LONGEST_SENTENCE else f"{said[:LONGEST_SENTENCE]}…")


def _pairs(pairs: r.Pairs) -> str:
    """Two columns as a table; without headings as a list."""
    if not any(pairs.head):
        return "\n".join(f"- {text(left)}: {text(right)}" for left, right in pairs.rows)
    lines = [_line([text(label) for label in pairs.head]), _line(["---", "---"])]
    return "\n".join([*lines, *(_line([text(left), text(right)]) for left, right in pairs.rows)])


def _lines(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {code(one)}" for one in texts)


def _entry(entry: r.Entry) -> str:
    blocks = [f"#### {text(entry.name)}{f': {text(entry.title)}' if entry.title else ''}"]
    if entry.about:
        blocks.append(f"_{text(entry.about)}_")
    labels: list[str] = []
    for part in entry.parts:
        match part:
            case r.Label(text=said) if not said:
                continue
            case r.Label(label=label, text=said, tone=tone):
                labels.append(f"- {text(label)}: {code(said) if tone == 'code' else text(said)}")
                continue
            case r.Text() as said:
                shown = _text(said)
            case r.Pairs() as pairs:
                shown = _pairs(pairs)
            case r.Labelled(label=label, content=content):
                shown = f"**{text(label)}**:\n\n{_inner(content)}"
        blocks += ["\n".join(labels), shown] if labels else [shown]
        labels = []
    return "\n\n".join([*blocks, *(["\n".join(labels)] if labels else [])])


def _inner(content: r.Listing | r.Pairs | r.Lines) -> str:
    match content:
        case r.Pairs() as pairs:
            return _pairs(pairs)
        case r.Lines(texts=texts):
            return _lines(texts)
        case r.Listing(texts=texts):
            return _listed(texts, len(texts))


# --- the large parts --------------------------------------------------------------------------------------------------


def _panel(panel: r.Panel) -> str:
    phrases = [phrase for phrase in panel.phrases if not phrase.wide]
    plain = " · ".join(text(phrase.text) for phrase in phrases if not phrase.tone and phrase.text not in panel.title)
    blocks = [
        f"## {text(panel.title)}",
        f"**{text(panel.sentence)}**",
        *([plain] if plain else []),
        *(text(one.text) for one in panel.texts),
        *([f"<sub>{text(panel.caption)}</sub>"] if panel.caption else []),
    ]
    points = [f"- {_sentence(reason)}" for reason in panel.reasons[:MOST_REASONS]]
    if len(panel.reasons) > MOST_REASONS:
        points.append(f"- {len(panel.reasons) - MOST_REASONS} more in the JSON output")
    points += [f"- {f'**{text(phrase.text)}**' if phrase.tone == 'bad' else text(phrase.text)}" for phrase in phrases if phrase.tone]
    return "\n\n".join([*blocks, *(["\n".join(points)] if points else [])])


def _points(points: r.Points) -> str:
    lines = [f"### {text(points.name.capitalize())}: {text(points.title[:1].lower() + points.title[1:])}", ""]
    for point in points.points:
        lines += [f"- **{text(point.name)}**: {text('; '.join(point.parts))}.", f"  {text(point.evidence)}"]
    if points.more:
        lines.append(f"- {points.more} more in the table of {points.more_in}")
    return "\n".join([*lines, *([""] if points.points else []), "  \n".join(text(line) for line in points.lines)])


def _finding(finding: r.Finding, *, headed: bool = True) -> str:
    facts = "; ".join(f"{code(fact)} {text(value)}" for fact, value in finding.evidence)
    entries = [
        ("bound", text(finding.bound)),
        ("evidence", facts),
        ("where", text(finding.where)),
        ("top", ", ".join(code(name, LONGEST_NAME) for name in finding.top[:MOST_TOP])),
        *((note.label, text(note.text)) for note in finding.notes),
    ]
    kind = ", ".join((f"severity **{finding.severity}**", *(text(part) for part in finding.kind), code(finding.id)))
    return "\n".join(
        [
            *((f"#### {text(finding.title)}", "") if headed else ()),
            f"{text(finding.summary)} ({kind})",
            "",
            *(f"- {label}: {shown}" for label, shown in entries if shown),
            *(_remedy(fix) for fix in finding.fixes),
        ]
    )


def _remedy(fix: r.Remedy) -> str:
    lines = [f"- {fix.sign} **{fix.word}**: {text(fix.title)} ({code(fix.id)}){f': {text(fix.forecast)}' if fix.forecast else ''}"]
    if fix.above is not None:
        return f"{lines[0]}, as above under {code(fix.above[1])}"
    if fix.reasons:
        lines.append(f"  - {words.reason_label(fix.state)}: {text(' '.join(fix.reasons))}")
    if fix.settings_line:
        lines += [f"  - {text(setting.framework)}: {code(setting.line, 200)}" for setting in fix.settings]
    if fix.open:  # of the others pages tell the rest
        lines += [f"  - published: {text(expected)} (source: {text(source)})" for expected, source in fix.expected]
        lines += [f"  - {note.label}: {text(note.text)}" for note in fix.notes if note.text]
    return "\n".join(lines)


def _brief(finding: r.Finding) -> str:
    """A finding of a list: what became of it, and where it costs more what it says."""
    head = f"- **{finding.state}** ({finding.severity}): {text(finding.title)} ({code(finding.id)})"
    if not finding.loud:
        return head
    notes = (("bound", finding.bound), *((note.label, note.text) for note in finding.notes[:1]))
    return "\n".join([head, f"  - {_sentence(finding.summary)}", *(f"  - {label}: {text(shown)}" for label, shown in notes if shown)])


# --- tables -----------------------------------------------------------------------------------------------------------


def table(found: r.Table, heading: bool = True) -> str:
    """A table, with as many rows as a page can hold and what it leaves out."""
    head = [f"### {text(found.title)}", ""] if heading else []
    if not found.rows:
        return "\n".join([*head, f"{text(found.empty)}."])
    lines = [
        *head,
        _line([text(column.label) for column in found.columns]),
        _line(["---:" if column.kind == "number" else "---" for column in found.columns]),
        *(_line(_cells(row, found.columns)) for row in found.rows[: _most(found)]),
    ]
    if len(found.rows) > _most(found):
        lines += ["", f"_{len(found.rows) - _most(found)} more rows in the JSON and HTML outputs._"]
    if found.note:
        lines += ["", f"<sub>{text(found.note)}</sub>"]
    if found.copy:
        lines += ["", "```yaml", found.copy.rstrip("\n"), "```"]  # made of words and numbers alone, so that nothing can end the block
    return "\n".join(lines)


def _most(table: r.Table) -> int:
    if table.whole:
        return len(table.rows)
    return 60 if table.key.startswith(("budget", "buckets", "capture")) else MOST_ROWS


def folded(found: r.Table) -> str:
    """The table behind a heading that opens on a click."""
    return _folded(found.title, len(found.rows), table(found, heading=False))


def _folded(title: str, count: int, content: str) -> str:
    return f"<details><summary>{text(title)} ({count})</summary>\n\n{content}\n\n</details>"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: r.Row, columns: tuple[r.Column, ...]) -> list[str]:
    cells = [code(cell, LONGEST_NAME) if column.kind == "name" else text(cell) for cell, column in zip(row.cells, columns, strict=True)]
    if row.strong:
        cells[0] = f"**{cells[0]}**"
    cells[0] = "&emsp;" * row.indent + cells[0]
    return cells


# --- harmless text ----------------------------------------------------------------------------------------------------


def text(said: str) -> str:
    """Prose in which nothing is markup, a link, a mention or a reference."""
    shown = visible(said)
    if len(shown) > LONGEST_TEXT:
        shown = f"{shown[:LONGEST_TEXT]}…"
    shown = _SPECIAL.sub(r"\\\1", _MENTION.sub(_JOINER, shown).replace("&", "&amp;").replace("::", f":{_JOINER}:"))
    return shown.replace("\\<", "&lt;")


def code(said: str, limit: int = LONGEST_TEXT) -> str:
    """A code span; backticks become primes and pipes are escaped, which a table needs even inside code."""
    shown = shorten(said, limit).replace("`", "′").replace("|", "\\|").strip()
    return f"`{shown}`" if shown else "` `"
