"""Convert the kubelet's settings to and from a NodeTopology's ``status.kubelet``.

Owns its layout and its defaults, which are the kubelet's own. Leaves finding the settings out to ``discover``.
"""

from collections.abc import Iterable
from typing import Any

from topomend.model.bitmask import MAX_ID, format_id_list
from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation
from topomend.model.quantity import value
from topomend.wire.document import Document, without_empty


def kubelet_fields(kubelet: KubeletSettings) -> dict[str, Any]:
    """``status.kubelet`` of a NodeTopology: policies, options, reservations and feature gates of one kubelet."""
    fields = without_empty(
        {
            "version": kubelet.version,
            "topologyManagerPolicy": kubelet.topology_manager_policy,
            "topologyManagerScope": kubelet.topology_manager_scope,
            "topologyManagerPolicyOptions": dict(kubelet.topology_manager_policy_options),
            "cpuManagerPolicy": kubelet.cpu_manager_policy,
            "cpuManagerPolicyOptions": dict(kubelet.cpu_manager_policy_options),
            "memoryManagerPolicy": kubelet.memory_manager_policy,
            "reservedCPUMillis": kubelet.reserved_cpu_millis or None,
            "reservedMemory": _reservation_fields(kubelet.reserved_memory),
            "featureGates": dict(kubelet.feature_gates),
        }
    )
    # Empty means that no CPU is reserved. Absent means that the kubelet chooses them by its own rule.
    if kubelet.reserved_cpus is not None:
        fields["reservedCPUs"] = format_id_list(kubelet.reserved_cpus)
    return fields


def _reservation_fields(reservations: Iterable[MemoryReservation]) -> list[dict[str, Any]]:
    by_node: dict[int, dict[str, str]] = {}
    for reservation in reservations:
        by_node.setdefault(reservation.numa_node, {})[reservation.resource] = str(reservation.size)
    return [{"numaNode": node, "limits": limits} for node, limits in sorted(by_node.items())]


def kubelet_of(kubelet: Document) -> KubeletSettings:
    """The settings in ``status.kubelet``; an absent field has the kubelet's default. Raises MalformedObject."""
    return KubeletSettings(
        version=kubelet["version"].text(DEFAULT_VERSION),
        topology_manager_policy=kubelet["topologyManagerPolicy"].text("none"),
        topology_manager_scope=kubelet["topologyManagerScope"].text("container"),
        topology_manager_policy_options=_read_options(kubelet["topologyManagerPolicyOptions"]),
        cpu_manager_policy=kubelet["cpuManagerPolicy"].text("none"),
        cpu_manager_policy_options=_read_options(kubelet["cpuManagerPolicyOptions"]),
        memory_manager_policy=kubelet["memoryManagerPolicy"].text("None"),
        reserved_cpus=None if kubelet["reservedCPUs"].absent else kubelet["reservedCPUs"].id_list(),
        reserved_cpu_millis=kubelet["reservedCPUMillis"].integer(default=0),
        reserved_memory=tuple(
            MemoryReservation(entry["numaNode"].integer(most=MAX_ID - 1), resource, value(quantity.quantity()))
            for entry in kubelet["reservedMemory"]
            for resource, quantity in entry["limits"].fields()
        ),
        feature_gates={name: gate.boolean() for name, gate in kubelet["featureGates"].fields()},
    )


def _read_options(options: Document) -> dict[str, str]:
    return {name: option.text() for name, option in options.fields()}
