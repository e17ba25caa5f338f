"""The rows of trace_rules/buckets.yaml: each bucket with everything that the program and its readers know of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import polars as pl
from msgspec import Struct

from diagnose.document.ranks import LateCause
from diagnose.knowledge.data import WrongDataError, checked, contents
from diagnose.model.vocabulary import METHOD_BUCKETS, Role

FILE = "buckets.yaml"
Sign = Literal["expert", "router", "packing", "attention", "norm", "activation", "optimizer", "other"]


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ranks that run a bucket are said to hold, and at which place of that list."""

    order: int
    words: str


class BucketSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bucket; the fields are explained at the top of the YAML file."""

    title: str
    colour: str
    holds: str
    elsewhere: str
    told_by: str
    traps: tuple[str, ...]
    sources: tuple[str, ...]
    model_work: bool = False
    role: Role = "compute"
    sign: Sign | None = None
    part: Part | None = None
    alike: Literal["held", "counted"] | None = None
    data_dependent: bool = False
    late_cause: LateCause = "more_work"


Buckets: TypeAlias = Mapping[str, BucketSpec]  # in the order of the vocabulary


def load_buckets(data: bytes | None = None) -> Buckets:
    """The buckets in a file's bytes (by default the program's own). Raises RuleFileError, also where one that measures go by is missing."""
    with checked(FILE, effect="No trace can be classified.", next_step="Correct the file; the comment at its top explains the fields."):
        found = contents(FILE, dict[str, BucketSpec], data)
        problems = [f"the bucket {name} is missing, which measures go by" for name in METHOD_BUCKETS if name not in found]
        odd = [name for name in found if not re.fullmatch(r"[a-z][a-z0-9_]*", name)]
        problems += [f"{name!r} is no name for a bucket: small letters, digits and _" for name in odd]
        odd = [name for name, spec in found.items() if not re.fullmatch(r"#[0-9a-f]{6}", spec.colour)]
        problems += [f"{name}: {found[name].colour!r} is no colour like #0072b2" for name in odd]
        if problems:
            raise WrongDataError(problems[0])
        return found


def bucket_type(buckets: Buckets) -> pl.Enum:
    """The type of columns that hold buckets; its order is that of the vocabulary."""
    return pl.Enum(list(buckets))
