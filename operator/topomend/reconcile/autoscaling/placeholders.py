"""Has cluster autoscalers add nodes for pods for which they would add none: a placeholder stands for each.

An autoscaler counts totals. It adds no node for a pod that lacks nothing but a NUMA node, and none for a pod that has
failed. A placeholder is a pod of our own that never runs. It asks for the same, and keeps away from nodes with other
pods, none of which admits the pod. The pod itself stays as it is, so that it goes to whichever node admits it first, a
new or an old one. Placeholders are in the operator's own namespace, and are compared with the pods that wait: nothing
is remembered but for how long a pod has waited. Owns which placeholders there are. Leaves their content to
``relaunch/placeholder``.
Source: sigs.k8s.io/karpenter pkg/utils/pod/scheduling.go:IsProvisionable; cluster-autoscaler
utils/kubernetes/listers.go.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.infeasible import another_would_admit
from topomend.decide.queue.lines import is_held_by_us
from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, Refused, Unanswered
from topomend.kube.resources import PODS
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.optional_right import OptionalRight
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests
from topomend.relaunch.narrowed_affinity import as_requested
from topomend.relaunch.placeholder import LABELS, Placeholder, placeholder, read_placeholder
from topomend.replay.effort import UNLIMITED, Effort
from topomend.runtime.queues.token_bucket import FairTokenBucket

PATIENCE_SECONDS = 5.0
"""How long a pod waits first: a place may come free sooner than an autoscaler looks."""

CHECK_SECONDS, IDLE_SECONDS = 1.0, 60.0
"""How often the placeholders are listed, and how often where no pod waits and none was there."""

MAX_PLACEHOLDERS = 100
"""How many there are at most, half of them for the pods of one namespace. Those whose pods find a node make room."""

CREATIONS_PER_SECOND, CREATION_BURST = 5.0, 20

EXPENDABLE_PRIORITY = -10
"""Cluster Autoscaler adds no node for pods of a lower priority (its flag --expendable-pods-priority-cutoff). It would
for a placeholder, which has no priority class."""

MAX_ENTRIES = 10_000

_SELECTOR = f"app.kubernetes.io/component={LABELS['app.kubernetes.io/component']}"

_log = logging.getLogger(__name__)


class Placeholders:
    """``check`` is for one thread, the rest for any. There are no placeholders unless ``enabled``."""

    def __init__(
        self,
        client: Client,
        store: Store,
        namespace: str,
        *,
        enabled: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._namespace, self._clock = client, store, namespace, clock
        self._enabled = enabled
        self._creations = FairTokenBucket(CREATIONS_PER_SECOND, CREATION_BURST, clock)
        self._waiting: BoundedDict[PodID, float] = BoundedDict(MAX_ENTRIES)
        self._standing: Mapping[PodID, Placeholder] = {}
        self._lock = threading.Lock()
        self._orphans: frozenset[str] = frozenset()
        self._checked = -inf
        self._faults = ObjectFaults(_log, "no placeholder is created or removed for it", clock)
        attributes = {"verb": "create", "version": "v1", "resource": "pods", "namespace": namespace}
        without = "no placeholders stand for pods that wait"
        self._right = OptionalRight(client, attributes, log=_log, without=without, clock=clock)

    def stands_for(self, pod: WatchedPod) -> bool:
        """Whether a placeholder can stand for a pod like this one: its rules concern nothing but nodes."""
        if not self._enabled or self._right.is_missing:
            return False
        return not pod.scheduler_rules and pod.priority >= EXPENDABLE_PRIORITY

    def wait(self, pods: Iterable[WatchedPod], *, infeasible: bool) -> None:
        """No node admits these pods now; ``infeasible`` is that none would even when empty. Returns at once."""
        with self._lock:
            for pod in pods:
                if infeasible or not self.stands_for(pod):
                    self._waiting.pop(PodID.of(pod), None)
                elif PodID.of(pod) not in self._waiting:
                    self._waiting[PodID.of(pod)] = self._clock()

    def release(self, pod: WatchedPod) -> None:
        """The pod is about to be let go to a node, from which its placeholder would keep away and ask for another.

        Raises NotPermitted: another operator looks after both. After any other failure the next check removes it.
        """
        standing = self._standing.get(PodID.of(pod))
        if standing:
            with suppress(Unanswered, Refused):
                self._delete(standing)

    def check(self, effort: Effort = UNLIMITED) -> None:
        """Remove placeholders that are no longer needed, and create those of pods that have waited. Raises APIError."""
        snapshot = self._store.snapshot
        if not (self._enabled and snapshot.nodes) or self._right.is_missing or self._clock() < self._due:
            return
        self._checked = self._clock()
        existing = self._list()
        kept = {PodID(*item.stands_for): item for item in existing if self._stays(item, snapshot, effort)}
        # The pods may not be listed yet: a placeholder without a pod is looked at twice.
        self._orphans = frozenset(item.name for key, item in kept.items() if not _waiting_pod(snapshot, key))
        self._standing = kept
        self._create_missing(snapshot, effort)

    @property
    def _due(self) -> float:
        return self._checked + (CHECK_SECONDS if self._waiting or self._standing else IDLE_SECONDS)

    def _list(self) -> Sequence[Placeholder]:
        def read(content: dict[str, Any]) -> Iterator[Placeholder]:
            yield read_placeholder(content)

        return self._client.read(PODS, read, namespace=self._namespace, labels=_SELECTOR).items

    def _stays(self, item: Placeholder, snapshot: Snapshot, effort: Effort) -> bool:
        """Whether it is there afterwards: one that cannot be looked after is."""
        effort.next_pod()
        with self._faults.of(self._namespace, item.name), self._right.used():
            return self._keep(item, snapshot, effort)
        return True

    def _keep(self, item: Placeholder, snapshot: Snapshot, effort: Effort) -> bool:
        """Whether its pod may still need the placeholder, which is removed otherwise."""
        pod = _waiting_pod(snapshot, PodID(*item.stands_for))
        if pod is None and item.name not in self._orphans:
            return True
        if pod is None or not another_would_admit(snapshot, pod.pod, pod.placement, effort):
            self._delete(item)
            return False
        if not item.unschedulable:
            self._ask_for_a_node(item)
        return True

    def _create_missing(self, snapshot: Snapshot, effort: Effort) -> None:
        numbers = Counter(key.namespace for key in self._standing)
        for pod in self._due_pods(snapshot):
            if numbers.total() >= MAX_PLACEHOLDERS:
                return
            if self._right.is_missing:
                return
            if numbers[pod.namespace] < MAX_PLACEHOLDERS // 2:
                effort.next_pod()
                with self._faults.of(pod.namespace, pod.name), self._right.used():
                    numbers[pod.namespace] += self._create(pod, snapshot, effort)

    def _due_pods(self, snapshot: Snapshot) -> Iterator[WatchedPod]:
        """The pods without a placeholder that have waited long enough."""
        latest = self._clock() - PATIENCE_SECONDS
        with self._lock:
            waiting = list(self._waiting.items())
        for key, since in waiting:
            pod = _waiting_pod(snapshot, key)
            if pod is None:
                self._forget(key)
            elif since <= latest and key not in self._standing:
                yield pod

    def _create(self, pod: WatchedPod, snapshot: Snapshot, effort: Effort) -> bool:
        """Create the pod's placeholder, if a new node would help it. Returns whether it has one now."""
        if diagnose(snapshot, pod.pod, pod.placement, surveys=self._store.surveys, effort=effort).candidates:
            return False
        if not another_would_admit(snapshot, pod.pod, pod.placement, effort) or self._creations.take(pod.namespace):
            return False
        try:
            made = read_placeholder(self._client.create(PODS, placeholder(pod, self._namespace), self._namespace))
        except AlreadyExists:
            return True
        except (Invalid, NotFound) as error:
            self._forget(PodID.of(pod))
            _log.warning("no placeholder can stand for %s/%s: %s", pod.namespace, pod.name, error)
            return False
        self._standing = {**self._standing, PodID.of(pod): made}
        _log.info("%s asks for a node for %s/%s", made.name, pod.namespace, pod.name)
        self._ask_for_a_node(made)
        return True

    def _ask_for_a_node(self, item: Placeholder) -> None:
        """Give the placeholder the condition that kube-scheduler gives to pods without gates."""
        message = f"stands for pod {'/'.join(item.stands_for[:2])}, which no node admits now"
        pod_requests.say_not_scheduled(self._client, item, self._namespace, reason="Unschedulable", message=message)

    def _delete(self, item: Placeholder) -> None:
        with suppress(NotFound, Conflict):
            self._client.delete(PODS, item.name, self._namespace, uid=item.uid)

    def _forget(self, key: PodID) -> None:
        with self._lock:
            self._waiting.pop(key, None)


def _waiting_pod(snapshot: Snapshot, key: PodID) -> WatchedPod | None:
    """The pod as its user asked for it, if it still waits for a node, gated or refused."""
    name = (key.namespace, key.name)
    if name in snapshot.assumed:
        return None
    gated, refusal = snapshot.gated.get(name), snapshot.refused.get(key.uid)
    if gated and gated.uid == key.uid and is_held_by_us(gated):
        return gated
    return as_requested(refusal.pod) if refusal and not refusal.pod.deleting else None
