"""Tenants beside each other: what one of them creates does not hold up another."""

import os
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median
from typing import Any

import pytest
from tests.clusters import NODE_A, NODE_B, Cluster, pod, shown
from tests.operator_process import Operator
from tests.waiting import awake, eventually, stretched

from topomend.kube.errors import AlreadyExists, APIError
from topomend.kube.resources import NAMESPACES, PODS
from topomend.sandbox.processes.host import free_ports
from topomend.wire.group import FIT_GATE

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("agents")]

FLOOD, QUIET = "flood", "quiet"
GATED = int(os.environ.get("TOPOMEND_GATED_PODS", "2000"))
"""Gated pods of one tenant. The operator is made for 20,000."""

SHORT_TURNS = {"replay.effort.TURN_SECONDS": -1.0}
"""A turn for a pod is over after one node."""

IMPATIENT = {"decide.queue.order.PATIENCE_SECONDS": 0.0}
"""NUMA nodes are reserved at once for whoever they may be reserved for, not after seconds."""

SMALL = 8
"""Pods of one CPU. The small NUMA nodes have room for six of them."""

REFUSED = 20
TOO_MANY = 5
"""CPUs that no NUMA node of the two nodes has; each has four."""


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    """Two tenants with a namespace each; neither is steered."""
    for name in (FLOOD, QUIET):
        with suppress(AlreadyExists):
            two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield two_nodes
    with suppress(APIError), ThreadPoolExecutor(8) as pool:  # what is left, one after another
        list(pool.map(two_nodes.remove, _pods(two_nodes, FLOOD) + _pods(two_nodes, QUIET)))
    two_nodes.clear()


def _pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    return list(cluster.client.list(PODS, namespace=namespace, cached=True).items)


def gated(name: str, cpus: int) -> dict[str, Any]:
    content = pod(name, cpus)
    content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
    return content


def create_all(cluster: Cluster, namespace: str, pods: list[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: cluster.create(content, namespace), pods))


def seconds_to_ungate(cluster: Cluster, name: str) -> float:
    """How long a pod of the quiet tenant stays gated."""
    cluster.create(gated(name, 1), QUIET)
    created = awake()
    eventually(f"{name} to be ungated", lambda: not cluster.get(name, QUIET)["spec"].get("schedulingGates"), poll=0.01)
    return awake() - created


def test_thousands_of_gated_pods_of_one_tenant_delay_another_by_less_than_a_second(
    cluster: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """The operator has just listed them all, and decides about one after the other."""
    eventually("both nodes to be published", lambda: shown(cluster, NODE_A) == shown(cluster, NODE_B) == set())
    create_all(cluster, FLOOD, [gated(f"flood-{number}", TOO_MANY) for number in range(GATED)])
    operator = start_operator()
    eventually("the operator to begin with the flood", lambda: "flood-" in operator.text())
    operator.wait_until_it_watches()
    beside = [seconds_to_ungate(cluster, f"beside-{number}") for number in range(5)]
    print(f"beside {GATED} gated pods {', '.join(f'{took:.2f}' for took in beside)} s")
    # One or two of them the machine may have held up, which is no tenant's doing.
    assert median(beside) < stretched(1), operator.text()[-2000:]


def test_a_pod_that_takes_longer_than_a_turn_is_ungated_after_several(
    cluster: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """As one of hundreds of containers does on thousands of nodes: here a turn is over after each node."""
    eventually("both nodes to be published", lambda: shown(cluster, NODE_A) == shown(cluster, NODE_B) == set())
    operator = start_operator(constants=SHORT_TURNS)
    operator.wait_until_it_watches()
    for number in range(3):
        seconds_to_ungate(cluster, f"long-{number}")
    assert "unexpected" not in operator.text()


def test_wide_pods_that_never_fit_and_whose_gate_their_user_wrote_close_no_node_to_others(
    cluster: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """They would need the four CPUs of a NUMA node on each of which a small pod runs for ever."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    operator = start_operator(f"--metrics-address={address}", constants=IMPATIENT)
    operator.wait_until_it_watches()
    for node in (NODE_A, NODE_B):
        _occupy_large_numa_node(cluster, node)
    for number in range(2):
        cluster.create(gated(f"wide-{number}", 4), FLOOD)
    for number in range(2):
        eventually("it to wait", lambda: f"UngateDeferred {FLOOD}/wide-{number}" in operator.text())  # noqa: B023
    for _ in range(2):  # the first time may have begun before
        before = _reserved_at(address)
        eventually("places to be reserved", lambda: _reserved_at(address) > before)  # noqa: B023
    for number in range(SMALL):
        cluster.create(gated(f"small-{number}", 1), QUIET)
    eventually("every small pod to run", lambda: _running(cluster, QUIET) == SMALL)
    assert "WaitingForTurn" not in operator.text(), "no place was reserved, not even for a while"
    assert all(content["spec"].get("schedulingGates") for content in _pods(cluster, FLOOD))


def _reserved_at(address: str) -> float:
    """When the operator last decided for whom NUMA nodes are reserved."""
    name = 'topomend_operator_duty_last_success_timestamp_seconds{duty="reservations"}'
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _occupy_large_numa_node(cluster: Cluster, node: str) -> None:
    """Have a pod of one CPU run there: it comes where a pod of three has left no room on the small NUMA node."""
    cluster.create(pod(f"fills-{node}", 3, node=node))
    eventually("the small NUMA node to be full", lambda: len(shown(cluster, node)) == 1)
    cluster.create(pod(f"runs-{node}", 1, node=node))
    eventually("the large one to be in use", lambda: len(shown(cluster, node)) == 2)
    cluster.remove(cluster.get(f"fills-{node}"))
    eventually("the small NUMA node to be empty", lambda: len(shown(cluster, node)) == 1)


def _running(cluster: Cluster, namespace: str) -> int:
    return sum(content["status"].get("phase") == "Running" for content in _pods(cluster, namespace))


def test_a_flood_of_refused_pods_does_not_use_up_the_relaunches_of_another_tenant(
    cluster: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """numa-a has one CPU free on each NUMA node, and numa-b is empty: only the rate keeps a refused pod waiting."""
    for number in range(2):
        cluster.create(pod(f"fills-{number}", 2 + number, node=NODE_A))
    eventually("numa-a to be published", lambda: len(shown(cluster, NODE_A)) == 2)
    create_all(cluster, FLOOD, [_refused(f"flood-{number}") for number in range(REFUSED)])
    operator = start_operator("--relaunch-rate=0.01", "--relaunch-burst=2")
    operator.wait_until_it_watches()
    eventually("the flood to use up its relaunches", lambda: _relaunched(cluster, FLOOD) == 1)
    cluster.create(_refused("victim"), QUIET)
    eventually("the other tenant's pod to be relaunched", lambda: _relaunched(cluster, QUIET) == 1)
    assert _relaunched(cluster, FLOOD) == 1, operator.text()


def _refused(name: str) -> dict[str, Any]:
    """Bound to numa-a, where no NUMA node has so many CPUs free."""
    return pod(name, 2, node=NODE_A)


def _relaunched(cluster: Cluster, namespace: str) -> int:
    return sum(
        "topomend.io/replaces" in content["metadata"].get("annotations", {}) for content in _pods(cluster, namespace)
    )
