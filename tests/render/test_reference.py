"""The reference pages: well-formed, and linked to each other."""

import re
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt  # comes with rich
from markdown_it.token import Token

from diagnose.knowledge.load import load_rulebook
from diagnose.knowledge.taxonomy import load_taxonomy
from diagnose.render.knowledge.entries import Catalogue, Code, Entry, Kind, Ref, expression, items, paragraph, rows, verbatim
from diagnose.render.knowledge.kinds import KINDS
from pages import reference
from pages.reference import PAGES, SHELVES, Shelf, code, links, page
from tests.builders.cases import for_each

ROOT = Path(__file__).parents[2]
KNOW = Catalogue(book=load_rulebook(), taxonomy=load_taxonomy())
PARSER = MarkdownIt("commonmark").enable("table")


@cache
def made() -> dict[str, str]:
    """All pages by name."""
    return dict(reference.pages(KNOW))


@cache
def anchors(text: str) -> set[str]:
    """What a link can name on a page: our own anchors, and those of headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return set(re.findall(r'<a id="([^"]+)"></a>', text)) | {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings}


@cache
def tokens(text: str) -> list[Token]:
    return PARSER.parse(text)


def targets(text: str) -> set[str]:
    found = [child for token in tokens(text) for child in token.children or ()]
    return {str(child.attrs["href"]) for child in found if child.type == "link_open"}


def bare(text: str) -> str:
    """A text without what Markdown needs for links, code and escaping."""
    return re.sub(r"[\\`<>\[\]]", "", text).replace("&amp;", "&")


@for_each("name", reference.INDEX, *PAGES)
def test_links_resolve(name: str) -> None:
    local = {target for target in targets(made()[name]) if "://" not in target}
    missing = []
    for target in local:
        file, _, anchor = target.partition("#")
        text = made().get(file or name)
        if text is None or (anchor and anchor not in anchors(text)):
            missing.append(target)
    assert missing == []
    assert local


def test_links_of_the_readmes_resolve() -> None:
    for readme in (ROOT / "README.md", ROOT / "trace_rules" / "README.md"):
        linked = {target.partition("#")[0] for target in targets(readme.read_text(encoding="utf-8")) if "://" not in target}
        assert [target for target in sorted(linked) if target and not (readme.parent / target).exists()] == []


@for_each("kind", *KINDS)
def test_every_id_has_one_anchor_and_stands_in_the_contents(kind: Kind) -> None:
    shelf = SHELVES[kind.name]
    text = made()[shelf.page]
    for key in kind.ids(KNOW):
        assert text.count(f'<a id="{shelf.anchor(key)}"></a>') == 1, key
        assert f"[`{key}`](#{shelf.anchor(key)})" in text


@for_each("name", reference.INDEX, *PAGES)
def test_markdown_shows_what_the_data_say(name: str) -> None:
    """No markup comes from the data: no HTML but our anchors, no image, and every table keeps its columns."""
    width = 0
    for token in tokens(made()[name]):
        if token.type == "html_block":
            assert re.fullmatch(r"<!-- [^<>]* -->\n", token.content), token.content
        for child in token.children or ():
            assert child.type != "html_inline" or re.fullmatch(r'<a id="[a-z0-9_-]+">|</a>', child.content), child.content
            assert child.type != "image"
        if token.type == "thead_open":
            width = 0
        width += token.type == "th_open"
    for block in re.split(r"\n\n", re.sub(r"```.*?```", "", made()[name], flags=re.DOTALL)):
        lines = block.splitlines()
        if lines and lines[0].startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, lines[0]
    assert width > 0


def test_patterns_and_kernel_names_stand_letter_by_letter() -> None:
    fenced = {line for token in tokens(made()["buckets.md"]) if token.type == "fence" for line in token.content.splitlines()}
    for one in KNOW.taxonomy.families:
        assert {pattern for pattern in one.patterns if pattern} <= fenced
        assert set(one.examples) <= fenced
    for one in KNOW.taxonomy.contexts:
        assert {*one.patterns, *one.unless} <= fenced


def test_published_effects_stand_with_their_sources() -> None:
    shown = bare(re.sub(r"\]\([^)]*\)", "]", made()["fixes.md"]))
    for fix in KNOW.book.fixes.values():
        for one in fix.expected:
            assert f"| {bare(one.text)} | {bare(one.source)} |" in shown, fix.id


# --- the writer on texts that would break it --------------------------------------------------------------------------


def _nasty(_know: object, key: str) -> Entry:
    text = "a | b <script>x</script> *not* _this_ [no](http://evil.invalid) & `code|here` 1. first $x$ ~y~"
    return Entry(
        name=key,
        title=text,
        about=text,
        brief="x | y",
        parts=(
            *paragraph("said", text, Code("a|b<c>`d"), Ref("fix", "COM-06")),
            *expression("when", "a < 1 AND b > 2"),
            *items("list", ["1. one", text]),
            *rows("rows", ("left", "right"), [(Code("a|b"), text)]),
            *verbatim("raw", ["```", "<b>|</b>"]),
        ),
    )


def test_no_text_can_leave_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "SHELVES", {**SHELVES, "nasty": Shelf(page="nasty.md", brief="brief | x", intro="")})
    kind = Kind(name="nasty", plural="nasties", ids=lambda _: ("one",), entry=_nasty)
    text = page(KNOW, "Nasty", [kind], links(KNOW, KINDS))
    tokens = PARSER.parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert [child.content for child in inline if child.type == "html_inline"] == ['<a id="one">', "</a>"]
    assert sum(token.type == "html_block" for token in tokens) == 1  # that the page is made
    hrefs = {child.attrs["href"] for child in inline if child.type == "link_open"}
    assert hrefs == {"#one", "fixes.md#com-06", "http://evil.invalid"}
    assert [token.content for token in tokens if token.type == "fence"] == ["a < 1 AND b > 2\n", "```\n<b>|</b>\n"]
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in tables[1].splitlines()] == [3, 3, 3]
    assert not any(token.type == "ordered_list_open" for token in tokens)


def test_code_holds_backticks() -> None:
    assert code("a`b") == "`` a`b ``"
    assert code("") == "` `"
