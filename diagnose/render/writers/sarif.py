"""A SARIF 2.1.0 log: one result per issue, at the line of the job file that holds the setting to change.

What code scanning needs: a path within the repository, at least one location, and a fingerprint that stays when lines move.
Sources: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0"; docs.github.com, "SARIF support for code scanning".
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from diagnose.render.issues import GATE, Issue, IssueList, costliest_first, shown
from diagnose.render.writers import Options, Writer

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
NO_JOB_FILE = "No job file of the repository was given, so that results have no location; give one that lies in it with --config."


def write(results: IssueList, options: Options) -> str:
    """The log as JSON."""
    found = costliest_first(results.issues)
    ids = list(dict.fromkeys(one.id for one in found))
    run: dict[str, Any] = {
        "tool": {"driver": _driver(results, found, ids)},
        "invocations": [_invocation(options)],
        "columnKind": "utf16CodeUnits",
        "results": [_result(one, ids, options) for one in found],
    }
    if options.job_file:
        run["originalUriBaseIds"] = {ROOT: {"description": {"text": "The root of the repository that holds the job file."}}}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    import msgspec  # noqa: PLC0415 - so that the command line starts quickly

    return msgspec.json.format(msgspec.json.encode(log), indent=1).decode("utf-8") + "\n"


def _driver(results: IssueList, found: list[Issue], ids: list[str]) -> dict[str, Any]:
    first = {one.id: one for one in reversed(found)}
    driver: dict[str, Any] = {
        "name": shown(results.tool.name),
        "version": shown(results.tool.version),
        "rules": [_rule(first[key]) for key in ids],
    }
    if results.tool.rules_sha256:
        driver["properties"] = {"rules_sha256": results.tool.rules_sha256}
    return driver


def _rule(one: Issue) -> dict[str, Any]:
    """One rule with its help. Its texts are those of the rule, not of what it found, as far as they are known."""
    why = _message(one.help) or f"{_message(one.name)}."
    more = "" if one.group == GATE else f" `diagnose explain {_message(one.id)}` tells what it rests on and what can be changed."
    return {
        "id": _message(one.id),
        "shortDescription": {"text": _message(one.name)},
        "fullDescription": {"text": why},
        "help": {"text": f"{why}{more}"},
        "defaultConfiguration": {"level": one.severity},
        "properties": {"tags": ["performance", one.group]},
    }


def _invocation(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {"executionSuccessful": True}
    if not options.job_file:
        found["toolExecutionNotifications"] = [{"level": "note", "message": {"text": NO_JOB_FILE}}]
    return found


def _result(one: Issue, ids: list[str], options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ruleId": _message(one.id),
        "ruleIndex": ids.index(one.id),
        "level": one.severity,
        "kind": "fail",
        "message": {"text": _message(one.text) or _message(one.name)},
        "partialFingerprints": _fingerprints(one),
    }
    if options.job_file:
        artifact = {"uri": quote(options.job_file), "uriBaseId": ROOT}
        found["locations"] = [{"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": one.line or 1}}}]
    if one.cost_ns is not None:
        found["properties"] = {"cost_ns_per_step": one.cost_ns}
    return found


def _fingerprints(one: Issue) -> dict[str, str]:
    """The same for the same rule and setting, wherever its line stands and whatever it costs. GitHub reads `primaryLocationLineHash`."""
    import hashlib  # noqa: PLC0415 - so that the command line starts quickly

    digest = hashlib.sha256(f"{one.id}\0{one.key}".encode()).hexdigest()[:16]
    return {"primaryLocationLineHash": f"{digest}:1", "diagnose/v1": digest}


def _message(text: str) -> str:
    """Plain text in SARIF's sense: braces doubled, so that nothing is a placeholder, and no link."""
    return re.sub(r"\[(?=[^\]]*\]\()", r"\\[", shown(text).replace("{", "{{").replace("}", "}}"))


WRITER = Writer(name="sarif", extensions=(".sarif",), takes="issues", place=7, write=write)
