"""PersistentVolumes that one node has."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.clusters import Cluster

from topomend.kube.errors import NotFound
from topomend.kube.resources import CLAIMS, VOLUMES


@contextmanager
def local_volume(cluster: Cluster, name: str, node: str, namespace: str = "default") -> Iterator[None]:
    """A volume of the node, which exists nowhere else, and a claim of the same ``name`` that is bound to it."""
    in_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    own: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = own | {
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/tmp"},  # noqa: S108  a folder that every node has; nothing is written
        "claimRef": {"namespace": namespace, "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_node]}]}},
    }
    claim = own | {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    head = {"apiVersion": "v1", "metadata": {"name": name}}
    made = [
        (resource, space, cluster.client.create(resource, head | {"kind": kind, "spec": spec}, space))
        for resource, space, kind, spec in (
            (VOLUMES, "", "PersistentVolume", volume),
            (CLAIMS, namespace, "PersistentVolumeClaim", claim),
        )
    ]
    try:
        yield
    finally:
        for resource, space, content in reversed(made):
            cluster.client.delete(resource, name, space, uid=content["metadata"]["uid"])
            with suppress(NotFound):  # whatever protects them
                cluster.client.merge(resource, name, {"metadata": {"finalizers": None}}, space)


def with_claim(content: dict[str, Any], claim: str) -> dict[str, Any]:
    """The pod's manifest with a volume of this claim."""
    content["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}]
    return content
