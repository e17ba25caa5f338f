"""What a comparison knows.

Thresholds with their sources, the settings that make two jobs the same work, which way is better (trace_rules/comparison.yaml).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from diagnose.knowledge.catalogue import FactSpec, Unit
from diagnose.knowledge.data import Strict, WrongDataError, checked, contents, own_text
from diagnose.knowledge.rule_files import packaged, parse
from diagnose.knowledge.settings import JobSettings, load_job_settings
from diagnose.knowledge.vocabulary import Vocabulary, load_vocabulary

JobAspect = Literal["model", "layers", "batch", "sequence", "layout", "precision", "world"]
JOB_ASPECTS: tuple[JobAspect, ...] = get_args(JobAspect)
_FILE = "comparison.yaml"


class Number(Strict, frozen=True, kw_only=True):
    """One threshold, and where it is from."""

    value: float
    source: str


class NoiseLimits(Strict, frozen=True, kw_only=True):
    """When a difference is more than noise; shares are of the base."""

    confidence: Number
    p_value: Number
    p_value_assumed: Number
    floor: Number
    floor_measured: Number
    tolerance: Number
    run_noise: Number
    doubt: Number
    count_noise: Number
    noise_weight: Number
    single_step: Number
    lone_error: Number
    lone_change: Number
    power: Number
    category_share: Number


class CaptureLimits(Strict, frozen=True, kw_only=True):
    """When two captures without steps hold the same kind of work."""

    alike: Number
    least_launches: Number
    factor: Number
    proportion: Number


class KernelLimits(Strict, frozen=True, kw_only=True):
    """When a kernel has changed, and the job by its kernels; `variants`: regular expressions of what only tells variants apart."""

    pace: Number
    pace_least_ns: Number
    launches: Number
    alike_launches: Number
    variants: tuple[str, ...]
    bucket_share: Number
    count_factor: Number
    common_share: Number
    amount_change: Number
    amount_spread: Number
    by_parameters: tuple[str, ...]
    by_length: tuple[str, ...]


class AspectSpec(Strict, frozen=True, kw_only=True):
    """The settings of one aspect; the comments in the file explain the fields."""

    title: str
    refused: tuple[str, ...]
    proves: tuple[str, ...]
    source: str
    noted: tuple[str, ...] = ()


class Switch(Strict, frozen=True, kw_only=True):
    """What it means that one run alone has a finding, or a fact above nought.

    The words where the new run has it, and where the base had it; and where there is more or less of it: of a finding by its bound on
    either side, or by what the fact `left` (ns) is on the side without the finding, of a fact in ns by its own change. `effect`: it may
    come of another change (a graph that is gone), and is told only where none is known. `bucket`: the only one that a fact explains.
    """

    began: str
    ended: str
    more: str | None = None
    less: str | None = None
    left: str | None = None
    effect: bool = False
    bucket: str | None = None


class Pieces(Strict, frozen=True, kw_only=True):
    """Buckets whose fused kernels do in one what the bucket `inside` does piece by piece where they are gone."""

    inside: str
    least: Number
    of: dict[str, Switch]


class Alike(Strict, frozen=True, kw_only=True):
    """Buckets that a GPU's clock makes take longer alike, by the same kernels; `spread` as a share of their common change."""

    buckets: tuple[str, ...]
    least: Number
    spread: Number
    slower: str
    faster: str


class Launching(Strict, frozen=True, kw_only=True):
    """How a slower CPU shows: the category that it lengthens, the fact of the time from launch to launch (ns), and that of their number.

    `same`: by this share the number may differ; `pace`: the least change of the time between; `least`: the share of the category's
    change that this has to make, over all launches.
    """

    category: str
    gap: str
    calls: str
    same: Number
    pace: Number
    least: Number
    slower: str
    faster: str


class CauseLimits(Strict, frozen=True, kw_only=True):
    """What is named first of a comparison, before longer categories: by the rule whose finding is new (or gone), the exchange's backend."""

    share: Number
    least: Number
    beside_pace: Number
    by_backend: tuple[str, ...]  # categories that a swapped dispatcher explains
    main: Number
    findings: dict[str, Switch]
    facts: dict[str, Switch]
    backends: dict[str, str]
    pieces: Pieces
    alike: Alike
    launching: Launching


class Limits(Strict, frozen=True, kw_only=True):
    """The whole file."""

    noise: NoiseLimits
    capture: CaptureLimits
    kernels: KernelLimits
    aspects: dict[JobAspect, AspectSpec]
    better_when_larger: tuple[str, ...]
    causes: CauseLimits


class ComparisonRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a comparison is handed: its limits, the settings of job files, what walls and buckets are called, facts by units."""

    limits: Limits
    job: JobSettings
    words: Vocabulary
    facts: Mapping[str, Unit]


def load_comparison_rules(rules: Sequence[Path] = ()) -> ComparisonRules:
    """The program's own; one of the folders `rules` may hold another comparison.yaml. Raises RuleFileError."""
    job = load_job_settings()
    facts = {name: fact.unit for name, fact in parse(packaged("facts.yaml"), dict[str, FactSpec]).items()}
    return ComparisonRules(limits=parse_limits(job, own_text(_FILE, rules)), job=job, words=load_vocabulary(), facts=facts)


def parse_limits(job: JobSettings, data: bytes | None = None) -> Limits:
    """The limits in a file's bytes (the program's own file by default).

    Raises RuleFileError, also for a missing aspect or source, and a setting unknown or named twice.
    """
    with checked(_FILE, effect="No two runs can be compared.", next_step="Correct the file; its comments explain the fields."):
        found = contents(_FILE, Limits, data)
        problems = _problems(found, job)
        if problems:
            raise WrongDataError("; ".join(problems))
        return found


def _problems(found: Limits, job: JobSettings) -> list[str]:
    """What can't be, although the shape is right."""
    problems = [f"the aspect {name} is missing" for name in JOB_ASPECTS if name not in found.aspects]
    problems += _unsourced(found)
    named = [name for spec in found.aspects.values() for name in (*spec.refused, *spec.noted)]
    problems += [f"{name} is no job setting" for name in named if name not in job.specs]
    problems += [f"{name} stands in two places" for name in sorted(set(named)) if named.count(name) > 1]
    problems += [
        f"{name} proves an aspect that does not hold it"
        for spec in found.aspects.values()
        for name in spec.proves
        if name not in spec.refused
    ]
    return problems


def _unsourced(found: Limits) -> list[str]:
    """Numbers and aspects without a source."""
    groups = {"noise": found.noise, "capture": found.capture, "kernels": found.kernels, "causes": found.causes}
    numbers = [
        f"{group}.{name}"
        for group, limits in groups.items()
        for name in limits.__struct_fields__
        if isinstance(number := getattr(limits, name), Number) and not number.source.strip()
    ]
    return [f"{name} has no source" for name in (*numbers, *(name for name, spec in found.aspects.items() if not spec.source.strip()))]
