"""The ledger of data quality: what was read, what was refused, and why.

The list of codes is closed. For every table, rows read = rows kept + the sum of the codes that refuse rows;
`Ledger.check` enforces it, so that nothing can be dropped in silence.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

Severity = Literal["info", "notice", "data_loss", "error"]
Origin = Literal["capture", "analysis"]

SEVERITIES: tuple[Severity, ...] = ("info", "notice", "data_loss", "error")


class Code(Struct, frozen=True, kw_only=True):
    """One kind of entry: what happened, what it does to the result, what to do."""

    name: str
    severity: Severity
    origin: Origin
    meaning: str
    refuses: bool = False  # True: the counted rows are not part of the analysis


def _codes(severity: Severity, origin: Origin, *, refuses: bool = False, **meanings: str) -> dict[str, Code]:
    """Codes of one severity and origin, by name."""
    return {name: Code(name=name, severity=severity, origin=origin, meaning=text, refuses=refuses) for name, text in meanings.items()}


CODES: dict[str, Code] = {
    **_codes(
        "data_loss",
        "analysis",
        refuses=True,
        missing_time="Rows without an integer start or end. They are left out of every figure; export the trace again.",
        negative_duration=(
            "Rows that end before they start. They are left out of every figure; the profiler's clock jumped or the file was edited."
        ),
        endless_row=(
            "Device operations that would last on for longer than the whole capture although others followed on their stream. They are left "
            "out of every figure; their end was recorded wrongly."
        ),
        stray_row=(
            "Rows more than a day away from the others of their table. They are left out of every figure; their times were recorded wrongly."
        ),
        wrong_type=(
            "Rows with a value of the wrong type in a column that the analysis needs. They are left out; the file was edited or damaged."
        ),
        no_device=(
            "Device operations that do not tell their device, beside others that do. Whose time they take is not known, so they are left "
            "out of every figure; the file was edited or damaged."
        ),
        undecodable_event=(
            "Events that are not valid JSON objects of the expected shape. They are left out; the file was edited or damaged."
        ),
    ),
    **_codes(
        "notice",
        "analysis",
        refuses=True,
        repeated_row=(
            "Device operations or API calls that stand in the file again, equal in every column. Each is counted once; the file was joined "
            "from parts that overlap, or edited."
        ),
    ),
    **_codes(
        "info",
        "analysis",
        refuses=True,
        not_needed="Events of a kind that no measure uses (flow arrows, span markers, empty names). Nothing is lost.",
        outside_time_range="Rows outside the time range that was asked for.",
    ),
    **_codes(
        "data_loss",
        "capture",
        cut_file=(
            "The file ends before its content does. Everything up to the cut is analysed; what came later is unknown. Write the trace "
            "again, or copy it again."
        ),
    ),
    **_codes(
        "data_loss",
        "analysis",
        ignored_view=(
            "A view stands in the place of a table of events. Views are not read, so what it shows is missing; export the report again."
        ),
        further_content=(
            "The file goes on after its trace ends, as two traces written one behind the other do. Only the first is analysed; split the "
            "file to have the rest."
        ),
    ),
    **_codes(
        "notice",
        "capture",
        unknown_name=(
            "Rows whose name is not in the export's string table. They are kept under a placeholder name and can't be classified by name;"
            " export without --tables."
        ),
        bad_text="Texts that are not valid UTF-8. The bad bytes are shown as a replacement sign; times are unaffected.",
    ),
    **_codes(
        "info",
        "capture",
        open_range="Ranges that never ended inside the capture. They are kept as lasting to the end of the capture.",
        zero_duration="Device operations that last 0 ns at the trace's resolution. They are counted, and add no time.",
        no_launch=(
            "Device operations whose launching API call was not recorded. They have no issue time, so a gap before them can't be called "
            "launch-starved."
        ),
        missing_table="A table that this export does not hold. The facts that need it are null.",
    ),
    **_codes(
        "notice",
        "capture",
        opaque_graph=(
            "CUDA graph executions traced as a whole: the kernels inside are unknown and count as compute in the bucket other. Capture "
            "with --cuda-graph-trace=node to see inside."
        ),
        no_copies=(
            "Calls for copies, none of which the capture holds. Waiting for copies is not known, nor what memory holds up; export with all "
            "tables."
        ),
        moved_clock=(
            "Device operations whose times contradict the CPU's: they start before the calls that launch them, or end after the CPU had "
            "waited for them. All of that device's were moved by the least that ends the contradiction; durations are unaffected."
        ),
        clocks_disagree=(
            "Device operations of which some start before their launch and others end after the CPU had waited for them: no one shift "
            "mends that. They are left as they are; what is said of waiting for the CPU may be wrong. Capture again, for a shorter time."
        ),
        duplicate_launch="API calls that share process and correlation id with another. The one that ends last counts as the launch.",
        profiler_warning="Warnings that the profiler itself recorded while capturing. --section capture shows its words.",
    ),
    **_codes(
        "error",
        "capture",
        profiler_error=(
            "Errors that the profiler itself recorded while capturing. Parts of the capture may be missing; --section capture shows its "
            "words."
        ),
    ),
    **_codes(
        "data_loss",
        "capture",
        dropped_by_profiler=(
            "Records that the profiler says it dropped. Work is missing from the trace: shorten the capture or raise the profiler's "
            "buffers."
        ),
    ),
    **_codes(
        "info",
        "analysis",
        copied_sidecar=(
            "A -wal or -journal file lay beside the database. Both were copied to a private folder and read there; the originals are "
            "untouched."
        ),
        sibling_export="An export newer than the report lay beside it and was read instead of exporting again.",
        exported="The report was exported with nsys to a private folder and read from there.",
    ),
    **_codes(
        "data_loss",
        "analysis",
        refused_input=(
            "Inputs that can't be analysed, among several that can. Nothing of them is in the result; the reason stands beside it."
        ),
    ),
    **_codes(
        "info",
        "analysis",
        ignored_file="Files of a folder that are no trace, or that another input stands for. Nothing of them is in the result.",
    ),
    **_codes(
        "notice",
        "analysis",
        assigned_rank=(
            "Processes for which the trace does not tell the global rank. They are numbered in order of process id; give --rank to name "
            "them."
        ),
        renumbered_rank=(
            "Inputs that claim a rank which another input already has. They got a free number; check that no file was given twice."
        ),
        implausible_span=(
            "The capture spans less than 1 µs or more than 24 h. The unit of the times may be wrong; check a known kernel's duration."
        ),
    ),
    **_codes(
        "info",
        "analysis",
        merged_classes=(
            "More distinct classes of work ran than the sweep holds apart. The smallest were merged without their backend; times are "
            "unaffected."
        ),
    ),
}


class Entry(Struct, frozen=True, kw_only=True):
    """`count` occurrences of `code` in `table`; `detail` is shown beside it (never a path or host name)."""

    code: str
    table: str
    count: int
    detail: str = ""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code!r} is not a ledger code")

    @property
    def severity(self) -> Severity:
        """Severity of the entry's code."""
        return CODES[self.code].severity


class TableRows(Struct, frozen=True, kw_only=True):
    """How many rows of one foreign table were read and how many became part of the Trace."""

    table: str
    read: int
    kept: int


class Ledger(Struct, frozen=True):
    """Entries and row counts of one or several inputs. Immutable; `+` joins two ledgers."""

    entries: tuple[Entry, ...] = ()
    rows: tuple[TableRows, ...] = field(default=())

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(self.entries + other.entries, self.rows + other.rows).folded()

    def note(self, code: str, table: str, count: int = 1, detail: str = "") -> Ledger:
        """This ledger with one more entry; unchanged when `count` is 0."""
        if count == 0:
            return self
        return Ledger((*self.entries, Entry(code=code, table=table, count=count, detail=detail)), self.rows)

    def table(self, table: str, *, read: int, kept: int) -> Ledger:
        """This ledger with the row counts of one table added."""
        return Ledger(self.entries, (*self.rows, TableRows(table=table, read=read, kept=kept)))

    def folded(self) -> Ledger:
        """Entries of the same code, table and detail summed, in a stable order; likewise the rows."""
        entries: dict[tuple[str, str, str], int] = {}
        for entry in self.entries:
            key = (entry.code, entry.table, entry.detail)
            entries[key] = entries.get(key, 0) + entry.count
        rows: dict[str, tuple[int, int]] = {}
        for row in self.rows:
            read, kept = rows.get(row.table, (0, 0))
            rows[row.table] = (read + row.read, kept + row.kept)
        rank = {severity: index for index, severity in enumerate(reversed(SEVERITIES))}
        order = sorted(entries, key=lambda key: (rank[CODES[key[0]].severity], key))
        return Ledger(
            tuple(Entry(code=code, table=table, count=entries[code, table, detail], detail=detail) for code, table, detail in order),
            tuple(TableRows(table=table, read=rows[table][0], kept=rows[table][1]) for table in sorted(rows)),
        )

    def check(self) -> None:
        """Raise AssertionError unless rows read = kept + refused for every table."""
        refused: dict[str, int] = {}
        for entry in self.entries:
            if CODES[entry.code].refuses:
                refused[entry.table] = refused.get(entry.table, 0) + entry.count
        for row in self.folded().rows:
            if row.read != row.kept + refused.get(row.table, 0):
                raise AssertionError(f"{row.table}: read {row.read} ≠ kept {row.kept} + refused {refused.get(row.table, 0)}")
