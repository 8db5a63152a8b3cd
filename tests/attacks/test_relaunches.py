"""What strangers get out of relaunches, with the installed account and policies: no pod of their making, no storage."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.clusters import BINDINGS, NODE_A, NODE_B, Cluster, events_of, pod
from tests.deploy.api import API
from tests.installed_operator import PODS, admin, is_stamped, operator, start, user_of_pods
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.resources import MUTATING_ADMISSION_POLICIES, NODE_TOPOLOGIES
from topomend.kube.resources import PODS as PODS_OF_NAMESPACES
from topomend.reconcile.refused import record_limits
from topomend.runtime.timestamp import timestamp
from topomend.wire.group import CHANGED_ANNOTATION, FIT_GATE
from topomend.wire.published.node_topology import HEARTBEAT

__all__ = ["admin", "operator", "start"]  # the fixtures

pytestmark = pytest.mark.cluster

FLOOD = record_limits.BURST + 30
"""Huge pods that a tenant has refused and deletes: more than may have a record at once."""

RECORD_BYTES = 4_096
"""More than a record without a manifest takes as JSON."""

NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""An annotation that acts where a pod is created."""

CARELESS = "adds-a-container"


@pytest.fixture
def tenant(admin: API) -> API:
    """Somebody who may create and delete pods in the namespace."""
    one = user_of_pods(admin, "tenant", "create", "get", "delete")
    eventually("the role and the stamp", lambda: is_stamped(one.create(PODS, pod("probe", 1), dry_run=True)))
    return one


@pytest.fixture
def careless_policy(
    two_nodes: Cluster,
    admin: API,  # noqa: ARG001  which waits at its end until no policy is left
) -> Iterator[None]:
    """Admission that adds an init container to a pod with the label ``careless`` whenever it sees one."""
    head = {"apiVersion": MUTATING_ADMISSION_POLICIES.api_version, "metadata": {"name": CARELESS}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    added = """[JSONPatch{op: "add", path: "/spec/initContainers/-", value: Object.spec.initContainers{
      name: "added-" + string(object.spec.initContainers.size()), image: "sandbox/pause",
      resources: Object.spec.initContainers.resources{
        limits: {"cpu": "1", "memory": "64Mi"}, requests: {"cpu": "1", "memory": "64Mi"}}}}]"""
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule], "objectSelector": {"matchLabels": {"careless": "true"}}},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": added}}],
    }
    client = two_nodes.client
    probe = pod("probe", 1, labels={"careless": "true"})
    probe["spec"]["initContainers"] = [{**probe["spec"]["containers"][0], "name": "first"}]
    policy = client.create(MUTATING_ADMISSION_POLICIES, head | {"kind": "MutatingAdmissionPolicy", "spec": spec})
    kind = {"kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": CARELESS}}
    binding = client.create(BINDINGS, head | kind)
    eventually("the policy to act", lambda: len(_created(two_nodes, probe)["spec"]["initContainers"]) == 2)
    yield
    client.delete(BINDINGS, CARELESS, uid=binding["metadata"]["uid"])
    client.delete(MUTATING_ADMISSION_POLICIES, CARELESS, uid=policy["metadata"]["uid"])


def _created(cluster: Cluster, content: dict[str, Any]) -> dict[str, Any]:
    """The pod as it would be created."""
    return cluster.client.create(PODS_OF_NAMESPACES, content, "default", dry_run=True)


def is_refused(cluster: Cluster, name: str) -> bool:
    return cluster.phase(name) == "Failed"


def runs_anew(cluster: Cluster, old: dict[str, Any]) -> dict[str, Any] | None:
    current = cluster.running(old["metadata"]["name"])
    return current if current and current["metadata"]["uid"] != old["metadata"]["uid"] else None


def test_what_somebody_who_may_create_no_pods_writes_on_a_refused_one_is_not_on_its_replacement(
    fragmented: Cluster, start: Callable[[], Operator], admin: API, tenant: API
) -> None:
    patching = user_of_pods(admin, "patching", "get", "patch")
    own: dict[str, Any] = {"annotations": {"mine": "1"}, "labels": {"app": "train"}}
    made = tenant.create(PODS, pod("train", 3, preferred=NODE_A, **own)).content
    eventually("the refusal", lambda: is_refused(fragmented, "train"))
    written = {"metadata": {"annotations": {NETWORKS: "secret", "mine": "2"}, "labels": {"role": "trusted"}}}

    def is_noted() -> bool:
        answer = patching.patch(f"{PODS}/train", written, dry_run=True)
        return answer.allowed and NETWORKS in answer.content["metadata"]["annotations"].get(CHANGED_ANNOTATION, "")

    eventually("the role, and the policy that notes what is changed", is_noted)
    assert patching.patch(f"{PODS}/train", written).allowed
    assert patching.create(PODS, pod("of-its-own", 1)).code == 403
    start()
    moved = eventually("train to run again", lambda: runs_anew(fragmented, made))["metadata"]
    assert moved["labels"] == {"app": "train"}
    assert not {NETWORKS, "mine"} & moved["annotations"].keys()


@pytest.mark.usefixtures("careless_policy")
def test_a_pod_to_which_admission_would_add_another_container_stays_and_says_so(
    fragmented: Cluster, operator: Operator, tenant: API
) -> None:
    content = pod("train", 3, preferred=NODE_A, labels={"careless": "true"})
    content["spec"]["initContainers"] = [pod("", 1)["spec"]["containers"][0] | {"name": "first"}]
    made = tenant.create(PODS, content).content
    assert [container["name"] for container in made["spec"]["initContainers"]] == ["first", "added-1"]
    events = eventually("the event", lambda: events_of(fragmented, made, "RelaunchDeferred"))
    assert "admission would add init container added-2 to its replacement" in events[0]["note"]
    current = fragmented.get("train")
    assert (current["metadata"]["uid"], current["metadata"].get("finalizers")) == (made["metadata"]["uid"], None)
    assert "Traceback" not in operator.text()


@pytest.mark.night
def test_a_tenant_who_has_huge_pods_refused_and_deletes_them_fills_no_storage_with_their_records(
    fragmented: Cluster, operator: Operator, tenant: API
) -> None:
    """No node has room for them, so that they wait. No quota of his counts records."""
    for name in ("filler-2", "filler-3"):
        fragmented.occupy(NODE_B, name, 2)
    begun = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        names = list(pool.map(lambda number: _refuse(fragmented, tenant, number), range(FLOOD)))
    eventually("as many records as may be at once", lambda: len(fragmented.records()) >= record_limits.BURST)
    records = fragmented.records()
    most = record_limits.BURST + record_limits.RATE * (time.monotonic() - begun)
    print(f"{len(records)} records, of {max(map(_bytes, records))} bytes at most")
    assert len(records) <= most
    assert max(map(_bytes, records)) < RECORD_BYTES
    for name in names:
        assert tenant.delete(f"{PODS}/{name}").allowed
    eventually("the records to end with their pods", lambda: _steps(fragmented) == {"Cancelled"})
    assert max(map(_bytes, fragmented.records())) < RECORD_BYTES
    assert "Traceback" not in operator.text()


def _refuse(cluster: Cluster, tenant: API, number: int) -> str:
    content = pod(f"huge-{number}", 3, node=NODE_A)
    content["spec"]["containers"][0]["args"] = [f"{index:05}" for index in range(100_000)]
    created = tenant.create(PODS, content)
    assert created.allowed, created.message
    name: str = content["metadata"]["name"]
    eventually("the refusal", lambda: is_refused(cluster, name))
    return name


def _bytes(record: dict[str, Any]) -> int:
    return len(json.dumps(record))


def _steps(cluster: Cluster) -> set[str]:
    return {record.get("status", {}).get("step", "") for record in cluster.records()}


@pytest.fixture
def silent(fragmented: Cluster) -> Cluster:
    """numa-b could take the pods that numa-a cannot, and its agent has confirmed nothing for an hour."""
    since = timestamp(datetime.now(UTC) - timedelta(hours=1))
    fragmented.client.merge(NODE_TOPOLOGIES, NODE_B, {"status": {HEARTBEAT: since}}, subresource="status")
    return fragmented


def test_a_gated_pod_goes_to_no_node_whose_agent_is_silent_and_there_once_it_is_heard_again(
    silent: Cluster, start: Callable[[], Operator]
) -> None:
    start()
    content = pod("waits", 3)
    content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
    made = silent.create(content)
    events = eventually("the wait to be told", lambda: events_of(silent, made, "UngateDeferred"))
    assert "not publish a usable state" in events[0]["note"], events[0]["note"]
    assert silent.get("waits")["spec"]["schedulingGates"]
    silent.publish(silent.states[NODE_B])
    running = eventually("the pod to run", lambda: silent.running("waits"))
    assert running["spec"]["nodeName"] == NODE_B
