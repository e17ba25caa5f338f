"""A report as one HTML file: offline, without a single request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.render.writers import Options, Writer

if TYPE_CHECKING:
    from diagnose.render.report import Report


def write(report: Report, options: Options) -> str:
    """The whole page."""
    from diagnose.render.writers.html.page import page  # noqa: PLC0415 - only now, so that the command line starts quickly

    return page(report, light=options.light)


WRITER = Writer(name="html", extensions=(".html",), takes="report", place=4, write=write)
