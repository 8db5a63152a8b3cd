"""Which pods of lower priority make room for a waiting pod, and who evicts them.

kube-scheduler preempts by totals, and never sees a pod that is gated. Where its own victims would free the NUMA node
too, the pod is let go: the scheduler knows every rule, and keeps the place. Elsewhere the operator evicts by replay,
only where the place can be kept. Owns the choice of nodes and victims. Leaves which pods run on a node, and the
eviction, to ``reconcile/gated/preemption``.
Source: pkg/scheduler/framework/preemption/preemption.go (pickOneNodeForPreemption),
plugins/defaultpreemption/default_preemption.go (SelectVictimsOnNode, reprieving of victims).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from topomend.alignment.requested import admission_of
from topomend.cache.snapshot import PodKey, Snapshot
from topomend.decide.budgets import Budget
from topomend.decide.diagnosis.filters import filter_node, too_little_left
from topomend.decide.diagnosis.totals import Requests
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState, emptied
from topomend.model.pods.pod import Pod, requests_of, sum_of, usage_of
from topomend.model.pods.scheduling import WatchedPod
from topomend.replay.admission import admit, may_allocate, release
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.fast_path.admission import FastAdmission

_OFFSET = 1 << 31
"""Added to each victim's priority before they are summed, so that the sum grows with their number."""


@dataclass(frozen=True)
class Running:
    """The pods of some nodes, and what is known of them beside their own fields.

    ``by_node``: by the node's name. ``staying``: the uids of those that nobody may evict, or that are stuck in their
    deletion. ``returning``: of those whose controllers create another at once that no gate holds. ``awaited``: by node,
    the pods for which others have been evicted there. ``budgets``: those that kube-scheduler looks at. ``states``: by
    node, the one that it will have.
    """

    by_node: Mapping[str, Sequence[WatchedPod]]
    staying: Collection[str] = ()
    returning: Collection[str] = ()
    awaited: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    budgets: Sequence[Budget] = ()
    states: Mapping[str, NodeState] = field(default_factory=dict)

    def on(self, names: Collection[str]) -> "Running":
        """The same of these nodes alone."""
        return replace(self, by_node={name: pods for name, pods in self.by_node.items() if name in names})


@dataclass(frozen=True)
class Preemption:
    """The pods to evict from ``node``; none where it is enough to wait for those that are being deleted."""

    node: str
    victims: tuple[WatchedPod, ...]


def would_admit_empty(snapshot: Snapshot, pod: WatchedPod, node: str, effort: Effort = UNLIMITED) -> bool:
    """Whether the node would admit the pod if it were empty; False where its state is not known. Raises Overspent."""
    known, publication = snapshot.nodes.get(node), snapshot.publications.get(node)
    if known is None or publication is None or publication.problem:
        return False
    if filter_node(known, pod.placement, requests_of(pod.pod)):
        return False
    return admission_of(pod.pod, effort).admits(emptied(publication.state))


def where_it_may_run(snapshot: Snapshot, pod: WatchedPod, running: Running, effort: Effort = UNLIMITED) -> Running:
    """``running`` on those nodes that would admit the pod if they were empty. Raises Overspent."""
    return running.on([name for name in running.by_node if would_admit_empty(snapshot, pod, name, effort)])


def undecided_nodes(snapshot: Snapshot) -> set[str]:
    """The nodes on which kube-scheduler evicts pods for another one, or may, until that is bound and published there.

    Which pods leave for it, and which NUMA nodes it gets, is known then. No other pod is let go or evicted for there
    meanwhile: that would be a guess about two pods. A pod for which the scheduler has found no node bars nobody, nor
    does one that is bound and that no kubelet gives any CPUs of its own.
    """
    return {
        name
        for key, assumed in snapshot.assumed.items()
        if assumed.displaces
        for name in assumed.nodes
        if name in snapshot.publications
        and (
            not _is_unbound(snapshot, key, assumed.pod)
            if assumed.awaits_binding
            else may_allocate(snapshot.publications[name].state, assumed.pod)
        )
    }


def is_choosing(snapshot: Snapshot, node: str, pods: Iterable[WatchedPod]) -> bool:
    """Whether kube-scheduler evicts some of these ``pods`` of an undecided node in a moment, or binds another there.

    None is being deleted yet or any more, and nobody has been bound for whom they were to leave.
    """
    return not any(pod.deleting for pod in pods) and any(
        assumed.displaces
        and assumed.awaits_binding
        and node in assumed.nodes
        and not _is_unbound(snapshot, key, assumed.pod)
        for key, assumed in snapshot.assumed.items()
    )


def _is_unbound(snapshot: Snapshot, key: PodKey, pod: Pod) -> bool:
    """Whether the scheduler has found no node for the pod."""
    unbound = snapshot.unbound.get(key)
    return unbound is not None and unbound.pod.uid == pod.uid


def where_enough_is_left(
    snapshot: Snapshot, pod: WatchedPod, running: Running, effort: Effort = UNLIMITED
) -> Sequence[str]:
    """The nodes whose pods leave enough for ``pod`` in total, whatever their NUMA nodes admit. Raises Overspent."""
    dry_runs = _dry_runs(snapshot, pod, running, effort)
    return [dry_run.node.name for dry_run in dry_runs if dry_run.leaves_enough(dry_run.used_without(()))]


# The scheduler preempts


def where_scheduler_preempts(
    snapshot: Snapshot, pod: WatchedPod, running: Running, effort: Effort = UNLIMITED
) -> tuple[str, ...]:
    """The nodes on which kube-scheduler would make room for the pod, and which admit it once its victims have left.

    That must be so in any order of equal victims, and whether or not pods come that may go elsewhere. Raises Overspent.
    """
    found = [
        {
            dry_run.node.name
            for dry_run in _dry_runs(snapshot, pod, running, effort, certain=certain)
            if _frees(dry_run, pod, running, tied)
        }
        for certain in (False, True)
        for tied in (False, True)
    ]
    return tuple(name for name in running.by_node if all(name in names for names in found))


def where_scheduler_makes_room_for_both(
    snapshot: Snapshot, pod: WatchedPod, held: WatchedPod, running: Running, effort: Effort = UNLIMITED
) -> tuple[str, ...]:
    """The nodes on which kube-scheduler makes room for ``pod`` beside ``held``, which is nominated there, at once.

    It evicts nobody for a gated pod, but keeps the totals of a nominated one of no lower priority free. So ``pod`` is
    bound once as many have left as both need. Each node admits both then, whichever comes first. Raises Overspent.
    """
    beside, after = with_awaited(running, held), with_awaited(running, pod)
    found = [
        {
            first.node.name
            for first, second in zip(
                _dry_runs(snapshot, pod, beside, effort, certain=certain),
                _dry_runs(snapshot, held, after, effort, certain=certain),
                strict=True,
            )
            if _frees(first, pod, beside, tied)
            and second.admits_without(_schedulers_victims(first, pod, beside.budgets, tied))
        }
        for certain in (False, True)
        for tied in (False, True)
    ]
    names = (name for name in running.by_node if all(name in names for names in found))
    return tuple(name for name in names if all(would_admit_empty(snapshot, each, name, effort) for each in (pod, held)))


def with_awaited(running: Running, held: WatchedPod) -> Running:
    """``running`` where ``held`` is awaited as well, on each of the nodes."""
    awaited = {name: (*running.awaited.get(name, ()), held.pod) for name in running.by_node}
    return replace(running, awaited={**running.awaited, **awaited})


def where_budgets_decide(
    snapshot: Snapshot, pod: WatchedPod, running: Running, effort: Effort = UNLIMITED
) -> Sequence[str]:
    """The nodes where kube-scheduler evicts pods for this one, and that admit it once all have left that may have to.

    Whom it evicts there depends on budgets, too. Raises Overspent.
    """
    return [
        dry_run.node.name
        for dry_run in _dry_runs(snapshot, pod, running, effort)
        if _schedulers_victims(dry_run, pod, (), tied=False) and dry_run.admits_without(_lower(dry_run, pod))
    ]


def schedulers_choice(
    snapshot: Snapshot, pod: WatchedPod, running: Running, effort: Effort = UNLIMITED
) -> Preemption | None:
    """The node that kube-scheduler would choose of these, and its victims there; None where it evicts nobody.

    Raises Overspent.
    """
    dry_runs = _dry_runs(snapshot, pod, running, effort)
    chosen = [
        Preemption(dry_run.node.name, tuple(_schedulers_victims(dry_run, pod, running.budgets, tied=False)))
        for dry_run in dry_runs
    ]
    return _least((preemption for preemption in chosen if preemption.victims), running.budgets)


def violates(preemption: Preemption, budgets: Iterable[Budget]) -> bool:
    """Whether more pods leave than one of the budgets allows."""
    uids = {victim.uid for victim in preemption.victims}
    return any(len(uids & budget.pods) > max(0, budget.allowed) for budget in budgets)


def _frees(dry_run: "_DryRun", pod: WatchedPod, running: Running, tied: bool) -> bool:
    """Whether the scheduler's victims free the place; ``tied`` is that equal ones come in the opposite order."""
    victims = _schedulers_victims(dry_run, pod, running.budgets, tied)
    if not victims or any(victim.uid in running.staying for victim in victims):
        return False
    return dry_run.admits_without(victims)


def _schedulers_victims(
    dry_run: "_DryRun", pod: WatchedPod, budgets: Sequence[Budget], tied: bool
) -> Sequence[WatchedPod]:
    """Whom kube-scheduler evicts by totals: all of lower priority but those that can stay.

    The first to stay are those whose budget does not allow them to leave, then the important ones. None where the
    totals suffice, or never would. Pods that are being deleted count: they are still there.
    """
    lower = _lower(dry_run, pod)
    lower.sort(key=lambda other: other.uid, reverse=tied)
    lower.sort(key=lambda other: (-other.priority, _started(other)))
    beyond = _beyond_budgets(lower, budgets)
    lower.sort(key=lambda other: other.uid not in beyond)
    used = dry_run.used_without({other.uid for other in lower})
    if not dry_run.leaves_enough(used):
        return ()
    victims = []
    for other in lower:
        beside = sum_of(used, dry_run.requests[other.uid])
        if dry_run.leaves_enough(beside):
            used = beside
        else:
            victims.append(other)
    return victims


def _lower(dry_run: "_DryRun", pod: WatchedPod) -> list[WatchedPod]:
    return [other for other in dry_run.running if other.priority < pod.priority]


def _beyond_budgets(lower: Sequence[WatchedPod], budgets: Sequence[Budget]) -> set[str]:
    """The uids of the pods that a budget does not allow to leave once the more important ones have left.

    Source: plugins/defaultpreemption/default_preemption.go:filterPodsWithPDBViolation.
    """
    beyond: set[str] = set()
    for budget in budgets:
        protected = [other.uid for other in lower if other.uid in budget.pods]
        beyond.update(protected[max(0, budget.allowed) :])
    return beyond


def _started(pod: WatchedPod) -> str:
    """When the pod started, now where no kubelet has seen it (pkg/scheduler/util/utils.go:GetPodStartTime)."""
    return pod.start_time or "now, after all times"


# The operator evicts


def choose_victims(
    snapshot: Snapshot, pod: WatchedPod, running: Running, effort: Effort = UNLIMITED
) -> Preemption | None:
    """The node and the pods that are least to be missed, in kube-scheduler's order; None where that helps nowhere.

    Raises Overspent.
    """
    return _least(_preemptions(snapshot, pod, running, effort))


def carried_out(
    snapshot: Snapshot, running: Running, preemption: Preemption, pod: WatchedPod, effort: Effort = UNLIMITED
) -> Running:
    """``running`` as it is once the victims have left and ``pod``, for which they do, runs there. Raises Overspent.

    Without the node, where its state has become unknown.
    """
    node, gone = preemption.node, {victim.uid for victim in preemption.victims}
    publication = snapshot.publications.get(node)
    if publication is None or publication.problem:
        return running.on(running.by_node.keys() - {node})
    state = running.states.get(node) or publication.remaining
    for victim in preemption.victims:
        state = release(state, victim.namespace, victim.name)
    _, state = admit(state, pod.pod, effort)
    staying = [other for other in running.by_node[node] if other.uid not in gone]
    by_node = {**running.by_node, node: [*staying, pod]}
    return replace(running, by_node=by_node, states={**running.states, node: state})


def is_better(one: Preemption | None, other: Preemption) -> bool:
    """Whether fewer or less important pods leave for the one than for the other."""
    return one is not None and _cost(one) < _cost(other)


def _least(preemptions: Iterable[Preemption], budgets: Sequence[Budget] = ()) -> Preemption | None:
    """The one whose victims are least to be missed: of those with the fewest victims that a budget does not allow."""

    def cost(preemption: Preemption) -> tuple[int, tuple[int, int, int]]:
        return len(_beyond_budgets(preemption.victims, budgets)), _cost(preemption)

    return min(sorted(preemptions, key=_latest_start, reverse=True), key=cost, default=None)


def _preemptions(snapshot: Snapshot, pod: WatchedPod, running: Running, effort: Effort) -> Iterator[Preemption]:
    for dry_run in _dry_runs(snapshot, pod, running, effort, leaving=True):
        lower = [
            other
            for other in dry_run.running
            if other.priority < pod.priority and other.uid not in running.staying and not other.deleting
        ]
        victims = _victims(lower, dry_run, running.returning)
        if victims is not None:
            yield Preemption(dry_run.node.name, tuple(victims))


def _cost(preemption: Preemption) -> tuple[int, int, int]:
    """The highest priority, the sum, and the number of the victims."""
    priorities = [victim.priority for victim in preemption.victims]
    highest = max(priorities, default=-_OFFSET)
    return highest, sum(priority + _OFFSET for priority in priorities), len(priorities)


def _latest_start(preemption: Preemption) -> str:
    """When the first of its most important victims started: of equal nodes the one where that is latest comes first."""
    highest = max((victim.priority for victim in preemption.victims), default=0)
    return min((_started(victim) for victim in preemption.victims if victim.priority == highest), default="")


def _victims(
    lower: Iterable[WatchedPod], dry_run: "_DryRun", returning: Collection[str]
) -> Sequence[WatchedPod] | None:
    """The victims on one node; none where the pod has room already, and None where it gets none that can be kept."""
    if dry_run.admits_without(()):
        return ()
    victims = sorted(lower, key=lambda other: (other.priority, _Reversed(_started(other)), other.namespace, other.name))
    lasting = [victim for victim in victims if victim.uid not in returning]
    for pods in (victims, lasting):
        if dry_run.admits_without(pods) and dry_run.keeps_place(found := _fewest(pods, dry_run, returning), returning):
            return found
    return None


def _fewest(victims: Sequence[WatchedPod], dry_run: "_DryRun", returning: Collection[str]) -> Sequence[WatchedPod]:
    """A single one, or what remains of all when each is spared that can be, whichever is less to be missed."""
    remaining: Sequence[WatchedPod] = victims
    for spared in reversed(victims):
        others = [victim for victim in remaining if victim is not spared]
        if dry_run.admits_without(others):
            remaining = others
    for victim in victims:
        if victim.priority > max(other.priority for other in remaining):
            break
        if dry_run.admits_without([victim]) and dry_run.keeps_place([victim], returning):
            return [victim]
    return remaining


@dataclass(frozen=True, slots=True)
class _Reversed:
    """A sort key in the opposite order."""

    text: str

    def __lt__(self, other: "_Reversed") -> bool:
        return other.text < self.text


# One node


def _dry_runs(  # noqa: PLR0913  what is known of a node
    snapshot: Snapshot,
    pod: WatchedPod,
    running: Running,
    effort: Effort,
    *,
    leaving: bool = False,
    certain: bool = False,
) -> Iterator["_DryRun"]:
    """One for each node whose state is known.

    ``leaving`` is that pods that are being deleted have left, ``certain`` that no pod comes that may go elsewhere.
    """
    fit = admission_of(pod.pod, effort)
    for name, pods in running.by_node.items():
        node, publication = snapshot.nodes.get(name), snapshot.publications.get(name)
        if node is not None and publication is not None and not publication.problem:
            known = {pod.uid, *(other.uid for other in pods)}
            awaited = [other for other in running.awaited.get(name, ()) if other.uid not in known]
            assumed = [other for other in publication.assumed_pods if not (certain and _may_not_come(snapshot, other))]
            state = running.states.get(name) or publication.remaining
            yield _DryRun(node, state, fit, pods, (*assumed, *awaited), leaving=leaving)


def _may_not_come(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether the pod is assumed on several nodes, of which it gets one, or the scheduler has found no node for it."""
    key = (pod.namespace, pod.name)
    assumed = snapshot.assumed.get(key)
    return assumed is not None and (len(assumed.nodes) > 1 or _is_unbound(snapshot, key, assumed.pod))


class _DryRun:
    """Whether one node would admit the pod of ``fit`` once some of the pods ``running`` there have left.

    Those that are ``arriving``, which are not in ``state``, come first: some of them may be in ``running`` already.
    """

    def __init__(  # noqa: PLR0913  what is on a node
        self,
        node: Node,
        state: NodeState,
        fit: FastAdmission,
        running: Sequence[WatchedPod],
        arriving: Iterable[Pod],
        *,
        leaving: bool,
    ) -> None:
        self.node, self.running = node, running
        self._pod, self._fit, self._state = fit.pod, fit, state
        self._arriving = {other.uid: other for other in arriving}
        pods = self._arriving | {other.uid: other.pod for other in running}
        self.requests = {uid: usage_of(other) for uid, other in pods.items()}
        self._leaving = [other for other in running if other.deleting] if leaving else []

    def used_without(self, victims: Collection[str]) -> Requests:
        """What the others than these uids request together."""
        none: Requests = {}
        return reduce(sum_of, (requests for uid, requests in self.requests.items() if uid not in victims), none)

    def leaves_enough(self, used: Requests) -> bool:
        """Whether enough is left in total for the pod beside what is ``used``."""
        return not too_little_left(self.node, requests_of(self._pod), used)

    def admits_without(self, victims: Iterable[WatchedPod]) -> bool:
        """Whether the node would admit the pod and has enough in total once ``victims`` have left, too."""
        gone = [*self._leaving, *victims]
        used = self.used_without({other.uid for other in gone})
        return self.leaves_enough(used) and self._fit.admits(self._state_without(gone))

    def keeps_place(self, victims: Iterable[WatchedPod], returning: Collection[str]) -> bool:
        """Whether the next pods of the victims' controllers leave the place alone.

        kube-scheduler keeps the totals of a nominated pod, and not its NUMA node. So there must be too little left for
        any of those pods beside it.
        """
        gone = [*self._leaving, *victims]
        used = sum_of(self.used_without({other.uid for other in gone}), usage_of(self._pod))
        comers = (requests_of(other.pod) for other in gone if other.uid in returning)
        return all(too_little_left(self.node, requests, used) for requests in comers)

    def _state_without(self, gone: Sequence[WatchedPod]) -> NodeState:
        """The state once they have left: first those that leave already. Whoever arrives is there as soon as it fits.

        A pod that finds room now stays on its NUMA node, however large another one becomes.
        """
        gone_uids = {other.uid for other in gone}
        state, arriving = self._arrived
        arriving = [other for other in arriving if other.uid not in gone_uids]
        for leaving in (True, False):
            some = [other for other in gone if other.deleting == leaving]
            for other in some:
                state = release(state, other.namespace, other.name)
            if some:
                state, arriving = self._admitted(state, arriving)
        return state

    @cached_property
    def _arrived(self) -> tuple[NodeState, Sequence[Pod]]:
        """The state with those that arrive and find room now, and the others."""
        return self._admitted(self._state, tuple(self._arriving.values()))

    def _admitted(self, state: NodeState, arriving: Sequence[Pod]) -> tuple[NodeState, Sequence[Pod]]:
        waiting = []
        for other in arriving:
            verdict, after = admit(state, other, self._fit.effort)
            if verdict.admitted:
                state = after
            else:
                waiting.append(other)
        return state, waiting
