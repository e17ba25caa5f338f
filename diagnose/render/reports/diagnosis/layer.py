"""One mixture-of-experts layer as a table.

How long each part of its pass takes, forward and backward, how much of that is exposed, and the spread.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document.device import LayerPass
from diagnose.document.diagnosis import Diagnosis
from diagnose.model.vocabulary import DISPATCH, EXPERT_GEMM, MOE_PARTS, ROUTER
from diagnose.render import report as r
from diagnose.render import units, words

_PERMUTE, _UNPERMUTE = "#e8c07d", "#c9a66b"  # packing is no bucket of its own
COLOUR = dict(
    zip(
        MOE_PARTS,
        (words.bucket_colour(ROUTER), _PERMUTE, words.bucket_colour(DISPATCH), words.bucket_colour(EXPERT_GEMM), "#a63603", _UNPERMUTE),
        strict=True,
    )
)
ONLY = "forward and backward"  # where nothing tells them apart


def table(document: Diagnosis) -> r.Table:
    """The passes one below the other, each with its parts; empty where no experts ran."""
    passes = () if document.moe_layer is None else document.moe_layer.passes
    longest = max((part.busy_ns for one in passes for part in one.parts), default=0)
    rows = [row for one in passes for row in _rows(one, longest)]
    inferred = any(one.status == "inferred" for one in passes)
    doubt = " Passes overlap or are not told apart everywhere: taken by their order, which is inferred." if inferred else ""
    return r.Table(
        "moe-layer",
        "One MoE layer",
        tuple(rows),
        note=f"Mean over layers and micro-batches; the spread is over them. Exposed: nothing else ran on the GPU. Backward runs the other way.{doubt}",
        empty="no experts ran",
        whole=True,
    )


def _rows(one: LayerPass, longest: int) -> Iterator[r.Row]:
    """The pass as a whole, then its parts in the order in which they run."""
    name = ONLY if one.phase is None else one.phase
    exposed = sum(part.exposed_ns for part in one.parts)
    whole = (f"{name}, {units.plural(one.passes, 'pass', 'passes')} per step", units.ms(one.span_ns), units.ms(exposed))
    yield r.Row(_texts(*whole, _between(one.span_min_ns, one.span_max_ns)), strong=True)
    for part in one.parts:
        texts = _texts(part.part, units.ms(part.busy_ns), units.ms(part.exposed_ns), _between(part.busy_min_ns, part.busy_max_ns))
        yield r.Row(texts, indent=1, bar=part.busy_ns / longest if longest else None, colour=COLOUR[part.part])


def _texts(name: str, busy: str, exposed: str, spread: str) -> dict[str, str]:
    return {"part": name, "#busy, ms": busy, "#exposed, ms": exposed, "#spread": spread}


def _between(low: int, high: int) -> str:
    return f"{units.ms(low)} to {units.ms(high)}"
