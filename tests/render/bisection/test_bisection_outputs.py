"""Every output of a bisection, on one that holds everything, one with several steps, one for each other result, and a huge one."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec import structs

from diagnose import cli
from diagnose.document import bisection as b
from diagnose.render import marked
from diagnose.render.bisection import RENDERERS, Options
from diagnose.render.reports.bisection import words
from tests.builders.bisection import SAMPLES, huge, minimal, range_, rich, several
from tests.builders.diagnosis import HOSTILE
from tests.builders.same_text import check_same
from tests.render.reading import plain
from tests.render.regenerate import bisection_goldens

FORMATS = sorted(RENDERERS)
PEOPLE = ["text", "markdown", "html"]
Sample = Callable[[], b.Bisection]


def rendered(format_: str, document: b.Bisection, **options: object) -> str:
    return RENDERERS[format_](document, Options(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", bisection_goldens(), ids=lambda path: path.name)
def test_goldens_are_current(path: Path) -> None:
    made = bisection_goldens()[path]
    check_same(path.name, path.read_text(encoding="utf-8"), made, "run python -m tests.render.regenerate and read the difference")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_same_document_gives_same_bytes(format_: str, sample: Sample) -> None:
    assert rendered(format_, sample()) == rendered(format_, sample())


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_json_reads_back_equal(sample: Sample) -> None:
    assert b.decode(rendered("json", sample()).encode()) == sample()


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", PEOPLE)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_the_result_comes_first(format_: str, sample: Sample) -> None:
    document, report = sample(), rendered(format_, sample())
    body = plain(report if format_ != "html" else report[report.index("<body>") :])
    assert body.upper().index(words.RESULT[document.result].upper()) < body.index(document.sentence)
    assert body.index(document.sentence) < body.index("What was measured")
    assert ("does not go one way" in body) == (not document.monotone)


@pytest.mark.parametrize("format_", PEOPLE)
def test_the_commit_its_message_and_what_moved(format_: str) -> None:
    report = plain(rendered(format_, rich(), width=120))
    for said in (
        "Commit 000900090009",
        "120.100 ms → 157.900 ms (+31.5 %)",
        "Use the new grouped GEMM",
        "Refs: #4711",
        "Transport with nothing beside it took 29.565 ms more",
        "Where the difference comes from",
        "Kernels that changed",
        "NCCL_P2P_NET_CHUNKSIZE",
        "Overlap of transport",
        "8 other candidates did not have to be measured",
        "it holds no GPU work",
        "exit code 2",
        "Two captures of one commit contradict each other",
        "First parents from good to bad.",
        "All runs",
    ):
        assert said in report, said


@pytest.mark.parametrize("format_", PEOPLE)
def test_several_steps_and_stretches(format_: str) -> None:
    report = plain(rendered(format_, several()))
    titles = [
        f"Item {several().culprits[0].label}",
        f"One of 3 items up to {several().culprits[1].label}",
        f"Item {several().culprits[2].label}",
    ]
    places = [report.index(title) for title in titles]
    assert places == sorted(places)
    assert f"It is one of {', '.join((*several().culprits[1].among, several().culprits[1].label))}." in report
    assert "It is one of 000700070007, 000800080008, 000900090009." in plain(rendered(format_, range_()))


@pytest.mark.parametrize("format_", PEOPLE)
def test_what_is_not_known_is_never_nought(format_: str) -> None:
    report = plain(rendered(format_, minimal()))
    assert "not measured" in report
    assert "not told" in report
    assert "0 ms" not in report
    assert "noise between captures not known" in report


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_text_keeps_its_width(width: int) -> None:
    for sample in (rich, several, minimal):
        report = rendered("text", sample(), width=width)
        assert max(len(line) for line in report.splitlines()) <= width
        assert not set(report) & {chr(code) for code in (*range(10), *range(11, 32), 127, 0x202E)}
        assert "\x1b[" in rendered("text", sample(), width=width, color=True)


def test_markdown_fits_into_a_comment() -> None:
    report = rendered("markdown", huge())
    assert len(report.encode()) <= marked.MOST_BYTES <= 60_000
    assert huge().sentence.split(" with ")[0] in plain(report)
    assert "<script" not in re.sub(r"`[^`]*`", "", report)


# --- HTML -------------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags with their attributes; void ones of HTML and those that close themselves are not counted as open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_the_page_asks_for_nothing_and_holds_no_foreign_markup(sample: Sample) -> None:
    page = Page(rendered("html", sample()))
    assert not [
        value
        for _, attrs in page.tags
        for name, value in attrs.items()
        if name in {"src", "srcset", "href"} and not (value or "").startswith("#")
    ]
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert not {tag for tag, _ in page.tags} & {"img", "iframe", "object", "embed", "form", "base", "link"}
    policy = next(attrs["content"] or "" for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_hostile_texts_are_escaped_everywhere() -> None:
    def spoiled(text: str) -> b.Bisection:
        document = rich()
        return structs.replace(
            document,
            metric=text,
            sentence=text,
            good=text,
            order=text,
            notes=(text,),
            candidates=tuple(structs.replace(one, subject=text, label=f"{text}{place}") for place, one in enumerate(document.candidates)),
            trials=tuple(structs.replace(one, text=text, document=text) for one in document.trials),
            culprits=tuple(
                structs.replace(one, label=f"{text}9", before=f"{text}8", subject=text, message=text) for one in document.culprits
            ),
        )

    for text in (*HOSTILE, "</style><script>alert(9)</script>", "</title><img src=x>", "%{x}<b>"):
        page = Page(rendered("html", spoiled(text)))
        assert sum(tag == "script" for tag, _ in page.tags) == 3  # data and our two
        assert not {tag for tag, _ in page.tags} & {"img", "iframe"}
        rendered("text", spoiled(text))
        rendered("markdown", spoiled(text))


def test_a_huge_one_is_still_a_page() -> None:
    page = rendered("html", huge())
    assert page.count("<g><title>") == 3000
    assert "more rows in the JSON output" in page


# --- `diagnose render` ------------------------------------------------------------------------------------------------


def test_a_saved_one_is_shown_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "found.json"
    saved.write_text(rendered("json", rich()))
    outputs = [tmp_path / f"x.{ending}" for ending in ("html", "md", "txt", "json")]
    assert cli.main(["render", str(saved), "--format", "markdown", *(part for path in outputs for part in ("-o", str(path)))]) == 0
    assert capsys.readouterr().out == rendered("markdown", rich(), width=100)
    assert outputs[3].read_bytes() == saved.read_bytes()
    assert outputs[0].read_text() == rendered("html", rich())


def test_formats_that_it_does_not_have_are_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "found.json"
    saved.write_text(rendered("json", rich()))
    for arguments in (["--format", "sarif"], ["-o", str(tmp_path / "x.xml"), "-o", str(tmp_path / "y.md")], ["--fail-on", "high"]):
        assert cli.main(["render", str(saved), *arguments]) == 2
        assert "is a bisection, which has no" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    newer = tmp_path / "newer.json"
    newer.write_text(saved.read_text().replace("bisect/1", "bisect/2"))
    assert cli.main(["render", str(newer)]) == 3
    assert "a newer version of this program wrote" in capsys.readouterr().err
