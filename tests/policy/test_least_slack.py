import dataclasses
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.slack import LeastSlack, expected_slack, grant_time
from taut.policy.view import Decision, Delay, QueryView, Stream

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)
DELAY = Delay(0.2, 0.1)


def query(name: str, *sweeps: float, delay: Delay = DELAY, **fields: float) -> QueryView:
    view = QueryView(
        name, held_since=0.0, last_turn=0.0, oldest=0.0, batch_cost=0.3, queued_cost=0.1,
        streams=tuple(Stream(sweep, delay) for sweep in sweeps),
    )  # fmt: skip
    return dataclasses.replace(view, **fields)  # type: ignore[arg-type]


DELAYS = st.builds(Delay, st.floats(0, 3), st.sampled_from([0.0, 0.05, 0.5, 2.0]))
VIEWS = st.builds(
    lambda streams, **fields: QueryView(
        name="", held_since=0.0, last_turn=0.0, streams=tuple(streams), **fields
    ),
    streams=st.lists(st.builds(Stream, st.floats(0, 30), DELAYS), max_size=2),
    oldest=st.floats(0, 30),
    batch_cost=st.floats(0.01, 2),
    queued_cost=st.floats(0, 5),
    batches=st.integers(1, 2),
    objective=st.sampled_from([0.0, 0.5, 10.0]),
)
QUERIES = st.lists(VIEWS, min_size=1, max_size=6).map(
    lambda views: [dataclasses.replace(v, name=f"q{i}") for i, v in enumerate(views)]
)


def grant(view: QueryView) -> float:
    moments = [grant_time(s, view.batch_cost) for s in view.streams]
    early = view.oldest + max(0.0, 0.5 * view.objective - view.cost)
    return max(moments, default=early)


def test_nothing_to_choose() -> None:
    assert LeastSlack().decide(5.0, []) == Decision(None)


def test_of_the_due_the_least_slack() -> None:
    far, late, just = query("a", 100.0), query("b", 3.0), query("c", 9.0)
    decision = LeastSlack().decide(10.0, [far, late, just])
    assert (decision.run, decision.until, decision.again) == ("b", "swept", None)
    assert set(decision.slacks) == {"b", "c"}, "what is not due is not weighed"
    values = {n: s.value for n, s in decision.slacks.items()}
    assert values["b"] < values["c"]


def test_a_longer_queue_goes_first() -> None:
    light, heavy = query("a", 9.0), query("b", 9.0, queued_cost=4.0)
    assert LeastSlack().decide(10.0, [light, heavy]).run == "b"


@STEADY
@given(queries=QUERIES, now=st.floats(0, 40))
def test_without_patience_the_least_slack_runs_due_or_not(
    queries: list[QueryView], now: float
) -> None:
    policy = LeastSlack(patient=False)
    chosen = policy.decide(now, queries).run
    assert chosen == min(queries, key=lambda q: (policy.slack(now, q).value, q.name)).name
    assert policy.decide(now, []) == Decision(None)


def test_not_due_waits_until_the_first_that_will_be() -> None:
    soon, later = query("a", 12.0), query("b", 20.0)
    decision = LeastSlack().decide(1.0, [later, soon])
    assert decision.run is None
    assert decision.again == grant_time(soon.streams[0], soon.batch_cost)
    assert LeastSlack().decide(decision.again, [later, soon]).run == "a"


def test_asked_again_when_it_said_so_it_runs() -> None:
    """A whole day of windows, never twice the same answer for the same moment."""
    policy = LeastSlack()
    now = 1.7e9
    for window in range(500):
        held = [query("a", now + 5.0 + 0.1 * window), query("b", now + 7.3)]
        decision = policy.decide(now, held)
        assert decision.run is None
        assert decision.again is not None
        assert decision.again > now
        now = decision.again
        assert policy.decide(now, held).run is not None


def test_a_join_has_the_least_slack_of_its_inputs() -> None:
    near, far = Stream(3.0, DELAY), Stream(30.0, Delay(2.0, 0.5))
    both = dataclasses.replace(query("a"), streams=(far, near))
    slack = LeastSlack().slack(1.0, both)
    parts = [expected_slack(1.0, s, both.cost) for s in (near, far)]
    assert slack == parts[0]
    assert parts[0].value < parts[1].value


def test_the_least_of_positive_slacks_is_positive() -> None:
    """Erratum (c): a minimum that began at 0 would stay there."""
    assert LeastSlack().slack(0.0, query("a", 50.0, 60.0)).value > 40.0


def test_a_join_is_due_when_its_last_input_is() -> None:
    both, single = query("a", 3.0, 30.0), query("b", 40.0)
    decision = LeastSlack().decide(10.0, [both, single])
    assert decision.run is None
    assert decision.again == grant_time(Stream(30.0, DELAY), both.batch_cost)
    assert LeastSlack().decide(31.0, [both, single]).run == "a"


def test_the_objective_adds_its_bound_exactly() -> None:
    policy = LeastSlack()
    strict, loose = query("a", 9.0), query("b", 9.0, objective=2.5)
    for now in (0.0, 9.2, 50.0):
        difference = policy.slack(now, loose).value - policy.slack(now, strict).value
        assert difference == pytest.approx(2.5)
    windowless = [query("a"), query("b", objective=2.5)]
    values = [policy.slack(4.0, q).value for q in windowless]
    assert values[1] - values[0] == pytest.approx(2.5)


def test_the_stricter_objective_goes_first() -> None:
    strict, loose = query("z", 9.0, objective=0.5), query("a", 9.0, objective=5.0)
    assert LeastSlack().decide(10.0, [loose, strict]).run == "z"


def test_a_late_loose_one_goes_before_an_early_strict_one() -> None:
    strict, loose = query("a", 9.5, objective=0.5), query("b", 2.0, objective=5.0)
    assert LeastSlack().decide(10.0, [strict, loose]).run == "b"


def test_without_a_window_the_oldest_row_counts() -> None:
    plain = query("a", oldest=4.0, objective=1.0)
    slack = LeastSlack().slack(6.0, plain)
    assert slack.value == pytest.approx(4.0 + 1.0 - 6.0 - plain.cost)
    assert slack.due == slack.earliest == slack.latest == 5.0
    decision = LeastSlack().decide(6.0, [plain])
    assert (decision.run, decision.until) == ("a", "batch")


def test_cost_counts_the_batches_until_the_output() -> None:
    one, two = query("a", 9.0), query("b", 9.0, batches=2)
    policy = LeastSlack()
    assert policy.slack(1.0, one).value - policy.slack(1.0, two).value == pytest.approx(0.3)
    assert policy.decide(10.0, [one, two]).run == "b"


def test_early_work_when_it_is_worth_a_batch_and_delays_nobody() -> None:
    heavy, other = query("a", 100.0, queued_cost=2.0), query("b", 50.0)
    decision = LeastSlack().decide(1.0, [heavy, other])
    assert (decision.run, decision.until) == ("a", "batch")


def test_no_early_work_that_is_not_worth_a_batch() -> None:
    light = query("a", 100.0, queued_cost=0.6)
    decision = LeastSlack().decide(1.0, [light])
    assert decision.run is None
    assert decision.again == grant_time(light.streams[0], light.batch_cost)


def test_no_early_work_when_all_that_waits_still_makes_the_objective() -> None:
    heavy = query("a", 100.0, queued_cost=2.0, objective=2.5)
    assert LeastSlack().decide(1.0, [heavy]).run is None
    assert LeastSlack().decide(1.0, [dataclasses.replace(heavy, queued_cost=2.3)]).run == "a"


def test_without_a_window_half_of_the_objective_may_pass() -> None:
    plain = query("a", oldest=4.0, objective=2.0)
    decision = LeastSlack().decide(4.1, [plain])
    assert (decision.run, decision.again) == (None, pytest.approx(4.0 + 1.0 - plain.cost))
    assert LeastSlack().decide(5.0, [plain]).run == "a"


@pytest.mark.parametrize(
    ("given", "told"), [({"cycle": 0.0}, "cycle=0.0"), ({"confidence": 1.0}, "confidence=1.0")]
)
def test_wrong_parameters_are_refused(given: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        LeastSlack(**given)


@pytest.mark.parametrize("own", [True, False])
def test_no_early_work_that_would_delay_the_next_due(own: bool) -> None:
    heavy = query("a", 100.0, queued_cost=2.0)
    queries = [heavy] if own else [heavy, query("b", 50.0)]
    next_due = min(grant(q) for q in queries)
    policy = LeastSlack()
    assert policy.decide(next_due - 2.31, queries).run == "a"
    assert policy.decide(next_due - 2.29, queries).run is None


def test_of_early_work_the_least_slack() -> None:
    near, far = query("b", 50.0, queued_cost=2.0), query("a", 90.0, queued_cost=2.0)
    assert LeastSlack().decide(1.0, [far, near]).run == "b"


@STEADY
@given(queries=QUERIES, now=st.floats(0, 40))
def test_decides_as_the_rules_say(queries: Sequence[QueryView], now: float) -> None:
    policy = LeastSlack()
    decision = policy.decide(now, queries)
    slack = {q.name: policy.slack(now, q).value for q in queries}
    grants = {q.name: grant(q) for q in queries}
    due = [n for n, g in grants.items() if g <= now]
    assert all(found.value == slack[n] for n, found in decision.slacks.items())
    if due:
        assert decision.run in due
        assert decision.slacks.keys() == set(due)
        assert slack[decision.run] == min(slack[n] for n in due)
        return
    first = min(grants.values())
    useful = [
        q.name
        for q in queries
        if q.streams
        and q.cost > q.objective
        and q.queued_cost > 2.0 * q.batch_cost
        and now + q.batch_cost + q.queued_cost <= first
    ]
    if useful:
        assert decision.run in useful
        assert slack[decision.run] == min(slack[n] for n in useful)
        assert decision.until == "batch"
    else:
        assert (decision.run, decision.again) == (None, first)


@STEADY
@given(queries=QUERIES, now=st.floats(0, 40), data=st.data())
def test_order_does_not_matter(queries: list[QueryView], now: float, data: st.DataObject) -> None:
    other = data.draw(st.permutations(queries))
    first, second = (LeastSlack().decide(now, order) for order in (queries, other))
    assert first == second


@STEADY
@given(queries=QUERIES, now=st.floats(0, 40))
def test_a_tie_goes_by_name(queries: list[QueryView], now: float) -> None:
    twins = [dataclasses.replace(queries[0], name=n) for n in "cab"]
    for order in itertools.permutations(twins):
        assert LeastSlack().decide(now, order).run in {"a", None}
