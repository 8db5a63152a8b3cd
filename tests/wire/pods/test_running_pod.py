"""Which containers of a Pod object run, and for which workload."""

from typing import Any

import pytest

from topomend.model.pods.scheduling import Owner
from topomend.wire.document import MalformedObject
from topomend.wire.pods.running_pod import read_running_pod

RUNS, WAITS, ENDED = {"running": {"startedAt": "now"}}, {"waiting": {"reason": "x"}}, {"terminated": {"exitCode": 0}}


def pod(*, owner: dict[str, Any] | None = None, labels: dict[str, str] | None = None, **states: Any) -> dict[str, Any]:
    """A Pod whose containers are in ``states``; those whose names begin with ``init`` are init containers."""
    names = list(states) or ["main"]
    initial = [name for name in names if name.startswith("init")]
    statuses = [{"name": name, "state": state} for name, state in states.items()]
    references = [{"controller": True, "uid": "u", **owner}] if owner else []
    return {
        "metadata": {"namespace": "d", "name": "p", "uid": "u", "ownerReferences": references, "labels": labels or {}},
        "spec": {
            "nodeName": "n",
            "initContainers": [{"name": name} for name in initial],
            "containers": [{"name": name} for name in names if name not in initial] or [{"name": "main"}],
        },
        "status": {
            "initContainerStatuses": [status for status in statuses if status["name"] in initial],
            "containerStatuses": [status for status in statuses if status["name"] not in initial],
        },
    }


def test_only_containers_that_run_now_are_running() -> None:
    read = read_running_pod(pod(init0=ENDED, init1=RUNS, main=WAITS, sidecar=RUNS))
    assert (read.node, read.running) == ("n", frozenset({"init1", "sidecar"}))
    assert read_running_pod(pod()).running == frozenset()


def test_the_workload_of_a_replica_set_is_its_deployment() -> None:
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-64b68975d7"}
    marked = pod(owner=replica_set, labels={"pod-template-hash": "64b68975d7"})
    assert read_running_pod(marked).owner == Owner("Deployment", "web", "", "apps/v1")


@pytest.mark.parametrize(
    ("kind", "name", "labels"),
    [
        ("ReplicaSet", "web-64b68975d7", {}),
        ("ReplicaSet", "web", {"pod-template-hash": "64b68975d7"}),
        ("ReplicaSet", "web-", {"pod-template-hash": ""}),
        ("Job", "web-64b68975d7", {"pod-template-hash": "64b68975d7"}),
    ],
)
def test_any_other_controller_is_the_workload_itself(kind: str, name: str, labels: dict[str, str]) -> None:
    owner = {"apiVersion": "x/v1", "kind": kind, "name": name}
    assert read_running_pod(pod(owner=owner, labels=labels)).owner == Owner(kind, name, "u", "x/v1")


def test_a_bare_pod_has_no_owner() -> None:
    assert read_running_pod(pod()).owner is None


def test_a_malformed_status_is_named() -> None:
    with pytest.raises(MalformedObject, match=r"status.containerStatuses\[0\].state"):
        read_running_pod(pod(main="running"))
