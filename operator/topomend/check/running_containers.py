"""Which running containers may be told whether they are aligned, and what of each is known."""

from collections.abc import Iterable, Iterator

from topomend.alignment.running import RunningContainer, judge
from topomend.cache.snapshot import Snapshot
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Container, ContainerKind, Pod
from topomend.model.pods.running_pod import RunningPod
from topomend.replay.qos import CPU

CLUSTERS_OWN = "kube-system"


def judged(snapshot: Snapshot, running: Iterable[RunningPod]) -> Iterator[tuple[NodeState, RunningContainer]]:
    """The running containers on nodes of which all is known and whose kubelet gives out exclusive CPUs."""
    static = {
        name: publication.state
        for name, publication in snapshot.publications.items()
        if not publication.problem and publication.state.kubelet.cpu_manager_policy == "static"
    }
    pods = [pod for pod in running if pod.node in static and _matters(static[pod.node], pod.pod)]
    for container in judge(snapshot, pods):
        if container.unknown is None and container.container.kind is not ContainerKind.INIT:
            yield static[container.pod.node], container


def _matters(state: NodeState, pod: Pod) -> bool:
    """Whether a container of the pod may look aligned: it asks for whole CPUs, or the pod has an allocation."""
    if pod.namespace == CLUSTERS_OWN:
        return False
    return any(map(asks_for_whole_cpus, pod.containers)) or state.holds(pod.namespace, pod.name)


def asks_for_whole_cpus(container: Container) -> bool:
    """Whether its request is a whole number of CPUs, and its limit the same."""
    request = container.resources.requests.get(CPU, 0)
    return request > 0 and request % 1000 == 0 and container.resources.limits.get(CPU, 0) == request
