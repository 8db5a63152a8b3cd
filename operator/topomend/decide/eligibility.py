"""Which refused pods are relaunched, which are only deleted, and which are left alone.

Owns the rule for each kind of pod. Leaves whether a node admits the pod to ``feasibility``.
"""

from dataclasses import dataclass
from enum import Enum

from topomend.model.pods.scheduling import Owner, WatchedPod, is_refusal
from topomend.wire.group import (
    MAX_ATTEMPTS_ANNOTATION,
    RELAUNCH_ANNOTATION,
    RELAUNCH_FINALIZER,
    RELAUNCH_PINNED_ANNOTATION,
    RELAUNCH_STARTED_ANNOTATION,
)

REASONS = ("TopologyAffinityError", "SMTAlignmentError", "EmptyPodSharedPoolError", "UnexpectedAdmissionError")
"""The reasons that the kubelet's topology, CPU, memory and device managers give (cm/topologymanager/scope.go,
cm/cpumanager/policy_static.go, cm/admission/errors.go)."""

DEFAULT_MAX_ATTEMPTS = 5

SUFFIX = "Suffix"
"""The name policy by which a replacement has a name of its own, and is created before the refused pod is deleted."""

_QUOTED = 63
"""Characters of a wrong value that are quoted."""

_COUNTS_ITS_FAILURES = ("batch", "Job")
_DELETE_THEIR_FAILED_PODS = (("apps", "DaemonSet"), ("apps", "StatefulSet"))
_LEAVE_THEIR_FAILED_PODS = (("apps", "ReplicaSet"), ("", "ReplicationController"))
"""Controllers that count neither failed pods nor delete them: pkg/controller/replicaset/replica_set.go makes another
and forgets the failed one. Any other kind may still want to read its failed pod, or may make no other."""

_RECREATE_DELETED_PODS = (*_LEAVE_THEIR_FAILED_PODS, ("apps", "StatefulSet"), _COUNTS_ITS_FAILURES)
"""Controllers that create another pod for a deleted one, a Job as long as it may have one more failure."""


class Treatment(Enum):
    """What is done about a pod."""

    RELAUNCH = "relaunch"
    CLEAR = "clear"
    LEAVE = "leave alone"


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The treatment and why.

    ``limit_reached``: only the number of attempts prevents a relaunch. ``is_recreated``: a controller recreates it.
    """

    treatment: Treatment
    reason: str
    limit_reached: bool = False
    is_recreated: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of a pod's namespace, or the operator's, where the pod has none.

    ``opted_out`` is why refusals are only explained; empty where refused pods are relaunched. ``wrong_value`` is what
    is wrong with the namespace's annotation about that, empty where nothing is.
    """

    opted_out: str = ""
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    name_policy: str = ""
    wrong_value: str = ""


def renames(pod: WatchedPod, limits: Limits) -> bool:
    """Whether the replacement of ``pod`` gets a name of its own."""
    return (pod.name_policy or limits.name_policy) == SUFFIX


def eligibility(pod: WatchedPod, limits: Limits) -> Eligibility:
    """The treatment of ``pod``."""
    if not is_refusal(pod) or pod.reason not in REASONS:
        return _leave(f"{pod.name} was not refused for its topology")
    opted_out = why_opted_out(pod, limits)
    if opted_out:
        return _leave(opted_out)
    if pod.mirror:
        return _leave(f"{pod.name} is a static pod, which only its kubelet creates")
    if pod.owner:
        return _owned(pod, pod.owner)
    return _bare(pod, limits)


def _owned(pod: WatchedPod, controller: Owner) -> Eligibility:
    owner, kind = f"{controller.kind} {controller.name}", (controller.group, controller.kind)
    if kind == _COUNTS_ITS_FAILURES:
        return _leave(f"{owner} counts its failed pods and creates the next one", is_recreated=True)
    if kind in _DELETE_THEIR_FAILED_PODS:
        return _leave(f"{owner} deletes its failed pods and creates the next one", is_recreated=True)
    if pod.deleting:
        return _leave(f"{pod.name} is being deleted", is_recreated=True)
    if kind in _LEAVE_THEIR_FAILED_PODS:
        return Eligibility(Treatment.CLEAR, f"{owner} recreates its pods", is_recreated=True)
    return _leave(f"{owner} decides what becomes of its failed pods", is_recreated=True)


def _bare(pod: WatchedPod, limits: Limits) -> Eligibility:
    reason = _why_not_recreated(pod)
    if reason:
        return _leave(reason)
    max_attempts = limits.max_attempts if pod.max_attempts is None else pod.max_attempts
    if pod.attempt >= max_attempts:
        why = (
            f"{pod.name} was relaunched {pod.attempt} times of {max_attempts}; {MAX_ATTEMPTS_ANNOTATION} sets the limit"
        )
        return Eligibility(Treatment.LEAVE, why, limit_reached=True)
    return Eligibility(Treatment.RELAUNCH, f"{pod.name} has no controller that recreates it")


def _why_not_recreated(pod: WatchedPod) -> str:
    """Why the operator may not create a bare pod again; empty where it may."""
    if pod.deleting:
        return f"{pod.name} is being deleted"
    foreign = [finalizer for finalizer in pod.finalizers if finalizer != RELAUNCH_FINALIZER]
    if foreign:
        return f"finalizer {foreign[0]} on {pod.name} belongs to another controller"
    if pod.gates:
        return f"scheduling gate {pod.gates[0]} on {pod.name} belongs to another controller"
    if pod.critical:
        # Such pods are never gated, and the operator's account creates none (deploy/base/operator-policy.yaml).
        return f"{pod.name} has a priority class of the cluster's own, so only its user recreates it"
    if pod.ran and pod.relaunch_started != "true":
        why = f"a container of {pod.name} has run, and restartPolicy Never promises that it runs once"
        return f'{why}; annotate it with {RELAUNCH_STARTED_ANNOTATION}: "true" to have it run again'
    if pod.pinned and pod.relaunch_pinned != "true":
        why = f"{pod.name} was created with nodeName {pod.node}, which no other node can replace"
        return f'{why}; annotate it with {RELAUNCH_PINNED_ANNOTATION}: "true" to have it relaunched elsewhere'
    if pod.generation > 1 + pod.released:
        # Whoever may update pods but not create them could otherwise have this one created by the operator.
        why = f"{pod.name} was changed after its creation (generation {pod.generation}) and is not recreated"
        return f"{why}; delete and recreate it yourself"
    return ""


def _leave(reason: str, *, is_recreated: bool = False) -> Eligibility:
    return Eligibility(Treatment.LEAVE, reason, is_recreated=is_recreated)


def is_recreated_when_deleted(pod: WatchedPod, limits: Limits) -> bool:
    """Whether a pod that has not run may be deleted because its controller creates another in its place."""
    if pod.owner is None or why_opted_out(pod, limits):
        return False
    return (pod.owner.group, pod.owner.kind) in _RECREATE_DELETED_PODS


def counts_deletions(owner: Owner) -> bool:
    """Whether the controller counts a pod that is deleted before it ends as a failure of its own.

    Source: pkg/controller/job/job_controller.go:isPodFailed.
    """
    return (owner.group, owner.kind) == _COUNTS_ITS_FAILURES


def is_relaunched_when_unbound(pod: WatchedPod, limits: Limits) -> bool:
    """Whether a pod that no scheduler binds to its nodes may be relaunched, because no controller creates another.

    The attempts do not count: nobody refused it, and a limit would leave it unbound for ever.
    """
    return not (pod.owner or pod.mirror or why_opted_out(pod, limits) or _why_not_recreated(pod))


def why_opted_out(pod: WatchedPod, limits: Limits) -> str:
    """Why the pod is neither gated nor relaunched nor evicted; empty where it is. It decides before its namespace."""
    return why_not_wanted(pod.relaunch) if pod.relaunch else limits.opted_out


def wrong_relaunch_value(pod: WatchedPod, limits: Limits) -> str:
    """What is wrong with the annotation of the pod, or of its namespace if it has none; empty where nothing is."""
    return wrong_value(pod.relaunch) if pod.relaunch else limits.wrong_value


def why_not_wanted(value: str) -> str:
    """Why a pod with this value of the annotation opted out; empty where it did not. Only "true" is a yes."""
    if value == "false":
        return f'{RELAUNCH_ANNOTATION} is "false"'
    return wrong_value(value)


def wrong_value(value: str) -> str:
    """What is wrong with this value of the annotation, in one line; empty where nothing is."""
    if value in ("", "true", "false"):
        return ""
    return f'{RELAUNCH_ANNOTATION} is {value[:_QUOTED]!r}, neither "true" nor "false", and counts as "false"'
