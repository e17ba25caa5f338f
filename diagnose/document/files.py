"""Saved documents of this program: which kind a file is, reading it, writing files whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from diagnose.document import baselines, bisection, comparison, diagnosis, forecast, history
from diagnose.document.bisection import Bisection
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.forecast import Forecast
from diagnose.document.history import History
from diagnose.errors import InputError, OutputError

Document = Diagnosis | Comparison | Bisection | History | Forecast

# By schema: what reads such a document, and the command that writes one.
_KINDS: Mapping[str, tuple[Callable[[bytes], Document], str]] = {
    diagnosis.SCHEMA: (diagnosis.decode, "diagnose TRACE"),
    comparison.SCHEMA: (comparison.decode, "diagnose compare"),
    bisection.SCHEMA: (bisection.decode, "diagnose bisect"),
    history.SCHEMA: (history.decode, "diagnose history"),
    forecast.SCHEMA: (forecast.decode, "diagnose whatif"),
}
SCHEMAS = tuple(_KINDS)
_STORED = "stored run/1"  # a run in a stored baseline, in words
_STALE_SECONDS = 3600.0  # a temporary file older than this was left by a run that was killed
_HEAD = 65_536
_LARGEST = 1 << 30  # bytes of JSON that are looked through for a schema; a document of 16,384 ranks has a quarter of it
_OWN = re.compile(rb'\s*\{\s*"schema"\s*:\s*"([a-z]{1,40}/[0-9]{1,6})"')
_OF_TRACES = re.compile(rb'"(?:traceEvents|schemaVersion|deviceProperties)"\s*:')


def schema_of(path: Path) -> str | None:
    """The schema of a document of this program at `path`, such as `diagnosis/1`; None where the file holds something else, or is none.

    Our own documents begin with their schema. Of other JSON the first 64 KiB tell whether it is a trace; what they leave open is read as a
    whole.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return None
    found = _OWN.match(head)
    if found is not None:
        return found.group(1).decode("ascii")
    if not head.lstrip().startswith(b"{") or b"\0" in head or _OF_TRACES.search(head):
        return None
    return _decoded_schema(path)


def _decoded_schema(path: Path) -> str | None:
    """The member `schema` of a JSON object, wherever it stands; None where it has none, or is no JSON."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw]).get("schema")
        schema = None if found is None else msgspec.json.decode(found)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return schema if isinstance(schema, str) and re.fullmatch(r"[a-z]{1,40}/[0-9]{1,6}", schema) else None


def read(path: Path, schemas: Sequence[str] = SCHEMAS) -> Document:
    """The saved document at `path`, of one of these schemas; of a run in a stored baseline its diagnosis.

    Raises InputError, which says whether it is another kind, a newer one, or damaged.
    """
    wanted = f"Give the JSON that `{' or `'.join(f'{_KINDS[one][1]} -o x.json`' for one in schemas)} wrote."
    with InputError.where_refused(f"{path} could not be read", effect="Nothing was written.", next_step=wanted):
        data = path.read_bytes()
    schema = schema_of(path)
    if schema == baselines.RUN_SCHEMA and diagnosis.SCHEMA in schemas:
        schema = _STORED
    elif schema is None or schema not in schemas:
        raise InputError(_other(path, schema, schemas), effect="Nothing was written.", next_step=wanted)
    try:
        return baselines.decode_run(data).diagnosis if schema == _STORED else _KINDS[schema][0](data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise InputError(f"{path} is not a whole {_kind(schema)}: {fault}.", effect="Nothing was written.", next_step=wanted) from fault


def read_diagnosis(path: Path) -> Diagnosis:
    """The saved diagnosis at `path`. Raises InputError."""
    return cast("Diagnosis", read(path, (diagnosis.SCHEMA,)))


def _other(path: Path, schema: str | None, schemas: Sequence[str]) -> str:
    """What a file is that holds none of the wanted schemas."""
    names = " or ".join(f"a {_kind(one)} of schema {one}" for one in schemas)
    if schema is None:
        return f"{path} is not {names}."
    kind, _, version = schema.partition("/")
    known = next((one for one in SCHEMAS if one.partition("/")[0] == kind), None)
    if known is not None and version != known.partition("/")[2]:
        age = "a newer" if int(version) > int(known.partition("/")[2]) else "an older"
        return f"{path} has the schema {schema}, which {age} version of this program wrote; this one reads {known}."
    return f"{path} has the schema {schema}; it is not {names}."


def _kind(schema: str) -> str:
    return schema.partition("/")[0]


def write_file(path: Path, text: str, *, force: bool) -> None:
    """Write `text`, packed where the name ends in `.gz`, so that `path` is the old file or the new one, never a part.

    Raises OutputError.
    """
    data = text.encode("utf-8")
    if path.suffix.lower() == ".gz":
        import gzip  # noqa: PLC0415

        data = gzip.compress(data, 6, mtime=0)
    write_bytes(path, data, force=force)


def write_bytes(path: Path, data: bytes, *, force: bool) -> None:
    """Write `data` so that `path` is the old file or the new one, never a part. Raises OutputError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    told, effect = f"{path} could not be written", "A file that was there before is unchanged."
    with OutputError.where_refused(told, effect=effect, next_step="Make room or choose another -o."):
        _clean(path)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _publish(temporary, path, force=force)
        finally:
            temporary.unlink(missing_ok=True)


def _publish(temporary: Path, path: Path, *, force: bool) -> None:
    """Give the finished file its name; without `force` only if nothing has that name."""
    if force:
        temporary.replace(path)
        return
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise
        temporary.replace(path)


def _clean(path: Path) -> None:
    """Remove what killed runs left beside `path` long ago."""
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > _STALE_SECONDS:
                stale.unlink()
