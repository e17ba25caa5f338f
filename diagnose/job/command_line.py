"""Command lines in job files: the flags of a file of them, or a shell script's one training command and the environment that it sees."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from diagnose.document.diagnosis import ScriptDefault
from diagnose.job.launch import ranks
from diagnose.job.model import EFFECT, UNRESOLVED, Leaf, NoTrainingError, Parsed, job_error
from diagnose.job.shell import Run, Script, Token, read_script
from diagnose.knowledge.settings import JobSettings, flag_name

_SCRIPT = re.compile(r"[^=]*\.(py|sh)")
_NOT_A_JOB = "Give the command that starts the training with its flags, or a file of them."


class Command(Struct, frozen=True, kw_only=True):
    """`around`: what launcher and environment tell. `notes` come before what is said of the arguments, `conditional` after it.
    `part`: the flags are not all that the training is given. `variables`: what the command sees of the environment that the script sets.
    `files`: those that the script writes itself, by the name it calls them.
    """

    words: tuple[Token, ...]
    arguments: tuple[Token, ...]
    around: tuple[Leaf, ...] = ()
    notes: tuple[str, ...] = ()
    conditional: tuple[str, ...] = ()
    is_script: bool = False
    program: str = ""
    part: bool = False
    variables: Mapping[str, Token] = field(default_factory=dict)
    defaults: tuple[ScriptDefault, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def flag_file(text: str, source: str) -> Command:
    """A file of flags, one or more a line, with comments and continued lines. Raises JobFileError."""
    try:
        words = tuple(_words(text))
    except ValueError as error:
        raise job_error(source, str(error), "Close it.") from error
    return Command(words=words, arguments=words)


def training_command(text: str, source: str, table: JobSettings, path: Path | None = None, choice: str | None = None) -> Command:
    """A shell line or script: the one training command in it, and the environment that it sees; `choice` is its number among several.

    Raises JobFileError.
    """
    try:
        script = read_script(text, path=path)
    except ValueError as error:
        raise job_error(source, str(error), "Close it, or give the flags alone, one a line.") from error
    known = _known(table)
    found = [(run, place) for run in script.runs if (place := _program(run.tokens, known)) is not None]
    if not found:
        return _flags_of(script, source, known)
    run, place, chosen = _training(found, source, known, choice)
    first = run.tokens[0]
    return Command(
        words=tuple(run.tokens),
        arguments=tuple(run.tokens[place + 1 :]),
        program=run.tokens[place].text,
        around=(*_world(run, place), *_environment(run, table)),
        notes=(*script.notes, *chosen),
        defaults=script.defaults,
        conditional=(f"line {first.line}: the command stands under a condition",) if run.conditional else (),
        is_script=True,
        part=run.tokens[place].text.endswith(".sh") or bool(_VERB.fullmatch(_verb(run.tokens, place))),
        variables=run.environment,
        files=script.files,
    )


_TRAINS, _TRAINS_NOT = (
    re.compile(r"train|finetune|fine_tune|sft|grpo|ppo|dpo|launch|recipe|main"),
    re.compile(r"convert|preprocess|prepare|export|generat|infer|eval|merge|download|tokeniz|build|test_|prune|quantize|server|score|mmlu"),
)


def _training(found: Sequence[tuple[Run, int]], source: str, known: Known, choice: str | None) -> tuple[Run, int, tuple[str, ...]]:
    """The command that trains among several: the one that is asked for, else by the name of its program, then by how much of it is known.

    Raises JobFileError.
    """

    def worth(one: tuple[Run, int]) -> tuple[int, int]:
        run, place = one
        name = run.tokens[place].text.rpartition("/")[2].lower()
        return (
            bool(_TRAINS.search(name)) - 2 * bool(_TRAINS_NOT.search(name)),
            sum(known.holds(token) for token in run.tokens[place + 1 :]),
        )

    every = list({_identity(run, place): (run, place) for run, place in found}.values())
    if choice is not None:
        if not re.fullmatch(r"\d{1,4}", choice) or not 1 <= int(choice) <= len(every):
            raise job_error(source, f"holds no training command {choice}", f"Its commands are {_listed(every)}.")
        run, place = every[int(choice) - 1]
        return replace(run, conditional=False), place, ()
    best = max(worth(one)[0] for one in every)
    kept = [one for one in every if worth(one)[0] == best]
    most = max(worth(one)[1] for one in kept)
    full = [one for one in kept if worth(one)[1] * 2 > most] or kept
    if len(full) > 1 and all(run.conditional for run, _ in full):  # alternatives: the last is what runs where nothing special is asked
        full = full[-1:]
    if len(full) > 1:
        lines = ", ".join(str(run.tokens[0].line) for run, _ in every)
        raise job_error(source, f"holds several training commands (lines {lines})", f"Choose one with --command: {_listed(every)}.")
    run, place = full[0]
    told = f"of the commands {_listed(every)} the one in line {run.tokens[0].line} is read as the training (--command takes another)"
    return run, place, (told,) if len(every) > 1 else ()


def _identity(run: Run, place: int) -> tuple[str, ...]:
    """The same program with the same arguments, as far as they are known, is one command, however it is launched.

    A script that is started may take all that it does from variables.
    """
    name = run.tokens[place].text.rpartition("/")[2]
    told = [token.text for token in run.tokens[place + 1 :] if not token.unresolved]
    around = [f"{key}={one.text}" for key, one in sorted(run.environment.items()) if not one.unresolved] if name.endswith(".sh") else []
    return (name, *told, *around)


_MAX_LISTED = 12


def _listed(found: Sequence[tuple[Run, int]]) -> str:
    """Commands by number, line and program."""
    shown = [f"{number} (line {run.tokens[0].line}, {_shown_program(run, place)})" for number, (run, place) in enumerate(found, 1)]
    return ", ".join(shown[:_MAX_LISTED]) + (f" and {len(shown) - _MAX_LISTED} more" if len(shown) > _MAX_LISTED else "")


def _shown_program(run: Run, place: int) -> str:
    one = run.tokens[place]
    return (one.unresolved or one.text).rpartition("/")[2]


def _flags_of(script: Script, source: str, known: Known) -> Command:
    """Flags that a script only gathers in variables, for another script that sources it. Raises JobFileError."""
    held = {name: tokens for name, tokens in script.variables.items() if any(known.is_flag(token) for token in tokens)}
    texts = {name: tuple(token.text for token in tokens) for name, tokens in held.items()}
    whole = [name for name in held if not any(name != other and _within(texts[name], texts[other]) for other in held)]
    words = tuple(_literal(token) for name in whole for token in held[name] if token.text != "\\")  # a line that goes on
    if not words:
        what = f"{source} holds no command that starts a training with known flags."
        raise NoTrainingError(what, effect=EFFECT, next_step=_instead(script))
    named = ", ".join(whole)
    return Command(
        words=words,
        arguments=words,
        notes=(*script.notes, f"no command starts a training here; the flags in {named} are read"),
        defaults=script.defaults,
        is_script=True,
        part=True,
    )


def _instead(script: Script) -> str:
    """What to give in the place of a script that starts no training itself: what it starts, where that is told."""
    words = [token for run in script.runs for token in (*run.outer, *run.tokens) if run.tokens[0].text not in _SPEAKING]
    names = [token.text.rpartition("/")[2] for token in words if _SCRIPT.fullmatch(token.text) and " " not in token.text]
    best = next((name for name in names if _TRAINS.search(name) and not _TRAINS_NOT.search(name)), None)
    return _NOT_A_JOB if best is None else f"It starts {best}: give the configuration or the script that decides what that does."


def _literal(token: Token) -> Token:
    """A word of a text that another shell takes apart: what that one would put in is not known here."""
    return dataclasses.replace(token, unresolved=token.text) if not token.unresolved and re.search(r"[$`\"']", token.text) else token


def _within(texts: tuple[str, ...], others: tuple[str, ...]) -> bool:
    size = len(texts)
    return size < len(others) and any(others[place : place + size] == texts for place in range(len(others) - size + 1))


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
        defaults=command.defaults,
        open_ended=(open_ended and command.is_script) or command.part,
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
    return _leaf(flag_name(name), name, value, flag, unresolved)


def _leaf(key: str, shown: str, value: object, at: Token, unresolved: str = "") -> Leaf:
    """What stands at a word, in the script or in a file beside it; `unresolved` names what of it only the process knew."""
    told = f"{UNRESOLVED} = {unresolved}" if unresolved else value
    if at.source:
        return Leaf(key=key, shown=shown, value=told, place=f"line {at.line} of {at.source}")
    return Leaf(key=key, shown=shown, value=told, place=f"line {at.line}", line=at.line)


# --- the command around them ------------------------------------------------------------------------------------------


class Known(Struct, frozen=True, kw_only=True):
    """Words by which a training's arguments are known: flags, options and dotted keys of settings."""

    flags: frozenset[str]
    options: frozenset[str]
    keys: frozenset[str]

    def is_flag(self, token: Token) -> bool:
        """Whether a word is a flag of Megatron-LM that stands for a setting."""
        return token.text.startswith("--") and flag_name(token.text.partition("=")[0]) in self.flags

    def holds(self, token: Token) -> bool:
        """Whether a word sets a setting in some format."""
        name, equals, _ = token.text.partition("=")
        if self.is_flag(token) or name in self.options:
            return True
        key = name.lstrip("+~")
        if (bool(equals) or name.startswith("--")) and key.removeprefix("--") in self.keys:
            return True
        return bool(equals) and _MEGATRON_GROUP.match(key) is not None


_MEGATRON_GROUP = re.compile(
    r"actor_rollout_ref\.actor\.|policy\.(megatron_cfg\.|\w+$)|cluster\.\w+$|trainer\.(nnodes|n_gpus_per_node|placement\.policy_num_\w+)$|(trainer\.policy\.)?megatron_config\.[\w.]+$|model\.[\w.]+$|train\.\w+$|engine\.\w+$"
)


def _known(table: JobSettings) -> Known:
    return Known(
        flags=frozenset(flag_name(flag) for flag in table.keys_written("flags")),
        options=frozenset(f"-{name}" for names in table.keys_written("options") for name in names.split("|"))
        | {"-mr", "--model_recipe_name", "--recipe"},
        keys=frozenset(table.keys_written("dotted")),
    )


_SPEAKING = frozenset(
    {"echo", "printf", "cat", "tee", "grep", "sed", "awk", "cp", "mv", "rm", "ls", "cd", "pip", "pip3", "git", "wget", "curl"}
)
_LAUNCHERS = re.compile(
    r"(.*/)?(python[\d.]*|torchrun|deepspeed|accelerate(-launch)?|pytorch|mpirun|mpiexec|uv|ft_launcher|trl|llamafactory-cli|axolotl)"
)
_OF_LAUNCH = re.compile(
    r"torch\.distributed\.(run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.\w+|debugpy|pdb|cProfile|viztracer|nsys"
)


# programs that find their configuration by themselves, words that name a file of one, and the verbs of programs that train
_CONFIGURED = re.compile(r"(.*/)?run_train\.sh|(.*/)?torchtitan/train\.py|torchtitan\.train")
_CONFIGURATION = re.compile(r"\.(ya?ml|json|toml)$|^--(deepspeed(_config)?|module)(=|$)")
_VERB = re.compile(r"(llamafactory-cli|llamafactory) train|axolotl train|trl (sft|dpo|grpo|kto|reward|rloo)|(swift|megatron) (pt|sft|rlhf)")


def _verb(tokens: Sequence[Token], place: int) -> str:
    """A word with the one before it, such as `axolotl train`."""
    return f"{tokens[place - 1].text.rpartition('/')[2]} {tokens[place].text}" if place else ""


def _program(tokens: Sequence[Token], known: Known) -> int | None:
    """Place of the training program in a command: its flags come behind it. None where the command is no training."""
    launched = False
    if tokens[0].text in _SPEAKING:
        return None
    for place, token in enumerate(tokens):
        before = tokens[place - 1].text if place else ""
        module = before == "-m" and launched and not _OF_LAUNCH.fullmatch(token.text)
        script = _SCRIPT.fullmatch(token.text) and (launched or place == 0 or not before.startswith("-"))
        held = launched and bool(token.unresolved) and not before.startswith("-") and not token.text.startswith("-")
        behind = tokens[place + 1 :]
        if (script or module or held) and any(known.holds(one) for one in behind):
            return place if not held or script else _behind(tokens, place, known)
        if (script or module) and (_CONFIGURED.fullmatch(token.text) or any(_CONFIGURATION.search(one.text) for one in behind)):
            return place
        if _VERB.fullmatch(_verb(tokens, place)) and behind:
            return place
        launched = launched or bool(_LAUNCHERS.fullmatch(token.text)) or (place == 0 and bool(token.unresolved))
    return None


def _behind(tokens: Sequence[Token], place: int, known: Known) -> int | None:
    """A program whose name is not known: the last word of that kind before the first known argument, unless a known program comes."""
    later = _program([*tokens[:place], *(dataclasses.replace(one, unresolved="") for one in tokens[place:])], known)
    if later is not None:
        return later
    first = next(at for at in range(place + 1, len(tokens)) if known.holds(tokens[at]))
    return max((at for at in range(place, first) if tokens[at].unresolved and not tokens[at - 1].text.startswith("-")), default=place)


def _world(run: Run, place: int) -> list[Leaf]:
    """The world size, where launcher or scheduler are told it."""
    found = ranks(run.tokens[:place], run.tokens[place + 1 :], run.environment, run.outer)
    if found is None:
        name = run.tokens[place - 1].text.rpartition("/")[2] if place else ""
        processes, nodes = run.environment.get("NPROC_PER_NODE"), run.environment.get("NNODES")
        if name not in ("swift", "megatron") or processes is None:  # ms-swift starts torchrun with these
            return []
        told = [one for one in (processes, nodes) if one is not None]
        whole = all(not one.unresolved and re.fullmatch(r"\d{1,6}", one.text) for one in told)
        value: object = math.prod(int(one.text) for one in told) if whole else f"{UNRESOLVED} (NPROC_PER_NODE)"
        return [_leaf("world_size", " × ".join(["NPROC_PER_NODE", "NNODES"][: len(told)]), value, processes)]
    return [replace(_leaf("world_size", found.shown, found.value, found.at), assumed=found.assumed)]


def _environment(run: Run, table: JobSettings) -> list[Leaf]:
    """What the command sees of the environment variables that settings know; others may hold secrets and decide nothing."""
    known = {name for spec in table.specs.values() for name in spec.env}
    prefix = {}
    for token in run.tokens:  # env NAME=VALUE command
        name, equals, value = token.text.partition("=")
        if not equals or name not in known:
            continue
        prefix[name] = dataclasses.replace(token, text=value)
    for token in run.tokens:  # ray job submit --runtime-env-json='{"env_vars": {"NAME": "VALUE"}}'
        if token.text.startswith(("--runtime-env-json", "{")) and '"env_vars"' in token.text:
            for name, value in re.findall(r'"(\w+)"\s*:\s*"([^"]*)"', token.text):
                if name in known:
                    prefix[name] = dataclasses.replace(token, text=value, unresolved=value if "$" in value else "")
    seen = {name: token for name, token in {**run.environment, **prefix}.items() if name in known}
    return [_leaf(f"env_vars.{name}", name, token.text, token, token.unresolved) for name, token in seen.items()]
