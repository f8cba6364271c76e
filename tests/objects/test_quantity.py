from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.objects import quantity


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0", 0),
        ("8", 8),
        (8, 8),
        (0.5, Fraction(1, 2)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("+5", 5),
        ("-5", -5),
        ("-1Gi", -(2**30)),
        ("100m", Fraction(1, 10)),
        ("100u", Fraction(1, 10_000)),
        ("100n", Fraction(1, 10_000_000)),
        ("1k", 1000),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("12E", 12 * 10**18),
        ("1Ki", 1024),
        ("1Mi", 2**20),
        ("1.5Gi", 3 * 2**29),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("2Ei", 2**61),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", Fraction(6, 5)),
        ("1e+3", 1000),
        ("0.1n", Fraction(1, 10**9)),
        ("-0.1n", -Fraction(1, 10**9)),
        (1e22, 10**22),
    ],
)
def test_a_quantity_has_the_value_that_kubernetes_gives_it(written: str | int | float, value: Fraction | int) -> None:
    assert quantity.parse(written) == value


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "Gi",
        "m",
        "1 Gi",
        " 1",
        "1Gi ",
        "1K",
        "1KB",
        "1GB",
        "1GiB",
        "1mi",
        "0x10",
        "1_000",
        "1,5",
        "1.2.3",
        "--1",
        "e3",
        "1e",
        "1e1.5",
        "NaN",
        "inf",
        "one",
        "١",
        "1Gi\n",
        True,
        float("nan"),
        float("inf"),
    ],
)
def test_what_the_api_server_does_not_take_is_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse(written)


def test_a_boolean_is_refused_also_after_its_number_was_read() -> None:
    assert quantity.parse(1) == 1
    with pytest.raises(ValueError, match="True is not a quantity"):
        quantity.parse(True)


def test_an_absurd_exponent_takes_no_time() -> None:
    assert quantity.parse("1e999999999") > 10**18
    assert quantity.parse("1e-999999999") == Fraction(1, 10**9)


@pytest.mark.parametrize(
    ("resource", "written", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "100m", 100),
        ("cpu", "0.0001", 1),
        ("cpu", 0.5, 500),
        ("memory", "1Gi", 2**30),
        ("memory", "1500m", 2),
        ("ephemeral-storage", "1k", 1000),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", 8, 8),
    ],
)
def test_an_amount_is_an_integer_in_the_resources_unit_rounded_up(resource: str, written: str, amount: int) -> None:
    assert quantity.amount(resource, written) == amount


@given(st.integers(min_value=0, max_value=2**60))
def test_formatted_bytes_read_back_as_the_same_number(number: int) -> None:
    assert quantity.bytes_(quantity.format_bytes(number)) == number
    assert quantity.cpu_milli(quantity.format_cpu(number)) == number


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (1023, "1023"), (1024, "1Ki"), (32 * 2**30, "32Gi"), (2**30 + 1, "1073741825")]
)
def test_bytes_are_written_in_the_largest_unit_that_divides_them(number: int, text: str) -> None:
    assert quantity.format_bytes(number) == text


@given(
    st.fractions(min_value=-10_000, max_value=10_000, max_denominator=1000),
    st.sampled_from(["", "m", "k", "Ki", "Gi", "e2"]),
)
def test_a_sign_turns_the_value_round(value: Fraction, suffix: str) -> None:
    number = f"{abs(float(value)):.3f}{suffix}"
    assert quantity.parse(f"-{number}") == -quantity.parse(number) == -quantity.parse(f"+{number}")
