"""Invented comparisons: one that holds everything a renderer can meet, one that holds almost nothing, and one for each result."""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import structs

from diagnose.document.comparison import Comparison, EnvironmentChange, SettingChange
from tests.builders.diagnosis import LONG_KERNEL
from tests.builders.kept import kept

rich = partial(kept, Comparison)  # a regression: an expert exchange that lost its overlap, a slower grouped GEMM; hostile texts
minimal = partial(kept, Comparison, "minimal")  # one step against one step from documents without a split
refused = partial(kept, Comparison, "refused")  # not the same work
anyway = partial(kept, Comparison, "anyway")  # the same, with figures, because they were asked for
identical = partial(kept, Comparison, "identical")  # a trace with itself
improvement = partial(kept, Comparison, "improvement")  # the other direction, per token, without a gate


def huge() -> Comparison:
    """Far more of everything than a page can hold."""
    document = rich()
    return structs.replace(
        document,
        kernels=tuple(structs.replace(document.kernels[2], name=f"{LONG_KERNEL}{index}") for index in range(3_000)),
        environment=tuple(
            EnvironmentChange(name=f"NCCL_{index}", kind="variable", base="é" * 500, new="ü" * 5_000) for index in range(800)
        ),
        settings=tuple(
            SettingChange(name=f"s{index}", key=f"model.s{index}" * 40, base="x" * 3_000, new="|" * 3_000) for index in range(900)
        ),
        findings=tuple(
            structs.replace(document.findings[0], id=f"X-{index:03}", summary="é" * 9_000, line=index + 1) for index in range(400)
        ),
        notes=("é" * 50_000,) * 30,
        outcome=structs.replace(document.outcome, reasons=("é" * 20_000,) * 40),
        overlap=document.overlap * 60,
        comparability=structs.replace(
            document.comparability,
            mismatches=document.comparability.mismatches * 200,
            unknown=tuple(f"aspect {index}" for index in range(5_000)),
        ),
    )


SAMPLES: Mapping[str, Callable[[], Comparison]] = {
    "rich": rich, "minimal": minimal, "refused": refused, "anyway": anyway, "identical": identical, "improvement": improvement,
}  # fmt: skip
