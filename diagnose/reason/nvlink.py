"""How far NVLink reaches in this job: by the platform's table and the hosts of the captured ranks."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from diagnose.document.ranks import UNKNOWN_HOST, Ranks
from diagnose.knowledge.platforms import Platform


def nvlink_domain(platform: Platform | None, ranks: Ranks | None) -> int | None:
    """How many ranks NVLink joins: as many as the platform's, fewer where hosts of the captured ranks hold fewer (nodes of four GPUs).

    Nodes are filled in order of rank. Where NVLink joins hosts (GB200), they tell nothing. None where the platform's is not known, and
    where neighbours lie on two hosts: ranks are dealt over the nodes in turn, or each GPU has a container, a host by name, of its own.
    """
    domain = None if platform is None else platform.nvlink_domain
    if platform is None or domain is None or domain > (platform.gpus_per_node or 0) or ranks is None:
        return domain
    placed = {one.rank: one.host for one in ranks.survey if one.host != UNKNOWN_HOST}
    return next((size for size in range(domain, 1, -1) if domain % size == 0 and _holds_whole(placed, size)), None)


def with_links(ranks: Ranks, platform: Platform | None) -> Ranks:
    """The comparison with NVLink's speed beside each bandwidth that was reached inside one domain; other links are not told."""
    domain = nvlink_domain(platform, ranks)
    if platform is None or domain is None:
        return ranks
    exchanges = [
        structs.replace(one, link_gb_s=platform.nvlink_gb_per_s)
        if one.bus_gb_s is not None and len({rank // domain for rank in one.ranks}) == 1
        else one
        for one in ranks.exchanges
    ]
    return structs.replace(ranks, exchanges=tuple(exchanges))


def _holds_whole(placed: Mapping[int, str], size: int) -> bool:
    """Whether no block of so many consecutive ranks lies on two hosts."""
    return len({(rank // size, host) for rank, host in placed.items()}) == len({rank // size for rank in placed})
