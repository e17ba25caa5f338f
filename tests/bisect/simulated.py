"""Real git repositories whose commits change a simulated step, and the simulator's captures that `profile_step.py` draws from."""

import dataclasses
import json
import random
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.bisect import candidates
from diagnose.bisect.log import Experiment
from diagnose.document.encoding import encode
from diagnose.pipeline import diagnose
from fixtures import scenario
from fixtures.accuracy import trace_of, traces
from fixtures.plan import Plan
from fixtures.truth import step_time
from tests.bisect.repositories import call as git
from tests.builders.records import replace

PROFILE = (Path(__file__).parent / "profile_step.py").read_text(encoding="utf-8")
IGNORED = "*.o\n"
COMMAND = ("python3", "-S", "profile.py", "{commit}")
# Settings of a small simulated job, and what it costs: nothing; a slower network; slower kernels; garbage collection; an allocator that
# asks the driver.
STEPS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "base": {},
    "network-250": {"machine": {"ring_gb": 250}},
    "network-200": {"machine": {"ring_gb": 200}},
    "network-150": {"machine": {"ring_gb": 150}},
    "network-100": {"machine": {"ring_gb": 100}},
    "slow-kernels": {"machine": {"compute": 0.8}},
    "garbage": {"faults": {"garbage_ns": 9_000_000}},
    "allocator": {"faults": {"allocator_calls": 5}},
}


QUICK = ("base", "network-150", "slow-kernels", "allocator")  # all that quick tests take


def make_captures(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Simulate, write and diagnose one capture of each of these settings; the true step time of each, in ns."""
    one = scenario.load("compute-dense-model")
    truth = {}
    for name in names:
        change = STEPS[name]
        plan = Plan.of(
            {**one.plan.job, "model": {**one.plan.job["model"], "num_layers": 1}},
            {**_fields(one.plan.machine), **change.get("machine", {})},
            {**_fields(one.plan.faults), **change.get("faults", {})},
        )
        recording = replace(one, plan=plan, steps=4).record()[0]
        place = folder / "made" / name
        place.mkdir(parents=True)
        trace = trace_of("nsys", replace(one, plan=plan), recording, place)
        trace.rename(folder / f"{name}.sqlite")
        document = diagnose([folder / f"{name}.sqlite"])
        (folder / f"{name}.json").write_bytes(encode(document))
        truth[name] = step_time(recording, ())
    return truth


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def set_world(store: Path, *, seed: int, noise: float, flaky: float = 0.0, kind: str = "json", seconds: float = 0.0) -> None:
    """What surrounds the runs from now on; counts begin anew."""
    for count in store.glob("counts/*"):
        count.unlink()
    (store / "world.json").write_text(json.dumps({"seed": seed, "noise": noise, "flaky": flaky, "kind": kind, "seconds": seconds}))


# --- repositories -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class History:
    """A repository: its folder, its commits in order, what each one's job file says, and the first one with the other setting."""

    folder: Path
    commits: tuple[str, ...]
    settings: tuple[dict[str, Any], ...]
    culprit: int
    step: str


def random_history(folder: Path, seed: int, *, longest: int = 200) -> History:
    """A history with one step. Some commits are broken, alone or in a row; all the others change something that costs nothing."""
    chance = random.Random(seed)
    count = longest if seed == 0 else chance.randint(2, longest)
    culprit = chance.randrange(1, count)
    step = chance.choice([name for name in STEPS if name != "base"])
    broken = {place for place in range(1, count - 1) if chance.random() < 0.06}
    if count > 30 and chance.random() < 0.5:
        first = chance.randrange(1, count - 10)
        broken |= set(range(first, first + chance.randint(2, 8)))
    settings = tuple(
        {"step": step if place >= culprit else "base", "version": place, **({"broken": True} if place in broken else {})}
        for place in range(count)
    )
    return History(folder, make_repository(folder, settings, seed), settings, culprit, step)


def make_repository(
    folder: Path, settings: Sequence[Mapping[str, Any]], seed: int = 0, subjects: Mapping[int, str] | None = None
) -> tuple[str, ...]:
    """A repository with one commit for each of `settings`, by `git fast-import`; its commits, oldest first.

    The checkout has changes of the user's own. `subjects`: first lines of messages that are to say something else.
    """
    git(folder.parent, "init", "--quiet", "--initial-branch=main", str(folder))
    stream = []
    for place, one in enumerate(settings):
        subject = (subjects or {}).get(place, f"Change {place}: {'a faster' if place % 3 else 'another'} way")
        message = f"{subject}\n\nDone for reason {seed * 7 + place}.\n"
        stream.append(
            f"commit refs/heads/main\nmark :{place + 1}\ncommitter A U Thor <author@example.com> {1_700_000_000 + 3600 * place} "
            f"+0000\n{_data(message)}"
        )
        if place:
            stream.append(f"from :{place}\n")
        else:
            stream.append(f"M 100644 inline profile.py\n{_data(PROFILE)}M 100644 inline .gitignore\n{_data(IGNORED)}")
        stream.append(f"M 100644 inline job.json\n{_data(json.dumps(one))}")
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input="".join(stream).encode(), check=True, capture_output=True)
    git(folder, "reset", "--quiet", "--hard", "main")
    (folder / "notes.txt").write_text("the user's own\n")
    (folder / "built.o").write_text("ignored\n")
    (folder / "job.json").write_text('{"step": "edited by hand"}')
    git(folder, "add", "job.json")
    return tuple(git(folder, "rev-list", "--reverse", "main").split())


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def snapshot(folder: Path) -> dict[str, str]:
    """Everything of the user's repository that a search must leave alone."""
    questions = {
        "status": ("status", "--porcelain=v2", "--branch", "--ignored"),
        "refs": ("for-each-ref",),
        "worktrees": ("worktree", "list", "--porcelain"),
        "reflog": ("reflog", "--all"),
        "config": ("config", "--local", "--list"),
        "stash": ("stash", "list"),
        "index": ("ls-files", "--stage"),
    }
    found = {name: git(folder, *arguments) for name, arguments in questions.items()}
    found["status"] = "\n".join(line for line in found["status"].splitlines() if ".diagnose/" not in line)
    found["files"] = ", ".join(
        sorted(
            str(path.relative_to(folder)) for path in folder.rglob("*") if not {".git", ".diagnose"} & set(path.relative_to(folder).parts)
        )
    )
    found["git folder"] = ", ".join(sorted(path.name for path in (folder / ".git").iterdir()))
    return found


def experiment_of(history: History, **more: Any) -> tuple[Experiment, candidates.Order]:
    """The search from the first commit to the last, and its candidates."""
    order = candidates.commits(history.folder, history.commits[0], history.commits[-1])
    return Experiment(**{"mode": "commits", "entries": order.entries, "metric": "step_time", "command": COMMAND, **more}), order


# --- for `bisect-step`: captures of one job as it was, and with Python between the layers -----------------------------


SLOW_NS = 2_500_000  # in each of two layers: the step becomes half as long again


def step_captures(folder: Path) -> dict[str, Path]:
    """good (two seeds), slow, and one of another model; all with five steps of two layers, about one megabyte each; and the job file."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        "good": _step_capture(folder / "good", 0, 1),
        "again": _step_capture(folder / "again", 0, 2),
        "slow": _step_capture(folder / "slow", SLOW_NS, 4),
        "other": _step_capture(folder / "other", 0, 5, layers=6),
    }
    return {**made, "job": folder / "good" / "job.yaml"}


def _step_capture(folder: Path, python_ns: int, seed: int, layers: int = 2) -> Path:
    base = scenario.load("host-python-in-layers")
    plan = base.plan
    plan = replace(
        plan,
        job={**plan.job, "model": {**plan.job["model"], "num_layers": layers}},
        faults=replace(plan.faults, idle_python_ns=python_ns),
    )
    one = replace(base, plan=plan, steps=5, seed=seed)
    folder.mkdir()
    (folder / "job.yaml").write_text(one.job_text(), encoding="utf-8")
    return traces("nsys", one, one.record(), folder)[0]
