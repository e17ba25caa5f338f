"""The program's own knowledge, read once in a process: nearly every call of the command line reads it, and it never changes."""

import os
import pickle
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import polars as pl

from diagnose.knowledge import load as loading
from diagnose.knowledge import rule_checks, rule_files, strict_yaml, taxonomy
from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.conditions import Expression, Kind
from tests.builders.simulated import AFRESH

T = TypeVar("T")
Compile: TypeAlias = Callable[
    [Sequence[rule_checks.Wanted], Mapping[str, pl.DataType], Mapping[str, bytes]], dict[tuple[str, Kind], Expression]
]
load_afresh = loading.read_rulebook


def read_once() -> None:
    """From now on this process keeps the rulebook and the taxonomy without rules of the user's, what each rule file holds, the buckets,
    each bucket file, that such files go together, each expression that was found right over the same names, and what the YAML of any
    bytes says (packed, so that each caller has its own).

    Not where tests/builders/simulated.py makes its runs afresh either, so that it is recorded which tests reach what reads them.
    """
    if os.environ.get(AFRESH):
        return
    bucket_file = taxonomy.bucket_file

    def kept_file(path: Traversable | Path, buckets: Buckets, *, packaged: bool = False) -> Any:
        if not path.is_file():
            return bucket_file(path, buckets)
        files[id(buckets)] = buckets  # so that its id stays its own
        return _kept((str(path), path.read_bytes(), id(buckets), packaged), lambda: bucket_file(path, buckets, packaged=packaged))

    def kept_book(extra: tuple[Any, ...], *, check: bool) -> Any:
        return load_afresh(extra, check=check) if extra else _kept(("rulebook", check), lambda: load_afresh((), check=check))

    def kept_check(made: taxonomy.Taxonomy, parts: Sequence[Any], name: str, *, packaged: bool) -> None:
        _kept(("fine", packaged, *map(id, parts)), lambda: check(made, parts, name, packaged=packaged))

    files: dict[int, Buckets] = {}
    parse = rule_files.parse
    loading.read_rulebook = kept_book
    loading.parse = rule_files.parse = lambda source, kind: _kept((source, kind), lambda: parse(source, kind))  # type: ignore[assignment]
    rule_checks.compile_all = _compiled_once(rule_checks.compile_all)  # type: ignore[assignment]
    load_buckets = taxonomy.load_buckets
    taxonomy.load_buckets = loading.load_buckets = lambda data=None: _kept(("buckets", data), lambda: load_buckets(data))  # type: ignore[attr-defined]
    check = taxonomy.check_files
    taxonomy.bucket_file = kept_file
    taxonomy.check_files = kept_check
    load_taxonomy = taxonomy.load_taxonomy

    def kept_taxonomy(
        folder: Traversable | Path | None = None, extra: Sequence[Path] = (), buckets: Buckets | None = None
    ) -> taxonomy.Taxonomy:
        buckets = taxonomy.load_buckets() if buckets is None else buckets
        if folder is not None or extra:
            return load_taxonomy(folder, extra, buckets)
        files[id(buckets)] = buckets
        return _kept(("taxonomy", id(buckets)), lambda: load_taxonomy(None, (), buckets))

    taxonomy.load_taxonomy = loading.load_taxonomy = kept_taxonomy  # type: ignore[attr-defined]
    load = strict_yaml.load

    def kept_yaml(text: str | bytes, repeated: list[strict_yaml.Repeated] | None = None) -> object:
        if repeated is not None or not isinstance(text, bytes):
            return load(text, repeated)
        return pickle.loads(_kept(text, lambda: pickle.dumps(load(text))))  # noqa: S301 - packed a line above

    strict_yaml.load = kept_yaml


def _compiled_once(compile_all: Compile) -> Compile:
    """Compiles, and tries the types of, what it has not found right over the same names before: the first fault stays the first."""
    right: dict[frozenset[tuple[str, pl.DataType]], dict[tuple[str, Kind], Expression]] = defaultdict(dict)

    def compiled(
        wanted: Sequence[rule_checks.Wanted], schema: Mapping[str, pl.DataType], files: Mapping[str, bytes]
    ) -> dict[tuple[str, Kind], Expression]:
        known = right[frozenset(schema.items())]
        known |= compile_all([one for one in wanted if (one.text, one.kind) not in known], schema, files)
        return {(one.text, one.kind): known[one.text, one.kind] for one in wanted}

    return compiled


_KEPT: dict[Hashable, Any] = {}


def _kept(key: Hashable, make: Callable[[], T]) -> T:
    if key not in _KEPT:
        _KEPT[key] = make()
    found: T = _KEPT[key]
    return found
