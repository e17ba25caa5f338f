"""A new fact is one function in measure/ and its line in facts.yaml; a rule uses it by its name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.changes.conftest import ProgramCopy

LINE = '\nprobe_kernels: {unit: count, meaning: "kernels of the probe, per step", null: "never"}\n'
RULE = """\
id: host-probe
name: the probe's kernels
wall: host_overhead
status: preview
since: 0.1.0
summary: "{probe_kernels:n} kernels {per} are the probe's."
when: probe_kernels > 0
claim: measured
severity: low
why: A test of the change.
wrong_when: Never.
check: Count them.
evidence: [probe_kernels]
fixes: []
refs: ["none"]
examples:
  fires:
    - {probe_kernels: 1}
  silent:
    - {probe_kernels: 0}
    - {probe_kernels: 0, step_ns: 100000000}
"""
# Where facts of the two kinds are made: a figure of every step, which the median is taken of, or one of the whole device.
STEP, DEVICE = "diagnose/measure/kernels.py", "diagnose/measure/facts.py"


def per_step(program: ProgramCopy) -> str:
    program.replace(STEP, "        kernel.sum().alias", '        kernel.sum().alias("probe_kernels"),\n        kernel.sum().alias')
    return STEP


def of_the_device(program: ProgramCopy) -> str:
    program.append(DEVICE, "\n\ndef _probe(one: DeviceMeasure) -> int:\n    return _per_step(one, one.usage.names)\n")
    program.replace(
        DEVICE,
        '    return {\n        **{f"{GROUP_OF_KIND[kind]}_beside',
        '    return {\n        "probe_kernels": _probe(one),\n        **{f"{GROUP_OF_KIND[kind]}_beside',
    )
    return DEVICE


@pytest.mark.deep
@pytest.mark.parametrize("add", [per_step, of_the_device])
def test_a_fact_is_one_function_and_its_line(program: ProgramCopy, demo_trace: Path, add: Callable[[ProgramCopy], str]) -> None:
    where = add(program)
    program.append("trace_rules/facts.yaml", LINE)
    program.write("trace_rules/rules/host-probe.yaml", RULE)
    found = program.json(demo_trace)
    fact = found["facts"]["probe_kernels"]
    assert fact["value"] > 0
    assert (fact["unit"], fact["status"]) == ("count", "measured")
    (finding,) = [one for one in found["findings"] if one["id"] == "host-probe"]
    assert finding["summary"].startswith(f"{fact['value']:,} kernels")
    assert program.changed() == {where, "trace_rules/facts.yaml", "trace_rules/rules/host-probe.yaml"}
