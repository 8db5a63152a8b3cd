"""What is around the pods that wait: other pods, their namespace, and what the operator said. Read once, if needed.

What the user may not read is left out. Leaves what it means to ``gated``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.pods.occupants import BoundPods
from topomend.cli.numa.explain.earlier_refusal import EXPLAINED
from topomend.cli.numa.explain.pod_state import event_time
from topomend.cli.output.failures import CannotAsk
from topomend.decide.diagnosis.totals import Requests
from topomend.kube.errors import APIError
from topomend.kube.pod_groups import GROUP_RESOURCES
from topomend.kube.resources import EVENTS, NAMESPACES, PODS, UNENDED
from topomend.model.nodes.node import Node
from topomend.model.pods.scheduling import PodGroup, WatchedPod
from topomend.relaunch.placeholder import LABELS
from topomend.runtime.event_recorder import CONTROLLER
from topomend.wire.document import MalformedObject
from topomend.wire.group import PLACEHOLDER_GATE, STEER_LABEL
from topomend.wire.pods.pod_group import read_group_size
from topomend.wire.pods.scheduling import read_watched_pod

AUTOSCALERS = ("cluster-autoscaler", "karpenter")
"""How they call themselves in their events about pods."""

KARPENTERS_LABEL = "karpenter.sh/nodepool"
"""A label of every node that Karpenter has added. Labels of other pools show no autoscaler."""

UNBOUND = "spec.nodeName="
"""The field selector of pods without a node. The API server has an index by it."""

MOST_ROOMS = 5
"""For how many kinds of pods it is worked out who would have to go: each may take a second."""


class Surroundings:
    """Reads as far as it is asked."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pods: dict[str, Sequence[WatchedPod]] = {}
        self._steered: dict[str, bool | None] = {}
        self._refusals: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._of_pods: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._rooms = 0

    @cached_property
    def bound_pods(self) -> BoundPods | None:
        """The pods of all nodes; None for a user who may not list them."""
        bound = BoundPods(self._cluster)
        try:
            bound.wait()
        except CannotAsk:
            return None
        return bound

    def requests_on(self, nodes: Collection[str]) -> Mapping[str, Requests] | None:
        """What the pods on these nodes request together, by node; None for a user who may not list all pods."""
        return self.bound_pods.requests_on(nodes) if self.bound_pods else None

    def may_ask_for_room(self) -> bool:
        """Whether it is to be worked out for one more kind of pods who would have to go."""
        self._rooms += 1
        return self._rooms <= MOST_ROOMS

    def pods(self, namespace: str) -> Sequence[WatchedPod]:
        """The pods of a namespace that have not ended."""
        if namespace not in self._pods:
            try:
                listed = self._cluster.client.read(PODS, _readable, namespace=namespace, fields=UNENDED).items
            except APIError:
                listed = ()
            self._pods[namespace] = listed
        return self._pods[namespace]

    def is_steered(self, namespace: str) -> bool | None:
        """Whether new pods of the namespace are steered now; None for a user who may not read it."""
        if namespace not in self._steered:
            try:
                labels = self._cluster.client.get(NAMESPACES, namespace)["metadata"].get("labels") or {}
                self._steered[namespace] = labels.get(STEER_LABEL) == "enabled"
            except APIError:
                self._steered[namespace] = None
        return self._steered[namespace]

    def refusal_of_sibling(self, namespace: str, owner_uid: str) -> Mapping[str, Any]:
        """The newest event about a refused pod of this controller; empty without one."""
        if namespace not in self._refusals:
            self._refusals[namespace] = self._events(namespace, f"reason={EXPLAINED}")
        events = self._refusals[namespace]
        of_owner = (event for event in events if owner_uid in _uids(event))
        return max(of_owner, key=event_time, default={})

    def said_of(self, pod: WatchedPod) -> Mapping[str, Any]:
        """The newest event of the operator about the pod; empty without one."""
        ours = (event for event in self._events_of(pod) if _reporter(event) == CONTROLLER)
        return max(ours, key=event_time, default={})

    def sees_autoscaler(self, pod: WatchedPod, nodes: Iterable[Node]) -> bool:
        """Whether a node, an event about the pod or a placeholder shows that the cluster has an autoscaler."""
        return (
            any(KARPENTERS_LABEL in node.labels for node in nodes)
            or any(_reporter(event) in AUTOSCALERS for event in self._events_of(pod))
            or self._has_placeholders
        )

    @cached_property
    def _has_placeholders(self) -> bool:
        """Whether the component ``placeholders`` is in use, as far as the user may read that."""
        labels = ",".join(f"{name}={value}" for name, value in LABELS.items())
        try:
            found = self._cluster.client.read(PODS, _placeholders, fields=UNBOUND, labels=labels, cached=True)
        except APIError:
            return False
        return bool(found.items)

    def group_size(self, namespace: str, group: PodGroup) -> int | None:
        """How many pods the group's own object says it needs; None if there is none, or the user may not read it."""
        for resource in GROUP_RESOURCES.get(group.api_group, ()):
            try:
                return read_group_size(group.api_group, self._cluster.client.get(resource, group.name, namespace))
            except (APIError, MalformedObject):
                continue
        return None

    def _events_of(self, pod: WatchedPod) -> Sequence[Mapping[str, Any]]:
        if pod.uid not in self._of_pods:
            self._of_pods[pod.uid] = self._events(pod.namespace, f"regarding.uid={pod.uid}")
        return self._of_pods[pod.uid]

    def _events(self, namespace: str, fields: str) -> Sequence[Mapping[str, Any]]:
        try:
            return self._cluster.client.list(EVENTS, namespace=namespace, fields=fields).items
        except APIError:
            return ()


def _reporter(event: Mapping[str, Any]) -> str:
    """Who posted an event: older libraries name themselves in another field."""
    source = event.get("deprecatedSource") or {}
    return str(event.get("reportingController") or source.get("component") or "")


def _placeholders(content: dict[str, Any]) -> Iterator[str]:
    gates = content["spec"].get("schedulingGates") or ()
    yield from (gate["name"] for gate in gates if gate["name"] == PLACEHOLDER_GATE)


def _uids(event: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple((event.get(field) or {}).get("uid", "") for field in ("regarding", "related"))


def _readable(content: dict[str, Any]) -> Iterator[WatchedPod]:
    try:
        yield read_watched_pod(content)
    except MalformedObject:
        return
