"""What an exchange takes with a library that takes it over: from bytes, links, published bandwidths.

Tokens are counted in rows (one token's vector) that leave a rank, for tokens that choose their experts evenly. An all-to-all sends a row
per expert. A library sends one to each node that a token's experts lie on, where it is sent on over NVLink to each rank that needs it;
both at once, so that the slower takes the time. The nodes are NVLink domains.
"""

from __future__ import annotations

from msgspec import Struct

from diagnose.job.model import positive
from diagnose.knowledge.platforms import ExchangeLibrary, Platform
from diagnose.reason.context import Context

ITEM_BYTES = 2  # of a token's element on the wire: BF16
LARGEST = 1.05  # of its link's bandwidth: an all-to-all that reaches more is not the one that the job file tells of
LEAST = 0.05  # and below this


class TakenOver(Struct, frozen=True, kw_only=True):
    """Factors on an exchange's length at the best, the likely and the worst end, and how the likely one comes about, as a sentence."""

    by: tuple[float, float, float]
    how: str


class Rows(Struct, frozen=True, kw_only=True):
    """Rows that leave a rank per token of it, between nodes and over NVLink: `before` by an all-to-all, `after` by a library."""

    nodes: float
    network_before: float
    network_after: float
    nvlink_before: float
    nvlink_after: float


def rows_of(*, ranks: int, domain: int, experts: int, groups: int | None = None, of_groups: int | None = None) -> Rows:
    """The rows for `experts` per token among `ranks`, `domain` of which share NVLink; a token may be held to `of_groups` of `groups`."""
    inside = min(ranks, domain)
    nodes = max(1.0, ranks / domain)
    allowed = nodes if not groups or not of_groups else min(nodes, of_groups * max(1.0, nodes / groups))
    reached_nodes, reached_ranks = _distinct(allowed, experts), _distinct(ranks * allowed / nodes, experts)
    return Rows(
        nodes=nodes,
        network_before=experts * (1 - 1 / nodes),
        network_after=reached_nodes * (1 - 1 / nodes),
        nvlink_before=experts / nodes * (1 - 1 / inside),
        nvlink_after=reached_ranks * (1 - 1 / inside),
    )


def _distinct(places: float, draws: int) -> float:
    """How many of `places` are drawn at least once, on average."""
    return places * (1 - (1 - 1 / places) ** draws) if places > 1 else 1.0


def taken_over(library: str, context: Context) -> TakenOver | None:
    """What becomes of the exchange of this job; None where its links, its layout or its bytes are not known."""
    book = context.rulebook.platforms
    named, known = context.values.get("platform"), book.exchange_libraries[library]
    platform = book.platforms.get(named) if isinstance(named, str) else None
    domain = context.values.get("nvlink_domain")
    if platform is None or not isinstance(domain, int) or not domain or not platform.nvlink_gb_per_s:
        return None
    return _pushed(known, platform, domain, context) if known.port is None else _tokens(known, platform, domain, context)


def _pushed(known: ExchangeLibrary, platform: Platform, domain: int, context: Context) -> TakenOver | None:
    """Gathered and scattered tensors between tensor-parallel ranks: of each the share that the others have moves over NVLink."""
    ranks, row, took = _whole(context, "tensor_model_parallel_size"), _row_bytes(context), context.values.get("tensor_parallel_typical_ns")
    link = platform.nvlink_gb_per_s or 0.0
    if not ranks or not 1 < ranks <= domain or not isinstance(took, int) or not took or row is None:
        return None
    reached = row * (ranks - 1) / took  # a rank's own tokens are row; each of the others has as many
    if not LEAST * link <= reached <= LARGEST * link:
        return None
    shares = known.nvlink_of(platform)
    best, likely, worst = (min(1.0, reached / (share * link)) for share in shares)
    told = f"Here the collectives reach {reached:.0f} of {link:g} GB/s, user buffers likely {max(shares[1] * link, reached):.0f}."
    return TakenOver(by=(best, likely, worst), how=told)


def _tokens(known: ExchangeLibrary, platform: Platform, domain: int, context: Context) -> TakenOver | None:
    """Tokens on their way to experts and back."""
    rows, row, took = _rows(domain, context), _row_bytes(context), context.values.get("expert_exchange_typical_ns")
    nvlink = platform.nvlink_gb_per_s or 0.0
    if rows is None or row is None or not isinstance(took, int) or not took:
        return None
    between = rows.nodes > 1
    link = platform.network_gb_per_s if between else nvlink
    if link is None:
        return None
    before, after = (rows.network_before, rows.network_after) if between else (rows.nvlink_before, rows.nvlink_after)
    book, backend = context.rulebook.platforms, context.values.get("expert_exchange_backend")
    present = book.exchange_libraries.get(backend) if isinstance(backend, str) else None
    if present is not None:  # a library sends each token once already
        before = after
    moves = _without_waiting(took, before * row / (LARGEST * link), context) if between and present is None else took
    reached = before * row / moves  # bytes per ns are GB/s
    if not LEAST * link <= reached <= LARGEST * link:
        return None
    shares = known.nvlink_of(platform)
    if between:  # at best what it seems to wait is uneven work, which is moved faster too
        best, likely, worst = _between(rows, row, (link, nvlink), known, shares, reached)
        best, likely, worst = best * took / moves, likely + took - moves, worst + took - moves
    else:
        # what takes longer than the link explains is waiting for others, which stays; of a library likely what its slowest kernels explain
        _, usual, slow = (book.all_to_all_nvlink,) * 3 if present is None else present.nvlink_of(platform)
        best, likely, worst = (after * row / (share * link) for share in shares)
        likely, worst = (took_so + max(0.0, took - before * row / (share * link)) for took_so, share in ((likely, slow), (worst, usual)))
    way = f"between {rows.nodes:g} nodes" if between else "over NVLink"
    instead = f" in place of {before:.1f}" if present is None else ""
    network = after * row / min(reached, (known.port or shares)[1] * link)
    alone = "" if moves == took else " where it hardly waits"
    inside = ", slowed by what is sent on inside them" if between and likely > network else ""
    return TakenOver(
        by=(best / took, likely / took, worst / took),
        how=f"Here {after:.1f} copies of a token leave its rank {way}{instead}; the present exchange reaches "
        f"{reached:.0f} of {link:g} GB/s{alone}: {100 * (likely / took):.0f} % of its time{inside}.",
    )


def _without_waiting(took: int, least: float, context: Context) -> int:
    """Of the usual length of an exchange what it takes where it hardly waits for others, ns; `least`: what its bytes take at least."""
    shortest = context.values.get("expert_exchange_shortest_ns")
    return shortest if isinstance(shortest, int) and least <= shortest < took else took


def _rows(domain: int, context: Context) -> Rows | None:
    """The rows of a job's tokens; None where its layout is not known, has no exchange, or cuts experts."""
    ranks, experts = (_whole(context, name) for name in ("expert_model_parallel_size", "moe_router_topk"))
    if not ranks or not experts or ranks == 1 or (_whole(context, "expert_tensor_parallel_size") or 1) > 1:
        return None
    groups, of_groups = (_whole(context, name) for name in ("moe_router_num_groups", "moe_router_group_topk"))
    return rows_of(ranks=ranks, domain=domain, experts=experts, groups=groups, of_groups=of_groups)


def _between(
    rows: Rows,
    row: float,
    links: tuple[float, float],
    known: ExchangeLibrary,
    inside: tuple[float, float, float],
    reached: float,
) -> tuple[float, float, float]:
    """Ns of an exchange between nodes at the three ends. Likely it gets no more of the network than the all-to-all does here.

    `links`: GB/s of the port and of NVLink; `inside`: the shares of NVLink that the library reaches at the three ends.
    """
    port, nvlink = links
    relays = known.relay or (nvlink, nvlink, nvlink)
    best, likely, worst = (share * port for share in known.port or inside)
    slower = min(reached, likely)
    rates = (max(best, slower), slower, slower * worst / likely)
    low, middle, high = (
        max(rows.network_after * row / rate, rows.nvlink_after * row / min(relay, share * nvlink))
        for rate, relay, share in zip(rates, relays, inside, strict=True)
    )
    return low, middle, high


def _whole(context: Context, setting: str) -> int | None:
    return positive(context.values.get(f"job_{setting}"))


def _row_bytes(context: Context) -> float | None:
    """Bytes of one row for each of a rank's tokens; None where the job does not tell how many it has."""
    length, batch, hidden = (_whole(context, name) for name in ("seq_length", "micro_batch_size", "hidden_size"))
    split = (_whole(context, "context_parallel_size") or 1) * (_whole(context, "tensor_model_parallel_size") or 1)
    if not length or not batch or not hidden:
        return None
    return length * batch / split * hidden * ITEM_BYTES
