"""The program's own reading of one PyTorch trace with a given number of processes: ``python -m benchmarks.load FILE PROCESSES``."""

from __future__ import annotations

import sys
from pathlib import Path

from diagnose.load import torch_json

if __name__ == "__main__":
    path = Path(sys.argv[1])
    torch_json.read(path, display_name=path.name, processes=int(sys.argv[2]))
