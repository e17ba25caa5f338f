"""The part of SARIF 2.1.0 that this program writes, as rules: which members an object may have, which it must, and of what kind they are.

Written after the specification (OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", sections 3.13 to 3.58); anything
else is refused.
"""

import re
from collections.abc import Callable
from typing import Any

Rule = Callable[[Any, str], None]


def text(value: Any, place: str) -> None:
    assert isinstance(value, str), place
    assert value.strip(), f"{place} is empty"


def message_text(value: Any, place: str) -> None:
    text(value, place)
    assert not re.sub(r"\{\{|\}\}", "", value).count("{"), f"{place}: a single brace begins a placeholder"
    assert not re.search(r"(?<!\\)\[[^\]]*\]\(", value), f"{place}: a link"
    assert not re.search(r"[\x00-\x1f\x7f]", value), f"{place}: a control sign"


def number(value: Any, place: str) -> None:
    assert isinstance(value, int), place
    assert not isinstance(value, bool), place


def positive(value: Any, place: str) -> None:
    number(value, place)
    assert value >= 1, place


def flag(value: Any, place: str) -> None:
    assert isinstance(value, bool), place


def one_of(*words: str) -> Rule:
    def check(value: Any, place: str) -> None:
        assert value in words, place

    return check


def relative_path(value: Any, place: str) -> None:
    text(value, place)
    assert re.fullmatch(r"(?!/)(?!.*//)[A-Za-z0-9._~%/+-]+", value), f"{place}: {value} is no relative reference"
    assert ".." not in value.split("/"), place


def many(rule: Rule, least: int = 0) -> Rule:
    def check(value: Any, place: str) -> None:
        assert isinstance(value, list), place
        assert len(value) >= least, place
        for index, item in enumerate(value):
            rule(item, f"{place}[{index}]")

    return check


def strings(value: Any, place: str) -> None:
    assert isinstance(value, dict), place
    for name, item in value.items():
        text(item, f"{place}.{name}")


def bag(value: Any, place: str) -> None:
    assert isinstance(value, dict), place
    many(text)(value.get("tags", []), f"{place}.tags")
    assert len(set(value.get("tags", []))) == len(value.get("tags", []))


def members(required: dict[str, Rule], optional: dict[str, Rule] | None = None) -> Rule:
    every = required | (optional or {})

    def check(value: Any, place: str) -> None:
        assert isinstance(value, dict), place
        assert set(required) <= set(value), f"{place} lacks {set(required) - set(value)}"
        assert set(value) <= set(every), f"{place} may not have {set(value) - set(every)}"
        for name, item in value.items():
            every[name](item, f"{place}.{name}")

    return check


def keyed(rule: Rule) -> Rule:
    def check(value: Any, place: str) -> None:
        assert isinstance(value, dict), place
        for name, item in value.items():
            rule(item, f"{place}.{name}")

    return check


LEVEL = one_of("none", "note", "warning", "error")
MESSAGE = members({"text": message_text})
DESCRIPTOR = members(
    {"id": text},
    {
        "name": text,
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": members({"level": LEVEL}),
        "properties": bag,
    },
)
ARTIFACT = members({"uri": relative_path}, {"uriBaseId": text})
LOCATION = members({"physicalLocation": members({"artifactLocation": ARTIFACT}, {"region": members({"startLine": positive})})})
RESULT = members(
    {"message": MESSAGE},
    {
        "ruleId": text,
        "ruleIndex": number,
        "level": LEVEL,
        "kind": one_of("notApplicable", "pass", "fail", "review", "open", "informational"),
        "locations": many(LOCATION, least=1),
        "partialFingerprints": strings,
        "properties": bag,
    },
)
DRIVER = members({"name": text}, {"version": text, "rules": many(DESCRIPTOR), "properties": bag})
NOTIFICATION = members({"message": MESSAGE}, {"level": LEVEL})
RUN = members(
    {"tool": members({"driver": DRIVER})},
    {
        "results": many(RESULT),
        "invocations": many(members({"executionSuccessful": flag}, {"toolExecutionNotifications": many(NOTIFICATION)})),
        "columnKind": one_of("utf16CodeUnits", "unicodeCodePoints"),
        "originalUriBaseIds": keyed(members({"description": MESSAGE})),
    },
)
LOG = members({"version": one_of("2.1.0"), "runs": many(RUN, least=1)}, {"$schema": text})


def check_log(log: Any) -> None:
    """Fail unless this is a log of that structure, and what refers to something else in it finds it."""
    LOG(log, "log")
    for run in log["runs"]:
        rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert len(rules) == len(set(rules))
        for result in run["results"]:
            assert rules[result["ruleIndex"]] == result["ruleId"]
            bases = {place["physicalLocation"]["artifactLocation"].get("uriBaseId") for place in result.get("locations", [])}
            assert bases <= set(run.get("originalUriBaseIds", {}))
