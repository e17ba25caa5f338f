"""Fixtures that several test folders share."""

from __future__ import annotations

from pathlib import Path

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
