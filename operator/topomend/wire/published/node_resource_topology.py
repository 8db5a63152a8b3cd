"""NodeResourceTopology (``topology.node.k8s.io/v1alpha2``), the object that NUMA-aware schedulers read.

Owns its layout and names, as its consumers read them (README of pkg/noderesourcetopology in
github.com/kubernetes-sigs/scheduler-plugins), and detecting other writers of it. Leaves the figures to
``discover/zones.py``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from topomend.model.kubelet import KubeletSettings
from topomend.model.zone import Zone

API_VERSION = "topology.node.k8s.io/v1alpha2"
KIND = "NodeResourceTopology"

FINGERPRINT, FINGERPRINT_METHOD = "nodeTopologyPodsFingerprint", "nodeTopologyPodsFingerprintMethod"
ALL_PODS = "all"
"""The fingerprint covers every pod on the node, not only those with exclusive resources."""

_MAX_NUMA_NODES = "max-allowable-numa-nodes"

_LEVELS = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}


def node_resource_topology(
    name: str, owner: Mapping[str, Any], settings: KubeletSettings, zones: Iterable[Zone], fingerprint: str
) -> dict[str, Any]:
    """The object of the node ``name``.

    ``owner`` is an ownerReference to its Node, ``fingerprint`` that of its pods (``publish/pod_fingerprint.py``).
    """
    attributes = {**_attributes(settings), FINGERPRINT: fingerprint, FINGERPRINT_METHOD: ALL_PODS}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "ownerReferences": [dict(owner)]},
        "topologyPolicies": [_policy(settings)],
        "attributes": [{"name": key, "value": text} for key, text in sorted(attributes.items())],
        "zones": [_zone_fields(zone) for zone in zones],
    }


def other_writer(content: Mapping[str, Any], manager: str) -> str:
    """The field managers other than ``manager`` that write the object's content, as text; empty where there are none.

    Anybody may write the metadata.
    """
    entries = content.get("metadata", {}).get("managedFields") or ()
    writers = [entry.get("manager", "") for entry in entries if set(entry.get("fieldsV1") or ()) - {"f:metadata"}]
    others = sorted({manager_name or "somebody without a name" for manager_name in writers if manager_name != manager})
    if others:
        return ", ".join(others)
    return "" if writers else "somebody who left no name"


def content_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that topomend writes, without those that the API server adds; for comparison."""
    content_fields = {key: content.get(key) for key in ("topologyPolicies", "attributes", "zones")}
    owners = content.get("metadata", {}).get("ownerReferences") or ()
    return content_fields | {"owners": [owner.get("uid") for owner in owners]}


def _attributes(settings: KubeletSettings) -> dict[str, str]:
    """The kubelet's settings under the names of its configuration; each policy option has its manager's prefix."""
    options = settings.topology_manager_policy_options
    attributes = {
        "topologyManagerPolicy": settings.topology_manager_policy,
        "topologyManagerScope": settings.topology_manager_scope,
        "cpuManagerPolicy": settings.cpu_manager_policy,
        "memoryManagerPolicy": settings.memory_manager_policy,
    }
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


def _zone_fields(zone: Zone) -> dict[str, Any]:
    return {
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
