import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.admission import Limits, admit, backlog, proportional

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=300)
WAITING = st.dictionaries(st.text("abcd", min_size=1, max_size=2), st.integers(0, 10_000))


@STEADY
@given(waiting=WAITING, most=st.integers(1, 20_000))
def test_all_of_the_budget_and_never_more_than_waits(waiting: dict[str, int], most: int) -> None:
    shares = proportional(waiting, most)
    assert shares.keys() == waiting.keys()
    assert all(0 <= shares[p] <= waiting[p] for p in waiting)
    total = sum(waiting.values())
    assert sum(shares.values()) == min(most, total)
    if total > most:
        assert all(abs(shares[p] - waiting[p] * most / total) < 1 for p in waiting)


def test_takes_all_without_a_limit() -> None:
    assert admit({"a": 3, "b": 5}, {"a": 9, "b": 5}, Limits(), 0.0) == {"a": 9, "b": 5}


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert admit({"a": 3}, {"a": 3, "b": 7}, Limits(), 0.0) == {"a": 3, "b": 7}
    assert backlog({"a": 3}, {"a": 3, "b": 7}) == {"a": 0, "b": 7}


def test_a_partition_that_is_gone_keeps_its_offset() -> None:
    assert admit({"a": 3, "b": 4}, {"b": 6}, Limits(), 0.0) == {"a": 3, "b": 6}


def test_a_log_that_has_shrunk_is_not_read_backwards() -> None:
    assert admit({"a": 9}, {"a": 4}, Limits(), 0.0) == {"a": 9}


def test_too_little_waits_but_not_for_ever() -> None:
    limits = Limits(least=10, patience=60.0)
    assert admit({"a": 0}, {"a": 9}, limits, waited=59.0) == {"a": 0}
    assert admit({"a": 0}, {"a": 9}, limits, waited=60.0) == {"a": 9}
    assert admit({"a": 0}, {"a": 10}, limits, waited=0.0) == {"a": 10}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"most": 0}, "maxOffsetsPerTrigger=0"),
        ({"least": -1}, "minOffsetsPerTrigger=-1"),
        ({"most": 5, "least": 6}, "minOffsetsPerTrigger=6 is above maxOffsetsPerTrigger=5"),
        ({"patience": -1.0}, "maxTriggerDelay=-1.0"),
    ],
)
def test_wrong_limits_are_refused(given: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Limits(**given)  # type: ignore[arg-type]
