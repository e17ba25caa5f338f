"""Diagnose training runs from profiler traces: what holds the run back, how much could be won, which setting to change.

`load_trace` reads a trace, `diagnose.diagnose` gives the Diagnosis of one or several. Both are imported when first used, so that the
command line starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.version import __version__

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.load.readers import load as load_trace
    from diagnose.model.trace import Trace
    from diagnose.pipeline import diagnose

__all__ = ["Diagnosis", "Trace", "__version__", "diagnose", "load_trace"]

_HOMES = {
    "Diagnosis": ("diagnose.document.diagnosis", "Diagnosis"),
    "Trace": ("diagnose.model.trace", "Trace"),
    "diagnose": ("diagnose.pipeline", "diagnose"),
    "load_trace": ("diagnose.load.readers", "load"),
}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that holds it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'diagnose' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
