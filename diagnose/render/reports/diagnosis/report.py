"""The report of a diagnosis: verdict first, then the walls, the budget, the findings, and how far to trust it all.

Beside it the checks for CI.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from diagnose.document.device import DeviceBudget
from diagnose.document.diagnosis import Change, Diagnosis, Finding, Fix
from diagnose.knowledge.templates import capitalised
from diagnose.reason.plan import members, stays
from diagnose.render import Options, TypedFiles, units, words
from diagnose.render import report as r
from diagnose.render.figures import step
from diagnose.render.issues import SEVERITY, Issue, IssueList, State
from diagnose.render.report import EVERYTHING, FINDINGS, LIMITED, PAGE, Block, Label, Section, Text
from diagnose.render.reports.diagnosis import advice, answer, appendix, composition, story, tables
from diagnose.render.reports.ranks import report as ranks
from diagnose.render.words import SEVERITY_RANK

MOST_DEVICES = 8  # of which a page shows the tables
# What `--section` can name of it, in order; the tests hold it against reports.
PARTS = (
    "masthead", "run", "verdict", "bar", "plan", "remarks", "commands", "next", "ranks", "rank-problems", "walls", "rank-groups",
    "rank-survey", "survey-of-ranks", "rank-late", "rank-skew", "rank-clocks", "rank-exchanges", "rank-experts", "rank-places",
    "rank-pipeline", "rank-tail", "rank-notes", "budget", "numbers", "buckets", "figures", step.COMMUNICATION, "blocking", "host", "appendix",
    appendix.MEMORY, "fill", "occupancy", "job-problems", "findings", "inside-vision", "vision-encoder", "unclassified", "job", "job-sizes",
    "capture", "not-assessed", "ledger",
)  # fmt: skip


def report(document: Diagnosis, typed: TypedFiles | None = None) -> r.Report:
    """The whole report."""
    captured, found = document.capture, document.verdict
    gpu = ", ".join(dict.fromkeys(device.name or "GPU name not recorded" for device in captured.devices))
    return r.Report(
        title=" · ".join(part for part in (answer.run_name(document), answer.layout(document), story.headline(document)) if part),
        heading="what holds this run back",
        about=f"{gpu} · {units.plural(len(captured.ranks), 'rank')} captured · {captured.profiler} {captured.profiler_version or ''}".rstrip(),
        blocks=tuple(_blocks(document, typed)),
        sections=_sections(document),
        tool=document.tool,
        schema=document.schema,
        sentence=found.sentence,
        first_try=story.first_try(document),
    )


def _sections(document: Diagnosis) -> tuple[Section, ...]:
    findings, unknown = len(document.findings), len(document.not_assessed)
    return (
        *((Section(id="ranks", title="Ranks", nav="Ranks"),) if document.ranks is not None else ()),
        Section(id="job-problems"),
        Section(id="findings", title="Findings", nav=f"Findings ({findings})", headed=True, count=findings),
        Section(id="the-step", title="Timeline", folded=True, printed=True),
        Section(id="walls", title="The four walls", folded=True),
        Section(id="figures-of-the-step", title="Where the time went", folded=True, printed=True),
        Section(id="numbers", title="The numbers", folded=True),
        Section(id="not-assessed", nav=f"Not assessed ({unknown})", folded=True),
        Section(id="capture", nav="Capture quality", folded=True),
        Section(id="ledger", nav="Data quality", folded=True),
        Section(id="appendix", title="Appendix", folded=True),
    )


def _blocks(document: Diagnosis, typed: TypedFiles | None) -> Iterator[Block]:
    layers = tables.moe_layer(document)
    yield Block(content=answer.masthead(document), name="run", worth=101)
    yield Block(content=answer.verdict(document), name="verdict", worth=100, most=LIMITED)
    yield Block(content=_verdict(document), name="verdict", worth=100, least=PAGE)
    yield Block(content=composition.bar(document), name="bar", worth=99)
    yield Block(content=advice.plan(document), name="plan", worth=98, column=1)
    if layers.rows:
        yield Block(content=layers, name="layer", least=PAGE, column=2)
    yield Block(content=answer.remarks(document), name="remarks", worth=97, column=2)
    yield Block(content=answer.commands(document, typed), name="next", worth=96, column=2)
    yield from (replace(block, detail=FINDINGS if block.section == "findings" else EVERYTHING) for block in _details(document))


def _details(document: Diagnosis) -> Iterator[Block]:
    """What stands behind the answer."""
    yield from ranks.first(document)
    yield Block(content=tables.walls(document), name="walls", section="walls", worth=90)
    yield from ranks.blocks(document)
    yield from _figures(document)
    yield from _devices(document)
    yield Block(content=appendix.memory(document), section="appendix", worth=54, aside=True, folded=True, least=_room(document.memory))
    for table, worth in ((appendix.fill(document), 53), (appendix.occupancy(document), 52)):
        yield Block(content=table, section="appendix", worth=worth, aside=True, folded=True, least=_room(table.rows))
    problems = appendix.job_problems(document)
    if problems.rows:
        yield Block(content=problems, section="job-problems", worth=95, name="job problems")
    if not document.findings:
        yield Block(content=Text(text="No rule found anything to change.", tone="weak"), section="findings", worth=94)
    told: dict[Fix, Finding] = {}
    for index, finding in enumerate(document.findings):
        yield Block(content=_finding(finding, document, told, opened=index == 0), section="findings", worth=93, name="findings")
        told = {**dict.fromkeys(finding.fixes, finding), **told}
    tower = tables.inside_vision(document)
    if tower.rows:
        yield Block(content=tower, section="numbers", worth=69, name="vision encoder")
    yield Block(content=tables.unclassified(document), section="numbers", worth=57, aside=True)
    yield Block(content=appendix.job(document), section="appendix", worth=56, aside=True, folded=True)
    sizes = appendix.job_sizes(document)
    if sizes.rows:
        yield Block(content=sizes, section="appendix", worth=55, aside=True, folded=True)
    yield Block(content=appendix.capture(document), section="capture", worth=60, aside=True)
    yield Block(content=appendix.not_assessed(document), section="not-assessed", worth=58, aside=True)
    yield Block(content=appendix.ledger(document), section="ledger", worth=59, aside=True)
    yield Block(content=appendix.facts(document), section="appendix", folded=True, least=PAGE)


def _figures(document: Diagnosis) -> Iterator[Block]:
    """Where the time went, drawn; two small figures side by side."""
    column = 0
    for figure in step.figures(document):
        column = (column % 2 + 1) if figure.half else 0
        section = "figures-of-the-step" if figure.spans is None else "the-step"
        yield Block(content=figure, section=section, least=PAGE, column=column)


def _room(found: object) -> int:
    """Narrow media leave out a table of the appendix that has nothing to show."""
    return r.TERMINAL if found else LIMITED


# --- verdict ------------------------------------------------------------------------------------------------


def _verdict(document: Diagnosis) -> r.Panel:
    """The verdict of the answer; on a page what was lost is a link."""
    found = answer.verdict(document)
    lost = any(entry.severity in ("data_loss", "error") for entry in document.ledger)
    phrases = (*found.phrases, r.Phrase(text="data was lost: see data quality", tone="bad", to="ledger")) if lost else found.phrases
    return replace(found, phrases=phrases)


# --- devices ----------------------------------------------------------------------------------------------------------


def _devices(document: Diagnosis) -> Iterator[Block]:
    """The device that the verdict speaks of; the others where there is room, each under its name."""
    first = tables.focus(document)
    ordered = sorted(document.budget, key=lambda one: one is not first)
    for index, device in enumerate(ordered[:MOST_DEVICES]):
        fold = tables.device_label(device.rank, device.device) if index else ""
        yield from _device(document, device, others=0 if index else len(ordered) - 1, fold=fold)
    if len(ordered) > MOST_DEVICES:
        more = f"{len(ordered) - MOST_DEVICES} more devices in the JSON output."
        yield Block(content=Text(text=more, hint=True), section="numbers", least=PAGE)


def _device(document: Diagnosis, device: DeviceBudget, *, others: int, fold: str) -> Iterator[Block]:
    least = PAGE if fold else r.TERMINAL
    rank, number = device.rank, device.device

    def block(table: r.Table, column: int = 0, least: int = least, name: str = "figures") -> Block:
        return Block(content=table, section="numbers", worth=70, least=least, fold=fold, column=column, name=name)

    yield block(tables.budget(document, device), 1, name="budget")
    if others:
        hint = Text(text=f"{units.plural(others, 'other device')}: see the HTML or JSON output.", hint=True)
        yield Block(content=hint, section="numbers", worth=70, most=LIMITED, name="budget")
    yield block(tables.buckets(document, rank, number))
    yield block(tables.communication(document, rank, number))
    yield block(tables.blocking(document, rank, number), 2)
    yield block(tables.host(document, rank, number), 2)


# --- findings ---------------------------------------------------------------------------------------------------------


def _finding(finding: Finding, document: Diagnosis, told: Mapping[Fix, Finding], *, opened: bool) -> r.Finding:
    """One finding; `told`: fixes of findings before it, each with the first that has it."""
    return r.Finding(
        id=finding.id,
        title=capitalised(finding.name),
        severity=finding.severity,
        look=finding.wall,
        kind=(words.wall_in_text(finding.wall), finding.status),
        meaning=words.STATUS_MEANING[finding.status],
        bound=story.finding_ceiling(finding, document),
        summary=finding.summary,
        opened=opened,
        evidence=tuple((one.fact, units.fact(one.value, one.unit)) for one in finding.evidence),
        where=story.finding_where(finding, document),
        top=finding.where.top,
        notes=(
            Label(label="why", full="why it matters", text=finding.why),
            Label(label="check", full="check by hand", text=finding.check),
            Label(label="not this if", text=finding.wrong_when),
        ),
        refs=finding.refs,
        fixes=tuple(_remedy(fix, finding, document, told.get(fix)) for fix in finding.fixes),
    )


def _remedy(fix: Fix, finding: Finding, document: Diagnosis, above: Finding | None) -> r.Remedy:
    reason = story.fix_reason(fix)
    return r.Remedy(
        id=fix.id,
        title=capitalised(fix.title),
        state=fix.state,
        sign=words.STATE_SIGN[fix.state],
        word=words.STATE[fix.state],
        open=fix.state == "applicable",
        reasons=fix.blocked_by if fix.state == "blocked" and fix.blocked_by else (reason,) if reason else (),
        settings=tuple(_setting(change, done=fix.state == "already_on") for change in fix.changes),
        settings_line=tuple(story.changes_by_framework(fix)) if fix.state in ("applicable", "unknown") else (),
        unread="no job file" if document.job is None else "not in the job file",
        expected=tuple((one.text, one.source) for one in fix.expected),
        forecast="" if fix.forecast is None else advice.alone(fix.forecast, finding.bound_ns),
        notes=(
            Label(label="disputed", text=fix.disputed),
            Label(label="cost", text=fix.cost),
            Label(label="risk", text=fix.risk),
            Label(label="verify", full="how to verify", text=fix.verify),
        ),
        evidence=words.EVIDENCE.get(fix.evidence, fix.evidence),
        refs=fix.refs,
        above=(capitalised(above.name), above.id) if above is not None and fix.state in ("applicable", "unknown") else None,
    )


def _setting(change: Change, *, done: bool) -> r.Setting:
    """One change; nothing is to be done where the fix is on already."""
    verb = change.op if change.op not in ("set", "unset") and not change.choose else ""
    plain = change.choose or change.op == "unset"
    to = story.target(change.op, change.to) if plain else ", ".join(members(change.to)) if verb else change.to
    return r.Setting(
        framework=story.framework(change.framework),
        key=change.key,
        now=change.from_,
        verb="" if plain else verb,
        to="" if done else to,
        exact=not plain,
        stays=stays(change),
        line=story.change(change),
    )


def issues(document: Diagnosis, options: Options) -> IssueList:
    """All checks. Without a gate (`options.fail_on`) every finding about the run fails; with one, those that it asks about."""
    found = [_issue(one, document, options) for one in document.findings]
    found += [
        Issue(id=one.id, name="not assessed", group="not assessed", state="skipped", severity="note", text=one.how)
        for one in document.not_assessed
    ]
    found += [Issue(id=name, name="nothing found", group="passed", state="passed", severity="note", text="") for name in document.passed]
    return IssueList(tool=document.tool, suite="diagnose", sentence=document.verdict.sentence, issues=tuple(found))


def _issue(one: Finding, document: Diagnosis, options: Options) -> Issue:
    from diagnose.reason.patch import place_of  # noqa: PLC0415 - brings the formats of job files, which only lists of issues need

    place = place_of(one, document.job, words.job_settings())
    change = f" To change: {place.fix}{f' ({place.key})' if place.key else ''}." if place.fix else ""
    return Issue(
        id=one.id,
        name=capitalised(one.name),
        group=one.wall,
        state=_state(one, options),
        severity=SEVERITY[one.severity],
        text=f"{one.summary}{change}",
        cost_ns=one.bound_ns,
        help=one.why,
        key=place.key,
        line=place.line,
    )


def _state(one: Finding, options: Options) -> State:
    """A finding about the capture says nothing against the run."""
    asked = options.fail_on is None or SEVERITY_RANK[one.severity] <= SEVERITY_RANK[options.fail_on]
    return "failed" if asked and one.wall != "capture" else "told"
