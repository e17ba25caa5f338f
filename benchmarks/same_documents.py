"""Whether two checkouts of the program say the same, byte for byte: every fixture, every real trace, every job file, in every format.

    python -m benchmarks.same_documents BEFORE [AFTER] [--traces FOLDER] [--only json] [--keep FOLDER]

BEFORE and AFTER (this checkout if not named) are folders that hold `diagnose/` and `trace_rules/`. Each runs in a process of its own; the
program's version and the digest of its rules are made equal before the bytes are compared. Exits with 1 and names what differs.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = ROOT / "fixtures" / "jobs"
JOB = JOBS / "qwen3_30b_a3b_alltoall_h100.yaml"
REAL = ROOT.parent / "shared" / "traces"
PAGES = ("json", "md", "txt", "html")
CHECKS = ("xml", "sarif")
DIGEST = re.compile(rb"()[0-9a-f]{64}|(rules\W{1,10}(?:code>)?)[0-9a-f]{12}")
VERSION = re.compile(rb"((?:moe-diagnose|diagnose)[\"/ ,a-z:]{1,16}|\"version\": ?\")[0-9]+\.[0-9]+\.[0-9]+")
CHILD = """
import contextlib, io, json, pathlib, sys
from diagnose.cli import main
for name, arguments in json.loads(sys.stdin.read()):
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    out.flush()
    said = out.buffer.getvalue() + b"\\n--- standard error ---\\n" + err.getvalue().encode() + f"\\nexit {code}\\n".encode()
    pathlib.Path(name).write_bytes(said)
    print(name, file=sys.__stderr__)
"""

Case = tuple[str, list[str]]


def unpacked(folder: Path) -> list[Path]:
    """The traces of fixtures/traces, unpacked where the program does not read them packed."""
    found = []
    for path in sorted((ROOT / "fixtures" / "traces").glob("*.gz")):
        if path.name.endswith(".json.gz"):
            found.append(path)
        else:
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
            found.append(folder / path.stem)
    return found


def written(name: str, arguments: Sequence[str], extensions: Sequence[str]) -> Case:
    """A case that writes a file of each extension, and text to standard output."""
    files = [word for extension in extensions for word in ("-o", f"{name}.{extension}")]
    return f"{name}.stdout", [*arguments, *files, "--force"]


def cases(own: Path, real: Path | None, extensions: Sequence[str]) -> Iterator[Case]:
    """Every run that is compared: the name of its output and its arguments."""
    traces = unpacked(own)
    for path in traces:
        yield written(f"fixture-{path.name}", ["analyse", str(path), "--config", str(JOB)], extensions)
        yield written(f"bare-{path.name}", ["analyse", str(path)], extensions)
    stragglers = [str(path) for path in traces if path.name.startswith("straggler")]
    yield written("ranks", ["analyse", *stragglers, "--config", str(JOB), "--jobs", "1"], extensions)
    by_name = {path.name: str(path) for path in traces}
    pairs = [("demo.sqlite", "recompute.sqlite"), ("demo.sqlite", "graphs.sqlite"), ("demo.sqlite", "demo.pt.trace.json.gz")]
    for before, after in pairs:
        yield written(f"compare-{before}-{after}", ["compare", by_name[before], by_name[after]], extensions)
    yield from jobs_and_knowledge()
    if real is None:
        return
    inputs = sorted(path for path in real.glob("*/*"))
    for path in inputs:
        yield written(f"real-{path.name[:120]}", ["analyse", str(path), "--jobs", "1"], extensions)
    deepseek = next(path for path in inputs if path.name.startswith("deepseek"))
    yield written("real-deepseek-with-job", ["analyse", str(deepseek), "--config", str(JOBS / "b1_deepseek_v3_gb200.yaml")], extensions)
    mfu = [str(path) for path in inputs if "mfu_2gpu" in path.name]
    yield written("real-compare-mfu", ["compare", *reversed(mfu)], extensions)
    # `bisect --traces` is no case: since it measures every trace and looks for steps in the whole series, it says something else than
    # before.


def jobs_and_knowledge() -> Iterator[Case]:
    """Job files judged alone, and what the program knows, as text and as JSON."""
    for path in sorted(JOBS.iterdir()):
        if path.name != "README.md":
            for form in ("text", "json"):
                yield f"check-{path.name}.{form}", ["check", str(path), "--format", form]
    for fix in ("HOST-01", "COM-05", "MEM-02"):
        yield f"patch-{fix}", ["patch", str(JOB), "--fix", fix]
    for word in ("router", "host_overhead", "HOST-01", "communication-exposed", "moe_token_dispatcher_type", "launch_starved_ns", "h100"):
        yield f"explain-{word}", ["explain", word]
    yield "rules", ["rules"]
    for form in ("text", "json"):
        yield f"kernel.{form}", ["kernel", "ncclDevKernel_SendRecv", "--format", form]


def run(checkout: Path, folder: Path, runs: Sequence[Case]) -> None:
    """Run every case on one checkout, with its outputs in `folder`."""
    import json  # noqa: PLC0415

    environment = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "100", "NO_COLOR": "1", "PYTHONHASHSEED": "0"}
    subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=folder,
        env=environment,
        input=json.dumps(list(runs)),
        text=True,
        check=True,
        stderr=subprocess.DEVNULL,
    )


def neutral(text: bytes) -> bytes:
    """The bytes without what may differ: the program's version and the digest of its rules."""
    return VERSION.sub(rb"\g<1>0.0.0", DIGEST.sub(rb"\g<2>0", text))


def differing(before: Path, after: Path, names: Sequence[str]) -> list[str]:
    """Those of the named outputs that are not the same, with their first lines of difference."""
    found = []
    for name in names:
        sides = [neutral(path.read_bytes()) if path.exists() else b"" for path in (before / name, after / name)]
        if sides[0] != sides[1]:
            lines = [side.decode(errors="replace").splitlines() for side in sides]
            first = (
                [line[:200] for line in difflib.unified_diff(lines[0], lines[1], lineterm="", n=0)][2:8]
                if len(sides[0]) < 3_000_000
                else []
            )
            found.append("\n    ".join([name, *first]))
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--traces", type=Path, default=REAL)
    parser.add_argument("--only", action="append", choices=[*PAGES, *CHECKS], help="compare these formats alone; repeatable")
    parser.add_argument("--keep", type=Path, help="where outputs are kept, and taken from for a checkout that ran before")
    asked = parser.parse_args()
    extensions = tuple(asked.only or (*PAGES, *CHECKS))
    with tempfile.TemporaryDirectory() as folder:
        own = (asked.keep or Path(folder)).resolve() / "inputs"
        own.mkdir(parents=True, exist_ok=True)
        runs = list(cases(own, asked.traces if asked.traces.is_dir() else None, extensions))
        sides = [own.parent / side for side in ("before", "after")]
        for side, checkout in zip(sides, (asked.before, asked.after), strict=True):
            if side.name == "before" and side.is_dir():
                continue
            side.mkdir(exist_ok=True)
            run(checkout.resolve(), side, runs)
        names = sorted({path.name for folder in sides for path in folder.iterdir()})
        compared = [name for name in names if not asked.only or name.endswith(tuple(f".{extension}" for extension in asked.only))]
        found = differing(sides[0], sides[1], compared)
        print(f"{len(runs)} runs, {len(compared)} outputs compared, {len(found)} differ")
        for name in found:
            print("  " + name)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
