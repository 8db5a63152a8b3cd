"""Random clusters in which pods may be moved, and one move carried out as scheduler and kubelets would."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from tests.builders import node_state, pod, snapshot_of

from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide.budgets import Budget
from topomend.decide.defragment.moves import Defragmented, Limits, Movable, Pods, Waiting
from topomend.decide.defragment.search import defragment
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.filters import filter_node, too_little_left
from topomend.decide.plan import MAX_NAMED_NODES
from topomend.decide.pools.fragmentation import overall
from topomend.decide.pools.pools import pools
from topomend.decide.pools.typical_pods import kinds_of
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of, sum_of, usage_of
from topomend.model.pods.scheduling import Placement, Toleration
from topomend.replay.admission import admit, release

GPU = "vendor.com/gpu"
TWO, FOUR = "cpu=2 memory=1Mi", "cpu=4 memory=1Mi"


def cluster(*states: NodeState, held: Mapping[str, Sequence[Pod]] | None = None) -> Snapshot:
    """These nodes, each with what its pods take of its totals."""
    snapshot = snapshot_of(*states)
    nodes = {}
    for name, one in snapshot.nodes.items():
        used: Mapping[str, int] = {}
        for each in (held or {}).get(name, ()):
            used = sum_of(used, usage_of(each))
        allocatable = {**one.allocatable, GPU: 8000}
        nodes[name] = replace(one, used=used, allocatable=allocatable)
    return replace(snapshot, nodes=nodes)


class RandomCluster:
    """Nodes of random machines with pods that came and partly ended, some of which may be moved, within random limits.

    ``uncertain``: of some nodes the totals are not known, pods start or end there, or pods that wait have rules for the
    scheduler.
    """

    KINDS = (
        "cpu=1 memory=1Gi",
        TWO,
        "cpu=3 memory=1Gi",
        FOUR,
        f"cpu=2 memory=1Gi {GPU}=1",
        f"cpu=1 memory=1Mi {GPU}=2",
    )
    SHAPES = ("sockets:2 cores:4 memory:8Gi", "sockets:2 cores:6 memory:16Gi", "sockets:4 cores:4 memory:8Gi")

    def __init__(self, seed: int, most_nodes: int = 4, *, uncertain: bool = False) -> None:
        random = self.random = Random(seed)
        policy = random.choice(("single-numa-node", "single-numa-node", "restricted", "best-effort"))
        shape = random.choice(self.SHAPES)
        devices = " ".join(f"{number}=2" for number in range(int(shape[8])))
        shape = f"{shape} device:{GPU}@{devices.replace(' ', ',')}"
        memory = random.choice(("None", "Static"))
        reserved = ",".join(["512Mi"] * int(shape[8]))
        self.held: dict[str, list[Pod]] = {}
        states = []
        for number in range(random.randint(2, most_nodes)):
            name = f"n{number}"
            state = node_state(shape, policy, name=name, memory_manager=memory, reserved_memory=reserved)
            states.append(self._filled(state))
        self.snapshot = cluster(*states, held=self.held)
        allocatable = {"cpu": 1000 * random.choice((7, 11, 15)), "memory": 1 << 60, "pods": 110_000, GPU: 8000}
        nodes = {name: replace(one, allocatable=allocatable) for name, one in self.snapshot.nodes.items()}
        self.snapshot = replace(self.snapshot, nodes=nodes)
        placements = [Placement(), Placement(), Placement({"kubernetes.io/hostname": "n0"})]
        self.movable = [
            Movable(each, random.choice(placements), name)
            for name, pods in self.held.items()
            for each in pods
            if random.random() < 0.8
        ]
        self.waiting = [
            Waiting(pod(f"w{number}", random.choice(self.KINDS)), priority=random.choice((0, 0, 5)))
            for number in range(random.randrange(4))
        ]
        self.waiting.sort(key=lambda each: -each.priority)
        uids = [each.pod.uid for each in self.movable]
        self.budgets = [
            Budget(frozenset(random.sample(uids, min(len(uids), 3))), random.randrange(3))
            for _ in range(random.randrange(2))
        ]
        self.typical = [pod("t", random.choice(self.KINDS)) for _ in range(random.randint(1, 3))]
        self.limits = Limits(moves=10, threshold=0.001)
        self.unsettled: set[str] = set()
        self.ending: set[tuple[str, str]] = set()
        if uncertain:
            self._make_uncertain()

    def _make_uncertain(self) -> None:
        random = self.random
        self.limits = Limits(random.randint(1, 4), random.choice((0.001, 0.001, 0.237, 0.519)))
        anywhere = Placement(tolerations=(Toleration("", "Exists"),))
        self.movable = [
            replace(
                each,
                priority=random.randrange(3),
                placement=anywhere if random.random() < 0.05 else each.placement,
            )
            for each in self.movable
        ]
        self.typical.append(pod("t", random.choice((FOUR, "cpu=3 memory=1Gi"))))
        placements = (Placement(), Placement({"kubernetes.io/hostname": "n1"}))
        self.waiting = [
            Waiting(
                pod(f"w{number}", random.choice((FOUR, "cpu=3 memory=1Gi"))),
                random.choice(placements),
                random.randrange(3),
                certain=random.random() < 0.7,
            )
            for number in range(random.randrange(4))
        ]
        self.waiting.sort(key=lambda each: -each.priority)
        self.unsettled = {name for name in self.snapshot.nodes if random.random() < 0.05}
        moved = {each.pod.name for each in self.movable}
        others = [each for pods in self.held.values() for each in pods if each.name not in moved]
        self.ending = {(each.namespace, each.name) for each in others if random.random() < 0.4}
        unknown = {name for name in self.snapshot.nodes if random.random() < 0.05}
        nodes = {name: replace(self.snapshot.nodes[name], used=None) for name in unknown}
        self.snapshot = replace(self.snapshot, nodes={**self.snapshot.nodes, **nodes})

    def _filled(self, state: NodeState) -> NodeState:
        pods: dict[str, Pod] = {}
        for number in range(self.random.randrange(8)):
            comes = pod(f"{state.name}-{number}", self.random.choice(self.KINDS))
            verdict, state = admit(state, comes)
            if verdict.admitted:
                pods[comes.name] = comes
        for name in [name for name in pods if self.random.random() < 0.35]:
            state = release(state, "ns", name)
            del pods[name]
        self.held[state.name] = list(pods.values())
        return state

    @property
    def least(self) -> float:
        """By how much the number has to fall at least."""
        return self.limits.threshold / len(self.held)

    def defragmented(self) -> Defragmented:
        """What is to be tested."""
        pods = Pods(self.movable, self.waiting, self.budgets, self.unsettled, self.ending)
        return defragment(self.snapshot, lambda _: kinds_of(self.typical), pods, self.limits)


def number_of(snapshot: Snapshot, typical: Iterable[Pod]) -> float | None:
    """The number, by the figures of ``kubectl numa show --summary``."""
    kinds = kinds_of(typical)
    [pool] = pools(snapshot, lambda _: kinds)
    return overall({each.name: each.fragmented for each in pool.resources if each.fragmented})


def with_pod(snapshot: Snapshot, name: str, comes: Pod, placement: Placement) -> Snapshot:
    """The cluster once the pod is on the node. Fails the test if scheduler or kubelet would not have it there."""
    there, state = snapshot.nodes[name], snapshot.publications[name].state
    assert not filter_node(there, placement, requests_of(comes))
    assert not too_little_left(there, requests_of(comes), there.used or {})
    verdict, after = admit(state, comes)
    assert verdict.admitted
    return changed(snapshot, name, after, None if there.used is None else sum_of(there.used, usage_of(comes)))


def without_pod(snapshot: Snapshot, name: str, leaves: Pod) -> Snapshot:
    """The cluster once the pod has ended on the node."""
    state = release(snapshot.publications[name].state, leaves.namespace, leaves.name)
    used, ended = snapshot.nodes[name].used, usage_of(leaves)
    left = None if used is None else {key: amount - ended.get(key, 0) for key, amount in used.items()}
    return changed(snapshot, name, state, left)


def changed(snapshot: Snapshot, name: str, state: NodeState, used: Mapping[str, int] | None) -> Snapshot:
    """The cluster in which the node is in this state."""
    nodes = {**snapshot.nodes, name: replace(snapshot.nodes[name], used=used)}
    return replace(snapshot, nodes=nodes, publications={**snapshot.publications, name: Publication(state, "9")})


def named(snapshot: Snapshot, comes: Pod, placement: Placement, cordoned: Iterable[str] = ()) -> list[str]:
    """The nodes for which topomend lets the pod go, best first."""
    nodes = {name: replace(snapshot.nodes[name], unschedulable=True) for name in cordoned}
    diagnosis = diagnose(replace(snapshot, nodes={**snapshot.nodes, **nodes}), comes, placement)
    return [] if diagnosis.any_node_will_do else [status.node for status in diagnosis.candidates[:MAX_NAMED_NODES]]
