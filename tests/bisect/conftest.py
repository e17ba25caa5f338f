"""The simulator's captures, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bisect.simulated import make_captures


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """The folder that SIMULATED names, and the true step time of each setting in ns."""
    folder = tmp_path_factory.mktemp("simulated")
    return folder, make_captures(folder)


@pytest.fixture
def store(captures: tuple[Path, dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, told to commands."""
    monkeypatch.setenv("SIMULATED", str(captures[0]))
    return captures[0]
