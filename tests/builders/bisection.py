"""Invented bisections.

One that holds everything a renderer can meet, one for each result, one that holds almost nothing, and a huge one.
"""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import structs

from diagnose.document.bisection import Bisection
from tests.builders.diagnosis import HOSTILE
from tests.builders.kept import kept

rich = partial(kept, Bisection)  # sixteen commits; the tenth is slower. One does not build, one lost its trace, one flaked; hostile texts
several = partial(kept, Bisection, "several")  # two steps up and one down; the second is one of three, the third has no comparison
range_ = partial(kept, Bisection, "range")  # narrowed down to commits that do not build
alike = partial(kept, Bisection, "alike")  # ends that do not differ
minimal = partial(kept, Bisection, "minimal")  # nothing could be measured


def huge() -> Bisection:
    """Three thousand traces with long texts, all of them measured."""
    long, document = f"{HOSTILE[0]} " * 200, rich()
    ends = {"good": document.candidates[0], "bad": document.candidates[-1]}
    candidates = tuple(
        structs.replace(ends["good" if number < 1500 else "bad"], label=f"{number}-{long}", subject=long, value=(100 + number % 7) * 1e6)
        for number in range(3000)
    )
    return structs.replace(
        document,
        kind="traces",
        candidates=candidates,
        trials=tuple(
            structs.replace(document.trials[0], candidate=place, number=place + 1, values=(1e8,), text=long) for place in range(3000)
        ),
        good=candidates[0].label,
        bad=candidates[-1].label,
        notes=(long,) * 300,
        culprits=tuple(
            structs.replace(
                document.culprits[0], label=candidates[place].label, before=candidates[place - 1].label, message=long, among=(long,) * 100
            )
            for place in (700, 1500, 2100)
        ),
    )


SAMPLES: Mapping[str, Callable[[], Bisection]] = {"rich": rich, "several": several, "range": range_, "alike": alike, "minimal": minimal}
