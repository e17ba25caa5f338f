"""Documents that are kept as JSON in data/.

A rich one of each kind, as its writer writes it, and what others have instead of its fields.
"""

import json
from pathlib import Path
from typing import TypeVar

import msgspec

DATA = Path(__file__).parent / "data"
T = TypeVar("T")


def kept(kind: type[T], name: str = "rich") -> T:
    """The document of this kind that holds everything, or with the fields that `name` has instead.

    `python -m tests.render.regenerate` writes the rich ones again as they are read; what they hold is changed in the file.
    """
    fields = json.loads((DATA / f"{kind.__name__.lower()}.json").read_bytes())
    if name != "rich":
        fields |= json.loads((DATA / f"{kind.__name__.lower()}-others.json").read_bytes())[name]
    return msgspec.convert(fields, kind)
