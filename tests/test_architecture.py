"""The house as it is built: rooms, floors and imports drawn from the code, names, and what the documents say of them."""

import ast
import dataclasses
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "diagnose"
DOCUMENTS = (
    *sorted(ROOT.glob("*.md")),
    *(ROOT / name / "README.md" for name in ("trace_rules", "fixtures")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
HOUSE_RULES = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
LINTER = tomllib.loads(PYPROJECT)["tool"]["importlinter"]
LOOSE = {"__init__", "__main__", "cli", "errors", "nsight_recipe", "pipeline", "version"}
ROOMS = sorted(path.name for path in HOUSE.iterdir() if path.is_dir() and path.name != "__pycache__")
FOLDERS = (".ci", "diagnose", "trace_rules", "fixtures", "pages", "tests", "benchmarks", "docs", "reports", *ROOMS)
MOST_ROOMS, MOST_FLOORS, MOST_CONTRACTS = 22, 12, 10
NO_NAMES = {"found", "one", "told", "said", "own", "place", "parts", "proofs"}
NO_CLASSES = {"Asked", "Taken", "Judged", "Told", "Listed", "Said"}
# Names from before the rule that still stand; the list only shrinks.
STANDING: set[str] = set()
# What loads knowledge although it is no entrance, and what keeps it; both lists only shrink.
LOADED_ELSEWHERE = {
    ("render.words", "load_job_settings"),  # how a saved document of whatever rules is shown
    ("render.words", "load_vocabulary"),
    ("render.writers.html.terms", "load_glossary"),  # what words of a page mean
}
KEPT_ONCE = {
    "knowledge.settings.load_job_settings",  # the program's own, which no rules change; entrances and outputs ask for it
    "scale.engine._kept_knowledge",  # a worker's entrance; the digest of the rules is part of its key
}

# Records that grow while something is read or tried, and those of events, of which there are millions: the list only shrinks.
GROWING = {
    *("bisect.trial.Trials", "reason.compare.kernels._Left", "reason.forecast.plan.Compatible"),
    *("job.python_source._Held", "job.python_source._Function"),
    *("job.shell._Reader", "job.shell_values.Scope"),
    *("job.shell_syntax.Heredoc",),
    *("load.kineto_columns.Event", "load.kineto_columns.ExactEvent", "load.kineto_columns.Part"),
    *("knowledge.strict_yaml._Open", "load.kineto_stream.Opened", "load.kineto_stream.EventStream"),
}


def modules() -> dict[str, Path]:
    """The modules of the program by dotted name, without the stand-in that nsys finds (`diagnose/recipe/`)."""
    return {name_of(path): path for path in sorted(HOUSE.rglob("*.py")) if (HOUSE / "recipe") not in path.parents}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The folder below diagnose/ that holds a module, or a loose module itself; the package is `__init__`."""
    return (*module.split("."), "__init__")[1]


def imports_of(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The program's own modules that a file imports, wherever in it the import stands."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            yield from (
                f"{module}.{alias.name}" if f"{module}.{alias.name}" in known else module for alias in node.names if module in known
            )


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def arrows() -> frozenset[tuple[str, str]]:
    """Imports from module to module across rooms."""
    known = modules()
    return frozenset((name, other) for name, path in known.items() for other in imports_of(path, known) if room_of(name) != room_of(other))


def floors() -> dict[str, int]:
    """The floor of each room, counted from 1: one above the highest that it imports. Fails on a circle."""
    below: dict[str, set[str]] = {room_of(name): set() for name in modules()}
    for name, other in arrows():
        below[room_of(name)].add(room_of(other))
    floor: dict[str, int] = {}
    while len(floor) < len(below):
        ready = {room for room in below if room not in floor and below[room] <= set(floor)}
        assert ready, f"rooms import each other in a circle: {sorted(set(below) - set(floor))}"
        floor |= {room: 1 + max((floor[other] for other in below[room]), default=0) for room in ready}
    return floor


def test_the_house_has_few_rooms_and_floors_no_circle_and_no_loose_module() -> None:
    floor = floors()
    assert len(floor) <= MOST_ROOMS, sorted(floor)
    assert max(floor.values()) <= MOST_FLOORS, floor
    assert {path.stem for path in HOUSE.glob("*.py")} == LOOSE
    assert f"({len(floor)} on {max(floor.values())})" in HOUSE_RULES


def test_imports_only_go_down() -> None:
    contract = next(contract for contract in LINTER["contracts"] if contract["type"] == "layers")
    rows = [re.split(r"\s*[:|]\s*", row) for row in contract["layers"]]
    height = {room.removeprefix("diagnose."): len(rows) - number for number, row in enumerate(rows) for room in row}
    assert {room_of(name) for name in modules()} - {"__init__"} == set(height), "the contract names every room"
    up = {(name, other) for name, other in arrows() if height.get(room_of(name), 99) < height.get(room_of(other), 99)}
    assert {pair for pair in up if pair[1] != "diagnose"} == set()


def test_contracts_are_few_and_give_their_reasons() -> None:
    before_each = PYPROJECT.split("[[tool.importlinter.contracts]]")[:-1]
    assert len(before_each) == len(LINTER["contracts"]) <= MOST_CONTRACTS
    assert f"each with its reason ({len(before_each)})" in HOUSE_RULES
    lacking = [text[-80:] for text in before_each if not text.rstrip().splitlines()[-1].startswith("# ")]
    assert lacking == []


def test_names_are_nouns_of_the_field() -> None:
    bad = []
    for name, path in modules().items():
        bad += [name] if path.stem in NO_NAMES else []
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                word = node.name.strip("_")
                bad += [f"{name}.{node.name}"] if word.lower() in NO_NAMES or word in NO_CLASSES else []
    assert sorted(set(bad) - STANDING) == []


def test_knowledge_is_loaded_at_the_entrances_and_handed_down() -> None:
    entrances = (
        "diagnose.knowledge.",
        "diagnose.commands.",
        "diagnose.pipeline",
        "diagnose.scale.",
        "diagnose.bisect.session",  # a search has the rules of its log
    )
    loaders = {node.name for path in modules().values() for node in tree_of(path).body if isinstance(node, ast.FunctionDef)}
    loaders = {name for name in loaders if name.startswith("load_")}
    assert len(loaders) >= 15
    calls = set()
    for name, path in modules().items():
        for node in () if name.startswith(entrances) else ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in loaders:
                calls.add((name.removeprefix("diagnose."), node.func.id))
    assert calls == LOADED_ELSEWHERE, "hand it down from the entrance; what no longer loads goes from the list"


def test_no_function_that_loads_data_keeps_it() -> None:
    kept = set()
    for name, path in modules().items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(one).split("(")[0] for one in node.decorator_list):
                body = " ".join(ast.unparse(one) for one in node.body)
                loads = re.search(r"\b(load_\w+|packaged|contents|converted|files|read_bytes|read_text)\(", body)
                kept |= {f"{name.removeprefix('diagnose.')}.{node.name}"} if loads and "cached_property" not in ast.unparse(node) else set()
    assert kept == KEPT_ONCE, "read it once at the entrance; what no longer keeps goes from the list"


def test_records_do_not_change_and_what_is_known_has_no_field_that_nobody_reads() -> None:
    """A result handed on stays what it was; a misspelt key of a rules file is refused."""
    growing, lenient = set(), []
    for name in sorted(set(modules()) - {"diagnose.nsight_recipe", "diagnose.__main__"}):  # which run where they are imported
        for one in vars(importlib.import_module(name)).values():
            if not inspect.isclass(one) or one.__module__ != name:
                continue
            full = f"{name.removeprefix('diagnose.')}.{one.__name__}"
            if issubclass(one, msgspec.Struct):
                growing |= set() if one.__struct_config__.frozen else {full}
                lenient += [full] if full.startswith("knowledge.") and not one.__struct_config__.forbid_unknown_fields else []
            elif dataclasses.is_dataclass(one):
                growing |= set() if one.__dataclass_params__.frozen else {full}
    assert growing == GROWING
    assert lenient == []


def test_the_table_of_changes_and_the_tests_that_prove_it_name_each_other() -> None:
    rows = re.findall(r"^\| (?!change|-)(.+?) \| (.+?) \| (.+?) \|$", table_of_changes(), re.MULTILINE)
    assert len(rows) >= 8
    for change, _, proof in rows:
        tests = re.findall(r"`(tests/changes/test_\w+\.py)`", proof)
        assert tests, f"no test is named for: {change}"
        assert [test for test in tests if not (ROOT / test).is_file()] == [], change
    tests = {f"tests/changes/{path.name}" for path in (ROOT / "tests" / "changes").glob("test_*.py")} - {"tests/changes/test_copy.py"}
    assert tests == set(re.findall(r"`(tests/changes/test_\w+\.py)`", table_of_changes()))


def table_of_changes() -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.split("## Which change touches what")[1].split("\n## ")[0]


def test_every_path_in_the_documents_exists() -> None:
    missing = []
    names = {path.name for folder in (HOUSE, ROOT / "fixtures") for path in folder.rglob("*.py")}
    for document in DOCUMENTS:
        paths = sorted(paths_in(document.read_text(encoding="utf-8")))
        unknown = [path for path in paths if not any((base / path).exists() for base in (ROOT, HOUSE, document.parent))]
        unknown += sorted(set(re.findall(r"`(\w+\.py)`", document.read_text(encoding="utf-8"))) - names)
        missing += [f"{document.relative_to(ROOT)}: {path}" for path in unknown]
    assert missing == []


def paths_in(text: str) -> set[str]:
    """The paths of this project in inline code, in links, and in the map of rooms; no schemas (`check/1`), patterns, placeholders, or
    files that a command makes.
    """
    words = {word for code in re.findall(r"`([^`\n]+)`", text) for word in code.split()} | set(re.findall(r"\]\(([^)#\s]+)[^)]*\)", text))
    words |= {f"diagnose/{room}" for room in re.findall(r"^  ([a-z_]+/)  ", text, re.MULTILINE)}
    bare = {word.rstrip(".,:;") for word in words}
    return {word for word in bare if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/(?!\d+$)[\w./-]*|[A-Z_]+\.md|pyproject\.toml|Makefile", word)}
