"""The installation that strangers attack: that of tests/deploy, and accounts with the rights that users have."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.deploy.api import API, have_default_account
from tests.deploy.conftest import admin, agent_on, operator, token_of
from tests.waiting import eventually

__all__ = ["admin", "agent_on", "operator"]

PLAIN = "attacks"
"""A namespace that is not steered."""


@pytest.fixture(scope="session")
def attacked(admin: API) -> Iterator[str]:
    """The path of that namespace, once pods can be created in it."""
    path = new_namespace(admin, PLAIN)
    yield path
    admin.delete(path)


@pytest.fixture(scope="module")
def plain(admin: API, attacked: str) -> Iterator[str]:
    """The same. The pods of a module go with it."""
    yield attacked
    for item in admin.get(f"{attacked}/pods").content["items"]:
        path = f"{attacked}/pods/{item['metadata']['name']}"
        admin.patch(path, {"metadata": {"finalizers": None}})
        admin.delete(path)


def new_namespace(admin: API, name: str, **labels: str) -> str:
    """Create a namespace with an account for its pods. Returns its path."""
    path = f"/api/v1/namespaces/{name}"
    metadata = {"name": name, "labels": labels}
    assert admin.apply(path, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).allowed
    have_default_account(admin, path)
    return path


@pytest.fixture(scope="module")
def member(admin: API, plain: str) -> Callable[[str], API]:
    """An account of the namespace with one of Kubernetes' own roles in it, such as ``edit``."""

    def with_role(role: str) -> API:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": role}}
        assert admin.apply(f"{plain}/serviceaccounts/{role}", account).allowed
        binding: dict[str, Any] = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role},
            "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": PLAIN}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        }
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{PLAIN}/rolebindings/{role}"
        assert admin.apply(path, binding).allowed
        one = admin.as_token(token_of(admin, PLAIN, role))
        eventually(f"the role {role}", lambda: one.get(f"{plain}/pods").allowed)
        return one

    return with_role
