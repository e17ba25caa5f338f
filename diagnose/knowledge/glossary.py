"""Words of the field and what they mean here (trace_rules/glossary.yaml)."""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.knowledge.data import Strict, checked, contents

_FILE = "glossary.yaml"


class Word(Strict, frozen=True, kw_only=True):
    """One word; the fields are explained at the top of the YAML file."""

    means: str
    title: str = ""
    also: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    ordinary: bool = False
    says: str = ""
    see: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()

    def anywhere(self, key: str) -> tuple[str, ...]:
        """How it may be written, in small letters."""
        return tuple(dict.fromkeys(text.lower() for text in (key, key.replace("-", " "), self.title, *self.also) if text))

    def spellings(self, key: str) -> tuple[str, ...]:
        """Everything that it is called, headings and labels included."""
        return (*self.anywhere(key), *(text.lower() for text in self.labels))


def load_glossary() -> Mapping[str, Word]:
    """The words as they come with the program. Raises RuleFileError."""
    with checked(_FILE, effect="Nothing can be explained.", next_step="Correct the file."):
        return contents(_FILE, dict[str, Word])


def meanings(words: Mapping[str, Word], *, in_sentences: bool = False) -> Mapping[str, str]:
    """What each word means, under every spelling in small letters; `in_sentences`: without what in a sentence may mean something else."""
    return {  # of two words with one spelling the first stands
        spelling: words[key].means
        for key in reversed(list(words))
        if not (in_sentences and words[key].ordinary)
        for spelling in (words[key].anywhere(key) if in_sentences else words[key].spellings(key))
    }
