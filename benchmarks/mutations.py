"""How many faults the tests notice: seeded mutations of the code and of the rules, each in a copy of the tree.

    python -m benchmarks.mutations record                        # once: which quick tests reach which line (runs the quick suite)
    python -m benchmarks.mutations run --only code --count 60    # the quick tests that reach each mutated line
    python -m benchmarks.mutations run --only rules --count 60   # the quick tests of rules, settings and reasons
    python -m benchmarks.mutations together --suite quick        # what survived these: the whole quick suite
    python -m benchmarks.mutations together --suite deep         # what survived the quick suite: the whole deep suite
    python -m benchmarks.mutations table                         # caught by quick, by deep only, by neither

`together` applies all survivors at once, runs a whole suite, and then gives the tests that failed to each survivor alone: one fault is
charged to each mutation that causes it by itself. What did not end in time is not among them: it stands as it is.

Every result is one line of JSON in `build/mutations/results.jsonl`, the last one of a mutation and suite counts; what stands there already
is not run again, so that a run may be ended and taken up. A mutation that leaves the behaviour as it is counts as a survivor: look at the
table.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from coverage import CoverageData

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "mutations"
PARTS = FOLDER / "reached"
RESULTS = FOLDER / "results.jsonl"
Suite = Literal["quick", "deep"]
Only = Literal["code", "rules"]
Outcome = Literal["caught", "survived", "out of time", "unreached"]
MARKS: dict[Suite, list[str]] = {"quick": ["-m", "not deep"], "deep": ["-m", "deep or hypothesis", "--hypothesis-profile", "deep"]}

# The tests nearest to a folder or a file of trace_rules; what survives them meets the whole suite (`together`).
FIRST = ("knowledge/test_patterns.py", "knowledge/test_examples.py", "reason/test_conditions.py")
READERS: dict[str, tuple[str, ...]] = {
    "rules": (*FIRST, "knowledge", "reason"),
    "playbook": (*FIRST, "knowledge", "reason"),
    "checks": (*FIRST, "knowledge", "reason"),
    "buckets": (*FIRST, "knowledge", "kernels", "measure/buckets"),
    "": (*FIRST, "knowledge", "reason", "job"),
}


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One change of one file: the text from `start` to `end` (offsets in characters) becomes `new`. `line` counts from 1."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    new: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one suite said of one mutation. `old` and `new` are the mutated line before and after; `by` is the test that failed."""

    key: str
    suite: Suite
    file: str
    line: int
    kind: str
    old: str
    new: str
    outcome: Outcome
    by: str
    tests: int
    seconds: float


# ---------------------------------------------------------------------------------------------- mutations of code

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def _mutated(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The kinds of mutations that a node allows, with what becomes of it."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=right):
            yield "compare", ast.Compare(left=left, ops=[_COMPARE[type(op)]()], comparators=right)
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(value=not value)
        case ast.Constant(value=int(number) | float(number)):
            yield "constant", ast.Constant(value=number + 1 if isinstance(number, int) else number * 2 + 0.5)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC and not _is_type(node):
            yield "arithmetic", ast.BinOp(left=left, op=_ARITHMETIC[type(operator)](), right=right)
        case ast.BoolOp(op=boolean, values=values):
            yield "boolean", ast.BoolOp(op=ast.Or() if isinstance(boolean, ast.And) else ast.And(), values=values)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield "negation", ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "dropped statement", ast.Pass()
        case ast.Call(func=func, args=[first, second, *rest], keywords=keywords) if not isinstance(first, ast.Starred):
            yield "swapped arguments", ast.Call(func=func, args=[second, first, *rest], keywords=keywords)
        case ast.Return(value=ast.expr()):
            yield "returned None", ast.Return(value=ast.Constant(value=None))


def _is_type(node: ast.BinOp) -> bool:
    """A union of types, as in an annotation or in isinstance."""
    return isinstance(node.op, ast.BitOr) and any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but annotations and what stands in formatted texts, whose positions are not those in the file."""
    for field, value in ast.iter_fields(tree):
        if field in {"annotation", "returns", "decorator_list"} or isinstance(tree, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from _nodes(child)


def code_mutations(root: Path) -> dict[str, list[Mutation]]:
    """Every mutation of the code that there is, by kind."""
    found: dict[str, list[Mutation]] = defaultdict(list)
    for path in sorted((root / "diagnose").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = [0]
        for line in text.splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        for node in _nodes(ast.parse(text)):
            for kind, new in _mutated(node):
                where = new if kind == "negation" else node
                if not isinstance(where, ast.expr | ast.stmt) or where.end_lineno is None or where.end_col_offset is None:
                    continue
                start = _offset(text, lines, where.lineno, where.col_offset)
                end = _offset(text, lines, where.end_lineno, where.end_col_offset)
                written = ast.unparse(ast.fix_missing_locations(new))
                written = written if isinstance(new, ast.stmt) else f"({written})"
                name = str(path.relative_to(root))
                found[kind].append(Mutation(file=name, line=where.lineno, kind=kind, start=start, end=end, new=written))
    return found


def _offset(text: str, lines: Sequence[int], line: int, column: int) -> int:
    """The place in the text of a column that is counted in bytes."""
    begin = lines[line - 1]
    return begin + len(text[begin : lines[line]].encode()[:column].decode())


# ---------------------------------------------------------------------------------------------- mutations of rules

_CONDITION = re.compile(r"^(?P<head>\s*(?:- )?\{?(?:when|if|already_on|only|relevant|saves)\s*:\s*)(?P<value>[^\"'>|{}#][^#{}]*?)\s*$")
_QUOTED = re.compile(r"^(?P<head>\s*(?:- )?\{?(?:when|if|already_on|only|relevant|saves)\s*:\s*\")(?P<value>[^\"]+)\"")
_NUMBER = re.compile(r"(?<![\w.'-])\d+(?:\.\d+)?(?![\w.])")
_BUCKET = re.compile(r"\bbucket: (?P<bucket>[a-z_]+)")
_ALTERNATIVE = re.compile(r"\|[^|()\[\]'\"]+(?=[|)])")
_ENTRY = re.compile(r"(?<=[\[,])\s*'[^']+',")
_PROSE = re.compile(r"^\s*(?:- )?(?:refs|summary|why|check|wrong_when|title|name|about|source|say|text|cost|risk|since|meaning|#)\b")


def rule_mutations(root: Path) -> dict[str, list[Mutation]]:
    """Every mutation of the rules, by kind. Prose and sources are left alone."""
    found: dict[str, list[Mutation]] = defaultdict(list)
    files = sorted((root / "trace_rules").rglob("*.yaml"))
    buckets = sorted({match["bucket"] for path in files for match in _BUCKET.finditer(path.read_text(encoding="utf-8"))})
    for path in files:
        text, begin = path.read_text(encoding="utf-8"), 0
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            for kind, start, end, new in () if _PROSE.match(line) else _line_mutations(line, buckets):
                mutation = Mutation(file=str(path.relative_to(root)), line=number, kind=kind, start=begin + start, end=begin + end, new=new)
                if _is_yaml(text, mutation):
                    found[kind].append(mutation)
            begin += len(line)
    return found


def _line_mutations(line: str, buckets: Sequence[str]) -> Iterator[tuple[str, int, int, str]]:
    """Kind, first and last column, and the new text of every mutation of a line."""
    condition = _CONDITION.match(line)
    quoted = _QUOTED.match(line)
    for match in filter(None, (condition, quoted)):
        if not match["head"].strip("- {").startswith("saves") and match["value"] != "null":
            yield "negated condition", *match.span("value"), f"NOT ({match['value']})"
    if condition or quoted or re.match(r"^\s*[a-z_0-9]+: -?\d+(\.\d+)?\s*(#.*)?$", line):
        for match in _NUMBER.finditer(line.split("#", maxsplit=1)[0]):
            old = match.group()
            yield "number", *match.span(), f"{float(old) * 1.5 or 1.5:g}" if "." in old else str(int(old) + max(1, int(old) // 2))
    for match in _BUCKET.finditer(line):
        yield "swapped bucket", *match.span("bucket"), buckets[(buckets.index(match["bucket"]) + 3) % len(buckets)]
    if "'" in line and ("pattern" in line or re.match(r"^\s*- '", line)):
        for pattern, kind in ((_ALTERNATIVE, "dropped alternative"), (_ENTRY, "dropped pattern")):
            for match in pattern.finditer(line):
                yield kind, *match.span(), ""


def _is_yaml(text: str, mutation: Mutation) -> bool:
    try:
        yaml.load(applied(text, mutation), yaml.CSafeLoader)  # a thousand files: the fast one
    except yaml.YAMLError:
        return False
    return True


def applied(text: str, mutation: Mutation) -> str:
    """The text with the mutation in it."""
    return text[: mutation.start] + mutation.new + text[mutation.end :]


@cache
def _all(only: Only) -> dict[str, list[Mutation]]:
    return code_mutations(ROOT) if only == "code" else rule_mutations(ROOT)


def drawn(only: Only, count: int, seed: int) -> list[Mutation]:
    """A sample of mutations: kind after kind in turn, each at a random place."""
    chance = random.Random(seed)
    kinds = _all(only)
    return [chance.choice(kinds[sorted(kinds)[place % len(kinds)]]) for place in range(count)]


# ---------------------------------------------------------------------------------------------- which tests reach a place


def record(paths: Sequence[str]) -> None:
    """Run the quick suite (or some paths of it), path after path, with a record of the tests that reach each line. Of the tests of a path
    that share a simulated run, only the first is seen to reach what makes it: the others meet the fault in `together`. (With
    SHARED_RUNS_AFRESH=1 in the environment each makes its own, which takes several times as long.) A path whose record stands there already
    is not run again: remove its file for that.
    """
    PARTS.mkdir(parents=True, exist_ok=True)
    found = [*(ROOT / "tests").glob("*/"), *(ROOT / "tests").glob("test_*.py")]
    for path in paths or sorted(str(one.relative_to(ROOT)) for one in found):
        part = PARTS / path.replace("/", ".")
        if part.exists():
            continue
        began, made = time.monotonic(), part.with_name(f"_{part.name}")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", "--dist", "loadscope", *MARKS["quick"]]
        command += ["--cov=diagnose", "--cov-context=test", "--cov-report=", path]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(made)}, check=False)
        if made.exists():
            made.rename(part)
        print(f"{path}: {time.monotonic() - began:.0f} s", flush=True)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Which test functions reach each line of each file, and how many lines each reaches."""

    lines: dict[str, dict[int, frozenset[str]]]
    breadth: Counter[str]

    def of(self, mutation: Mutation) -> list[str]:
        """The test functions that reach the mutated line, those that reach least first; of a line that runs on import, those that reach
        its file.
        """
        by_line = self.lines.get(mutation.file, {})
        tests = by_line.get(mutation.line) or frozenset().union(*by_line.values())
        return sorted(tests, key=lambda test: (self.breadth[test], test))


def recorded() -> Reach:
    """The record of `record`, as far as it goes. Raises FileNotFoundError where there is none."""
    parts = sorted(PARTS.glob("tests*"))
    if not parts:
        raise FileNotFoundError(f"{PARTS} holds nothing: run `python -m benchmarks.mutations record` first")
    lines: dict[str, dict[int, frozenset[str]]] = defaultdict(dict)
    breadth: Counter[str] = Counter()
    for part in parts:
        data = CoverageData(str(part))
        data.read()
        for measured in data.measured_files():
            path = Path(measured)
            if not path.is_relative_to(ROOT):
                continue
            by_line = lines[str(path.relative_to(ROOT))]
            for line, contexts in data.contexts_by_lineno(measured).items():
                tests = frozenset(context.split("|")[0].split("[")[0] for context in contexts if context)
                by_line[line] = by_line.get(line, frozenset()) | tests
                breadth.update(tests)
    return Reach(lines=dict(lines), breadth=breadth)


def readers(mutation: Mutation) -> list[str]:
    """The tests that read a file of trace_rules."""
    parts = Path(mutation.file).parts
    return [f"tests/{name}" for name in READERS.get(parts[1] if len(parts) > 2 else "", READERS[""])]


def modules(tests: Sequence[str]) -> list[str]:
    """The modules of test functions, in their order."""
    return list(dict.fromkeys(test.split("::")[0] for test in tests))


# ---------------------------------------------------------------------------------------------- running


def copy_of_the_tree(folder: Path) -> Path:
    """All files that git knows or would know, with what lies beside the project where tests look for it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    root = folder / "tree"
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    shared = ROOT.parent / "shared"
    if shared.exists():
        (folder / "shared").symlink_to(shared)
    for name in ("diagnose", "fixtures", "tests"):
        compileall.compile_dir(root / name, quiet=1)  # once, in place of in each run: a mutated file is newer than its bytecode
    return root


def tried(root: Path, mutation: Mutation, suite: Suite, tests: Sequence[str], limit: float) -> tuple[Outcome, str, float]:
    """Outcome, the first test that failed, and seconds."""
    path = root / mutation.file
    whole = path.read_text(encoding="utf-8")
    began = time.monotonic()
    if not tests:
        return "unreached", "", 0.0
    path.write_text(applied(whole, mutation), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", *MARKS[suite], *tests]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return "out of time", "", time.monotonic() - began
    finally:
        path.write_text(whole, encoding="utf-8")
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if "ERROR: not found:" in done.stderr or "file or directory not found" in done.stderr:
        raise FileNotFoundError(done.stderr)  # an old record: no fault was met
    caught = done.returncode not in {0, 5}  # 5: no test of this suite is there
    return "caught" if caught else "survived", first[1] if first else "", time.monotonic() - began


def run(only: Only, count: int, seed: int, suite: Suite, limit: float, most: int) -> None:
    """Try what is not in the results yet; in the deep suite only what survived the quick one. Of the quick tests that reach a line of code,
    the `most` that reach least.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    known = {(result.key, result.suite): result for result in results()}
    reach = recorded() if only == "code" else None
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        root = copy_of_the_tree(Path(folder))
        for place, mutation in enumerate(drawn(only, count, seed)):
            key = f"{only} {seed} {place}"
            quick = known.get((key, "quick"))
            if (key, suite) in known or (suite == "deep" and (quick is None or quick.outcome == "caught")):
                continue
            tests = reach.of(mutation) if reach is not None else readers(mutation)
            chosen = [test for test in (modules(tests) if suite == "deep" else tests[:most]) if (root / test.split("::")[0]).exists()]
            text = (ROOT / mutation.file).read_text(encoding="utf-8")
            outcome, by, seconds = tried(root, mutation, suite, chosen, limit)
            result = Result(
                key=key, suite=suite, file=mutation.file, line=mutation.line, kind=mutation.kind,
                old=_line(text, mutation.line), new=_line(applied(text, mutation), mutation.line),
                outcome=outcome, by=by, tests=len(chosen), seconds=round(seconds, 1),
            )  # fmt: skip
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(f"{key}: {result.file}:{result.line} {result.kind}: {outcome} {by} ({result.seconds} s, {len(chosen)} tests)", flush=True)


def together(suite: Suite) -> None:
    """Give the survivors of both kinds to a whole suite: all at once, then each alone to the tests that failed."""
    latest = {(result.key, result.suite): result for result in results()}
    before = [result for (_, tried_by), result in latest.items() if tried_by == "quick" and result.outcome in {"survived", "unreached"}]
    asked = [result for result in before if suite == "quick" or (result.key, suite) not in latest]
    found = {result.key: _mutation(result.key) for result in asked}
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        root = copy_of_the_tree(Path(folder))
        whole = {name: (root / name).read_text(encoding="utf-8") for name in {mutation.file for mutation in found.values()}}
        for name, text in whole.items():
            (root / name).write_text(_all_applied(text, [one for one in found.values() if one.file == name]), encoding="utf-8")
        failed = _failed(root, suite, [], "-n", "auto", "--dist", "loadgroup")
        print(f"all {len(found)} together: {len(failed)} tests of the {suite} suite fail", flush=True)
        for name, text in whole.items():
            (root / name).write_text(text, encoding="utf-8")
        for result in asked:
            mutation = found[result.key]
            (root / mutation.file).write_text(applied(whole[mutation.file], mutation), encoding="utf-8")
            began = time.monotonic()
            by = _failed(root, suite, failed, "-x") if failed else []
            (root / mutation.file).write_text(whole[mutation.file], encoding="utf-8")
            outcome: Outcome = "caught" if by else "survived"
            after = replace(
                result, suite=suite, outcome=outcome, by=by[0] if by else "", tests=len(failed), seconds=round(time.monotonic() - began, 1)
            )
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(after)) + "\n")
            print(f"{result.key}: {result.file}:{result.line} {result.kind}: {outcome} {after.by}", flush=True)


def _mutation(key: str) -> Mutation:
    """The mutation that a key names: kind, seed and place in its sample."""
    only, seed, place = key.split()
    return drawn("code" if only == "code" else "rules", int(place) + 1, int(seed))[int(place)]


def _all_applied(text: str, mutations: Sequence[Mutation]) -> str:
    """The text with those mutations that do not overlap one that ends later."""
    begin = len(text)
    for mutation in sorted(mutations, key=lambda one: -one.end):
        if mutation.end <= begin:
            text, begin = applied(text, mutation), mutation.start
    return text


def _failed(root: Path, suite: Suite, tests: Sequence[str], *options: str) -> list[str]:
    """The tests that fail in a tree."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", *options, *MARKS[suite], *tests]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return re.findall(
        r"^(?:FAILED|ERROR) (.+?)(?:@[\w-]+)?(?: - .*)?$", done.stdout, re.MULTILINE
    )  # @: the group that xdist puts behind a name


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip() if number <= len(lines) else ""


def results() -> list[Result]:
    """What is known so far."""
    if not RESULTS.exists():
        return []
    return [Result(**json.loads(line)) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


# ---------------------------------------------------------------------------------------------- table


def table() -> str:
    """Caught by quick, by deep only, by neither; and every mutation that quick does not catch, with its line."""
    found = results()
    quick = {result.key: result for result in found if result.suite == "quick"}
    deep = {result.key: result for result in found if result.suite == "deep"}
    groups: dict[str, Callable[[str], bool]] = {
        "quick": lambda key: quick[key].outcome == "caught",
        "deep only": lambda key: quick[key].outcome != "caught" and key in deep and deep[key].outcome == "caught",
        "neither": lambda key: quick[key].outcome != "caught" and (key not in deep or deep[key].outcome != "caught"),
    }
    lines = ["| mutations of | tried | caught by quick | by deep only | by neither |", "|---|---|---|---|---|"]
    for only in ("code", "rules"):
        keys = [key for key in quick if key.startswith(f"{only} ")]
        lines.append(f"| {only} | {len(keys)} | " + " | ".join(str(sum(map(holds, keys))) for holds in groups.values()) + " |")
    lines += ["", "| not caught by quick | kind | before | after | deep |", "|---|---|---|---|---|"]
    for key, result in quick.items():
        if result.outcome != "caught":
            said = deep[key].outcome if key in deep else "not tried"
            old, new = (text.replace("|", "\\|") for text in (result.old, result.new))
            lines.append(f"| {result.file}:{result.line} | {result.kind} ({result.outcome}) | `{old}` | `{new}` | {said} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutations", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="which quick tests reach which line")
    recording.add_argument("paths", nargs="*", help="only these tests")
    verbs.add_parser("table", help="what was caught so far")
    running = verbs.add_parser("run", help="try mutations")
    running.add_argument("--only", choices=["code", "rules"], required=True)
    running.add_argument("--count", type=int, default=60)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--suite", choices=["quick", "deep"], default="quick")
    joint = verbs.add_parser("together", help="give what survived to a whole suite")
    joint.add_argument("--suite", choices=["quick", "deep"], required=True)
    running.add_argument("--limit", type=float, default=1200, help="seconds for the tests of one mutation")
    running.add_argument("--most", type=int, default=100, help="test functions for one mutation of code, the nearest first")
    asked = parser.parse_args()
    if asked.verb == "record":
        record(asked.paths)
    elif asked.verb == "table":
        print(table(), end="")
    elif asked.verb == "together":
        together(asked.suite)
    else:
        run(asked.only, asked.count, asked.seed, asked.suite, asked.limit, asked.most)


if __name__ == "__main__":
    main()
