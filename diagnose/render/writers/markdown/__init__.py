"""A report as GitHub-flavoured Markdown, to paste into a bug report or a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.render.writers import Options, Writer

if TYPE_CHECKING:
    from diagnose.render.report import Report


def write(report: Report, _options: Options) -> str:
    """The report in at most 60 KB."""
    from diagnose.render.writers.markdown.page import page  # noqa: PLC0415 - only now, so that the command line starts quickly

    return page(report)


WRITER = Writer(name="markdown", extensions=(".md",), takes="report", place=3, write=write)
