"""NVTX ranges and marks: texts, emit_nvtx suffixes, and the payloads by which NCCL describes its calls."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import polars as pl
from msgspec import Struct

from diagnose.load.nsys_tables import NO_KEY, NVTX, Events, Source, Wanted, distinct_keys, process_of, text, whole
from diagnose.load.products import operations
from diagnose.model.ledger import Ledger
from diagnose.model.trace import PAYLOADS, RangeKind

# NVTX_EVENTS.eventType, the same numbers in every version; ENUM_NSYS_EVENT_TYPE names them since 3.0.0.
_TYPES: Mapping[str, tuple[int, str]] = {
    "NvtxPushPopRange": (59, "push_pop"),
    "NvtxtPushPopRange": (70, "push_pop"),
    "NvtxStartEndRange": (60, "start_end"),
    "NvtxtStartEndRange": (71, "start_end"),
    "NvtxMark": (34, "mark"),
    "NvtxtMark": (65, "mark"),
}
_DOMAIN_CREATE = 75
_MARKERS = (", seq = ", ", op_id = ", ", sizes = ")  # in torch.autograd.profiler.emit_nvtx; the first one found begins the suffix
_RANGE: Wanted = {"start": "int", "end": "int", "eventType": "int", "globalTid": "int", "domainId": "int", "textId": "int", "text": "text"}

# NVTX payload extension, nvtxPayloadEntryType: struct codes by number. Payloads are little-endian and lie behind a header
# of 32 bytes (domain, schema id, payload size, total size).
_NUMBERS = {
    "b": (11,), "B": (12,), "h": (13,), "H": (14,), "i": (5, 15), "I": (6, 16), "q": (17,), "Q": (18, 22, 23), "f": (19,), "d": (20,),
}  # fmt: skip
ENTRY: Mapping[int, str] = {number: code for code, numbers in _NUMBERS.items() for number in numbers}
_HEADER = struct.Struct("<IIIIQQ")
_MAX_PAYLOADS = 200_000
_NO_DESCRIPTION = ("ncclGroupStart", "ncclGroupEnd", "ncclCommCount", "ncclCommUserRank", "ncclCommCuDevice", "ncclCommGetAsyncError")

Fields = Mapping[str, object]


class Communicator(Struct, frozen=True, kw_only=True):
    """One member of an NCCL communicator, as its initialisation describes it."""

    process: int
    communicator: int
    rank: int
    size: int


class Ranges(Struct, frozen=True, kw_only=True):
    """What NVTX rows refer to: their column `inline` is a code into `texts`, `payload` one into `blobs`."""

    texts: pl.Series
    blobs: pl.Series
    nccl_domains: frozenset[int]


class _Slice(Struct, frozen=True):
    frame: pl.DataFrame
    texts: pl.Series
    blobs: pl.Series


def _coded(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Row codes (null stays null) and the distinct values that they index."""
    distinct = values.drop_nulls().unique(maintain_order=True)
    table = pl.DataFrame({"value": distinct, "code": pl.int_range(len(distinct), dtype=pl.Int32, eager=True)})
    return pl.DataFrame({"value": values}).join(table, on="value", how="left", maintain_order="left")["code"], distinct


def _cut(texts: pl.Series) -> pl.DataFrame:
    """Columns text (without emit_nvtx suffix), sequence (null if none), is_operator and flop of distinct texts."""
    frame = pl.DataFrame({"whole": texts})
    first = pl.min_horizontal(*(pl.col("whole").str.find(marker, literal=True) for marker in _MARKERS))
    frame = frame.with_columns(first.alias("at"))
    has_suffix = pl.col("at").is_not_null()
    # `at` counts bytes; the part before it is taken as bytes too
    name = (
        pl.when(has_suffix)
        .then(pl.col("whole").cast(pl.Binary).bin.head(pl.col("at")).cast(pl.String, strict=False))
        .otherwise(pl.col("whole"))
    )
    sequence = pl.when(has_suffix).then(pl.col("whole").str.extract(r", seq = (\d{1,18})")).cast(pl.Int64, strict=False)
    cut = frame.select(name.alias("text"), sequence.alias("sequence"), has_suffix.alias("suffix"))
    # a record_function of the user has the suffix too, but neither a name space nor a sequence number
    is_operator = pl.col("suffix") & (pl.col("text").str.contains("::", literal=True) | pl.col("sequence").is_not_null())
    shapes = texts.str.extract(r", sizes = (\[\[.*?\]\])(?:,|$)")
    sized = pl.DataFrame({"name": cut["text"], "shapes": shapes}).with_row_index("row").drop_nulls()
    found = [operations(name, told) for name, told in sized.select("name", "shapes").iter_rows()]
    flop = pl.repeat(None, cut.height, dtype=pl.Int64, eager=True).scatter(sized["row"], pl.Series(found, dtype=pl.Int64))
    return cut.select("text", "sequence", is_operator.alias("is_operator"), flop.alias("flop"))


def _types(source: Source) -> tuple[dict[int, str], int]:
    """Kinds by event type, and the type of a domain's creation: the export's own enumeration, else the known numbers."""
    named = {str(row.get("name")): whole(row.get("id")) for row in source.small("ENUM_NSYS_EVENT_TYPE")}
    kinds: dict[int, str] = {}
    for name, (number, kind) in _TYPES.items():
        own = named.get(name)
        kinds[number if own is None else own] = kind
    return kinds, named.get("NvtxDomainCreate") or _DOMAIN_CREATE


def _mapper(frame: pl.DataFrame, kinds: Mapping[int, str], payload: str | None) -> _Slice:
    kept = frame.filter(pl.col("eventType").is_in(list(kinds)))
    codes, distinct = _coded(kept["text"])
    cut = _cut(distinct)
    text_codes, texts = _coded(cut["text"])
    row = pl.DataFrame(
        {
            "inline": text_codes.gather(codes),
            "sequence": cut["sequence"].gather(codes),
            "is_operator": cut["is_operator"].gather(codes).fill_null(value=False),
            "flop": cut["flop"].gather(codes),
        }
    )
    blob_codes, blobs = (
        _coded(kept[payload].cast(pl.Binary)) if payload else (pl.Series([], dtype=pl.Int32), pl.Series([], dtype=pl.Binary))
    )
    kind = pl.col("eventType").replace_strict(kinds, return_dtype=pl.String).cast(RangeKind)
    rows = kept.hstack(row).select(
        process_of("globalTid"),
        pl.col("globalTid").alias("thread"),
        pl.col("start"),
        pl.when(kind == "mark").then(pl.col("start")).otherwise(pl.col("end")).alias("end"),
        pl.when("is_operator").then(pl.lit("operator", dtype=RangeKind)).otherwise(kind).alias("kind"),
        pl.col("domainId").fill_null(0).cast(pl.Int32, strict=False).alias("domain"),
        "inline",
        pl.col("textId").fill_null(NO_KEY).alias("key"),
        "sequence",
        "flop",
    )
    if payload:
        rows = rows.with_columns(blob_codes.alias("payload"))
    return _Slice(rows.rechunk(), texts, blobs)


def _merged(parts: Sequence[_Slice], column: str, values: Iterable[pl.Series]) -> tuple[list[pl.Series], pl.Series]:
    """The codes of each slice turned into codes of one list of distinct values."""
    listed = list(values)
    joined = pl.concat(listed)
    codes, distinct = _coded(joined)
    out, offset = [], 0
    for part, own in zip(parts, listed, strict=True):
        local = codes.slice(offset, len(own))
        out.append(local.gather(part.frame[column]) if len(own) else part.frame[column])
        offset += len(own)
    return out, distinct


def read_ranges(source: Source, ledger: Ledger) -> tuple[Events | None, Ranges | None, Ledger]:
    """All NVTX ranges and marks; rows of other types are counted as not needed."""
    if not source.columns(NVTX):
        return None, None, ledger
    kinds, create = _types(source)
    payload = source.holding(NVTX, ("binaryData", "jsonText"))
    wanted = _RANGE if payload is None else {**_RANGE, payload: "bytes"}
    rows = source.rows(NVTX, wanted, lambda frame: (_mapper(frame, kinds, payload), _created(frame, create)))
    ledger = ledger.note("wrong_type", NVTX, rows.wrong_type).note("bad_text", NVTX, rows.bad_text)
    parts = [part for part, _ in rows.parts]
    inline, texts = _merged(parts, "inline", (part.texts for part in parts))
    frames = [part.frame.with_columns(codes.alias("inline")) for part, codes in zip(parts, inline, strict=True)]
    blobs = pl.Series([], dtype=pl.Binary)
    if payload:
        codes, blobs = _merged(parts, "payload", (part.blobs for part in parts))
        frames = [frame.with_columns(own.alias("payload")) for frame, own in zip(frames, codes, strict=True)]
    frame = pl.concat(frames)
    ledger = ledger.note("not_needed", NVTX, rows.read - rows.wrong_type - frame.height)
    keys = pl.concat([distinct_keys(part.frame) for part in parts]).unique("key", keep="first", maintain_order=True)
    events = Events(schema="ranges", table=NVTX, frame=frame, read=rows.read, names="text", keys=keys)
    domains = frozenset(domain for _, created in rows.parts for domain in created)
    ranges = Ranges(texts=texts, blobs=blobs, nccl_domains=domains)
    return events, ranges, ledger


def _created(frame: pl.DataFrame, create: int) -> list[int]:
    """Numbers of domains that are called NCCL."""
    found = frame.filter((pl.col("eventType") == create) & (pl.col("text") == "NCCL"))["domainId"]
    return [number for number in found.to_list() if number is not None]


def _layouts(source: Source) -> dict[int, list[tuple[str, str, int]]]:
    """Fields (name, struct code, offset) of each payload schema."""
    layouts: dict[int, dict[int, tuple[str, str, int]]] = {}
    for row in source.small("NVTX_PAYLOAD_SCHEMA_ENTRIES"):
        schema, index, kind, name = whole(row.get("schemaId")), whole(row.get("idx")), whole(row.get("type")), text(row.get("name"))
        code = ENTRY.get(kind or 0)
        if schema is None or index is None or name is None or code is None:
            continue
        layouts.setdefault(schema, {})[index] = (name, code, whole(row.get("offset")) or 0)
    return {schema: list(fields.values()) for schema, fields in layouts.items()}


def _decode(blob: bytes, layouts: Mapping[int, Sequence[tuple[str, str, int]]]) -> Fields:
    """The fields of one payload, which is JSON text or a binary behind a header; empty where it is neither."""
    if blob[:1] == b"{":
        try:
            found = msgspec.json.decode(blob)
        except (msgspec.DecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}
    if len(blob) < _HEADER.size:
        return {}
    _, _, schema, _, size, _ = _HEADER.unpack_from(blob)
    body = blob[_HEADER.size : _HEADER.size + size]
    return {
        name: struct.unpack_from("<" + code, body, offset)[0]
        for name, code, offset in layouts.get(schema, ())
        if 0 <= offset <= len(body) - struct.calcsize("<" + code)
    }


def _signed(value: int | None) -> int | None:
    """An unsigned 64-bit id as the Int64 of the same bits."""
    if value is None or not -(2**63) <= value < 2**64:
        return None
    return value - 2**64 if value >= 2**63 else value


def _number(fields: Fields, *names: str) -> int | None:
    return _signed(next((found for name in names if (found := _parsed(fields.get(name))) is not None), None))


def _parsed(value: object) -> int | None:
    if isinstance(value, str) and value.lower().startswith("0x") and len(value) <= 18:
        try:
            return int(value, 16)
        except ValueError:
            return None
    return whole(value)


def read_payloads(
    source: Source, ranges: Ranges, frame: pl.DataFrame, names: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[Communicator, ...]]:
    """The ranges with kind comms and payload_id set, the payloads, and the communicators that were initialised.

    `frame` has text_id (into `names`), domain, process and, where the export holds payloads, payload.
    """
    is_nccl = names.select(pl.col("text").str.starts_with("nccl") & ~pl.col("text").str.contains(":", literal=True)).to_series()
    is_comm = names["text"].fill_null("") == "record_param_comms"
    in_domain = pl.col("domain").is_in(list(ranges.nccl_domains)) | ((pl.col("domain") != 0) & pl.lit(is_nccl).gather(pl.col("text_id")))
    frame = frame.with_columns(in_domain.fill_null(value=False).alias("_nccl"))
    comms = pl.col("_nccl") | pl.lit(is_comm).gather(pl.col("text_id"))
    if len(names):
        frame = frame.with_columns(pl.when(comms).then(pl.lit("comms", dtype=RangeKind)).otherwise("kind").alias("kind"))
    if "payload" not in frame.columns:
        frame = frame.with_columns(pl.lit(None, dtype=pl.Int32).alias("payload"))
    distinct = frame.filter("_nccl").select("text_id", "payload").unique(maintain_order=True).head(_MAX_PAYLOADS)
    layouts = _layouts(source) if len(ranges.blobs) else {}
    described = [
        (text_id, code, names["text"][text_id], _decode(ranges.blobs[code], layouts) if code is not None else {})
        for text_id, code in distinct.iter_rows()
    ]
    sizes = {
        key: size
        for *_, fields in described
        if (key := _number(fields, "NCCL communicator ID")) is not None and (size := _number(fields, "No. of ranks"))
    }
    wanted = [entry for entry in described if entry[2] not in _NO_DESCRIPTION and not entry[2].startswith("ncclComm")]
    payloads = pl.DataFrame(
        [_payload(index, name, fields, sizes) for index, (_, _, name, fields) in enumerate(wanted)], schema=dict(PAYLOADS), orient="row"
    )
    table = pl.DataFrame(
        {"text_id": [entry[0] for entry in wanted], "payload": [entry[1] for entry in wanted], "payload_id": range(len(wanted))},
        schema={"text_id": pl.Int32, "payload": pl.Int32, "payload_id": pl.Int32},
    )
    members = _members(frame, described)
    if wanted:
        nccl = (
            frame.with_row_index("_row")
            .filter("_nccl")
            .select("_row", "text_id", "payload")
            .join(table, on=["text_id", "payload"], nulls_equal=True)
        )
        ids = pl.repeat(None, frame.height, dtype=pl.Int32, eager=True).scatter(nccl["_row"], nccl["payload_id"])
        frame = frame.with_columns(ids.alias("payload_id"))
    return frame.drop("_nccl", "payload"), payloads, members


def _payload(index: int, name: str, fields: Fields, sizes: Mapping[int, int]) -> tuple[object, ...]:
    communicator = _number(fields, "NCCL communicator ID")
    values = {
        "id": index,
        "collective": name,
        "communicator": communicator,
        "group_size": _number(fields, "No. of ranks") or (sizes.get(communicator) if communicator is not None else None),
        "bytes": _number(fields, "Message size [bytes]"),
        "peer": _number(fields, "Peer rank", "Root"),
    }
    return tuple(values.get(column) for column in PAYLOADS)


def _members(frame: pl.DataFrame, described: Sequence[tuple[int, int | None, str, Fields]]) -> tuple[Communicator, ...]:
    found = []
    for text_id, code, _, fields in described:
        key, rank, size = _number(fields, "NCCL communicator ID"), _number(fields, "Rank"), _number(fields, "No. of ranks")
        if code is None or key is None or rank is None or size is None or not 0 <= rank < size:
            continue
        processes = frame.filter("_nccl", (pl.col("text_id") == text_id) & (pl.col("payload") == code))["process"].unique()
        found += [Communicator(process=process, communicator=key, rank=rank, size=size) for process in processes.to_list()]
    return tuple(found)
