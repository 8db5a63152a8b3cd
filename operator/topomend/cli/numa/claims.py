"""The devices that a pod has by claims, which no kubelet aligns with CPUs, memory and the devices of plugins.

Owns the requests for them and their wording. Leaves the fields of the objects to ``wire``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster import Cluster
from topomend.decide.requested_alignment import aligned_numa_nodes, places_text
from topomend.decide.trace_text import numa_text
from topomend.kube.client import RESOURCE_CLAIMS, RESOURCE_SLICES
from topomend.kube.errors import APIError
from topomend.model.claimed_device import ClaimedDevice
from topomend.model.pod import Pod
from topomend.wire.document import MalformedObject
from topomend.wire.resource_claim import DeviceKey, read_claim_names, read_claimed_devices, read_numa_nodes


@dataclass(frozen=True)
class Claims:
    """The devices, and why some are not known; empty where all are."""

    devices: tuple[ClaimedDevice, ...] = ()
    problem: str = ""


def claims_of(cluster: Cluster, pod: Mapping[str, Any]) -> Claims:
    """The devices that a Pod object of the cluster's namespace has by claims."""
    try:
        names = read_claim_names(pod)
        namespace = pod.get("metadata", {}).get("namespace") or cluster.namespace
        given = [
            device
            for name in names
            for device in read_claimed_devices(cluster.client.get(RESOURCE_CLAIMS, name, namespace))
        ]
        if not given:
            return Claims()
    except (APIError, MalformedObject) as error:
        return Claims(problem=f"its resource claims cannot be read: {error}")
    try:
        places = dict(cluster.client.read(RESOURCE_SLICES, read_numa_nodes, cached=True).items)
    except (APIError, MalformedObject) as error:
        return Claims(tuple(given), f"where the devices of its claims are cannot be read: {error}")
    return Claims(tuple(replace(device, numa_node=_numa_node(places, device)) for device in given))


def _numa_node(places: Mapping[DeviceKey, int], device: ClaimedDevice) -> int | None:
    number = places.get((device.driver, device.pool, device.device), -1)
    return None if number < 0 else number


def claim_lines(claims: Claims, snapshot: Snapshot, node: str, pod: Pod) -> Iterator[str]:
    """What the pod has by claims, what its kubelet gave it, and that nobody brings the two together."""
    if claims.devices:
        yield f"by claim: {', '.join(map(_words, claims.devices))}"
        publication = snapshot.publications.get(node)
        from_kubelet = places_text(publication.state, pod) if publication else ""
        if publication and from_kubelet:
            yield f"by its kubelet: {from_kubelet}"
            mask = aligned_numa_nodes(publication.state, pod)
            apart = [
                device for device in claims.devices if device.numa_node is not None and not mask >> device.numa_node & 1
            ]
            if apart:
                yield "these are apart: no kubelet aligns CPUs, memory and the devices of plugins with claims"
    if claims.problem:
        yield claims.problem


def claim_records(devices: Sequence[ClaimedDevice]) -> list[dict[str, Any]]:
    """What programs read of them; docs/plugin.md lists the fields."""
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
    where = "" if device.numa_node is None else f" on {numa_text(1 << device.numa_node)}"
    return f"{device.device} of {device.driver} (claim {device.claim}){where}"
