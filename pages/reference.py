"""The reference pages, made from the data as Markdown; `make docs` builds them into the site."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from diagnose.render.knowledge.entries import Catalogue, Code, Entry, Kind, Line, Part, Span
from diagnose.render.knowledge.kinds import KINDS
from diagnose.render.report import Label, Lines, Listing, Pairs

PAGES: Mapping[str, str] = {
    "rules.md": "Rules",
    "fixes.md": "Fixes",
    "checks.md": "Checks of job files",
    "walls.md": "Walls",
    "words.md": "Words of the field",
    "buckets.md": "Buckets",
    "facts.md": "Facts",
    "job-settings.md": "Job settings",
    "platforms.md": "Platforms",
    "ledger.md": "Ledger codes",
}


class Shelf(Struct, frozen=True, kw_only=True):
    """Where the entries of a kind stand: their page, what the field of that name is (`brief`), and what stands above them (`intro`).

    Ids of kinds with a `prefix` may be those of another kind, so their anchors begin with it.
    """

    page: str
    brief: str
    intro: str
    prefix: str = ""

    def anchor(self, key: str) -> str:
        """The name by which a page can be linked at this entry."""
        return f"{self.prefix}{key.lower()}"


SHELVES: Mapping[str, Shelf] = {  # by kind
    "rule": Shelf(
        page="rules.md",
        brief="wall",
        intro="One bad pattern each. A rule fires where its condition holds over the facts of a trace and the settings of a job file; a condition that lacks a fact makes the rule *not assessed*, never fine. In sentences `‹name›` stands for a number of the run. Thresholds are this project's own choice unless a source stands beside them.",
    ),
    "fix": Shelf(
        page="fixes.md",
        brief="phase, step",
        intro="One remedy each, in the order in which to try them: **fit** the job into memory, **scale** it over the GPUs, **profile**, then **retune** what the profile shows, one change at a time. Published effects come from other jobs; they are no forecast for yours. *measured*: published measurements show the effect; *candidate*: recommended, but measurements are missing, disagree, or hold for some jobs only; *required*: no optimisation, without it something fails or is silently off. A need that fails, or a conflict that holds, blocks the fix; while it is unknown the fix is unknown too, unless it says otherwise.",
    ),
    "check": Shelf(
        page="checks.md",
        brief="outcome",
        intro="One way each in which a job fails, hangs, or silently does something else. `diagnose check job.yaml` asks those with a condition of a job file alone; the others are symptoms that only a log or a run can show. A check that lacks a setting is *not assessed*; what follows only from a framework's default that the file does not state is *doubtful*. In sentences `‹name›` stands for a value of the job.",
    ),
    "wall": Shelf(
        page="walls.md",
        brief="bound",
        intro="What can hold a training step back, and how much could be won at most. Bounds are upper bounds and do not add up.",
    ),
    "word": Shelf(
        page="words.md",
        brief="written",
        intro="Words of the field, with what follows from each here.",
    ),
    "bucket": Shelf(
        page="buckets.md",
        brief="roles",
        intro="Every device operation lands in exactly one bucket: the part of the model that it serves. Evidence, strongest first: the user's own rules, the module around the launch, the operator and its process group, the kernel's name, its neighbours on the stream. `diagnose kernel NAME` shows what decides for one name. Its role (compute, communication, permute/unpermute, copy) says how it counts in the budget.",
    ),
    "family": Shelf(
        page="buckets.md",
        brief="bucket",
        intro="What an operation is, by its name. The first family in this order whose pattern matches wins.",
        prefix="family-",
    ),
    "context": Shelf(
        page="buckets.md",
        brief="bucket or phase",
        intro="What an enclosing range says about the launches in it, in order of precedence.",
        prefix="context-",
    ),
    "group": Shelf(
        page="buckets.md",
        brief="kind",
        intro="What the description of a process group says about its collectives, in order of precedence.",
        prefix="group-",
    ),
    "fact": Shelf(
        page="facts.md",
        brief="unit",
        intro="Every measured number that rules may use. Times are in ns per step, as the median over the steps of the device that the verdict speaks of. *null means* says when the fact is absent; absent is never zero.",
    ),
    "setting": Shelf(
        page="job-settings.md",
        brief="type",
        intro="Every setting that is read from a job file, with its keys in each framework, best first. Conditions read it as `job_‹name›`.",
    ),
    "platform": Shelf(
        page="platforms.md",
        brief="architecture",
        intro="GPU products by the name that a trace gives them, in the order in which names are tried. Peaks are dense, per GPU, without sparsity.",
    ),
    "code": Shelf(
        page="ledger.md",
        brief="severity",
        intro="What the ledger counts: rows that were not used, and what a capture lacks.",
    ),
}
_MADE = "<!-- Made from the data by `make docs`; do not edit. -->"
# An address, a paper, or a word that may be an identifier, a key or a path.
_TOKEN = re.compile(
    r"(?P<url>https?://[^\s)\]>]+)|(?P<code>`[^`]+`)|arXiv:(?P<paper>\d{4}\.\d{5})|(?P<word>[A-Za-z0-9_]+(?:[./-][A-Za-z0-9_]+)*)"
)
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$])")
_PIPE = re.compile(r"(?<!\\)\|")
_PLAIN = re.compile(r"[a-z][a-z'-]*[,:]?(?:\s|$)")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s)")


class Links(Struct, frozen=True, kw_only=True):
    """Where each entry stands: `targets` by kind and id, `words` by what may stand for it in a sentence."""

    targets: Mapping[tuple[str, str], str]
    words: Mapping[str, str]


def links(know: Catalogue, kinds: Sequence[Kind]) -> Links:
    """Links to every entry of `kinds`; of two with one name the first kind's is taken where only the name is known."""
    targets = {
        (kind.name, key): f"{shelf.page}#{shelf.anchor(key)}" for kind in kinds for shelf in (SHELVES[kind.name],) for key in kind.ids(know)
    }
    words: dict[str, str] = {}
    for (kind, key), target in targets.items():
        if kind in ("family", "context", "group"):
            continue  # their ids are everyday words
        words.setdefault(f"job_{key}" if kind == "setting" else key, target)
        if kind == "setting":
            words.setdefault(key, target)
    # Only what can't be a word of a sentence.
    return Links(targets=targets, words={word: target for word, target in words.items() if "_" in word or "-" in word})


def page(know: Catalogue, title: str, kinds: Sequence[Kind], where: Links) -> str:
    """One page with all entries of `kinds`."""
    blocks = [_MADE, f"# {title}"]
    if len(kinds) > 1:
        blocks.append(" · ".join(f"[{kind.plural}](#{kind.plural})" for kind in kinds))
    for kind in kinds:
        entries = [kind.entry(know, key) for key in kind.ids(know)]
        if len(kinds) > 1:
            blocks += [f"## {kind.plural.capitalize()}"]
        shelf = SHELVES[kind.name]
        writer = _Writer(page=shelf.page, where=where)
        blocks += [shelf.intro, writer.contents(kind, shelf, entries)]
        for entry in entries:
            blocks += writer.entry(shelf, entry, level=3 if len(kinds) > 1 else 2)
    return "\n\n".join(blocks) + "\n"


class _Writer(Struct, frozen=True, kw_only=True):
    """Renders parts for one page."""

    page: str
    where: Links

    def contents(self, kind: Kind, shelf: Shelf, entries: Sequence[Entry]) -> str:
        """A table of all entries."""
        lines = [f"| {kind.name} | {shelf.brief} | what |", "|---|---|---|"]
        lines += [
            f"| [`{one.name}`](#{shelf.anchor(one.name)}) | {_cell(self.prose(one.brief))} | {_cell(self.prose(one.title))} |"
            for one in entries
        ]
        return "\n".join(lines)

    def entry(self, shelf: Shelf, one: Entry, level: int) -> list[str]:
        """Anchor, heading and parts."""
        here = f"{shelf.page}#{shelf.anchor(one.name)}"
        heading = f'<a id="{shelf.anchor(one.name)}"></a>\n\n{"#" * level} `{one.name}`'
        blocks = [heading, f"**{self.prose(_first_up(one.title), here)}**", f"*{self.prose(one.about, here)}*"]
        return blocks + [self._part(part, here) for part in one.parts]

    def _part(self, part: Part, here: str) -> str:
        label = f"**{_escaped(_first_up(part.label))}**"
        if isinstance(part, Label):
            return f"{label}:\n\n{_block([part.text], 'sql')}" if part.tone == "code" else f"{label}: {self.line(part.text, here)}"
        return f"{label}:\n\n{self._content(part.content, here)}"

    def _content(self, content: Listing | Pairs | Lines, here: str) -> str:
        match content:
            case Listing(texts=texts):
                return "\n".join(f"- {self.line(text, here)}" for text in texts)
            case Lines(texts=texts):
                return _block(texts, "text")
            case Pairs(rows=rows, head=head):
                table = [f"| {head[0]} | {head[1]} |", "|---|---|"]
                table += [f"| {_cell(self.line(left, here))} | {_cell(self.line(right, here))} |" for left, right in rows]
                return "\n".join(table)

    def line(self, text: str, here: str = "") -> str:
        """A line with its links."""
        return "".join(self._span(span, here) for span in (text.spans if isinstance(text, Line) else (text,)))

    def _span(self, span: Span, here: str) -> str:
        if isinstance(span, str):
            return self.prose(span, here)
        if isinstance(span, Code):
            return code(span.text)
        target = self.where.targets.get((span.kind, span.id))
        shown = code(span.label or span.id)
        return shown if target is None or target == here else f"[{shown}]({self._relative(target)})"

    def prose(self, text: str, here: str = "") -> str:
        """A sentence in which known names are links, identifiers are code, and nothing else is markup."""
        out: list[str] = []
        position = 0
        flat = " ".join(text.split()) if "\n" in text else text
        for found in _TOKEN.finditer(flat):
            out += [_escaped(flat[position : found.start()]), self._token(found, here)]
            position = found.end()
        return _NUMBERED.sub(r"\1\\\2", "".join([*out, _escaped(flat[position:])]))

    def _token(self, found: re.Match[str], here: str) -> str:
        if found["url"]:
            return f"<{found['url']}>"
        if found["code"]:
            return code(found["code"].strip("`"))
        if found["paper"]:
            return f"[arXiv:{found['paper']}](https://arxiv.org/abs/{found['paper']})"
        word = found["word"]
        target = self.where.words.get(word)
        if target is not None and target != here:
            return f"[{code(word)}]({self._relative(target)})"
        return code(word) if "_" in word else _escaped(word)

    def _relative(self, target: str) -> str:
        return target.removeprefix(self.page)


def code(text: str) -> str:
    """A code span."""
    shown = text.strip() or " "
    fence = "``" if "`" in shown else "`"
    return f"{fence} {shown} {fence}" if fence == "``" else f"`{shown}`"


def _cell(text: str) -> str:
    """What stands in a table, where a pipe has to be escaped even inside code."""
    return _PIPE.sub(r"\\|", text)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;"))


def _block(texts: Sequence[str], language: str) -> str:
    fence = "````" if any("```" in text for text in texts) else "```"
    return "\n".join([f"{fence}{language}", *texts, fence])


def _first_up(text: str) -> str:
    """With a capital first letter, unless it begins with a name that is not a plain word."""
    return text[:1].upper() + text[1:] if _PLAIN.match(text) else text


INDEX = "README.md"


def pages(know: Catalogue) -> dict[str, str]:
    """The text of every page by its file name; the same for the same knowledge."""
    where = links(know, KINDS)
    made = {name: page(know, title, [kind for kind in KINDS if SHELVES[kind.name].page == name], where) for name, title in PAGES.items()}
    return {INDEX: _index(know), **made}


def _index(know: Catalogue) -> str:
    lines = [
        _MADE,
        "",
        "# What the program knows",
        "",
        "Made from the files of `trace_rules/`, which `diagnose` itself reads; `diagnose explain ID` says the same on a terminal, and with a",
        "diagnosis (`diagnose explain ID result.json`) in that run's numbers. Every entry has an anchor, such as `fixes.md#com-06`.",
        "",
        "| page | holds |",
        "|---|---|",
    ]
    for name, title in PAGES.items():
        held = ", ".join(f"{len(kind.ids(know))} {kind.plural}" for kind in KINDS if SHELVES[kind.name].page == name)
        lines.append(f"| [{title}]({name}) | {held} |")
    return "\n".join(lines) + "\n"
