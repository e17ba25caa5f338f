"""The rulebook: facts, rules, fixes, checks, walls and platforms in use, with their expressions."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.catalogue import CheckSpec, FactSpec, FixSpec, Rule
from diagnose.knowledge.conditions import Condition, Expression, Kind, compile_expression
from diagnose.knowledge.data import Strict
from diagnose.knowledge.platforms import Platforms
from diagnose.knowledge.relevance import Relevance
from diagnose.knowledge.settings import JobSettings, Numerics, SettingSpec
from diagnose.knowledge.walls import Walls


class Wording(Strict, frozen=True, kw_only=True):
    """Phrases, and what texts of rules say in their place where `when` holds: on other GPUs than they were written for."""

    when: Condition
    instead: dict[str, str]

    def form(self, text: str) -> str:
        """A text in this wording; longer phrases go before those that they hold."""
        for phrase in sorted(self.instead, key=len, reverse=True):
            text = text.replace(phrase, self.instead[phrase])
        return text


class Rulebook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was loaded. `expressions` holds each checked expression by its text and kind, `schema` the columns."""

    facts: Mapping[str, FactSpec]
    job: JobSettings
    rules: Mapping[str, Rule]
    fixes: Mapping[str, FixSpec]
    checks: Mapping[str, CheckSpec]
    walls: Walls
    relevance: Relevance
    buckets: Buckets
    platforms: Platforms
    wordings: Mapping[str, Wording]
    schema: Mapping[str, pl.DataType]
    expressions: Mapping[tuple[str, Kind], Expression]
    sha256: str

    @property
    def settings(self) -> Mapping[str, SettingSpec]:
        """The settings of job files by name."""
        return self.job.specs

    def expression(self, text: str, kind: Kind = "condition") -> Expression:
        """The checked form of an expression that stands in some rule file."""
        return self.expressions[text, kind]

    def unit(self, name: str) -> str:
        """Unit of a fact or of a column job_<setting>."""
        spec = self.facts.get(name)
        return spec.unit if spec else self.settings[name.removeprefix("job_")].type


class OnDemand(dict[tuple[str, Kind], Expression]):
    """Expressions that need no check, each compiled when it is first asked for."""

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        super().__init__()
        self.schema = schema

    def __missing__(self, key: tuple[str, Kind]) -> Expression:
        self[key] = compile_expression(*key, self.schema)
        return self[key]


def changes_numerics(spec: FixSpec, book: Rulebook) -> Numerics | None:
    """If a fix is about how exactly is computed, or what is trained (model, batch, routing, update): by the mark of its first setting."""
    first = next((one.setting for one in spec.changes if one.setting is not None), None)
    return book.settings[first].numerics if first is not None else None
