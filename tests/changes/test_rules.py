"""A new rule, fix, check or platform is one YAML entry."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.changes.conftest import ProgramCopy

RULE = """id: host-probe
name: a probe
wall: host_overhead
status: preview
since: 0.1.0
summary: "A probe takes {bound_ns:ms} ms {per}."
when: step_ns > 0 AND steps_n > 0
saves: 0.5 * step_ns
claim: measured
why: It is a probe.
wrong_when: never
check: Look at it.
evidence: [step_ns]
fixes: [PROBE-01]
where: ["bucket:attention"]
examples:
  fires:
    - {step_ns: 1000, steps_n: 1}
  silent:
    - {step_ns: 0, steps_n: 1}
    - {step_ns: 1000, steps_n: 0}
"""
FIX = """id: PROBE-01
title: take the probe away
walls: [host_overhead]
phase: retune
evidence: candidate
changes:
  - {framework: code, key: probe, to: "nothing", choose: true}
undecidable: The job file does not show probes.
expected: []
cost: none
risk: none
verify: step_ns falls
refs: []
no_effect: What a probe costs is not known.
"""
CHECK = """
probe-of-nothing:
  title: a probe in the job
  outcome: hang
  when: "job_micro_batch_size = 77"
  say: "micro_batch_size is {job_micro_batch_size}."
  remedy: take another one
  refs: []
  examples:
    fires: [{job_micro_batch_size: 77}]
    silent: [{job_micro_batch_size: 1}, {job_micro_batch_size: 78}]
"""
PLATFORM = (
    "  probe_gpu: {pattern: Probe 9000, architecture: probed, compute_major: 99, compute_minor: 0, nvlink_domain: 5, gpus_per_node: 5, sm_count: 7, memory_gb: 1, "
    'memory_tb_per_s: 1.0, peak_tflops: {bf16: 1}, sources: ["nobody"]}\n'
)


@pytest.mark.deep
def test_a_rule_and_its_fix_are_a_file_each(program: ProgramCopy, demo_trace: Path, before: dict[str, Any]) -> None:
    rule, fix = "trace_rules/rules/host-probe.yaml", "trace_rules/playbook/probe.yaml"
    program.write(fix, FIX)
    program.write(rule, RULE)
    told, text, rule_told, fix_told = program.runs(
        (demo_trace, "--format", "json"), (demo_trace, "--format", "markdown"), ("explain", "host-probe"), ("explain", "PROBE-01")
    )
    document = json.loads(told)
    findings = {finding["id"]: finding for finding in document["findings"]}
    assert set(findings) == {finding["id"] for finding in before["findings"]} | {"host-probe"}
    assert [fix["id"] for fix in findings["host-probe"]["fixes"]] == ["PROBE-01"]
    assert "A probe takes" in text
    assert "It is a probe." in rule_told
    assert "take the probe away" in fix_told
    assert program.changed() == {rule, fix}


@pytest.mark.deep
def test_a_check_is_an_entry(program: ProgramCopy) -> None:
    path = "trace_rules/checks/data.yaml"
    program.append(path, CHECK)
    job = program.write("job.yaml", "train: {micro_batch_size: 77, global_batch_size: 77}\nmodel: {num_layers: 2}\n")
    assert "micro_batch_size is 77." in program.run("check", job, status=1)
    program.write("job.yaml", "train: {micro_batch_size: 1, global_batch_size: 77}\nmodel: {num_layers: 2}\n")
    fine, explained = program.runs(("check", job), ("explain", "probe-of-nothing"))
    assert "micro_batch_size is" not in fine
    assert "a probe in the job" in explained
    program.remove("job.yaml")
    assert program.changed() == {path}


@pytest.mark.deep
def test_a_platform_is_a_row(program: ProgramCopy, demo_trace: Path, before: dict[str, Any]) -> None:
    path = "trace_rules/platforms.yaml"
    gpu = before["facts"]["gpu_name"]["value"]
    program.replace(path, "platforms:\n", "platforms:\n" + PLATFORM.replace("Probe 9000", gpu))
    facts = program.json(demo_trace)["facts"]
    assert (facts["platform"]["value"], facts["nvlink_domain"]["value"]) == ("probe_gpu", 5)
    assert "probed" in program.run("explain", "probe_gpu")
    assert program.changed() == {path}
