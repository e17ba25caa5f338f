"""How changes of settings are said."""

from __future__ import annotations

import msgspec
import pytest

from diagnose.document.diagnosis import Change
from diagnose.render import Options, write
from diagnose.render.reports.diagnosis import story
from tests.builders.diagnosis import rich

KEY = "model.recompute_modules"


def change(op: str, to: str, now: str | None, *, choose: bool = False, framework: str = "megatron-bridge") -> Change:
    return msgspec.convert(
        {"framework": framework, "key": KEY, "from": now, "to": to, "op": op, "choose": choose}, Change
    )  # as it is read from a document


@pytest.mark.parametrize(
    ("one", "said", "stays"),
    [
        (change("set", "flex", None), f"{KEY}: flex", False),
        (change("set", "flex", "alltoall"), f"{KEY}: alltoall → flex", False),
        (change("set", "flex", "flex"), f"{KEY}: flex, as it is", True),
        (change("set", "16 to 32", "24", choose=True), f"{KEY}: 24 → choose 16 to 32", False),
        (change("set", "out of the step", None, choose=True, framework="code"), f"{KEY}: out of the step", False),
        (change("add", "moe_act", None), f"add moe_act to {KEY}", False),
        (change("add", "[moe_act, mlp]", "[moe_act]"), f"add moe_act, mlp to {KEY} (now [moe_act])", False),
        (change("add", "moe_act", "[core_attn, moe_act]"), f"add moe_act to {KEY} (now [core_attn, moe_act]), as it is", True),
        (change("remove", "moe", "[moe, mlp]"), f"remove moe from {KEY} (now [moe, mlp])", False),
        (change("remove", "moe", "[moe_act]"), f"remove moe from {KEY} (now [moe_act]), as it is", True),
        (change("remove", "moe", None), f"remove moe from {KEY}", False),
        (change("unset", "", "uniform"), f"unset {KEY} (now uniform)", False),
        (change("unset", "null", None), f"unset {KEY}", False),
        (change("unset", "", "none"), f"unset {KEY} (now none)", True),
    ],
)
def test_a_change_reads_as_what_is_done(one: Change, said: str, stays: bool) -> None:
    assert story.change(one) == said
    assert story.stays(one) is stays


@pytest.mark.parametrize("format_", ["text", "markdown", "html"])
def test_reports_show_what_is_done_and_what_is_disputed(format_: str) -> None:
    document = rich()
    finding = document.findings[0]
    fix = msgspec.structs.replace(
        finding.fixes[0],
        state="applicable",
        disputed="two guides name different defaults",
        changes=(change("add", "moe_act", "[mlp]"), change("unset", "null", "uniform")),
    )
    document = msgspec.structs.replace(document, findings=(msgspec.structs.replace(finding, fixes=(fix,)),))
    report = " ".join(write(document, format_, Options(width=200)).split())
    assert "two guides name different defaults" in report
    assert {"html": "add <code>moe_act</code>"}.get(format_, f"add moe_act to {KEY} (now [mlp])") in report
    assert {"html": "<td>unset</td>"}.get(format_, f"unset {KEY} (now uniform)") in report
