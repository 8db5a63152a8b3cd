"""A NodeTopology's status kept within bounds, whatever the machine: what replay can do without goes first.

Owns how large the object may be, and that a reader is told what is not in it. Where even what replay decides by would
be too much, the node is not Ready: what is missing is then not known, and nobody guesses it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_BYTES = 512 << 10
"""As JSON. What replay needs of 256 NUMA nodes, 4,096 CPUs and 500 pods fits; etcd refuses 1.5 MiB, and every reader of
all nodes holds this much of each."""

_ROOM = 4 << 10
"""For the words about what was cut."""

MAX_PODS, MAX_NUMA_NODES, MAX_CORES, MAX_RESOURCES = 1024, 256, 8192, 256
"""As many as the kind's schema allows."""

_MAX_MESSAGE = 1000
_PREFER_CLOSEST = "prefer-closest-numa-nodes"


def size_of(content: object) -> int:
    """The bytes of it as JSON without spaces."""
    return len(json.dumps(content, separators=(",", ":")))


def bounded(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status itself where it is small enough; else one that is, whose conditions count what was left out."""
    if size_of(status) <= MAX_BYTES - _ROOM and not _has_too_many(status):
        return status
    cut = {**status, "machine": dict(status.get("machine", {}))}
    spared = _cut_what_replay_does_not_need(cut)
    lost = _cut_allocations(cut)
    machine = _cut_machine(cut)
    _tell(cut, spared, lost, machine)
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
    return size_of(cut) - (MAX_BYTES - _ROOM)


def _cut_what_replay_does_not_need(cut: dict[str, Any]) -> list[str]:
    machine, words = cut["machine"], []
    if _excess(cut) > 0 and machine.pop("hardware", None):
        words.append("hardware")
    if (excess := _excess(cut)) > 0 and machine.get("pciDevices"):
        devices = machine["pciDevices"]
        machine["pciDevices"] = _shortened(devices, excess)
        words.append(f"{len(devices) - len(machine['pciDevices'])} of {len(devices)} PCI devices")
    options = cut.get("kubelet", {}).get("topologyManagerPolicyOptions", {})
    if _excess(cut) > 0 and options.get(_PREFER_CLOSEST) != "true":
        nodes = machine.get("numaNodes", [])
        machine["numaNodes"] = [{key: each[key] for key in each if key != "distances"} for each in nodes]
        words.append(f"distances of {len(nodes)} NUMA nodes")
    return words


def _cut_allocations(cut: dict[str, Any]) -> list[str]:
    words = []
    pods = cut.get("pods", [])
    if (excess := _excess(cut)) > 0 or len(pods) > MAX_PODS:
        cut["pods"] = _shortened(pods, max(excess, 0))[:MAX_PODS]
        words.append(f"{len(pods) - len(cut['pods'])} of {len(pods)} pods that hold something")
    if _excess(cut) > 0 or len(cut.get("devices", ())) > MAX_RESOURCES:
        words.append(f"devices of {len(cut.pop('devices', ()))} resources")
    return words


def _cut_machine(cut: dict[str, Any]) -> list[str]:
    if _excess(cut) <= 0 and not _machine_has_too_many(cut):
        return []
    machine = cut.pop("machine")
    cut.pop("memory", None)
    return [f"the machine of {len(machine.get('numaNodes', ()))} NUMA nodes and {len(machine.get('cores', ()))} cores"]


def _shortened(items: Sequence[Any], excess: int) -> list[Any]:
    """The first of them, so many that at least ``excess`` bytes are saved if they can be."""
    kept = list(items)
    while kept and excess > 0:
        excess -= size_of(kept.pop()) + 1
    return kept


# What is said of it


def _tell(cut: dict[str, Any], spared: list[str], lost: list[str], machine: list[str]) -> None:
    changed = {}
    if spared and not machine:
        changed["HostDiscovered"] = ("True", "Truncated", f"left out to keep this object small: {', '.join(spared)}")
    for kind, words in (("AllocationsRead", lost), ("HostDiscovered", machine)):
        if words:
            changed[kind] = ("False", "TooLarge", f"left out, for there is no room: {', '.join(words)}")
    if lost or machine:
        missing = ", ".join([*machine, *lost])
        why = f"there is no room for {missing}: what a kubelet would answer here is not known"
        changed["Ready"] = ("False", "TooLarge", why)
        cut["summary"] = {**cut.get("summary", {}), "status": why}
    cut["conditions"] = [_changed(each, changed.get(each["type"])) for each in cut.get("conditions", ())]


def _changed(condition: Mapping[str, Any], change: tuple[str, str, str] | None) -> Mapping[str, Any]:
    """The condition with the change, unless it told of something worse already."""
    if change is None:
        return condition
    status, reason, message = change
    if condition["status"] != "True":
        status, reason = condition["status"], condition["reason"]
    words = f"{message}; {condition['message']}" if condition["message"] else message
    return {**condition, "status": status, "reason": reason, "message": words[:_MAX_MESSAGE]}
