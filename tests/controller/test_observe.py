"""An operator that observes writes Events and nothing else, by the log of a real API server.

It also ends what one of mode relaunch has left: no pod waits for it for ever.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import DEPLOY
from tests.audit_log import audited
from tests.clusters import COLLECTOR_SECONDS, NODE_A, NODE_B, SYSTEM, Cluster, events_of, pod, priority_class
from tests.deploy.api import administrator, path_of
from tests.deploy.conftest import token_of
from tests.operator_account import operator_account
from tests.operator_process import Operator
from tests.refused_pods import TOO_MANY
from tests.waiting import eventually

from topomend.kube.errors import AlreadyExists, NotFound
from topomend.kube.resources import (
    BRAKES,
    EVENTS,
    LEASES,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    STEERINGS,
    Resource,
)
from topomend.runtime import leader_election
from topomend.runtime.event_recorder import CONTROLLER
from topomend.runtime.manifests import documents
from topomend.wire.group import BRAKE_NAME, FIT_GATE, RELAUNCH_ANNOTATION, STARTUP_TAINTS, STEER_LABEL, STEERING_NAME

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

STEERED = "observed"
OBSERVER = "observer"
REPLICA_SETS = Resource("apps/v1", "replicasets")
READS = ("get", "list", "watch")

STORM = 110
"""Refused pods of one controller: as many as a node has by default."""

OF_EVERY_FEATURE = [
    item
    for name in ("role.yaml", "policy.yaml")
    for item in documents((DEPLOY / "components" / "startup-taint" / name).read_text())
]
"""The rights that the base has not: an observer that had all of them would write nothing either."""


@pytest.fixture
def cluster(fragmented: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Two published nodes, of which one has a startup taint, and a steered namespace."""
    metadata = {"name": STEERED, "labels": {STEER_LABEL: "enabled"}}
    with suppress(AlreadyExists):
        fragmented.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    with operator_account(fragmented, tmp_path, OF_EVERY_FEATURE):
        _end_former_operators(fragmented)
        yield fragmented
    fragmented.client.merge(NODES, NODE_B, {"spec": {"taints": None}})
    fragmented.remove_all()
    with suppress(NotFound):
        lease = fragmented.client.get(LEASES, leader_election.NAME, SYSTEM)
        fragmented.client.delete(LEASES, leader_election.NAME, SYSTEM, uid=lease["metadata"]["uid"])


def _end_former_operators(cluster: Cluster) -> None:
    """Remove what operators of other tests left in force: it is an observer's to end, as the last test here shows."""
    for kind in (BRAKES, STEERINGS):
        for left in cluster.client.list(kind).items:
            with suppress(NotFound):
                cluster.client.delete(kind, left["metadata"]["name"], SYSTEM, uid=left["metadata"]["uid"])


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Path:
    """The kubeconfig of the operator's account, with every right that it ever has."""
    assert cluster.client.list(NODES).items
    return tmp_path / "operator.kubeconfig"


@pytest.fixture
def observer(cluster: Cluster, account: Path, tmp_path: Path) -> Path:
    """The kubeconfig of an account with the rights of the component ``observe`` alone."""
    admin, head = administrator(cluster.sandbox.kubeconfig), {"apiVersion": "rbac.authorization.k8s.io/v1"}
    subject = {"kind": "ServiceAccount", "name": OBSERVER, "namespace": SYSTEM}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OBSERVER}
    named = {"metadata": {"name": OBSERVER}}
    for item in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": OBSERVER, "namespace": SYSTEM}},
        {**head, "kind": "ClusterRole", **named, "rules": rules_of_the_component()},
        {**head, "kind": "ClusterRoleBinding", **named, "roleRef": reference, "subjects": [subject]},
    ):
        assert admin.apply(path_of(item), item).allowed
    configuration = yaml.safe_load(account.read_text())
    configuration["users"][0]["user"] = {"token": token_of(admin, SYSTEM, OBSERVER)}
    path = tmp_path / "observer.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    return path


def rules_of_the_component() -> list[dict[str, Any]]:
    component = yaml.safe_load((DEPLOY / "components" / "observe" / "kustomization.yaml").read_text())
    (patch,) = (each["patch"] for each in component["patches"] if each.get("target", {}).get("kind") == "ClusterRole")
    rules: list[dict[str, Any]] = yaml.safe_load(patch)[0]["value"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {*READS, "create"}
    assert [rule["resources"] for rule in rules if "create" in rule["verbs"]] == [["events"]]
    return rules


def writes(cluster: Cluster, account: str) -> list[str]:
    """What this account has asked the API server to change, whatever the answer was."""
    assert cluster.sandbox.audit_log
    user = f"system:serviceaccount:{SYSTEM}:{account}"
    events = (event for event in audited(cluster.sandbox.audit_log) if event["user"]["username"] == user)
    return [f"{event['verb']} {event['requestURI']}" for event in events if event["verb"] not in READS]


def is_event(write: str) -> bool:
    return write.startswith("create /apis/events.k8s.io/v1/namespaces/") and write.endswith("/events")


def urgent_and_refused(cluster: Cluster, name: str, **metadata: Any) -> dict[str, Any]:
    """A pod of high priority that numa-a refuses, and that numa-b would admit if it were empty."""
    content = pod(name, 3, node=NODE_A, **metadata)
    content["spec"]["priorityClassName"] = "urgent-when-observed"
    made = cluster.create(content)
    eventually(f"{name} to be refused", lambda: cluster.phase(name) == "Failed")
    return made


@pytest.mark.parametrize("rights", ["all of mode relaunch", "those of the component"])
def test_whatever_there_is_to_do_only_events_are_written(
    cluster: Cluster, account: Path, observer: Path, start_operator: Callable[..., Operator], rights: str
) -> None:
    cluster.client.merge(NODES, NODE_B, {"spec": {"taints": [{"key": STARTUP_TAINTS[0], "effect": "NoExecute"}]}})
    user, kubeconfig = ("topomend-operator", account) if rights.startswith("all") else (OBSERVER, observer)
    before = len(writes(cluster, user))
    operator = start_operator("--mode=observe", "--leader-elect", "--placeholders", kubeconfig=kubeconfig)
    operator.wait_until_it_watches()
    with priority_class(cluster, "urgent-when-observed", 1000):
        free = cluster.create(pod("steered", 1, node=NODE_A), STEERED)
        assert "schedulingGates" not in free["spec"]
        made = urgent_and_refused(cluster, "urgent")
        wrong = urgent_and_refused(cluster, "wrong", annotations={RELAUNCH_ANNOTATION: "no"})
        foreign = pod("foreign", 1)
        foreign["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
        cluster.create(foreign)
        owned = owned_and_refused(cluster)
        # The garbage collector may delete a replica that the ReplicaSet made at its own end.
        ours = [content for content in cluster.pods() if "generateName" not in content["metadata"]]
        kept = {content["metadata"]["uid"]: content for content in ours}
        for content, told_on in ((made, made), (wrong, wrong), (owned, owner_of(owned))):
            eventually("it to be explained", lambda: events_of(cluster, content, "TopologyRefusalExplained"))  # noqa: B023
            (skipped,) = eventually("why no more is done", lambda: events_of(cluster, told_on, "RelaunchSkipped"))  # noqa: B023
            assert "the operator only observes; in mode relaunch it would" in skipped["note"]
        (told,) = eventually("the wrong value to be told", lambda: events_of(cluster, wrong, "RelaunchValueWrong"))
        assert '\'no\', neither "true" nor "false"' in told["note"]
        assert told["type"] == "Warning"
    sent = writes(cluster, user)[before:]
    assert sent
    assert [write for write in sent if not is_event(write)] == []
    for uid, content in kept.items():
        current = {content["metadata"]["uid"]: content for content in cluster.pods()}[uid]
        assert current["spec"].get("schedulingGates") == content["spec"].get("schedulingGates")
        assert current["spec"].get("affinity") == content["spec"].get("affinity")
        assert current["metadata"].get("annotations") == content["metadata"].get("annotations")
        assert "finalizers" not in current["metadata"]
    assert [taint["key"] for taint in cluster.client.get(NODES, NODE_B)["spec"]["taints"]] == [STARTUP_TAINTS[0]]
    assert cluster.records() == ()
    assert "Traceback" not in operator.text()
    assert "orbidden" not in operator.text()


def owned_and_refused(cluster: Cluster) -> dict[str, Any]:
    """A refused pod of a ReplicaSet, which mode relaunch would delete, and brake. Its other pods fit no node."""
    labels = {"app": "observed"}
    spec = {**pod("", 1)["spec"], "nodeSelector": {"no": "such-node"}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    wanted = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    head = {"apiVersion": REPLICA_SETS.api_version, "kind": "ReplicaSet", "metadata": {"name": "observed"}}
    uid = cluster.client.create(REPLICA_SETS, head | {"spec": wanted}, STEERED)["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "observed", "uid": uid, "controller": True}
    made = cluster.create(pod("observed-0", TOO_MANY, node=NODE_A, labels=labels, ownerReferences=[owner]), STEERED)
    eventually("the replica to be refused", lambda: cluster.get("observed-0", STEERED)["status"]["phase"] == "Failed")
    # Once the ReplicaSet has gone, the pod has no owner to be told.
    eventually("its owner to be told", lambda: events_of(cluster, {"metadata": {"uid": uid}}, "RelaunchSkipped"))
    # Its pods stay.
    options = {"propagationPolicy": "Orphan", "preconditions": {"uid": uid}}
    cluster.client._ask("DELETE", REPLICA_SETS.path(STEERED, "observed"), options)
    eventually("the ReplicaSet to be gone", lambda: not cluster.client.list(REPLICA_SETS, namespace=STEERED).items)
    return made


def owner_of(content: dict[str, Any]) -> dict[str, Any]:
    """As much of the pod's controller as its events are found by."""
    (owner,) = content["metadata"]["ownerReferences"]
    return {"metadata": owner}


def test_in_a_storm_each_refused_pod_has_one_event_and_their_owner_one_of_each_kind(
    cluster: Cluster, observer: Path, start_operator: Callable[..., Operator]
) -> None:
    operator = start_operator("--mode=observe", kubeconfig=observer)
    operator.wait_until_it_watches()
    labels = {"app": "storm"}
    template = {"metadata": {"labels": labels}, "spec": pod("", TOO_MANY, node=NODE_A)["spec"]}
    wanted = {"replicas": 5, "selector": {"matchLabels": labels}, "template": template}
    head = {"apiVersion": REPLICA_SETS.api_version, "kind": "ReplicaSet", "metadata": {"name": "storm"}}
    owner = cluster.client.create(REPLICA_SETS, head | {"spec": wanted}, STEERED)

    def refused() -> list[dict[str, Any]]:
        pods = cluster.client.list(PODS, namespace=STEERED, labels="app=storm").items
        # Those that its ReplicaSet is deleting, as it wants none any more, are nobody's to explain.
        kept = (each for each in pods if "deletionTimestamp" not in each["metadata"])
        return [each for each in kept if each["status"].get("phase") == "Failed"]

    eventually("a storm", lambda: len(refused()) >= STORM, 60)
    cluster.client.merge(REPLICA_SETS, "storm", {"spec": {"replicas": 0}}, STEERED)

    def has_ended() -> bool:
        """Until its controller has seen that it wants no pod any more, it has none only between two of them."""
        found = cluster.client.get(REPLICA_SETS, "storm", STEERED)
        is_seen = found["status"].get("observedGeneration") == found["metadata"]["generation"]
        return is_seen and not found["status"]["replicas"]

    def refused_uids() -> set[str]:
        return {each["metadata"]["uid"] for each in refused()}

    eventually("its end", has_ended)
    eventually("each refusal to be explained", lambda: refused_uids() <= set(_told(cluster)), 60)
    uids, counts = refused_uids(), _told(cluster)
    print(f"{len(uids)} pods were refused, and have {sum(counts[uid] for uid in uids)} events")
    assert {counts[uid] for uid in uids} == {1}
    for reason in ("TopologyRefusalExplained", "RelaunchSkipped"):
        assert len(events_of(cluster, owner, reason)) == 1
    assert "Traceback" not in operator.text()
    cluster.client.delete(REPLICA_SETS, "storm", STEERED, uid=owner["metadata"]["uid"])


def _told(cluster: Cluster) -> Counter[str]:
    """How many Events of topomend each object of the namespace has, by its uid."""
    events = cluster.client.list(EVENTS, namespace=STEERED).items
    return Counter(each["regarding"]["uid"] for each in events if each.get("reportingController") == CONTROLLER)


def is_in_force(cluster: Cluster) -> bool:
    """Whether anything acts on new pods."""
    kinds = (MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS)
    configurations = cluster.client.list(MUTATING_WEBHOOKS).items
    parameters = (*cluster.client.list(BRAKES).items, *cluster.client.list(STEERINGS).items)
    policies = [item for kind in kinds for item in cluster.client.list(kind).items]
    return bool(policies or parameters or any(item.get("webhooks") for item in configurations))


def test_what_mode_relaunch_has_left_is_taken_back_and_no_pod_waits_for_ever(
    cluster: Cluster, account: Path, observer: Path, start_operator: Callable[..., Operator]
) -> None:
    before = start_operator("--leader-elect", kubeconfig=account)
    before.wait_until_it_watches()
    tried = eventually("new pods to be gated", lambda: _gated(cluster, "tried", TOO_MANY))
    held = _gated(cluster, "held", TOO_MANY)
    odd = _gated(cluster, "odd", 1, tolerations=[{"key": f"k{number}", "operator": "Exists"} for number in range(600)])
    assert held
    assert odd, "a pod that the operator cannot read"
    eventually("the wait to be told", lambda: events_of(cluster, tried, "NoNodeCanEverAdmit"))
    without_rights = start_operator("--mode=observe", "--leader-elect", kubeconfig=observer)
    without_rights.wait_until_it_watches()
    before.terminate()
    (told,) = eventually("who lets it go to be told", lambda: events_of(cluster, held, "HeldInVain"))
    assert "kubectl numa drain" in told["note"]
    without_rights.terminate()
    assert FIT_GATE in _gates(cluster, "held")
    observing = start_operator("--mode=observe", "--leader-elect", kubeconfig=account)
    eventually("all to be let go", lambda: not [name for name in ("tried", "held", "odd") if _gates(cluster, name)])
    eventually("nothing to act on new pods", lambda: not is_in_force(cluster), COLLECTOR_SECONDS)
    eventually("the Lease to be given back", lambda: leader_election.read_holder(cluster.client, SYSTEM) == "")
    assert cluster.get("held", STEERED)["metadata"]["annotations"]["topomend.io/relaunch"] == "true"
    assert {item["metadata"]["name"] for item in cluster.client.list(MUTATING_WEBHOOKS).items} >= {"topomend-steer"}
    assert "Traceback" not in observing.text()
    for kind, name in ((BRAKES, BRAKE_NAME), (STEERINGS, STEERING_NAME)):
        with pytest.raises(NotFound):
            cluster.client.get(kind, name, SYSTEM)


def _gates(cluster: Cluster, name: str) -> list[str]:
    return [gate["name"] for gate in cluster.get(name, STEERED)["spec"].get("schedulingGates", [])]


def _gated(cluster: Cluster, name: str, cpus: int, **spec: Any) -> dict[str, Any] | None:
    """A new pod of the steered namespace, if it is gated."""
    content = pod(name, cpus, annotations={RELAUNCH_ANNOTATION: "true"})
    content["spec"] |= spec
    made = cluster.create(content, STEERED)
    if made["spec"].get("schedulingGates"):
        return made
    cluster.remove(made)
    return None
