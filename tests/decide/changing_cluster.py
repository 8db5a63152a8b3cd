"""A small cluster that changes at random, as the operator sees it."""

from dataclasses import replace
from random import Random

from tests.builders import TWO_NUMA_NODES, gated_pod, node, node_state, pod

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.nodes.node import Node, Taint
from topomend.model.pods.scheduling import Placement, Toleration, WatchedPod
from topomend.replay.admission import admit

NODES = tuple(f"n{number}" for number in range(9))
GPU = "vendor.com/gpu"
SHAPE = f"{TWO_NUMA_NODES} device:{GPU}@0=1,1=1"
POLICIES = ("single-numa-node", "restricted", "best-effort", "none")
KINDS = ("cpu=1 memory=1Gi", "cpu=3 memory=1Gi", "cpu=4 memory=4Gi", f"cpu=2 memory=1Gi {GPU}=1", "request:cpu=1", "")
PLACEMENTS = (
    Placement(),
    Placement(),
    Placement({"zone": "a"}),
    Placement(tolerations=(Toleration("only", "Exists"),)),
)


class ChangingCluster:
    """``snapshot`` is the cluster now, and ``now`` the time in seconds."""

    def __init__(self, random: Random) -> None:
        self._random, self._version = random, 10
        self.snapshot, self.now = Snapshot(), 1.0
        for _ in range(5 * len(NODES)):
            self.change()

    def asked(self) -> WatchedPod:
        """A gated pod of one of a few kinds. Few names: a node may hold one of this name."""
        random = self._random
        name, namespace = f"p{random.randrange(8)}", random.choice(("ns", "other"))
        return gated_pod(
            name,
            pod=pod(name, random.choice(KINDS), namespace=namespace),
            namespace=namespace,
            placement=random.choice(PLACEMENTS),
            created=random.randrange(4),
            priority=random.choice((0, 0, 0, 100)),
        )

    def change(self) -> None:
        """One change of any sort."""
        self._version += 1
        self.now += self._random.random()
        self.snapshot = changes.apply(self.snapshot, self._change())

    def _change(self) -> changes.Change:
        random = self._random
        makers = (
            (self._published, 8),
            (self._node, 3),
            (self._pod, 6),
            (self._assumption, 6),
            (self._rarity, 6),
        )
        (make,) = random.choices([make for make, _ in makers], [weight for _, weight in makers])
        return make(random.choice(NODES))

    def _published(self, name: str) -> changes.Change:
        random, known = self._random, self.snapshot.publications.get(name)
        heartbeat = changes.Heartbeat(f"{self.now}", 0.0, self.now)
        if known and random.random() < 0.3:  # a heartbeat alone
            return changes.Published(known.state, str(self._version), known.agent_problem, heartbeat)
        state = node_state(SHAPE, random.choice(POLICIES), name=name)
        for _ in range(random.randrange(5)):
            state = admit(state, self.asked().pod)[1]
        problem = "its agent says so" if random.random() < 0.1 else ""
        return changes.Published(state, str(self._version), problem, random.choice((None, heartbeat)))

    def _node(self, name: str) -> changes.Change:
        if self._random.random() < 0.15:
            return changes.NodeRemoved(name)
        return changes.NodeUpdated(self._any_node(name))

    def _any_node(self, name: str) -> Node:
        random = self._random
        made = node(name, cpus=random.choice((7, 7, 7, 2)), version=str(self._version))
        made = replace(
            made,
            labels={**made.labels, "zone": random.choice("ab")},
            allocatable={**made.allocatable, GPU: 2000},
            taints=(Taint("only", "NoSchedule"),) if random.random() < 0.2 else (),
            ready=random.random() < 0.9,
        )
        return replace(made, labels={}) if random.random() < 0.1 else made

    def _pod(self, name: str) -> changes.Change:
        asked, random = self.asked(), self._random
        if random.random() < 0.3:
            return changes.PodRemoved(asked.namespace, asked.name, asked.uid, self.now)
        if random.random() < 0.5:
            return changes.PodUpdated(asked, self.now)
        bound = replace(asked, gates=(), node=name, version=str(self._version))
        return changes.PodUpdated(replace(bound, phase=random.choice(("Pending", "Succeeded"))), self.now)

    def _assumption(self, _: str) -> changes.Change:
        asked, random = self.asked().pod, self._random
        if random.random() < 0.3:
            return changes.PodForgotten(asked.namespace, asked.name)
        return changes.PodAssumed(asked, tuple(random.sample(NODES, random.randint(1, 3))), self.now)

    def _rarity(self, name: str) -> changes.Change:
        random, snapshot = self._random, self.snapshot
        nodes = [
            self._any_node(node_name) if random.random() < 0.2 else known for node_name, known in snapshot.nodes.items()
        ]
        rarities: tuple[changes.Change, ...] = (
            changes.Unreadable(name, random.choice(("no machine", "no settings"))),
            changes.Unpublished(name),
            *(changes.MismatchDetected(random.choice(NODES[:2]), f"u{self._version}", self.now) for _ in range(6)),
            changes.ReplayOverspent(name, self.now),
            changes.TimePassed(self.now + random.choice((0, 0, 20, 2000))),
            changes.DeviceClassesListed(frozenset(random.choice(((), (GPU,))))),
            changes.NodesListed(tuple(nodes), str(self._version)),
        )
        return random.choice(rarities)
