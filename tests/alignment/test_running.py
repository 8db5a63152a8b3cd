"""Running containers by their nodes' published states: aligned, not pinned, or unknown."""

from dataclasses import replace

from tests.builders import TWO_NUMA_NODES, node_state, pod

from topomend.alignment.container import Alignment
from topomend.alignment.running import (
    CLAIMS_NOT_KNOWN,
    NODE_NOT_KNOWN,
    NOT_SHOWN,
    Claimed,
    RunningContainer,
    judge,
)
from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.devices.claimed_device import ClaimedDevice
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.running_pod import RunningPod
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


def device(driver: str, numa_node: int | None) -> ClaimedDevice:
    return ClaimedDevice("gpu", "one", driver, "n", f"d-{numa_node}", numa_node)


def judged_with(claimed: Claimed, requested: Pod = PINNED) -> RunningContainer:
    """The judgement of a pod whose container c0 has these devices by claims, and CPUs of NUMA node 0 if PINNED."""
    snapshot = changes.apply(Snapshot(), changes.Published(admit(NODE, requested)[1], "1", ""))
    names = frozenset(container.name for container in requested.containers)
    (container,) = judge(snapshot, [RunningPod(requested, "n", names, None)], {("ns", "p", "c0"): claimed})
    return container


def test_devices_by_claims_count_where_they_are() -> None:
    def alignment(*numa_nodes: int | None) -> Alignment:
        return judged_with(Claimed(tuple(device("gpu.com", number) for number in numa_nodes))).aligned.alignment

    assert alignment(0) is Alignment.NUMA_NODE
    assert alignment(0, 1) is Alignment.SPLIT
    assert alignment(None) is alignment(9) is Alignment.NUMA_NODE
    held = judged_with(Claimed((device("gpu.com", 1),))).aligned.allocated[-1]
    assert (held.resource, held.devices, held.numa_nodes, held.claimed) == ("gpu.com", ("d-1",), 0b10, True)


def test_a_container_whose_cpus_a_claim_gave_does_not_share_the_pool() -> None:
    fraction = pod("p", "request:cpu=500m")
    assert judged_with(Claimed((device("gpu.com", 1),)), fraction).aligned.alignment is Alignment.FLOATING
    by_claim = judged_with(Claimed((device("gpu.com", 1), device("dra.cpu", 1))), fraction).aligned
    assert (by_claim.alignment, by_claim.pool) == (Alignment.NUMA_NODE, 0)


def test_a_container_whose_claims_are_not_known_is_unknown() -> None:
    container = judged_with(Claimed(problem="resource claims cannot be read"))
    assert container.aligned.alignment is Alignment.UNKNOWN
    assert [(each.reason, each.message) for each in container.reasons] == [
        (CLAIMS_NOT_KNOWN, "resource claims cannot be read")
    ]
