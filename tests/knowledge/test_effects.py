"""Effects of fixes in their files: every fix has one or says why none can be told, and a wrong one is refused with file and place."""

from pathlib import Path

import pytest

from diagnose.errors import RuleFileError
from diagnose.knowledge.load import load_rulebook
from diagnose.reason.context import make_context
from diagnose.reason.forecast.changes import effect_of
from tests.builders import yaml_text
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import job

FOLDER = Path(__file__).parent
FIX = Path(__file__).parents[2] / "trace_rules" / "playbook" / "router-fusion.yaml"
SCALE = {"scale": "bucket = 'router'", "by": [0.4, 0.5, 0.9], "basis": "assumed", "why": "fewer passes", "source": "a paper"}


def test_every_fix_has_an_effect_or_says_why_none_can_be_told() -> None:
    for key, fix in BOOK.fixes.items():
        assert bool(fix.effect) != bool(fix.no_effect), key
        assert fix.no_effect == "" or fix.no_effect.endswith("."), key
        for one in fix.effect:
            assert one.problem() is None, key
            assert one.why.endswith("."), key
            assert one.basis != "measured" or one.by is None or one.only is not None, f"{key}: a factor of elsewhere is assumed"


def effect_numbers() -> list[list[str]]:
    """Fix, place of the effect (- for the fix), field and numbers: all by which forecasts reckon, but those worked out from facts, and the
    fix's place among those of its direction.
    """
    return [[key, "-", "step", str(fix.step)] for key, fix in sorted(BOOK.fixes.items()) if fix.step != 1] + [
        [key, str(place), name, " ".join(map(str, value if isinstance(value, tuple) else (value,)))]
        for key, fix in sorted(BOOK.fixes.items())
        for place, one in enumerate(fix.effect)
        for name in ("by", "start_us", "to", "host_us", "launch_us", "gap_us", "into", "parts", "pieces")
        if (value := getattr(one, name)) is not None and value != 1
    ]


def test_effects_reckon_with_the_numbers_that_they_are_listed_with() -> None:
    """A change of one is meant: it stands in effects.tsv too."""
    assert effect_numbers() == [line.split("\t") for line in (FOLDER / "effects.tsv").read_text(encoding="utf-8").splitlines()[1:]]


def test_a_fix_that_only_takes_recompute_away_wins_no_more_than_the_wall_that_counts_it() -> None:
    """Compute has no bound to hold it (a fix may make compute faster), so that such a fix works on memory alone."""
    less = {
        key: fix.walls
        for key, fix in BOOK.fixes.items()
        if fix.effect and all(one.remove is not None and "phase = 'recompute'" in one.remove for one in fix.effect)
    }
    assert "MEM-03" in less
    assert set(less.values()) == {("memory",)}


@for_each(
    "change, said",
    ({"remove": "role = 'copy'"}, r"effect\[0\]\.names remove and scale of remove, scale, .* has to name just one"),
    ({"scale": None}, r"effect\[0\]\.names none of"),
    ({"scale": "buckett = 'router'"}, r"effect\[0\]\.scale: unknown name buckett"),
    ({"scale": "bucket"}, r"effect\[0\]\.scale: must be true or false"),
    ({"scale": "bucket = = 'router'"}, r"effect\[0\]\.scale: not an expression"),
    ({"by": [0.9, 0.5, 0.4]}, r"effect\[0\]\.by: low, likely and high have to rise"),
    ({"by": None}, r"effect\[0\]\.by: scale needs it"),
    ({"by": ["job_nonsense", 1, 1]}, r"effect\[0\]\.by\[0\]: unknown name job_nonsense"),
    ({"source": " "}, r"effect\[0\]\.source: is empty"),
    ({"source": None}, "missing required field `source`"),
    ({"melt": "role = 'copy'"}, "unknown field `melt`"),
    ({"basis": "guessed"}, "basis"),
    ({"until": "phase = 'optimizer'"}, r"effect\[0\]\.until: scale has no such field"),
    ({"scale": None, "by": None, "delay": "role = 'copy'"}, r"effect\[0\]\.until: delay needs it"),
    ({"scale": None, "resize": "colour", "to": 2}, r"effect\[0\]\.resize: unknown setting colour"),
    ({"scale": None, "by": None, "graph": "role = 'copy'", "host_us": [1, 2, 3]}, r"effect\[0\]\.gap_us: graph needs it"),
    ({"scale": None, "by": None, "detach": "role = 'copy'", "pieces": [8, 4, 1]}, r"effect\[0\]\.beside: goes with `pieces`"),
    ({"library": "mpi"}, r"effect\[0\]\.library: unknown library mpi"),
    ({"only": "job_nonsense"}, r"effect\[0\]\.only: unknown name job_nonsense"),
)
def test_a_wrong_effect_is_refused_with_file_and_place(tmp_path: Path, change: dict[str, object], said: str) -> None:
    entry = yaml_text.load(FIX.read_text(encoding="utf-8"))
    entry["effect"] = [{key: value for key, value in (SCALE | change).items() if value is not None}]
    path = tmp_path / "playbook" / "mine.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml_text.dump(entry), encoding="utf-8")
    with pytest.raises(RuleFileError, match=rf"playbook/mine\.yaml.*{said}"):
        load_rulebook([path.parent.parent])


@for_each(
    "change, said",
    ({"no_effect": "It changes nothing."}, "no_effect: there is an effect"),
    ({"effect": None}, "id: .* effect, or no_effect"),
)
def test_a_fix_tells_an_effect_or_why_there_is_none_and_not_both(tmp_path: Path, change: dict[str, object], said: str) -> None:
    entry = yaml_text.load(FIX.read_text(encoding="utf-8")) | change
    path = tmp_path / "mine.yaml"
    path.write_text(yaml_text.dump({key: value for key, value in entry.items() if value is not None}), encoding="utf-8")
    with pytest.raises(RuleFileError, match=rf"mine\.yaml is wrong: line \d+: .*{said}"):
        load_rulebook([path])


def test_an_effect_in_a_job() -> None:
    # The trace names no GPU, so that no link is known: the factors of the file stand.
    there = job(expert_model_parallel_size=16, moe_router_topk=8)
    context = make_context(facts(expert_exchange_backend="nccl", nvlink_domain=8), there, BOOK)
    found = effect_of(BOOK.fixes["COM-02"], context)
    assert not isinstance(found, str)
    assert found[0].by == (0.25, 0.7, 1.1)
    assert effect_of(BOOK.fixes["CMP-11"], context) == BOOK.fixes["CMP-11"].no_effect


@for_each(
    "settings, likely",
    # 4 stages: 3/8 of the 75 that a stage works are 28, more than the 25 that it waits, all of which two chunks halve.
    ({"global_batch_size": 8}, 0.5),
    ({"global_batch_size": 16}, 1 - 0.5 * (3 / 16 * 75) / 25),  # 14 of the 25
    ({"global_batch_size": None}, 0.75),  # micro-batches not known: half of it
)
def test_more_chunks_shorten_the_bubble_that_stages_and_micro_batches_make(settings: dict[str, object], likely: float) -> None:
    layout = {"pipeline_model_parallel_size": 4, "micro_batch_size": 1, "world_size": 4, "num_layers": 8, "tensor_model_parallel_size": 1}
    there = job(layout | settings)
    context = make_context(facts(step_ns=100_000_000, pipeline_parallel_blocking_ns=25_000_000), there, BOOK)
    found = effect_of(BOOK.fixes["COM-13"], context)
    assert not isinstance(found, str)
    assert found[0].by is not None
    assert found[0].by[1] == pytest.approx(likely)


def test_chunks_that_are_there_shorten_the_bubble_no_further() -> None:
    layout = {"pipeline_model_parallel_size": 4, "virtual_pipeline_model_parallel_size": 2, "num_layers": 8, "overlap_p2p_comm": False}
    context = make_context(facts(step_ns=100_000_000, pipeline_parallel_blocking_ns=25_000_000), job(layout), BOOK)
    assert effect_of(BOOK.fixes["COM-13"], context) == "None of what it changes applies to this job."
