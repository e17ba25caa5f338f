"""`python -m nsys_recipe NAME ...`, in the role of `nsys recipe NAME ...`: the folder is searched in NSYS_RECIPE_PATH, and imported by
its name.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from pathlib import Path

from nsys_recipe.lib.recipe import Context, Mode, Recipe


def main() -> int:
    name, *words = sys.argv[1:]
    folder = os.environ["NSYS_RECIPE_PATH"]
    metadata = json.loads((Path(folder) / name / "metadata.json").read_text())
    sys.path.append(folder)
    try:
        module = importlib.import_module(f"{name}.{metadata['module_name']}")
    except Exception as error:
        sys.stderr.write(f"Could not import {name}.{metadata['module_name']}: {error}\n")
        return 1
    (_, kind), *_ = inspect.getmembers(module, lambda one: inspect.isclass(one) and issubclass(one, Recipe) and one is not Recipe)
    parser = kind.get_argument_parser()
    parser.add_argument("--mode", default="concurrent")
    parsed = parser.parse_args(words)
    with Context(Mode[parsed.mode.replace("-", "_").upper()]) as context:
        kind(parsed).run(context)
    return 0


if __name__ == "__main__":
    sys.exit(main())
