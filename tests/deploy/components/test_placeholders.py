"""The operator's account creates and deletes placeholders, which keep their gate: on a real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders import watched_pod
from tests.clusters import SYSTEM
from tests.deploy.api import API, have_default_account
from tests.deploy.base.test_policies import PODS
from tests.deploy.base.test_scale_up import WAITS
from tests.deploy.components.test_components import built
from tests.waiting import eventually

from topomend.relaunch.placeholder import placeholder
from topomend.wire.group import FIT_GATE, PLACEHOLDER_GATE, RELAUNCH_GATE

pytestmark = pytest.mark.cluster

OWN = f"/api/v1/namespaces/{SYSTEM}/pods"


@pytest.fixture(scope="module")
def in_force(admin: API, operator: API) -> Iterator[None]:
    """The policies, and an account for pods of the operator's namespace."""
    have_default_account(admin, f"/api/v1/namespaces/{SYSTEM}")
    eventually("the operator's policy", lambda: operator.create(OWN, made(gates=()), dry_run=True).code == 403)
    yield
    for item in admin.get(OWN).content["items"]:
        admin.delete(f"{OWN}/{item['metadata']['name']}")


def made(uid: str = "0f3e1a52", gates: tuple[str, ...] = (PLACEHOLDER_GATE,)) -> dict[str, Any]:
    """A placeholder, with other gates."""
    content = placeholder(watched_pod("waits", 3, uid=uid), SYSTEM)
    content["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return content


@pytest.mark.usefixtures("in_force")
def test_the_operator_creates_a_placeholder_has_it_ask_for_a_node_and_deletes_it(admin: API, operator: API) -> None:
    created = operator.create(OWN, made())
    assert created.allowed, created.message
    path = f"{OWN}/{created.content['metadata']['name']}"
    asked = operator.patch(f"{path}/status", {"status": {"conditions": [WAITS]}})
    assert asked.allowed, asked.message
    assert operator.delete(path).allowed
    eventually("it to be gone", lambda: admin.get(path).code == 404)


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"schedulingGates": None}},
        {"spec": {"schedulingGates": [{"name": RELAUNCH_GATE}]}},
        {"metadata": {"annotations": {"topomend.io/placeholder-for": "a/b/c"}}},
    ],
    ids=["ungated", "gated otherwise", "for another"],
)
@pytest.mark.usefixtures("in_force")
def test_the_operator_never_changes_one(admin: API, operator: API, patch: dict[str, Any]) -> None:
    created = operator.create(OWN, made("changes"))
    assert created.allowed, created.message
    path = f"{OWN}/{created.content['metadata']['name']}"
    answer = operator.patch(path, patch)
    assert operator.get(path).content["spec"]["schedulingGates"] == [{"name": PLACEHOLDER_GATE}]
    assert answer.code in (403, 422)
    admin.delete(path)


@pytest.mark.parametrize(
    "gates", [(), (FIT_GATE,), (PLACEHOLDER_GATE, FIT_GATE), (PLACEHOLDER_GATE, RELAUNCH_GATE)], ids=str
)
@pytest.mark.usefixtures("in_force")
def test_in_its_own_namespace_the_operator_creates_no_other_pod(operator: API, gates: tuple[str, ...]) -> None:
    assert operator.create(OWN, made(gates=gates)).code == 403


@pytest.mark.usefixtures("in_force")
def test_elsewhere_the_operator_neither_creates_nor_deletes_one(admin: API, operator: API) -> None:
    content = made()
    content["metadata"]["namespace"] = PODS.split("/")[4]
    assert operator.create(PODS, content).code == 403
    created = admin.create(PODS, content)
    assert created.allowed, created.message
    path = f"{PODS}/{created.content['metadata']['name']}"
    assert operator.delete(path).code == 403
    admin.delete(path)


@pytest.mark.usefixtures("in_force")
def test_a_placeholder_gets_no_more_rights_or_privileges_than_any_pod_of_the_operator(operator: API) -> None:
    content = made()
    content["spec"]["hostNetwork"] = True
    assert operator.create(OWN, content).code == 403


def test_the_component_gives_the_flag(tmp_path: Path) -> None:
    deployment = next(item for item in built(tmp_path, "placeholders") if item["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--placeholders"
