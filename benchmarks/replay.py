"""``python -m benchmarks.replay TRACE [--plain]``: processor time of reading, measuring with the graph, and replaying; plain: without."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from diagnose.knowledge.load import load_knowledge
from diagnose.load.readers import load
from diagnose.measure.capture import measure
from diagnose.measure.replay.path import replay


def main(path: str, *, plain: bool) -> dict[str, float]:
    """Seconds of processor time by what they are spent on, and the number of operations that were replayed."""
    knowledge = load_knowledge()
    begun = time.process_time()
    trace = load(Path(path))
    read = time.process_time()
    measured = measure(trace, knowledge, replay=not plain)
    graphs = [device.graph for device in measured.devices if device.graph is not None]
    built = time.process_time()
    for graph in graphs:
        replay(graph)
    operations = sum(int((graph.nodes["kind"] == "op").sum()) for graph in graphs)
    return {"read": read - begun, "measured": built - read, "replayed": time.process_time() - built, "operations": operations}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], plain="--plain" in sys.argv)) + "\n")
