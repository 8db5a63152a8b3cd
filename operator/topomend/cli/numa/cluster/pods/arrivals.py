"""The pods to ask about, in the order in which kubelets admitted them, and would admit the others.

They are all of a cluster that run or wait, or those of a file. Owns reading them and their order. Leaves what becomes
of them to ``decide/simulation/what_if``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from topomend.cache.changes import ENDED
from topomend.cli.input.workload import PodNames, same_name
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod, placement_of
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.output.failures import BadInput
from topomend.decide.simulation.history import Stay
from topomend.decide.simulation.what_if import Arrival
from topomend.kube.resources import PODS, UNENDED
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.pod import read_pod
from topomend.wire.pods.running_pod import workload_of
from topomend.wire.pods.scheduling import MAX_PRIORITY, MIRROR_ANNOTATION, check_size

MOST_WAITING = 2_000
"""How many pods of a cluster count that wait. They cost their creator nothing, and each is asked of every node."""

_Order = tuple[bool, int, str, str]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A pod that does not count, and why."""

    namespace: str
    name: str
    why: str


_Read = tuple[_Order, Arrival] | LeftOut


@dataclass(frozen=True)
class Arrivals:
    """The pods in order, and those that are left out; the ``stays`` of the same pods, where times are asked about."""

    pods: Sequence[Arrival]
    left_out: Sequence[LeftOut] = ()
    stays: Sequence[Stay] = ()


def arrivals_of(cluster: Cluster) -> Arrivals:
    """All pods that have not ended and are not being deleted, but for very many that wait. Raises APIError."""
    arrivals = in_order(cluster.client.read(PODS, read_arrival, fields=UNENDED).items)
    bound = sum(bool(arrival.node) for arrival in arrivals.pods)
    why = f"it is beyond the first {MOST_WAITING} pods that wait"
    beyond = (LeftOut(each.pod.namespace, each.pod.name, why) for each in arrivals.pods[bound + MOST_WAITING :])
    return Arrivals(arrivals.pods[: bound + MOST_WAITING], [*arrivals.left_out, *beyond])


def arrivals_of_file(asked: Iterable[RequestedPod], source: str) -> Arrivals:
    """The pods of a file, each as often as its workload has it. Raises BadInput where two have one name."""
    names = PodNames()
    read = [each for one in asked for read in read_arrival(one.content) for each in _replicas(read, one, names)]
    return with_own_names(in_order(read), f"-f {source}")


def with_own_names(arrivals: Arrivals, where: str) -> Arrivals:
    """The same pods. Raises BadInput where two have one name: a kubelet would admit one of them again."""
    counts = Counter((arrival.pod.namespace, arrival.pod.name) for arrival in arrivals.pods)
    for (namespace, name), count in counts.items():
        if count > 1:
            raise BadInput(f"{where}: {same_name(count, namespace, name)}")
    return arrivals


def _replicas(read: _Read, asked: RequestedPod, names: PodNames) -> Iterator[_Read]:
    if isinstance(read, LeftOut):
        yield read
        return
    order, arrival = read
    pod = arrival.pod
    if asked.kind == "Pod":
        yield order, replace(arrival, pod=replace(pod, name=names.of_pod(asked.content)))
        return
    for name in names.of_workload(asked.kind, pod.namespace, pod.name, asked.replicas):
        yield order, replace(arrival, pod=replace(pod, name=name, uid=""))


def in_order(read: Sequence[_Read]) -> Arrivals:
    """The pods as they started, those that start now last; then those that wait, by priority and age.

    Those of one second stay in the order in which they are listed.
    """
    pods = sorted((each for each in read if not isinstance(each, LeftOut)), key=lambda each: each[0])
    return Arrivals([arrival for _, arrival in pods], [each for each in read if isinstance(each, LeftOut)])


def read_arrival(content: dict[str, Any]) -> Iterator[_Read]:
    """The pod, with its place in the order; none that has ended or is being deleted."""
    pod = Document(content)
    try:
        if pod["status"]["phase"].text("") not in ENDED and pod["metadata"]["deletionTimestamp"].absent:
            yield _order(pod), arrival_of(pod)
    except MalformedObject as error:
        metadata = content.get("metadata", {})
        yield LeftOut(str(metadata.get("namespace", "")), str(metadata.get("name", "")), str(error))


def _order(pod: Document) -> _Order:
    """A kubelet writes ``startTime`` when it has seen the pod; the scheduler's queue is by priority and age."""
    spec, age, start = pod["spec"], pod["metadata"]["creationTimestamp"].text(""), pod["status"]["startTime"].text("")
    if spec["nodeName"].text(""):
        return False, int(not start), start, age
    return True, -spec["priority"].integer(0, least=-MAX_PRIORITY, most=MAX_PRIORITY), "", age


def arrival_of(pod: Document) -> Arrival:
    """The pod of a Pod object. Raises MalformedObject."""
    check_size(pod["spec"])
    owner = workload_of(pod["metadata"])
    is_static = not pod["metadata"]["annotations"][MIRROR_ANNOTATION].absent
    return Arrival(
        read_pod(pod.content),
        placement_of(pod.content),
        pod["spec"]["nodeName"].text(""),
        of_each_node=is_static or (owner is not None and owner.kind == "DaemonSet"),
    )
