"""The search for a plan: from each of the best two fixes a set grows, and the larger joint forecast is chosen."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from msgspec import structs

from diagnose.reason.forecast.outcome import Replays
from diagnose.reason.forecast.plan import Compatible, search
from diagnose.reason.forecast.questions import Question
from tests.builders.cases import for_each
from tests.builders.scene import KNOWLEDGE

ALONE = {"A": 300, "B": 290, "C": 280, "D": 100}


class Forecasts:
    """Replays of a step of 1,000 ns whose savings are given; of a set that is not, the largest alone."""

    now = SimpleNamespace(lengths=(1000,))

    def __init__(self, joint: dict[str, int]) -> None:
        self.joint = ALONE | joint
        self.asked: set[str] = set()

    @property
    def count(self) -> int:
        return len(self.asked)

    def unanswered(self, question: Question) -> None:
        assert question.id in ALONE

    def saves(self, questions: Sequence[Question]) -> int:
        key = "".join(sorted(one.id for one in questions))
        self.asked.add(key)
        return self.joint.get(key, max((ALONE[one] for one in key), default=0))


@for_each(
    "joint, chosen",
    ({}, ["A"]),
    ({"AD": 330}, ["A", "D"]),
    ({"BD": 500}, ["B", "D"]),
    ({"CD": 500}, ["A"]),  # a third beginning is not worth its replays
    ({"AD": 330, "BD": 335}, ["A", "D"]),  # by less than is worth telling the second is no better
)
def test_a_set_grows_from_each_of_the_best_two(joint: dict[str, int], chosen: list[str]) -> None:
    rules = structs.replace(KNOWLEDGE.forecast, worth=0.01, candidates=4, replays=100)
    together = cast("Compatible", SimpleNamespace(goes_with=lambda _chosen, _key: True))
    questions = [Question(id=key, title=key) for key in ALONE]
    found = search(cast("Replays", Forecasts(joint)), questions, together, rules)
    assert [one.id for one in found.chosen] == chosen
