"""Fixtures that several test folders share."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder of real traces that lies beside the project; skips where it is absent."""
    folder = SHARED / "traces"
    if not folder.is_dir():
        pytest.skip("the folder of real traces (../shared/traces) is not here")
    return folder


@pytest.fixture(scope="session")
def reference(real_traces: Path) -> ModuleType:
    """The brute-force reference, which uses nothing but the standard library; skips where it is absent."""
    file = real_traces.parent / "tools" / "reference.py"
    if not file.is_file():
        pytest.skip("the brute-force reference (../shared/tools/reference.py) is not here")
    spec = importlib.util.spec_from_file_location("reference", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
