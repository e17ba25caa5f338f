"""Configured but not active: silent on simulated runs in which the feature is at work, fired when its job file is handed the plain run."""

import json
import os
import re
import tempfile
import textwrap
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from diagnose.document.diagnosis import Fact, Finding
from diagnose.job import Job
from diagnose.knowledge.load import load_rulebook
from diagnose.knowledge.rule_files import packaged
from diagnose.reason.findings import find
from fixtures import scenario
from tests.builders import yaml_text
from tests.builders.cases import for_each
from tests.builders.jobs import parse_job
from tests.builders.kept import DATA
from tests.builders.simulated import SHARED, document
from tests.builders.suites import deep_unless

BOOK = load_rulebook()
# Most of these runs are needed by other tests of the quick suite as well.
QUICK = {"host-garbage-collection", "memory-full-recompute", "pair-fp8", "pair-less-recompute", "pair-scoped-graphs"}
PROOFS = (
    "communication-data-parallel-overlap-not-active",
    "communication-dispatcher-not-active",
    "communication-expert-overlap-not-active",
    "communication-tensor-overlap-not-active",
    "compute-low-precision-not-active",
    "compute-permute-fusion-not-active",
    "compute-router-fusion-not-active",
    "host-full-iteration-graph-not-active",
    "host-graphs-not-replayed",
    "host-manual-gc-not-active",
    "memory-activation-offload-not-active",
    "memory-optimizer-offload-not-active",
    "memory-recompute-not-active",
    "memory-recompute-not-configured",
)


KEPT = DATA / "facts-of-runs.json"
RENEW = "a change of what is measured or of a rule: run `python -m tests.reason.test_not_active` and read the difference"
FACTS = json.loads(KEPT.read_bytes())


@cache
def facts_of(name: str) -> Mapping[str, Fact]:
    """What the rules of PROOFS read of what the program measures in a simulated run, as it is kept: by status, without units."""
    kept = ((fact, status, value) for status, values in FACTS[name].items() for fact, value in values.items())
    return {fact: Fact(value=value, unit=BOOK.facts[fact].unit, status=status) for fact, status, value in kept}


def fresh(name: str) -> Mapping[str, Fact]:
    """The same, measured now."""
    texts = [packaged(f"rules/{rule}.yaml").data.decode() for rule in (*PROOFS, "capture-image-free-data", "compute-ungrouped-experts")]
    read = {"steps_n", *(word for text in texts for word in re.findall(r"\w+", text))}
    return {fact: told for fact, told in document(name).facts.items() if fact in read}


def job_of(name: str, changes: Mapping[str, Mapping[str, Any]] | None = None) -> Job:
    """The job file of a simulated run, with some settings of some sections changed."""
    data = yaml_text.load(scenario.load(name).job_text())
    for section, values in (changes or {}).items():
        data[section] = {**data.get(section, {}), **values}
    return parse_job(yaml_text.dump(data))


def fired(facts: Mapping[str, Fact], job: Job) -> dict[str, Finding]:
    return {finding.id: finding for finding in find(facts, job=job, rulebook=BOOK)[0] if finding.id in PROOFS}


# A run in which the feature is at work, the same job without it, and the rule that has to tell them apart.
PAIRS = [
    ("pair-expert-overlap", "communication-hybridep-slow-network", "communication-expert-overlap-not-active"),
    ("pair-deepep", "communication-alltoall-two-nodes", "communication-dispatcher-not-active"),
    ("pair-hybridep", "communication-alltoall-two-nodes", "communication-dispatcher-not-active"),
    ("pair-gradient-overlap", "communication-data-parallel-burst", "communication-data-parallel-overlap-not-active"),
    ("pair-tensor-overlap", "communication-tensor-parallel", "communication-tensor-overlap-not-active"),
    ("pair-fp8", "compute-large-experts", "compute-low-precision-not-active"),
    ("pair-fewer-kernels", "host-unfused-router-and-permutation", "compute-router-fusion-not-active"),
    ("pair-fewer-kernels", "host-unfused-router-and-permutation", "compute-permute-fusion-not-active"),
    ("pair-scoped-graphs", "host-slow-launches", "host-graphs-not-replayed"),
    ("pair-full-iteration-graph", "host-padded-experts", "host-graphs-not-replayed"),
    ("pair-full-iteration-graph", "pair-scoped-graphs", "host-full-iteration-graph-not-active"),
    ("pair-manual-gc", "host-garbage-collection", "host-manual-gc-not-active"),
    ("pair-activation-offload", "memory-recompute-moe", "memory-activation-offload-not-active"),
    ("pair-less-offload", "pair-less-recompute", "memory-optimizer-offload-not-active"),
    ("memory-full-recompute", "pair-less-recompute", "memory-recompute-not-active"),
    ("memory-recompute-attention", "pair-less-recompute", "memory-recompute-not-active"),
    ("pair-less-recompute", "memory-full-recompute", "memory-recompute-not-configured"),
]


@for_each("active, plain, rule", *PAIRS)
def test_the_job_of_the_feature_on_the_plain_run_is_a_finding(active: str, plain: str, rule: str) -> None:
    found = fired(facts_of(plain), job_of(active))
    assert rule in found
    assert found[rule].severity == "high"
    assert found[rule].fixes


RUNS = sorted(
    {run for pair in PAIRS for run in pair[:2]} | {"healthy-expert-overlap", "healthy-graphs", "healthy-one-node", "healthy-vision"}
)


@pytest.mark.parametrize("name", deep_unless(QUICK, RUNS))
def test_kept_facts_are_those_of_the_run(name: str) -> None:
    assert facts_of(name) == fresh(name), RENEW


@for_each("name", *sorted({pair[0] for pair in PAIRS} | {"healthy-expert-overlap", "healthy-graphs", "healthy-one-node"}))
def test_a_feature_at_work_is_no_finding(name: str) -> None:
    assert fired(facts_of(name), job_of(name)) == {}


def test_nothing_is_proven_by_one_step_or_where_graphs_hide_what_runs() -> None:
    opaque = {**facts_of("compute-large-experts"), "opaque_graph_share": Fact(value=0.9, unit="share", status="measured")}
    job = job_of("pair-fp8", {"comm_overlap": {"overlap_moe_expert_parallel_comm": True, "tp_comm_overlap": True}})
    assert fired(opaque, job) == {}
    single = {**facts_of("host-slow-launches"), "steps_n": Fact(value=1, unit="count", status="measured")}
    assert fired(single, job_of("pair-scoped-graphs")) == {}


def test_graphs_are_not_missed_while_they_warm_up_or_where_a_launch_call_shows_them() -> None:
    facts = facts_of("host-slow-launches")
    early = job_of("pair-scoped-graphs", {"profiling": {"profile_step_start": 1}})
    assert "host-graphs-not-replayed" not in fired(facts, early)
    assert "host-graphs-not-replayed" in fired(facts, job_of("pair-scoped-graphs", {"profiling": {"profile_step_start": 10}}))
    facts = {**facts_of("host-slow-launches"), "graph_launch_calls": Fact(value=48, unit="count", status="measured")}
    assert "host-graphs-not-replayed" not in fired(facts, job_of("pair-scoped-graphs"))


def test_image_free_data_and_grouped_products_are_told_by_what_runs() -> None:
    def ids(name: str) -> set[str]:
        return {finding.id for finding in find(facts_of(name), job=job_of("healthy-vision"), rulebook=BOOK)[0]}

    assert "capture-image-free-data" in ids("healthy-one-node")
    assert "capture-image-free-data" not in ids("healthy-vision")
    # Transformer Engine runs cuBLAS per expert where it has no grouped kernel: the setting is active all the same
    found = {finding.id for finding in find(facts_of("healthy-one-node"), job=job_of("healthy-one-node"), rulebook=BOOK)[0]}
    assert facts_of("healthy-one-node")["expert_gemm_grouped_share"].value == 0.0
    assert "compute-ungrouped-experts" not in found


def written(runs: Mapping[str, Mapping[str, Fact]]) -> str:
    """The file of kept facts: by run and status, several facts on a line."""
    found = []
    for run, facts in runs.items():
        by_status: dict[str, list[str]] = {}
        for fact, told in facts.items():
            by_status.setdefault(told.status, []).append(f'"{fact}":\u00a0{json.dumps(told.value)}'.replace(" ", "\u00a0"))
        texts = (textwrap.fill(", ".join(row), 138, initial_indent="  ", subsequent_indent="  ") for row in by_status.values())
        parts = (f' "{status}": {{\n{text}}}' for status, text in zip(by_status, texts, strict=True))
        found.append(f'"{run}": {{\n' + ",\n".join(parts) + "}")
    return "{\n" + ",\n".join(found).replace("\u00a0", " ") + "\n}\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ[SHARED] = folder
        KEPT.write_text(written({run: fresh(run) for run in RUNS}), encoding="utf-8")
