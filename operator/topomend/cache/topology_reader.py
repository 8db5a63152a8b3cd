"""A NodeTopology object as the event that it is: readable, not ready, or malformed."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from topomend.cache import changes
from topomend.cache.snapshot import Publication
from topomend.model.bounded_dict import BoundedDict
from topomend.model.kubelet import KubeletSettings
from topomend.model.machine import Core, Machine
from topomend.model.node_state import NodeState
from topomend.replay.fast_path.capacity import prepare
from topomend.wire.node_topology import (
    HEARTBEAT,
    heartbeat_age,
    read_conditions,
    read_kubelet,
    read_machine,
    read_node_topology,
)

_Part = TypeVar("_Part")

MAX_MACHINES = 10_000
"""Of which what was read is kept: nodes publish theirs again and again, and many have the same."""

_machines: BoundedDict[bytes, Machine] = BoundedDict(MAX_MACHINES)
_kubelets: BoundedDict[bytes, KubeletSettings] = BoundedDict(MAX_MACHINES)
_cores: BoundedDict[tuple[Core, ...], tuple[Core, ...]] = BoundedDict(MAX_MACHINES)


def published(
    content: dict[str, Any], date: datetime, now: float = 0.0, known: Publication | None = None
) -> changes.Published | changes.Unreadable:
    """The event that a NodeTopology object is, seen at ``date``, which is ``now`` by the clock of the view.

    Of an object that is ``known`` in this very version the state is not read again. Raises MalformedObject.
    """
    if not content.get("status"):  # an agent creates the object first and writes its status after that
        return changes.Unreadable(content["metadata"]["name"], "its agent has not published yet")
    version = content["metadata"].get("resourceVersion", "")
    state = known.state if known and version and known.confirmed == version else _state(content)
    age = heartbeat_age(content, date)
    heartbeat = None if age is None else changes.Heartbeat(content["status"][HEARTBEAT], age, now)
    return changes.Published(state, version, why_not_ready(content), heartbeat)


def _state(content: dict[str, Any]) -> NodeState:
    """The state as admission looks at it, what it has in common with others held once."""
    status = content["status"]
    looked_at = _looked_at(status.get("machine"))
    machine = _read_once(_machines, looked_at, lambda: _sharing_cores(read_machine({"status": {"machine": looked_at}})))
    kubelet = _read_once(_kubelets, status.get("kubelet"), lambda: read_kubelet(content))
    state = read_node_topology(content, machine, kubelet)
    prepare(state)
    return state


def _looked_at(machine: object) -> object:
    """No cards, and no more of the hardware than the kubelet sees."""
    if not isinstance(machine, dict):
        return machine
    return {key: each for key, each in machine.items() if key not in ("pciDevices", "hardware")}


def _sharing_cores(machine: Machine) -> Machine:
    """Machines that differ in a few bytes of memory have the same cores."""
    return replace(machine, cores=_cores.setdefault(machine.cores, machine.cores))


def _read_once(known: BoundedDict[bytes, _Part], content: object, read: Callable[[], _Part]) -> _Part:
    """What was read of the same content before, or is read now."""
    digest = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).digest()
    found = known.get(digest)
    if found is None:
        found = known[digest] = read()
    return found


def why_not_ready(content: dict[str, Any]) -> str:
    """What a NodeTopology object's agent says that it does not know; empty where it is Ready, or has not said.

    Raises MalformedObject.
    """
    for each in read_conditions(content):
        if each.type == "Ready" and each.status != "True":
            return f"its agent says {each.reason}: {each.message}"
    return ""
