"""What each bucket holds, in words (trace_rules/bucket_meanings.yaml). Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from diagnose.knowledge.data import WrongDataError, checked, converted, packaged
from diagnose.model.vocabulary import BUCKETS

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
    return parse_bucket_meanings(packaged(_FILE))


def parse_bucket_meanings(data: bytes) -> Mapping[str, BucketMeaning]:
    """The meanings in a file's bytes. Raises RuleFileError, also where a bucket is missing or unknown."""
    with checked(_FILE, effect="No bucket can be explained.", next_step="Correct the file; the comment at its top explains the fields."):
        found = converted(data, dict[str, BucketMeaning])
        odd = sorted(set(found) ^ set(BUCKETS))
        if odd:
            raise WrongDataError(f"these buckets are missing or unknown: {', '.join(odd)}")
        return MappingProxyType({bucket: found[bucket] for bucket in BUCKETS})
