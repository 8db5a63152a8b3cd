"""NodeResourceTopology (``topology.node.k8s.io/v1alpha2``), the object that NUMA-aware schedulers read.

Owns its layout and names, as its consumers read them (README of pkg/noderesourcetopology in
github.com/kubernetes-sigs/scheduler-plugins). Leaves the figures to ``discover/features/zones.py``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.zone import Zone

API_VERSION = "topology.node.k8s.io/v1alpha2"
KIND = "NodeResourceTopology"

FINGERPRINT, FINGERPRINT_METHOD = "nodeTopologyPodsFingerprint", "nodeTopologyPodsFingerprintMethod"
PLACEMENT, VECTOR = "topology.node.k8s.io/numaplacement-metadata", "topology.node.k8s.io/numaplacement-vector"
ALL_PODS = "all"
"""The fingerprint covers every pod on the node, not only those with exclusive resources."""

_MAX_NUMA_NODES = "max-allowable-numa-nodes"

_LEVELS = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}


def node_resource_topology(
    name: str,
    owner: Mapping[str, Any],
    settings: KubeletSettings,
    zones: Iterable[Zone],
    attributes: Mapping[str, str],
) -> dict[str, Any]:
    """The object of the node ``name``.

    ``owner`` is an ownerReference to its Node. ``attributes`` tell of its pods (``publish/pod_fingerprint.py``,
    ``publish/numa_placement.py``).
    """
    every = {**_attributes(settings), **attributes}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "ownerReferences": [dict(owner)]},
        "topologyPolicies": [_policy(settings)],
        "attributes": _pairs(every),
        "zones": [_zone_fields(zone) for zone in zones],
    }


def content_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that topomend writes, without those that the API server adds; for comparison."""
    content_fields = {key: content.get(key) for key in ("topologyPolicies", "attributes", "zones")}
    owners = content.get("metadata", {}).get("ownerReferences") or ()
    return content_fields | {"owners": [owner.get("uid") for owner in owners]}


def _attributes(settings: KubeletSettings) -> dict[str, str]:
    """The kubelet's settings under the names of its configuration; each policy option has its manager's prefix."""
    options = settings.topology_manager_policy_options
    attributes = settings.policies
    if most := options.get(_MAX_NUMA_NODES):
        attributes["topologyManagerMaxNUMANodes"] = most
    attributes |= {f"topologyManagerOption{_camel(option)}": text for option, text in options.items()}
    attributes |= {
        f"cpuManagerPolicyOption{_camel(option)}": text for option, text in settings.cpu_manager_policy_options.items()
    }
    return attributes


def _camel(option: str) -> str:
    return "".join(word.capitalize() for word in option.split("-"))


def _policy(settings: KubeletSettings) -> str:
    """Policy and scope in one word, for consumers that do not read attributes."""
    level = _LEVELS.get(settings.topology_manager_policy)
    return f"{level}{'Pod' if settings.topology_manager_scope == 'pod' else 'Container'}Level" if level else "None"


def _zone_name(numa_node: int) -> str:
    return f"node-{numa_node}"


def _pairs(attributes: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": key, "value": text} for key, text in sorted(attributes.items())]


def _zone_fields(zone: Zone) -> dict[str, Any]:
    fields = {
        "name": _zone_name(zone.numa_node),
        "type": "Node",
        "costs": [{"name": _zone_name(node), "value": distance} for node, distance in zone.distances.items()],
        "resources": [
            {
                "name": resource.name,
                "capacity": str(resource.capacity),
                "allocatable": str(resource.allocatable),
                "available": str(resource.available),
            }
            for resource in zone.resources
        ],
    }
    return fields if zone.placement is None else fields | {"attributes": _pairs({VECTOR: zone.placement})}
