"""Two real operators, of which one acts: what happens when it is killed, when it ends, and while both run.

Slow: the other takes over only once the killed one's Lease has ended.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.controller.conftest import NODE_A, NODE_B, Cluster, Operator, pod, wait_for
from tests.faults.judge import audited
from tests.faults.proxy import Proxy

from topomend.kube.client import LEASES, NAMESPACES
from topomend.kube.errors import AlreadyExists, NotFound

pytestmark = pytest.mark.cluster

NAMESPACE = "topomend-system"
LEADS = "this operator leads"
MARKS = ("Committed", "Created", "Launched")


@pytest.fixture(autouse=True)
def no_lease(two_nodes: Cluster) -> None:
    """The operators' namespace, without a Lease of an earlier test."""
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    with suppress(NotFound):
        found = two_nodes.client.get(LEASES, "topomend-operator", NAMESPACE)
        two_nodes.client.delete(LEASES, "topomend-operator", NAMESPACE, uid=found["metadata"]["uid"])


@pytest.fixture
def proxy(two_nodes: Cluster, tmp_path: Path) -> Iterator[Proxy]:
    made = Proxy(two_nodes.sandbox.kubeconfig, tmp_path)
    yield made
    made.close()


@pytest.fixture
def pair(start_operator: Callable[..., Operator], proxy: Proxy) -> tuple[Operator, Operator]:
    """The one that leads, and the one that only watches, whose writes the proxy counts."""
    first = start_operator("--leader-elect")
    wait_for("the first to lead", lambda: LEADS in first.text())
    second = start_operator("--leader-elect", kubeconfig=proxy.kubeconfig)
    for each in (first, second):
        wait_for("it to watch", partial(_is_listed, each))
    time.sleep(2)  # the second has seen the Lease, and its streams are up
    return first, second


def test_the_other_takes_over_from_a_killed_leader_within_twenty_seconds(
    fragmented: Cluster, pair: tuple[Operator, Operator]
) -> None:
    first, second = pair
    first.kill()
    killed = time.monotonic()
    refused = fragmented.create(pod("orphan", 3, preferred=NODE_A))
    wait_for("the second to lead", lambda: LEADS in second.text())
    took = time.monotonic() - killed
    moved = wait_for("the pod to run anew", lambda: fragmented.running("orphan"))
    print(f"killed to led, s: {took:.1f}; to the pod's running: {time.monotonic() - killed:.1f}")
    assert 10 < took < 20
    assert moved["metadata"]["uid"] != refused["metadata"]["uid"]
    assert moved["spec"]["nodeName"] == NODE_B
    assert "Traceback" not in first.text() + second.text()


def test_a_leader_that_ends_hands_over_within_two_seconds(fragmented: Cluster, pair: tuple[Operator, Operator]) -> None:
    first, second = pair
    first.process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    wait_for("the second to lead", lambda: LEADS in second.text())
    took = time.monotonic() - begun
    print(f"SIGTERM to led, s: {took:.2f}")
    assert took < 2
    fragmented.create(pod("handed", 3, preferred=NODE_A))
    wait_for("the pod to run anew", lambda: fragmented.running("handed"))
    assert first.terminate() == 0
    assert "Traceback" not in first.text() + second.text()


def test_while_both_run_the_follower_writes_nothing_and_each_step_of_a_relaunch_is_written_once(
    fragmented: Cluster, pair: tuple[Operator, Operator], proxy: Proxy
) -> None:
    first, second = pair
    fragmented.create(pod("train", 3, preferred=NODE_A))
    wait_for("the pod to run anew", lambda: fragmented.running("train"))
    wait_for("the record to end", lambda: fragmented.records()[0]["status"]["step"] == "Launched")
    assert [each.path for each in proxy.written if "leases" not in each.path] == []
    assert _writes(fragmented) == {("create", ""): 1, ("patch", "status"): len(MARKS)}
    assert LEADS not in second.text()
    assert "Traceback" not in first.text() + second.text()


def _is_listed(operator: Operator) -> bool:
    return "the cluster is listed" in operator.text()


def _writes(cluster: Cluster) -> dict[tuple[str, str], int]:
    """How often the one record was written, by verb and subresource, by the audit log."""
    assert cluster.sandbox.audit_log
    (record,) = cluster.records()
    name = record["metadata"]["name"]
    events = [event for event in audited(cluster.sandbox.audit_log) if event.get("objectRef", {}).get("name") == name]
    writes = [event for event in events if event["verb"] not in ("get", "list", "watch")]
    return dict(Counter((event["verb"], event["objectRef"].get("subresource", "")) for event in writes))
