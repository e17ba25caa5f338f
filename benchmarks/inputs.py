"""Large inputs for the benchmarks, made from small traces by repeating them in time.

With the folder ../shared beside the project its generators and real base traces are used; without it, the synthetic demo is repeated by the
functions here.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fixtures.__main__ import FOLDER, NSYS, TORCH, unpack

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
TORCH_BASE = SHARED / "traces" / "kineto" / "deepseek-ai_profile-data_train.json"
NSYS_BASE = SHARED / "traces" / "nsys" / "GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_before.sqlite"
TIMES = frozenset({"start", "end", "timestamp"})
IDENTITIES = frozenset({"correlationId", "eventSyncId", "gridId"})
_SHIFTED = re.compile(
    r'("ts": )(\d+)|("(?:id|correlation|External id|Ev Idx|Sequence number|wait_on_cuda_event_record_corr_id)": )(\d+)|(ProfilerStep#)(\d+)'
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where large inputs come from: real traces through the shared generators, or the demo through the functions here."""

    torch: str
    nsys: str


def _python_with_numpy() -> str | None:
    """An interpreter that can run the shared generator of PyTorch traces."""
    for name in (sys.executable, shutil.which("python3")):
        if name and subprocess.run([name, "-I", "-c", "import numpy"], capture_output=True, check=False).returncode == 0:
            return name
    return None


def source() -> Source:
    """What this machine can make inputs from, in words for the report."""
    torch = TORCH_BASE.is_file() and (SHARED / "tools" / "gen_kineto.py").is_file() and _python_with_numpy() is not None
    nsys = NSYS_BASE.is_file() and (SHARED / "tools" / "gen_nsys.py").is_file()
    return Source(
        torch="the public DeepSeek-V3 training trace, repeated" if torch else "the synthetic demo, repeated",
        nsys="a public two-GPU export of schema 3.25.0, repeated" if nsys else "the synthetic demo, repeated",
    )


def torch_trace(folder: Path, megabytes: int) -> Path:
    """A PyTorch profiler JSON of about `megabytes` · 10^6 bytes."""
    out = folder / f"torch-{megabytes}.json"
    python = _python_with_numpy()
    generator = SHARED / "tools" / "gen_kineto.py"
    if TORCH_BASE.is_file() and generator.is_file() and python:
        command = [python, str(generator), "--base", str(TORCH_BASE), "--out", str(out), "--target-mb", str(megabytes)]
        subprocess.run(command, check=True, capture_output=True)
    else:
        repeat_torch(FOLDER / TORCH, out, megabytes * 1_000_000)
    return out


def nsys_export(folder: Path, kernels: int) -> Path:
    """An Nsight Systems export with about `kernels` kernels and about one runtime call and one range per kernel."""
    out = folder / f"nsys-{kernels}.sqlite"
    generator = SHARED / "tools" / "gen_nsys.py"
    if NSYS_BASE.is_file() and generator.is_file():
        thin = ["--runtime-per-kernel", "1", "--nvtx-per-kernel", "1"]
        command = [sys.executable, str(generator), "--base", str(NSYS_BASE), "--out", str(out), "--kernels", str(kernels), *thin]
        subprocess.run(command, check=True, capture_output=True)
    else:
        unpack(NSYS, out)
        repeat_nsys(out, kernels)
    return out


def packed(path: Path) -> Path:
    """A gzip copy beside `path`."""
    out = path.with_name(path.name + ".gz")
    with path.open("rb") as plain, gzip.open(out, "wb", compresslevel=4) as target:
        shutil.copyfileobj(plain, target, 1 << 20)
    return out


def repeat_torch(base: Path, out: Path, size: int) -> None:
    """Write `base` (gzip) again and again to `out`, with shifted times, ids and step numbers, until it has about `size` bytes."""
    text = gzip.decompress(base.read_bytes()).decode()
    begin = text.index("[\n", text.index('"traceEvents"')) + 2
    end = text.rindex("\n  ]")
    body = text[begin:end]
    values = [int(match[2] or match[4] or match[6]) for match in _SHIFTED.finditer(body)]
    kinds = [0 if match[1] else 1 if match[3] else 2 for match in _SHIFTED.finditer(body)]
    template = _SHIFTED.sub(lambda match: (match[1] or match[3] or match[5]) + "%d", body.replace("%", "%%"))
    spans = [max(v for v, kind in zip(values, kinds, strict=True) if kind == want) for want in range(3)]
    first = [min(v for v, kind in zip(values, kinds, strict=True) if kind == want) for want in range(3)]
    strides = (spans[0] - first[0] + 10_000, spans[1] + 1, spans[2] - first[2] + 1)
    with out.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text[:begin])
        for tile in range(max(1, round(size / len(body)))):
            file.write(",\n" if tile else "")
            file.write(template % tuple(value + tile * strides[kind] for value, kind in zip(values, kinds, strict=True)))
        file.write(text[end:])


def repeat_nsys(path: Path, kernels: int) -> None:
    """Repeat the event tables of the export at `path` in place, with shifted times and ids, up to about `kernels` kernels."""
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -200000"):
        database.execute(f"PRAGMA {pragma}")
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {table: [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')] for table in tables}
    events = [table for table in tables if "start" in columns[table] or table.endswith("_CUDA_EVENT")]
    count = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    period = database.execute('SELECT max("end") + 1000 FROM CUPTI_ACTIVITY_KIND_RUNTIME').fetchone()[0]
    identity = 1 + database.execute("SELECT max(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
    database.execute("BEGIN")
    for table in events:
        shifted = ", ".join(
            f'"{name}" + :tile * {period}' if name in TIMES else f'"{name}" + :tile * {identity}' if name in IDENTITIES else f'"{name}"'
            for name in columns[table]
        )
        database.execute(f'CREATE TEMP TABLE once AS SELECT * FROM main."{table}" ORDER BY rowid')
        for tile in range(1, max(1, round(kernels / count))):
            database.execute(f'INSERT INTO main."{table}" SELECT {shifted} FROM temp.once ORDER BY rowid', {"tile": tile})
        database.execute("DROP TABLE temp.once")
    database.execute("COMMIT")
    database.close()


def named_trace(folder: Path, *, known: bool, names: int = 4_000) -> Path:
    """A PyTorch profiler JSON with as many kernels as names: those of a known family, or made up, so that their words have to be read."""
    made = (
        f"void at::native::vectorized_elementwise_kernel<{number}, at::native::CUDAFunctor_add<float>>(int)"
        if known
        else f"acme_{_syllables(number)}_{_syllables(number * 7919)}_kernel"
        for number in range(names)
    )
    launch = '{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{ts},"dur":2,"args":{{"correlation":{at}}}}}'
    kernel = (
        '{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":4,"args":{{"correlation":{at},"stream":7,"device":0}}}}'
    )
    events = [
        line.format(name=name, at=at + 1, ts=at * 6 + late) for at, name in enumerate(made) for late, line in ((0, launch), (3, kernel))
    ]
    out = folder / f"names-{'known' if known else 'unknown'}.json"
    out.write_text('{"traceEvents":[' + ",\n".join(events) + "]}", encoding="utf-8")
    return out


def _syllables(number: int) -> str:
    """A word for a number."""
    return "".join("bdfglmnprtvz"[number // 12**place % 12] + "aeiou"[number // 5**place % 5] for place in range(4))
