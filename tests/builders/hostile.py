"""Documents whose every text is hostile: markup, scripts, addresses, orders for drawers and templates."""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from diagnose.document import bisection as b
from diagnose.document import comparison as c
from diagnose.document import device as r
from diagnose.document import diagnosis as d
from diagnose.document import ranks as k
from tests.builders import bisection, comparison, diagnosis
from tests.builders.diagnosis import HOSTILE

PAYLOADS = (
    *HOSTILE,
    "<svg onload=alert(4)>",
    "javascript:alert(5)",
    "<!--<script>",
    "]]><script>alert(6)</script>",
    "<iframe srcdoc='<script>alert(7)</script>'>",
    "<a href='https://example.invalid/x'>click</a>",
    "url(https://example.invalid/y)",
    "&lt;b&gt;",
    "</title><script>alert(8)</script>",
    "</style><script>alert(9)</script>",
    "%{customdata[0]}{0}{rows.__class__}",
)
# Fields of closed words, which no trace can choose.
_CLOSED = {"schema", "state", "kind", "wall", "severity", "dominant_wall", "target_wall"}
_IN_COMPARISONS = _CLOSED | {"why", "result", "basis", "metric", "unit", "fail_on", "anchor"}
_IN_DIAGNOSES = _CLOSED | {
    "runner_up", "certainty", "status", "role", "cuda_graphs", "format", "recompute_status", "by", "pattern", "kinds",
}  # fmt: skip
T = TypeVar("T")


def payloads(first: int | None) -> Iterator[str]:
    """Endlessly the payloads, beginning with the `first`; all of them each time when None."""
    index = first or 0
    while True:
        yield " ".join(PAYLOADS) if first is None else PAYLOADS[index % len(PAYLOADS)]
        index += 1


def hostile_diagnosis(first: int | None) -> d.Diagnosis:
    """Every text a payload, beginning with the `first`; all payloads in every text when None."""
    return _poisoned(diagnosis.rich(), payloads(first), _IN_DIAGNOSES)


def hostile_comparison(first: int | None) -> c.Comparison:
    """Every text a payload, beginning with the `first`; all payloads in every text when None."""
    return _poisoned(comparison.rich(), payloads(first), _IN_COMPARISONS)


def hostile_bisection(first: int | None) -> b.Bisection:
    """The texts that a user, a repository or a trace chooses, as payloads; the figure's steps stay in its list."""
    document, texts = bisection.rich(), payloads(first)
    names = {one.label: f"{next(texts)} {place}" for place, one in enumerate(document.candidates)}
    return structs.replace(
        document,
        metric=next(texts),
        unit=next(texts),
        sentence=next(texts),
        order=next(texts),
        notes=PAYLOADS,
        good=names[document.good],
        bad=names[document.bad],
        candidates=tuple(structs.replace(one, label=names[one.label], subject=next(texts)) for one in document.candidates),
        trials=tuple(structs.replace(one, text=next(texts), document=next(texts)) for one in document.trials),
        culprits=tuple(
            structs.replace(one, label=names[one.label], before=names[one.before], message="\n".join(PAYLOADS), subject=next(texts))
            for one in document.culprits
        ),
    )


def _poisoned(value: T, texts: Iterator[str], closed: set[str]) -> T:
    """`value` with every free text replaced by the next payload; numbers and closed words stay."""
    result: Any = value
    if isinstance(value, msgspec.Struct):
        here = set(closed)
        here |= {"anchor"} if isinstance(value, r.Steps) else {"cause"} if isinstance(value, r.HostCost | k.Late) else set()
        here -= {"format"} if isinstance(value, d.Capture) else set()
        free = [name for name in value.__struct_fields__ if name not in here]
        result = structs.replace(value, **{name: _poisoned(getattr(value, name), texts, closed) for name in free})
    elif isinstance(value, tuple):
        result = tuple(_poisoned(item, texts, closed) for item in value)
    elif isinstance(value, dict):
        result = {f"{next(texts)} {index}": _poisoned(item, texts, closed) for index, item in enumerate(value.values())}
    elif isinstance(value, str):
        result = next(texts)
    return result
