"""Configurations of torchtitan: TOML with tables such as [training] and [parallelism]."""

from __future__ import annotations

from dataclasses import replace

from diagnose.job.formats.reader import Reader
from diagnose.job.model import Leaf, Parsed, job_error
from diagnose.job.text import JobText, leaves_of

NAME = "torchtitan"


def _read(text: JobText) -> Parsed | None:
    tree = text.toml
    if tree is None:
        return None
    leaves = tuple(_without_auto(leaf) for leaf in leaves_of(tree.data, tree.lines))
    if not leaves:
        next_step = "Give torchtitan's configuration, with tables such as [training] and [parallelism]."
        raise job_error(text.source, "holds no settings", next_step)
    return Parsed(format=NAME, leaves=leaves)


def _without_auto(leaf: Leaf) -> Leaf:
    """Torchtitan writes -1 where it works a size out by itself: that tells nothing."""
    return replace(leaf, value=None) if leaf.value == -1 else leaf


READER = Reader(name=NAME, read=_read)
