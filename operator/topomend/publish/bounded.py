"""Keep a NodeTopology's status within bounds on any machine. Data that replay does not need is omitted first.

Owns the order of omission, and the conditions that report it. If the data that replay needs is too
large, the node is not Ready, because replay would be wrong without it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from topomend.model.condition import WOULD_NOT_START_AGAIN
from topomend.wire.published.node_topology import MAX_STATUS_BYTES

_ROOM = 4 << 10
"""Bytes reserved for the conditions that report omitted data."""

MAX_PODS, MAX_NUMA_NODES, MAX_CORES, MAX_RESOURCES = 1024, 256, 8192, 256
"""The most that the kind's schema allows."""

_MAX_MESSAGE = 1000
_PREFER_CLOSEST = "prefer-closest-numa-nodes"


def size_of(content: object) -> int:
    """The size of ``content`` in bytes, as JSON without spaces and with ASCII escapes."""
    return len(json.dumps(content, separators=(",", ":")))


def bounded(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same status if it is small enough, otherwise a smaller copy whose conditions report the omitted data."""
    if size_of(status) <= MAX_STATUS_BYTES - _ROOM and not _has_too_many(status):
        return status
    cut = {**status, "machine": dict(status.get("machine", {}))}
    claims = _cut_claims(cut)
    unneeded = _cut_what_replay_does_not_need(cut)
    allocations = _cut_allocations(cut)
    machine = _cut_machine(cut)
    _explain_cuts(cut, {"AllocationsRead": claims, "HostDiscovered": unneeded}, allocations, machine)
    return cut


def _has_too_many(status: Mapping[str, Any]) -> bool:
    return (
        len(status.get("pods", ())) > MAX_PODS
        or len(status.get("devices", ())) > MAX_RESOURCES
        or _machine_has_too_many(status)
    )


def _machine_has_too_many(status: Mapping[str, Any]) -> bool:
    machine = status.get("machine", {})
    return len(machine.get("numaNodes", ())) > MAX_NUMA_NODES or len(machine.get("cores", ())) > MAX_CORES


def _excess(cut: Mapping[str, Any]) -> int:
    return size_of(cut) - (MAX_STATUS_BYTES - _ROOM)


def _cut_claims(cut: dict[str, Any]) -> list[str]:
    claims = cut.get("claims", [])
    if not claims or (excess := _excess(cut)) <= 0:
        return []
    cut["claims"] = _shortened(claims, excess)
    return [f"{len(claims) - len(cut['claims'])} of {len(claims)} claims of containers"]


def _cut_what_replay_does_not_need(cut: dict[str, Any]) -> list[str]:
    machine, omitted = cut["machine"], []
    if _excess(cut) > 0 and machine.pop("hardware", None):
        omitted.append("hardware")
    if (excess := _excess(cut)) > 0 and machine.get("pciDevices"):
        devices = machine["pciDevices"]
        machine["pciDevices"] = _shortened(devices, excess)
        omitted.append(f"{len(devices) - len(machine['pciDevices'])} of {len(devices)} PCI devices")
    options = cut.get("kubelet", {}).get("topologyManagerPolicyOptions", {})
    if _excess(cut) > 0 and options.get(_PREFER_CLOSEST) != "true":
        nodes = machine.get("numaNodes", [])
        machine["numaNodes"] = [{key: node[key] for key in node if key != "distances"} for node in nodes]
        omitted.append(f"distances of {len(nodes)} NUMA nodes")
    return omitted


def _cut_allocations(cut: dict[str, Any]) -> list[str]:
    omitted = []
    pods = cut.get("pods", [])
    if (excess := _excess(cut)) > 0 or len(pods) > MAX_PODS:
        cut["pods"] = _shortened(pods, max(excess, 0))[:MAX_PODS]
        omitted.append(f"{len(pods) - len(cut['pods'])} of {len(pods)} pods that hold something")
    if _excess(cut) > 0 or len(cut.get("devices", ())) > MAX_RESOURCES:
        omitted.append(f"devices of {len(cut.pop('devices', ()))} resources")
    return omitted


def _cut_machine(cut: dict[str, Any]) -> list[str]:
    if _excess(cut) <= 0 and not _machine_has_too_many(cut):
        return []
    machine = cut.pop("machine")
    cut.pop("memory", None)
    return [f"the machine of {len(machine.get('numaNodes', ()))} NUMA nodes and {len(machine.get('cores', ()))} cores"]


def _shortened(items: Sequence[Any], excess: int) -> list[Any]:
    """The items without the last ones: dropping those saves at least ``excess`` bytes, if all items together do."""
    first_items = list(items)
    while first_items and excess > 0:
        excess -= size_of(first_items.pop()) + 1
    return first_items


# The conditions that say what was cut


def _explain_cuts(
    cut: dict[str, Any], unneeded: Mapping[str, list[str]], allocations: list[str], machine: list[str]
) -> None:
    """``unneeded`` is by the condition that reports it. A condition that lacks more than that says only what counts."""
    changes = {
        kind: ("True", "Truncated", f"omitted to keep this object small: {', '.join(omitted)}")
        for kind, omitted in unneeded.items()
        if omitted
    }
    for kind, omitted in (("AllocationsRead", allocations), ("HostDiscovered", machine)):
        if omitted:
            changes[kind] = ("False", "TooLarge", f"omitted for lack of room: {', '.join(omitted)}")
    if allocations or machine:
        missing = ", ".join([*machine, *allocations])
        why = f"there is no room for {missing}, so replay cannot predict this kubelet"
        changes["Ready"] = ("False", "TooLarge", why)
        cut["summary"] = {**cut.get("summary", {}), "status": why}
    cut["conditions"] = [_changed(condition, changes.get(condition["type"])) for condition in cut.get("conditions", ())]


def _changed(condition: Mapping[str, Any], change: tuple[str, str, str] | None) -> Mapping[str, Any]:
    """The condition with the change. One that was not True, or has a finding, keeps its status and reason and gains the
    message."""
    if change is None:
        return condition
    status, reason, message = change
    if condition["status"] != "True" or (status == "True" and condition["reason"] == WOULD_NOT_START_AGAIN):
        status, reason = condition["status"], condition["reason"]
    words = f"{message}; {condition['message']}" if condition["message"] else message
    return {**condition, "status": status, "reason": reason, "message": words[:_MAX_MESSAGE]}
