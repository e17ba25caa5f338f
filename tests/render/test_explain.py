"""`diagnose explain` for every id of every kind."""

import re
from pathlib import Path

import pytest

from diagnose.cli import main
from diagnose.document.diagnosis import Diagnosis
from diagnose.errors import UsageError
from diagnose.knowledge.load import load_rulebook
from diagnose.knowledge.taxonomy import load_taxonomy
from diagnose.render import Options, write
from diagnose.render.knowledge.entries import Catalogue, unfilled
from diagnose.render.knowledge.kinds import KINDS
from diagnose.render.reports.explanation import Explanation
from pages.reference import PAGES, SHELVES
from tests.builders.cases import for_each
from tests.builders.diagnosis import rich

WIDTH = 96
KNOW = Catalogue(book=load_rulebook(), taxonomy=load_taxonomy())
BY_NAME = {kind.name: kind for kind in KINDS}
RICH = rich()
EVERY = [(kind, key) for kind in KINDS for key in kind.ids(KNOW)]
NUMBERS = {*KNOW.book.schema, "per", "bound_ns", "bound_share", "speedup_ceiling"}


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def told_of(name: str, document: Diagnosis | None = None) -> str:
    known = Explanation(name=name, book=KNOW.book, taxonomy=KNOW.taxonomy, words=KNOW.words, diagnosis=document)
    return write(known, "text", Options(width=WIDTH))


def left_open(text: str) -> list[str]:
    """Fields of sentences that nobody filled in."""
    return [found for found in re.findall(r"\{([a-z0-9_]+)(?::[a-z]+)?\}", text) if found in NUMBERS]


def wide(text: str) -> bool:
    return any(len(line) > WIDTH for line in text.splitlines())


@pytest.mark.parametrize("one_in", [8, pytest.param(1, marks=pytest.mark.deep)])
def test_every_id_is_explained(one_in: int) -> None:
    """However it is written. The quick suite tries some; that every entry can be made, the pages of reference show there."""
    offenders = []
    for place, (kind, key) in enumerate(EVERY[:: min(one_in, 4)]):
        told, entry = told_of(f"{kind.name}:{key}"), kind.entry(KNOW, key)
        whole = entry.title and entry.brief and flat(told).startswith(flat(f"{key}: {entry.title} {entry.about}")) and told.endswith("\n")
        if not whole or wide(told) or left_open(told) or (place % one_in == 0 and told not in told_of(key.swapcase())):
            offenders.append(f"{kind.name}:{key}")
    assert offenders == []


@pytest.mark.parametrize("one_in", [8, pytest.param(1, marks=pytest.mark.deep)])
def test_every_id_is_explained_in_the_numbers_of_a_run(one_in: int) -> None:
    """The quick suite takes some of every kind."""
    offenders = []
    for kind in KINDS:
        for key in list(kind.ids(KNOW))[::one_in] if kind.run is not None else ():
            told = told_of(f"{kind.name}:{key}", RICH)
            if "in this run" not in told or wide(told) or left_open(told):
                offenders.append(f"{kind.name}:{key}")
    assert offenders == []


def test_the_kinds_are_those_that_the_program_knows() -> None:
    assert set(BY_NAME["rule"].ids(KNOW)) == set(KNOW.book.rules)
    assert set(BY_NAME["fix"].ids(KNOW)) == set(KNOW.book.fixes)
    assert tuple(BY_NAME["bucket"].ids(KNOW)) == tuple(KNOW.book.buckets)
    assert set(BY_NAME["fact"].ids(KNOW)) == set(KNOW.book.facts)
    assert set(BY_NAME["setting"].ids(KNOW)) == set(KNOW.book.settings)
    assert {SHELVES[kind.name].page for kind in KINDS} == set(PAGES)
    names = [name for kind in KINDS for name in (kind.name, kind.plural)]
    assert len(names) == len(set(names))


def test_fixes_come_in_the_order_in_which_they_are_tried() -> None:
    found = [(KNOW.book.fixes[key].phase, KNOW.book.fixes[key].step) for key in BY_NAME["fix"].ids(KNOW)]
    rank = {"fit": 0, "scale": 1, "profile": 2, "retune": 3}
    assert [(rank[phase], step) for phase, step in found] == sorted((rank[phase], step) for phase, step in found)
    assert len({phase for phase, _ in found}) == 4


def test_the_plural_lists_all_of_a_kind() -> None:
    for kind in KINDS:
        told = told_of(kind.plural)
        assert told.startswith(f"{kind.plural} ({len(kind.ids(KNOW))})\n")
        assert [key for key in kind.ids(KNOW) if not re.search(rf"^ {re.escape(key)}  ", told, re.MULTILINE)] == []
        assert not wide(told)


def test_one_name_of_two_kinds_is_explained_twice_unless_one_is_asked_for() -> None:
    both = told_of("world_size")
    assert "fact, unit: count" in both
    assert "job setting, int" in both
    assert "job setting" not in told_of("fact:world_size")
    assert "fact, unit" not in told_of("job_world_size")


def lacking(key: str) -> list[str]:
    """What the file of a fix says and its explanation does not."""
    fix, told = KNOW.book.fixes[key], flat(told_of(f"fix:{key}"))
    requirements = (*fix.needs, *fix.conflicts)
    order, after = told.partition("order:")[2], told.split("clears the way for")
    said = [f"phase {fix.phase}, step {fix.step}; evidence: {fix.evidence}", *(change.key for change in fix.changes)]
    said += [text for one in requirements for text in (one.condition, unfilled(one.say))]
    said += [text for one in fix.expected for text in (one.text, one.source)]
    said += [fix.disputed, fix.cost, fix.risk, fix.verify]
    later = [one.id for one in KNOW.book.fixes.values() if any(item.first == key for item in (*one.needs, *one.conflicts))]
    found = [text for text in said if flat(text) not in told]
    found += [one.first for one in requirements if one.first is not None and one.first not in order]
    found += [one for one in later if one not in after[-1]]
    return found if (len(after) > 1) == bool(later) else [*found, "clears the way for"]


def test_a_fix_tells_all_that_its_file_says() -> None:
    assert {key: found for key in KNOW.book.fixes if (found := lacking(key))} == {}


def test_a_flag_stands_by_itself_and_a_value_behind_its_key() -> None:
    told = flat(told_of("COM-06"))
    assert "comm_overlap.overlap_moe_expert_parallel_comm=true" in told
    assert "--overlap-moe-expert-parallel-comm Megatron-LM unset --moe-shared-expert-overlap; only where" in told


FIX = """
id: OWN-01
title: mine
walls: [memory]
phase: fit
step: 3
evidence: candidate
disputed: two guides name different defaults
changes:
  - {framework: megatron-bridge, key: model.recompute_modules, to: moe_act, op: add, setting: recompute_modules}
  - {framework: megatron-lm, key: --recompute-modules, to: "[mlp, moe]", op: remove, only: job_bf16}
  - {framework: megatron-bridge, key: model.recompute_method, to: "null", op: unset}
  - {framework: megatron-bridge, key: train.micro_batch_size, to: what fits, choose: true}
  - {framework: megatron-bridge, key: train.global_batch_size, to: twice as much, choose: true, value: job_global_batch_size * 2}
  - {framework: environment, key: MY_VARIABLE, to: "1"}
needs:
  - {if: job_bf16, gate: known, say: "It is {job_micro_batch_size}.", unknown: Look it up., first: MEM-01}
  - {if: step_ns > 1, gate: note, say: "It is {step_ns:ms} ms."}
expected: []
cost: none
risk: none
verify: step_ns falls
refs: []
no_effect: Nobody measured it.
"""


def test_a_fix_tells_what_is_done_to_each_setting_and_what_is_disputed(tmp_path: Path) -> None:
    (tmp_path / "fix.yaml").write_text(FIX, encoding="utf-8")
    told = flat(write(Explanation(name="OWN-01", book=load_rulebook([tmp_path]), taxonomy=KNOW.taxonomy), "text", Options(width=WIDTH)))
    for said in (
        "phase fit, step 3; evidence: candidate",
        "add moe_act to model.recompute_modules",
        "remove mlp, moe from --recompute-modules; only where job_bf16",
        "unset model.recompute_method",
        "train.micro_batch_size: what fits (to choose)",
        "train.global_batch_size: twice as much, computed as job_global_batch_size * 2",
        "environment MY_VARIABLE=1",
        "job_bf16; else: It is ‹micro_batch_size›. Where unknown: Look it up. First: MEM-01. (blocks only where it is known)",
        "step_ns > 1; else: It is ‹step_ns› ms. (a note, never blocks)",
        "published effect: no published figure",
        "disputed: two guides name different defaults",
        "step 3 of the phase fit: make the job fit into memory; what may have to come first: MEM-01",
    ):
        assert said in told, said


def test_a_bucket_tells_what_holds_what_decides_and_what_misleads() -> None:
    for bucket in KNOW.book.buckets:
        told, meaning = flat(told_of(f"bucket:{bucket}")), KNOW.book.buckets[bucket]
        assert [text for text in (meaning.holds, meaning.elsewhere, meaning.told_by, *meaning.traps) if flat(text) not in told] == [], (
            bucket
        )
        deciding = [one.id for one in KNOW.taxonomy.families if bucket in (one.bucket, one.default, *one.alternatives)]
        deciding += [one.id for one in KNOW.taxonomy.contexts if bucket == one.bucket]
        assert deciding, bucket
        assert [one for one in deciding if not re.search(rf"\b{one}\b", told)] == [], bucket


def test_a_setting_tells_its_keys_in_both_frameworks() -> None:
    told = flat(told_of("moe_flex_dispatcher_backend"))
    assert "Megatron-Bridge model.moe_flex_dispatcher_backend" in told
    assert "--moe-enable-deepep (stands for deepep)" in told
    assert "read by the fixes:" in told


def test_buckets_of_the_user_are_explained_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "buckets").mkdir()
    (tmp_path / "buckets" / "mine.yaml").write_text(
        "families:\n  - {id: my_family, patterns: ['^my_kernel'], operation: norm, bucket: norm}\n", encoding="utf-8"
    )
    assert main(["explain", "my_family", "--rules", str(tmp_path)]) == 0
    assert "^my_kernel" in capsys.readouterr().out
    assert main(["explain", "my_family"]) == 2


@for_each(
    "wrong, near",
    ("COM-6", "COM-06"), ("expert-gemm", "expert_gemm"), ("job_recompute_module", "recompute_modules"),
    ("rule:host-launch-starvd", "host-launch-starved"),
)  # fmt: skip
def test_unknown_ids_get_what_is_near(wrong: str, near: str) -> None:
    with pytest.raises(UsageError, match=near) as raised:
        told_of(wrong)
    assert raised.value.exit_code == 2


def test_what_is_like_nothing_gets_the_kinds() -> None:
    with pytest.raises(UsageError, match="lists one of rules, fixes, checks, walls, words, buckets"):
        told_of("qqqqqqqqqq")


def test_sentences_name_the_numbers_that_they_will_hold() -> None:
    assert unfilled("{step_ns:ms} ms {per}, {job_bf16} and {bound_share:pct}") == "‹step_ns› ms per step, ‹bf16› and ‹bound_share›"
    assert unfilled("for rank {straggler_rank}[[ and {straggler_with:text}]]") == "for rank ‹straggler_rank›[ and ‹straggler_with›]"


def test_a_layout_of_the_first_line_is_explained_as_it_is_printed() -> None:
    assert told_of("EP16") == told_of("EP")
    assert "sixteen ranks" in flat(told_of("EP16"))
