"""Entries of facts, job settings, platforms and ledger codes."""

from __future__ import annotations

from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.platforms import Platform
from diagnose.knowledge.settings import JobSettings, SettingSpec
from diagnose.knowledge.templates import literal
from diagnose.model.ledger import CODES
from diagnose.render import units, words
from diagnose.render.knowledge.entries import Catalogue, Code, Entry, Line, Part, Span, expression, items, paragraph, rows, users

_COMBINE = {
    "first": "the first one that is set counts: the framework copies it over the others",
    "any": "on if any of them is",
    "conflict": "different values are an error",
}


def fact(know: Catalogue, key: str) -> Entry:
    """One measured number."""
    spec = know.book.facts[key]
    return Entry(
        name=key,
        title=spec.meaning,
        about=f"fact, unit: {spec.unit}{'; of several captured ranks, null with one' if spec.scope == 'ranks' else ''}",
        brief=spec.unit,
        parts=(*paragraph("null means", spec.null), *users(know, key)),
    )


def fact_in_run(_know: Catalogue, key: str, document: Diagnosis) -> list[Part]:
    """The fact's value in the document."""
    found = document.facts.get(key)
    return paragraph("in this run", units.NOT_MEASURED if found is None else f"{units.fact(found.value, found.unit)} ({found.status})")


# --- job settings -----------------------------------------------------------------------------------------------------


def setting(know: Catalogue, key: str) -> Entry:
    """One setting of the job file."""
    spec = know.book.settings[key]
    table = know.book.job
    keys = [(table.formats[name].title, table.has_flags(name), spec.keys_in(name)) for name in table.frameworks]
    keys += [("environment", False, spec.env)]
    several = any(len(found) > 1 for _, _, found in keys)
    return Entry(
        name=key,
        title=spec.meaning,
        about=f"job setting, {'a version (2.6.0 is 2006000 in conditions)' if spec.type == 'version' else spec.type}; conditions read it as job_{key}",
        brief=spec.type,
        parts=(
            *rows("keys", ("where", "keys"), ((title, Line(*_keys(found, flags=flags))) for title, flags, found in keys if found)),
            *(paragraph("several keys with different values", _COMBINE[spec.combine]) if several else []),
            *paragraph("default", *_default(spec, table)),
            *expression("where it is left out, derived from", spec.derive),
            *paragraph("spellings", _pairs(spec.aliases)),
            *rows(
                "named values that stand for other settings",
                ("value", "stands for"),
                ((Code(name), _pairs(sets)) for name, sets in spec.presets.items()),
            ),
            *users(know, f"job_{key}"),
        ),
    )


def _keys(found: tuple[str, ...], *, flags: bool) -> list[Span]:
    line: list[Span] = []
    for one in found:
        if line:
            line.append(", ")
        if not flags:
            line.append(Code(one))
        elif one.startswith("!"):
            line += [Code(f"--{one[1:]}"), " (turns it off)"]
        elif "=" in one:
            flag, value = one.split("=", 1)
            line += [Code(f"--{flag}"), " (stands for ", Code(value), ")"]
        else:
            line.append(Code(f"--{one}"))
    return line


def _default(spec: SettingSpec, table: JobSettings) -> tuple[Span, ...]:
    """What is taken where the file leaves the setting out."""
    silent = ", ".join(table.formats[name].in_files or table.formats[name].title for name in spec.no_default_in)
    if spec.default is None:
        return ("none: left out it is derived" if spec.derive else "none: left out it is unknown",)
    return (Code(literal(spec.default)), f"; in a file of {silent} leaving it out tells nothing" if silent else "")


def _pairs(found: dict[str, str] | dict[str, int | float | bool | str]) -> str:
    return ", ".join(f"{name} = {literal(value)}" for name, value in found.items())


def setting_in_run(_know: Catalogue, key: str, document: Diagnosis) -> list[Part]:
    """The setting's value in the document, and the key that it was read from."""
    if document.job is None:
        return paragraph("in this run", "no job file was given")
    found = next((one for one in document.job.settings if one.name == key), None)
    if found is None:
        return paragraph("in this run", "not in the job file")
    return paragraph("in this run", f"{literal(found.value)}, from {found.key}")


# --- platforms --------------------------------------------------------------------------------------------------------


def platform(know: Catalogue, key: str) -> Entry:
    """One GPU product."""
    one = know.book.platforms.platforms[key]
    limits = know.book.platforms.sm_limits.get(f"{one.compute_major}.{one.compute_minor}")
    return Entry(
        name=key,
        title=f"{one.pattern} ({one.architecture})",
        about=f"platform; the first whose name stands as a whole word in the GPU's name wins; this one: {one.pattern}",
        brief=one.architecture,
        parts=(
            *rows("figures", ("figure", "value"), ((label, value or "not known") for label, value in _figures(one).items())),
            *paragraph("note", one.note),
            *items("sources", one.sources),
            *rows(
                "what fits on one SM",
                ("limit", "value"),
                ((words.words(name), f"{getattr(limits, name):,}") for name in (limits.__struct_fields__ if limits else ())),
            ),
            *(items("source of these limits", know.book.platforms.sm_limits_source) if limits else []),
        ),
    )


def _figures(one: Platform) -> dict[str, str]:
    capability = "" if one.compute_major is None else f"{one.compute_major}.{'?' if one.compute_minor is None else one.compute_minor}"
    return {
        "compute capability": capability,
        "SMs": _count(one.sm_count),
        "GPUs in one NVLink domain": _count(one.nvlink_domain),
        "GPUs per node": _count(one.gpus_per_node),
        "memory": "" if one.memory_gb is None else f"{one.memory_gb:g} GB",
        "NVLink, one way": "" if one.nvlink_gb_per_s is None else f"{one.nvlink_gb_per_s:g} GB/s",
        "memory bandwidth": "" if one.memory_tb_per_s is None else f"{one.memory_tb_per_s:g} TB/s",
        **{f"dense peak {name.upper()}": f"{value:,.0f} TFLOP/s per GPU, without sparsity" for name, value in one.peak_tflops.items()},
    }


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


# --- ledger -----------------------------------------------------------------------------------------------------------


def code(_know: Catalogue, key: str) -> Entry:
    """One kind of data-quality event."""
    one = CODES[key]
    return Entry(
        name=key,
        title=one.meaning,
        about=f"ledger code, severity {words.words(one.severity)}, from the {one.origin}; {'its rows are left out' if one.refuses else 'no row is left out'}",
        brief=words.words(one.severity),
        parts=(),
    )


def code_in_run(_know: Catalogue, key: str, document: Diagnosis) -> list[Part]:
    """How often it happened in the document."""
    found = [f"{units.count(entry.count)} in {entry.table}" for entry in document.ledger if entry.code == key]
    return paragraph("in this run", ", ".join(found) or "none")
