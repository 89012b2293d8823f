"""Kernel names taken apart, and the key that spellings of one name share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.model.kernels import kernel_key
from tracekit.model.kernels.parts import split_name


@pytest.mark.parametrize(
    ("name", "function", "scope"),
    [
        (
            "void vllm::act_and_mul_kernel<half, &vllm::silu<half>>(T1 *)",
            "act_and_mul_kernel",
            "vllm",
        ),
        ("<unnamed>::foo(int)", "foo", "anonymous"),
        ("void (anonymous namespace)::foo<int>(int*)", "foo", "anonymous"),
        ("void a::f(int, b::c<d>)::kernel<int>(int)", "kernel", "a::f"),
        ("a::f(int)::{lambda(int)#1}::operator()(int) const", "f", "a"),
        ("a::f(int)::[lambda(int) (instance 1)]::operator ()(int) const", "f", "a"),
        ("std::enable_if<((4)>(3))||(x), void>::type ns::scale<half, 0>(half*)", "scale", "ns"),
        (
            "void k_get_rows<32, 2, &(dequantize_q4_0(void const*, int)), float>(T1)",
            "k_get_rows",
            "",
        ),
        ("void k<decltype(x)->y, a>::run<b>(int)", "run", "k"),
        ("unsigned int ns::count<a<b<c>>>(int)", "count", "ns"),
        ("void ns::shift<&ns::operator<< <int>, 3>(int)", "shift", "ns"),
        ("_ZN5flash16flash_fwd_kernelIiEEvT_", "flash_fwd_kernel", "flash"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0", ""),
        ("void ns::foo<unfinished, std::arr", "foo", "ns"),
        ("void ns::foo<int>(float const*, unfin", "foo", "ns"),
        ("", "", ""),
    ],
)
def test_function_and_scope(name: str, function: str, scope: str) -> None:
    parts = split_name(name)
    assert (parts.function, parts.scope) == (function, scope)


def test_template_text_is_that_of_the_function_alone() -> None:
    parts = split_name("std::enable_if<returned<int>, void>::type ns::f<given<(a)1>>(argument<x>)")
    assert parts.inner == "<given<(a)1>>"
    assert parts.head == "ns::f"
    assert parts.whole == "ns::f <given<(a)1>>"


SPELLINGS = (
    (
        "void n::k<(int)128, (bool)1>(T1 *, int)",
        "void n::k<128, true>(float*, int)",
        "n::k<128, true>(float *, int)",
        "__global__ void n::k<128, true>(float*, int)",
    ),
    (
        "void at::native::<unnamed>::k<std::array<char *, (unsigned long)2>>(T1)",
        "void at::native::(anonymous namespace)::k<std::array<char*, 2ul> >(X)",
        "at::native::{anonymous}::k<std::array<char*, 2>>(X)",
    ),
    (
        "void k<f(a &, const T1 &)::[lambda() (instance 2)]::operator ()() const::"
        "[lambda(float) (instance 1)]>(int, T3)",
        "void k<f(a&, b const&)::{lambda()#2}::operator()() const::{lambda(float)#1}>(int, c)",
        "k<f(a&, b const&)::'lambda0'()::operator()() const::'lambda'(float)>(int, c)",
    ),
    ("foo(const float *, int)", "foo(float const*, int)"),
    ("n(s<(unsigned long)4096>)", "n(s<4096ul>)"),
)


@pytest.mark.parametrize("spellings", SPELLINGS)
def test_spellings_of_one_kernel_share_a_key(spellings: tuple[str, ...]) -> None:
    assert len({kernel_key(name) for name in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void k<128>(int)", "void k<256>(int)"),
        ("void k<true>(int)", "void k<false>(int)"),
        ("foo(int)", "foo(float)"),
        ("void k<f()::{lambda()#1}>(int)", "void k<f()::{lambda()#2}>(int)"),
        ("a::k<1>(int)", "b::k<1>(int)"),
        ("nvjet_tst_64x8_64x16_2x1_v_bz_TNT", "nvjet_tst_64x8_64x16_2x1_v_bz_TNN"),
        ("void k<(E)0>(int)", "void k<(E)1>(int)"),
        ("k_u8", "k_u16"),
    ],
)
def test_different_kernels_keep_different_keys(one: str, other: str) -> None:
    assert kernel_key(one) != kernel_key(other)


@pytest.mark.parametrize("name", ["_ZN4fooIiEvT_", "triton_red_fused_mean_1", "sm80_xmma_gemm", ""])
def test_plain_and_mangled_names_are_their_own_key(name: str) -> None:
    assert kernel_key(name) == name


@given(st.text(alphabet="ab:<>()[]{}&*,- '01#", max_size=40))
def test_no_text_is_too_odd(name: str) -> None:
    assert isinstance(kernel_key(name), str)
    assert isinstance(split_name(name).whole, str)


@given(st.sampled_from([s for group in SPELLINGS for s in group]))
def test_a_key_is_its_own_key(name: str) -> None:
    assert kernel_key(kernel_key(name)) == kernel_key(name)
