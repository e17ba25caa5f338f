"""Who and what was profiled: ranks, devices, the profiler's own messages, versions, clocks, the environment.

Environment variables, user names, hosts, paths and commands of a capture are private. They are looked at only for the few facts below, and
no value of them is passed on (a host name only in `Rank.host`, which is shown on request). What else is taken out of the environment is
chosen by `diagnose.knowledge.environment`: a list of what is allowed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from diagnose.knowledge.environment import EnvironmentRules, Place, RawEnvironment, environment, without_private
from diagnose.load.nsys_nvtx import Communicator
from diagnose.load.nsys_tables import OVERHEAD, PROFILER_OVERHEAD, Source, text, whole
from diagnose.model.environment import EnvironmentItem
from diagnose.model.ledger import Ledger
from diagnose.model.trace import Device, Rank, RankSource

# (rank, world size) as launchers tell each process; the first pair that is complete and consistent counts.
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_NEEDED_VARIABLES = frozenset(name for pair in _RANK_VARIABLES for name in pair)
_LAUNCHERS = re.compile(
    r"torchrun|torch\.distributed|accelerate|deepspeed|mpirun|mpiexec|srun|horovodrun|lightning|\bray\b|\b(?:ba|da|z)?sh\b|\.sh\b"
)
_LAUNCHED = re.compile(r"launched by the profiler")
_ERROR, _WARNING = 3, 2  # DIAGNOSTIC_EVENT.severity
# Errors of parts of a capture that no figure here needs: CPU samples, their sources and permissions; pages of managed memory, which nsys
# can't trace where GPUs are not peers; libraries of graphics and video.
_UNNEEDED = re.compile(
    r"CPU (?:IP|kernel IP|context)|backtrace|perf event paranoid|scheduling data|event source (?:Perf|Ftrace|ETW)|Unified Memory"
    r"|OpenGL|Vulkan|DirectX|NvVideo",
    re.IGNORECASE,
)
_DROPPED = re.compile(r"\b(?:dropp?ed|lost|discarded|overflow(?:ed)?)\b", re.IGNORECASE)
_PATH = re.compile(r"(?:[A-Za-z]:)?[/\\][^\s,;:'\"]*[/\\][^\s,;:'\"]*|\S+@\S+")
_MAX_DIAGNOSTICS = 20
_MAX_TEXT = 200
_WORLD = 10**6


def versions(source: Source) -> tuple[str | None, str | None, dict[str, str]]:
    """Product version, schema version and the export's own settings."""
    table = next((name for name in ("META_DATA_EXPORT", "EXPORT_META_DATA") if source.columns(name)), "META_DATA_EXPORT")
    settings = {name: value for row in source.small(table) if (name := text(row.get("name"))) and (value := text(row.get("value")))}
    plain = re.compile(r"[\w.\-]{1,40}")

    def version(key: str) -> str | None:
        value = settings.get(key, "")
        return value if plain.fullmatch(value) else None

    return version("EXPORT_PRODUCT_VERSION"), version("EXPORT_SCHEMA_VERSION"), settings


def clock(source: Source, settings: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The unix time (ns) of the file's clock at 0, and the capture's duration (ns); None where the export does not tell.

    With --ts-normalize the exporter's shift is the session's start, and zero is 1970.
    """
    start = next((value for row in source.small("TARGET_INFO_SESSION_START_TIME") if (value := whole(row.get("utcEpochNs")))), None)
    shift = settings.get("EXPORT_CONFIG_TIME_SHIFT", "0")
    moved = int(shift) if re.fullmatch(r"-?\d{1,19}", shift) else 0
    duration = next((value for row in source.small("ANALYSIS_DETAILS") if (value := whole(row.get("duration"))) and value > 0), None)
    return None if start is None else start - moved, duration


def _environment(source: Source) -> dict[str, int]:
    """The rank variables of the one launched process, as numbers; empty where several processes were launched."""
    found: dict[str, int] = {}
    launched = set()
    for process, variable, value in variables(source):
        launched.add(process)
        parsed = whole(value)
        if variable in _NEEDED_VARIABLES and parsed is not None:
            found[variable] = parsed
    return found if len(launched) == 1 else {}


def variables(source: Source) -> Iterator[tuple[str, str, str]]:
    """All environment variables of the launched commands: (row name, variable, value). Private: only what is on a list may be passed on."""
    for row in source.small("META_DATA_CAPTURE"):
        name = text(row.get("name")) or ""
        if name.endswith(":ENVIRONMENT_VARIABLE"):
            variable, _, value = (text(row.get("value")) or "").partition("=")
            yield name, variable, value.strip('"')  # exporters write the value in quotes


def _launched_pid(source: Source) -> int | None:
    """Process id of the command that nsys itself started, which is the one whose environment was recorded."""
    for row in source.small("DIAGNOSTIC_EVENT"):
        key = whole(row.get("globalPid"))
        if key is not None and _LAUNCHED.search(text(row.get("text")) or ""):
            return pid_of(key >> 24)
    return None


def starts_a_launcher(source: Source) -> bool:
    """Whether the command that nsys started hands its environment on to others, or nothing is known of it."""
    words = [
        text(row.get("value")) or ""
        for row in source.small("META_DATA_CAPTURE")
        if re.match(r"PROCESS_\d+:(?:COMMAND|ARGUMENT_\d+)$", text(row.get("name")) or "")
    ]
    return not words or any(_LAUNCHERS.search(word) for word in words)


def pid_of(process: int) -> int:
    """The operating system's process id in a process key (globalPid >> 24)."""
    return process & 0xFFFFFF


def _from_environment(source: Source, processes: Sequence[int]) -> tuple[int, int] | None:
    """(rank, world size) where the recorded environment certainly belongs to the one process with GPU work.

    A launcher (torchrun, a shell) hands its own environment on, in which RANK or SLURM_PROCID number nodes.
    """
    if len(processes) != 1:
        return None
    pid = _launched_pid(source)
    if pid != pid_of(processes[0]) and (pid is not None or starts_a_launcher(source)):
        return None
    found = _environment(source)
    for rank_name, size_name in _RANK_VARIABLES:
        rank, size = found.get(rank_name), found.get(size_name)
        if rank is not None and size is not None and 0 <= rank < size <= _WORLD:
            return rank, size
    return None


def _from_nccl(processes: Sequence[int], members: Iterable[Communicator]) -> tuple[list[int], int] | None:
    """Ranks by the largest NCCL communicator that holds every process, each under its own number."""
    by_key: dict[int, dict[int, Communicator]] = {}
    for member in members:
        by_key.setdefault(member.communicator, {})[member.process] = member
    for group in sorted(by_key.values(), key=lambda held: -next(iter(held.values())).size):
        if set(group) >= set(processes) and len({group[process].size for process in processes}) == 1:
            numbers = [group[process].rank for process in processes]
            size = group[processes[0]].size
            if len(set(numbers)) == len(numbers) and size > 1:
                return numbers, size
    return None


def ranks(
    source: Source, processes: Sequence[int], members: Iterable[Communicator], *, option: int | None
) -> tuple[tuple[Rank, ...], tuple[str, ...], int]:
    """One Rank for each of `processes`, sentences on how they were numbered, and how many got a number of our own."""
    host = next((text(row.get("value")) for row in source.small("TARGET_INFO_SYSTEM_ENV") if row.get("name") == "Hostname"), None)
    world: int | None = None
    origin: RankSource = "assigned"
    notes: tuple[str, ...] = ()
    numbers = list(range(len(processes)))
    environment = _from_environment(source, processes)
    nccl = _from_nccl(processes, members)
    if environment is not None:
        numbers, world, origin = [environment[0]], environment[1], "environment"
    elif nccl is not None:
        numbers, world, origin = nccl[0], nccl[1], "nvtx"
        notes = (f"Ranks and world size are those of the largest NCCL communicator whose start was captured ({world} members).",)
    if option is not None:
        numbers, origin = [option + index for index in range(len(processes))], "option"
        world = world if world is not None and max(numbers) < world else None
        if len(processes) > 1:
            notes = (f"--rank {option} names the first of {len(processes)} processes; the others follow in order of process id.",)
    found = tuple(
        Rank(rank=number, world_size=world, pid=pid_of(process) or None, host=host, source=origin)
        for number, process in zip(numbers, processes, strict=True)
    )
    return found, notes, len(processes) if origin == "assigned" else 0


_GPU_COLUMNS = {
    "sm_count": ("smCount", "numMultiprocessors"),
    "compute_major": ("computeMajor", "computeCapabilityMajor"),
    "compute_minor": ("computeMinor", "computeCapabilityMinor"),
    "total_memory": ("totalMemory", "globalMemorySize"),
    "max_blocks_per_sm": ("maxBlocksPerSm", "maxBlocksPerMultiprocessor"),
    "registers_per_sm": ("maxRegistersPerSm", "maxRegistersPerMultiprocessor"),
    "shared_memory_per_sm": ("maxShmemPerSm", "maxSharedMemoryPerMultiprocessor"),
    "warp_size": ("threadsPerWarp", "numThreadsPerWarp"),
}


def _device(rank: int, device: int, row: Mapping[str, object], *, certain: bool) -> Device:
    def number(*names: str) -> int | None:
        value = next((found for name in names if (found := whole(row.get(name))) is not None), None)
        return value if value is not None and value > 0 else None

    limits = {name: number(*columns) for name, columns in _GPU_COLUMNS.items()}
    minor = next((found for name in _GPU_COLUMNS["compute_minor"] if (found := whole(row.get(name))) is not None), None)
    limits["compute_minor"] = minor if limits["compute_major"] is not None else None
    warps, warp = number("maxWarpsPerSm", "maxWarpsPerMultiprocessor"), limits["warp_size"]
    return Device(
        rank=rank,
        device=device,
        name=text(row.get("name")),
        uuid=text(row.get("uuid")) if certain else None,
        max_threads_per_sm=warps * warp if warps and warp else None,
        **limits,
    )


def devices(source: Source, used: Sequence[tuple[int, int, int]]) -> tuple[Device, ...]:
    """The GPU row of each used (rank, process, device)."""
    rows = gpu_rows(source, used)
    return tuple(_device(rank, device, row, certain=certain) for (rank, _, device), (row, certain) in zip(used, rows, strict=True))


def gpu_rows(source: Source, used: Sequence[tuple[int, int, int]]) -> list[tuple[Mapping[str, object], bool]]:
    """What the export tells of each used (rank, process, device), and whether it is certainly that very GPU.

    The CUDA ordinal is `cuDevice`, never `id`. Where the export maps ordinals per process (since 2025.1), that mapping counts. A
    row that fits several GPUs of different models gives no limits.
    """
    gpus, mapping, old = source.small("TARGET_INFO_GPU"), source.small("TARGET_INFO_CUDA_DEVICE"), source.small("TARGET_INFO_CUDA_GPU")
    by_ordinal: dict[int, set[int]] = {}
    for _, process, device in used:
        by_ordinal.setdefault(device, set()).add(process)
    out: list[tuple[Mapping[str, object], bool]] = []
    for _, process, device in used:
        ids = [
            whole(row.get("gpuId")) for row in mapping if whole(row.get("pid")) == pid_of(process) and whole(row.get("cudaId")) == device
        ]
        mapped = [row for row in gpus if ids and whole(row.get("id")) == ids[0]]
        fitting = mapped or [row for row in gpus if whole(row.get("cuDevice")) == device]
        fitting = fitting or [
            row for row in old if whole(row.get("deviceId")) == device and whole(row.get("pid")) in (None, 0, pid_of(process))
        ]
        if len(fitting) > 1:
            fitting = [
                row for row in fitting if whole(row.get("smCount", row.get("numMultiprocessors"))) and whole(row.get("computeMajor", 1))
            ] or fitting
        models = {text(row.get("name")) for row in fitting}
        certain = bool(mapped) or (len(fitting) == 1 and (len(by_ordinal[device]) == 1 or len(gpus) == 1))
        out.append((fitting[0] if len(models) == 1 else {}, certain))
    return out


def gpu_ordinals(source: Source) -> dict[int, int]:
    """CUDA ordinal by TARGET_INFO_GPU.id, by which metric samples name their GPU."""
    rows = source.small("TARGET_INFO_GPU")
    return {
        gpu: ordinal for row in rows if (gpu := whole(row.get("id"))) is not None and (ordinal := whole(row.get("cuDevice"))) is not None
    }


def metric_names(source: Source) -> dict[int, str]:
    """Names of GPU metrics by metricId."""
    rows = source.small("TARGET_INFO_GPU_METRICS")
    return {key: name for row in rows if (key := whole(row.get("metricId"))) is not None and (name := text(row.get("metricName")))}


def thread_names(source: Source) -> pl.DataFrame:
    """Columns thread (globalTid), name id; the last name of a thread counts."""
    rows = [(whole(row.get("globalTid")), whole(row.get("nameId"))) for row in source.small("ThreadNames")]
    frame = pl.DataFrame(rows, schema={"thread": pl.Int64, "key": pl.Int64}, orient="row", strict=False)
    return frame.drop_nulls().unique("thread", keep="last", maintain_order=True)


def plain(message: str, names: Iterable[str] = ()) -> str:
    """A message of the profiler in one line, without paths, addresses, keys, and the `names` of users and hosts."""
    line = without_private(_PATH.sub("…", message), names)
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


def diagnostics(source: Source, ledger: Ledger) -> tuple[tuple[str, ...], Ledger]:
    """Warnings and errors that nsys recorded, without repetition, and their entries in the ledger."""
    counts: Counter[str] = Counter()
    shown: dict[str, None] = {}
    names = _names(source, _variables_by_name(source))
    for row in source.small("DIAGNOSTIC_EVENT"):
        severity, message = whole(row.get("severity")), text(row.get("text"))
        if message is None or severity not in (_WARNING, _ERROR):
            continue
        code = "profiler_error" if severity == _ERROR and not _UNNEEDED.search(message) else "profiler_warning"
        counts["dropped_by_profiler" if _DROPPED.search(message) else code] += 1
        shown.setdefault(plain(message, names))
    for code, count in counts.items():
        ledger = ledger.note(code, "DIAGNOSTIC_EVENT", count)
    return tuple(shown)[:_MAX_DIAGNOSTICS], ledger


_OF_CUDA = (2, 6, 7, 8)  # of ENUM_CUPTI_OVERHEAD_TYPE: compiler, module loading, lazy loading, full command buffer


def overhead(source: Source) -> pl.DataFrame | None:
    """The profiler's own spans (start, end), less what CUDA spends itself; None where none are recorded."""

    def spans(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(~pl.col("overheadType").is_in(_OF_CUDA).fill_null(value=False)).select("start", "end")

    tables = [name for name in (PROFILER_OVERHEAD, OVERHEAD) if source.columns(name)]
    parts = [part for name in tables for part in source.rows(name, {"start": "int", "end": "int", "overheadType": "int"}, spans).parts]
    return pl.concat(parts) if parts else None


# What holds the names of the user and of the host: values with these names in them are not shown.
_NAMING_VARIABLES = frozenset(
    {"USER", "USERNAME", "LOGNAME", "HOSTNAME", "HOST", "SLURM_JOB_USER", "SLURMD_NODENAME", "SLURM_JOB_ACCOUNT", "SUDO_USER"}
)
_NAMING_ROWS = re.compile(r"DEVICE_DISPLAY_NAME|PROCESS_\d+:USER_NAME")


def environment_of(
    source: Source, settings: Mapping[str, str], used: Sequence[tuple[int, int, int]], rules: EnvironmentRules
) -> tuple[EnvironmentItem, ...]:
    """The items of one export. `settings` are the export's own (of `nsys_meta.versions`), `used` the (rank, process, device) with work.

    The variables are those of the command that nsys started: often a launcher, which hands them on and may set others.
    """
    rows = [row for row, _ in gpu_rows(source, used)]
    given = _variables_by_name(source)
    values: dict[Place, Mapping[str, tuple[object, ...]]] = {
        "system": _columns([{text(row.get("name")) or "": row.get("value")} for row in source.small("TARGET_INFO_SYSTEM_ENV")]),
        "export": {name: (value,) for name, value in settings.items()},
        "gpu": _columns(rows),
        "machine": _machine(source),
        "variable": {name: tuple(found) for name, found in given.items()},
    }
    command = "the launcher" if starts_a_launcher(source) else "the command"
    sources: dict[Place, str] = {
        "system": "TARGET_INFO_SYSTEM_ENV, {}",
        "export": "META_DATA_EXPORT, {}",
        "gpu": "TARGET_INFO_GPU, {}",
        "machine": "{}",
        "variable": f"META_DATA_CAPTURE, environment of {command} that nsys started",
    }
    return environment(RawEnvironment(values=values, sources=sources, private=_names(source, given)), rules)


def _variables_by_name(source: Source) -> dict[str, list[object]]:
    given: dict[str, list[object]] = {}
    for _, name, value in variables(source):
        given.setdefault(name, []).append(value)
    return given


def _columns(rows: Iterable[Mapping[str, object]]) -> dict[str, tuple[object, ...]]:
    """All values of each column, without nulls."""
    found: dict[str, tuple[object, ...]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                found[name] = (*found.get(name, ()), value)
    return found


def _machine(source: Source) -> dict[str, tuple[object, ...]]:
    """How many GPUs for computing and which network adapters the machine has. An adapter's name without its number is its driver's."""
    gpus = sum(1 for row in source.small("TARGET_INFO_GPU") if row.get("isDiscrete") and row.get("smCount"))
    drivers = Counter(re.sub(r"_?\d+$", "", name) for row in source.small("TARGET_INFO_NIC_INFO") if (name := text(row.get("name"))))
    adapters = ", ".join(f"{count} × {driver}" for driver, count in sorted(drivers.items()))
    return {"TARGET_INFO_GPU": (gpus,), "TARGET_INFO_NIC_INFO": (adapters,)}


def _names(source: Source, given: Mapping[str, Sequence[object]]) -> list[str]:
    """Names of the user and the host, and of the host without its domain."""
    words = [str(value) for name in _NAMING_VARIABLES for value in given.get(name, ())]
    rows = [row for row in source.small("TARGET_INFO_SYSTEM_ENV") if row.get("name") == "Hostname"]
    rows += [row for row in source.small("META_DATA_CAPTURE") if _NAMING_ROWS.fullmatch(text(row.get("name")) or "")]
    words += [text(row.get("value")) or "" for row in rows]
    return [part for word in words for part in {word, word.partition(".")[0]}]
