"""Read a NodeTopology object as a change of the snapshot: published, or unreadable.

Owns the sharing of equal machines between nodes. Leaves the fields of the object to ``wire``.
"""

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from topomend.base.bounded_dict import BoundedDict
from topomend.cache import changes
from topomend.cache.memory_budget import MemoryBudget
from topomend.cache.publication_size import (
    ORDINARY_BYTES,
    ROOM_BYTES,
    json_bytes,
    machine_bytes,
    state_bytes,
)
from topomend.cache.snapshot import Publication
from topomend.model.machine import Core, Machine
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState
from topomend.wire.document import MalformedObject
from topomend.wire.published.machine import core_fields
from topomend.wire.published.node_topology import (
    HEARTBEAT,
    MAX_STATUS_BYTES,
    heartbeat_age,
    read_conditions,
    read_kubelet,
    read_machine,
    read_node_topology,
)

_Part = TypeVar("_Part")

MAX_CORES = 64
"""How many machines' cores are kept to be shared: a cluster has few kinds of processors."""

TOO_LARGE = f"status: more than {MAX_STATUS_BYTES >> 10} KiB, which is the most that an agent writes"
NO_ROOM = "status: too large to be kept beside the other large ones; see whether this node and those are healthy"


class TopologyReader:
    """Reads the objects of all nodes. Several threads may use it.

    Equal machines and settings are the same object in all states that exist at the same time. ``budget`` is the memory
    for large states and machines, by default as much as the operator has for them.
    """

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self._budget = budget or MemoryBudget(ROOM_BYTES, ORDINARY_BYTES)
        self._machines: WeakValueDictionary[bytes, Machine] = WeakValueDictionary()
        self._kubelets: WeakValueDictionary[bytes, KubeletSettings] = WeakValueDictionary()
        self._cores: BoundedDict[bytes, tuple[Core, ...]] = BoundedDict(MAX_CORES)

    def published(
        self,
        content: dict[str, Any],
        date: datetime,
        now: float = 0.0,
        known: Publication | None = None,
        *,
        is_small: bool = False,
    ) -> changes.Published | changes.Unreadable:
        """The change that a NodeTopology object means, read at ``date``, which is ``now`` by the snapshot's clock.

        If ``known`` is a publication of the same version, its state is reused. Raises MalformedObject, also for one
        that is larger than an agent writes, or for which there is no room. ``is_small``: it is known not to be larger.
        """
        if not content.get("status"):  # an agent creates the object first and writes its status after that
            return changes.Unreadable(content["metadata"]["name"], "its agent has not published yet")
        if not is_small and json_bytes(content["status"], MAX_STATUS_BYTES) > MAX_STATUS_BYTES:
            raise MalformedObject(TOO_LARGE)
        version = content["metadata"].get("resourceVersion", "")
        state = known.state if known and known.is_of(version) else self._state(content)
        age = heartbeat_age(content, date)
        heartbeat = None if age is None else changes.Heartbeat(content["status"][HEARTBEAT], age, now)
        return changes.Published(state, version, why_not_ready(content), heartbeat)

    def _state(self, content: dict[str, Any]) -> NodeState:
        """The node's state. Equal machines and settings are shared with other nodes."""
        status = content["status"]
        relevant = _relevant(status.get("machine"))
        machine = _read_once(self._machines, relevant, lambda: self._machine(relevant))
        kubelet = _read_once(self._kubelets, status.get("kubelet"), lambda: read_kubelet(content))
        state = read_node_topology(content, machine, kubelet)
        if not self._budget.take(state, state_bytes(state)):
            raise MalformedObject(NO_ROOM)
        return state

    def _machine(self, relevant: object) -> Machine:
        """The machine. An ordinary one shares its cores with others, machines that differ only in their memory too."""
        key = _digest(core_fields(relevant)) if isinstance(relevant, dict) else b""
        machine = read_machine({"status": {"machine": relevant}}, self._cores.get(key))
        size = machine_bytes(machine)
        if size <= ORDINARY_BYTES:
            self._cores[key] = machine.cores
        elif not self._budget.take(machine, size):
            raise MalformedObject(NO_ROOM)
        return machine


def _relevant(machine: object) -> object:
    """The machine without PCI devices and other hardware, which admission does not read."""
    if not isinstance(machine, dict):
        return machine
    return {key: value for key, value in machine.items() if key not in ("pciDevices", "hardware")}


def _read_once(known: WeakValueDictionary[bytes, _Part], content: object, read: Callable[[], _Part]) -> _Part:
    """The result of ``read``, called once for equal contents that are in use at the same time."""
    digest = _digest(content)
    part = known.get(digest)
    if part is None:
        part = known[digest] = read()
    return part


def _digest(content: object) -> bytes:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).digest()


def why_not_ready(content: dict[str, Any]) -> str:
    """The reason and message of the object's condition Ready if it is not True; otherwise empty.

    Raises MalformedObject.
    """
    for condition in read_conditions(content):
        if condition.type == "Ready" and condition.status != "True":
            return f"its agent says {condition.reason}: {condition.message}"
    return ""
