"""The program's document of each trace of a sheet, once per process."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from diagnose.document.encoding import encode
from diagnose.errors import InputError
from diagnose.pipeline import diagnose
from tests.expert.sheet import Line, Sheet


@cache
def document(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """What the program says of a trace: its document, or the words with which it refuses."""
    try:
        return json.loads(encode(diagnose([path]))), None
    except InputError as error:
        return None, f"{error} {error.next_step}"


def held(sheet: Sheet, traces: Path) -> dict[str, list[Line]]:
    """The lines of a sheet by trace."""
    return {file: sheet.held_against(*document(traces / file)) for file in sheet.files}
