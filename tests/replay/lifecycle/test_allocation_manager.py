"""The whole admission: the managers first, then the fit check."""

from tests.builders import node_state, pod

from topomend.model.nodes.node import Node
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.quantity import parse_quantity
from topomend.replay.lifecycle.allocation_manager import EVICTS, Kubelet, can_admit_pod, end


def kubelet(**amounts: str) -> Kubelet:
    """Two NUMA nodes of four CPUs under single-numa-node, CPU 0 reserved."""
    given = {"cpu": "7", "memory": "15Gi", "pods": "110"} | amounts
    return Kubelet(node_state(), Node("a", allocatable={name: parse_quantity(text) for name, text in given.items()}))


def bound(name: str, *containers: str, critical: bool = False) -> BoundPod:
    return BoundPod(pod(name, *containers), critical=critical)


def test_what_the_managers_refuse_never_reaches_the_fit_check() -> None:
    verdict, _ = can_admit_pod(kubelet(), bound("p", "cpu=64 memory=1Gi"))
    assert verdict.reason == "TopologyAffinityError"


def test_a_pod_that_does_not_fit_gives_back_what_the_managers_gave_it() -> None:
    before = kubelet(cpu="2")
    verdict, after = can_admit_pod(before, bound("p", "cpu=3 memory=1Gi"))
    assert (verdict.admitted, verdict.reason) == (False, "OutOfcpu")
    assert verdict.message.startswith("Pod was rejected: Node didn't have enough resource: cpu, requested: 3000")
    assert [shortage.resource for shortage in verdict.shortages] == ["cpu"]
    assert after.state == before.state


def test_admitted_pods_count_until_they_end() -> None:
    verdict, after = can_admit_pod(kubelet(), bound("a", "request:cpu=4"))
    assert verdict.admitted
    refused, after = can_admit_pod(after, bound("b", "request:cpu=4"))
    assert refused.reason == "OutOfcpu"
    verdict, _ = can_admit_pod(end(after, "ns", "a"), bound("b", "request:cpu=4"))
    assert verdict.admitted


def test_a_pod_that_is_admitted_again_does_not_count_twice() -> None:
    _, after = can_admit_pod(kubelet(), bound("a", "request:cpu=4"))
    verdict, after = can_admit_pod(after, bound("a", "request:cpu=4"))
    assert (verdict.admitted, len(after.pods)) == (True, 1)


def test_of_a_critical_pod_it_is_said_that_others_may_leave_for_it() -> None:
    verdict, _ = can_admit_pod(kubelet(), bound("a", "request:cpu=64", critical=True))
    assert verdict.unmodelled == (EVICTS,)


def test_which_of_several_devices_is_named_is_chance() -> None:
    lacking = kubelet(**{"x.io/a": "0", "x.io/b": "0"})
    verdict, _ = can_admit_pod(lacking, bound("p", "x.io/a=1 x.io/b=1"))
    assert verdict.unmodelled == ("which of x.io/a, x.io/b the kubelet names is chance",)
