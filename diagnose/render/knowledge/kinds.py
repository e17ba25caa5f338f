"""The kinds of entries and the pages that hold them; adding a kind is one line in `KINDS` (and one in `PAGES`)."""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.knowledge.glossary import load_glossary
from diagnose.model.ledger import CODES
from diagnose.render.knowledge import kernels, numbers, rules
from diagnose.render.knowledge.entries import Kind

# In the order in which an id is looked up; the order inside a page is the same.
KINDS: tuple[Kind, ...] = (
    Kind(
        name="rule",
        plural="rules",
        page="rules.md",
        brief="wall",
        intro="One bad pattern each. A rule fires where its condition holds over the facts of a trace and the settings of a job file; a condition that lacks a fact makes the rule *not assessed*, never fine. In sentences `‹name›` stands for a number of the run. Thresholds are this project's own choice unless a source stands beside them.",
        ids=lambda know: sorted(know.book.rules, key=lambda key: (rules.topics(know.book).index(know.book.rules[key].wall), key)),
        entry=rules.rule,
        run=rules.rule_in_run,
    ),
    Kind(
        name="fix",
        plural="fixes",
        page="fixes.md",
        brief="phase, step",
        intro="One remedy each, in the order in which to try them: **fit** the job into memory, **scale** it over the GPUs, **profile**, then **retune** what the profile shows, one change at a time. Published effects come from other jobs; they are no forecast for yours. *measured*: published measurements show the effect; *candidate*: recommended, but measurements are missing, disagree, or hold for some jobs only; *required*: no optimisation, without it something fails or is silently off. A need that fails, or a conflict that holds, blocks the fix; while it is unknown the fix is unknown too, unless it says otherwise.",
        ids=rules.order,
        entry=rules.fix,
        run=rules.fix_in_run,
    ),
    Kind(
        name="check",
        plural="checks",
        page="checks.md",
        brief="outcome",
        intro="One way each in which a job fails, hangs, or silently does something else. `diagnose check job.yaml` asks those with a condition of a job file alone; the others are symptoms that only a log or a run can show. A check that lacks a setting is *not assessed*; what follows only from a framework's default that the file does not state is *doubtful*. In sentences `‹name›` stands for a value of the job.",
        ids=lambda know: tuple(know.book.checks),
        entry=rules.check,
    ),
    Kind(
        name="wall",
        plural="walls",
        page="walls.md",
        brief="bound",
        intro="What can hold a training step back, and how much could be won at most. Bounds are upper bounds and do not add up.",
        ids=lambda know: tuple(know.book.walls.walls),
        entry=rules.wall,
        run=rules.wall_in_run,
    ),
    Kind(
        name="word",
        plural="words",
        page="words.md",
        brief="written",
        intro="Words of the field, with what follows from each here.",
        ids=lambda _know: tuple(load_glossary()),
        entry=rules.word,
    ),
    Kind(
        name="bucket",
        plural="buckets",
        page="buckets.md",
        brief="roles",
        intro="Every device operation lands in exactly one bucket: the part of the model that it serves. Evidence, strongest first: the user's own rules, the module around the launch, the operator and its process group, the kernel's name, its neighbours on the stream. `diagnose kernel NAME` shows what decides for one name. Its role (compute, communication, permute/unpermute, copy) says how it counts in the budget.",
        ids=lambda know: tuple(know.book.buckets),
        entry=kernels.bucket,
        run=kernels.bucket_in_run,
    ),
    Kind(
        name="family",
        plural="families",
        page="buckets.md",
        brief="bucket",
        intro="What an operation is, by its name. The first family in this order whose pattern matches wins.",
        ids=lambda know: tuple(one.id for one in know.taxonomy.families),
        entry=kernels.family,
        prefix="family-",
    ),
    Kind(
        name="context",
        plural="contexts",
        page="buckets.md",
        brief="bucket or phase",
        intro="What an enclosing range says about the launches in it, in order of precedence.",
        ids=lambda know: tuple(one.id for one in know.taxonomy.contexts),
        entry=kernels.context,
        prefix="context-",
    ),
    Kind(
        name="group",
        plural="groups",
        page="buckets.md",
        brief="kind",
        intro="What the description of a process group says about its collectives, in order of precedence.",
        ids=lambda know: tuple(one.id for one in know.taxonomy.groups),
        entry=kernels.group,
        prefix="group-",
    ),
    Kind(
        name="fact",
        plural="facts",
        page="facts.md",
        brief="unit",
        intro="Every measured number that rules may use. Times are in ns per step, as the median over the steps of the device that the verdict speaks of. *null means* says when the fact is absent; absent is never zero.",
        ids=lambda know: tuple(know.book.facts),
        entry=numbers.fact,
        run=numbers.fact_in_run,
    ),
    Kind(
        name="setting",
        plural="settings",
        page="job-settings.md",
        brief="type",
        intro="Every setting that is read from a job file, with its keys in each framework, best first. Conditions read it as `job_‹name›`.",
        ids=lambda know: tuple(know.book.settings),
        entry=numbers.setting,
        run=numbers.setting_in_run,
    ),
    Kind(
        name="platform",
        plural="platforms",
        page="platforms.md",
        brief="architecture",
        intro="GPU products by the name that a trace gives them, in the order in which names are tried. Peaks are dense, per GPU, without sparsity.",
        ids=lambda know: tuple(know.book.platforms.platforms),
        entry=numbers.platform,
    ),
    Kind(
        name="code",
        plural="codes",
        page="ledger.md",
        brief="severity",
        intro="What the ledger counts: rows that were not used, and what a capture lacks.",
        ids=lambda _: tuple(CODES),
        entry=numbers.code,
        run=numbers.code_in_run,
    ),
)
BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
PAGES: Mapping[str, str] = {
    "rules.md": "Rules",
    "fixes.md": "Fixes",
    "checks.md": "Checks of job files",
    "walls.md": "Walls",
    "words.md": "Words of the field",
    "buckets.md": "Buckets",
    "facts.md": "Facts",
    "job-settings.md": "Job settings",
    "platforms.md": "Platforms",
    "ledger.md": "Ledger codes",
}
