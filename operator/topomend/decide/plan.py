"""One plan for a refused pod, with its reason: ``plan(snapshot, refusal, limits) -> Plan``."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

from topomend.cache.snapshot import Refusal, Snapshot, is_newer
from topomend.decide import queue_order
from topomend.decide.bind_order import admitted_in_any_order
from topomend.decide.eligibility import REASONS, Limits, Treatment, eligibility
from topomend.decide.explanation import explain, lacking
from topomend.decide.feasibility import NO_EXCLUDED_NODES, Candidate, Diagnosis, ExcludedNodes, RejectedBy, diagnose
from topomend.model.bitmask import NUMAMask
from topomend.model.cluster import WatchedPod
from topomend.replay.admission import admit

MAX_NAMED_NODES = 3
"""How many nodes are named to the scheduler: one could fill up or be cordoned, and a narrowing cannot be undone."""

NOTHING_RESERVED: Mapping[str, NUMAMask] = MappingProxyType({})

PUBLICATION_SECONDS = 3.0
"""How long the refusing node has to publish a state that explains its refusal: an agent takes 2 s at worst."""

_ALIGNMENT_REASONS = tuple(reason for reason in REASONS if reason != "UnexpectedAdmissionError")


@dataclass(frozen=True)
class RelaunchOn:
    """Replace the pod and let it go to these nodes, best first."""

    candidates: tuple[Candidate, ...]
    diagnosis: Diagnosis
    reason: str

    @property
    def nodes(self) -> tuple[str, ...]:
        """The candidates' names."""
        return tuple(each.node for each in self.candidates)


@dataclass(frozen=True)
class DeleteFailedPod:
    """Delete the failed pod: its controller has made, or will make, another."""

    reason: str


@dataclass(frozen=True)
class Wait:
    """Nothing can be done until a node changes."""

    diagnosis: Diagnosis
    reason: str


@dataclass(frozen=True)
class Yield:
    """A place would suit the pod, and an older one that waits as well."""

    to: str


@dataclass(frozen=True)
class LeaveAlone:
    """Do nothing, for good."""

    reason: str
    limit_reached: bool = False


Plan = RelaunchOn | DeleteFailedPod | Wait | LeaveAlone


def plan(
    snapshot: Snapshot, refusal: Refusal, limits: Limits, excluded_nodes: ExcludedNodes = NO_EXCLUDED_NODES
) -> Plan:
    """What is to be done about a refused pod; ``excluded_nodes`` as in ``diagnosis``."""
    verdict = eligibility(refusal.pod, limits)
    if verdict.treatment is Treatment.LEAVE:
        return LeaveAlone(verdict.reason, verdict.limit_reached)
    if verdict.treatment is Treatment.CLEAR:
        return DeleteFailedPod(verdict.reason)
    return choose(snapshot, refusal.pod, RejectedBy(refusal.pod.node, refusal.version), excluded_nodes)


def choose(
    snapshot: Snapshot,
    pod: WatchedPod,
    rejected_by: RejectedBy | None,
    excluded_nodes: ExcludedNodes = NO_EXCLUDED_NODES,
    kept: Mapping[str, NUMAMask] = NOTHING_RESERVED,
) -> RelaunchOn | Wait:
    """Where ``pod``, or the replacement that it is, can go now: not onto what is ``kept`` for older ones."""
    answers = diagnose(snapshot, pod.pod, pod.placement, rejected_by, excluded_nodes)
    if not answers.candidates:
        return Wait(answers, answers.summary("other " if rejected_by else ""))
    open_ones = [each for each in answers.candidates if not _is_kept(each, kept.get(each.node, 0))]
    if not open_ones:
        return Wait(answers, f"{answers.candidates[0].place} admits it, but is kept for a pod that has waited longer")
    free = (each for each in open_ones if admitted_in_any_order(snapshot.publications[each.node], pod.pod))
    candidates = tuple(islice(free, MAX_NAMED_NODES))
    if not candidates:
        return Wait(answers, f"{open_ones[0].place} admits it once the pods that are on their way there have come")
    return RelaunchOn(candidates, answers, f"{candidates[0].place} admits it by replay")


def _is_kept(candidate: Candidate, numa_nodes: NUMAMask) -> bool:
    """Whether the candidate would take of these; one that is not aligned may take of any."""
    return bool(numa_nodes and (candidate.numa_nodes & numa_nodes or not candidate.numa_nodes))


def choose_in_order(
    snapshot: Snapshot,
    pod: WatchedPod,
    now: float,
    excluded_nodes: ExcludedNodes = NO_EXCLUDED_NODES,
    *,
    yields: bool = True,
) -> RelaunchOn | Wait | Yield:
    """Where a pod that was gated at birth can go now, if it is its turn; ``yields`` is whether it waits for it."""
    chosen = choose(snapshot, pod, None, excluded_nodes, queue_order.kept(snapshot, pod, now))
    if isinstance(chosen, Wait) or not yields:
        return chosen
    named = set(chosen.nodes)
    others = [each.node for each in chosen.diagnosis.candidates if each.node not in named]
    older = queue_order.yields_to(snapshot, pod, chosen.nodes, others)
    return Yield(f"{older.namespace}/{older.name}") if older else chosen


# Why the node refused


@dataclass(frozen=True)
class Explained:
    """Replay of the published state says why, in one line; ``resource`` is what stood in the way, where it is known."""

    text: str
    resource: str = "unknown"


@dataclass(frozen=True)
class NotYet:
    """Replay would admit the pod by a state older than the refusal: ask again at ``until`` or at its next state."""

    until: float


@dataclass(frozen=True)
class ReplayMismatch:
    """The kubelet refused what replay admits."""

    text: str


def judge(snapshot: Snapshot, refusal: Refusal, now: float) -> Explained | NotYet | ReplayMismatch:
    """Why the pod's node refused it."""
    pod = refusal.pod
    publication = snapshot.publications.get(pod.node)
    if publication is None or publication.problem:
        problem = snapshot.why_unknown(pod.node)
        return Explained(f"{pod.node} refused {pod.name} ({pod.reason}); why is not known: {problem}")
    policy = publication.state.kubelet.topology_manager_policy
    verdict, _ = admit(publication.state_with_assumed, pod.pod)
    if not verdict.admitted:
        return Explained(explain(verdict, pod.node, policy), lacking(verdict))
    if is_newer(publication.version, refusal.version) or publication.ended:
        return Explained(f"{pod.node} refused {pod.name} ({pod.reason}) and would admit it now: its state has changed")
    if now < refusal.seen + PUBLICATION_SECONDS:
        return NotYet(refusal.seen + PUBLICATION_SECONDS)
    if pod.reason not in _ALIGNMENT_REASONS:
        return Explained(f"{pod.node} refused {pod.name}: {pod.message}")
    return ReplayMismatch(
        f"{pod.node} refused {pod.name} ({pod.reason}), which replay of its published state admits: please report it "
        f"with the output of kubectl numa export {pod.node} -n {pod.namespace}"
    )
