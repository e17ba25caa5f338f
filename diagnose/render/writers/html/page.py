"""A report as one HTML file: offline, without a single request, readable without JavaScript, in print and in the dark.

Every figure stands in the page as SVG. The timeline holds all operations, packed, which our own script draws and zooms; plotly's script
lies packed in the page too, and starts when a reader opens a figure. The content security policy allows exactly these scripts, by their
hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, partial
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import jinja2
import msgspec
from jinja2.bccache import Bucket
from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import replace

from diagnose.knowledge import compiled
from diagnose.model.names import shorten, visible
from diagnose.render import units
from diagnose.render.figures import plotly, svg
from diagnose.render.figures.figure import Figure, Spans, label
from diagnose.render.report import PAGE, Block, Report, Section, SideBySide, Text, without
from diagnose.render.writers.html.terms import Terms

LONGEST_SHOWN = 110
LONGEST_KEPT = 6_000
LIGHT = 300_000  # bytes of a light page: one that would need more has less of other devices and of its timeline
COLUMNS = ("row", "look", "name", "by")  # of an operation, beside its times: what the timeline can't be drawn without
_ADDRESS = re.compile(r"https://[\w.~:/?#@!$&'()*+,;=%-]{1,300}")


def page(report: Report, *, light: bool = False) -> str:
    """The whole page.

    A `light` one leaves plotly's script and the list of words out, and of the timeline and of other devices what there is no room for.
    """
    if not light:
        return _page(report, light=False, kept=Kept())
    made, brief = "", _without_folds(report)
    for shown, kept in ((report, Kept(unit=100)), (brief, Kept(unit=100)), (brief, Kept(unit=100, columns=COLUMNS)), (brief, None)):
        made = _page(shown, light=True, kept=kept)
        if len(made.encode("utf-8", "replace")) <= LIGHT:
            break
    return made


def _without_folds(report: Report) -> Report:
    """The report without what lies folded beside its first: tables of the other devices."""
    folded = [block for block in report.blocks if block.fold]
    if not folded:
        return report
    names = units.plural(len({block.fold for block in folded}), "device")
    told = replace(
        folded[0],
        content=Text(text=f"Tables of {names} more: in the page without --light, and in the JSON output.", hint=True),
        fold="",
        column=0,
    )
    return replace(
        report, blocks=tuple(told if block is folded[0] else block for block in report.blocks if block is folded[0] or not block.fold)
    )


class Kept(Struct, frozen=True, kw_only=True):
    """What of each operation our script is given to draw and to tell of: its columns, and the unit of its times in ns."""

    unit: int = 1
    columns: tuple[str, ...] = (*COLUMNS, "queued", "range")


def _page(report: Report, *, light: bool, kept: Kept | None) -> str:
    """`kept`: the timeline holds all operations for our script, which draws and zooms them; without it stands a still figure."""
    contents = [block.content for block in report.blocks if block.least <= PAGE <= block.most]
    figures = {content.key: content for content in contents if isinstance(content, Figure)}
    plotted = {} if light else {key: figure for key, figure in figures.items() if figure.spans is None}
    drawn = {key: figure.spans for key, figure in figures.items() if kept is not None and figure.spans is not None}
    live = {key: Markup(plotly.pack(_spans_text(figures[key], spans, kept or Kept()))) for key, spans in drawn.items()}  # noqa: S704 - base64
    pair = next((content for content in contents if isinstance(content, SideBySide)), None)
    boot = _script("page.js") + (_script("timeline.js") if live else "") + ("" if pair is None else _script("ranks.js"))
    made: str = _template().render(
        r=report,
        parts=_sections(report),
        policy=_policy(plotly.digest(boot), *((plotly.library().digest,) if plotted else ())),
        plotted=plotted,
        figures_json=data_block(plotly.data(plotted)),
        live=live,
        pair_json=None if pair is None else data_block(pair.data),
        plotly=Markup(plotly.library().packed if plotted else ""),  # noqa: S704 - base64
        boot=Markup(boot),  # noqa: S704 - our own script
        drawing=lambda figure: Markup(svg.draw(figure)),  # noqa: S704 - our own drawer, which escapes
        legend=lambda figure: Markup(svg.legend(figure)),  # noqa: S704 - our own drawer, which escapes
        moments=_moments(drawn.values()),
        most=Limits(),
        words=Terms(),
        light=light,
    )
    return made


def _spans_text(figure: Figure, spans: Spans, kept: Kept) -> str:
    """What the page's own script draws, as JSON: starts as differences, which compress to half; what is not known stays -1."""
    unit = kept.unit
    columns = {name: getattr(spans, name) for name in kept.columns}
    starts = [_rounded(start, unit) for start in spans.start]
    data = {
        "end": round(figure.x.extent[1] * 1e6),
        "rows": [visible(name) for name in figure.y.names],
        "looks": [{"label": visible(look.label), "colour": look.colour, "pattern": look.pattern} for look in spans.looks],
        "names": [visible(name) for name in spans.names],
        "unit": unit,
        **columns,
        "start": [after - before for before, after in pairwise((0, *starts))],
        "length": [_rounded(length, unit) for length in spans.length],
    }
    if "queued" in columns:
        data["queued"] = [_rounded(ns, unit) if ns >= 0 else -1 for ns in spans.queued]
    return msgspec.json.encode(data).decode("utf-8")


def _rounded(ns: int, unit: int) -> int:
    return (ns + unit // 2) // unit


def _moments(drawn: Iterable[Spans]) -> dict[str, tuple[int, str]]:
    """Of each name of an operation: its place among the timeline's names, and when its longest begins, in ms from the step's start."""
    longest: dict[str, tuple[int, int, int]] = {}
    for spans in drawn:
        for name, start, length in zip(spans.name, spans.start, spans.length, strict=True):
            if name >= 0 and length > longest.get(spans.names[name], (0, -1, 0))[1]:
                longest[spans.names[name]] = name, length, start
    return {text: (name, units.ms(start)) for text, (name, _, start) in longest.items()}


def _script(name: str) -> str:
    """One of our own scripts, which stand beside the templates."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


class Limits(Struct, frozen=True):
    """How much of what grows with the input a page shows."""

    rows: int = 200
    tall: int = 24  # rows from which a table scrolls in a frame of its own
    texts: int = 200
    reasons: int = 12


class Group(Struct, frozen=True, kw_only=True):
    """Blocks one below the other, or two `columns` of them; or groups that open together with a click on `title`."""

    blocks: tuple[Block, ...] = ()
    columns: tuple[tuple[Block, ...], ...] = ()
    title: str = ""
    inner: tuple[Group, ...] = ()


def _sections(report: Report) -> list[tuple[Section | None, tuple[Group, ...]]]:
    """Sections in their order with what stands in them, empty ones left out; first what stands above all sections."""
    shown = [block for block in report.blocks if block.least <= PAGE <= block.most]
    keys: list[Section | None] = [None, *report.sections]
    found = [(section, [block for block in shown if block.section == ("" if section is None else section.id)]) for section in keys]
    return [(section, _groups(blocks)) for section, blocks in found if blocks]


def _groups(blocks: Sequence[Block]) -> tuple[Group, ...]:
    """Blocks in their order; those of one fold, and the two columns of a section, stand together at the place of the first."""
    made: dict[str, Group] = {}
    for place, block in enumerate(blocks):
        if block.fold:
            mine = [replace(one, fold="") for one in blocks if one.fold == block.fold]
            made.setdefault(f"fold {block.fold}", Group(title=block.fold, inner=() if block.fold in made else _groups(mine)))
        elif block.column:
            columns = tuple(tuple(one for one in blocks if one.column == column and not one.fold) for column in (1, 2))
            made.setdefault("columns", Group(columns=tuple(column for column in columns if column)))
        else:
            made[str(place)] = Group(blocks=(block,))
    return tuple(made.values())


def data_block(data: object) -> Markup:
    """JSON for a data block of the page, which only `<` could end early."""
    text = msgspec.json.encode(data).decode("utf-8")
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704 - JSON, escaped here


def _policy(*scripts: str) -> str:
    """The content security policy: nothing but scripts of these digests, inline styles, and images from the page itself."""
    hashes = " ".join(f"'sha256-{digest}'" for digest in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


class _Bytecode(jinja2.BytecodeCache):
    """Keeps compiled templates where Python keeps compiled modules: compiling them takes longer than filling them."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill `bucket` with what an earlier run compiled."""
        data = self._kept(bucket).read()
        if data is not None:
            bucket.bytecode_from_string(data)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what this run compiled."""
        self._kept(bucket).write(bucket.bytecode_to_string())

    def _kept(self, bucket: Bucket) -> compiled.Compiled:
        """Where and under which stamp: one of the text, and of this module, whose settings go into the code."""
        template = files("diagnose.render.writers.html") / "templates" / bucket.key
        return compiled.beside(template, bucket.checksum.encode(), code=__file__, library=jinja2.__version__)

    def get_cache_key(self, name: str, filename: str | None = None) -> str:  # noqa: ARG002 - templates lie in one folder
        """The name of a template's file."""
        return name


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("diagnose.render.writers.html", "templates"),
        autoescape=True,
        bytecode_cache=_Bytecode(),
        optimized=False,  # nothing is constant in these templates
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalized,
    )
    environment.filters |= {
        "short": lambda name: shorten(name, LONGEST_SHOWN),
        "address": lambda text: text if _ADDRESS.fullmatch(text) else "",
        "wide": partial(without, only="plain"),  # figures stand for what plain media draw with signs
        "typed": _typed,
        "kind": lambda content: type(content).__name__.lower(),
        "label": label,
    }
    environment.tests |= {"long": lambda text: len(text) > LONGEST_SHOWN}
    return environment.get_template("page.html.j2")


def _finalized(value: object) -> object:
    """Every value that is printed: texts lose control signs, changes of direction, and length beyond reason."""
    if isinstance(value, str) and not isinstance(value, Markup):
        shown = units.glued(visible(value[:LONGEST_KEPT]))
        return shown if len(value) <= LONGEST_KEPT else f"{shown}… ({len(value) - LONGEST_KEPT:,} more)"
    return value


def _typed(lines: Sequence[str]) -> Markup:
    """Lines to be copied, letter by letter: no space of them is a hard one."""
    return Markup("\n").join(escape(visible(line[:LONGEST_KEPT])) for line in lines)
