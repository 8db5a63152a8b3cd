"""The claims of a pod that is to run, and the devices that the cluster has for them, as a verb asks about them.

Leaves reading the objects to ``kube.device_supply``, where the pod and its devices would be to
``decide.device_claims``, and devices that pods have to ``claims``.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.output.console import echo
from topomend.decide.claims.device_claims import ClaimAnswer, Sharing, claims_on
from topomend.kube.devices import device_supply
from topomend.kube.errors import APIError
from topomend.kube.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from topomend.model.devices.device_supply import DeviceSupply, PodClaims
from topomend.model.pods.pod import Pod
from topomend.replay.admission import admit
from topomend.wire.devices.device_class import DeviceClass
from topomend.wire.document import Document

_KINDS = {RESOURCE_CLAIMS: "ResourceClaim", RESOURCE_CLAIM_TEMPLATES: "ResourceClaimTemplate"}


class Devices:
    """The devices of a cluster, read once for all pods that a verb is asked about, when the first has claims."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot) -> None:
        self._cluster, self._snapshot = cluster, snapshot
        self._classes: tuple[DeviceClass, ...] | None = None
        self._supply: DeviceSupply | None = None

    def claims_of(self, asked: RequestedPod) -> PodClaims | None:
        """The pod's claims; None for one that has none."""
        get = partial(self._object, asked)
        by_claim = self._snapshot.by_claim
        return device_supply.read_pod_claims(asked.content, asked.pod, by_claim, get, self._device_classes)

    def answers(self, nodes: Iterable[str], pod: Pod, claims: PodClaims) -> Mapping[str, ClaimAnswer]:
        """The answers of nodes that would admit the pod, by node."""
        answers = {}
        for node in nodes:
            verdict, state = admit(self._snapshot.publications[node].state_with_assumed(), pod)
            if verdict.admitted and (answer := claims_on(self.supply, self._snapshot.nodes[node], state, pod, claims)):
                answers[node] = answer
        return answers

    @property
    def supply(self) -> DeviceSupply:
        """All devices, and which of them are free."""
        if self._supply is None:
            self._supply = self._read_supply()
        return self._supply

    def _read_supply(self) -> DeviceSupply:
        client = self._cluster.client
        try:
            rules, devices = device_supply.read_taint_rules(client, _warn), device_supply.read_devices(client, _warn)
            taken, classes = device_supply.read_taken_devices(client, _warn), self._device_classes()
        except APIError as error:
            return DeviceSupply(problem=f"which devices are free cannot be read: {error}")
        return device_supply.supply_of(devices, rules, taken, classes)

    def _device_classes(self) -> tuple[DeviceClass, ...]:
        if self._classes is None:
            self._classes = device_supply.read_classes(self._cluster.client, _warn)
        return self._classes

    def _object(self, asked: RequestedPod, resource: Resource, name: str) -> Mapping[str, Any]:
        """The object that the file has beside the pod, else that of the pod's namespace. Raises APIError."""
        for content in asked.beside:
            if content.get("kind") == _KINDS[resource] and (content.get("metadata") or {}).get("name") == name:
                return content
        namespace = Document(asked.content)["metadata"]["namespace"].text("") or self._cluster.namespace
        return self._cluster.client.get(resource, name, namespace)


def _warn(problem: str) -> None:
    echo(problem, err=True)


def can_have(answer: ClaimAnswer | None) -> bool:
    """Whether a node may have the pod's devices, as far as is known."""
    return answer is None or answer.sharing is not Sharing.NO_DEVICE
