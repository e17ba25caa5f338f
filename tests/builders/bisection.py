"""Invented bisections: one that holds everything a renderer can meet, one for each result, one that holds almost nothing, and a huge one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import structs

from diagnose.document import bisection as b
from diagnose.document.diagnosis import Tool
from tests.builders.comparison import minimal as compared_little
from tests.builders.comparison import rich as compared
from tests.builders.diagnosis import HOSTILE

TOOL = Tool(name="diagnose", version="0.1.0", rules_sha256="4be1" + "0" * 56 + "77aa")
MESSAGE = f"""Use the new grouped GEMM

It needs one kernel less per expert. {HOSTILE[0]}
{HOSTILE[1]}

Refs: #4711"""


def commit(number: int) -> str:
    """A made-up hash."""
    return f"{number:04x}" * 10


def _ns(ms: float) -> float:
    return ms * 1_000_000.0


def candidate(number: int, state: b.CandidateState, ms: float | None = None, trials: int = 2, spread: float = 1.2) -> b.Candidate:
    """One commit with its level in ms."""
    return b.Candidate(
        label=commit(number),
        subject=f"Change {number}" if number != 3 else HOSTILE[2],
        state=state,
        trials=trials if ms is not None else 0,
        value=None if ms is None else _ns(ms),
        low=None if ms is None else _ns(ms - spread),
        high=None if ms is None else _ns(ms + spread),
    )


def trial(place: int, number: int, *ms: float, state: b.TrialState = "measured", text: str = "") -> b.Trial:
    """One run with the times of its steps."""
    document = f"{number:03d}.json" if state == "measured" else None
    return b.Trial(candidate=place, number=number, state=state, values=tuple(_ns(one) for one in ms), document=document, text=text)


def rich() -> b.Bisection:
    """Sixteen commits; the tenth is slower. One does not build, one lost its trace, one flaked, texts are hostile."""
    levels: dict[int, tuple[b.CandidateState, float | None]] = {
        0: ("good", 120.4),
        3: ("good", 121.0),
        7: ("skipped", None),
        8: ("good", 120.1),
        9: ("bad", 157.9),
        11: ("cannot_tell", 139.0),
        12: ("skipped", None),
        15: ("bad", 158.3),
    }
    candidates = tuple(candidate(number, *levels.get(number, ("untested", None))) for number in range(16))
    trials = (
        trial(0, 1, 120.1, 120.6, 119.8),
        trial(15, 2, 158.0, 158.9, 157.2),
        trial(0, 3, 120.7, 120.9, 120.5),
        trial(15, 4, 158.4, 158.2, 158.6),
        trial(7, 5, state="failed", text=f"The command failed with exit code 2. It printed at the end: ld: symbol not found {HOSTILE[3]}"),
        trial(8, 6, 120.3, 119.9, 120.2),
        trial(12, 7, state="unusable", text="The trace can't be used: it holds no GPU work."),
        trial(11, 8, 120.0, 121.0, 119.0),
        trial(11, 9, 158.0, 157.0, 159.0),
        trial(9, 10, 157.9, 158.8, 157.0),
        trial(3, 11, 121.0, 121.2, 120.8),
    )
    return b.Bisection(
        schema=b.SCHEMA,
        tool=TOOL,
        metric="step_time",
        unit="ns",
        result="found",
        sentence=f"The step became 31.5 % slower with {commit(9)[:12]} (Change 9): 120.1 → 157.9 ms.",
        good=commit(0),
        bad=commit(15),
        good_value=_ns(120.4),
        bad_value=_ns(158.3),
        noise=0.004,
        monotone=True,
        culprits=(
            b.Culprit(
                label=commit(9),
                subject="Use the new grouped GEMM",
                message=MESSAGE,
                before=commit(8),
                base=_ns(120.1),
                new=_ns(157.9),
                relative=0.3147,
                comparison=compared(),
            ),
        ),
        candidates=candidates,
        trials=trials,
        notes=("Two captures of one commit contradict each other; it was left out.", f"A capture is named {HOSTILE[4]}"),
        kind="commits",
        order="First parents from good to bad.",
        max_regression=0.03,
    )


def several() -> b.Bisection:
    """Two steps up and one down; the second is one of three artefacts, the third has no comparison."""
    states: tuple[tuple[b.CandidateState, float | None], ...] = (
        ("good", 100),
        ("between", 110),
        ("skipped", None),
        ("skipped", None),
        ("outside", 150),
        ("bad", 130),
    )
    tags = [f"registry.example/train:24.{number:02d}" for number in range(6)]
    found = tuple(structs.replace(candidate(number, *one), label=tags[number], subject="") for number, one in enumerate(states))
    return structs.replace(
        rich(),
        result="several",
        sentence="The step changed three times between the ends.",
        good=tags[0],
        bad=tags[5],
        good_value=_ns(100),
        bad_value=_ns(130),
        noise=0.01,
        monotone=False,
        kind="items",
        order="As items.txt lists them.",
        candidates=found,
        trials=tuple(trial(place, place + 1, (one.value or 0) / 1e6) for place, one in enumerate(found) if one.value is not None),
        culprits=(
            b.Culprit(
                label=tags[1],
                subject="",
                message="",
                before=tags[0],
                base=_ns(100),
                new=_ns(110),
                relative=0.1,
                comparison=compared_little(),
            ),
            b.Culprit(
                label=tags[4],
                subject="",
                message="",
                before=tags[1],
                base=_ns(110),
                new=_ns(150),
                relative=0.3636,
                among=(tags[2], tags[3]),
            ),
            b.Culprit(label=tags[5], subject="", message="", before=tags[4], base=_ns(150), new=_ns(130), relative=-0.1333),
        ),
        max_regression=None,
        notes=(),
    )


def range_() -> b.Bisection:
    """Narrowed down to commits that do not build."""
    document = rich()
    only = structs.replace(document.culprits[0], among=(commit(7), commit(8)), comparison=None, before=commit(3), message="")
    return structs.replace(document, result="range", sentence="The step became slower with one of three commits.", culprits=(only,))


def alike() -> b.Bisection:
    """Ends that do not differ."""
    ends = (candidate(0, "good", 120.4), candidate(1, "untested"), candidate(2, "good", 120.5))
    return structs.replace(
        rich(),
        result="ends_alike",
        sentence="Both ends are alike, so there is nothing to search for.",
        bad=commit(2),
        bad_value=_ns(120.5),
        culprits=(),
        candidates=ends,
        trials=(trial(0, 1, 120.4), trial(2, 2, 120.5)),
        notes=(),
        order="",
    )


def minimal() -> b.Bisection:
    """Nothing could be measured."""
    return b.Bisection(
        schema=b.SCHEMA,
        tool=Tool(name="diagnose", version="0.1.0", rules_sha256=""),
        metric="blocking_dispatch",
        unit="share",
        result="cannot_tell",
        sentence="Neither end could be measured.",
        good="a",
        bad="b",
        good_value=None,
        bad_value=None,
        noise=None,
        monotone=True,
        culprits=(),
        candidates=(
            b.Candidate(label="a", subject="", state="skipped", trials=0),
            b.Candidate(label="b", subject="", state="untested", trials=0),
        ),
        trials=(b.Trial(candidate=0, number=1, state="failed"),),
    )


def huge() -> b.Bisection:
    """Three thousand traces with long texts, all of them measured."""
    long = f"{HOSTILE[0]} " * 200
    found = tuple(
        structs.replace(candidate(number, "good" if number < 1500 else "bad", 100 + number % 7), label=f"{number}-{long}", subject=long)
        for number in range(3000)
    )
    trials = tuple(structs.replace(trial(place, place + 1, 100.0), text=long) for place in range(3000))
    return structs.replace(
        rich(),
        kind="traces",
        candidates=found,
        trials=trials,
        good=found[0].label,
        bad=found[-1].label,
        notes=(long,) * 300,
        culprits=tuple(
            structs.replace(rich().culprits[0], label=found[place].label, before=found[place - 1].label, message=long, among=(long,) * 100)
            for place in (700, 1500, 2100)
        ),
    )


SAMPLES: Mapping[str, Callable[[], b.Bisection]] = {
    "rich": rich,
    "several": several,
    "range": range_,
    "alike": alike,
    "minimal": minimal,
}
