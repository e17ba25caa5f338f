"""Which kernel is which, and what changed of it."""

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from diagnose.document.comparison import KernelChange
from diagnose.document.device import DeviceKernels, KernelUse
from diagnose.reason.compare.kernels import KernelChanges
from tests.builders.cases import for_each
from tests.builders.compared import document, kernel, sequence
from tests.builders.comparing import family, kernels, match

HERE = ((0, 0), (0, 0))


def changes(base: Sequence[KernelUse], new: Sequence[KernelUse], scale: Fraction = Fraction(1)) -> KernelChanges:
    return kernels(document(kernels=base), document(kernels=new), HERE, scale)


def only(base: Sequence[KernelUse], new: Sequence[KernelUse]) -> KernelChange:
    (found,) = changes(base, new).changes
    return found


A, B, C, D = (kernel(name, 10, 50_000, stream=7) for name in ("alpha", "beta", "gamma", "delta"))
BASE = sequence((A, B, C, D))


def test_the_same_kernels_are_no_change_whatever_their_streams() -> None:
    found = changes(BASE, BASE)
    assert (found.changes, found.same, found.notes) == ((), 4, ())
    other = [structs.replace(row, stream=20) for row in BASE]
    assert changes(BASE, other).changes == ()


def test_renamed_kernels_are_known_by_their_places() -> None:
    found = only(BASE, sequence((A, kernel("other", 10, 60_000), C, D)))
    assert (found.kind, found.was, found.name) == ("renamed", "beta", "other")
    assert found.delta_ns == 100_000
    assert "before and after" in found.why
    base = sequence(tuple(kernel(f"old_{name}", 10, 10_000) if name in "cdef" else kernel(name, 10, 10_000) for name in "abcdefgh"))
    new = sequence(tuple(kernel(f"new_{name}", 10, 10_000) if name in "cdef" else kernel(name, 10, 10_000) for name in "abcdefgh"))
    found = changes(base, new)
    assert {(row.kind, row.was, row.name) for row in found.changes} == {("renamed", f"old_{name}", f"new_{name}") for name in "cdef"}


def test_a_kernel_that_follows_itself_is_known_by_that_and_its_launches() -> None:
    was, name = (f"void cutlass::device_kernel<Gemm<{one}>>(P)" for one in ("Pingpong", "Cooperative"))
    base = [kernel(was, 72, 600_000, previous=0, next=0), structs.replace(A, previous=1, next=1)]
    found = only(base, [structs.replace(base[0], name=name), base[1]])
    assert (found.kind, found.was) == ("renamed", was)
    assert "several times in a row, launched as often" in found.why
    apart = [structs.replace(base[0], name=name, launches=576), base[1]]  # one product for each expert: something else
    assert sorted(row.kind for row in changes(base, apart).changes) == ["gone", "new"]


def test_no_rename_where_several_could_be_meant_or_place_or_part_are_others() -> None:
    # A new kernel that may be either of two gone ones: same bucket, same launches, the same kernel before it
    base = [kernel("a", 10, 1000), kernel("x", 10, 1000, previous=0), kernel("y", 10, 1000, previous=0)]
    new = [kernel("a", 10, 1000), kernel("z", 10, 1000, previous=0)]
    assert sorted((row.kind, row.name) for row in changes(base, new).changes) == [("gone", "x"), ("gone", "y"), ("new", "z")]
    found = changes(sequence((A, B, C, D)), sequence((A, C, D, kernel("epsilon", 3, 500))))
    assert sorted((row.kind, row.name) for row in found.changes) == [("gone", "beta"), ("new", "epsilon")]
    found = changes(BASE, sequence((A, kernel("other", 10, 50_000, bucket="norm"), C, D)))
    assert sorted(row.kind for row in found.changes) == ["gone", "new"]


@for_each(
    "was, name",
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT", "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NTT"),
    ("cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_tn_align8", "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_64x4_tn_align8"),
    (
        "void flash::flash_fwd_kernel<Traits<(int)128, (int)64, (bool)0>>(P)",
        "void flash::flash_fwd_kernel<Traits<(int)128, (int)128, (bool)1>>(P)",
    ),
)
def test_tile_sizes_are_variants_of_one_function(was: str, name: str) -> None:
    assert family(was) == family(name)
    (found,) = changes([kernel(was, 8, 9000), A], [kernel(name, 8, 8000), A]).changes
    assert (found.kind, found.was, found.delta_ns) == ("renamed", was, -8000)


def test_other_layouts_and_functors_are_other_functions() -> None:
    assert family("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT") != family("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT")
    fill, add = (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::" + functor
        for functor in ("FillFunctor<float>>", "CUDAFunctor_add<float>>")
    )
    assert family(fill) != family(add)


def test_slower_and_faster_go_by_the_launch() -> None:
    slower = only(BASE, sequence((A, kernel("beta", 10, 60_000), C, D)))
    assert (slower.kind, slower.base_launch_ns, slower.new_launch_ns, slower.delta_ns) == ("slower", 50_000, 60_000, 100_000)
    assert only(BASE, sequence((A, kernel("beta", 10, 40_000), C, D))).kind == "faster"
    assert changes(BASE, sequence((A, kernel("beta", 10, 51_000), C, D))).changes == ()
    tiny = sequence((A, kernel("beta", 10, 1_000), C, D)), sequence((A, kernel("beta", 10, 1_150), C, D))
    assert changes(*tiny).changes == ()  # a few ticks of the clock


def test_more_and_fewer_go_by_the_count_and_the_larger_change_names_it() -> None:
    assert only(BASE, sequence((A, kernel("beta", 15, 50_000), C, D))).kind == "more"
    assert only(BASE, sequence((A, kernel("beta", 5, 50_000), C, D))).kind == "fewer"
    assert only(BASE, sequence((A, kernel("beta", 20, 55_000), C, D))).kind == "more"
    assert only(BASE, sequence((A, kernel("beta", 11, 150_000), C, D))).kind == "slower"


def test_a_kernel_on_another_stream_has_moved() -> None:
    side = [kernel("comm", 4, 90_000, stream=20, bucket="collective", role="transport")]
    base = [*BASE, *side]
    new = [structs.replace(row, stream=20) if row.name == "beta" else row for row in base]
    (found,) = changes(base, new).changes
    assert (found.kind, found.name, found.was_stream, found.stream) == ("moved", "beta", 7, 20)
    assert "stream 20" in found.why


def test_what_is_gone_says_where_it_still_runs_and_one_name_may_be_two_kernels() -> None:
    base = [*BASE, kernel("beta", 5, 50_000, stream=20), kernel("comm", 4, 9000, stream=20)]
    new = [
        kernel("beta", 15, 50_000) if row.name == "beta" and row.stream == 7 else row
        for row in base
        if (row.name, row.stream) != ("beta", 20)
    ]
    found = {row.kind: row for row in changes(base, new).changes}
    assert set(found) == {"more", "gone"}
    assert found["gone"].why == "It still runs on stream 7."
    rows = [kernel("gather", 10, 1000, bucket="dispatch"), kernel("gather", 20, 1000, bucket="embedding"), A]
    assert changes(rows, rows).changes == ()
    (gone,) = changes(rows, rows[1:]).changes
    assert (gone.kind, gone.bucket) == ("gone", "dispatch")


def test_names_left_out_are_said_and_captures_of_other_length_are_scaled() -> None:
    base, new = document(kernels=BASE), document(kernels=BASE)
    new = structs.replace(new, kernels=(DeviceKernels(rank=0, device=0, kernels=BASE, omitted=7, omitted_ns=1000),))
    (note,) = kernels(base, new, HERE).notes
    assert "leaves out 7 kernel names" in note
    (absent,) = kernels(base, document(), HERE).notes
    assert "does not hold the kernels" in absent
    twice = [structs.replace(row, launches=2 * row.launches, work_ns=2 * row.work_ns) for row in BASE]
    assert (changes(BASE, twice, Fraction(1, 2)).changes, len(changes(BASE, twice).changes)) == ((), 4)


NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
ROWS = st.lists(
    st.builds(
        kernel,
        name=NAMES,
        launches=st.integers(1, 20),
        launch_ns=st.integers(1000, 100_000),
        stream=st.sampled_from([None, 7, 20]),
        bucket=st.sampled_from(["attention", "norm"]),
        previous=st.none() | st.integers(0, 3),
        next=st.none() | st.integers(0, 3),
    ),
    max_size=8,
    unique_by=lambda row: (row.name, row.stream, row.bucket),
)


@given(ROWS, ROWS)
def test_nothing_is_lost_and_nothing_counts_twice(base: list[KernelUse], new: list[KernelUse]) -> None:
    found = match(base, new)
    assert sorted([pair.base for pair in found.pairs] + list(found.gone)) == list(range(len(base)))
    assert sorted([pair.new for pair in found.pairs] + list(found.added)) == list(range(len(new)))
    listed = changes(base, new)
    unchanged = sum(new[pair.new].work_ns - base[pair.base].work_ns for pair in found.pairs) - sum(
        row.delta_ns for row in listed.changes if row.kind not in {"new", "gone"}
    )
    total = sum(row.work_ns for row in new) - sum(row.work_ns for row in base)
    assert sum(row.delta_ns for row in listed.changes) + unchanged == total
    sizes = [abs(row.delta_ns) for row in listed.changes]
    assert sizes == sorted(sizes, reverse=True)


@given(ROWS)
def test_any_kernels_against_themselves_are_the_same(rows: list[KernelUse]) -> None:
    assert changes(rows, rows).changes == ()
