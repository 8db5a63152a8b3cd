"""The pods that may be moved for a better place, those that wait, and why the others stay: ``defragment`` reads them.

Owns what is asked of the API server. Leaves the rules to ``decide/defragment/movable``, and the moves to its sibling
``search``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.cache.starting_pod import may_come_to_hold
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.pods.occupants import read_budgets
from topomend.decide.defragment.candidates import ending_of, queue_of, waits_for_us, within_budgets
from topomend.decide.defragment.movable import BUDGET, MALFORMED, Surroundings, age_of, why_left_out
from topomend.decide.defragment.moves import Pods
from topomend.decide.diagnosis.totals import Requests, sums_by_node
from topomend.decide.eligibility import why_not_wanted
from topomend.kube.claim_volumes import NotItsVolume, NoVolume, Terms, read_terms_of
from topomend.kube.errors import APIError
from topomend.kube.resources import NAMESPACES, PODS, REPLICA_SETS, STATEFUL_SETS, UNENDED
from topomend.model.pods.evictable_pod import EvictablePod
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.pods.workload import Workload
from topomend.relaunch.narrowed_affinity import as_requested
from topomend.wire.document import MalformedObject
from topomend.wire.group import RELAUNCH_ANNOTATION, STEER_LABEL, UNGATED_NAMESPACES
from topomend.wire.pods.evictable_pod import read_evictable_pod
from topomend.wire.pods.pod_usage import read_usage
from topomend.wire.pods.scheduling import MAX_CLAIMS, read_watched_pod
from topomend.wire.workload import read_workload

MOST_CLAIMS = 500
"""So many claims are looked up, each by itself; where the volumes of further ones are is not known."""


@dataclass(frozen=True)
class Found:
    """``pods`` for the simulation. ``left_out``: how many that hold something are not moved, by reason.

    ``used``: what the pods of each node take of its totals together.
    """

    pods: Pods
    left_out: Counter[str]
    used: Mapping[str, Requests]

    def counted(self, snapshot: Snapshot) -> Snapshot:
        """The cluster, of which each node has what is used of its totals."""
        nodes = {name: replace(node, used=self.used.get(name, {})) for name, node in snapshot.nodes.items()}
        return replace(snapshot, nodes=nodes)


@dataclass(frozen=True, slots=True)
class _Read:
    """A pod: what it takes of its ``node``, and what it is to the simulation, if anything.

    ``holds``: it holds something there; it cannot be read where there is no ``holder`` then. ``unsettled``: it is about
    to hold something on its node, or to end.
    """

    node: str
    usage: Requests
    holds: bool = False
    holder: EvictablePod | None = None
    waiting: WatchedPod | None = None
    unsettled: bool = False


@dataclass(frozen=True, slots=True)
class _Namespace:
    steered: bool
    opted_out: bool


def read_movable(cluster: Cluster, snapshot: Snapshot, least_age: timedelta, now: datetime) -> Found:
    """Read all pods, and what the rules ask about some of them. Raises APIError."""

    def reader(content: dict[str, Any]) -> Iterator[_Read]:
        yield _read(content, snapshot)

    read = cluster.client.read(PODS, reader, fields=UNENDED).items
    surroundings = _Reader(cluster, least_age, now)
    left_out: Counter[str] = Counter()
    chosen: list[EvictablePod] = []
    for holder in (each.holder for each in read if each.holds):
        reason = MALFORMED
        if holder is not None:
            located = surroundings.located(holder.pod)
            reason = why_left_out(located, surroundings.of(holder))
            if not reason:
                chosen.append(replace(holder, pod=located))
        if reason:
            left_out[reason] += 1
    movable, budgets = within_budgets(chosen, read_budgets(cluster))
    if len(movable) < len(chosen):
        left_out[BUDGET] += len(chosen) - len(movable)
    unsettled = {each.node for each in read if each.unsettled}
    used = sums_by_node((each.node, each.usage) for each in read if each.node)
    ending = {key for each in read if each.holder and (key := ending_of(each.holder.pod))}
    waiting = queue_of(each.waiting for each in read if each.waiting)
    return Found(Pods(movable, waiting, budgets, unsettled, ending), left_out, used)


def _read(content: dict[str, Any], snapshot: Snapshot) -> _Read:
    node = content["spec"].get("nodeName", "")
    if not node:
        return _Read("", {}, waiting=_waiting(content))
    usage, publication = read_usage(content), snapshot.publications.get(node)
    if publication is None:
        return _Read(node, usage)
    metadata = content["metadata"]
    if not publication.state.holds(metadata["namespace"], metadata["name"]):
        return _Read(node, usage, unsettled=may_come_to_hold(content, publication.state))
    return _Read(node, usage, holds=True, holder=_holder(content), unsettled="deletionTimestamp" in metadata)


def _holder(content: dict[str, Any]) -> EvictablePod | None:
    """The pod; None for one that cannot be read."""
    try:
        holder = read_evictable_pod(content)
        return replace(holder, pod=as_requested(holder.pod))
    except MalformedObject:
        return None


def _waiting(content: dict[str, Any]) -> WatchedPod | None:
    """A pod for which topomend chooses a node, apart from any group; None for any other."""
    try:
        pod = read_watched_pod(content)
    except MalformedObject:
        return None
    return pod if waits_for_us(pod) else None


class _Reader:
    """What is to be known of a pod beside its own fields: its namespace, its controller, its volumes."""

    def __init__(self, cluster: Cluster, least_age: timedelta, now: datetime) -> None:
        self._cluster, self._least_age, self._now = cluster, least_age, now
        self._namespaces = dict(cluster.client.read(NAMESPACES, _read_namespace).items)
        self._workloads: dict[str, Workload] = {}
        for resource in (REPLICA_SETS, STATEFUL_SETS):
            self._workloads.update(cluster.client.read(resource, _read_workload).items)
        self._terms: dict[tuple[str, str], Terms | None] = {}
        self._unknown: set[tuple[str, str]] = set()

    def of(self, holder: EvictablePod) -> Surroundings:
        """What the rules ask about the pod."""
        pod = holder.pod
        namespace = self._namespaces.get(pod.namespace, _Namespace(steered=False, opted_out=False))
        return Surroundings(
            namespace.steered,
            namespace.opted_out,
            holder.forbidden,
            holder.local_storage,
            age_of(pod, self._now),
            self._least_age.total_seconds(),
            self._workloads.get(pod.owner.uid) if pod.owner else None,
        )

    def located(self, pod: WatchedPod) -> WatchedPod:
        """The pod, which has to run where its volumes are; only of pods in steered namespaces they are looked up."""
        namespace = self._namespaces.get(pod.namespace)
        if not pod.claims or namespace is None or not namespace.steered:
            return pod
        volumes = self._volumes(pod) if len(pod.claims) <= MAX_CLAIMS else None
        return replace(pod, placement=replace(pod.placement, volumes=volumes))

    def _volumes(self, pod: WatchedPod) -> tuple[Terms, ...] | None:
        found: list[Terms] = []
        for claim in pod.claims:
            key = pod.namespace, claim
            if key not in self._terms and not self._looked_up(key):
                return None
            terms = self._terms[key]
            found += [] if terms is None else [terms]
        return tuple(found)

    def _looked_up(self, key: tuple[str, str]) -> bool:
        """Whether it is known now where the volume of the claim is."""
        if key in self._unknown or len(self._terms) + len(self._unknown) >= MOST_CLAIMS:
            return False
        try:
            self._terms[key] = read_terms_of(self._cluster.client.get, *key)
        except (APIError, MalformedObject, NoVolume, NotItsVolume):
            self._unknown.add(key)
            return False
        return True


def _read_namespace(content: dict[str, Any]) -> Iterator[tuple[str, _Namespace]]:
    metadata = content["metadata"]
    name, labels, annotations = metadata["name"], metadata.get("labels") or {}, metadata.get("annotations") or {}
    steered = labels.get(STEER_LABEL) == "enabled" and name not in UNGATED_NAMESPACES
    yield name, _Namespace(steered, bool(why_not_wanted(annotations.get(RELAUNCH_ANNOTATION, ""))))


def _read_workload(content: dict[str, Any]) -> Iterator[tuple[str, Workload]]:
    try:
        yield content["metadata"]["uid"], read_workload(content)
    except MalformedObject:
        return
