"""Diagnose training runs from profiler traces: what holds the run back, how much could be won, which setting to change.

    import diagnose

    trace = diagnose.load("run.sqlite")                     # a Trace: polars frames of what the profiler recorded
    found = diagnose.diagnose("run.sqlite", config="job.yaml")
    found.verdict.sentence, found.efficiency.mfu, found.plan
    found.save("report.html")                               # also .md, .json, .txt; to_html(), to_markdown(), to_json()
    diagnose.compare("before.sqlite", "after.sqlite", config="job.yaml")
    diagnose.whatif("run.sqlite", config="job.yaml", fixes=["COM-06"]).step_ns.likely

All are imported when first used, so that the command line starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.version import __version__

if TYPE_CHECKING:
    from diagnose.document.comparison import Comparison
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.document.forecast import Forecast
    from diagnose.load.readers import load as load_trace
    from diagnose.model.trace import Trace
    from diagnose.pipeline import compare, diagnose, whatif

__all__ = ["Comparison", "Diagnosis", "Forecast", "Trace", "__version__", "compare", "diagnose", "load_trace", "whatif"]

_HOMES = {
    "Comparison": ("diagnose.document.comparison", "Comparison"),
    "Diagnosis": ("diagnose.document.diagnosis", "Diagnosis"),
    "Trace": ("diagnose.model.trace", "Trace"),
    "compare": ("diagnose.pipeline", "compare"),
    "diagnose": ("diagnose.pipeline", "diagnose"),
    "load_trace": ("diagnose.load.readers", "load"),
    "whatif": ("diagnose.pipeline", "whatif"),
    "Forecast": ("diagnose.document.forecast", "Forecast"),
}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that holds it; `load` is a package that can be called."""
    if name == "load":
        from importlib import import_module  # noqa: PLC0415

        return import_module("diagnose.load")
    if name not in _HOMES:
        raise AttributeError(f"module 'diagnose' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
