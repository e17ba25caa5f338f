"""Facts for tests of the reasoning: all absent unless given."""

from collections.abc import Mapping

from diagnose.document.diagnosis import Fact
from diagnose.knowledge.load import load_rulebook
from diagnose.model.vocabulary import FactValue, Status
from tests.builders import yaml_text
from tests.builders.kept import DATA

BOOK = load_rulebook()

CLEAN: Mapping[str, FactValue] = yaml_text.load((DATA / "facts.yaml").read_text(encoding="utf-8"))  # nothing wrong


def facts(base: Mapping[str, FactValue] | None = None, *, inferred: tuple[str, ...] = (), **values: FactValue) -> dict[str, Fact]:
    """The full table of facts: `base` (default CLEAN) with `values` on top."""
    given = {**(CLEAN if base is None else base), **values}
    unknown = set(given) - set(BOOK.facts)
    assert not unknown, unknown

    def status(name: str) -> Status:
        return "inferred" if name in inferred else "measured"

    return {name: Fact(value=given.get(name), unit=spec.unit, status=status(name)) for name, spec in BOOK.facts.items()}
