"""Names from traces as people read them."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from diagnose.model.names import shorten, visible
from tests.builders.cases import for_each


@for_each(
    "name, limit, text",
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 30, "ncclDevKernel_SendRecv"),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int, float)",
        60,
        "at::native::vectorized_layer_norm_kernel<float>",
    ),
    ("void ns::kernel<A<B<C<int> > > >(T)", 20, "ns::kernel<A<B<…>>>"),
    ("outer::inner::a_rather_long_kernel_name<int>", 32, "a_rather_long_kernel_name<…>"),
    (  # a carrier is told by what it carries
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90<2, 2, 2>>>>(T1::Params)",
        72,
        "cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwd…>",
    ),
    ("operator<<(", 40, "operator<<("),
    ("abcdefghij", 5, "ab…ij"),
    ("short", 40, "short"),
)
def test_kernel_names_lose_what_tells_least(name: str, limit: int, text: str) -> None:
    assert shorten(name, limit) == text


@given(st.text(max_size=400), st.integers(min_value=8, max_value=120))
def test_shortened_names_fit_and_hold_no_control_sign(name: str, limit: int) -> None:
    shown = shorten(name, limit)
    assert len(shown) <= limit
    assert all(unicodedata.category(sign) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for sign in shown)


def test_a_name_of_a_megabyte_is_shortened_at_once() -> None:
    assert len(shorten("ns::k<" * 200_000, 60)) <= 60


@given(st.text())
def test_visible_text_is_one_line_without_power(text: str) -> None:
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert visible(shown) == shown


def test_escapes_and_direction_marks_are_spelt_out() -> None:
    assert visible("a\x1b[31m\u202eb\u200bc\nd") == "a\\x1b[31m\\u202eb\\u200bc d"
    assert visible("Größe 名 µs ≤ 🚀") == "Größe 名 µs ≤ 🚀"
