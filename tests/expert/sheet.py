"""A sheet: what an expert reads in a trace, written from its raw data, as lines that the program's document is held against.

A line is true or false; why a false one is false is said in words. Fields that the document lacks make a line false, never skip it.
The keys of a sheet (`sheets/*.yaml`), all but `files` and `reading` optional:

- `files`: the traces, relative to the folder of traces; every line is held against each of them. `reading`: the judgement in words.
- `refused`: the trace can't be judged; an expression on the words of the refusal.
- `raw`: numbers of `raw.py`. `kernels`, `busy_ms` and `transport_ms` are held against the totals.
- `start_up`: `none`, or `until_ms`, from the first recorded event. `steps`: `n`, `median_ms`, `within` (relative).
- `walls`: what may stand as `dominant` and `target` wall (`none`: no verdict) and as `certainty`.
- `program`: what it does not do (`experts`, `python`, `trains`, `transport`, `megatron`: false), so that no fix and no finding speaks of
  it.
- `first`: expressions on the first finding and on its first fix. `must_say`: an expression on `headline`, `findings`, `fixes` or `text`
  (the
  first two), or a `fact` of the document with its value. `must_never_say`: expressions, `text` being all three.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.builders import yaml_text

HERE = Path(__file__).parent
KEYS = frozenset({"files", "reading", "refused", "raw", "start_up", "steps", "walls", "program", "first", "must_say", "must_never_say"})
HEADLINE = (
    "dominant",
    "target",
    "certainty",
    "no transport",
)  # the lines that judge the sentence on top; those that begin with "headline" too
# What must not be offered where the program does not do it: in names of findings and in titles of fixes.
WORDS = {
    "experts": r"\bMoE\b|mixture.of.experts|\bexperts?\b|dispatcher|DeepEP|HybridEP|\brouter\b|grouped GEMM",
    "python": r"\bPython\b|garbage",
    "trains": r"\btraining\b|recompute|\boptimizer|gradient|\bbackward|micro-batch|\bfreeze|activation offload",
}
FRAMEWORK = re.compile(r"megatron|bridge|nemo", re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """One statement of a sheet against one document."""

    name: str
    true: bool
    why: str = ""

    @property
    def on_top(self) -> bool:
        return self.name.startswith((*HEADLINE, "headline"))


@dataclass(frozen=True)
class Sheet:
    """A file of `sheets/`: the traces that it speaks of, and what it says of each."""

    name: str
    says: dict[str, Any]

    @property
    def files(self) -> list[str]:
        return list(self.says["files"])

    @cached_property
    def lines(self) -> list[str]:
        """Names of all lines, in the order of the sheet, whatever the document holds."""
        return [line.name for line in self.held_against(None, None)]

    def held_against(self, document: dict[str, Any] | None, refusal: str | None) -> list[Line]:
        return list(_held(self.says, document, refusal))


def sheets() -> list[Sheet]:
    found = [Sheet(path.stem, yaml_text.load(path.read_text(encoding="utf-8"))) for path in sorted((HERE / "sheets").glob("*.yaml"))]
    for sheet in found:
        unknown = set(sheet.says) - KEYS
        if unknown or not sheet.files or not sheet.says.get("reading"):
            msg = f"{sheet.name}: unknown or missing keys {sorted(unknown)}"
            raise ValueError(msg)
    return found


def misses() -> dict[str, dict[str, str]]:
    """Why a line is not true yet, by sheet and line."""
    held: dict[str, dict[str, str]] = {}
    for miss in yaml_text.load((HERE / "misses.yaml").read_text(encoding="utf-8")) or []:
        held.setdefault(miss["sheet"], {})[miss["line"]] = miss["why"]
    return held


def at(document: Any, path: str) -> Any:
    """The value under `a.b[key=word].c`; None where there is none. A list without a filter gives its first member."""
    value = document
    for name, key, word in re.findall(r"([\w-]+)(?:\[(\w+)=([^\]]+)\])?", path):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
        if isinstance(value, list):
            value = next((one for one in value if not key or str(one.get(key)) == word), None)
    return value


def words(document: dict[str, Any], where: str) -> str:
    """The text of a place: `headline`, `findings` (name, summary, why) or `fixes` (id and title of those that are not blocked)."""
    verdict = document["verdict"]
    if where == "headline":
        return " ".join(filter(None, (verdict.get("sentence"), _claim(verdict), (verdict.get("cause") or {}).get("sentence"))))
    findings = document["findings"]
    if where == "findings":
        return " ".join(f"[{one['id']}] {one['name']}. {one['summary']} {one.get('why') or ''}" for one in findings)
    return " ".join(f"[{fix['id']}] {fix['title']};" for one in findings for fix in one["fixes"] if fix["state"] != "blocked")


_CLAIMS = re.compile(r"memory costs|stalled on|waits for the CPU to launch|compute dominates|avoidable loss is", re.IGNORECASE)


def _claim(verdict: dict[str, Any]) -> str:
    """What a headline claims of a wall, in the words in which the sheets forbid it: the headline itself says it in the field's terms."""
    dominant, target = verdict.get("dominant_wall"), verdict.get("target_wall")
    if target is None or not _CLAIMS.search(verdict.get("sentence") or ""):
        return ""
    return f"{target.replace('_', ' ')} dominates." if dominant == target else f"The largest avoidable loss is {target.replace('_', ' ')}."


def _held(says: dict[str, Any], document: dict[str, Any] | None, refusal: str | None) -> Iterator[Line]:
    empty = document is None
    if "refused" in says:
        yield Line("refused", bool(refusal and re.search(says["refused"], refusal, re.IGNORECASE)), f"said: {refusal or 'a diagnosis'}")
        return
    yield Line("read", refusal is None, str(refusal))
    document = document or {"verdict": {}, "findings": [], "totals": []}
    for name, line in _lines(says, document):
        yield Line(name, true=False, why="no diagnosis") if empty else line


def _lines(says: dict[str, Any], document: dict[str, Any]) -> Iterator[tuple[str, Line]]:
    for line in (*_raw(says.get("raw", {}), document), *_start_up(says, document), *_steps(says.get("steps") or {}, document),
                 *_walls(says.get("walls", {}), document), *_program(says.get("program", {}), document), *_first(says.get("first") or {}, document),
                 *_sayings(says, document)):  # fmt: skip
        yield line.name, line


def _near(found: float | None, wanted: float, within: float) -> bool:
    return found is not None and abs(found - wanted) <= within * abs(wanted)


def _raw(raw: dict[str, Any], document: dict[str, Any]) -> Iterator[Line]:
    """Sums over all devices: counts and busy time are exact to the rounding of the sheet."""
    totals = document["totals"]
    for key, field in (("kernels", "kernel_count"), ("busy_ms", "device_busy_ns"), ("transport_ms", "transport_busy_ns")):
        if key in raw:
            found = sum(one[field] for one in totals)
            wanted = raw[key] if key == "kernels" else raw[key] * 1e6
            slack = 0 if key == "kernels" else max(1000.0 * len(totals), 0.02 * wanted if key == "transport_ms" else 0)
            yield Line(f"raw {key}", abs(found - wanted) <= slack, f"{found} for {wanted:.0f}")


def _start_up(says: dict[str, Any], document: dict[str, Any]) -> Iterator[Line]:
    """`until_ms` is told from the first recorded event, as the document tells times; `none`.

    Not above 5 % of the device's span is taken out.
    """
    start_up, raw = says.get("start_up"), says.get("raw", {})
    phases = (document.get("capture") or {}).get("phases")
    until = max((one["end_ns"] / 1e6 for one in phases or ()), default=0.0)
    if start_up == "none":
        first, last = raw["first_ms"], raw["first_ms"] + raw["span_ms"]
        taken = sum(max(0.0, min(last, one["end_ns"] / 1e6) - max(first, one["start_ns"] / 1e6)) for one in phases or ())
        yield Line("no start-up", taken <= 0.05 * (last - first), f"{taken:.3f} ms taken out of {last - first:.3f}")
    elif start_up is not None:
        low, high = start_up["until_ms"]
        yield Line("start-up", bool(phases) and low <= until <= high, f"until {until:.3f} ms" if phases else "no phase")


def _steps(steps: dict[str, Any], document: dict[str, Any]) -> Iterator[Line]:
    if "n" in steps:
        low, high = steps["n"] if isinstance(steps["n"], list) else (steps["n"], steps["n"])
        found = at(document, "steps.n")
        yield Line("steps", found is not None and low <= found <= high, f"{found} by {at(document, 'steps.anchor')}")
    if "median_ms" in steps:
        found = at(document, "steps.duration_ns.median")
        yield Line("step", _near(found, steps["median_ms"] * 1e6, steps.get("within", 0.03)), f"{(found or 0) / 1e6:.3f} ms")


def _walls(walls: dict[str, Any], document: dict[str, Any]) -> Iterator[Line]:
    verdict = document["verdict"]
    for key, field in (("dominant", "dominant_wall"), ("target", "target_wall"), ("certainty", "certainty")):
        if key in walls:
            found = verdict[field] or "none" if field in verdict else "no such field"
            yield Line(key, found in walls[key], f"{found}: {words(document, 'headline')}")


def _program(program: dict[str, Any], document: dict[str, Any]) -> Iterator[Line]:
    for key, pattern in WORDS.items():
        if program.get(key) is False:
            yield _never(f"no {key}", pattern, f"{' '.join(one['name'] for one in document['findings'])} {words(document, 'fixes')}")
    if program.get("transport") is False:
        said = [one["id"] for one in document["findings"] if one["wall"] == "communication"]
        walls = [wall for key in ("dominant_wall", "target_wall") if (wall := document["verdict"].get(key)) == "communication"]
        yield Line("no transport", not walls and not said, " ".join((*walls, *said)))
    if program.get("megatron") is False:
        said = [
            f"{fix['id']}: {change['key']}"
            for one in document["findings"]
            for fix in one["fixes"]
            if fix["state"] != "blocked"
            for change in fix["changes"]
            if FRAMEWORK.search(change["framework"])
        ]
        yield Line("no megatron", not said, "; ".join(said[:4]))


def _first(first: dict[str, Any], document: dict[str, Any]) -> Iterator[Line]:
    """`finding`, `fix`: what the first finding and its first fix that is not blocked may be; `never_fix`: what that fix may not be."""
    finding = next(iter(document["findings"]), None)
    fix = next((f"{one['id']} {one['title']}" for one in finding["fixes"] if one["state"] != "blocked"), "") if finding else ""
    named = f"{finding['id']} {finding['name']}" if finding else "no finding"
    if "finding" in first:
        yield Line("first finding", bool(finding and re.search(first["finding"], named, re.IGNORECASE)), named)
    if "fix" in first:
        yield Line("first fix", bool(re.search(first["fix"], fix, re.IGNORECASE)), f"{named}: {fix or 'no fix'}")
    if "never_fix" in first:
        yield _never("first fix is not", first["never_fix"], fix)


def _sayings(says: dict[str, Any], document: dict[str, Any]) -> Iterator[Line]:
    for place, saying in enumerate(says.get("must_say") or (), 1):
        if "fact" in saying:
            found = at(document, saying["fact"])
            yield Line(f"fact {saying['fact']}", _near(found, saying["is"], saying.get("within", 0.05)), f"{found} for {saying['is']}")
            continue
        where, pattern = next(iter(saying.items()))
        text = " ".join(words(document, one) for one in (("headline", "findings") if where == "text" else (where,)))
        true = bool(re.search(pattern, text, re.IGNORECASE))
        yield Line(f"{where} says {place}", true, f"/{pattern}/ not in: {text[:300]}")
    for place, saying in enumerate(says.get("must_never_say") or (), 1):
        where, pattern = next(iter(saying.items()))
        places: Sequence[str] = ("headline", "findings", "fixes") if where == "text" else (where,)
        yield _never(f"{where} never {place}", pattern, " ".join(words(document, one) for one in places))


def _never(name: str, pattern: str, text: str) -> Line:
    said = re.search(rf".{{0,60}}(?:{pattern}).{{0,60}}", text, re.IGNORECASE | re.DOTALL)
    return Line(name, not said, f"said: {said[0]}" if said else "")
