"""Job files that are flags: files of Megatron-LM flags, shell scripts that start Megatron-LM, and performance-recipe command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from diagnose.job.model import UNRESOLVED, Leaf, Parsed, job_error
from diagnose.job.shell import Run, Token, read_script
from diagnose.job.trees import OVERRIDE, override
from diagnose.knowledge.settings import JobFormat, flag_name, load_settings

_SCRIPT = re.compile(r".*\.py")
_NUMBER = re.compile(r"-\d[\d.eE+-]*")
_TORCHRUN = re.compile(r"(.*/)?torchrun|torch\.distributed\.(run|launch)")
_RECIPE_FLAGS = frozenset({"-mr", "--model_recipe_name"})
_SWITCHES = frozenset({"-d", "--dryrun", "-en", "--enable_nsys", "--use_recipes", "--offline", "--deterministic", "--dump_env"})
_MORE = re.compile(r"\[[@*]\]|\$\{?[@*]")  # an array or all arguments: always more than one value
_NOT_A_JOB = "Give the command that starts the training with its flags, or a file of them."


def parse_flags(text: str, source: str) -> Parsed:
    """A file of flags, one or more a line, with comments and continued lines. Raises JobFileError."""
    try:
        tokens = _words(text)
    except ValueError as error:
        raise job_error(source, str(error), "Close it.") from error
    recipe = bool(_RECIPE_FLAGS & {token.text for token in tokens})
    leaves, notes, _ = (_options if recipe else _flags)(tokens, source)
    return _parsed("recipe" if recipe else "megatron-lm", leaves, notes, open_ended=False, source=source)


def parse_shell(text: str, source: str) -> Parsed:
    """A shell line or script: the one training command in it, and the environment that it sees. Raises JobFileError."""
    try:
        runs, notes = read_script(text)
    except ValueError as error:
        raise job_error(source, str(error), "Close it, or give the flags alone, one a line.") from error
    found = [(run, place) for run in runs if (place := _program(run.tokens)) is not None]
    if not found:
        raise job_error(source, "holds no command that starts a training with known flags", _NOT_A_JOB)
    if len(found) > 1:
        lines = ", ".join(str(run.tokens[0].line) for run, _ in found)
        raise job_error(source, f"holds several training commands (lines {lines})", "Keep the one that was traced.")
    run, place = found[0]
    arguments, recipe = run.tokens[place + 1 :], _is_recipe(run.tokens)
    leaves, more, open_ended = (_options if recipe else _flags)(arguments, source)
    leaves = [*_world(run.tokens[:place]), *_environment(run), *leaves]
    if run.conditional:
        more = [*more, f"line {run.tokens[0].line}: the command stands under a condition"]
    return _parsed("recipe" if recipe else "megatron-lm", leaves, [*notes, *more], open_ended=open_ended, source=source)


def _parsed(kind: JobFormat, leaves: Sequence[Leaf], notes: Sequence[str], *, open_ended: bool, source: str) -> Parsed:
    if not leaves:
        raise job_error(source, "holds no flags", _NOT_A_JOB)
    notes = list(notes)
    recipe = next((leaf.value for leaf in leaves if leaf.key in ("--model_recipe_name", "-mr")), None)
    if kind == "recipe":
        notes.append(
            f"the recipe {recipe} decides what this command line leaves out; the configuration that it saves (--save_config_filepath) tells all"
            if isinstance(recipe, str) and not recipe.startswith(UNRESOLVED)
            else "the recipe decides what this command line leaves out; the configuration that it saves (--save_config_filepath) tells all"
        )
    if any(leaf.key == "--moe_a2a_overlap" and str(leaf.value).lower() in ("true", "1", "t", "yes", "y") for leaf in leaves):
        # Megatron-Bridge scripts/performance/utils/overrides.py, _set_moe_a2a_overlap_overrides
        notes.append(
            "--moe_a2a_overlap turns on the overlap of the expert exchange and delayed weight gradients together, and shared-expert "
            "overlap off; set comm_overlap.overlap_moe_expert_parallel_comm alone to see what each does"
        )
    return Parsed(format=kind, leaves=tuple(leaves), notes=tuple(notes), open_ended=open_ended)


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


# --- Megatron-LM ------------------------------------------------------------------------------------------------------


def _flags(tokens: Sequence[Token], source: str) -> tuple[list[Leaf], list[str], bool]:  # noqa: ARG001 - as _options
    """Flags with the words that follow them; of a flag given twice the last counts, as argparse has it."""
    found: dict[str, Leaf] = {}
    notes: list[str] = []
    open_ended = False
    switches = _switches()
    for flag, values in _grouped(tokens, lambda token: token.text.startswith("--")):
        alone = flag is None or flag_name(flag.text) in switches
        more = [one for place, one in enumerate(values) if one.unresolved and (alone or place or _MORE.search(one.unresolved))]
        notes += [f"line {one.line}: {one.unresolved} may hold more flags, so what is not given is not known" for one in more]
        open_ended |= bool(more)
        if flag is None:
            continue
        name = flag.text.split("=")[0]
        if flag_name(name) in found:
            notes.append(f"{name} is given twice; line {flag.line} counts")
        found[flag_name(name)] = _leaf(flag, [one for one in values if one not in more])
    return list(found.values()), notes, open_ended


def _switches() -> frozenset[str]:
    """Flags that take no value."""
    return frozenset(
        flag_name(flag)
        for spec in load_settings().values()
        for flag in spec.megatron
        if spec.type == "bool" or flag.startswith("!") or "=" in flag
    )


def _grouped(tokens: Sequence[Token], is_flag: Callable[[Token], bool]) -> list[tuple[Token | None, list[Token]]]:
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


def _leaf(flag: Token, values: Sequence[Token]) -> Leaf:
    name, equals, inline = flag.text.partition("=")
    unresolved = flag.unresolved or next((value.unresolved for value in values if value.unresolved), "")
    value: object = inline if equals else " ".join(one.text for one in values) if values else True
    key = flag_name(name)
    return Leaf(
        key=key, shown=name, value=f"{UNRESOLVED} = {unresolved}" if unresolved else value, place=f"line {flag.line}", line=flag.line
    )


# --- performance recipes ----------------------------------------------------------------------------------------------


def _options(tokens: Sequence[Token], source: str) -> tuple[list[Leaf], list[str], bool]:
    """Options of the performance scripts, and the overrides that stand behind them."""
    overrides = [token for token in tokens if _is_override(token)]
    found: dict[str, Leaf] = {}
    notes: list[str] = []
    rest = [token for token in tokens if not _is_override(token)]
    for option, values in _grouped(rest, lambda token: token.text.startswith("-") and not _NUMBER.fullmatch(token.text)):
        if option is None:
            notes += [f"line {value.line}: {value.unresolved} may hold more options" for value in values if value.unresolved]
            continue
        name = option.text.split("=")[0]
        leaf = _leaf(option, [] if name in _SWITCHES else values)
        if name in ("-E", "--env", "-ce", "--custom_env_vars"):
            for pair in str(leaf.value).split(","):
                key, _, value = pair.partition("=")
                found[f"env_vars.{key}"] = Leaf(key=f"env_vars.{key}", shown=f"{name} {key}", value=value, place=leaf.place, line=leaf.line)
            continue
        key = _long_name(name)
        if key in found:
            notes.append(f"{name} is given twice; line {option.line} counts")
        found[key] = Leaf(key=key, shown=name, value=leaf.value, place=leaf.place, line=leaf.line)
    leaves = list(found.values())
    for token in overrides:
        one = override(token.text, source, line=token.line, forced=True)
        if token.unresolved:
            one = replace(one, value=f"{UNRESOLVED} = {token.unresolved}", removed=False)
        leaves.append(one)
    return leaves, notes, True


def _long_name(option: str) -> str:
    """The long spelling of an option, where the settings know both."""
    for spec in load_settings().values():
        for names in spec.recipe:
            spellings = [f"-{name}" for name in names.split("|")]
            if option in spellings:
                return spellings[-1]
    return option


def _is_override(token: Token) -> bool:
    match = OVERRIDE.fullmatch(token.text)
    return (
        match is not None
        and not match["key"].startswith("-")
        and (match["value"] is not None or match["sign"] == "~")
        and "." in match["key"]
    )


# --- the command around them ------------------------------------------------------------------------------------------


def _program(tokens: Sequence[Token]) -> int | None:
    """Place of the training program in a command: its flags come behind it. None where the command is no training."""
    known = {flag_name(flag) for spec in load_settings().values() for flag in spec.megatron}
    options = {f"-{name}" for spec in load_settings().values() for names in spec.recipe for name in names.split("|")}
    for place, token in enumerate(tokens):
        module = place > 0 and tokens[place - 1].text == "-m" and not _TORCHRUN.fullmatch(token.text)
        if not (_SCRIPT.fullmatch(token.text) or (module and _is_launcher(tokens[: place - 1]))):
            continue
        rest = [one.text.split("=")[0] for one in tokens[place + 1 :]]
        if any((text.startswith("--") and flag_name(text) in known) or text in options for text in rest):
            return place
    return None


def _is_launcher(tokens: Sequence[Token]) -> bool:
    return any(re.fullmatch(r"(.*/)?(python[\d.]*|torchrun)", token.text) for token in tokens)


def _is_recipe(tokens: Sequence[Token]) -> bool:
    return any(token.text in _RECIPE_FLAGS or "scripts/performance/" in token.text for token in tokens)


def _world(tokens: Sequence[Token]) -> list[Leaf]:
    """The world size where torchrun is told it in numbers. Its defaults are one node and one process."""
    start = next((place for place, token in enumerate(tokens) if _TORCHRUN.fullmatch(token.text)), None)
    if start is None:
        return []
    given = {"nnodes": Token(text="1", line=tokens[start].line), "nproc_per_node": Token(text="1", line=tokens[start].line)}
    rest = tokens[start + 1 :]
    for place, token in enumerate(rest):
        name, equals, inline = token.text.partition("=")
        if name.startswith("--") and flag_name(name) in given:
            following = rest[place + 1] if place + 1 < len(rest) else Token(text="", line=token.line)
            given[flag_name(name)] = Token(text=inline, line=token.line, unresolved=token.unresolved) if equals else following
    unknown = next((one.unresolved or one.text for one in given.values() if one.unresolved or not re.fullmatch(r"\d{1,9}", one.text)), None)
    value: object = f"{UNRESOLVED} ({unknown})"
    if unknown is None:
        value = int(given["nnodes"].text) * int(given["nproc_per_node"].text)
    line = tokens[start].line
    return [Leaf(key="world_size", shown="torchrun --nnodes × --nproc-per-node", value=value, place=f"line {line}", line=line)]


def _environment(run: Run) -> list[Leaf]:
    """What the command sees of the environment variables that settings know; others may hold secrets and decide nothing."""
    known = {name for spec in load_settings().values() for name in spec.env}
    prefix = {}
    for token in run.tokens:  # env NAME=VALUE command
        name, equals, value = token.text.partition("=")
        if not equals or name not in known:
            continue
        prefix[name] = Token(text=value, line=token.line, unresolved=token.unresolved)
    return [
        Leaf(
            key=f"env_vars.{name}",
            shown=name,
            value=f"{UNRESOLVED} = {token.unresolved}" if token.unresolved else token.text,
            place=f"line {token.line}",
            line=token.line,
        )
        for name, token in {**run.environment, **prefix}.items()
        if name in known
    ]
