"""Where a finding shows: ranks, steps and the costliest names, under the names that rules give to it (catalogue.places_of and "run")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl
from msgspec.structs import replace

from diagnose.document.diagnosis import Where
from diagnose.document.ranks import Ranks
from diagnose.measure.device import DeviceMeasure
from diagnose.measure.kernels import TINY_NS
from diagnose.measure.ranks.facts import another_straggler, late_with, slow_link, slowest_stage, the_straggler, worst_experts
from diagnose.measure.records import DeviceRecords
from diagnose.model.vocabulary import COMM_KINDS

TOP = 5


def device_where(one: DeviceMeasure, records: DeviceRecords) -> Mapping[str, Where]:
    """Within one device: in its whole run, by bucket, role, kind of communication and cause on the host, and in tiny kernels."""
    ranks, steps = (one.rank,), tuple(one.budget.per_step["index"].to_list())

    def named(frame: pl.DataFrame) -> Where:
        top = frame.group_by("name").agg(pl.col("work_ns").sum()).sort("work_ns", "name", descending=[True, False]).head(TOP)
        return Where(ranks=ranks, steps=steps, top=tuple(top["name"].to_list()))

    found = {"run": Where(ranks=ranks, steps=steps)}
    for (bucket,), part in one.usage.names.group_by("bucket"):
        found[f"bucket:{bucket}"] = named(part)
    for (role,), part in one.usage.names.group_by("role"):
        found[f"role:{role}"] = named(part)
    for kind in COMM_KINDS:
        rows = [row for row in records.communication if row.kind == kind]
        if rows:
            backends = tuple(f"{row.backend}: {row.count} per step" for row in rows)
            found[f"communication:{kind}"] = Where(ranks=ranks, steps=steps, top=backends)
    for cause in sorted({cost.cause for cost in records.host}):
        own = tuple(cost.name for cost in records.host if cost.cause == cause)[:TOP]
        found[f"host:{cause}"] = Where(ranks=ranks, steps=steps, top=own)
    tiny = one.usage.names.filter(
        (pl.col("role") == "compute") & (pl.col("kernels") > 0) & (pl.col("work_ns") // pl.col("kernels").clip(lower_bound=1) < TINY_NS)
    )
    if not tiny.is_empty():
        most = tiny.sort("kernels", "name", descending=[True, False]).head(TOP)
        found["tiny"] = Where(ranks=ranks, steps=steps, top=tuple(most["name"].to_list()))
    return {place: replace(where, spans=one.timeline.spans.get(place, ())) for place, where in found.items()}


def rank_where(ranks: Ranks | None) -> Mapping[str, Where]:
    """Among the captured ranks ("ranks:…"); what concerns no rank is left out. Steps are those of the run."""
    if ranks is None:
        return {}
    late, another, experts, link = the_straggler(ranks), another_straggler(ranks), worst_experts(ranks), slow_link(ranks)
    stage = slowest_stage(ranks.pipeline.stages) if ranks.pipeline else None
    rotating = max((one for one in ranks.late if one.pattern == "rotating"), key=lambda one: one.wait_ns, default=None)
    tail = max(ranks.tail, key=lambda one: (one.tail_ns, -one.rank), default=None)
    found: dict[str, Iterable[int]] = {
        "straggler": () if late is None or late.rank is None else (late.rank, *late_with(ranks)),
        "another": () if another is None or another.rank is None else (another.rank, *another.alike),
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
