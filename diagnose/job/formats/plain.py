"""A plain job.yaml: settings by their own names, or by the keys of Megatron-Bridge."""

from __future__ import annotations

from diagnose.job.edit import map_editor
from diagnose.job.formats.reader import Reader
from diagnose.job.model import PLAIN, Parsed
from diagnose.job.text import JobText, leaves_of


def _read(text: JobText) -> Parsed | None:
    tree = text.yaml
    if tree is None:
        return None
    return Parsed(format=PLAIN, leaves=tuple(leaves_of(tree.data, tree.lines)), rules=tree.rules, notes=tree.notes, nameless=True)


READER = Reader(name=PLAIN, read=_read, editor=map_editor)
