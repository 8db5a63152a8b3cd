"""The operator writes of a pod's status why it is not scheduled while gated, and nothing else: a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.deploy.api import API
from tests.deploy.base.test_policies import PODS, existing
from tests.waiting import eventually

from topomend.wire.group import FIT_GATE, RELAUNCH_GATE

pytestmark = pytest.mark.cluster

WAITS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node admits it now"}
READY = {"type": "Ready", "status": "True"}
ONLY_GATED, CONDITIONS, STATUS, METADATA = (
    "pods that it gates",
    "only why the pod is not scheduled",
    "only the condition PodScheduled",
    "none of its metadata",
)
NOMINATED = "nominates no node but for new pods that it alone gates"


@pytest.fixture(scope="module")
def in_force(
    admin: API,
    operator: API,
    nowhere: None,  # noqa: ARG001  to which pods are bound
) -> Iterator[None]:
    """The policy denies what is not about a gated pod."""
    probe = existing(admin, gates=("other.io/gate",))
    eventually("the policy", lambda: ONLY_GATED in operator.patch(f"{probe}/status", waits()).message)
    yield
    for item in admin.get(PODS).content["items"]:
        admin.delete(f"{PODS}/{item['metadata']['name']}")


def waits(*others: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"status": {"conditions": [WAITS, *others], **fields}}


@pytest.mark.parametrize("gate", [FIT_GATE, RELAUNCH_GATE])
@pytest.mark.usefixtures("in_force")
def test_the_operator_says_why_a_pod_that_it_gates_is_not_scheduled(admin: API, operator: API, gate: str) -> None:
    pod = existing(admin, gates=(gate,))
    before = admin.get(pod).content["status"]["conditions"]
    answer = operator.patch(f"{pod}/status", waits())
    assert answer.allowed, answer.message
    (after,) = answer.content["status"]["conditions"]
    assert after.items() >= WAITS.items()
    back = operator.patch(f"{pod}/status", {"status": {"conditions": before}})
    assert back.allowed, back.message


@pytest.mark.parametrize(
    "fields", [{}, {"gates": ("example.com/queue",)}, {"status": {"phase": "Running"}}], ids=["none", "theirs", "runs"]
)
@pytest.mark.usefixtures("in_force")
def test_the_operator_writes_the_status_of_no_other_pod(admin: API, operator: API, fields: dict[str, Any]) -> None:
    answer = operator.patch(f"{existing(admin, **fields)}/status", waits())
    assert answer.code == 403
    assert ONLY_GATED in answer.message


DENIED: dict[str, tuple[str, dict[str, Any]]] = {
    "scheduled": (CONDITIONS, {"status": {"conditions": [WAITS | {"status": "True"}]}}),
    "another reason": (CONDITIONS, {"status": {"conditions": [WAITS | {"reason": "Fine"}]}}),
    "ready": (CONDITIONS, waits(READY)),
    "failed": (STATUS, waits(phase="Failed")),
    "a message": (STATUS, waits(message="x")),
    "an address": (STATUS, waits(podIP="10.0.0.1", podIPs=[{"ip": "10.0.0.1"}])),
    "a container": (
        STATUS,
        waits(containerStatuses=[{"name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "i"}]),
    ),
    "a label": (METADATA, waits() | {"metadata": {"labels": {"app": "other"}}}),
    "an annotation": (METADATA, waits() | {"metadata": {"annotations": {"user": "two"}}}),
    "a finalizer": (METADATA, waits() | {"metadata": {"finalizers": ["example.com/kept"]}}),
}


@pytest.mark.parametrize("change", DENIED)
@pytest.mark.usefixtures("in_force")
def test_the_operator_writes_nothing_else_of_a_status(admin: API, operator: API, change: str) -> None:
    words, patch = DENIED[change]
    pod = existing(admin, gates=(FIT_GATE,))
    before = admin.get(pod).content
    answer = operator.patch(f"{pod}/status", patch)
    after = admin.get(pod).content
    assert (answer.code == 403 and words in answer.message) or after == before, answer.message


@pytest.mark.usefixtures("in_force")
def test_the_kubelets_conditions_of_a_gated_pod_stay(admin: API, operator: API) -> None:
    pod = existing(admin, gates=(FIT_GATE,))
    theirs = {"type": "example.com/checked", "status": "True"}
    assert admin.patch(f"{pod}/status", waits(theirs)).allowed
    answer = operator.patch(f"{pod}/status", {"status": {"conditions": [WAITS]}})
    assert answer.code == 403
    assert CONDITIONS in answer.message


@pytest.mark.parametrize(
    ("gates", "allowed"), [((FIT_GATE,), True), ((RELAUNCH_GATE,), False), ((FIT_GATE, "example.com/queue"), False)]
)
@pytest.mark.usefixtures("in_force")
def test_the_operator_nominates_a_node_for_new_pods_that_it_alone_gates(
    admin: API, operator: API, gates: tuple[str, ...], allowed: bool
) -> None:
    """kube-scheduler keeps the node's totals free for it, from pods of no higher priority."""
    pod = existing(admin, gates=gates)
    answer = operator.patch(f"{pod}/status", {"status": {"nominatedNodeName": "a"}})
    assert answer.allowed is allowed, answer.message
    if allowed:
        assert admin.get(pod).content["status"]["nominatedNodeName"] == "a"
        assert operator.patch(f"{pod}/status", {"status": {"nominatedNodeName": ""}}).allowed
    else:
        assert NOMINATED in answer.message
