"""Whether processes that tests have started still run."""

import time
from pathlib import Path


def alive(process: int) -> bool:
    """Whether it runs (a zombie does not)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(process: int, seconds: float = 300) -> bool:
    """True once it has ended, which takes a busy machine a while."""
    until = time.monotonic() + seconds
    while alive(process) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(process)
