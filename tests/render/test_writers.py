"""Every writer over every document: one test for each property, which names all that lack it."""

import base64
import gzip
import hashlib
import html as html_module
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import PurePath

import pytest
from msgspec import structs

from diagnose.document import bisection, comparison
from diagnose.document import diagnosis as d
from diagnose.knowledge.glossary import load_glossary, meanings
from diagnose.render import Options, extensions_for, format_of, formats_for, kind_of, write
from diagnose.render.report import Table
from diagnose.render.reports import KINDS
from diagnose.render.reports.check import HEADINGS
from diagnose.render.writers import writers
from diagnose.render.writers.markdown.page import MOST_BYTES
from tests.builders.bisection import huge as huge_bisection
from tests.builders.cases import for_each
from tests.builders.comparison import huge as huge_comparison
from tests.builders.diagnosis import LONG_KERNEL, rich
from tests.builders.documents import COLUMNS, DOCUMENTS, HOSTILE, Sample, check, figures_of, kernels
from tests.builders.hostile import PAYLOADS
from tests.builders.same_text import check_same
from tests.builders.suites import deep_unless
from tests.conftest import ROOT
from tests.render.reading import PAGES, check_columns, check_powerless, orders, plain
from tests.render.regenerate import goldens

EVERY = {**DOCUMENTS, **HOSTILE}
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ue000]")


@cache
def written(name: str, format_: str) -> str:
    """A document in a format, at the width of a pipe."""
    return write(EVERY[name](), format_, Options(job_file="configs/job.yaml", detail=2))


def offenders(documents: dict[str, Sample], holds: Callable[[str], object]) -> list[str]:
    """The documents of which something does not hold, with why."""
    found = []
    for name in documents:
        try:
            if holds(name) is False:
                found.append(name)
        except AssertionError as wrong:
            found.append(f"{name}: {wrong}"[:400])
    return found


def read(name: str, format_: str) -> str:
    """What a report says, without what its markup adds."""
    return plain(html_module.unescape(re.sub(r"<[^>]+>", "", scriptless(name))) if format_ == "html" else written(name, format_))


def scriptless(name: str) -> str:
    return re.sub(r"<(script|style)[^>]*>.*?</\1>", "", written(name, "html"), flags=re.DOTALL)


# --- what can be written ----------------------------------------------------------------------------------------------


def test_goldens_are_current() -> None:
    for path, made in goldens().items():
        check_same(path.name, path.read_text(encoding="utf-8"), made, "run python -m tests.render.regenerate and read the difference")


def test_tables_have_a_key_for_machines_beside_their_title() -> None:
    for kind, document in {kind_of(made): made for made in (make() for make in DOCUMENTS.values())}.items():  # one of each
        builder = next(one for one in KINDS if one.name == kind).builder()
        keys = {block.content.key: block.content.title for block in builder.report(document).blocks if isinstance(block.content, Table)}
        assert {key: title for key, title in keys.items() if not re.fullmatch(r"[a-z][a-z0-9_ -]*", key) or key == title} == {}


def test_there_is_a_sample_of_every_kind() -> None:
    assert {kind_of(make()) for make in DOCUMENTS.values()} == {kind.name for kind in KINDS}


@pytest.mark.parametrize("documents", [DOCUMENTS, pytest.param(HOSTILE, marks=pytest.mark.deep)], ids=["usual", "hostile"])
@for_each("format_", *(writer.name for writer in writers()))
def test_the_same_document_gives_the_same_bytes(format_: str, documents: dict[str, Sample]) -> None:
    def same(name: str) -> bool:
        document = EVERY[name]()
        return format_ not in formats_for(kind_of(document)) or write(
            document, format_, Options(job_file="configs/job.yaml", detail=2)
        ) == written(name, format_)

    assert offenders(documents, same) == []


def test_pages_are_for_every_document_json_for_those_with_data_and_issues_for_those_with_findings() -> None:
    assert {kind.name for kind in KINDS if not set(PAGES) <= set(formats_for(kind.name))} == set()
    assert {kind.name for kind in KINDS if "json" not in formats_for(kind.name)} == {"explanation"}
    assert {kind.name for kind in KINDS if "sarif" in formats_for(kind.name)} == {"diagnosis", "comparison"}
    assert formats_for("diagnosis") == ("text", "json", "markdown", "html", "github", "junit", "sarif", "perfetto", "csv")


def test_an_extension_names_one_format() -> None:
    extensions = [extension for writer in writers() for extension in writer.extensions]
    assert len(extensions) == len(set(extensions))
    assert {format_of(PurePath(f"x{extension}"), "diagnosis") for extension in extensions} == set(formats_for("diagnosis")) - {"github"}
    assert format_of(PurePath("x.SARIF"), "comparison") == "sarif"
    assert format_of(PurePath("x.sarif"), "check") is None
    assert ".xml" not in extensions_for("bisection")
    with pytest.raises(KeyError):
        write(check(), "sarif")


def test_json_reads_back_equal() -> None:
    decoders = {"diagnosis": d.decode, "comparison": comparison.decode, "bisection": bisection.decode}

    def equal(name: str) -> bool:
        document = EVERY[name]()
        kind = kind_of(document)
        if kind in decoders:
            return bool(decoders[kind](written(name, "json").encode()) == document)
        return kind in ("explanation", "kernels") or isinstance(json.loads(written(name, "json")), dict)

    assert offenders(dict(DOCUMENTS), equal) == []
    lines = [json.loads(line) for line in write(kernels(), "json").splitlines()]
    assert [line.get("bucket") for line in lines] == ["dispatch", None]


# --- the terminal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", deep_unless((60, 300), (60, 80, 100, 140, 300)))
def test_text_fits_and_holds_no_control_sign(width: int) -> None:
    def fits(name: str) -> bool:
        report = write(EVERY[name](), "text", Options(width=width, detail=2))
        longest = max(len(line) for line in report.splitlines())
        assert longest <= min(width, 140) + 1, longest  # a line that a CI runner would obey gets one sign more
        return not CONTROLS.search(report) and not report.startswith("\n")

    assert offenders({**EVERY, "huge comparison": huge_comparison}, lambda name: name == "huge comparison" or fits(name)) == []
    assert max(len(line) for line in write(huge_comparison(), "text", Options(width=width)).splitlines()) <= width + 1


def test_colour_comes_only_when_asked_for_and_only_from_us() -> None:
    allowed = {"0", "1", "2", "4", "31", "32", "33", "34", "35", "36", "1;2", "2;4", "1;4"}
    allowed |= {f"{style};{colour}" for style in (1, 2) for colour in range(31, 37)}
    allowed |= {str(colour) for colour in (*range(30, 38), *range(90, 98))}  # the palette of the bar, as a terminal of 16 colours has it

    def ours(name: str) -> bool:
        coloured = write(EVERY[name](), "text", Options(color=True))
        codes = set(re.findall(r"\x1b\[([^m]*)m", coloured))
        assert codes <= allowed, codes - allowed
        return bool(codes) and "\x1b]" not in coloured and "\x1b[" not in written(name, "text")

    assert offenders(EVERY, ours) == []


@for_each("name, names", ("diagnosis", "unclassified"), ("rich comparison", "kernels"))
def test_long_names_are_cut_in_tables_but_whole_in_json(name: str, names: str) -> None:
    assert len(LONG_KERNEL) > 4_500
    assert LONG_KERNEL not in written(name, "text")
    assert LONG_KERNEL in [one["name"] for one in json.loads(written(name, "json"))[names]]


# --- Markdown ---------------------------------------------------------------------------------------------------------


def test_markdown_gives_no_power_to_a_text() -> None:
    def powerless(name: str) -> bool:
        report = written(name, "markdown")
        check_powerless(report)
        check_columns(report)
        return not CONTROLS.search(report.replace("\u200b", "")) and report.count("<details>") == report.count("</details>")

    assert offenders(EVERY, powerless) == []


def test_markdown_fits_into_a_comment() -> None:
    for huge in (huge_bisection(), DOCUMENTS["rules"]()):
        assert len(write(huge, "markdown").encode()) <= MOST_BYTES
    assert offenders(EVERY, lambda name: len(written(name, "markdown").encode()) <= MOST_BYTES) == []


@for_each("format_", "text", "markdown")
def test_no_line_gives_an_order_to_a_ci_runner(format_: str) -> None:
    assert offenders(EVERY, lambda name: orders(written(name, format_)) == []) == []


# --- pages ------------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags with their attributes, and those that were opened and not closed."""

    VOID = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}>"


def test_a_page_is_whole_asks_for_nothing_and_holds_no_foreign_markup() -> None:
    def inert(name: str) -> bool:
        page = Page(written(name, "html"))
        assert page.open == []
        values = [(key, value or "") for _, attrs in page.tags for key, value in attrs.items()]
        allowed = re.compile(r"#.*|https://[\w.~:/?#@!$&'()*+,;=%-]+")
        assert [value for key, value in values if key in {"src", "srcset", "href"} and not allowed.fullmatch(value)] == []
        assert [key for key, _ in values if key.startswith("on")] == []
        assert {tag for tag, _ in page.tags} & {"img", "iframe", "object", "embed", "form", "base", "link"} == set()
        identifiers = [value for key, value in values if key == "id"]
        assert len(identifiers) == len(set(identifiers)), "an id stands twice"
        targets = {value[1:] for key, value in values if key == "href" and value.startswith("#")}
        assert targets <= set(identifiers), targets - set(identifiers)
        return sum(tag == "h1" for tag, _ in page.tags) == 1

    assert offenders(EVERY, inert) == []


def test_a_page_is_called_by_its_run() -> None:
    """Ten attachments can be told apart by their titles."""
    document = d.decode((ROOT / "reports" / "gallery" / "communication-alltoall-two-nodes.json").read_bytes())
    assert document.identity is not None
    for file in ("one.sqlite", "other.sqlite"):
        page = write(structs.replace(document, identity=structs.replace(document.identity, file=file)), "html")
        assert file in page[page.index("<title>") : page.index("</title>")]


def test_the_policy_names_exactly_the_scripts_of_the_page() -> None:
    def named(name: str) -> bool:
        page = written(name, "html")
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
        assert policy is not None
        scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
        packed = re.findall(r'<script type="application/octet-stream" id="plotly">(.*?)</script>', page)
        scripts += [gzip.decompress(base64.b64decode(script)).decode() for script in packed]
        hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
        rules = html_module.unescape(policy.group(1)).split("; ")
        assert rules[0] == "default-src 'none'"
        assert not hashes or rules[1] == "script-src " + " ".join(f"'sha256-{value}'" for value in hashes)
        return len(hashes) in (1, 2)

    assert offenders(EVERY, named) == []


def test_data_cannot_end_their_block_early() -> None:
    def closed(name: str) -> bool:
        blocks = dict(re.findall(r'<script type="application/json" id="([a-z-]+)">(.*?)</script>', written(name, "html"), flags=re.DOTALL))
        plotted = {key for key, figure in figures_of(EVERY[name]()).items() if figure.spans is None}
        assert set(json.loads(blocks.get("figures", "{}"))) == plotted
        return all("<" not in block and isinstance(json.loads(block), dict) for block in blocks.values())

    assert offenders(EVERY, closed) == []


def test_a_light_page_is_small_and_a_whole_one_no_larger_than_plotly_packed() -> None:
    step = rich().timeline
    assert step is not None
    many = structs.replace(rich(), timeline=structs.replace(step, columns=COLUMNS))
    light, whole = write(many, "html", Options(light=True)), write(many, "html")
    assert len(light.encode()) < 300_000
    assert len(whole.encode()) < 3_000_000
    assert len(written("diagnosis", "html").encode()) < 2_300_000
    assert 'id="plotly"' not in light
    data = json.loads(gzip.decompress(base64.b64decode(re.findall(r'id="spans-timeline">(.*?)</script>', light)[0])))
    assert len(data["start"]) == len(COLUMNS.start_ns) + len(COLUMNS.gap_start_ns)
    drawn = json.loads(gzip.decompress(base64.b64decode(re.findall(r'id="spans-timeline">(.*?)</script>', whole)[0])))
    queued = [one * drawn["unit"] for one in drawn["queued"] if one >= 0]
    assert queued == pytest.approx([ns for ns in COLUMNS.queued_ns if ns is not None], abs=drawn["unit"] / 2)


def test_a_light_page_leaves_out_what_there_is_no_room_for_and_no_more() -> None:
    """Launches and ranges stay where there is room; of a job of many ranks other devices' tables go first, and are told of."""

    def drawn(page: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(gzip.decompress(base64.b64decode(re.findall(r'id="spans-timeline">(.*?)</script>', page)[0])))
        return found

    document = rich()
    data = drawn(write(document, "html", Options(light=True)))
    assert {"queued", "range"} <= set(data)
    assert data["unit"] == 100
    ranks = d.decode((ROOT / "reports" / "gallery" / "ranks-straggler.json").read_bytes())
    light = write(ranks, "html", Options(light=True))
    assert len(light.encode()) <= 300_000
    assert {"queued", "range"} <= set(drawn(light))
    assert "in the page without --light, and in the JSON output" in light
    assert "in the page without --light" not in write(ranks, "html")


def test_what_is_copied_from_a_page_is_what_is_typed() -> None:
    """Each setting on a line of its own, and commands with spaces that a shell takes for spaces."""
    document = d.decode((ROOT / "reports" / "gallery" / "communication-alltoall-two-nodes.json").read_bytes())
    page = write(document, "html")
    blocks = [html_module.unescape(block) for block in re.findall(r"<pre>(.*?)</pre>", page, flags=re.DOTALL)]
    both = [
        [change.text for change in step.changes if change.framework == "megatron-bridge"] for step in document.plan if step.fix == "COM-10"
    ]
    assert "\n".join(both[0]) in blocks
    assert len(both[0]) > 1
    commands = [html_module.unescape(code) for code in re.findall(r"<dd><code>(diagnose .*?)</code></dd>", page)]
    assert [command for command in commands if "\u00a0" in command] == []
    assert "diagnose patch rank0.sqlite --config job.yaml -o new.yaml" in commands


def test_pages_hold_no_payload_as_markup() -> None:
    def harmless(name: str) -> bool:
        page = scriptless(name)
        found = [payload for payload in PAYLOADS if "<" in payload and payload in page]
        assert found == []
        return True

    assert offenders(EVERY, harmless) == []


# --- what every page says ---------------------------------------------------------------------------------------------


def sentences(document: object) -> Iterator[str]:
    """What a reader of any page must find."""
    if isinstance(document, d.Diagnosis):
        yield document.verdict.sentence
        yield from (finding.summary for finding in document.findings)
        yield from (entry.code for entry in document.ledger)
        yield from (one.how for one in document.not_assessed if len(document.not_assessed) < 4)
    elif isinstance(document, comparison.Comparison):
        yield document.outcome.sentence
        yield from (one.name for one in document.environment)
    elif isinstance(document, bisection.Bisection):
        yield document.sentence
        yield from document.notes


@for_each("format_", *PAGES)
def test_every_page_says_the_result_and_what_it_rests_on(format_: str) -> None:
    def complete(name: str) -> bool:
        report = read(name, format_)
        missing = [one for one in sentences(DOCUMENTS[name]()) if not set(one) & set("<>`*|\\\x1b") and plain(one)[:60] not in report]
        assert missing == []
        return True

    assert offenders(dict(DOCUMENTS), complete) == []


# What the text says of itself (which output holds more, and how to see it), and three bounds of findings that a comment leaves out.
NOT_FOR_PAGES = (
    "and bisection comparison dropped every finding fix for history html i json k lack left less missing more name o output outputs page "
    "replay report room serves sources tables them things v value vv was 2.000 3.000 5.911"
)


@for_each("format_", "markdown", "html")
def test_a_page_and_a_comment_hold_every_word_and_figure_of_the_text(format_: str) -> None:
    """The text itself is held by the golden files. Names that a table cuts and hashes that a page may break are left out."""

    def words(report: str) -> set[str]:
        return set(re.findall(r"\d[\d.,]*\d|\w+", re.sub(r"\S*…\S*|[0-9a-f]{12}", " ", plain(report).casefold())))

    def complete(name: str) -> bool:
        report = written(name, "markdown") if format_ == "markdown" else html_module.unescape(re.sub(r"<[^>]+>", " ", scriptless(name)))
        lacking = words(write(DOCUMENTS[name](), "text", Options(width=300, detail=2))) - words(report) - words(NOT_FOR_PAGES)
        assert lacking == set()
        return True

    assert offenders(dict(DOCUMENTS), complete) == []


@for_each("format_", *PAGES)
def test_documents_without_a_verdict_are_told_in_full(format_: str) -> None:
    wanted = {
        "check": [
            "megatron-bridge job on h100: will hang: 1, doubtful: 1. 7 checks decided, 1 not assessed.",
            *(HEADINGS[group] for group in ("will_hang", "doubtful")),
            "check-hang (hang)",
            "other (does not go together)",
            "tp = 8 (model.tp), modules = [mlp, moe] (default, not in the file), fused = false",
            "Follows only with defaults that the file does not state: tp.",
            "Set tp to 4.",
            "would decide needs-more",
        ],
        "patch": [
            "job.yaml: 1 fix applied, 1 setting changed.",
            "COM-06 Overlap, for blocking-exchange",
            "comm.overlap: false → true",
            "1.06× [a paper]",
            "Whether it fits.",
            "Left to you",
            "COM-06: train.py by hand (it is code)",
            "MEM-02 Another. it is on already",
            "--overlap",
            "NCCL_DEBUG=INFO",
        ],
        "baselines": ["main", "0a1b", "H100", "1.500", "2.0 KiB", "can't be read", "It is no JSON.", "qwen"],
        "no baselines": ["one is stored; `diagnose baseline add NAME TRACE` stores one"],
        "kernels": ["communication (EP all-to-all, deepep)", "name, rule deepep (weak: by default only)", "pg_desc", "line 2", "no JSON"],
        "fix": ["COM-06", "in this run"],
        "facts": ["facts (", "step_ns", "`diagnose explain ID` tells more."],
        "rules": ["rules (", "fixes (", "COM-06"],
    }
    for name, told in wanted.items():
        report = read(name, format_).replace("`", "")
        assert [one for one in told if one.replace("`", "") not in report] == [], name


def test_every_tooltip_is_of_the_glossary_and_stands_in_the_list_at_the_end() -> None:
    """A title attribute needs a mouse: what it says is in the page for the keyboard and for a touch too."""
    page = write(rich(), "html")
    body, words = page.split('<dl class="words">')
    known = meanings(load_glossary())
    shown = [
        (html_module.unescape(word), html_module.unescape(means))
        for means, word in re.findall(r'<abbr title="([^"]*)">([^<]*)</abbr>', body)
    ]
    assert len(shown) > 20
    assert [word for word, means in shown if known.get(word.replace("\u00a0", " ").strip().lower()) != means.replace("\u00a0", " ")] == []
    listed = re.findall(r"<dt>[^<]*</dt><dd>([^<]*)</dd>", words.split("</dl>")[0])
    assert sorted({means for _, means in shown}) == sorted(html_module.unescape(means).replace("\u00a0", " ") for means in listed)


@for_each("format_, said", ("text", "as above, under “"), ("markdown", "as above under `"), ("html", "as above, under “"))
def test_a_fix_of_several_findings_is_told_in_full_once(format_: str, said: str) -> None:
    document = rich()
    first = next(one for one in document.findings if any(fix.state == "applicable" for fix in one.fixes))
    again = structs.replace(first, id="another", name="another pattern")
    text = write(structs.replace(document, findings=(first, again)), format_, Options(detail=2, width=200))
    open_ = [fix for fix in first.fixes if fix.state in ("applicable", "unknown")]
    assert text.count(said) == len(open_)
