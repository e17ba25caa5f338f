"""What must hold between the parts of any diagnosis document."""

from diagnose.document.device import RAN, WHY
from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.buckets import load_buckets


def check_parts(found: Diagnosis) -> None:
    """The split of every step adds up and agrees with the budget; kernels are those of the buckets, and their neighbours stand among
    them.
    """
    assert [(one.rank, one.device, len(one.steps)) for one in found.split] == [
        (one.rank, one.device, len(one.per_step)) for one in found.budget
    ]
    for device, own in zip(found.split, found.budget, strict=True):
        for step, budget in zip(device.steps, own.per_step, strict=True):
            why = {name: sum(cell.ns for cell in step.absent if cell.why == name) for name in WHY}
            assert (step.index, step.window_ns) == (budget.index, budget.window_ns)
            assert sum(step.compute.values()) + sum(why.values()) == step.window_ns
            assert sum(step.compute.values()) == budget.compute_busy_ns
            assert sum(cell.ns for cell in step.absent if cell.ran == "nothing") == budget.device_idle_ns
            assert (why["transport"], why["packing"], why["copy"]) == (
                budget.blocking_transport_ns,
                budget.blocking_packing_ns,
                budget.blocking_copy_ns,
            )
            assert (why["allocator"], why["host_sync"], why["host_work"]) == (budget.allocator_ns, budget.host_sync_ns, budget.host_work_ns)
            assert why["dependency_stalled"] + why["step_end"] == budget.dependency_stalled_ns
            assert all(cell.ns > 0 for cell in step.absent)
            assert all(step.compute.values())
            assert list(step.compute) == [bucket for bucket in load_buckets() if bucket in step.compute]
            assert [(cell.ran, cell.why) for cell in step.absent] == sorted(
                {(cell.ran, cell.why) for cell in step.absent}, key=lambda cell: (RAN.index(cell[0]), WHY.index(cell[1]))
            )
    for used in found.kernels:
        rows = used.kernels
        assert [row.work_ns for row in rows] == sorted((row.work_ns for row in rows), reverse=True)
        assert all(
            place is None or (0 <= place < len(rows) and rows[place].stream == row.stream)
            for row in rows
            for place in (row.previous, row.next)
        )
        if not used.omitted and found.steps.n == 1:
            work = {row.bucket: row.work_ns for row in found.buckets if (row.rank, row.device) == (used.rank, used.device)}
            assert {bucket: sum(row.work_ns for row in rows if row.bucket == bucket) for bucket in work} == work
