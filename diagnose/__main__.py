"""`python -m diagnose`, and the `diagnose` command."""

from __future__ import annotations

import sys

from diagnose.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
