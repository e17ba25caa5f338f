"""Searches over real git repositories whose commits change a simulated step, at three levels of noise.

test_search.py has each history at all of them, without repositories. Every capture comes from the simulator, once for each
setting, and is scaled by the noise of its run.

Real are the clone and every checkout, the command (a process of its own for every capture), the log, the documents, the comparison of both
sides. The command leaves its capture as a saved diagnosis, which the driver takes as it takes a trace, because diagnosing takes most of the
time; in `test_with_traces` it leaves traces.
"""

import math
from pathlib import Path

import pytest

from diagnose.bisect import session
from diagnose.bisect.log import Criteria
from diagnose.bisect.model import load_numbers
from diagnose.document.bisection import Bisection, decode
from diagnose.document.encoding import encode
from tests.bisect.simulated import History, experiment_of, random_history, set_world, snapshot
from tests.builders.suites import deep_unless

REPEATS = 10  # as the command line has it by default
NOISES = (0.01, 0.02, 0.05)
FLAKY = 0.015  # of captures are cut off, and as many take 1.3 times as long


def searched(history: History, state: Path) -> Bisection:
    """With all that belongs to a search."""
    experiment, order = experiment_of(history)
    criteria = Criteria(repeats=REPEATS)
    folder = session.begin(state, experiment, criteria, order, history.folder)
    return session.run(folder, experiment, lambda _: criteria, session.Options(), load_numbers(), lambda _: None)


def is_right(history: History, found: Bisection) -> bool:
    """The culprit is named; with it only commits that are broken."""
    if len(found.culprits) != 1:
        return False
    one = found.culprits[0]
    first, last = history.commits.index(one.before), history.commits.index(one.label)
    return first < history.culprit <= last and all(history.settings[place].get("broken") for place in range(first + 1, last))


def is_wrong(history: History, found: Bisection) -> bool:
    """A step is claimed where there is none."""
    places = [(history.commits.index(one.before), history.commits.index(one.label)) for one in found.culprits]
    return any(not first < history.culprit <= last for first, last in places)


@pytest.mark.parametrize("seed", deep_unless((0,), range(20)))
def test_the_right_commit_is_found_or_none(seed: int, tmp_path: Path, store: Path, captures: tuple[Path, dict[str, int]]) -> None:
    truth = captures[1]
    history = random_history(tmp_path / "repository", seed)
    before = snapshot(history.folder)
    effect = truth[history.step] / truth["base"] - 1
    noise = NOISES[seed % 3]
    set_world(store, seed=seed, noise=noise, flaky=FLAKY)
    found = searched(history, tmp_path / "state")
    assert not is_wrong(history, found), found.sentence
    if effect >= 3 * noise:
        assert is_right(history, found), (effect, noise, found.sentence)
    else:
        assert is_right(history, found) or found.result in {"range", "cannot_tell", "ends_alike"}, found.sentence
    check_effort(history, found)
    assert decode(encode(found)) == found
    assert snapshot(history.folder) == before


def check_effort(history: History, found: Bisection) -> None:
    """No more commits than halving takes, and for what came in between.

    Commits that gave nothing, and captures that misled until they were taken again.
    """
    tried = [one for one in found.candidates if one.state != "untested"]
    skipped = sum(one.state == "skipped" for one in tried)
    halvings = math.ceil(math.log2(len(history.commits)))
    assert len(tried) <= 2 + halvings + 2 * skipped + 4, found.sentence
    assert max(one.trials for one in found.candidates) <= REPEATS


@pytest.mark.deep
def test_with_traces(tmp_path: Path, store: Path, captures: tuple[Path, dict[str, int]]) -> None:
    """The whole way: every capture is an Nsight Systems export that is diagnosed. What moved is named by its category."""
    history = random_history(tmp_path / "repository", 4, longest=120)
    moved = {"network-250": "transport", "network-200": "transport", "network-150": "transport", "network-100": "transport"}
    set_world(store, seed=1, noise=0.01, flaky=FLAKY, kind="sqlite")
    found = searched(history, tmp_path / "state")
    assert is_right(history, found)
    comparison = found.culprits[0].comparison
    assert comparison is not None
    assert comparison.delta is not None
    assert sum(row.delta_ns for row in comparison.delta.categories) == comparison.delta.delta_ns
    largest = max(comparison.delta.categories, key=lambda row: row.delta_ns)
    assert largest.category == moved[history.step]
    truth = captures[1]
    assert found.culprits[0].relative == pytest.approx(truth[history.step] / truth["base"] - 1, abs=0.02)
