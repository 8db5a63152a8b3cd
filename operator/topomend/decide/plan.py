"""One plan for a refused pod, with its reason: ``plan(snapshot, refusal, limits) -> Plan``.

Owns the choice of nodes for refused and gated pods, and the explanation of a refusal. Leaves carrying a plan out to
``reconcile`` and ``relaunch``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, filterfalse, islice

from topomend.cache.entries import Refusal
from topomend.cache.snapshot import Snapshot, is_newer
from topomend.decide.bind_order import admitted_in_any_order
from topomend.decide.claims.beside_devices import KnownDevices, PartsByNode, beside_devices
from topomend.decide.diagnosis.feasibility import (
    NO_EXCLUDED_NODES,
    Diagnosis,
    ExcludedNodes,
    diagnose,
    refusing_hostnames,
)
from topomend.decide.diagnosis.filters import NO_HOSTNAME_LABEL, filter_node_affinity, judged_by_claim
from topomend.decide.diagnosis.node_status import NodeStatus, RejectedBy
from topomend.decide.diagnosis.survey import Surveys
from topomend.decide.eligibility import REASONS, Limits, Treatment, eligibility
from topomend.decide.queue import order as queue_order
from topomend.explain.explanation import explain, refused_for
from topomend.explain.manager_error import device_cause
from topomend.explain.remedy import remedy_of
from topomend.model.bitmask import NUMAMask
from topomend.model.devices.device_supply import Part
from topomend.model.narrowing import ANYWHERE, Narrowing, anywhere_but, shortest
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.pod import requests_of
from topomend.model.pods.scheduling import WatchedPod
from topomend.replay.admission import admit
from topomend.replay.effort import UNLIMITED, Effort

MAX_NAMED_NODES = 3
"""For how many nodes a pod is ungated: one could fill up or be cordoned, and its node affinity cannot be widened.

A pod with rules that only the scheduler can judge is ungated for every node that admits it: the scheduler may be able
to use none of the best three, where the pod's own siblings may be."""

Reserved = Callable[[], Mapping[str, NUMAMask]]
"""Works out the NUMA nodes, by node, that are reserved for older pods: of thousands that wait few get that far."""

Holder = Callable[[str], str]
"""For whom NUMA nodes of the node of this name are reserved, in words."""

PUBLICATION_SECONDS = 4.0
"""How long it may take until a state that explains a refusal is known: an agent takes 2 s at worst to publish it, and
few publications of a node are taken in per second."""

_ALIGNMENT_REASONS = tuple(reason for reason in REASONS if reason != "UnexpectedAdmissionError")


@dataclass(frozen=True)
class RelaunchOn:
    """Ungate the pod, or its replacement, for these nodes, best first.

    ``others`` are the hostnames of all other nodes that the pod's own rules allow; empty where the pod goes to these
    nodes alone. ``is_open`` is that only ``others`` are known to be of no use to it, so that it may go to any but them.
    ``unsettled`` is a node that admits the pod too once the pods assumed there have arrived, and that the scheduler
    alone may know to be the right one; empty where there is none. ``beside`` are the first candidates, where free
    devices of the pod's claims are beside its CPUs, as in ``beside_devices``.
    """

    candidates: tuple[NodeStatus, ...]
    diagnosis: Diagnosis
    reason: str
    others: tuple[str, ...] = ()
    unsettled: str = ""
    is_open: bool = False
    beside: PartsByNode = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The candidates' names."""
        return tuple(candidate.node for candidate in self.candidates)

    @property
    def narrowing(self) -> Narrowing:
        """What to narrow the pod to; to nothing where any node will do."""
        if self.diagnosis.any_node_will_do:
            return ANYWHERE
        hosts = tuple(candidate.hostname for candidate in self.candidates)
        narrowed = anywhere_but(hosts, self.others) if self.is_open else shortest(hosts, self.others)
        are_better = 0 < len(self.beside) < len(hosts)
        return replace(narrowed, preferred=len(self.beside)) if narrowed and are_better else narrowed

    def without(self, nodes: Collection[str]) -> "RelaunchOn":
        """The same for the other nodes; there must be some."""
        candidates = tuple(candidate for candidate in self.candidates if candidate.node not in nodes)
        dropped = [candidate.hostname for candidate in self.candidates if candidate.node in nodes]
        others = (*self.others, *dropped) if self.others or self.is_open else ()
        beside = {node: parts for node, parts in self.beside.items() if node not in nodes}
        reason = _admits(candidates, beside)
        return RelaunchOn(candidates, self.diagnosis, reason, others, is_open=self.is_open, beside=beside)


@dataclass(frozen=True)
class DeleteFailedPod:
    """Delete the failed pod: its controller recreates it."""

    reason: str


@dataclass(frozen=True)
class Wait:
    """Wait until a node changes: none admits the pod now."""

    diagnosis: Diagnosis
    reason: str


@dataclass(frozen=True)
class Yield:
    """Let the older pod ``to`` go first: it needs the same node; ``is_untried`` is that others must leave it first."""

    to: str
    is_untried: bool = False


@dataclass(frozen=True)
class Settle:
    """Let the pods that are assumed on ``node`` arrive first: the node admits the pod only then."""

    node: str


@dataclass(frozen=True)
class LeaveAlone:
    """Never do anything about the pod."""

    reason: str
    limit_reached: bool = False


Plan = RelaunchOn | DeleteFailedPod | Wait | LeaveAlone

Choice = RelaunchOn | Wait | Yield | Settle
"""What may be chosen for a gated pod."""

Decision = Plan | Yield | Settle
"""What may be decided for a pod, refused or gated."""


def plan(  # noqa: PLR0913  what a choice depends on
    snapshot: Snapshot,
    refusal: Refusal,
    limits: Limits,
    excluded_nodes: ExcludedNodes = NO_EXCLUDED_NODES,
    reservations: Iterable[queue_order.Reservation] = (),
    *,
    surveys: Surveys | None = None,
    effort: Effort = UNLIMITED,
) -> Plan:
    """What is to be done about a refused pod; the rest as in ``diagnose``."""
    verdict = eligibility(refusal.pod, limits)
    if verdict.treatment is Treatment.LEAVE:
        return LeaveAlone(verdict.reason, verdict.limit_reached)
    if verdict.treatment is Treatment.CLEAR:
        return DeleteFailedPod(verdict.reason)
    reserved = partial(queue_order.reserved_numa_nodes, snapshot, refusal.pod, reservations)
    rejected_by = RejectedBy(refusal.pod.node, refusal.version)
    return choose(snapshot, refusal.pod, rejected_by, excluded_nodes, reserved, surveys=surveys, effort=effort)


def choose(  # noqa: PLR0913  what a choice depends on
    snapshot: Snapshot,
    pod: WatchedPod,
    rejected_by: RejectedBy | None,
    excluded_nodes: ExcludedNodes = NO_EXCLUDED_NODES,
    reserved: Reserved = dict,
    *,
    holder: Holder = lambda _: "a pod whose turn comes first",
    most: int = MAX_NAMED_NODES,
    devices: KnownDevices | None = None,
    surveys: Surveys | None = None,
    effort: Effort = UNLIMITED,
) -> RelaunchOn | Wait:
    """At ``most`` so many nodes for ``pod``, a gated pod or a replacement: not the NUMA nodes ``reserved`` for others.

    Those come first where free ``devices`` of its claims are beside its CPUs. The rest is as in ``diagnose``.
    """
    diagnosis = diagnose(snapshot, pod.pod, pod.placement, rejected_by, excluded_nodes, surveys=surveys, effort=effort)
    if not diagnosis.candidates:
        return Wait(diagnosis, diagnosis.summary("other " if rejected_by else ""))
    unreserved = _unreserved(diagnosis.candidates, reserved())
    if not unreserved:
        first = diagnosis.candidates[0]
        return Wait(diagnosis, f"{first.place} admits it, but is reserved for {holder(first.node)}")
    is_for_all = _has_scheduler_rules(snapshot, pod)
    ordered = _known_first(snapshot, unreserved, rejected_by)
    if is_for_all:
        ordered = unreserved = tuple(ordered)
    usable = (
        candidate
        for candidate in ordered
        if admitted_in_any_order(snapshot.publications[candidate.node], pod.pod, effort)
    )
    candidates = tuple(islice(usable, None if is_for_all else most))
    if not candidates:
        return Wait(diagnosis, f"{unreserved[0].place} admits it once the pods assumed there have arrived")
    if not is_for_all:
        return RelaunchOn(candidates, diagnosis, _admits(candidates))
    unsettled = _first_left_out(unreserved, candidates)
    beside = _beside(snapshot, pod, candidates, rejected_by, devices, effort)
    candidates = tuple(sorted(candidates, key=lambda candidate: candidate.node not in beside))
    chosen_on = partial(
        RelaunchOn, candidates, diagnosis, _admits(candidates, beside), unsettled=unsettled, beside=beside
    )
    # A pod that asks for alignment goes to no node of which replay knows nothing yet.
    if pod.pod.single_numa_node:
        return chosen_on()
    if pod.placement.volumes is not None or rejected_by:  # a refused pod runs nowhere without topomend
        return chosen_on(_others(snapshot, pod, candidates))
    # The scheduler alone knows where its volumes are. It makes room on a full node itself.
    chosen = {candidate.node for candidate in candidates}
    unusable = [candidate.hostname for candidate in diagnosis.candidates if candidate.node not in chosen]
    unusable += refusing_hostnames(snapshot, diagnosis)
    return chosen_on(tuple(unusable), is_open=True)


def _beside(  # noqa: PLR0913, PLR0917  what a choice depends on
    snapshot: Snapshot,
    pod: WatchedPod,
    candidates: Iterable[NodeStatus],
    rejected_by: RejectedBy | None,
    devices: KnownDevices | None,
    effort: Effort,
) -> PartsByNode:
    """The candidates that are best for the pod's claims; not the node that refused the pod, which stays the last."""
    if devices is None:
        return {}
    last = rejected_by.node if rejected_by else ""
    names = (candidate.node for candidate in candidates if candidate.node != last)
    return beside_devices(snapshot, pod.pod, names, devices, effort)


def devices_of(decision: Decision) -> tuple[str, tuple[Part, ...]]:
    """The best node of a decision to let a pod go, and the devices there that its claims may get beside its CPUs."""
    if not isinstance(decision, RelaunchOn):
        return "", ()
    return decision.nodes[0], decision.beside.get(decision.nodes[0], ())


def _known_first(
    snapshot: Snapshot, candidates: Sequence[NodeStatus], rejected_by: RejectedBy | None
) -> Iterable[NodeStatus]:
    """The candidates whose totals are known, and so suffice, before the others, which may be full.

    The node that refused the pod stays the last one. Worked out on demand: of thousands few are looked at.
    """
    if not snapshot.totals:
        return candidates

    def is_known(status: NodeStatus) -> bool:
        is_last = rejected_by is not None and status.node == rejected_by.node
        return not is_last and snapshot.nodes[status.node].used is not None

    return chain(filter(is_known, candidates), filterfalse(is_known, candidates))


def _first_left_out(unreserved: Sequence[NodeStatus], candidates: Sequence[NodeStatus]) -> str:
    """The first node of ``unreserved`` that is none of the ``candidates``, which are in the same order."""
    for position, status in enumerate(unreserved):
        if position == len(candidates) or status is not candidates[position]:
            return status.node
    return ""


def _others(snapshot: Snapshot, pod: WatchedPod, candidates: Iterable[NodeStatus]) -> tuple[str, ...]:
    """The hostnames of the nodes that the pod's own rules allow and that are no candidates.

    None where a node has no such label, for it could not be excluded.
    """
    names = {candidate.node for candidate in candidates}
    others: list[str] = []
    for node in snapshot.nodes.values():
        rejected = filter_node_affinity(node, pod.placement)
        if rejected == NO_HOSTNAME_LABEL:
            return ()
        if not rejected and node.name not in names:
            others.append(node.labels[HOSTNAME_LABEL])
    return tuple(others)


def _has_scheduler_rules(snapshot: Snapshot, pod: WatchedPod) -> bool:
    """Whether the scheduler judges nodes by what replay does not: the pod's own rules, or a claim for its devices."""
    if pod.scheduler_rules:
        return True
    extended = [resource for resource in requests_of(pod.pod) if resource in snapshot.by_claim]
    return bool(extended) and any(judged_by_claim(node, extended) for node in snapshot.nodes.values())


def _admits(candidates: Sequence[NodeStatus], beside: Collection[str] = ()) -> str:
    admits = f"{candidates[0].place} admits it by replay"
    if not beside:
        return admits
    places = [candidate.place for candidate in candidates[: min(len(beside), MAX_NAMED_NODES)]]
    more = f" and {len(beside) - len(places)} more" if len(beside) > len(places) else ""
    return f"{admits}; free devices of its claims are beside its CPUs there: {', '.join(places)}{more}"


def _unreserved(candidates: Sequence[NodeStatus], masks: Mapping[str, NUMAMask]) -> Sequence[NodeStatus]:
    if not masks:
        return candidates
    return [candidate for candidate in candidates if not _is_reserved(candidate, masks.get(candidate.node, 0))]


def _is_reserved(candidate: NodeStatus, numa_nodes: NUMAMask) -> bool:
    """Whether the pod would use one of the reserved ``numa_nodes`` there; one that is not aligned may use any."""
    return bool(numa_nodes and (candidate.numa_nodes & numa_nodes or not candidate.numa_nodes))


def choose_in_order(  # noqa: PLR0913  what a choice depends on
    snapshot: Snapshot,
    pod: WatchedPod,
    reservations: Iterable[queue_order.Reservation] = (),
    excluded_nodes: ExcludedNodes = NO_EXCLUDED_NODES,
    *,
    yields: bool = True,
    untried: Iterable[WatchedPod] = (),
    devices: KnownDevices | None = None,
    surveys: Surveys | None = None,
    effort: Effort = UNLIMITED,
) -> Choice:
    """The nodes for a gated pod, or the pods that it yields to; ``yields`` False is that it yields to none but the
    ``untried`` ones, for which others may be evicted in a moment."""
    reserved = partial(queue_order.reserved_numa_nodes, snapshot, pod, reservations)
    holder = partial(queue_order.reserved_for, snapshot, pod, reservations)
    chosen = choose(
        snapshot, pod, None, excluded_nodes, reserved, holder=holder, devices=devices, surveys=surveys, effort=effort
    )
    if isinstance(chosen, Wait):
        return chosen
    older = queue_order.first_in_need(snapshot, untried, chosen.nodes, effort)
    if older:
        return Yield(f"{older.namespace}/{older.name}", is_untried=True)
    if not yields:
        return chosen
    if chosen.unsettled:
        return Settle(chosen.unsettled)
    older = queue_order.yields_to(snapshot, pod, chosen.nodes, chosen.diagnosis.candidates, effort)
    return Yield(f"{older.namespace}/{older.name}") if older else chosen


# Why the node refused


@dataclass(frozen=True)
class Explained:
    """Why, in one line, by replay of the published state; ``resources`` are those that it was refused for, if known."""

    text: str
    resources: tuple[str, ...] = ()


@dataclass(frozen=True)
class AwaitsPublication:
    """The published state is older than the refusal and admits the pod: explain at ``until``, or at the next state."""

    until: float


@dataclass(frozen=True)
class ReplayMismatch:
    """The kubelet refused a pod that replay admits."""

    text: str


def explain_refusal(
    snapshot: Snapshot, refusal: Refusal, now: float, effort: Effort = UNLIMITED
) -> Explained | AwaitsPublication | ReplayMismatch:
    """Why the pod's node refused it. Raises Overspent."""
    pod = refusal.pod
    publication = snapshot.publications.get(pod.node)
    if publication is None or publication.problem:
        problem = snapshot.why_unknown(pod.node)
        return Explained(f"{pod.node} refused {pod.name} ({pod.reason}); the cause is unknown: {problem}")
    state = publication.state_with_assumed(effort)
    verdict, _ = admit(state, pod.pod, effort)
    cause, resource = device_cause(pod.message, pod.pod)
    if not verdict.admitted and (not cause or verdict.message == pod.message):
        words = remedy_of(state, pod.pod, verdict, effort=effort).words
        text = f"{explain(verdict, state, pod.pod, effort)}{f'; {words}' if words else ''}"
        return Explained(text, refused_for(verdict))
    if cause:
        return Explained(f"{pod.node} refused {pod.name}: {cause}", (resource,))
    if is_newer(publication.version, refusal.version) or publication.ended:
        return Explained(f"{pod.node} refused {pod.name} ({pod.reason}) and would admit it now: its state has changed")
    if now < refusal.first_seen + PUBLICATION_SECONDS:
        return AwaitsPublication(refusal.first_seen + PUBLICATION_SECONDS)
    if pod.reason not in _ALIGNMENT_REASONS:
        return Explained(f"{pod.node} refused {pod.name}: {pod.message}")
    return ReplayMismatch(
        f"{pod.node} refused {pod.name} ({pod.reason}), which replay of its published state admits; "
        f"please report it with the output of kubectl numa export {pod.node} -n {pod.namespace}"
    )
