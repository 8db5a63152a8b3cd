"""The parts that reconcile pods of a real API server, on a snapshot that the test makes up."""

from tests.builders import applied, node_state, snapshot_of
from tests.clock import Clock
from tests.clusters import NODE_A, NODE_B, SYSTEM, Cluster
from tests.reconcile.emitted import Emitted

from topomend.cache import changes
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.autoscaling.placeholders import Placeholders
from topomend.reconcile.autoscaling.scale_up import ScaleUp
from topomend.reconcile.collaborators import Collaborators
from topomend.reconcile.explainer import Explainer
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.placement.claimed_devices import ClaimedDevices
from topomend.reconcile.placement.node_backoff import NodeBackoff
from topomend.reconcile.placement.node_pods import NodePods
from topomend.reconcile.placement.reservations import Reservations
from topomend.reconcile.placement.untried_pods import UntriedPods
from topomend.reconcile.placement.volumes import Volumes
from topomend.reconcile.store import Store
from topomend.runtime.backoff import Backoff

SHAPE = "numa:2 cores:4 memory:8Gi"

EMPTY_A, EMPTY_B = node_state(SHAPE, name=NODE_A), node_state(SHAPE, name=NODE_B)


class Parts:
    """One of each collaborator, the Events that they emit, and the changes that are reported back."""

    def __init__(self, cluster: Cluster, *states: NodeState, placeholders: bool = False, claims: bool = False) -> None:
        self.store, self.clock, self.emitted = Store(), Clock(), Emitted()
        self.store.snapshot = snapshot_of(*states)
        self.reported: list[changes.Change] = []
        self.metrics = Metrics(lambda: self.store.snapshot, lambda: 0, lambda: True)
        announcer = self.emitted.announcer
        self.node_pods = NodePods(cluster.client, self.store, clock=self.clock)
        explainer = Explainer(
            self.store,
            announcer,
            self.metrics,
            self.reported.append,
            self.clock,
            count=self.node_pods.list_unhurried,
        )
        reservations = Reservations(
            self.store,
            self.node_pods,
            NodeBackoff(Backoff(self.clock)),
            self.metrics,
            clock=self.clock,
        )
        self.placeholders = Placeholders(cluster.client, self.store, SYSTEM, enabled=placeholders, clock=self.clock)
        self.scale_up = ScaleUp(cluster.client, self.store, self.placeholders, self.clock)
        self.untried = UntriedPods(self.store, self.clock)
        self.collaborators = Collaborators(
            cluster.client,
            self.store,
            reservations,
            explainer,
            announcer,
            self.metrics,
            self.scale_up,
            self.untried,
            Volumes(cluster.client, self.store, self.clock),
            ClaimedDevices(cluster.client, self.store, enabled=claims, is_served=lambda: True, clock=self.clock),
            self.clock,
        )

    def watch(self, *pods: WatchedPod) -> None:
        """Have these pods in the snapshot."""
        self.apply(*(changes.PodUpdated(pod, self.clock.now) for pod in pods))

    def apply(self, *cluster_changes: changes.Change) -> None:
        self.store.snapshot = applied(*cluster_changes, to=self.store.snapshot)

    def assumed(self, name: str) -> tuple[str, ...]:
        """The nodes on which the pod of this name is assumed."""
        assumed = self.store.snapshot.assumed.get(("default", name))
        return assumed.nodes if assumed else ()
