"""The report of a job file's check: what goes wrong, by how bad it is, with the settings that decide and the remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from diagnose.document.diagnosis import Change, JobRead
from diagnose.document.job import CheckReport, CheckResult, Deciding
from diagnose.model.vocabulary import GROUPS, Group
from diagnose.render import report as r
from diagnose.render import words
from diagnose.render.report import Block, Entry, Label, Listing, Section, Text

HEADINGS: Mapping[Group, str] = {
    "will_fail": "Will fail",
    "will_hang": "Will hang",
    "silently_off": "Silently off",
    "doubtful": "Doubtful",
}
_UNKNOWN = "not-assessed"
_READ: Mapping[str, str] = {
    "world_size": "ranks",
    "tensor_model_parallel_size": "TP",
    "pipeline_model_parallel_size": "PP",
    "virtual_pipeline_model_parallel_size": "VPP",
    "context_parallel_size": "CP",
    "expert_model_parallel_size": "EP",
    "expert_tensor_parallel_size": "ETP",
    "data_parallel_size": "DP",
    "micro_batch_size": "micro-batch",
    "gradient_accumulation_steps": "accumulation",
    "global_batch_size": "global batch",
    "seq_length": "sequence",
    "num_layers": "layers",
    "num_moe_experts": "experts",
    "moe_router_topk": "top-k",
    "moe_token_dispatcher_type": "token dispatcher",
    "recompute_granularity": "recompute",
    "data_parallel_sharding_strategy": "sharding",
    "bf16": "BF16",
    "fp16": "FP16",
    "fp8": "FP8",
    "fp4": "FP4",
}
_MOST_ASKED, _MOST_NOTES = 5, 8


def report(document: CheckReport) -> r.Report:
    """The whole report."""
    groups = [group for group in GROUPS if any(result.group == group for result in document.results)]
    unknown = Section(id=_UNKNOWN, title="Not assessed: the job file does not say", nav="Not assessed", headed=True)
    return r.Report(
        title="Check of a job file",
        heading="what would go wrong",
        about=f"{document.job.format} job",
        blocks=tuple(_blocks(document, groups)),
        sections=(
            *(Section(id=group, title=HEADINGS[group], nav=HEADINGS[group], headed=True) for group in groups),
            *((unknown,) if document.not_assessed else ()),
        ),
        tool=document.tool,
        schema=document.schema,
    )


def _blocks(document: CheckReport, groups: list[Group]) -> Iterator[Block]:
    yield Block(content=Text(text=_summary(document)), name="summary", worth=100)
    if document.job.problems:
        yield Block(content=Listing(texts=tuple(one.text for one in document.job.problems)), name="problems", worth=95)
    yield Block(content=Text(text=_read(document)), name="read", worth=94)
    if notes := _notes(document.job):
        yield Block(content=Listing(texts=notes), name="notes", worth=70)
    for group in groups:
        for result in document.results:
            if result.group == group:
                yield Block(content=_result(result), section=group, name=HEADINGS[group], worth=90)
    if document.not_assessed:
        yield Block(content=Text(text=_asked(document)), section=_UNKNOWN, name="not assessed", worth=85)
    by_missing: dict[str, list[str]] = {}
    for one in document.not_assessed:
        by_missing.setdefault(one.how, []).append(one.id)
    for how, ids in by_missing.items():
        entry = Entry(name=how, parts=(Text(text=f"would decide {', '.join(ids)}"),))
        yield Block(content=entry, section=_UNKNOWN, name="not assessed", worth=80, detail=r.EVERYTHING)


def _read(document: CheckReport) -> str:
    """The sizes and precisions that the file says, by which a reader sees whether it was understood."""
    told = {one.name: one.value for one in document.job.settings}
    given = {name: value for name, value in told.items() if value not in (False, "none")}
    sizes = [label if given[name] is True else f"{label} {given[name]}" for name, label in _READ.items() if name in given]
    return (
        f"Read: {', '.join(sizes)}." if sizes else "Read: none of the job's sizes; the file does not say them, or they were not understood."
    )


def _notes(job: JobRead) -> tuple[str, ...]:
    """Remarks of the reading; variables that have a script's own defaults are told together."""
    more = len(job.notes) - _MOST_NOTES
    shown = (*job.notes[:_MOST_NOTES], f"{more} more remarks (--format json)") if more > 0 else job.notes
    if not job.script_defaults:
        return shown
    names = list(dict.fromkeys(one.variable for one in job.script_defaults))
    named = f"{', '.join(names[:_MOST_NOTES])}{' …' if len(names) > _MOST_NOTES else ''}"
    return (*shown, f"taken from the script's own defaults, which the environment may overrule: {named}")


def _asked(document: CheckReport) -> str:
    """For want of which settings checks were not assessed, those first that most of them need."""
    wanted = Counter(key for one in document.not_assessed for key in one.how.split("; "))
    most = ", ".join(f"{key} ({count})" for key, count in wanted.most_common(_MOST_ASKED))
    checks, need = ("1 check", "needs") if len(document.not_assessed) == 1 else (f"{len(document.not_assessed)} checks", "need")
    return f"{checks} {need} settings that the file does not say, most often {most}; -v lists all."


def _summary(document: CheckReport) -> str:
    counts = {group: sum(result.group == group for result in document.results) for group in GROUPS}
    outcome = ", ".join(f"{HEADINGS[group].lower()}: {number}" for group, number in counts.items() if number) or "nothing found wrong"
    where = f"on {document.platform}" if document.platform else "on no named platform"
    decided = f"{document.checked} checks decided, {len(document.not_assessed)} not assessed"
    if not document.checked and not document.not_assessed:
        return f"{document.job.format} job {where}: nothing was checked, since no check asks for what this file says."
    return f"{document.job.format} job {where}: {outcome}. {decided}."


def _result(result: CheckResult) -> Entry:
    kind = words.OUTCOME[result.outcome] if result.outcome else "does not go together"
    assumed = f"Follows only with defaults that the file does not state: {', '.join(result.assumed)}." if result.assumed else ""
    return Entry(
        name=f"{result.id} ({kind})",
        parts=(
            Text(text=result.summary),
            *((Text(text=assumed),) if assumed else ()),
            Label(label="seen as", text=result.symptom),
            Label(label="decided by", text=", ".join(_deciding(one) for one in result.settings)),
            Label(label="remedy", text=result.remedy),
            Label(label="repair", text=", ".join(_repair(one) for one in result.repair)),
            Label(label="no fix", text=result.no_fix),
            Label(label="fixes", text=", ".join(f"{fix.id} {fix.title}" for fix in result.fixes)),
            Label(label="source", text="; ".join(result.refs)),
        ),
    )


def _repair(one: Change) -> str:
    how = f" ({one.how})" if one.how else ""
    if one.op in ("add", "remove"):
        return f"{one.key}: {one.op} {one.to}"
    return f"{one.key}: {'leave out' if one.op == 'unset' else one.to}{how}"


def _deciding(one: Deciding) -> str:
    if isinstance(one.value, tuple):
        value = f"[{', '.join(one.value)}]"
    else:
        value = str(one.value).lower() if isinstance(one.value, bool) else str(one.value)
    origins = {
        "read": "" if one.key == one.name else f" ({one.key})",
        "default": " (default, not in the file)",
        "platform": "",
        "trace": "",
        "computed": f" ({one.key})",
    }
    return f"{one.name} = {value}{origins[one.source]}"
