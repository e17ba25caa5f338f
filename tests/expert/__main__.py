"""`python -m tests.expert`: hold the program against all sheets and write reports/expert.md.

With names: say how those fare, write nothing.
"""

import sys
from collections import Counter
from collections.abc import Iterator

from tests.conftest import ROOT, SHARED
from tests.expert.held import held
from tests.expert.sheet import Line, Sheet, misses, sheets

TRACES = SHARED / "traces"


def said(sheet: Sheet, results: dict[str, list[Line]]) -> Iterator[str]:
    for file, lines in results.items():
        false = [line for line in lines if not line.true]
        yield f"{sheet.name}: {len(lines) - len(false)} of {len(lines)} ({file})"
        yield from (f"  {'FALSE HEADLINE ' if line.on_top else ''}{line.name}: {line.why}" for line in false)


def report(found: list[tuple[Sheet, dict[str, list[Line]]]]) -> Iterator[str]:
    """The table, and below it every line that is not true with its reason."""
    traces = [lines for _, results in found for lines in results.values()]
    right = sum(all(line.true for line in lines) for lines in traces)
    headlines = sum(any(line.on_top and not line.true for line in lines) for lines in traces)
    lines_true = sum(line.true for lines in traces for line in lines)
    yield "# Real traces against expert sheets\n"
    yield "Written by `python -m tests.expert` from tests/expert/sheets/: what an expert reads in the raw data of each real trace that lies beside the"
    yield "project, written before the program was asked. A headline is false where the dominant or the target wall, the certainty or a saying of the"
    yield "headline is none of those that the sheet accepts.\n"
    yield "| | |\n|---|---|"
    yield f"| sheets, traces | {len(found)}, {len(traces)} |"
    yield f"| traces right in every line | {right} ({right / len(traces):.0%}) |"
    yield f"| traces with a false headline | {headlines} |"
    yield f"| lines true | {lines_true} of {sum(map(len, traces))} |\n"
    yield "| sheet | traces | lines | true in every trace | headline |\n|---|---|---|---|---|"
    for sheet, results in found:
        false = {line.name for lines in results.values() for line in lines if not line.true}
        wrong = any(line.on_top and not line.true for lines in results.values() for line in lines)
        yield f"| {sheet.name} | {len(results)} | {len(sheet.lines)} | {len(sheet.lines) - len(false)} | {'false' if wrong else 'right'} |"
    yield "\n## Misses\n\n| sheet | line | why |\n|---|---|---|"
    known = misses()
    for sheet, results in found:
        false = dict.fromkeys(line.name for lines in results.values() for line in lines if not line.true)
        yield from (f"| {sheet.name} | {line} | {known.get(sheet.name, {}).get(line, 'not explained yet')} |" for line in false)
    count = Counter(line.name.split(" ")[0] for lines in traces for line in lines if not line.true)
    yield "\nBy kind of line: " + ", ".join(f"{name} {n}" for name, n in count.most_common()) + "."


def main() -> None:
    named = sys.argv[1:]
    if not TRACES.is_dir():
        sys.stderr.write("the folder of real traces (../shared/traces) is not here\n")
        return
    found = []
    for sheet in sheets():
        if not named or any(name in sheet.name for name in named):
            found.append((sheet, held(sheet, TRACES)))
            sys.stdout.write("\n".join(said(*found[-1])) + "\n")
            sys.stdout.flush()
    if not named:
        (ROOT / "reports" / "expert.md").write_text("\n".join(report(found)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
