"""How long a decision about a workload takes on thousands of nodes, without a cluster.

The nodes are those of ``verify.bench.let_go``: 40 different states, half of them full by totals. Workloads of random
pod sets are decided on one after another, and the places of the last ones are held.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import cast

from tests.builders import guaranteed_pod, watched_pod
from verify.bench.let_go import cluster_of

from topomend.cache.changes import PlacesPromised, PromiseEnded
from topomend.decide.gang import Unplaced
from topomend.decide.workload_fit import Asked, choose_places, members, unfit_words
from topomend.kube.client import Client
from topomend.model.pods.queued_workload import PodSet
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.placement.node_backoff import NodeBackoff
from topomend.reconcile.placement.node_pods import NodePods
from topomend.reconcile.placement.reservations import Reservations
from topomend.reconcile.store import Store
from topomend.runtime.backoff import Backoff

SIZES = (1, 2, 4, 8, 16, 32, 200)
"""CPUs of a pod. No node has the last."""

HELD = 20
"""How many workloads hold places at a time."""

KINDS = 12
"""How many kinds of pods there are: as many as answers are remembered of, and a few less."""


def measure(nodes: int, decisions: int, seed: int) -> Sequence[float]:
    """The seconds of this thread's work that each decision took, the first of each kind of pods included."""
    store, chance = cluster_of(nodes), Random(seed)
    metrics = Metrics(lambda: store.snapshot, lambda: 0, lambda: True)
    node_pods = NodePods(cast("Client", None), store)  # all totals are known: nothing is listed
    reservations = Reservations(store, node_pods, NodeBackoff(Backoff(time.monotonic)), metrics, random=Random(1))
    held, taken = deque[str](), list[float]()
    for number in range(decisions):
        name = f"workload-{number}"
        pod_sets = _pod_sets(chance, name)
        began = time.thread_time()
        if _decide(store, reservations, name, pod_sets):
            held.append(name)
        taken.append(time.thread_time() - began)
        if len(held) > HELD:
            store.apply(PromiseEnded("ns", held.popleft()))
    return taken


def _pod_sets(chance: Random, name: str) -> Sequence[PodSet]:
    kinds = chance.sample(range(KINDS), chance.choice((1, 1, 2)))
    return [PodSet(f"set-{kind}", chance.choice((1, 1, 2, 4, 8)), _pod(f"{name}/set-{kind}", kind)) for kind in kinds]


def _pod(name: str, kind: int) -> WatchedPod:
    cpus = SIZES[kind % len(SIZES)]
    pod = guaranteed_pod(name, cpus) if kind < len(SIZES) else guaranteed_pod(name, cpus, gpu=1)
    return replace(watched_pod(name, cpus), pod=pod)


def _decide(store: Store, reservations: Reservations, name: str, pod_sets: Sequence[PodSet]) -> bool:
    """Decide as ``NumaFit`` does. Returns whether places are held."""
    pods = {pod_set.name: members(pod_set) for pod_set in pod_sets}
    snapshot = store.snapshot
    chosen = reservations.choose_for_all(
        [pod for of_set in pods.values() for pod in of_set],
        lambda asked_on, excluded: choose_places(
            asked_on, pods, Asked(excluded_nodes=excluded, surveys=store.surveys), together=True
        ),
    )
    if chosen is None or isinstance(chosen, Unplaced):
        if chosen:
            unfit_words(snapshot, chosen)
        return False
    by_name = {each.pod.name: (each.pod.pod, each.node) for each in chosen if each.node}
    places = {set_name: tuple(by_name[pod.name] for pod in of_set) for set_name, of_set in pods.items()}
    store.apply(PlacesPromised("ns", name, "", places, 1e9))
    return True
