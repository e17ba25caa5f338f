"""How fluid the timeline of a page is.

``python -m benchmarks.timeline`` opens a page of 20,000 operations in Chromium, draws, zooms and moves it.

The goals are those of a reader: the first drawing within a second of opening, and no stall above 50 ms while moving. A busy machine makes
any frame late, so every movement is repeated: what a frame takes is the least over the repetitions, and beside it stands the processor time
of the page's thread, which no other process lengthens.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from benchmarks.__main__ import Goal
from diagnose.document.device import TimelineColumns
from diagnose.document.diagnosis import Diagnosis, decode
from diagnose.render import write

ROOT = Path(__file__).parent.parent
BASE = ROOT / "reports" / "gallery" / "communication-alltoall-two-nodes.json"
OPERATIONS, STREAMS, NAMES, STEP_NS, SEED = 20_000, 8, 240, 400_000_000, 7
FRAMES, REPEATS = 60, 5
ZOOMS = {"the whole step": 1.0, "a tenth of it": 0.1, "a hundredth of it": 0.01}
FIRST_MS, STALL_MS, PAINT_MS = 1000.0, 50.0, 500.0
OPENINGS = 9  # of a page and of an empty one, in turn: how long a busy machine lets any page wait shows in the empty one
_PAINT = "() => performance.getEntriesByType('paint').find(one => one.name === 'first-contentful-paint').startTime"
_EMPTY = "<!doctype html><title>empty</title><p>A page."

_OPEN = """() => new Promise(done => {
  const began = performance.now(), fold = document.querySelector('[data-live]').closest('details');
  fold.open = true;
  const look = () => document.querySelector('.live canvas')
    ? requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began))) : setTimeout(look, 1);
  look();
})"""
# One movement of the pointer per frame, held on a lane; gives the time from frame to frame, and of each frame what our own handlers took.
_MOVE = """frames => new Promise(done => {
  const canvas = document.querySelector('.live canvas'), box = canvas.getBoundingClientRect(), spent = [], between = [];
  const event = (kind, x) => new PointerEvent(kind, {clientX: box.left + x, clientY: box.top + 60, pointerId: 1, button: 0, buttons: 1, bubbles: true});
  canvas.setPointerCapture = () => {};
  canvas.dispatchEvent(event('pointerdown', box.width * 0.6));
  let last = performance.now(), frame = 0;
  const step = () => {
    const now = performance.now();
    between.push(now - last);
    last = now;
    if (frame++ === frames) { canvas.dispatchEvent(event('pointerup', 0)); return done(between.slice(1)); }
    canvas.dispatchEvent(event('pointermove', box.width * 0.6 + 260 * Math.sin(frame / frames * 6.283)));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
ZOOM = """share => {
  const canvas = document.querySelector('.live canvas'), box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new MouseEvent('dblclick', {bubbles: true}));
  if (share < 1) {
    canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: Math.log(share) / Math.log(1.0018), clientX: box.left + box.width / 2, clientY: box.top + 60, bubbles: true,
      cancelable: true}));
  }
}"""


@dataclass(frozen=True, kw_only=True)
class Movement:
    """One way to move, ms: the longest task of the page's thread and the mean of a frame, by its processor time.

    The longest frame by the clock, at best and over all repetitions.
    """

    zoom: str
    longest: float
    mean: float
    frame: float
    frame_of_all: float

    def row(self) -> str:
        """As a row of the table."""
        return f"| {self.zoom} | {self.mean:.1f} | {self.longest:.1f} | {self.frame:.0f} | {self.frame_of_all:.0f} |"


def operations(count: int) -> TimelineColumns:
    """A step of `count` operations on eight streams, back to back with pauses, many of them shorter than a pixel.

    Every twentieth was waited for.
    """
    made = random.Random(SEED)
    names = tuple(f"void kernel_{place}<{'float, ' * (place % 7)}int>(Tensor, Tensor, long)" for place in range(NAMES))
    each = STEP_NS * STREAMS // count
    rows = []
    for stream in range(STREAMS):
        at = 0
        while at < STEP_NS - 4 * each:
            length = max(600, int(made.lognormvariate(0, 1) * each / 2.4))
            rows.append((at, min(length, STEP_NS - at), stream))
            at += length + int(made.expovariate(1) * each / 4)
    rows = sorted(rows)[:count]
    gaps = [(start, length, place) for place, (start, length, stream) in enumerate(rows) if stream == 1][::5]
    total = len(rows)
    return TimelineColumns(
        streams=tuple(range(7, 7 + STREAMS)),
        buckets=("expert_gemm", "attention", "dispatch", "combine", "norm", "elementwise", "router", "permute"),
        names=names,
        causes=("blocking_transport", "host_work"),
        start_ns=tuple(start for start, _, _ in rows),
        duration_ns=tuple(length for _, length, _ in rows),
        stream=tuple(stream for _, _, stream in rows),
        bucket=tuple(made.randrange(8) for _ in range(total)),
        name=tuple(made.randrange(NAMES) for _ in range(total)),
        queued_ns=tuple(made.randrange(2_000, 900_000) for _ in range(total)),
        range=(None,) * total,
        gap_start_ns=tuple(start for start, _, _ in gaps),
        gap_duration_ns=tuple(length for _, length, _ in gaps),
        gap_cause=tuple(made.randrange(2) for _ in gaps),
        gap_blocked_by=tuple(place for _, _, place in gaps),
        omitted=0,
    )


def document(count: int) -> Diagnosis:
    """A diagnosis whose timeline holds `count` operations."""
    found = decode(BASE.read_bytes())
    if found.timeline is None:
        raise ValueError(f"{BASE} holds no timeline")
    return structs.replace(found, timeline=structs.replace(found.timeline, start_ns=0, end_ns=STEP_NS, columns=operations(count)))


def painted(browser: Any, page: Path, empty: Path) -> tuple[float, float]:
    """First paint of a page and of an empty one, ms after opening: the medians of openings in turn, each in a window of its own."""
    times: dict[Path, list[float]] = {page: [], empty: []}
    for file in (page, empty) * OPENINGS:
        window = browser.new_page(viewport={"width": 1440, "height": 900})
        window.goto(file.as_uri())
        window.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        times[file].append(window.evaluate(_PAINT))
        window.close()
    return statistics.median(times[page]), statistics.median(times[empty])


def moved(browser: Any, page: Any, share: float, name: str) -> Movement:
    """Move the timeline at a zoom, several times."""
    page.evaluate(ZOOM, share)
    page.wait_for_timeout(300)
    runs, tasks = [], []
    for _ in range(REPEATS):
        browser.start_tracing(page=page, categories=["devtools.timeline", "disabled-by-default-devtools.timeline"])
        runs.append(page.evaluate(_MOVE, FRAMES))
        tasks.append(processor_times(json.loads(browser.stop_tracing())["traceEvents"]))
    return Movement(
        zoom=name,
        longest=min(map(max, tasks)),
        mean=statistics.median(map(sum, tasks)) / FRAMES,
        frame=max(min(frame) for frame in zip(*runs, strict=True)),
        frame_of_all=max(map(max, runs)),
    )


def processor_times(events: Sequence[dict[str, Any]]) -> list[float]:
    """Processor time of each task of the thread that draws frames, ms."""
    thread = next((event["pid"], event["tid"]) for event in events if event["name"] == "FireAnimationFrame")
    return [
        event["tdur"] / 1000
        for event in events
        if event["name"] == "RunTask" and (event["pid"], event["tid"]) == thread and "tdur" in event
    ]


def measure(count: int = OPERATIONS) -> tuple[float, float, float, list[Movement], list[Goal]]:
    """Milliseconds to the first drawing (the least, the most of all openings), to an empty page's paint, the movements, and the goals."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the tests alone

    chromium = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        raise SystemExit("There is no Chromium on this machine.")
    with tempfile.TemporaryDirectory(prefix="diagnose-bench-") as folder, sync_playwright() as driver:
        file = Path(folder) / "page.html"
        file.write_text(write(document(count), "html"), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        report, empty = Path(folder) / "report.html", Path(folder) / "empty.html"
        report.write_text(write(decode(BASE.read_bytes()), "html"), encoding="utf-8")
        empty.write_text(_EMPTY, encoding="utf-8")
        paint, least = painted(browser, report, empty)
        opened = []
        for _ in range(REPEATS):
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(file.as_uri())
            opened.append(page.evaluate(_OPEN))
        movements = [moved(browser, page, share, name) for name, share in ZOOMS.items()]
        browser.close()
    goals = [
        Goal(name=f"first paint of a report, median of {OPENINGS} openings", measured=paint, limit=PAINT_MS, unit="ms"),
        Goal(name=f"timeline of {count:,} operations: first drawing", measured=min(opened), limit=FIRST_MS, unit="ms"),
        Goal(
            name="timeline: longest task while it is moved, processor time",
            measured=max(one.longest for one in movements),
            limit=STALL_MS,
            unit="ms",
        ),
        Goal(
            name="timeline: longest frame while it is moved, least of its repetitions",
            measured=max(one.frame for one in movements),
            limit=STALL_MS,
            unit="ms",
        ),
    ]
    return min(opened), max(opened), least, movements, goals


def section(count: int = OPERATIONS) -> tuple[str, list[Goal]]:
    """The part of results.md."""
    first, last, least, movements, goals = measure(count)
    lines = [
        f"`python -m benchmarks.timeline` in headless Chromium, {count:,} operations on {STREAMS} streams, a movement of the pointer in each of {FRAMES} frames,",
        f"{REPEATS} times; a frame takes the least of its repetitions, so that a busy machine does not count. First drawing: {first:.0f} ms ({last:.0f} ms at most). An empty page is painted after {least:.0f} ms in the median.",
        "",
        "| goal | limit | measured | |",
        "|---|---|---|---|",
        *(goal.row() for goal in goals),
        "",
        "| moved while it shows | processor time per frame, ms | of the longest task, ms | longest frame by the clock, ms | the same of all repetitions, ms |",
        "|---|---|---|---|---|",
        *(one.row() for one in movements),
        "",
    ]
    return "\n".join(lines), goals


def main() -> int:
    """Command line; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timeline", description=__doc__)
    parser.add_argument("--operations", type=int, default=OPERATIONS)
    asked = parser.parse_args()
    text, goals = section(asked.operations)
    sys.stdout.write(text)
    return int(any(not goal.met for goal in goals))


if __name__ == "__main__":
    raise SystemExit(main())
