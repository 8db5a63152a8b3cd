"""The operator as a process with real kubelets: a refused pod runs elsewhere seconds later."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.clusters import COLLECTOR_SECONDS, CRDS, DEPLOYMENTS, NODE_A, NODE_B, Cluster, events_of, pod
from tests.controller import api_server_outage
from tests.operator_process import Operator
from tests.volumes import local_volume, with_claim
from tests.waiting import awake, eventually, stretched

from topomend.kube.errors import NotFound
from topomend.kube.resources import NODE_TOPOLOGIES, PODS

pytestmark = pytest.mark.cluster

LACKS_CPU = "no other node admits it now: 1 of 1 node does not fit its cpu on NUMA nodes"


@pytest.fixture
def operator(start_operator: Callable[..., Operator]) -> Operator:
    """An operator that has seen the cluster."""
    started = start_operator()
    started.wait_until_it_watches()
    return started


def test_a_refused_bare_pod_runs_within_five_seconds_on_the_node_replay_named(
    fragmented: Cluster, operator: Operator
) -> None:
    begin = awake()
    made = fragmented.create(pod("train", 3, preferred=NODE_A, labels={"app": "t"}, annotations={"note": "kept"}))
    moved = eventually("train to run again", lambda: _running_anew(fragmented, made))
    took = awake() - begin
    assert moved["spec"]["nodeName"] == NODE_B
    assert moved["metadata"]["labels"] == {"app": "t"}
    assert moved["metadata"]["annotations"]["note"] == "kept"
    assert _without_placement(moved) == _without_placement(made)
    record = eventually("the record to end", lambda: _ended(fragmented))
    assert record["spec"]["refusedBy"] == NODE_A
    assert record["status"]["candidates"] == [NODE_B]
    assert record["status"]["newPod"]["uid"] == moved["metadata"]["uid"]
    assert took < stretched(5), f"{took:.1f} s\n{operator.text()}"


def test_the_refusal_is_explained_with_numbers_and_with_the_node_that_would_do(
    fragmented: Cluster, operator: Operator
) -> None:
    made = fragmented.create(pod("train", 3, preferred=NODE_A))
    eventually("train to run again", lambda: _running_anew(fragmented, made))
    events = eventually("the explanation", lambda: events_of(fragmented, made, "TopologyRefusalExplained"))
    assert events[0]["note"] == (
        "numa-a refuses container main: cpu requests 3 and fits no NUMA node: free 1 on NUMA 0, 2 on NUMA 1, lacks 1 "
        "(single-numa-node); would be admitted with 2 CPUs or once default/filler-0 ends; numa-b NUMA 0 would admit it"
    )
    moved = fragmented.get("train")
    relaunched = eventually("the replacement's event", lambda: events_of(fragmented, moved, "Relaunched"))
    assert relaunched[0]["note"] == (
        "replaces default/train refused by numa-a; numa-b NUMA 0 admits it by replay (attempt 1 of 5)"
    )
    assert "Traceback" not in operator.text()


def test_a_pod_that_no_node_admits_waits_for_one_that_does(fragmented: Cluster, operator: Operator) -> None:
    fragmented.occupy(NODE_B, "filler-2", 2)
    fragmented.occupy(NODE_B, "filler-3", 2)
    made = fragmented.create(pod("train", 3, preferred=NODE_A))
    deferred = eventually("the delay to be reported", lambda: events_of(fragmented, made, "RelaunchDeferred"))
    assert deferred[0]["note"].startswith(
        f"{LACKS_CPU}; closest: {NODE_B} lacks 1 of 3 cpu (free 1 on NUMA 0, 2 on NUMA 1)"
    )
    assert deferred[0]["note"].endswith("; retried when a node changes")
    assert fragmented.phase("train") == "Failed"
    conditions = eventually("the record to say so", lambda: _conditions(fragmented))
    assert (conditions["Succeeded"]["status"], conditions["Succeeded"]["reason"]) == ("Unknown", "NoNodeAdmitsNow")
    assert conditions["Succeeded"]["message"] == LACKS_CPU
    assert conditions["NoNodeCanEverAdmit"]["status"] == "False"
    fragmented.vacate(NODE_B, "filler-3")
    moved = eventually("train to run again", lambda: _running_anew(fragmented, made))
    assert moved["spec"]["nodeName"] == NODE_B
    assert "Traceback" not in operator.text()


def test_a_place_that_a_pods_end_frees_is_taken_before_any_agent_has_looked(
    fragmented: Cluster, operator: Operator
) -> None:
    """No agent runs here: what is published goes on saying that the pod holds its CPUs."""
    fragmented.occupy(NODE_B, "filler-2", 2)
    fragmented.occupy(NODE_B, "filler-3", 2)
    made = fragmented.create(pod("train", 3, preferred=NODE_A))
    eventually("the delay to be reported", lambda: events_of(fragmented, made, "RelaunchDeferred"))
    filler = fragmented.get("filler-3")["metadata"]
    fragmented.client.delete(PODS, "filler-3", "default", uid=filler["uid"])
    moved = eventually("train to run again", lambda: _running_anew(fragmented, made))
    assert moved["spec"]["nodeName"] == NODE_B
    assert "Traceback" not in operator.text()


def test_a_pod_with_a_volume_waits_for_the_node_that_has_it(fragmented: Cluster, operator: Operator) -> None:
    """The other node admits it, and no scheduler would ever bind it there."""
    with local_volume(fragmented, "disk", NODE_A):
        made = fragmented.create(with_claim(pod("train", 3), "disk"))
        deferred = eventually("the delay to be reported", lambda: events_of(fragmented, made, "RelaunchDeferred"))
        assert deferred[0]["note"].startswith(
            "no other node admits it now: 1 of 1 node does not suit it (VolumeNodeAffinity)"
        )
        assert fragmented.phase("train") == "Failed"
        fragmented.vacate(NODE_A, "filler-0")
        moved = eventually("train to run again", lambda: _running_anew(fragmented, made))
        assert moved["spec"]["nodeName"] == NODE_A
        assert not events_of(fragmented, moved, "NotScheduled")
        fragmented.remove(moved)
    assert "Traceback" not in operator.text()


def test_an_infeasible_pod_is_reported_at_once_with_what_it_lacks(two_nodes: Cluster, operator: Operator) -> None:
    for state in list(two_nodes.states.values()):
        two_nodes.publish(state)
    made = two_nodes.create(pod("vast", 5))
    events = eventually("the event", lambda: events_of(two_nodes, made, "NoNodeCanEverAdmit"))
    refused_by = two_nodes.get("vast")["spec"]["nodeName"]
    assert events[0]["note"] == (
        f"no node admits vast even when empty; closest: {refused_by}, which refused it; would be admitted with 4 CPUs; "
        "retried when a node or the pod changes"
    )
    assert not events_of(two_nodes, made, "RelaunchDeferred")
    conditions = eventually("the record to say so", lambda: _conditions(two_nodes))
    assert conditions["NoNodeCanEverAdmit"]["status"] == "True"
    assert conditions["NoNodeCanEverAdmit"]["message"] == (
        "no node admits vast even when empty; closest: numa-a refuses container main: cpu requests 5 and fits no NUMA "
        "node: free 3 on NUMA 0, 4 on NUMA 1, lacks 1; even empty no NUMA node has more than 4 (single-numa-node); "
        "would be admitted with 4 CPUs"
    )
    assert conditions["Succeeded"]["status"] == "Unknown"
    assert two_nodes.phase("vast") == "Failed"
    assert "finalizers" not in two_nodes.get("vast")["metadata"]
    assert "Traceback" not in operator.text()
    two_nodes.clear()


def test_a_node_whose_totals_are_used_up_is_not_named(fragmented: Cluster, operator: Operator) -> None:
    shared = pod("shared", 1, node=NODE_B)
    shared["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4500m"}}
    fragmented.create(shared)
    made = fragmented.create(pod("train", 3, preferred=NODE_A))
    deferred = eventually("the delay to be reported", lambda: events_of(fragmented, made, "RelaunchDeferred"))
    assert deferred[0]["note"].startswith(
        "no other node admits it now: 1 of 1 node does not have enough cpu left in total"
    )
    assert fragmented.phase("train") == "Failed"
    assert "Traceback" not in operator.text()


def test_a_pod_that_opted_out_is_explained_and_left_alone(fragmented: Cluster, operator: Operator) -> None:
    made = fragmented.create(pod("train", 3, preferred=NODE_A, annotations={"topomend.io/relaunch": "false"}))
    skipped = eventually("the event", lambda: events_of(fragmented, made, "RelaunchSkipped"))
    assert skipped[0]["note"] == 'topomend.io/relaunch is "false"'
    eventually("the explanation", lambda: events_of(fragmented, made, "TopologyRefusalExplained"))
    assert fragmented.get("train")["metadata"]["uid"] == made["metadata"]["uid"]
    assert not fragmented.records()
    assert "Traceback" not in operator.text()


def test_refused_replicas_are_cleared_away_and_nothing_is_created_for_them(
    fragmented: Cluster, operator: Operator
) -> None:
    replica = pod("", 3, preferred=NODE_A)
    replica["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_A}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": replica["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    content = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    made = fragmented.client.create(DEPLOYMENTS, content, "default")
    try:
        cleared = eventually("a replica to be cleared", lambda: operator.text().count("the failed pod was deleted") > 0)
        assert cleared
        assert "why" not in operator.text()
    finally:
        fragmented.client.delete(DEPLOYMENTS, "web", "default", uid=made["metadata"]["uid"])
    eventually("no replica to be left", lambda: not any(map(_is_replica, fragmented.pods())), COLLECTOR_SECONDS)
    assert not fragmented.records()
    assert "Traceback" not in operator.text()


def test_a_malformed_state_is_reported_once_and_its_node_ignored(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    machine = fragmented.client.get(NODE_TOPOLOGIES, NODE_B)["status"]["machine"]
    broken = {"machine": machine | {"cores": ["0", "0", "1-7"]}}
    fragmented.client.merge(NODE_TOPOLOGIES, NODE_B, {"status": broken}, subresource="status")
    operator = start_operator()
    made = fragmented.create(pod("train", 3, preferred=NODE_A))
    warning = "nodetopologies numa-b is malformed and ignored: status.machine.cores[1]: '0' where a list of CPUs"
    eventually("the warning", lambda: warning in operator.text())
    deferred = eventually("the delay to be reported", lambda: events_of(fragmented, made, "RelaunchDeferred"))
    assert deferred[0]["note"].startswith("no other node admits it now: 1 of 1 node does not publish a usable state")
    fragmented.publish(fragmented.states[NODE_B])
    eventually("train to run again", lambda: _running_anew(fragmented, made))
    assert operator.text().count(warning) == 1
    assert "Traceback" not in operator.text()


def test_a_pod_with_absurd_quantities_is_refused_in_clear_words(fragmented: Cluster, operator: Operator) -> None:
    absurd = pod("absurd", 3, node=NODE_A)
    absurd["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "9E", "memory": "8Ei"}}
    made = fragmented.create(absurd)
    events = eventually("the event", lambda: events_of(fragmented, made, "NoNodeCanEverAdmit"))
    assert events[0]["note"].startswith("no node admits absurd even when empty; closest: numa-a has 7 cpu in total")
    ordinary = fragmented.create(pod("train", 3, preferred=NODE_A))
    eventually("train to run again", lambda: _running_anew(fragmented, ordinary))
    assert "Traceback" not in operator.text()


def test_an_operator_that_starts_before_the_kinds_are_installed_says_so_and_works_once_they_are(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    kind = fragmented.client.get(CRDS, "relaunches.topomend.io")
    fragmented.client.delete(CRDS, "relaunches.topomend.io", uid=kind["metadata"]["uid"])
    eventually("the kind to be gone", lambda: _serves_no_records(fragmented))
    operator = start_operator()
    warning = "install the kinds: kubectl apply --server-side -f crds/"
    try:
        eventually("the warning", lambda: warning in operator.text())
    finally:
        fragmented.install_kind("relaunches")
    operator.wait_until_it_watches()
    made = fragmented.create(pod("train", 3, preferred=NODE_A))
    eventually("train to run again", lambda: _running_anew(fragmented, made))
    assert "Traceback" not in operator.text()


@pytest.mark.usefixtures("two_nodes")
def test_the_operator_ends_in_time_however_soon_it_is_stopped(start_operator: Callable[..., Operator]) -> None:
    for soon in (0.0, 0.02, 0.05, 0.1, 0.2):
        operator = start_operator("--leader-elect")
        eventually("the operator to run", lambda operator=operator: "the operator runs" in operator.text())  # type: ignore[misc]
        time.sleep(soon)
        assert operator.terminate() == 0
        assert "the operator stops" in operator.text(), soon


def test_the_operator_ends_in_time_when_it_is_stopped(operator: Operator) -> None:
    begin = awake()
    assert operator.terminate() == 0
    assert awake() - begin < stretched(8)
    assert operator.text().rstrip().endswith("the operator stops")


@pytest.mark.night
def test_an_api_server_away_for_thirty_seconds_loses_no_pod() -> None:
    """On a cluster of its own: the others' tests go on meanwhile."""
    api_server_outage.main()


def _serves_no_records(cluster: Cluster) -> bool:
    try:
        cluster.records()
    except NotFound:
        return True
    return False


def _running_anew(cluster: Cluster, old: dict[str, Any]) -> dict[str, Any] | None:
    current = cluster.running(old["metadata"]["name"])
    return current if current and current["metadata"]["uid"] != old["metadata"]["uid"] else None


def _ended(cluster: Cluster) -> dict[str, Any] | None:
    return next((record for record in cluster.records() if record["status"].get("step") == "Launched"), None)


def _conditions(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The conditions of the record, by their types; empty while there is none."""
    records = cluster.records()
    assert len(records) <= 1
    return {
        condition["type"]: condition
        for record in records
        for condition in record.get("status", {}).get("conditions", ())
    }


def _is_replica(content: dict[str, Any]) -> bool:
    return bool(content["metadata"].get("labels", {}).get("app") == "web")


def _without_placement(content: dict[str, Any]) -> dict[str, Any]:
    """A pod's spec less what places it and what the API server mounts under a name of its own."""
    spec = {key: value for key, value in content["spec"].items() if key not in ("nodeName", "affinity", "volumes")}
    containers = [
        {key: container[key] for key in container if key != "volumeMounts"} for container in spec["containers"]
    ]
    return spec | {"containers": containers}
