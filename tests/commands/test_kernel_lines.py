"""`diagnose kernel -`: many names at once, with their context, one answer per line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diagnose.cli import main
from diagnose.commands.kernel_lines import answers
from diagnose.errors import InputError
from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy
from diagnose.render import write

GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"


@pytest.fixture(scope="module")
def taxonomy() -> Taxonomy:
    return load_taxonomy()


def asked(lines: list[str], taxonomy: Taxonomy) -> list[dict[str, Any]]:
    return [json.loads(line) for line in write(answers(lines, taxonomy), "json").splitlines()]


def test_one_line_of_json_for_each_in_order(taxonomy: Taxonomy):
    lines = [
        json.dumps({"name": GEMM}),
        "",
        json.dumps({"name": GEMM, "context": {"ops": ["_GroupedLinear"], "phase": "backward", "colour": "red"}}),
        "  Memset (Device)  ",
        "[CUDA memcpy Host-to-Device]",
    ]
    first, second, third, fourth = asked(lines, taxonomy)
    assert first == {
        "name": GEMM,
        "bucket": "dense_gemm",
        "phase": None,
        "role": "compute",
        "kind": None,
        "backend": None,
        "operation": "gemm",
        "evidence": "name",
        "rule": "gemm",
        "ambiguous": True,
        "alternatives": ["expert_gemm", "router", "vision_encoder"],
    }
    assert (second["bucket"], second["rule"], second["evidence"], second["ambiguous"]) == (
        "expert_gemm",
        "expert_operator",
        "operator",
        False,
    )
    assert second["not_understood"] == ["colour"]
    assert (third["bucket"], fourth["bucket"]) == ("memset", "memcpy")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{bad", "the line is no JSON object"),
        ('{"name": "a"} trailing', "the line is no JSON object"),
        ('{"nane": "a"}', "`name` is missing"),
        ('{"name": 3}', "`name` is missing"),
        ('{"name": " "}', "`name` is missing"),
        ('{"name": "a", "context": ["x"]}', "`context` is no object"),
        ("{" * 5000, "the line is no JSON object"),
    ],
)
def test_a_broken_line_is_answered_in_its_place_and_the_rest_goes_on(taxonomy: Taxonomy, line: str, reason: str):
    rows = asked([GEMM, line, "flash_fwd_kernel"], taxonomy)
    assert [row.get("bucket") for row in rows] == ["dense_gemm", None, "attention"]
    assert rows[1]["line"] == 2
    assert reason in rows[1]["error"]
    assert "error" in write(answers([line], taxonomy), "text")


def test_no_line_no_answer(taxonomy: Taxonomy):
    assert answers(["", "  "], taxonomy).answers == answers([], taxonomy).answers == ()


def test_the_command_ends_with_3_where_a_line_could_not_be_read(capsys: pytest.CaptureFixture[str]):
    assert main(["kernel", GEMM, '{"name": "flash_fwd_kernel"}', "--format", "json"]) == 0
    assert [json.loads(line)["bucket"] for line in capsys.readouterr().out.splitlines()] == ["dense_gemm", "attention"]
    assert main(["kernel", "{oops", GEMM]) == InputError.exit_code == 3
    out = capsys.readouterr().out
    assert "line 1\n  error  the line is no JSON object" in out
    assert "bucket     dense" in out
