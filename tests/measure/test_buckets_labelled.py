"""Labelled kernel names: how many land in their bucket, and which are taken for which."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from diagnose.measure.describe import NameVerdict, describe_all
from diagnose.taxonomy import load_taxonomy

FLOOR = {"high": 0.99, "medium": 0.97}


def is_right(label: dict[str, Any], verdict: NameVerdict) -> bool:
    """An ambiguous name is right when answered weakly or with a candidate; "recompute" is a phase here."""
    also = {one.split(":")[0] for one in label.get("alternatives", [])}
    if label["bucket"] == "ambiguous":
        return verdict.weak or verdict.bucket in also
    if label["bucket"] == "recompute":
        return verdict.phase == "recompute"
    return verdict.bucket == label["bucket"] or verdict.bucket in also


def test_labelled_names_land_in_their_bucket(real_traces: Path, capsys: pytest.CaptureFixture[str]):
    path = real_traces.parent / "knowledge" / "kernels.jsonl"
    if not path.is_file():
        pytest.skip("the labelled names (../shared/knowledge/kernels.jsonl) are not here")
    labels = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
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
