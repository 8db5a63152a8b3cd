"""What the webhook answers: gates, stamps and notes, and that it never denies a pod. No API server."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.gating.review import Parameter, answered, stamp
from topomend.wire.group import CHANGED_ANNOTATION, FIT_GATE, UNREVIEWABLE

OPTED_OUT = ("without-us",)
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
VALID = Parameter(exists=True, valid_until="2026-01-02T03:04:01Z", owners=frozenset({"u1"}))
USER = {"username": "jane", "groups": ["dev", "system:authenticated"]}


def patch_of(definition: str, pod: dict[str, Any], parameter: Parameter = VALID, **request: Any) -> list[Any]:
    of_pod = {"uid": "1", "namespace": "ns", "object": pod, "userInfo": USER}
    review = {"apiVersion": "admission.k8s.io/v1", "request": {**of_pod, **request}}
    response = answered(review, definition, parameter, NOW, OPTED_OUT.__contains__)["response"]
    assert (response["uid"], response["allowed"]) == ("1", True)
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    return list(json.loads(base64.b64decode(response.get("patch", "W10="))))


def pod(**metadata: Any) -> dict[str, Any]:
    return pod_manifest("p", {"name": "main", "image": "x"}, **metadata)


def of_controller(uid: str) -> dict[str, Any]:
    return pod(ownerReferences=[{"kind": "ReplicaSet", "name": "r", "uid": uid, "controller": True}])


def test_a_pod_gets_the_gate_beside_those_of_others_and_once() -> None:
    gate = {"name": FIT_GATE}
    assert patch_of("steer", pod()) == [{"op": "add", "path": "/spec/schedulingGates", "value": [gate]}]
    other = pod()
    other["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    assert patch_of("steer", other) == [{"op": "add", "path": "/spec/schedulingGates/-", "value": gate}]
    other["spec"]["schedulingGates"].append(gate)
    assert patch_of("steer", other) == []


@pytest.mark.parametrize(
    ("parameter", "is_gated"),
    [
        (Parameter(), False),
        (Parameter(exists=True), True),
        (VALID, True),
        (Parameter(exists=True, valid_until="2026-01-02T03:04:00Z"), False),
    ],
    ids=["no object", "no limit", "renewed", "lapsed"],
)
def test_pods_are_gated_while_an_operator_renews_the_parameter(parameter: Parameter, is_gated: bool) -> None:
    assert bool(patch_of("steer", pod(), parameter)) == is_gated


def test_the_brake_gates_the_pods_of_controllers_on_its_list_alone() -> None:
    assert patch_of("brake", of_controller("u1"))
    assert not patch_of("brake", of_controller("u2"))
    assert not patch_of("brake", pod())
    owner = {"kind": "ReplicaSet", "name": "r", "uid": "u1"}
    assert not patch_of("brake", pod(ownerReferences=[owner]))


@pytest.mark.parametrize(
    ("annotations", "is_gated"),
    [({}, False), ({"topomend.io/relaunch": "true"}, True), ({"topomend.io/relaunch": "yes"}, True)],
    ids=["none", "true", "neither"],
)
def test_in_a_namespace_that_opted_out_only_pods_with_a_value_of_their_own_are_gated(
    annotations: dict[str, str], is_gated: bool
) -> None:
    """Of a value that is none the operator tells; and what a condition sees is not asked here."""
    content = pod(annotations=annotations)
    assert bool(patch_of("steer", content, namespace="without-us")) == is_gated
    content["metadata"]["ownerReferences"] = of_controller("u1")["metadata"]["ownerReferences"]
    assert bool(patch_of("brake", content, namespace="without-us")) == is_gated
    assert patch_of("brake", content)


def test_a_stamp_takes_the_place_of_one_that_the_creator_wrote() -> None:
    forged = pod(annotations={"topomend.io/creator": "admin"})
    (change,) = patch_of("creator", forged)
    assert change == {"op": "add", "path": "/metadata/annotations/topomend.io~1creator", "value": "jane\ndev"}
    (change,) = patch_of("creator", pod())
    assert change == {"op": "add", "path": "/metadata/annotations", "value": {"topomend.io/creator": "jane\ndev"}}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"username": "jane", "groups": ["dev", "system:authenticated"]}, "jane\ndev"),
        ({"username": "system:serviceaccount:a:b", "groups": ["system:serviceaccounts"]}, "system:serviceaccount:a:b"),
        ({"username": "jane", "extra": {"scopes.example.com/x": ["y"]}}, UNREVIEWABLE),
        ({"username": "jane", "extra": {"authentication.kubernetes.io/credential-id": ["y"]}}, "jane"),
        ({"username": "jane", "groups": ["a\nsystem:masters"]}, UNREVIEWABLE),
    ],
    ids=["a user", "an account", "scopes", "a token's id", "a line break"],
)
def test_a_stamp_holds_what_a_review_can_be_asked_about(user: dict[str, Any], expected: str) -> None:
    assert stamp(user) == expected


def test_a_note_names_what_was_written_after_the_creation_and_only_grows() -> None:
    before = pod(annotations={"a": "1", "kept": "x", "topomend.io/changed": "old"}, labels={"l": "1"})
    after = pod(
        annotations={"a": "2", "kept": "x", "b": "1", "topomend.io/relaunch": "false", "topomend.io/changed": "old"},
        labels={"l": "2"},
    )
    (change,) = patch_of("changes", after, oldObject=before)
    assert change["path"] == "/metadata/annotations/topomend.io~1changed"
    assert change["value"] == "old a b label:l"
    noted = pod(annotations={"a": "1", "topomend.io/changed": "a"})
    assert not patch_of("changes", pod(annotations={"a": "3", "topomend.io/changed": "a"}), oldObject=noted)


class Counted(str):
    """A key that counts with how many others all such keys are compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_a_note_of_thousands_of_keys_is_not_searched_for_each_of_thousands_that_are_written() -> None:
    before = pod(annotations={CHANGED_ANNOTATION: " ".join(f"noted-{number}" for number in range(3_000))})
    written = pod(annotations={Counted(f"written-{number}"): "x" for number in range(3_000)})
    Counted.compared = 0
    assert patch_of("changes", written, oldObject=before)
    assert Counted.compared < 30_000


@pytest.mark.parametrize("review", [{}, {"request": {}}, {"request": {"uid": "1", "object": {}}}, {"request": 3}])
def test_what_is_no_review_is_an_error_of_the_one_who_asks(review: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        answered({"apiVersion": "admission.k8s.io/v1", **review}, "steer", VALID, NOW, OPTED_OUT.__contains__)
