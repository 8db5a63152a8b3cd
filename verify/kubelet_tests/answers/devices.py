"""Answers for pkg/kubelet/cm/devicemanager: hints for devices, and which devices a container gets."""

from collections.abc import Iterable, Mapping
from typing import Any

from verify.kubelet_tests.answers.objects import (
    read_container,
    read_hint,
    read_pod,
    written_hints,
    written_refusal,
)

from topomend.model.bitmask import mask_of
from topomend.model.nodes.node_state import Device, DeviceAllocation
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources
from topomend.replay.devices.manager import DeviceManager, DevicePool
from topomend.replay.gates import Gates
from topomend.replay.topology.hints import ResourceOffer


def hints(arguments: dict[str, Any], gates: Gates) -> dict[str, Any]:
    """The hints for a container (GetTopologyHints)."""
    pod = read_pod(arguments["pod"])
    manager = _manager(arguments, gates)
    return _written(arguments, manager, manager.hints(read_container(arguments["container"], pod)))


def pod_hints(arguments: dict[str, Any], gates: Gates) -> dict[str, Any]:
    """The hints for a whole pod (GetPodTopologyHints)."""
    manager = _manager(arguments, gates)
    return _written(arguments, manager, manager.pod_hints(read_pod(arguments["pod"])))


def _written(arguments: Mapping[str, Any], manager: DeviceManager, offers: Iterable[ResourceOffer]) -> dict[str, Any]:
    nodes = arguments["numaNodes"] or ()
    return {offer.resource: written_hints(offer, nodes, manager.usage) for offer in offers}


def allocate(arguments: dict[str, Any], gates: Gates) -> dict[str, Any]:
    """The devices of one resource that a container gets, and the refusal (devicesToAllocate)."""
    name, resource = arguments["container"], arguments["resource"]
    limits = Resources(limits={resource: arguments["required"] * 1000})
    container = Container(name, ContainerKind.APP, limits)
    pod = Pod("", "", arguments["uid"], (container,))
    manager = _manager(arguments, gates)
    manager.running = {name} if arguments["running"] else set()
    before = set(manager.allocated.get(name, {}).get(resource, ()))
    rejection = manager.allocate(pod, container, read_hint(arguments["affinity"]).mask)
    chosen = manager.allocated.get(name, {}).get(resource, set()) - before
    return {"devices": sorted(chosen), "refusal": written_refusal(rejection)}


ANSWERERS = {
    "devicemanager.GetTopologyHints": hints,
    "devicemanager.GetPodTopologyHints": pod_hints,
    "devicesToAllocate": allocate,
}


def _manager(arguments: Mapping[str, Any], gates: Gates) -> DeviceManager:
    known = dict.fromkeys([*arguments["healthy"], *arguments["inUse"]])
    pools = {resource: _pool(arguments, resource) for resource in known}
    allocated = {
        name: [DeviceAllocation(resource, tuple(ids)) for resource, ids in resources.items()]
        for name, resources in arguments["allocated"].items()
    }
    manager = DeviceManager(gates, mask_of(arguments["numaNodes"] or ()), pools, (), allocated)
    for resource in known:
        pools[resource].in_use = set(arguments["inUse"].get(resource) or ())
    manager._reusable = {resource: set(ids or ()) for resource, ids in arguments["reusable"].items()}
    return manager


def _pool(arguments: Mapping[str, Any], resource: str) -> DevicePool:
    devices = (
        Device(resource, name, None if nodes is None else tuple(nodes))
        for name, nodes in arguments["devices"].get(resource, {}).items()
    )
    pool = DevicePool(devices, registered=resource in arguments["healthy"])
    pool.healthy = set(arguments["healthy"].get(resource) or ())
    return pool
