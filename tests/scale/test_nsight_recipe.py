"""`nsys recipe diagnose`: against a stand-in for NVIDIA's library, and against a real nsys where there is one with recipes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.cli import main
from diagnose.document.diagnosis import decode
from diagnose.document.encoding import encode
from diagnose.knowledge.load import Knowledge
from diagnose.measure.capture import Measured
from diagnose.pipeline import diagnose
from diagnose.scale.elsewhere import ElsewhereEngine, Options, measure_input
from diagnose.scale.engine import Run, for_inputs, prepare, tasks_of
from tests.builders.cases import for_each
from tests.builders.records import replace
from tests.builders.suites import deep_unless
from tests.scale.conftest import ROOT, Ranks

FAKE = Path(__file__).parent / "fake_nsys"
RECIPE = ROOT / "diagnose" / "recipe"
MODES = ["none", "concurrent", "dask-futures"]
NSYS = os.environ.get("DIAGNOSE_TEST_NSYS") or shutil.which("nsys")


@pytest.fixture(scope="module")
def reports(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports that nobody can open, each with its export beside it."""
    folder = tmp_path_factory.mktemp("reports")
    for export in sorted(job.glob("*.sqlite")):
        report = folder / f"{export.stem}.nsys-rep"
        report.write_bytes(b"NVIDIA Tegra Profiler Report")
        os.utime(report, (1, 1))
        shutil.copy(export, folder)
    return folder


def run(command: list[str], *arguments: str | Path, folder: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NSYS_RECIPE_PATH": str(RECIPE), "PYTHONPATH": path or f"{ROOT}:{FAKE}"}
    return subprocess.run(
        [*command, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def stand_in(*arguments: str | Path, folder: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "nsys_recipe"], *arguments, folder=folder, path=path)


def check(out: Path, reports: Path, job: Path, mode: str) -> None:
    """All files are there, and the result is that of the program itself."""
    expected = diagnose(sorted(reports.glob("*.nsys-rep")), config=job)
    assert (out / "diagnosis.json").read_bytes().strip() == encode(expected).strip()
    assert decode((out / "diagnosis.json").read_bytes()).facts["ranks_captured"].value == 4
    assert (out / "diagnosis.html").read_text().startswith("<!doctype html>")
    assert (out / "diagnosis.md").read_text().startswith("**Qwen3MoE")
    (analysis,) = out.glob("*.nsys-analysis")
    written = json.loads(analysis.read_text())
    assert (written["RecipeName"], written["Mode"]) == ("diagnose", mode)
    assert [Path(name).name for name in written["InputFiles"]] == [f"rank{rank}.nsys-rep" for rank in range(4)]
    assert written["Outputs"] == {"diagnosis.html": "HTML", "diagnosis.json": "JSON", "diagnosis.md": "Markdown"}


@pytest.mark.parametrize("mode", deep_unless((), MODES))
def test_the_recipe_gives_the_programs_own_result_in_every_mode(reports: Path, job: Path, tmp_path: Path, mode: str) -> None:
    if mode == "dask-futures":
        pytest.importorskip("distributed", reason="distributed is not installed")
    out = tmp_path / "out"
    done = stand_in("diagnose", "--input", reports, "--config", job / "job.yaml", "--mode", mode, "--output", out, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Qwen3MoE (2 layers, 32 experts) · 4× H100 80GB")
    check(out, reports, job / "job.yaml", mode)


def test_outcomes_from_elsewhere_without_a_graph_are_measured_again_where_one_is_asked_for(ranks: Ranks, knowledge: Knowledge) -> None:
    paths = [str(path) for path in ranks("a", "b")]
    options = Options(config=None, overrides=(), rules=(), step_range=None, nsys=None)
    many = knowledge.forecast.report.ranks + 1
    engine = ElsewhereEngine(outcomes={path: measure_input(path, options, many) for path in paths})
    settings = for_inputs(prepare(), many)
    first = Run(settings=settings, knowledge=knowledge, tasks=tuple(tasks_of(paths, None)))
    second = replace(first, settings=replace(settings, replay=True), tasks=(replace(first.tasks[1], place=0),))

    def graphs(run: Run) -> list[tuple[int, bool]]:
        found = [one for one in engine.run(run) if one is not None]
        return [(one.place, isinstance(one.result, Measured) and one.result.devices[0].graph is not None) for one in found]

    assert graphs(first) == [(0, False), (1, False)]
    assert graphs(second) == [(0, True)]


@pytest.mark.deep
def test_a_report_that_cannot_be_read_is_told_and_the_others_go_on(reports: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    shutil.copytree(reports, folder, ignore=shutil.ignore_patterns("rank3*"))
    (folder / "rank1.sqlite").write_bytes(b"nothing of use")
    (folder / "nsys").write_text("")  # no program
    done = stand_in(
        "diagnose", "--input", folder, folder / "rank0.nsys-rep", "--nsys", folder / "nsys", "--output", tmp_path / "out", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = decode((tmp_path / "out" / "diagnosis.json").read_bytes())
    assert [rank.file for rank in found.capture.ranks] == [f"rank{rank}.nsys-rep" for rank in (0, 2)], "each once"
    assert [entry.count for entry in found.ledger if entry.code == "refused_input"] == [1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--config", "missing.yaml"], 2, "missing.yaml"),
        pytest.param(["--step-range", "nothing"], 2, "marks no step", marks=pytest.mark.deep),
        pytest.param(["--rules", "missing"], 2, "cannot be read", marks=pytest.mark.deep),
    ],
)
def test_errors_end_in_a_sentence(reports: Path, tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = stand_in("diagnose", "--input", reports, *arguments, "--mode", "none", "--output", tmp_path / "out", folder=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_input_it_says_so(tmp_path: Path) -> None:
    done = stand_in("diagnose", "--mode", "none", "--output", tmp_path / "out", folder=tmp_path)
    assert done.returncode == 2
    assert "--input" in done.stderr


def test_where_the_package_is_missing_that_is_said(reports: Path, tmp_path: Path) -> None:
    """Python -S leaves out the environment's packages, and with them this one."""
    done = run([sys.executable, "-S", "-m", "nsys_recipe"], "diagnose", "--input", reports, folder=tmp_path, path=str(FAKE))
    assert done.returncode == 1
    assert f"({sys.executable}) has no moe-diagnose" in done.stderr
    assert "pip install" in done.stderr


def test_nothing_with_threads_is_imported_before_workers_are_forked(tmp_path: Path) -> None:
    script = "import sys, diagnose.nsight_recipe; print(sorted({'polars', 'plotly'} & set(sys.modules)))"
    done = run([sys.executable, "-c", script], folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_folder_is_told_by_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe-path"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder == RECIPE
    assert json.loads((folder / "diagnose" / "metadata.json").read_text())["module_name"] == "nsight_recipe"
    assert not (folder / "diagnose" / "__init__.py").exists(), "it would stand in the way of the real package"


@pytest.mark.nsys
@for_each("mode", *MODES)
def test_a_real_nsys_runs_it(reports: Path, job: Path, tmp_path: Path, mode: str) -> None:
    """Where nsys has recipes (2023 and newer) and its Python what they need; DIAGNOSE_TEST_NSYS names another one than that on PATH."""
    if NSYS is None:
        pytest.skip("NVIDIA's nsys is not on this machine")
    if run([NSYS, "recipe", "--help"], folder=tmp_path, path=str(ROOT)).returncode != 0:
        pytest.skip("this nsys has no recipes, or its Python lacks what they need")
    out = tmp_path / "out"
    done = run(
        [NSYS, "recipe", "diagnose"],
        *("--input", reports, "--config", job / "job.yaml", "--mode", mode, "--output", out),
        folder=tmp_path,
        path=str(ROOT),
    )
    if any(lacking in done.stderr for lacking in ("must be installed", "that contains internal dependencies")):
        pytest.skip("this nsys lacks what its recipes need")
    assert done.returncode == 0, done.stdout + done.stderr
    check(out, reports, job / "job.yaml", mode)
