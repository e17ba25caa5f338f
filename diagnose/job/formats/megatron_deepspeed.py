"""Scripts of Megatron-DeepSpeed: a fork with flags of an older Megatron-LM, and experts and optimizers of its own.

Read as Megatron-LM's, and told by their --deepspeed; what its defaults are is not known.
"""

from __future__ import annotations

from dataclasses import replace

from diagnose.job.formats import megatron_lm
from diagnose.job.formats.reader import Reader
from diagnose.job.model import Parsed
from diagnose.job.text import JobText

NAME = "megatron-deepspeed"


def _read(text: JobText) -> Parsed | None:
    found = None if text.command is None else megatron_lm.READER.read(text)
    ours = found is not None and any(leaf.key == "deepspeed" for leaf in found.leaves)
    return replace(found, format=NAME) if found is not None and ours else None


READER = Reader(name=NAME, read=_read, keys=megatron_lm.READER.keys)
