"""Files of Hydra overrides in the keys of Megatron-Bridge, and what `--set` gives where there is no job file."""

from __future__ import annotations

from diagnose.job.edit import Editor, write_override
from diagnose.job.formats.reader import Reader
from diagnose.job.model import Parsed
from diagnose.job.text import JobText, override_lines

NAME = "overrides"


def _read(text: JobText) -> Parsed | None:
    return Parsed(format=NAME, leaves=override_lines(text.text, text.source)) if text.syntax == "overrides" else None


READER = Reader(name=NAME, read=_read, editor=lambda _text: Editor(write=write_override))
