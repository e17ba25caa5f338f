"""From each kind of document a report: one builder per document, with the tables and sentences that it needs beside it.

A builder is a module with `report(document)`; where a saved document is read again, `PARTS`, the names of all parts that its reports may
have; where the JSON is not simply the document, `json(document)`; and where CI has something to check, `issues(document, options)`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Literal, NamedTuple


class DocumentKind(NamedTuple):
    """A kind of document: the name of its class, its builder, and what that gives beside a report.

    `json`: who makes its JSON, None for a kind that has none. `commands`: its report says what to type next (`report(document, typed)`).
    """

    name: str
    type: str
    module: str
    json: Literal["document", "builder"] | None = "document"
    issues: bool = False
    timeline: bool = False
    tables: bool = False
    commands: bool = False

    def builder(self) -> ModuleType:
        """The module that makes its report."""
        return import_module(f"{__name__}.{self.module}")


KINDS = (
    DocumentKind(name="diagnosis", type="Diagnosis", module="diagnosis.report", issues=True, timeline=True, tables=True, commands=True),
    DocumentKind(name="comparison", type="Comparison", module="comparison.report", issues=True, tables=True),
    DocumentKind(name="bisection", type="Bisection", module="bisection.report", tables=True),
    DocumentKind(name="forecast", type="Forecast", module="forecast", tables=True),
    DocumentKind(name="history", type="History", module="history", tables=True),
    DocumentKind(name="check", type="CheckReport", module="check"),
    DocumentKind(name="patch", type="PatchReport", module="patch"),
    DocumentKind(name="baselines", type="Baselines", module="baselines", json="builder"),
    DocumentKind(name="explanation", type="Explanation", module="explanation", json=None),
    DocumentKind(name="kernels", type="KernelAnswers", module="kernels", json="builder"),
    DocumentKind(name="rules", type="Rulebook", module="rules", json="builder"),
)
