"""A format of job files is one reader and its record: a format is added to a copy of the program, and everything else knows it."""

import ast
import json
from pathlib import Path

import pytest

from diagnose.document.diagnosis import JobRead
from diagnose.job.formats import READERS
from diagnose.knowledge.settings import load_job_settings
from pages.schema import json_schema
from tests.changes.conftest import ROOT, ProgramCopy

FORMATS = Path("diagnose/job/formats")
READER = '''"""Jobs of Probeworks: one `NAME is VALUE` a line below the line `probeworks`."""

from diagnose.job.formats.reader import Reader
from diagnose.job.model import Leaf, Parsed
from diagnose.job.text import JobText
from diagnose.knowledge import strict_yaml

NAME = "probeworks"


def _read(text: JobText) -> Parsed | None:
    if not text.lines or text.lines[0] != NAME:
        return None
    pairs = [(number, line.split(" is ")) for number, line in enumerate(text.text.splitlines(), 1) if " is " in line]
    leaves = (Leaf(key=key, shown=key, value=strict_yaml.load(value), line=number) for number, (key, value) in pairs)
    return Parsed(format=NAME, leaves=tuple(leaves))


READER = Reader(name=NAME, read=_read)
'''
RECORD = "probeworks: {title: Probeworks Trainer, keys_are: dotted, frameworks: [probeworks], defaults: own}\n"
JOB = "probeworks\nshards is 4\ncontext is 2\nwindow is 4099\nabacus is 7\n"


@pytest.fixture
def probed(program: ProgramCopy) -> ProgramCopy:
    """The copy with one format more."""
    program.write(f"{FORMATS}/probeworks.py", READER)
    table = f"{FORMATS}/__init__.py"
    program.replace(table, "\n    plain,\n", "\n    plain,\n    probeworks,\n")
    program.replace(table, "        torchtitan,\n", "        probeworks,\n        torchtitan,\n")
    program.append("trace_rules/job_formats.yaml", RECORD)
    for setting, key in (("tensor_model_parallel_size", "shards"), ("context_parallel_size", "context"), ("seq_length", "window")):
        settings = program.read("trace_rules/job_settings.yaml")
        row = next(line for line in settings.splitlines() if line.startswith(f"{setting}: "))
        changed = row.replace("keys: {", f"keys: {{probeworks: [{key}], ").replace("defaults: {", "defaults: {probeworks: 1, ")
        program.write("trace_rules/job_settings.yaml", settings.replace(row, changed))
    return program


@pytest.mark.deep
def test_a_new_format_of_job_files_is_read_checked_and_shown(probed: ProgramCopy, demo_trace: Path) -> None:
    job = probed.write("job.probe", JOB)
    told, text = probed.runs(("check", job, "--format", "json"), ("check", job), status=1)
    checked = json.loads(told)
    assert checked["job"]["format"] == "probeworks"
    assert [(row["name"], row["value"], row["key"], row["line"]) for row in checked["job"]["settings"]] == [
        ("tensor_model_parallel_size", 4, "shards", 2),
        ("context_parallel_size", 2, "context", 3),
        ("expert_tensor_parallel_size", 4, "shards", 2),
        ("seq_length", 4099, "window", 4),
    ]
    assert checked["job"]["unknown"] == ["abacus"]
    assert "sequence-not-divisible-for-context-parallelism" in [row["id"] for row in checked["results"]]
    assert text.startswith("probeworks job")
    document = probed.folder / "run.json"
    _, *pages, explained, compared, fixed = probed.runs(
        (demo_trace, "--config", job, "-o", document),
        *(("render", document, "-vv", "--format", format_) for format_ in ("text", "markdown", "html")),
        ("explain", "job_tensor_model_parallel_size"),
        ("compare", document, document, "--format", "json"),
        ("patch", "--config", job, "--fix", "HOST-03", "--format", "json"),
    )
    assert ["Probeworks Trainer" in page for page in pages] == [True] * 3
    assert "shards" in explained
    assert json.loads(compared)["outcome"]
    patched = json.loads(fixed)
    assert (patched["rewritten"], patched["source"]) == (False, "job.probe")
    assert probed.changed() == {
        f"{FORMATS}/probeworks.py",
        f"{FORMATS}/__init__.py",
        "trace_rules/job_formats.yaml",
        "trace_rules/job_settings.yaml",
    }


def test_a_format_that_the_table_does_not_know_is_an_error(program: ProgramCopy) -> None:
    settings = "trace_rules/job_settings.yaml"
    program.write(settings, program.read(settings).replace("recipe: {", "receipt: {", 1))
    job = program.write("job.yaml", "model: {num_layers: 2}\n")
    said = program.python("-m", "diagnose", "check", job, status=2)
    assert said == ""
    program.write(settings, program.read(settings).replace("receipt: {", "recipe: {", 1))
    program.append("trace_rules/job_formats.yaml", RECORD.replace("[probeworks]", "[abacus]"))
    program.python("-m", "diagnose", "check", job, status=2)


def test_every_format_has_a_record_and_a_reader_and_no_other_file_names_it() -> None:
    assert set(READERS) == set(load_job_settings().formats)
    assert list(READERS)[-1] == "plain", "any map of keys can be a plain job file"
    formats = load_job_settings().formats
    for name, row in formats.items():
        own = any(spec.keys_in(name) for spec in load_job_settings().specs.values())
        assert row.keys_are is not None or not own, name
        assert own or row.keys_are in (None, formats[row.frameworks[0]].keys_are), f"{name}: in the keys of the framework, or in none"
    schema = json_schema(JobRead, walls=(), job_formats=tuple(load_job_settings().formats))
    assert schema["$defs"]["JobRead"]["properties"]["format"]["enum"] == sorted(READERS)
    ordinary = {"plain", "overrides", "recipe"}  # words that mean other things elsewhere
    names = set(load_job_settings().formats) - ordinary
    assert names
    found = {
        (path.relative_to(ROOT).as_posix(), node.value)
        for path in (ROOT / "diagnose").rglob("*.py")
        if path.parent != ROOT / FORMATS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert found == set()
