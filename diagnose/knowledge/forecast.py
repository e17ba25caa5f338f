"""What trace_rules/forecast.yaml says: how wide forecasts are told, how much work they may be, and questions in words."""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.knowledge.data import Strict, WrongDataError, checked, contents
from diagnose.knowledge.effects import TRANSFORMATIONS, Transformation, selects_problem

_FILE = "forecast.yaml"


class Margin(Strict, frozen=True, kw_only=True):
    """What the replay and the laws leave out: an error as a share of what is saved, by law, and of the step where anything changes."""

    of_saving: Mapping[Transformation, float]
    of_step: float


class Far(Strict, frozen=True, kw_only=True):
    """From which share of the step on a saving is beyond what was tried, what of it is won at worst, and what is told beside it."""

    saving: float
    worst: float
    why: str
    of_graphs: str


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


class Report(Strict, frozen=True, kw_only=True):
    """What a report replays by itself: limits, as the file explains them."""

    operations: int
    one_step: int
    work: int
    together: int
    ranks: int


class Whatif(Strict, frozen=True, kw_only=True):
    """Operations that a plan of `diagnose whatif` is searched on and told for, as the file explains them."""

    searched: int
    answered: int


Ends = tuple[float, float, float]  # at the best, the likely and the worst end


class Contention(Strict, frozen=True, kw_only=True):
    """Shares of their time that operations lose which newly run side by side, by role. `fills_us`: from there on compute fills a GPU."""

    compute: Ends
    transport: Ends
    fills_us: Ends


class Stages(Strict, frozen=True, kw_only=True):
    """SELECTs of waiting for other pipeline stages, of what one alone has and of what is no pass, and what is told of waiting."""

    apart: str
    besides: str
    select: str
    why: str


class ForecastRules(Strict, frozen=True, kw_only=True):
    """The whole file; its comments explain the fields."""

    margin: Margin
    far: Far
    contention: Contention
    stages: Stages
    report: Report
    whatif: Whatif
    replays: int
    candidates: int
    worth: float
    words: Mapping[str, Word]
    gpu: Gpu


def load_forecast_rules(data: bytes | None = None) -> ForecastRules:
    """The content of a file's bytes (the program's own file by default). Raises RuleFileError."""
    with checked(_FILE, effect="Nothing was analysed."):
        found = contents(_FILE, ForecastRules, data)
        selects = {f"words.{name}.select": word.select for name, word in found.words.items()}
        selects |= {f"gpu.{name}": getattr(found.gpu, name) for name in Gpu.__struct_fields__}
        selects |= {f"stages.{name}": getattr(found.stages, name) for name in ("apart", "besides", "select")}
        for name in ("compute", "transport"):
            low, likely, high = getattr(found.contention, name)
            if not 0 <= low <= likely <= high < 1:
                raise WrongDataError(f"contention.{name}: three shares that rise from 0 on, below 1")
        if set(found.margin.of_saving) != set(TRANSFORMATIONS):
            raise WrongDataError(f"margin.of_saving: one share for each of {', '.join(TRANSFORMATIONS)}")
        wrong = selects_problem(selects)
        if wrong is not None:
            raise WrongDataError(": ".join(wrong))
        return found
