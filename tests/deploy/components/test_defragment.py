"""The component that has the operator move pods: its flag, and its rights on a real API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy.manifests import DEPLOY
from tests.deploy.api import API, path_of
from tests.deploy.base.test_renamed import HOME, OPERATOR, PREFIX, renamed
from tests.deploy.components.test_components import built
from tests.waiting import eventually

from topomend.runtime.manifests import documents

pytestmark = pytest.mark.cluster

LISTED = ("/apis/apps/v1/replicasets", "/apis/apps/v1/statefulsets", "/apis/policy/v1/poddisruptionbudgets")


@pytest.fixture(scope="module")
def component(admin: API) -> Iterator[None]:
    """The role, in force."""
    items = documents((DEPLOY / "components" / "defragment" / "role.yaml").read_text())
    for item in items:
        answer = admin.apply(path_of(item), item)
        assert answer.allowed, answer.message
    yield
    for item in items:
        admin.delete(path_of(item))


def test_the_component_gives_the_flag(tmp_path: Path) -> None:
    deployment = next(item for item in built(tmp_path, "defragment") if item["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--defragment"


def test_under_another_name_the_right_is_that_of_the_renamed_operator(tmp_path: Path) -> None:
    name = f"{PREFIX}topomend-defragment"
    [role] = (
        item
        for item in renamed(tmp_path, "defragment")
        if item["kind"] == "ClusterRoleBinding" and item["metadata"]["name"] == name
    )
    assert role["subjects"] == [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": HOME}]


@pytest.mark.usefixtures("component")
def test_with_the_component_the_operator_lists_what_a_campaign_asks_for(operator: API) -> None:
    for path in LISTED:
        eventually(f"{path} to be listed", lambda: operator.get(path).allowed)  # noqa: B023
