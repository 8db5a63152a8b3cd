"""Two real operators, of which only the leader acts: while both run, when it is killed, and when it ends.

Slow: the other takes over only once the killed one's Lease has ended.
"""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests import audit_log
from tests.audit_log import audited
from tests.clusters import NODE_A, NODE_B, Cluster, pod
from tests.faults.proxy import Answer, Moment, Proxy, Request, Write
from tests.faults.steps import CREATE, LAUNCH, step_of
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.errors import AlreadyExists, NotFound
from topomend.kube.resources import LEASES, NAMESPACES
from topomend.runtime.leader_election import DURATION_SECONDS, RETRY_SECONDS

pytestmark = pytest.mark.cluster

NAMESPACE = "topomend-system"
LEASE = LEASES.path(NAMESPACE, "topomend-operator")
LEADS = "this operator leads"
MARKS = ("Committed", "Created", "Launched")


@pytest.fixture(autouse=True)
def no_lease(two_nodes: Cluster) -> None:
    """The operators' namespace, without a Lease of an earlier test."""
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    with suppress(NotFound):
        uid = two_nodes.client.get(LEASES, "topomend-operator", NAMESPACE)["metadata"]["uid"]
        two_nodes.client.delete(LEASES, "topomend-operator", NAMESPACE, uid=uid)


def lease(cluster: Cluster) -> Any:
    """The spec of the Lease."""
    return cluster.client.get(LEASES, "topomend-operator", NAMESPACE)["spec"]


def looks(proxy: Proxy) -> int:
    """How often the Lease was read through the proxy."""
    return sum((request.method, request.path) == ("GET", LEASE) for request in list(proxy.asked))


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
    eventually("the second to have seen the Lease", lambda: looks(proxy) >= 2)
    return first, second


def test_the_other_takes_over_from_a_killed_leader_at_its_first_look_after_the_end_of_the_lease(
    fragmented: Cluster, pair: tuple[Operator, Operator], proxy: Proxy
) -> None:
    first, second = pair
    first.kill()
    before, renewed = looks(proxy), datetime.fromisoformat(lease(fragmented)["renewTime"])
    refused = fragmented.create(pod("orphan", 3, preferred=NODE_A))
    eventually("the second to lead", lambda: LEADS in second.text(), 60)
    took = datetime.fromisoformat(lease(fragmented)["acquireTime"]) - renewed
    looked = looks(proxy) - before
    moved = eventually("the pod to run again", lambda: fragmented.running("orphan"))
    print(f"renewed last to led, s: {took.total_seconds():.1f}")
    assert took.total_seconds() >= DURATION_SECONDS
    # It rests between two looks. One more has found the last renewal, and one may have been under way.
    assert looked <= DURATION_SECONDS / RETRY_SECONDS + 2
    assert moved["metadata"]["uid"] != refused["metadata"]["uid"]
    assert moved["spec"]["nodeName"] == NODE_B
    assert "Traceback" not in first.text() + second.text()


def test_a_killed_leader_that_starts_again_under_its_name_leads_at_once(
    start_operator: Callable[..., Operator], proxy: Proxy
) -> None:
    flags = ("--leader-elect", "--identity=operator-0_1")
    first = start_operator(*flags)
    eventually("it to lead", lambda: LEADS in first.text())
    first.kill()
    result = start_operator(*flags, kubeconfig=proxy.kubeconfig)
    eventually("it to lead again", lambda: LEADS in result.text())
    assert [request.method for request in proxy.asked if request.path == LEASE][:2] == ["GET", "PATCH"]


def test_a_leader_that_ends_hands_over_at_the_next_look_of_the_other(
    fragmented: Cluster, pair: tuple[Operator, Operator], proxy: Proxy
) -> None:
    first, second = pair
    go_on = Event()

    def hold(request: Request) -> Answer | None:
        if (request.method, request.path) == ("GET", LEASE):
            go_on.wait()
        return None

    proxy.rules.append(hold)
    try:
        assert first.terminate() == 0
        assert lease(fragmented)["holderIdentity"] == ""
        before = looks(proxy)
    finally:
        go_on.set()
    eventually("the second to lead", lambda: LEADS in second.text())
    assert looks(proxy) - before <= 1, "the one that was held, or the next one"
    fragmented.create(pod("handed", 3, preferred=NODE_A))
    eventually("the pod to run again", lambda: fragmented.running("handed"))
    assert "Traceback" not in first.text() + second.text()


OWN_PARAMETERS = ("leases", "brakes", "steerings")
"""A follower stands for election, and owns the policies' parameters as long as its pod is there. It writes no more."""


def test_while_both_run_the_follower_relaunches_nothing_and_each_step_of_a_relaunch_is_written_once(
    fragmented: Cluster, pair: tuple[Operator, Operator], proxy: Proxy
) -> None:
    first, second = pair
    fragmented.create(pod("train", 3, preferred=NODE_A))
    eventually("the pod to run again", lambda: fragmented.running("train"))
    eventually("the record to end", lambda: _have_ended(fragmented, 1))
    written = [request.path for request in proxy.written if request.path.split("/")[-1] not in OWN_PARAMETERS]
    assert [path for path in written if "/leases/" not in path] == []
    # The one patch of the record itself takes the finalizer off once the replacement is there. The log is written last.
    eventually("the patch to be logged", lambda: ("patch", "") in _writes(fragmented))
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
    reached, arrived, go_on = dict[str, Write](), list[Write](), Event()

    def hold(write: Write, moment: Moment) -> None:
        if moment is not Moment.BEFORE:
            arrived.append(write)
            return
        name = next((key for key in held_at if key in write.path or key in write.body.decode()), "")
        if name and step_of(write) == held_at[name] and name not in reached:
            reached[name] = write
            go_on.wait()

    proxy.fault = hold
    for name in held_at:
        fragmented.create(pod(name, 3, node=NODE_A))
    eventually("both requests to be under way", lambda: reached.keys() == held_at.keys())
    first.process.send_signal(signal.SIGSTOP)
    try:
        eventually("the second to lead", lambda: LEADS in second.text(), 60)
        moved = {name: eventually(f"{name} to run again", partial(fragmented.running, name)) for name in held_at}
        eventually("the records to end", lambda: _have_ended(fragmented, 2))
        records = fragmented.records()
    finally:
        go_on.set()
        first.process.send_signal(signal.SIGCONT)
    eventually("the first to see that it no longer leads", lambda: "no longer leads" in first.text())
    eventually("both requests to arrive", lambda: all(write in arrived for write in reached.values()))
    assert first.terminate() == 0  # its workers end what they are about
    assert fragmented.records() == records
    assert {name: fragmented.get(name)["metadata"]["uid"] for name in held_at} == {
        name: content["metadata"]["uid"] for name, content in moved.items()
    }
    assert fragmented.sandbox.audit_log
    histories = audit_log.histories(fragmented.sandbox.audit_log)
    for name, content in moved.items():
        assert histories[("default", name)].bound == [content["metadata"]["uid"]]
    assert "Traceback" not in first.text() + second.text()


def _have_ended(cluster: Cluster, count: int) -> bool:
    """Whether so many records have ended, and the last write of each was done: it gives the record back."""
    records = cluster.records()
    return len(records) == count and all(
        record["status"]["step"] == "Launched" and not record["metadata"].get("finalizers") for record in records
    )


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
