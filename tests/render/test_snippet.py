"""The rules file to begin with, under the list of kernels that no rule knows."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from diagnose.knowledge.buckets import load_buckets
from diagnose.knowledge.taxonomy import load_taxonomy
from diagnose.measure.buckets.describe import describe_all
from diagnose.render import Options, write
from diagnose.render.reports.diagnosis.tables import MOST_ENTRIES, function_name, snippet
from tests.builders.cases import for_each
from tests.builders.diagnosis import HOSTILE, rich

UNKNOWN = (
    "void (anonymous namespace)::frobnicate_tokens<c10::BFloat16, 128>(c10::BFloat16*, int)",
    "<unnamed>::frobnicate_tokens<c10::Half, (int)64>(T1 *, int)",
    "void cutlass::device_kernel<acme::fused::Sprocket<int>>(acme::fused::Sprocket<int>::Params)",
    "_ZN4acme5fused8twiddlerILi256EEEvPKfPf",
    "wibble_wobble_17",
    "'); DROP TABLE kernels; --",
    "sprocketry",
)


@for_each(
    "name, word",
    (UNKNOWN[0], "frobnicate_tokens"),
    (UNKNOWN[1], "frobnicate_tokens"),
    (UNKNOWN[2], "Sprocket"),
    (UNKNOWN[3], "twiddler"),
    ("wibble_wobble_17", "wibble_wobble_17"),
    ("std::enable_if<(8)>(0)", None),
    ("Kernel", "Kernel"),
    ("🙂", None),
)
def test_the_word_by_which_a_kernel_is_known(name: str, word: str | None) -> None:
    assert function_name(name) == word


def test_the_snippet_is_accepted_and_claims_what_it_was_made_from(tmp_path: Path) -> None:
    text = snippet(UNKNOWN, load_buckets())
    assert text.count("- id:") == 6  # two names are one function
    path = tmp_path / "own.yaml"
    path.write_text(text.replace("bucket: other  # choose", "bucket: norm"), encoding="utf-8")
    own = load_taxonomy(extra=[path])
    names = [(name, None) for name in (*UNKNOWN[:5], "sprocketry", "sprocketry_3", "wibble_wobble_9", "unsprocketry_kernel_x")]
    assert {one.bucket for one in describe_all(names, load_taxonomy())} == {"other"}
    *mine, other = describe_all(names, own)
    assert {(one.bucket, one.evidence) for one in mine} == {("norm", "rule")}
    assert other.bucket == "other"


def test_hostile_and_many_names_give_yaml_all_the_same() -> None:
    assert snippet((), load_buckets()) == snippet(("🙂", "12"), load_buckets()) == ""
    text = snippet([*HOSTILE, *(f"name_{chr(97 + n)}{chr(97 + n)}_kernel" for n in range(20))], load_buckets())
    assert len(yaml.safe_load(text)["families"]) == MOST_ENTRIES
    assert max(map(len, text.splitlines())) < 80
    assert re.fullmatch(r"[\x20-\x7e\n]+", text)


@for_each("kind", "text", "md", "html")
def test_every_report_ends_its_list_with_it(kind: str) -> None:
    shown = write(rich(), "markdown" if kind == "md" else kind, Options(width=80, detail=2))
    assert "own-buckets.yaml" in shown
    wanted = snippet([row.name for row in rich().unclassified], load_buckets()).splitlines()
    assert all(line.replace("'", "&#39;") in shown or line in shown for line in wanted)


@pytest.mark.deep
def test_from_a_report_to_a_run_with_the_chosen_buckets(tmp_path: Path) -> None:
    packed = Path(__file__).parents[2] / "fixtures" / "traces" / "demo.pt.trace.json.gz"
    trace = tmp_path / "strange.pt.trace.json"
    text = gzip.decompress(packed.read_bytes()).decode("utf-8")
    trace.write_text(re.sub(r'"name": ?"nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NTT"', '"name": "wibble_wobble"', text), encoding="utf-8")

    def run(*more: str) -> dict[str, object]:
        done = subprocess.run([sys.executable, "-m", "diagnose", str(trace), "--format", "json", *more], capture_output=True, check=True)
        found: dict[str, object] = json.loads(done.stdout)
        return found

    before = run()
    names = [row["name"] for row in before["unclassified"]]  # type: ignore[attr-defined]
    assert names == ["wibble_wobble"]
    rules = tmp_path / "own-buckets.yaml"
    rules.write_text(snippet(names, load_buckets()).replace("bucket: other  # choose", "bucket: dense_gemm"), encoding="utf-8")
    after = run("--rules", str(rules))
    assert after["unclassified"] == []
    assert after["tool"]["rules_sha256"] != before["tool"]["rules_sha256"]  # type: ignore[index]
