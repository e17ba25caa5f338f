"""The manual page and shell completion: made from the commands, complete, and understood by the programs that read them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete, FishComplete, ZshComplete
from click.testing import CliRunner

from diagnose.cli import cli
from diagnose.commands.options import PANELS, USUAL
from pages.manual import manual
from tests.builders.cases import for_each

ROOT = Path(__file__).parents[2]


def options(group: click.Group) -> Iterator[str]:
    for verb in group.commands.values():
        if not verb.hidden:
            yield from (name for param in verb.params if isinstance(param, click.Option) for name in param.opts)
            yield from options(verb) if isinstance(verb, click.Group) else ()


def test_the_manual_holds_every_verb_and_option() -> None:
    page = manual(cli)
    plain = page.replace("\\-", "-")
    assert [
        name for name, verb in cli.commands.items() if name != "analyse" and not verb.hidden and f'.SS "diagnose {name} ' not in plain
    ] == []
    assert [name for name in options(cli) if name not in plain] == []
    assert page == manual(cli)
    assert [line for line in page.splitlines() if line.startswith("'")] == []


@for_each("verb", "", "bisect", "compare", "gate", "history", "run", "bisect-step")
def test_help_lists_many_options_under_headings_with_the_usual_ones_first(verb: str) -> None:
    """A short path through many options: at most a dozen stand under the first heading, and none is lost."""
    command = cli.commands[verb or "analyse"]
    shown = CliRunner().invoke(cli, [*verb.split(), "--help"], terminal_width=100).output
    panels = [line.removesuffix(":") for line in shown.splitlines() if line.removesuffix(":") in PANELS and line.endswith(":")]
    assert panels[0] == USUAL
    assert panels == [panel for panel in PANELS if panel in panels]
    first = shown.split(f"{USUAL}:\n")[1].split("\n\n")[0]
    assert 0 < len([line for line in first.splitlines() if line.startswith("  -")]) <= 12
    assert [one.opts[-1] for one in command.params if isinstance(one, click.Option) and one.opts[-1] not in shown] == []


def test_the_manual_does_not_depend_on_who_asked_for_help_before() -> None:
    """click keeps the option of help as the first who asked saw it: here a verb that was called without its group."""
    verb = click.Command("verb", params=[click.Option(["--deep"], help="Look deeper.")])
    verb.get_help(click.Context(verb))
    analyse = click.Command("analyse")
    group = click.Group("diagnose", commands=[analyse, verb], help="Tells.", context_settings={"help_option_names": ["-h", "--help"]})
    assert manual(group).count("\\fB\\-h, \\-\\-help\\fR") == 2


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not on this machine")
def test_groff_reads_the_manual_without_a_warning() -> None:
    made = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z"], input=manual(cli), capture_output=True, text=True, check=True)
    assert made.stderr == ""


@for_each("shell", BashComplete, ZshComplete, FishComplete)
def test_completion_scripts_are_made_and_complete(shell: type[BashComplete], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BashComplete, "_check_version", staticmethod(lambda: None))
    asked = shell(cli, {}, "diagnose", "_DIAGNOSE_COMPLETE")
    assert "_DIAGNOSE_COMPLETE" in asked.source()
    assert {item.value for item in asked.get_completions([], "comp")} >= {"compare"}
    assert {item.type for item in asked.get_completions([], "run.sq")} >= {"file"}
    assert {item.value for item in asked.get_completions([], "--con")} >= {"--config"}
    assert {item.value for item in asked.get_completions(["run.sqlite"], "--fail")} == {"--fail-on"}
    assert {item.value for item in asked.get_completions(["run.sqlite", "--fail-on"], "")} == {"low", "medium", "high"}


@pytest.mark.deep
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_prints_a_script_that_the_shell_reads(shell: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "diagnose"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "_DIAGNOSE_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "diagnose" in made.stdout
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=made.stdout, text=True, check=True)
    assert f"_DIAGNOSE_COMPLETE={shell}_source" in (ROOT / "docs" / "output.md").read_text(encoding="utf-8")
