"""Groups of pods that are useful only together: which pods of one wait, and whether the group is complete.

A group is complete once as many pods as it needs are gated by us alone or were let go before. A pod that another owner
gates as well is waited for: Kueue, for example, admits a group by removing its gate from each pod. No group is waited
for without an end. Owns the counting. Leaves the choice of nodes to ``decide/gang``.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topomend.cache.snapshot import PodKey
from topomend.kube.client import PODS, Client, Resource
from topomend.kube.errors import Forbidden, NotFound
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import PodGroup, WatchedPod
from topomend.reconcile.result import RETRY_SECONDS, Result, earliest
from topomend.reconcile.store import Store
from topomend.runtime.token_bucket import FairTokenBucket
from topomend.wire.document import Document, MalformedObject
from topomend.wire.group import FIT_GATE
from topomend.wire.pod_group import (
    JOBSET,
    KUBERNETES,
    LABELS,
    SCHEDULER_PLUGINS,
    VOLCANO,
    read_group_size,
    read_pod_group,
)

INCOMPLETE_SECONDS = 300.0
"""How long a group is waited for that stays incomplete. Then the pods that are there are let go together: some of the
others may have been deleted after they succeeded, and others may never come."""

SETTLE_SECONDS = 2.0
"""How long no pod may have joined a group of unknown size before it counts as complete."""

FRESH_SECONDS, COUNTED_SECONDS = 10.0, 2.0
"""How long the size of a group is good, and the number of its pods that were let go. After FRESH_SECONDS the API server
is also asked again where it was asked too much."""

MAX_SIZE = 500
"""The largest group that is let go at once. The pods of a larger one are let go one by one."""

REQUESTS_PER_SECOND, REQUEST_BURST = 10.0, 100
"""How often the API server is asked about groups."""

MAX_GROUPS = 10_000

RESOURCES: Mapping[str, Sequence[Resource]] = {
    KUBERNETES: [Resource(f"{KUBERNETES}/{version}", "podgroups") for version in ("v1", "v1beta1", "v1alpha2")],
    SCHEDULER_PLUGINS: [Resource(f"{SCHEDULER_PLUGINS}/v1alpha1", "podgroups")],
    VOLCANO: [Resource(f"{VOLCANO}/v1beta1", "podgroups")],
    JOBSET: [Resource(f"{JOBSET}/v1alpha2", "jobsets")],
}
"""By API group, the objects that say how many pods a group needs; Kueue's pods say it themselves."""

GroupKey = tuple[str, PodGroup]
"""A namespace and a group."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A number that the API server was asked for at ``time``; None where it does not say."""

    time: float
    number: int | None


class Gangs:
    """Finds the pods of groups. May be used by several threads, a namespace each."""

    def __init__(self, client: Client, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._store, self._clock = client, store, clock
        self._requests = FairTokenBucket(REQUESTS_PER_SECOND, REQUEST_BURST, clock)
        self._sizes: BoundedDict[GroupKey, _Known] = BoundedDict(MAX_GROUPS)
        self._let_go: BoundedDict[GroupKey, _Known] = BoundedDict(MAX_GROUPS)
        self._indexed: tuple[Mapping[PodKey, WatchedPod], Mapping[GroupKey, Sequence[WatchedPod]]] = {}, {}

    def gather(self, pod: WatchedPod, group: PodGroup) -> Sequence[WatchedPod] | Result:
        """The gated pods of the group of ``pod`` that go together, it among them; or when to try again.

        Raises APIError.
        """
        snapshot, key = self._store.snapshot, (pod.namespace, group)
        gated = self._gated(snapshot.gated).get(key) or [pod]
        if len(gated) > MAX_SIZE:
            return [pod]
        size = group.size
        if size is None:
            known = self._asked(self._sizes, key, self._read_size, FRESH_SECONDS)
            if isinstance(known, Result):
                return known
            size = known.number
        if size is not None and (size <= 1 or size > MAX_SIZE):
            return [pod]
        since = [snapshot.gated_since.get((pod.namespace, pod.name), 0.0) for pod in gated]
        wait = self._until(max(since) + SETTLE_SECONDS) if size is None else self._missing(key, len(gated), size, since)
        if wait is None:
            self._let_go.pop(key, None)  # the caller is about to let more go
        return wait or gated

    def _gated(self, gated: Mapping[PodKey, WatchedPod]) -> Mapping[GroupKey, Sequence[WatchedPod]]:
        """By group, the pods that nothing holds but our gate; worked out once for all pods of a snapshot."""
        indexed, by_group = self._indexed
        if indexed is gated:
            return by_group
        groups: dict[GroupKey, list[WatchedPod]] = {}
        for (namespace, _), pod in gated.items():
            if pod.group and pod.gates == (FIT_GATE,) and not pod.deleting:
                groups.setdefault((namespace, pod.group), []).append(pod)
        self._indexed = gated, groups
        return groups

    def _missing(self, key: GroupKey, gated: int, size: int, since: Sequence[float]) -> Result | None:
        """When to ask again about a group of which pods are missing; None where none is, or none is waited for."""
        left = self._until(min(since) + INCOMPLETE_SECONDS)
        if gated >= size or left is None:
            return None
        let_go = self._asked(self._let_go, key, self._count_let_go, COUNTED_SECONDS)
        if isinstance(let_go, Result):
            return let_go
        if gated + (let_go.number or 0) >= size:
            return None
        # A pod that nothing gates, such as a small launcher, wakes nobody: it is looked for, ever less often.
        waited = self._clock() - max(since)
        return earliest(left, Result(min(max(COUNTED_SECONDS, waited), RETRY_SECONDS)))

    def _until(self, time: float) -> Result | None:
        left = time - self._clock()
        return Result(left) if left > 0 else None

    def _asked(
        self,
        known: BoundedDict[GroupKey, _Known],
        key: GroupKey,
        ask: Callable[[str, PodGroup], int | None],
        fresh_seconds: float,
    ) -> _Known | Result:
        """The number as known, or as ``ask`` learns it; or when to ask, where the API server was asked too much."""
        before = known.get(key)
        if before and self._clock() < before.time + fresh_seconds:
            return before
        if self._requests.take(key[0]):
            return Result(FRESH_SECONDS)
        known[key] = _Known(self._clock(), ask(*key))
        return known[key]

    def _read_size(self, namespace: str, group: PodGroup) -> int | None:
        """None where the group has no object or one that cannot be read: its pods are then let go as they are."""
        for resource in RESOURCES.get(group.api_group, ()):
            try:
                return read_group_size(group.api_group, self._client.get(resource, group.name, namespace))
            except NotFound:
                continue
            except (Forbidden, MalformedObject):
                return None
        return None

    def _count_let_go(self, namespace: str, group: PodGroup) -> int:
        """How many pods of the group no gate holds any more; those that failed do not count."""

        def let_go(content: dict[str, Any]) -> Iterator[str]:
            if _is_let_go(Document(content), group):
                yield content["metadata"]["name"]

        labels = f"{LABELS[group.api_group]}={group.name}" if group.api_group in LABELS else ""
        return len(self._client.read(PODS, let_go, namespace=namespace, labels=labels, cached=True).items)


def _is_let_go(pod: Document, group: PodGroup) -> bool:
    try:
        is_gated = any(True for _ in pod["spec"]["schedulingGates"])
        return not is_gated and pod["status"]["phase"].text("") != "Failed" and read_pod_group(pod) == group
    except MalformedObject:
        return False
