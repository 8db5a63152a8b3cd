"""Build the placeholder of a pod that waits: a pod that never runs, for which cluster autoscalers add a node.

It asks for what the pod asks for, and may go where the pod may go, but only to nodes that run nothing but DaemonSets
and the cluster's own pods. It excludes today's nodes by their pods and not by their names: Karpenter ignores a pod
whose node affinity names hosts (pkg/controllers/provisioning/provisioner.go:Validate), and to Cluster Autoscaler a new
node has the labels of an old one. The rest of it is as little as a namespace of Pod Security's level ``restricted``
accepts. Leaves which pods need one to ``reconcile/autoscaling/placeholders``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.pod import requests_of
from topomend.model.pods.scheduling import Toleration, WatchedPod
from topomend.model.quantity import exact_thousandths
from topomend.relaunch.manifest import widened
from topomend.wire.document import Document, without_empty
from topomend.wire.group import PLACEHOLDER_FOR_ANNOTATION, PLACEHOLDER_GATE, UNGATED_NAMESPACES
from topomend.wire.pods.scheduling import is_unschedulable

LABELS = {
    "app.kubernetes.io/name": "topomend",
    "app.kubernetes.io/component": "placeholder",
    "app.kubernetes.io/part-of": "topomend",
}

IMAGE = "registry.k8s.io/pause:3.10"
"""Nobody pulls it."""


_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_OF_NO_DAEMON_SET = {"key": "pod-template-generation", "operator": "DoesNotExist"}
"""The label that every pod of a DaemonSet has, and no other (pkg/controller/daemon/util/daemonset_util.go:
CreatePodTemplate)."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder as it is. ``stands_for`` are namespace, name and uid of its pod, empty where it names none."""

    name: str
    uid: str
    version: str
    stands_for: tuple[str, str, str]
    unschedulable: bool


def placeholder(pod: WatchedPod, namespace: str) -> dict[str, Any]:
    """The Pod object to create for ``pod``. ``namespace`` is the operator's."""
    requests = {resource: exact_thousandths(amount) for resource, amount in requests_of(pod.pod).items()}
    container = {
        "name": "placeholder",
        "image": IMAGE,
        "resources": {"requests": requests, "limits": requests},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    node_affinity = widened(pod.node_affinity) if pod.narrowed else pod.node_affinity
    affinity = {"nodeAffinity": node_affinity, "podAntiAffinity": _away_from_others(namespace)}
    spec = {
        "schedulingGates": [{"name": PLACEHOLDER_GATE}],
        "containers": [container],
        "nodeSelector": dict(pod.placement.node_selector),
        "tolerations": [_toleration(toleration) for toleration in pod.placement.tolerations],
        "affinity": without_empty(affinity),
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"placeholder-{pod.uid}",
            "namespace": namespace,
            "labels": LABELS,
            "annotations": {PLACEHOLDER_FOR_ANNOTATION: f"{pod.namespace}/{pod.name}/{pod.uid}"},
        },
        "spec": without_empty(spec),
    }


def _away_from_others(namespace: str) -> dict[str, Any]:
    """Keep away from pods of all namespaces but the cluster's and topomend's own, whose pods new nodes have as well."""
    own = sorted({*UNGATED_NAMESPACES, namespace})
    term = {
        "topologyKey": HOSTNAME_LABEL,
        "namespaceSelector": {"matchExpressions": [{"key": _NAMESPACE_LABEL, "operator": "NotIn", "values": own}]},
        "labelSelector": {"matchExpressions": [_OF_NO_DAEMON_SET]},
    }
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def read_placeholder(content: Mapping[str, Any]) -> Placeholder:
    """A Pod object as ``placeholder`` makes it; one that anybody else has made stands for no pod."""
    metadata = content["metadata"]
    named = metadata.get("annotations", {}).get(PLACEHOLDER_FOR_ANNOTATION, "").split("/")
    return Placeholder(
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"],
        (named[0], named[1], named[2]) if len(named) == 3 else ("", "", ""),
        is_unschedulable(Document(content)["status"]),
    )


def _toleration(toleration: Toleration) -> dict[str, str]:
    fields = {"key": toleration.key, "operator": toleration.operator, "value": toleration.value}
    return without_empty({**fields, "effect": toleration.effect})
