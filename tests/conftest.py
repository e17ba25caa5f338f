"""The two suites (quick, and deep: what is marked so, and every property again with more examples), and fixtures that several test
folders share.
"""

import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from diagnose.knowledge.load import Knowledge, load_knowledge
from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy
from fixtures import scenario
from tests.builders import knowledge, simulated

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
SCENARIOS = frozenset(scenario.names())

# Where diagnoses foresee their plans: the tests that look at forecasts, at whole outputs, or at whatever real traces bring.
FORECASTS = (
    *(
        "browser",
        "changes",
        "document",
        "expert",
        "measure/replay",
        "reason/forecast",
        "render",
        "test_docs",
        "test_house",
        "test_real_traces",
    ),
    *(
        "commands/test_situations",
        "commands/test_whatif",
        "commands/test_run",
        "fixtures/test_forecast",
        "fixtures/test_gallery",
        "fixtures/test_real_captures",
    ),
    "scale/test_nsight_recipe",
)

FORECASTS_BUT_FOR = ("render/test_job_report",)

# No deadline and no check of speed: what a test says must not depend on how busy the machine is.
SLOW_MACHINE = (HealthCheck.too_slow,)
settings.register_profile("quick", max_examples=25, derandomize=True, deadline=None, print_blob=True, suppress_health_check=SLOW_MACHINE)
settings.register_profile("deep", max_examples=300, deadline=None, print_blob=True, suppress_health_check=SLOW_MACHINE)
settings.load_profile("quick")


def _heed_signals() -> None:
    """Programs that tests start have to heed what tests send them, also where this session ignores it (nohup, a shell's background job)."""
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)


def pytest_configure(config: pytest.Config) -> None:
    """The first process of a session makes the folder of simulated runs for all workers."""
    _heed_signals()
    knowledge.read_once()
    simulated.measure_once()
    if not hasattr(config, "workerinput"):
        os.environ[simulated.SHARED] = tempfile.mkdtemp(prefix="simulated-runs-")
        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # of the workers, which keep every processor busy already


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(simulated.SHARED), ignore_errors=True)
        kinds = ("pytest-of-*", "simulated-runs-*") if sys.pycache_prefix else ()  # bytecode of what tests have copied
        for kind in kinds:
            for copies in Path(f"{sys.pycache_prefix}{tempfile.gettempdir()}").glob(kind):
                shutil.rmtree(copies, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` the tests of a scenario meet on one worker, and so do those of a module that shares fixtures."""
    for item in items:
        called = getattr(item, "callspec", None)
        names = [value for value in called.params.values() if isinstance(value, str) and value in SCENARIOS] if called else []
        item.add_marker(pytest.mark.xdist_group(names[0] if names else item.nodeid.split("::")[0]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of the test is made."""
    path = item.path.relative_to(ROOT / "tests").as_posix()
    simulated.with_forecasts(wanted=path.startswith(FORECASTS) and not path.startswith(FORECASTS_BUT_FOR))


def pytest_collection_finish() -> None:
    """What lives until the end is no longer searched for garbage, which took a tenth of the suite's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(scope="session")
def taxonomy() -> Taxonomy:
    """The program's own."""
    return load_taxonomy()


@pytest.fixture(scope="session", name="knowledge")
def all_knowledge() -> Knowledge:
    """The program's own."""
    return load_knowledge()


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
