"""Words of the field and what they mean here (trace_rules/glossary.yaml)."""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.knowledge.data import Strict, checked, converted, packaged

_FILE = "glossary.yaml"


class Word(Strict, frozen=True, kw_only=True):
    """One word; the fields are explained at the top of the YAML file."""

    means: str
    says: str
    see: tuple[str, ...]
    refs: tuple[str, ...]


def load_glossary() -> Mapping[str, Word]:
    """The words as they come with the program. Raises RuleFileError."""
    with checked(_FILE, effect="Nothing can be explained.", next_step="Correct the file."):
        return converted(packaged(_FILE), dict[str, Word])
