"""One plan for a refused pod, with its reason: ``plan(view, refusal, limits) -> Plan``."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

from topomend.decide import turn
from topomend.decide.candidates import NONE_LEFT_OUT, Candidate, LeftOut, Refuser, Survey, survey
from topomend.decide.eligibility import REASONS, Limits, Treatment, eligibility
from topomend.decide.explanation import explain, lacking
from topomend.decide.order import admitted_in_any_order
from topomend.model.bitmask import NUMAMask
from topomend.model.cluster import WatchedPod
from topomend.replay.admission import admit
from topomend.watch.view import ClusterView, Refusal, is_newer

NAMED_NODES = 3
"""How many nodes are named to the scheduler: one could fill up or be cordoned, and a narrowing cannot be undone."""

NOTHING_KEPT: Mapping[str, NUMAMask] = MappingProxyType({})

PUBLICATION_SECONDS = 3.0
"""How long the refusing node has to publish a state that explains its refusal: an agent takes 2 s at worst."""

_ALIGNMENT_REASONS = tuple(reason for reason in REASONS if reason != "UnexpectedAdmissionError")


@dataclass(frozen=True)
class RelaunchOn:
    """Replace the pod and let it go to these nodes, best first."""

    candidates: tuple[Candidate, ...]
    survey: Survey
    reason: str

    @property
    def nodes(self) -> tuple[str, ...]:
        """The candidates' names."""
        return tuple(each.node for each in self.candidates)


@dataclass(frozen=True)
class ClearCorpse:
    """Delete the failed pod: its controller has made, or will make, another."""

    reason: str


@dataclass(frozen=True)
class Wait:
    """Nothing can be done until a node changes."""

    survey: Survey
    reason: str


@dataclass(frozen=True)
class GiveWay:
    """A place would suit the pod, and an older one that waits as well."""

    to: str


@dataclass(frozen=True)
class LeaveAlone:
    """Do nothing, for good."""

    reason: str
    limit_reached: bool = False


Plan = RelaunchOn | ClearCorpse | Wait | LeaveAlone


def plan(view: ClusterView, refusal: Refusal, limits: Limits, left_out: LeftOut = NONE_LEFT_OUT) -> Plan:
    """What is to be done about a refused pod; ``left_out`` as in ``survey``."""
    verdict = eligibility(refusal.pod, limits)
    if verdict.treatment is Treatment.LEAVE:
        return LeaveAlone(verdict.reason, verdict.limit_reached)
    if verdict.treatment is Treatment.CLEAR:
        return ClearCorpse(verdict.reason)
    return choose(view, refusal.pod, Refuser(refusal.pod.node, refusal.version), left_out)


def choose(
    view: ClusterView,
    pod: WatchedPod,
    refuser: Refuser | None,
    left_out: LeftOut = NONE_LEFT_OUT,
    kept: Mapping[str, NUMAMask] = NOTHING_KEPT,
) -> RelaunchOn | Wait:
    """Where ``pod``, or the replacement that it is, can go now: not onto what is ``kept`` for older ones."""
    answers = survey(view, pod.pod, pod.placement, refuser, left_out)
    if not answers.candidates:
        return Wait(answers, answers.summary("other " if refuser else ""))
    open_ones = [each for each in answers.candidates if not _is_kept(each, kept.get(each.node, 0))]
    if not open_ones:
        return Wait(answers, f"{answers.candidates[0].place} admits it, but is kept for a pod that has waited longer")
    free = (each for each in open_ones if admitted_in_any_order(view.publications[each.node], pod.pod))
    candidates = tuple(islice(free, NAMED_NODES))
    if not candidates:
        return Wait(answers, f"{open_ones[0].place} admits it once the pods that are on their way there have come")
    return RelaunchOn(candidates, answers, f"{candidates[0].place} admits it by replay")


def _is_kept(candidate: Candidate, numa_nodes: NUMAMask) -> bool:
    """Whether the candidate would take of these; one that is not aligned may take of any."""
    return bool(numa_nodes and (candidate.numa_nodes & numa_nodes or not candidate.numa_nodes))


def choose_in_turn(
    view: ClusterView, pod: WatchedPod, now: float, left_out: LeftOut = NONE_LEFT_OUT, *, gives_way: bool = True
) -> RelaunchOn | Wait | GiveWay:
    """Where a pod that was gated at birth can go now, if it is its turn; ``gives_way`` is whether it waits for it."""
    chosen = choose(view, pod, None, left_out, turn.kept(view, pod, now))
    if isinstance(chosen, Wait) or not gives_way:
        return chosen
    named = set(chosen.nodes)
    others = [each.node for each in chosen.survey.candidates if each.node not in named]
    older = turn.goes_first(view, pod, chosen.nodes, others)
    return GiveWay(f"{older.namespace}/{older.name}") if older else chosen


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
class Disagreed:
    """The kubelet refused what replay admits."""

    text: str


def judge(view: ClusterView, refusal: Refusal, now: float) -> Explained | NotYet | Disagreed:
    """Why the pod's node refused it."""
    pod = refusal.pod
    publication = view.publications.get(pod.node)
    if publication is None or publication.problem:
        problem = view.why_unknown(pod.node)
        return Explained(f"{pod.node} refused {pod.name} ({pod.reason}); why is not known: {problem}")
    policy = publication.state.kubelet.topology_manager_policy
    verdict, _ = admit(publication.expected, pod.pod)
    if not verdict.admitted:
        return Explained(explain(verdict, pod.node, policy), lacking(verdict))
    if is_newer(publication.version, refusal.version) or publication.ended:
        return Explained(f"{pod.node} refused {pod.name} ({pod.reason}) and would admit it now: its state has changed")
    if now < refusal.seen + PUBLICATION_SECONDS:
        return NotYet(refusal.seen + PUBLICATION_SECONDS)
    if pod.reason not in _ALIGNMENT_REASONS:
        return Explained(f"{pod.node} refused {pod.name}: {pod.message}")
    return Disagreed(
        f"{pod.node} refused {pod.name} ({pod.reason}), which replay of its published state admits: please report it "
        f"with the output of kubectl numa export {pod.node} -n {pod.namespace}"
    )
