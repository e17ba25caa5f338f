"""Configurations of torchtitan: TOML with tables such as [training] and [parallelism]."""

from __future__ import annotations

from dataclasses import replace

from diagnose.job.formats.reader import Reader
from diagnose.job.model import Parsed, job_error
from diagnose.job.text import JobText, leaves_of

NAME = "torchtitan"


def _read(text: JobText) -> Parsed | None:
    tree = text.toml
    if tree is None:
        return None
    # -1 is written where torchtitan works a size out by itself: that tells nothing
    leaves = tuple(replace(leaf, value=None) if leaf.value == -1 else leaf for leaf in leaves_of(tree.data, tree.lines))
    if not leaves:
        next_step = "Give torchtitan's configuration, with tables such as [training] and [parallelism]."
        raise job_error(text.source, "holds no settings", next_step)
    return Parsed(format=NAME, leaves=leaves)


READER = Reader(name=NAME, read=_read)
