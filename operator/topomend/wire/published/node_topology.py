"""Convert a NodeState to and from a NodeTopology (``topomend.io/v1alpha1``).

Owns the object's layout except for ``machine``, ``kubelet``, ``allocations`` and ``claims``, which have modules of
their own. Leaves what conditions and columns say to ``discover``, and what is left out of a status that is too large to
``publish.bounded``. To keep it small, sets of CPUs are cpulist strings and empty fields are left out.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from topomend.model.bitmask import format_id_list
from topomend.model.condition import Condition, Summary
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.machine import Core, Machine
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState
from topomend.wire.condition import condition_fields, read_condition
from topomend.wire.document import Document, MalformedObject, without_empty
from topomend.wire.group import API_VERSION, NODE_TOPOLOGY
from topomend.wire.published.allocations import device_fields, devices_of, memory_fields, memory_of, pod_fields, pod_of
from topomend.wire.published.claims import claim_fields
from topomend.wire.published.kubelet import kubelet_fields, kubelet_of
from topomend.wire.published.machine import machine_fields, machine_of

HEARTBEAT = "heartbeatTime"
"""The field of the status that says when the agent last confirmed it: RFC 3339, in UTC."""

MAX_STATUS_BYTES = 512 << 10
"""The limit of a status as JSON. What replay needs of 256 NUMA nodes, 4,096 CPUs and 500 pods fits. etcd refuses
1.5 MiB, and every reader of all nodes holds this much for each."""


def status_of(
    state: NodeState,
    summary: Summary,
    conditions: Sequence[Condition] = (),
    claims: Sequence[ContainerClaim] = (),
) -> dict[str, Any]:
    """The ``status`` of a NodeTopology. Its conditions have no transition times, and it has no heartbeat."""
    kubelet = state.kubelet
    return without_empty(
        {
            "summary": without_empty(
                {
                    "topologyManagerPolicy": kubelet.topology_manager_policy,
                    "topologyManagerScope": kubelet.topology_manager_scope,
                    "kubeletVersion": kubelet.version,
                    "numaNodes": len(state.machine.numa_nodes),
                    "cpusFree": summary.cpus_free,
                    "memoryFree": summary.memory_free,
                    "devices": summary.devices,
                    "status": summary.status,
                }
            ),
            "machine": machine_fields(state.machine),
            "kubelet": kubelet_fields(kubelet),
            "devices": device_fields(state.devices),
            "pods": [pod_fields(pod) for pod in state.pods],
            "memory": [memory_fields(node) for node in state.memory or ()],
            "cpuPool": None if state.cpu_pool is None else format_id_list(state.cpu_pool),
            "claims": [claim_fields(claim) for claim in claims],
            "conditions": [condition_fields(condition) for condition in conditions],
        }
    )


def node_topology(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """The NodeTopology object of the node ``name``."""
    return {"apiVersion": API_VERSION, "kind": NODE_TOPOLOGY, "metadata": {"name": name}, "status": dict(status)}


def read_machine(content: Any, cores: tuple[Core, ...] | None = None) -> Machine:
    """The machine of a NodeTopology object. Raises MalformedObject. ``cores`` are as for ``machine_of``."""
    return machine_of(Document(content)["status"]["machine"], cores)


def read_kubelet(content: Any) -> KubeletSettings:
    """The kubelet's settings of a NodeTopology object. Raises MalformedObject."""
    return kubelet_of(Document(content)["status"]["kubelet"])


def read_node_topology(
    content: Any, machine: Machine | None = None, kubelet: KubeletSettings | None = None
) -> NodeState:
    """The NodeState of a NodeTopology object. Raises MalformedObject, which names the wrong field.

    ``machine`` and ``kubelet`` spare reading them again, where the caller has read the same ones before.
    """
    document = Document(content)
    if document["kind"].text() != NODE_TOPOLOGY:
        raise document["kind"].wrong(NODE_TOPOLOGY)
    if document["apiVersion"].text() != API_VERSION:
        raise document["apiVersion"].wrong(API_VERSION)
    status = document["status"]
    memory = tuple(memory_of(entry) for entry in status["memory"])
    return NodeState(
        name=document["metadata"]["name"].text(),
        machine=machine or read_machine(content),
        kubelet=kubelet or read_kubelet(content),
        devices=tuple(device for group in status["devices"] for device in devices_of(group)),
        pods=tuple(pod_of(entry) for entry in status["pods"]),
        memory=memory or None,
        cpu_pool=None if status["cpuPool"].absent else status["cpuPool"].id_list(),
    )


def read_conditions(content: Any) -> tuple[Condition, ...]:
    """The conditions of a NodeTopology object. Raises MalformedObject."""
    return tuple(read_condition(condition) for condition in Document(content)["status"]["conditions"])


def why_not_started(content: Any) -> str:
    """Why no kubelet starts with the configuration that the agent found; empty where it does, as far as it says.

    Raises MalformedObject.
    """
    for condition in read_conditions(content):
        if condition.type == "KubeletConfigRead" and condition.reason == "Invalid":
            return condition.message
    return ""


def heartbeat_age(content: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds since the object's last heartbeat, negative for one in the future; None where none is valid."""
    try:
        return (now - datetime.fromisoformat(content["status"][HEARTBEAT])).total_seconds()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


__all__ = [
    "HEARTBEAT",
    "MalformedObject",
    "heartbeat_age",
    "node_topology",
    "read_conditions",
    "read_kubelet",
    "read_machine",
    "read_node_topology",
    "status_of",
]
