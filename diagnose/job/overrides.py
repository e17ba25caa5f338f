"""Hydra's overrides of single keys: `key=value`, `+key=value`, `++key=value`, `~key`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.job.model import Leaf, job_error
from diagnose.job.trees import plain_value
from diagnose.knowledge import strict_yaml

OVERRIDE = re.compile(r"(?P<sign>~|\+\+|\+)?(?P<key>-{0,2}[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?", re.DOTALL)


def parse_overrides(texts: Sequence[str], *, source: str = "--set") -> tuple[Leaf, ...]:
    """Overrides as values that go before a file's. Raises JobFileError.

    Of two for one key the later counts, as in Hydra.
    """
    found: dict[str, Leaf] = {}
    for text in texts:
        leaf = override(text, source)
        found.pop(leaf.key, None)
        found[leaf.key] = leaf
    return tuple(found.values())


def override_lines(text: str, source: str) -> tuple[Leaf, ...]:
    """A file of overrides, one a line; several stand in one line where each is an override by itself. Raises JobFileError."""
    leaves: dict[str, Leaf] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip().removesuffix("\\").strip()
        if not bare or bare.startswith("#"):
            continue
        words = bare.split()
        for word in words if len(words) > 1 and all(is_override_line(word) for word in words) else [bare]:
            leaf = override(word, source, line=number)
            leaves.pop(leaf.key, None)
            leaves[leaf.key] = leaf
    return tuple(leaves.values())


def override(text: str, source: str, *, line: int | None = None) -> Leaf:
    """One override, of a line of the file or, without one, of what `source` names. Raises JobFileError."""
    match = OVERRIDE.fullmatch(text.strip())
    if match is None or (match["value"] is None and match["sign"] != "~"):
        raise job_error(source, f"has {text.strip()[:80]!r}, which is no override", "Write KEY=VALUE, ++KEY=VALUE or ~KEY.")
    key = match["key"].replace("/", ".")
    removed = match["sign"] == "~"
    return Leaf(
        key=_lookup(key),
        shown=key,
        value=None if removed else _value(match["value"] or "", source, key),
        place=source if line is None else f"line {line}",
        line=line,
        forced=True,
        removed=removed,
    )


def is_override_line(line: str) -> bool:
    """Whether a line is one override. An environment variable in capitals is not."""
    match = OVERRIDE.fullmatch(line.removesuffix("\\").strip())
    if match is None or match["key"].startswith("-") or match["key"].isupper():
        return False
    return match["sign"] == "~" if match["value"] is None else True


def _value(text: str, source: str, key: str) -> object:
    """A value of Hydra's grammar; what YAML can't read is text."""
    try:
        value = strict_yaml.load(text)
    except (strict_yaml.YamlError, ValueError) as error:
        raise job_error(source, f"has {key}={text[:60]!r}, which can't be read: {error}", "Quote the value.") from error
    return plain_value(value)


def _lookup(key: str) -> str:
    """The key without the level that some dumps put between model and its settings."""
    return "model." + key.removeprefix("model.transformer.") if key.startswith("model.transformer.") else key
