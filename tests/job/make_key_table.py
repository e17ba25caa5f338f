"""Makes `keys.tsv`: where each key and flag that the rules read or write stands in its framework's sources.

    python -m tests.job.make_key_table MEGATRON_LM MEGATRON_BRIDGE TORCHTITAN \\
        DEEPSPEED GPT_NEOX ACCELERATE TRANSFORMERS TRL LLAMA_FACTORY AXOLOTL MS_SWIFT VERL VERL NEMO_RL VEOMNI

Bare or plain clones, the first three with their history; of Transformers a wheel.

Only names go into the table: framework, key, class or function, file, and the version: a key is looked for at HEAD, then in the older
versions of `_VERSIONS`, newest first. One that no release has as such (a section's own class, a model's Hugging Face configuration) says
why it is known.
"""

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.knowledge.load import load_rulebook
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.settings import load_job_settings

TABLE = Path(__file__).parent / "keys.tsv"
OWN = "this project's own"
MISSING = "in none of the versions looked at"
DEEPSPEED_CHAT = "its parse_args, applications/DeepSpeed-Chat/training/step3_rlhf_finetuning/main.py (45b4b7156c)"
KNOWN: Mapping[tuple[str, str], str] = {
    ("megatron-lm", "--world-size"): OWN,
    ("megatron-lm", "--training"): "read from MODE of Megatron-LM's own test cases, no flag",
    ("torchtitan", "quantize.dense.float8.recipe_name"): "spelling of a fork",
    (
        "megatron-lm",
        "--fake-init-process-group",
    ): "Megatron-Core's README of its MoE layer calls --fake-process-group so; the parser refuses it",
    ("megatron-lm", "--virtual-pipeline-model-parallel-size"): "until February 2021 (dcef906978)",
    ("megatron-bridge", "model.moe_a2a_overlap"): "recipes of 2025 carry it; no class reads it",
    ("megatron-bridge", "dataset.packed_sequence_specs.packed_sequence_size"): "older name of offline_packing_specs",
    ("megatron-bridge", "optimizer.offload_optimizer_states"): "Megatron-Core's development branch; a recipe writes it",
    ("megatron-bridge", "model.dynamic_context_parallel"): "Megatron-Core's development branch; training/initialize.py hands it on",
    ("megatron-lm", "--dynamic-context-parallel"): "Megatron-Core's development branch",
    ("megatron-bridge", "model.enable_hyper_connections"): "Megatron-Core's development branch; deepseek_v4_bridge.py sets it",
    ("megatron-bridge", "model.num_residual_streams"): "Megatron-Core's development branch; deepseek_v4_bridge.py sets it",
    ("megatron-bridge", "model.padded_vocab_size"): "set on the model by the framework, and saved with it",
    ("torchtitan", "training.tensor_parallel_degree"): "job file of 2024",
    ("hugging-face", "actor_gradient_checkpointing"): DEEPSPEED_CHAT,
    ("hugging-face", "per_device_training_batch_size"): DEEPSPEED_CHAT,
    ("hugging-face", "block_size"): "argument of Transformers' own example (examples/pytorch/language-modeling/run_clm.py)",
    ("hugging-face", "expert_parallel_size"): "Axolotl's examples (examples/expert_parallel), handed on to Transformers",
    ("hugging-face", "per_gpu_train_batch_size"): "older name of per_device_train_batch_size",
    ("hugging-face", "train_type"): "ms-swift's name of tuner_type before version 4 (d0c71e48c9)",
    ("torchtitan", "parallelism.expert_parallel_comm_backend"): "from December 2025 (36a4b69421) to April 2026",
    ("torchtitan", "model_spec.name"): "written into saved configurations by Trainer.Config.to_dict (torchtitan/trainer.py)",
    ("torchtitan", "model_spec.flavor"): "written into saved configurations by Trainer.Config.to_dict (torchtitan/trainer.py)",
    ("torchtitan", "activation_checkpoint"): "a class of torchtitan/distributed/activation_checkpoint.py, since June 2026 (c5d93d109)",
    ("torchtitan", "model_spec.converters"): "argument of the model registries (torchtitan/models/deepseek_v3/__init__.py)",
    ("torchtitan", "model_spec.moe_comm_backend"): "argument of the model registries (torchtitan/models/deepseek_v3/__init__.py)",
}
"""Keys that are known although none of the versions looked at has them."""

_VERSIONS: Mapping[str, tuple[str, ...]] = {  # older ones whose job files are still about
    "megatron-lm": ("76144fe1106e4fb0e69aa75b7a6ab66e71e8f37f",),
    "megatron-bridge": ("0aec3a7f857ceb39300273c94c8700360273d75b",),
    "torchtitan": (
        "028a455c1e3c0ea5aeb34e04f6ae25401b900bfc",
        "820504e20d1149fbf0b98c567af24c4b0433b22d",
        "3e3909a0c1d4c451a44cda6c32139dbda69961c0",
    ),  # with TOML
}
_PLAIN: Mapping[str, tuple[tuple[str, ...], ...]] = {  # what is looked through for their keys, of each clone in turn
    "deepspeed": (("deepspeed/runtime", "deepspeed/comm", "deepspeed/profiling", "deepspeed/module_inject"), ("megatron/neox_arguments",)),
    "accelerate": (("src/accelerate",),),
    "hugging-face": (
        ("transformers/training_args.py",),
        ("trl/trainer",),
        ("src/llamafactory/hparams", "src/llamafactory/v1"),
        ("src/axolotl/utils/schemas",),
        ("swift",),
    ),
    "verl-fsdp": (("verl/workers/config",),),
    "verl-sft": (("verl/workers/config", "verl/trainer"),),
    "nemo-rl": (("nemo_rl/models/policy",),),
    "veomni": (("veomni/arguments",),),
}
_SECTIONS: Mapping[
    str, tuple[str, ...]
] = {  # classes of Megatron-Bridge's ConfigContainer; of model and dataset any class in these folders
    "train": ("TrainingConfig",),
    "optimizer": ("OptimizerConfig",),
    "ddp": ("DistributedDataParallelConfig",),
    "dist": ("DistributedInitConfig",),
    "rng": ("RNGConfig",),
    "rerun_state_machine": ("RerunStateMachineConfig",),
    "logger": ("LoggerConfig",),
    "tokenizer": ("TokenizerConfig",),
    "checkpoint": ("CheckpointConfig",),
    "ft": ("FaultToleranceConfig",),
    "profiling": ("ProfilingConfig",),
    "comm_overlap": ("CommOverlapConfig",),
    "mixed_precision": ("MixedPrecisionConfig",),
    "scheduler": ("SchedulerConfig",),
}
_FOLDERS = {"model": "src/megatron/bridge/models/", "dataset": "src/megatron/bridge/data/", "peft": "src/megatron/bridge/peft/"}
_OWN_SECTIONS = ("world_size", "platform", "gpu", "versions", "step_range", "first_k_dense_replace")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a key stands: the class or function, and the file."""

    owner: str
    file: str


@dataclass(frozen=True, kw_only=True)
class Klass:
    """A class of the sources: its fields with their default, its bases."""

    name: str
    file: str
    fields: Mapping[str, ast.expr | None]
    types: Mapping[str, str]
    bases: tuple[str, ...]


class Clone:
    """The Python sources of one repository at one version."""

    def __init__(self, path: str, version: str, *prefixes: str) -> None:
        self.path = path
        self.commit = self._git("rev-parse", version).strip()
        names = self._git("ls-tree", "-r", "--name-only", version, *prefixes).splitlines()
        self.trees = {name: ast.parse(self._git("show", f"{version}:{name}")) for name in names if name.endswith(".py")}

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", "-C", self.path, *words], check=True, capture_output=True, text=True).stdout

    def constants(self) -> Iterator[tuple[str, Place]]:
        """Every text that stands in the sources, with the function or class that it stands in."""
        for file, tree in self.trees.items():
            owners = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
            for owner in (*owners, tree):
                name = owner.name if isinstance(owner, ast.FunctionDef | ast.ClassDef) else "-"
                for node in ast.walk(owner):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        yield node.value.removeprefix("--"), Place(owner=name, file=file)

    def classes(self) -> Iterator[Klass]:
        """Every class with annotated fields or attributes."""
        for file, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    rows = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
                    fields = {one.target.id: one.value for one in rows if isinstance(one.target, ast.Name)}
                    types = {one.target.id: ast.unparse(one.annotation) for one in rows if isinstance(one.target, ast.Name)}
                    bases = tuple(ast.unparse(base).split(".")[-1] for base in node.bases)
                    yield Klass(name=node.name, file=file, fields=fields, types=types, bases=bases)


class Wheel(Clone):
    """The Python sources of a release as a package index hands it out."""

    def __init__(self, path: str, *files: str) -> None:
        self.path = path
        self.commit = Path(path).name.split("-")[1]
        with zipfile.ZipFile(path) as held:
            self.trees = {name: ast.parse(held.read(name)) for name in files}


def plain_keys(clone: Clone, asked: Iterable[str]) -> dict[str, Place]:
    """Keys of a framework whose configuration is read field by field: from classes, else wherever a text of the sources names them."""
    classes = list(clone.classes())
    named: dict[str, Place] = {}
    for text, place in sorted(clone.constants(), key=lambda row: not row[1].file.endswith(("config.py", "constants.py"))):
        named.setdefault(text, place)
    found: dict[str, Place] = {}
    for key in asked:
        *sections, field = key.split(".")
        holding = [one for one in classes if field in one.fields]
        section = sections[-1] if sections else ""
        best = max(holding, key=lambda one: _likely(one.name.lower(), section), default=None)
        text = (named.get(section) if section else None) or named.get(field)
        if best is not None and (not section or text is None or len(holding) == 1 or _likely(best.name.lower(), section) > 1):
            found[key] = Place(owner=best.name, file=best.file)
        elif text is not None:
            found[key] = text
    return found


def _likely(name: str, section: str) -> int:
    """How much the name of a class speaks for a section of a configuration."""
    words = section.removesuffix("_config").split("_")
    return 4 * ("".join(words) in name) * bool(section) + 2 * (words[0] in name) + name.endswith(("config", "arguments", "plugin"))


def megatron_flags(clone: Clone) -> dict[str, Place]:
    """Flags of Megatron-LM's parser: those written out, and those made from the fields of configuration classes."""
    file = "megatron/training/arguments.py"
    classes = {one.name: one for one in clone.classes() if one.file.startswith("megatron/")}
    found: dict[str, Place] = {}
    lists = {
        target.id: ast.literal_eval(node.value)
        for node in ast.walk(clone.trees[file])
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and _is_literal(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in (node for node in ast.walk(clone.trees[file]) if isinstance(node, ast.FunctionDef)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                names = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                found |= {name: Place(owner=function.name, file=file) for name in names if name.startswith("--")}
            elif isinstance(call.func, ast.Name) and call.func.id == "ArgumentGroupFactory" and isinstance(call.args[0], ast.Name):
                spared = next((word.value for word in call.keywords if word.arg == "exclude"), None)
                if isinstance(spared, ast.Name):
                    left_out = set(lists[spared.id])
                else:
                    left_out = set() if spared is None else set(ast.literal_eval(spared))
                for owner, name, default, kind in _fields(classes, call.args[0].id):
                    if name not in left_out:
                        found |= {flag: Place(owner=owner.name, file=owner.file) for flag in _flags(name, default, kind)}
    return found


def _is_literal(node: ast.List) -> bool:
    return all(isinstance(item, ast.Constant) for item in node.elts)


def _fields(classes: Mapping[str, Klass], name: str) -> Iterator[tuple[Klass, str, ast.expr | None, str]]:
    """Fields of a class and of those that it is made from, with the class that declares each."""
    one = classes.get(name)
    if one is None:
        return
    for base in one.bases:
        yield from _fields(classes, base) if base != name else ()
    yield from ((one, key, default, one.types[key]) for key, default in one.fields.items())


def _flags(name: str, default: ast.expr | None, kind: str) -> Iterator[str]:
    """The flags that Megatron-LM makes of a field: its own names where the field has them, two negations of what is on by default."""
    text = "" if default is None else ast.unparse(default)
    named = [
        item.value
        for node in (ast.walk(default) if default is not None else ())
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "arg_names" and isinstance(value, ast.List)
        for item in value.elts
        if isinstance(item, ast.Constant)
    ]
    plain = name.replace("_", "-")
    if named:
        yield from named
    elif kind == "bool" and (text == "True" or "default=True" in text):
        yield from (f"--no-{plain}", f"--disable-{plain}")
    else:
        yield f"--{plain}"


def bridge_keys(bridge: Clone, megatron: Clone, asked: Iterable[str]) -> dict[str, Place]:
    """Those of some keys of Megatron-Bridge's configuration that its classes, or Megatron-LM's that they are made from, have."""
    ours = list(bridge.classes())
    by_name = {one.name: one for one in [*megatron.classes(), *ours]}
    config = "src/megatron/bridge/training/config.py"
    core = {one.name: one for one in megatron.classes() if "/fsdp/src/" not in one.file}
    found: dict[str, Place] = {}
    for key in asked:
        section, _, field = key.partition(".")
        owners: list[Klass] = []
        if section in _SECTIONS:
            for name in _SECTIONS[section]:
                own = [one for one in ours if one.name == name and one.file.startswith("src/megatron/bridge/training/")]
                owners += own
                owners += [one for one, *_ in _fields(core, name)] + [core[name]] if name in core else []
                owners += [
                    core[base]
                    for one in own
                    for base in (part.removeprefix("MTrain").removeprefix("MCore") for part in one.bases)
                    if base in core
                ]
        elif section in _FOLDERS:
            if section == "model":
                owners += [owner for owner, *_ in _fields(core, "MLATransformerConfig")]
            owners += [one for one in ours if one.file.startswith((_FOLDERS[section], config))]
            owners += [one for one in by_name.values() if section == "dataset" and "datasets/" in one.file]
        if field == "_target_":
            found[key] = Place(owner="instantiate", file="src/megatron/bridge/training/utils/config_utils.py")
            continue
        first = next((one for one in owners if field.split(".")[0] in one.fields), None)
        if first is not None:
            found[key] = Place(owner=first.name, file=first.file)
        elif not field and section == "mixed_precision":
            found[key] = Place(owner="ConfigContainer", file=config)
    return found


def recipe_options(bridge: Clone) -> dict[str, Place]:
    """Options of the performance scripts."""
    file = "scripts/performance/argument_parser.py"
    calls = [node for node in ast.walk(bridge.trees[file]) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    names = [arg.value for call in calls if call.func.attr == "add_argument" for arg in call.args if isinstance(arg, ast.Constant)]
    return {name: Place(owner="parse_cli_args", file=file) for name in names if isinstance(name, str) and name.startswith("-")}


def titan_keys(titan: Clone, asked: Iterable[str]) -> dict[str, Place]:
    """Keys of torchtitan's configuration.

    The fields of the classes that stand for its sections, or its parser's options where it had no classes.
    """
    classes = [one for one in titan.classes() if "config" in one.file]
    options = {
        arg.value: file
        for file, tree in titan.trees.items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        for arg in call.args
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    }
    found: dict[str, Place] = {}
    for key in asked:
        *sections, field = key.split(".")
        words = "".join(sections[-2:]).replace("_", "")
        first = next(
            (one for one in classes if field in one.fields and one.name.lower().removesuffix("config").endswith(_ending(words))), None
        )
        if first is not None:
            found[key] = Place(owner=first.name, file=first.file)
        elif f"--{key}" in options:
            found[key] = Place(owner="add_argument", file=options[f"--{key}"])
    return found


def _ending(words: str) -> str:
    """How the class of a section's name ends: quantize.linear.float8 is Float8Linear."""
    return "float8linear" if words == "linearfloat8" else words


def asked_keys(book: Rulebook) -> dict[str, list[str]]:
    """Every key that settings are read from and fixes write, by framework, as the framework's sources spell it."""
    table = load_job_settings()
    asked: dict[str, dict[str, None]] = {name: {} for name in (*_VERSIONS, "recipe", *_PLAIN)}
    for spec in table.specs.values():
        for name in asked:
            for key in spec.keys_in(name):
                asked[name] |= dict.fromkeys(_spelled(key, table.formats[name].keys_are or ""))
    for fix in book.fixes.values():
        for change in fix.changes:
            if change.framework in asked:
                asked[change.framework][change.key] = None
    return {name: sorted(keys) for name, keys in asked.items()}


def _spelled(key: str, kind: str) -> list[str]:
    if kind == "flags":
        return [f"--{key.lstrip('!').split('=')[0]}"]
    if kind == "options":
        return [f"-{part}" for part in key.split("|")]
    return [key]


def rows(asked: Mapping[str, list[str]], found: Mapping[str, Sequence[tuple[str, Mapping[str, Place]]]]) -> Iterator[str]:
    """Lines of the table: the newest version that has a key, else why it is known."""
    for framework, keys in asked.items():
        for key in keys:
            held = next(((commit, places[key]) for commit, places in found.get(framework, ()) if key in places), None)
            if held is not None:
                yield f"{framework}\t{key}\t{held[1].owner}\t{held[1].file}\t{held[0][:10]}"
            else:
                own = framework == "megatron-bridge" and key.split(".")[0] in _OWN_SECTIONS
                yield f"{framework}\t{key}\t-\t{OWN if own else KNOWN.get((framework, key), MISSING)}\t-"


def main(megatron_at: str, bridge_at: str, titan_at: str, *others: str) -> None:
    """Writes the table, and says what was not found."""
    asked = asked_keys(load_rulebook())
    found: dict[str, list[tuple[str, Mapping[str, Place]]]] = {name: [] for name in asked}
    for version in ("HEAD", *_VERSIONS["megatron-lm"]):
        megatron = Clone(megatron_at, version, "megatron")
        found["megatron-lm"].append((megatron.commit, megatron_flags(megatron)))
    for version in ("HEAD", *_VERSIONS["megatron-bridge"]):
        core = Clone(megatron_at, "HEAD" if version == "HEAD" else _VERSIONS["megatron-lm"][0], "megatron")
        bridge = Clone(bridge_at, version, "src", "scripts/performance/argument_parser.py")
        found["megatron-bridge"].append((bridge.commit, bridge_keys(bridge, core, asked["megatron-bridge"])))
        found["recipe"].append((bridge.commit, recipe_options(bridge)))
    for version in ("HEAD", *_VERSIONS["torchtitan"]):
        titan = Clone(titan_at, version, "torchtitan")
        found["torchtitan"].append((titan.commit, titan_keys(titan, asked["torchtitan"])))
    paths = iter(others)
    for framework, clones in _PLAIN.items():
        for prefixes in clones:
            path = next(paths)
            clone = Wheel(path, *prefixes) if path.endswith(".whl") else Clone(path, "HEAD", *prefixes)
            found[framework].append((clone.commit, plain_keys(clone, asked[framework])))
    lines = list(rows(asked, found))
    TABLE.write_text(
        "\n".join(["# framework\tkey\tclass or function\tfile, or why the key is known\tversion", *lines]) + "\n", encoding="utf-8"
    )
    sys.stderr.writelines(f"{line}\n" for line in lines if MISSING in line)


if __name__ == "__main__":
    main(*sys.argv[1:])
