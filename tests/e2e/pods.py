"""Pods and controllers of the stories, and what is asked of those that run."""

import re
from typing import Any

from tests.e2e import images
from tests.e2e.api import API, Object
from tests.e2e.cluster import CARELESS_SCHEDULER, Cluster

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODE_TOPOLOGIES = "/apis/topomend.io/v1alpha1/nodetopologies"
CONTAINER = "work"


def template(node: str, *arguments: str, restart: str = "Always") -> dict[str, Any]:
    """The spec of a pod that asks for a CPU of its own, preferably on ``node``, from the careless scheduler."""
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
    """Such a pod, which nothing controls."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template(node, *arguments, restart=restart),
    }


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
    """Whether this pod runs, and is not about to end."""
    return item["status"].get("phase") == "Running" and "deletionTimestamp" not in item["metadata"]


def is_gated(item: Object) -> bool:
    """Whether a scheduling gate holds this pod back."""
    return bool(item["spec"].get("schedulingGates"))


def has_run(item: Object) -> bool:
    """Whether the container of this pod was started, as far as the pod's status tells."""
    states = [status["state"] for status in item["status"].get("containerStatuses", ())]
    return any("running" in state or state.get("terminated", {}).get("startedAt") for state in states)


def published_cpus(api: API, name: str) -> tuple[str, str] | None:
    """The node that publishes pod ``name`` of the stories' namespace, and the CPUs that it says the pod has alone."""
    for topology in api.items(NODE_TOPOLOGIES):
        for holder in topology.get("status", {}).get("pods", ()):
            if (holder["namespace"], holder["name"]) == (NAMESPACE, name):
                (container,) = holder["containers"]
                return topology["metadata"]["name"], container["cpus"]
    return None


def allowed_cpus(cluster: Cluster, name: str) -> str:
    """The CPUs that a process in the container of pod ``name`` may use, as the container itself sees it."""
    status = cluster.exec(NAMESPACE, name, "/idle", "show", "/proc/self/status")
    matched = re.search(r"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE)
    assert matched is not None, status
    return matched[1]
