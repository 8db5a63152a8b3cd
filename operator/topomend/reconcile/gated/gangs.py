"""Groups of pods that are useful only together: which pods of one wait, and whether the group is complete.

A group is complete once as many pods as it needs are gated by us alone or were let go before. A pod that another owner
gates as well is waited for: Kueue, for example, admits a group by removing its gate from each pod. No group is waited
for without an end. Owns the counting. Leaves the choice of nodes to ``decide/gang``.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import PodKey
from topomend.kube.client import Client
from topomend.kube.errors import NotFound, Refused, ServerFailed, TooManyRequests, Unanswered
from topomend.kube.pod_groups import GROUP_RESOURCES
from topomend.kube.resources import PODS
from topomend.model.pods.scheduling import PodGroup, WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.result import RETRY_SECONDS, Result, earliest
from topomend.reconcile.store import Store
from topomend.runtime.queues.token_bucket import FairTokenBucket
from topomend.runtime.timestamp import time_of_day
from topomend.wire.document import Document, MalformedObject
from topomend.wire.group import FIT_GATE
from topomend.wire.pods.pod_group import KUBERNETES, LABELS, read_composite, read_group_size, read_pod_group

INCOMPLETE_SECONDS = 300.0
"""How long a group is waited for that stays incomplete. Then the pods that are there are let go together: some of the
others may have been deleted after they succeeded, and others may never come. So long it is also tried to read the
object of a group where the API server fails to answer about it."""

SETTLE_SECONDS = 2.0
"""How long no pod may have joined a group of unknown size before it counts as complete."""

FRESH_SECONDS, COUNTED_SECONDS = 10.0, 2.0
"""How long the size of a group is good, and at least how long the count of a namespace's pods. After FRESH_SECONDS the
API server is also asked again where it was asked too much."""

COUNTING_SHARE = 0.02
"""The share of a CPU that counting a namespace's pods of groups of a kind may take: where they are many or large, it is
done less often, so that no namespace's groups cost the others their time."""

BUSY_SECONDS = 0.2
"""When to ask again for a number that another thread is asking the API server for."""

BOUND = "spec.nodeName!=,status.phase!=Failed"
"""The field selector of the pods that count as let go. Pods with gates have no node: the largest are not even sent."""

MAX_SIZE = 500
"""The largest group that is let go at once. The pods of a larger one are let go one by one."""

REQUESTS_PER_SECOND, REQUEST_BURST = 10.0, 100
"""How often the API server is asked about groups."""

MAX_GROUPS = 10_000

GroupKey = tuple[str, PodGroup]
"""A namespace and a group."""


_Known = TypeVar("_Known")


@dataclass(frozen=True, slots=True)
class _Group:
    """What a group's own object says: how many pods it needs, None where it does not say, and what it is a part of."""

    size: int | None = None
    composite: str = ""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the API server said, and until when that is good."""

    value: Any
    until: float


@dataclass(slots=True)
class _Members:
    """The gated pods of a group: those that only our gate holds, and the number of those that another holds as well."""

    free: list[WatchedPod] = field(default_factory=list)
    held: int = 0


class Gangs:
    """Finds the pods of groups. May be used by several threads. ``cpu_clock`` is the CPU time of the calling thread."""

    def __init__(
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._clock, self._cpu_clock = clock, cpu_clock
        self._requests = FairTokenBucket(REQUESTS_PER_SECOND, REQUEST_BURST, clock)
        self._known: BoundedDict[object, _Asked] = BoundedDict(MAX_GROUPS)
        self._asking: set[object] = set()
        self._lock = threading.Lock()
        self._ends: BoundedDict[GroupKey, tuple[float, str]] = BoundedDict(MAX_GROUPS)
        self._indexed: tuple[Mapping[PodKey, WatchedPod], Mapping[GroupKey, _Members]] = {}, {}

    def gather(self, pod: WatchedPod, group: PodGroup) -> Sequence[WatchedPod] | Result:
        """The gated pods of the group of ``pod`` that go together, it among them; or when to try again.

        Raises APIError.
        """
        snapshot, key = self._store.snapshot, (pod.namespace, group)
        members = self._members(snapshot.gated).get(key)
        gated = members.free if members and members.free else [pod]
        if len(gated) > MAX_SIZE:
            return [pod]
        since = [snapshot.gated_since.get((pod.namespace, pod.name), 0.0) for pod in gated]
        end = min(since) + INCOMPLETE_SECONDS
        size = group.size
        if size is None:
            known = self._asked(key, pod.namespace, lambda: self._read_group(*key, end), _fresh)
            if isinstance(known, Result):
                return known
            size = known.size
            if known.composite and _is_first(pod, gated):
                self._announcer.composite(pod, group.name, known.composite)
        if size is not None and (size <= 1 or size > MAX_SIZE):
            return [pod]
        if size is None:
            wait = self._until(max(since) + SETTLE_SECONDS)
        else:
            wait = self._missing(pod, gated, size, since, members.held if members else 0)
        return wait or gated

    def _members(self, gated: Mapping[PodKey, WatchedPod]) -> Mapping[GroupKey, _Members]:
        """The gated pods by group; worked out once for all pods of a snapshot."""
        indexed, by_group = self._indexed
        if indexed is gated:
            return by_group
        groups: dict[GroupKey, _Members] = {}
        for (namespace, _), pod in gated.items():
            if pod.group and not pod.deleting:
                members = groups.setdefault((namespace, pod.group), _Members())
                if pod.gates == (FIT_GATE,):
                    members.free.append(pod)
                else:
                    members.held += 1
        self._indexed = gated, groups
        return groups

    def _missing(
        self, pod: WatchedPod, gated: Sequence[WatchedPod], size: int, since: Sequence[float], held: int
    ) -> Result | None:
        """When to ask again about a group of which pods are missing; None where none is, or none is waited for."""
        assert pod.group is not None  # noqa: S101  only such pods are gathered
        left = self._until(min(since) + INCOMPLETE_SECONDS)
        if len(gated) >= size or left is None:
            return None
        let_go = self._let_go(pod.namespace, pod.group)
        if isinstance(let_go, Result):
            return let_go
        there = len(let_go.union(member.uid for member in gated))
        if there >= size:
            return None
        if _is_first(pod, gated):  # one Event for all of them, and a new one when it is asked again and more have come
            end = self._end_of((pod.namespace, pod.group), min(since) + INCOMPLETE_SECONDS)
            self._announcer.group_incomplete(pod, there, size, held, end)
        # A pod that nothing gates, such as a small launcher, wakes nobody: it is looked for, ever less often.
        waited = self._clock() - max(since)
        return earliest(left, Result(min(max(COUNTED_SECONDS, waited), RETRY_SECONDS)))

    def _end_of(self, key: GroupKey, end: float) -> str:
        """The time of day at which the group is waited for no longer: the same words as long as that is the same."""
        known = self._ends.get(key)
        if known is None or known[0] != end:
            known = self._ends[key] = (end, time_of_day(end - self._clock()))
        return known[1]

    def _until(self, time: float) -> Result | None:
        left = time - self._clock()
        return Result(left) if left > 0 else None

    def _asked(
        self,
        key: object,
        namespace: str,
        ask: Callable[[], _Known],
        good_for: Callable[[float], float],
    ) -> _Known | Result:
        """What is known, or what ``ask`` learns; or when to ask, where the API server was asked too much.

        ``good_for`` says for how many seconds it is good by the CPU time that asking took. No lock is held meanwhile:
        of several threads that need the same one asks.
        """
        before = self._known.get(key)
        if before and self._clock() < before.until:
            known: _Known = before.value
            return known
        with self._lock:
            if key in self._asking:
                return Result(BUSY_SECONDS)
            if self._requests.take(namespace):
                return Result(FRESH_SECONDS)
            self._asking.add(key)
        try:
            began, value = self._cpu_clock(), ask()
            self._known[key] = _Asked(value, self._clock() + good_for(self._cpu_clock() - began))
            return value
        finally:
            self._asking.discard(key)

    def _read_group(self, namespace: str, group: PodGroup, end: float) -> _Group:
        """Without a size where the group has no object, or one that cannot be read: its pods then go as they are.

        What may pass, such as a webhook that converts such objects and is down, is waited for until ``end``. Raises
        APIError.
        """
        for resource in GROUP_RESOURCES.get(group.api_group, ()):
            try:
                content = self._client.get(resource, group.name, namespace)
                return _Group(read_group_size(group.api_group, content), read_composite(group.api_group, content))
            except NotFound:
                continue
            except (ServerFailed, TooManyRequests, Unanswered):
                if self._clock() < end:
                    raise
                return _Group()
            except (Refused, MalformedObject):
                return _Group()
        return _Group()

    def _let_go(self, namespace: str, group: PodGroup) -> frozenset[str] | Result:
        """The uids of the group's pods that have a node, or had one that did not suit the scheduler."""
        api_group = group.api_group
        counted = self._asked(
            (namespace, api_group), namespace, lambda: self._bound_pods(namespace, api_group), _rarely
        )
        if isinstance(counted, Result):
            return counted
        unbound = (pod.pod for (name, _), pod in self._store.snapshot.unbound.items() if name == namespace)
        return counted.get(group, frozenset()).union(pod.uid for pod in unbound if pod.group == group)

    def _bound_pods(self, namespace: str, api_group: str) -> Mapping[PodGroup, frozenset[str]]:
        """The uids of all bound pods of the namespace by their groups, at least of those of this kind.

        Where a label names the group, only pods with it are listed. No more than their metadata is read, but where a
        field of their spec names the group.
        """

        def read(content: dict[str, Any]) -> Iterator[tuple[PodGroup, str]]:
            if group := _group_of(content):
                yield group, content["metadata"]["uid"]

        listed = self._client.read(
            PODS,
            read,
            namespace=namespace,
            fields=BOUND,
            labels=LABELS.get(api_group, ""),
            cached=True,
            metadata_only=api_group != KUBERNETES,
        )
        groups: dict[PodGroup, set[str]] = {}
        for group, uid in listed.items:
            groups.setdefault(group, set()).add(uid)
        return {group: frozenset(uids) for group, uids in groups.items()}


def _is_first(pod: WatchedPod, members: Sequence[WatchedPod]) -> bool:
    return pod.order <= min(member.order for member in members)


def _fresh(_: float) -> float:
    return FRESH_SECONDS


def _rarely(cpu_seconds: float) -> float:
    """For how long a count is good that took so long."""
    return min(max(COUNTED_SECONDS, cpu_seconds / COUNTING_SHARE), INCOMPLETE_SECONDS)


def _group_of(content: dict[str, Any]) -> PodGroup | None:
    try:
        return read_pod_group(Document(content))
    except MalformedObject:
        return None
