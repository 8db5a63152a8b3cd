"""The pool on real kubelets: what its pods are, what is made of the API server's words, and a short run at night."""

from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.seeds import SEED
from verify.contended.outcome import Outcome, Stay
from verify.contended.virtual_time import state_of
from verify.pool.figures import Watched
from verify.pool.live import can_judge, told
from verify.pool.observed import Clock, Observed
from verify.pool.real_ways import (
    PACKING,
    Ran,
    Setting,
    faster_constants,
    manifest,
    packing_configuration,
    run,
    settings,
)
from verify.pool.scenario import MACHINES, arrivals, gpus_of, machines, runner
from verify.pool.ways import ALL_KNOWING, STEERED, WAYS, WIDE_MACHINES, fleets
from verify.targets import Target

from topomend.model.condition import Summary
from topomend.replay.admission import admit
from topomend.runtime.backoff import Exponential
from topomend.wire.pods.pod import read_pod
from topomend.wire.published.node_topology import node_topology, status_of

PODS = arrivals(Random(1), 60, load=0.9)


class Hand:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def content(name: str, phase: str, uid: str = "1", **status: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid}, "status": {"phase": phase, **status}}


def observing(watched: Watched | None = None) -> tuple[Hand, Stay, Observed]:
    """A clock, the stay of the first pod, and what is observed of it."""
    hand, stay = Hand(), Stay(PODS[0], came=0.0)
    return hand, stay, Observed({PODS[0].name: stay}, watched or Watched(), hand)


def test_each_way_that_is_not_all_knowing_has_real_kubelets() -> None:
    assert [*settings(), *ALL_KNOWING] == list(WAYS)
    assert all(len(setting.machines) == MACHINES for setting in settings().values())
    assert [name for name, setting in settings().items() if setting.steers] == [STEERED]


def test_a_pod_asks_for_what_it_asks_for_in_virtual_time_and_ends_so_many_times_sooner() -> None:
    for arrival in PODS:
        spec = manifest(arrival, Setting(), speed=10.0)["spec"]
        (container,), (asked,) = spec["containers"], arrival.manifest["spec"]["containers"]
        assert container["resources"] == asked["resources"]
        assert float(container["command"][1]) == pytest.approx(arrival.seconds / 10)
        assert spec["restartPolicy"] == "Never"
        assert "schedulerName" not in spec
        assert "command" not in asked


def test_pods_of_eight_gpus_have_nodes_of_their_own_only_in_two_fleets() -> None:
    for name, setting in settings().items():
        asked = {gpus_of(pod): manifest(pod, setting, 1.0)["spec"]["nodeSelector"]["fleet"] for pod in PODS}
        wide = "wide" if name == "two fleets" else "all"
        assert asked == {1: "all", 2: "all", 4: "all", 8: wide}
    _, wide_machines = fleets()
    assert settings()["two fleets"].wide == {spec.name for spec in wide_machines}
    assert len(wide_machines) == WIDE_MACHINES


def test_a_way_that_packs_asks_the_scheduler_that_does() -> None:
    (profile,) = packing_configuration(Path("kubeconfig"))["profiles"]
    assert manifest(PODS[0], Setting(packs=True), 1.0)["spec"]["schedulerName"] == profile["schedulerName"] == PACKING


def test_turns_are_as_long_for_the_pods_as_the_operators_own() -> None:
    for path, value in faster_constants(10.0).items():
        module, _, name = path.rpartition(".")
        own = getattr(import_module(f"topomend.{module}"), name)
        if isinstance(own, Exponential):
            assert value == Exponential(own.first / 10, own.longest / 10, own.jitter)
        else:
            assert value == own / 10


def test_a_clock_is_as_much_faster_as_it_is_told() -> None:
    fast, slow = Clock(1_000_000.0), Clock(1.0)
    assert 0 <= slow() < fast()


def test_a_pod_ran_when_it_is_first_said_to_run_and_ended_when_it_is_first_said_to_have_ended() -> None:
    hand, stay, observed = observing()
    for hand.now, phase in (
        (1.0, "Pending"),
        (2.0, "Running"),
        (3.0, "Running"),
        (9.0, "Succeeded"),
        (10.0, "Succeeded"),
    ):
        observed.pod(content(PODS[0].name, phase))
    assert (stay.ran, stay.ended, stay.refused) == (2.0, 9.0, 0)
    assert observed.last_change == 10.0


def test_a_refused_pod_is_counted_by_its_reason_and_handed_over_once_each_time_that_it_comes() -> None:
    _, stay, observed = observing()
    for uid in ("1", "1", "2"):
        observed.pod(content(PODS[0].name, "Failed", uid, reason="TopologyAffinityError"))
    assert (stay.refused, stay.ran) == (2, None)
    assert observed.refusals == {"TopologyAffinityError": 2}
    assert [observed.to_replace.get_nowait()["metadata"]["uid"] for _ in range(2)] == ["1", "2"]
    assert observed.to_replace.empty()


def test_a_pod_that_is_no_arrival_is_no_change() -> None:
    hand, _, observed = observing()
    hand.now = 5.0
    observed.pod(content("trial", "Failed"))
    assert (observed.last_change, observed.refusals) == (0.0, {})


def test_what_an_agent_publishes_is_the_room_of_its_node_from_then_on() -> None:
    watched = Watched()
    hand, _, observed = observing(watched)
    (spec,) = machines("restricted", number=1)
    empty = state_of(spec)
    verdict, full = admit(empty, read_pod(runner("wide", 8)))
    assert verdict.admitted
    observed.node(node_topology(spec.name, {}))  # its agent has not published yet
    for hand.now, state in ((0.0, empty), (10.0, full), (20.0, empty)):
        status = status_of(state, Summary()) | {
            "conditions": [{"type": "Ready", "status": "True", "reason": "Complete"}]
        }
        observed.node(node_topology(spec.name, {}) | {"status": status})
    assert watched.admitting() == watched.in_total() == [(0.0, 10.0), (20.0, float("inf"))]
    assert watched.longest_empty([(0.0, 15.0)]) == 10.0


def test_a_run_tells_what_its_speed_distorts_and_why_pods_were_refused() -> None:
    stay = Stay(PODS[0], came=0.0, ran=5.0, ended=5.0 + PODS[0].seconds + 20.0, refused=1)
    ran = Ran(Outcome("real kubelets", [stay]), Watched(), {"TopologyAffinityError": 1}, starts=8.0)
    assert told(ran) == (
        "creation to running on the empty cluster 8 s, seen to run 20 s longer than asked; "
        "refused: 1 TopologyAffinityError"
    )


def test_a_wait_is_judged_only_where_starts_are_not_most_of_it() -> None:
    assert can_judge(Target("p95 wait of 4 GPUs", 90.0, 80.0, "s"), starts=8.0)
    assert not can_judge(Target("p95 wait of 4 GPUs", 90.0, 70.0, "s"), starts=8.0)
    assert can_judge(Target("pods refused", 1, 0), starts=8.0)


@pytest.mark.cluster
@pytest.mark.night
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["plain scheduler", STEERED])
def test_every_pod_runs_on_real_kubelets_and_none_is_refused_where_topomend_steers(tmp_path: Path, name: str) -> None:
    """Slow: the kubelets of eight machines of 192 CPUs start, and pods wait for others' ends."""
    ran = run(settings()[name], arrivals(Random(SEED), 40, load=1.2), 60.0, tmp_path)
    assert ran.outcome.never_ran == 0
    assert ran.outcome.refused == sum(ran.refusals.values())
    assert ran.outcome.refused == 0 or name != STEERED
