"""What runs in the vision encoder as a table: its phases, and in each what its kernels do by their names."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document.device import VisionPass
from diagnose.document.diagnosis import Diagnosis
from diagnose.model.vocabulary import VISION_ENCODER
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.reports.diagnosis.tables import device_label, mean_per

UNKNOWN = "phase not known"


def table(document: Diagnosis) -> r.Table:
    """The phases one below the other, each with its kinds of operation; empty where no vision encoder ran."""
    found = document.vision
    passes = () if found is None else found.passes
    longest = max((part.busy_ns for one in passes for part in one.parts), default=0)
    where = "" if found is None else f" · {device_label(found.rank, found.device)}"
    return r.Table(
        "inside-vision",
        f"Inside the vision encoder{where}",
        tuple(row for one in passes for row in _rows(one, longest)),
        note=f"{mean_per(document).capitalize()}; operations by what their kernels' names stand for. Alone: nothing else ran on the GPU. Idle: the GPU did nothing between two operations of the encoder.",
        empty="no vision encoder ran",
        whole=True,
    )


def _rows(one: VisionPass, longest: int) -> Iterator[r.Row]:
    """The phase as a whole, then its kinds of operation, longest first."""
    whole = _texts(one.phase or UNKNOWN, one.busy_ns, one.kernels, units.ms(one.alone_ns), units.ms(one.idle_ns))
    yield r.Row(whole, strong=True)
    for part in one.parts:
        bar = part.busy_ns / longest if longest else None
        texts = _texts(part.operation.replace("_", " "), part.busy_ns, part.kernels, "", "")
        yield r.Row(texts, indent=1, bar=bar, colour=words.bucket_colour(VISION_ENCODER))


def _texts(name: str, busy_ns: int, kernels: float, alone: str, idle: str) -> dict[str, str]:
    return {"operations": name, "#busy, ms": units.ms(busy_ns), "#kernels": units.count(kernels), "#alone, ms": alone, "#idle, ms": idle}
