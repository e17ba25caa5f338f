"""SQLite exports of Nsight Systems (`nsys export --type sqlite`), every schema version.

Metadata is read with sqlite3, tables of events with ADBC, slice by slice, on two connections where they are large. The file
is opened read-only and nothing is ever written beside it: with a journal or a write-ahead log beside it, a private copy is read.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as adbc
import polars as pl
from msgspec import Struct, field

from diagnose.errors import InputError
from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load.conform import RawTrace, conform
from diagnose.load.files import SQLITE, Reader, private_folder, refused
from diagnose.load.nsys_tables import EVENT_TABLES, META_TABLES, STRINGS, Rows, T, Wanted, damaged, decoded, shaped
from diagnose.load.nsys_trace import build
from diagnose.load.progress import tell
from diagnose.model.ledger import Ledger

_SLICE = 1 << 18  # rows per slice: 20 columns take 40 MB, and there are two slices at a time
_BATCH = 1 << 14  # rows per Arrow batch
_LEAST_ROW = 8  # bytes that any row of an event table takes at least
_CHECK_MEANWHILE = 64 << 20  # bytes from which the page check runs beside the reading, which it takes a quarter of
_TWO_CONNECTIONS = 200_000  # rows from which the second connection pays
_METADATA_SECONDS = 60.0
_SMALL_ROWS = 100_000
_CHUNK_OF_IDS = 20_000
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
# quick_check also reports values of another type than declared; those rows are counted one by one instead.
_VALUE_MESSAGE = re.compile(r"(?:NULL|TEXT|NUMERIC|BLOB|REAL|INT|INTEGER|non-\w+) value in ")

_FAILURES = (adbc_driver_manager.Error, pl.exceptions.PolarsError, pl.exceptions.PanicException)
_DAMAGE = (sqlite3.DatabaseError, OverflowError, UnicodeDecodeError)  # the last: SQLite's message quotes bytes of the schema
_SCARCE = {
    "out of memory": "memory ran out",
    "failed to allocate memory": "memory ran out",
    "unable to open database file": "too many files are open, or the file may not be opened",
}

# A stored real that is a whole number below 2^53 is exact; tables that passed through pandas hold such.
_GUARD = (
    "CASE typeof({c}) WHEN 'integer' THEN {c} WHEN 'real' THEN "
    "CASE WHEN abs({c}) < 9007199254740992 AND {c} = CAST({c} AS INTEGER) THEN CAST({c} AS INTEGER) END END"
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _arrow(uri: str) -> Iterator[adbc.Connection]:
    with adbc.connect(uri, autocommit=True) as connection:
        for pragma in ("trusted_schema=0", "cell_size_check=1", "query_only=1", "ignore_check_constraints=1", "temp_store=2"):
            _query(connection, f"PRAGMA {pragma}")
        yield connection


def _query(connection: adbc.Connection, sql: str, batch: int = 1024) -> pl.DataFrame:
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(batch)})
        cursor.execute(sql)
        return pl.DataFrame(cursor.fetch_arrow())


class SqliteSource(Struct, frozen=True):
    """One SQLite export, opened for reading. `tables_found` maps each real table to its stored columns."""

    name: str
    uri: str
    meta: sqlite3.Connection
    arrow: adbc.Connection
    size: int  # bytes of the database
    tables_found: dict[str, frozenset[str]] = field(default_factory=dict)

    def columns(self, table: str) -> frozenset[str]:
        """Stored columns of a table; empty when it is absent."""
        return self.tables_found.get(table, frozenset())

    def small(self, table: str) -> list[dict[str, object]]:
        """All rows of a small table (the first 100 000 at most), values as stored."""
        names = sorted(self.columns(table))
        if not names:
            return []
        sql = f"SELECT {', '.join(map(_quoted, names))} FROM {_quoted(table)} LIMIT {_SMALL_ROWS}"  # noqa: S608  # quoted
        with _metadata(self.meta, self.name):
            return [dict(zip(names, row, strict=True)) for row in self.meta.execute(sql)]

    def holding(self, table: str, columns: Sequence[str]) -> str | None:
        """The first of `columns` in which any row has a value; one pass over the table where none has."""
        present = [column for column in columns if column in self.columns(table)]
        if not present:
            return None
        filled = [f"{_quoted(column)} IS NOT NULL" for column in present]
        sql = f"SELECT {', '.join(filled)} FROM {_quoted(table)} WHERE {' OR '.join(filled)} LIMIT 1"  # noqa: S608  # quoted
        with _metadata(self.meta, self.name):
            row = self.meta.execute(sql).fetchone()
        return None if row is None else next(column for column, is_filled in zip(present, row, strict=True) if is_filled)

    def strings(self, ids: Sequence[int]) -> tuple[pl.DataFrame, int]:
        """Texts of StringIds for `ids`; only these are read, since the table can hold millions."""
        found = [pl.DataFrame(schema={"id": pl.Int64, "raw": pl.Binary})]
        if {"id", "value"} <= self.columns(STRINGS):
            for first in range(0, len(ids), _CHUNK_OF_IDS):
                listed = ",".join(map(str, ids[first : first + _CHUNK_OF_IDS]))
                sql = (
                    f"SELECT id, coalesce(CAST(value AS BLOB), x'') AS raw FROM {STRINGS} "  # noqa: S608  # whole numbers
                    f"WHERE typeof(id) = 'integer' AND id IN ({listed})"
                )
                found.append(self._fetch(self.arrow, sql, _CHUNK_OF_IDS).cast({"id": pl.Int64, "raw": pl.Binary}))
        joined = pl.concat(found).unique("id", keep="first", maintain_order=True)
        texts, bad = decoded(joined["raw"])
        return pl.DataFrame({"id": joined["id"], "text": texts}), bad

    def rows(self, table: str, wanted: Wanted, mapper: Callable[[pl.DataFrame], T]) -> Rows[T]:
        """Slices of a table, see `nsys_tables.Source.rows`."""
        clauses, total = self._slices(table)
        if total < _TWO_CONNECTIONS or len(clauses) < 2:
            done = []
            for clause in clauses:
                done.append(self._part(self.arrow, table, wanted, clause, mapper))
                tell(sum(read for _, read, _, _ in done), total, f"rows of {table}")
        else:
            with ThreadPoolExecutor(max_workers=2) as pool:
                halves = list(pool.map(lambda own: self._worker(table, wanted, own, mapper), (clauses[0::2], clauses[1::2])))
            done = [halves[index % 2][index // 2] for index in range(len(clauses))]
        return Rows(
            parts=tuple(part for part, *_ in done),
            read=sum(read for _, read, _, _ in done),
            wrong_type=sum(wrong for _, _, wrong, _ in done),
            bad_text=sum(bad for *_, bad in done),
        )

    def _worker(
        self, table: str, wanted: Wanted, clauses: Sequence[str], mapper: Callable[[pl.DataFrame], T]
    ) -> list[tuple[T, int, int, int]]:
        with _arrow(self.uri) as connection:
            done = []
            for place, clause in enumerate(clauses):
                done.append(self._part(connection, table, wanted, clause, mapper))
                tell(place + 1, len(clauses), f"parts of {table}")
            return done

    def _slices(self, table: str) -> tuple[list[str], int]:
        """WHERE clauses that cut a large table into ranges of row ids, and about how many rows it has (0: not cut)."""
        named = {name.lower() for name in self.columns(table)}
        rowid = next((name for name in ("_rowid_", "oid", "rowid") if name not in named), None)
        if rowid is None:
            return [""], 0
        with _metadata(self.meta, self.name):
            try:
                # one aggregate a query: SQLite then reads the ends of the tree, not the whole table
                ends = f"SELECT (SELECT min({rowid}) FROM {_quoted(table)}), (SELECT max({rowid}) FROM {_quoted(table)})"  # noqa: S608
                first, last = self.meta.execute(ends).fetchone()
            except sqlite3.OperationalError:  # a table WITHOUT ROWID
                return [""], 0
        if first is None or not _SLICE < last - first + 1 <= self.size // _LEAST_ROW:  # sparse row ids would make slices without rows
            return [""], 0
        slices = [f" WHERE {rowid} BETWEEN {low} AND {min(low + _SLICE - 1, last)}" for low in range(first, last + 1, _SLICE)]
        return slices, last - first + 1

    def _part(
        self, connection: adbc.Connection, table: str, wanted: Wanted, clause: str, mapper: Callable[[pl.DataFrame], T]
    ) -> tuple[T, int, int, int]:
        present = {name: kind for name, kind in wanted.items() if name in self.columns(table)}
        frame = self._plain(connection, table, present, clause)
        wrong = 0
        if frame is None:
            frame = self._fetch(connection, self._select(table, present, clause, guarded=True), _BATCH)
            is_bad = frame["_bad"] != 0
            wrong = int(is_bad.sum())
            frame = frame.filter(~is_bad).drop("_bad")
        read, bad_text = frame.height + wrong, 0
        for name, kind in present.items():
            if kind == "text":
                values, bad = decoded(frame[name])
                frame, bad_text = frame.with_columns(values.alias(name)), bad_text + bad
            elif kind == "bytes":
                frame = frame.with_columns(pl.when(pl.col(name).bin.size() > 0).then(pl.col(name)))
        present_types = {name: pl.Float64 if kind == "real" else pl.Int64 for name, kind in present.items() if kind in ("int", "real")}
        frame = frame.cast(present_types)  # type: ignore[arg-type]  # an empty table has columns of type Null
        return mapper(shaped(frame, wanted)), read, wrong, bad_text

    def _plain(self, connection: adbc.Connection, table: str, present: Wanted, clause: str) -> pl.DataFrame | None:
        """The slice as stored; None where a whole-number column holds anything else, which ADBC tells by failing or by its type."""
        try:
            frame = _query(connection, self._select(table, present, clause, guarded=False), _BATCH)
        except _FAILURES:
            return None
        integers = (name for name, kind in present.items() if kind == "int")
        return frame if all(frame.schema[name] in (pl.Int64, pl.Null) for name in integers) else None

    def _select(self, table: str, present: Wanted, clause: str, *, guarded: bool) -> str:
        columns, bad = [], []
        for name, kind in present.items():
            column = _quoted(name)
            if kind == "int" and guarded:
                guard = _GUARD.format(c=column)
                columns.append(f"{guard} AS {column}")
                bad.append(f"({column} IS NOT NULL AND {guard} IS NULL)")
            elif kind == "int":
                columns.append(column)
            elif kind == "real":
                # never null, so that the first batch already has the right type; infinity is refused as a missing value
                columns.append(f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN CAST({column} AS REAL) ELSE 9e999 END AS {column}")
            else:
                columns.append(f"coalesce(CAST({column} AS BLOB), x'') AS {column}")
        if guarded:
            columns.append(f"({' OR '.join(bad) or '0'}) AS _bad")
        return f"SELECT {', '.join(columns) or 'NULL AS _none'} FROM {_quoted(table)}{clause}"  # noqa: S608  # quoted

    def _fetch(self, connection: adbc.Connection, sql: str, batch: int) -> pl.DataFrame:
        try:
            return _query(connection, sql, batch)
        except _FAILURES as error:
            raise unreadable(self.name, error) from None


def unreadable(name: str, error: BaseException) -> InputError:
    """That the export is damaged, in the database's own words without quotes of its content; or what the machine lacks to read it."""
    said = str(error)
    scarce = next(
        (reason for words, reason in _SCARCE.items() if words in said), "memory ran out" if isinstance(error, MemoryError) else ""
    )
    if scarce:
        return InputError(
            f"{name} could not be read: {scarce}.",
            effect="Nothing was analysed; nothing is known to be wrong with the file.",
            next_step="Raise the limits of this process (ulimit -v, ulimit -n), or use a machine with more memory.",
        )
    known = ("malformed", "not a database", "encrypted", "disk I/O error", "no such", "too big", "interrupted")
    reasons = (word if word != "malformed" else "its pages are malformed" for word in known if word in said)
    return damaged(name, next(reasons, "a table cannot be read"))


@contextmanager
def _metadata(connection: sqlite3.Connection, name: str) -> Iterator[None]:
    """Statements inside must finish in a minute: an export made to run for ever is refused."""
    deadline = time.monotonic() + _METADATA_SECONDS
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 100_000)
    try:
        yield
    except (*_DAMAGE, MemoryError) as error:
        raise unreadable(name, error) from None
    finally:
        connection.set_progress_handler(None, 0)


def _discover(connection: sqlite3.Connection, name: str) -> dict[str, frozenset[str]]:
    """Real tables and their stored columns: no views, no virtual tables, no computed columns."""
    found: dict[str, frozenset[str]] = {}
    with _metadata(connection, name):
        listed = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
        )
        for table in [row[0] for row in listed if isinstance(row[0], str)]:
            columns = connection.execute(f"PRAGMA table_xinfo({_quoted(table)})").fetchall()
            found[table] = frozenset(column[1] for column in columns if column[6] == 0)
    return found


def _views(connection: sqlite3.Connection, name: str) -> list[str]:
    """Views under the names of tables of events: what they show may never end, and is not read."""
    with _metadata(connection, name):
        return [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'") if row[0] in EVENT_TABLES]


def _check_pages(uri: str, name: str) -> None:
    """Refuse a database with damaged pages, by SQLite's own check on a connection of its own."""
    try:
        with _arrow(uri) as connection:
            messages = _query(connection, "PRAGMA quick_check").to_series().to_list()
    except _FAILURES as error:
        raise unreadable(name, error) from None
    faults = [message for message in messages if not isinstance(message, str) or (message != "ok" and not _VALUE_MESSAGE.match(message))]
    if faults:
        raise damaged(name, f"SQLite's own check finds {len(faults)} fault{'s' if len(faults) > 1 else ''} in it")


def _check_tables(source: SqliteSource) -> None:
    """Refuse a database that is no export of Nsight Systems."""
    tables = source.tables_found.keys()
    if not tables:
        raise refused(
            f"{source.name} is a SQLite database without any table.",
            "If a file of its name that ends in -wal lies beside the original, the tables are in that: copy both.",
        )
    if any(name.startswith("rocpd_") for name in tables):
        raise refused(
            f"{source.name} is a database of AMD's rocprofv3 (rocpd), which is not read here.",
            "Capture with torch.profiler, which works on AMD too: prof.export_chrome_trace(path).",
        )
    if not tables & {*EVENT_TABLES, *META_TABLES}:
        raise refused(
            f"{source.name} is a SQLite database, but not an export of Nsight Systems.",
            "Give the file that nsys export --type sqlite wrote.",
        )
    if "StringTable" in tables and STRINGS not in tables:
        raise refused(
            f"{source.name} is a trace of nvprof or the Visual Profiler, whose tables differ.",
            "Capture with Nsight Systems: nsys profile --trace=cuda,nvtx COMMAND.",
        )
    if not tables & set(EVENT_TABLES) and not any(name.startswith("TARGET_INFO_") for name in tables):
        raise refused(
            f"{source.name} holds no tables of events: such a file is left behind by an export that failed.",
            "Export the report again with an nsys at least as new as the one that captured it, and read its messages.",
        )


def _header(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(100)
    except OSError as error:
        raise refused(f"{path.name} cannot be read: {error.strerror}.", "Check the path and its permissions.") from None


def _refuse_cut(path: Path, name: str) -> None:
    """Refuse a file that ends before its last page does: SQLite would read the missing bytes as zero."""
    header, size = _header(path), path.stat().st_size
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    is_count_valid = header[24:28] == header[92:96]
    missing = int.from_bytes(header[28:32], "big") * page - size if is_count_valid else 0
    if len(header) < 100 or page < 512 or size % page or missing > 0:
        raise damaged(name, "it ends before its content does" if page >= 512 else "its header is not that of a database")


def _names_other_database(journal: Path) -> bool:
    """True for a journal of a transaction over several databases; playing it back could delete a file that it names."""
    size = journal.stat().st_size
    with journal.open("rb") as file:
        file.seek(max(0, size - 8))
        return file.read(8) == _JOURNAL_MAGIC and size > 512


def _private_copy(path: Path, sidecars: Sequence[Path], folder: Path) -> Path:
    """The database with its journal or log applied, in `folder`; the originals stay as they are."""
    copy = folder / "export.sqlite"
    if any(item.name.endswith("-journal") and _names_other_database(item) for item in sidecars):
        raise damaged(path.name, "its journal belongs to a transaction over several databases")
    try:
        shutil.copyfile(path, copy)
        for item in sidecars:
            if not item.name.endswith("-shm"):
                shutil.copyfile(item, copy.with_name(copy.name + item.name[len(path.name) :]))
        with closing(sqlite3.connect(copy, timeout=5, isolation_level=None)) as connection:
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except OSError as error:
        raise refused(
            f"{path.name} cannot be copied to a private folder: {error.strerror}.",
            "Free space in the temporary folder, or close the program that writes the file.",
        ) from None
    except _DAMAGE as error:
        raise unreadable(path.name, error) from None
    return copy


def read(path: Path, *, rank: int | None = None, rules: EnvironmentRules | None = None) -> RawTrace:
    """One SQLite export as raw tables.

    `rank` names the global rank of the process with GPU work (of several, the first by process id; the others count on from it).
    `rules` say what may be taken out of the environment (without them nothing is).
    Raises InputError for a foreign or damaged database.
    """
    name = path.name
    ledger = Ledger()
    header = _header(path)
    sidecars = [item for suffix in ("-wal", "-journal", "-shm") if (item := path.with_name(path.name + suffix)).is_file()]
    with ExitStack() as stack:
        place = path
        if sidecars or header[18:20] == b"\x02\x02":  # the latter: write-ahead mode, where even reading creates files
            place = _private_copy(path, sidecars, stack.enter_context(private_folder()))
            ledger = ledger.note("copied_sidecar", "all", max(1, len(sidecars)))
        _refuse_cut(place, name)
        uri = place.resolve().as_uri() + "?mode=ro"
        try:
            meta = stack.enter_context(closing(sqlite3.connect(uri, uri=True, check_same_thread=False)))
            meta.text_factory = lambda raw: raw.decode(errors="replace")
            for pragma in ("trusted_schema = 0", "cell_size_check = 1", "query_only = 1"):
                meta.execute(f"PRAGMA {pragma}")
            arrow = stack.enter_context(_arrow(uri))
        except (*_DAMAGE, MemoryError, *_FAILURES) as error:
            raise unreadable(name, error) from None
        source = SqliteSource(name, uri, meta, arrow, place.stat().st_size, _discover(meta, name))
        with ThreadPoolExecutor(max_workers=1) as pool:
            check = pool.submit(_check_pages, uri, name)
            if source.size < _CHECK_MEANWHILE:
                check.result()
            _check_tables(source)
            for view in _views(meta, name):
                ledger = ledger.note("ignored_view", view)
            try:
                return build(source, file=name, size=path.stat().st_size, format_="nsys-sqlite", rank=rank, ledger=ledger, rules=rules)
            finally:
                check.result()  # nothing leaves here before the check has passed; its error goes before any that the damage caused


def start(path: Path) -> int | None:
    """Start of the capture in ns since 1970, as the export tells it; None where it does not."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1").fetchone()
    return row[0] if row and isinstance(row[0], int) and row[0] > 0 else None


READER = Reader(
    name="nsys-sqlite",
    recognises=lambda given: given.head.startswith(SQLITE),
    load=lambda path, rank, _nsys, rules: conform(read(path, rank=rank, rules=rules)),
    start=start,
)
