"""What a given path is, told by its content, and which traces a folder or pattern holds.

`sniff` names the reader for one input or says in a sentence what the input is instead. `expand` turns the paths of the
command line into a stable list of inputs. Nothing here parses a trace.
"""

from __future__ import annotations

import enum
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diagnose.errors import InputError, MissingInputError

_HEAD = 64 * 1024
_SQLITE = b"SQLite format 3\0"
_REPORT = b"NVIDIA Tegra Profiler Report"
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_SIDECARS = ("-wal", "-shm", "-journal")
_EXPORT = "Export it again with: nsys export --type sqlite --output {stem}.sqlite REPORT.nsys-rep"
_NOTHING = "Nothing was analysed."
_TORCH = "Give a trace that torch.profiler wrote (prof.export_chrome_trace), or an Nsight Systems report or SQLite export."


class Kind(enum.Enum):
    """The readers. The PyTorch kinds differ only in how the one JSON document is packed."""

    NSYS_SQLITE = "nsys-sqlite"
    NSYS_PARQUET = "nsys-parquet"
    NSYS_REPORT = "nsys-report"
    TORCH_JSON = "torch-json"
    TORCH_JSON_GZIP = "torch-json-gzip"
    TORCH_JSON_ZIP = "torch-json-zip"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Traces in a stable order, and what a folder held besides: (bare name, reason)."""

    traces: tuple[Path, ...]
    ignored: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Foreign:
    """A format that is recognised and not read: `what` completes "NAME is …"."""

    what: str
    next_step: str
    matches: Callable[[bytes, str], bool]


def _starts(*magic: bytes) -> Callable[[bytes, str], bool]:
    return lambda head, _name: head.startswith(magic)


def _named(*suffixes: str) -> Callable[[bytes, str], bool]:
    return lambda _head, name: name.endswith(suffixes)


def _is_perfetto(head: bytes, name: str) -> bool:
    """A serialised perfetto.protos.Trace is a run of TracePackets: field 1, length-delimited, each a few kB."""
    return name.endswith((".pftrace", ".perfetto-trace")) or (
        head[:1] == b"\x0a" and head.lstrip()[:1] not in (b"{", b"[") and not _is_text(head)
    )


def _is_text(head: bytes) -> bool:
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
        _TORCH,
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
    _Foreign("an nsys text export", _EXPORT, lambda head, _: head.startswith(b'data: "')),
    _Foreign(
        "a table of nsys stats, which holds sums and no timeline", _EXPORT, lambda head, _: b"Time (%)" in head[:4096] and _is_text(head)
    ),
    _Foreign("a Perfetto protobuf trace", _TORCH, _is_perfetto),
)


def _refuse(path: Path, what: str, next_step: str) -> InputError:
    return InputError(f"{path.name} is {what}.", effect=_NOTHING, next_step=next_step.format(name=path.name, stem=path.stem))


def _read_head(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise InputError(f"{path.name} is not a regular file.", effect=_NOTHING, next_step="Copy the trace to a file first.")
        with path.open("rb") as file:
            return file.read(_HEAD)
    except FileNotFoundError:
        raise MissingInputError(f"{path.name} does not exist.", effect=_NOTHING, next_step="Check the path.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "the path cannot be used"
        raise InputError(
            f"{path.name} cannot be read: {reason}.", effect=_NOTHING, next_step="Check the path and its permissions."
        ) from None


def is_parquet_folder(path: Path) -> bool:
    """True for a folder that `nsys export --type parquetdir` wrote: one Parquet file per table."""
    return path.is_dir() and any(
        item.suffix == ".parquet"
        and (item.stem.startswith(("CUPTI_ACTIVITY_", "META_DATA_", "NVTX_", "TARGET_INFO_")) or item.stem == "StringIds")
        for item in path.iterdir()
    )


def sniff(path: Path) -> Kind:
    """The kind of one input, by its first bytes.

    Raises InputError for everything that no reader takes, saying what it is and what to export instead.
    """
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if is_folder:
        return _sniff_folder(path)
    head = _read_head(path)
    if not head:
        raise _refuse(path, "an empty file", "Capture or export it again; a full disk leaves such files.")
    if not head.strip(b"\0"):
        raise _refuse(path, "filled with zero bytes, as an interrupted copy leaves it", "Copy or export it again.")
    if head.startswith(_SQLITE):
        return Kind.NSYS_SQLITE
    if head.startswith(_REPORT):
        return Kind.NSYS_REPORT
    if head.startswith(b"\x1f\x8b"):
        return _sniff_gzip(path, head)
    if head.startswith(b"PK\x03\x04"):
        return _sniff_zip(path)
    return _sniff_plain(path, head)


def _sniff_folder(path: Path) -> Kind:
    try:
        if is_parquet_folder(path):
            return Kind.NSYS_PARQUET
        arrow = any(item.suffix == ".arrow" for item in path.iterdir())
    except OSError as error:
        raise InputError(
            f"The folder {path.name} cannot be read: {error.strerror}.", effect=_NOTHING, next_step="Check its permissions."
        ) from None
    if arrow:
        raise _refuse(path, "a folder of Arrow files, as nsys export --type arrowdir writes", _EXPORT)
    raise _refuse(path, "a folder without the tables of an nsys Parquet export", "Give the traces in it, or a folder that holds traces.")


def _sniff_gzip(path: Path, head: bytes) -> Kind:
    try:
        inner = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except zlib.error:
        raise _refuse(path, "a damaged gzip file", "Copy or write the trace again.") from None
    if inner.startswith((_SQLITE, _REPORT)) or inner[257:262] == b"ustar":
        raise _refuse(path, "a gzip-compressed database, report or archive", f"{_UNPACK} (gunzip {{name}})")
    if not inner:
        raise _refuse(path, "a gzip file with nothing inside, or cut at its beginning", "Copy or write the trace again.")
    if _sniff_plain(path, inner) is not Kind.TORCH_JSON:
        raise _refuse(path, "a gzip-compressed file that is not JSON", _TORCH)
    return Kind.TORCH_JSON_GZIP


def _sniff_zip(path: Path) -> Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [item for item in archive.infolist() if not item.is_dir()]
            if len(members) != 1:
                raise _refuse(path, f"a zip archive of {len(members)} files", "Unpack it and give the folder.")
            if members[0].flag_bits & 1:
                raise _refuse(path, "an encrypted zip archive", _UNPACK)
            with archive.open(members[0]) as file:
                inner = file.read(_HEAD)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError):
        raise _refuse(path, "a damaged or unusual zip archive", _UNPACK) from None
    if inner.lstrip()[:1] not in (b"{", b"[") or _sniff_plain(path, inner) is not Kind.TORCH_JSON:
        raise _refuse(path, "a zip archive of something that is not a JSON trace", _UNPACK)
    return Kind.TORCH_JSON_ZIP


def _sniff_plain(path: Path, head: bytes) -> Kind:
    body = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if body[:1] in (b"{", b"["):
        return _sniff_json(path, body)
    for foreign in _FOREIGN:
        if foreign.matches(head, path.name):
            raise _refuse(path, foreign.what, foreign.next_step)
    if path.suffix in _REPORT_SUFFIXES and not _is_text(head):
        return Kind.NSYS_REPORT  # a newer report may begin otherwise: nsys itself will tell
    if _is_text(head):
        raise _refuse(path, "a text file, not a trace", _TORCH)
    raise _refuse(path, "in no format that is known here (an encrypted or damaged database looks like this too)", _TORCH)


def _sniff_json(path: Path, body: bytes) -> Kind:
    if re.match(rb'\{\s*"data"\s*:\s*\[', body):
        raise _refuse(path, "an nsys JSON export (raw events, one per line), whose fields differ by version", _EXPORT)
    if re.match(rb'\{\s*"(?:VmSystemInformation|FileHeader)', body):
        raise _refuse(path, "an nsys info export, which holds the report's header only", _EXPORT)
    if b'"traceEvents"' not in body and re.match(rb'\{\s*"schema"\s*:\s*"', body) and b'"nodes"' in body:
        raise _refuse(path, "a PyTorch execution trace (operators and their inputs), which has no times", _TORCH)
    return Kind.TORCH_JSON


def _natural(path: Path) -> tuple[tuple[int, int, str], ...]:
    """Sort key in which rank2 comes before rank10."""
    parts = re.split(r"(\d+)", path.name)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)


def _glob(pattern: Path) -> list[Path]:
    absolute = pattern if pattern.is_absolute() else Path.cwd() / pattern
    found = sorted(
        Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor))), key=lambda path: (str(path.parent), _natural(path))
    )
    if not found:
        raise InputError(f"No file matches {pattern.name}.", effect=_NOTHING, next_step="Check the pattern.")
    return found


def superseded(traces: Sequence[Path]) -> dict[Path, str]:
    """Reports with an export of the same name beside them, and exports older than their report: one of each pair is a duplicate."""
    out: dict[Path, str] = {}
    by_stem = {
        path: [
            other
            for other in traces
            if other != path
            and other.parent == path.parent
            and other.name.removesuffix("_pqtdir").removesuffix(other.suffix or " ") == path.stem
        ]
        for path in traces
        if path.suffix in _REPORT_SUFFIXES
    }
    for report, exports in by_stem.items():
        known = [path for path in exports if path.is_dir() or path.suffix == ".sqlite"]
        fresh = [path for path in known if path.stat().st_mtime_ns >= report.stat().st_mtime_ns]
        for path in known:
            if fresh and path != fresh[0]:
                out[path] = f"another export of {report.name}"
            elif not fresh:
                out[path] = f"older than its report {report.name}"
        if fresh:
            out[report] = f"its export {fresh[0].name} is read instead"
    return out


def _scan(folder: Path) -> Inputs:
    """All traces directly inside a folder."""
    traces: list[Path] = []
    ignored: list[tuple[str, str]] = []
    try:
        items = sorted((item for item in folder.iterdir() if not item.name.startswith(".")), key=_natural)
    except OSError as error:
        raise InputError(
            f"The folder {folder.name} cannot be read: {error.strerror}.", effect=_NOTHING, next_step="Check its permissions."
        ) from None
    for item in items:
        if item.name.endswith(_SIDECARS):
            continue
        try:
            sniff(item)
            traces.append(item)
        except InputError as error:
            ignored.append((item.name, error.what))
    doubles = superseded(traces)
    ignored += [(path.name, reason) for path, reason in sorted(doubles.items())]
    return Inputs(traces=tuple(path for path in traces if path not in doubles), ignored=tuple(ignored))


def expand(inputs: Sequence[Path]) -> Inputs:
    """The traces that `inputs` (files, folders, patterns) stand for, without repetition.

    A file that is named stays, whatever it is; of a folder, what no reader takes is listed in `ignored`, and of a folder or pattern what another input
    stands for. A Parquet export folder is one input. Raises InputError for a folder without traces and for a pattern without matches.
    """
    traces: list[Path] = []
    ignored: list[tuple[str, str]] = []
    for given in inputs:
        named = [given]
        if any(char in str(given) for char in "*?[") and not given.exists():
            named = _glob(given)
            doubles = superseded(named)  # a pattern chooses no more on purpose than a folder does
            ignored += [(path.name, reason) for path, reason in sorted(doubles.items())]
            named = [path for path in named if path not in doubles]
        for path in named:
            if path.is_dir() and not is_parquet_folder(path):
                found = _scan(path)
                if not found.traces:
                    seen = f" ({len(found.ignored)} other files)" if found.ignored else ""
                    raise InputError(f"The folder {path.name} holds no trace{seen}.", effect=_NOTHING, next_step=_TORCH)
                traces += found.traces
                ignored += found.ignored
            else:
                traces.append(path)
    unique = {path.resolve(): path for path in reversed(traces)}
    return Inputs(traces=tuple(path for path in dict.fromkeys(traces) if unique[path.resolve()] == path), ignored=tuple(ignored))


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter (mode 0700); removed with its content at the end."""
    with tempfile.TemporaryDirectory(prefix="diagnose-") as name:
        yield Path(name)
