"""Configurations of torchtitan: TOML, what it saves and prints (JSON), functions of a config registry, and commands with overrides.

Since 2026 a configuration is a Python function (`--module deepseek_v3 --config deepseek_v3_16b`, torchtitan/config/manager.py); its literal
values are read where the registry lies beside the job file. What is built by other functions, such as the model's layers, is not known.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from diagnose.job.command_line import Command, by_flag, parsed_command
from diagnose.job.formats.reader import Reader
from diagnose.job.formats.torchtitan_saved import saved, saved_leaves, saved_notes
from diagnose.job.model import UNRESOLVED, Leaf, Parsed, job_error
from diagnose.job.python_source import chosen_function, configured, source_of
from diagnose.job.shell import Token
from diagnose.job.text import JobText, leaves_of, token_value

NAME = "torchtitan"
_SECTIONS = frozenset({
    "parallelism", "training", "model_spec", "hf_assets_path", "dump_folder", "override", "fault_tolerance", "ft", "mx",
    "memory_estimation", "activation_checkpoint", "compile", "job", "model", "optimizer", "experimental", "float8", "quantize", "comm",
    "debug", "checkpoint", "metrics", "profiling", "profiler", "lr_scheduler", "dataloader", "validator", "validation", "tokenizer",
    "loss",
})  # fmt: skip
_OWN = re.compile(r"--(training|parallelism|job|activation[_-]checkpoint|experimental)\.")
_PROGRAM = re.compile(r"(.*[/.])?(torchtitan[./].*|run_train\.sh|run_llama_train\.sh)|torchtitan\..*")
_POLICIES: Mapping[str, str] = {
    "SelectiveAC": "selective",
    "FullAC": "full",
    "MemoryBudgetAC": "memory_budget",
}  # distributed/activation_checkpoint.py


_TABLES = re.compile(r"(job|model|experimental)\..*|training\.(seq_len|compile)|activation_checkpoint\.mode")


def _read(text: JobText) -> Parsed | None:
    found = _taken(text)
    if found is None:
        return None
    tables = text.toml is not None or any(_TABLES.fullmatch(leaf.shown.lstrip("-")) for leaf in found.leaves)
    form = Leaf(key="policy_classes", shown="tables of keys, as in TOML" if tables else "a function, in Python", value=not tables)
    return replace(found, leaves=tuple(_settled(found.leaves)), implied=(form,))


def _taken(text: JobText) -> Parsed | None:
    """A text with its values as they stand there."""
    if text.toml is not None:
        leaves = tuple(leaves_of(text.toml.data, text.toml.lines))
        if not leaves:
            next_step = "Give torchtitan's configuration, with tables such as [training] and [parallelism]."
            raise job_error(text.source, "holds no settings", next_step)
        return Parsed(format=NAME, leaves=leaves)
    if text.syntax in ("yaml", "printed"):
        tree = saved(text)
        return None if tree is None else Parsed(format=NAME, leaves=tuple(saved_leaves(tree)), rules=tree.rules, notes=saved_notes(tree))
    if text.python is not None:
        return _registry(text)
    return None if text.command is None else _of_command(text.command, text)


# --- registries -------------------------------------------------------------------------------------------------------


def _registry(text: JobText) -> Parsed | None:
    """A function of a config registry."""
    source = source_of(text)
    if (
        source is None
        or "torchtitan" not in text.text
        or not re.search(r"Trainer\.Config|ParallelismConfig|to_graph_trainer_config", text.text)
    ):
        return None
    if not source.configurations:
        return None
    name = chosen_function(text, source.configurations)
    return _from_registry(text, name)


def _from_registry(text: JobText, name: str) -> Parsed | None:
    """What the function `name` of a registry sets; None where the file has no such function."""
    source = source_of(text)
    if source is None or name not in source.functions:
        return None
    found = configured(source, name)
    notes = [f"{name} is Python: its literal values are read; what it leaves to {other}() is not known" for other in found.others]
    notes += [f"{name} is Python: what {change}() changes in it is not known" for change in found.changes]
    return Parsed(format=NAME, leaves=found.leaves, notes=tuple(notes), open_ended=bool(found.others or found.changes))


# --- commands ---------------------------------------------------------------------------------------------------------


def _of_command(command: Command, text: JobText) -> Parsed | None:
    if not (_PROGRAM.fullmatch(command.program) or any(_OWN.match(token.text) for token in command.arguments)):
        return None
    named, leaves, notes = _arguments(command.arguments)
    named = {**_around(command), **named}
    base, more = _base(named, text)
    world = _of_run_train(command) if command.program.endswith("run_train.sh") else []
    below = () if base is None else base.leaves
    over = {leaf.key for leaf in leaves}
    policy = any(leaf.key == "activation_checkpoint.mode" for leaf in leaves)
    below = tuple(leaf for leaf in below if leaf.key not in over and not (policy and leaf.key.startswith("activation_checkpoint")))
    parsed = parsed_command(
        command,
        text.source,
        format_=NAME,
        leaves=[*world, *below, *leaves],
        notes=[*notes, *(() if base is None else base.notes)],
        more=more,
        open_ended=True,
    )
    hidden = bool(notes) or (command.part and not command.program.endswith("run_train.sh"))
    return replace(parsed, open_ended=base is None or base.open_ended or hidden)


def _arguments(tokens: Sequence[Token]) -> tuple[dict[str, Token], list[Leaf], list[str]]:
    """What names the configuration (`--module`, `--config`, `--job.config_file`), the overrides, and what may hold more of them."""
    named: dict[str, Token] = {}
    found: dict[str, Leaf] = {}
    notes: list[str] = []
    for token in tokens:  # tyro's subcommands: activation-checkpoint:full
        policy = re.fullmatch(r"activation[-_]checkpoint:([\w-]+)", token.text)
        if policy:
            key = "activation_checkpoint.mode"
            found[key] = Leaf(key=key, shown=token.text, value=policy[1].replace("-", "_"), line=token.line, place=f"line {token.line}")
    for option, values in by_flag(tokens, lambda token: token.text.startswith("--")):
        if option is None:
            unknown = [one for one in values if one.unresolved and (one.several or found or named)]  # behind an override with its value
            notes += [f"line {one.line}: {one.unresolved} may hold more overrides" for one in unknown]
            continue
        name, equals, inline = option.text.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        key, off = re.subn(r"(^|\.)no_(?=\w+$)", r"\1", key)  # --compile.no-enable
        word = dataclasses.replace(option, text=inline) if equals else values[0] if values else None
        notes += [f"line {one.line}: {one.unresolved} may hold more overrides" for one in values[1:] if one.unresolved]
        if key in ("module", "config", "job.config_file", "config_file", "model.name") and word is not None:
            named[key] = word
        if key in ("module", "config", "job.config_file", "config_file"):
            continue
        value = not off if word is None or off else token_value(word)
        found[key] = Leaf(key=key, shown=name, value=value, line=option.line, place=f"line {option.line}").moved(option.source)
    return named, list(found.values()), notes


def _around(command: Command) -> dict[str, Token]:
    """What run_train.sh takes from variables, where it is not beside the script itself."""
    if not command.program.endswith("run_train.sh"):
        return {}
    names = {"MODULE": "module", "CONFIG": "config", "CONFIG_FILE": "job.config_file"}
    return {key: command.variables[name] for name, key in names.items() if name in command.variables}


def _of_run_train(command: Command) -> list[Leaf]:
    """run_train.sh starts as many processes on one node as NGPU says; its own default is 8."""
    told = command.variables.get("NGPU")
    if told is None or any(leaf.key == "world_size" for leaf in command.around) or not re.fullmatch(r"\d{1,6}", told.text):
        return []
    return [Leaf(key="world_size", shown="NGPU", value=int(told.text), line=told.line, place=f"line {told.line}")]


def _base(named: Mapping[str, Token], text: JobText) -> tuple[Parsed | None, list[str]]:
    """The configuration that overrides lie on, where it is at hand, and a note where it is not."""
    file = named.get("job.config_file") or named.get("config_file")
    if file is not None:
        shown = file.unresolved or file.text
        inner = None if file.unresolved else text.beside(file.text)
        parsed = None if inner is None else _taken(inner)
        if inner is None or parsed is None:
            return None, [f"{shown} is not beside the script: what it sets, and what this command leaves out, is not known"]
        return replace(parsed, leaves=tuple(leaf.moved(inner.source) for leaf in parsed.leaves)), []
    module, config = named.get("module"), named.get("config")
    if module is None or config is None or module.unresolved or config.unresolved:
        return None, ["the configuration that the overrides lie on decides what they leave out; debug.save_config_file writes all of it"]
    for file_name in _registries(module.text):
        inner = text.beside(file_name)
        parsed = None if inner is None else _from_registry(inner, config.text)
        if inner is not None and parsed is not None:
            shown = file_name.removeprefix("./")
            return replace(parsed, leaves=tuple(leaf.moved(shown) for leaf in parsed.leaves)), []
    note = (
        f"the function {config.text} of torchtitan's {module.text} registry decides what this command leaves out; it is not beside the script "
        "(debug.save_config_file writes the whole configuration)"
    )
    return None, [note]


def _registries(module: str) -> Iterator[str]:
    """Where the registry of a module lies, as torchtitan looks for it."""
    if "." in module:
        path = module.replace(".", "/")
        yield from (f"{path}/config_registry.py", f"{path}.py")
        return
    for folder in ("models", "experiments", "experiments/rl/examples"):
        yield f"torchtitan/{folder}/{module}/config_registry.py"


# --- values -----------------------------------------------------------------------------------------------------------


def _settled(leaves: Iterable[Leaf]) -> Iterator[Leaf]:
    """The values as the settings count them: -1, where torchtitan works a size out by itself, tells nothing.

    Token budgets are sequences.
    """
    held = {leaf.key: leaf for leaf in leaves}
    for leaf in held.values():
        key, value = leaf.key, leaf.value
        if key == "model_spec.0":
            yield replace(leaf, key="model_spec.flavor")
        elif key == "activation_checkpoint":
            yield replace(leaf, key="activation_checkpoint.mode", value="none" if value is None else value)
        elif key == "activation_checkpoint._target_":
            policy = _POLICIES.get(str(value).removesuffix(".Config").rpartition(".")[2])
            yield replace(leaf, key="activation_checkpoint.mode", value=policy or f"{UNRESOLVED} = {value}", known=policy is not None)
        elif key in ("parallelism.pipeline_parallel_microbatch_size", "training.local_batch_size") and (
            _pipelined(held) is ("local" in key)
        ):
            yield replace(leaf, value=None, known=True)  # the batch of a rank is cut into micro-batches for the stages, else it is one
        else:
            known = leaf.known or key.partition(".")[0] in _SECTIONS
            yield replace(leaf, value=None if value == -1 else value, known=known)
    if _pipelined(held) and "parallelism.pipeline_parallel_microbatch_size" not in held and "training.local_batch_size" in held:
        stages = held["parallelism.pipeline_parallel_degree"]  # the batch of a rank is cut; 1 is torchtitan's default
        yield replace(
            stages, key="parallelism.pipeline_parallel_microbatch_size", shown="parallelism.pipeline_parallel_microbatch_size", value=1
        )
    yield from _accumulated(held)
    length = held.get("training.max_context_length")
    for key, name in (
        ("micro_batch_size", "training.num_tokens_per_microbatch_per_dp_rank"),
        ("global_batch_size", "training.num_tokens_per_train_step"),
    ):
        tokens = held.get(name)
        if (
            tokens is not None
            and length is not None
            and isinstance(tokens.value, int)
            and isinstance(length.value, int)
            and length.value > 0
        ):
            count, rest = divmod(tokens.value, length.value)
            if count > 0 and not rest:
                yield replace(tokens, key=key, shown=f"{name} / training.max_context_length", value=count)


def _accumulated(held: Mapping[str, Leaf]) -> Iterator[Leaf]:
    """How many micro-batches a rank works off in a step where torchtitan adds up no more than its pipeline needs (trainer.py)."""
    whole, cut = held.get("training.num_tokens_per_train_step"), held.get("parallelism.num_pp_microbatches")
    if whole is not None and cut is not None and whole.value == -1:
        yield replace(cut, key="gradient_accumulation_steps", value=cut.value if _pipelined(held) else 1)


def _pipelined(held: Mapping[str, Leaf]) -> bool:
    stages = held.get("parallelism.pipeline_parallel_degree")
    return stages is not None and isinstance(stages.value, int) and stages.value > 1


READER = Reader(name=NAME, read=_read)
