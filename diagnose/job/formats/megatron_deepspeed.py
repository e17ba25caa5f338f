"""Scripts of Megatron-DeepSpeed: a fork with flags of an older Megatron-LM, and experts and optimizers of its own.

Read as Megatron-LM's, and told by their --deepspeed; what its defaults are is not known.
"""

from __future__ import annotations

from msgspec.structs import replace

from diagnose.job.formats import megatron_lm
from diagnose.job.formats.reader import Reader
from diagnose.job.model import Parsed
from diagnose.job.text import JobText
from diagnose.knowledge.settings import flag_name

NAME = "megatron-deepspeed"


def _read(text: JobText) -> Parsed | None:
    flags = () if text.command is None else (token.text for token in text.command.arguments if token.text.startswith("--"))
    if "deepspeed" not in map(flag_name, flags):
        return None
    found = megatron_lm.READER.read(text)
    return None if found is None else replace(found, format=NAME)


READER = Reader(name=NAME, read=_read, keys=megatron_lm.READER.keys)
