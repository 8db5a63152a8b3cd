"""The real operator reports and survives hostile and broken input; no pod is lost and no user gains rights.

Pods are bound to a node without a kubelet and refused by hand: only the operator's input matters.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.audit_log import histories
from tests.clusters import NODE_A, NODE_B, Cluster, events_of, pod
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.resources import NODES, PODS, RELAUNCHES
from topomend.wire.group import RELAUNCH_PINNED_ANNOTATION
from topomend.wire.pods.scheduling import MAX_CONTAINERS
from topomend.wire.relaunch_record import record_name

pytestmark = pytest.mark.cluster

GHOST = "ghost"

MOST_LINES = 5
"""How much else is logged while a pod is relaunched, which takes about a second; of what is tried without a pause it
would be hundreds."""


@pytest.fixture
def operator(start_operator: Callable[..., Operator]) -> Operator:
    """An operator that has seen the cluster."""
    started = start_operator()
    started.wait_until_it_watches()
    return started


@pytest.fixture(autouse=True)
def ghost(two_nodes: Cluster) -> Iterator[None]:
    """A node without a kubelet: pods of none are deleted at any time (podgc/gc_controller.go:gcOrphaned)."""
    made = two_nodes.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": GHOST}})
    yield
    two_nodes.remove_all()
    two_nodes.client.delete(NODES, GHOST, uid=made["metadata"]["uid"])


def _refused(cluster: Cluster, content: dict[str, Any], node: str = GHOST) -> dict[str, Any]:
    """The pod, refused by a node without a kubelet."""
    content["spec"] |= {"nodeName": node, "nodeSelector": {"kubernetes.io/hostname": NODE_B}}
    content["metadata"].setdefault("annotations", {})[RELAUNCH_PINNED_ANNOTATION] = "true"
    made = cluster.create(content)
    message = "Pod was rejected: Resources cannot be allocated with Topology locality"
    status = {"phase": "Failed", "reason": "TopologyAffinityError", "message": message}
    cluster.client.merge(PODS, made["metadata"]["name"], {"status": status}, "default", subresource="status")
    return made


def _goes_on(cluster: Cluster, operator: Operator) -> None:
    """Pods like any other are relaunched, by an operator that neither crashed nor is busy with what it cannot do.

    Of that its log would tell over and over while it relaunches the second of them.
    """
    _is_relaunched(cluster, "train-1")
    before = len(operator.text().splitlines())
    _is_relaunched(cluster, "train-2")
    others = [line for line in operator.text().splitlines()[before:] if "train-" not in line]
    assert len(others) < MOST_LINES, operator.text()
    _is_well(operator)


def _is_relaunched(cluster: Cluster, name: str) -> None:
    """A pod that a real kubelet refuses runs on the other node. Its place is free again afterwards."""
    made = cluster.create(pod(name, 3, preferred=NODE_A))
    eventually(f"{name} to be ungated again", lambda: _anew(cluster, made))
    running = eventually(f"{name} to run", lambda: cluster.running(name))
    assert running["spec"]["nodeName"] == NODE_B
    cluster.remove(running)


def _is_well(operator: Operator) -> None:
    assert operator.process.poll() is None
    assert "Traceback" not in operator.text()
    assert "unexpected" not in operator.text()


def _anew(cluster: Cluster, made: dict[str, Any]) -> dict[str, Any] | None:
    current = cluster.get(made["metadata"]["name"])
    is_new = current["metadata"]["uid"] != made["metadata"]["uid"]
    return current if is_new and not current["spec"].get("schedulingGates") else None


def test_a_pod_of_as_many_containers_as_the_operator_reads_is_kept_whole(
    fragmented: Cluster, operator: Operator
) -> None:
    _refused(fragmented, _huge(MAX_CONTAINERS))
    print(eventually("the operator's word", lambda: _notes(fragmented, fragmented.get("huge")), 60))
    assert len(fragmented.get("huge")["spec"]["containers"]) == MAX_CONTAINERS
    _goes_on(fragmented, operator)


def test_a_pod_of_more_containers_is_left_alone(fragmented: Cluster, operator: Operator) -> None:
    made = _refused(fragmented, _huge(MAX_CONTAINERS + 1))
    eventually("the operator's word", lambda: "pods huge is malformed and ignored" in operator.text())
    assert fragmented.get("huge")["metadata"]["uid"] == made["metadata"]["uid"]
    _goes_on(fragmented, operator)


def _huge(containers: int) -> dict[str, Any]:
    content = pod("huge", 1)
    (first,) = content["spec"]["containers"]
    content["spec"]["containers"] = [{**first, "name": f"c{number}"} for number in range(containers)]
    return content


def _notes(cluster: Cluster, made: dict[str, Any]) -> list[str]:
    reasons = (
        "RelaunchSkipped",
        "RelaunchDeferred",
        "NoNodeCanEverAdmit",
        "RelaunchLimitReached",
        "RelaunchValueWrong",
    )
    return [event["note"] for reason in reasons for event in events_of(cluster, made, reason)]


def test_huge_annotations_are_kept(fragmented: Cluster, operator: Operator) -> None:
    note = "é" * 100_000
    made = _refused(fragmented, pod("noted", 1, annotations={"example.com/note": note}))
    moved = eventually("it to be relaunched", lambda: _anew(fragmented, made))
    assert moved["metadata"]["annotations"]["example.com/note"] == note
    _goes_on(fragmented, operator)


@pytest.mark.parametrize(
    ("annotations", "is_relaunched"),
    [
        ({"topomend.io/max-attempts": "-1"}, True),
        ({"topomend.io/max-attempts": "1e9"}, True),
        ({"topomend.io/max-attempts": "٣"}, True),
        ({"topomend.io/attempt": "9" * 400}, True),
        ({"topomend.io/attempt": "9999"}, False),
        (
            {
                "topomend.io/record": "train-0123456789",
                "topomend.io/replaces": "../../secrets",
                "topomend.io/attempt": "1",
            },
            True,
        ),
        ({"topomend.io/name-policy": "Prefix"}, True),
        ({"topomend.io/relaunch": "maybe"}, False),
    ],
    ids=["negative", "float", "other digits", "absurd", "many", "made up", "unknown policy", "unknown word"],
)
def test_annotations_that_look_like_ours_mislead_nobody(
    annotations: dict[str, str], is_relaunched: bool, fragmented: Cluster, operator: Operator
) -> None:
    made = _refused(fragmented, pod("odd", 1, annotations=annotations))
    if is_relaunched:
        moved = eventually("it to be relaunched", lambda: _anew(fragmented, made))
        assert moved["metadata"]["annotations"]["topomend.io/replaces"] == made["metadata"]["uid"]
    else:
        assert eventually("the operator's word", lambda: _notes(fragmented, made))
        assert fragmented.get("odd")["metadata"]["uid"] == made["metadata"]["uid"]
    assert "Traceback" not in operator.text()


@pytest.mark.parametrize(
    ("edit", "is_relaunched"),
    [
        ({"step": "Launched"}, False),
        ({"step": "Committed"}, True),
        ({"step": "Created", "newPod": {"name": "other", "uid": "1"}}, True),
        ({"conditions": [], "step": "Cancelled"}, False),
    ],
    ids=["Launched", "Committed", "Created", "Cancelled"],
)
def test_a_record_that_somebody_edits_loses_no_pod_and_doubles_none(
    edit: dict[str, Any], is_relaunched: bool, fragmented: Cluster, operator: Operator
) -> None:
    fragmented.occupy(NODE_B, "filler-2", 2)
    fragmented.occupy(NODE_B, "filler-3", 2)
    name = f"edited-{edit['step'].lower()}"
    made = fragmented.create(pod(name, 3, node=NODE_A))  # a node that exists: the pod may wait there
    record = eventually("its record", fragmented.records)[0]
    _edit(fragmented, record, edit)
    _sees_records(fragmented)  # and no node admits the pod yet
    fragmented.vacate(NODE_B, "filler-2")
    if is_relaunched:
        eventually("it to be ungated again", lambda: _anew(fragmented, made))
        assert eventually("it to run", lambda: fragmented.running(name))["spec"]["nodeName"] == NODE_B
    else:
        eventually("the operator to have looked", lambda: events_of(fragmented, record, "TopologyRefusalExplained"))
        _is_relaunched(fragmented, "train")  # a younger pod finds the place
        assert fragmented.get(name)["metadata"]["uid"] == made["metadata"]["uid"]
    _check_history(fragmented, name, is_relaunched=is_relaunched)
    _is_well(operator)


@pytest.mark.parametrize(
    "edit",
    [
        {"step": "Launched"},
        {"step": "Committed", "manifest": {"spec": {"hostNetwork": True}}},
        {"conditions": [], "step": "Cancelled"},
    ],
    ids=["Launched", "Committed", "Cancelled"],
)
def test_a_record_that_somebody_edits_while_its_replacement_waits_loses_no_pod_and_doubles_none(
    edit: dict[str, Any], fragmented: Cluster, operator: Operator
) -> None:
    fragmented.occupy(NODE_B, "filler-2", 2)
    fragmented.occupy(NODE_B, "filler-3", 2)
    name = f"gated-{edit['step'].lower()}"
    # The node is gone, so that it is replaced at once. Kubernetes leaves the pods of a node alone that went 40 s ago.
    _refused(fragmented, pod(name, 3), node=f"gone-{name}")
    record = eventually("its replacement", lambda: _record_at(fragmented, "Created"))
    _edit(fragmented, record, edit)
    _sees_records(fragmented)
    fragmented.vacate(NODE_B, "filler-2")
    assert eventually("it to run", lambda: fragmented.running(name))["spec"]["nodeName"] == NODE_B
    _check_history(fragmented, name, is_relaunched=True)
    _is_well(operator)


def _sees_records(cluster: Cluster) -> None:
    """Wait until the operator has seen every change of records so far.

    It ends the record of a pod that is gone once it has seen that record, which its watch brings after all of them.
    """
    made = cluster.create(pod("seen", 3, node=NODE_A))
    name = record_name("seen", made["metadata"]["uid"])
    eventually("its record", lambda: cluster.client.get(RELAUNCHES, name, "default"))
    cluster.remove(made)
    eventually("its end", lambda: _step(cluster.client.get(RELAUNCHES, name, "default")) == "Cancelled")


def _step(record: dict[str, Any]) -> str:
    return str(record.get("status", {}).get("step", ""))


def _edit(cluster: Cluster, record: dict[str, Any], status: dict[str, Any]) -> None:
    cluster.client.merge(RELAUNCHES, record["metadata"]["name"], {"status": status}, "default", subresource="status")


def _record_at(cluster: Cluster, step: str) -> dict[str, Any] | None:
    return next((record for record in cluster.records() if _step(record) == step), None)


def _check_history(cluster: Cluster, name: str, *, is_relaunched: bool) -> None:
    assert cluster.sandbox.audit_log
    history = histories(cluster.sandbox.audit_log)["default", name]
    assert (len(history.created), len(history.bound)) == (1 + is_relaunched, int(is_relaunched))


def test_a_pod_whose_record_name_is_taken_is_reported_and_relaunched_once_the_name_is_free(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """The operator comes late, or nobody could know the name."""
    made = _refused(fragmented, pod("train", 3))
    name = record_name("train", made["metadata"]["uid"])
    spec = {
        "pod": {"name": "other", "uid": "another"},
        "refusedBy": GHOST,
        "reason": "x",
        "attempt": 1,
        "manifestHash": "0f" * 32,
    }
    taken = {"apiVersion": RELAUNCHES.api_version, "kind": "Relaunch", "metadata": {"name": name}, "spec": spec}
    other = fragmented.client.create(RELAUNCHES, taken, "default")
    operator = start_operator()
    note = eventually("the operator's word", lambda: events_of(fragmented, made, "RelaunchDeferred"))[0]["note"]
    assert f"record {name} is another pod's" in note
    current = fragmented.get("train")
    assert current["metadata"]["uid"] == made["metadata"]["uid"]
    assert "finalizers" not in current["metadata"]
    assert fragmented.client.get(RELAUNCHES, name, "default")["metadata"]["uid"] == other["metadata"]["uid"]
    operator.terminate()
    fragmented.client.delete(RELAUNCHES, name, "default", uid=other["metadata"]["uid"])
    operator = start_operator()
    eventually("it to be ungated again", lambda: _anew(fragmented, made))
    _is_well(operator)


@pytest.mark.usefixtures("brake")
def test_a_controller_reference_with_an_impossible_uid_is_reported_and_delays_no_other_pod(
    fragmented: Cluster, operator: Operator
) -> None:
    # The garbage collector deletes what an object owns that does not exist, but not in a version that is not served.
    reference = {"apiVersion": "apps/v9", "kind": "ReplicaSet", "name": "x", "uid": "a/b c" * 60, "controller": True}
    _refused(fragmented, pod("owned", 1, ownerReferences=[reference]))
    _goes_on(fragmented, operator)
