"""The two nodes of every trial, a pod that one of them refuses, and what its pods do."""

import sys
from typing import Any

from tests.builders import pod_manifest
from tests.waiting import eventually

from topomend.kube.client import Client
from topomend.kube.resources import NODES, PODS
from topomend.sandbox import NodeSpec

OPERATOR = "topomend-operator"
"""The name of its program in a sandbox."""

NARROW, WIDE = "narrow", "wide"
DEVICE = "vendor.com/gpu"


def nodes(release: str, wide_cores: int = 6) -> tuple[NodeSpec, ...]:
    """Two nodes. No NUMA node of ``narrow`` has four CPUs; those of ``wide`` have ``wide_cores``."""
    wide = f"numa:2 cores:{wide_cores} memory:4Gi device:{DEVICE}@0=1,1=1"
    shapes = {NARROW: "numa:4 cores:3 memory:2Gi", WIDE: wide}
    settings = {"topology_manager_policy": "single-numa-node", "memory_manager_policy": "Static", "version": release}
    return tuple(NodeSpec.of_shape(name, shape, **settings) for name, shape in shapes.items())


def wide_pod(name: str) -> dict[str, Any]:
    """A pod of four CPUs, which only ``wide`` has on one NUMA node."""
    resources = {"limits": {"cpu": "4", "memory": "64Mi"}}
    return pod_manifest(name, {"name": "main", "image": "sandbox/pause", "resources": resources})


def refuse(client: Client, name: str) -> dict[str, Any]:
    """A pod that the scheduler has bound to ``narrow``, and that its kubelet has refused."""
    cordon(client, WIDE, unschedulable=True)
    created = client.create(PODS, wide_pod(name), "default")

    def answer() -> dict[str, Any] | None:
        pod = client.get(PODS, name, "default")
        return pod if pod["status"].get("reason") == "TopologyAffinityError" else None

    eventually(f"{name} to be refused", answer, poll=0.01)
    return created


def cordon(client: Client, node: str, *, unschedulable: bool) -> None:
    client.merge(NODES, node, {"spec": {"unschedulable": unschedulable or None}})


def runs(client: Client, name: str) -> bool:
    pod = client.get(PODS, name, "default")
    return (pod["status"].get("phase"), pod["spec"].get("nodeName")) == ("Running", WIDE)


def running(client: Client, namespace: str = "default", labels: str = "") -> list[dict[str, Any]]:
    listed = client.list(PODS, namespace=namespace, labels=labels).items
    return [pod for pod in listed if pod["status"].get("phase") == "Running"]


def remove(client: Client, name: str) -> None:
    client.delete(PODS, name, "default", uid=client.get(PODS, name, "default")["metadata"]["uid"])


def say(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)
