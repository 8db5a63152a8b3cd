"""Which pods may be moved for a better place: their owners make new ones at once, steered ones, and nothing is lost.

Owns the rules and their words. Leaves budgets, and where the next pod would come to, to ``defragment``, and reading
what the rules are about to its callers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from topomend.decide.eligibility import why_not_wanted
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.pods.workload import Workload

SYSTEM_PRIORITY = 2_000_000_000
"""From here on priorities are the system's own (pkg/apis/scheduling/types.go:SystemCriticalPriority)."""

REPLICA_SET, STATEFUL_SET = "ReplicaSet", "StatefulSet"

MALFORMED, OWNER_UNKNOWN, OWNER_CHANGES = "Malformed", "OwnerUnknown", "OwnerChanges"
BUDGET = "Budget"
WORDS: Mapping[str, str] = {
    "Static": "its kubelet runs it from a file",
    "Ending": "it is being deleted",
    "NotRunning": "it does not run yet",
    "NoOwner": "no controller would create it again",
    "OtherOwner": "its controller is no ReplicaSet and no StatefulSet",
    "NotSteered": "its namespace is not steered, so the next pod might be refused",
    "OptedOut": "it or its namespace has topomend.io/relaunch: false",
    "Critical": "the cluster needs it, by its priority",
    "Priority": "its priority is above that of pods that may be moved",
    "Kept": "an annotation of an autoscaler forbids its eviction",
    "Young": "it came or was moved too lately",
    "LocalStorage": "it has data on its node, or in a volume that ends with it",
    "Group": "it belongs to a group",
    "SchedulerRules": "the scheduler judges its nodes by more than replay knows",
    "Volumes": "on which nodes its volumes are is not known",
    OWNER_UNKNOWN: "its controller is gone or cannot be read",
    OWNER_CHANGES: "its controller is being deleted, scaled or rolled out",
    "NotComplete": "not all pods of its controller are ready",
    "OnlyOne": "its controller has no other pod",
    "OtherTemplate": "its controller's next pod asks for something else",
    BUDGET: "a PodDisruptionBudget lets none of its pods go, or more than one selects it",
    MALFORMED: "it cannot be read",
}
"""Why a pod is left out, by reason. The reasons are for programs: they stay as they are."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known about a pod beside its own fields that are watched.

    ``forbidden``: the annotation that forbids its eviction. ``local_storage``: a volume that ends with it.
    ``age`` and ``least_age`` are in seconds. ``workload`` is None where its controller cannot be read. No pod above
    ``most_priority`` may be moved.
    """

    steered: bool
    opted_out: bool
    forbidden: str
    local_storage: str
    age: float
    least_age: float
    workload: Workload | None
    most_priority: int = SYSTEM_PRIORITY


def age_of(pod: WatchedPod, now: datetime) -> float:
    """Seconds since the pod was created; 0 where the API server says no time."""
    try:
        return (now - datetime.fromisoformat(pod.creation_time)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def why_left_out(pod: WatchedPod, around: Surroundings) -> str:
    """The first reason for which the pod is not to be moved, a key of WORDS; empty where it may be."""
    return (
        _by_itself(pod)
        or _by_its_owner(pod)
        or _by_its_wish(pod, around)
        or _by_its_placement(pod)
        or _by_its_workload(pod, around.workload)
    )


def _by_itself(pod: WatchedPod) -> str:
    if pod.mirror:
        return "Static"
    if pod.deleting:
        return "Ending"
    return "" if pod.phase == "Running" else "NotRunning"


def _by_its_owner(pod: WatchedPod) -> str:
    """A Job's pod begins its work again, and a DaemonSet's comes back to its node."""
    if pod.owner is None:
        return "NoOwner"
    known = pod.owner.group == "apps" and pod.owner.kind in (REPLICA_SET, STATEFUL_SET)
    return "" if known else "OtherOwner"


def _by_its_wish(pod: WatchedPod, around: Surroundings) -> str:
    if not around.steered:
        return "NotSteered"
    if why_not_wanted(pod.relaunch) or (around.opted_out and not pod.relaunch):
        return "OptedOut"
    if pod.critical or pod.priority >= SYSTEM_PRIORITY:
        return "Critical"
    if pod.priority > around.most_priority:
        return "Priority"
    if around.forbidden:
        return "Kept"
    if around.age < around.least_age:
        return "Young"
    return "LocalStorage" if around.local_storage else ""


def _by_its_placement(pod: WatchedPod) -> str:
    if pod.group is not None:
        return "Group"
    # A claim whose volume is known is judged by the volume's nodes.
    if pod.pinned or any(rule != "volumes" or not pod.claims for rule in pod.scheduler_rules):
        return "SchedulerRules"
    return "Volumes" if pod.placement.volumes is None else ""


def _by_its_workload(pod: WatchedPod, workload: Workload | None) -> str:
    if workload is None:
        return OWNER_UNKNOWN
    if workload.ending or workload.rolling or workload.existing != workload.replicas:
        return OWNER_CHANGES
    if workload.ready < workload.replicas:
        return "NotComplete"
    if workload.replicas < 2:
        return "OnlyOne"
    return "" if _asks_as_its_template(pod, workload) else "OtherTemplate"


def _asks_as_its_template(pod: WatchedPod, workload: Workload) -> bool:
    """Whether the pod has all amounts that the template names: nobody has resized it, or changed them at its creation.

    Containers and amounts that the template lacks were added at its creation, and so they are to the next pod.
    """
    asked = {container.name: container.resources for container in pod.pod.containers}
    return all(
        name in asked
        and asked[name].requests.items() >= resources.requests.items()
        and asked[name].limits.items() >= resources.limits.items()
        for name, resources in workload.containers.items()
    )
