"""Options of recipes. As in the real library, INPUT takes reports or folders of them and refuses anything else."""

from __future__ import annotations

import argparse
import enum
from pathlib import Path
from typing import Any


class Option(enum.Enum):
    INPUT = 0
    OUTPUT = 1
    FORCE_OVERWRITE = 2


def reports(path: str) -> list[str]:
    if Path(path).is_dir():
        return sorted(str(item) for item in Path(path).glob("*.nsys-rep"))
    if not path.endswith(".nsys-rep"):
        raise argparse.ArgumentTypeError(f"{path} is not a nsys-rep file.")
    return [path]


class Flat(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, [path for value in values for path in value])


class ArgumentParser(argparse.ArgumentParser):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.recipe_group = self.add_argument_group("Recipe")

    def add_recipe_argument(self, option: Option) -> None:
        if option is Option.INPUT:
            self.recipe_group.add_argument("--input", type=reports, nargs="+", action=Flat)
        elif option is Option.OUTPUT:
            self.recipe_group.add_argument("--output")
        else:
            self.recipe_group.add_argument("--force-overwrite", action="store_true")
