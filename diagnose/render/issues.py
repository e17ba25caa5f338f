"""The neutral list of issues that report builders make for CI, from which GitHub annotations, JUnit cases and SARIF results are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from diagnose.model.names import visible

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Tool
    from diagnose.model.vocabulary import Level

# failed: the check is not met; told: something was found that no gate asked about; passed; skipped: it could not be assessed;
# unjudged: a gate that was asked for could not be judged.
State = Literal["failed", "told", "passed", "skipped", "unjudged"]
Severity = Literal["error", "warning", "note"]
SEVERITY: dict[Level, Severity] = {"high": "error", "medium": "warning", "low": "note"}
GATE = "gate"
LONGEST_TEXT = 4_000


class Issue(NamedTuple):
    """One check and how it ended.

    `cost_ns` is what it costs per step, None where that is not known; `key` and `line` are of the setting to change in the job file.
    """

    id: str
    name: str
    group: str
    state: State
    severity: Severity
    text: str
    cost_ns: int | None = None
    help: str = ""
    key: str = ""
    line: int | None = None

    @property
    def shown(self) -> bool:
        """Whether there is something to tell."""
        return self.state in ("failed", "told", "unjudged")

    @property
    def title(self) -> str:
        """Id and name."""
        return f"{self.id}: {self.name}"


class IssueList(NamedTuple):
    """All checks of one run. `suite` says what was run, `sentence` how it came out."""

    tool: Tool
    suite: str
    sentence: str
    issues: tuple[Issue, ...]


def costliest_first(issues: Sequence[Issue]) -> list[Issue]:
    """Those with something to tell: the gate, then by cost, then by severity."""
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(
        (one for one in issues if one.shown), key=lambda one: (one.group != GATE, -(one.cost_ns or 0), order[one.severity], one.id)
    )


def shown(text: str) -> str:
    """A text from anywhere on one line, without control signs, and no longer than a runner shows."""
    cut = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
    return visible(cut)


def in_sentence(text: str) -> str:
    """A sentence as the end of another; one that begins with an abbreviation stays."""
    return text if text[1:2].isupper() else f"{text[:1].lower()}{text[1:]}"
