"""Words of a closed vocabulary (buckets, walls, families, contexts) stand in the data.

Code asks rows and marks, and names a word only in `knowledge/` and `model/`.

A word may mean something else too: `compute` is a wall and a role. Where a file uses it in that sense it is listed here with the sense; the
list only shrinks.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from diagnose.document.ranks import LateCause
from diagnose.knowledge import taxonomy as entries
from diagnose.knowledge.taxonomy import load_taxonomy
from diagnose.knowledge.vocabulary import load_vocabulary
from diagnose.model import vocabulary
from diagnose.model.trace import OP_KINDS
from tests.builders.cases import for_each

HOUSE = Path(__file__).parent.parent / "diagnose"
AT_HOME = ("knowledge", "model")  # the rooms that may know the words

# What families and contexts are called may be a word of these vocabularies, which code goes by; in this sense they stand anywhere.
SHARED = {
    *get_args(entries.Operation),
    *get_args(entries.Backend),
    *get_args(entries.Mark),
    *get_args(entries.ContextMark),
    *get_args(vocabulary.Phase),
    *get_args(vocabulary.CommKind),
    *get_args(LateCause),
    *OP_KINDS,
}

# word: what it means there | the files (without .py) that mean that
EXCEPTIONS = """
attention: the operation, or a mesh of ranks | job/sizes measure/memory
collective: what the frameworks call an exchange | load/kineto_columns load/nsys_nvtx measure/buckets/classify measure/buckets/describe
    measure/exchanges
communication: a table of the report | render/figures/step
compute: the role of operations that compute, or that part of a step | measure/buckets/classify measure/buckets/line measure/budget
    measure/contention measure/device measure/exchanges measure/host measure/kernels measure/memory measure/phases
    measure/repeated_blocks measure/replay/build measure/replay/links measure/replay/path measure/replay/threads measure/slowing measure/steps
    measure/waits/dependencies measure/waits/leads measure/waits/stalls measure/where reason/compare/work reason/forecast/categories reason/forecast/contention
    reason/forecast/ranks render/knowledge/kernels render/words
elementwise: the operation | measure/buckets/line
embedding: what a pipeline stage holds | job/sizes
experts: those of a layer or a job | job/sizes measure/buckets/neighbours measure/where render/reports/check
loss: what a pipeline stage holds, or a section of a job file | job/formats/torchtitan job/sizes
memcpy: the kind of operation | load/kineto_columns load/kineto_tables load/nsys_tables measure/host
memory: the frame of allocator events, or a table of the report | load/conform load/kineto_tables load/nsys_tables render/knowledge/numbers
    render/reports/diagnosis/appendix
memset: the kind of operation | load/kineto_columns load/kineto_tables load/nsys_tables
norm: the operation | measure/buckets/line measure/memory
optimizer: the phase, or a section of a job file | job/edit job/formats/deepspeed job/formats/hugging_face
    job/formats/megatron_bridge job/formats/torchtitan measure/buckets/classify render/words
other: none of the kinds, backends or copies that have a name | load/kineto_tables load/nsys_tables measure/buckets/classify
    measure/buckets/line measure/budget measure/exchanges measure/facts
    measure/ranks/transfers measure/steps measure/waits/stalls reason/compare/causes render/figures/comparison render/words
quantize: a section of a job file | job/formats/torchtitan
router: the operation | measure/buckets/line
"""


def words() -> dict[str, str]:
    """Every word, with the vocabulary that it belongs to."""
    known, taxonomy = load_vocabulary(), load_taxonomy()
    ids = {entry.id for entry in (*taxonomy.families, *taxonomy.contexts)} - SHARED
    return dict.fromkeys(ids, "family or context") | dict.fromkeys(known.buckets, "bucket") | dict.fromkeys(known.walls.walls, "wall")


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every string in a module."""
    yield from ((node.lineno, node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def found_in(house: Path) -> dict[tuple[str, str], list[int]]:
    """(file without .py, word) → lines, outside the rooms that may know the words."""
    known = words()
    places: dict[tuple[str, str], list[int]] = {}
    for path in sorted(house.rglob("*.py")):
        name = path.relative_to(house).with_suffix("").as_posix()
        if name.split("/")[0] not in AT_HOME:
            for line, text in literals(ast.parse(path.read_text(encoding="utf-8"))):
                if text in known:
                    places.setdefault((name, text), []).append(line)
    return places


def listed() -> set[tuple[str, str]]:
    """(file without .py, word) of every exception."""
    rows = [line.split(maxsplit=1) for line in EXCEPTIONS.replace("\n   ", "").strip().splitlines()]
    return {(file, word.rstrip(":")) for word, rest in rows for file in rest.split("|")[1].split()}


def test_words_of_the_data_stand_in_the_data_and_no_exception_is_left_without_need() -> None:
    places = found_in(HOUSE)
    kinds = words()
    unlisted = [
        f"{file}.py:{lines[0]}: {word!r}, a {kinds[word]}" for (file, word), lines in places.items() if (file, word) not in listed()
    ]
    assert unlisted == [], "ask the row in trace_rules/ or a mark, or name it in diagnose/model/vocabulary.py"
    assert sorted(place for place in listed() if place not in places) == []


@for_each("text", '"dense_gemm"', 'row["wall"] == "host_overhead"', '{"gemm_bias": 1}', 'f(bucket="vision_encoder")')
def test_a_new_literal_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "reason").mkdir()
    (tmp_path / "reason" / "new.py").write_text(f"x = {text}\n", encoding="utf-8")
    assert len(found_in(tmp_path)) == 1
