"""Random clusters of two nodes: pods of several priorities fill them, and pods of a higher one come.

All that fills a node is admitted there by replay, one after the other, so that both runs begin alike. Owns what is
created. Leaves when, and the names of nodes and namespaces, to ``run``.
"""

from dataclasses import dataclass
from random import Random

from tests.builders import node_state, pod_manifest

from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import requests_of
from topomend.replay.admission import admit
from topomend.wire.pods.pod import read_pod

SHAPE = "numa:2 cores:4 memory:4Gi"
NODES = 2
ALLOCATABLE = 7_000
"""Thousandths of CPUs that pods may request on a node."""

PRIORITIES = {"low": -10, "middle": 5, "high": 1000, "polite": 1000}
"""The classes; pods without one have 0. Nothing is preempted for a polite pod."""

CONTROLLERS = ("", "", "Deployment", "DaemonSet")
EXCLUSIVE = tuple(f"cpu={cpus} memory=64Mi" for cpus in (1, 2, 2, 3, 3, 4))
SHARED = ("request:cpu=500m", "request:cpu=2", "request:cpu=3")


@dataclass(frozen=True)
class Filler:
    """A pod that fills ``node``: of a controller, or bare where that is empty.

    ``kept`` is whether a budget keeps it, ``steered`` whether its namespace is that of the urgent pods.
    """

    node: int
    container: str
    controller: str
    priority: str
    kept: bool
    steered: bool


@dataclass(frozen=True)
class Urgent:
    """A pod that needs room; ``disk`` is the only node that has its volume, if it has one."""

    container: str
    priority: str
    disk: int | None


@dataclass(frozen=True)
class RandomCluster:
    """One of these clusters, with what fills it and what comes, in the order of their creation."""

    number: int
    fillers: tuple[Filler, ...]
    urgent: tuple[Urgent, ...]


def random_cluster(seed: int, number: int) -> RandomCluster:
    """Cluster ``number``: the same for the same seed."""
    random = Random(f"{seed} {number}")
    fillers = tuple(filler for node in range(NODES) for filler in _fillers(random, node))
    number_of_pods = random.choice((1, 1, 1, 2))
    urgent = tuple(_urgent(random, may_be_polite=number_of_pods == 1) for _ in range(number_of_pods))
    return RandomCluster(number, fillers, urgent)


def _fillers(random: Random, node: int) -> list[Filler]:
    state, used, fillers = node_state(SHAPE), 0, []
    for number in range(random.randint(2, 7)):
        container = random.choice(EXCLUSIVE if random.random() < 0.75 else SHARED)
        state, requested = _admitted(state, f"p{number}", container)
        if requested and used + requested <= ALLOCATABLE:
            used += requested
            fillers.append(_filler(random, node, container))
    return fillers


def _admitted(state: NodeState, name: str, container: str) -> tuple[NodeState, int]:
    """The node with the pod and the CPUs that it requests, 0 where the node refuses it."""
    pod = read_pod(pod_manifest(name, container, namespace="default"))
    verdict, after = admit(state, pod)
    return (after, requests_of(pod)["cpu"]) if verdict.admitted else (state, 0)


def _filler(random: Random, node: int, container: str) -> Filler:
    priority = random.choice(("low", "low", "", "middle", "high"))
    return Filler(node, container, random.choice(CONTROLLERS), priority, random.random() < 0.15, random.random() < 0.5)


def _urgent(random: Random, *, may_be_polite: bool) -> Urgent:
    """Beside another pod none is polite.

    From kube-scheduler it may get the place that is freed for the other one, which then evicts once more.
    """
    priority = random.choice(("high", "high", "high", "high", "middle", "polite" if may_be_polite else "high"))
    disk = random.randrange(NODES) if random.random() < 0.15 else None
    return Urgent(random.choice(EXCLUSIVE), priority, disk)
