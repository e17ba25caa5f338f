"""Configurations of VeOmni: YAML with the sections model, data and train, as its arguments are laid out since 2026.

The flat layout before it (`train.ulysses_parallel_size`) is not read. Keys, defaults and what
follows from them are those of veomni/arguments/arguments_types.py.

A command (`train.sh tasks/train_text.py configs/text/qwen3.yaml --train.micro_batch_size 2`) is read with the file that it names, under its
overrides (veomni/arguments/parser.py, parse_args).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from diagnose.job.command_line import Command, by_flag, parsed_command
from diagnose.job.edit import section_editor
from diagnose.job.formats.foreign import refuse_foreign
from diagnose.job.formats.reader import Reader
from diagnose.job.model import Leaf, Parsed
from diagnose.job.shell import Token
from diagnose.job.text import JobText, leaves_of, token_value

NAME = "veomni"

_OWN = frozenset({"accelerator", "init_device"})  # of its train section
_ACCELERATOR = "train.accelerator"
_FSDP = f"{_ACCELERATOR}.fsdp_config"
_PRECISION = f"{_FSDP}.mixed_precision"
_DROPPED = f"{_ACCELERATOR}.offload.enable_activation"  # its own files say it so; the class has offload_config
_LENGTH, _PACKED = "data.max_seq_len", "train.dyn_bsz"
_TASK = re.compile(r"(.*/)?tasks/([\w-]+/)*train_\w+\.py")  # its training programs
_STARTER = re.compile(r"(.*/)?train\.sh")  # its script around torchrun, where it does not lie beside the job file
_OVERRIDE = re.compile(r"--(model|data|train)\.\w")
_FILE = re.compile(r".+\.ya?ml")
_MADE = frozenset({"data_parallel_sharding_strategy", "bf16"})  # follow from keys that the whole configuration tells


def _read(text: JobText) -> Parsed | None:
    if text.command is not None:
        return _of_command(text.command, text)
    if text.yaml is None or not _is_veomni(text.yaml.data):
        return None
    by_key = {leaf.key: leaf for leaf in leaves_of(text.yaml.data, text.yaml.lines)}
    return Parsed(format=NAME, leaves=tuple(_settled(by_key)), rules=text.yaml.rules, notes=(*text.yaml.notes, *_dropped(by_key)))


def _dropped(by_key: Mapping[str, Leaf]) -> Iterator[str]:
    """What is said of a switch that VeOmni does not know."""
    if _DROPPED in by_key:
        yield f"{_DROPPED} is no argument of VeOmni, which drops it: {_ACCELERATOR}.offload_config.enable_activation is"


def _is_veomni(data: Mapping[object, object]) -> bool:
    train = data.get("train")
    return isinstance(train, dict) and bool(_OWN & train.keys())


# --- commands ---------------------------------------------------------------------------------------------------------


def _of_command(command: Command, text: JobText) -> Parsed | None:
    """A command that starts one of VeOmni's tasks: overrides over the file that is its first argument; None for any other command."""
    arguments = _behind_task(command)
    if arguments is None:
        return None
    file = arguments[0] if arguments and not arguments[0].text.startswith("--") else None
    inner = None if file is None or file.unresolved else text.beside(file.text)
    tree = None if inner is None else inner.yaml
    overridden = any(_OVERRIDE.match(token.text) for token in arguments)
    if tree is not None and inner is not None and not _is_veomni(tree.data):
        refuse_foreign(inner)  # its older layout
        return None
    if tree is None and not overridden and (file is None or not _FILE.fullmatch(file.text)):
        return None
    below = {} if tree is None or inner is None else {leaf.key: leaf.moved(inner.source) for leaf in leaves_of(tree.data, tree.lines)}
    over, notes = _overrides(arguments if file is None else arguments[1:])
    shown = "" if file is None else file.unresolved or file.text
    said = [f"{shown} is not beside {text.source}: what it sets is not known"] if tree is None and file is not None else []
    by_key = {**below, **over}
    whole = tree is not None or file is None
    leaves = list(_settled(by_key)) if whole else [leaf for leaf in _settled(by_key) if leaf.key not in _MADE]
    parsed = parsed_command(
        command,
        text.source,
        format_=NAME,
        leaves=leaves,
        notes=[*(() if tree is None else tree.notes), *_dropped(by_key), *notes, *said],
        open_ended=True,
    )
    return replace(parsed, open_ended=not whole or bool(notes))


def _behind_task(command: Command) -> Sequence[Token] | None:
    """What a task of VeOmni is given, whichever script starts it; None where the command starts none."""
    if _TASK.fullmatch(command.program):
        return command.arguments
    if _STARTER.fullmatch(command.program) and command.arguments and _TASK.fullmatch(command.arguments[0].text):
        return command.arguments[1:]
    return None


def _overrides(tokens: Iterable[Token]) -> tuple[dict[str, Leaf], list[str]]:
    """Arguments by their dotted keys, of one given twice the last, and what may hold more of them."""
    found: dict[str, Leaf] = {}
    notes = []
    for flag, values in by_flag(list(tokens), lambda token: token.text.startswith("--")):
        more = values if flag is None else values[1:]
        notes += [f"line {one.line}: {one.unresolved} may hold more arguments" for one in more if one.unresolved]
        if flag is None:
            continue
        name, equals, inline = flag.text.partition("=")
        word = dataclasses.replace(flag, text=inline) if equals else values[0] if values else None
        value = True if word is None else token_value(word)
        key = name.removeprefix("--")
        found[key] = Leaf(key=key, shown=name, value=value, line=flag.line, place=f"line {flag.line}").moved(flag.source)
    return found, notes


# --- values -----------------------------------------------------------------------------------------------------------


def _settled(by_key: Mapping[str, Leaf]) -> Iterator[Leaf]:
    """The values under VeOmni's keys, with what it makes of them.

    Micro-batches are packed up to as many whole sequences unless `dyn_bsz` is off; then the longest length is not every sequence's.
    """
    packed = _PACKED not in by_key or by_key[_PACKED].value is True
    for leaf in by_key.values():
        key = "model_name" if leaf.key == "model.model_path" else leaf.key
        yield replace(leaf, key=key, value=None if leaf.key == _LENGTH and not packed else leaf.value, known=True)
    yield _made("data_parallel_sharding_strategy", _FSDP, _split(by_key))
    yield _made("bf16", _PRECISION, _computes_in_bf16(by_key))


def _made(setting: str, shown: str, value: object) -> Leaf:
    return Leaf(key=setting, shown=shown, value=value, known=True, place="as VeOmni takes it")


def _split(by_key: Mapping[str, Leaf]) -> str | None:
    """What is split between data-parallel ranks."""
    mode, reshards = _value(by_key, f"{_FSDP}.fsdp_mode", default="fsdp2"), _value(by_key, f"{_FSDP}.reshard_after_forward", default=True)
    if mode == "ddp":
        return "no_shard"
    if mode != "fsdp2" or not isinstance(reshards, bool):
        return None
    return "optim_grads_params" if reshards else "optim_grads"


def _computes_in_bf16(by_key: Mapping[str, Leaf]) -> bool | None:
    """Whether layers compute in BF16: by the policy of mixed precision; without one the model is loaded so (veomni/trainer/base.py)."""
    mixed = _value(by_key, f"{_PRECISION}.enable", default=True)
    if not isinstance(mixed, bool):
        return None
    return not mixed or _value(by_key, f"{_PRECISION}.param_dtype", default="bfloat16") == "bfloat16"


def _value(by_key: Mapping[str, Leaf], key: str, *, default: object) -> object:
    return by_key[key].value if key in by_key else default


READER = Reader(name=NAME, read=_read, editor=section_editor)
