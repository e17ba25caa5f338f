"""The report of stored baselines: one row for each, then the jobs that they are of."""

from __future__ import annotations

from diagnose.document.baselines import SCHEMA, Baselines, StoredBaseline
from diagnose.document.encoding import encode
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.report import Block, Entry, Label, Section, Table, rows_of

_DAY = len("2026-01-31")
_COMMIT = 12  # digits of a commit that are shown
_NOISE = "Noise: the standard deviation between the medians of the runs."


def json(document: Baselines) -> str:
    """An object with one entry for each."""
    return encode({"schema": SCHEMA, "baselines": document.entries}).decode()


def report(document: Baselines) -> r.Report:
    """The whole report."""
    table = Table(
        "baselines",
        "Baselines",
        rows_of(
            {
                "name": one.name,
                "fingerprint": one.fingerprint,
                "device": one.device or units.MISSING,
                "#runs": units.count(len(one.runs)),
                "newest": max((row.date for row in one.runs if row.date), default="")[:_DAY],
                "#step ms": units.ms(one.step_ns),
                "#noise": units.MISSING if one.noise is None else units.percent(one.noise),
                "wall": "can't be read" if one.problem else words.target(one.target_wall),
                "#size?": units.size(one.bytes),
            }
            for one in document.entries
        ),
        empty=f"none is stored; `diagnose baseline add NAME TRACE{document.store}` stores one",
        note=_NOISE if any(one.noise is not None for one in document.entries) else "",
        whole=True,
    )
    detail = document.detail
    return r.Report(
        title="Baselines",
        heading="stored baselines",
        about=units.plural(len(document.entries), "baseline"),
        blocks=(
            Block(content=table, section="baselines", worth=100),
            *(Block(content=_runs(one), section="runs", worth=95) for one in document.entries if detail),
            *(Block(content=_job(one), section="jobs", name="jobs", worth=90) for one in document.entries),
        ),
        sections=(
            Section(id="baselines", nav="Baselines"),
            *((Section(id="runs", nav="Their runs"),) if detail else ()),
            Section(id="jobs", title="Their jobs", nav="Their jobs", headed=True),
        ),
        schema=SCHEMA,
    )


def _runs(one: StoredBaseline) -> Table:
    """The runs of one baseline, oldest first."""
    return Table(
        f"runs-{one.fingerprint}",
        f"The runs of {one.name}, {one.fingerprint}",
        rows_of(
            {
                "run": row.run,
                "date": row.date or units.MISSING,
                "commit": (row.commit or units.MISSING)[:_COMMIT],
                "host class?": row.host_class or units.MISSING,
                "trace?": row.label,
                "#step ms": units.ms(row.step_ns),
                "#against the median": units.MISSING
                if not row.step_ns or not one.step_ns
                else units.signed_percent(row.step_ns / one.step_ns - 1),
                "#steps?": units.count(row.steps),
            }
            for row in one.runs
        ),
        whole=True,
    )


def _job(one: StoredBaseline) -> Entry:
    """The job that a baseline is of, one aspect a line, or why it can't be read."""
    problem = Label(label="problem", text=one.problem, tone="bad")
    aspects = (Label(label=aspect, text=value) for aspect, value in (one.job or {}).items())
    return Entry(name=f"{one.name}, {one.fingerprint}", parts=(problem, *aspects))
