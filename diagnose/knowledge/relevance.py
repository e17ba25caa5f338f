"""For which kind of program fixes and rules speak, and what shows a framework (trace_rules/relevance.yaml)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from diagnose.knowledge.conditions import Condition


class ProgramKind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of program, or a part that not every program has; the fields are explained in the YAML file."""

    meaning: str
    when: Condition
    job: bool = False
    fixes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


class Relevance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: kinds of program by name, and the condition that shows each framework where no job file does."""

    programs: dict[str, ProgramKind]
    frameworks: dict[str, Condition]

    def problems(self, *, fixes: Collection[str], rules: Collection[str], frameworks: Collection[str]) -> list[str]:
        """Names that nothing has."""
        named = [
            (key, what, name)
            for key, kind in self.programs.items()
            for what, names in (("fix", kind.fixes), ("rule", kind.rules))
            for name in names
        ]
        unknown = [f"programs.{key}: unknown {what} {name}" for key, what, name in named if name not in (fixes if what == "fix" else rules)]
        return unknown + [f"frameworks: unknown framework {name}" for name in self.frameworks if name not in frameworks]

    def kinds_of(self, key: str) -> list[ProgramKind]:
        """The kinds of program that a fix or rule is for; none where it is for all."""
        return [kind for kind in self.programs.values() if key in kind.fixes or key in kind.rules]
