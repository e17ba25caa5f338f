"""Write the files that tests compare with: `python -m tests.render.regenerate` in the repository's root, then read the difference."""

from __future__ import annotations

import json
from pathlib import Path

from diagnose.diagnosis import json_schema
from diagnose.render import RENDERERS, Options
from tests.render.sample import minimal, rich

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
SCHEMA = ROOT / "reports" / "diagnosis.schema.json"


def schema_text() -> str:
    return json.dumps(json_schema(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


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
    for path, text in goldens().items():
        path.write_text(text, encoding="utf-8")
