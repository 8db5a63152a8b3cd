"""Running containers by their nodes' published states: aligned, not pinned, or unknown."""

from dataclasses import replace

from tests.builders import TWO_NUMA_NODES, node_state, pod

from topomend.alignment.container import Alignment
from topomend.alignment.running import NODE_NOT_KNOWN, NOT_SHOWN, RunningContainer, judge
from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.model.running_pod import RunningPod
from topomend.replay.admission import admit

NODE = node_state(TWO_NUMA_NODES, name="n", memory_manager="Static")
PINNED = pod("p", "cpu=2 memory=1Gi")


def judged(state: NodeState, requested: Pod, *, problem: str = "") -> list[RunningContainer]:
    """The judgement of a pod all of whose containers run on a node that publishes ``state``."""
    snapshot = changes.apply(Snapshot(), changes.Published(state, "1", problem))
    names = frozenset(container.name for container in requested.containers)
    return list(judge(snapshot, [RunningPod(requested, state.name, names, None)]))


def test_a_container_that_its_node_shows_is_judged_by_what_it_holds() -> None:
    (container,) = judged(admit(NODE, PINNED)[1], PINNED)
    assert (container.aligned.alignment, container.reasons) == (Alignment.NUMA_NODE, ())
    assert (container.owner.kind, container.owner.name) == ("Pod", "p")


def test_a_container_that_must_hold_cpus_and_is_not_shown_is_unknown_and_not_unpinned() -> None:
    (container,) = judged(NODE, PINNED)
    assert container.aligned.alignment is Alignment.UNKNOWN
    assert [reason.reason for reason in container.reasons] == [NOT_SHOWN]
    fraction = pod("p", "cpu=500m memory=1Gi")
    assert judged(NODE, fraction)[0].aligned.alignment is Alignment.UNKNOWN
    assert judged(admit(NODE, fraction)[1], fraction)[0].aligned.alignment is Alignment.FLOATING


def test_an_init_container_that_is_not_shown_names_the_component_that_shows_it() -> None:
    requested = pod("p", "init cpu=2 memory=1Gi", "cpu=1 memory=1Gi")
    container = judged(NODE, requested)[0]
    assert container.unknown is not None
    assert "kubelet-state" in container.unknown.message


def test_a_pod_of_the_same_name_and_another_uid_is_another_pod() -> None:
    after = admit(NODE, PINNED)[1]
    assert judged(after, replace(PINNED, uid="other"))[0].aligned.alignment is Alignment.UNKNOWN


def test_on_a_node_that_is_not_known_nothing_is_known() -> None:
    (container,) = judged(admit(NODE, PINNED)[1], PINNED, problem="its agent says so")
    assert container.unknown is not None
    assert (container.unknown.reason, container.unknown.message) == (NODE_NOT_KNOWN, "n: its agent says so")
    (nowhere,) = judge(Snapshot(), [RunningPod(PINNED, "m", frozenset({"c0"}), None)])
    assert nowhere.aligned.alignment is Alignment.UNKNOWN


def test_containers_that_do_not_run_are_left_out() -> None:
    snapshot = changes.apply(Snapshot(), changes.Published(NODE, "1"))
    two = pod("p", "cpu=100m", "cpu=100m")
    answers = judge(snapshot, [RunningPod(two, "n", frozenset({"c1"}), None)])
    assert [answer.container.name for answer in answers] == ["c1"]
