"""The pod and the namespace of a test, as objects of the API.

The pod is bound by ``nodeName``. By that no scheduler evicts others for it, whatever the priority class that the
cluster gives it, no scheduler that knows NUMA nodes withholds the pods that a kubelet is to refuse, and a cordoned node
can be tried. It complies with the Pod Security Standard ``restricted``, has no token and no network needs, and ends by
itself. topomend neither gates nor relaunches it.
"""

from collections.abc import Mapping
from typing import Any

from topomend.model.nodes.node import Node, Taint
from topomend.model.pods.pod import Container, ContainerKind
from topomend.model.quantity import MilliQuantity, exact_bytes, exact_thousandths
from topomend.replay.lifecycle.tolerations import NO_EXECUTE
from topomend.replay.qos import is_memory
from topomend.selftest.cases import Case
from topomend.wire.group import RELAUNCH_ANNOTATION, SELFTEST_LABEL

PREFIX = "topomend-selftest-"
"""How the names of the namespaces begin; the API server completes them."""

LIVES_SECONDS = 600
"""After so long a kubelet ends a pod whose test is gone. Its object stays, and takes nothing."""

NOBODY = 65535
"""The user of every container, whatever its image says; that of Kubernetes' pause image too."""

LABELS = {SELFTEST_LABEL: "true"}
_LEFT_ALONE = {RELAUNCH_ANNOTATION: "false"}

_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def namespace_manifest() -> dict[str, Any]:
    """The namespace of one test."""
    metadata = {"generateName": PREFIX, "labels": LABELS, "annotations": _LEFT_ALONE}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def pod_manifest(case: Case, node: Node, namespace: str, image: str) -> dict[str, Any]:
    """The pod of a case for ``node``, whose taints it tolerates as far as they would have the kubelet refuse it."""
    initial = [each for each in case.containers if each.kind is not ContainerKind.APP]
    spec: dict[str, Any] = {
        "nodeName": node.name,
        "restartPolicy": "Always",
        "activeDeadlineSeconds": LIVES_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [_toleration(taint) for taint in node.taints if taint.effect == NO_EXECUTE],
        **({"initContainers": [_container(each, image) for each in initial]} if initial else {}),
        "containers": [_container(each, image) for each in case.containers if each.kind is ContainerKind.APP],
    }
    metadata = {"name": case.name, "namespace": namespace, "labels": LABELS, "annotations": _LEFT_ALONE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _toleration(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}


def _container(container: Container, image: str) -> dict[str, Any]:
    amounts = container.resources
    resources = {"requests": _quantities(amounts.requests), "limits": _quantities(amounts.limits)}
    return {
        "name": container.name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {kind: quantities for kind, quantities in resources.items() if quantities},
        "securityContext": _CONTAINER_SECURITY,
        **({"restartPolicy": "Always"} if container.kind is ContainerKind.SIDECAR else {}),
    }


def _quantities(amounts: Mapping[str, MilliQuantity]) -> dict[str, str]:
    return {name: _quantity(name, amount) for name, amount in amounts.items()}


def _quantity(resource: str, amount: MilliQuantity) -> str:
    return exact_bytes(amount // 1000) if is_memory(resource) else exact_thousandths(amount)
