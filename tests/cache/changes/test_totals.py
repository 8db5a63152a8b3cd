"""What the pods of a node take of its totals, counted on from a list by what a watch of pods that do not run shows."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.builders import applied, node, node_state, pod_manifest, snapshot_of, watched_pod
from tests.seeds import SEED

from topomend.cache import changes
from topomend.cache.changes import ListBegun, ListFailed, NodePodsListed, PodOnNode, TotalsUnknown
from topomend.cache.entries import PodCounted
from topomend.cache.pod_reader import counted_pod
from topomend.cache.snapshot import Snapshot
from topomend.model.pods.pod import sum_of, usage_of
from topomend.wire.pods.pod_usage import read_usage

CPU = {"cpu": 1000, "pods": 1000}
BEGUN, NEXT_BEGUN = ListBegun("a", 1), ListBegun("a", 2)
LISTED = NodePodsListed("a", 1, "10", {"cpu": 3000, "pods": 2000}, {"pending": CPU})


def counted(*seen: changes.Change) -> Any:
    """What is used of the node after these changes."""
    return applied(*seen, to=snapshot_of(node_state())).nodes["a"].used


def bound(uid: str, version: int, **fields: Any) -> PodOnNode:
    return PodOnNode("a", replace(PodCounted(uid, str(version), CPU), **fields))


def cpus(*seen: changes.Change) -> int:
    return int(counted(BEGUN, LISTED, *seen)["cpu"]) // 1000


def test_nothing_is_known_before_a_list_has_come() -> None:
    assert counted() is None
    assert counted(BEGUN) is None
    assert counted(bound("x", 11)) is None
    assert counted(BEGUN, ListFailed("a", 1)) is None
    assert counted(BEGUN, LISTED) == {"cpu": 3000, "pods": 2000}


def test_a_pod_that_is_bound_after_the_list_counts_once() -> None:
    assert cpus(bound("x", 11)) == 4
    assert cpus(bound("x", 11), bound("x", 12)) == 4
    assert cpus(bound("x", 9)) == 3, "the list has it"
    assert cpus(bound("pending", 12)) == 3, "the list has it, and it does not run yet"


def test_a_pod_that_starts_to_run_still_counts() -> None:
    assert cpus(bound("x", 11), bound("x", 12, gone=True)) == 4
    assert cpus(bound("pending", 12, gone=True)) == 3


def test_a_pod_that_ends_counts_no_longer() -> None:
    assert cpus(bound("running", 12, ended=True, entered=True)) == 2
    assert cpus(bound("x", 11), bound("x", 12, ended=True)) == 3
    assert cpus(bound("pending", 12, ended=True)) == 2
    assert cpus(bound("x", 11), bound("x", 12, gone=True), bound("x", 13, ended=True, entered=True)) == 3


def test_a_pod_that_had_ended_before_the_list_is_not_taken_off() -> None:
    """A Job's controller writes its pod again after its end, to take a finalizer off."""
    assert cpus(bound("ended", 12, ended=True)) == 3
    assert cpus(bound("ended", 9, ended=True, entered=True)) == 3
    assert cpus(bound("ended", 12, gone=True, ended=True)) == 3
    assert cpus(bound("running", 12, ended=True, entered=True), bound("running", 13, ended=True)) == 2


def test_what_the_watch_brings_while_a_list_is_under_way_is_not_lost() -> None:
    assert counted(BEGUN, bound("x", 11), LISTED)["cpu"] == 4000
    assert counted(BEGUN, bound("pending", 8), LISTED)["cpu"] == 3000
    assert counted(BEGUN, bound("running", 11, ended=True, entered=True), LISTED)["cpu"] == 2000
    older = LISTED._replace(number=2, version="5", used={"cpu": 9000})
    assert counted(BEGUN, NEXT_BEGUN, bound("x", 11), LISTED, older)["cpu"] == 4000
    assert counted(BEGUN, NEXT_BEGUN, bound("x", 11), older, LISTED)["cpu"] == 4000
    assert counted(BEGUN, LISTED, bound("x", 11), BEGUN, bound("y", 12), LISTED._replace(version="11"))["cpu"] == 4000


def test_a_gap_in_the_watch_drops_the_sums_and_the_lists_under_way() -> None:
    assert counted(BEGUN, LISTED, TotalsUnknown()) is None
    assert counted(BEGUN, LISTED, TotalsUnknown("a")) is None
    assert counted(BEGUN, LISTED, TotalsUnknown("b"))["cpu"] == 3000
    assert counted(BEGUN, TotalsUnknown(), LISTED) is None
    assert counted(BEGUN, LISTED, changes.NodeRemoved("a"), changes.NodeUpdated(node("a"))) is None


@pytest.mark.parametrize(
    "gap",
    [[TotalsUnknown()], [TotalsUnknown("a")], [changes.NodeRemoved("a"), changes.NodeUpdated(node("a"))]],
    ids=["of all nodes", "of the node", "the node was away"],
)
def test_a_list_from_before_a_gap_is_not_taken_for_one_that_began_after_it(gap: list[changes.Change]) -> None:
    after = LISTED._replace(number=2, version="20", used={"cpu": 5000})
    assert counted(BEGUN, *gap, NEXT_BEGUN, LISTED) is None
    assert counted(BEGUN, *gap, NEXT_BEGUN, LISTED, after) == {"cpu": 5000}
    assert counted(BEGUN, *gap, NEXT_BEGUN, ListFailed("a", 1), after) == {"cpu": 5000}
    assert counted(BEGUN, *gap, NEXT_BEGUN, LISTED, bound("x", 21), after)["cpu"] == 6000


def test_a_node_that_changes_keeps_what_is_used_of_it() -> None:
    assert counted(BEGUN, LISTED, changes.NodeUpdated(node("a", cpus=5)))["cpu"] == 3000
    assert counted(BEGUN, LISTED, changes.NodesListed((node("a", cpus=5),), "30"))["cpu"] == 3000
    assert counted(BEGUN, LISTED, changes.DeviceClassesListed(frozenset({"x/y"})))["cpu"] == 3000


def test_a_pod_that_is_let_go_counts_from_then_on_and_once() -> None:
    let_go = watched_pod("p", cpus=2, uid="u", node="a")
    assumed = changes.PodAssumed(let_go.pod, ("a",), 1.0)
    seen = changes.PodUpdated(let_go, 2.0)
    arrives = bound("u", 11, usage=usage_of(let_go.pod))
    assert cpus(assumed) == 5
    assert cpus(assumed, seen, arrives) == cpus(assumed, arrives, seen) == 5
    assert cpus(assumed, arrives, seen, bound("u", 12, gone=True), changes.PodRemoved("ns", "p", "u", 3.0)) == 5
    assert cpus(assumed, changes.PodForgotten("ns", "p")) == 3
    assert cpus(assumed, changes.TimePassed(1e9)) == 3


@pytest.mark.parametrize("case", range(30))
def test_the_sum_is_that_of_a_fresh_list_whenever_lists_are_made_and_however_late_they_come(case: int) -> None:
    """Pods come, run, are written again and end at random; lists begin, are read and come in at random times.

    Now and then nobody sees what happens to the pods.
    """
    random = Random(SEED + case)
    snapshot, cluster = snapshot_of(node_state()), Cluster(random)
    reading: list[NodePodsListed] = []
    for number in range(200):
        snapshot = applied(*cluster.step(), to=snapshot)
        match random.randrange(24):
            case 0 | 1:
                snapshot = applied(ListBegun("a", number), to=snapshot)
                reading.append(cluster.listed(number))
            case 2 | 3 if reading:
                snapshot = applied(reading.pop(random.randrange(len(reading))), to=snapshot)
            case 4 | 5 if reading:
                failed = reading.pop(random.randrange(len(reading)))
                snapshot = applied(ListFailed("a", failed.number), to=snapshot)
            case 6:
                for _ in range(3):
                    cluster.step()
                snapshot = applied(TotalsUnknown(random.choice(["", "a"])), to=snapshot)
        assert snapshot.nodes["a"].used in (None, cluster.used), f"seed {SEED}, case {case}"
    snapshot = applied(ListBegun("a", 200), cluster.listed(200), to=snapshot)
    assert snapshot.nodes["a"].used == cluster.used


class Cluster:
    """The pods of a node as manifests, by uid, and the events of a watch of those that do not run."""

    def __init__(self, random: Random) -> None:
        self.random, self.version, self.pods = random, 1, dict[str, dict[str, Any]]()

    @property
    def used(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for content in self.pods.values():
            if content["status"]["phase"] in ("Pending", "Running"):
                total = sum_of(total, read_usage(content))
        return total

    def listed(self, number: int) -> NodePodsListed:
        pending = {uid: read_usage(pod) for uid, pod in self.pods.items() if pod["status"]["phase"] == "Pending"}
        return NodePodsListed("a", number, str(self.version), self.used, pending)

    def step(self) -> list[changes.Change]:
        """What the watch shows of a change of one pod."""
        self.version += 1
        if not self.pods or self.random.random() < 0.3:
            return self._write(f"u{self.version}", "Pending", was="")
        uid = self.random.choice(list(self.pods))
        phase = self.pods[uid]["status"]["phase"]
        after = {"Pending": ["Pending", "Running", "Failed"], "Running": ["Running", "Succeeded", "Failed"]}
        if phase not in after and self.random.random() < 0.5:
            return self._shown(self.pods.pop(uid), gone=True, entered=False)
        return self._write(uid, self.random.choice(after.get(phase, [phase])), was=phase)

    def _write(self, uid: str, phase: str, was: str) -> list[changes.Change]:
        if uid not in self.pods:
            cpu = self.random.randrange(1, 5)
            self.pods[uid] = pod_manifest(uid, f"request:cpu={cpu}", namespace="ns", uid=uid, node="a", status={})
        before = self.pods[uid]
        self.pods[uid] = {**before, "status": {"phase": phase}}
        if phase == "Running":  # the watch shows a pod that leaves it as it was before
            return [] if was == "Running" else self._shown(before, gone=True, entered=False)
        return self._shown(self.pods[uid], gone=False, entered=was in ("", "Running"))

    def _shown(self, content: dict[str, Any], *, gone: bool, entered: bool) -> list[changes.Change]:
        versioned = {**content, "metadata": {**content["metadata"], "resourceVersion": str(self.version)}}
        change = counted_pod(versioned, gone=gone, entered=entered)
        assert change
        return [change]


def test_of_a_pod_that_was_resized_and_ends_nothing_is_concluded() -> None:
    content = pod_manifest("p", "request:cpu=4", namespace="ns", uid="u", node="a", status={"phase": "Succeeded"})
    content["metadata"] |= {"resourceVersion": "12", "managedFields": [{"manager": "x", "subresource": "resize"}]}
    change = counted_pod(content, gone=False, entered=True)
    assert change == TotalsUnknown("a")


def test_nothing_is_counted_on_a_node_that_is_not_there() -> None:
    assert applied(ListBegun("z", 1), LISTED._replace(node="z"), to=Snapshot()) == Snapshot()
