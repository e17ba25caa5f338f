"""Kinds of steps: what tells them apart, and what made the long ones long."""

from collections.abc import Sequence

from diagnose.measure.step_classes import Classes
from tests.builders.scene import Item, Span, run, scene

MS = 1_000_000
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def steps(pauses: Sequence[int], kernels: Sequence[int] = (), loader: str | None = LOADER) -> Classes:
    """Steps of ten 1 ms kernels (or as many as `kernels` says), the host pausing (ms) before the sixth inside the loader's range."""
    items: list[Item] = []
    spans: list[Span] = []
    now = 10 * MS
    for number, pause in enumerate(pauses):
        begin = now
        for place in range(kernels[number] if kernels else 10):
            if place == 5:
                if loader:
                    spans.append(Span(text=loader, start=now - 1000, end=now + pause * MS - 2000))
                now += pause * MS
            items.append(run("gemm", now, now + MS, now - 1500))
            now += MS
        spans.append(Span(text=f"step {number}", start=begin - 1600, end=now - 1600))
    (device,) = scene(items, spans).measure()
    return device.classes


def test_alike_steps_are_one_class() -> None:
    found = steps([0] * 6)
    assert [(one.n, one.differs_by) for one in found.classes] == [(6, None)]
    assert found.long is None


def test_a_stall_every_third_step_is_a_class_named_by_its_cause_and_its_range() -> None:
    found = steps([0, 0, 30] * 3)
    assert [(one.n, one.steps) for one in found.classes] == [(6, (0, 1, 3, 4, 6, 7)), (3, (2, 5, 8))]
    assert found.classes[1].differs_by == f"+30.0 ms with the same work: CPU work between launches +30.0 ms, most of it inside {LOADER!r}"
    assert found.long is not None
    assert (found.long.n, found.long.range) == (3, LOADER)
    assert abs(found.long.each_ns - 30 * MS) < MS
    assert abs(found.long.per_step_ns - 10 * MS) < MS


def test_a_range_in_which_the_host_always_waits_is_not_what_made_the_long_steps_long() -> None:
    """Every step pauses inside one range, every third longer inside another: only the second explains these."""
    items: list[Item] = []
    spans: list[Span] = []
    now = 10 * MS
    for number in range(9):
        begin, extra = now, 12 if number % 3 == 2 else 0
        for place, (text, pause) in enumerate((("always", 10), ("at times", extra))):
            items += [run("gemm", now + k * MS, now + (k + 1) * MS, now + k * MS - 1500) for k in range(5)]
            now += 5 * MS
            spans.append(Span(text=text, start=now - 1000, end=now + pause * MS - 2000 * (place + 1)))
            now += pause * MS
        items.append(run("gemm", now, now + MS, now - 1500))
        now += MS
        spans.append(Span(text=f"step {number}", start=begin - 1600, end=now - 1600))
    (device,) = scene(items, [span for span in spans if span.end is None or span.end > span.start]).measure()
    assert device.classes.long is not None
    assert (device.classes.long.n, device.classes.long.range) == (3, "at times")


def test_without_a_range_around_the_stall_the_cause_is_said_alone() -> None:
    found = steps([0, 0, 30] * 3, loader=None)
    assert found.long is not None
    assert found.long.cause == "+30.0 ms with the same work: CPU work between launches +30.0 ms"
    assert not found.long.more_work


def test_steps_with_more_work_are_a_class_by_their_work() -> None:
    found = steps([0] * 6, kernels=[10, 10, 10, 10, 30, 10])
    assert [one.differs_by for one in found.classes] == [None, "+20.0 ms with 30 compute operations instead of 10: computing +20.0 ms"]
    assert found.long is not None
    assert found.long.more_work


def test_the_range_that_launches_what_only_long_steps_do_is_named() -> None:
    """An evaluation in every third step: the host runs ahead, so that the range is over before its work begins."""
    items: list[Item] = []
    spans: list[Span] = []
    now = 10 * MS
    for number in range(9):
        begin, count = now, 30 if number % 3 == 2 else 10
        items += [run("gemm", now + place * MS, now + (place + 1) * MS, begin - 9000 + 100 * place) for place in range(count)]
        spans += [Span(text=f"step {number}", start=begin - 9500, end=begin - 5000)]
        spans += [Span(text="evaluate", start=begin - 8050, end=begin - 6000)] if count > 10 else []
        now += count * MS
    (device,) = scene(items, spans).measure()
    assert device.classes.long is not None
    assert (device.classes.long.n, device.classes.long.range) == (3, "evaluate")


def test_scattered_durations_are_no_classes() -> None:
    assert len(steps([0, 5, 12, 25, 50]).classes) == 1
