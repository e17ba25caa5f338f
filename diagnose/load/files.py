"""What a reader of one profiler format is, by which first bytes it recognises its inputs, and what an input is that no reader takes."""

from __future__ import annotations

import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from diagnose.errors import InputError, MissingInputError
from diagnose.knowledge.environment import EnvironmentRules
from diagnose.model.trace import Trace

_HEAD = 64 * 1024
SQLITE = b"SQLite format 3\0"
REPORT = b"NVIDIA Tegra Profiler Report"
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_EXPORT = "Export it again with: nsys export --type sqlite --output {stem}.sqlite REPORT.nsys-rep"
NOTHING = "Nothing was analysed."
TORCH = "Give a trace that torch.profiler wrote (prof.export_chrome_trace), or an Nsight Systems report or SQLite export."


class Opening(Struct, frozen=True, kw_only=True):
    """How an input begins: `head` are its first bytes (empty for a folder), `body` those of the one file that it packs, else the same."""

    path: Path
    is_folder: bool = False
    head: bytes = b""
    body: bytes = b""

    @property
    def is_packed(self) -> bool:
        """Whether gzip or zip packs the file."""
        return self.body != self.head

    @property
    def is_json(self) -> bool:
        """Whether the file, unpacked, may be JSON of a profiler: none of the JSON that is known to be something else."""
        return json_start(self.body) is not None and foreign_json(self) is None


class _Foreign(Struct, frozen=True):
    """A format that is recognised and not read: `what` completes "NAME is …"."""

    what: str
    next_step: str
    matches: Callable[[bytes, str], bool]


def _starts(*magic: bytes) -> Callable[[bytes, str], bool]:
    return lambda head, _name: head.startswith(magic)


def _is_perfetto(head: bytes, name: str) -> bool:
    """A serialised perfetto.protos.Trace is a run of TracePackets: field 1, length-delimited, each a few kB."""
    return name.endswith((".pftrace", ".perfetto-trace")) or (
        head[:1] == b"\x0a" and head.lstrip()[:1] not in (b"{", b"[") and not is_text(head)
    )


def is_text(head: bytes) -> bool:
    """Whether bytes look like text."""
    return b"\0" not in head and sum(byte < 9 for byte in head[:2048]) == 0


_UNPACK = "Unpack it first, then give the trace inside."
_FOREIGN = (
    _Foreign(
        "an Nsight Systems raw stream (.qdstrm) that was never imported",
        "Import it where Nsight Systems is installed: QdstrmImporter -i {name}, then give the .nsys-rep.",
        lambda head, _: b"NVIDIA Nsight Systems Stream" in head[:64],
    ),
    _Foreign(
        "an Nsight Compute report, which holds single kernels and no timeline",
        "Capture a timeline: nsys profile --trace=cuda,nvtx COMMAND.",
        lambda head, name: head.startswith(b"NVR\0") or name.endswith(".ncu-rep"),
    ),
    _Foreign("an HDF5 file, such as nsys export --type hdf writes", _EXPORT, _starts(b"\x89HDF\r\n\x1a\n")),
    _Foreign("an Arrow file, such as nsys export --type arrow writes", _EXPORT, _starts(b"ARROW1", b"\xff\xff\xff\xff")),
    _Foreign(
        "one Parquet file, which is one table only", "Give the whole folder that nsys export --type parquetdir wrote.", _starts(b"PAR1")
    ),
    _Foreign(
        "compressed with Zstandard, bzip2, xz, lz4 or 7-Zip",
        _UNPACK,
        _starts(b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c"),
    ),
    _Foreign("a tar archive", _UNPACK, lambda head, _: head[257:262] == b"ustar"),
    _Foreign(
        "a Python pickle, such as torch.cuda.memory._dump_snapshot writes; pickles are never opened, since they can run code",
        TORCH,
        lambda head, _: head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05",
    ),
    _Foreign(
        "a Git LFS pointer, not the file that it stands for", "Fetch the file with: git lfs pull", _starts(b"version https://git-lfs")
    ),
    _Foreign(
        "a web page",
        "Download the trace itself, not the page that shows it.",
        lambda head, _: head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")),
    ),
    _Foreign(
        "text in UTF-16, as PowerShell's > writes it",
        "Convert it to UTF-8, or let the profiler write the file itself.",
        _starts(b"\xff\xfe", b"\xfe\xff"),
    ),
    _Foreign("an nsys text export", _EXPORT, lambda head, _: head.startswith(b'data: "')),
    _Foreign(
        "a table of nsys stats, which holds sums and no timeline", _EXPORT, lambda head, _: b"Time (%)" in head[:4096] and is_text(head)
    ),
    _Foreign("a Perfetto protobuf trace", TORCH, _is_perfetto),
)


def refused(what: str, next_step: str) -> InputError:
    """The error for an input of which nothing was analysed, in two sentences."""
    return InputError(what, effect=NOTHING, next_step=next_step)


def _refuse(path: Path, what: str, next_step: str) -> InputError:
    return refused(f"{path.name} is {what}.", next_step.format(name=path.name, stem=path.stem))


def _read_head(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise refused(f"{path.name} is not a regular file.", "Copy the trace to a file first.")
        with path.open("rb") as file:
            return file.read(_HEAD)
    except FileNotFoundError:
        raise MissingInputError(f"{path.name} does not exist.", effect=NOTHING, next_step="Check the path.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "the path cannot be used"
        raise refused(f"{path.name} cannot be read: {reason}.", "Check the path and its permissions.") from None


def is_parquet_folder(path: Path) -> bool:
    """True for a folder that `nsys export --type parquetdir` wrote: one Parquet file per table."""
    return path.is_dir() and any(
        item.suffix == ".parquet"
        and (item.stem.startswith(("CUPTI_ACTIVITY_", "META_DATA_", "NVTX_", "TARGET_INFO_")) or item.stem == "StringIds")
        for item in path.iterdir()
    )


def opening(path: Path) -> Opening:
    """How the input at `path` begins. Raises InputError for what can't be read, holds nothing, or is packed otherwise than traces are."""
    try:
        if path.is_dir():
            return Opening(path=path, is_folder=True)
    except (OSError, ValueError):
        pass  # reading says what is wrong with the path
    head = _read_head(path)
    if not head:
        raise _refuse(path, "an empty file", "Capture or export it again; a full disk leaves such files.")
    if not head.strip(b"\0"):
        raise _refuse(path, "filled with zero bytes, as an interrupted copy leaves it", "Copy or export it again.")
    if head.startswith(b"\x1f\x8b"):
        return Opening(path=path, head=head, body=_gzip_body(path, head))
    if head.startswith(b"PK\x03\x04"):
        return Opening(path=path, head=head, body=_zip_body(path))
    return Opening(path=path, head=head, body=head)


def _gzip_body(path: Path, head: bytes) -> bytes:
    try:
        body = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except zlib.error:
        raise _refuse(path, "a damaged gzip file", "Copy or write the trace again.") from None
    if body.startswith((SQLITE, REPORT)) or body[257:262] == b"ustar":
        raise _refuse(path, "a gzip-compressed database, report or archive", f"{_UNPACK} (gunzip {{name}})")
    if not body:
        raise _refuse(path, "a gzip file with nothing inside, or cut at its beginning", "Copy or write the trace again.")
    return body


def _zip_body(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [item for item in archive.infolist() if not item.is_dir()]
            if len(members) != 1:
                raise _refuse(path, f"a zip archive of {len(members)} files", "Unpack it and give the folder.")
            if members[0].flag_bits & 1:
                raise _refuse(path, "an encrypted zip archive", _UNPACK)
            with archive.open(members[0]) as file:
                body = file.read(_HEAD)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError):
        raise _refuse(path, "a damaged or unusual zip archive", _UNPACK) from None
    if body.lstrip()[:1] not in (b"{", b"["):
        raise _refuse(path, "a zip archive of something that is not a JSON trace", _UNPACK)
    return body


# An object begins with a key or ends, a list of events with an event or ends: a bracket alone begins TOML, YAML and much else too.
_JSON_BEGINS = re.compile(rb"\{\s*(?:[\"}]|$)|\[\s*(?:[{\]]|$)")


def json_start(body: bytes) -> bytes | None:
    """The text from the first bracket on; None where a file does not begin as JSON of events does."""
    text = body.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text if _JSON_BEGINS.match(text) else None


def foreign_json(given: Opening) -> InputError | None:
    """What JSON is that no reader takes."""
    body = json_start(given.body) or b""
    if re.match(rb'\{\s*"data"\s*:\s*\[', body):
        return _refuse(given.path, "an nsys JSON export (raw events, one per line), whose fields differ by version", _EXPORT)
    if re.match(rb'\{\s*"(?:VmSystemInformation|FileHeader)', body):
        return _refuse(given.path, "an nsys info export, which holds the report's header only", _EXPORT)
    if re.match(rb'\{\s*"schema"\s*:\s*"[a-z]+/\d+"', body):
        return _refuse(given.path, "a result that diagnose itself wrote, not a trace", "Show it with: diagnose render {name}")
    if b'"traceEvents"' not in body and re.match(rb'\{\s*"schema"\s*:\s*"', body) and b'"nodes"' in body:
        return _refuse(given.path, "a PyTorch execution trace (operators and their inputs), which has no times", TORCH)
    return None


def foreign_file(given: Opening) -> InputError | None:
    """What a file is whose format is known and not read."""
    found = next((one for one in _FOREIGN if one.matches(given.body, given.path.name)), None)
    return None if found is None else _refuse(given.path, found.what, found.next_step)


def may_be_report(given: Opening) -> bool:
    """Whether a file may be a report of a newer Nsight Systems, which may begin otherwise: nsys itself will tell."""
    return given.path.suffix in REPORT_SUFFIXES and not given.is_packed and not is_text(given.body) and foreign_file(given) is None


def refusal(given: Opening) -> InputError:
    """The error for an input that no reader takes: what it is, and what to give instead."""
    if given.is_folder:
        return _refuse_folder(given.path)
    if json_start(given.body) is not None:
        return foreign_json(given) or _refuse(given.path, "JSON of no profiler that is known here", TORCH)
    foreign = foreign_file(given)
    if foreign is not None:
        return foreign
    if given.is_packed and given.path.suffix in REPORT_SUFFIXES and not is_text(given.body):
        return _refuse(given.path, "a gzip-compressed file that is not JSON", TORCH)
    if is_text(given.body):
        return _refuse(given.path, "a text file, not a trace", TORCH)
    return _refuse(given.path, "in no format that is known here (an encrypted or damaged database looks like this too)", TORCH)


def _arrow_folder(path: Path) -> InputError | None:
    if any(item.suffix == ".arrow" for item in path.iterdir()):
        return _refuse(path, "a folder of Arrow files, as nsys export --type arrowdir writes", _EXPORT)
    return None


def folder_without_traces(path: Path, others: int) -> InputError:
    """The error for a folder in which no file is a trace; `others`: how many files it holds."""
    seen = f" ({others} other {'file' if others == 1 else 'files'})" if others else ""
    return _arrow_folder(path) or refused(f"The folder {path.name} holds no trace{seen}.", TORCH)


def _refuse_folder(path: Path) -> InputError:
    try:
        arrow = _arrow_folder(path)
    except OSError as error:
        return unreadable_folder(path, error)
    return arrow or _refuse(
        path, "a folder without the tables of an nsys Parquet export", "Give the traces in it, or a folder that holds traces."
    )


def unreadable_folder(path: Path, error: OSError) -> InputError:
    """The error for a folder that can't be listed."""
    return refused(f"The folder {path.name} cannot be read: {error.strerror}.", "Check its permissions.")


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter (mode 0700); removed with its content at the end."""
    with tempfile.TemporaryDirectory(prefix="diagnose-") as name:
        yield Path(name)


class Reader(Struct, frozen=True, kw_only=True):
    """One format of traces. `name` is what a trace's provenance calls it.

    `load(path, rank, nsys, rules)` reads one: `rank` names the global rank where the trace does not tell it, `nsys` is the program that
    exports a report, `rules` say what of the environment may be taken out (None: nothing). It raises InputError. `start` tells when the
    capture began, in ns since 1970, from a few bytes of it; None where it does not. It may raise what a damaged file makes of it (OSError,
    ValueError and the like).
    """

    name: str
    recognises: Callable[[Opening], bool]
    load: Callable[[Path, int | None, Path | None, EnvironmentRules | None], Trace]
    start: Callable[[Path], int | None]
