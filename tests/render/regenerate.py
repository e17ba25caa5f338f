"""Write the files that tests compare with: `python -m tests.render.regenerate` in the repository's root, then read the difference."""

import json
from functools import cache
from pathlib import Path

from diagnose.cli import cli
from diagnose.document.bisection import Bisection
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.forecast import Forecast
from diagnose.document.history import History
from diagnose.knowledge.settings import load_job_settings
from diagnose.knowledge.vocabulary import load_vocabulary
from diagnose.render import Options, formats_for, kind_of, write
from pages.manual import manual
from pages.schema import json_schema
from tests.builders import bisection as bisected
from tests.builders.comparison import refused
from tests.builders.comparison import rich as compared
from tests.builders.diagnosis import minimal, rich
from tests.builders.kept import DATA

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
SCHEMA = ROOT / "reports" / "diagnosis.schema.json"
COMPARISON_SCHEMA = ROOT / "reports" / "comparison.schema.json"
BISECTION_SCHEMA = ROOT / "reports" / "bisection.schema.json"
FORECAST_SCHEMA = ROOT / "reports" / "forecast.schema.json"
HISTORY_SCHEMA = ROOT / "reports" / "history.schema.json"
MANUAL = ROOT / "docs" / "diagnose.1"
JOB_FILE = "configs/job.yaml"


@cache
def schema_text(document: type = Diagnosis) -> str:
    return _text(json_schema(document, walls=tuple(load_vocabulary().walls.walls), job_formats=tuple(load_job_settings().formats)))


def _text(schema: dict[str, object]) -> str:
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def goldens() -> dict[Path, str]:
    """One document of each kind with a verdict in every format but HTML, which holds a drawing library; and the schemas."""
    extensions = {"text": "txt", "markdown": "md", "github": "github.txt", "junit": "xml", "sarif": "sarif"}
    shown, narrow = Options(job_file=JOB_FILE, detail=2), Options(width=80)
    samples = {"rich": rich(), "comparison": compared(), "bisection": bisected.rich()}
    made = {
        GOLDEN / f"{name}.{extensions[format_]}": write(document, format_, shown)
        for name, document in samples.items()
        for format_ in formats_for(kind_of(document))
        if format_ in extensions
    }
    return {
        **made,
        **{DATA / f"{kind_of(document)}.json": write(document, "json") for document in samples.values()},
        **{GOLDEN / f"{name}-80.txt": write(document, "text", narrow) for name, document in samples.items()},
        GOLDEN / "minimal.txt": write(minimal(), "text", Options(detail=2)),
        GOLDEN / "comparison-refused.txt": write(refused(), "text", Options(detail=2)),
        GOLDEN / "bisection-several.txt": write(bisected.several(), "text"),
        MANUAL: manual(cli),
        SCHEMA: schema_text(),
        COMPARISON_SCHEMA: schema_text(Comparison),
        BISECTION_SCHEMA: schema_text(Bisection),
        HISTORY_SCHEMA: schema_text(History),
        FORECAST_SCHEMA: schema_text(Forecast),
    }


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for path, text in goldens().items():
        path.write_text(text, encoding="utf-8")
