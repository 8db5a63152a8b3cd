"""Pods that no node admits: left to the scheduler where only totals are short, held where a kubelet would refuse."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import applied, gated_pod, guaranteed_pod, node, node_state, pod, snapshot_of

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.decide.feasibility import insufficient
from topomend.decide.short_totals import LeftToScheduler, left_to_scheduler, unknown_resources
from topomend.model.cluster import HOSTNAME_LABEL, Node, Placement, Taint, WatchedPod
from topomend.model.narrowing import ANYWHERE, Narrowing
from topomend.model.node_state import NodeState

ONE_NUMA_NODE = "sockets:1 cores:2 memory:8Gi"
"""Two CPUs, of which one is reserved."""


def full(name: str) -> NodeState:
    """Three CPUs of each NUMA node are taken: one is free, and the scheduler finds one of seven."""
    return node_state(name=name, pods=[guaranteed_pod("one", 3), guaranteed_pod("other", 3)])


def fragmented(name: str) -> NodeState:
    """Three CPUs are free, on no NUMA node together."""
    return node_state(name=name, pods=[guaranteed_pod("one", 2), guaranteed_pod("other", 2)])


def small(name: str) -> NodeState:
    """No NUMA node has three CPUs, whoever ends."""
    return node_state(ONE_NUMA_NODE, name=name)


def left(
    snapshot: Snapshot, asked: WatchedPod | None = None, is_short: Callable[[Node], bool] = lambda _: False
) -> LeftToScheduler | None:
    asked = asked or gated_pod()
    choice = plans.choose(snapshot, asked, None)
    assert isinstance(choice, plans.Wait)
    return left_to_scheduler(snapshot, asked, choice.diagnosis.rejected, is_short)


def test_a_pod_for_which_every_node_lacks_totals_alone_is_left_to_the_scheduler() -> None:
    found = left(snapshot_of(full("a"), full("b")))
    assert found == LeftToScheduler(
        ANYWHERE,
        "only totals are short, on a, b: the scheduler and autoscalers see the pod from now on",
        may_be_refused=True,
    )


def test_a_pod_is_held_while_the_scheduler_could_bind_it_to_a_node_that_refuses_it() -> None:
    assert left(snapshot_of(full("a"), fragmented("b"))) is None


def test_totals_that_pods_without_exclusive_cpus_use_are_asked_about() -> None:
    asked: list[str] = []

    def is_short(node: Node) -> bool:
        asked.append(node.name)
        return True

    assert left(snapshot_of(full("a"), fragmented("b")), is_short=is_short)
    assert asked == ["b"]


def test_a_node_that_admits_it_by_replay_and_lacks_totals_does_not_hold_it() -> None:
    snapshot, asked = snapshot_of(full("a"), node_state(name="b")), gated_pod()
    choice = plans.choose(snapshot, asked, None, {"b": insufficient("b", "cpu")})
    assert isinstance(choice, plans.Wait)
    assert left_to_scheduler(snapshot, asked, choice.diagnosis.rejected, lambda _: False)


def test_nodes_that_would_refuse_it_even_when_empty_are_excluded() -> None:
    snapshot = snapshot_of(full("a"), small("b"))
    snapshot = applied(changes.NodeUpdated(node("b", labels={HOSTNAME_LABEL: "host-b"})), to=snapshot)
    found = left(snapshot)
    assert found
    assert found.narrowing == Narrowing(excluded=("host-b",))


def test_a_node_whose_state_is_not_relied_on_is_excluded() -> None:
    silent = applied(changes.Published(full("b"), "9", problem="it is silent"), to=snapshot_of(full("a"), full("b")))
    found = left(silent)
    assert found
    assert found.narrowing == Narrowing(excluded=("b",))


@pytest.mark.parametrize(
    ("state", "fields", "excluded"),
    [
        (fragmented("b"), {"unschedulable": True}, ("b",)),
        (node_state(name="b"), {"unschedulable": True}, ()),
        (fragmented("b"), {"ready": False}, ("b",)),
        (fragmented("b"), {"taints": (Taint("node.kubernetes.io/disk-pressure", "NoSchedule"),)}, ("b",)),
        (fragmented("b"), {"taints": (Taint("gpu", "NoSchedule"),)}, ()),
    ],
    ids=["cordoned and fragmented", "cordoned and empty", "not ready", "under pressure", "another's"],
)
def test_a_node_that_is_not_used_for_a_while_does_not_hold_it(
    state: NodeState, fields: dict[str, Any], excluded: tuple[str, ...]
) -> None:
    snapshot = applied(changes.NodeUpdated(node("b", **fields)), to=snapshot_of(full("a"), state))
    found = left(snapshot)
    assert found
    assert found.narrowing.excluded == excluded
    alone = applied(changes.NodeRemoved("a"), to=snapshot)
    assert (left(alone) is not None) is (fields.get("taints") == (Taint("gpu", "NoSchedule"),))


def test_a_pod_that_no_known_kind_of_node_would_admit_stays_gated() -> None:
    assert left(snapshot_of(small("a"))) is None
    assert left(snapshot_of(full("a")), gated_pod(cpus=9)) is None
    assert left(Snapshot()) is None


def test_a_pod_whose_rules_allow_no_node_of_today_is_left_to_autoscalers_if_a_known_kind_would_admit_it() -> None:
    asked = gated_pod(placement=Placement({"pool": "gpu"}))
    found = left(snapshot_of(fragmented("a")), asked)
    assert found
    assert (found.narrowing, found.may_be_refused) == (ANYWHERE, False)
    assert left(snapshot_of(small("a")), asked) is None


def test_a_device_that_no_node_has_or_had_holds_nobody() -> None:
    asked = gated_pod(pod=guaranteed_pod(cpus=3, gpu=1))
    snapshot = snapshot_of(fragmented("a"))
    found = left(snapshot, asked)
    assert found
    assert (found.narrowing, found.may_be_refused) == (ANYWHERE, False)
    assert "no node has vendor.com/gpu" in found.reason
    had = applied(changes.NodeUpdated(node("b", capacity={"vendor.com/gpu": 0})), to=snapshot)
    assert left(had, asked) is None
    larger = replace(asked, pod=guaranteed_pod(cpus=9, gpu=1))
    assert left(snapshot, larger) is None


def test_only_extended_resources_are_ever_unknown() -> None:
    asked = pod("p", "cpu=1 memory=1Mi vendor.com/gpu=1 hugepages-2Mi=2Mi")
    assert unknown_resources(Snapshot(), asked) == ("vendor.com/gpu",)
    published = node_state("sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1")
    assert unknown_resources(snapshot_of(published), asked) == ()
