"""Words of the field that a page explains where they stand: each has its meaning as a tooltip, in headings always, in sentences once.

A title attribute needs a mouse, so the page's script shows it on a touch too, and all words of a page stand in a list at its end.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from diagnose.knowledge.glossary import load_glossary, meanings
from diagnose.model.names import visible
from diagnose.render import units


class Terms:
    """The words of one page. What is returned is escaped."""

    def __init__(self) -> None:
        words = load_glossary()
        self._labels = meanings(words)
        self._words = meanings(words, in_sentences=True)
        longest_first = sorted(map(re.escape, map(str, map(escape, self._words))), key=lambda text: (-len(text), text))
        self._pattern = re.compile(rf"(?<![\w/-])(?:{'|'.join(longest_first)})(?![\w/-])", re.IGNORECASE)
        self._told: set[str] = set()
        self._shown: dict[str, str] = {}

    def sentence(self, text: str) -> Markup:
        """A sentence, in which each word is explained that no sentence before it explained."""

        def explained(found: re.Match[str]) -> str:
            means = self._words[found[0].lower()]
            if means in self._told:
                return found[0]
            self._told.add(means)
            return self._explained(found[0], means)

        return Markup(self._pattern.sub(explained, str(_harmless(text))))  # noqa: S704 - escaped before

    def label(self, text: str) -> Markup:
        """A heading or a label that is a word of the field; any other is left as it is."""
        means = self._labels.get(text.strip().lower())
        return _harmless(text) if means is None else Markup(self._explained(str(_harmless(text)), means))  # noqa: S704 - escaped before

    def _explained(self, shown: str, means: str) -> str:
        """The word with its meaning; `shown` is escaped."""
        self._shown.setdefault(means, shown)
        return f'<abbr title="{escape(means)}">{shown}</abbr>'

    def all(self) -> list[tuple[Markup, str]]:
        """Every word that was explained up to here, as it stands first, with its meaning; by name."""
        told = ((Markup(shown), means) for means, shown in self._shown.items())  # noqa: S704 - escaped before
        return sorted(told, key=lambda one: one[0].lower())


def _harmless(text: str) -> Markup:
    return escape(units.glued(visible(text)))
