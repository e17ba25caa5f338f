"""Labelled kernel names: how many land in their bucket, and which are taken for which."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from diagnose.knowledge.taxonomy import load_taxonomy
from diagnose.measure.buckets.describe import describe_all
from fixtures import kernel_accuracy
from fixtures.kernel_accuracy import Count, counted, counts_text, is_right, read_counts, read_labels, refreshed, section

FLOOR = {"high": 0.99, "medium": 0.97}


def test_labelled_names_land_in_their_bucket(real_traces: Path, capsys: pytest.CaptureFixture[str]):
    path = real_traces.parent / "knowledge" / "kernels.jsonl"
    if not path.is_file():
        pytest.skip("the labelled names (../shared/knowledge/kernels.jsonl) are not here")
    labels = read_labels(path)
    verdicts = describe_all([(label["name"], label.get("context")) for label in labels], load_taxonomy())
    right = [is_right(label, verdict) for label, verdict in zip(labels, verdicts, strict=True)]
    confusion = Counter((label["bucket"], verdict.bucket) for label, verdict in zip(labels, verdicts, strict=True))
    shown = [f"  {wanted:<16} {found:<16} {n:>4}" for (wanted, found), n in sorted(confusion.items())]
    for label, verdict, ok in zip(labels, verdicts, right, strict=True):
        if not ok:
            shown.append(f"  wrong: {label['name'][:90]} is {label['bucket']}, not {verdict.bucket} ({verdict.rule})")
    with capsys.disabled():
        sys.stdout.write("\n  labelled         classified\n" + "\n".join(shown) + "\n")
    for confidence, floor in FLOOR.items():
        of_these = [ok for label, ok in zip(labels, right, strict=True) if label["confidence"] == confidence]
        assert len(of_these) > 100
        assert sum(of_these) / len(of_these) >= floor, confidence


def test_the_stored_counts_are_current(real_traces: Path):
    path = real_traces.parent / "knowledge" / "kernels.jsonl"
    if not path.is_file():
        pytest.skip("the labelled names (../shared/knowledge/kernels.jsonl) are not here")
    assert read_counts() == counted(read_labels(path)), "a change of behaviour: run `python -m fixtures.kernel_accuracy`"


LABELS = [
    {"name": "flash_fwd_kernel", "bucket": "attention", "confidence": "high", "format": "any"},
    {"name": "nvjet_tst_192x192_TNN", "bucket": "ambiguous", "confidence": "high", "format": "any"},
    {"name": "nvjet_tst_192x192_TNN", "bucket": "expert_gemm", "confidence": "high", "format": "kineto", "context": {"ops": ["_Linear"]}},
    {"name": "nvjet_x", "bucket": "norm", "alternatives": ["dense_gemm:x"], "confidence": "medium", "format": "any"},
]  # fmt: skip


def test_counts_and_section():
    counts = counted(LABELS)
    assert Count(label="expert_gemm", answer="dense_gemm", confidence="high", format="kineto", context=True, right=False, names=1) in counts
    shown = section(counts)
    for line in (
        "| all | | 3 of 4 (75.0 %) |",
        "| confidence of the label | high | 2 of 3 (66.7 %) |",
        "| launch context | given | 0 of 1 (0.0 %) |",
        "| ambiguous by name | yes | 1 of 1 (100.0 %) |",
        "| expert gemm |  |  | 1 |",
    ):
        assert line in shown


def test_without_the_labels_the_stored_counts_stay_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stored = counted(LABELS)
    (tmp_path / "kernel_accuracy.json").write_text(counts_text(stored), encoding="utf-8")
    monkeypatch.setattr(kernel_accuracy, "LABELS", tmp_path / "gone.jsonl")
    monkeypatch.setattr(kernel_accuracy.read_labels, "__defaults__", (tmp_path / "gone.jsonl",))
    monkeypatch.setattr(kernel_accuracy.read_counts, "__defaults__", (tmp_path / "kernel_accuracy.json",))
    counts, said = refreshed()
    assert counts == stored
    assert "NOT made anew" in said
