"""The rights that the admission policies leave to both accounts, tried with real tokens on a real API server."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from deploy.manifests import DEPLOY, objects
from tests.clusters import policies
from tests.deploy.api import API, Answer, have_default_account
from tests.deploy.conftest import NAMESPACE, NOWHERE, tenant_of, token_of
from tests.waiting import consistently, eventually

from topomend.decide.eligibility import REASONS
from topomend.model.narrowing import Narrowing
from topomend.relaunch import manifest
from topomend.replay import errors
from topomend.runtime.manifests import documents
from topomend.wire import group
from topomend.wire.pods.scheduling import read_watched_pod
from topomend.wire.relaunch_record import manifest_status, read_relaunch

pytestmark = pytest.mark.cluster  # needs a real API server: admission policies run nowhere else

TOPOLOGIES = f"/apis/{group.API_VERSION}/nodetopologies"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RELAUNCHES = f"/apis/{group.API_VERSION}/namespaces/{NAMESPACE}/relaunches"

MINE, FOREIGN = "deploy-tests-mine", "deploy-tests-foreign"


def topology(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": group.API_VERSION, "kind": group.NODE_TOPOLOGY, "metadata": {"name": name, **metadata}}


# The agent


@pytest.fixture(scope="module")
def agent(admin: API, agent_on: Callable[[str], API]) -> Iterator[API]:
    one = agent_on(MINE)
    assert admin.apply(f"{TOPOLOGIES}/{FOREIGN}", topology(FOREIGN)).allowed
    eventually(
        "the agent's policy", lambda: one.apply(f"{TOPOLOGIES}/{FOREIGN}", topology(FOREIGN), dry_run=True).code == 403
    )
    yield one
    for name in (MINE, FOREIGN):
        admin.delete(f"{TOPOLOGIES}/{name}")


def test_an_agent_writes_its_own_nodes_object_and_status(agent: API) -> None:
    applied = agent.apply(f"{TOPOLOGIES}/{MINE}", topology(MINE))
    assert applied.allowed, applied.message
    status = {"summary": {"numaNodes": 2}}
    assert agent.patch(f"{TOPOLOGIES}/{MINE}/status", {"status": status}).content["status"] == status
    assert agent.get(f"{TOPOLOGIES}/{MINE}").content["status"] == status


def test_an_agent_makes_its_own_node_the_owner(agent: API) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": MINE, "uid": "0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b11"}
    # Not carried out: there is no such node, and the garbage collector would take the object away at once.
    assert agent.apply(f"{TOPOLOGIES}/{MINE}", topology(MINE, ownerReferences=[owner]), dry_run=True).allowed


def test_an_agent_writes_no_other_nodes_object(agent: API) -> None:
    words = f"the agent of node {MINE} may not write the object of {FOREIGN}"
    for answer in (
        agent.apply(f"{TOPOLOGIES}/{FOREIGN}", topology(FOREIGN)),
        agent.patch(f"{TOPOLOGIES}/{FOREIGN}", {"metadata": {"labels": {"a": "b"}}}),
        agent.patch(f"{TOPOLOGIES}/{FOREIGN}/status", {"status": {"summary": {"numaNodes": 2}}}),
    ):
        assert answer.code == 403
        assert words in answer.message
    created = agent.create(TOPOLOGIES, topology("none"))
    assert (created.code, "may not write the object of none" in created.message) == (403, True)


def test_an_agents_token_without_a_node_writes_nothing(admin: API, agent: API) -> None:
    unbound = agent.as_token(token_of(admin, "topomend-agent", "topomend-agent"))
    for name in (MINE, FOREIGN):
        answer = unbound.apply(f"{TOPOLOGIES}/{name}", topology(name))
        assert answer.code == 403
        assert "this token names no node" in answer.message


def test_an_agent_ties_its_object_to_its_own_node_only(agent: API) -> None:
    for owner in (
        {"apiVersion": "v1", "kind": "Node", "name": FOREIGN, "uid": "1"},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": MINE, "uid": "1"},
    ):
        answer = agent.apply(f"{TOPOLOGIES}/{MINE}", topology(MINE, ownerReferences=[owner]))
        assert (answer.code, "its own Node as its only owner" in answer.message) == (403, True)


def test_an_agent_deletes_nothing_not_even_its_own_object(agent: API) -> None:
    for name in (MINE, FOREIGN):
        assert agent.delete(f"{TOPOLOGIES}/{name}").code == 403


def test_the_policy_leaves_other_accounts_alone(admin: API) -> None:
    assert admin.apply(f"{TOPOLOGIES}/{FOREIGN}", topology(FOREIGN), dry_run=True).allowed


# The operator and pods

_names = (f"pod-{number}" for number in count())

REFUSED = {
    "phase": "Failed",
    "reason": "TopologyAffinityError",
    "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
}
OURS = {group.RECORD_ANNOTATION: "train-9-7c2f1d0e55", group.REPLACES_ANNOTATION: "0f3e1a52"}


def new_pod(*, gates: tuple[str, ...] = (), annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": next(_names),
            "labels": {"app": "train"},
            "annotations": {"user": "one", **(annotations or {})},
        },
        "spec": {
            "containers": [{"name": "c", "image": "none"}],
            "schedulingGates": [{"name": gate} for gate in gates],
            **spec,
        },
    }


CONTROLLER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": True}
RESTRICTED = {
    "name": "c",
    "image": "none",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
"""What Pod Security lets into topomend's own namespace."""

PRIVILEGED = {"name": "c", "image": "none", "securityContext": {"privileged": True}}


def gated_pod(
    *, annotations: dict[str, str] | None = None, owners: list[Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A replacement as the operator may create it, but for what is given."""
    pod = new_pod(gates=(group.RELAUNCH_GATE,), annotations=OURS | (annotations or {}), **spec)
    pod["metadata"]["ownerReferences"] = owners or []
    return pod


def existing(admin: API, status: dict[str, Any] | None = None, **fields: Any) -> str:
    """A pod in the given state; where it has a status it is bound to the node ``nowhere``, which must exist."""
    if status is not None:
        fields["nodeName"] = NOWHERE
    created = admin.create(PODS, new_pod(**fields))
    assert created.allowed, created.message
    path = f"{PODS}/{created.content['metadata']['name']}"
    if status is not None:
        assert admin.patch(f"{path}/status", {"status": status}).allowed
    return path


@pytest.fixture(scope="module")
def pods_of(
    admin: API,
    operator: API,
    nowhere: None,  # noqa: ARG001  to which pods are bound
) -> Iterator[tuple[API, API]]:
    """The administrator who sets the scene and the operator who acts in it."""
    have_default_account(admin, f"/api/v1/namespaces/{NAMESPACE}")
    probe = existing(admin, gates=("other.io/gate",))
    eventually("the operator's policy", lambda: operator.patch(probe, {"metadata": {"labels": {"a": "b"}}}).code == 403)
    yield admin, operator
    for item in admin.get(PODS).content["items"]:
        pod = f"{PODS}/{item['metadata']['name']}"
        admin.patch(pod, {"metadata": {"finalizers": None}})
        admin.delete(pod)


@pytest.mark.parametrize("reason", REASONS)
def test_the_operator_deletes_a_refused_pod(pods_of: tuple[API, API], reason: str) -> None:
    admin, operator = pods_of
    assert operator.delete(existing(admin, REFUSED | {"reason": reason})).allowed


def test_the_operator_deletes_a_refused_pod_where_it_creates_none(pods_of: tuple[API, API]) -> None:
    admin, operator = pods_of
    pods = "/api/v1/namespaces/kube-system/pods"
    have_default_account(admin, "/api/v1/namespaces/kube-system")
    made = admin.create(pods, new_pod(nodeName=NOWHERE))
    path = f"{pods}/{made.content['metadata']['name']}"
    assert admin.patch(f"{path}/status", {"status": REFUSED}).allowed
    assert operator.delete(path).allowed


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Running"},
        {"phase": "Pending"},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        REFUSED | {"reason": "Evicted"},
        REFUSED | {"phase": "Running"},
        REFUSED | {"message": "I say so"},
    ],
)
def test_the_operator_deletes_no_pod_that_was_not_refused(pods_of: tuple[API, API], status: dict[str, str]) -> None:
    admin, operator = pods_of
    answer = operator.delete(existing(admin, status))
    assert (answer.code, "may delete only pods refused" in answer.message) == (403, True)


def test_the_operator_deletes_its_own_replacement_while_it_is_held_and_no_other_held_pod(
    pods_of: tuple[API, API],
) -> None:
    admin, operator = pods_of
    assert operator.delete(existing(admin, gates=(group.RELAUNCH_GATE,), annotations=OURS)).allowed
    assert operator.delete(existing(admin, gates=(group.RELAUNCH_GATE,))).code == 403
    assert operator.delete(existing(admin, gates=("topomend.io/fit",))).code == 403
    assert operator.delete(existing(admin, gates=("other.io/gate",), annotations=OURS)).code == 403


def test_the_operator_deletes_an_unbound_pod_that_it_ungated_if_a_controller_creates_another(
    pods_of: tuple[API, API],
) -> None:
    admin, operator = pods_of
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "owner-"}}
    made = admin.create(f"/api/v1/namespaces/{NAMESPACE}/configmaps", content).content["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": made["name"], "uid": made["uid"], "controller": True}
    for owners, code in (([owner], 200), ([], 403)):
        pod = new_pod(gates=("topomend.io/fit",))
        pod["metadata"]["ownerReferences"] = owners
        path = f"{PODS}/{admin.create(PODS, pod).content['metadata']['name']}"
        assert operator.delete(path).code == 403, "it is still gated"
        patch = manifest.launch(read_watched_pod(operator.get(path).content), Narrowing(("no-such-node",)))
        assert operator.patch(path, patch).allowed
        assert operator.delete(path).code == code
    bound = new_pod(annotations={group.RELEASED_ANNOTATION: "true"}, nodeName=NOWHERE)
    bound["metadata"]["ownerReferences"] = [owner]
    assert operator.delete(f"{PODS}/{admin.create(PODS, bound).content['metadata']['name']}").code == 403
    admin.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{made['name']}")


UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def _ungated(admin: API, operator: API) -> str:
    path = existing(admin, gates=("topomend.io/fit",), schedulerName="nobody")
    patch = manifest.launch(read_watched_pod(operator.get(path).content), Narrowing(("no-such-node",)))
    assert operator.patch(path, patch).allowed
    return path


def _claim(operator: API, path: str) -> Answer:
    return operator.patch(path, manifest.claim(operator.get(path).content, "a-record"))


def _is_let_go(operator: API, path: str) -> bool:
    """Take the finalizer off; the collector of pods may change one that ends at the same time (gcUnscheduledTerminating
    in podgc/gc_controller.go)."""
    answer = operator.patch(path, manifest.unclaim(operator.get(path).content))
    assert answer.allowed or answer.code == 409, answer.message
    return answer.allowed


def test_the_operator_deletes_an_unbound_pod_without_a_controller_only_once_it_has_claimed_it(
    pods_of: tuple[API, API],
) -> None:
    admin, operator = pods_of
    path = _ungated(admin, operator)
    assert _claim(operator, path).code == 403, "no scheduler has tried it yet"
    assert admin.patch(f"{path}/status", {"status": UNSCHEDULABLE}).allowed
    assert operator.delete(path).code == 403, "it is not claimed"
    assert operator.patch(path, {"metadata": {"labels": {"a": "b"}}}).code == 403
    assert _claim(operator, path).allowed
    assert operator.delete(path).allowed
    eventually("it to be let go", lambda: _is_let_go(operator, path))
    assert operator.get(path).code == 404


def test_the_operators_own_word_for_autoscalers_is_not_the_schedulers(pods_of: tuple[API, API]) -> None:
    admin, operator = pods_of
    path = _ungated(admin, operator)
    (condition,) = UNSCHEDULABLE["conditions"]
    ours = condition | {"message": f"{group.ASKS_FOR_NODE} no node admits it now."}
    assert admin.patch(f"{path}/status", {"status": {"conditions": [ours]}}).allowed
    assert _claim(operator, path).code == 403


def test_the_operator_deletes_no_pod_that_was_bound_after_the_claim(pods_of: tuple[API, API]) -> None:
    admin, operator = pods_of
    path = _ungated(admin, operator)
    assert admin.patch(f"{path}/status", {"status": UNSCHEDULABLE}).allowed
    assert _claim(operator, path).allowed
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": path.rpartition("/")[2]},
        "target": {"kind": "Node", "name": NOWHERE},
    }
    assert admin.create(f"{path}/binding", binding).allowed
    assert operator.delete(path).code == 403
    assert operator.patch(path, manifest.unclaim(operator.get(path).content)).allowed


def test_the_operator_claims_no_unschedulable_pod_that_it_did_not_ungate(pods_of: tuple[API, API]) -> None:
    admin, operator = pods_of
    path = existing(admin, schedulerName="nobody")  # kube-scheduler would write to it while it is claimed
    assert admin.patch(f"{path}/status", {"status": UNSCHEDULABLE}).allowed
    assert _claim(operator, path).code == 403
    assert operator.delete(path).code == 403


def test_the_operator_creates_a_replacement_behind_its_gate(pods_of: tuple[API, API]) -> None:
    created = pods_of[1].create(PODS, new_pod(gates=(group.RELAUNCH_GATE,), annotations=OURS))
    assert created.allowed, created.message


@pytest.mark.parametrize(
    "pod",
    [
        new_pod(annotations=OURS),
        new_pod(gates=(group.RELAUNCH_GATE,)),
        new_pod(gates=(group.RELAUNCH_GATE,), annotations={group.RECORD_ANNOTATION: "x"}),
        new_pod(gates=(group.RELAUNCH_GATE,), annotations={group.REPLACES_ANNOTATION: "x"}),
        new_pod(gates=("other.io/gate",), annotations=OURS),
        new_pod(annotations=OURS, nodeName=NOWHERE),
    ],
    ids=["no gate", "no annotations", "no uid", "no record", "another's gate", "bound"],
)
def test_the_operator_creates_no_other_pod(pods_of: tuple[API, API], pod: dict[str, Any]) -> None:
    answer = pods_of[1].create(PODS, pod)
    assert (answer.code, "may create only pods that name their record" in answer.message) == (403, True)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (gated_pod(hostNetwork=True), "only in a namespace labelled"),
        (gated_pod(hostPID=True), "only in a namespace labelled"),
        (gated_pod(hostIPC=True), "only in a namespace labelled"),
        (gated_pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "only in a namespace labelled"),
        (gated_pod(containers=[PRIVILEGED]), "only in a namespace labelled"),
        (gated_pod(initContainers=[PRIVILEGED | {"name": "i"}]), "only in a namespace labelled"),
        (gated_pod(annotations={group.RELEASED_ANNOTATION: "true"}), "not ungated before"),
        (gated_pod(owners=[CONTROLLER]), "no controller owns"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[-70:],
)
def test_the_operator_creates_no_pod_that_gives_it_a_node_or_somebody_elses_name(
    pods_of: tuple[API, API], pod: dict[str, Any], words: str
) -> None:
    answer = pods_of[1].create(PODS, pod)
    assert (answer.code, words in answer.message) == (403, True), answer.content


def test_the_operator_creates_a_privileged_pod_where_the_namespace_says_that_it_may_be(
    pods_of: tuple[API, API],
) -> None:
    admin, operator = pods_of
    path = "/api/v1/namespaces/deploy-tests-privileged"
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    metadata = {"name": "deploy-tests-privileged", "labels": labels}
    assert admin.apply(path, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).allowed
    have_default_account(admin, path)
    created = operator.create(f"{path}/pods", gated_pod(containers=[PRIVILEGED], hostNetwork=True))
    assert created.allowed, created.message
    admin.delete(path)


@pytest.mark.parametrize(
    "namespace", ["kube-system", "kube-public", "kube-node-lease", "topomend-agent", "topomend-system"]
)
def test_the_operator_creates_no_pod_where_accounts_may_do_much(pods_of: tuple[API, API], namespace: str) -> None:
    answer = pods_of[1].create(f"/api/v1/namespaces/{namespace}/pods", gated_pod(containers=[RESTRICTED]))
    assert (answer.code, f"may not create pods in {namespace}" in answer.message) == (403, True), answer.content


def test_the_operator_creates_no_pod_beside_itself_in_a_namespace_without_topomends_label(
    pods_of: tuple[API, API],
) -> None:
    """Somebody else may have made the operator's namespace."""
    admin, operator = pods_of
    home, label = "/api/v1/namespaces/topomend-system", "app.kubernetes.io/name"

    def is_denied() -> bool:
        answer = operator.create(f"{home}/pods", gated_pod(containers=[RESTRICTED]), dry_run=True)
        return (answer.code, "may not create pods in topomend-system" in answer.message) == (403, True)

    assert admin.patch(home, {"metadata": {"labels": {label: None}}}).allowed
    try:
        consistently("denied", is_denied, 1)  # which the policy is to learn first
    finally:
        assert admin.patch(home, {"metadata": {"labels": {label: "topomend"}}}).allowed


def test_a_pod_cannot_be_held_and_bound_at_once(pods_of: tuple[API, API]) -> None:
    pod = new_pod(gates=(group.RELAUNCH_GATE,), annotations=OURS, nodeName=NOWHERE)
    assert pods_of[1].create(PODS, pod).code == 422


def test_the_policy_lets_the_whole_protocol_through(pods_of: tuple[API, API]) -> None:
    """With the protocol's own requests, in its order."""
    admin, operator = pods_of
    # A pod that its scheduler has tried could be claimed again.
    path = existing(admin, REFUSED, tolerations=[{"key": "gpu", "operator": "Exists"}], schedulerName="nobody")
    stripped = manifest.stripped(operator.get(path).content)
    name = path.rpartition("/")[2]
    assert operator.patch(path, manifest.claim(operator.get(path).content, "x")).allowed
    assert operator.create(RELAUNCHES, record(name, name)).allowed
    committed = {"status": {"step": "Committed"} | manifest_status(stripped)}
    assert operator.patch(f"{RELAUNCHES}/{name}/status", committed).allowed
    assert operator.delete(path).allowed
    eventually("it to be let go", lambda: _is_let_go(operator, path))
    assert operator.get(path).code == 404
    created = operator.create(PODS, manifest.replacement(read_relaunch(operator.get(f"{RELAUNCHES}/{name}").content)))
    assert created.allowed, created.message
    patch = manifest.launch(read_watched_pod(operator.get(path).content), Narrowing(("node-1", "node-2")))
    launched = operator.patch(path, patch)
    assert launched.allowed, launched.message
    assert "schedulingGates" not in launched.content["spec"]
    assert operator.patch(path, {"metadata": {"annotations": {group.RECORD_ANNOTATION: "y"}}}).code == 403
    assert operator.delete(path).code == 403
    assert operator.delete(f"{RELAUNCHES}/{name}").allowed


def test_the_operator_lets_go_of_whatever_carries_its_finalizer(pods_of: tuple[API, API]) -> None:
    admin, operator = pods_of
    path = existing(admin, {"phase": "Failed", "reason": "Evicted"})
    assert admin.patch(path, {"metadata": {"finalizers": [group.RELAUNCH_FINALIZER]}}).allowed
    assert operator.patch(path, manifest.unclaim(operator.get(path).content)).allowed


def test_the_operator_narrows_and_releases_a_pod_that_was_held_at_birth(pods_of: tuple[API, API]) -> None:
    admin, operator = pods_of
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    released = operator.patch(
        existing(admin, gates=("topomend.io/fit", "other.io/gate")),
        {"spec": {"affinity": {"nodeAffinity": required}, "schedulingGates": [{"name": "other.io/gate"}]}},
    )
    assert released.allowed, released.message


SPEC = "in a pod's spec the operator may change only"
METADATA = "in a pod's metadata the operator may change only"


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}], SPEC),
        ([{"op": "replace", "path": "/spec/initContainers/0/image", "value": "evil"}], SPEC),
        ([{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}], SPEC),
        ({"spec": {"nodeSelector": {"a": "b"}}}, SPEC),
        ({"spec": {"activeDeadlineSeconds": 1}}, SPEC),
        ({"spec": {"schedulingGates": [{"name": group.RELAUNCH_GATE}]}}, SPEC),
        ({"metadata": {"labels": {"app": "other"}}}, METADATA),
        ({"metadata": {"labels": {"new": "label"}}}, METADATA),
        ({"metadata": {"annotations": {"user": "two"}}}, METADATA),
        ({"metadata": {"annotations": {"user": None}}}, METADATA),
        ({"metadata": {"annotations": {"new": "one"}}}, METADATA),
        ({"metadata": {"annotations": {group.CREATOR_ANNOTATION: "admin"}}}, METADATA),
        ({"metadata": {"finalizers": ["other.io/finalizer"]}}, METADATA),
        ({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}]}}, METADATA),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:60],
)
def test_the_operator_changes_nothing_else_of_a_pod(pods_of: tuple[API, API], patch: Any, words: str) -> None:
    admin, operator = pods_of
    init = [{"name": "i", "image": "none"}]
    pod = existing(admin, gates=(group.RELAUNCH_GATE, "other.io/gate"), annotations=OURS, initContainers=init)
    answer = operator.patch(pod, patch)
    assert (answer.code, words in answer.message) == (403, True), answer.message


def test_the_operator_takes_no_foreign_finalizer_away(pods_of: tuple[API, API]) -> None:
    admin, operator = pods_of
    pod = existing(admin, REFUSED)
    assert admin.patch(pod, {"metadata": {"finalizers": ["other.io/finalizer"]}}).allowed
    assert operator.patch(pod, {"metadata": {"finalizers": None}}).code == 403


@pytest.mark.parametrize("status", [{"phase": "Running"}, {"phase": "Failed", "reason": "Evicted"}])
def test_the_operator_changes_nothing_at_all_of_a_pod_that_is_no_business_of_its(
    pods_of: tuple[API, API], status: dict[str, str]
) -> None:
    admin, operator = pods_of
    answer = operator.patch(existing(admin, status), {"metadata": {"annotations": {group.RECORD_ANNOTATION: "x"}}})
    assert (answer.code, "may change only refused pods" in answer.message) == (403, True)


def test_the_policy_knows_every_reason_by_which_a_kubelet_refuses_for_topology() -> None:
    policy = documents((DEPLOY / "base" / "operator-policy.yaml").read_text())[0]
    refused = next(variable for variable in policy["spec"]["variables"] if variable["name"] == "refused")["expression"]
    for reason in (
        *REASONS,
        errors.TOPOLOGY_AFFINITY_ERROR,
        errors.SMT_ALIGNMENT_ERROR,
        errors.EMPTY_POD_SHARED_POOL_ERROR,
        errors.UNEXPECTED_ADMISSION_ERROR,
        errors.MESSAGE_PREFIX,
    ):
        assert f"'{reason}'" in refused


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/kube-system/secrets",
        f"/api/v1/namespaces/{NAMESPACE}/secrets",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps",
        "/api/v1/namespaces/topomend-system/configmaps/other",
        "/api/v1/namespaces/topomend-system/secrets/other",
        f"{PODS}/any/log",
        f"{PODS}/any/exec?command=sh",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    ],
)
def test_the_operator_does_not_read_what_is_none_of_its_business(pods_of: tuple[API, API], path: str) -> None:
    assert pods_of[1].get(path).code == 403


def test_the_operator_does_not_act_as_another(pods_of: tuple[API, API]) -> None:
    operator = pods_of[1]
    assert operator.impersonating("system:serviceaccount:kube-system:default").get(PODS).code == 403
    assert operator.impersonating("admin", "system:masters").get(PODS).code == 403


@pytest.mark.parametrize(
    ("namespace", "code"), [(NAMESPACE, 201), ("kube-system", 403), ("topomend-system", 403), ("topomend-agent", 403)]
)
def test_the_operator_evicts_no_pods_of_the_clusters_own_namespaces(
    namespace: str, code: int, pods_of: tuple[API, API]
) -> None:
    admin, operator = pods_of
    pods = f"/api/v1/namespaces/{namespace}/pods"
    have_default_account(admin, f"/api/v1/namespaces/{namespace}")
    made = admin.create(pods, new_pod(containers=[RESTRICTED], nodeName=NOWHERE))
    assert made.allowed, made.message
    name = made.content["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    options = {"deleteOptions": {"dryRun": ["All"]}}
    try:
        assert operator.create(f"{pods}/{name}/eviction", eviction | options).code == code
    finally:
        admin.delete(f"{pods}/{name}")


def test_the_operator_binds_and_marks_no_pod_and_deletes_no_collection(pods_of: tuple[API, API]) -> None:
    admin, operator = pods_of
    path = existing(admin, gates=(group.RELAUNCH_GATE,), annotations=OURS)
    name = path.rpartition("/")[2]
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": "n"}}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    grant = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "roleRef": role}
    for answer in (
        operator.create(f"{path}/binding", binding),
        operator.patch(f"{path}/status", {"status": {"phase": "Failed"}}),
        operator.patch(f"{path}/resize", {"spec": {}}),
        operator.patch(f"{path}/ephemeralcontainers", {"spec": {}}),
        operator.delete(PODS),
        operator.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token", token),
        operator.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", grant | {"metadata": {"name": "mine"}}
        ),
        operator.patch(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": {"a": "b"}}}),
        operator.delete("/api/v1/nodes/pods"),
    ):
        assert answer.code == 403, answer.content


# Relaunch records


def record(name: str, pod: str = "train-9") -> dict[str, Any]:
    return {
        "apiVersion": group.API_VERSION,
        "kind": group.RELAUNCH,
        "metadata": {"name": name},
        "spec": {
            "pod": {"name": pod, "uid": "1"},
            "refusedBy": "node-1",
            "reason": "TopologyAffinityError",
            "attempt": 1,
            "manifestHash": "0f" * 32,
        },
    }


@pytest.fixture(scope="module")
def tenant(admin: API) -> API:
    """Somebody who may do everything in the namespace, and nothing outside it."""
    one = tenant_of(admin)
    eventually("the tenant's role", lambda: one.get(RELAUNCHES).allowed)
    return one


def test_only_the_operator_and_administrators_write_relaunch_records(admin: API, operator: API, tenant: API) -> None:
    eventually("the records' policy", lambda: tenant.create(RELAUNCHES, record("forged")).code == 403)
    answer = tenant.create(RELAUNCHES, record("forged"))
    assert "only topomend's operator may write" in answer.message
    for name, writer in (("ours", operator), ("theirs", admin)):
        assert writer.create(RELAUNCHES, record(name)).allowed
        assert writer.patch(f"{RELAUNCHES}/{name}/status", {"status": {"step": "Committed"}}).allowed
        assert tenant.get(f"{RELAUNCHES}/{name}").allowed
        for path in (f"{RELAUNCHES}/{name}", f"{RELAUNCHES}/{name}/status"):
            answer = tenant.patch(path, {"status": {"step": "Created", "newPod": {"uid": "2"}}})
            assert answer.code == 403
        assert tenant.delete(f"{RELAUNCHES}/{name}").allowed


@pytest.mark.parametrize(("plural", "kind"), [("brakes", group.BRAKE), ("steerings", group.STEERING)])
def test_only_the_operator_and_administrators_write_what_the_gating_policies_read(
    admin: API, operator: API, tenant: API, plural: str, kind: str
) -> None:
    path = f"/apis/{group.API_VERSION}/namespaces/{NAMESPACE}/{plural}"
    content = {"apiVersion": group.API_VERSION, "kind": kind, "metadata": {"name": "forged"}}
    eventually("the parameters' policy", lambda: tenant.create(path, content).code == 403)
    assert "only topomend's operator may write" in tenant.create(path, content).message
    home = f"/apis/{group.API_VERSION}/namespaces/topomend-system/{plural}"
    name = {"brakes": group.BRAKE_NAME, "steerings": group.STEERING_NAME}[plural]
    admin.delete(f"{home}/{name}")
    assert operator.create(home, content | {"metadata": {"name": name}}).allowed
    assert operator.patch(f"{home}/{name}", {"metadata": {"labels": {"a": "b"}}}).allowed
    assert admin.create(path, content).allowed
    assert tenant.patch(f"{path}/forged", {"metadata": {"labels": {"a": "b"}}}).code == 403
    assert tenant.delete(f"{path}/forged").allowed


@pytest.mark.parametrize("definition", ["brake", "steer"])
def test_the_operators_own_namespaces_are_never_gated(definition: str) -> None:
    """They are labelled; the operator's is named too, for somebody else may have made it."""
    gating = policies(definition)[0]["spec"]
    expressions = gating["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert {expression["operator"] for expression in expressions} == {"NotIn"}
    excluded = {expression["key"]: expression["values"] for expression in expressions}
    assert excluded == {
        "kubernetes.io/metadata.name": ["kube-system", "topomend-system"],
        "app.kubernetes.io/name": ["topomend"],
    }
    ours = [item["metadata"] for item in objects() if item["kind"] == "Namespace"]
    assert {metadata["labels"]["app.kubernetes.io/name"] for metadata in ours} == {"topomend"}
    assert {metadata["name"] for metadata in ours} | {"kube-system"} == set(group.UNGATED_NAMESPACES)


def test_a_record_never_changes_what_is_to_be_created(admin: API) -> None:
    assert admin.create(RELAUNCHES, record("fixed")).allowed
    path = f"{RELAUNCHES}/fixed"
    for patch in ({"attempt": 2}, {"manifestHash": "0e" * 32}, {"replacementName": "x"}, {"pod": {"uid": "2"}}):
        answer = admin.patch(path, {"spec": patch})
        assert (answer.code, "a relaunch record cannot change" in answer.message) == (422, True)
    assert admin.patch(path, {"metadata": {"labels": {"a": "b"}}}).allowed
    assert admin.delete(path).allowed


@pytest.mark.parametrize("writer", ["administrator", "operator"])
def test_nobody_makes_a_record_name_another_replacement_than_was_created(
    admin: API, operator: API, writer: str
) -> None:
    """The operator would take the created one for a duplicate and delete it, and nothing of the pod would be left."""
    account = operator if writer == "operator" else admin
    name = f"named-by-{writer}"
    assert admin.create(RELAUNCHES, record(name)).allowed
    status = f"{RELAUNCHES}/{name}/status"
    for change in ({"step": "Committed"}, {"step": "Created", "newPod": {"name": "train-9", "uid": "2"}}):
        assert account.patch(status, {"status": change}).allowed
    for forged in ({"uid": "3"}, {"uid": None}, None):
        answer = account.patch(status, {"status": {"newPod": forged}})
        assert (answer.code, "cannot name another replacement" in answer.message) == (422, True)
    # As the protocol does: the refused pod still exists, so its relaunch begins anew.
    for change in ({"step": "Committed"}, {"step": "Created", "newPod": {"uid": "3"}}, {"step": "Launched"}):
        assert account.patch(status, {"status": change}).allowed
    assert account.patch(status, {"status": {"newPod": {"uid": "4"}}}).code == 422
    assert admin.delete(f"{RELAUNCHES}/{name}").allowed
