"""What the manifests install, put into the sandbox; the programs themselves stay out: their accounts are tried here."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deploy.manifests import DEPLOY, objects
from tests.clusters import every_policy
from tests.deploy.api import API, administrator, have_node, path_of
from tests.publish.schema import DEFINITION
from tests.waiting import eventually

from topomend.runtime.manifests import documents
from topomend.sandbox import Sandbox
from topomend.wire.published import node_resource_topology as zones

NAMESPACE = "deploy-tests"
_WORKLOADS = {"DaemonSet", "Deployment"}

TOKEN_SECONDS = 4 * 3600
"""Longer than a run of all tests: one token is for all tests of a session."""


def token_of(admin: API, namespace: str, account: str, pod: dict[str, Any] | None = None) -> str:
    """A token of an account, bound to ``pod`` as a kubelet asks for it, or to nothing."""
    spec: dict[str, Any] = {"expirationSeconds": TOKEN_SECONDS}
    if pod is not None:
        spec["boundObjectRef"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
    answer = admin.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
    )
    assert answer.allowed, answer.message
    return str(answer.content["status"]["token"])


def tenant_of(admin: API) -> API:
    """Somebody who may do everything in the namespace of these tests, and nothing outside it."""
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "tenant"}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}}
    assert admin.apply(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/tenant", account).allowed
    assert admin.apply(f"{roles}/roles/tenant", head | {"kind": "Role", "rules": rules}).allowed
    binding = head | {"kind": "RoleBinding", "subjects": [subject], "roleRef": reference}
    assert admin.apply(f"{roles}/rolebindings/tenant", binding).allowed
    return admin.as_token(token_of(admin, NAMESPACE, "tenant"))


def _applied(api: API, item: dict[str, Any]) -> bool:
    answer = api.apply(path_of(item), item)
    assert answer.allowed or "being terminated" in answer.message, answer.message
    return answer.allowed


@pytest.fixture(scope="session")
def admin(cluster: Sandbox) -> Iterator[API]:
    """The administrator of a cluster with our kinds, accounts, roles and policies; all but the kinds go at the end."""
    api = administrator(cluster.kubeconfig)
    installed = [item for item in objects() if item["kind"] not in _WORKLOADS]
    installed += every_policy()  # by the operator, as a rule
    installed.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for item in installed:
        eventually(f"a namespace of {path_of(item)} that is not just ending", functools.partial(_applied, api, item))
    yield api
    for item in installed:
        if item["kind"] != "CustomResourceDefinition":
            api.delete(path_of(item))


@pytest.fixture(scope="module")
def agent_on(admin: API) -> Iterator[Callable[[str], API]]:
    """The agent's account as its pod on the given node has it. A node that does not exist is made: the tokens of pods
    that are removed are worth nothing."""
    nodes, pods = "/api/v1/nodes", "/api/v1/namespaces/topomend-agent/pods"
    made = []

    def agent(node: str) -> API:
        name = f"agent-{node}"
        if have_node(admin, node):
            made.append(f"{nodes}/{node}")
        spec = {
            "serviceAccountName": "topomend-agent",
            "nodeName": node,
            "containers": [{"name": "agent", "image": "none"}],
        }
        pod = admin.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        assert pod.allowed, pod.message
        made.append(f"{pods}/{name}")
        return admin.as_token(token_of(admin, "topomend-agent", "topomend-agent", pod.content))

    yield agent
    for path in reversed(made):
        admin.delete(path)


@pytest.fixture(scope="session")
def operator(admin: API) -> API:
    """The operator's account."""
    return admin.as_token(token_of(admin, "topomend-system", "topomend-operator"))


NOWHERE = "deploy-tests-none"
"""A node without a kubelet: what is bound to it never runs, and is not removed either."""


@pytest.fixture(scope="module")
def nowhere(admin: API) -> Iterator[None]:
    """That node."""
    have_node(admin, NOWHERE)
    yield
    admin.delete(f"/api/v1/nodes/{NOWHERE}")


@pytest.fixture(scope="module")
def zones_kind(admin: API) -> Iterator[None]:
    """The kind NodeResourceTopology and the role of the overlay that has agents write it; gone afterwards."""
    role = DEPLOY / "components" / "node-resource-topology" / "role.yaml"
    items = [DEFINITION, *documents(role.read_text())]
    served = f"/apis/{zones.API_VERSION}/noderesourcetopologies"
    for item in items:
        assert admin.apply(path_of(item), item).allowed
    eventually("the kind", lambda: admin.get(served).allowed)
    yield
    for item in reversed(items):
        admin.delete(path_of(item))
    eventually("the kind's end", lambda: not admin.get(path_of(DEFINITION)).allowed)
