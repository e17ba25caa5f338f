"""What runs in a vision encoder: how long, what its kernels do by their names, and how long the device idles between them.

The bucket takes all of a tower, whatever its kernels are; here they are told apart by the operation that their names stand for. *Busy* is
the union of its operations, *alone* when nothing else ran on the device. *Idle*: the device did nothing between an operation of the encoder
and the next one, which is the encoder's too; where that is long the encoder is fed too slowly. All of it is the mean over the steps.
"""

from __future__ import annotations

import polars as pl

from diagnose.document.device import VisionPart, VisionPass
from diagnose.model.intervals import covered, lasting, merge
from diagnose.model.vocabulary import PHASES, VISION_ENCODER, Phase


def vision_encoder(inside: pl.DataFrame, classes: pl.DataFrame, steps: int) -> tuple[VisionPass, ...]:
    """The phases of one device's encoder in the order of `PHASES`, what no phase is known of last; none where no encoder ran.

    `inside`: operations in steps, with index; `classes`: class_id, operation; `steps`: how many there are.
    """
    if not (inside["bucket"] == VISION_ENCODER).any():
        return ()
    mine = pl.col("bucket") == VISION_ENCODER
    reach = pl.col("end").cum_max().shift(1).over("index")
    follows = mine.shift(1).over("index").fill_null(value=False)
    pause = pl.when(follows).then((pl.col("start") - reach).clip(lower_bound=0)).otherwise(0)
    ops = (
        inside.select("index", "start", "end", "class_id", "phase", "bucket")
        .sort("index", "start", "end")
        .with_columns(pause.alias("pause"))
        .filter(mine)
        .join(classes.select("class_id", "operation"), on="class_id", how="left", maintain_order="left")
    )
    others = merge(inside.filter(~mine))
    phases = ((phase, ops.filter(pl.col("phase").cast(pl.String).eq_missing(pl.lit(phase, dtype=pl.String)))) for phase in (*PHASES, None))
    return tuple(_pass(phase, part, others, steps) for phase, part in phases if not part.is_empty())


def _pass(phase: Phase | None, ops: pl.DataFrame, others: pl.DataFrame, steps: int) -> VisionPass:
    """The encoder's operations of one phase, per step; `others`: when anything else ran."""
    pieces = merge(ops, ["index"])
    length = lasting.sum().alias("busy_ns")
    busy_ns = int(pieces.select(length).item())
    busy = merge(ops, ["operation", "index"]).group_by("operation").agg(length)
    parts = ops.group_by("operation").len("kernels").join(busy, on="operation").sort("busy_ns", "operation", descending=[True, False])
    return VisionPass(
        phase=phase,
        kernels=round(ops.height / steps, 1),
        busy_ns=round(busy_ns / steps),
        alone_ns=round((busy_ns - int(covered(pieces, others).sum())) / steps),
        idle_ns=round(int(ops["pause"].sum()) / steps),
        parts=tuple(
            VisionPart(operation=operation, kernels=round(kernels / steps, 1), busy_ns=round(ran_ns / steps))
            for operation, kernels, ran_ns in parts.select("operation", "kernels", "busy_ns").iter_rows()
        ),
    )
