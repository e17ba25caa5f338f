"""What of many cases belongs to the quick suite; the others are left to the deep one."""

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest

from fixtures import scenario

T = TypeVar("T")

# One scenario for each wall and kind, both frameworks' dispatchers, graphs, images, and the shapes of jobs of several ranks.
SCENARIOS = (
    "communication-border-below", "communication-deepep-slow-network", "compute-border-memory", "demo", "healthy-graphs",
    "healthy-vision", "host-garbage-collection", "memory-full-recompute", "pair-less-recompute", "ranks-expert-hot-rank",
    "ranks-pipeline-bubble", "ranks-straggler", "two-walls-memory-host",
)  # fmt: skip


def deep_unless(quick: Collection[T], cases: Iterable[T]) -> list[object]:
    """The cases as parameters of a test: those in `quick` run in every suite, the others in the deep one."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.deep) for case in cases]


def scenarios(*kinds: str) -> list[object]:
    """The scenarios of some kinds (all without any) as parameters. The kind of a scenario that is a pair or has several ranks begins its
    name.
    """
    named = [name for name in scenario.names() if not kinds or kind_of(name) in kinds]
    return deep_unless(SCENARIOS, named)


def kind_of(name: str) -> str:
    """`pair`, `ranks` or `single`, told by the name so that no scenario has to be read for it; `held-` and `fresh-` set one aside."""
    first = name.removeprefix("held-").removeprefix("fresh-").split("-", maxsplit=1)[0]
    return first if first in {"pair", "ranks"} else "single"
