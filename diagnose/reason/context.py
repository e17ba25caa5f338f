"""What conditions see: the facts of a trace and the settings of a job, as one row of columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

import polars as pl
from msgspec import Struct

from diagnose.document.comparison import Window
from diagnose.document.diagnosis import Diagnosis, Fact
from diagnose.job import Job
from diagnose.job.advised import advised
from diagnose.job.model import PLAIN
from diagnose.knowledge import conditions
from diagnose.knowledge.conditions import Expression
from diagnose.knowledge.platforms import PLATFORM_FACTS, platform_of
from diagnose.knowledge.rulebook import Rulebook, Wording


class Context(Struct, frozen=True, kw_only=True, dict=True):
    """Values by column (settings are null without a job file), and as a frame of one row; `per`, how a window is called, is no column."""

    values: Mapping[str, conditions.Value]
    frame: pl.DataFrame
    facts: Mapping[str, Fact]
    job: Job | None
    rulebook: Rulebook

    def holds(self, text: str) -> bool | None:
        """Whether a condition of the rulebook holds; None when something it needs is unknown."""
        return self.holds_all([text])[0]

    def holds_all(self, texts: list[str]) -> list[bool | None]:
        """The same for many conditions in one pass; what was asked before is known."""
        known = self._held
        new = list(dict.fromkeys(text for text in texts if text not in known))
        values = conditions.evaluate([self.rulebook.expression(text) for text in new], self.frame)
        known.update(zip(new, (None if value is None else bool(value) for value in values), strict=True))
        return [known[text] for text in texts]

    @cached_property
    def _held(self) -> dict[str, bool | None]:
        return {}

    def numbers(self, texts: list[str]) -> list[float | None]:
        """The values of many number expressions of the rulebook; None where something is unknown."""
        values = conditions.evaluate([self.rulebook.expression(text, "number") for text in texts], self.frame)
        return [None if value is None else float(value) for value in values]

    def how(self, text: str) -> str:
        """How a number expression comes to its value: that of a computed size, else the expression with the values put in."""
        names = self.rulebook.expression(text, "number").names
        if self.missing(self.rulebook.expression(text, "number")):
            return ""
        told = {} if self.job is None else advised(self.job)
        computed = [told[name.removeprefix("job_")].how for name in names if name.removeprefix("job_") in told]
        if computed or text in names:
            return "; ".join(computed)
        for name in sorted(names, key=len, reverse=True):
            text = re.sub(rf"\b{name}\b", f"{name.removeprefix('job_')} {self.values[name]}", text)
        return text.replace(" * ", " × ")

    @cached_property
    def irrelevant(self) -> frozenset[str]:
        """Ids of the fixes and rules that speak of another kind of program than this one; what is not known makes nothing irrelevant."""
        kinds = [kind for kind in self.rulebook.relevance.programs.values() if not (kind.job and self.job is not None)]
        holds = self.holds_all([kind.when for kind in kinds])
        return frozenset(key for kind, true in zip(kinds, holds, strict=True) if true is False for key in (*kind.fixes, *kind.rules))

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks whose own settings are offered: those of the job file, else those that the trace shows."""
        if self.job is not None:
            return self.rulebook.job.formats[self.job.format].frameworks
        shown = self.rulebook.relevance.frameworks
        holds = self.holds_all(list(shown.values()))
        return tuple(name for name, true in zip(shown, holds, strict=True) if true is not False)

    def worded(self, text: str) -> str:
        """A text of a rule as it reads for this run: on its GPUs, and for what it does."""
        for wording in self._wordings:
            text = wording.form(text)
        return text

    @cached_property
    def _wordings(self) -> tuple[Wording, ...]:
        wordings = tuple(self.rulebook.wordings.values())
        return tuple(one for one, true in zip(wordings, self.holds_all([one.when for one in wordings]), strict=True) if true)

    def missing(self, expression: Expression) -> tuple[str, ...]:
        """Names that an expression reads and that have no value here, in order."""
        return tuple(name for name in expression.names if self.values.get(name) is None)

    def foreign(self, expression: Expression) -> bool:
        """Whether all that an expression lacks are settings which the job's framework has no key for.

        Then they are not open, but not there.

        Megatron's own two frameworks know each other's settings, and defaults of them.
        """
        lacking = self.missing(expression)
        if self.job is None or not lacking or set(self.frameworks) & set(self.rulebook.job.formats[PLAIN].frameworks):
            return False
        specs = [self.rulebook.settings.get(name.removeprefix("job_")) if name.startswith("job_") else None for name in lacking]
        return all(one is not None and one.keys and not one.env and not any(map(one.keys_in, self.frameworks)) for one in specs)


WHOLE: Window = "capture"


def unit(values: Mapping[str, conditions.Value]) -> Window:
    """What the window of every figure is called: a step (an iteration, where nothing trains), or the capture."""
    return WHOLE if values.get("steps_anchored") is False else "iteration" if values.get("is_training") is False else "step"


def window_of(document: Diagnosis) -> Window:
    """The same of a document."""
    training = document.facts.get("is_training")
    return unit({"steps_anchored": document.steps.anchor != WHOLE, "is_training": None if training is None else training.value})


def make_context(facts: Mapping[str, Fact], job: Job | None, rulebook: Rulebook) -> Context:
    """The context of one diagnosis. A platform that the job file names overrules the trace's, whose name may be unknown."""
    values: dict[str, conditions.Value] = {name: fact.value for name, fact in facts.items() if name in rulebook.facts}
    whole = "after start-up" if values.get("start_up_cut") else "in the whole capture"
    values["per"] = whole if (window := unit(values)) == WHOLE else f"per {window}"
    if job is not None:
        values |= {f"job_{name}": one.value for name, one in advised(job).items()}
        values |= job.columns()
        values |= _platform(job.get("platform"), rulebook)
    return Context(values=values, frame=conditions.row(values, rulebook.schema), facts=facts, job=job, rulebook=rulebook)


def _platform(named: object, rulebook: Rulebook) -> dict[str, conditions.Value]:
    """Platform facts for the platform that the job names, by key or by GPU name."""
    if not isinstance(named, str):
        return {}
    table = rulebook.platforms.platforms
    key = named.lower() if named.lower() in table else platform_of(named, rulebook.platforms)
    if key is None:
        return dict.fromkeys(PLATFORM_FACTS)
    return {"platform": key, "gpu_compute_major": table[key].compute_major, "nvlink_domain": table[key].nvlink_domain}
