"""What the lateness of ranks is judged by: all members, their own times, which devices are slow, and what else is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field

from diagnose.document.ranks import ExpertImbalance
from diagnose.knowledge.buckets import Buckets
from diagnose.measure.ranks.groups import Slowness
from diagnose.measure.ranks.matching import Clocks
from diagnose.measure.ranks.members import Member
from diagnose.measure.ranks.schedule import Schedule
from diagnose.measure.ranks.transfers import OwnTimes


class Background(Struct, frozen=True, kw_only=True, dict=True):
    """What is known of all members and, by place: own times, those with a slow device, like groups; and experts, clocks, buckets in use.

    `begun`: by place, the first step of a capture that began late: waiting there is for the capture. `schedule` of the pipeline; None:
    there is none, or it is not known. `transfers`: by place, transfer per step in groups of which all
    members were captured: in others it may hold waiting for one that was not; None: all were.
    """

    members: Sequence[Member]
    own: Mapping[int, OwnTimes]
    slow: Mapping[int, Slowness]
    alike: Mapping[int, str]
    experts: Sequence[ExpertImbalance]
    clocks: Clocks
    buckets: Buckets
    schedule: Schedule | None = None
    transfers: Mapping[int, int] | None = None
    begun: Mapping[int, int] = field(default_factory=dict)

    def transfer(self, place: int) -> int:
        """What a member surely transfers, ns per step."""
        return self.own[place].transfer_ns if self.transfers is None else self.transfers[place]

    @cached_property
    def launchless(self) -> frozenset[int]:
        """Places of those whose captures lost their launches while most others have theirs: what held them up is not known."""
        without = frozenset(member.place for member in self.members if not member.launches)
        return without if 2 * len(without) < len(self.members) else frozenset()

    @cached_property
    def _stages(self) -> Mapping[int, int | None]:
        """By place, a member's stage; empty where the schedule is not known."""
        return {} if self.schedule is None else {member.place: self.schedule.of.get(member.rank.rank) for member in self.members}

    def likes(self, place: int, fallback: Sequence[Member]) -> list[int]:
        """Places of the other members of the same like group and stage; those of `fallback` where it is alone in it."""
        mine = self.alike[place], self._stages.get(place)
        found = [other for other, group in self.alike.items() if (group, self._stages.get(other)) == mine and other != place]
        return found or [member.place for member in fallback]
