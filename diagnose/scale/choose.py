"""The engine that the options of the command line ask for. Imports little: the engines themselves come when one is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.scale.engine import Engine

ENGINES = ("local", "dask")


def check_engine(kind: str, *, jobs: int | None, scheduler: str | None) -> None:
    """Raise UsageError for options that do not go together."""
    if scheduler is not None and kind != "dask":
        raise UsageError("--scheduler names a Dask scheduler.", effect="Nothing was analysed.", next_step="Add --engine dask.")
    if scheduler is not None and jobs is not None:
        raise UsageError(
            "--jobs and --scheduler do not go together: the cluster has its own number of workers.",
            effect="Nothing was analysed.",
            next_step="Leave out one of them.",
        )


def engine_for(kind: str, *, jobs: int | None, scheduler: str | None) -> Engine:
    """The engine named `kind` (one of ENGINES). Raises UsageError for options that do not go together."""
    check_engine(kind, jobs=jobs, scheduler=scheduler)
    if kind == "dask":
        from diagnose.scale.dask import DaskEngine  # noqa: PLC0415

        return DaskEngine(scheduler=scheduler, jobs=jobs)
    from diagnose.scale.local import LocalEngine  # noqa: PLC0415

    return LocalEngine(jobs=jobs)
