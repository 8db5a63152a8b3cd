"""The pods that may be moved, read for one decision and forgotten after it: of the cluster, or of some nodes.

Owns what is asked of the API server. Leaves the rules to ``decide/defragment/movable``, and the moves to its sibling
``search``.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from topomend.cache.memory_budget import MemoryBudget
from topomend.cache.pod_reader import kept_bytes
from topomend.cache.snapshot import PodKey, Snapshot
from topomend.cache.starting_pod import may_come_to_hold
from topomend.decide.budgets import NamespacesBudget
from topomend.decide.defragment.candidates import ending_of, queue_of, waits_for_us, within_budgets
from topomend.decide.defragment.movable import OWNER_UNKNOWN, Surroundings, age_of, why_left_out
from topomend.decide.defragment.moves import Pods
from topomend.decide.diagnosis.totals import Requests, sums_by_node
from topomend.decide.eligibility import why_opted_out
from topomend.kube.client import Client
from topomend.kube.errors import Invalid, NotFound
from topomend.kube.resources import BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS, UNENDED
from topomend.model.pods.evictable_pod import EvictablePod
from topomend.model.pods.scheduling import Owner
from topomend.model.pods.workload import Workload
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.placement.volumes import Volumes
from topomend.reconcile.store import Store
from topomend.relaunch.manifest import widened
from topomend.relaunch.narrowed_affinity import as_requested
from topomend.wire.disruption_budget import DisruptionBudget, read_budget
from topomend.wire.document import MalformedObject
from topomend.wire.pods.evictable_pod import read_evictable_pod
from topomend.wire.pods.pod_usage import read_usage
from topomend.wire.workload import read_workload

LEAST_AGE_SECONDS = 3600.0
"""How old a pod is at least that is moved. So nobody need remember which were: the next one of a moved pod is new."""

MOST_VOLUMES = 200
"""Of how many pods with volumes it is looked up where these are; further ones are not moved."""

ORDINARY_BYTES, ROOM_BYTES = 8 << 10, 32 << 20
"""Up to what size a pod is always kept for a decision, and the room for all larger ones, half for a namespace: those
beyond are not moved."""

_LABEL_BYTES = 200
"""What a label takes beside its texts."""

_RESOURCES = {"ReplicaSet": REPLICA_SETS, "StatefulSet": STATEFUL_SETS}

_Workloads = Callable[[Owner, str], Workload | None]
"""The controller of pods of a namespace."""

_Keeps = Callable[[dict[str, Any], EvictablePod], bool]
"""Whether the pod of a Pod object is kept as one that may be moved."""


@dataclass(frozen=True)
class Found:
    """``pods`` for the search. ``evictable``: those that may be moved, by uid. ``used``: of each node, by its
    pods."""

    pods: Pods
    evictable: Mapping[str, EvictablePod]
    used: Mapping[str, Requests]

    def counted(self, snapshot: Snapshot, reserved: Collection[str]) -> tuple[Snapshot, Pods]:
        """The cluster, of which each node has what is used of its totals; and the pods, of which none goes from or to
        a node where others are about to come, or that is ``reserved``."""
        nodes = {
            name: node if node.used is not None else replace(node, used=self.used.get(name, {}))
            for name, node in snapshot.nodes.items()
        }
        coming = {name for assumed in snapshot.assumed.values() for name in assumed.nodes}
        unsettled = {*self.pods.unsettled, *coming, *reserved}
        waiting = queue_of(filter(waits_for_us, snapshot.gated.values()))
        return replace(snapshot, nodes=nodes), replace(self.pods, unsettled=unsettled, waiting=waiting)


@dataclass(frozen=True, slots=True)
class _Read:
    node: str
    usage: Requests
    pod: EvictablePod | None = None
    ending: PodKey | None = None
    unsettled: bool = False


class MovablePods:
    """Reads them. For one thread. ``now`` is the time of day; no pod above ``most_priority`` is moved."""

    def __init__(  # noqa: PLR0913  what it asks
        self,
        client: Client,
        store: Store,
        limits: NamespaceLimits,
        volumes: Volumes,
        most_priority: int,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._client, self._store, self._limits, self._volumes = client, store, limits, volumes
        self._most_priority, self._now = most_priority, now
        self._budget = MemoryBudget(ROOM_BYTES, ORDINARY_BYTES, ROOM_BYTES // 2)

    def of_cluster(self, resting: Container[str]) -> Found:
        """All that may be moved but for the ``resting`` (uids). Raises APIError."""
        read = self._read("", self._has_room, cached=True)
        workloads: dict[tuple[str, str], Workload] = {}
        for resource in _RESOURCES.values():
            workloads.update(self._client.read(resource, _read_workload, cached=True).items)
        return self._found(read, resting, lambda owner, namespace: workloads.get((namespace, owner.uid)), "")

    def again(self, moved: EvictablePod, nodes: Iterable[str], before: Found) -> Found | None:
        """The one pod once more, beside the pods of these nodes as they are now; None where it may not be moved now.

        What is used of other nodes is as ``before``. Raises APIError.
        """

        def is_moved(_: dict[str, Any], each: EvictablePod) -> bool:
            return each.pod.uid == moved.pod.uid

        fields = [f"spec.nodeName={node}," for node in nodes]
        read = [each for one in fields for each in self._read(one, is_moved, cached=False)]
        found = self._found(read, (), self._workload, moved.pod.namespace)
        if not found.pods.movable:
            return None
        unsettled = {*before.pods.unsettled, *found.pods.unsettled}
        ending = {*before.pods.ending, *found.pods.ending}
        pods = replace(found.pods, unsettled=unsettled, ending=ending)
        return replace(found, pods=pods, used={**before.used, **found.used})

    def why_stays(self, each: EvictablePod) -> str:
        """Why the pod may not be moved now, by its controller as it is now; empty where it may. Raises APIError."""
        return self._why_stays(each, self._workload)

    def _read(self, fields: str, keeps: _Keeps, *, cached: bool) -> Sequence[_Read]:
        snapshot = self._store.snapshot

        def reader(content: dict[str, Any]) -> Iterator[_Read]:
            if node := content["spec"].get("nodeName", ""):
                yield _read(content, node, snapshot, keeps)

        return self._client.read(PODS, reader, fields=f"{fields}{UNENDED}", cached=cached).items

    def _has_room(self, content: dict[str, Any], each: EvictablePod) -> bool:
        """Whether the pod may be moved as far as it tells itself, and there is room for it until the decision."""
        if self._why_stays(each, _unknown) != OWNER_UNKNOWN:
            return False
        return self._budget.take(each.pod, _kept_bytes(content, each), each.pod.namespace)

    def _found(self, read: Sequence[_Read], resting: Container[str], workloads: _Workloads, namespace: str) -> Found:
        chosen = list(self._chosen((each.pod for each in read if each.pod), resting, workloads))
        budgets = self._client.read(BUDGETS, _read_budget, namespace=namespace, cached=not namespace).items
        movable, limits = within_budgets(chosen, budgets)
        unsettled = {each.node for each in read if each.unsettled}
        ending = {each.ending for each in read if each.ending}
        used = sums_by_node((each.node, each.usage) for each in read)
        evictable = {each.pod.uid: each for each in chosen}
        return Found(Pods(movable, (), limits, unsettled, ending), evictable, used)

    def _chosen(
        self, pods: Iterable[EvictablePod], resting: Container[str], workloads: _Workloads
    ) -> Iterator[EvictablePod]:
        """Those that the rules let go, each with the nodes where its volumes are."""
        looked_up = 0
        for each in pods:
            pod = each.pod
            if pod.uid in resting or self._why_stays(each, workloads):
                continue
            if pod.claims:
                looked_up += 1
                volumes = self._volumes.of(pod) if looked_up <= MOST_VOLUMES else None
                if volumes is None:
                    continue
                each = replace(each, pod=replace(pod, placement=replace(pod.placement, volumes=volumes)))  # noqa: PLW2901
            yield each

    def _why_stays(self, each: EvictablePod, workloads: _Workloads) -> str:
        """Why the pod is not moved wherever its volumes are. What takes a request is asked last."""
        pod = replace(each.pod, placement=replace(each.pod.placement, volumes=()))
        willing = Surroundings(
            steered=True,
            opted_out=False,
            forbidden=each.forbidden,
            local_storage=each.local_storage,
            age=age_of(pod, self._now()),
            least_age=LEAST_AGE_SECONDS,
            workload=None if pod.owner is None else workloads(pod.owner, pod.namespace),
            most_priority=self._most_priority,
        )
        if why := why_left_out(pod, willing):
            return why
        opted_out = bool(why_opted_out(pod, self._limits.limits(pod.namespace)))
        return why_left_out(pod, replace(willing, steered=self._limits.is_steered(pod.namespace), opted_out=opted_out))

    def _workload(self, owner: Owner, namespace: str) -> Workload | None:
        """The controller as it is now. Whoever makes a pod names it: also by a name that the API server takes for none
        (pkg/registry/generic/registry/store.go:NamespaceKeyFunc), which may not keep all other pods."""
        resource = _RESOURCES.get(owner.kind)
        if resource is None:
            return None
        with suppress(NotFound, Invalid):
            read = dict(_read_workload(self._client.get(resource, owner.name, namespace)))
            return read.get((namespace, owner.uid))
        return None


def _read(content: dict[str, Any], node: str, snapshot: Snapshot, keeps: _Keeps) -> _Read:
    """Of pods that hold nothing on their node, and of those that no rule lets go, little is kept."""
    usage, publication = read_usage(content), snapshot.publications.get(node)
    if publication is None:
        return _Read(node, usage)
    metadata = content["metadata"]
    if not publication.state.holds(metadata["namespace"], metadata["name"]):
        return _Read(node, usage, unsettled=may_come_to_hold(content, publication.state))
    unsettled = "deletionTimestamp" in metadata
    try:
        pod = read_evictable_pod(content)
        pod = replace(pod, pod=replace(as_requested(pod.pod), node_affinity={}))
        kept = pod if keeps(content, pod) else None
    except MalformedObject:
        return _Read(node, usage, unsettled=unsettled)
    return _Read(node, usage, kept, ending_of(pod.pod), unsettled=unsettled)


def _kept_bytes(content: dict[str, Any], each: EvictablePod) -> int:
    """About the memory that is taken by what is kept of a Pod object. Raises MalformedObject.

    Of a narrowed pod the nodes that the operator named are not kept.
    """
    labels = sum(_LABEL_BYTES + len(key) + len(value) for key, value in each.labels.items())
    if each.pod.narrowed:
        spec = content["spec"]
        affinity = {"nodeAffinity": widened(spec.get("affinity", {}).get("nodeAffinity", {}))}
        content = {**content, "spec": {**spec, "affinity": affinity}}
    return labels + kept_bytes(content)


def _unknown(_: Owner, __: str) -> None:
    """No controller is known yet."""


def _read_workload(content: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Workload]]:
    """By namespace and uid: whoever makes a pod may name the uid of another namespace's controller."""
    metadata = content["metadata"]
    with suppress(MalformedObject):
        yield (metadata["namespace"], metadata["uid"]), read_workload(content)


def _read_budget(content: dict[str, Any]) -> Iterator[NamespacesBudget]:
    """One that cannot be read keeps all pods of its namespace."""
    try:
        budget = read_budget(content)
    except MalformedObject:
        budget = DisruptionBudget(None, 0, frozenset())
    yield NamespacesBudget(content["metadata"]["namespace"], budget)
