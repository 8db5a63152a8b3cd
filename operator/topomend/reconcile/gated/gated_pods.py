"""Pods gated at their creation: ungated in queue order for nodes that admit them.

Owns how often a pod yields to older ones, and that no pod is ungated twice. Leaves the choice of nodes and the queue
order to ``decide``.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.changes import Change, PodRemoved, PodUpdated
from topomend.cache.snapshot import Snapshot
from topomend.decide import gang
from topomend.decide import plan as plans
from topomend.decide.diagnosis.feasibility import ExcludedNodes, diagnose, hostnames_without_agent, refusing_hostnames
from topomend.decide.queue.order import Reservation
from topomend.kube.errors import APIError, Refused, ServerFailed, Unanswered
from topomend.model.narrowing import Narrowing, anywhere_but
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.scheduling import PodGroup, WatchedPod
from topomend.reconcile.collaborators import Collaborators
from topomend.reconcile.gated.gangs import Gangs
from topomend.reconcile.nodes.replay_shares import new_shares, within_shares
from topomend.reconcile.pod_id import PodID, WorkloadID
from topomend.reconcile.result import DONE, RETRY_SECONDS, Result, earliest
from topomend.relaunch import pod_requests
from topomend.replay.effort import UNLIMITED, Effort, TurnOver
from topomend.runtime.backoff import Backoff
from topomend.runtime.queues.fair_permits import FairPermits
from topomend.runtime.timestamp import time_of_day
from topomend.wire.document import MalformedObject
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

MAX_OVERRUNS, ALONE_SECONDS = 3, 300.0
"""After how many choices that took too long the pods of a group go one by one, and for how long they do."""

GROUP_SECONDS = 5.0
"""How long the choice of nodes for one group may work at first, and twice as long after each that took too long. For
500 pods on 5,000 nodes of four NUMA nodes it works 3 s; a slow machine must not end what a group is for."""

MAX_ENTRIES = 10_000


class GatedPods:
    """Ungates pods as the snapshot shows them: a pod that has changed since is read again instead.

    ``backoff`` delays the pods of a controller; ``widened`` says which pods go to every node that admits them;
    ``report`` gets what was read; ``reserved`` are the reservations now; ``because`` says why a pod is gated, where
    that is known. May be used by several threads, a pod each.
    """

    def __init__(  # noqa: PLR0913  the parts it is composed of
        self,
        parts: Collaborators,
        backoff: Backoff,
        widened: Callable[[WatchedPod], WatchedPod],
        report: Callable[[Change], None],
        reserved: Callable[[], Sequence[Reservation]] = tuple,
        *,
        because: Callable[[WatchedPod], str] = lambda _: "",
    ) -> None:
        self._client, self._store, self._clock = parts.client, parts.store, parts.clock
        self._reservations, self._explainer = parts.reservations, parts.explainer
        self._announcer, self._metrics, self._scale_up = parts.announcer, parts.metrics, parts.scale_up
        self._backoff, self._widened, self._report, self._reserved = backoff, widened, report, reserved
        self._untried, self._because = parts.untried, because
        self._gangs = Gangs(parts.client, parts.store, parts.announcer, parts.clock)
        self._volumes, self._devices = parts.volumes, parts.devices
        self._permits = FairPermits(GROUPS_AT_A_TIME, parts.clock)
        self._overruns: BoundedDict[tuple[str, PodGroup], tuple[int, float]] = BoundedDict(MAX_ENTRIES)
        self._ungating: set[tuple[str, PodGroup]] = set()
        self._followers: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)
        self._yields: BoundedDict[PodID, int] = BoundedDict(MAX_ENTRIES)
        self._ungated: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)
        self._unaligned: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)
        self._fitting: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._metrics.show_while_leading(self._metrics.gated_though_fits, self._longest_fitting)

    def take_over(self) -> None:
        """Reset the counts: another operator has led since."""
        self._yields.clear()
        self._fitting.clear()

    def is_held_for_alignment(self, pod: WatchedPod) -> bool:
        """Whether a kubelet would admit the pod, and it waits only for the alignment that its creator asks for."""
        return pod.uid in self._unaligned

    def reconcile(self, pod_id: PodID, effort: Effort = UNLIMITED) -> Result:
        """Ungate the pod where a node admits it now and it is next in order. Raises APIError."""
        pod = self._store.snapshot.gated.get((pod_id.namespace, pod_id.name))
        if pod is None or pod.uid != pod_id.uid or not self._is_ungatable(pod):
            self._yields.pop(pod_id, None)
            return DONE
        backoff = self._backoff.remaining(WorkloadID.of(pod)) if pod.owner else 0.0
        if backoff:
            return Result(backoff)
        if pod.group and not self._goes_alone(pod, pod.group):
            return self._reconcile_group(pod, pod.group, effort)
        located = self._located(pod)
        return located if isinstance(located, Result) else self._reconcile_alone(pod_id, located, effort)

    def leave_to_scheduler(self, pod: WatchedPod, nodes: Sequence[str], useless: Sequence[str]) -> None:
        """Ungate the pod for nodes that are full in total, where kube-scheduler evicts others for it. Raises APIError.

        A pod of which nobody knows where its volumes are may go to any node but the ``useless`` ones, where that makes
        no room, and those that refuse it. Nothing is done where it is no longer as it was decided on, or one of the
        nodes is not.
        """
        if not self._is_ungatable(pod) or self._located(pod) != pod:
            return
        snapshot = self._store.snapshot
        hosts = list(_hostnames(snapshot, nodes))
        narrowing = Narrowing(tuple(hosts))
        if pod.placement.volumes is None:
            unusable = [*_hostnames(snapshot, useless), *self._refusing(snapshot, pod)]
            narrowing = anywhere_but(hosts, [host for host in unusable if host not in hosts])
        if self._store.assume(pod.pod, nodes, snapshot, self._clock(), displaces=True):
            return
        names = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        self._ungate(pod, narrowing, f"kube-scheduler may evict pods of lower priority for it on {names}")

    def let_go(self, pod: WatchedPod, why: str) -> Result:
        """Ungate a pod that is not to be gated, for whatever node its scheduler chooses. Raises APIError."""
        if pod.deleting or pod.uid in self._ungated:
            return DONE
        self._yields.pop(PodID.of(pod), None)
        return self._ungate(pod, Narrowing(), f"{why}; ungated for any node")

    def _refusing(self, snapshot: Snapshot, pod: WatchedPod) -> Sequence[str]:
        """The hostname labels of the nodes whose kubelets would refuse the pod."""

        def asked(effort: Effort) -> Sequence[str]:
            surveys = self._store.surveys
            answers = diagnose(snapshot, pod.pod, pod.placement, surveys=surveys, effort=effort)
            return refusing_hostnames(snapshot, answers)

        return within_shares(self._store, asked)

    def _located(self, pod: WatchedPod) -> WatchedPod | Result:
        """The gated pod with what is known of its volumes; or when to try again."""
        later = self._volumes.look_up(pod)
        return self._with_volumes(pod) if later.after is None else later

    def _with_volumes(self, pod: WatchedPod) -> WatchedPod:
        """The gated pod with what the snapshot has of its volumes."""
        known = self._store.snapshot.gated.get((pod.namespace, pod.name)) if pod.claims else None
        return known if known and known.uid == pod.uid and known.version == pod.version else pod

    def _reconcile_alone(self, pod_id: PodID, pod: WatchedPod, effort: Effort) -> Result:
        yields, devices = self._yields.get(pod_id, 0), self._devices.on_best_nodes((pod,), effort)

        def decide(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.Choice:
            decision = plans.choose_in_order(
                snapshot,
                self._widened(pod),
                self._reserved(),
                excluded,
                yields=yields < MAX_YIELDS,
                untried=self._untried.before(pod),
                devices=self._devices.left(devices, pod),
                surveys=self._store.surveys,
                effort=effort,
            )
            self._devices.note(pod, *plans.devices_of(decision))
            return decision

        choice = self._reservations.choose(pod, decide, effort)
        if isinstance(choice, plans.Yield) and choice.is_untried:
            self._note_fits(pod)
            return Result(SETTLE_SECONDS)
        if isinstance(choice, plans.Yield | plans.Settle):
            self._note_fits(pod)
            self._yields[pod_id] = yields + 1
            settles = isinstance(choice, plans.Settle)
            return Result(SETTLE_SECONDS) if settles else Result(YIELD_SECONDS, on_any_change=True)
        self._yields.pop(pod_id, None)
        if isinstance(choice, plans.RelaunchOn):
            return self._ungate(pod, choice.narrowing, choice.reason)
        hostnames = hostnames_without_agent(self._store.snapshot, pod.pod, choice.diagnosis)
        if hostnames:
            return self._ungate(pod, Narrowing(hostnames), choice.reason)
        return self._wait(pod, choice, (pod,), effort)

    def _reconcile_group(self, pod: WatchedPod, group: PodGroup, effort: Effort) -> Result:
        """Ungate all pods of the group, or none: two groups that each hold half would wait for each other for ever."""
        key = (pod.namespace, group)
        gathered = self._gangs.gather(pod, group)
        if isinstance(gathered, Result):
            return gathered
        later = self._volumes.look_up_all(list(filter(self._is_ungatable, gathered)))
        if later.after is not None:
            return later
        # After the requests: while answers are awaited for two groups, nodes are chosen for others.
        if not self._permits.take(pod.namespace, GROUP_BUSY_SECONDS):
            return Result(GROUP_BUSY_SECONDS)
        try:
            if key in self._ungating:
                return Result(GROUP_BUSY_SECONDS)
            chosen = self._choose_for_all(pod, gathered, self._group_seconds(key), effort)
            if isinstance(chosen, Result):
                return chosen
            self._ungating.add(key)
        except TurnOver:
            self._overrun(pod, key, len(gathered))
            return Result(GROUP_BUSY_SECONDS)
        finally:
            self._permits.give_back(pod.namespace)
        try:  # without the permit: other groups do not wait for these requests
            return self._ungate_placed(chosen)
        finally:
            self._ungating.discard(key)

    def _group_seconds(self, key: tuple[str, PodGroup]) -> float:
        """How long the choice of nodes for this group may work: twice as long after each that took too long."""
        return float(GROUP_SECONDS * 2 ** self._overruns.get(key, (0, 0.0))[0])

    def _goes_alone(self, pod: WatchedPod, group: PodGroup) -> bool:
        """Whether nodes are chosen for the pod without its group, because that took too long lately."""
        overruns, since = self._overruns.get((pod.namespace, group), (0, 0.0))
        if overruns < MAX_OVERRUNS:
            return False
        if self._clock() < since + ALONE_SECONDS:
            return True
        self._overruns.pop((pod.namespace, group), None)  # another worker may have a pod of the same group
        return False

    def _overrun(self, pod: WatchedPod, key: tuple[str, PodGroup], pods: int) -> None:
        """Count a choice for a group that took too long."""
        seconds = self._group_seconds(key)
        overruns = self._overruns.get(key, (0, 0.0))[0] + 1
        self._overruns[key] = overruns, self._clock()
        if overruns == MAX_OVERRUNS:
            self._announcer.group_goes_alone(pod, pods, seconds, time_of_day(ALONE_SECONDS))

    def _choose_for_all(
        self, pod: WatchedPod, pods: Sequence[WatchedPod], seconds: float, effort: Effort
    ) -> Sequence[gang.Placed] | Result:
        """Nodes that admit ``pods`` together, among them ``pod``, on which they are assumed; or when to try again."""
        waiting = [self._with_volumes(member) for member in filter(self._is_ungatable, pods)]
        if not waiting:
            return DONE  # ``pod`` has been deleted since it was looked up
        first = min(waiting, key=lambda member: member.order)
        is_first = pod.uid == first.uid
        if not is_first and pod.uid in self._followers:
            return Result(RETRY_SECONDS)  # the first pod of the group is requeued by the change that matters
        widened, for_group = [self._widened(member) for member in waiting], new_shares(seconds)
        devices = self._devices.on_best_nodes(waiting, for_group)
        chosen = self._reservations.choose_for_all(
            waiting,
            lambda snapshot, excluded: gang.choose_for_all(
                snapshot,
                widened,
                self._reserved(),
                excluded,
                devices=self._devices.left(devices, *waiting),
                surveys=self._store.surveys,
                effort=for_group,
                for_one=partial(new_shares, seconds),
            ),
            for_group,
        )
        if chosen is None:
            return Result(GROUP_BUSY_SECONDS)
        if isinstance(chosen, gang.Unplaced):
            self._followers[pod.uid] = None
            result = self._wait(chosen.pod, chosen.wait, waiting, effort)
            return result if is_first else Result(RETRY_SECONDS)
        for placed in chosen:
            self._devices.note(placed.pod, placed.node, placed.parts)
        return chosen

    def _ungate_placed(self, chosen: Sequence[gang.Placed]) -> Result:
        """Ungate them all. A pod for which that is refused keeps none of the others from it, and is tried again."""
        first: Refused | MalformedObject | None = None
        for number, placed in enumerate(chosen):
            try:
                self._ungate(placed.pod, placed.narrowing, placed.reason)
            except (Refused, MalformedObject) as error:
                first = first or error
            except BaseException:
                for later in chosen[number + 1 :]:
                    self._reservations.forget(later.pod)
                raise
        if first:
            raise first
        return DONE

    def _wait(
        self,
        pod: WatchedPod,
        choice: plans.RelaunchOn | plans.Wait,
        together: Sequence[WatchedPod],
        effort: Effort,
    ) -> Result:
        """Report that no node admits the pod. ``together`` are it and the pods that are ungated with it only."""
        if choice.diagnosis.lacks_alignment_alone:
            self._unaligned[pod.uid] = None
        else:
            self._unaligned.pop(pod.uid, None)
        if not choice.diagnosis.candidates:
            self._untried.add(pod)  # before any request: a younger pod is decided on at the same time
        never, result = self._explainer.report_gated(pod, choice.reason, choice.diagnosis, self._because(pod), effort)
        if choice.diagnosis.candidates:
            self._note_fits(pod)
        else:
            self._fitting.pop(pod.uid, None)
            self._scale_up.wait(together, infeasible=never, why=choice.reason)
        result = earliest(result, self._reservations.backing_off(pod))
        result = earliest(result, self._volumes.again(pod))
        # Nodes that admit the pod are taken or reserved for others: any change may free them.
        return earliest(result, Result(on_any_change=bool(choice.diagnosis.candidates)))

    def _is_ungatable(self, pod: WatchedPod) -> bool:
        """Whether ours is its only gate. A pod that was just ungated still looks gated for a moment."""
        return pod.gates == (FIT_GATE,) and not pod.deleting and pod.uid not in self._ungated

    def _note_fits(self, pod: WatchedPod) -> None:
        """Note since when a node would admit the pod: it waits for others, or for the API server."""
        if pod.uid not in self._fitting:
            self._fitting[pod.uid] = self._clock()

    def _longest_fitting(self) -> float:
        """How long a pod has been gated at most since a node would admit it; 0 where there is none."""
        since = (self._fitting.get(pod.uid) for pod in self._store.snapshot.gated.values())
        return max((self._clock() - moment for moment in since if moment is not None), default=0.0)

    def _ungate(self, pod: WatchedPod, narrowing: Narrowing, why: str) -> Result:
        self._note_fits(pod)
        with self._reservations.forgotten_on_error(pod):
            self._scale_up.release(pod)
        since = self._store.snapshot.gated_since.get((pod.namespace, pod.name))
        try:
            is_ungated = pod_requests.ungate(self._client, pod, narrowing)
        except (Unanswered, ServerFailed):
            raise  # it may be ungated, and bound to the nodes on which it is assumed
        except APIError:
            self._reservations.forget(pod)
            raise
        if not is_ungated:
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


def _hostnames(snapshot: Snapshot, nodes: Sequence[str]) -> Iterator[str]:
    """The hostname labels of those of these nodes that are still there."""
    return (snapshot.nodes[name].labels[HOSTNAME_LABEL] for name in nodes if name in snapshot.nodes)
