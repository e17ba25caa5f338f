"""Small Nsight Systems exports, written by hand in SQL."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

PID_A, PID_B = 4001, 4002
VM = 1 << 48


def gpid(pid: int) -> int:
    return VM | (pid << 24)


def gtid(pid: int, tid: int) -> int:
    return gpid(pid) | tid


KERNEL = (
    'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER, '
    "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER, "
    "registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, "
    "staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER)"
)
RUNTIME = (
    'CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, "end" INTEGER NOT NULL, eventClass INTEGER, globalTid INTEGER, '
    "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER)"
)
MEMCPY = (
    'CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER, '
    "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER)"
)
SYNC = (
    'CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER NOT NULL, '
    "contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER, eventSyncId INTEGER)"
)
EVENT = (
    "CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER, eventId INTEGER, eventSyncId INTEGER, timestamp INTEGER)"
)
NVTX = (
    'CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, "end" INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT, '
    "globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT)"
)
STRINGS = "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
META = "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT)"
CAPTURE = "CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT)"
START = "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT)"
DIAGNOSTIC = "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, timestampType INTEGER, source INTEGER, severity INTEGER, text TEXT, globalPid INTEGER)"

NAMES = {
    1: "void gemm<(int)128>(T1 *)", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "ncclDevKernel_AllReduce(T1)",
    5: "ncclDevKernel_AllReduce",
}  # fmt: skip


def kernel(
    start: int,
    end: int,
    *,
    pid: int = PID_A,
    device: int = 0,
    stream: int = 7,
    correlation: int = 1,
    name: int = 1,
    short: int = 2,
    node: int | None = None,
) -> tuple:
    return (start, end, device, 1, stream, correlation, gpid(pid), name, short, None, 32, 4, 1, 1, 128, 1, 1, 1024, 2048, node)


def runtime(start: int, end: int, *, pid: int = PID_A, correlation: int = 1) -> tuple:
    return (start, end, 0, gtid(pid, pid), correlation, 3, 0)


def insert(connection: sqlite3.Connection, table: str, rows: Iterable[tuple]) -> None:
    listed = list(rows)
    if listed:
        connection.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(listed[0]))})', listed)


def basic(path: Path, *, kernels: Iterable[tuple] | None = None) -> Path:
    """One process, three kernels of 100 ns at 1000, 2000 and 3000, launched at 900, 1900 and 2900."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in ("PRAGMA synchronous = OFF", KERNEL, RUNTIME, STRINGS, META, START):
            connection.execute(statement)
        insert(connection, "StringIds", NAMES.items())
        own = [kernel(1000 * i, 1000 * i + 100, correlation=i) for i in (1, 2, 3)] if kernels is None else kernels
        insert(connection, "CUPTI_ACTIVITY_KIND_KERNEL", own)
        insert(connection, "CUPTI_ACTIVITY_KIND_RUNTIME", [runtime(1000 * i - 100, 1000 * i - 90, correlation=i) for i in (1, 2, 3)])
        insert(connection, "META_DATA_EXPORT", [("EXPORT_SCHEMA_VERSION", "3.25.0"), ("EXPORT_PRODUCT_VERSION", "2026.2.1.210")])
        insert(connection, "TARGET_INFO_SESSION_START_TIME", [(1_700_000_000_000_000_000, "", "")])
        connection.commit()
    return path
