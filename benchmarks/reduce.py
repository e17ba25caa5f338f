"""`python -m benchmarks.reduce JOB TRACE...`: measure the traces in worker processes, conclude, print one JSON line with what it took."""

from __future__ import annotations

import json
import os
import pickle
import resource
import statistics
import sys
import time
from pathlib import Path

import msgspec

from benchmarks.ranks import Measurement
from diagnose.errors import InputError
from diagnose.pipeline import with_distinct_ranks
from diagnose.reason.conclude import conclude
from diagnose.render import write
from diagnose.scale.engine import Outcome, Run, Settings, Task, attempt, measure_each, prepare, tasks_of
from diagnose.scale.local import LocalEngine

_warm: set[int] = set()


def timed(settings: Settings, task: Task) -> Outcome:
    """The program's own task; beside the trace it leaves its processor time in seconds, and whether it was the first of its process,
    which loads the rules.
    """
    first = os.getpid() not in _warm
    _warm.add(os.getpid())
    begin = time.process_time()
    outcome = attempt(settings, task)
    _beside(Path(task.path)).write_text(json.dumps([time.process_time() - begin, first]))
    return outcome


def _beside(trace: Path) -> Path:
    return trace.with_suffix(".time")


def _silent(_: str) -> None:
    """Nobody watches."""


def _logged(text: str) -> None:
    sys.stderr.write(text + "\n")


def main() -> None:
    """Command line."""
    job, traces = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    prepared = prepare(config=job)
    begin = time.perf_counter()
    run = Run(settings=prepared.settings, knowledge=prepared.knowledge, tasks=tuple(tasks_of(traces, None)), notice=_logged)
    outcomes = dict(measure_each(run, LocalEngine(task=timed) if len(traces) > 1 else LocalEngine()))
    measured = time.perf_counter()
    summaries = []
    for _, outcome in sorted(outcomes.items()):
        if isinstance(outcome, InputError):
            raise outcome
        summaries.append(outcome)
    result = conclude(with_distinct_ranks(summaries), prepared.job, prepared.knowledge)
    reduced = time.perf_counter()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))
    shown = [write(result, kind) for kind in ("html", "json")]
    rendered = time.perf_counter()
    found = [json.loads(_beside(trace).read_text()) for trace in traces if _beside(trace).exists()]
    warm = [seconds for seconds, first in found if not first]
    sys.stdout.buffer.write(
        msgspec.json.encode(
            Measurement(
                ranks=len(traces),
                rank_s=statistics.median(warm) if warm else None,
                measuring_s=measured - begin,
                reducing_s=reduced - measured,
                rendering_s=rendered - reduced,
                peak_mib=peak_mib,
                summary_bytes=round(statistics.fmean(len(pickle.dumps(one)) for one in summaries)),
                document_mib=len(shown[-1].encode()) / (1 << 20),
            )
        )
    )


if __name__ == "__main__":
    main()
