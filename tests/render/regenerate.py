"""Write the files that tests compare with: `python -m tests.render.regenerate` in the repository's root, then read the difference."""

from __future__ import annotations

import json
from pathlib import Path

from diagnose.document.bisection import Bisection
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.schema import json_schema
from diagnose.knowledge.settings import load_formats
from diagnose.knowledge.vocabulary import load_vocabulary
from diagnose.render import RENDERERS, Options
from diagnose.render.bisection import RENDERERS as BISECTION
from diagnose.render.comparison import RENDERERS as COMPARISON
from tests.builders import bisection as bisected
from tests.builders.comparison import refused
from tests.builders.comparison import rich as compared
from tests.builders.diagnosis import minimal, rich

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
SCHEMA = ROOT / "reports" / "diagnosis.schema.json"
COMPARISON_SCHEMA = ROOT / "reports" / "comparison.schema.json"
BISECTION_SCHEMA = ROOT / "reports" / "bisection.schema.json"
JOB_FILE = "configs/job.yaml"


def schema_text(document: type = Diagnosis) -> str:
    return _text(json_schema(document, walls=tuple(load_vocabulary().walls.walls), job_formats=tuple(load_formats())))


def _text(schema: dict[str, object]) -> str:
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def comparison_goldens() -> dict[Path, str]:
    """One comparison in every format but HTML, which holds a drawing library; and the schema of the document."""
    extensions = {"text": "txt", "json": "json", "markdown": "md", "github": "github.txt", "junit": "xml", "sarif": "sarif"}
    shown = Options(job_file=JOB_FILE)
    return {
        **{GOLDEN / f"comparison.{ending}": COMPARISON[name](compared(), shown) for name, ending in extensions.items()},
        GOLDEN / "comparison-80.txt": COMPARISON["text"](compared(), Options(width=80)),
        GOLDEN / "comparison-refused.txt": COMPARISON["text"](refused(), shown),
        GOLDEN / "rich.github.txt": RENDERERS["github"](rich(), shown),
        GOLDEN / "rich.xml": RENDERERS["junit"](rich(), shown),
        GOLDEN / "rich.sarif": RENDERERS["sarif"](rich(), shown),
        COMPARISON_SCHEMA: schema_text(Comparison),
    }


def bisection_goldens() -> dict[Path, str]:
    """One bisection in every format but HTML, one with several steps, and the schema of the document."""
    extensions = {"text": "txt", "json": "json", "markdown": "md"}
    return {
        **{GOLDEN / f"bisection.{ending}": BISECTION[name](bisected.rich(), Options()) for name, ending in extensions.items()},
        GOLDEN / "bisection-80.txt": BISECTION["text"](bisected.rich(), Options(width=80)),
        GOLDEN / "bisection-several.txt": BISECTION["text"](bisected.several(), Options()),
        BISECTION_SCHEMA: schema_text(Bisection),
    }


def goldens() -> dict[Path, str]:
    return {
        GOLDEN / "rich.txt": RENDERERS["text"](rich(), Options()),
        GOLDEN / "rich-80.txt": RENDERERS["text"](rich(), Options(width=80)),
        GOLDEN / "minimal.txt": RENDERERS["text"](minimal(), Options()),
        GOLDEN / "rich.md": RENDERERS["markdown"](rich(), Options()),
        SCHEMA: schema_text(),
    }


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for path, text in (goldens() | comparison_goldens() | bisection_goldens()).items():
        path.write_text(text, encoding="utf-8")
