"""The report of a job file's check: what goes wrong, by how bad it is, with the settings that decide and the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from diagnose.document.diagnosis import Change
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
    for group in groups:
        for result in document.results:
            if result.group == group:
                yield Block(content=_result(result), section=group, name=HEADINGS[group], worth=90)
    by_missing: dict[str, list[str]] = {}
    for one in document.not_assessed:
        by_missing.setdefault(one.how, []).append(one.id)
    for how, ids in by_missing.items():
        entry = Entry(name=how, parts=(Text(text=f"would decide {', '.join(ids)}"),))
        yield Block(content=entry, section=_UNKNOWN, name="not assessed", worth=80)


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
