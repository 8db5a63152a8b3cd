"""Two pods on a node of a real API server, and pods of higher priority that wait for room there."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.builders import running, snapshot_of
from tests.clusters import NODE_B, Cluster, pod
from tests.reconcile.parts import EMPTY_B, Parts
from tests.refused_pods import gated, watched
from tests.waiting import eventually

from topomend.cache import changes
from topomend.decide.eligibility import Limits
from topomend.kube.resources import BUDGETS
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.preemption import PATIENCE_SECONDS, Preemptor
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.replay.admission import release
from topomend.wire.pods.pod import read_pod


class Waiting(Parts):
    """Two pods leave enough of a node in total and no NUMA node for a wider one of higher priority."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.filling: list[dict[str, Any]] = []
        super().__init__(cluster, EMPTY_B)
        self.fill(2, 2)
        limits = NamespaceLimits(cluster.client, Limits(), self.clock)
        self.let_go: list[tuple[str, tuple[str, ...]]] = []
        self.is_gated_by_us, self.assumes, self.late = True, False, set[str]()
        self.preemptor = Preemptor(
            cluster.client,
            self.store,
            self.emitted.announcer,
            limits,
            excluded=lambda _: {},
            let_go=self._leave_to_scheduler,
            is_gated_by_us=lambda _: self.is_gated_by_us,
            count=self.node_pods.list,
            untried=self.untried,
            was_late=lambda pod: pod.name in self.late,
            clock=self.clock,
        )

    def _leave_to_scheduler(self, pod: WatchedPod, nodes: Sequence[str], _useless: Sequence[str]) -> None:
        self.let_go.append((pod.name, tuple(nodes)))
        if self.assumes:
            self.apply(changes.PodAssumed(pod.pod, tuple(nodes), self.clock.now, displaces=True))

    def fill(self, *cpus: int) -> None:
        """Have pods of so many CPUs fill the node, one after the other, in the place of those that fill it."""
        for content in self.filling:
            self.cluster.remove(content)
        eventually("the earlier ones to be gone", lambda: not self.cluster.pods())
        self.filling = [self.cluster.create(filling_pod(number, count)) for number, count in enumerate(cpus)]
        for content in self.filling:
            eventually("the pods to run", lambda: self.cluster.running(content["metadata"]["name"]))  # noqa: B023
        self.store.snapshot = snapshot_of(running(EMPTY_B, *map(read_pod, self.filling)))

    def free(self, name: str) -> None:
        """Have one of these pods end."""
        self.cluster.remove(self.cluster.get(name))
        self.filling = [content for content in self.filling if content["metadata"]["name"] != name]
        state = release(self.store.snapshot.publications[NODE_B].state, "default", name)
        self.store.snapshot = snapshot_of(state)

    def wait(self, *, name: str = "urgent", cpus: int = 3, **fields: Any) -> WatchedPod:
        waiting = replace(gated(self.cluster, name, cpus), **{"priority": 10} | fields)
        self.watch(waiting)
        self.clock.now += PATIENCE_SECONDS
        return waiting

    def again(self) -> None:
        """Have the snapshot show the pod as it is now."""
        self.watch(replace(watched(self.cluster, "urgent"), priority=10))

    def left(self) -> list[str]:
        """The filling pods that no one evicted."""
        here = {content["metadata"]["name"] for content in self.cluster.pods() if not leaves(content)}
        return sorted(here & {content["metadata"]["name"] for content in self.filling})


@contextmanager
def budget(cluster: Cluster, labels: dict[str, str], name: str = "", **spec: Any) -> Iterator[None]:
    """A budget as its controller has understood it: it allows none of its pods to be evicted, or as its spec says."""
    name = name or f"keep-{labels['n']}"
    head = {"apiVersion": BUDGETS.api_version, "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    spec = (spec or {"maxUnavailable": 0}) | {"selector": {"matchLabels": labels}}
    made = cluster.client.create(BUDGETS, head | {"spec": spec}, "default")

    def is_understood() -> bool:
        status = cluster.client.get(BUDGETS, name, "default").get("status", {})
        return bool(status.get("observedGeneration"))

    try:
        eventually("the budget", is_understood)
        yield
    finally:
        cluster.client.delete(BUDGETS, name, "default", uid=made["metadata"]["uid"])


def filling_pod(number: int, cpus: int = 2) -> dict[str, Any]:
    return pod(f"fill-{number}", cpus, node=NODE_B, labels={"n": str(number)})


def leaves(content: dict[str, Any]) -> bool:
    return "deletionTimestamp" in content["metadata"]
