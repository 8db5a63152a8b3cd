"""The bound: the same arrivals placed at once by somebody who knows every NUMA node and loses no time.

Best fit by replay: whenever a pod arrives or ends, those that wait are tried oldest first, and each goes where it
leaves the smallest hole. A pod holds what it holds for exactly its seconds: kubelets take longer to notice an end.
"""

import heapq
from collections.abc import Sequence

from tests.contended.arrivals import MACHINES, Arrival
from tests.contended.outcome import Outcome, Stay

from topomend.decide.scoring import score
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod, requests_of
from topomend.replay.admission import admit, release
from topomend.wire.pod import read_pod


def all_knowing(arrivals: Sequence[Arrival], lag: float = 0.0) -> Outcome:
    """Every arrival's fate. ``lag``: seconds that a place stays taken after its pod's end."""
    cluster = {spec.name: NodeState(spec.name, spec.machine, spec.kubelet, spec.devices) for spec in MACHINES}
    stays = [Stay(arrival, arrival.at) for arrival in arrivals]
    happenings = [(stay.came, number, "") for number, stay in enumerate(stays)]
    heapq.heapify(happenings)
    waiting: list[int] = []
    while happenings:
        now, number, node = heapq.heappop(happenings)
        if node:
            cluster[node] = release(cluster[node], "default", stays[number].arrival.name)
        else:
            waiting.append(number)
        for each in list(waiting):
            placed = _place(cluster, stays[each].arrival)
            if placed:
                waiting.remove(each)
                stay = stays[each]
                stay.ran, stay.ended = now, now + stay.arrival.seconds
                heapq.heappush(happenings, (stay.ended + lag, each, placed))
    return Outcome("all-knowing best fit", stays)


def _place(cluster: dict[str, NodeState], arrival: Arrival) -> str:
    """Put the pod where it fits best; the node's name, or nothing."""
    pod = read_pod({**arrival.manifest, "metadata": {"name": arrival.name, "namespace": "default"}})
    offering = [name for name, state in cluster.items() if _offers(state, pod)]
    answers = ((name, *admit(cluster[name], pod)) for name in offering)
    admitting = [(score(after, verdict), name, after) for name, verdict, after in answers if verdict.admitted]
    if not admitting:
        return ""
    _, name, after = min(admitting, key=lambda each: each[0])
    cluster[name] = after
    return name


def _offers(state: NodeState, pod: Pod) -> bool:
    """Whether the node has such devices: a kubelet that knows none leaves them to the scheduler, which would not."""
    offered = {"cpu", "memory", *(device.resource for device in state.devices)}
    return offered >= requests_of(pod).keys()
