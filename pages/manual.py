"""The manual page `diagnose(1)` in man(7)'s language, made from the commands themselves.

`make docs` writes docs/diagnose.1, which the wheel installs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from diagnose.version import __version__

_FILES = (
    ("diagnose.yaml, [tool.diagnose] of pyproject.toml", "Options of a project, at or above the current folder."),
    ("run_config.yaml, job.yaml", "The job file, where it lies beside the trace."),
)
_VARIABLES = (
    ("NO_COLOR, FORCE_COLOR", "No colours; colours although the output is no terminal."),
    ("DIAGNOSE_DEBUG", "Set: an internal fault shows its traceback."),
    ("_DIAGNOSE_COMPLETE", "bash_source, zsh_source or fish_source: print the completion script of that shell."),
)


def manual(group: click.Group) -> str:
    """The page: the group with the options of its default verb, then every other verb."""
    context = click.Context(group, info_name="diagnose", **group.context_settings)
    return "\n".join(_page(group, context)) + "\n"


def _page(group: click.Group, context: click.Context) -> Iterator[str]:
    first, *rest = _paragraphs(group.help or "")
    analyse = group.commands["analyse"]
    yield f'.TH DIAGNOSE 1 "" "diagnose {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"diagnose \\- {first[:1].lower() + first[1:].rstrip('.')}"
    yield ".SH SYNOPSIS"
    yield from (".B diagnose", "TRACE... [OPTIONS]", ".br", ".B diagnose", "COMMAND [ARGUMENTS]")
    yield ".SH DESCRIPTION"
    for paragraph in rest:
        yield from (".PP", paragraph)
    yield ".SH OPTIONS"
    yield from _options(analyse, context)
    yield ".SH COMMANDS"
    for name in group.list_commands(context):
        verb = group.commands[name]
        if verb is analyse or verb.hidden:
            continue
        inner = click.Context(verb, info_name=name, parent=context)
        yield from (f'.SS "{_escaped(" ".join(["diagnose", name, *verb.collect_usage_pieces(inner)]))}"',)
        for place, paragraph in enumerate(_paragraphs(verb.help or "")):
            yield from ([".PP"] if place else []) + [paragraph]
        if isinstance(verb, click.Group):
            for child in verb.list_commands(inner):
                yield from (".TP", f"\\fB{_escaped(child)}\\fR", _escaped(verb.commands[child].get_short_help_str(300)))
                yield from (".RS", *_options(verb.commands[child], inner), ".RE")
        yield from _options(verb, inner)
    for title, rows in (("FILES", _FILES), ("ENVIRONMENT", _VARIABLES)):
        yield f".SH {title}"
        for name, meaning in rows:
            yield from (".TP", f"\\fB{_escaped(name)}\\fR", _escaped(meaning))


def _options(verb: click.Command, context: click.Context) -> Iterator[str]:
    """Rows of a verb's options.

    The row of help is made from the names that hold in `context`: click keeps the option as whoever asked for it first
    saw it, by other names where that was without the group.
    """
    records = [param.get_help_record(context) for param in verb.params if isinstance(param, click.Option)]
    asked = sorted(verb.get_help_option_names(context), key=len)  # a set in older releases of click
    records.append((", ".join(asked), "Show this message and exit."))
    for names, meaning in filter(None, records):
        yield from (".TP", f"\\fB{_escaped(names)}\\fR", _escaped(meaning))


def _paragraphs(text: str) -> list[str]:
    """Paragraphs of a command's help as man(7) takes them; lines below click's sign for it stay lines."""
    return [
        "\n.br\n".join(map(_escaped, part.split("\b")[1].strip().splitlines())) if "\b" in part else _escaped(part)
        for part in text.split("\f", maxsplit=1)[0].split("\n\n")
        if part.strip()
    ]


def _escaped(text: str) -> str:
    """A text as man(7) takes it: no sign of its own is an order."""
    plain = re.sub(r"\s+", " ", text).strip().replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    plain = re.sub(r"[^\x00-\x7f]", lambda sign: f"\\[u{ord(sign[0]):04X}]", plain)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
