"""How many ranks NVLink joins, by the platform and by the hosts of the captured ranks, and which exchanges are held against its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from diagnose.document.ranks import MatchedExchange, Ranks
from diagnose.knowledge.load import load_rulebook
from diagnose.reason.nvlink import nvlink_domain, with_links
from tests.builders.cases import for_each
from tests.builders.ranks import exchange, ranks, survey

PLATFORMS = load_rulebook().platforms.platforms


def on_hosts(hosts: Mapping[int, str], exchanges: Sequence[MatchedExchange] = ()) -> Ranks:
    """Captured ranks on their hosts."""
    return ranks(survey=tuple(survey(rank, host=host) for rank, host in hosts.items()), exchanges=tuple(exchanges))


@for_each(
    "hosts, size",
    ({0: "host 0", 7: "host 0", 8: "host 1"}, 8),  # full nodes
    ({0: "host 0", 3: "host 0", 4: "host 1"}, 4),  # nodes of four GPUs
    ({0: "host 0", 4: "host 1"}, 4),  # at most four: between 0 and 4 a node ends
    ({0: "host 0", 1: "host 0", 2: "host 1", 3: "host 1"}, 2),
    ({0: "host 0", 1: "host 1"}, None),  # containers, or GPUs each on its own
    ({0: "host 0", 1: "host 1", 2: "host 0", 3: "host 1"}, None),  # dealt in turn
    ({0: "host 0", 1: "unknown"}, 8),  # not told
)
def test_hosts_of_captured_ranks_limit_it(hosts: dict[int, str], size: int | None) -> None:
    assert nvlink_domain(PLATFORMS["h100"], on_hosts(hosts)) == size


def test_it_is_the_platforms_where_nvlink_joins_hosts_or_one_rank_was_captured() -> None:
    trays = on_hosts({rank: f"host {rank // 4}" for rank in range(8)})
    assert (nvlink_domain(PLATFORMS["gb200"], trays), nvlink_domain(PLATFORMS["h100"], None)) == (72, 8)
    assert (nvlink_domain(PLATFORMS["mi300x"], trays), nvlink_domain(None, trays)) == (None, None)


@for_each(
    "platform, per_host, links",
    ("h100", 8, (450.0, 450.0, None)),
    ("h100", 4, (450.0, None, None)),  # ranks 0 to 7 lie on two hosts
    ("h100", 1, (None, None, None)),
    ("gb200", 4, (900.0, 900.0, None)),
    ("mi300x", 8, (None, None, None)),  # its links are not NVLink
)
def test_bandwidth_is_held_against_nvlink_inside_a_domain_alone(platform: str, per_host: int, links: tuple[float | None, ...]) -> None:
    reached = [structs.replace(exchange(members), bus_gb_s=100.0) for members in (range(4), range(8), range(64, 80))]
    found = with_links(on_hosts({rank: f"host {rank // per_host}" for rank in range(16)}, reached), PLATFORMS[platform])
    assert tuple(one.link_gb_s for one in found.exchanges) == links


def test_no_bandwidth_no_link() -> None:
    found = with_links(on_hosts({0: "host 0", 1: "host 0"}, [exchange(range(2))]), PLATFORMS["h100"])
    assert found.exchanges[0].link_gb_s is None
