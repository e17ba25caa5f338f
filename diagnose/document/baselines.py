"""The document `baselines/1`: what is stored under which name; and `storedrun/1`, one stored run, which is one file."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from diagnose.document.diagnosis import Diagnosis
from diagnose.model.vocabulary import Wall

SCHEMA = "baselines/1"
RUN_SCHEMA = "storedrun/1"


class StoredRun(Struct, frozen=True, kw_only=True):
    """One run as it is stored.

    `date`: UTC, as 2026-01-31T23:59:59Z; `commit` and `host_class` as told when it was added; `label`: the bare name of its trace.
    """

    schema: str
    date: str
    commit: str | None
    host_class: str | None
    label: str
    diagnosis: Diagnosis


def decode_run(data: bytes) -> StoredRun:
    """A stored run from JSON bytes. Raises msgspec.ValidationError."""
    return msgspec.json.decode(data, type=StoredRun)


class RunRow(Struct, frozen=True, kw_only=True):
    """One run of a stored baseline; `step_ns` and `steps` are None where `problem` says that the file can't be used.

    `step_ns` is the median of the `steps` that a comparison takes, which may leave out a last one. `date` is empty where it was never told.
    """

    run: str
    date: str
    commit: str | None
    host_class: str | None
    label: str
    bytes: int
    step_ns: int | None = None
    steps: int | None = None
    problem: str = ""


class StoredBaseline(Struct, frozen=True, kw_only=True):
    """The runs of one job and device under one name, oldest first.

    `step_ns` is the median of their median steps, `noise` the standard deviation between them, relative.

    All but name, fingerprint, bytes and runs are None where none of them can be used; `problem` names those that can't.
    """

    name: str
    fingerprint: str
    bytes: int
    runs: tuple[RunRow, ...] = ()
    job: dict[str, str] | None = None
    device: str | None = None
    step_ns: int | None = None
    steps: int | None = None
    noise: float | None = None
    target_wall: Wall | None = None
    problem: str = ""


class Baselines(Struct, frozen=True, kw_only=True):
    """All that is stored in a folder, or under one name; `detail`: with a row for each run.

    `store`: what a command says besides to mean that folder, where it is not the usual one.
    """

    entries: tuple[StoredBaseline, ...]
    detail: bool = False
    store: str = ""
