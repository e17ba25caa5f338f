"""The two MFU traces against what NVIDIA's own `nsys stats` prints of them."""

import csv
import io
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from diagnose.load.readers import load
from diagnose.pipeline import diagnose
from tests.builders.cases import for_each

NSYS = shutil.which("nsys")
REPORTS = ("cuda_gpu_kern_sum", "gpukernsum")  # the report's name since 2023 and before

pytestmark = [pytest.mark.nsys, pytest.mark.skipif(NSYS is None, reason="NVIDIA's nsys is not on this machine")]


def kernel_summary(export: Path) -> dict[str, tuple[int, int]]:
    """Kernel name → (total ns, instances), as `nsys stats` sums them over all devices."""
    for report in REPORTS:
        done = subprocess.run(
            [str(NSYS), "stats", "--quiet", "--report", report, "--format", "csv", str(export)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        start = done.stdout.find("Time (%)")
        if done.returncode == 0 and start >= 0:
            sums: dict[str, tuple[int, int]] = {}
            for row in csv.DictReader(io.StringIO(done.stdout[start:])):
                total, instances = sums.get(row["Name"], (0, 0))
                sums[row["Name"]] = (total + int(row["Total Time (ns)"]), instances + int(row["Instances"]))
            return sums
    pytest.skip("this nsys can't summarise the kernels of an SQLite export")


@for_each("state", "before", "after")
def test_kernel_sums_agree(state: str, real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / f"nsys/GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_{state}.sqlite"
    copy = tmp_path / source.name  # nsys writes beside the file that it reads
    shutil.copyfile(source, copy)
    theirs = kernel_summary(copy)
    found = diagnose([source])
    assert sum(total.kernel_work_ns for total in found.totals) == sum(total for total, _ in theirs.values())
    assert sum(total.kernel_count for total in found.totals) == sum(instances for _, instances in theirs.values())
    trace = load(source)
    kernels = trace.ops.filter(trace.ops["kind"] == "kernel")
    names = trace.names["text"]
    ours: Counter[str] = Counter()
    for name_id, start, end in kernels.select("name_id", "start", "end").iter_rows():
        ours[names[name_id]] += end - start
    assert dict(ours) == {name: total for name, (total, _) in theirs.items()}
