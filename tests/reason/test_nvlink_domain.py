"""How many ranks NVLink joins, by the platform and by the hosts of the captured ranks."""

from __future__ import annotations

import pytest

from diagnose.knowledge.rulebook import load_rulebook
from diagnose.reason.conclude import _domain
from tests.builders.ranks import ranks, survey

PLATFORMS = load_rulebook().platforms.platforms


@pytest.mark.parametrize(
    ("hosts", "size"),
    [
        ({0: "host 0", 7: "host 0", 8: "host 1"}, 8),  # full nodes
        ({0: "host 0", 3: "host 0", 4: "host 1"}, 4),  # nodes of four GPUs
        ({0: "host 0", 4: "host 1"}, 4),  # at most four: between 0 and 4 a node ends
        ({0: "host 0", 1: "host 0", 2: "host 1", 3: "host 1"}, 2),
        ({0: "host 0", 1: "host 1"}, 1),
        ({0: "host 0", 1: "unknown"}, 8),  # not told
    ],
)
def test_hosts_of_captured_ranks_limit_it(hosts: dict[int, str], size: int) -> None:
    captured = ranks(survey=tuple(survey(rank, host=host) for rank, host in hosts.items()))
    assert _domain(PLATFORMS["h100"], captured) == size


def test_it_is_the_platforms_where_nvlink_joins_hosts_or_one_rank_was_captured() -> None:
    trays = ranks(survey=tuple(survey(rank, host=f"host {rank // 4}") for rank in range(8)))
    assert (_domain(PLATFORMS["gb200"], trays), _domain(PLATFORMS["h100"], None)) == (72, 8)
    assert (_domain(PLATFORMS["mi300x"], trays), _domain(None, trays)) == (None, None)
