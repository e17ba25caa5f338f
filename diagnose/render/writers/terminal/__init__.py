"""A report for a terminal: at most as wide as asked, with colours where they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.render.writers import Options, Writer

if TYPE_CHECKING:
    from diagnose.render.report import Report


def write(report: Report, options: Options) -> str:
    """The report as text of `options.width` columns, with colours where `options.color` is set."""
    from diagnose.render.writers.terminal.layout import printed  # noqa: PLC0415 - imports rich

    return printed(report, options)


WRITER = Writer(name="text", extensions=(".txt",), takes="report", place=1, write=write)
