"""What each bucket holds, in words (trace_rules/bucket_meanings.yaml). Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

import msgspec
from msgspec import Struct

from diagnose import strict_yaml
from diagnose.errors import RuleFileError
from diagnose.vocabulary import BUCKETS

_FILE = "bucket_meanings.yaml"


class BucketMeaning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bucket; the fields are explained at the top of the YAML file."""

    holds: str
    elsewhere: str
    told_by: str
    traps: tuple[str, ...]
    sources: tuple[str, ...]


@lru_cache(maxsize=1)
def load_bucket_meanings() -> Mapping[str, BucketMeaning]:
    """The meanings of all buckets, in the order of the vocabulary. Raises RuleFileError."""
    return parse_bucket_meanings((files("trace_rules") / _FILE).read_bytes())


def parse_bucket_meanings(data: bytes) -> Mapping[str, BucketMeaning]:
    """The meanings in a file's bytes. Raises RuleFileError, also where a bucket is missing or unknown."""
    try:
        found = msgspec.convert(strict_yaml.load(data), dict[str, BucketMeaning])
    except (strict_yaml.YamlError, msgspec.ValidationError) as error:
        raise _wrong(str(error)) from error
    odd = sorted(set(found) ^ set(BUCKETS))
    if odd:
        raise _wrong(f"these buckets are missing or unknown: {', '.join(odd)}")
    return MappingProxyType({bucket: found[bucket] for bucket in BUCKETS})


def _wrong(what: str) -> RuleFileError:
    return RuleFileError(
        f"{_FILE} is wrong: {what.rstrip('.')}.",
        effect="No bucket can be explained.",
        next_step="Correct the file; the comment at its top explains the fields.",
    )
