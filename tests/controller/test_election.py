"""Two real operators, of which only the leader acts: while both run, when it is killed, and when it ends.

Slow: the other takes over only once the killed one's Lease has ended.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from tests import audit_log
from tests.audit_log import audited
from tests.clusters import NODE_A, NODE_B, Cluster, pod
from tests.faults.proxy import Moment, Proxy, Write
from tests.faults.steps import CREATE, LAUNCH, step_of
from tests.operator_process import Operator
from tests.waiting import eventually, stretched

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
        lease = two_nodes.client.get(LEASES, "topomend-operator", NAMESPACE)
        two_nodes.client.delete(LEASES, "topomend-operator", NAMESPACE, uid=lease["metadata"]["uid"])


@pytest.fixture
def proxy(two_nodes: Cluster, tmp_path: Path) -> Iterator[Proxy]:
    made = Proxy(two_nodes.sandbox.kubeconfig, tmp_path)
    yield made
    made.close()


@pytest.fixture
def pair(start_operator: Callable[..., Operator], proxy: Proxy) -> tuple[Operator, Operator]:
    """The one that leads, and the one that only watches, whose writes the proxy counts."""
    first = start_operator("--leader-elect")
    eventually("the first to lead", lambda: LEADS in first.text())
    second = start_operator("--leader-elect", kubeconfig=proxy.kubeconfig)
    for operator in (first, second):
        operator.wait_until_it_watches()
    time.sleep(2)  # the second has seen the Lease
    return first, second


def test_the_other_takes_over_from_a_killed_leader_within_twenty_seconds(
    fragmented: Cluster, pair: tuple[Operator, Operator]
) -> None:
    first, second = pair
    first.kill()
    killed = time.monotonic()
    refused = fragmented.create(pod("orphan", 3, preferred=NODE_A))
    eventually("the second to lead", lambda: LEADS in second.text())
    took = time.monotonic() - killed
    moved = eventually("the pod to run again", lambda: fragmented.running("orphan"))
    print(f"killed to led, s: {took:.1f}; to the pod's running: {time.monotonic() - killed:.1f}")
    assert 10 < took < stretched(20)
    assert moved["metadata"]["uid"] != refused["metadata"]["uid"]
    assert moved["spec"]["nodeName"] == NODE_B
    assert "Traceback" not in first.text() + second.text()


def test_a_killed_leader_that_starts_again_under_its_name_leads_at_once(
    start_operator: Callable[..., Operator],
) -> None:
    flags = ("--leader-elect", "--identity=operator-0_1")
    first = start_operator(*flags)
    eventually("it to lead", lambda: LEADS in first.text())
    first.kill()
    begun = time.monotonic()
    result = start_operator(*flags)
    eventually("it to lead again", lambda: LEADS in result.text())
    took = time.monotonic() - begun
    print(f"started anew to led, s: {took:.2f}")
    assert took < 10


def test_a_leader_that_ends_hands_over_within_two_seconds(fragmented: Cluster, pair: tuple[Operator, Operator]) -> None:
    first, second = pair
    first.process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    eventually("the second to lead", lambda: LEADS in second.text())
    took = time.monotonic() - begun
    print(f"SIGTERM to led, s: {took:.2f}")
    assert took < stretched(2)
    fragmented.create(pod("handed", 3, preferred=NODE_A))
    eventually("the pod to run again", lambda: fragmented.running("handed"))
    assert first.terminate() == 0
    assert "Traceback" not in first.text() + second.text()


OWN_PARAMETERS = ("leases", "brakes", "steerings")
"""A follower stands for election, and owns the policies' parameters as long as its pod is there. It writes no more."""


def test_while_both_run_the_follower_relaunches_nothing_and_each_step_of_a_relaunch_is_written_once(
    fragmented: Cluster, pair: tuple[Operator, Operator], proxy: Proxy
) -> None:
    first, second = pair
    fragmented.create(pod("train", 3, preferred=NODE_A))
    eventually("the pod to run again", lambda: fragmented.running("train"))
    eventually("the record to end", lambda: fragmented.records()[0]["status"]["step"] == "Launched")
    written = [request.path for request in proxy.written if request.path.split("/")[-1] not in OWN_PARAMETERS]
    assert [path for path in written if "/leases/" not in path] == []
    # The one patch of the record itself takes the finalizer off once the replacement is there.
    assert _writes(fragmented) == {("create", ""): 1, ("patch", "status"): len(MARKS), ("patch", ""): 1}
    assert LEADS not in second.text()
    assert "Traceback" not in first.text() + second.text()


def test_a_leader_that_is_paused_in_mid_relaunch_and_wakes_after_another_has_finished_it_changes_nothing(
    fragmented: Cluster, proxy: Proxy, start_operator: Callable[..., Operator]
) -> None:
    """Its requests are under way all the while, and arrive when everything is done: the worst that a pause can do."""
    first = start_operator("--leader-elect", kubeconfig=proxy.kubeconfig)
    eventually("the first to lead", lambda: LEADS in first.text() and _is_listed(first))
    second = start_operator("--leader-elect")
    eventually("the second to watch", lambda: _is_listed(second))
    held_at = {"late-create": CREATE, "late-launch": LAUNCH}
    reached, go_on = set[str](), Event()

    def hold(write: Write, moment: Moment) -> None:
        name = next((key for key in held_at if key in write.path or key in write.body.decode()), "")
        if moment is Moment.BEFORE and name and step_of(write) == held_at[name] and name not in reached:
            reached.add(name)
            go_on.wait(60)

    proxy.fault = hold
    for name in held_at:
        fragmented.create(pod(name, 3, node=NODE_A))
    eventually("both requests to be under way", lambda: reached == set(held_at))
    first.process.send_signal(signal.SIGSTOP)
    try:
        eventually("the second to lead", lambda: LEADS in second.text())
        moved = {name: eventually(f"{name} to run again", partial(fragmented.running, name)) for name in held_at}
        eventually("the records to end", lambda: _steps(fragmented) == ["Launched", "Launched"])
        records = fragmented.records()
        go_on.set()
    finally:
        first.process.send_signal(signal.SIGCONT)
    eventually("the first to see that it no longer leads", lambda: "no longer leads" in first.text())
    time.sleep(2)  # whatever it would do yet
    assert {name: fragmented.get(name)["metadata"]["uid"] for name in held_at} == {
        name: content["metadata"]["uid"] for name, content in moved.items()
    }
    assert fragmented.records() == records
    assert fragmented.sandbox.audit_log
    histories = audit_log.histories(fragmented.sandbox.audit_log)
    for name, content in moved.items():
        assert histories[("default", name)].bound == [content["metadata"]["uid"]]
    assert "Traceback" not in first.text() + second.text()


def _steps(cluster: Cluster) -> list[str]:
    return [record["status"]["step"] for record in cluster.records()]


def _is_listed(operator: Operator) -> bool:
    return "the cluster is listed" in operator.text()


def _writes(cluster: Cluster) -> dict[tuple[str, str], int]:
    """How often the one record was written, by verb and subresource, by the audit log; a rehearsal writes nothing."""
    assert cluster.sandbox.audit_log
    (record,) = cluster.records()
    name = record["metadata"]["name"]
    events = [event for event in audited(cluster.sandbox.audit_log) if event.get("objectRef", {}).get("name") == name]
    reads = ("get", "list", "watch")
    writes = [event for event in events if event["verb"] not in reads and "dryRun=All" not in event["requestURI"]]
    return dict(Counter((event["verb"], event["objectRef"].get("subresource", "")) for event in writes))
