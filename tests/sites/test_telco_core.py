"""A telco core node: its profile starts, its own scheduler stays in charge, and the vendor's SR-IOV cases hold."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.clusters import DEPLOYMENTS
from tests.sites.site import SITES, Site, again_and_again, node_of, site
from tests.waiting import eventually

from topomend.kube.errors import Conflict, NotFound
from topomend.kube.resources import PODS
from topomend.model.bitmask import parse_id_list
from topomend.model.nodes.node_state import Device
from topomend.model.shapes.shape import parse_shape
from topomend.reconcile.settings import OBSERVE
from topomend.sandbox import NodeSpec

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(600)]

FOLDER, SCHEDULER = "telco-core", "topo-aware-scheduler"

SHAPE = "sockets:2 cores:18 threads:2 memory:96Gi hugepages-1Gi:32 device:openshift.io/dpdk@0=4,1=4"

CORE = node_of("core", SHAPE, SITES / FOLDER / "performance-profile.yaml")

ALIGNED, UNALIGNED = "with-topology", "without-topology"
"""What the network operator's ``excludeTopology`` makes of a resource: false, true."""


def functions(numa: int, card: int, kind: str) -> list[Device]:
    """Four virtual functions of a card, as its plugin offers them."""
    resource = f"openshift.io/numa{numa}-nic{card}-{kind}"
    where = (numa,) if kind == ALIGNED else None
    return [Device(resource, f"numa{numa}-nic{card}-{kind}-{number}", where) for number in range(4)]


SRIOV = NodeSpec.of_machine(
    "sriov",
    parse_shape("sockets:2 cores:4 threads:2 memory:16Gi").machine(),
    [
        device
        for numa, card in ((0, 1), (0, 2), (1, 1))
        for kind in (ALIGNED, UNALIGNED)
        for device in functions(numa, card, kind)
    ],
    topology_manager_policy="single-numa-node",
    cpu_manager_policy_options={"full-pcpus-only": "true"},
    reserved_cpus=parse_id_list("0-3,8-11"),
)
"""All CPUs of NUMA node 0 are reserved, so that a pod with CPUs is on NUMA node 1."""

REFUSED = {
    "a function of the other NUMA node": [f"numa0-nic1-{ALIGNED}"],
    "one of two cards with topology": [f"numa0-nic1-{UNALIGNED}", f"numa0-nic2-{ALIGNED}"],
    "both cards with topology": [f"numa0-nic1-{ALIGNED}", f"numa0-nic2-{ALIGNED}"],
}
ADMITTED = {
    "a function of the same NUMA node": [f"numa1-nic1-{UNALIGNED}"],
    "a function of the other NUMA node without topology": [f"numa0-nic1-{UNALIGNED}"],
    "two cards without topology": [f"numa0-nic1-{UNALIGNED}", f"numa0-nic2-{UNALIGNED}"],
}
"""openshift-kni/cnf-features-deploy: cnf-tests/testsuites/e2esuite/dpdk/numa_node_sriov.go."""


def with_functions(name: str, resources: Sequence[str], count: int = 1) -> dict[str, Any]:
    """A Guaranteed pod of two CPUs with virtual functions."""
    limits = {"cpu": "2", "memory": "500Mi"} | {f"openshift.io/{resource}": str(count) for resource in resources}
    container = {"name": "main", "image": "sandbox/pause", "resources": {"limits": limits}}
    selector = {"kubernetes.io/hostname": "sriov"}
    spec = {"containers": [container], "nodeSelector": selector, "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@contextmanager
def cleared(up: Site) -> Iterator[Site]:
    """A site on which nothing of a test is left afterwards."""
    yield up
    for made in up.client.list(DEPLOYMENTS, namespace="default").items:
        up.client.delete(DEPLOYMENTS, made["metadata"]["name"], "default", uid=made["metadata"]["uid"])
    for pod in up.client.list(PODS, namespace="default").items:
        up.remove(pod)
    eventually("no pod to be left", lambda: not up.client.list(PODS, namespace="default").items)


@pytest.fixture(scope="module")
def observing() -> Iterator[Site]:
    with site([SRIOV], OBSERVE) as up:
        yield up


@pytest.fixture
def observed(observing: Site) -> Iterator[Site]:
    with cleared(observing):
        yield observing


@pytest.fixture(scope="module")
def relaunching() -> Iterator[Site]:
    with site([CORE, SRIOV]) as up:
        yield up


@pytest.fixture
def acting(relaunching: Site) -> Iterator[Site]:
    with cleared(relaunching):
        yield relaunching


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_vendor_expects_to_fail_fails_beside_an_observer(observed: Site, case: str) -> None:
    made = observed.create(with_functions("tried", REFUSED[case]))
    eventually("it to be refused", lambda: observed.phase("tried") == "Failed")
    assert "Resources cannot be allocated with Topology locality" in observed.get("tried")["status"]["message"]
    observed.told(made, "TopologyRefusalExplained")
    observed.told(made, "RelaunchSkipped")
    kept = observed.get("tried")
    assert (kept["metadata"]["uid"], kept["status"]["phase"]) == (made["metadata"]["uid"], "Failed")


@pytest.mark.parametrize("case", ADMITTED)
def test_what_the_vendor_expects_to_run_runs(observed: Site, case: str) -> None:
    observed.create(with_functions("tried", ADMITTED[case]))
    eventually("it to run", lambda: observed.running("tried"))
    assert observed.get("tried")["status"]["qosClass"] == "Guaranteed"


def test_a_pod_for_which_all_functions_are_taken_waits_and_then_runs(observed: Site) -> None:
    resources = [f"numa0-nic1-{UNALIGNED}"]
    holder = observed.create(with_functions("holder", resources, count=4))
    eventually("it to run", lambda: observed.running("holder"))
    made = observed.create(with_functions("waiting", resources))
    observed.told(made, "FailedScheduling")
    assert observed.phase("waiting") == "Pending"
    observed.client.delete(PODS, "holder", "default", uid=holder["metadata"]["uid"])
    eventually("it to run", lambda: observed.running("waiting"))


def test_an_acting_operator_tells_that_no_node_can_ever_admit_it(acting: Site) -> None:
    made = acting.create(with_functions("tried", REFUSED["a function of the other NUMA node"]))
    assert "sriov" in acting.told(made, "NoNodeCanEverAdmit")
    assert acting.get("tried")["metadata"]["uid"] == made["metadata"]["uid"]


@contextmanager
def own_scheduler(up: Site) -> Iterator[list[str]]:
    """A scheduler that binds pods of its name to the core node, as one that knows no better. Yields the UIDs bound."""
    bound: list[str] = []

    def bind() -> None:
        for pod in up.client.list(PODS, namespace="default").items:
            if pod["spec"].get("schedulerName") == SCHEDULER and not _is_out_of_reach(pod):
                _bind(up, pod)
                bound.append(pod["metadata"]["uid"])

    with again_and_again(bind, 0.05):
        yield bound


def _is_out_of_reach(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates"))


def _bind(up: Site, pod: dict[str, Any]) -> None:
    name = pod["metadata"]["name"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": pod["metadata"]["uid"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "core"},
    }
    with suppress(Conflict, NotFound):
        up.client._ask("POST", f"{PODS.path('default', name)}/binding", binding)


def test_the_core_node_is_filled_and_a_refused_pod_keeps_its_own_scheduler(acting: Site) -> None:
    acting.apply(f"{FOLDER}/dataplane.yaml")
    both = eventually("both data planes to run", lambda: acting.running_of("dataplane", 2))
    held = [acting.sandbox.resources(pod["metadata"]["name"])[0].numa_nodes for pod in both]
    assert sorted(map(sorted, held)) == [[0], [1]]
    with own_scheduler(acting) as bound:
        acting.apply(f"{FOLDER}/signalling.yaml")
        made = eventually("it to be refused", lambda: _refused(acting))
        assert "once default/dataplane-" in acting.told(made, "TopologyRefusalExplained")
        acting.client.merge(DEPLOYMENTS, "dataplane", {"spec": {"replicas": 1}}, "default")
        running = eventually("it to run", lambda: acting.running("signalling"))
    assert running["spec"]["schedulerName"] == SCHEDULER
    assert bound == [made["metadata"]["uid"], running["metadata"]["uid"]]
    assert made["metadata"]["uid"] != running["metadata"]["uid"]
    eventually("it to be aligned", lambda: acting.is_aligned("signalling"))


def _refused(up: Site) -> dict[str, Any] | None:
    pod = up.get("signalling")
    return pod if pod["status"].get("phase") == "Failed" else None
