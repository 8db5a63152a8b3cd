"""The devices that pods have by claims, which no kubelet aligns with CPUs, memory and the devices of plugins.

Owns the requests for them and their wording. Leaves the fields of the objects to ``wire``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from topomend.alignment.requested import ContainerPlaces, places_by_container
from topomend.alignment.running import Claimed, ClaimedByContainer
from topomend.base.plain_text import plain
from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.devices.device_places import DevicePlaces, device_places
from topomend.explain.trace_text import numa_text
from topomend.kube.errors import APIError
from topomend.kube.resources import NODE_TOPOLOGIES, RESOURCE_CLAIMS
from topomend.model.bitmask import NUMAMask
from topomend.model.devices.claimed_device import ClaimedDevice, ContainerClaim
from topomend.model.pods.pod import Pod
from topomend.model.pods.running_pod import RunningPod
from topomend.wire.devices.resource_claim import (
    Unhealthy,
    read_claim_names,
    read_claimed_devices,
    read_claims_by_container,
    read_unhealthy,
)
from topomend.wire.document import MalformedObject
from topomend.wire.published.claims import read_container_claims

MAX_HEALTH = 400
"""How much is shown of what a driver says of an unhealthy device."""

_NOBODY_ALIGNS = "no kubelet aligns the devices of claims with CPUs, memory and the devices of plugins"


@dataclass(frozen=True)
class Claims:
    """The devices, those of each container by its name, and why some are not known; empty where all are.

    ``unhealthy`` are those of which their driver says so.
    """

    devices: tuple[ClaimedDevice, ...] = ()
    by_container: Mapping[str, tuple[ClaimedDevice, ...]] = field(default_factory=dict)
    problem: str = ""
    unhealthy: tuple[Unhealthy, ...] = ()


def claims_of(cluster: Cluster, pod: Mapping[str, Any], node: str) -> Claims:
    """The devices that a Pod object of the cluster's namespace has by claims on its ``node``.

    A user who may not read its claims gets what the agent publishes of them.
    """
    try:
        names = read_claim_names(pod)
        if not names:
            return Claims()
        asked = read_claims_by_container(pod)
        namespace = pod.get("metadata", {}).get("namespace") or cluster.namespace
        given = [
            device
            for name in names
            for device in read_claimed_devices(cluster.client.get(RESOURCE_CLAIMS, name, namespace))
        ]
        by_container = {
            container: tuple(device for device in given if _is_asked(device, claims))
            for container, claims in asked.items()
        }
        found = Claims(tuple(given), by_container, unhealthy=tuple(read_unhealthy(pod)))
    except (APIError, MalformedObject) as error:
        found = replace(_published(cluster, pod, node), problem=f"its resource claims cannot be read: {error}")
    return _placed(found, device_places(cluster)) if found.devices else found


def claimed_by_container(cluster: Cluster, pods: Iterable[RunningPod], namespace: str) -> ClaimedByContainer:
    """The devices that containers of running pods have by claims; a namespace means that all pods are in this one."""
    with_claims = [pod for pod in pods if pod.claims]
    if not with_claims:
        return {}
    places = device_places(cluster)
    try:
        given, problem = dict(cluster.client.read(RESOURCE_CLAIMS, _given, namespace=namespace).items), places.problem
    except (APIError, MalformedObject) as error:
        given, problem = {}, f"resource claims cannot be read: {error}"
    return {
        (pod.pod.namespace, pod.pod.name, container): _of_container(pod.pod.namespace, claims, given, places, problem)
        for pod in with_claims
        for container, claims in pod.claims.items()
    }


_Given = Mapping[tuple[str, str], Claimed]
"""What claims were given, by namespace and name."""


def _given(claim: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Claimed]]:
    metadata = claim["metadata"]
    key = metadata.get("namespace", ""), metadata["name"]
    try:
        yield key, Claimed(tuple(read_claimed_devices(claim)))
    except MalformedObject as error:  # of the pods with this claim alone nothing is known
        yield key, Claimed(problem=f"the resource claim {metadata['name']} cannot be read: {error}")


def _of_container(
    namespace: str, claims: Sequence[tuple[str, str]], given: _Given, places: DevicePlaces, problem: str
) -> Claimed:
    found = [
        given.get((namespace, name), Claimed(problem=f"the resource claim {name} does not exist")) for name, _ in claims
    ]
    if why := problem or next((each.problem for each in found if each.problem), ""):
        return Claimed(problem=why)
    devices = (device for each in found for device in each.devices)
    asked = dict.fromkeys(device for device in devices if _is_asked(device, claims))
    return Claimed(tuple(_with_place(device, places) for device in asked))


def _with_place(device: ClaimedDevice, places: DevicePlaces) -> ClaimedDevice:
    return device._replace(numa_node=places.numa_node(device.driver, device.pool, device.device))


def _is_asked(device: ClaimedDevice, claims: Iterable[tuple[str, str]]) -> bool:
    """Whether one of ``claims`` (name, and request or empty) gave the device; a request may name a choice after /."""
    request = device.request.partition("/")[0]
    return any(name == device.claim and wanted in ("", request) for name, wanted in claims)


def _published(cluster: Cluster, pod: Mapping[str, Any], node: str) -> Claims:
    metadata = pod.get("metadata", {})
    try:
        listed = read_container_claims(cluster.client.get(NODE_TOPOLOGIES, node))
    except (APIError, MalformedObject):
        return Claims()
    by_container: dict[str, tuple[ClaimedDevice, ...]] = {}
    for claim in listed:
        if (claim.namespace, claim.pod) == (metadata.get("namespace") or cluster.namespace, metadata.get("name")):
            by_container[claim.container] = (*by_container.get(claim.container, ()), *_devices_of(claim))
    devices = dict.fromkeys(device for devices in by_container.values() for device in devices)
    return Claims(tuple(devices), by_container)


def _devices_of(claim: ContainerClaim) -> Iterator[ClaimedDevice]:
    for device in claim.devices:
        yield ClaimedDevice(claim.claim, "", claim.driver, claim.pool, device)


def _placed(claims: Claims, places: DevicePlaces) -> Claims:
    def placed(devices: Iterable[ClaimedDevice]) -> tuple[ClaimedDevice, ...]:
        return tuple(_with_place(device, places) for device in devices)

    by_container = {name: placed(devices) for name, devices in claims.by_container.items()}
    problem = "; ".join(filter(None, (claims.problem, places.problem)))
    return replace(claims, devices=placed(claims.devices), by_container=by_container, problem=problem)


def claim_lines(claims: Claims, snapshot: Snapshot, node: str, pod: Pod) -> Iterator[str]:
    """What the pod has by claims, and for each container whether that is where its kubelet put the rest."""
    if claims.devices:
        yield f"by claim: {', '.join(map(_words, claims.devices))}"
        publication = snapshot.publications.get(node)
        by_kubelet = places_by_container(publication.state, pod) if publication else {}
        lines = [
            _container_line(name, devices, by_kubelet[name])
            for name, devices in claims.by_container.items()
            if devices and name in by_kubelet
        ]
        yield from lines
        if lines:
            yield _NOBODY_ALIGNS
    for each in claims.unhealthy:
        said = f": {each.message}" if each.message else ""
        yield plain(f"container {each.container}: {each.resource} (claim {each.claim}) is unhealthy{said}", MAX_HEALTH)
    if claims.problem:
        yield claims.problem


def _container_line(name: str, devices: Sequence[ClaimedDevice], by_kubelet: ContainerPlaces) -> str:
    words = ", ".join(f"{device.device} by claim{_where(device.numa_node)}" for device in devices)
    return f"container {name}: {words}; by its kubelet {by_kubelet.words}: {_judged(devices, by_kubelet.numa_nodes)}"


def _judged(devices: Sequence[ClaimedDevice], by_kubelet: NUMAMask) -> str:
    """Whether the devices are on the NUMA nodes that the kubelet chose."""
    places = [device.numa_node for device in devices]
    if any(place is not None and not by_kubelet >> place & 1 for place in places):
        return "these are apart"
    if None in places:
        return "whether these are on one NUMA node is unknown"
    return "all on one NUMA node" if by_kubelet.bit_count() == 1 else f"all on {numa_text(by_kubelet)}"


def claim_records(devices: Sequence[ClaimedDevice]) -> list[dict[str, Any]]:
    """What programs read of them; docs/reference.md lists the fields."""
    return [
        {
            "claim": device.claim,
            "request": device.request,
            "driver": device.driver,
            "pool": device.pool,
            "device": device.device,
            "numaNode": device.numa_node,
        }
        for device in devices
    ]


def _words(device: ClaimedDevice) -> str:
    return f"{device.device} of {device.driver} (claim {device.claim}){_where(device.numa_node)}"


def _where(numa_node: int | None) -> str:
    return "" if numa_node is None else f" on {numa_text(1 << numa_node)}"
