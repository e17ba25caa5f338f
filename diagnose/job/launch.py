"""How many ranks a command starts, where its launcher or its scheduler is told it in numbers: torchrun, deepspeed, srun, mpirun, sbatch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from diagnose.job.model import UNRESOLVED
from diagnose.job.shell_values import Token

_TORCHRUN = re.compile(r"(.*/)?torchrun|torch\.distributed\.(run|launch)")
_DEEPSPEED = re.compile(r"(.*/)?deepspeed")
_TASKS = re.compile(r"(.*/)?srun")
_MPI = re.compile(r"(.*/)?mpi(run|exec)")
_SPAWNS = re.compile(r"(.*/)?(accelerate(-launch)?|ray|ft_launcher|pytorch|swift|megatron)")
_NUMBER = re.compile(r"\d{1,9}")
_FAKE = ("--fake-process-group", "--fake-init-process-group")


class Ranks(Struct, frozen=True, kw_only=True):
    """The ranks of a job: how that is called, the number or what of it is not known, and where it stands.

    `assumed`: the script has the number only for an environment that does not say it, as a scheduler would.
    """

    shown: str
    value: object
    at: Token
    assumed: bool = False


# --- Slurm ------------------------------------------------------------------------------------------------------------

_DIRECTIVE = re.compile(r"^[ \t]*#SBATCH[ \t]+([^#\n]*)", re.MULTILINE)
_OPTIONS: Mapping[str, str] = {
    "-N": "nodes", "--nodes": "nodes", "-n": "ntasks", "--ntasks": "ntasks", "--ntasks-per-node": "ntasks-per-node",
    "--gpus-per-node": "gpus-per-node", "--gres": "gpus-per-node",
}  # fmt: skip


def scheduled(text: str, first: int = 1) -> dict[str, Token]:
    """What #SBATCH lines of a script ask for, by the long names of the options; `first` is the line that the text starts on."""
    found: dict[str, Token] = {}
    for match in _DIRECTIVE.finditer(text):
        line = first + text.count("\n", 0, match.start())
        found |= asked([Token(text=word, line=line) for word in match[1].split()])
    return found


def asked(words: Sequence[Token]) -> dict[str, Token]:
    """What options of sbatch or srun ask for, where it is a number."""
    found: dict[str, Token] = {}
    for place, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        short = re.fullmatch(r"(-[Nn])(\d+)", word.text)
        name, value, equals = (short[1], short[2], "=") if short else (name, value, equals)
        if name not in _OPTIONS:
            continue
        given = dataclasses.replace(word, text=value, pieces=()) if equals else words[place + 1] if place + 1 < len(words) else word
        number = re.fullmatch(r"(?:gpu:)?(?:\w+:)?(\d{1,9})", given.text) if "g" in name else _NUMBER.fullmatch(given.text)
        found[_OPTIONS[name]] = dataclasses.replace(
            given, text=number[number.re.groups] if number else "", unresolved="" if number else given.text
        )
    return found


def variables(given: Mapping[str, Token]) -> Iterator[tuple[str, Token]]:
    """The variables that Slurm sets in a job for what was asked."""
    told = {name: one for name, one in given.items() if not one.unresolved}
    names = {
        "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
        "gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    }
    for name, each in names.items():
        yield from ((variable, told[name]) for variable in each if name in told)
    tasks = _tasks(given)
    if tasks is not None:
        yield from ((variable, tasks[0]) for variable in ("SLURM_NTASKS", "SLURM_NPROCS"))


def _tasks(given: Mapping[str, Token]) -> tuple[Token, str] | None:
    """The number of tasks, and by which options."""
    if any(one.unresolved for name, one in given.items() if name != "gpus-per-node"):
        return None
    if "ntasks" in given:
        return given["ntasks"], "--ntasks"
    if "nodes" in given and "ntasks-per-node" in given:
        number = int(given["nodes"].text) * int(given["ntasks-per-node"].text)
        return dataclasses.replace(given["ntasks-per-node"], text=str(number)), "--nodes × --ntasks-per-node"
    return None


# --- launchers --------------------------------------------------------------------------------------------------------


def ranks(tokens: Sequence[Token], arguments: Sequence[Token], environment: Mapping[str, Token], outer: Sequence[Token]) -> Ranks | None:
    """The ranks that the words before a program start; `outer` are those of commands around. None where nothing tells.

    With a fake process group one process stands for the world of WORLD_SIZE, so that the launcher's count tells nothing.
    """
    if any(token.text in _FAKE for token in arguments):
        before = [dataclasses.replace(token, text=token.text.partition("=")[2]) for token in tokens if token.text.startswith("WORLD_SIZE=")]
        told = next(iter(before), environment.get("WORLD_SIZE"))
        known = told is not None and not told.unresolved and _NUMBER.fullmatch(told.text)
        return Ranks(shown="WORLD_SIZE", value=int(told.text), at=told) if told is not None and known else None
    for place, token in enumerate(tokens):
        if _TORCHRUN.fullmatch(token.text):
            return _product(tokens, place, {"nnodes": "1", "nproc_per_node": "1"}, "torchrun --nnodes × --nproc-per-node")
        if _DEEPSPEED.fullmatch(token.text):
            return _of_deepspeed(tokens, place)
    if any(_SPAWNS.fullmatch(token.text) for token in tokens):
        return None
    for place, token in enumerate(outer):  # torchrun --no-python bash worker.sh
        if _TORCHRUN.fullmatch(token.text):
            return _product(outer, place, {"nnodes": "1", "nproc_per_node": "1"}, "torchrun --nnodes × --nproc-per-node")
    return _of_tasks([*outer, *tokens], environment)


def _of_deepspeed(tokens: Sequence[Token], place: int) -> Ranks | None:
    """Deepspeed counts GPUs and nodes by itself where it is not told both; on one node its hostfile may be more."""
    names = {token.text.partition("=")[0] for token in tokens[place + 1 :]}
    if {"--include", "-i", "--exclude", "-e"} & names:
        return _included(tokens[place + 1 :])
    if not {"--num_gpus", "--num_nodes"} <= names:
        return None
    return _product(tokens, place, {"num_nodes": "1", "num_gpus": "1"}, "deepspeed --num_nodes × --num_gpus")


def _included(words: Sequence[Token]) -> Ranks | None:
    """The devices that `--include NAME:SLOT,SLOT@NAME:SLOT` lists; a node without a list has as many as it has (runner.py)."""
    for number, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if name not in ("--include", "-i"):
            continue
        following = words[number + 1] if number + 1 < len(words) else word
        given = dataclasses.replace(word, text=value) if equals else following
        slots = [node.partition(":")[2].split(",") for node in given.text.split("@")]
        if given.unresolved or not all(_NUMBER.fullmatch(slot) for node in slots for slot in node):
            return None
        return Ranks(shown="deepspeed --include", value=sum(len(set(node)) for node in slots), at=given)
    return None


def _product(tokens: Sequence[Token], start: int, defaults: Mapping[str, str], shown: str) -> Ranks:
    own = {name: Token(text=value, line=tokens[start].line) for name, value in defaults.items()}
    given = dict(own)
    rest = tokens[start + 1 :]
    hidden = ""
    for number, token in enumerate(rest):
        name, equals, inline = token.text.partition("=")
        key = name.lstrip("-").replace("-", "_")
        if name.startswith("--") and key in given:
            following = rest[number + 1] if number + 1 < len(rest) else Token(text="", line=token.line)
            given[key] = dataclasses.replace(token, text=inline) if equals else following
        elif token.unresolved and not (number and rest[number - 1].text.startswith("-") and "=" not in rest[number - 1].text):
            hidden = hidden or ("" if name.startswith("-") else token.unresolved)
    unknown = next((one.unresolved or one.text for one in given.values() if one.unresolved or not _NUMBER.fullmatch(one.text)), None)
    value: object = f"{UNRESOLVED} ({unknown or hidden})"
    if unknown is None and not hidden:
        first, second = given.values()
        value = int(first.text) * int(second.text)
    # torchrun takes what it is not told from PET_NPROC_PER_NODE (torch/distributed/argparse_util.py), as operators of Kubernetes set it
    untold = "nproc_per_node" in own and given["nproc_per_node"] is own["nproc_per_node"]
    assumed = untold or any(piece.fallback for one in given.values() for piece in one.pieces)
    return Ranks(shown=shown, value=value, at=tokens[start], assumed=assumed)


def _of_tasks(tokens: Sequence[Token], environment: Mapping[str, Token]) -> Ranks | None:
    """The tasks of srun, each a rank, as its own options or the job's say; one task to a node may start more by itself."""
    for place, token in enumerate(tokens):
        if _MPI.fullmatch(token.text):
            count = next(
                (tokens[at + 1] for at in range(place + 1, len(tokens) - 1) if tokens[at].text in ("-n", "-np", "--np", "-c")), None
            )
            known = count is not None and not count.unresolved and _NUMBER.fullmatch(count.text)
            return Ranks(shown=f"{token.text} -np", value=int(count.text), at=count) if count is not None and known else None
        if not _TASKS.fullmatch(token.text):
            continue
        own = asked(tokens[place + 1 :])
        job = {name: environment[f"#SBATCH {name}"] for name in ("nodes", "ntasks", "ntasks-per-node") if f"#SBATCH {name}" in environment}
        if "ntasks-per-node" in own or "nodes" in own:
            job.pop("ntasks", None)
        given = {**job, **own}
        tasks = _tasks(given)
        if tasks is None or ("nodes" in given and int(tasks[0].text) <= int(given["nodes"].text)) or int(tasks[0].text) < 2:
            return None
        return Ranks(shown=f"{'srun' if own else '#SBATCH'} {tasks[1]}", value=int(tasks[0].text), at=tasks[0])
    return None
