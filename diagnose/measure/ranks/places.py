"""Where findings about ranks show: the ranks behind the places "ranks:…" that rules name (rulebook.PLACES)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from diagnose.document.diagnosis import Where
from diagnose.document.ranks import Ranks
from diagnose.measure.ranks.facts import slowest_stage, the_straggler, worst_experts
from diagnose.measure.ranks.slow_link import slow_link


def rank_places(ranks: Ranks | None) -> Mapping[str, Where]:
    """The places of what differs between ranks; those that concern no rank are left out. Steps are those of the run."""
    if ranks is None:
        return {}
    late, experts, link = the_straggler(ranks), worst_experts(ranks), slow_link(ranks)
    stage = slowest_stage(ranks.pipeline.stages) if ranks.pipeline else None
    rotating = max((one for one in ranks.late if one.pattern == "rotating"), key=lambda one: one.wait_ns, default=None)
    tail = max(ranks.tail, key=lambda one: (one.tail_ns, -one.rank), default=None)
    found: dict[str, Iterable[int]] = {
        "straggler": () if late is None or late.rank is None else (late.rank,),
        "rotating": rotating.ranks if rotating else (),
        "skewed": {one.rank for one in ranks.skew},
        "experts": (experts.busiest,) if experts else (),
        "stages": stage.ranks if stage else (),
        "tail": (tail.rank,) if tail else (),
        "link": link.ranks if link and link.excess_ns else (),
        **{kind: [rank for one in ranks.problems if one.kind == kind for rank in one.ranks] for kind in ("duplicate", "steps")},
        "captured": {one.rank for one in ranks.survey},
    }
    places = {f"ranks:{name}": tuple(sorted(numbers)) for name, numbers in found.items()}
    return {name: Where(ranks=numbers, steps=()) for name, numbers in places.items() if numbers}
