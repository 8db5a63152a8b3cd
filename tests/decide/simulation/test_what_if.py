"""What becomes of the same pods under another policy or scope, and with more nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.builders import node, node_state, pod, snapshot_of
from tests.seeds import SEED

from topomend.cache.snapshot import Snapshot
from topomend.decide.simulation.what_if import Arrival, Outcome, Settings, is_asked, what_if, with_added
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.pods.scheduling import Placement
from topomend.replay.lifecycle.allocation_manager import Kubelet, can_admit_pod

AS_IT_IS = Settings()
BEST_EFFORT = Settings("best-effort")
TWO, THREE = "cpu=2 memory=1Mi", "cpu=3 memory=1Mi"


def on(name: str, container: str, *, node: str = "a", of_each_node: bool = False) -> Arrival:
    return Arrival(pod(name, container), node=node, of_each_node=of_each_node)


def waits(name: str, container: str) -> Arrival:
    return on(name, container, node="")


X, Y, WIDE = on("x", TWO), on("y", TWO), on("wide", THREE)
"""On a node with 3 and 4 free CPUs, x and y leave 1 and 2: wide fits on no NUMA node, and on both together."""


def refused(outcome: Outcome) -> list[tuple[str, str, str]]:
    return [(each.arrival.pod.name, each.reason, each.elsewhere) for each in outcome.refused]


def test_pods_come_in_the_given_order_to_their_own_nodes() -> None:
    cluster = snapshot_of(node_state())
    last = what_if(cluster, [X, Y, WIDE], AS_IT_IS)
    assert refused(last) == [("wide", "TopologyAffinityError", "")]
    assert (last.nodes, last.admitted, last.waiting) == (1, 2, ())
    assert refused(what_if(cluster, [WIDE, X, Y], AS_IT_IS)) == []


def test_the_nodes_are_emptied_first() -> None:
    full = snapshot_of(node_state(pods=[pod("other", "cpu=3 memory=1Mi"), pod("another", "cpu=4 memory=1Mi")]))
    assert what_if(full, [on("whole", "cpu=4 memory=1Mi")], AS_IT_IS).admitted == 1


def test_another_policy_admits_and_aligns_others() -> None:
    outcome = what_if(snapshot_of(node_state()), [X, Y, WIDE], BEST_EFFORT)
    assert (outcome.admitted, refused(outcome)) == (3, [])
    assert (outcome.exclusive, outcome.aligned, outcome.together) == (3, 2, 2)


def test_another_scope_puts_the_containers_of_a_pod_together() -> None:
    pair = Arrival(pod("pair", THREE, TWO), node="a")
    by_container = what_if(snapshot_of(node_state()), [pair], AS_IT_IS)
    assert (by_container.exclusive, by_container.aligned, by_container.together) == (1, 1, 0)
    larger = snapshot_of(node_state("sockets:2 cores:8 memory:8Gi"))
    of_pod = what_if(larger, [pair], Settings(scope="pod"))
    assert (of_pod.exclusive, of_pod.aligned, of_pod.together) == (1, 1, 1)
    assert refused(what_if(snapshot_of(node_state()), [pair], Settings(scope="pod"))) == [
        ("pair", "TopologyAffinityError", "")
    ]


def test_a_refused_pod_goes_elsewhere_before_those_that_wait() -> None:
    cluster = snapshot_of(node_state(), node_state(name="b"))
    first, second = waits("first", "cpu=4 memory=1Mi"), waits("second", "cpu=4 memory=1Mi")
    outcome = what_if(cluster, [X, Y, WIDE, first, second], AS_IT_IS)
    assert refused(outcome) == [("wide", "TopologyAffinityError", "b")]
    assert outcome.waiting == (second,)
    assert outcome.admitted == 3
    assert outcome.exclusive == outcome.aligned == 4


def test_each_pod_is_settled_once_when_it_is_known_what_becomes_of_it() -> None:
    settled: list[str] = []
    first, of_each = waits("first", "cpu=4 memory=1Mi"), on("each", THREE, of_each_node=True)

    def passed(*arrivals: Arrival) -> Iterator[Arrival]:
        for arrival in arrivals:
            settled.append(f"before {arrival.pod.name}")
            yield arrival

    what_if(snapshot_of(node_state()), passed(X, Y, WIDE, first, of_each), AS_IT_IS, (), lambda: settled.append("one"))
    assert settled == ["before x", "one", "before y", "one", "before wide", "before first", "before each", *["one"] * 3]


def test_a_pod_goes_elsewhere_only_where_its_placement_lets_it() -> None:
    cluster = snapshot_of(node_state(), node_state(name="b"))
    bound = replace(WIDE, placement=Placement(node_selector={"kubernetes.io/hostname": "a"}))
    assert refused(what_if(cluster, [X, Y, bound], AS_IT_IS)) == [("wide", "TopologyAffinityError", "")]


def test_a_pod_of_each_node_goes_nowhere_else() -> None:
    cluster = snapshot_of(node_state(), node_state(name="b"))
    daemon = replace(WIDE, of_each_node=True)
    assert refused(what_if(cluster, [X, Y, daemon], AS_IT_IS)) == [("wide", "TopologyAffinityError", "")]


def test_totals_count_for_pods_without_a_node_also_those_of_pods_that_hold_nothing() -> None:
    cluster = snapshot_of(node_state())
    shared = on("shared", "request:cpu=6")
    outcome = what_if(cluster, [shared, waits("w", TWO)], AS_IT_IS)
    assert [arrival.pod.name for arrival in outcome.waiting] == ["w"]
    assert (outcome.admitted, outcome.exclusive) == (1, 0)


def test_a_kubelet_refuses_what_exceeds_its_node_s_totals_and_keeps_nothing_of_it() -> None:
    shared, later = on("shared", "request:cpu=4"), on("later", THREE)
    outcome = what_if(snapshot_of(node_state()), [shared, on("whole", "cpu=4 memory=1Mi"), later], AS_IT_IS)
    assert refused(outcome) == [("whole", "OutOfcpu", "")]
    assert outcome.exclusive == 1


def test_a_kubelet_does_not_count_devices_of_a_resource_that_its_node_does_not_have() -> None:
    gone = on("gone", "cpu=1 memory=1Mi vendor.com/gpu=1")
    cluster = snapshot_of(node_state())
    assert refused(what_if(cluster, [gone], AS_IT_IS)) == []
    without = node("a", allocatable={**node("a").allocatable, "vendor.com/gpu": 0})
    assert refused(what_if(replace(cluster, nodes={"a": without}), [gone], AS_IT_IS)) == [
        ("gone", "OutOfvendor.com/gpu", "")
    ]


def test_a_pod_that_asks_for_alignment_goes_only_where_it_is_aligned() -> None:
    cluster = snapshot_of(node_state())
    asking = Arrival(replace(pod("asking", THREE), alignment="single-numa-node"))
    assert what_if(cluster, [X, Y, asking], BEST_EFFORT).waiting == (asking,)
    assert what_if(cluster, [X, Y, waits("any", THREE)], BEST_EFFORT).waiting == ()


def test_kubelets_that_would_not_start_are_named_and_refuse_everything() -> None:
    many = node_state("numa:16 cores:2 memory:1Gi", "none", reserved_cpus="0")
    outcome = what_if(snapshot_of(many), [on("p", "")], Settings("restricted"))
    assert outcome.not_started == {"a": "unsupported on machines with more than 8 NUMA Nodes"}
    assert refused(outcome) == [("p", "KubeletWouldNotStart", "")]


def test_an_unknown_node_is_not_asked() -> None:
    cluster = replace(snapshot_of(node_state()), nodes={"a": node("a"), "silent": node("silent")})
    assert [is_asked(cluster, name) for name in ("a", "silent", "gone")] == [True, False, False]
    outcome = what_if(cluster, [waits("w", "cpu=4 memory=1Mi"), waits("v", "cpu=4 memory=1Mi")], AS_IT_IS)
    assert (outcome.nodes, outcome.admitted, len(outcome.waiting)) == (1, 1, 1)


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_random_pods_are_answered_as_by_the_whole_kubelet(policy: str, scope: str) -> None:
    chance = Random(f"{SEED} {policy} {scope}")
    own_node = replace(node(), allocatable={"cpu": 7000, "memory": 16000 << 30, "pods": 5000, "vendor.com/gpu": 2000})
    for _ in range(10):
        pods = [pod(f"p{number}", *_random_containers(chance)) for number in range(10)]
        state = node_state("sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1", "none")
        kubelet = Kubelet(Settings(policy, scope).of(state), own_node)
        answers = []
        for each in pods:
            verdict, kubelet = can_admit_pod(kubelet, BoundPod(each))
            answers += [] if verdict.admitted else [(each.name, verdict.reason, "")]
        cluster = replace(snapshot_of(state), nodes={"a": replace(own_node, unschedulable=True)})
        arrivals = [Arrival(each, node="a") for each in pods]
        assert refused(what_if(cluster, arrivals, Settings(policy, scope))) == answers, pods


def _random_containers(chance: Random) -> list[str]:
    amounts = [f"cpu={chance.randint(1, 4)} memory={chance.randint(1, 6)}Gi", f"request:cpu={chance.randint(1, 30)}00m"]
    return [
        chance.choice(amounts) + chance.choice(["", "", " vendor.com/gpu=1", " vendor.com/fpga=1"])
        for _ in range(chance.randint(1, 2))
    ]


# More nodes


def grown(
    cluster: Snapshot, arrivals: Sequence[Arrival], number: int = 1, pool: str = "gpu"
) -> tuple[Outcome, list[str]]:
    found = with_added(cluster, arrivals, pool, number)
    assert found is not None
    return what_if(found.snapshot, arrivals, AS_IT_IS, found.own), list(found.names)


@pytest.fixture
def gpu_pool() -> Snapshot:
    labels = {**node().labels, "karpenter.sh/nodepool": "gpu"}
    return replace(snapshot_of(node_state()), nodes={"a": node("a", labels=labels)})


def test_an_added_node_takes_pods_that_wait(gpu_pool: Snapshot) -> None:
    arrivals = [waits(name, "cpu=4 memory=1Mi") for name in ("u", "v", "w")]
    assert len(what_if(gpu_pool, arrivals, AS_IT_IS).waiting) == 2
    outcome, names = grown(gpu_pool, arrivals)
    assert (outcome.nodes, outcome.admitted, names) == (2, 2, ["gpu-new-1"])
    assert grown(gpu_pool, arrivals, 2)[0].admitted == 3


def test_an_added_node_has_the_pods_of_each_node_which_are_not_counted(gpu_pool: Snapshot) -> None:
    arrivals = [on("daemon", TWO, of_each_node=True), on("other", TWO), waits("w", "cpu=4 memory=1Mi")]
    outcome, _ = grown(gpu_pool, [*arrivals, waits("v", "cpu=4 memory=1Mi")])
    assert outcome.admitted + len(outcome.waiting) == 4
    assert [arrival.pod.name for arrival in outcome.waiting] == ["v"]


def test_an_added_node_gets_a_name_that_no_other_has(gpu_pool: Snapshot) -> None:
    taken = replace(gpu_pool, nodes={**gpu_pool.nodes, "gpu-new-1": node("gpu-new-1")})
    assert grown(taken, [])[1] == ["gpu-new-2"]


@pytest.mark.parametrize("unusable", [{"ready": False}, {"unschedulable": True}], ids=str)
def test_only_a_node_that_takes_pods_is_copied(gpu_pool: Snapshot, unusable: dict[str, bool]) -> None:
    changed = replace(gpu_pool, nodes={"a": replace(gpu_pool.nodes["a"], **unusable)})  # type: ignore[arg-type]
    assert with_added(changed, [], "gpu", 1) is None
    assert with_added(gpu_pool, [], "cpu", 1) is None
