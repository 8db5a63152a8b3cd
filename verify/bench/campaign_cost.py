"""``python -m verify.bench.campaign_cost``: how long the search for moves delays what else the operator does.

The search of the campaign works in a thread of its own on 1,000 nodes of 40 kinds with some 10,000 pods, in memory.
Beside it a worker's thread chooses nodes for one new kind of pods after another, and a third thread wakes up a hundred
times a second. Counted is the work of the whole process until each is done: of threads that need a processor one runs
at a time, so on a machine that has nothing else to do that is the time, and on a busy one it stays the same. How long
it takes to read the cluster's pods from an API server is not part of it. Exits with 1 if one of them was delayed by
more than the limit.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from verify.bench import workloads
from verify.bench.operator_cost import STATES, node_states
from verify.contended.outcome import percentile
from verify.targets import Target, judge

from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide.defragment.candidates import kinds_now
from topomend.decide.defragment.moves import Limits, Movable, Pods
from topomend.decide.defragment.search import defragment
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.survey import Surveys
from topomend.decide.diagnosis.totals import sums_by_node
from topomend.model.nodes.node import HOSTNAME_LABEL, Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, usage_of
from topomend.model.pods.scheduling import Placement
from topomend.reconcile.defragment.campaign import TURN_SECONDS
from topomend.reconcile.nodes.replay_shares import new_shares
from topomend.replay.effort import TurnOver
from topomend.wire.pods.pod import read_pod

LIMIT = 1.0
"""Seconds."""

TICK_SECONDS, PODS_PER_NODE = 0.01, 12

LIMITS = Limits(moves=5, threshold=0.001)


@dataclass(frozen=True)
class World:
    """The cluster and the pods that may be moved."""

    snapshot: Snapshot
    pods: Pods


@dataclass
class Work:
    """Seconds of the whole process: ``decisions`` each until it was made, and ``own`` of the thread that made it;
    ``waking`` until a thread ran that woke up; ``searches``: of the search's own thread."""

    decisions: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    waking: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)
    moves: int = 0

    @property
    def delays(self) -> list[float]:
        """By how much each decision was delayed."""
        return [whole - own for whole, own in zip(self.decisions, self.own, strict=True)]

    def __str__(self) -> str:
        return "\n    ".join(
            (
                f"{len(self.decisions)} decisions about new kinds of pods: {_quantiles(self.decisions)}",
                f"by others: {_quantiles(self.delays)}",
                f"until a thread ran that woke up: {_quantiles(self.waking)}",
                f"searches: {', '.join(f'{seconds:.1f} s' for seconds in self.searches) or 'none'}, {self.moves} moves",
            )
        )


def main() -> int:
    """Measure, and compare with the limit."""
    parser = argparse.ArgumentParser(prog="python -m verify.bench.campaign_cost", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000, help="how many (default: %(default)s)")
    parser.add_argument("--searches", type=int, default=3, help="how many (default: %(default)s)")
    options = parser.parse_args()
    world = make_world(options.nodes)
    print(f"{options.nodes} nodes, {len(world.pods.movable)} pods that may be moved", flush=True)
    moving = beside(world, options.searches)
    print(f"  beside a search: {moving}", flush=True)
    alone = beside(world, 0, decisions=len(moving.decisions))
    print(f"  alone: {alone}", flush=True)
    return judge(
        [
            Target("a decision, delayed by others", max(moving.delays), LIMIT, "s"),
            Target("work until a thread ran that woke up", max(moving.waking), LIMIT, "s"),
        ]
    )


def beside(world: World, searches: int, decisions: int = 0) -> Work:
    """The work of so many decisions, or of as many as there are while so many searches last."""
    work, over = Work(), threading.Event()
    searching = threading.Thread(target=_search, args=(world, searches, work, over), daemon=True)
    waking = threading.Thread(target=_wake, args=(work, over), daemon=True)
    searching.start()
    waking.start()
    for pod in _new_kinds():
        if over.is_set() if searches else len(work.decisions) >= decisions:
            break
        _decide(world.snapshot, pod, work)
    over.set()
    for thread in (searching, waking):
        thread.join()
    return work


def _search(world: World, searches: int, work: Work, over: threading.Event) -> None:
    """As ``reconcile/defragment/campaign`` does."""
    for _ in range(searches):
        begun = time.thread_time()
        effort = new_shares(TURN_SECONDS)
        try:
            found = defragment(
                world.snapshot, lambda nodes: kinds_now(world.snapshot, nodes), world.pods, LIMITS, effort=effort
            )
            work.moves += len(found.moves)
        except TurnOver:
            print(f"  the search was ended after {TURN_SECONDS:.0f} s of work", flush=True)
        work.searches.append(time.thread_time() - begun)
    if searches:
        over.set()


def _decide(snapshot: Snapshot, pod: Pod, work: Work) -> None:
    """As for a gated pod of a kind that was not asked about yet."""
    begun, own = time.process_time(), time.thread_time()
    diagnose(snapshot, pod, Placement(), surveys=Surveys(1), effort=new_shares())
    work.own.append(time.thread_time() - own)
    work.decisions.append(time.process_time() - begun)
    time.sleep(TICK_SECONDS)


def _wake(work: Work, over: threading.Event) -> None:
    while not over.is_set():
        begun = time.process_time()
        time.sleep(TICK_SECONDS)
        work.waking.append(time.process_time() - begun)


def _new_kinds() -> Iterator[Pod]:
    for number in count(1):
        cpus, memory = 1 + number % 24, f"{1024 + number}Mi"
        yield read_pod(workloads.pod(f"new-{number}", cpu=cpus, memory=memory))


def make_world(nodes: int) -> World:
    """Each node has a state of its own: no two machines have the same memory size."""
    states, pods = list(node_states()), [_pods_of(kind) for kind in range(STATES)]
    known = {state.name: state for state in (_varied(states[number % STATES], number) for number in range(nodes))}
    movable = [
        Movable(replace(pod, uid=f"{name}-{pod.name}"), Placement(), name, "ReplicaSet/moved")
        for number, (name, state) in enumerate(known.items())
        for pod in pods[number % STATES]
        if state.holds(pod.namespace, pod.name)
    ]
    used = sums_by_node((each.node, usage_of(each.pod)) for each in movable)
    totals = dict.fromkeys(("cpu", "memory", "pods", workloads.GPU, workloads.NIC), 1 << 60)
    there = {
        name: Node(name, labels={HOSTNAME_LABEL: name}, allocatable=totals, used=used.get(name, {})) for name in known
    }
    publications = {name: Publication(state, "1") for name, state in known.items()}
    return World(Snapshot(there, publications), Pods(movable))


def _pods_of(kind: int) -> list[Pod]:
    """Those of ``operator_cost.node_states``."""
    made = enumerate(workloads.many_pods(Random(kind), PODS_PER_NODE))
    metadata = {"namespace": "crowd"}
    return [read_pod({**pod, "metadata": {**metadata, "name": f"worker-{number}-{kind:05}"}}) for number, pod in made]


def _varied(state: NodeState, number: int) -> NodeState:
    machine = state.machine
    first, *others = machine.numa_nodes
    larger = replace(first, memory=first.memory + 4096 * number)
    return replace(state, name=f"node-{number:05}", machine=replace(machine, numa_nodes=(larger, *others)))


def _quantiles(seconds: Sequence[float]) -> str:
    p50, p99 = (1000 * percentile(sorted(seconds), part) for part in (50, 99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, at most {1000 * max(seconds):.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
