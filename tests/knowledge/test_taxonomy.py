"""The rule files are data that anybody may edit: what they hold, and what happens when they are wrong."""

import re
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest

from diagnose.errors import RuleFileError
from diagnose.knowledge.buckets import load_buckets
from diagnose.knowledge.taxonomy import MAX_CONTEXTS, HostRules, Taxonomy, load_host_rules, load_taxonomy, own_bucket_files, union
from diagnose.measure.buckets.classify import families, op_kinds
from diagnose.measure.buckets.describe import describe
from diagnose.model.vocabulary import METHOD_BUCKETS
from tests.builders.cases import for_each


@pytest.fixture(scope="module")
def hosts() -> HostRules:
    return load_host_rules()


def test_every_bucket_can_be_reached_and_every_example_finds_its_own_family(taxonomy: Taxonomy):
    entries = [*taxonomy.families, *taxonomy.contexts]
    reached = {bucket for entry in entries for bucket in (entry.bucket, getattr(entry, "default", None))}
    assert reached - {None} == set(taxonomy.buckets)
    cases = [(family.id, example) for family in taxonomy.families for example in family.examples]
    names = pl.Series([example for _, example in cases])
    found = families(names, op_kinds(names, taxonomy), taxonomy)
    wrong = {
        example: (taxonomy.families[index].id, wanted)
        for (wanted, example), index in zip(cases, found, strict=True)
        if taxonomy.families[index].id != wanted
    }
    assert wrong == {}
    assert all(family.examples for family in taxonomy.families)


def test_the_program_s_own_patterns_and_words_are_sound(taxonomy: Taxonomy):
    """A run compiles no more of them than it uses."""
    checked = load_taxonomy(files("trace_rules") / "buckets")
    assert (checked.families, checked.contexts, checked.groups) == (taxonomy.families, taxonomy.contexts, taxonomy.groups)


def test_contexts_fit_the_mask_and_no_pattern_names_one_company_s_namespace(taxonomy: Taxonomy):
    assert 0 < len(taxonomy.contexts) <= MAX_CONTEXTS
    patterns = [pattern for entry in (*taxonomy.families, *taxonomy.contexts, *taxonomy.groups) for pattern in entry.patterns]
    assert [
        pattern
        for pattern in patterns
        if re.search("dpsk|primus|vllm::|deep_ep", pattern) and "|sglang" not in pattern and "all_reduce" not in pattern
    ] == []


def test_union_of_nothing_matches_nothing_and_words_are_ascii():
    texts = pl.Series(["", "a", "été"])
    assert texts.str.contains(union([])).to_list() == [False, False, False]
    assert texts.str.contains(union([r"^\w+$"])).to_list() == [False, True, False]


FAMILY = "families:\n  - id: mine\n    patterns: ['my_kernel']\n    operation: gemm\n    bucket: expert_gemm\n"


# A file, why it is refused, and the line that is named where it is a file of the user's own.
WRONG = [
    ("families:\n  - id: a\n    patterns: ['x']\n    operation: gemm\n    buckett: norm\n", "unknown field `buckett`", 5),
    ("families:\n  - id: a\n    patterns: ['x']\n    operation: gemm\n    bucket: nose\n", "there is no bucket 'nose'", 5),
    ("families:\n  - id: a\n    patterns: ['x']\n    operation: gemm\n", "neither a bucket nor a default", 2),
    ("families:\n  - id: a\n    patterns: []\n    operation: gemm\n    bucket: norm\n", "has neither patterns nor words", 3),
    ("families:\n  - id: a\n    operation: gemm\n    bucket: norm\n", "has neither patterns nor words", 2),
    ("# note\n\nfamilies:\n  - id: a\n    patterns:\n      - 'fine'\n      - '(?=x)'\n    operation: gemm\n    bucket: norm\n",
     "no regular expression", 7),
    (FAMILY + FAMILY[len("families:\n") :], "stands twice", 6),
    ("contexts:\n  - id: a\n    patterns: ['x']\n    evidence: module\n", "neither bucket, kind nor phase", 2),
    ("contexts:\n  - id: a\n    patterns: ['x']\n    evidence: module\n    bucket: norm\n    requires: [b]\n", "requires 'b'", 6),
    ("groups:\n  - id: a\n    patterns: ['x']\n    kind: colour\n", "Invalid enum value 'colour'", 4),
    ("families: [\n", "line 2", 2),
    ("families: 3\n", "Expected `array`", 1),
    ("families:\n  - id: a\n    id: b\n", "the key 'id' stands already in line 2", 3),
]  # fmt: skip


@for_each("text, reason, line", *WRONG)
def test_a_wrong_file_is_refused_with_file_place_and_reason(tmp_path: Path, text: str, reason: str, line: int):
    path = tmp_path / "50-mine.yaml"
    path.write_text(text)
    with pytest.raises(RuleFileError) as caught:
        load_taxonomy(tmp_path)
    assert reason in caught.value.what
    assert caught.value.exit_code == 2
    assert caught.value.next_step
    if "stands twice" not in reason and "requires" not in reason:
        assert caught.value.what.startswith("50-mine.yaml: ")
    with pytest.raises(RuleFileError, match=rf"^50-mine\.yaml: .*line {line}\b"):
        load_taxonomy(extra=[path])


def test_empty_folders_missing_files_and_too_many_contexts_are_refused(tmp_path: Path):
    with pytest.raises(RuleFileError, match=r"holds no \.yaml file"):
        load_taxonomy(tmp_path)
    with pytest.raises(RuleFileError, match=r"gone.yaml: the file: can't be read \(No such file or directory\)"):
        load_taxonomy(extra=[tmp_path / "gone.yaml"])
    entries = "".join(f"  - id: c{n}\n    patterns: ['x']\n    evidence: module\n    bucket: norm\n" for n in range(MAX_CONTEXTS + 1))
    (tmp_path / "a.yaml").write_text("contexts:\n" + entries)
    with pytest.raises(RuleFileError, match="at most 60"):
        load_taxonomy(tmp_path)


def test_files_count_in_order_of_their_names_and_the_user_s_own_first(tmp_path: Path):
    (tmp_path / "20.yaml").write_text(FAMILY.replace("mine", "second"))
    (tmp_path / "10.yaml").write_text(FAMILY.replace("mine", "first"))
    (tmp_path / "notes.txt").write_text("not a rule")
    assert [family.id for family in load_taxonomy(tmp_path).families] == ["first", "second"]
    (tmp_path / "own.yaml").write_text(FAMILY)
    loaded = load_taxonomy(extra=[tmp_path / "own.yaml"])
    assert loaded.families[0].id == "mine"
    assert loaded.own == {"mine"}
    assert len(loaded.families) == len(load_taxonomy().families) + 1


CALLS = {
    "allocator": ["cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync", "cudaHostAlloc", "cudaFreeHost", "cudaMallocHost", "cudaMemPoolTrimTo", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemAlloc", "cuMemFree", "hipMalloc", "hipFree", "hipHostMalloc"],
    "synchronise": ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cuStreamSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize", "hipMemcpyWithStream", "cuMemcpyDtoH"],
    "launch": ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync", "cudaMemsetAsync", "hipLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "cudaLaunchCooperativeKernel", "cuMemcpyHtoDAsync"],
    "graph_launch": ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"],
    "capture": ["cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphInstantiateWithFlags"],
    "stream_memory_wait": ["cuStreamWaitValue32", "cuStreamWaitValue64_v2", "cuStreamBatchMemOp_v2", "hipStreamWaitValue32"],
    None: ["cuStreamWriteValue32", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventQuery", "cudaGetDevice", "cudaStreamIsCapturing", "cudaMemGetInfo", "cudaFuncSetAttribute"],
}  # fmt: skip


def test_host_calls_have_one_role(hosts: HostRules):
    roles = ("allocator", "synchronise", "launch", "graph_launch", "capture", "stream_memory_wait")
    for wanted, names in CALLS.items():
        for name in names:
            found = [role for role in roles if pl.Series([name]).str.contains(hosts.call_pattern(role)).item()]
            assert found == ([wanted] if wanted else []), name


@for_each(
    "call, waits_for",
    ("cudaStreamSynchronize", "stream"), ("cudaEventSynchronize", "event"), ("cudaDeviceSynchronize", "device"),
    ("cudaMemcpy", "stream"),
)  # fmt: skip
def test_what_a_synchronising_call_waits_for(hosts: HostRules, call: str, waits_for: str):
    found = [
        what for what in ("stream", "event", "device") if pl.Series([call]).str.contains(hosts.call_pattern("synchronise", what)).item()
    ]
    assert found == [waits_for]


@for_each(
    "text, meaning",
    ("<built-in method collect of module object>", "garbage_collection"),
    ("gc: 2", "garbage_collection"),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data_loading"),
    ("get_data", "data_loading"),
    ("Data loading", "data_loading"),
    ("fetch next batch", "data_loading"),
    ("get_data_parallel_rank", None),
    ("build_data_loader", None),
    ("aten::mul", None),
    ("garbage", None),
)
def test_host_ranges(hosts: HostRules, text: str, meaning: str | None):
    meanings = ("garbage_collection", "data_loading")
    found = [one for one in meanings if pl.Series([text]).str.contains(hosts.range_pattern(one)).item()]
    assert found == ([meaning] if meaning else [])


@for_each(
    "text, anchor, number",
    ("ProfilerStep#12", "profiler_step", "12"),
    ("megatron.bridge.training.train.train.training_step_7", "training_step", "7"),
    ("iteration 31", "iteration", "31"),
    ("iteration31", "iteration", "31"),
    (":iter_4", "iteration", "4"),
    ("step_9", "step", "9"),
    ("train step #9", "step", "9"),
    ("megatron.bridge.training.train.train_step", "train_step", None),
    ("1F1B", "unnumbered_step", None),
    ("megatron.bridge.training.train.train_step.optimizer_step", None, None),
    ("aten::step", None, None),
)
def test_step_anchors_in_order_of_preference(hosts: HostRules, text: str, anchor: str | None, number: str | None):
    first = next((one for one in hosts.steps if pl.Series([text]).str.contains(one.pattern).item()), None)
    assert (first.id if first else None) == anchor
    if first is not None and first.numbered:
        assert pl.Series([text]).str.extract(first.pattern, 1).item() == number


def test_a_wrong_host_file_is_refused(tmp_path: Path):
    path = tmp_path / "hosts.yaml"
    limits = "start_up: {long_call_ns: 1, slow_launches: 1, longer: 2.0, queue: 1, steady_share: 0.5, named_share: 0.1, only_share: 0.5, run_share: 0.7}"
    path.write_text(f"calls: []\nranges: []\n{limits}\nsteps:\n  - id: a\n    pattern: '('\n    numbered: true\n")
    with pytest.raises(RuleFileError, match=r"hosts.yaml: steps, a: the pattern"):
        load_host_rules(path)
    path.write_text("calls: []\nranges: []\n")
    with pytest.raises(RuleFileError, match="missing required field `steps`"):
        load_host_rules(path)


OVER = """
families:
  - id: router
    patterns: ['\\bour_router\\b']
    operation: router
    bucket: router
contexts:
  - id: dispatcher
    patterns: ['^our dispatcher$']
    evidence: module
    bucket: dispatch
groups:
  - id: tensor
    patterns: ['^OURS$']
    kind: tensor
"""


def test_own_entries_replace_built_in_ones_of_their_kind_in_their_place(tmp_path: Path):
    (tmp_path / "own.yaml").write_text(OVER)
    built_in, own = load_taxonomy(), load_taxonomy(extra=[tmp_path / "own.yaml"])
    for kind in ("families", "contexts", "groups"):
        before, after = getattr(built_in, kind), getattr(own, kind)
        assert [entry.id for entry in after] == [entry.id for entry in before]
        assert [entry.id for entry, old in zip(after, before, strict=True) if entry != old] == {
            "families": ["router"], "contexts": ["dispatcher"], "groups": ["tensor"]
        }[kind]  # fmt: skip
    assert own.own == {"router", "contexts/dispatcher", "groups/tensor"}  # the built-in context `router` is not the user's
    names = pl.Series(["our_router", "aiter::topksoftmax_4x128x8_bf16"])
    assert [own.families[index].id for index in families(names, op_kinds(names, own), own)] != ["router", "router"]
    assert own.families[families(names, op_kinds(names, own), own)[0]].id == "router"


def test_bucket_files_are_found_among_own_rules(tmp_path: Path):
    (tmp_path / "buckets").mkdir()
    for path in (tmp_path / "buckets" / "b.yml", tmp_path / "bare.yaml"):
        path.write_text(FAMILY)
    (tmp_path / "rule.yaml").write_text("when: x\n")
    assert own_bucket_files([tmp_path]) == [tmp_path / "buckets" / "b.yml", tmp_path / "bare.yaml"]
    assert own_bucket_files([tmp_path / "bare.yaml", tmp_path / "rule.yaml"]) == [tmp_path / "bare.yaml"]
    with pytest.raises(RuleFileError, match=r"gone\.yaml: the file: can't be read"):
        own_bucket_files([tmp_path / "gone.yaml"])
    (tmp_path / "broken.yaml").write_text("a: [\n")
    with pytest.raises(RuleFileError, match=r"broken\.yaml: the text: .*line 2"):
        own_bucket_files([tmp_path])


def test_the_worked_example_of_the_readme(tmp_path: Path):
    readme = (Path(__file__).parents[2] / "trace_rules" / "README.md").read_text(encoding="utf-8")
    text = readme.split("<!-- own buckets: begin -->")[1].split("<!-- own buckets: end -->")[0]
    (tmp_path / "own.yaml").write_text(text.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    own = load_taxonomy(extra=own_bucket_files([tmp_path / "own.yaml"]))
    gemm, send = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    found = [
        describe(name, own, context)
        for name, context in (
            ("acme_mixer_fwd", None),
            ("acme_execute", None),
            (gemm, {"nvtx": ["acme.experts"]}),
            (send, {"pg_desc": "ring-of-fire"}),
        )
    ]
    assert [(one.bucket, one.evidence, one.rule) for one in found] == [
        ("attention", "rule", "acme_mixer"),
        ("dispatch", "rule", "tutel"),
        ("expert_gemm", "rule", "acme_experts"),
        ("dispatch", "rule", "acme_ring"),
    ]
    assert len(own.families) == len(load_taxonomy().families) + 1


# -------------------- the rows of buckets.yaml

ENTRY = '{title: t, colour: "#aabbcc", holds: a, elsewhere: b, told_by: c, traps: [], sources: []}'


def whole() -> dict[str, str]:
    return dict.fromkeys(METHOD_BUCKETS, ENTRY)


def written(entries: dict[str, str]) -> bytes:
    return "".join(f"{name}: {entry}\n" for name, entry in entries.items()).encode()


def test_rows_of_buckets_keep_their_order_are_explained_and_have_colours_of_their_own() -> None:
    entries = dict(reversed(whole().items()))
    assert tuple(load_buckets(written(entries))) == tuple(entries)
    rows = load_buckets()
    assert all(row.title and row.holds and row.told_by and row.traps for row in rows.values())
    assert all(row.sources for name, row in rows.items() if name != "other")
    assert len({row.colour for row in rows.values()}) == len(rows)
    assert len({row.part.order for row in rows.values() if row.part}) == sum(1 for row in rows.values() if row.part)


@for_each(
    "entries, reason",
    ({name: entry for name, entry in whole().items() if name != "dispatch"}, "the bucket dispatch is missing, which measures go by"),
    (whole() | {"Norm s": ENTRY}, "'Norm s' is no name for a bucket"),
    (whole() | {"norm": ENTRY.replace("#aabbcc", "blue")}, "norm: 'blue' is no colour"),
    (whole() | {"norm": ENTRY.replace("holds", "hold")}, "unknown field `hold`"),
    (whole() | {"norm": ENTRY.replace("holds: a", "holds: a, sign: loud")}, "Invalid enum value 'loud'"),
    (whole() | {"norm": "[]"}, "Expected `object`"),
    (whole() | {"norm": "{"}, "buckets.yaml is wrong"),
)
def test_wrong_files_are_refused(entries: dict[str, str], reason: str) -> None:
    with pytest.raises(RuleFileError, match=reason) as raised:
        load_buckets(written(entries))
    assert raised.value.exit_code == 2
