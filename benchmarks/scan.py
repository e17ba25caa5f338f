"""The floor for Nsight exports: SQLite's own sum over every column of the kernel and runtime tables. ``python -m benchmarks.scan FILE``."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME")


def scan(path: Path) -> None:
    """Sum every column of the two largest tables, as floating point: the sum of process keys exceeds 64 bits."""
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    for table in TABLES:
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        totals = ", ".join(f'total("{column}")' for column in columns)
        database.execute(f'SELECT {totals} FROM "{table}"').fetchall()
    database.close()


if __name__ == "__main__":
    scan(Path(sys.argv[1]))
