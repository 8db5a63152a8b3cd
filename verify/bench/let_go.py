"""``python -m verify.bench.let_go``: how many pods a second the operator can let go, and where the time goes.

Nodes are chosen for pods of one CPU, one after another, as a worker does, on 100, 1,000 and 5,000 nodes of 40 different
states, half of them full by totals. Each pod is then bound and seen by the watch. There is no API server: its answer to
the patch that ungates a pod comes on top, and workers wait for those together.
"""

import argparse
import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, cast

from tests.builders import applied, gated_pod, node
from verify.bench.operator_cost import node_states

from topomend.cache import changes
from topomend.cache.entries import PodCounted
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.decide.diagnosis.feasibility import ExcludedNodes
from topomend.decide.diagnosis.survey import Surveys
from topomend.kube.client import Client
from topomend.model.pods.pod import usage_of
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.placement.node_backoff import NodeBackoff
from topomend.reconcile.placement.node_pods import NodePods
from topomend.reconcile.placement.reservations import Reservations
from topomend.reconcile.store import Store
from topomend.runtime.backoff import Backoff

CPUS = 128
PARTS = (
    ("choice: answers of nodes", "survey.py", "answers_to"),
    ("choice: order and totals", "plan.py", "_known_first"),
    ("choice in all", "plan.py", "choose_in_order"),
    ("assumption", "store.py", "assume_all"),
)


def main() -> int:
    """Measure each size."""
    parser = argparse.ArgumentParser(prog="python -m verify.bench.let_go", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1_000, 5_000])
    parser.add_argument("--pods", type=int, default=200)
    options = parser.parse_args()
    for nodes in options.nodes:
        sys.stdout.write(measure(nodes, options.pods) + "\n")
        sys.stdout.flush()
    return 0


def measure(nodes: int, pods: int) -> str:
    """The figures of one size, as lines of text."""
    store = cluster_of(nodes)
    metrics = Metrics(lambda: store.snapshot, lambda: 0, lambda: True)
    reservations = Reservations(
        store,
        NodePods(cast("Client", _NoClient()), store),
        NodeBackoff(Backoff(time.monotonic)),
        metrics,
        random=Random(1),
    )
    waiting = [gated_pod(f"p{number}", cpus=1) for number in range(pods + 1)]
    first = _seconds(lambda: _let_go(store, reservations, waiting[0]))
    seconds = _seconds(lambda: _let_go(store, reservations, *waiting[1:]))
    again = [gated_pod(f"q{number}", cpus=1) for number in range(pods)]
    profile = cProfile.Profile()
    profile.runcall(_let_go, store, reservations, *again)
    rows = "".join(f"\n    {share:4.0%} {name}" for name, share in _shares(profile))
    return (
        f"{nodes} nodes: {pods / seconds:.0f} pods a second, {1000 * seconds / pods:.1f} ms each; "
        f"the first of its kind {1000 * first:.0f} ms{rows}"
    )


def cluster_of(nodes: int) -> Store:
    """A store of so many nodes with known totals, of which half leave too little for any pod."""
    states, seen = node_states(), list[changes.Change]()
    for number in range(nodes):
        name = f"node-{number:05}"
        used = {"cpu": 1000 * CPUS if number % 2 else 0, "pods": 1000}
        seen += (
            changes.NodeUpdated(node(name, cpus=CPUS)),
            changes.Published(replace(states[number % len(states)], name=name), "3"),
            changes.ListBegun(name, 1),
            changes.NodePodsListed(name, 1, "3", used, {}),
        )
    store = Store()
    store.snapshot = applied(*seen)
    return store


def _let_go(store: Store, reservations: Reservations, *pods: WatchedPod) -> None:
    for pod in pods:
        chosen = reservations.choose(pod, partial(_choose, pod, store.surveys))
        assert isinstance(chosen, plans.RelaunchOn)
        name = chosen.nodes[0]
        counted = PodCounted(pod.uid, "9", usage_of(pod.pod))
        bound = replace(pod, node=name, gates=())
        store.apply_all([changes.PodOnNode(name, counted), changes.PodUpdated(bound, 1.0)])


def _choose(pod: WatchedPod, surveys: Surveys, snapshot: Snapshot, excluded: ExcludedNodes) -> plans.Decision:
    return plans.choose_in_order(snapshot, pod, (), excluded, surveys=surveys)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def _shares(profile: cProfile.Profile) -> list[tuple[str, float]]:
    """The share of each part in the time of all."""
    stats: Any = pstats.Stats(profile)
    cumulative = {(file.rpartition("/")[2], name): row[3] for (file, _, name), row in stats.stats.items()}
    return [(title, cumulative.get((file, name), 0.0) / stats.total_tt) for title, file, name in PARTS]


class _NoClient:
    """Nothing is to be listed: all totals are known."""


if __name__ == "__main__":
    sys.exit(main())
