"""Changes applied to a job as they stand: the result must read as a job in which the fix is on."""

import copy

from diagnose.document.diagnosis import Fact
from diagnose.job import Job
from diagnose.knowledge.catalogue import ChangeSpec
from diagnose.reason.context import Context, make_context
from diagnose.reason.findings import FixReader
from tests.builders import yaml_text
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import JOBS, Nested, parse_job, put

H100 = facts()
GB200 = facts(platform="gb200", gpu_compute_major=10, nvlink_domain=72)

BRIDGE, LM = JOBS["BRIDGE"], JOBS["LM"]

# Fixes whose changes leave nothing to choose: what the job holds beside the base, in both frameworks, and the trace's platform.
FLEX = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}
APPLIED: dict[str, tuple[Nested, dict[str, Fact]]] = {
    "MEM-01": ({}, H100),
    "MEM-02": ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}, H100),
    "MEM-04": ({"use_distributed_optimizer": False}, H100),
    "MEM-05": ({}, H100),
    "MEM-06": ({}, H100),
    "MEM-08": ({"recompute_granularity": "selective", "recompute_modules": ["moe", "layernorm"]}, H100),
    "MEM-10": ({}, H100),
    "MEM-15": (FLEX, GB200),
    "MEM-16": ({"overlap_moe_expert_parallel_comm": True}, H100),
    "MEM-17": ({}, H100),
    "MEM-19": ({"recompute_granularity": "selective", "recompute_modules": ["moe_act"]}, H100),
    "COM-01": ({"moe_shared_expert_overlap": True}, H100),
    "COM-02": ({"moe_shared_expert_overlap": True}, GB200),
    "COM-04": (FLEX, GB200),
    "COM-05": (FLEX, H100),
    "COM-06": ({}, H100),
    "COM-07": ({"overlap_moe_expert_parallel_comm": True}, H100),
    "COM-08": ({"moe_shared_expert_intermediate_size": 512}, H100),
    "COM-09": ({"tensor_model_parallel_size": 2, "sequence_parallel": True}, H100),
    "COM-10": ({"overlap_grad_reduce": False}, H100),
    "COM-11": ({}, H100),
    "COM-12": ({"bucket_size": 1000000}, H100),
    "COM-18": ({"overlap_moe_expert_parallel_comm": True}, GB200),
    "COM-19": ({}, H100),
}


def bridge_job(changes: Nested) -> Nested:
    """The base job of Megatron-Bridge with settings under their first key, wherever the base holds one."""
    data = copy.deepcopy(BRIDGE)
    for name, value in changes.items():
        for key in BOOK.settings[name].keys_in("megatron-bridge")[:2]:
            put(data, key, value)
    return data


def lm_job(changes: Nested) -> Nested:
    """The base job of Megatron-LM with flags; a flag that is false is left out."""
    data = copy.deepcopy(LM)
    flags = data["MODEL_ARGS"]
    assert isinstance(flags, dict)
    for name, value in changes.items():
        flag = f"--{BOOK.settings[name].keys_in('megatron-lm')[0]}"
        if value is False:
            flags.pop(flag, None)
        else:
            flags[flag] = " ".join(value) if isinstance(value, list) else value
    return data


def drop(data: Nested, key: str) -> None:
    *sections, last = key.split(".")
    node = data
    for section in sections:
        node = node.get(section, {})  # type: ignore[assignment]
    node.pop(last, None)


def found(data: Nested, key: str) -> object:
    node: object = data
    for section in key.split("."):
        node = node.get(section) if isinstance(node, dict) else None
    return node


def apply(data: Nested, change: ChangeSpec, context: Context) -> None:
    """One change, literally.

    The key is written, removed, or a member of its list or of its options, with commas between, is put in or taken out.
    """
    if change.framework == "environment":
        data = data.setdefault("ENV_VARS" if "MODEL_ARGS" in data else "env_vars", {})  # type: ignore[assignment]
    if change.framework == "megatron-lm":
        data = data["MODEL_ARGS"]  # type: ignore[assignment]
    if change.op == "unset":
        drop(data, change.key)
    elif change.op in ("add", "remove") and change.setting is not None and BOOK.settings[change.setting].type == "text":
        options = [item for item in str(found(data, change.key) or "").split(",") if item not in ("", change.to)]
        put(data, change.key, ",".join(options if change.op == "remove" else [*options, change.to]))
    elif change.op == "remove":
        present = found(data, change.key)
        listed = present.split() if isinstance(present, str) else list(present)  # type: ignore[call-overload]
        put(data, change.key, [item for item in listed if item != change.to])
    else:
        number = context.numbers([change.value])[0] if change.value is not None else None
        put(data, change.key, yaml_text.load(change.to) if number is None else int(number) if number == round(number) else number)


def applied(key: str, data: Nested, given: dict[str, Fact]) -> Job:
    job = parse_job(yaml_text.dump(data))
    context = make_context(given, job, BOOK)
    ours = {"megatron-lm" if "MODEL_ARGS" in data else "megatron-bridge", "environment"}
    changed = copy.deepcopy(data)
    for change in BOOK.fixes[key].changes:
        if change.framework in ours and not change.choose and (change.only is None or context.holds(change.only) is not False):
            apply(changed, change, context)
    return parse_job(yaml_text.dump(changed))


def state(key: str, job: Job, given: dict[str, Fact]) -> str:
    return FixReader(context=make_context(given, job, BOOK)).fix(BOOK.fixes[key]).state


@for_each("kind", "megatron-bridge", "megatron-lm")
def test_an_applied_fix_is_on(kind: str) -> None:
    for key, (changes, given) in APPLIED.items():
        data = bridge_job(changes) if kind == "megatron-bridge" else lm_job(changes)
        assert state(key, parse_job(yaml_text.dump(data)), given) in ("applicable", "unknown"), key
        job = applied(key, data, given)
        assert job.format == kind, key
        assert state(key, job, given) == "already_on", key


def test_what_is_applied_is_what_the_framework_accepts() -> None:
    """Coupled settings come along: nothing of the old state is left that the new one refuses."""
    full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    for data in (bridge_job(full), lm_job(full)):
        job = applied("MEM-02", data, H100)
        assert [job.get(name) for name in ("recompute_granularity", "recompute_modules", "recompute_method", "recompute_num_layers")] == [
            "selective", ("moe_act",), "none", 0,
        ]  # fmt: skip
        less = applied("MEM-03", data, H100)
        assert (less.get("recompute_granularity"), less.get("recompute_method")) == ("selective", "none")
        roomy = applied("MEM-03", data, facts(peak_reserved_bytes=40 << 30, device_memory_bytes=80 << 30))
        assert [roomy.get(name) for name in ("recompute_granularity", "recompute_method", "recompute_num_layers")] == ["none", "none", 0]
        overlap = {"applicable": state("COM-06", less, H100)}
        assert overlap == {"applicable": "applicable"}


def test_recompute_goes_down_in_steps_and_offload_takes_its_place() -> None:
    data = bridge_job({"recompute_granularity": "selective", "recompute_modules": ["moe"]})
    assert applied("MEM-03", data, H100).get("recompute_granularity") == "none"
    flags = lm_job({})
    flags["MODEL_ARGS"]["--recompute-activations"] = True  # type: ignore[index]
    assert parse_job(yaml_text.dump(flags)).get("recompute_granularity") == "selective"
    assert applied("MEM-03", flags, H100).get("recompute_granularity") == "none"
    assert applied("MEM-19", flags, H100).get("recompute_granularity") == "full"
    data = bridge_job({"recompute_granularity": "selective", "recompute_modules": ["moe", "moe_act", "layernorm"]})
    job = applied("MEM-08", data, H100)
    assert job.get("recompute_modules") == ("layernorm",)
    assert (job.get("offload_modules"), job.get("nvte_cpu_offload_v1")) == (("expert_fc1", "moe_act"), 1)


@for_each(
    "graphs, impl, modules",
    ({"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["attn", "moe_router", "moe_preprocess"]}, "transformer_engine", 2),
    ({"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["moe_router", "moe_preprocess"]}, "none", 0),
    ({"cuda_graph_impl": "local"}, "none", 0),
)
def test_graphs_get_narrower_and_then_go(graphs: Nested, impl: str, modules: int) -> None:
    data = copy.deepcopy(BRIDGE)
    for name, value in graphs.items():
        put(data, "model.cuda_graph_scope" if name == "cuda_graph_modules" else f"model.{name}", value)
    for job in (applied("MEM-14", data, H100), applied("MEM-14", lm_job(graphs), H100)):
        assert job.get("cuda_graph_impl") == impl
        assert len(job.get("cuda_graph_modules") or ()) == modules  # type: ignore[arg-type]


@for_each("given, experts, expected", (H100, 4, (4, 8, 0)), (H100, 16, (8, 8, 0)), (GB200, 64, (64, 72, 1)), (GB200, 8, (8, 72, 1)))
@for_each("key", "COM-02", "COM-04")
def test_the_nvlink_domain_follows_the_rule(key: str, given: dict[str, Fact], experts: int, expected: tuple[int, int, int]) -> None:
    """Ranks in the domain, its size, and multi-node NVLink: min(EP, 8), 8, 0 on nodes of eight, EP, 72, 1 on NVL72."""
    flex = FLEX if key == "COM-04" else {}
    job = applied(key, bridge_job({"expert_model_parallel_size": experts, **flex}), given)
    assert tuple(job.get(name) for name in ("hybrid_ep_ranks_per_nvlink_domain", "nvlink_domain_size", "use_mnnvl")) == expected


def test_the_older_knobs_of_the_dispatcher_go_and_fsdp_frees_the_connections() -> None:
    data = bridge_job({**FLEX, "moe_hybridep_num_sms": 16})
    assert applied("COM-03", data, H100).get("moe_hybridep_num_sms") is None
    # The assertion of Megatron-LM against one connection under FSDP is answered in the same change
    job = applied("MEM-10", lm_job({}), H100)
    assert (job.get("cuda_device_max_connections"), job.get("ckpt_format")) == (8, "fsdp_dtensor")  # unset, so CUDA's default
    assert job.get("data_parallel_sharding_strategy") == "optim_grads_params"
