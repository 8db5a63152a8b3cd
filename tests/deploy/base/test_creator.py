"""A pod is stamped with its creator, and no user can forge the stamp; on a real API server."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.deploy.api import API
from tests.deploy.conftest import NAMESPACE, tenant_of
from tests.waiting import eventually

from topomend.wire.group import CREATOR_ANNOTATION, RELEASED_ANNOTATION, REPLACES_ANNOTATION, UNREVIEWABLE

pytestmark = pytest.mark.cluster  # needs a real API server: admission policies run nowhere else

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LIMITS = {"limits": {"cpu": "2", "memory": "1Gi"}}
WORDS = "only topomend's operator writes or removes topomend.io/"
TENANT = f"system:serviceaccount:{NAMESPACE}:tenant"

JANE = 'cn=jane "j",o=a/b~1\\n'
"""A user whose name means something in JSON and in the paths of a patch."""

_names = (f"created-{number}" for number in count())


def pod(*, resources: Any = None, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": LIMITS if resources is None else resources}
    gates = [{"name": "other.io/gate"}]  # nothing is to run
    named = {"name": next(_names), **metadata}
    spec = {"containers": [container], "schedulingGates": gates}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}


@pytest.fixture(scope="module")
def tenant(admin: API) -> Iterator[API]:
    one = tenant_of(admin)
    eventually("the policy", lambda: one.create(PODS, pod(annotations={RELEASED_ANNOTATION: "true"})).code == 403)
    eventually("the stamping policy", lambda: bool(stamp(one.create(PODS, pod()).content)))
    yield one
    for item in admin.get(PODS).content["items"]:
        admin.delete(f"{PODS}/{item['metadata']['name']}")


def stamp(content: dict[str, Any]) -> str:
    return str(content["metadata"].get("annotations", {}).get(CREATOR_ANNOTATION, ""))


def test_a_pod_that_a_kubelet_would_align_says_who_created_it_and_nothing_that_follows_from_that(
    admin: API, tenant: API
) -> None:
    assert stamp(tenant.create(PODS, pod()).content) == TENANT
    user = admin.impersonating("jane", "system:masters")
    assert stamp(user.create(PODS, pod()).content).split("\n") == ["jane", "system:masters"]


@pytest.mark.parametrize("annotations", [None, {}, {"a/b_c": "d", "topomend.io/alignment": "single-numa-node"}])
def test_a_stamp_is_beside_the_pods_other_annotations(admin: API, annotations: dict[str, str] | None) -> None:
    user = admin.impersonating(JANE, "system:masters")
    metadata = {} if annotations is None else {"annotations": annotations}
    created = user.create(PODS, pod(**metadata))
    assert created.allowed, created.message
    stamped = {CREATOR_ANNOTATION: f"{JANE}\nsystem:masters"}
    assert created.content["metadata"]["annotations"] == (annotations or {}) | stamped


def test_the_stamp_of_a_scoped_token_names_nobody(admin: API) -> None:
    """A review about name and groups would grant what the token does not."""
    scoped = admin.impersonating("jane", "system:masters").with_extra("scopes.example.com", "read-only")
    assert stamp(scoped.create(PODS, pod()).content) == UNREVIEWABLE


@pytest.mark.parametrize(
    "content",
    [
        pod(resources={}),
        pod(
            ownerReferences=[
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": True}
            ]
        ),
    ],
    ids=["not aligned", "of a controller"],
)
def test_other_pods_are_not_touched(tenant: API, content: dict[str, Any]) -> None:
    created = tenant.create(PODS, content)
    assert created.allowed, created.message
    assert stamp(created.content) == ""


def test_who_names_another_as_creator_is_named_himself_or_refused(tenant: API) -> None:
    forged = {CREATOR_ANNOTATION: "admin\nsystem:masters"}
    assert stamp(tenant.create(PODS, pod(annotations=forged)).content) == TENANT
    answer = tenant.create(PODS, pod(resources={}, annotations=forged))
    assert (answer.code, WORDS in answer.message) == (403, True)
    own = {CREATOR_ANNOTATION: TENANT}
    assert tenant.create(PODS, pod(resources={}, annotations=own)).allowed


@pytest.mark.parametrize("key", [CREATOR_ANNOTATION, RELEASED_ANNOTATION, REPLACES_ANNOTATION])
@pytest.mark.parametrize("subresource", ["", "/status"])
def test_a_stamp_is_never_added_changed_or_removed(admin: API, tenant: API, key: str, subresource: str) -> None:
    path = f"{PODS}/{tenant.create(PODS, pod()).content['metadata']['name']}"
    for value in ("somebody", None) if key == CREATOR_ANNOTATION else ("somebody",):
        answer = tenant.patch(path + subresource, {"metadata": {"annotations": {key: value}}})
        assert (answer.code, WORDS in answer.message) == (403, True), answer.content
    assert admin.patch(path, {"metadata": {"annotations": {key: "who could change the policy as well"}}}).allowed


def test_a_stamp_is_not_added_by_binding_the_pod(tenant: API) -> None:
    name = tenant.create(PODS, pod(resources={})).content["metadata"]["name"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {CREATOR_ANNOTATION: "admin"}},
        "target": {"kind": "Node", "name": "none"},
    }
    answer = tenant.create(f"{PODS}/{name}/binding", binding)
    assert (answer.code, WORDS in answer.message) == (403, True), answer.content


def test_a_stamped_pod_is_changed_otherwise_as_ever(admin: API, tenant: API) -> None:
    path = f"{PODS}/{tenant.create(PODS, pod()).content['metadata']['name']}"
    assert tenant.patch(path, {"metadata": {"annotations": {"note": "mine"}, "labels": {"a": "b"}}}).allowed
    assert admin.patch(f"{path}/status", {"status": {"phase": "Running"}}).allowed
    assert tenant.delete(path).allowed


def test_the_api_server_counts_the_specs_of_a_pod_and_binding_it_is_none(admin: API) -> None:
    """What the operator relies on to see whether somebody changed a pod after its creation."""
    content = pod()
    del content["spec"]["schedulingGates"]
    created = admin.create(PODS, content)
    assert created.content["metadata"]["generation"] == 1
    name = created.content["metadata"]["name"]
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": "none"}}
    bound = admin.create(f"{PODS}/{name}/binding", binding)
    read = admin.get(f"{PODS}/{name}").content
    assert bound.allowed or read["spec"]["nodeName"], bound.message  # the scheduler may have been quicker
    assert read["metadata"]["generation"] == 1
    admin.patch(f"{PODS}/{name}", {"metadata": {"labels": {"a": "b"}}})
    assert admin.get(f"{PODS}/{name}").content["metadata"]["generation"] == 1
    changed = admin.patch(f"{PODS}/{name}", [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}])
    assert changed.content["metadata"]["generation"] == 2
