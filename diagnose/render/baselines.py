"""The list of named baselines, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding

from diagnose.document.baselines import SCHEMA, StoredBaseline
from diagnose.render import terminal, units, words
from diagnose.render.options import Options
from diagnose.render.report import Row, Table, columns


def text(found: Sequence[StoredBaseline], options: Options) -> str:
    """One row for each."""
    table = Table(
        key="baselines",
        title="Baselines",
        columns=columns("name", "fingerprint", "device", "#step ms", "#steps?", "wall", "#size?"),
        rows=tuple(_row(one) for one in found),
        empty="none is stored; `diagnose baseline save NAME TRACE` stores one",
        whole=True,
    )
    blocks = list(terminal.table(table, terminal.width_of(options)))
    blocks += [terminal.heading("Their jobs")] if found else []
    for one in found:
        blocks += [terminal.note(f"{one.name}, {one.fingerprint}"), Padding(_about(one), (0, 0, 0, 3))]
    return terminal.printed(blocks, options)


def _about(one: StoredBaseline) -> Group:
    """The job that a baseline is of, one aspect a line, or why it can't be read."""
    body: list[RenderableType] = []
    terminal.add(body, "problem", one.problem, style="bold red")
    for aspect, told in (one.job or {}).items():
        terminal.add(body, aspect, told)
    return Group(*body)


def _row(one: StoredBaseline) -> Row:
    wall = "can't be read" if one.dominant_wall is None else words.WALL[one.dominant_wall]
    return Row(
        cells=(
            one.name,
            one.fingerprint,
            one.device or units.MISSING,
            units.ms(one.step_ns),
            units.count(one.steps),
            wall,
            units.size(one.bytes),
        )
    )


def json(found: Sequence[StoredBaseline]) -> str:
    """An object with one entry for each."""
    data = {"schema": SCHEMA, "baselines": [asdict(one) for one in found]}
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode("utf-8") + "\n"
