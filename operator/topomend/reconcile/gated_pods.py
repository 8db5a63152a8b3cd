"""Pods gated at their creation: ungated in queue order for nodes that admit them.

Owns how often a pod yields to older ones, and that no pod is ungated twice. Leaves the choice of nodes and the queue
order to ``decide``.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from topomend.cache.changes import Change, PodRemoved, PodUpdated
from topomend.decide import gang
from topomend.decide import plan as plans
from topomend.decide.feasibility import hostnames_without_agent
from topomend.decide.queue_order import Reservation
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import PodGroup, WatchedPod
from topomend.model.narrowing import Narrowing
from topomend.reconcile.collaborators import Collaborators
from topomend.reconcile.gangs import Gangs
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import DONE, RETRY_SECONDS, Result, earliest
from topomend.relaunch import pod_requests
from topomend.replay.effort import TurnOver, metered
from topomend.runtime.backoff import Backoff
from topomend.runtime.turns import FairPermits
from topomend.wire.group import FIT_GATE

YIELD_SECONDS, MAX_YIELDS = 0.05, 20
"""How long a pod yields to an older one that could use the same node, and how often: the older may be delayed."""

SETTLE_SECONDS = 0.2
"""How long a pod waits for pods that are about to arrive on one of its nodes, MAX_YIELDS times at most: a kubelet's
decision is published within a second, and a node affinity that lacks the node cannot be widened."""

GROUP_BUSY_SECONDS = 0.2
"""When a pod of a group is tried again while nodes are chosen for other groups."""

GROUPS_AT_A_TIME = 2
"""For how many groups nodes are chosen at a time, of a namespace each: some workers are left to pods that go alone."""

GROUP_SECONDS = 5.0
"""How long the choice of nodes for one group may work. For 500 pods on 5,000 nodes of four NUMA nodes it works 3 s."""

MAX_ENTRIES = 10_000

_log = logging.getLogger(__name__)


class GatedPods:
    """Ungates pods as the snapshot shows them: a pod that has changed since is read again instead.

    ``backoff`` delays the pods of a controller; ``widened`` says which pods go to every node that admits them;
    ``report`` gets what was read; ``reserved`` are the reservations now. May be used by several threads, a pod each.
    """

    def __init__(
        self,
        parts: Collaborators,
        backoff: Backoff,
        widened: Callable[[WatchedPod], WatchedPod],
        report: Callable[[Change], None],
        reserved: Callable[[], Sequence[Reservation]] = tuple,
    ) -> None:
        self._client, self._store, self._clock = parts.client, parts.store, parts.clock
        self._reservations, self._explainer = parts.reservations, parts.explainer
        self._announcer, self._metrics, self._scale_up = parts.announcer, parts.metrics, parts.scale_up
        self._backoff, self._widened, self._report, self._reserved = backoff, widened, report, reserved
        self._gangs = Gangs(parts.client, parts.store, parts.clock)
        self._permits = FairPermits(GROUPS_AT_A_TIME, parts.clock)
        self._costly: BoundedDict[tuple[str, PodGroup], None] = BoundedDict(MAX_ENTRIES)
        self._followers: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)
        self._yields: dict[PodID, int] = {}
        self._ungated: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)
        self._unaligned: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)

    def take_over(self) -> None:
        """Reset the counts: another operator has led since."""
        self._yields.clear()

    def is_held_for_alignment(self, pod: WatchedPod) -> bool:
        """Whether a kubelet would admit the pod, and it waits only for the alignment that its creator asks for."""
        return pod.uid in self._unaligned

    def reconcile(self, pod_id: PodID) -> Result:
        """Ungate the pod where a node admits it now and it is next in order. Raises APIError."""
        pod = self._store.snapshot.gated.get((pod_id.namespace, pod_id.name))
        if pod is None or pod.uid != pod_id.uid or not self._is_ungatable(pod):
            self._yields.pop(pod_id, None)
            return DONE
        backoff = self._backoff.remaining(pod.owner.uid) if pod.owner else 0.0
        if backoff:
            return Result(backoff)
        if pod.group and (pod.namespace, pod.group) not in self._costly:
            return self._reconcile_group(pod, pod.group)
        return self._reconcile_alone(pod_id, pod)

    def _reconcile_alone(self, pod_id: PodID, pod: WatchedPod) -> Result:
        yields = self._yields.get(pod_id, 0)
        choice = self._reservations.choose(
            pod,
            lambda snapshot, excluded: plans.choose_in_order(
                snapshot, self._widened(pod), self._reserved(), excluded, yields=yields < MAX_YIELDS
            ),
        )
        if isinstance(choice, plans.Yield | plans.Settle):
            self._yields[pod_id] = yields + 1
            settles = isinstance(choice, plans.Settle)
            return Result(SETTLE_SECONDS) if settles else Result(YIELD_SECONDS, on_any_change=True)
        self._yields.pop(pod_id, None)
        if isinstance(choice, plans.RelaunchOn):
            return self._ungate(pod, choice.narrowing, choice.reason)
        hostnames = hostnames_without_agent(self._store.snapshot, pod.pod, choice.diagnosis)
        return self._ungate(pod, Narrowing(hostnames), choice.reason) if hostnames else self._wait(pod, choice, (pod,))

    def _reconcile_group(self, pod: WatchedPod, group: PodGroup) -> Result:
        """Ungate all pods of the group, or none: two groups that each hold half would wait for each other for ever."""
        if not self._permits.take(pod.namespace, GROUP_BUSY_SECONDS):
            return Result(GROUP_BUSY_SECONDS)
        try:
            gathered = self._gangs.gather(pod, group)
            return gathered if isinstance(gathered, Result) else self._ungate_all(pod, gathered)
        except TurnOver:
            _log.warning(
                "%s/%s: choosing nodes for all pods of its group takes too long; they go one by one",
                pod.namespace,
                pod.name,
            )
            self._costly[pod.namespace, group] = None
            return Result(GROUP_BUSY_SECONDS)
        finally:
            self._permits.give_back(pod.namespace)

    def _ungate_all(self, pod: WatchedPod, pods: Sequence[WatchedPod]) -> Result:
        """Ungate ``pods``, among them ``pod``, on nodes that admit them together."""
        waiting = [member for member in pods if self._is_ungatable(member)]
        if not waiting:
            return DONE  # ``pod`` has been deleted since it was looked up
        first = min(waiting, key=lambda member: member.order)
        if pod is not first and pod.uid in self._followers:
            return Result(RETRY_SECONDS)  # the first pod of the group is requeued by the change that matters
        widened = [self._widened(member) for member in waiting]
        with metered(time.thread_time, GROUP_SECONDS):
            chosen = self._reservations.choose_for_all(
                waiting,
                lambda snapshot, excluded: gang.choose_for_all(
                    snapshot, widened, self._reserved(), excluded, partial(metered, time.thread_time, GROUP_SECONDS)
                ),
            )
        if chosen is None:
            return Result(GROUP_BUSY_SECONDS)
        if isinstance(chosen, gang.Unplaced):
            self._followers[pod.uid] = None
            result = self._wait(chosen.pod, chosen.wait, waiting)
            return result if pod is first else Result(RETRY_SECONDS)
        for placed in chosen:
            self._ungate(placed.pod, placed.narrowing, placed.reason)
        return DONE

    def _wait(self, pod: WatchedPod, choice: plans.RelaunchOn | plans.Wait, together: Sequence[WatchedPod]) -> Result:
        """Report that no node admits the pod. ``together`` are it and the pods that are ungated with it only."""
        if choice.diagnosis.lacks_alignment_alone:
            self._unaligned[pod.uid] = None
        else:
            self._unaligned.pop(pod.uid, None)
        never, result = self._explainer.report_gated(pod, choice.reason)
        if not choice.diagnosis.candidates:
            self._scale_up.wait(together, infeasible=never)
        result = earliest(result, self._reservations.backing_off(pod))
        # Nodes that admit the pod are taken or reserved for others: any change may free them.
        return earliest(result, Result(on_any_change=bool(choice.diagnosis.candidates)))

    def _is_ungatable(self, pod: WatchedPod) -> bool:
        """Whether ours is its only gate. A pod that was just ungated still looks gated for a moment."""
        return pod.gates == (FIT_GATE,) and not pod.deleting and pod.uid not in self._ungated

    def _ungate(self, pod: WatchedPod, narrowing: Narrowing, why: str) -> Result:
        self._scale_up.release(pod)
        since = self._store.snapshot.gated_since.get((pod.namespace, pod.name))
        if not pod_requests.ungate(self._client, pod, narrowing):
            self._refresh(pod)
            return DONE
        self._ungated[pod.uid] = None
        if since is not None:
            self._metrics.gated_for(self._clock() - since)
        self._announcer.ungated(pod, why)
        return DONE

    def _refresh(self, pod: WatchedPod) -> None:
        """Read a pod that is not as the snapshot shows it; where it is still gated, its change requeues it."""
        current = pod_requests.read(self._client, pod.namespace, pod.name)
        if current is None or current.uid != pod.uid:
            self._reservations.forget(pod)
            self._report(PodRemoved(pod.namespace, pod.name, pod.uid, self._clock()))
            return
        if current.gates:
            self._reservations.forget(pod)  # without gates the pod was ungated, and only the answer was lost
        self._report(PodUpdated(current, self._clock()))
