"""Annotations of a GitHub workflow, as the commands that its runner reads from the log: at most ten, the costliest first.

A runner shows ten annotations of a step and drops the others without a word, so the tenth says how many more there are.
Source: docs.github.com, "Workflow commands for GitHub Actions"; the limit as zizmor's documentation states it.
"""

from __future__ import annotations

from diagnose.render.issues import Issue, IssueList, Severity, costliest_first, shown
from diagnose.render.writers import Options, Writer

MOST = 10
_COMMAND: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}
_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def write(results: IssueList, options: Options) -> str:
    """One workflow command a line; a notice with the result where there is nothing else to say."""
    found = costliest_first(results.issues)
    if not found:
        return _command("notice", results.suite, results.sentence, "", None)
    first = found if len(found) <= MOST else found[: MOST - 1]
    file = options.job_file
    lines = [_command(_COMMAND[_level(one)], one.title, one.text, file, (one.line or 1) if file else None) for one in first]
    if len(found) > len(first):
        lines.append(_rest(found[len(first) :], results))
    return "".join(lines)


def _level(one: Issue) -> Severity:
    """Of what no gate asked about nothing is an error: the run goes on."""
    return "warning" if one.state == "told" and one.severity == "error" else one.severity


def _rest(left: list[Issue], results: IssueList) -> str:
    """The last annotation: how many more there are. It is as severe as the severest of them."""
    from diagnose.render import units  # noqa: PLC0415 - so that the command line starts quickly

    worst = next((level for level in ("error", "warning") if any(_level(one) == level for one in left)), "notice")
    names = units.listed([one.id for one in left], 20)
    return _command(worst, results.suite, f"{units.plural(len(left), 'more result')} without an annotation: {names}.", "", None)


def _command(kind: str, title: str, text: str, file: str, line: int | None) -> str:
    place = [f"file={_property(file)}"] if file else []
    place += [f"line={line}"] if line is not None else []
    return f"::{kind} {','.join([*place, f'title={_property(title)}'])}::{shown(text).translate(_MESSAGE)}\n"


def _property(text: str) -> str:
    return shown(text).translate(_PROPERTY)


WRITER = Writer(name="github", extensions=(), takes="issues", place=5, write=write)
