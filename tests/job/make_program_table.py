"""Makes `programs.tsv`: where a program that hands settings to Megatron-Bridge has each of its own keys for them.

    python -m tests.job.make_program_table FOLDER

FOLDER holds clones named owner+name, as `fetch` of fixtures/job_corpus.py names them. The keys are those of `calls` in
trace_rules/job_formats.yaml; a key is looked for as a field or an argument of that name in the program's configuration classes and YAML,
then in Megatron-Core's, of whose configuration the rest is made up.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from diagnose.knowledge.settings import Calls, load_job_settings

TABLE = Path(__file__).parent / "programs.tsv"
_CORE = (
    "NVIDIA+Megatron-LM",
    (
        "megatron/core/transformer/transformer_config.py",
        "megatron/core/model_parallel_config.py",
        "megatron/core/optimizer/optimizer_config.py",
        "megatron/core/distributed/distributed_data_parallel_config.py",
    ),
)
_SOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "actor_rollout_ref.": (
        "verl-project+verl",
        ("verl/workers/config/engine.py", "verl/workers/config/actor.py", "verl/workers/config/optimizer.py"),
    ),
    "engine.": (
        "verl-project+verl",
        ("verl/trainer/config/sft_trainer_engine.yaml", "verl/workers/config/engine.py", "verl/workers/config/optimizer.py"),
    ),
    "policy.megatron_cfg.": ("NVIDIA-NeMo+RL", ("nemo_rl/models/policy/__init__.py",)),
    "trainer.policy.": ("NovaSky-AI+SkyRL", ("skyrl/train/config/config.py",)),
    "megatron_config.": ("NovaSky-AI+SkyRL", ("skyrl/train/config/config.py", "skyrl/train/config/sft_config.py")),
    "actor_train.": (
        "alibaba+ROLL",
        ("mcore_adapter/src/mcore_adapter/training_args.py", "roll/configs/training_args.py", "roll/configs/worker_config.py"),
    ),
    "actor.": ("inclusionAI+AReaL", ("areal/api/cli_args.py",)),
}


_OWN_FORMATS: dict[
    str, dict[str, tuple[str, tuple[str, ...]]]
] = {  # formats of one program's keys: what the keys start with, and the sources
    "rl-fsdp": {
        "actor_train.": (
            "alibaba+ROLL",
            ("roll/configs/training_args.py", "roll/configs/model_args.py", "roll/distributed/strategy/fsdp2_strategy.py"),
        ),
        "actor.": ("inclusionAI+AReaL", ("areal/api/cli_args.py",)),
        "": ("NovaSky-AI+SkyRL", ("skyrl/train/config/config.py", "skyrl/train/config/sft_config.py")),
    },
    "xtuner": {
        "model_cfg.": ("InternLM+xtuner", ("xtuner/v1/model/base.py", "xtuner/v1/model/moe/moe.py", "xtuner/v1/module/attention/mha.py")),
        "": ("InternLM+xtuner", ("xtuner/v1/config/fsdp.py", "xtuner/v1/train/trainer.py", "xtuner/v1/datasets/config.py")),
    },
}


def dotted() -> Iterator[tuple[str, str]]:
    """The keys of the formats of `_OWN_FORMATS`, each with its format."""
    table = load_job_settings()
    return ((name, key) for name in _OWN_FORMATS for spec in table.specs.values() for key in spec.keys_in(name))


def programs() -> Iterator[Calls]:
    """The programs whose own keys are known, but for NeMo 1, whose calls name its sources one by one."""
    return (one for record in load_job_settings().formats.values() for one in record.calls if one.of)


def own_keys(one: Calls) -> Iterator[str]:
    """A program's keys and the groups that take what else is in a section, without what Hydra wants before a new one."""
    named = [*one.keys.values(), *(f"{group}.{key.rpartition('.')[2]}" for group, keys in one.own.items() for key in keys)]
    return (key.removeprefix("++") for key in dict.fromkeys([*named, *one.sections.values()]))


def _fields(text: str, file: str) -> Iterator[tuple[str, str]]:
    if file.endswith(".yaml"):
        yield from ((line.partition(":")[0].strip(), "-") for line in text.splitlines() if ":" in line and not line.strip().startswith("#"))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield from (
                (one.target.id, node.name) for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            )


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


def _place(folder: Path, name: str, sources: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, str, str]:
    """Class, file and version of the first field of a name."""
    for repository, files in sources:
        clone = next(iter((folder / repository).glob("**/HEAD"))).parent
        texts = {file: _git(clone, "show", f"HEAD:{file}") for file in files}
        places = [(owner, file) for file, text in texts.items() for field, owner in _fields(text, file) if field == name]
        places += [("-", file) for file, text in texts.items() if f'"{name}"' in text]  # a key that is looked up by its name
        places.sort(key=lambda place: "Megatron" not in place[0] and "Mcore" not in place[0])  # a class of another engine may have it too
        if places:
            return *places[0], _git(clone, "rev-parse", "HEAD")[:10]
    return "-", "MISSING", "-"


def main(folder: Path) -> None:
    """Write the table."""
    rows = ["# begins, or the format	key	class	file	version"]
    for one in programs():
        rows += ["\t".join((one.of, key, *_place(folder, key.rpartition(".")[2], (_SOURCES[one.of], _CORE)))) for key in own_keys(one)]
    for name, key in dotted():
        source = next(place for begins, place in _OWN_FORMATS[name].items() if key.startswith(begins))
        rows.append("\t".join((name, key, *_place(folder, key.rpartition(".")[2], (source,)))))
    TABLE.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
