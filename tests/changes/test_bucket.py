"""A new bucket is its row in buckets.yaml and its families; a new family is one entry.

Nothing else changes, and every output knows them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.changes.conftest import ProgramCopy

ROWS, FAMILIES = "trace_rules/buckets.yaml", "trace_rules/buckets/01-probe.yaml"
ROW = """
probe_parts:
  title: parts of a probe
  colour: "#123456"
  model_work: true
  part: {order: 9, words: a probe}
  holds: what a probe computes
  elsewhere: ""
  told_by: its name
  traps: []
  sources: []
"""
FAMILY = """
families:
  - id: probe_rope
    patterns: ['\\bfused_rope_(forward|backward)_kernel']
    operation: attention
    bucket: {bucket}
    decisive: true
    marks: [gelu]
    examples: ['void transformer_engine::fused_rope_forward_kernel<__nv_bfloat16>(int)']
"""
KERNEL = "void transformer_engine::fused_rope_forward_kernel<__nv_bfloat16>(const T1 *)"


def work(document: dict[str, Any]) -> dict[str, int]:
    """ns of work per step by bucket."""
    return {row["bucket"]: row["work_ns"] for row in document["buckets"]}


@pytest.mark.deep
def test_a_bucket_is_a_row_and_its_families(program: ProgramCopy, demo_trace: Path, before: dict[str, Any]) -> None:
    program.append(ROWS, ROW)
    program.write(FAMILIES, FAMILY.format(bucket="probe_parts"))

    saved = program.folder / "after.json"
    _, *pages, explained, kernel = program.runs(
        (demo_trace, "-o", saved),
        *(("render", saved, "-vv", "--format", form) for form in ("text", "markdown", "html")),
        ("explain", "probe_parts"),
        ("kernel", KERNEL),
    )
    after = json.loads(saved.read_bytes())
    moved = work(after)["probe_parts"]
    assert moved > 0
    assert work(before)["attention"] == pytest.approx(work(after)["attention"] + moved, rel=0.01)  # medians over the steps
    assert all(ns == work(before)[bucket] for bucket, ns in work(after).items() if bucket not in {"attention", "probe_parts"})
    assert {list(step["compute"])[-1] for step in after["split"][0]["steps"]} == {"probe_parts"}  # the last of the vocabulary

    assert ["parts of a probe" in page for page in (*pages, kernel)] == [True] * 4
    assert "#123456" in pages[-1]
    assert "what a probe computes" in explained
    program.remove("after.json")
    assert program.changed() == {ROWS, FAMILIES}


@pytest.mark.deep
def test_a_family_is_one_entry(program: ProgramCopy, demo_trace: Path) -> None:
    program.write(FAMILIES, FAMILY.format(bucket="norm"))
    kernel, explained, told = program.runs(("kernel", KERNEL), ("explain", "family:probe_rope"), (demo_trace, "--format", "json"))
    assert "attention" not in kernel.split("\n")[0]
    assert "probe_rope" in kernel
    assert "rope" in explained
    assert work(json.loads(told))["norm"] > 0
    assert program.changed() == {FAMILIES}


def test_a_bucket_without_a_row_and_a_mark_without_a_meaning_are_errors_of_the_data(program: ProgramCopy, demo_trace: Path) -> None:
    program.write(FAMILIES, FAMILY.format(bucket="probe_parts"))
    program.run(demo_trace, status=2)
    program.write(FAMILIES, FAMILY.format(bucket="norm").replace("[gelu]", "[loud]"))
    program.run(demo_trace, status=2)
    program.remove(FAMILIES)
    program.replace("trace_rules/buckets/50-norm-gemm-activation.yaml", "    marks: [fp32_product]\n", "")
    program.run(demo_trace, status=2)
