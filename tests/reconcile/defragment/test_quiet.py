"""When pools of nodes rest, and what keeps everybody from being moved."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod, guaranteed_pod, node_state, refused_pod, snapshot_of, watched_pod
from tests.clock import Clock

from topomend.cache import changes
from topomend.cache.entries import ReplayMismatches
from topomend.model.nodes.node import Taint
from topomend.model.relaunch_record import Relaunch, Step
from topomend.reconcile.defragment.quiet import LOOK_SECONDS, QUIET_SECONDS, Quiet
from topomend.reconcile.store import Store


class Scene:
    """Two pools of one node each, at rest."""

    def __init__(self) -> None:
        self.clock, self.store, self.preempting = Clock(), Store(), False
        self.store.snapshot = snapshot_of(node_state(name="a"), node_state(name="b"))
        for name in "ab":
            self.change(
                name, labels={**self.store.snapshot.nodes[name].labels, "karpenter.sh/nodepool": f"pool-{name}"}
            )
        self.quiet = Quiet(self.store, lambda: self.preempting, self.clock)
        self.quiet.look()
        self.clock.advance(QUIET_SECONDS)

    def change(self, name: str, **fields: Any) -> None:
        self.store.apply(changes.NodeUpdated(replace(self.store.snapshot.nodes[name], **fields)))

    def pools(self) -> tuple[str, ...]:
        self.clock.advance(LOOK_SECONDS)
        self.quiet.look()
        return self.quiet.pools()


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    "fields",
    [
        {"ready": False},
        {"unschedulable": True},
        {"taints": (Taint("example.com/full", "NoSchedule"),)},
        {"allocatable": {"cpu": 1000}},
        {"uid": "another"},
    ],
    ids=str,
)
def test_a_pool_rests_after_one_of_its_nodes_has_changed_and_the_others_do_not(
    scene: Scene, fields: dict[str, Any]
) -> None:
    assert scene.pools() == ("pool-a", "pool-b")
    scene.change("a", **fields)
    assert scene.pools() == ("pool-b",)
    scene.clock.advance(QUIET_SECONDS)
    assert scene.pools() == ("pool-a", "pool-b")


def test_a_change_that_is_over_before_the_next_look_is_not_seen(scene: Scene) -> None:
    assert scene.pools() == ("pool-a", "pool-b")
    scene.change("a", ready=False)
    scene.quiet.look()
    scene.change("a", ready=True)
    assert scene.pools() == ("pool-a", "pool-b")


def test_a_pool_rests_after_an_agent_fell_silent(scene: Scene) -> None:
    publications = scene.store.snapshot.publications
    silent = {**publications, "a": replace(publications["a"], agent_problem="it is silent")}
    scene.store.snapshot = replace(scene.store.snapshot, publications=silent)
    assert scene.pools() == ("pool-b",)


def test_what_is_used_of_a_node_and_its_labels_are_no_change(scene: Scene) -> None:
    scene.change("a", used={"cpu": 1000}, version="9", labels={**scene.store.snapshot.nodes["a"].labels, "x": "y"})
    assert scene.pools() == ("pool-a", "pool-b")


def test_a_pool_rests_after_a_node_came_or_went(scene: Scene) -> None:
    labels = {**scene.store.snapshot.nodes["a"].labels, "kubernetes.io/hostname": "c"}
    scene.store.apply(changes.NodeUpdated(replace(scene.store.snapshot.nodes["a"], name="c", labels=labels)))
    assert scene.pools() == ("pool-b",)
    scene.clock.advance(QUIET_SECONDS)
    scene.store.apply(changes.NodeRemoved("c"))
    assert scene.pools() == ("pool-b",)


def test_a_pool_rests_while_replay_mispredicts_one_of_its_nodes(scene: Scene) -> None:
    mismatches = {"b": ReplayMismatches(frozenset({"uid"}), scene.clock.now)}
    scene.store.snapshot = replace(scene.store.snapshot, mismatches=mismatches)
    assert scene.pools() == ("pool-a",)


def test_a_pool_rests_for_as_long_as_it_was_told(scene: Scene) -> None:
    scene.quiet.rest("pool-a", 3600.0)
    scene.quiet.rest("pool-a", 60.0)
    scene.clock.advance(3500.0)
    assert scene.pools() == ("pool-b",)
    scene.clock.advance(100.0)
    assert scene.pools() == ("pool-a", "pool-b")


def test_whoever_begins_to_lead_knows_no_node(scene: Scene) -> None:
    scene.quiet.forget()
    assert scene.pools() == ()


def test_nobody_is_moved_after_a_refusal_for_a_while(scene: Scene) -> None:
    assert scene.quiet.why_not() == ""
    scene.store.apply(changes.PodUpdated(refused_pod("refused"), scene.clock.now))
    assert scene.quiet.why_not() == "a kubelet has refused a pod lately"
    scene.clock.advance(QUIET_SECONDS)
    assert scene.quiet.why_not() == "", "one that nobody deletes keeps nobody for ever"


def test_nobody_is_moved_while_a_refused_pod_is_relaunched(scene: Scene) -> None:
    record = Relaunch("ns", "r", "p", "1", "a", "TopologyAffinityError", "why", 1)
    scene.store.snapshot = replace(scene.store.snapshot, relaunches={("ns", "r"): record})
    assert scene.quiet.why_not() == "a refused pod is being relaunched"
    ended = replace(record, step=next(step for step in Step if step.ended))
    scene.store.snapshot = replace(scene.store.snapshot, relaunches={("ns", "r"): ended})
    assert scene.quiet.why_not() == ""


def test_nobody_is_moved_while_others_were_evicted_for_a_pod(scene: Scene) -> None:
    scene.preempting = True
    assert "places are held" in scene.quiet.why_not()
    scene.preempting = False
    scene.store.apply(changes.PodUpdated(gated_pod("urgent", nominated="a"), scene.clock.now))
    assert "places are held" in scene.quiet.why_not()


def test_nobody_is_moved_while_the_scheduler_preempts(scene: Scene) -> None:
    pod = guaranteed_pod("urgent", 3)
    scene.store.apply(changes.PodAssumed(pod, ("a",), scene.clock.now, displaces=True))
    assert scene.quiet.why_not() == "kube-scheduler evicts pods for others"


def test_pods_that_only_wait_keep_nobody(scene: Scene) -> None:
    scene.store.apply(changes.PodUpdated(gated_pod("waits"), scene.clock.now))
    scene.store.apply(changes.PodUpdated(watched_pod("binds"), scene.clock.now))
    assert scene.quiet.why_not() == ""
