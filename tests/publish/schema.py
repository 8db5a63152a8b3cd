"""The kind NodeResourceTopology as its API documents it, for an API server that does not have it yet."""

from typing import Any

_TEXT = {"type": "string"}
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_AMOUNT = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$",
    "x-kubernetes-int-or-string": True,
}


def _list(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "required": required, "properties": properties}}


_ATTRIBUTES = _list(["name", "value"], name=_TEXT, value=_TEXT)
_ZONES = _list(
    ["name", "type"],
    name=_TEXT,
    type=_TEXT,
    parent=_TEXT,
    attributes=_ATTRIBUTES,
    costs=_list(["name", "value"], name=_TEXT, value={"type": "integer", "format": "int64"}),
    resources=_list(
        ["name", "capacity", "allocatable", "available"],
        name=_TEXT,
        capacity=_AMOUNT,
        allocatable=_AMOUNT,
        available=_AMOUNT,
    ),
)

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "noderesourcetopologies.topology.node.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
    },
    "spec": {
        "group": "topology.node.k8s.io",
        "scope": "Cluster",
        "names": {
            "kind": "NodeResourceTopology",
            "listKind": "NodeResourceTopologyList",
            "plural": "noderesourcetopologies",
            "singular": "noderesourcetopology",
            "shortNames": ["node-res-topo"],
        },
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["zones"],
                        "properties": {
                            "apiVersion": _TEXT,
                            "kind": _TEXT,
                            "metadata": {"type": "object"},
                            "topologyPolicies": {"type": "array", "items": _TEXT},
                            "attributes": _ATTRIBUTES,
                            "zones": _ZONES,
                        },
                    }
                },
            }
        ],
    },
}
