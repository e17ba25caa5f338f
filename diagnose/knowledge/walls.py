"""What trace_rules/walls.yaml may hold: the walls, when one is to be attacked, how the verdict is said and what lowers its certainty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl
from msgspec import field

from diagnose.knowledge.conditions import Condition, Formula
from diagnose.knowledge.data import Strict
from diagnose.model.vocabulary import CAPTURE, Topic, Wall


class Severity(Strict, frozen=True, kw_only=True):
    """Thresholds of a severity, by `of` (a share; default: the bound as a share of the step)."""

    of: Formula | None = None
    high: float | None = None
    medium: float | None = None


class Clause(Strict, frozen=True, kw_only=True):
    """A sentence part that is said where its condition holds."""

    when: Condition
    say: str


class Floor(Clause, frozen=True, kw_only=True):
    """A capture that holds too little for a verdict.

    Without `advice` too little for any finding but those on the capture and the job file. `finding`: the rule that says the same.
    """

    advice: bool = True
    finding: str = ""


class Lead(Strict, frozen=True, kw_only=True):
    """A clause that is said where it is the first whose condition holds; without a condition it always does."""

    say: str
    when: Condition | None = None


class TopicSpec(Strict, frozen=True, kw_only=True):
    """How what rules speak of is called (`title`, in small letters), and its colour in a terminal."""

    title: str
    style: str


class WallSpec(TopicSpec, frozen=True, kw_only=True):
    """One wall: an expression for its bound, the bound's named parts, and what is shown beside. walls.yaml explains the fields."""

    meaning: str
    says: tuple[Lead, ...]
    bound: Formula
    parts: dict[str, Formula]
    lower: Formula | None = None
    verdict: str = ""
    beside: dict[str, Formula] = field(default_factory=dict)
    status_facts: tuple[str, ...] = ()
    contender: bool = True
    frees: str | None = None
    omits: str | None = None


class CertaintyRule(Strict, frozen=True, kw_only=True):
    """A reason to trust the verdict less. `finding`: the rule about the capture that says the same."""

    when: Condition
    level: Literal["medium", "low"]
    say: str
    finding: str = ""


class Walls(Strict, frozen=True, kw_only=True):
    """walls.yaml.

    The walls in order, what stands where a wall does in rules about the capture, when a wall is to be attacked, and how the verdict is
    said.
    """

    target_share: float
    tie_share: float
    apart_share: float
    cause_share: float
    one_change_share: float
    no_cause: Condition
    severity: Severity
    walls: dict[Wall, WallSpec]
    part_titles: dict[str, str]
    capture: TopicSpec
    floor: tuple[Floor, ...]
    lead: tuple[Lead, ...]
    also: tuple[Clause, ...]
    unowned: Formula
    perturbed: Condition
    hidden: Condition
    certainty: tuple[CertaintyRule, ...]

    @property
    def contenders(self) -> tuple[Wall, ...]:
        """The walls that can be the target by their bounds."""
        return tuple(wall for wall, spec in self.walls.items() if spec.contender)

    @property
    def fallback(self) -> Wall:
        """The wall that is the target where no other is. Raises StopIteration where there is none (a rulebook always has one)."""
        return next(wall for wall, spec in self.walls.items() if not spec.contender)

    def part(self, name: str) -> str:
        """A part of a bound, or a figure beside it, as people read it."""
        return self.part_titles.get(name) or name.replace("_", " ")

    def topic(self, name: Topic) -> TopicSpec:
        """What a rule about a wall, or about the capture, speaks of. Raises KeyError."""
        return self.capture if name == CAPTURE else self.walls[name]


_TEXTS = (
    *("whole", "dominant_wall", "target_wall", "runner_up", "dominant_title", "target_title", "runner_up_title"),
    *("target_limit", "runner_up_limit", "unknown_walls", "parts_text", "apart_title", "says"),
)
_NUMBERS = (
    *("dominant_share", "target_bound_ns", "target_share", "target_lower_share", "runner_up_bound_ns", "runner_up_share"),
    *("unowned_wait_ns", "apart_share", "apart_typical_share", "apart_typical_step_ns"),
)
VERDICT_COLUMNS: Mapping[str, pl.DataType] = {
    **dict.fromkeys(_TEXTS, pl.String()),
    **dict.fromkeys(_NUMBERS, pl.Float64()),
    "tie": pl.Boolean(),
}
