"""Command lines of Megatron-Bridge: recipes by name, options of the performance scripts, overrides behind them.

A recipe decides the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from diagnose.job.command_line import Command, by_flag, flag_leaf, parsed_command
from diagnose.job.edit import map_editor
from diagnose.job.formats.reader import Reader
from diagnose.job.model import UNRESOLVED, Leaf, Parsed
from diagnose.job.python_source import chosen_function, configured, source_of
from diagnose.job.shell import Token
from diagnose.job.text import JobText, is_override, is_override_line, leaves_of, override_word
from diagnose.knowledge.settings import JobSettings, SettingSpec

NAME = "recipe"
_RECIPE_FLAGS = frozenset({"-mr", "--model_recipe_name", "--recipe", "--recipe_name"})
# Where a recipe by name is looked for, as scripts/training/recipe_runner.py of Megatron-Bridge does: benchmarks first.
_PACKAGES = tuple(f"{top}megatron/bridge/{kind}" for kind in ("perf_recipes", "recipes") for top in ("src/", ""))
_SWITCHES = frozenset({"-d", "--dryrun", "-en", "--enable_nsys", "--use_recipes", "--offline", "--deterministic", "--dump_env"})
_NUMBER = re.compile(r"-\d[\d.eE+-]*")


def is_recipe(command: Command, table: JobSettings) -> bool:
    """Whether a command starts one of the performance scripts, or a recipe with overrides behind it.

    Sections such as `model.` are anyone's; a setting's key in one is Megatron-Bridge's.
    """
    script = command.is_script and any("scripts/performance/" in token.text for token in command.words)
    named = any(token.text.partition("=")[0] in _RECIPE_FLAGS for token in command.words)
    keys = _keys_of(table.specs.values(), table)
    given = (token.text.lstrip("~+").partition("=")[0] for token in command.arguments if is_override(token.text))
    return script or named or any(key in keys and "." in key for key in given)


def _read(text: JobText) -> Parsed | None:
    if text.python is not None:
        return _of_function(text)
    command = text.command
    if command is None or not is_recipe(command, text.table):
        return None
    leaves, notes = _options(command.arguments, text)
    below, said = _overrides_in_file(leaves, text)
    leaves = _over(leaves, below, text.table)
    base = _by_name(leaves, text)
    if base is not None:
        leaves = _over(leaves, base.leaves, text.table)
        said += base.notes
    more = _of_recipe(leaves, read=base is not None)
    return parsed_command(command, text.source, format_=NAME, leaves=leaves, notes=[*notes, *said], more=more, open_ended=True)


def _over(leaves: Sequence[Leaf], below: Sequence[Leaf], table: JobSettings) -> list[Leaf]:
    """Leaves, and those of the configuration that they lie on whose settings they leave alone."""
    told = {leaf.key for leaf in leaves}
    for spec in table.specs.values():
        keys = _keys_of([spec], table)
        options = {f"-{word}" for key in spec.keys_in(NAME) for word in key.split("|")}
        told |= keys if told & (keys | options) else set()
    return [*(leaf for leaf in below if leaf.key not in told), *leaves]


def _by_name(leaves: Sequence[Leaf], text: JobText) -> Parsed | None:
    """The recipe that a command names, where Megatron-Bridge's recipes lie beside the script."""
    name = _recipe(leaves)
    inner = text.defining(name, _PACKAGES) if name is not None and name.isidentifier() else None
    parsed = None if inner is None or name is None else _of_function(replace(inner, choice=name))
    if inner is None or parsed is None:
        return None
    leaves = [leaf.moved(inner.source) for leaf in parsed.leaves]
    if any(leaf.key == "dataset.seq_length" for leaf in leaves):  # recipe_runner.py, sync_model_dataset_sequence_length
        leaves = [leaf for leaf in leaves if leaf.key != "model.seq_length"]
    return replace(parsed, leaves=tuple(leaves))


def _recipe(leaves: Sequence[Leaf]) -> str | None:
    """The name of the recipe, where the command line tells it."""
    found = next((leaf.value for leaf in leaves if leaf.key in _RECIPE_FLAGS), None)
    return found if isinstance(found, str) and not found.startswith(UNRESOLVED) else None


def _overrides_in_file(leaves: Sequence[Leaf], text: JobText) -> tuple[list[Leaf], list[str]]:
    """What the file of overrides says that a script of Megatron-Bridge is given (`--config-file conf/x.yaml`)."""
    for leaf in leaves:
        if leaf.key.replace("-", "_") in ("__config_file", "config_file") and isinstance(leaf.value, str):
            inner = None if leaf.value.startswith(UNRESOLVED) else text.beside(leaf.value)
            if inner is None or inner.yaml is None:
                return [], [f"{leaf.value.removeprefix(UNRESOLVED).lstrip(' =')} is not beside {text.source}: what it sets is not known"]
            return [one.moved(inner.source) for one in leaves_of(inner.yaml.data, inner.yaml.lines)], []
    return [], []


def _of_function(text: JobText) -> Parsed | None:
    """A recipe as its Python function: `cfg.model.tensor_model_parallel_size = 4` and the like."""
    source = source_of(text)
    if source is None or not re.search(r"ConfigContainer|megatron\.bridge", text.text) or not source.configurations:
        return None
    name = chosen_function(text, source.configurations)
    found = configured(source, name)
    leaves = [
        replace(
            leaf,
            key="model_name" if leaf.key == "model.0" else leaf.key,
            known=leaf.known or leaf.key.endswith((".0", ".revision", ".load_weights")),
        )
        for leaf in found.leaves
        if not (leaf.key == "model._target_" and leaf.value in ("to_megatron_provider", "provider"))
    ]
    notes = [f"{name} is Python: its literal values are read; what it leaves to {one}() is not known" for one in found.others]
    notes += [f"{name} is Python: what {one}() changes in it is not known" for one in found.changes]
    return Parsed(format=NAME, leaves=tuple(leaves), notes=tuple(notes))


def _of_recipe(leaves: Sequence[Leaf], *, read: bool) -> list[str]:
    """What has to be said of every such command line; `read`: the recipe's function is at hand."""
    name = _recipe(leaves)
    named = "the recipe" if name is None else f"the recipe {name}"
    left = "what its function does not tell in literal values" if read else "what this command line leaves out"
    notes = [f"{named} decides {left}; the configuration that it saves (--save_config_filepath) tells all"]
    if any(leaf.key == "--moe_a2a_overlap" and str(leaf.value).lower() in ("true", "1", "t", "yes", "y") for leaf in leaves):
        # Megatron-Bridge scripts/performance/utils/overrides.py, _set_moe_a2a_overlap_overrides
        notes.append(
            "--moe_a2a_overlap turns on the overlap of the EP all-to-all and delayed weight gradients together, and shared-expert "
            "overlap off; set comm_overlap.overlap_moe_expert_parallel_comm alone to see what each does"
        )
    return notes


def _options(tokens: Sequence[Token], text: JobText) -> tuple[list[Leaf], list[str]]:
    """Options of the performance scripts with the overrides that stand behind them, and what has to be said of them."""
    sections = _keys_of((spec for spec in text.table.specs.values() if spec.presets), text.table)  # mixed_precision=bf16_mixed
    overrides = [token for token in tokens if _overrides(token.text, sections)]
    found: dict[str, Leaf] = {}
    notes: list[str] = []
    rest = [token for token in tokens if not _overrides(token.text, sections)]
    for option, values in by_flag(rest, lambda token: token.text.startswith("-") and not _NUMBER.fullmatch(token.text)):
        if option is None:
            notes += [f"line {value.line}: {value.unresolved} may hold more options" for value in values if value.unresolved]
            continue
        name = option.text.split("=")[0]
        leaf = flag_leaf(option, [] if name in _SWITCHES else values)
        if name in ("-E", "--env", "-ce", "--custom_env_vars"):
            for pair in str(leaf.value).split(","):
                key, _, value = pair.partition("=")
                found[f"env_vars.{key}"] = Leaf(key=f"env_vars.{key}", shown=f"{name} {key}", value=value, place=leaf.place, line=leaf.line)
            continue
        key = _long_name(name, text.table)
        if key in found:
            notes.append(f"{name} is given twice; line {option.line} counts")
        found[key] = Leaf(key=key, shown=name, value=leaf.value, place=leaf.place, line=leaf.line)
    return [*found.values(), *(override_word(token, text.source) for token in overrides)], notes


def _overrides(text: str, sections: Collection[str]) -> bool:
    """Whether a word is an override: of a dotted key, or of a whole section that stands for settings."""
    return is_override(text) or (is_override_line(text) and text.lstrip("~+").partition("=")[0] in sections)


def _keys_of(specs: Iterable[SettingSpec], table: JobSettings) -> set[str]:
    """The keys of settings in the frameworks whose keys such a command may override."""
    return {key for spec in specs for framework in table.formats[NAME].frameworks for key in spec.keys_in(framework)}


def _long_name(option: str, table: JobSettings) -> str:
    """The long spelling of an option, where the settings know both."""
    for spec in table.specs.values():
        for names in spec.keys_in(NAME):
            spellings = [f"-{name}" for name in names.split("|")]
            if option in spellings:
                return spellings[-1]
    return option


READER = Reader(name=NAME, read=_read, editor=map_editor)
