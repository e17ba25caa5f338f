"""The tables of a report, the same in every output: each function reads one part of the Diagnosis and returns one `Table`.

Cells are plain text that may come from a trace: it is each output's duty to make it harmless.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import PurePosixPath, PureWindowsPath

from diagnose.document.device import BucketTime, Communication, DeviceBudget, LayerPass, StepBudget, VisionPass, of_device, on_device
from diagnose.document.diagnosis import Diagnosis, WallBound
from diagnose.document.ranks import Ranks
from diagnose.model.statistics import integer_median
from diagnose.model.vocabulary import DISPATCH, EXPERT_GEMM, MOE_PARTS, ROUTER, VISION_ENCODER
from diagnose.reason.context import window_of
from diagnose.render import units, words
from diagnose.render.report import Row, Table, rows_of

# --- what the figures are per -----------------------------------------------------------------------------------------


def per(document: Diagnosis) -> str:
    """`per step`, `per iteration` or `per capture`, as `whole` has it."""
    return f"per {whole(document)}"


def mean_per(document: Diagnosis) -> str:
    """`mean per step`, or `per capture`."""
    return f"{'' if document.steps.anchor == 'capture' else 'mean '}{per(document)}"


def whole(document: Diagnosis) -> str:
    """What a share is of: the step (an iteration, where nothing trains), or the capture where nothing cut it into steps."""
    return window_of(document)


def device_label(rank: int, device: int) -> str:
    """How a device is called everywhere."""
    return f"rank {rank}, device {device}"


def focus(document: Diagnosis) -> DeviceBudget | None:
    """The device that walls, facts and findings speak of."""
    first = document.budget[0] if document.budget else None
    return of_device(document.budget, (document.verdict.rank, document.verdict.device)) or first


def usual(budget: DeviceBudget) -> StepBudget | None:
    """The mean figures of a device, or its only step."""
    if budget.mean is not None:
        return budget.mean
    return budget.per_step[0] if len(budget.per_step) == 1 else None


def file_label(name: str) -> str:
    """A file's own name, without the folders that would tell about somebody's machine."""
    return PureWindowsPath(PurePosixPath(name).name).name


# --- walls and budget -------------------------------------------------------------------------------------------------


def wall_ceiling(wall: str, share: float | None) -> float | None:
    """Step / (step − bound); None for compute, whose bound is the time it was active and not a saving."""
    if share is None or not words.VOCABULARY.is_ceiling(wall):
        return None
    return float("inf") if share >= 1 else 1 / (1 - share)


def known_parts(wall: WallBound) -> int | None:
    """Sum of the measured parts of a bound that could not be measured as a whole; None where it was, or where no part was."""
    known = [value for value in wall.parts.values() if value is not None]
    return sum(known) if wall.bound_ns is None and known else None


def shown_parts(parts: dict[str, int | None]) -> list[tuple[str, int | None]]:
    """The parts of a bound without those of 0 ms; what was not measured stays.

    `rest` is what the bound holds beyond its parts. Below a hundredth of the whole it is left out.
    """
    whole = sum(value for value in parts.values() if value is not None)
    return [
        (name, value)
        for name, value in parts.items()
        if value != 0 and not (name == "rest" and value is not None and abs(value) * 100 < whole)
    ]


def wall_mark(name: str, document: Diagnosis) -> str:
    """What the verdict calls a wall, in a word or two; empty where it names others."""
    found = document.verdict
    if name == found.target_wall:
        return "first target"
    return "largest share" if name == found.dominant_wall else "runner-up" if name == found.runner_up else ""


def walls(document: Diagnosis) -> Table:
    """The four walls with their bounds and what they are made of."""
    rows = []
    for wall in document.walls:
        parts = [f"{words.part(name)} {units.ms(value)}" for name, value in shown_parts(wall.parts)]
        least = known_parts(wall)
        parts = [f"known parts {units.ms(least)}: {', '.join(parts)}"] if least is not None else parts
        beside = [f"{words.part(name)} {units.ms(value)}" for name, value in shown_parts(wall.beside) if value is not None]
        mark = wall_mark(wall.wall, document)
        texts = {
            "wall": words.wall(wall.wall),
            "verdict": mark,
            "#≤ ms": (units.ms(wall.bound_ns) if wall.lower_ns is None else f"{units.ms(wall.lower_ns)} to {units.ms(wall.bound_ns)}"),
            f"#of {whole(document)}": units.percent(wall.share),
            "#≤ faster": units.factor(wall_ceiling(wall.wall, wall.share)),
            "status?": wall.status,
            "made of (ms)": ", ".join(parts) + (f"; to compare: {', '.join(beside)}" if beside else ""),
        }
        rows.append(Row(texts, strong=wall.wall == document.verdict.target_wall, bar=wall.share))
    return Table(
        "walls",
        "Walls",
        tuple(rows),
        note=f"Bounds {per(document)}: the most that removing a wall could give back, no forecast; they do not add up. Compute: the time it was active, not a saving.",
    )


# label, the budget's field, indent, whether strong
_BUDGET_ROWS: tuple[tuple[str, str, int, bool], ...] = (
    ("step", "window_ns", 0, True),
    ("compute active", "compute_busy_ns", 1, True),
    ("no compute running", "compute_absent_ns", 1, True),
    ("launch-bound", "launch_starved_ns", 2, False),
    ("next kernel not launched", "host_work_ns", 3, False),
    ("CPU synchronisation", "host_sync_ns", 3, False),
    ("allocator calls", "allocator_ns", 3, False),
    ("stalled", "blocking_ns", 2, False),
    ("on communication", "blocking_transport_ns", 3, False),
    ("on permute/unpermute", "blocking_packing_ns", 3, False),
    ("on copies", "blocking_copy_ns", 3, False),
    ("waiting, cause unknown", "dependency_stalled_ns", 2, False),
    ("GPU busy", "device_busy_ns", 0, True),
    ("GPU idle", "device_idle_ns", 0, True),
    ("communication and permute", "communication_busy_ns", 1, False),
    ("exposed", "communication_exposed_ns", 2, False),
    ("communication only", "transport_busy_ns", 1, False),
    ("exposed", "transport_exposed_ns", 2, False),
    ("permute/unpermute", "packing_busy_ns", 1, False),
    ("exposed", "packing_exposed_ns", 2, False),
    ("copies", "copy_busy_ns", 1, False),
    ("exposed", "copy_exposed_ns", 2, False),
)
_BUDGET_NOTE = (
    "Unions over all streams. Launch-bound + stalled + cause unknown = no compute running, and GPU busy + GPU idle = step, exactly and in every step. "
    "Exposed: with nothing else running. Means add up; medians do not."
)


def unmeasured(document: Diagnosis) -> frozenset[str]:
    """Budget fields whose fact says that they could not be measured; without launches their causes are unknown too."""
    missing = {name for name, fact in document.facts.items() if fact.value is None}
    return frozenset(missing | {"allocator_ns", "host_sync_ns", "host_work_ns"} if "launch_starved_ns" in missing else missing)


def budget(document: Diagnosis, device: DeviceBudget) -> Table:
    """The budget of one device: mean, median, minimum and maximum over its steps."""
    steps, middle, missing = device.per_step, usual(device), unmeasured(document)
    window = middle.window_ns if middle else None
    rows = []
    for label, name, indent, strong in _BUDGET_ROWS:
        known = [] if name in missing else [int(getattr(step, name)) for step in steps]
        value = int(getattr(middle, name)) if middle and name not in missing else None
        share = value / window if value is not None and window else None
        texts = {
            "figure": label,
            "#mean ms": units.ms(value),
            f"#of {whole(document)}": units.percent(share),
            "#median ms?": units.ms(integer_median(known) if known else None),
            "#min ms": units.ms(min(known, default=None)),
            "#max ms": units.ms(max(known, default=None)),
        }
        rows.append(Row(texts, indent=indent, strong=strong, bar=share))
    split = "whole capture" if document.steps.anchor == "capture" else units.plural(len(steps), "step")
    return Table(
        f"budget-{device.rank}-{device.device}",
        f"Budget · {device_label(device.rank, device.device)} · {split}",
        tuple(rows),
        note=_BUDGET_NOTE,
    )


def shown_segments(steps: Sequence[StepBudget]) -> tuple[words.Segment, ...]:
    """The segments of which some step has any."""
    return tuple(segment for segment in words.SEGMENTS if any(segment.of(step) for step in steps))


# --- buckets and communication ----------------------------------------------------------------------------------------


def _shares(parts: dict[str, float]) -> str:
    whole = sum(parts.values())
    largest = sorted(parts.items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{words.words(name)} {units.percent(value / whole, 0)}" for name, value in largest if value and whole)


def _phases(phase: dict[str, int]) -> str:
    """Shares of work by phase, in the order of a step; what could not be told is named unless nothing could."""
    whole = sum(phase.values())
    known = [(label, phase.get(name, 0)) for name, label in words.PHASE.items()]
    if not whole or not any(value for _, value in known if _ != "?"):
        return units.MISSING
    return ", ".join(f"{label} {units.percent(value / whole, 0)}" for label, value in known if value)


def bucket_order(rows: Sequence[BucketTime]) -> list[BucketTime]:
    """By busy time, longest first."""
    return sorted(rows, key=lambda row: (-row.busy_ns, row.bucket))


def buckets(document: Diagnosis, rank: int, device: int) -> Table:
    """Which part of the model the device served."""
    mine = bucket_order(on_device(document.buckets, (rank, device)))
    longest = max((row.busy_ns for row in mine), default=0)
    speeds = {row.bucket: _speed(row, document) for row in mine}
    has_speed = any(speeds.values())
    return Table(
        f"buckets-{rank}-{device}",
        f"Buckets · {device_label(rank, device)}",
        tuple(
            Row(
                {
                    "bucket": words.bucket(row.bucket),
                    "#busy ms": units.ms(row.busy_ns),
                    "#exclusive ms": units.ms(row.exclusive_ns),
                    "#of work": units.percent(row.share),
                    "#kernels": units.count(row.kernels),
                    **({"#TFLOP/s": speeds[row.bucket] or units.MISSING} if has_speed else {}),
                    "phase?": _phases(row.phase),
                    "classified by": _shares(row.decided_by) or units.MISSING,
                },
                bar=row.busy_ns / longest if longest else None,
                colour=words.BUCKET_COLOUR.get(row.bucket, ""),
            )
            for row in mine
        ),
        note=f"{mean_per(document).capitalize()}. Busy is a union over streams; exclusive: with nothing else running. Buckets overlap in time, so neither adds up to the step. Of work: share of summed kernel time."
        + (_OF_PRODUCTS if has_speed else ""),
        empty="no device operation was classified",
    )


_OF_PRODUCTS = (
    " TFLOP/s: of matrix products whose shapes were recorded, while their kernels ran, where these are half of the bucket's work or more; in "
    "brackets the share of the dense peak of the precision in use, where that is known."
)


def _speed(row: BucketTime, document: Diagnosis) -> str:
    """How fast the matrix products of a bucket ran: `412 (42 %)`; empty where not most of its work is known to be products."""
    found = row.products
    if found is None or not found.ns or 2 * found.ns < row.work_ns:
        return ""
    rate, peak = found.flop / found.ns / 1e3, document.efficiency.peak_tflops if document.efficiency else None
    shown = f"{rate:,.{0 if rate >= 10 else 1}f}" if rate >= 0.1 else "< 0.1"
    return shown + (f" ({units.percent(rate / peak, 0)})" if peak else "")


def unclassified(document: Diagnosis) -> Table:
    """Kernels that no rule knows."""
    return Table(
        "unclassified",
        "Unclassified kernels",
        rows_of(
            {
                "$kernel": row.name,
                "#work ms": units.ms(row.work_ns),
                "#of work": units.percent(row.share, 2),
                "#kernels": units.count(row.kernels),
            }
            for row in document.unclassified
        ),
        note="Name them in a rules file and pass it with --rules; `diagnose kernel NAME` shows what is known. To begin with:",
        empty="every kernel is in a bucket",
        copy=snippet([row.name for row in document.unclassified], words.VOCABULARY.buckets),
    )


def communication_order(rows: Sequence[Communication]) -> list[Communication]:
    """By busy time, longest first."""
    return sorted(rows, key=lambda row: (-row.busy_ns, row.kind, row.backend))


AT_MOST = "≤: not all of the group were captured, so the transfer is an upper bound."


def _at_most(row: Communication, ranks: Ranks | None) -> bool:
    """Whether a row's transfer is an upper bound, since not all members of its groups were captured."""
    alike = () if ranks is None else ranks.exchanges
    return row.transfer_ns is not None and any(
        one.partial and row.rank in one.ranks and (one.kind, one.backend) == (row.kind, row.backend) for one in alike
    )


def _across(row: Communication, *, at_most: bool) -> dict[str, str]:
    """What only several ranks show."""
    matched = None if row.matched is None and row.unmatched is None else f"{units.count(row.matched)} / {units.count(row.unmatched)}"
    return {
        "#transfer ms?": f"{'≤ ' if at_most else ''}{units.ms(row.transfer_ns)}",
        "#wait ms?": units.ms(row.wait_ns),
        "#matched / not?": matched or units.MISSING,
    }


def communication(document: Diagnosis, rank: int, device: int) -> Table:
    """Communication by kind and backend."""
    mine = on_device(document.communication, (rank, device))
    across = any(row.transfer_ns is not None or row.wait_ns is not None for row in mine)
    return Table(
        f"communication-{rank}-{device}",
        f"Communication · {device_label(rank, device)}",
        rows_of(
            {
                "kind": words.COMM_KIND[row.kind],
                "backend": row.backend,
                "#count": units.count(row.count),
                "#busy ms": units.ms(row.busy_ns),
                "#exposed ms": units.ms(row.exposed_ns),
                "#stalls compute ms": units.ms(row.blocking_ns),
                "#hidden": units.percent(row.overlap),
                **(_across(row, at_most=_at_most(row, document.ranks)) if across else {}),
                "#work ms?": units.ms(row.work_ns),
            }
            for row in communication_order(mine)
        ),
        note="Only time that stalls compute makes a bottleneck; exposed time is its upper bound; busy time includes waiting for stragglers. Work: summed kernel time."
        + (f" {AT_MOST}" if any(_at_most(row, document.ranks) for row in mine) else ""),
        empty="no communication ran",
    )


def blocking(document: Diagnosis, rank: int, device: int) -> Table:
    """What compute was stalled on."""
    mine = on_device(document.blocking, (rank, device))
    return Table(
        f"blocking-{rank}-{device}",
        f"What compute was stalled on · {device_label(rank, device)}",
        rows_of(
            {
                "bucket": words.bucket(row.bucket),
                "role": words.part(row.role),
                "kind": units.MISSING if row.kind is None else words.COMM_KIND[row.kind],
                "#stalled ms": units.ms(row.blocking_ns),
                "status": row.status,
            }
            for row in sorted(mine, key=lambda row: (-row.blocking_ns, row.bucket, row.role))
        ),
        empty="compute was stalled on nothing that the trace records",
    )


def host(document: Diagnosis, rank: int, device: int) -> Table:
    """What the CPU did while compute was launch-bound."""
    mine = on_device(document.host, (rank, device))
    return Table(
        f"host-{rank}-{device}",
        f"What the CPU did while compute was launch-bound · {device_label(rank, device)}",
        rows_of(
            {
                "$call or range": row.name,
                "cause": words.HOST_CAUSE.get(row.cause, words.words(row.cause)),
                "#launch-bound ms": units.ms(row.launch_starved_ns),
                "#count": units.count(row.count),
            }
            for row in sorted(mine, key=lambda row: (-row.launch_starved_ns, row.name))
        ),
        empty="no CPU activity was recorded in launch-bound time",
    )


# --- inside a mixture-of-experts layer, and inside the vision encoder ---------------------------------------------------

_PERMUTE, _UNPERMUTE = "#e8c07d", "#c9a66b"  # packing is no bucket of its own
PART_COLOUR = dict(
    zip(
        MOE_PARTS,
        (words.bucket_colour(ROUTER), _PERMUTE, words.bucket_colour(DISPATCH), words.bucket_colour(EXPERT_GEMM), "#a63603", _UNPERMUTE),
        strict=True,
    )
)
BOTH_WAYS = "forward and backward"  # where nothing tells them apart


def moe_layer(document: Diagnosis) -> Table:
    """The passes one below the other, each with its parts; empty where no experts ran."""
    passes = () if document.moe_layer is None else document.moe_layer.passes
    longest = max((part.busy_ns for one in passes for part in one.parts), default=0)
    rows = [row for one in passes for row in _pass_rows(one, longest)]
    inferred = any(one.status == "inferred" for one in passes)
    doubt = " Passes overlap or are not told apart everywhere: taken by their order, which is inferred." if inferred else ""
    return Table(
        "moe-layer",
        "One MoE layer",
        tuple(rows),
        note=f"Mean over layers and micro-batches; the spread is over them. Exposed: nothing else ran on the GPU. Backward runs the other way.{doubt}",
        empty="no experts ran",
        whole=True,
    )


def _pass_rows(one: LayerPass, longest: int) -> Iterator[Row]:
    """The pass as a whole, then its parts in the order in which they run."""
    name = BOTH_WAYS if one.phase is None else one.phase
    exposed = sum(part.exposed_ns for part in one.parts)
    whole = (f"{name}, {units.plural(one.passes, 'pass', 'passes')} per step", units.ms(one.span_ns), units.ms(exposed))
    yield Row(_part_texts(*whole, _between(one.span_min_ns, one.span_max_ns)), strong=True)
    for part in one.parts:
        texts = _part_texts(part.part, units.ms(part.busy_ns), units.ms(part.exposed_ns), _between(part.busy_min_ns, part.busy_max_ns))
        yield Row(texts, indent=1, bar=part.busy_ns / longest if longest else None, colour=PART_COLOUR[part.part])


def _part_texts(name: str, busy: str, exposed: str, spread: str) -> dict[str, str]:
    return {"part": name, "#busy, ms": busy, "#exposed, ms": exposed, "#spread": spread}


def _between(low: int, high: int) -> str:
    return f"{units.ms(low)} to {units.ms(high)}"


UNKNOWN_PHASE = "phase not known"


def inside_vision(document: Diagnosis) -> Table:
    """The phases one below the other, each with its kinds of operation; empty where no vision encoder ran."""
    found = document.vision
    passes = () if found is None else found.passes
    longest = max((part.busy_ns for one in passes for part in one.parts), default=0)
    where = "" if found is None else f" · {device_label(found.rank, found.device)}"
    return Table(
        "inside-vision",
        f"Inside the vision encoder{where}",
        tuple(row for one in passes for row in _vision_rows(one, longest)),
        note=f"{mean_per(document).capitalize()}; operations by what their kernels' names stand for. Alone: nothing else ran on the GPU. Idle: the GPU did nothing between two operations of the encoder.",
        empty="no vision encoder ran",
        whole=True,
    )


def _vision_rows(one: VisionPass, longest: int) -> Iterator[Row]:
    """The phase as a whole, then its kinds of operation, longest first."""
    whole = _vision_texts(one.phase or UNKNOWN_PHASE, one.busy_ns, one.kernels, units.ms(one.alone_ns), units.ms(one.idle_ns))
    yield Row(whole, strong=True)
    for part in one.parts:
        bar = part.busy_ns / longest if longest else None
        texts = _vision_texts(part.operation.replace("_", " "), part.busy_ns, part.kernels, "", "")
        yield Row(texts, indent=1, bar=bar, colour=words.bucket_colour(VISION_ENCODER))


def _vision_texts(name: str, busy_ns: int, kernels: float, alone: str, idle: str) -> dict[str, str]:
    return {"operations": name, "#busy, ms": units.ms(busy_ns), "#kernels": units.count(kernels), "#alone, ms": alone, "#idle, ms": idle}


# --- a file of one's own buckets, made from the kernels that no rule knows --------------------------------------------

MOST_ENTRIES = 8
_WIDTH = 78  # characters of a line: whole on the narrowest terminal
_LONGEST = 50  # characters of a pattern for a name: longer ones are cut, since a pattern need not match to the end
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
# Functions that only carry what they are given: the first template argument says what runs.
_CARRIERS = frozenset({"Kernel", "Kernel2", "device_kernel", "kernel", "kentry", "execute", "global_kernel", "kernel_entry"})
_NO_NAMES = frozenset({"void", "anonymous", "namespace", "unnamed", "std", "const", "enable_if", "true", "false", "type"})


def function_name(name: str) -> str | None:
    """The word by which a kernel is best known: its function's name, or the name of what a carrier runs; None where there is none."""
    if name.startswith("_Z"):
        words = _mangled_words(name)
        return next((word for word in reversed(words) if word not in _CARRIERS), None)
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    head, _, inside = plain.partition("<")
    words = [word for word in _WORD.findall(head.partition("(")[0]) if word not in _NO_NAMES]
    if words and words[-1] not in _CARRIERS:
        return words[-1]
    carried = [word for word in _WORD.findall(re.split(r"[<,>(]", inside, maxsplit=1)[0]) if word not in _NO_NAMES]
    return (carried or words or [None])[-1]


def _mangled_words(name: str) -> list[str]:
    """The identifiers at the front of a mangled name: namespaces, then the function."""
    words: list[str] = []
    at = 3 if name.startswith("_ZN") else 2
    while (match := re.compile(r"\d{1,3}").match(name, at)) is not None:
        begin = match.end()
        at = begin + int(match.group())
        words.append(name[begin:at])
    return [word for word in words if _WORD.fullmatch(word) and not word.startswith("_GLOBAL__N")]


def pattern_of(word: str) -> str:
    """A pattern for kernels of that name, whatever its numbers: instances differ in them."""
    parts = re.findall(r"\d+|\D", word.lstrip("_"))
    spelled = [r"\d+" if part[0].isdigit() else part for part in parts]
    kept = [part for part, length in zip(spelled, accumulate(map(len, spelled)), strict=True) if length <= _LONGEST]
    return rf"(?:\b|_){''.join(kept)}" + (r"(?:_\d+)?\b" if len(kept) == len(parts) else "")


def snippet(names: Sequence[str], buckets: Iterable[str]) -> str:
    """A rules file (`buckets` to choose from) with a family for each of the first `names`, to be completed by a person.

    Empty where no name can be used.
    """
    patterns: dict[str, str] = {}
    for word in map(function_name, names):
        if word is not None and len(patterns) < MOST_ENTRIES:
            patterns.setdefault(pattern_of(word), word)
    if not patterns:
        return ""
    lines = [
        "# own-buckets.yaml: choose buckets, delete what you do not know, then give",
        "# it with --rules own-buckets.yaml. The buckets are",
        *textwrap.wrap(f"{', '.join(buckets)}.", _WIDTH, initial_indent="# ", subsequent_indent="# "),
        "families:",
    ]
    taken: dict[str, int] = {}
    for pattern, word in patterns.items():
        name = f"own_{re.sub(r'[^a-z]+', '_', word.lower()).strip('_')[:_LONGEST] or 'kernel'}"
        taken[name] = taken.get(name, 0) + 1
        lines += [
            f"  - id: {name}" + (f"_{taken[name]}" if taken[name] > 1 else ""),
            f"    patterns: ['{pattern}']",
            "    operation: other",
            "    bucket: other  # choose",
        ]
    return "\n".join(lines) + "\n"
