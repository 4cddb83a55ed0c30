import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.duration import duration, seconds
from taut.errors import DurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500 ms", 0.5),
        ("12s", 12.0),
        ("12 seconds", 12.0),
        ("  1.5   Minutes ", 90.0),
        ("250us", 0.00025),
        (".5 sec", 0.5),
        ("5. s", 5.0),
        ("2 h", 7200.0),
        ("1 hour", 3600.0),
        ("1 day", 86400.0),
        ("0 s", 0.0),
        ("0.1 ms", 0.0001),
    ],
)
def test_reads(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "500", "ms", "5 parsecs", "-1 s", "1 s 5 ms", "1e3 s", "nan s", "1,5 s", "\u0661 s"],
)
def test_refuses_and_names_the_text(text: str) -> None:
    with pytest.raises(DurationError) as caught:
        seconds(text)
    assert repr(text) in str(caught.value)
    assert "500 ms" in str(caught.value)


@pytest.mark.parametrize("digits", [400, 5000])
def test_refuses_what_no_float_holds(digits: int) -> None:
    with pytest.raises(DurationError, match="longer than a float"):
        seconds("9" * digits + " s")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 s"),
        (-0.0, "0 s"),
        (0.5, "500 ms"),
        (0.0005, "500 us"),
        (1e-9, "0.001 us"),
        (1, "1 s"),
        (1.25, "1.25 s"),
        (12, "12 s"),
        (60, "1 min"),
        (90, "90 s"),
        (120.0, "2 min"),
        (5400, "90 min"),
        (7200, "2 h"),
    ],
)
def test_writes_in_the_unit_that_suits(value: float, expected: str) -> None:
    assert duration(value) == expected


@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_writes_no_nonsense(value: float) -> None:
    with pytest.raises(DurationError):
        duration(value)


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_every_float_survives_the_round_trip(value: float) -> None:
    assert seconds(duration(value)) == value
