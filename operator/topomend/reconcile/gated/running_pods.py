"""The pods that run on nodes, as those that may make room for another: read from the API server with their budgets."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.decide.queue import victims
from topomend.kube.client import Client
from topomend.kube.resources import PODS, UNENDED
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.reconcile.gated.budgets import Budgets
from topomend.reconcile.gated.held_places import HeldPlaces
from topomend.wire.document import MalformedObject
from topomend.wire.pods.scheduling import read_watched_pod

STUCK_SECONDS = 30.0
"""How long after its grace period a pod that is being deleted counts as one that leaves."""

MAX_ENTRIES = 10_000

MAX_RESOURCES = 64
"""A pod that asks for more different ones, which no node has, is no victim."""

MAX_TEXT = 253
"""Of what a user wrote, as much as the longest name has."""


class RunningPods:
    """Reads them for one thread. ``places`` knows for which pods places are held beside them."""

    def __init__(self, client: Client, places: HeldPlaces, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._places, self._clock = client, places, clock
        self._budgets, self._pod_lists = Budgets(client), 0
        self._leaving: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)

    @property
    def lists(self) -> int:
        """How many LISTs were made so far."""
        return self._pod_lists + self._budgets.lists

    def forget_budgets(self) -> None:
        """Read them again where they are asked for next."""
        self._budgets.forget()

    def of(self, nodes: Collection[str]) -> victims.Running:
        """Those of these nodes; those that are stuck in their deletion count as pods that stay. Raises APIError."""
        by_node = {name: self._on(name) for name in nodes}
        stuck = {other.uid for pods in by_node.values() for other in pods if self._is_stuck(other)}
        by_node = {name: [_staying(other, stuck) for other in pods] for name, pods in by_node.items()}
        return victims.Running(by_node, staying=stuck, awaited=self._places.awaited())

    def budgeted(self, pod: WatchedPod, running: victims.Running) -> victims.Running:
        """The same with the budgets of those that may leave for ``pod``. Raises APIError."""
        return replace(running, budgets=self._budgets.of(running.by_node, pod.priority))

    def _on(self, node: str) -> Sequence[WatchedPod]:
        fields = f"spec.nodeName={node},{UNENDED}"
        self._pod_lists += 1
        return self._client.read(PODS, _read, fields=fields, cached=True).items

    def _is_stuck(self, other: WatchedPod) -> bool:
        """Whether the pod should have left, and does not; or is its kubelet's own, which ends with a file alone."""
        if not other.deleting:
            return other.mirror
        now = self._clock()
        since = self._leaving[other.uid] = self._leaving.get(other.uid, now)
        return since + other.grace_seconds + STUCK_SECONDS <= now


def _staying(pod: WatchedPod, stuck: Collection[str]) -> WatchedPod:
    """``pod`` as one that does not leave, where it is stuck."""
    return replace(pod, deleting=False) if pod.uid in stuck else pod


def _read(content: dict[str, Any]) -> Iterator[WatchedPod]:
    """A pod that cannot be read is no victim; what it holds, its node's agent has published.

    Of the others only what decides whether and when they leave is kept, and no long text: their users may write
    megabytes into every other field.
    """
    with suppress(MalformedObject):
        pod = read_watched_pod(content)
        requests = requests_of(pod.pod)
        if len(requests) > MAX_RESOURCES:
            return
        together = Container("", ContainerKind.APP, Resources(requests, {}))
        yield WatchedPod(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            version=pod.version,
            pod=Pod(pod.namespace, pod.name, pod.uid, (together,)),
            phase=pod.phase,
            node=pod.node,
            owner=pod.owner and _shortened(pod.owner),
            mirror=pod.mirror,
            deleting=pod.deleting,
            relaunch=pod.relaunch[:MAX_TEXT],
            priority=pod.priority,
            critical=pod.critical,
            start_time=pod.start_time,
            grace_seconds=pod.grace_seconds,
        )


def _shortened(owner: Owner) -> Owner:
    """Whoever makes a pod writes these, and the API server bounds none of them."""
    kind, name, uid, api_version = (text[:MAX_TEXT] for text in (owner.kind, owner.name, owner.uid, owner.api_version))
    return Owner(kind, name, uid, api_version)
