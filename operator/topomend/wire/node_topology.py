"""NodeTopology (``topomend.io/v1alpha1``) to and from a NodeState.

Owns the object's layout, but for its three large parts: machine, kubelet and allocations have modules of their own.
What its conditions say is decided where the facts are found; here they are carried. The object is small: sets of CPUs
are cpulist strings, cores are one string each, and what is empty is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from topomend.model.bitmask import format_id_list
from topomend.model.kubelet import KubeletSettings
from topomend.model.machine import Machine
from topomend.model.node_state import NodeState
from topomend.wire.allocations import book_fields, book_of, device_fields, devices_of, pod_fields, pod_of
from topomend.wire.document import Document, MalformedObject, without_empty
from topomend.wire.group import API_VERSION, NODE_TOPOLOGY
from topomend.wire.kubelet import kubelet_fields, kubelet_of
from topomend.wire.machine import machine_fields, machine_of

HEARTBEAT = "heartbeatTime"
"""The field of the status that says when the agent last found it true, in UTC as RFC 3339 has it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One standard condition: ``status`` True, False or Unknown, ``reason`` CamelCase; its times are the writer's."""

    type: str
    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Summary:
    """The scalars behind the columns of ``kubectl get ntopo``, computed by whoever publishes."""

    cpus_free: str = ""
    memory_free: str = ""
    devices: int = 0
    status: str = ""


def status_of(state: NodeState, summary: Summary, conditions: Sequence[Condition] = ()) -> dict[str, Any]:
    """The ``status`` of the node's NodeTopology; conditions without transition times."""
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
            "memory": [book_fields(node) for node in state.memory or ()],
            "cpuPool": None if state.cpu_pool is None else format_id_list(state.cpu_pool),
            "conditions": [
                {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
                for each in conditions
            ],
        }
    )


def node_topology(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """A whole NodeTopology object."""
    return {"apiVersion": API_VERSION, "kind": NODE_TOPOLOGY, "metadata": {"name": name}, "status": dict(status)}


def read_machine(content: Any) -> Machine:
    """The machine of a NodeTopology object. Raises MalformedObject."""
    return machine_of(Document(content)["status"]["machine"])


def read_kubelet(content: Any) -> KubeletSettings:
    """The kubelet's settings of a NodeTopology object. Raises MalformedObject."""
    return kubelet_of(Document(content)["status"]["kubelet"])


def read_node_topology(
    content: Any, machine: Machine | None = None, kubelet: KubeletSettings | None = None
) -> NodeState:
    """The NodeState of a NodeTopology object. Raises MalformedObject that names the field which is wrong.

    ``machine`` and ``kubelet`` are given where they were read already, of this object or of one that has the same.
    """
    document = Document(content)
    if document["kind"].text() != NODE_TOPOLOGY:
        raise document["kind"].wrong(NODE_TOPOLOGY)
    if document["apiVersion"].text() != API_VERSION:
        raise document["apiVersion"].wrong(API_VERSION)
    status = document["status"]
    books = tuple(book_of(each) for each in status["memory"])
    return NodeState(
        name=document["metadata"]["name"].text(),
        machine=machine or read_machine(content),
        kubelet=kubelet or read_kubelet(content),
        devices=tuple(device for group in status["devices"] for device in devices_of(group)),
        pods=tuple(pod_of(each) for each in status["pods"]),
        memory=books or None,
        cpu_pool=None if status["cpuPool"].absent else status["cpuPool"].id_list(),
    )


def read_conditions(content: Any) -> tuple[Condition, ...]:
    """The conditions of a NodeTopology object. Raises MalformedObject."""
    return tuple(
        Condition(each["type"].text(), each["status"].text(), each["reason"].text(""), each["message"].text(""))
        for each in Document(content)["status"]["conditions"]
    )


def heartbeat_age(content: Mapping[str, Any], now: datetime) -> float | None:
    """For how many seconds the object's agent has confirmed nothing; None where it does not tell, or no time."""
    try:
        return (now - datetime.fromisoformat(content["status"][HEARTBEAT])).total_seconds()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


__all__ = [
    "HEARTBEAT",
    "Condition",
    "MalformedObject",
    "Summary",
    "heartbeat_age",
    "node_topology",
    "read_conditions",
    "read_kubelet",
    "read_machine",
    "read_node_topology",
    "status_of",
]
