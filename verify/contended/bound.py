"""The bound: the same arrivals placed without delay by a scheduler that knows every NUMA node.

Best fit by replay: whenever a pod arrives or ends, the waiting pods are tried oldest first, and each goes where it
leaves the smallest gap. A pod occupies its resources for exactly its seconds; kubelets notice an end later.
"""

import heapq
from collections.abc import Sequence

from verify.contended.arrivals import MACHINES, Arrival
from verify.contended.outcome import Outcome, Stay
from verify.contended.virtual_time import Watch, state_of, unwatched

from topomend.alignment.requested import admission_of
from topomend.decide.scoring import score
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of
from topomend.replay.admission import admit, release
from topomend.sandbox import NodeSpec
from topomend.wire.pods.pod import read_pod


def best_fit(
    arrivals: Sequence[Arrival],
    lag: float = 0.0,
    machines: Sequence[NodeSpec] = MACHINES,
    watch: Watch = unwatched,
) -> Outcome:
    """Place every arrival. Resources stay in use for ``lag`` seconds after their pod's end."""
    cluster = {spec.name: state_of(spec) for spec in machines}
    for state in cluster.values():
        watch(0.0, state)
    stays = [Stay(arrival, arrival.at) for arrival in arrivals]
    events = [(stay.came, number, "") for number, stay in enumerate(stays)]
    heapq.heapify(events)
    waiting: list[int] = []
    while events:
        now, number, node = heapq.heappop(events)
        if node:
            cluster[node] = release(cluster[node], "default", stays[number].arrival.name)
            watch(now, cluster[node])
        else:
            waiting.append(number)
        for index in list(waiting):
            placed = _place(cluster, stays[index].arrival)
            if placed:
                waiting.remove(index)
                stay = stays[index]
                stay.ran, stay.ended = now, now + stay.arrival.seconds
                watch(now, cluster[placed])
                heapq.heappush(events, (stay.ended + lag, index, placed))
    return Outcome("best fit", stays)


def _place(cluster: dict[str, NodeState], arrival: Arrival) -> str:
    """Place the pod where it fits best and return the node's name, or an empty text."""
    pod = read_pod({**arrival.manifest, "metadata": {"name": arrival.name, "namespace": "default"}})
    fit = admission_of(pod)
    admitting = [name for name, state in cluster.items() if _offers(state, pod) and fit.admits(state)]
    if not admitting:
        return ""
    answers = ((name, *admit(cluster[name], pod)) for name in admitting)
    _, name, after = min((score(after, verdict), name, after) for name, verdict, after in answers)
    cluster[name] = after
    return name


def _offers(state: NodeState, pod: Pod) -> bool:
    """Whether the node has the requested devices: the scheduler checks that, and the kubelet does not."""
    offered = {"cpu", "memory", *(device.resource for device in state.devices)}
    return offered >= requests_of(pod).keys()
