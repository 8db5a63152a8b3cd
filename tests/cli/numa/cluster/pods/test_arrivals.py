"""The pods of a cluster in the order in which kubelets admitted them."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.cli.numa.served_lists import started_pod

from topomend.cli.numa.cluster.pods.arrivals import Arrivals, in_order, read_arrival
from topomend.decide.simulation.what_if import Arrival

ONE = "cpu=1 memory=1Mi"


def read(*contents: dict[str, Any]) -> Arrivals:
    return in_order([each for content in contents for each in read_arrival(content)])


def names(arrivals: Iterable[Arrival]) -> list[str]:
    return [arrival.pod.name for arrival in arrivals]


def test_pods_come_as_they_started_whenever_they_were_created() -> None:
    early = started_pod("early", ONE, node="a", start=9)
    early["status"]["startTime"] = "2026-01-01T00:00:01Z"
    assert names(read(started_pod("late", ONE, node="a", start=2), early).pods) == ["early", "late"]


def test_a_pod_that_its_kubelet_has_not_seen_comes_after_those_that_started_and_before_those_that_wait() -> None:
    starting = started_pod("starting", ONE, node="a", start=1)
    del starting["status"]["startTime"]
    waits, runs = started_pod("waits", ONE), started_pod("runs", ONE, node="a", start=5)
    assert names(read(waits, starting, runs).pods) == ["runs", "starting", "waits"]


def test_pods_that_wait_come_by_priority_and_then_by_age() -> None:
    urgent = started_pod("urgent", ONE, start=3)
    urgent["spec"]["priority"] = 7
    low = started_pod("low", ONE, start=1)
    low["spec"]["priority"] = -7
    assert names(read(low, started_pod("young", ONE, start=4), started_pod("old", ONE, start=2), urgent).pods) == [
        "urgent",
        "old",
        "young",
        "low",
    ]


def test_pods_of_one_second_come_as_they_are_listed() -> None:
    assert names(read(started_pod("b", ONE, node="a"), started_pod("a", ONE, node="a")).pods) == ["b", "a"]


def test_a_pod_that_is_being_deleted_is_none() -> None:
    assert not read(started_pod("going", ONE, node="a", deletionTimestamp="2026-01-01T00:00:00Z")).pods


def test_the_pods_of_daemon_sets_and_of_files_are_those_of_each_node() -> None:
    owner = {"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    of_set = started_pod("a", ONE, node="a", ownerReferences=[owner])
    of_file = started_pod("b", ONE, node="a", annotations={"kubernetes.io/config.mirror": "x"})
    other = started_pod("c", ONE, node="a", ownerReferences=[{**owner, "kind": "ReplicaSet"}])
    assert [arrival.of_each_node for arrival in read(of_set, of_file, other).pods] == [True, True, False]


@pytest.mark.parametrize("metadata", [{}, {"metadata": {"generateName": "p-"}}], ids=["none", "no name"])
def test_a_malformed_pod_without_a_name_is_left_out(metadata: dict[str, Any]) -> None:
    broken = {**started_pod("p", ONE), **metadata}
    broken["spec"]["priority"] = "high"
    if not metadata:
        del broken["metadata"]
    [left_out] = read(broken).left_out
    assert (left_out.namespace, left_out.name) == ("", "")


def test_a_huge_pod_is_left_out() -> None:
    huge = started_pod("huge", ONE)
    huge["spec"]["containers"] *= 201
    [left_out] = read(huge).left_out
    assert "more than 200 containers" in left_out.why


def test_a_malformed_pod_is_left_out_and_hides_no_other() -> None:
    for field, wrong in (("priority", "high"), ("containers", "none"), ("nodeName", 7), ("tolerations", 7)):
        broken = started_pod("broken", ONE)
        broken["spec"][field] = wrong
        found = read(broken, started_pod("good", ONE))
        assert names(found.pods) == ["good"]
        [left_out] = found.left_out
        assert (left_out.namespace, left_out.name) == ("default", "broken")
        assert f"spec.{field}" in left_out.why
