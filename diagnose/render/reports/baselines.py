"""The report of stored baselines: one row for each, then the jobs that they are of."""

from __future__ import annotations

from dataclasses import asdict

from diagnose.document.encoding import encode
from diagnose.document.baselines import SCHEMA, Baselines, StoredBaseline
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.report import Block, Entry, Label, Section, Table, rows_of


def json(document: Baselines) -> str:
    """An object with one entry for each."""
    return encode({"schema": SCHEMA, "baselines": [asdict(one) for one in document.entries]}).decode()


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
                "#step ms": units.ms(one.step_ns),
                "#steps?": units.count(one.steps),
                "wall": "can't be read" if one.problem else words.target(one.target_wall),
                "#size?": units.size(one.bytes),
            }
            for one in document.entries
        ),
        empty="none is stored; `diagnose baseline save NAME TRACE` stores one",
        whole=True,
    )
    return r.Report(
        title="Baselines",
        heading="stored baselines",
        about=units.plural(len(document.entries), "baseline"),
        blocks=(
            Block(content=table, section="baselines", worth=100),
            *(Block(content=_job(one), section="jobs", name="jobs", worth=90) for one in document.entries),
        ),
        sections=(Section(id="baselines", nav="Baselines"), Section(id="jobs", title="Their jobs", nav="Their jobs", headed=True)),
        schema=SCHEMA,
    )


def _job(one: StoredBaseline) -> Entry:
    """The job that a baseline is of, one aspect a line, or why it can't be read."""
    problem = Label(label="problem", text=one.problem, tone="bad")
    aspects = (Label(label=aspect, text=value) for aspect, value in (one.job or {}).items())
    return Entry(name=f"{one.name}, {one.fingerprint}", parts=(problem, *aspects))
