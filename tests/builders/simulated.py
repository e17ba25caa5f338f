"""Simulated runs and their diagnoses, and what else is dear, made once in a session and shared by its workers as files.

`SHARED_RUNS` names the folder, which tests/conftest.py makes and removes. A run is stored under a digest of everything that it is made
from; whoever needs it first makes it while the others wait at a lock. With `SHARED_RUNS_AFRESH` every call makes its own:
benchmarks/mutations.py records so which tests reach a line.
"""

import fcntl
import hashlib
import os
import pickle
import shutil
import uuid
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from msgspec import structs

from diagnose.document.diagnosis import Diagnosis, decode
from diagnose.document.encoding import encode
from diagnose.knowledge import load as knowledge
from diagnose.knowledge.forecast import ForecastRules
from diagnose.knowledge.load import Knowledge
from diagnose.measure.capture import Measured
from diagnose.pipeline import diagnose
from diagnose.scale import engine
from fixtures import scenario
from fixtures.accuracy import Format, trace_of
from fixtures.recording import Recording
from fixtures.scenario import Scenario

SHARED, AFRESH = "SHARED_RUNS", "SHARED_RUNS_AFRESH"
_forecast_rules = knowledge.load_forecast_rules


def recordings(one: Scenario | str) -> tuple[Recording, ...]:
    """One run of a scenario: what every simulated rank did."""
    one = _scenario(one)

    def make(folder: Path) -> None:
        (folder / "recordings").write_bytes(pickle.dumps(one.record(), protocol=pickle.HIGHEST_PROTOCOL))

    return _unpickled(shared(f"recordings {one!r}", make) / "recordings")


def traces(one: Scenario | str, kind: Format) -> list[Path]:
    """The traces of all captured ranks of a run, beside their `job.yaml`. Several tests read them: copy what is to be changed."""
    one = _scenario(one)

    def make(folder: Path) -> None:
        (folder / "job.yaml").write_text(one.job_text(), encoding="utf-8")
        for recording in recordings(one):
            if recording.rank in one.captured:
                trace_of(kind, one, recording, folder)

    folder = shared(f"traces {kind} {one!r}", make)
    return sorted(path for path in folder.iterdir() if path.name != "job.yaml")


def document(one: Scenario | str, kind: Format = "nsys") -> Diagnosis:
    """The program's diagnosis of all captured ranks of a run, with its job file."""
    one = _scenario(one)

    def make(folder: Path) -> None:
        found = traces(one, kind)
        (folder / "diagnosis.json").write_bytes(
            encode(diagnose(found, config=found[0].parent / "job.yaml" if _scenario(one).how.job_file else None))
        )

    forecasts = knowledge.load_forecast_rules is _forecast_rules
    return decode((shared(f"diagnosis {kind} {forecasts} {one!r}", make) / "diagnosis.json").read_bytes())


def measure_once() -> None:
    """From now on what was measured of a file of some name and content is kept for all workers: many tests measure the same ranks.

    Not what own rules or a report's export take part in, nor where SHARED_RUNS_AFRESH is set: for a test that listens how reading goes.
    """
    measured = engine.measured

    def kept(task: engine.Task, settings: engine.Settings, known: Knowledge, say: engine.Say) -> Measured:
        path = Path(task.path)
        beside = any(path.with_name(path.name + ending).exists() for ending in ("-wal", "-journal", "-shm"))
        if (
            settings.rules
            or beside
            or os.environ.get(AFRESH)
            or not path.is_file()
            or not path.name.endswith((".sqlite", ".json", ".json.gz"))
        ):
            return measured(task, settings, known, say)

        made = []

        def make(folder: Path) -> None:
            made.append(measured(task, settings, known, say))
            (folder / "measured").write_bytes(pickle.dumps(made[0], protocol=pickle.HIGHEST_PROTOCOL))

        key = f"measured {path.name} {hashlib.sha256(path.read_bytes()).hexdigest()} {task.rank} {settings!r}"
        folder = shared(key, make)
        if made:
            return made[0]
        say(f"reading {task.name}")
        say(f"measuring {task.name}")
        found: Measured = pickle.loads((folder / "measured").read_bytes())  # noqa: S301 - written by another worker of this session
        return found

    engine.measured = kept


def with_forecasts(*, wanted: bool) -> None:
    """Whether diagnoses of this process, and of its workers, foresee their plans from now on, which takes most of the time of a small one:
    without, no device is small enough for it.
    """

    def none(data: bytes) -> ForecastRules:
        rules = _forecast_rules(data)
        return structs.replace(rules, report=structs.replace(rules.report, operations=0, one_step=0))

    knowledge.load_forecast_rules = _forecast_rules if wanted else none


def _scenario(one: Scenario | str) -> Scenario:
    return scenario.load(one) if isinstance(one, str) else one


@lru_cache(maxsize=4)
def _unpickled(path: Path) -> tuple[Recording, ...]:
    """Few at a time: the recordings of one scenario take up to 100 MB."""
    found: tuple[Recording, ...] = pickle.loads(path.read_bytes())  # noqa: S301 - written by another worker of this session
    return found


def shared(key: str, make: Callable[[Path], None]) -> Path:
    """The folder of what is made under this key, filled by the first who asks."""
    if os.environ.get(AFRESH):
        key += uuid.uuid4().hex
    folder = Path(os.environ[SHARED]) / hashlib.sha256(key.encode()).hexdigest()[:24]
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = folder.with_suffix(f".part{os.getpid()}")
            shutil.rmtree(part, ignore_errors=True)  # of a make that failed
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder
