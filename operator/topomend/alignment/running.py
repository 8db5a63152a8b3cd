"""The running containers of a cluster: how each is aligned, and why its CPUs or its memory are not pinned.

Joins pods with their nodes' published states. Leaves both judgements to ``container`` and ``pinning``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from topomend.alignment.container import Alignment, ContainerAlignment, align
from topomend.alignment.pinning import NotPinned, why_any_memory, why_shared_cpus
from topomend.cache.snapshot import Snapshot
from topomend.model.devices.claimed_device import ClaimedDevice
from topomend.model.nodes.node_state import PodAllocation
from topomend.model.pods.pod import Container, ContainerKind
from topomend.model.pods.running_pod import RunningPod
from topomend.model.pods.scheduling import Owner

NOT_SHOWN, NODE_NOT_KNOWN, CLAIMS_NOT_KNOWN = "NotPublishedYet", "NodeNotKnown", "ClaimsNotKnown"


@dataclass(frozen=True)
class Claimed:
    """The devices that a container has by claims, and why that is not known; empty where it is."""

    devices: tuple[ClaimedDevice, ...] = ()
    problem: str = ""


NONE_CLAIMED = Claimed()

ClaimedByContainer = Mapping[tuple[str, str, str], Claimed]
"""By namespace, pod and container; only of those that have claims."""


@dataclass(frozen=True)
class RunningContainer:
    """A running container with its alignment, and why its CPUs or its memory are not pinned."""

    pod: RunningPod
    container: Container
    aligned: ContainerAlignment
    shared_cpus: NotPinned | None = None
    any_memory: NotPinned | None = None
    unknown: NotPinned | None = None

    @property
    def owner(self) -> Owner:
        """The pod's controller, or the pod itself if it has none."""
        return self.pod.owner or Owner("Pod", self.pod.pod.name, self.pod.pod.uid, "v1")

    @property
    def reasons(self) -> tuple[NotPinned, ...]:
        """Why something is not pinned or not known, each reason once."""
        reasons = (self.unknown, self.shared_cpus, self.any_memory)
        return tuple(dict.fromkeys(reason for reason in reasons if reason))


def judge(
    snapshot: Snapshot, pods: Iterable[RunningPod], claimed: ClaimedByContainer = MappingProxyType({})
) -> Iterator[RunningContainer]:
    """The running containers of ``pods`` in the order of their names. Devices of claims count if ``claimed``."""
    for pod in sorted(pods, key=lambda pod: (pod.pod.namespace, pod.pod.name)):
        for container in pod.pod.containers:
            if container.name in pod.running:
                key = pod.pod.namespace, pod.pod.name, container.name
                yield _judge(snapshot, pod, container, claimed.get(key, NONE_CLAIMED))


def _judge(snapshot: Snapshot, pod: RunningPod, container: Container, claimed: Claimed) -> RunningContainer:
    problem = snapshot.why_unknown(pod.node)
    if problem:
        return _unknown(pod, container, NotPinned(NODE_NOT_KNOWN, f"{pod.node}: {problem}"))
    if claimed.problem:
        return _unknown(pod, container, NotPinned(CLAIMS_NOT_KNOWN, claimed.problem))
    state = snapshot.publications[pod.node].state
    answer = RunningContainer(
        pod,
        container,
        align(state, _allocation(state.pods, pod), container.name, claimed.devices),
        why_shared_cpus(state, pod.pod, container),
        why_any_memory(state, pod.pod),
    )
    if _lacks_cpus(answer) or _lacks_memory(answer):
        return _unknown(pod, container, NotPinned(NOT_SHOWN, _why_not_shown(pod, container)))
    return answer


def _lacks_cpus(answer: RunningContainer) -> bool:
    """Whether the kubelet has given the container CPUs that its agent does not show."""
    return answer.shared_cpus is None and not answer.aligned.cpus


def _lacks_memory(answer: RunningContainer) -> bool:
    """The same for memory. A pod with pod-level memory is not judged: its containers share it."""
    if answer.any_memory or answer.pod.pod.resources or not answer.container.resources.requests.get("memory"):
        return False
    return not any(resource.resource == "memory" for resource in answer.aligned.allocated)


def _unknown(pod: RunningPod, container: Container, reason: NotPinned) -> RunningContainer:
    return RunningContainer(pod, container, ContainerAlignment(Alignment.UNKNOWN), unknown=reason)


def _why_not_shown(pod: RunningPod, container: Container) -> str:
    if container.kind is ContainerKind.INIT:
        return "agents see the allocations of init containers only with the component kubelet-state"
    return f"{pod.node} has not published the container's allocation yet; ask again in a moment"


def _allocation(pods: Iterable[PodAllocation], pod: RunningPod) -> PodAllocation | None:
    """The pod's allocation. The agent does not always know a pod's uid."""
    for allocation in pods:
        if (allocation.namespace, allocation.name) == (pod.pod.namespace, pod.pod.name) and allocation.uid in (
            "",
            pod.pod.uid,
        ):
            return allocation
    return None
