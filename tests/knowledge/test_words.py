"""Nobody's words: what docs/words.md bans stands in no sentence that people read, and what is printed as a heading is explained.

The list of exceptions only shrinks.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagnose.knowledge.glossary import load_glossary, meanings
from diagnose.knowledge.load import load_rulebook
from diagnose.knowledge.taxonomy import load_taxonomy
from diagnose.knowledge.vocabulary import Vocabulary
from diagnose.render.reports.diagnosis.composition import LABELS as BAR
from diagnose.render.reports.diagnosis.tables import _BUDGET_ROWS as BUDGET
from diagnose.render.reports.explanation import Explanation, report
from diagnose.render.words import COMM_KIND, SEGMENTS, STATE
from tests.builders import yaml_text
from tests.builders.cases import for_each

ROOT = Path(__file__).parents[2]
RULES = ROOT / "trace_rules"
BANNED = re.compile(
    r"\b(the trace(s)? tells?\b(?! pinned)|nothing is (told|said)|own time|its likes|like groups?|load-bearing|in silence|without a word|held up|holds? compute up|"
    r"launch-starved|dependency-stalled|expert exchange|(?<!shared-)expert overlap|data-parallel exchange|tensor-parallel exchange|context-parallel exchange|"
    r"host overhead|the host\b(?! and device| memory| link)|host work|told by|speaks of rank|asserted to need|"
    r"can't be told|nothing that was told|beside:)",
    re.IGNORECASE,
)
TRANSPORT = re.compile(r"\btransport\b", re.IGNORECASE)
PROSE = (
    "name", "summary", "why", "wrong_when", "check", "capture", "title", "disputed", "undecidable", "cost", "risk", "say", "unknown",
    "remedy", "to",
)  # fmt: skip

# file (without its folder's): what in it still is to be said otherwise
EXCEPTIONS: dict[str, str] = {}


def sentences(value: Any, key: str = "") -> Iterator[str]:
    """What of a file of rules people read."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in ("when", "if", "examples", "symptom", "refs", "source"):
                yield from sentences(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from sentences(inner, key)
    elif isinstance(value, str) and key in PROSE:
        yield value


def spoken(text: str) -> str:
    """A sentence without its placeholders."""
    return re.sub(r"\{[^}]*\}", "", text)


@for_each("folder", "rules", "playbook", "checks")
def test_no_rule_fix_or_check_uses_a_banned_word(folder: str) -> None:
    found = {
        f"{folder}/{path.name}: {said[0]!r} in {text[:80]!r}"
        for path in sorted((RULES / folder).glob("*.yaml"))
        for text in sentences(yaml_text.load(path.read_text(encoding="utf-8")))
        for said in [BANNED.search(spoken(text)) or TRANSPORT.search(spoken(text))]
        if said and EXCEPTIONS.get(f"{folder}/{path.name}", "") != said[0]
    }
    assert found == set()


def test_no_page_of_the_documentation_uses_a_banned_word() -> None:
    """Prose of what people read; words.md, which lists them, code and names of files and tests left out."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"]
    texts = {path.name: re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL) for path in pages}
    found = {
        f"{name}: {said[0]!r} in {text[max(said.start() - 40, 0) : said.end() + 40]!r}"
        for name, text in texts.items()
        if name != "words.md"
        for said in (*BANNED.finditer(text), *TRANSPORT.finditer(text))
    }
    assert found == set()


def test_no_verdict_uses_a_banned_word() -> None:
    walls = load_rulebook().walls
    said = [clause.say for clause in (*walls.floor, *walls.lead, *walls.also, *walls.certainty)]
    said += [lead.say for spec in walls.walls.values() for lead in spec.says] + [spec.title for spec in walls.walls.values()]
    said += [spec.meaning for spec in walls.walls.values()] + list(walls.part_titles.values())
    assert [text for text in said if BANNED.search(spoken(text)) or TRANSPORT.search(spoken(text))] == []


def test_facts_and_buckets_are_told_in_the_fields_terms() -> None:
    """Their ids stay, which documents hang on; what people read of them does not say transport or host."""
    facts = yaml_text.load((RULES / "facts.yaml").read_text(encoding="utf-8"))
    told = [(name, text) for name, one in facts.items() for text in (one["meaning"], one[None])]  # YAML reads the key null as nothing
    buckets = yaml_text.load((RULES / "buckets.yaml").read_text(encoding="utf-8"))
    told += [(name, text) for name, one in buckets.items() for key in ("title", "holds", "elsewhere", "told_by") for text in [one[key]]]
    told += [(name, text) for name, one in buckets.items() for text in one["traps"]]
    ids = re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+\b")
    wrong = re.compile(
        r"\b(transport|hosts?(?! memory)|likes|device work|expert exchange|data-parallel exchange|tells? of|(?<!names hold )gemm)\b"
    )
    assert [(name, found[0]) for name, text in told for found in [wrong.search(ids.sub("", text))] if found] == []


def test_no_other_table_uses_a_banned_word() -> None:
    """What `compare` says of causes, and what `explain` says of settings, kinds of programs and features."""
    said = [
        (f"{name}: {text}", text)
        for name in ("comparison", "job_settings", "relevance", "features")
        for key, text in _keyed(yaml_text.load((RULES / f"{name}.yaml").read_text(encoding="utf-8")))
        if key in ("began", "ended", "more", "less", "slower", "faster", "title", "meaning")
    ]
    assert len(said) > 300, "all of them are looked at"
    host = re.compile(r"\bhosts?\b(?! memory)", re.IGNORECASE)
    assert [text for text, words in said if any(one.search(spoken(words)) for one in (BANNED, TRANSPORT, host))] == []


def _keyed(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a table with its field."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _keyed(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _keyed(inner, key)
    elif isinstance(value, str):
        yield key, value


def test_no_report_uses_a_banned_word() -> None:
    """Strings of the builders of reports and figures, of what is reasoned and of searches; docstrings left out."""
    found = []
    for path in sorted(path for room in ("reason", "render", "bisect", "commands") for path in (ROOT / "diagnose" / room).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and node.body and isinstance(node.body[0], ast.Expr)
        }
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
        ]
        found += [f"{path.name}: {text[:80]!r}" for text in texts if " " in text and BANNED.search(text)]
    assert [one for one in found if one not in REPORTS] == []
    assert sorted(one for one in REPORTS if one not in found) == [], "an exception that nothing needs"


REPORTS: tuple[str, ...] = ()


PRINTED = (
    *(label for label, *_ in BUDGET),
    *(
        text
        for text in BAR.values()
        if text.startswith(("waiting: ", "CPU: ")) and "unknown" not in text and "other" not in text and "copies" not in text
    ),
    *(part.look.label for part in SEGMENTS if part.key in ("compute", "dependency_stalled")),
    *(text for kind, text in COMM_KIND.items() if kind != "other"),
    *STATE.values(),
    *(
        "exposed",
        "hidden",
        "busy ms",
        "work ms",
        "of work",
        "exclusive ms",
        "classified by",
        "waves",
        "occupancy",
        "SM coverage",
        "status",
        "transfer",
    ),
    *(
        "at most",
        "largest share",
        "first target",
        "runner-up",
        "certainty",
        "straggler",
        "not this if",
        "check first",
        "data quality",
        "not assessed",
    ),
    *(
        "launch-bound",
        "CPU-bound",
        "all-to-all",
        "wave",
        "MFU",
        "TFLOP/s/GPU",
        "tokens/s/GPU",
        "useful tokens",
        "Parallel Folding",
        "three walls",
    ),
    *("fit", "scale", "profile", "retune", "EP overlap", "contention", "start-up", "first use", "pipeline bubble", "selective recompute"),
    *(
        "delayed weight gradient",
        "full-iteration CUDA graph",
        "scoped CUDA graphs",
        "launch latency",
        "restart after a sync",
        "attention mesh",
    ),
    *("TP", "PP", "EP", "ETP", "CP", "DP", "NCCL", "DeepEP", "HybridEP", "NVLink domain", "rank", "waiting: copies", "the rest"),
    *("handover", "starved", "ledger", "own time", "likes", "packing", "launch-starved", "dependency-stalled"),  # of older reports
)
PLAIN = {
    "copies", "on copies", "communication", "on communication", "communication only", "on permute/unpermute",
    "communication and permute",
}  # fmt: skip


def test_verdicts_causes_parts_of_bounds_and_buckets_are_explained_as_they_are_printed() -> None:
    book = load_rulebook()
    walls, vocabulary = book.walls, Vocabulary(buckets=book.buckets, walls=book.walls)
    printed = [name for key in walls.walls for name in (vocabulary.bound_by(key), f"{vocabulary.wall(key)} first")]
    printed += [walls.part(name) for spec in walls.walls.values() for name in (*spec.parts, *spec.beside)]
    printed += [one.cause.headline for one in book.rules.values() if one.cause and one.cause.headline]
    printed += [f"compute: {vocabulary.bucket(key)}" for key in book.buckets] + [text for text in BAR.values() if "rest" not in text]
    assert len(set(printed)) > 60
    for name in dict.fromkeys(printed):
        assert report(Explanation(name=name, book=book, taxonomy=load_taxonomy())).blocks, name


@for_each("term", *(term for term in dict.fromkeys(PRINTED) if term not in PLAIN))
def test_what_is_printed_is_explained(term: str) -> None:
    """`diagnose explain TERM` answers, and the page shows the same as a tooltip."""
    assert meanings(load_glossary()).get(term.lower())
