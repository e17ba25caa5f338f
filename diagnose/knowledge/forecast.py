"""What trace_rules/forecast.yaml says: how wide forecasts are told, how much work they may be, and questions in words."""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.knowledge.data import Strict, WrongDataError, checked, converted
from diagnose.knowledge.effects import select_problem


class Margin(Strict, frozen=True, kw_only=True):
    """What the replay leaves out: its error as a share of what is saved, and of the step where anything changes."""

    of_saving: float
    of_step: float


class Word(Strict, frozen=True, kw_only=True):
    """A word that stands for a SELECT. `with_host`: where it is removed, the host work for it goes too."""

    select: str
    title: str
    with_host: bool = False


class Gpu(Strict, frozen=True, kw_only=True):
    """SELECTs of what another GPU's dense peak, its memory bandwidth and its link speed up."""

    products: str
    memory: str
    link: str


class ForecastRules(Strict, frozen=True, kw_only=True):
    """The whole file; its comments explain the fields."""

    margin: Margin
    report_operations: int
    replays: int
    candidates: int
    worth: float
    words: Mapping[str, Word]
    gpu: Gpu


def load_forecast_rules(data: bytes) -> ForecastRules:
    """The file's content. Raises RuleFileError."""
    with checked("forecast.yaml", effect="Nothing was analysed."):
        found = converted(data, ForecastRules)
        selects = {f"words.{name}.select": word.select for name, word in found.words.items()}
        selects |= {f"gpu.{name}": getattr(found.gpu, name) for name in Gpu.__struct_fields__}
        for place, text in selects.items():
            wrong = select_problem(text)
            if wrong is not None:
                raise WrongDataError(f"{place}: {wrong}")
        return found
