"""The playbook against the lists that it must cover: every fix, what the founding documents name, what sources dispute."""

from __future__ import annotations

import re

import yaml

from diagnose.job import parse_job
from diagnose.knowledge.rulebook import ChangeSpec
from tests.builders.facts import BOOK

# Every fix of the playbook's index.
ALL_IDS = [
    f"{group}-{number:02d}"
    for group, count in {"MEM": 20, "COM": 21, "HOST": 8, "CMP": 11, "VLM": 12, "LCX": 12, "PCK": 1}.items()
    for number in range(1, count + 1)
]

# What the founding documents name, and the fixes that answer it.
SEED_COVERAGE = {
    "smallest model parallelism that fits, fake process group": ["MEM-18", "COM-17"],
    "selective recompute by label, full only if needed": ["MEM-02", "MEM-19"],
    "offloading after recompute and parallelism": ["MEM-06", "MEM-07", "MEM-08"],
    "maximise DP, hot path in the fast interconnect, interleaved pipeline, EP over TP, CP for long context": ["COM-17", "COM-13", "CMP-09"],
    "parallel folding": ["COM-17"],
    "dispatcher triple": ["COM-01", "COM-02"],
    "EP, DP and TP overlap": ["COM-06", "COM-10", "COM-09"],
    "FP8 blockwise, MXFP8, NVFP4, FP32 router": ["CMP-05", "CMP-06", "CMP-07"],
    "TE graphs, full-iteration graphs": ["HOST-01", "HOST-02"],
    "manual GC, larger micro-batch, CPU affinity": ["HOST-03", "HOST-05", "HOST-04"],
    "grouped GEMM, fusion, dispatcher kernel tuning": ["CMP-01", "CMP-02", "CMP-03", "CMP-04", "COM-03"],
    "better pipeline layout": ["COM-14"],
    "EP overlap with its prerequisites, delayed weight gradient": ["COM-06", "COM-07"],
    "long context": [f"LCX-{number:02d}" for number in range(1, 13)],
    "vision-language models": [f"VLM-{number:02d}" for number in range(1, 13)],
    "FP8 utilisation that looks low, graphs against recompute": ["CMP-05", "HOST-01"],
}

# Phase and place of the memory and communication fixes, where the playbook gives them.
ORDER = {
    ("fit", 0): ["MEM-18"],
    ("fit", 1): ["MEM-01", "MEM-04", "MEM-17", "MEM-20"],
    ("fit", 2): ["MEM-02", "MEM-05", "MEM-13"],
    ("fit", 3): ["MEM-08"],
    ("fit", 4): ["MEM-06", "MEM-07"],
    ("fit", 5): ["MEM-10", "MEM-12"],
    ("fit", 6): ["MEM-11", "MEM-19"],
    ("scale", 1): ["COM-10", "COM-13", "COM-14", "COM-15", "COM-17"],
    ("scale", 2): ["COM-11", "COM-16"],
    ("profile", 1): ["COM-20"],
    ("retune", 1): [
        *("MEM-03", "MEM-09", "MEM-14", "MEM-15", "MEM-16"),
        *("COM-01", "COM-02", "COM-03", "COM-04", "COM-05", "COM-06", "COM-09", "COM-18", "COM-21"),
    ],
    ("retune", 2): ["COM-07", "COM-08", "COM-12", "COM-19"],
}

# Where sources disagree about a memory or communication fix: the letter of the disagreement, and the fixes that have to say so.
DISPUTED = {
    "a": ["COM-01", "COM-02"],
    "f": ["COM-07"],
    "g": ["COM-07"],
    "h": ["COM-01"],
    "j": ["MEM-06", "CPY-02"],
    "k": ["MEM-06"],
    "o": ["COM-18"],
    "p": ["COM-06"],
    "q": ["COM-06"],
    "r": ["COM-06"],
    "s": ["COM-12"],
    "t": ["COM-06"],
    "u": ["COM-06"],
    "v": ["COM-06", "MEM-19"],
    "w": ["COM-04"],
    "x": ["MEM-01"],
    "aa": ["MEM-09"],
    "ab": ["MEM-15"],
    "ac": ["MEM-08"],
    "ae": ["MEM-10"],
    "af": ["MEM-04"],
}

FACT = re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+\b")


def test_the_eighty_five_fixes_of_the_index_are_entries() -> None:
    assert [key for key in ALL_IDS if key not in BOOK.fixes] == []
    assert len(ALL_IDS) == len(set(ALL_IDS)) == 85


def test_what_the_founding_documents_name_is_an_entry() -> None:
    assert {said: absent for said, keys in SEED_COVERAGE.items() if (absent := [key for key in keys if key not in BOOK.fixes])} == {}


def test_phase_and_place() -> None:
    found = {place: [key for key in keys if (BOOK.fixes[key].phase, BOOK.fixes[key].step) == place] for place, keys in ORDER.items()}
    assert found == ORDER
    assert {key for key in ALL_IDS if key.startswith(("MEM-", "COM-"))} == {key for keys in ORDER.values() for key in keys}


def test_what_sources_dispute_is_said() -> None:
    silent = {
        (letter, key) for letter, keys in DISPUTED.items() for key in keys if not re.search(r"[Tt]his entry", BOOK.fixes[key].disputed)
    }
    assert silent == set(), "say which side is taken"


def test_expected_effects_have_a_number_and_a_source() -> None:
    effects = [(key, effect) for key, fix in BOOK.fixes.items() for effect in fix.expected]
    assert [key for key, effect in effects if not (effect.source and re.search(r"\d", effect.text))] == []


def test_verify_names_a_fact() -> None:
    assert [key for key, fix in BOOK.fixes.items() if not set(FACT.findall(fix.verify)) & set(BOOK.facts)] == []


def wrong_literal(change: ChangeSpec) -> str | None:
    """What is wrong with a value that is to be written as it stands: under its key in its framework it is read back as the setting that
    the change names, in that setting's type.
    """
    value = yaml.safe_load(change.to)
    if value is None:
        return "says nothing"
    if change.setting is None:
        return None
    if change.op in ("add", "remove"):
        if BOOK.settings[change.setting].type != "list" or not isinstance(value, str):
            return "is not one member of a list"
        value = [value]
    if change.framework == "megatron-lm":
        text: dict[str, object] = {"MODEL_ARGS": {change.key: value}}
    elif change.framework == "environment":
        text = {"MODEL_ARGS": {}, "ENV_VARS": {change.key: value}}
    else:
        text = {"model": {"num_layers": 4}}
        node = text
        *sections, last = change.key.split(".")
        for section in sections:
            node = node.setdefault(section, {})  # type: ignore[assignment]
        node[last] = value
    read = parse_job(yaml.safe_dump(text)).settings.get(change.setting)
    if read is None:
        return f"does not stand for {change.setting}"
    return None if read.source == "read" else f"{change.setting} is {read.source}"


def test_a_literal_can_be_written_into_a_job_file() -> None:
    literal = [
        (key, change)
        for key, fix in BOOK.fixes.items()
        for change in fix.changes
        if not change.choose and change.value is None and change.op != "unset"
    ]
    assert len(literal) > 100
    assert [(key, change.key, wrong) for key, change in literal if (wrong := wrong_literal(change))] == []


def test_what_is_unset_says_nothing_else() -> None:
    assert [
        (key, change.key) for key, fix in BOOK.fixes.items() for change in fix.changes if change.op == "unset" and change.to != "null"
    ] == []


def test_words_are_marked_as_a_choice() -> None:
    """A change to a launcher or to code is a person's to make; a computed value says what it is where it can't be computed."""
    ours = [(key, change) for key, fix in BOOK.fixes.items() if key.startswith(("MEM-", "COM-", "CPY-")) for change in fix.changes]
    assert [(key, change.key) for key, change in ours if change.framework in ("launcher", "code") and not change.choose] == []
    words = [
        (key, change)
        for key, change in ours
        if " " in change.to and change.framework == "megatron-bridge" and change.value is None and not change.choose
    ]
    assert [(key, change.key) for key, change in words if isinstance(yaml.safe_load(change.to), str)] == []
