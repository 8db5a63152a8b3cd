"""The operator under its own account, on a cluster with our accounts, roles and policies: fixtures to import."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from deploy.manifests import objects
from tests.clusters import Cluster, every_policy, pod, wait_until_no_policy_acts
from tests.deploy.api import API, Answer, administrator, path_of
from tests.deploy.conftest import token_of
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.wire.group import CREATOR_ANNOTATION

PODS = "/api/v1/namespaces/default/pods"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


@pytest.fixture
def admin(two_nodes: Cluster) -> Iterator[API]:
    """The administrator of a cluster with our accounts, roles and policies. The policies are removed afterwards."""
    api = administrator(two_nodes.sandbox.kubeconfig)
    applied = [item for item in objects() if item["kind"] not in ("DaemonSet", "Deployment")]
    applied += every_policy()  # before an operator does that
    for item in applied:
        answer = api.apply(path_of(item), item)
        assert answer.allowed, answer.message
    thief = api.as_token(token_of(api, "topomend-system", "topomend-operator"))
    unmarked = pod("probe", 1)
    eventually(
        "the policies", lambda: "may create only pods that name" in thief.create(PODS, unmarked, dry_run=True).message
    )
    yield api
    for item in applied:
        if item["apiVersion"].startswith("admissionregistration.k8s.io/"):
            assert api.delete(path_of(item)).code in (200, 404)  # policies go with their configurations
    wait_until_no_policy_acts(two_nodes)


@pytest.fixture
def start(
    two_nodes: Cluster, admin: API, tmp_path: Path, start_operator: Callable[..., Operator]
) -> Callable[[], Operator]:
    """Start the operator under its own account."""
    configuration = yaml.safe_load(two_nodes.sandbox.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": token_of(admin, "topomend-system", "topomend-operator")}
    path = tmp_path / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    path.chmod(0o600)

    def started() -> Operator:
        operator = start_operator(kubeconfig=path)
        operator.wait_until_it_watches()
        return operator

    return started


@pytest.fixture
def operator(start: Callable[[], Operator]) -> Operator:
    """An operator that has seen the cluster."""
    return start()


def user_of_pods(admin: API, name: str, *verbs: str) -> API:
    """An account of the namespace ``default`` that has these verbs on pods there, by a role of its own name."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    assert admin.apply(f"/api/v1/namespaces/default/serviceaccounts/{name}", account).allowed
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]
    assert admin.apply(f"{ROLES}/roles/{name}", head | {"kind": "Role", "rules": rules}).allowed
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    binding = head | {"kind": "RoleBinding", "subjects": [subject], "roleRef": reference}
    assert admin.apply(f"{ROLES}/rolebindings/{name}", binding).allowed
    return admin.as_token(token_of(admin, "default", name))


def is_stamped(answer: Answer) -> bool:
    """Whether a pod was created with the name of its creator."""
    return answer.allowed and CREATOR_ANNOTATION in answer.content["metadata"].get("annotations", {})
