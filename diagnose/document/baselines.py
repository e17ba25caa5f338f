"""The document `baselines/1`: what is stored under which name."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.model.vocabulary import Wall

SCHEMA = "baselines/1"


@dataclass(frozen=True, kw_only=True)
class StoredBaseline:
    """One stored baseline; all but name, fingerprint and size are None where `problem` says that the file can't be used."""

    name: str
    fingerprint: str
    bytes: int
    job: dict[str, str] | None = None
    device: str | None = None
    step_ns: int | None = None
    steps: int | None = None
    target_wall: Wall | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """All that is stored in a folder."""

    entries: tuple[StoredBaseline, ...]
