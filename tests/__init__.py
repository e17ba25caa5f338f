"""Where no bytecode may be written beside the sources, that of tests and program is kept in build/bytecode: compiling all anew took each
process of a session up to 10 s.
"""

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix or str(Path(__file__).parents[1] / "build" / "bytecode")
