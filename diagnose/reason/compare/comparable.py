"""May two runs be compared, and what differs around the code: the work, by job files or by kernels; ranks, device, capture, environment."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from msgspec import Struct

from diagnose.document.comparison import Comparability, EnvironmentChange, Mismatch, MismatchState, Normalised, SettingChange
from diagnose.document.diagnosis import Diagnosis, JobRead, JobSetting
from diagnose.errors import InputError
from diagnose.knowledge.comparison import JOB_ASPECTS, AspectSpec, ComparisonRules, JobAspect
from diagnose.knowledge.settings import JobSettings
from diagnose.knowledge.templates import capitalised
from diagnose.model.environment import EnvironmentKind
from diagnose.model.vocabulary import FactValue
from diagnose.reason.compare.metrics import NO_STEPS, place_of
from diagnose.reason.compare.work import Place, capture_work, device, kernel_mismatches, mismatch

Value = FactValue | tuple[str, ...]
TOKENS = "tokens_per_step"
_OPEN = "may hold more flags"  # the note of a launch script whose command line was not told whole


class Job(Struct, frozen=True, kw_only=True):
    """One side's settings by name. `whole`: what the file leaves out is the framework's default."""

    read: Mapping[str, JobSetting]
    derived: Mapping[str, int | float | str]
    unknown: frozenset[str]
    format: str
    whole: bool
    table: JobSettings

    def value(self, name: str) -> Value:
        """What was read, follows from it, or is the default; None: not known, or a named preset, whose settings say it all."""
        spec = self.table.specs.get(name)
        if name in self.read:
            value = self.read[name].value
            return None if spec is not None and value in spec.presets else value
        if name in self.derived:
            return self.derived[name]
        presets = (self.table.specs[one].presets for one in self.read if one in self.table.specs)
        in_preset = any(name in inner for preset in presets for inner in preset.values())  # of one that the file names
        if spec is None or not self.whole or in_preset:
            return None
        return self.table.default(name, self.format, {other: setting.value for other, setting in self.read.items()})


def job_of(document: Diagnosis, table: JobSettings) -> Job | None:
    """The job of a document; None where it was made without a job file. Raises InputError for a job of a format that is not known."""
    read = document.job
    if read is None:
        return None
    return Job(
        read={setting.name: setting for setting in read.settings},
        derived={size.name: size.value for size in read.derived if size.value is not None},
        unknown=frozenset(read.unknown),
        format=read.format,
        whole=_whole(read, table),
        table=table,
    )


def _whole(read: JobRead, table: JobSettings) -> bool:
    format_ = table.formats.get(read.format)
    if format_ is None:
        raise InputError(
            f"The job file of this document has the format {read.format}, which this version of the program does not know.",
            effect="Nothing was compared.",
            next_step="Compare with the version that wrote the document.",
        )
    return format_.defaults != "none" and not any(_OPEN in note for note in read.notes)


def world_size(document: Diagnosis, table: JobSettings) -> int | None:
    """The number of ranks: the job file's, else what the trace tells."""
    job = job_of(document, table)
    told = job.value("world_size") if job is not None else None
    fact = document.facts.get("world_size")
    value = told if told is not None else fact.value if fact is not None else None
    return value if isinstance(value, int) else None


def tokens_per_step(document: Diagnosis, table: JobSettings) -> float | None:
    """The tokens of one step that the job file tells (global batch times sequence length); None where it does not."""
    job = job_of(document, table)
    value = job.derived.get(TOKENS) if job is not None else None
    return float(value) if isinstance(value, int | float) else None


def shown(value: Value) -> str:
    """A setting's value in words."""
    if value is None:
        return "not told"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


WORLD = "world_size"
JOB_TOKENS = "both job files (global batch × sequence length)"


class Tokens(NamedTuple):
    """Useful tokens per step of both sides, from elsewhere than the job files, and what told them."""

    base: float
    new: float
    source: str = "--tokens"


class Judgement(Struct, frozen=True, kw_only=True):
    """The judgement; what to give so that the job files prove that the work is the same (or not), empty where they do.

    The device that is compared in both runs; what the new run's times are multiplied by where neither capture was cut into steps.
    """

    comparability: Comparability
    lacking: str
    places: tuple[Place, Place]
    scale: Fraction


def judge(
    base: Diagnosis,
    new: Diagnosis,
    *,
    rules: ComparisonRules,
    anyway: bool = False,
    tokens: Tokens | None = None,
) -> Judgement:
    """Everything in which the two are not the same work. `anyway`: whether figures are wanted all the same."""
    limits, table = rules.limits, rules.job
    places, apart = _places(base, new)
    normalised = _tokens(base, new, tokens, table)
    here, there = job_of(base, table), job_of(new, table)
    worlds = world_size(base, table), world_size(new, table)
    found = [*apart, *_job(here, there, limits.aspects, by_tokens=normalised is not None), *_amounts(base, new, normalised, table)]
    found += [*_devices(base, new, places), *_capture(base, new)]
    work, lacking = None, _lacking(worlds, here, there, limits.aspects)
    if _without_steps(base) and _without_steps(new):
        work = capture_work(base, new, places, limits.capture)
        found += [work.mismatch] if work.mismatch is not None else []
    elif lacking and _without_steps(base) == _without_steps(new):  # else a step's kernels would be held against a capture's
        agreed = here is not None and there is not None and not any(one.state == "refused" for one in found)
        found += kernel_mismatches(base, new, places, limits.kernels, lacking=lacking, agreed=agreed)
    refused = any(one.state == "refused" for one in found)
    return Judgement(
        comparability=Comparability(
            comparable=not refused,
            anyway=anyway and refused,
            mismatches=tuple(found),
            unknown=_unknown(base, new, here, there, places, rules),
            normalised=normalised or (work.normalised if work is not None else None),
        ),
        lacking=lacking,
        places=places,
        scale=work.scale if work is not None else Fraction(1),
    )


# --- ranks ------------------------------------------------------------------------------------------------------------


def _places(base: Diagnosis, new: Diagnosis) -> tuple[tuple[Place, Place], list[Mismatch]]:
    """The same rank on both sides: the new run's, if the base has it, else the base's, else the lowest that both have."""
    here, there = _captured(base), _captured(new)
    for wanted in (place_of(new), place_of(base), *sorted({*here} & {*there})):
        if wanted in here and wanted in there:
            return (wanted, wanted), []
    common = sorted({rank for rank, _ in here} & {rank for rank, _ in there})
    if common:  # the same rank on another device
        return (next(one for one in here if one[0] == common[0]), next(one for one in there if one[0] == common[0])), []
    if len(here) == len(there) == 1 and any(one.capture.ranks[0].source == "assigned" for one in (base, new) if one.capture.ranks):
        return (here[0], there[0]), []  # a number that only stands for the order contradicts none
    before, after = (_listed({rank for rank, _ in side}) for side in (here, there))
    text = f"No rank was captured in both: base has {before}, new has {after}. Capture the same rank of both runs."
    return (place_of(base), place_of(new)), [mismatch("ranks", "captured ranks", before, after, "refused", text)]


def _captured(document: Diagnosis) -> list[Place]:
    return sorted((one.rank, one.device) for one in document.budget if one.per_step)


def _listed(ranks: Collection[int]) -> str:
    few = ", ".join(str(rank) for rank in sorted(ranks)[:8])
    return f"{few} … ({len(ranks)} ranks)" if len(ranks) > 8 else few or "none"


# --- job files --------------------------------------------------------------------------------------------------------


_MEANING: Mapping[MismatchState, str] = {
    "refused": "The two runs do not do the same work.",
    "normalised": "The comparison is per token.",
    "noted": "This is said and not weighed: the work may be the same.",
}


def _job(here: Job | None, there: Job | None, aspects: Mapping[JobAspect, AspectSpec], *, by_tokens: bool) -> Iterator[Mismatch]:
    """Settings that make two jobs different work. A world that the job files do not tell is judged by the trace."""
    if here is None or there is None:
        return
    for aspect in JOB_ASPECTS:
        spec = aspects[aspect]
        states: list[tuple[str, MismatchState]] = [(name, "refused") for name in spec.refused]
        states += [(name, "noted") for name in spec.noted]
        for name, state in states:
            first, second = here.value(name), there.value(name)
            if first is None or second is None or first == second or name == "world_size":
                continue
            kind: MismatchState = "normalised" if aspect == "batch" and by_tokens and state == "refused" else state
            values = shown(first), shown(second)
            text = f"{capitalised(spec.title)} differs: {name} is {values[0]} in base and {values[1]} in new. {_MEANING[kind]}"
            yield mismatch(aspect, name, *values, kind, text)


_Worlds = tuple[int | None, int | None]  # the number of ranks of both, as job file or trace tell it


def _missing(
    worlds: _Worlds, here: Job | None, there: Job | None, aspects: Mapping[JobAspect, AspectSpec]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The settings of both sides that are wanted to prove what the work is, and that nothing tells."""
    wanted = dict.fromkeys(name for spec in aspects.values() for name in spec.proves)
    base, new = (
        tuple(name for name in wanted if (world if name == WORLD else None if job is None else job.value(name)) is None)
        for world, job in zip(worlds, (here, there), strict=True)
    )
    return base, new


def _lacking(worlds: _Worlds, here: Job | None, there: Job | None, aspects: Mapping[JobAspect, AspectSpec]) -> str:
    """What to give so that the job files prove what the work is; empty where they do. The number of ranks may be told by the traces."""
    if here is None and there is None:
        return "Neither run has a job file, which would say it: give them (--config, --base-config)."
    if here is None or there is None:
        return f"The {'base' if here is None else 'new'} run has no job file, which would say it: give it with {'--base-config' if here is None else '--config'}."
    said = [
        f"{side}'s job file does not tell {', '.join(names)} (add {option} {names[0]}=…)"
        for side, option, names in zip(("base", "new"), ("--base-set", "--set"), _missing(worlds, here, there, aspects), strict=True)
        if names
    ]
    text = "; ".join(said)
    return f"{capitalised(text)}." if text else ""


def _amounts(base: Diagnosis, new: Diagnosis, normalised: Normalised | None, table: JobSettings) -> Iterator[Mismatch]:
    """Tokens per step and the number of ranks."""
    if normalised is not None:
        tokens = f"{normalised.base_tokens:,.0f}", f"{normalised.new_tokens:,.0f}"
        text = f"A step works on {tokens[0]} tokens in base and {tokens[1]} in new ({normalised.source}). The comparison is per token."
        yield mismatch("tokens", "tokens per step", *tokens, "normalised", text)
    here, there = world_size(base, table), world_size(new, table)
    if here is not None and there is not None and here != there:
        text = (
            f"The number of ranks (world_size) differs: {here} in base and {there} in new. Each rank then does another share of the work."
        )
        yield mismatch("world", "world_size", str(here), str(there), "refused", text)


def _tokens(base: Diagnosis, new: Diagnosis, told: Tokens | None, table: JobSettings) -> Normalised | None:
    """Useful tokens per step where both are known and differ."""
    here, there = (told.base, told.new) if told else (tokens_per_step(base, table), tokens_per_step(new, table))
    if here is None or there is None or here == there or min(here, there) <= 0:
        return None
    return Normalised(base_tokens=here, new_tokens=there, source=told.source if told else JOB_TOKENS)


# --- the capture ------------------------------------------------------------------------------------------------------


def _devices(base: Diagnosis, new: Diagnosis, places: tuple[Place, Place]) -> Iterator[Mismatch]:
    """Which ranks were captured, where only some are the same, and the GPU."""
    base_ranks, new_ranks = ({rank for rank, _ in _captured(side)} for side in (base, new))
    if base_ranks & new_ranks and base_ranks != new_ranks:
        before, after = _listed(base_ranks), _listed(new_ranks)
        text = f"Different ranks were captured: {before} in base, {after} in new. Give the same ranks' traces of both."
        yield mismatch("ranks", "captured ranks", before, after, "refused", text)
    here, there = device(base, places[0]), device(new, places[1])
    if here is not None and there is not None and here.casefold() != there.casefold():
        yield mismatch("device", "GPU", here, there, "refused", f"The GPU differs: {here} in base and {there} in new.")


def _capture(base: Diagnosis, new: Diagnosis) -> Iterator[Mismatch]:
    """Profiler, graphs and steps: what was captured differently looks different."""
    here, there = base.capture, new.capture
    if _family(here.format) != _family(there.format):
        text = (
            f"The runs were captured by different profilers ({here.profiler}, {there.profiler}): each slows the CPU down in its own "
            "way, and they do not record the same things."
        )
        yield mismatch("capture", "format", here.format, there.format, "refused", text)
    if {here.cuda_graphs, there.cuda_graphs} == {"nodes", "opaque"}:
        text = "CUDA graphs were traced node by node on one side and as a whole on the other: capture both with --cuda-graph-trace=node."
        yield mismatch("capture", "CUDA graphs", here.cuda_graphs, there.cuda_graphs, "refused", text)
    elif "opaque" in {here.cuda_graphs, there.cuda_graphs} and here.cuda_graphs != there.cuda_graphs:
        text = (
            "One side replays CUDA graphs that were traced as a whole: their kernels are not known and count as the bucket other. "
            "Buckets can't be compared."
        )
        yield mismatch("capture", "CUDA graphs", here.cuda_graphs, there.cuda_graphs, "noted", text)
    if _without_steps(base) != _without_steps(new):
        whole = base if _without_steps(base) else new
        cut = any(entry.code == "cut_file" for entry in whole.ledger)
        todo = "its file ends too early, write or copy it again" if cut else "name the range that is one step (--step-range)"
        text = f"One capture was cut into steps and the other was not, so that a step would be held against a whole capture: {todo}."
        yield mismatch("capture", "steps", base.steps.anchor, new.steps.anchor, "refused", text)
    elif base.steps.anchor != new.steps.anchor:
        text = f"Steps were found by different marks ({base.steps.anchor}, {new.steps.anchor}); they may begin at different places."
        yield mismatch("capture", "steps", base.steps.anchor, new.steps.anchor, "noted", text)
    cold = [side for side, document in (("base", base), ("new", new)) if _start_up_only(document)]
    if cold:
        text = (
            f"The capture{'s' if len(cold) > 1 else ''} of {' and '.join(cold)} hold{'' if len(cold) > 1 else 's'} hardly anything but "
            "start-up, which tells nothing of a step: capture some steps in the middle of a run."
        )
        yield mismatch("capture", "start-up", shown(_start_up_only(base)), shown(_start_up_only(new)), "refused", text)
    if base.verdict.perturbed != new.verdict.perturbed:
        which = "base" if base.verdict.perturbed else "new"
        text = f"The profiler slowed the {which} run noticeably and not the other: CPU overhead and step time hold its cost."
        yield mismatch("capture", "perturbed", shown(base.verdict.perturbed), shown(new.verdict.perturbed), "noted", text)
    stacks = tuple(fact.value if (fact := one.facts.get("python_stacks")) is not None else None for one in (base, new))
    if set(stacks) == {True, False}:
        text = f"Python stacks were recorded in {'new' if stacks[1] else 'base'} alone (with_stack): they slow the CPU, not the GPU."
        yield mismatch("capture", "Python stacks", shown(stacks[0]), shown(stacks[1]), "noted", text)


def _family(name: str) -> str:
    """The profiler of a format: nsys-sqlite and nsys-parquet are one way of capturing."""
    return name.split("-", maxsplit=1)[0]


def _start_up_only(document: Diagnosis) -> bool:
    """Whether the capture is nothing but start-up; a document that does not tell is taken for a run."""
    fact = document.facts.get("start_up_only")
    return fact is not None and fact.value is True


def _without_steps(document: Diagnosis) -> bool:
    return document.steps.anchor == NO_STEPS


def _unknown(
    base: Diagnosis, new: Diagnosis, here: Job | None, there: Job | None, places: tuple[Place, Place], rules: ComparisonRules
) -> tuple[str, ...]:
    """Aspects that one side or both do not tell."""
    found: list[str] = [
        aspect for aspect in JOB_ASPECTS if aspect != "world" and not _proven_aspect(rules.limits.aspects[aspect], here, there)
    ]
    if world_size(base, rules.job) is None or world_size(new, rules.job) is None:
        found.append("world")
    if tokens_per_step(base, rules.job) is None or tokens_per_step(new, rules.job) is None:
        found.append("tokens")
    if device(base, places[0]) is None or device(new, places[1]) is None:
        found.append("device")
    return tuple(found)


def _proven_aspect(spec: AspectSpec, here: Job | None, there: Job | None) -> bool:
    """Whether both job files tell what proves an aspect."""
    return all(job is not None and job.value(name) is not None for name in spec.proves for job in (here, there))


# --- what changed around the code, and in the job file ----------------------------------------------------------------

_PLURAL: Mapping[EnvironmentKind, str] = {"version": "versions", "variable": "variables", "clock": "clocks", "hardware": "hardware"}
_ORDER = tuple(_PLURAL)
_Values = Mapping[tuple[EnvironmentKind, str], str]


def environment(base: Diagnosis, new: Diagnosis) -> tuple[tuple[EnvironmentChange, ...], int, tuple[str, ...]]:
    """What differs (versions, variables, clocks, hardware), how many things both tell alike, and what could not be compared."""
    if not base.environment or not new.environment:
        sides = [side for side, one in (("base", base), ("new", new)) if not one.environment]
        which = "Neither capture records" if len(sides) == 2 else f"The capture of {sides[0]} does not record"
        return (), 0, (f"{which} its environment (versions, variables, clocks), so what changed around the code is not known.",)
    here, there = _environment_of(base), _environment_of(new)
    both = {kind for kind, _ in here} & {kind for kind, _ in there}
    # a variable may be unset, and a version (of what is not loaded) lack; hardware does not: one capture does not record it
    lack = {"variable", "version"} if _family(base.capture.format) == _family(new.capture.format) else {"variable"}
    keys = [key for key in {*here, *there} if key[0] in both and (key[0] in lack or (key in here and key in there))]
    keys.sort(key=lambda key: (_ORDER.index(key[0]), key[1]))
    changes = [
        EnvironmentChange(name=key[1], kind=key[0], base=here.get(key), new=there.get(key))
        for key in keys
        if here.get(key) != there.get(key)
    ]
    return tuple(changes), len(keys) - len(changes), tuple(_of_one_side(here, there))


def _of_one_side(here: _Values, there: _Values) -> Iterator[str]:
    """Kinds of which one capture tells nothing at all: it did not record them, which is not the same as not having them."""
    for kind in _ORDER:
        sides = [side for side, items in (("base", here), ("new", there)) if not any(one == kind for one, _ in items)]
        if len(sides) == 1:
            yield f"The capture of {sides[0]} records no {_PLURAL[kind]}, so those were not compared."


def _environment_of(document: Diagnosis) -> _Values:
    return {(item.kind, item.name): item.value for item in document.environment}


def settings(base: Diagnosis, new: Diagnosis, table: JobSettings) -> tuple[tuple[SettingChange, ...], tuple[str, ...]]:
    """Job settings that differ, and what could not be compared. A setting that one file leaves out to the same default is none."""
    here, there = job_of(base, table), job_of(new, table)
    if here is None or there is None:
        lacking = "Neither run has" if here is None and there is None else f"The {'base' if here is None else 'new'} run has no"
        return (), (
            (
                f"{lacking} {'a ' if lacking.startswith('Neither') else ''}job file, so settings were not compared. Give the job file "
                "of both runs."
            ),
        )
    # of a named preset the settings that it stands for are compared, but its name is what the file shows
    presets = {name for name, spec in here.table.specs.items() if spec.presets}
    names = [name for name in dict.fromkeys((*here.table.specs, *here.read, *there.read)) if name in here.read or name in there.read]
    changes = [
        _change(name, here, there)
        for name in names
        if here.value(name) != there.value(name) or (name in presets and _read(name, here) != _read(name, there))
    ]
    return tuple(changes), _unknown_keys(here, there)


def _read(name: str, job: Job) -> object:
    return job.read[name].value if name in job.read else None


def _change(name: str, here: Job, there: Job) -> SettingChange:
    first, second = here.read.get(name), there.read.get(name)
    told = second or first
    return SettingChange(
        name=name,
        key=told.key if told is not None else name,
        base=_shown(first),
        new=_shown(second),
        line=second.line if second is not None else None,
    )


def _shown(setting: JobSetting | None) -> str | None:
    return None if setting is None else shown(setting.value)


def _unknown_keys(here: Job, there: Job) -> tuple[str, ...]:
    """Keys that the program does not know and that only one of the files holds."""
    odd = sorted(here.unknown ^ there.unknown)
    if not odd:
        return ()
    more = f" and {len(odd) - 5} more" if len(odd) > 5 else ""
    return (f"The job files differ in keys that the program does not know: {', '.join(odd[:5])}{more}.",)
