"""Command lines in job files: the flags of a file of them, or a shell script's one training command and the environment that it sees."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from diagnose.job.model import UNRESOLVED, Leaf, Parsed, job_error
from diagnose.job.shell import Run, Token, read_script
from diagnose.knowledge.settings import JobSettings, flag_name

_LAUNCHER = re.compile(r"(.*/)?(python[\d.]*|torchrun)")
_SCRIPT = re.compile(r".*\.py")
_TORCHRUN = re.compile(r"(.*/)?torchrun|torch\.distributed\.(run|launch)")
_NOT_A_JOB = "Give the command that starts the training with its flags, or a file of them."


@dataclass(frozen=True, kw_only=True)
class Command:
    """`around`: what launcher and environment tell. `notes` come before what is said of the arguments, `conditional` after it."""

    words: tuple[Token, ...]
    arguments: tuple[Token, ...]
    around: tuple[Leaf, ...] = ()
    notes: tuple[str, ...] = ()
    conditional: tuple[str, ...] = ()
    is_script: bool = False


def flag_file(text: str, source: str) -> Command:
    """A file of flags, one or more a line, with comments and continued lines. Raises JobFileError."""
    try:
        words = tuple(_words(text))
    except ValueError as error:
        raise job_error(source, str(error), "Close it.") from error
    return Command(words=words, arguments=words)


def training_command(text: str, source: str, table: JobSettings) -> Command:
    """A shell line or script: the one training command in it, and the environment that it sees. Raises JobFileError."""
    try:
        runs, notes = read_script(text)
    except ValueError as error:
        raise job_error(source, str(error), "Close it, or give the flags alone, one a line.") from error
    found = [(run, place) for run in runs if (place := _program(run.tokens, table)) is not None]
    if not found:
        raise job_error(source, "holds no command that starts a training with known flags", _NOT_A_JOB)
    if len(found) > 1:
        lines = ", ".join(str(run.tokens[0].line) for run, _ in found)
        raise job_error(source, f"holds several training commands (lines {lines})", "Keep the one that was traced.")
    run, place = found[0]
    return Command(
        words=tuple(run.tokens),
        arguments=tuple(run.tokens[place + 1 :]),
        around=(*_world(run, place), *_environment(run, table)),
        notes=tuple(notes),
        conditional=(f"line {run.tokens[0].line}: the command stands under a condition",) if run.conditional else (),
        is_script=True,
    )


def parsed_command(
    command: Command, source: str, *, format_: str, leaves: Sequence[Leaf], notes: Sequence[str], more: Sequence[str] = (), open_ended: bool
) -> Parsed:
    """What the arguments of a command say, with what stands around it; `more` are the notes that come last. Raises JobFileError.

    Of a script `open_ended` says that an argument may stand for several; a file of flags is all there is.
    """
    leaves = (*command.around, *leaves)
    if not leaves:
        raise job_error(source, "holds no flags", _NOT_A_JOB)
    return Parsed(
        format=format_,
        leaves=leaves,
        notes=(*command.notes, *notes, *command.conditional, *more),
        open_ended=open_ended and command.is_script,
    )


def _words(text: str) -> list[Token]:
    """Words of a flag file, line by line: quotes are taken away, nothing is put in. Raises ValueError for a quote that never closes."""
    found: list[Token] = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip().removesuffix("\\")
        try:
            words = shlex.split(re.sub(r"(^|\s)#.*", "", bare))
        except ValueError:
            raise ValueError(f"holds a quote in line {number} that never ends") from None
        found += [Token(text=word, line=number, unresolved=word if re.search(r"\$[\w{(@*]|`", word) else "") for word in words]
    return found


# --- flags and their values -------------------------------------------------------------------------------------------


def by_flag(tokens: Sequence[Token], is_flag: Callable[[Token], bool]) -> list[tuple[Token | None, list[Token]]]:
    """Each flag with the words up to the next one; words before the first stand alone."""
    groups: list[tuple[Token | None, list[Token]]] = []
    for token in tokens:
        if is_flag(token):
            groups.append((token, []))
        elif groups and not (groups[-1][0] is not None and "=" in groups[-1][0].text):
            groups[-1][1].append(token)
        else:
            groups.append((None, [token]))
    return groups


def flag_leaf(flag: Token, values: Sequence[Token]) -> Leaf:
    """One flag with its words as a value, `True` where it stands alone."""
    name, equals, inline = flag.text.partition("=")
    unresolved = flag.unresolved or next((value.unresolved for value in values if value.unresolved), "")
    value: object = inline if equals else " ".join(one.text for one in values) if values else True
    return _leaf(flag_name(name), name, value, flag.line, unresolved)


def _leaf(key: str, shown: str, value: object, line: int, unresolved: str = "") -> Leaf:
    """What stands on a line; `unresolved` names what of it only the process knew."""
    return Leaf(key=key, shown=shown, value=f"{UNRESOLVED} = {unresolved}" if unresolved else value, place=f"line {line}", line=line)


_FAKE = ("--fake-process-group", "--fake-init-process-group")


# --- the command around them ------------------------------------------------------------------------------------------


def _program(tokens: Sequence[Token], table: JobSettings) -> int | None:
    """Place of the training program in a command: its flags come behind it. None where the command is no training."""
    flags = {flag_name(flag) for flag in table.keys_written("flags")}
    options = {f"-{name}" for names in table.keys_written("options") for name in names.split("|")}
    for place, token in enumerate(tokens):
        module = place > 0 and tokens[place - 1].text == "-m" and not _TORCHRUN.fullmatch(token.text)
        if not (_SCRIPT.fullmatch(token.text) or (module and any(_LAUNCHER.fullmatch(one.text) for one in tokens[: place - 1]))):
            continue
        rest = [one.text.split("=")[0] for one in tokens[place + 1 :]]
        if any((text.startswith("--") and flag_name(text) in flags) or text in options for text in rest):
            return place
    return None


def _world(run: Run, place: int) -> list[Leaf]:
    """The world size where torchrun is told it in numbers. Its defaults are one node and one process.

    With a fake process group one process stands for the world of WORLD_SIZE, so that the launcher's count tells nothing.
    """
    tokens = run.tokens[:place]
    if any(token.text in _FAKE for token in run.tokens[place + 1 :]):
        before = [Token(text=token.text.partition("=")[2], line=token.line) for token in tokens if token.text.startswith("WORLD_SIZE=")]
        told = next(iter(before), run.environment.get("WORLD_SIZE"))
        known = told is not None and not told.unresolved and re.fullmatch(r"\d{1,9}", told.text)
        return [_leaf("world_size", "WORLD_SIZE", int(told.text), told.line)] if told is not None and known else []
    start = next((place for place, token in enumerate(tokens) if _TORCHRUN.fullmatch(token.text)), None)
    if start is None:
        return []
    given = {"nnodes": Token(text="1", line=tokens[start].line), "nproc_per_node": Token(text="1", line=tokens[start].line)}
    rest = tokens[start + 1 :]
    for number, token in enumerate(rest):
        name, equals, inline = token.text.partition("=")
        if name.startswith("--") and flag_name(name) in given:
            following = rest[number + 1] if number + 1 < len(rest) else Token(text="", line=token.line)
            given[flag_name(name)] = Token(text=inline, line=token.line, unresolved=token.unresolved) if equals else following
    unknown = next((one.unresolved or one.text for one in given.values() if one.unresolved or not re.fullmatch(r"\d{1,9}", one.text)), None)
    value: object = f"{UNRESOLVED} ({unknown})"
    if unknown is None:
        value = int(given["nnodes"].text) * int(given["nproc_per_node"].text)
    return [_leaf("world_size", "torchrun --nnodes × --nproc-per-node", value, tokens[start].line)]


def _environment(run: Run, table: JobSettings) -> list[Leaf]:
    """What the command sees of the environment variables that settings know; others may hold secrets and decide nothing."""
    known = {name for spec in table.specs.values() for name in spec.env}
    prefix = {}
    for token in run.tokens:  # env NAME=VALUE command
        name, equals, value = token.text.partition("=")
        if not equals or name not in known:
            continue
        prefix[name] = Token(text=value, line=token.line, unresolved=token.unresolved)
    seen = {name: token for name, token in {**run.environment, **prefix}.items() if name in known}
    return [_leaf(f"env_vars.{name}", name, token.text, token.line, token.unresolved) for name, token in seen.items()]
