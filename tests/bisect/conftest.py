"""The simulator's captures, made once in a session."""

import json
import shutil
from pathlib import Path

import pytest

from tests.bisect.simulated import QUICK, STEPS, make_captures
from tests.builders.simulated import shared


@pytest.fixture(scope="session")
def captures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """The folder that SIMULATED names, and the true step time of each setting in ns; without deep tests, of those that quick ones take."""
    names = tuple(STEPS) if any(item.get_closest_marker("deep") for item in request.session.items) else QUICK

    def make(folder: Path) -> None:
        (folder / "truth.json").write_text(json.dumps(make_captures(folder, names)))

    made = shared(f"captures of the searches {names}", make)
    folder = tmp_path_factory.mktemp("simulated")  # one's own, because what surrounds the runs is written there
    shutil.copytree(made, folder, dirs_exist_ok=True)
    truth: dict[str, int] = json.loads((folder / "truth.json").read_text())
    return folder, truth


@pytest.fixture
def store(captures: tuple[Path, dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, told to commands."""
    monkeypatch.setenv("SIMULATED", str(captures[0]))
    return captures[0]
