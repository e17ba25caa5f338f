"""The example notebook runs from its first cell to its last, and is kept without outputs."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "examples" / "notebook.ipynb"


def test_it_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell["cell_type"] == "code" and (cell["outputs"] or cell["execution_count"])] == []


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")  # of the libraries that run notebooks
def test_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("DIAGNOSE_ROOT", str(ROOT))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    pages = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert "COMMUNICATION-BOUND" in pages[0].upper()
    printed = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    assert re.search(r"COM-06 .* at most 4\d\.\d ms", printed)
    assert "step.perfetto.json.gz True" in printed
