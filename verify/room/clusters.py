"""Random full clusters, and the fewest pods whose end makes room on them, found by trying every set."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from random import Random

from tests.builders import node, node_state, pod, snapshot_of

from topomend.alignment.requested import is_aligned
from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide.budgets import Budget
from topomend.decide.diagnosis.filters import insufficient_resource
from topomend.decide.queue.room import Occupant, Occupied
from topomend.model.nodes.node import Taint
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of, usage_of
from topomend.model.pods.scheduling import Placement
from topomend.replay.admission import admit, release

SHAPES = (
    "numa:2 cores:4 memory:4Gi",
    "numa:2 cores:4 memory:4Gi device:vendor.com/gpu@0=1,1=2",
    "numa:2 cores:4 memory:4Gi device:vendor.com/gpu@0=1",
    "sockets:2 numa:2 cores:2 threads:2 memory:4Gi device:vendor.com/gpu@0=1,3=1",
    "numa:1 cores:6 memory:4Gi",
)
POLICIES = ("single-numa-node", "single-numa-node", "restricted", "best-effort", "none")
CONTAINERS = (
    *(f"cpu={cpus} memory=64Mi" for cpus in (1, 2, 2, 3, 3, 4)),
    "cpu=1 memory=64Mi vendor.com/gpu=1",
    "cpu=2 memory=64Mi vendor.com/gpu=2",
    "vendor.com/gpu=1",
    "request:cpu=500m",
    "request:cpu=2",
    "request:cpu=3 request:memory=1Gi",
)
WANTED = (
    *((f"cpu={cpus} memory=64Mi",) for cpus in (2, 3, 4, 4, 5)),
    ("cpu=3 memory=64Mi vendor.com/gpu=2",),
    ("vendor.com/gpu=2",),
    ("request:cpu=4",),
    ("cpu=2 memory=64Mi", "cpu=1 memory=64Mi vendor.com/gpu=1"),
    ("cpu=2 memory=64Mi", "cpu=2 memory=64Mi vendor.com/gpu=1"),
    ("cpu=3 memory=64Mi", "cpu=2 memory=64Mi", "cpu=1 memory=64Mi vendor.com/gpu=1"),
    ("request:cpu=1", "cpu=1 memory=64Mi vendor.com/gpu=1"),
    ("vendor.com/gpu=1", "cpu=2 memory=64Mi vendor.com/gpu=1"),
)
"""The containers of the pods that are to have room. The first of several may get what a later one needs, which other
pods then keep from it."""


@dataclass(frozen=True)
class FullCluster:
    """Nodes, the pods on them, and the pod that is to have room."""

    snapshot: Snapshot
    occupied: Occupied
    pod: Pod


def full_cluster(random: Random, most_nodes: int) -> FullCluster:
    """Nodes of several policies, each filled with what it admits until little is left."""
    states, by_node, seen = [], {}, list[changes.Change]()
    for number in range(random.randint(1, most_nodes)):
        name = f"n{number}"
        state, occupants = _filled(random, name)
        states.append(state)
        by_node[name] = occupants
        taints = (Taint("other", "NoSchedule"),) if random.random() < 0.1 else ()
        gpus = {"vendor.com/gpu": 1000 * len(state.devices)}
        described = node(name, cpus=state.machine.cpus.bit_count() - 1, taints=taints)
        seen.append(changes.NodeUpdated(replace(described, allocatable={**described.allocatable, **gpus})))
    snapshot = snapshot_of(*states)
    for change in seen:
        snapshot = changes.apply(snapshot, change)
    return FullCluster(snapshot, Occupied(by_node, _budgets(random, by_node)), _wanted(random))


def _filled(random: Random, name: str) -> tuple[NodeState, Sequence[Occupant]]:
    state = node_state(random.choice(SHAPES), random.choice(POLICIES), name=name)
    left, occupants = (state.machine.cpus.bit_count() - 1) * 1000, list[Occupant]()
    for number in range(random.randint(2, 14)):
        other = pod(f"{name}-{number}", random.choice(CONTAINERS))
        verdict, after = admit(state, other)
        cpus = requests_of(other).get("cpu", 0)
        if verdict.admitted and cpus <= left:
            state, left = after, left - cpus
            occupants.append(_occupant(random, other))
    return state, occupants


def _occupant(random: Random, other: Pod) -> Occupant:
    return Occupant(
        other.namespace,
        other.name,
        other.uid,
        random.choice((-10, 0, 0, 0, 5)),
        usage_of(other),
        owner=random.choice(("", "ReplicaSet/web")),
        stays=random.choice(("", "", "", "", "", "it is the cluster's own")),
        leaving=random.random() < 0.08,
    )


def _budgets(random: Random, by_node: dict[str, Sequence[Occupant]]) -> Sequence[Budget]:
    uids = [occupant.uid for occupants in by_node.values() for occupant in occupants]
    return [
        Budget(frozenset(random.sample(uids, random.randint(0, len(uids)))), random.randint(-1, 2))
        for _ in range(random.choice((0, 0, 1, 2)))
    ]


def _wanted(random: Random) -> Pod:
    wanted = pod("wanted", *random.choice(WANTED))
    return replace(wanted, alignment="single-numa-node") if random.random() < 0.2 else wanted


Cost = tuple[int, int, int, int, int]
"""The number, the highest priority, the sum of the priorities, those nobody creates again, those to be waited for."""


def cheapest(cluster: FullCluster) -> Cost | None:
    """What the cheapest set of pods costs of all sets on all nodes that make room; None where none does."""
    return min((cost for name in cluster.snapshot.nodes for cost in _costs_on(cluster, name)), default=None)


def _costs_on(cluster: FullCluster, name: str) -> Iterator[Cost]:
    occupants = cluster.occupied.by_node[name]
    leaving = [occupant for occupant in occupants if occupant.leaving]
    evictable = [occupant for occupant in occupants if not occupant.leaving and not occupant.stays]
    sets = chain.from_iterable(combinations(evictable, number) for number in range(len(evictable) + 1))
    for pods in sets:
        if makes_room(cluster, name, [*leaving, *pods]) and _is_within_budgets(cluster, pods):
            yield cost_of(pods, leaving)


def cost_of(pods: Sequence[Occupant], leaving: Sequence[Occupant]) -> Cost:
    """What it costs that ``pods`` go, once those that are ``leaving`` have ended."""
    priorities = [occupant.priority for occupant in pods]
    lost = sum(not occupant.owner for occupant in pods)
    together = sum(priority + (1 << 31) for priority in priorities)
    return len(pods), max(priorities, default=0), together, lost, len(leaving)


def makes_room(cluster: FullCluster, name: str, ended: Collection[Occupant]) -> bool:
    """Whether the node admits the pod, by its filters, its totals and its kubelet, once these have ended."""
    described, state = cluster.snapshot.nodes[name], cluster.snapshot.publications[name].state
    if described.taints:
        return False
    others = [occupant.usage for occupant in cluster.occupied.by_node[name] if occupant not in ended]
    if insufficient_resource(described, cluster.pod, others):
        return False
    for occupant in ended:
        state = release(state, occupant.namespace, occupant.name)
    verdict, after = admit(state, cluster.pod)
    return verdict.admitted and is_aligned(after, cluster.pod)


def _is_within_budgets(cluster: FullCluster, pods: Collection[Occupant]) -> bool:
    return all(
        sum(occupant.uid in budget.pods for occupant in pods) <= max(0, budget.allowed)
        for budget in cluster.occupied.budgets
    )


ANY_NODE = Placement()
