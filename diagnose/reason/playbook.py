"""Fixes read against the job: already on, blocked with the sentence that says why, unknown, or applicable.

A requirement that cannot be decided makes a fix unknown, never applicable; without a job file most fixes are unknown and say which
settings would decide. A platform or a backend that the trace shows decides without a job file too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagnose.document.diagnosis import Change, Fix
from diagnose.job import Job
from diagnose.knowledge import templates
from diagnose.knowledge.rulebook import ChangeSpec, FixSpec, Requirement
from diagnose.model.vocabulary import FixState
from diagnose.reason.context import Context

_ORDER: Mapping[FixState, int] = {"applicable": 0, "unknown": 1, "blocked": 2, "already_on": 3}


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Conditions of one fix, decided: a requirement with True where it is met, False where it fails, None where it is unknown."""

    already_on: bool | None
    requirements: tuple[tuple[Requirement, bool | None], ...]

    @property
    def failed(self) -> list[Requirement]:
        """Requirements that are certainly not met and that block."""
        return [item for item, met in self.requirements if met is False and item.gate != "note"]

    @property
    def undecided(self) -> list[Requirement]:
        """Requirements that could not be decided and that matter for the state."""
        return [item for item, met in self.requirements if met is None and item.gate == "hard"]

    @property
    def notes(self) -> list[tuple[Requirement, bool | None]]:
        """Requirements that do not decide the state, where they are not met or not known."""
        return [
            (item, met)
            for item, met in self.requirements
            if (item.gate == "note" and met is not True) or (item.gate == "known" and met is None)
        ]

    @property
    def state(self) -> FixState:
        """The fix's state, strongest first."""
        if self.already_on:
            return "already_on"
        if self.failed:
            return "blocked"
        return "unknown" if self.already_on is None or self.undecided else "applicable"


@dataclass(frozen=True, kw_only=True)
class FixReader:
    """Reads fixes against one job and one trace."""

    context: Context

    def read(self, ids: Sequence[str]) -> tuple[Fix, ...]:
        """The fixes with these ids: applicable ones first, then in the order given."""
        fixes = [self.fix(self.context.rulebook.fixes[key]) for key in ids]
        return tuple(sorted(fixes, key=lambda fix: _ORDER[fix.state]))

    def fix(self, spec: FixSpec) -> Fix:
        """One fix with its state, the sentences behind it, and the changes that it asks for."""
        verdicts = self.decide(spec)
        return Fix(
            id=spec.id,
            title=spec.title,
            state=verdicts.state,
            blocked_by=tuple(self.sentence(item) for item in verdicts.failed) if verdicts.state == "blocked" else (),
            changes=tuple(
                self._change(change) for change in spec.changes if change.only is None or self.context.holds(change.only) is not False
            ),
            expected=spec.expected,
            cost=spec.cost,
            risk=spec.risk,
            verify=spec.verify,
            refs=spec.refs,
            disputed=spec.disputed,
            evidence=spec.evidence,
            phase=spec.phase,
            step=spec.step,
            unknown=() if verdicts.state == "already_on" else tuple(self._unknown(spec, verdicts)),
        )

    def decide(self, spec: FixSpec) -> Verdicts:
        """Every condition of one fix, decided."""
        requirements = (*spec.needs, *spec.conflicts)
        texts = [item.condition for item in requirements] + ([spec.already_on] if spec.already_on else [])
        holds = self.context.holds_all(texts)
        met = [value if index < len(spec.needs) or value is None else not value for index, value in enumerate(holds[: len(requirements)])]
        already_on = holds[-1] if spec.already_on else False if self.context.job is not None and not spec.undecidable else None
        return Verdicts(already_on=already_on, requirements=tuple(zip(requirements, met, strict=True)))

    def sentence(self, item: Requirement) -> str:
        """Why a requirement fails, with the fix that clears the way."""
        said = templates.fill(item.say, self.context.values)
        if item.first is None:
            return said
        return f"{said} First: {item.first}, {self.context.rulebook.fixes[item.first].title}."

    def _unknown(self, spec: FixSpec, verdicts: Verdicts) -> list[str]:
        """What would have to be known, and what was decided on a framework's default."""
        if self.context.job is None:
            return [*self._settings_wanted(spec), *self._facts_wanted(spec)]
        lines = [spec.undecidable] + [item.unknown or self._lacking(item.condition) for item in verdicts.undecided]
        if verdicts.already_on is None and spec.already_on is not None:
            lines.insert(0, self._lacking(spec.already_on))
        for item, met in verdicts.notes:
            if met is False:
                lines.append(templates.fill(item.say, self.context.values))
            else:
                lines.append(item.unknown or (self._lacking(item.condition) if item.gate == "known" else ""))
        assumed = self._assumed(spec, self.context.job)
        return list(dict.fromkeys(line for line in lines if line)) + (
            [f"Taken as the framework's default, not read: {', '.join(assumed)}."] if assumed else []
        )

    def _names(self, spec: FixSpec) -> list[str]:
        """Columns that decide a fix, in order of appearance."""
        texts = [*([spec.already_on] if spec.already_on else []), *(item.condition for item in (*spec.needs, *spec.conflicts))]
        return list(dict.fromkeys(name for text in texts for name in self.context.rulebook.expression(text).names))

    def _settings_wanted(self, spec: FixSpec) -> list[str]:
        names = [name.removeprefix("job_") for name in self._names(spec) if name.startswith("job_")]
        names += [change.setting for change in spec.changes if change.setting is not None]
        wanted = ", ".join(dict.fromkeys(names))
        return [f"Give the job file (--config); these settings decide: {wanted}."] if wanted else ["Give the job file (--config)."]

    def _facts_wanted(self, spec: FixSpec) -> list[str]:
        facts = self.context.rulebook.facts
        lacking = [name for name in self._names(spec) if name in facts and self.context.values.get(name) is None]
        wanted = [name for name in lacking if facts[name].scope != "ranks"]  # facts of ranks only add notes; no fix waits for them
        return [f"{name} is not in the trace: {facts[name].null}." for name in wanted]

    def _lacking(self, text: str) -> str:
        names = self.context.missing(self.context.rulebook.expression(text))
        settings = [name.removeprefix("job_") for name in names if name.startswith("job_")]
        facts = [name for name in names if not name.startswith("job_")]
        parts = ([f"the job file does not say {', '.join(settings)}"] if settings else []) + (
            [f"the trace does not say {', '.join(facts)}"] if facts else []
        )
        sentence = "; ".join(parts)
        return f"{sentence[:1].upper()}{sentence[1:]}." if sentence else ""

    def _assumed(self, spec: FixSpec, job: Job) -> list[str]:
        names = [name.removeprefix("job_") for name in self._names(spec)]
        found = [job.settings[name] for name in names if name in job.settings]
        return [f"{item.name} = {_shown(item.value)}" for item in found if item.source == "default"]

    def _change(self, spec: ChangeSpec) -> Change:
        """One change with the job's present value."""
        number = self.context.numbers([spec.value])[0] if spec.value is not None else None
        to = spec.to if number is None else str(round(number)) if number == round(number) else f"{number:.3g}"
        now = self.context.job.get(spec.setting) if self.context.job is not None and spec.setting is not None else None
        return Change(
            framework=spec.framework,
            key=spec.key,
            from_=None if now is None else _shown(now),
            to=to,
            op=spec.op,
            choose=spec.choose and number is None,
        )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "[" + ", ".join(value) + "]" if isinstance(value, tuple) else str(value)
