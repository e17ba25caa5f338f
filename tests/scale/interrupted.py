"""The program with workers that hold on to victims; `python -m tests.scale.interrupted TRACE...`."""

import sys

import diagnose.scale.choose
from diagnose.cli import main
from diagnose.scale.dask import DaskEngine
from diagnose.scale.local import LocalEngine
from tests.scale.tasks import held

if __name__ == "__main__":
    kind, *traces = sys.argv[1:]
    diagnose.scale.choose.engine_for = lambda *_, **__: (LocalEngine if kind == "local" else DaskEngine)(jobs=2, task=held)
    sys.exit(main(traces))
