"""A pod is read as one that may have to go by the fields that its list has, whatever keeps it."""

import json
from typing import Any

import msgspec
import pytest
from tests.asked_fields import Asked, left_out
from tests.builders import pod_manifest

from topomend.cli.numa.cluster.pods.occupants import _bound
from topomend.wire.pods.pod_usage import UsageReader
from topomend.wire.shapes import BoundPod

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f", "uid": "o", "controller": True}


def bound(**metadata: Any) -> dict[str, Any]:
    metadata = {"namespace": "x", "uid": "u", **metadata}
    return pod_manifest("p", "cpu=2", node="a", status={"phase": "Running"}, **metadata)


PODS = {
    "alone": bound(),
    "of a Deployment": bound(ownerReferences=[OWNER], labels={"pod-template-hash": "5d8f", "app": "web"}),
    "of a DaemonSet": bound(ownerReferences=[OWNER | {"kind": "DaemonSet"}]),
    "of a file": bound(annotations={"kubernetes.io/config.mirror": "x"}),
    "leaving": bound(deletionTimestamp="2026-11-28T00:00:00Z"),
    "critical": bound() | {"spec": bound()["spec"] | {"priorityClassName": "system-node-critical", "priority": 7}},
    "malformed": bound(ownerReferences=[{"kind": 3}]),
}


@pytest.mark.parametrize("content", PODS.values(), ids=PODS)
def test_a_pod_is_read_of_its_shape(content: dict[str, Any]) -> None:
    seen = set[str]()
    whole = _bound(Asked(content, seen), UsageReader())
    assert left_out(seen, BoundPod) == set()
    shaped: Any = msgspec.json.decode(json.dumps(content), type=BoundPod)
    assert shaped["spec"].keys() == content["spec"].keys()
    assert "phase" not in shaped["status"]
    assert _bound(shaped, UsageReader()) == whole
