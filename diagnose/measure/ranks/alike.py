"""Which ranks hold the same part of the model: only those are compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from diagnose.document.ranks import LikeGroup
from diagnose.knowledge.buckets import Buckets
from diagnose.measure.ranks.members import Member, Mesh

TOLERANCE = 0.1  # counts of kernels that differ by less are alike; this project's choice


def like_groups(members: Sequence[Member], mesh: Mesh | None, buckets: Buckets) -> tuple[tuple[LikeGroup, ...], Mapping[int, str]]:
    """The groups, and by a member's place the group that it is in. By pipeline stage where the job tells, else by what the ranks run."""
    by: Literal["job", "fingerprint"]
    staged = mesh is not None and all(member.rank.rank < mesh.world for member in members)
    by, keys = ("job", _by_stage(members, mesh)) if staged and mesh is not None else ("fingerprint", _by_fingerprint(members, buckets))
    pools: dict[int, list[Member]] = defaultdict(list)
    for member, key in zip(members, keys, strict=True):
        pools[key].append(member)
    groups: list[LikeGroup] = []
    of: dict[int, str] = {}
    for number, (key, own) in enumerate(sorted(pools.items())):
        name = f"stage {key}" if by == "job" and mesh is not None and mesh.pipeline > 1 else _letter(number)
        groups.append(
            LikeGroup(
                id=name,
                ranks=tuple(member.rank.rank for member in own),
                stage=key if by == "job" else None,
                by=by,
                holds=_holds(own, buckets),
            )
        )
        of |= {member.place: name for member in own}
    return tuple(groups), of


def _letter(number: int) -> str:
    """The name of the `number`-th group: A to Z, then A1 to Z1, and so on."""
    return chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")


def _by_stage(members: Sequence[Member], mesh: Mesh) -> list[int]:
    return [mesh.stage(member.rank.rank) for member in members]


def _by_fingerprint(members: Sequence[Member], buckets: Buckets) -> list[int]:
    """Like ranks run certain buckets or not (embedding, loss, experts), and about as many kernels in a step of certain others (attention).

    The file buckets.yaml says which.
    """
    held = [bucket for bucket, spec in buckets.items() if spec.alike == "held"]
    counted = [bucket for bucket, spec in buckets.items() if spec.alike == "counted"]
    found: list[tuple[tuple[bool, ...], tuple[int, ...]]] = []
    keys = []
    for member in members:
        counts = member.kernels
        has = tuple(counts.get(bucket, 0) > 0 for bucket in held)
        numbers = tuple(counts.get(bucket, 0) for bucket in counted)
        same = (place for place, (kept, others) in enumerate(found) if kept == has and _near(numbers, others))
        place = next(same, None)
        if place is None:
            place = len(found)
            found.append((has, numbers))
        keys.append(place)
    return keys


def _near(numbers: Sequence[int], others: Sequence[int]) -> bool:
    return all(abs(mine - theirs) <= TOLERANCE * max(mine, theirs) for mine, theirs in zip(numbers, others, strict=True))


def _holds(members: Sequence[Member], buckets: Buckets) -> str:
    """What the group's ranks run, in words."""
    seen = {bucket for member in members for bucket, count in member.kernels.items() if count}
    parts = sorted((spec.part.order, spec.part.words) for bucket, spec in buckets.items() if spec.part is not None and bucket in seen)
    words = [text for _, text in parts]
    return ", ".join(words) if words else "none of the model's own parts"
