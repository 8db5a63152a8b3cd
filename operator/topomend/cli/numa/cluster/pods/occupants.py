"""The pods of all nodes as those who may have to go: their priority, controller, and what keeps each from eviction.

Owns reading pods, PodDisruptionBudgets and priority classes. Leaves the search to ``decide/queue/room``.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from topomend.cli.numa.cluster.ahead import Ahead
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import VIEWER, Cluster
from topomend.cli.output.failures import CannotAsk
from topomend.decide.budgets import Budget, NamespacesBudget
from topomend.decide.queue.room import Occupant, Occupied
from topomend.kube.errors import Forbidden
from topomend.kube.resources import BUDGETS, PODS, PRIORITY_CLASSES, UNENDED
from topomend.model.pods.scheduling import Owner
from topomend.wire.disruption_budget import DisruptionBudget, read_budget
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.pod_usage import UsageReader
from topomend.wire.pods.running_pod import workload_of
from topomend.wire.pods.scheduling import CRITICAL_CLASSES, MIRROR_ANNOTATION
from topomend.wire.shapes import BoundPod

if TYPE_CHECKING:
    from topomend.decide.diagnosis.totals import Requests

_NO_PRIORITY = 0
"""The priority of pods without a class in a cluster without a default one."""


@dataclass(frozen=True)
class _Bound:
    """A pod on its node, and the labels by which budgets select it."""

    node: str
    occupant: Occupant
    labels: Mapping[str, str]


class BoundPods:
    """All pods that are bound to a node, or to the one ``node``, and their budgets, read once.

    The pods are read ahead, in another thread. Its methods raise APIError, CannotAsk.
    """

    def __init__(self, cluster: Cluster, node: str = "") -> None:
        self._cluster, usages = cluster, UsageReader()
        which = f"spec.nodeName={node}" if node else "spec.nodeName!="

        def reader(content: dict[str, Any]) -> Iterator[_Bound]:
            yield _bound(content, usages)

        fields = f"{which},{UNENDED}"
        self._ahead = Ahead(lambda: cluster.client.read(PODS, reader, fields=fields, shape=BoundPod, ahead=True).items)

    @cached_property
    def _pods(self) -> Sequence[_Bound]:
        try:
            return self._ahead.result()
        except Forbidden as error:
            raise CannotAsk(
                "you may not list the pods of all namespaces, so it is not known who is in the way; "
                f"the ClusterRole {VIEWER}, bound for the whole cluster, has the right"
            ) from error

    def wait(self) -> None:
        """Wait until the pods are read."""
        self._pods  # noqa: B018 - reading it waits

    @cached_property
    def _budgets(self) -> Sequence[NamespacesBudget]:
        return read_budgets(self._cluster)

    def others_than(self, asked: RequestedPod, nodes: Collection[str]) -> Occupied:
        """The pods on these nodes but the one that is ``asked`` about, and their budgets. Raises APIError."""
        priority, own_uid = _priority(self._cluster, asked.content), asked.content.get("metadata", {}).get("uid", "")
        asked_nodes = frozenset(nodes)
        others = (pod for pod in self._pods if pod.node in asked_nodes and pod.occupant.uid != own_uid)
        return _with_budgets([_judged(pod, priority) for pod in others], self._budgets)

    def requests_on(self, nodes: Collection[str]) -> "dict[str, Requests]":
        """What the pods on these nodes take of their totals together, by node."""
        from topomend.decide.diagnosis.totals import sums_by_node  # noqa: PLC0415

        return sums_by_node((pod.node, pod.occupant.usage) for pod in self._pods if pod.node in nodes)


def _bound(content: dict[str, Any], usages: UsageReader) -> _Bound:
    metadata, spec = content["metadata"], content["spec"]
    own, owner = spec.get("priority") or _NO_PRIORITY, _owner(metadata)
    occupant = Occupant(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        own,
        usages.read(content),
        owner=f"{owner.kind}/{owner.name}" if owner else "",
        stays=_why_it_stays(content, owner),
        leaving="deletionTimestamp" in metadata,
    )
    return _Bound(spec["nodeName"], occupant, metadata.get("labels") or {})


def _judged(pod: _Bound, priority: int) -> _Bound:
    """The pod, which stays if its priority is above that of the pod that asks."""
    occupant = pod.occupant
    if occupant.stays or occupant.priority <= priority:
        return pod
    return replace(pod, occupant=replace(occupant, stays=f"its priority {occupant.priority} is above {priority}"))


def _owner(metadata: dict[str, Any]) -> Owner | None:
    if not metadata.get("ownerReferences"):
        return None
    try:
        return workload_of(Document(metadata))
    except MalformedObject:
        return None


def _why_it_stays(content: dict[str, Any], owner: Owner | None) -> str:
    """Why nobody should evict the pod, whatever its priority; empty where he may."""
    metadata, spec = content["metadata"], content["spec"]
    if MIRROR_ANNOTATION in (metadata.get("annotations") or {}):
        return "its kubelet runs it from a file"
    if owner and owner.kind == "DaemonSet":
        return f"DaemonSet {owner.name} creates it again on this node at once"
    if spec.get("priorityClassName") in CRITICAL_CLASSES:
        return f"the cluster needs it: {spec['priorityClassName']}"
    return ""


def _with_budgets(bound: Sequence[_Bound], budgets: Sequence[NamespacesBudget]) -> Occupied:
    """The pods by node. One that two budgets select is never evicted (pkg/registry/core/pod/storage/eviction.go)."""
    protected = [frozenset(pod.occupant.uid for pod in bound if _protects(budget, pod)) for budget in budgets]
    number = Counter(uid for uids in protected for uid in uids)
    by_node: dict[str, list[Occupant]] = defaultdict(list)
    for pod in bound:
        occupant = pod.occupant
        if number[occupant.uid] > 1 and not occupant.stays:
            occupant = replace(occupant, stays="more than one PodDisruptionBudget selects it, so it cannot be evicted")
        by_node[pod.node].append(occupant)
    limits = zip(protected, budgets, strict=True)
    return Occupied(by_node, [Budget(uids, each.budget.allowed) for uids, each in limits if uids])


def _protects(each: NamespacesBudget, pod: _Bound) -> bool:
    return not pod.occupant.leaving and each.protects(pod.occupant.namespace, pod.labels)


def read_budgets(cluster: Cluster) -> Sequence[NamespacesBudget]:
    """All budgets of the cluster; none, which ``cluster.not_read`` then says, for a user who may not list them."""

    def reader(content: dict[str, Any]) -> Iterator[NamespacesBudget]:
        namespace = content["metadata"]["namespace"]
        try:
            yield NamespacesBudget(namespace, read_budget(content))
        except MalformedObject:
            yield NamespacesBudget(namespace, DisruptionBudget(None, 0, frozenset()))

    try:
        return cluster.client.read(BUDGETS, reader).items
    except Forbidden:
        cluster.note_refused(BUDGETS.plural)
        return ()


def _priority(cluster: Cluster, content: Mapping[str, Any]) -> int:
    """The pod's priority: its own, or that of its class, which the API server gives it when it is created."""
    spec = content.get("spec") or {}
    if isinstance(spec.get("priority"), int):
        return int(spec["priority"])
    name = spec.get("priorityClassName", "")

    def reader(each: dict[str, Any]) -> Iterator[int]:
        if each["metadata"]["name"] == name or (not name and each.get("globalDefault")):
            yield int(each["value"])

    try:
        return max(cluster.client.read(PRIORITY_CLASSES, reader).items, default=_NO_PRIORITY)
    except Forbidden:
        cluster.note_refused(PRIORITY_CLASSES.plural)
        return _NO_PRIORITY
