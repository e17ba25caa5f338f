"""What CI runners are told, of a diagnosis and of a comparison: annotations, JUnit, SARIF."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from msgspec import structs

from diagnose.document import comparison as c
from diagnose.document import diagnosis as d
from diagnose.render import Options, write
from diagnose.render.issues import Issue, costliest_first
from diagnose.render.reports.comparison import report as of_comparison
from diagnose.render.reports.diagnosis import report as of_diagnosis
from diagnose.render.writers.github import MOST
from tests.builders.cases import for_each
from tests.builders.comparison import SAMPLES as COMPARED
from tests.builders.comparison import huge, identical, improvement, minimal, refused, rich
from tests.builders.diagnosis import HOSTILE
from tests.builders.diagnosis import minimal as small_diagnosis
from tests.builders.diagnosis import rich as diagnosis
from tests.render.reading import parsed
from tests.render.sarif_structure import check_log

JOB = "configs/job.yaml"
CONTROL = "bell \x07, null \x00, escape \x1b[31m, \ufffe, \ud800, \u202e"


def with_lines() -> d.Diagnosis:
    """The sample, whose job file says on which lines its settings stand, and which has rules that found nothing and rules that could not
    be asked.
    """
    found = diagnosis()
    assert found.job is not None
    settings = (
        *found.job.settings[:2],
        d.JobSetting(name="overlap_moe_expert_parallel_comm", value=False, key="comm_overlap.overlap_moe_expert_parallel_comm", line=14),
    )
    return structs.replace(found, job=structs.replace(found.job, settings=settings, file="job.yaml"), passed=("host-fine", "memory-fine"))


def of(format_: str, document: d.Diagnosis | c.Comparison, **options: Any) -> str:
    return write(document, format_, Options(**options))


def log(document: d.Diagnosis | c.Comparison, **options: Any) -> Any:
    return json.loads(of("sarif", document, **options))["runs"][0]


def cases(document: d.Diagnosis | c.Comparison, **options: Any) -> dict[str, str]:
    """Name of each case and how it ended."""
    root = parsed(of("junit", document, **options))
    found = {}
    for case in root.iter("testcase"):
        child = next(iter(case), None)
        found[case.attrib["name"]] = "passed" if child is None else child.tag
    return found


DOCUMENTS: dict[str, Callable[[], d.Diagnosis | c.Comparison]] = {
    "diagnosis": with_lines,
    "small diagnosis": small_diagnosis,
    **COMPARED,
    "huge": huge,
}


# --- which checks there are -------------------------------------------------------------------------------------------


def test_without_a_gate_every_finding_about_the_run_fails() -> None:
    found = cases(with_lines())
    assert found == {
        "comm-blocking-expert-exchange": "failure",
        "host-launch-starved": "failure",
        "capture-unclassified": "system-out",
        "host-fine": "passed",
        "memory-fine": "passed",
        **{one.id: "skipped" for one in with_lines().not_assessed},
    }
    assert "skipped" in found.values()


def test_with_a_gate_those_fail_that_it_asks_about() -> None:
    found = cases(with_lines(), fail_on="high")
    assert (found["comm-blocking-expert-exchange"], found["host-launch-starved"]) == ("failure", "system-out")


@for_each(
    "document, state",
    (rich(), "failure"),
    (refused(), "error"),
    (identical(), "passed"),
    (structs.replace(rich(), gate=c.Gate(limit=0.03, fail_on=None, met=None, sentence="Noise hides it.")), "error"),
)
def test_a_gate_passes_fails_or_could_not_be_judged(document: c.Comparison, state: str) -> None:
    assert cases(document)["gate"] == state


@for_each(
    "document, state",
    (structs.replace(rich(), gate=None), "failure"),
    (structs.replace(refused(), gate=None), "error"),
    (minimal(), "skipped"),
    (improvement(), "passed"),
    (structs.replace(identical(), gate=None), "passed"),
)
def test_without_a_gate_the_result_is_the_case(document: c.Comparison, state: str) -> None:
    assert cases(document)["regression"] == state


def test_a_case_that_could_not_be_judged_says_why_the_runs_cant_be_compared() -> None:
    document = refused()
    reasons = [one.text for one in document.comparability.mismatches if one.state == "refused"]
    told = [one.text for one in of_comparison.issues(document, Options()).issues if one.state == "unjudged"]
    assert reasons
    assert len(told) == 1
    assert [reason for reason in reasons if reason not in told[0]] == []


def test_findings_fail_where_the_gate_asks_about_them() -> None:
    asked = {
        "none": structs.replace(rich(), gate=None),
        "regression": structs.replace(rich(), gate=c.Gate(limit=0.03, fail_on=None, met=True, sentence="")),
        "medium": structs.replace(rich(), gate=c.Gate(limit=None, fail_on="medium", met=False, sentence="")),
    }
    ended = {name: (cases(document)["COM-06"], cases(document)["HOST-01"], cases(document)["CAP-03"]) for name, document in asked.items()}
    assert ended == {
        "none": ("failure", "failure", "system-out"),
        "regression": ("system-out", "system-out", "system-out"),
        "medium": ("failure", "failure", "system-out"),
    }


def test_the_order_is_the_gate_then_what_costs_most() -> None:
    found = costliest_first(of_comparison.issues(rich(), Options()).issues)
    assert [one.id for one in found] == ["gate", "COM-06", "HOST-01", "CAP-03"]
    assert [one.cost_ns for one in found[1:]] == [38_004_000, 3_067_000, 0]


# --- GitHub -----------------------------------------------------------------------------------------------------------

_COMMAND = re.compile(r"::(error|warning|notice) (?:file=([^,:]+),line=(\d+),)?title=([^:,]+)::(.*)")


def commands(text: str) -> list[tuple[str, ...]]:
    found = []
    for line in text.splitlines():
        match = _COMMAND.fullmatch(line)
        assert match is not None, line
        found.append(tuple(part or "" for part in match.groups()))
    return found


def unescaped(text: str) -> str:
    """As the runner reads it."""
    for sign, code in ((":", "%3A"), (",", "%2C"), ("\r", "%0D"), ("\n", "%0A"), ("%", "%25")):
        text = text.replace(code, sign)
    return text


@for_each("name", *DOCUMENTS)
def test_every_line_is_one_command_and_there_are_ten_at_most(name: str) -> None:
    document = DOCUMENTS[name]()
    for job_file in ("", JOB):
        found = commands(of("github", document, job_file=job_file))
        assert 1 <= len(found) <= MOST


def test_annotations_point_at_the_line_of_the_setting() -> None:
    found = commands(of("github", with_lines(), job_file=JOB))
    assert [(kind, file, line) for kind, file, line, _, _ in found] == [("error", JOB, "14"), ("warning", JOB, "1"), ("notice", JOB, "1")]
    assert unescaped(found[0][3]) == "comm-blocking-expert-exchange: Blocking expert exchange"
    assert "To change: Overlap the expert exchange" in unescaped(found[0][4])
    assert all(file == line == "" for _, file, line, _, _ in commands(of("github", with_lines())))


def test_the_tenth_says_how_many_more_there_are() -> None:
    found = commands(of("github", huge(), job_file=JOB))
    assert (len(found), found[0][3], found[-1][0]) == (MOST, "gate%3A Step time against the base", "error")
    assert "392 more results without an annotation: X-008, " in found[-1][4]
    assert "and 372 more" in found[-1][4]


def test_exactly_ten_need_no_summary() -> None:
    document = with_lines()
    ten = tuple(structs.replace(document.findings[0], id=f"rule-{index}") for index in range(10))
    found = commands(of("github", structs.replace(document, findings=ten)))
    assert [title.partition("%3A")[0] for _, _, _, title, _ in found] == [f"rule-{index}" for index in range(10)]
    eleven = structs.replace(document, findings=(*ten, structs.replace(ten[0], id="rule-x")))
    last = commands(of("github", eleven))[-1]
    assert "2 more results" in last[4]


def test_what_a_gate_does_not_ask_about_is_no_error() -> None:
    found = {
        title.partition("%3A")[0]: kind
        for kind, _, _, title, _ in commands(
            of("github", structs.replace(rich(), gate=c.Gate(limit=0.5, fail_on=None, met=True, sentence="Met.")))
        )
    }
    assert found == {"gate": "warning", "COM-06": "warning", "HOST-01": "warning", "CAP-03": "notice"}, (
        "a regression within the limit warns"
    )


def test_a_run_without_anything_to_say_gets_one_notice() -> None:
    assert commands(of("github", identical())) == [
        ("notice", "", "", "diagnose gate", "No change: both are the same 5 steps of 120.691 ms.")
    ]
    kind, _, _, title, text = commands(of("github", small_diagnosis()))[0]
    assert (kind, title) == ("notice", "diagnose")
    assert unescaped(text) == small_diagnosis().verdict.sentence


@for_each("payload", *HOSTILE, "a,b::c%0A::error::x", "100 % of it\r\n::stop-commands::x", CONTROL)
def test_no_text_gives_an_order_of_its_own(payload: str) -> None:
    finding = structs.replace(diagnosis().findings[0], id=payload, name=payload, summary=payload, fixes=())
    text = of("github", structs.replace(diagnosis(), findings=(finding,)), job_file="a,b:c%.yaml")
    assert text.count("\n") == 1
    found = re.fullmatch(r"::error file=a%2Cb%3Ac%25.yaml,line=1,title=([^:,]*)::(.*)\n", text)
    assert found is not None
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\ud800]", text)


# --- JUnit ------------------------------------------------------------------------------------------------------------


# jenkinsci/xunit-plugin 031e285, junit-10.xsd: of each element that we write the attributes it must and may have, and what it may hold.
SCHEMA = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"name"}, {"time", "classname", "group"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    **dict.fromkeys(("failure", "error", "skipped"), (set[str](), {"type", "message"}, set[str]())),
    **dict.fromkeys(("system-out", "system-err"), (set[str](), set[str](), set[str]())),
}


def check_schema(element: ET.Element) -> None:
    """What the schema says of an element and all in it."""
    must, may, holds = SCHEMA[element.tag]
    assert must <= element.attrib.keys() <= must | may, (element.tag, element.attrib)
    assert re.fullmatch(r"[0-9]{0,3}(\.[0-9]*)?", element.attrib.get("time", "0"))
    assert {child.tag for child in element} <= holds
    for child in element:
        check_schema(child)


@for_each("name", *DOCUMENTS)
def test_junit_counts_what_it_holds(name: str) -> None:
    root = parsed(of("junit", DOCUMENTS[name](), job_file=JOB))
    assert root.tag == "testsuites"
    check_schema(root)
    for suite in (root, root[0]):
        counted = {
            kind: sum(1 for case in suite.iter("testcase") if case.find(kind) is not None) for kind in ("failure", "error", "skipped")
        }
        told = {kind: int(suite.attrib[f"{kind}s"]) for kind in ("failure", "error")} | {"skipped": int(root[0].attrib["skipped"])}
        assert counted == told
        assert int(suite.attrib["tests"]) == len(list(suite.iter("testcase")))
    names = [case.attrib["name"] for case in root.iter("testcase")]
    assert len(names) == len(set(names)) or name == "huge"


@for_each("payload", *HOSTILE, CONTROL, "]]>", "&amp;<![CDATA[")
def test_junit_is_xml_whatever_stands_in_it(payload: str) -> None:
    finding = structs.replace(diagnosis().findings[0], id=payload, name=payload, summary=payload, fixes=())
    text = of(
        "junit", structs.replace(diagnosis(), findings=(finding,), not_assessed=(d.NotAssessed(id=payload, missing=(), how=payload),))
    )
    root = parsed(text.encode("utf-8"))
    assert [next(iter(case)).tag for case in root.iter("testcase")] == ["failure", "skipped"]
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\ud800]", text)


# --- SARIF ------------------------------------------------------------------------------------------------------------


@for_each("job_file", "", JOB, "jobs/a b#c?.yaml")
@for_each("name", *DOCUMENTS)
def test_sarif_has_the_structure_of_the_specification(name: str, job_file: str) -> None:
    check_log(json.loads(of("sarif", DOCUMENTS[name](), job_file=job_file)))


def test_results_point_at_the_line_of_the_setting_and_never_at_an_absolute_path() -> None:
    places = [one["locations"][0]["physicalLocation"] for one in log(with_lines(), job_file=JOB)["results"]]
    assert [place["region"]["startLine"] for place in places] == [14, 1, 1]
    assert {place["artifactLocation"]["uri"] for place in places} == {JOB}
    odd = log(with_lines(), job_file="jobs/a b#c?.yaml")["results"][0]["locations"][0]["physicalLocation"]
    assert odd["artifactLocation"] == {"uri": "jobs/a%20b%23c%3F.yaml", "uriBaseId": "%SRCROOT%"}


def test_without_a_job_file_results_have_no_location_and_it_is_said() -> None:
    run = log(with_lines())
    assert not any("locations" in one for one in run["results"])
    assert "--config" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_a_fingerprint_stays_where_lines_and_costs_move_and_differs_between_rules_and_settings() -> None:
    def prints(**changes: Any) -> str:
        first = structs.replace(rich().findings[0], **changes)
        run = log(structs.replace(rich(), findings=(first,)), job_file=JOB)
        value: str = run["results"][1]["partialFingerprints"]["primaryLocationLineHash"]
        return value

    assert prints() == prints(line=99, new_bound_ns=1, summary="other", state="worse")
    assert len({prints(), prints(id="COM-07"), prints(key="model.other")}) == 3
    assert re.fullmatch(r"[0-9a-f]{16}:1", prints())


def test_texts_are_neither_links_nor_placeholders() -> None:
    finding = structs.replace(diagnosis().findings[0], name="{0} [x](https://example.invalid)", summary="{1} and [y](1)", fixes=())
    run = log(structs.replace(diagnosis(), findings=(finding,)))
    assert run["results"][0]["message"]["text"] == "{{1}} and \\[y](1)"
    check_log({"version": "2.1.0", "runs": [run]})


def test_the_one_changed_setting_is_the_place_of_a_regression() -> None:
    document = structs.replace(rich(), settings=rich().settings[:1])
    assert of_comparison.issues(document, Options()).issues[0].line == 14
    assert of_comparison.issues(rich(), Options()).issues[0].line is None


# --- both -------------------------------------------------------------------------------------------------------------


def test_what_passed_or_was_skipped_is_not_told() -> None:
    issues = of_diagnosis.issues(with_lines(), Options()).issues
    assert {one.state for one in issues} == {"failed", "told", "passed", "skipped"}
    assert {one.id for one in costliest_first(issues)} == {one.id for one in diagnosis().findings}
    assert not Issue(id="x", name="x", group="x", state="passed", severity="note", text="").shown
