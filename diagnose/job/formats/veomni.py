"""Configurations of VeOmni: YAML with the sections model, data and train, as its arguments are laid out since 2026.

The flat layout before it (`train.ulysses_parallel_size`) is not read. Keys, defaults and what
follows from them are those of veomni/arguments/arguments_types.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from diagnose.job.edit import section_editor
from diagnose.job.formats.reader import Reader
from diagnose.job.model import Leaf, Parsed
from diagnose.job.text import JobText, leaves_of

NAME = "veomni"

_OWN = frozenset({"accelerator", "init_device"})  # of its train section
_ACCELERATOR = "train.accelerator"
_FSDP = f"{_ACCELERATOR}.fsdp_config"
_PRECISION = f"{_FSDP}.mixed_precision"
_DROPPED = f"{_ACCELERATOR}.offload.enable_activation"  # its own files say it so; the class has offload_config
_LENGTH, _PACKED = "data.max_seq_len", "train.dyn_bsz"


def _read(text: JobText) -> Parsed | None:
    if text.yaml is None or not _is_veomni(text.yaml.data):
        return None
    leaves = list(leaves_of(text.yaml.data, text.yaml.lines))
    by_key = {leaf.key: leaf for leaf in leaves}
    notes = []
    if _DROPPED in by_key:
        notes.append(f"{_DROPPED} is no argument of VeOmni, which drops it: {_ACCELERATOR}.offload_config.enable_activation is")
    return Parsed(format=NAME, leaves=tuple(_settled(by_key)), rules=text.yaml.rules, notes=(*text.yaml.notes, *notes))


def _is_veomni(data: Mapping[object, object]) -> bool:
    train = data.get("train")
    return isinstance(train, dict) and bool(_OWN & train.keys())


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
