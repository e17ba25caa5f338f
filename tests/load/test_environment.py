"""What a capture tells about the world around the code, in which words, and that nothing private is among it."""

import io
import json
import re
from pathlib import Path

from diagnose.document.encoding import encode
from diagnose.errors import InputError
from diagnose.knowledge.environment import MAX_VARIABLES, digest, load_environment_rules, shown_value, without_private
from diagnose.load import nsys_sqlite, readers, torch_json
from diagnose.load.conform import conform
from diagnose.measure.capture import merged
from diagnose.model.environment import EnvironmentItem, EnvironmentKind
from diagnose.model.trace import Trace
from diagnose.pipeline import diagnose
from tests.builders import nsys_db as db
from tests.builders.cases import for_each
from tests.builders.nsys_db import basic
from tests.load.test_nsys_sqlite import GPU, add, gpu

SYSTEM = "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT)"
HOST = "gpu-0042.cluster.example.com"
RULES = load_environment_rules()


def load(path: Path) -> Trace:
    return conform(nsys_sqlite.read(path, rules=RULES))


def told(found: tuple[EnvironmentItem, ...]) -> dict[str, str]:
    return {item.name: item.value for item in found}


def captured(tmp_path: Path, variables: dict[str, str], command: str = "python") -> Path:
    """An export with these variables, whose user is alice at HOST."""
    rows = [("PROCESS_0:COMMAND", command), ("PROCESS_0:USER_NAME", "alice"), ("PROCESS_0:WORKING_DIR", "/home/alice/secret-project")]
    rows += [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"') for name, value in variables.items()]
    system = [
        ("Hostname", HOST), ("NvDriverVersion", "560.94"), ("CpuDescription", "Some CPU @ 2.50GHz"),
        ("TargetInstallDir", "/home/alice/x"),
    ]  # fmt: skip
    return add(
        basic(tmp_path / "a.sqlite"),
        db.CAPTURE,
        SYSTEM,
        META_DATA_CAPTURE=rows,
        TARGET_INFO_SYSTEM_ENV=[(0, "", name, 0, value) for name, value in system],
    )


# --- real captures ----------------------------------------------------------------------------------------------------


@for_each(
    "name, expected",
    (
        "nsys/NVIDIA_Fuser_report2-bab69540.sqlite",
        {
            "GPU driver": "535.129.03",
            "CUDA of the driver": "12.8",
            "CUDA": "12.8.33",
            "NCCL": "2.23.next.20241119+cuda12.8",
            "compatibility driver of the container": "570.52",
            "Nsight Systems": "2024.6.2",
            "Nsight Systems of the export": "2024.6.2.25",
            "operating system": "Ubuntu 24.04.1 LTS",
            "kernel": "5.15.0-88-generic",
            "GPU": "NVIDIA H100 80GB HBM3",
            "multiprocessors": "132",
            "GPU memory": "79.1 GiB",
            "GPU memory bandwidth": "3352 GB/s",
            "GPUs of the machine": "8",
            "network adapters": "8 × mlx5",
            "CPU": "Intel(R) Xeon(R) Platinum 8480C",
            "CPU threads": "224",
            "highest GPU clock": "1980 MHz",
            "highest CPU clock": "3800 MHz",
            "NCCL_IB_PCI_RELAXED_ORDERING": "0",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "OMPI_MCA_btl_tcp_if_include": "eth3",
        },
    ),
    ("nsys/bwyogatama_Mordred-Deprecated_report1.qdrep-nsys-2022.4.2.1.sqlite", {"GPU driver": "418.67", "CUDA of the driver": "10.1"}),
    (
        "nsys/GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_before.sqlite",
        {"GPU driver": "580.95.05", "NCCL": "2.25.1-1", "OMP_NUM_THREADS": "2", "CPU threads": "18"},
    ),
    (
        "kineto/AMD-AGI_TraceLens_tests.traces.b200.eager_trace.json.gz",
        {
            "CUDA of the driver": "13.0",
            "CUDA runtime": "12.9",
            "NCCL": "2.27.5",
            "CUPTI": "28",
            "GPU": "NVIDIA B200",
            "multiprocessors": "148",
            "GPU memory": "178.4 GiB",
            "GPUs that the process sees": "8",
        },
    ),
    (
        "kineto/AMD-AGI_TraceLens_tests.traces.mi300.ddp_resnet18_no_pool.train_resnet18.json.gz",
        {"HIP runtime": "7.2.53211", "roctracer": "4.1", "GPU": "AMD Instinct MI300X"},
    ),
)
def test_real_captures(name: str, expected: dict[str, str], real_traces: Path) -> None:
    found = told(readers.load(real_traces / name, rules=RULES).provenance.environment)
    assert {key: found.get(key) for key in expected} == expected


def test_no_real_capture_gives_away_a_path_an_address_or_a_host(real_traces: Path) -> None:
    """The exports keep their variables under a word in place of most values; what they kept are versions, numbers, words and paths."""
    found = []
    for path in sorted((real_traces / "nsys").glob("*.sqlite")):
        try:
            found += readers.load(path, rules=RULES).provenance.environment
        except InputError:
            continue
    assert len(found) > 300
    for item in found:
        assert len(item.value) <= 80
        assert not re.search(r"[/\\~]\w+[/\\]|\S@\S|host0|someone|removed", item.value), item
        if item.kind == "variable":
            assert "." not in item.value or re.fullmatch(r"[\d. ]+", item.value), item


# --- privacy ----------------------------------------------------------------------------------------------------------

PRIVATE = {
    "NCCL_TOPO_FILE": "/home/alice/topology.xml", "NCCL_HOSTID": "rack7unit3", "NCCL_COMM_ID": "10.20.30.40:1234",
    "NCCL_SOCKET_IFNAME": "eth0,10.20.30.0", "NCCL_DEBUG_FILE": "debuglog", "NCCL_NET_PLUGIN": "alices_plugin",
    "NCCL_IB_HCA": "gpu-0042-mlx5", "NCCL_CONF": "~/nccl.conf", "CUDA_VISIBLE_DEVICES": "GPU-6f3aa6a4-1111-2222-3333-444455556666",
    "CUDA_CACHE_PATH": "cache", "NVTE_SOMETHING": "someone@example.org", "NVSHMEM_BOOTSTRAP": "login.cluster.example.org",
    "TORCHINDUCTOR_CACHE": "C:\\Users\\alice\\cache", "OMP_PLACES": "a" * 60, "UCX_NET": "fe80::1ff:fe23:4567:890a",
    "TRITON_ID": "deadbeef0123456789abcdef", "NCCL_PASSWORD": "hunter2", "NCCL_API_KEY": "sk-live", "NVTE_AUTH_TOKEN": "t0ken",
    "AWS_SECRET_ACCESS_KEY": "aws-secret", "WANDB_API_KEY": "wandb-secret", "HOME": "/home/alice", "USER": "alice",
    "MASTER_ADDR": "10.20.30.40", "MY_OWN": "private-word", "PYTORCH_VERSION": "/opt/alice/2.5", "NCCL_VERSION": "2.25.1+alice",
}  # fmt: skip
LEAKS = re.compile(
    r"alice|gpu-0042|example[.]|10\.20\.30|rack7unit3|debuglog|topology[.]xml|GPU-6f3a|aaaaaaaa|fe80|deadbeef|hunter2|sk-live|t0ken|aws-secret|wandb|private-word|secret-project"
)


def test_a_message_of_the_profiler_tells_no_names_addresses_or_keys() -> None:
    said = (
        "cannot log alice in at gpu-0042.example.com (10.20.30.40) with AKIAIOSFODNN7EXAMPLE, see /home/alice/log: not all CUDA 12.9 events"
    )
    assert without_private(said, ["alice", "gpu-0042"]) == "cannot log … in at … with … see … not all CUDA 12.9 events"


def test_private_values_are_digests_and_what_is_not_listed_is_not_there(tmp_path: Path) -> None:
    path = captured(tmp_path, PRIVATE)
    found = load(path).provenance.environment
    assert LEAKS.search(repr(found)) is None
    assert LEAKS.search(repr(load(path).provenance)) is None
    values = told(found)
    listed = {name for name, value in PRIVATE.items() if name in values}
    assert listed == {
        name
        for name in PRIVATE
        if name.startswith(("NCCL_", "CUDA_", "NVTE_", "NVSHMEM_", "TORCHINDUCTOR_", "OMP_", "UCX_", "TRITON_"))
        and name not in ("NCCL_PASSWORD", "NCCL_API_KEY", "NVTE_AUTH_TOKEN", "NCCL_VERSION")
    }
    for name in listed:
        assert values[name] == digest(PRIVATE[name]), name
    assert values["PyTorch"] == digest(PRIVATE["PYTORCH_VERSION"])
    assert values["NCCL"] == digest(PRIVATE["NCCL_VERSION"])
    assert (values["GPU driver"], values["CPU"]) == ("560.94", "Some CPU @ 2.50GHz")
    assert "Nsight Systems" not in values, "the folder is no folder of Nsight's"


def test_nothing_private_is_in_the_document(tmp_path: Path) -> None:
    path = captured(tmp_path, PRIVATE)
    document = encode(diagnose([path], include_host_info=False)).decode()
    assert LEAKS.search(document) is None
    assert '"name": "NCCL_TOPO_FILE"' in document


def test_a_difference_of_hidden_values_still_shows(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = told(load(captured(tmp_path, {"CUDA_HOME": "/usr/local/cuda-12.8"})).provenance.environment)
    other = told(load(captured(tmp_path / "other", {"CUDA_HOME": "/usr/local/cuda-12.4"})).provenance.environment)
    assert re.fullmatch(r"digest [0-9a-f]{10}", one["CUDA_HOME"])
    assert one["CUDA_HOME"] != other["CUDA_HOME"]


@for_each(
    "value",
    "1", "-1", "0.85", "LAZY", "expandable_segments:True,max_split_size_mb:512,garbage_collection_threshold:0.8", ":4096:8", ":16:8",
    ":4096:2:16:8", "mlx5_0:1,mlx5_1:1", "^mlx5_3", "=eth0", "Ring,Tree", "INIT,GRAPH", "allreduce:tree;broadcast:ring",
    "rc,cuda_copy,cuda_ipc", "0,1,2,3,4,5,6,7", "2.21.5-1+cuda12.4", "8.0 9.0 10.0 12.0+PTX", "LL128", "8388608",
)  # fmt: skip
def test_plain_values_are_shown(value: str) -> None:
    assert shown_value(value, frozenset({"alice"})) == value


@for_each(
    "value",
    "/opt/x", "~", "./x", "a/b/c", "s3://bucket/key", "node17.cluster", "01.cluster.example", "3-node.example", "192.168.1.7",
    "192.168.1.7:29500", "2001:db8:0:0:0:0:2:1", "2001:1234:5678:1:2:3:4:5", "::1", "00:1b:44:11:3a:b7", "me@host", "ALICE_cfg",
    "x" * 33, "1" * 17, "00000000-0000-0000-0000-000000000001", "0123456789ab", "$(id)", "<b>", "word " * 40, "ünïcode / path",
    "\x1b[31m",
)  # fmt: skip
def test_other_values_are_digests(value: str) -> None:
    assert shown_value(value, frozenset({"alice"})) == digest(value.strip())


def test_an_empty_value_is_said_to_be_empty() -> None:
    assert shown_value("  ") == "(empty)"


# --- Nsight -----------------------------------------------------------------------------------------------------------


def test_whose_variables_they_are_is_said(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    own = load(captured(tmp_path, {"NCCL_DEBUG": "INFO"}))
    handed = load(captured(tmp_path / "other", {"NCCL_DEBUG": "INFO"}, command="torchrun"))
    sources = [{item.name: item.source for item in trace.provenance.environment}["NCCL_DEBUG"] for trace in (own, handed)]
    assert sources == [
        "META_DATA_CAPTURE, environment of the command that nsys started",
        "META_DATA_CAPTURE, environment of the launcher that nsys started",
    ]


def test_more_variables_than_are_listed_are_counted(tmp_path: Path) -> None:
    many = {f"NCCL_X{number:03}": str(number) for number in range(MAX_VARIABLES + 30)}
    found = [item for item in load(captured(tmp_path, many)).provenance.environment if item.kind == "variable"]
    assert len(found) == MAX_VARIABLES + 1
    assert re.fullmatch(r"30, digest [0-9a-f]{10}", found[-1].value)
    assert found[-1].name == "further variables"


def test_of_several_devices_all_values_stand(tmp_path: Path) -> None:
    rows = [gpu(0, 0, "NVIDIA H100", 132), gpu(1, 1, "NVIDIA A100", 108), gpu(2, 2, "NVIDIA A40", 84)]
    kernels = [db.kernel(1000, 1100, device=0), db.kernel(2000, 2100, device=1)]
    values = told(load(add(basic(tmp_path / "a.sqlite", kernels=kernels), GPU, TARGET_INFO_GPU=rows)).provenance.environment)
    assert (values["GPU"], values["multiprocessors"]) == ("NVIDIA A100, NVIDIA H100", "108, 132")


def test_odd_values_are_no_fault(tmp_path: Path) -> None:
    rows = [
        (0, "", "NvDriverVersion", 0, b"\xff\xfe"), (0, "", "CpuCores", 0, "many"), (0, "", "CudaDriverVersion", 0, "x"),
        (0, "", None, 0, 3),
    ]  # fmt: skip
    trace = load(add(basic(tmp_path / "a.sqlite"), SYSTEM, TARGET_INFO_SYSTEM_ENV=rows))
    assert set(told(trace.provenance.environment)) == {"Nsight Systems of the export"}


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def kineto(**keys: object) -> dict[str, str]:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7}}
    text = json.dumps({"schemaVersion": 1, **keys, "traceEvents": [kernel]}).encode()
    return told(conform(torch_json.read(io.BytesIO(text), display_name="t.json", rules=RULES)).provenance.environment)


def test_only_listed_keys_of_a_pytorch_trace_are_taken() -> None:
    found = kineto(
        username="alice",
        host_name=HOST,
        tw_job="job-of-alice",
        traceName="/home/alice/t.json",
        cuda_runtime_version=12_090,
        distributedInfo={"rank": 0, "nccl_version": "2.27.5", "backend": "nccl"},
        deviceProperties=[{"id": 0, "name": "NVIDIA alice GPU", "numSms": 132}, {"id": 1, "name": "other", "numSms": 1}],
    )
    assert found == {
        "CUDA runtime": "12.9",
        "NCCL": "2.27.5",
        "GPU": digest("NVIDIA alice GPU"),
        "multiprocessors": "132",
        "GPUs that the process sees": "2",
    }


@for_each("value", *[None, True, [], {}, "", "none", -1, 1e300, "12 ; rm", [1, 2]])
def test_odd_values_of_keys_are_no_fault(value: object) -> None:
    found = kineto(cuda_driver_version=value, distributedInfo=value, deviceProperties=value, cupti_version=value)
    assert set(found) <= {"CUPTI"}


@for_each("value", *(True, [22], {"major": 22}, None))
def test_what_is_neither_text_nor_number_tells_no_version(value: object) -> None:
    assert kineto(cupti_version=value, cuda_driver_version=value) == {}
    assert kineto(cupti_version=22) == {"CUPTI": "22"}


# --- several inputs ---------------------------------------------------------------------------------------------------


def item(name: str, value: str, kind: EnvironmentKind = "variable") -> EnvironmentItem:
    return EnvironmentItem(name=name, kind=kind, value=value, source="here")


def test_what_inputs_share_is_said_once_and_what_differs_shortly() -> None:
    parts = [
        (
            item("driver", "1.0", "version"),
            item("cpu", "x", "hardware"),
            item("B", str(number)),
            item("A", "same"),
            *([item("C", "1")] if number else []),
        )
        for number in range(5)
    ]
    found = merged([(), *parts])
    assert [(one.kind, one.name) for one in found] == [
        ("version", "driver"), ("hardware", "cpu"), ("variable", "A"), ("variable", "B"), ("variable", "C"),
    ]  # fmt: skip
    assert [one.value for one in found[:3]] == ["1.0", "x", "same"]
    values = told(found)
    assert re.fullmatch(r"differs between inputs: 5 values, digest [0-9a-f]{10}", values["B"])
    assert values["C"] == "differs between inputs: 1 | (not set)"
    assert told(merged(parts[:2]))["B"] == "differs between inputs: 0 | 1"
    assert merged([parts[0], parts[0]]) == merged([parts[0]])
    assert merged([]) == ()


def test_the_list_is_sound() -> None:
    assert len({one.name for one in RULES.items}) == len(RULES.items)
    assert all(place for one in RULES.items for place in one.from_)
    assert "NCCL_VERSION" in RULES.used
