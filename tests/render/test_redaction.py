"""What may leave the house: nothing private of a hostile job file, and everything that a reader of the settings needs."""

import re
from pathlib import Path

from msgspec import structs

from diagnose.job.read import read_job
from diagnose.knowledge.settings import load_job_settings
from diagnose.render.redaction import Redactor, is_secret, listing
from tests.builders.cases import for_each
from tests.builders.diagnosis import rich

ROOT = Path(__file__).parents[2]
# Job text → what must be gone, and what must stay. Every secret is made up.
HF, HEX40 = "hf_" + "AbCdEfGhIjKlMnOpQrStUv", "0123456789abcdef0123456789abcdef01234567"
CASES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "export": (f"export WANDB_API_KEY={HEX40}\n", (HEX40,), ("export WANDB_API_KEY=",)),
    "export quoted with spaces": ('export DB_PASSWORD="correct horse"; echo hi\n', ("correct", "horse"), ("echo hi",)),
    "single quotes": ("HF_TOKEN='se cret' python train.py\n", ("se cret",), ("python train.py",)),
    "yaml plain with spaces": ("password: correct horse battery  # mine\nlr: 3e-4\n", ("correct", "battery"), ("lr: 3e-4",)),
    "yaml list of a secret": ("tokens:\n  api_token:\n    - abc123\n    - def456\nlr: 1\n", ("abc123", "def456"), ("lr: 1",)),
    "yaml block": ("private_key: |\n  line1secret\n  line2secret\nlr: 1\n", ("line1secret", "line2secret"), ("lr: 1",)),
    "pem": ("key: x\n-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----\nlr: 1\n", ("MIIEabc",), ("lr: 1",)),
    "json": ('{"wandb": {"api_key": "topsecret1"}, "lr": 1}\n', ("topsecret1",), ('"lr": 1',)),
    "toml": ('hf_token = "topsecret1"\nsteps = 10\n', ("topsecret1",), ("steps = 10",)),
    "flag and value": ("torchrun t.py --api-key topsecret1 --lr 1e-3\n", ("topsecret1",), ("--lr 1e-3",)),
    "flag with equals": ("torchrun t.py --hf-token=topsecret1 --lr 1e-3\n", ("topsecret1",), ("--lr 1e-3",)),
    "override": ("python t.py +trainer.wandb.api_key=topsecret1 model.tp=2\n", ("topsecret1",), ("model.tp=2",)),
    "kubernetes": ("- name: NGC_API_KEY\n  value: topsecret1\n- name: NCCL_DEBUG\n  value: INFO\n", ("topsecret1",), ("value: INFO",)),
    "one line of docker": ("docker run -e WANDB_API_KEY=topsecret1 -e NCCL_DEBUG=INFO img\n", ("topsecret1",), ("NCCL_DEBUG=INFO",)),
    "camel case": ("accessToken: topsecret1\nnumLayers: 4\n", ("topsecret1",), ("numLayers: 4",)),
    "login": (f"wandb login {HEX40}\n", (HEX40,), ("wandb login",)),
    "bearer": ('curl -H "Authorization: Bearer abc.def-ghi" https://x.example.com/api\n', ("abc.def-ghi", "x.example.com"), ("curl",)),
    "basic": ("curl -u alice:pw12345 https://github.com/a/b\n", ("alice", "pw12345"), ("github.com",)),
    "address with password": ("git clone https://bob:pw12345@git.corp.internal/x.git\n", ("bob", "pw12345", "git.corp"), ("git clone",)),
    "token by its form": (f"login {HF} and ghp_{'a1' * 18} AKIA{'A1' * 8}\n", (HF, "ghp_a1", "AKIAA1"), ("login",)),
    "web token": ("x eyJhbGciOi.eyJzdWIiOi.SflKxw y\n", ("eyJhbGciOi",), (" y",)),
    "drawn by lot": ("extra: q7XzP2mK9vLw3RtY8nBd5Hs1\n", ("q7XzP2mK9vLw3RtY8nBd5Hs1",), ("extra:",)),
    "drawn by lot, with hyphens": ("extra: q7-zP2mK9_Lw3RtY8nBd5-s1Xa0Vb7Ucc\n", ("zP2mK9",), ("extra:",)),
    "default of a variable": (
        "export HF_TOKEN=${HF_TOKEN:-topsecret1}\n",
        ("topsecret1",),
        ("export HF_TOKEN=${HF_TOKEN:-redacted-secret-1}",),
    ),
    "signed address": ("url: https://x.blob.core.windows.net/d?sv=1&sig=AbC%3D\n", ("AbC%3D", "blob.core"), ("url:",)),
    "home": ("data_path: /home/alice/proj x/data.bin\nnote: alice did it\n", ("alice",), ("data_path:", "note:")),
    "paths on a list": ("export PATH=/opt/alice_tools/bin:/lustre/team-x/bin:$PATH\n", ("alice_tools", "team-x"), (":$PATH",)),
    "quoted path with spaces": ('save: "/mnt/My Project/run 1"\n', ("My Project", "run 1"), ("save:",)),
    "escaped space": ("cd /mnt/My\\ Project/run && ls\n", ("Project",), ("&& ls",)),
    "variable path": ("load=${SCRATCH}/customer-x/ckpt\n", ("customer-x",), ("load=",)),
    "home of another": ("cp ~carol/x . ; cp ~/secretproj/x .\n", ("carol", "secretproj"), ("cp",)),
    "relative": ("--data-path ../customer-x/corpus data/customer-y/corpus.bin\n", ("customer-x", "customer-y"), ("--data-path",)),
    "bucket": ("ckpt: s3://customer-x/run/1\n", ("customer-x",), ("ckpt:",)),
    "windows": ("path: C:\\Users\\dave\\run, \\\\server1\\share\n", ("dave", "server1"), ("path:",)),
    "one folder at home": ("export TMPDIR=~/secretproj LOG=$HOME/secretlog\n", ("secretproj", "secretlog"), ("export TMPDIR=",)),
    "one folder": ("save: /customer_x\n", ("customer_x",), ("save:",)),
    "hosts": (
        "#SBATCH --nodelist=gpu-[01-04],login7\nexport MASTER_ADDR=gpu-01.cluster.local\n--rdzv-endpoint=node17:29500\n",
        ("gpu-", "login7", "node17"),
        ("#SBATCH --nodelist=", ":29500"),
    ),
    "mpirun": ("mpirun -x A=1 --host nodeA:8,nodeB:8 -np 16 python t.py\n", ("nodeA", "nodeB"), ("-np 16",)),
    "addresses": ("ip 10.1.2.3 fd00:1:2:3:4:5:6:7\n", ("10.1.2.3", "fd00:1:2"), ("ip ",)),
    "seat": ("scp x eve@box9:/data/y .\n", ("eve", "box9"), ("scp x",)),
    "mail": ("#SBATCH --mail-user=eve.x@corp.example\n", ("eve.x", "corp.example"), ("#SBATCH",)),
    "user and account": (
        "#SBATCH --account=team_blue\nwandb_entity: blue-lab\nuser: frank\n",
        ("team_blue", "blue-lab", "frank"),
        ("user:",),
    ),
    "found once, gone everywhere": ("user: frank\nexp: frank-run-7 by FRANK_x\n", ("frank-run",), ("-run-7",)),
    "comment": ("# ask grace@corp.example, token=topsecret1\n", ("grace", "topsecret1"), ("# ask",)),
    "windows line ends": ("api_key: topsecret1\r\nlr: 1\r\n", ("topsecret1",), ("lr: 1\r\n",)),
    "second on the line": ("A=1 B_TOKEN=topsecret1 C=2\n", ("topsecret1",), ("A=1", "C=2")),
    "flow mapping": ("env: {HF_TOKEN: topsecret1, NCCL_DEBUG: INFO}\n", ("topsecret1",), ("NCCL_DEBUG: INFO",)),
    "here document": ("cat > .netrc <<E\nmachine api.wandb.ai login user password topsecret1\nE\n", ("topsecret1",), ("machine",)),
    "value is the next line": ("  --api-key \\\n  topsecret1 \\\n  --lr 1\n", ("topsecret1",), ("--lr 1",)),
}
KEPT = """\
tensor_model_parallel_size: 2
moe_token_dispatcher_type: alltoall
tokenizer_type: HuggingFaceTokenizer
num_tokens: 4096
eos_token: 2
max_tokens_per_gpu: 8192
sequence_parallel: true
lr: 3e-4
model: Qwen/Qwen3-30B-A3B
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_IB_HCA=mlx5_0,mlx5_1
torchrun --nproc-per-node 8 --nnodes=$SLURM_NNODES --master-addr $MASTER_ADDR --master-port 29500 pretrain_gpt.py \\
  --num-layers 48 --expert-model-parallel-size 16 --moe-router-topk 8 --bf16 --use-distributed-optimizer
container: nvcr.io/nvidia/nemo:25.09
_target_: megatron.bridge.models.qwen.Qwen3MoEModelProvider30BA3B
export WANDB_API_KEY=${WANDB_API_KEY:-}    # leave empty to disable
COMMIT=${COMMIT:-0123456789abcdef0123456789abcdef01234567}
revision: 0123456789abcdef0123456789abcdef01234567
TOKENIZER_MODEL=meta-llama/Llama-4-Maverick-17B-128E-Instruct
# http://www.apache.org/licenses/LICENSE-2.0
started: 2026-01-02 03:04:05
master_addr: localhost
key: value
author_note: none
"""


@for_each("name", *CASES)
def test_what_is_private_goes_and_settings_stay(name: str) -> None:
    text, gone, kept = CASES[name]
    made = Redactor().job(text)
    assert [one for one in gone if one in made] == [], made
    assert [one for one in kept if one not in made] == [], made
    assert made.count("\n") == text.count("\n"), made
    assert Redactor().job(made) == made, "a second pass changes it"


def test_ordinary_settings_are_untouched() -> None:
    assert Redactor().job(KEPT).splitlines() == KEPT.splitlines()


@for_each("path", *sorted((ROOT / "fixtures" / "jobs").glob("*.*")))
def test_a_redacted_job_is_read_as_the_same_job(path: Path, tmp_path: Path) -> None:
    if path.suffix in (".md", ".overrides"):
        return
    table = load_job_settings()
    made = tmp_path / path.name
    made.write_text(Redactor().job(path.read_text(encoding="utf-8")), encoding="utf-8")
    before, after = (read_job(one, table) for one in (path, made))
    assert (after.format, {name: str(one) for name, one in after.settings.items() if "redacted" not in str(one)}.items()) <= (
        before.format,
        {name: str(one) for name, one in before.settings.items()}.items(),
    )
    assert len(after.settings) == len(before.settings)


def test_names_of_settings_that_hold_secrets() -> None:
    private = "WANDB_API_KEY hf_token GITHUB_TOKEN apiKey aws_secret_access_key db.password NGC_API_KEY client_secret slack_webhook ssh_private_key KEY"
    open_ = "tokenizer num_tokens token_dispatcher eos_token_id moe_token_drop_policy key keys_per_head monkey author max_token micro_batch passes keyframe"
    assert [key for key in private.split() if not is_secret(key)] == []
    assert [key for key in open_.split() if is_secret(key)] == []


def test_the_same_value_has_the_same_stand_in_and_the_list_holds_no_value() -> None:
    redactor = Redactor(users=["heidi"], hosts=["box-17"])
    first = redactor.job("a_token: topsecret1\nb_token: topsecret1\nc_token: topsecret2\n")
    assert [line.split(": ")[1] for line in first.splitlines()] == ["redacted-secret-1", "redacted-secret-1", "redacted-secret-2"]
    assert redactor.text("heidi on box-17 said topsecret1 at /home/heidi/x and /lib") == (
        "redacted-user-1 on redacted-host-1 said redacted-secret-1 at /redacted and /lib".replace("/redacted", "redacted-path-1")
    )
    said = "\n".join(listing(redactor.stand_ins))
    assert "beside a_token, b_token" in said
    assert re.findall(r"(redacted-\S+) +(\d+)×", said) == [
        ("redacted-secret-1", "3"), ("redacted-secret-2", "1"), ("redacted-path-1", "1"), ("redacted-host-1", "1"), ("redacted-user-1", "2"),
    ]  # fmt: skip
    assert [one for one in ("topsecret", "heidi", "box-17") if one in said] == []


def test_a_word_of_a_closed_vocabulary_that_is_a_user_s_name_too_stays_where_nothing_else_may_stand() -> None:
    found = rich()
    found = structs.replace(found, verdict=structs.replace(found.verdict, sentence="By medium, who ran it."))
    redacted = Redactor(users=["medium"]).record(found)
    assert [finding.severity for finding in redacted.findings] == [finding.severity for finding in found.findings]
    assert "medium" in {finding.severity for finding in redacted.findings}
    assert redacted.verdict.sentence == "By redacted-user-1, who ran it."


@for_each("text", "", "\n", "a: [", "x=" * 5000, "'" * 3000, "/" * 5000, "key: " + "a" * 100_000, "-----BEGIN PRIVATE KEY-----" * 50)
def test_any_text_is_read_in_little_time(text: str) -> None:
    assert isinstance(Redactor().job(text), str)
