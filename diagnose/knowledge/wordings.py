"""What texts of rules say instead on other GPUs than they were written for (trace_rules/wordings.yaml)."""

from __future__ import annotations

from diagnose.knowledge.conditions import Condition
from diagnose.knowledge.data import Strict


class Wording(Strict, frozen=True, kw_only=True):
    """Phrases, and what stands in their place where `when` holds."""

    when: Condition
    instead: dict[str, str]

    def form(self, text: str) -> str:
        """A text in this wording; longer phrases go before those that they hold."""
        for phrase in sorted(self.instead, key=len, reverse=True):
            text = text.replace(phrase, self.instead[phrase])
        return text
