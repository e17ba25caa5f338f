"""`--bundle bug.zip`: all that a report of a fault needs in one file, without what is private, and the same bytes each time."""

from __future__ import annotations

import io
import json
import platform
import shlex
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.errors import JobFileError
from diagnose.render import Options, write
from diagnose.render.redaction import Redactor, listing
from diagnose.version import __version__

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis

ARGUMENTS = "diagnose.arguments"  # where the command line keeps what was typed
_LIBRARIES = ("adbc-driver-sqlite", "click", "jinja2", "msgspec", "plotly", "polars", "pyyaml", "rich", "distributed", "isal")
_SUFFIXES = (".yaml", ".yml", ".toml", ".json", ".sh", ".txt", ".flags", ".py", ".sbatch", ".overrides")
_README = """\
A diagnosis with what belongs to it, for a report of a fault.

report.html, report.md  the report
diagnosis.json          the document that they were made from (`diagnose render diagnosis.json`)
{job}versions.json           the program, its libraries, the profiler, and what the capture tells of the framework
command.txt             the command line
redacted.txt            what was taken out

{state}
Look through it before you send it. The trace itself is not in it.
"""


def bundle(document: Diagnosis, config: Path | None, arguments: Sequence[str], *, redact: bool) -> bytes:
    """The bundle as a zip file. Raises JobFileError where the job file can't be read any more."""
    job = None if config is None else _read(config)
    command = shlex.join(["diagnose", *arguments])
    listed = "Nothing was taken out (--no-redact)."
    if redact:
        redactor = Redactor(users=_users(), hosts=[platform.node()])
        job = None if job is None else redactor.job(job)
        command = redactor.job(command)
        document = redactor.record(document)
        listed = "\n".join(listing(redactor.stand_ins)) or "Nothing private was found."
    name = "" if config is None else f"job{config.suffix if config.suffix in _SUFFIXES else '.txt'}"
    state = (
        "Secrets, paths, and names of hosts and users were replaced, by form and by key: what has neither may still be there."
        if redact
        else "NOTHING WAS REDACTED (--no-redact): it may hold secrets, paths, and names of hosts and users."
    )
    members = {
        "README.txt": _README.format(job=f"{name:<24}the job file\n" if name else "", state=state),
        "report.html": write(document, "html", Options(light=True)),
        "report.md": write(document, "markdown"),
        "diagnosis.json": write(document, "json"),
        **({name: job} if job is not None else {}),
        "versions.json": json.dumps(dict(_versions(document)), indent=1, ensure_ascii=False) + "\n",
        "command.txt": command + "\n",
        "redacted.txt": listed + "\n",
    }
    return _zipped(members)


def _read(config: Path) -> str:
    with JobFileError.where_refused(f"{config} could not be read", effect="No bundle was written."):
        return config.read_text(encoding="utf-8", errors="replace")


def _users() -> Iterator[str]:
    """Who runs this, as far as the system tells."""
    import getpass  # noqa: PLC0415

    try:
        yield getpass.getuser()
    except (OSError, KeyError, ImportError):
        return


def _versions(document: Diagnosis) -> Iterator[tuple[str, Any]]:
    yield "diagnose", __version__
    yield "rules_sha256", document.tool.rules_sha256
    yield "python", platform.python_version()
    yield "system", f"{platform.system()} {platform.machine()}"
    yield "libraries", {name: version for name in _LIBRARIES if (version := _version(name)) is not None}
    yield "profiler", f"{document.capture.profiler} {document.capture.profiler_version or ''}".strip()
    yield "capture", {"format": document.capture.format, "schema": document.capture.schema_version}
    yield "framework", None if document.job is None else document.job.format
    yield "recorded in the capture", {item.name: item.value for item in document.environment if item.kind == "version"}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _zipped(members: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in members.items():
            entry = zipfile.ZipInfo(name)  # dated 1980, so that the same result is the same file
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            archive.writestr(entry, text.encode("utf-8"), compresslevel=6)
    return made.getvalue()
