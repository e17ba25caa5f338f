"""Which line of the job file a finding points at."""

from msgspec import structs

from diagnose.document.diagnosis import Change, Finding, Fix, JobRead, JobSetting
from diagnose.reason.patch import SettingPlace
from diagnose.reason.patch import place_of as place_in
from tests.builders.cases import for_each
from tests.builders.diagnosis import rich
from tests.builders.jobs import TABLE

FINDING = rich().findings[0]


def fix(*changes: Change, state: str = "applicable") -> Fix:
    return structs.replace(FINDING.fixes[0], title="the fix", changes=changes, state=state)


def change(key: str, *, framework: str = "megatron-bridge", now: str | None = None, to: str = "true") -> Change:
    return Change(framework=framework, key=key, from_=now, to=to)


def finding(*fixes: Fix) -> Finding:
    return structs.replace(FINDING, fixes=fixes)


def job(format_: str, *settings: tuple[str, str, int | None]) -> JobRead:
    rows = tuple(JobSetting(name=name, value=1, key=key, line=line) for name, key, line in settings)
    return JobRead(format=format_, settings=rows)  # type: ignore[arg-type]


def place_of(about: Finding, read: JobRead | None) -> SettingPlace:
    return place_in(about, read, TABLE)


BRIDGE = job("megatron-bridge", ("micro_batch_size", "train.micro_batch_size", 7), ("moe_router_fusion", "model.moe_router_fusion", 12))


def test_it_is_the_line_of_the_setting_however_it_is_spelt() -> None:
    plain = job("plain", ("micro_batch_size", "micro_batch_size", 3))
    assert place_of(finding(fix(change("train.micro_batch_size"))), plain) == SettingPlace(fix="the fix", key="micro_batch_size", line=3)
    assert place_of(finding(fix(change("train.micro_batch_size"))), BRIDGE).line == 7
    flags = job("megatron-lm", ("micro_batch_size", "--micro-batch-size", 5))
    asked = finding(fix(change("train.micro_batch_size"), change("--micro-batch-size", framework="megatron-lm")))
    assert place_of(asked, flags) == SettingPlace(fix="the fix", key="--micro-batch-size", line=5)
    found = job("megatron-bridge", ("cuda_device_max_connections", "env_vars.CUDA_DEVICE_MAX_CONNECTIONS", 40))
    asked = finding(fix(change("CUDA_DEVICE_MAX_CONNECTIONS", framework="environment")))
    assert place_of(asked, found).line == 40


def test_a_setting_that_the_file_holds_goes_first_one_that_stays_last_and_one_it_lacks_has_no_line() -> None:
    asked = finding(fix(change("comm_overlap.delay_wgrad_compute"), change("model.moe_router_fusion", now="false")))
    assert place_of(asked, BRIDGE) == SettingPlace(fix="the fix", key="model.moe_router_fusion", line=12)
    asked = finding(fix(change("train.micro_batch_size", now="true"), change("model.moe_router_fusion", now="false")))
    assert place_of(asked, BRIDGE).line == 12
    asked = finding(fix(change("--moe-router-fusion", framework="megatron-lm"), change("comm_overlap.overlap_grad_reduce")))
    assert place_of(asked, BRIDGE) == SettingPlace(fix="the fix", key="comm_overlap.overlap_grad_reduce")
    assert place_of(asked, None) == SettingPlace(fix="the fix", key="comm_overlap.overlap_grad_reduce")
    elsewhere = (change("of a launcher", framework="launcher"), change("--moe-router-fusion", framework="megatron-lm"))
    assert place_of(finding(fix(*elsewhere)), BRIDGE).key == "model.moe_router_fusion", (
        "of another framework, by the setting that both have"
    )
    assert place_of(finding(fix(elsewhere[0])), BRIDGE) == SettingPlace(fix="the fix", key="")


@for_each("state", "blocked", "unknown", "already_on")
def test_only_what_is_applicable_is_pointed_at(state: str) -> None:
    blocked = fix(change("train.micro_batch_size"), state=state)
    assert place_of(finding(blocked), BRIDGE) == SettingPlace()
    assert place_of(finding(blocked, fix(change("model.moe_router_fusion"))), BRIDGE).line == 12
    assert place_of(finding(), BRIDGE) == SettingPlace()
