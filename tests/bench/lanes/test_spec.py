from __future__ import annotations

import json

import pytest

from taut.bench.lanes.machines import machines
from taut.bench.lanes.pauses import Pauses
from taut.bench.lanes.spec import ONLY, OWN, VARIANTS, Spec
from taut.bench.lanes.theory import waits
from taut.bench.record import BenchError
from taut.policy.waiting import mean_wait
from taut.workloads.topologies import TOPOLOGIES


def test_every_topology_has_its_own_settings() -> None:
    assert set(OWN) == set(TOPOLOGIES)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_record_has_all_that_is_needed_to_run_again(topology: str) -> None:
    options = json.loads(json.dumps(Spec.of(topology).options()))
    assert options["rate"] == TOPOLOGIES[topology].rate
    assert options["service_s"] == TOPOLOGIES[topology].service_s
    options.pop("pauses")
    assert Spec(**options | {"service_s": None}).what == Spec.of(topology).what


def test_lanes_are_paused_where_the_load_is_low_and_lanes_stay() -> None:
    assert Spec.of("page-load", timing="resident").pauses == Pauses(3.5, 0.06)
    assert Spec.of("page-load", timing="resident", pauses=0).pauses is None
    assert Spec.of("page-load", timing="batch").pauses is None
    assert Spec.of("queue", timing="resident").pauses is None
    given = Pauses(1.0, 0.1)
    assert Spec.of("queue", timing="batch", pauses=given).pauses == given


def test_utilisation_sets_the_rate() -> None:
    what = Spec.of("queue", timing="resident", lanes=4, utilisation=0.78).what
    assert (what.rate, what.service_s, what.service) == (156, 0.02, "exponential")
    assert what.heavy == what.slow == 0
    assert Spec.of("queue", lanes=4, utilisation=0.5, service_s=0.002).what.rate == 1_000


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"topology": "star"}, "topology 'star': one of exclamation, page-load"),
        ({"timing": "never"}, "timing 'never': one of batch, resident"),
        ({"timing": "resident", "batch": 5}, "batch: only with timing 'batch'"),
        ({"timing": "batch", "horizon_s": 5.0}, "horizon: only with timing 'resident'"),
        ({"lanes": 0}, "lanes=0"),
        ({"seconds": 0.0}, "seconds=0.0"),
        ({"utilisation": 1.0}, "utilisation=1.0: a share between 0 and 1"),
        ({"utilisation": 0.5, "rate": 5}, "rate: follows from utilisation"),
        ({"utilisation": 0.5, "topology": "page-load"}, "use queue or exclamation"),
        ({"utilisation": 0.5, "topology": "balance-a"}, "use queue or exclamation"),
        ({"service_s": 0.5, "topology": "balance-a"}, "operators of balance-a compute"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(BenchError, match=why):
        Spec(**given)  # type: ignore[arg-type]


def test_what_the_source_is_told() -> None:
    resident = Spec(timing="resident", horizon_s=600.0, balance_every_s=1.5)
    assert resident.source("default") == {"dispatch": "fixed", "horizon": "600.0 s"}
    told = resident.source("balance+timeout")
    assert (told["dispatch"], told["replay"]) == ("balance", "adaptive")
    assert told["balanceEvery"] == "1.5 s"
    assert "balanceEvery" not in resident.source("timeout")
    assert Spec().source("replicate-20") == {"dispatch": "fixed", "replay": "replicate-20"}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("timing", ["batch", "resident"])
def test_the_source_takes_every_variant(variant: str, timing: str) -> None:
    from taut.spark.source.options import SourceOptions

    if variant in ONLY and ONLY[variant][0] != timing:
        return
    told = SourceOptions.parse(Spec(timing=timing).source(variant) | {"timing": timing})
    assert told.timing == timing


def test_machines_are_as_published() -> None:
    uneven = machines("balance-a", 14, several=False)
    assert uneven is not None
    assert sum(machine.slots for machine in uneven) == 14
    assert len({machine.cores for machine in uneven}) == 1
    rivals = machines("balance-b", 10, several=True)
    assert rivals is not None
    assert [(machine.slots, machine.rivals) for machine in rivals] == [(2, 1)] * 2 + [(2, 0)] * 3
    halved = machines("balance-c", 5, several=False)
    assert halved is not None
    assert halved[0].cores == pytest.approx(halved[1].cores / 2)  # type: ignore[operator]
    assert machines("queue", 8, several=False) is None
    few = machines("queue", 1, several=True)
    assert few is not None
    assert len(few) == 2, "a copy needs another machine"


def test_lanes_that_do_not_fit_the_machines_are_refused() -> None:
    with pytest.raises(BenchError, match="lanes=8: balance-a needs 14 or a multiple of it"):
        machines("balance-a", 8, several=False)


def test_lanes_in_turn_wait_less_than_at_random_and_more_than_with_one_queue() -> None:
    told = waits(4, 312.0, 0.01)
    at_random = mean_wait(1, 78.0, 0.01)
    assert told["shared"] < told["default"] < at_random
    assert waits(4, 500.0, 0.01) == {}
