"""Recipe and the contexts of its three modes."""

from __future__ import annotations

import enum
import inspect
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

from nsys_recipe.lib.args import ArgumentParser


class Mode(enum.Enum):
    NONE = 0
    CONCURRENT = 1
    DASK_FUTURES = 2


class Context:
    """Closes what it opened; forks its workers in mode concurrent, as the real one does."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        if mode is Mode.CONCURRENT:
            self.pool = ProcessPoolExecutor()
        elif mode is Mode.DASK_FUTURES:
            from distributed import Client

            self.client = Client(n_workers=2, dashboard_address="127.0.0.1:0")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.mode is Mode.CONCURRENT:
            self.pool.shutdown()
        elif self.mode is Mode.DASK_FUTURES:
            self.client.close()

    def map(self, function: Any, *iterables: Any, **more: Any) -> Any:
        call = partial(function, **more)
        if self.mode is Mode.CONCURRENT:
            return [*self.pool.map(call, *iterables)]
        if self.mode is Mode.DASK_FUTURES:
            return self.client.map(call, *iterables)
        return [*map(call, *iterables)]

    def wait(self, waitable: Any) -> Any:
        return self.client.gather(waitable) if self.mode is Mode.DASK_FUTURES else waitable


class Recipe:
    recipe_dir: str | None = None

    def __init__(self, parsed_args: Any) -> None:
        self._parsed_args = parsed_args
        self._output_files: dict[str, str] = {}
        self._analysis_dict: dict[str, Any] = {}

    @classmethod
    def get_recipe_dir(cls) -> str:
        return cls.recipe_dir or str(Path(inspect.getfile(cls)).parent)

    @classmethod
    def get_argument_parser(cls) -> ArgumentParser:
        metadata = json.loads((Path(cls.get_recipe_dir()) / "metadata.json").read_text())
        return ArgumentParser(prog=Path(cls.get_recipe_dir()).name, description="".join(metadata["description"]))

    def get_parsed_arg(self, name: str, default: Any = None) -> Any:
        return getattr(self._parsed_args, name, default)

    def get_output_dir(self) -> str:
        Path(self._parsed_args.output).mkdir(exist_ok=True)
        return str(self._parsed_args.output)

    def add_output_file(self, filename: str, filetype: str | None = None) -> str:
        if filetype:
            self._output_files[filename] = filetype
        return str(Path(self.get_output_dir()) / filename)

    def create_analysis_file(self) -> None:
        Path(self.add_output_file("out.nsys-analysis")).write_text(json.dumps(self._analysis_dict))

    def run(self, context: Context) -> None:
        self._analysis_dict = {"RecipeName": Path(self.get_recipe_dir()).name, "Mode": context.mode.name.replace("_", "-").lower()}
