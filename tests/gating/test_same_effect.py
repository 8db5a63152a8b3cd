"""Webhook and policies do the same to random pods of random users, on one real API server, one after the other."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from deploy.manifests import objects
from tests.clusters import NODE_A, SHAPE, SYSTEM, every_policy
from tests.deploy.api import API, administrator, have_default_account, path_of
from tests.seeds import SEED
from tests.waiting import eventually

from topomend.gating.certificates import renewed
from topomend.gating.definitions import BRAKE, NAMES, STEER, Installation, webhook
from topomend.gating.review import Parameter
from topomend.gating.webhook import Webhook
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire import group

pytestmark = pytest.mark.cluster

STEERED, PLAIN, OPTED_OUT = "steered", "plain", "opted-out"
BRAKED = "11111111-0000-0000-0000-000000000000"
CASES = 250
INSTALLATION = Installation(SYSTEM, "topomend-operator")
OPERATOR = f"system:serviceaccount:{SYSTEM}:topomend-operator"

_names = (f"random-{number}" for number in count())


@pytest.fixture(scope="module")
def admin() -> Iterator[API]:
    """The administrator of a cluster with everything installed but what gates new pods, and two namespaces."""
    with Sandbox.up([NodeSpec.of_shape(NODE_A, SHAPE)]) as sandbox:
        api = administrator(sandbox.kubeconfig)
        for item in objects():
            if item["kind"] not in ("DaemonSet", "Deployment"):
                eventually(path_of(item), lambda item=item: api.apply(path_of(item), item).allowed)  # type: ignore[misc]
        steered, opted_out = {group.STEER_LABEL: "enabled"}, {group.RELAUNCH_ANNOTATION: "false"}
        for name, labels, annotations in ((STEERED, steered, {}), (PLAIN, {}, {}), (OPTED_OUT, steered, opted_out)):
            metadata = {"name": name, "labels": labels, "annotations": annotations}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            assert api.apply(f"/api/v1/namespaces/{name}", namespace).allowed
            have_default_account(api, f"/api/v1/namespaces/{name}")
        testers = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "testers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [
                {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "testers"},
            ],
        }
        assert api.apply(path_of(testers), testers).allowed
        yield api


def parameters(admin: API, valid_until: datetime) -> dict[str, Parameter]:
    """Write both parameter objects. Returns what the webhook is to know of them."""
    time = valid_until.strftime("%Y-%m-%dT%H:%M:%SZ")
    root = f"/apis/{group.API_VERSION}/namespaces/{SYSTEM}"
    head = {"apiVersion": group.API_VERSION, "validUntil": time}
    brake = {**head, "kind": group.BRAKE, "metadata": {"name": group.BRAKE_NAME}, "owners": {BRAKED: "plain/x/y"}}
    steering = {**head, "kind": group.STEERING, "metadata": {"name": group.STEERING_NAME}}
    assert admin.apply(f"{root}/brakes/{group.BRAKE_NAME}", brake).allowed
    assert admin.apply(f"{root}/steerings/{group.STEERING_NAME}", steering).allowed
    known = Parameter(exists=True, valid_until=time, owners=frozenset({BRAKED}))
    return {BRAKE: known, STEER: known}


def test_webhook_and_policies_gate_and_stamp_the_same_pods(admin: API) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    known = parameters(admin, datetime.now(UTC) + timedelta(hours=1))
    cases = [(rng.choice((STEERED, PLAIN, OPTED_OUT)), random_user(rng, admin), random_pod(rng)) for _ in range(CASES)]
    for item in every_policy():
        assert admin.apply(path_of(item), item).allowed
    eventually("the policies", lambda: all(acting(admin)))
    by_policy = [effects(api, namespace, pod) for namespace, api, pod in cases]
    notes_by_policy = notes(admin, random.Random(SEED))
    for item in every_policy():
        assert admin.delete(path_of(item)).allowed
    eventually("the policies' end", lambda: not any(acting(admin)))
    pairs = renewed(None, ["127.0.0.1"], datetime.now(UTC))
    assert pairs is not None
    server = Webhook(
        "127.0.0.1:0",
        pairs,
        lambda definition: known.get(definition, Parameter()),
        lambda namespace: namespace == OPTED_OUT,
        lambda _: None,
    )
    try:
        for definition in NAMES:
            client = {"url": f"https://127.0.0.1:{server.port}/{definition}", "caBundle": pairs.as_secret()["ca.crt"]}
            path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topomend-{definition}"
            # On a machine that stands still for seconds a pod is not to be created without an answer.
            patient = webhook(INSTALLATION, definition, client) | {"timeoutSeconds": 30}
            assert admin.patch(path, {"webhooks": [patient]}).allowed
        eventually("the webhooks", lambda: all(acting(admin)))
        by_webhook = [effects(api, namespace, pod) for namespace, api, pod in cases]
        notes_by_webhook = notes(admin, random.Random(SEED))
    finally:
        server.close()
    assert len(set(map(str, by_policy))) > 4, "the random pods differ too little"
    for case, policy, hook in zip(cases, by_policy, by_webhook, strict=True):
        assert hook == policy, case
    assert any(notes_by_policy)
    assert notes_by_webhook == notes_by_policy


def probe() -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    return {"containers": [container], "metadata": {}}


def acting(admin: API) -> tuple[bool, ...]:
    """Whether each definition acts: new ones come into force one by one, and end so."""
    steered, stamped = effects(admin, STEERED, probe())
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": BRAKED, "controller": True}
    braked_gates, _ = effects(admin, PLAIN, probe() | {"metadata": {"ownerReferences": [owner]}})
    return steered, stamped, group.FIT_GATE in braked_gates, notes_changes(admin)


def notes_changes(admin: API) -> bool:
    """Whether it is noted on a stamped pod that somebody has changed it."""
    path, name = f"/api/v1/namespaces/{PLAIN}/pods", next(_names)
    metadata = {"name": name, "annotations": {group.CREATOR_ANNOTATION: "somebody"}}
    spec = {**probe(), "nodeSelector": {"no": "node"}}
    del spec["metadata"]
    assert admin.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).allowed
    answer = admin.patch(f"{path}/{name}", {"metadata": {"annotations": {"a": "1"}}}, dry_run=True)
    assert admin.delete(f"{path}/{name}").allowed
    return group.CHANGED_ANNOTATION in answer.content["metadata"]["annotations"]


def effects(api: API, namespace: str, pod: dict[str, Any]) -> tuple[Any, ...]:
    """Whether the pod gets our gate, and its stamp; or why it cannot be created."""
    metadata = {"name": next(_names), **pod["metadata"]}
    spec = {key: value for key, value in pod.items() if key != "metadata"}
    content = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    answer = api.create(f"/api/v1/namespaces/{namespace}/pods", content, dry_run=True)
    if not answer.allowed:
        return answer.code, answer.message.replace(metadata["name"], "")
    gates = [gate["name"] for gate in answer.content["spec"].get("schedulingGates", [])]
    stamp = answer.content["metadata"].get("annotations", {}).get(group.CREATOR_ANNOTATION, "")
    if not pod["metadata"]:
        return group.FIT_GATE in gates, bool(stamp)
    return sorted(gates), stamp


def notes(admin: API, rng: random.Random) -> list[str]:
    """The notes about random changes of one stamped pod, one after the other."""
    name, seen = next(_names), []
    path = f"/api/v1/namespaces/{PLAIN}/pods"
    container = {"name": "c", "image": "none", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    spec = {"containers": [container], "nodeSelector": {"no": "node"}}
    assert admin.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).allowed
    for _ in range(15):
        key = rng.choice(("a", "example.com/b", "x"))
        value = rng.choice((None, "1", "2"))
        patch = {"metadata": {rng.choice(("annotations", "labels")): {key: value}}}
        answer = admin.patch(f"{path}/{name}", patch)
        assert answer.allowed, answer.message
        seen.append(answer.content["metadata"]["annotations"].get(group.CHANGED_ANNOTATION, ""))
    assert admin.delete(f"{path}/{name}").allowed
    return seen


def random_user(rng: random.Random, admin: API) -> API:
    user = admin.impersonating(rng.choice(("jane", "system:serviceaccount:a:b", OPERATOR)), "testers")
    if rng.random() < 0.2:
        return user.with_extra(rng.choice(("scopes", "authentication.kubernetes.io%2fcredential-id")), "x")
    return admin if rng.random() < 0.2 else user


def random_pod(rng: random.Random) -> dict[str, Any]:
    pod: dict[str, Any] = {"containers": [random_container(rng, f"c{number}") for number in range(rng.randint(1, 2))]}
    if rng.random() < 0.2:
        pod["initContainers"] = [random_container(rng, "i")]
    if rng.random() < 0.1:
        pod["resources"] = {"limits": {"cpu": "4", "memory": "4Gi"}}
    if rng.random() < 0.1:
        pod["priorityClassName"] = rng.choice(("system-node-critical", "system-cluster-critical"))
    if rng.random() < 0.1:
        pod["nodeName"] = "anywhere"
    elif rng.random() < 0.2:
        pod["schedulingGates"] = [{"name": rng.choice(("example.com/quota", group.FIT_GATE))}]
    metadata: dict[str, Any] = {"labels": {"random": "pod"}}
    if rng.random() < 0.5:
        owner = {"apiVersion": "apps/v1", "kind": rng.choice(("ReplicaSet", "DaemonSet")), "name": "r"}
        uid, is_controller = rng.choice((BRAKED, "22222222-0000-0000-0000-000000000000")), rng.random() < 0.8
        metadata["ownerReferences"] = [{**owner, "uid": uid, "controller": is_controller}]
    if rng.random() < 0.2:
        metadata["annotations"] = {rng.choice(("a", group.CREATOR_ANNOTATION)): "true"}
    if rng.random() < 0.3:
        metadata.setdefault("annotations", {})[group.RELAUNCH_ANNOTATION] = rng.choice(("true", "false", "False"))
    return {**pod, "metadata": metadata}


def random_container(rng: random.Random, name: str) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if rng.random() < 0.8:
        resources["limits"] = {"cpu": rng.choice(("1", "1500m")), "memory": "1Gi"}
    if rng.random() < 0.2:
        resources["requests"] = {"cpu": rng.choice(("1", "500m"))}
    if rng.random() < 0.2:
        resources.setdefault("limits", {})["vendor.com/gpu"] = "1"
    return {"name": name, "image": "none", "resources": resources}
