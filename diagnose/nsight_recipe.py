"""The adapter that `nsys recipe diagnose` runs: one task per report under nsys' own engines, one diagnosis of them all.

nsys imports `diagnose.nsight_recipe` because the folder `recipe/` (NSYS_RECIPE_PATH) holds a recipe of the name diagnose. Of nsys' own
library only the class Recipe, its context and its options are used; reports are read by this package, so that changes of nsys' data
services do not matter.

The default mode forks its workers: nothing that starts threads (polars) may be imported before `map` was called.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nsys_recipe
from msgspec import structs
from nsys_recipe.lib import recipe
from nsys_recipe.lib.args import Option

from diagnose.commands.options import JobFile, Reading
from diagnose.errors import DiagnoseError, UsageError
from diagnose.scale.elsewhere import ElsewhereEngine, Options, measure_input

FOLDER = Path(__file__).parent / "recipe" / "diagnose"
_TAKEN = set(Options.__struct_fields__)
OUTPUTS = {".html": "HTML", ".json": "JSON", ".md": "Markdown"}


class Diagnose(recipe.Recipe):  # type: ignore[misc] # nsys' library has no types
    """What holds the job back, from all its reports."""

    recipe_dir = str(FOLDER)  # metadata.json lies there, not beside this module

    @classmethod
    def get_argument_parser(cls) -> Any:
        """Options for input and output as all recipes have them, and ours."""
        parser = super().get_argument_parser()
        for standard in (Option.INPUT, Option.OUTPUT, Option.FORCE_OVERWRITE):
            parser.add_recipe_argument(standard)
        group = parser.recipe_group
        for name, option in {**JobFile.options, **Reading.options}.items():
            if name in _TAKEN:
                several = {"action": "append", "default": []} if option.attributes.get("multiple") else {}
                metavar, said = option.attributes.get("metavar"), option.attributes["help"].removesuffix(".")
                group.add_argument(*option.names, dest=name, metavar=metavar, help=said, **several)
        return parser

    def run(self, context: Any) -> None:
        """Measure every report, conclude, write the results."""
        super().run(context)
        try:
            self._diagnose(context)
        except DiagnoseError as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(error.exit_code) from None

    def _diagnose(self, context: Any) -> None:
        reports = _distinct(self.get_parsed_arg("input") or [])
        if not reports:
            raise UsageError(
                "No report is given.", effect="Nothing was analysed.", next_step="Name reports or a folder of them with --input."
            )
        options = self._options()
        packed = context.wait(context.map(measure_input, reports, options=options, inputs=len(reports)))

        from diagnose.pipeline import diagnose  # noqa: PLC0415 - only now; see the module's text
        from diagnose.render import format_of, write  # noqa: PLC0415

        document = diagnose(reports, engine=ElsewhereEngine(outcomes=dict(zip(reports, packed, strict=True))), **structs.asdict(options))
        for extension, kind in OUTPUTS.items():
            file = Path(self.add_output_file(f"diagnosis{extension}", kind))
            file.write_text(write(document, format_of(file, "diagnosis") or ""), encoding="utf-8")
        self._analysis_dict.update(EndTime=str(datetime.now(tz=UTC)), InputFiles=reports, Outputs=self._output_files)
        self.create_analysis_file()
        print(write(document, "text").split("\n\n")[0])  # noqa: T201 - the verdict

    def _options(self) -> Options:
        config, nsys = self.get_parsed_arg("config"), self.get_parsed_arg("nsys")
        return Options(
            config=Path(config).absolute() if config else None,
            overrides=tuple(self.get_parsed_arg("overrides", ())),
            rules=tuple(Path(path).absolute() for path in self.get_parsed_arg("rules", ())),
            step_range=self.get_parsed_arg("step_range"),
            nsys=Path(nsys).absolute() if nsys else _installed_nsys(),
        )


def _distinct(reports: list[str]) -> list[str]:
    """Absolute paths, each file once: as `diagnose` will see them."""
    found: dict[str, str] = {}
    for path in reports:
        found.setdefault(os.path.realpath(path), str(Path(path).absolute()))
    return list(found.values())


def _installed_nsys() -> Path | None:
    """The nsys whose recipe library runs this, four folders above it; None (the one on PATH) where it lies elsewhere."""
    program = Path(nsys_recipe.__file__).parents[3] / "nsys"
    return program if program.is_file() else None
