"""NodeFeature (``nfd.k8s-sigs.io/v1alpha1``), by which Node Feature Discovery labels nodes, and its files of features.

Owns the layout, as nfd-master reads it (api/nfd/v1alpha1/types.go in
github.com/kubernetes-sigs/node-feature-discovery). Leaves the facts to ``discover/features/node_features.py``.
"""

from collections.abc import Mapping
from typing import Any

from topomend.model.nodes.node_features import NodeFeatures
from topomend.wire.group import GROUP

API_VERSION = "nfd.k8s-sigs.io/v1alpha1"
KIND = "NodeFeature"

NODE_NAME = "nfd.node.kubernetes.io/node-name"
"""The label that says which Node the features are of."""


def node_feature(name: str, namespace: str, owner: Mapping[str, Any], features: NodeFeatures) -> dict[str, Any]:
    """The object of the node ``name``. ``owner`` is an ownerReference to its Node."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {NODE_NAME: name},
            "ownerReferences": [dict(owner)],
        },
        "spec": {
            "labels": _prefixed(features.labels),
            "features": {
                "flags": {},  # required by the kind's older schemas
                "attributes": {key: {"elements": dict(values)} for key, values in features.attributes.items()},
                "instances": {
                    key: {"elements": [{"attributes": dict(one)} for one in several]}
                    for key, several in features.instances.items()
                },
            },
        },
    }


def local_source(features: NodeFeatures) -> str:
    """The labels as a file of NFD's local source (``/etc/kubernetes/node-feature-discovery/features.d``)."""
    return "\n".join(f"{key}={text}" for key, text in _prefixed(features.labels).items())


def content_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that topomend writes, without those that the API server adds; for comparison."""
    metadata = content.get("metadata", {})
    owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or ()]
    return {"spec": content.get("spec"), "owners": owners, "node": (metadata.get("labels") or {}).get(NODE_NAME)}


def _prefixed(labels: Mapping[str, str]) -> dict[str, str]:
    return {f"{GROUP}/{key}": text for key, text in sorted(labels.items())}
