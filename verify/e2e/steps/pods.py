"""The pods and controllers of the stories, and questions about running ones."""

import re
from typing import Any

from verify.e2e import images
from verify.e2e.containers.api import API, Object
from verify.e2e.containers.cluster import CARELESS_SCHEDULER, Cluster

from topomend.wire.group import MAX_ATTEMPTS_ANNOTATION, RELAUNCH_PINNED_ANNOTATION

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODE_TOPOLOGIES = "/apis/topomend.io/v1alpha1/nodetopologies"
CONTAINER = "work"


def template(node: str, *arguments: str, restart: str = "Always") -> dict[str, Any]:
    """The spec of a pod with one exclusive CPU, preferably on ``node``, placed by the careless scheduler."""
    preference = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    terms = [{"weight": 100, "preference": preference}]
    container = {
        "name": CONTAINER,
        "image": images.IDLE,
        "args": list(arguments),
        "resources": {"limits": {"cpu": "1", "memory": "32Mi"}},
    }
    return {
        "schedulerName": CARELESS_SCHEDULER,
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 5,
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}},
        "containers": [container],
    }


def pod(name: str, node: str, *arguments: str, restart: str = "Always") -> Object:
    """Such a pod without a controller."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template(node, *arguments, restart=restart),
    }


def stubborn_pod(name: str, node: str, *arguments: str) -> Object:
    """Such a pod that runs once, and is relaunched as often as others take its place first."""
    content = pod(name, node, *arguments, restart="Never")
    return {**content, "metadata": {**content["metadata"], "annotations": {MAX_ATTEMPTS_ANNOTATION: "100"}}}


def bound_pod(name: str, node: str) -> Object:
    """Such a pod that is bound to ``node`` as it is created, and relaunched elsewhere too, by Kubernetes' scheduler."""
    content = pod(name, node)
    metadata = {**content["metadata"], "annotations": {RELAUNCH_PINNED_ANNOTATION: "true"}}
    spec = {**content["spec"], "nodeName": node, "schedulerName": "default-scheduler"}
    return {**content, "metadata": metadata, "spec": spec}


def claiming_pod(name: str, node: str, claim: str) -> Object:
    """Such a pod whose container uses a ResourceClaim."""
    content = pod(name, node)
    resources = {**content["spec"]["containers"][0]["resources"], "claims": [{"name": "claimed"}]}
    container = {**content["spec"]["containers"][0], "resources": resources}
    claims = [{"name": "claimed", "resourceClaimName": claim}]
    return {**content, "spec": {**content["spec"], "containers": [container], "resourceClaims": claims}}


def deployment(name: str, node: str, replicas: int) -> Object:
    """A Deployment of such pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template(node)},
        },
    }


def is_refused(item: Object) -> bool:
    """Whether a kubelet refused this pod for its topology."""
    status = item["status"]
    return (status.get("phase"), status.get("reason")) == ("Failed", "TopologyAffinityError")


def is_running(item: Object) -> bool:
    """Whether this pod runs and is not being deleted."""
    return item["status"].get("phase") == "Running" and "deletionTimestamp" not in item["metadata"]


def is_gated(item: Object) -> bool:
    """Whether this pod has a scheduling gate."""
    return bool(item["spec"].get("schedulingGates"))


def marks_on(item: Object) -> list[str]:
    """A pod's gates, finalizers, annotations and labels of topomend."""
    metadata, spec = item["metadata"], item["spec"]
    names = [gate["name"] for gate in spec.get("schedulingGates", ())]
    names += [*metadata.get("finalizers", ()), *metadata.get("annotations", {}), *metadata.get("labels", {})]
    return [name for name in names if name.startswith("topomend.io/")]


def is_unschedulable(item: Object) -> bool:
    """Whether cluster autoscalers count this pod."""
    conditions = {condition["type"]: condition.get("reason") for condition in item["status"].get("conditions", ())}
    return conditions.get("PodScheduled") == "Unschedulable"


def has_run(item: Object) -> bool:
    """Whether the pod's status shows that its container has started."""
    states = [status["state"] for status in item["status"].get("containerStatuses", ())]
    return any("running" in state or state.get("terminated", {}).get("startedAt") for state in states)


def published_cpus(api: API, name: str) -> tuple[str, str] | None:
    """The node whose NodeTopology lists the pod, and the pod's exclusive CPUs there."""
    for topology in api.items(NODE_TOPOLOGIES):
        for holder in topology.get("status", {}).get("pods", ()):
            if (holder["namespace"], holder["name"]) == (NAMESPACE, name):
                (container,) = holder["containers"]
                return topology["metadata"]["name"], container["cpus"]
    return None


def allowed_cpus(cluster: Cluster, name: str) -> str:
    """The CPUs that a process in the pod's container may use, by its own /proc/self/status."""
    status = cluster.exec(NAMESPACE, name, "/idle", "show", "/proc/self/status")
    matched = re.search(r"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE)
    assert matched is not None, status
    return matched[1]
