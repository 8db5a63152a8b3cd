"""NodeResourceTopology (``topology.node.k8s.io/v1alpha2``), the object that NUMA-aware schedulers read.

Owns its layout and names, as its consumers read them (README of pkg/noderesourcetopology in
github.com/kubernetes-sigs/scheduler-plugins), and the reading of who writes it. What the figures are is told by whoever
publishes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from topomend.model.kubelet import KubeletSettings

API_VERSION = "topology.node.k8s.io/v1alpha2"
KIND = "NodeResourceTopology"

FINGERPRINT, FINGERPRINT_METHOD = "nodeTopologyPodsFingerprint", "nodeTopologyPodsFingerprintMethod"
ALL_PODS = "all"
"""The fingerprint is over every pod on the node, whether it holds anything or not."""

_MAX_NUMA_NODES = "max-allowable-numa-nodes"

_LEVELS = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}


@dataclass(frozen=True, slots=True)
class ZoneResource:
    """One resource of a NUMA node, in CPUs, bytes or devices.

    ``allocatable`` is what is not reserved, ``available`` what of that nobody holds exclusively.
    """

    name: str
    capacity: int
    allocatable: int
    available: int


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node: its id, the distance to every NUMA node by id, and what can be aligned on it."""

    numa_node: int
    distances: Mapping[int, int]
    resources: tuple[ZoneResource, ...]


def node_resource_topology(
    name: str, owner: Mapping[str, Any], settings: KubeletSettings, zones: Iterable[Zone], fingerprint: str
) -> dict[str, Any]:
    """The object of the node ``name``; ``owner`` is the reference to its Node."""
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
    """Who else writes what the object says, by its field manager; empty where ``manager`` alone does.

    Labels, annotations and owners may be anybody's.
    """
    entries = content.get("metadata", {}).get("managedFields") or ()
    writers = [entry.get("manager", "") for entry in entries if set(entry.get("fieldsV1") or ()) - {"f:metadata"}]
    others = sorted({each or "somebody without a name" for each in writers if each != manager})
    if others:
        return ", ".join(others)
    return "" if writers else "somebody who left no name"


def content_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """What the object says, without what the server adds to it: for comparison."""
    said = {key: content.get(key) for key in ("topologyPolicies", "attributes", "zones")}
    owners = content.get("metadata", {}).get("ownerReferences") or ()
    return said | {"owners": [owner.get("uid") for owner in owners]}


def _attributes(settings: KubeletSettings) -> dict[str, str]:
    """The kubelet's settings under its own configuration's names, an option each behind the prefix of its manager."""
    options = settings.topology_manager_policy_options
    named = {
        "topologyManagerPolicy": settings.topology_manager_policy,
        "topologyManagerScope": settings.topology_manager_scope,
        "cpuManagerPolicy": settings.cpu_manager_policy,
        "memoryManagerPolicy": settings.memory_manager_policy,
    }
    if most := options.get(_MAX_NUMA_NODES):
        named["topologyManagerMaxNUMANodes"] = most
    named |= {f"topologyManagerOption{_camel(option)}": text for option, text in options.items()}
    named |= {
        f"cpuManagerPolicyOption{_camel(option)}": text for option, text in settings.cpu_manager_policy_options.items()
    }
    return named


def _camel(option: str) -> str:
    return "".join(word.capitalize() for word in option.split("-"))


def _policy(settings: KubeletSettings) -> str:
    """Policy and scope in one word: what consumers read that know no attributes."""
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
                "name": each.name,
                "capacity": str(each.capacity),
                "allocatable": str(each.allocatable),
                "available": str(each.available),
            }
            for each in zone.resources
        ],
    }
