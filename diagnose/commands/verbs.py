"""The verbs by name: where each is, and the sentence by which help lists it; its module is imported when the verb is asked for."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import click

BISECT_STEP = "bisect-step"


class HelpLine(NamedTuple):
    """A verb as help lists it: its module in this package, its function there, and the first sentence of its own help."""

    module: str
    function: str
    says: str


VERBS: Mapping[str, HelpLine] = {
    "analyse": HelpLine("analyse", "analyse", "Analyse traces (the default command)."),
    "whatif": HelpLine("whatif", "whatif", "Say what a step would take after changes, replayed with what each operation waited for."),
    "compare": HelpLine(
        "compare", "compare", "Compare runs: may they be compared, what changed around the code, what moved, and is it more than noise."
    ),
    "gate": HelpLine("compare", "gate", "Compare runs and fail where the new ones are slower: `compare` for continuous integration."),
    "baseline": HelpLine("baseline", "baseline", "Store runs by name, for `gate --baseline NAME` and `compare --baseline NAME`."),
    "bisect": HelpLine(
        "bisect", "bisect", "Find the commit, artefact or trace with which a metric changed, in as few runs as its noise allows."
    ),
    BISECT_STEP: HelpLine("bisect_step", "bisect_step", "Say whether the checked-out commit is good or bad: for git bisect run."),
    "history": HelpLine("history", "history", "Show a metric over the runs of a job, and where it stepped."),
    "check": HelpLine("check", "check", "Check a job file without a trace: what would fail, hang or silently be off."),
    "capture": HelpLine(
        "capture",
        "capture",
        "Print how to capture a run: the nsys command, the settings of this job file, and the snippet for PyTorch's profiler.",
    ),
    "run": HelpLine("run", "run", "Run a training command under nsys, then diagnose the capture."),
    "patch": HelpLine("patch", "patch", "Change a job file as a diagnosis advises, and leave every other byte of it alone."),
    "render": HelpLine("render", "render", "Write a saved diagnosis, comparison or bisection (JSON) in another format."),
    "explain": HelpLine(
        "explain",
        "explain",
        "Explain a rule, fix, bucket, fact, job setting, platform, wall or ledger code; with a diagnosis, in its numbers.",
    ),
    "rules": HelpLine("explain", "list_rules", "List all rules and fixes."),
    "kernel": HelpLine("kernel", "kernel", "Say which bucket a kernel name belongs to, and why; - reads names from standard input."),
    "recipe-path": HelpLine("recipe_path", "recipe_path", "Print the folder for NSYS_RECIPE_PATH, so that `nsys recipe diagnose` works."),
}


class Commands(UserDict[str, click.Command]):
    """The commands of the verbs; the module of each is imported when it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.data = dict(VERBS)  # type: ignore[arg-type] # what is read of it is a command

    def __getitem__(self, verb: str) -> click.Command:
        listed = VERBS[verb]
        command: click.Command = getattr(import_module(f"diagnose.commands.{listed.module}"), listed.function)
        return command

    def __setitem__(self, verb: str, command: click.Command) -> None:
        raise TypeError(f"{verb}: a verb is a row of VERBS")

    def __delitem__(self, verb: str) -> None:
        raise TypeError(f"{verb}: a verb is a row of VERBS")
