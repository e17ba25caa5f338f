"""No two findings on the host claim the same time: what each counts for itself is together no more than what was starved."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.measure.facts import device_facts
from diagnose.measure.records import device_records
from tests.builders.scene import KNOWLEDGE, Item, Scene, Span, await_event, call, record, run, scene

TICK = 50_000  # ns, so that some pauses last longer than a millisecond
CLAIMED = ("allocator_ns", "host_gap_excess_ns", "gc_ns", "data_loading_ns", "message_passing_ns", "host_sync_ns", "sync_restart_ns")
AROUND = ("gc.collect", "enumerate(DataLoader)#next", "aten::add")


def program(seed: int) -> Scene:
    """A host that launches products, exchanges on a stream of their own, waits, allocates, and falls silent in ranges of all kinds."""
    rng = random.Random(seed)
    items: list[Item] = []
    spans: list[Span] = []
    now, free, moved, sync = 0, 0, 0, 0
    for _ in range(rng.randint(4, 24)):
        kind = rng.choice(["run"] * 5 + ["exchange", "sync", "malloc", "pause", "pause"])
        if kind == "run":
            start = max(free, now + 2)
            free = start + TICK * rng.randint(1, 6)
            items.append(run("gemm", start, free, now, until=now + 1))
        elif kind == "exchange":
            start = max(moved, now + 2)
            moved, sync = start + TICK * rng.randint(1, 10), sync + 1
            items += [
                run("nccl", start, moved, now, until=now + 1, stream=20),
                record(now + 2, 20, sync=sync),
                await_event(now + 4, 7, sync=sync),
            ]
            now, free = now + 6, max(free, moved)
        elif kind == "sync":
            until = max(now, free) + TICK // 10
            items.append(call("cudaStreamSynchronize", now, until, wait="stream_sync", stream=7))
            now = until
        elif kind == "malloc":
            items.append(call("cudaMalloc", now, now + TICK))
            now += TICK
        else:
            length = TICK * rng.choice([1, 3, 30, 60])
            spans.append(Span(text=rng.choice(AROUND), start=now, end=now + length))
            now += length
        now += rng.choice([5, TICK // 5])
    return scene([*items, run("gemm", max(free, now + 2), max(free, now + 2) + TICK, now, until=now + 1)], spans)


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=10**9))
def test_what_findings_on_the_host_claim_is_no_more_than_what_was_starved(seed: int) -> None:
    (one,) = program(seed).measure()
    found = device_facts(one, device_records(one), KNOWLEDGE)
    claimed = {name: value for name in CLAIMED if isinstance(value := found[name], int)}
    starved = found["launch_starved_ns"]
    assert isinstance(starved, int)
    assert min(claimed.values()) >= 0
    assert sum(claimed.values()) <= starved, claimed
