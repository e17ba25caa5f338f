"""The same job in every format gives the same settings; every format's traits; and what no format may break on."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.errors import JobFileError
from diagnose.job import Job
from diagnose.job.sizes import sizes
from diagnose.job.text import parse_overrides
from tests.builders.cases import for_each
from tests.builders.jobs import overridden_job, parse_job, read, read_job

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
A1 = JOBS / "a1_qwen3_30b_h100.yaml"
# what the shell or the environment alone tells, and how each framework says "every layer" and "BF16"
TOLD_ELSEWHERE = {"world_size", "data_parallel_size", "expert_data_parallel_size", "num_microbatches"}
TOLD_ELSEWHERE |= {"cuda_device_max_connections", "nccl_nvls_enable"}


def known(job: Job) -> dict[str, object]:
    return {name: one.value for name, one in job.settings.items()}


def lines_of(name: str) -> list[str]:
    return [line for line in (JOBS / name).read_text().splitlines() if line and not line.startswith("#")]


# --- one job, many formats ----------------------------------------------------------------------------------------------


@for_each("name", "a1_qwen3_30b_h100.megatron.yaml", "a1_qwen3_30b_h100.sh", "a1_qwen3_30b_h100.flags")
def test_the_same_job_in_the_formats_of_megatron_lm(name: str) -> None:
    bridge, other = known(read_job(A1)), read_job(JOBS / name)
    assert (other.format, other.unknown, other.notes) == ("megatron-lm", (), ())
    given_ = read(other)
    assert given_.pop("moe_layer_freq") == ("1",) * 48
    assert bridge["moe_layer_freq"] == ("1",)
    assert given_.pop("group_query_attention") is True
    assert given_.pop("model_target", None) == ("GPTModel" if name.endswith("sh") else None)  # the script names the model
    assert {name: bridge[name] for name in given_} == given_
    left = set(read(read_job(A1))) - set(known(other))
    elsewhere = TOLD_ELSEWHERE if name.endswith("flags") else set()  # a variable that is not told has its default
    assert left - elsewhere - {"model_target"} == {"mixed_precision", "dataset_target"}
    for one in set(read(read_job(A1))) & set(known(other)) - {"moe_layer_freq", "model_target"} - elsewhere:
        assert known(other)[one] == bridge[one], one


def test_the_script_and_the_yaml_say_the_same() -> None:
    script, yaml_ = (read(read_job(JOBS / f"a1_qwen3_30b_h100.{kind}")) for kind in ("sh", "megatron.yaml"))
    assert script.pop("model_target") == "GPTModel"
    assert script == yaml_


@for_each(
    "name, expected",
    ("a2.overrides", {"overlap_moe_expert_parallel_comm": True}),
    ("a3.overrides", {"overlap_moe_expert_parallel_comm": True, "delay_wgrad_compute": True}),
    (
        "a4_hybridep.overrides",
        {
            "moe_token_dispatcher_type": "flex",
            "moe_flex_dispatcher_backend": "hybridep",
            "moe_hybridep_num_sms": 32,
            "moe_permute_fusion_into_hybridep": True,
            "moe_router_force_load_balancing": True,
            "moe_router_fusion": True,
            "cuda_graph_impl": "transformer_engine",
            "cuda_graph_modules": ("moe_router", "moe_preprocess"),
            "overlap_moe_expert_parallel_comm": True,
            "use_precision_aware_optimizer": True,
            "cuda_device_max_connections": 32,
            "nccl_graph_register": 0,
            "pytorch_cuda_alloc_conf": "expandable_segments:True",
            "expandable_segments": True,
            "hybrid_ep_ranks_per_nvlink_domain": 8,
            "num_of_tokens_per_chunk_combine_api": 64,
            "nvlink_domain_size": 8,
            "use_mnnvl": 0,
            "nvte_fwd_layernorm_sm_margin": 10,
            "nvte_bwd_layernorm_sm_margin": 10,
        },
    ),
)
def test_variants_change_what_they_name_and_nothing_else(name: str, expected: dict[str, object]) -> None:
    before, after = known(read_job(A1)), known(read_job(A1, lines_of(name)))
    assert {key: value for key, value in after.items() if before.get(key) != value} == expected
    assert before.keys() <= after.keys()
    assert read(read_job(JOBS / name)) == expected, "a file of overrides alone tells only what it names"


def test_traits_of_the_example_dumps_and_of_a_variant() -> None:
    job = read_job(JOBS / "b1_deepseek_v3_gb200.yaml", lines_of("b2_mxfp8.overrides"))
    assert (job.get("fp8"), job.get("fp8_recipe"), job.get("cuda_graph_impl")) == ("e4m3", "mxfp8", "full_iteration")
    assert (job.get("cuda_graph_modules"), job.get("moe_expert_rank_capacity_factor")) == ((), 1.5)
    assert job.settings["fp8"].shown == "mixed_precision (bf16_with_mxfp8_mixed) (--set)"
    b1, c = read_job(JOBS / "b1_deepseek_v3_gb200.yaml"), read_job(JOBS / "c_qwen3_vl_235b_gb200.yaml")
    assert (b1.format, b1.unknown) == ("megatron-bridge", ())
    assert b1.get("pipeline_model_parallel_layout") == "Etttt|" + "tttt|" * 14 + "tmL"
    assert b1.get("cuda_graph_modules") == ("attn", "moe_router", "moe_preprocess")
    assert b1.settings["num_layers"].key == "model.transformer.num_layers"
    assert (c.get("vision_depth"), c.get("vision_deepstack_visual_indexes")) == (27, ("8", "16", "24"))
    assert c.settings["vision_depth"].key == "model.vision_config.config_dict.depth"
    wrapped = parse_job("model: {vision_config: {_target_: a.B.from_dict, config_dict: {depth: 27}, other: {depth: 5}}}\n")
    assert wrapped.get("vision_depth") == 27
    assert any("vision_config.other.depth" in key for key in wrapped.unknown)
    assert c.get("dataset_target") == "megatron.bridge.data.vlm_datasets.mock_provider.MockVLMConversationProvider"


def test_selective_recompute_without_modules_is_core_attention() -> None:
    assert parse_job("model: {num_layers: 2, recompute_granularity: selective, recompute_modules: null}").get("recompute_modules") == (
        "core_attn",
    )
    assert parse_job("model: {num_layers: 2, recompute_granularity: full}").get("recompute_modules") == ()


# --- overrides ----------------------------------------------------------------------------------------------------------


def test_overrides_say_where_they_come_from_and_may_take_a_key_away() -> None:
    job = read_job(A1, ["model.num_layers=24", "++model.num_layers=12"])
    assert (job.get("num_layers"), job.settings["num_layers"].shown) == (12, "model.num_layers (--set)")
    assert [row.key for row in job.read().settings if row.name == "num_layers"] == ["model.num_layers (--set)"]
    job = read_job(A1, ["~model.moe_token_dispatcher_type", "~comm_overlap"])
    assert job.get("moe_token_dispatcher_type") is None
    assert job.settings["overlap_moe_expert_parallel_comm"].source == "default"


@for_each(
    "text, said",
    ("model.num_layerss=3", "--set model.num_layerss: no setting that is read has this name (model.num_layers?); it changes nothing"),
    ("foo.bar=2", "--set foo.bar: no setting that is read has this name; it changes nothing"),
    ("~model.no_such", "--set model.no_such: no setting that is read has this name; it changes nothing"),
)
def test_an_override_that_names_no_setting_is_told(text: str, said: str) -> None:
    assert said in read_job(A1, [text]).notes


def test_what_a_command_in_the_file_overrides_is_not_told_as_set_in_vain() -> None:
    command = "torchrun scripts/training/run_recipe.py --recipe qwen3_30b_a3b_pretrain_config train.train_iters=100 model.num_layers=3\n"
    job = parse_job(command)
    assert job.get("num_layers") == 3
    assert [note for note in job.notes if "--set" in note] == []


def test_of_an_override_that_names_a_setting_or_a_section_nothing_is_said() -> None:
    job = read_job(A1, ["model.num_layers=3", "--num-layers=3", "~comm_overlap", "seq_length=8192"])
    assert [note for note in job.notes if note.startswith("--set")] == []


def test_an_override_that_may_be_meant_for_a_setting_that_is_not_given_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("".join(line for line in A1.read_text().splitlines(keepends=True) if "seq_length" not in line))
    job = read_job(tmp_path / "job.yaml", ["model.seq_lenght=4096"])
    assert (job.misspelt, [note for note in job.notes if "--set" in note]) == ({"model.seq_lenght": "model.seq_length"}, [])


@for_each("text", "num_layers=7", "model.num_layers=7", "model.transformer.num_layers=7", "--num-layers=7", "++model/num_layers=7")
@for_each("name", "a1_qwen3_30b_h100.yaml", "a1_qwen3_30b_h100.sh", "b1_deepseek_v3_gb200.yaml")
def test_an_override_may_use_any_name_of_a_setting(name: str, text: str) -> None:
    assert read_job(JOBS / name, [text]).get("num_layers") == 7


def test_a_framework_key_replaces_only_itself() -> None:
    assert read_job(A1, ["model.overlap_moe_expert_parallel_comm=true"]).get("overlap_moe_expert_parallel_comm") is False, (
        "comm_overlap is copied over the model's, as in the framework"
    )
    assert read_job(A1, ["overlap_moe_expert_parallel_comm=true"]).get("overlap_moe_expert_parallel_comm") is True
    with pytest.raises(JobFileError, match=r"model.seq_length = 8192 and dataset.seq_length = 4096"):
        read_job(A1, ["model.seq_length=8192"])
    assert read_job(A1, ["seq_length=8192"]).get("seq_length") == 8192


def test_values_of_overrides() -> None:
    leaves = parse_overrides(["a.b=[x, y]", "+c='1'", "d=null", "e=", "~f.g", "h=a=b"])
    assert [(leaf.key, leaf.value, leaf.removed) for leaf in leaves] == [
        ("a.b", ["x", "y"], False), ("c", "1", False), ("d", None, False), ("e", None, False), ("f.g", None, True), ("h", "a=b", False),
    ]  # fmt: skip


@for_each("text", "num_layers", "=3", "+", "~", "a b=3", "", "model.num_layers: 3", "x={")
def test_what_is_no_override(text: str) -> None:
    with pytest.raises(JobFileError) as caught:
        overridden_job([text])
    assert caught.value.what.startswith("--set has ")


def test_overrides_alone_tell_nothing_else() -> None:
    job = overridden_job(["model.expert_model_parallel_size=8"])
    assert (job.format, known(job)) == ("overrides", {"expert_model_parallel_size": 8})
    with pytest.raises(JobFileError, match=r"--set has model.num_layers = 'x' \(text\), but expected int"):
        overridden_job(["model.num_layers=x"])


# --- performance recipes ------------------------------------------------------------------------------------------------


def test_a_recipe_command() -> None:
    job = read_job(JOBS / "a_recipe.sh")
    assert (job.format, job.unknown) == ("recipe", ("--max_steps", "-gn", "-m"))
    assert read(job) == {
        "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1, "expert_model_parallel_size": 16,
        "expert_tensor_parallel_size": 1, "world_size": 16, "data_parallel_size": 16, "expert_data_parallel_size": 1,
        "global_batch_size": 1024, "micro_batch_size": 1, "num_microbatches": 64, "seq_length": 4096, "context_parallel_chunk": 2048,
        "moe_token_dispatcher_type": "alltoall", "moe_shared_expert_overlap": False, "overlap_moe_expert_parallel_comm": True,
        "delay_wgrad_compute": False, "cuda_graph_impl": "none", "mixed_precision": "bf16_mixed", "bf16": True, "fp16": False,
        "fp8": "none", "fp4": "none", "use_nsys_profiler": True, "profile_step_start": 10, "profile_step_end": 11,
        "model_name": "qwen3_30b_a3b", "platform": "h100",
    }  # fmt: skip
    assert known(job) == read(job), "the recipe decides the rest, so there are no defaults"
    assert job.settings["delay_wgrad_compute"].shown == "comm_overlap.delay_wgrad_compute (line 5)", "an override goes before an option"
    assert "the recipe qwen3_30b_a3b decides what this command line leaves out" in job.notes[0]
    assert "--moe_a2a_overlap turns on the overlap of the EP all-to-all and delayed weight gradients together" in job.notes[1]


@for_each(
    "options, expected",
    ("--moe_a2a_overlap true", {"overlap_moe_expert_parallel_comm": True, "delay_wgrad_compute": True, "moe_shared_expert_overlap": False}),
    ("--moe_a2a_overlap false", {}),
    ("--moe_flex_dispatcher_backend hybridep", {"moe_flex_dispatcher_backend": "hybridep", "moe_token_dispatcher_type": "flex"}),
    ("-rl 4", {"recompute_num_layers": 4, "recompute_method": "block", "recompute_granularity": "full"}),
    ("--recompute_modules moe_act,mlp", {"recompute_modules": ("moe_act", "mlp"), "recompute_granularity": "selective"}),
    ("-ol 3", {"cpu_offloading": True, "cpu_offloading_num_layers": 3}),
    ("-ol 0", {"cpu_offloading": False, "cpu_offloading_num_layers": 0}),
    ("-vp None", {}),
    ("-vp 4", {"virtual_pipeline_model_parallel_size": 4}),
    ("-vp=4 --virtual_pipeline_model_parallel_size 2", {"virtual_pipeline_model_parallel_size": 2}),
    ("--cuda_graph_scope attn,moe_router", {"cuda_graph_modules": ("attn", "moe_router")}),
    ("--use_megatron_fsdp 1 --nccl_ub true", {"use_megatron_fsdp": True, "nccl_ub": True}),
    ("-E NCCL_GRAPH_REGISTER=0", {"nccl_graph_register": 0}),
    ("--dryrun model.num_layers=4", {"num_layers": 4}),
    ("-en ~model.num_layers", {"use_nsys_profiler": True}),
)
def test_what_recipe_options_stand_for(options: str, expected: dict[str, object]) -> None:
    job = parse_job(f"python scripts/performance/setup_experiment.py -mr r {options}\n")
    assert known(job) == {"model_name": "r"} | expected


def test_precision_of_a_recipe() -> None:
    job = parse_job("run.py -mr r -c fp8_mx -ng 8")
    assert (job.format, job.get("fp8"), job.get("fp8_recipe"), job.get("bf16")) == ("recipe", "e4m3", "mxfp8", True)


# --- flags and scripts --------------------------------------------------------------------------------------------------


def test_flags_keep_their_lines() -> None:
    job = parse_job("# one job\n--num-layers 48 --hidden-size=2048\n\n  --recompute-modules moe_act layernorm \\\n--no-rope-fusion # off\n")
    assert {name: job.settings[name].shown for name in ("num_layers", "hidden_size", "recompute_modules", "apply_rope_fusion")} == {
        "num_layers": "--num-layers (line 2)",
        "hidden_size": "--hidden-size (line 2)",
        "recompute_modules": "--recompute-modules (line 4)",
        "apply_rope_fusion": "--no-rope-fusion (line 5)",
    }
    assert job.get("recompute_modules") == ("moe_act", "layernorm")
    assert job.get("apply_rope_fusion") is False


def test_of_a_flag_given_twice_the_last_counts_and_signs_of_the_shell_are_plain() -> None:
    job = parse_job("--num-layers 48\n--num_layers 24\n")
    assert (job.get("num_layers"), job.notes) == (24, ("--num_layers is given twice; line 2 counts",))
    job = parse_job("--pipeline-model-parallel-layout Et*3|(tt|)*29m|L\n--moe-layer-freq ([0]*3+[1]*2)\n")
    assert job.get("pipeline_model_parallel_layout") == "Et*3|(tt|)*29m|L"
    assert job.get("moe_layer_freq") == ("0", "0", "0", "1", "1")


@for_each(
    "text, line",
    ("--num-layers '48\n", "job.sh holds a quote in line 1 that never ends."),
    ('torchrun pretrain.py \\\n  --num-layers "48\n', "job.sh holds a quote in line 2 that never ends."),
    ("A=( --num-layers 4\npython pretrain.py ${A[@]}\n", "job.sh holds an array in line 1 that never ends."),
    ("export X=$(date\npython pretrain.py --num-layers 4\n", "job.sh holds a command substitution in line 1 that never ends."),
    ("export A=1\necho hello\n", "job.sh holds no command that starts a training with known flags."),
    ("python a.py --num-layers 1\npython b.py --num-layers 2\n", "job.sh holds several training commands (lines 1, 2)."),
)
def test_scripts_that_are_no_job(text: str, line: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job(text, source="job.sh")
    assert caught.value.what == line
    assert caught.value.next_step


def script(body: str, flags: str = "--num-layers 4") -> Job:
    return parse_job(f"{body}\ntorchrun --nproc-per-node 8 pretrain_gpt.py {flags}\n")


@for_each(
    "launcher, expected",
    ("torchrun --nnodes 4 --nproc-per-node 8", 32),
    ("torchrun --nnodes=4 --nproc_per_node=8 --rdzv-id $ID", 32),
    ("torchrun --nproc-per-node 8", 8),
    ("python3 -m torch.distributed.run --nnodes 2 --nproc-per-node 4", 8),
    ("srun -N 4 torchrun --nnodes $N --nproc-per-node 8", None),
    ("torchrun --nnodes 1:4 --nproc-per-node 8", None),
    ("torchrun --nproc-per-node gpu", None),
    ("srun python", None),
    ("nsys profile -o out torchrun --nproc-per-node 8", 8),
    ('srun bash -c "torchrun --nproc-per-node 4', 4),
)
def test_world_size_of_a_launcher(launcher: str, expected: int | None) -> None:
    end = '"' if launcher.count('"') else ""
    job = parse_job(f"{launcher} pretrain_gpt.py --num-layers 4 --tensor-model-parallel-size 2{end}\n")
    assert (job.get("world_size"), job.get("num_layers"), job.get("tensor_model_parallel_size")) == (expected, 4, 2)


def test_unknown_variables_are_listed_and_never_guessed() -> None:
    job = script("TP=2", "--num-layers $LAYERS --tensor-model-parallel-size $TP --context-parallel-size ${CP} --bf16")
    assert job.get("tensor_model_parallel_size") == 2
    assert job.unknown == ("--context-parallel-size = $CP", "--num-layers = $LAYERS")
    assert job.get("context_parallel_size") is None, "its default would be a guess"
    assert job.get("pipeline_model_parallel_size") == 1, "what is not given is off"
    assert job.get("data_parallel_size") is None


@for_each("more", "$EXTRA --bf16", "--bf16 $EXTRA", "--bf16 ${EXTRA[@]}", '--num-layers 4 "$@"', "--num-layers 4 $(cat flags)")
def test_where_more_flags_may_hide_there_are_no_defaults(more: str) -> None:
    job = script("", f"--hidden-size 64 {more}")
    assert (job.get("hidden_size"), job.get("pipeline_model_parallel_size")) == (64, None)
    assert any("may hold more flags" in note for note in job.notes)


@for_each(
    "body, flags, expected",
    ("L=4", "--num-layers ${L}", 4),
    ("L=4; M=$L", "--num-layers=$M", 4),
    ("A='--num-layers 4'", "$A", 4),
    ('A="--bf16 \\\n  --num-layers 4"', "${A}", 4),
    ("A=(--num-layers 4)", "${A[@]}", 4),
    ("A=(--num-layers 4)", '"${A[@]}"', 4),
    ("A=(\n  # a comment\n  --bf16\n  --num-layers 4 # four\n)", '"${A[@]}"', 4),
    ("A=(\n  # it's a comment (of two\n  --num-layers 4\n)", '"${A[@]}"', 4),
    ("A=(--bf16); A+=(--num-layers 4)", '"${A[@]}"', 4),
    ("A=--bf16; A+=' --num-layers 4'", "$A", 4),
    ("N=2; L=$((N * 3 - 2))", "--num-layers $L", 4),
    ("", "--num-layers $((2+2))", 4),
    ("declare -x L=4", "--num-layers $L", 4),
    ("", "--num-layers '$L'", None),
    ("L=`nproc`", "--num-layers $L", None),
    ("L=$1", "--num-layers $L", None),
    ("if [ $X ]; then\n  L=4\nfi", "--num-layers $L", None),
    ("[ $X ] && L=4", "--num-layers $L", None),
    ("f() {\n  L=4\n}", "--num-layers $L", None),
    ("for i in *.bin; do\n  L=4\ndone", "--num-layers $L", None),
    ("if [[ $X == 1 ]]; then L=4; elif [ $Y ]; then L=4; else L=4; fi", "--num-layers $L", 4),
    ('if [ -z "$L" ]; then L=4; fi', "--num-layers $L", 4),
    ('if [ -z "x$L" ]; then L=4; fi', "--num-layers $L", None),
    ('if [ -z "$1" ]; then L=4; fi', "--num-layers $L", None),
    ('if [ -n "$L" ]; then L=4; fi', "--num-layers $L", None),
    ('L=5; if [ -z "$L" ]; then L=6; else L=4; fi', "--num-layers $L", 4),
    ('L=; if [ -n "$L" ]; then L=5; else L=4; fi', "--num-layers $L", 4),
    ('if [ -z "$DATA" ]; then echo "set DATA"; exit 1; fi; L=4', "--num-layers $L", 4),
    ("IFS=, read -r A L <<< '2,4'", "--num-layers $L", 4),
    ("read -r -d '' A <<'END'\n--num-layers 4\nEND", "$A", 4),
    ("L=$(\n  # it's a comment ) of one\n  echo 4\n)", "--num-layers $L", 4),
    ("case $X in\n  a) L=4 ;;\nesac", "--num-layers $L", None),
    ("L=5; case $X in a) L=4 ;; esac", "--num-layers $L", None),
    ("L=5; case $X in a) L=4 ;; *) L=4 ;; esac", "--num-layers $L", 4),
    ("L=5; case $X in *) L=4 ;; esac", "--num-layers $L", 4),
    ("L=5; if [ $X ]; then L=4; fi", "--num-layers $L", None),
    ("L=5; if [ $X ]; then L=4; else L=4; fi", "--num-layers $L", 4),
    ("L=5; [ $X ] || L=4", "--num-layers $L", None),
    ("L=5; while [ $X ]; do L=4; done", "--num-layers $L", None),
    ("L=5; for i in *.bin; do L=4; done", "--num-layers $L", None),
    ("D=$(cd /4/x/.. && pwd); L=${D#/}", "--num-layers $L", 4),
    ("D=$(cd && pwd); L=${D#/}", "--num-layers $L", None),
    ("L=5\ntrue ||\n  L=6\nL=4", "--num-layers $L", 4),
    ("L=4; f() { L=5; }", "--num-layers $L", 4),
    ("cat <<EOF\nL=5\nEOF\nL=4", "--num-layers $L", 4),
    ("L=$((1/0))", "--num-layers $L", None),
)
def test_what_a_script_unfolds_to(body: str, flags: str, expected: int | None) -> None:
    if expected is None and "'$L'" in flags:
        with pytest.raises(JobFileError, match="expected int"):
            script(body, flags)
        return
    job = script(body, flags + " --hidden-size 64")
    assert (job.get("num_layers"), job.get("hidden_size")) == (expected, 64)
    assert (expected is None) == bool(job.unknown)


@for_each(
    "word, sign, holds",
    ("-lt", "<", "LESS"), ("-le", "<=", "LESS SAME"), ("-eq", "==", "SAME"), ("-ne", "!=", "LESS MORE"),
    ("-ge", ">=", "SAME MORE"), ("-gt", ">", "MORE"),
)  # fmt: skip
def test_numbers_are_compared_as_a_shell_compares_them(word: str, sign: str, holds: str) -> None:
    body, expected = "D=", ""
    for number, name in ((3, "LESS"), (4, "SAME"), (5, "MORE")):
        for condition in (f"[ {number} {word} 4 ]", f"[[ {number} {word} 4 ]]", f"(( {number} {sign} 4 ))"):
            body += f"\nif {condition}; then D=${{D}}1; else D=${{D}}2; fi"
            expected += "1" if name in holds else "2"
    assert script(body, "--seq-length $D --hidden-size 64").get("seq_length") == int(expected)


def test_an_array_keeps_what_all_branches_begin_with() -> None:
    job = script("A=(--num-layers 4)\nif [ $X ]; then A+=(--seq-length 8); fi", '"${A[@]}" --hidden-size 64')
    assert (job.get("num_layers"), job.get("seq_length"), job.get("hidden_size")) == (4, None, 64)


def test_environment_of_the_command() -> None:
    job = parse_job(
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\nNCCL_NVLS_ENABLE=0\nexport WANDB_API_KEY=secret NVTE_CPU_OFFLOAD_V1=$X\n"
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
        "env USE_MNNVL=1 NCCL_GRAPH_REGISTER=0 torchrun pretrain.py --num-layers 4\n"
    )
    assert (job.get("cuda_device_max_connections"), job.get("use_mnnvl"), job.get("nccl_graph_register")) == (1, 1, 0)
    assert job.get("nccl_nvls_enable") is None, "set, but not exported"
    assert job.get("expandable_segments") is True
    assert job.unknown == ("NVTE_CPU_OFFLOAD_V1 = $X",)
    assert job.settings["cuda_device_max_connections"].shown == "CUDA_DEVICE_MAX_CONNECTIONS (line 1)"
    assert "secret" not in repr(job)


def test_several_commands_of_which_one_trains() -> None:
    job = parse_job(
        "#!/bin/bash\npython tools/prepare.py --input x\nmkdir -p logs && cd logs\npython -m megatron.train --num-layers 4 > log 2>&1 &\n"
    )
    assert job.get("num_layers") == 4


# --- torchtitan ---------------------------------------------------------------------------------------------------------


def test_torchtitan() -> None:
    job = read_job(JOBS / "torchtitan_deepseek_v3.toml")
    assert (job.format, job.unknown) == ("torchtitan", ())
    assert known(job) == {
        "tensor_model_parallel_size": 8, "pipeline_model_parallel_size": 1, "context_parallel_size": 1, "expert_model_parallel_size": 16,
        "expert_tensor_parallel_size": 1, "world_size": 512, "data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 64,
        "data_parallel_size": 64, "expert_data_parallel_size": 32, "global_batch_size": 1024, "micro_batch_size": 4,
        "num_microbatches": 4, "seq_length": 4096, "context_parallel_chunk": 2048, "recompute_granularity": "selective", "fp8": "hybrid",
        "fp8_recipe": "rowwise", "torch_compile": True,
        "expandable_segments": False,  # the file sets no variable
        "pipeline_parallel_schedule": "1F1B",
        "moe_token_dispatcher_type": "alltoall", "fake_process_group": False,  # torchtitan's own defaults
        "model_name": "deepseek_v3", "model_flavor": "671B", "policy_classes": False,
    }  # fmt: skip


def test_torchtitan_defaults_and_sizes_that_it_finds_out() -> None:
    job = parse_job("[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 4\n[training]\nglobal_batch_size = -1\n")
    assert (job.get("data_parallel_shard_degree"), job.get("world_size"), job.get("global_batch_size")) == (None, None, None)
    assert (job.get("expert_tensor_parallel_size"), job.get("pipeline_model_parallel_size")) == (1, 1)
    with pytest.raises(JobFileError, match=r"is not valid TOML: .*line 2"):
        parse_job("[training]\nseq_len = \n")


# --- own rules ----------------------------------------------------------------------------------------------------------


@for_each("text", "rules: mine\nmodel: {num_layers: 2}", "rules: [mine]\nnum_layers: 2", "rules: mine\nMODEL_ARGS: {--num-layers: 2}")
def test_rules_of_the_job_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    job = read_job(tmp_path / "job.yaml")
    assert (job.rules, job.unknown, job.get("num_layers")) == ((tmp_path / "mine",), (), 2)


def test_rules_may_be_absolute_and_absent(tmp_path: Path) -> None:
    assert parse_job(f"rules: [{tmp_path}/a, b]\nnum_layers: 2", folder=Path("x")).rules == (tmp_path / "a", Path("x/b"))
    assert parse_job("rules: null\nnum_layers: 2").rules == ()
    with pytest.raises(JobFileError, match=r"rules = 3 \(int\), but expected path or list of paths"):
        parse_job("rules: 3\nnum_layers: 2")


# --- files that are no job, or only just --------------------------------------------------------------------------------


# each of eleven maps merges the one before nine times
MERGED = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))


@for_each(
    "data, said",
    (b"", "must hold a map of settings, but holds nothing"),
    (b"\n\n  # only a comment\n", "must hold a map of settings, but holds nothing"),
    (b"\x7fELF\x02\x01\x00\x00", "is not text: it holds NUL bytes"),
    (b"PK\x03\x04\xff\xfe", "is not UTF-8 text (byte 4)"),
    ("a: 1".encode("utf-16"), "is not UTF-8 text (byte 0)"),
    (b"a: 1\n" * 1_000_000, "is larger than 4 MiB"),
    (b"{{{{", "is not valid YAML"),
    (b"[training", "is not valid YAML"),
    (b"[[[", "is not valid YAML"),
    (b"just words", "must hold a map of settings, but holds text"),
    (b"a:\n\t- b\n", "is not valid YAML"),
    (b"model: {num_layers: 1.0e+400}", "model.num_layers = inf (float), but expected int"),
    (b"model: {num_layers: " + b"9" * 5000 + b"}", "is not valid YAML"),
    (b"--num-layers " + b"9" * 5000, "but expected int"),
    (b"model.num_layers=" + b"9" * 5000, "can't be read"),
    (b"date: 2024-99-99\n", "is not valid YAML"),
    (b"a: [1", "line 1"),
    (b"- 1\n- 2\n", "holds list"),
    (b"a: !!python/object:os.system x", "could not determine a constructor"),
    (b"a: 1\nz: !!bool abc", "line 2: the value does not fit its tag"),
    (b"z: !!timestamp abc", "line 1: the value does not fit its tag"),
    (b"z: !!set [1]", "expected a mapping"),
    (b"z: !!map [1]", "expected a mapping"),
    (b"a: &a {<<: *a}", "a map merges itself"),
    (b"a: {<<: 3}", "expected a mapping or list of mappings for merging"),
    (MERGED.encode(), "merges more than"),
)
def test_hostile_files_end_in_a_sentence(data: bytes, said: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job(data, source="job")
    assert said in caught.value.what
    assert caught.value.what.startswith("job ")
    assert len(caught.value.what) < 400
    assert caught.value.next_step


@for_each(
    "name",
    "a1_qwen3_30b_h100.yaml", "a1_qwen3_30b_h100.sh", "a1_qwen3_30b_h100.flags", "a4_hybridep.overrides", "torchtitan_deepseek_v3.toml",
)  # fmt: skip
@for_each("change", "mark", "crlf", "both")
def test_marks_and_line_ends_of_other_systems_change_nothing(name: str, change: str) -> None:
    plain = (JOBS / name).read_bytes()
    data = plain.replace(b"\n", b"\r\n") if change != "mark" else plain
    data = b"\xef\xbb\xbf" + data if change != "crlf" else data
    assert known(parse_job(data)) == known(parse_job(plain))


def test_tabs_in_scripts_and_flags() -> None:
    assert parse_job("\t--num-layers\t4\n\t--bf16\n").get("num_layers") == 4
    assert parse_job("\ttorchrun\tpretrain.py\t--num-layers\t4\n").get("num_layers") == 4


def test_a_script_that_unfolds_without_end_is_refused() -> None:
    body = "A0=(--x 1 2 3 4 5 6 7 8)\n" + "".join(f'A{n + 1}=("${{A{n}[@]}}" "${{A{n}[@]}}")\n' for n in range(40))
    with pytest.raises(JobFileError, match="unfolds to more than 100000 words"):
        parse_job(body + 'torchrun pretrain.py --num-layers 4 "${A40[@]}"\n')
    text = "A=aaaaaaaaaaaaaaaa\n" + "A=$A$A$A$A\n" * 30
    with pytest.raises(JobFileError, match="unfolds to more than 1000000 characters"):
        parse_job(text + "torchrun pretrain.py --num-layers 4 $A\n")


NAMES = st.sampled_from(["num-layers", "hidden-size", "seq-length", "num-experts", "global-batch-size"])


@given(st.dictionaries(NAMES, st.integers(1, 10**12), min_size=1))
def test_every_way_to_write_flags_says_the_same(flags: dict[str, int]) -> None:
    ways = [
        "\n".join(f"--{name} {value}" for name, value in flags.items()),
        " \\\n".join(f"--{name}={value}" for name, value in flags.items()),
        "MODEL_ARGS:\n" + "".join(f"  --{name}: {value}\n" for name, value in flags.items()),
        "python pretrain.py " + " ".join(f"--{name} {value}" for name, value in flags.items()),
        "ARGS=(\n" + "".join(f'  --{name} "{value}"\n' for name, value in flags.items()) + ')\npython pretrain.py "${ARGS[@]}"\n',
    ]
    found = [read(parse_job(way)) for way in ways]
    assert all(one == found[0] for one in found)
    assert len(found[0]) >= len(flags)


@given(st.text(alphabet="ab $\"'`(){}[]|&;<>#\\\n=-~+:.*@1\t", max_size=60))
def test_no_text_breaks_a_reader(text: str) -> None:
    for body in (text, f"python pretrain.py --num-layers 4 {text}", f"--num-layers 4\n{text}", f"A=1\n{text}\npython a.py --num-layers 4"):
        with contextlib.suppress(JobFileError):
            sizes(parse_job(body))
