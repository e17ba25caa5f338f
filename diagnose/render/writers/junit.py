"""A JUnit report: one case per check. Same report, same bytes: no times, no host.

It keeps to the schema by which Jenkins reads such files (jenkinsci/xunit-plugin, junit-10.xsd), which pytest's xunit2 follows too: a case
has no file and line there, so that its text begins with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.render.issues import GATE, Issue, IssueList, shown
from diagnose.render.writers import Options, Writer


def write(results: IssueList, options: Options) -> str:
    """The report as XML. `unjudged` is an error, which is neither pass nor failure."""
    issues = results.issues
    failed, unjudged, skipped = (sum(one.state == state for one in issues) for state in ("failed", "unjudged", "skipped"))
    counts = f'tests="{len(issues)}" failures="{failed}" errors="{unjudged}" time="0"'
    cases = "".join(line for one in issues for line in _case(one, results, options))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="{_attribute(results.suite)}" {counts}>\n'
        f' <testsuite name="{_attribute(results.suite)}" {counts} skipped="{skipped}">\n'
        f"  <properties>\n"
        f'   <property name="version" value="{_attribute(f"{results.tool.name} {results.tool.version}")}"/>\n'
        f'   <property name="rules_sha256" value="{_attribute(results.tool.rules_sha256)}"/>\n'
        f"  </properties>\n{cases}"
        f"  <system-out>{_text(results.sentence)}</system-out>\n"
        " </testsuite>\n</testsuites>\n"
    )


def _case(one: Issue, results: IssueList, options: Options) -> Iterator[str]:
    place = f"{options.job_file}:{one.line or 1}: " if options.job_file and one.shown else ""
    # A case keeps its name whether it passes, fails or is skipped, so that a runner can follow it from run to run.
    suite = f"{results.suite}.{GATE if one.group == GATE else 'rules'}"
    start = f'  <testcase classname="{_attribute(suite)}" name="{_attribute(one.id)}" time="0"'
    text = f"{place}{one.name}. {one.text}" if one.shown else one.text
    match one.state:
        case "passed":
            yield f"{start}/>\n"
        case "told":
            yield f"{start}>\n   <system-out>{_text(text)}</system-out>\n  </testcase>\n"
        case "skipped":
            yield f'{start}>\n   <skipped message="{_attribute(one.text)}"/>\n  </testcase>\n'
        case "failed" | "unjudged":
            kind = "failure" if one.state == "failed" else "error"
            first = text if len(text) <= 200 else f"{text[:199]}…"  # what a list of failures shows of it
            yield f'{start}>\n   <{kind} type="{one.severity}" message="{_attribute(first)}">{_text(text)}</{kind}>\n  </testcase>\n'


def _attribute(text: str) -> str:
    from html import escape  # noqa: PLC0415 - so that the command line starts quickly

    return escape(shown(text), quote=True)


def _text(text: str) -> str:
    from html import escape  # noqa: PLC0415 - so that the command line starts quickly

    return escape(shown(text), quote=False)


WRITER = Writer(name="junit", extensions=(".xml",), takes="issues", place=6, write=write)
