"""Device kernel names of a library, as profilers show them, from a git snapshot of its sources.

`python -m tests.kernels.extract LIBRARY GIT_DIR`.

Prints one line per name: path, spelling, name, separated by tabs. Only names leave the sources. Read are `__global__` functions with
their namespaces (template arguments and argument types as declared, types that a template leaves open as bfloat16), Triton functions that
somebody launches (not those that other Triton functions call), CuTe-DSL kernels (as that language names them, by module and class),
TileLang programs, and the kernel classes of CK-tile and CUTLASS, which run under one launcher. Labels are given by people (README.md).
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

CUDA = {".cu", ".cuh", ".h", ".hpp", ".hip", ".inl", ".cpp", ".hxx"}
SKIPPED = re.compile(
    r"(^|/)(tests?|testing|unittests?|benchmarks?|bench|docs?|3rdparty|third_?party|external|tutorials?|cutlass_archive|deprecated)(/|$)",
    re.IGNORECASE,
)
MOST, SEED = 60, 14  # names of a library; what they are drawn by
# Beside SKIPPED: what is not installed for users.
_TRIED = re.compile(
    r"(^|/)(bench\w*|test_\w*|\w*_test|play|perf|microbench\w*|sandbox)(/|\.|$)|"
    r"_test\.c|bench_|/bench|archive|(^|/)AI/|dev-zone|^dev/|test",
    re.IGNORECASE,
)
_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
_TOKEN = re.compile(r"\bnamespace\b\s*([\w:]*)\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?\{|[{}]|\b__global__\b", re.DOTALL)
_QUALIFIER = re.compile(
    r"\s*(?:(?:static|inline|extern|constexpr|__forceinline__|void|const|__restrict__|noexcept|requires|\[\[[^\]]*\]\])(?![\w])|"
    r"(?:__launch_bounds__|__cluster_dims__|__attribute__|__block_size__|__maxnreg__|amdgpu_\w+|[A-Z][A-Z0-9_]*(?:ATTR|BOUNDS|LAUNCH\w*))\s*(\()?)"
)
_TEMPLATE = re.compile(r"\btemplate\s*<")
_JITTED = re.compile(r"\b(?:triton\.)?(?:jit|autotune|heuristics)\b|\btriton_(?:jit|autotune)\b|\bgluon\.jit\b")
_OTHER_JIT = re.compile(r"\b(torch|cute|tilelang|numba|jax|helion)\.|\bcuda\.jit")
_CUTE = re.compile(r"\bcute\.kernel\b")
_TILELANG = re.compile(r"\bT\.prim_func\b|^prim_func$")
_SUBSTITUTE = {"bool": "true", "int": "128", "int32_t": "128", "uint32_t": "128u", "unsigned": "128u", "size_t": "128ul", "int64_t": "128l"}


class Snapshot:
    """The newest commit in a bare git directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.commit = self._git("rev-parse", "HEAD").decode().strip()

    def _git(self, *arguments: str, given: bytes | None = None) -> bytes:
        return subprocess.run(["git", "-C", str(self._path), *arguments], check=True, capture_output=True, input=given).stdout

    def files(self, *, everything: bool = False) -> Iterator[tuple[str, str]]:
        """Path and text of the sources."""
        kinds = {*CUDA, ".py", ".in"}
        listed = self._git("ls-tree", "-r", "HEAD", "-z").decode(errors="replace").split("\0")
        rows = [(line.split("\t", 1)[1], line.split()[2]) for line in listed if " blob " in line]
        rows = [(path, blob) for path, blob in rows if PurePosixPath(path).suffix in kinds and (everything or not SKIPPED.search(path))]
        raw = self._git("cat-file", "--batch", given="".join(f"{blob}\n" for _, blob in rows).encode())
        at = 0
        for path, _ in rows:
            end = raw.index(b"\n", at)
            told = raw[at:end].split()
            if told[-1] == b"missing":  # a snapshot may lack its largest files
                at = end + 1
                continue
            size = int(told[2])
            yield path, raw[end + 1 : end + 1 + size].decode(errors="replace")
            at = end + size + 2


def _close(text: str, start: int, pair: str) -> int:
    """The place behind the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, min(len(text), start + 6000)):
        depth += (text[at] == pair[0]) - (text[at] == pair[1] and text[at - 1] != "-")
        if depth == 0:
            return at + 1
    return -1


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "<([{") - (sign in ">)]}")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def _arguments(declared: str) -> tuple[list[str], dict[str, str]]:
    """Typical arguments for declared template parameters, and what the types among them stand for."""
    values, types = [], {}
    for one in _split(declared):
        kind, _, preset = (part.strip() for part in one.partition("="))
        words = re.findall(r"\w+", kind)
        if pointer := re.search(r"\(\*\s*(\w+)\)", kind):
            values.append(f"&({pointer[1]}(__nv_bfloat16 const&))")
            continue
        if not words or re.search(r"enable_if|requires", one):
            continue
        if words[0] in {"typename", "class"}:
            name = words[-1]
            value = (
                "__nv_bfloat16"
                if re.fullmatch(r"(\w*_)?[A-Za-z]?\w{0,3}T|T\w*|\w*(_t|[Tt]ype|DType|scalar|Data|Elem\w*)\d*", name)
                else name
            )
            values.append(value)
            types[name] = value
        else:
            plain = [word for word in words if word not in {"const", "unsigned", "std"}] or words
            values.append(_SUBSTITUTE.get(plain[0], preset if re.fullmatch(r"\w+", preset) and preset else f"({plain[0]})1"))
    return values, types


def _parameter(text: str, types: dict[str, str]) -> str:
    text = re.sub(r"\[\[.*?\]\]|=.*|__restrict__|__grid_constant__|\bCUTLASS_GRID_CONSTANT\b|\brestrict\b", " ", text.replace("\n", " "))
    text = re.sub(r"\[[^\]]*\]", "*", text)
    text = re.sub(r"^(.*[\s*&>])\w+\s*$", r"\1", text.strip()) or text
    text = re.sub(r"\b\w+\b", lambda word: types.get(word[0], word[0]), text)
    text = re.sub(r"\s+", " ", re.sub(r"\s*([*&])\s*", r"\1", text)).strip()
    pointer = re.match(r"const ([\w:<>, ]+?)([*&]+)$", text)
    return f"{pointer[1]} const{pointer[2]}" if pointer else text.removeprefix("const ")


def cuda(text: str) -> Iterator[str]:
    """Names of `__global__` functions."""
    text = _NOISE.sub(lambda found: " " if found[0].startswith("/") else '""', text)
    text = re.sub(r"^\s*#\s*(?:if|else|elif|endif|include|pragma|undef|error|ifdef|ifndef)[^\n]*", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^\s*#\s*define(?:[^\n]*\\\n)*[^\n]*", lambda found: found[0] if "__global__" in found[0] else "", text, flags=re.MULTILINE
    )
    spaces: list[str | None] = []
    for token in _TOKEN.finditer(text):
        if token[0] == "}":
            if spaces:
                spaces.pop()
        elif token[0] == "{":
            spaces.append(None)
        elif token[0] != "__global__":
            spaces.append(token[1] or "(anonymous namespace)")
        elif name := _function(text, token, [space for space in spaces if space]):
            yield name


def _function(text: str, token: re.Match[str], spaces: Sequence[str]) -> str | None:
    at = token.end()
    while found := _QUALIFIER.match(text, at):
        if found.end() == at:
            return None
        at = _close(text, found.end() - 1, "()") if found[1] else found.end()
        if at < 0:
            return None
    named = re.match(r"\s*(?:__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?(?:void\s+)?([A-Za-z_]\w*)\s*\(", text[at : at + 400])
    if not named or "##" in text[at : at + named.end() + 2] or named[1] in {"void", "__launch_bounds__", "for", "if"}:
        return None
    opening = at + named.end() - 1
    closing = _close(text, opening, "()")
    if closing < 0 or not re.match(r"\s*[{;]|\s*\\\s*\n?\s*[{;]", text[closing : closing + 30]):
        return None
    if text[closing:].lstrip()[:1] == ";":  # a declaration
        return None
    before = text[max(0, token.start() - 1500) : token.start()]
    heads = [head for head in _TEMPLATE.finditer(before) if not re.search(r"[;{}]", before[_close(before, head.end() - 1, "<>") :])]
    values: list[str] = []
    types: dict[str, str] = {}
    if heads and (end := _close(before, heads[-1].end() - 1, "<>")) > 0:
        values, types = _arguments(before[heads[-1].end() : end - 1])
    shown = ", ".join(_parameter(one, types) for one in _split(text[opening + 1 : closing - 1]))
    whole = "::".join([*spaces, named[1]])
    return f"void {whole}<{', '.join(values)}>({shown})"[:600] if values else f"{whole}({shown})"[:600]


def _decorated(node: ast.FunctionDef) -> str:
    return " ".join(ast.unparse(one) for one in node.decorator_list)


class Python:
    """Kernels written in Python. What is launched is known only when all files were read."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, str]] = []
        self._triton: list[tuple[str, str]] = []
        self._launched: set[str] = set()
        self._called: set[str] = set()

    def read(self, path: str, text: str) -> None:
        self.found += [
            (path, "cuda", f"{name}()") for name in re.findall(r"__global__\s+void\s+(?:__launch_bounds__\([^()]*\)\s*)?([a-z]\w*)\(", text)
        ]
        if not re.search(r"triton|cute\.kernel|T\.prim_func|T\.Kernel|gluon", text):
            return
        wrapped = set(re.findall(r"triton\.jit\((\w+)\)", text))
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return
        self._triton += [(path, name) for name in wrapped]
        self._launched |= wrapped
        self._visit(path, tree, "", jitted=False)

    def _visit(self, path: str, node: ast.AST, owner: str, *, jitted: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = jitted
            if isinstance(child, ast.FunctionDef):
                marks = _decorated(child)
                if _CUTE.search(marks):
                    module = path.removesuffix(".py").replace("/", "").removeprefix("src").removeprefix("python")
                    named = (
                        f"kernel_cutlass_{child.name}_{module}{owner}_object_at__tensorptrbf16gmemalign16odiv8i641"
                        if owner
                        else f"kernel_cutlass_{child.name}_tensorptrbf16gmemalign16odiv8i641"
                    )
                    self.found.append((path, "cute", named))
                elif _TILELANG.search(marks) or (
                    "tilelang." in marks and "T.Kernel" in ast.unparse(child) and "prim_func" not in ast.unparse(child)
                ):
                    self.found.append((path, "tilelang", f"{child.name}_kernel"))
                elif _JITTED.search(marks) and not _OTHER_JIT.search(marks):
                    self._triton.append((path, child.name))
                    inside = True
            elif isinstance(child, ast.Call) and isinstance(child.func, ast.Subscript):
                self._launched.add(ast.unparse(child.func.value).split(".")[-1])
            elif isinstance(child, ast.Call) and jitted:
                self._called.add(ast.unparse(child.func).split(".")[-1])
            self._visit(path, child, child.name if isinstance(child, ast.ClassDef) else owner, jitted=inside)

    def names(self) -> Iterator[tuple[str, str, str]]:
        yield from self.found
        for path, name in self._triton:
            if name in self._launched or ("kernel" in name and name not in self._called):
                yield path, "triton", name


def _classes(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Kernels that are classes under one launcher: CK-tile's and CUTLASS's."""
    if re.search(r"ck_tile/ops/.*/kernel/", path):
        for name in re.findall(r"^struct (\w+Kernel)\b\s*(?:$|\{|:)", text, re.MULTILINE):
            yield (
                "ck_tile",
                f"void ck_tile::kentry<256, 2, ck_tile::{name}<ck_tile::{name}Problem, ck_tile::Default2DEpilogue>, ck_tile::{name}::Kargs>(ck_tile::{name}::Kargs)",
            )


def kernels(snapshot: Snapshot, *, everything: bool = False) -> Iterator[tuple[str, str, str]]:
    """Path, spelling and name of all kernels."""
    python = Python()
    for path, text in snapshot.files(everything=everything):
        if path.endswith(".py"):
            python.read(path, text)
        elif "__global__" in text:
            yield from ((path, "cuda", name) for name in cuda(text))
        yield from ((path, spelling, name) for spelling, name in _classes(path, text))
    yield from python.names()


def chosen(library: str, rows: Iterable[tuple[str, str, str]], most: int = MOST) -> list[tuple[str, str, str]]:
    """At most so many rows, one for each function, drawn by the names themselves: more sources change nothing about the others' order."""
    ranked = sorted(
        {row for row in rows if not _TRIED.search(row[0])}, key=lambda row: (_rank(f"{library}:{function(row[2])}:{row[0]}"), row)
    )
    firsts: dict[str, tuple[str, str, str]] = {}
    for row in ranked:
        firsts.setdefault(function(row[2]), row)
    return sorted(firsts[name] for name in sorted(firsts, key=lambda name: _rank(f"{library}:{name}"))[:most])


def function(name: str) -> str:
    """The function of a name, or the class that runs under a launcher, in small letters."""
    held = re.search(r"ck_tile::(\w+Kernel)", name)
    bare = name.removeprefix("void ").replace("(anonymous namespace)", "")
    return (held[1] if held else re.split(r"[<(]", bare)[0].split("::")[-1]).lower()


def _rank(text: str) -> bytes:
    return hashlib.sha256(f"{SEED}:{text}".encode()).digest()


def main(arguments: Sequence[str]) -> int:
    """Command line."""
    library, path = arguments
    snapshot = Snapshot(Path(path))
    sys.stdout.write(f"# {library} {snapshot.commit}\n")
    for row in chosen(library, kernels(snapshot)):
        sys.stdout.write("\t".join(row) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
