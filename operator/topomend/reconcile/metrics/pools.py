"""Metrics of each pool of nodes: what is free, the largest request that one NUMA node has, what is held, and aligned.

A scrape asks the nodes that have changed since the last one, for at most ASKING_SECONDS of work; the others keep their
figures. Free amounts are those that decisions read already; they are the same objects. Owns how many
resources are shown. Leaves what a pool is to ``node_pool``, a node's amounts to ``replay``, and a container's alignment
to ``alignment``.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from weakref import ref

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from topomend.alignment.container import CPU, Alignment, align_allocation
from topomend.cache.snapshot import Publication, Snapshot
from topomend.model.nodes.node_pool import pools_of
from topomend.model.nodes.node_state import NodeState
from topomend.replay.effort import Overspent, Shares
from topomend.replay.fast_path.capacity import free_amounts

MAX_RESOURCES = 50
"""How many are shown, the first by name: a node's devices have names that a kubelet chooses."""

ASKING_SECONDS = 0.2
"""How long a scrape works on nodes that have changed. One of 20 containers takes 0.4 ms, any other one 3 us; what is
remembered of a node takes 0.4 KiB."""

KNOWN, UNKNOWN, WITHOUT_AGENT = "known", "unknown", "without-agent"

_PREFIX = "topomend_operator_pool"
_AMOUNTS = {
    "free": "Free on NUMA nodes, assumed pods counted",
    "largest_admissible": "The most that is free on one NUMA node of one node",
    "held": "Held exclusively by containers",
    "aligned": "Held by containers whose resources are all on one NUMA node",
}
_UNITS = "by pool and resource: CPUs, bytes or devices, of resources that a kubelet's manager allocates"


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of one resource on one node or in one pool: CPUs, bytes or devices."""

    free: int = 0
    largest: int = 0
    held: int = 0
    aligned: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        largest = max(self.largest, other.largest)
        return Amounts(self.free + other.free, largest, self.held + other.held, self.aligned + other.aligned)


_log = logging.getLogger(__name__)

_Figures = Mapping[str, Amounts]
"""By resource."""


class Room:
    """What figures depend on. It keeps no state alive: states are large."""

    __slots__ = ("_assumed", "_ended", "_state")

    def __init__(self, publication: Publication) -> None:
        self._state = ref(publication.state)
        self._ended, self._assumed = publication.ended, publication.assumed_pods

    def is_of(self, publication: Publication) -> bool:
        """Whether nothing has changed but that the agent confirmed its state."""
        is_same = self._state() is publication.state
        return is_same and self._ended == publication.ended and self._assumed == publication.assumed_pods


class Pools(Collector):
    """The figures of an operator that acts; any other one shows none, because its snapshot lacks assumed pods.

    Several threads may scrape; they take turns.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], leads: Callable[[], bool]) -> None:
        self._snapshot, self._leads = snapshot, leads
        self._known: dict[str, tuple[Room, _Figures]] = {}
        self._lock = threading.Lock()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The figures now (prometheus_client.Collector)."""
        with self._lock:
            return self._collected()

    def _collected(self) -> Iterable[GaugeMetricFamily]:
        nodes, *amounts = self.describe()
        if self._leads():
            snapshot = self._snapshot()
            self._ask(snapshot.publications)
            pools = pools_of(snapshot.nodes.values())
            counts = Counter((pools[name], _state(snapshot, name)) for name in snapshot.nodes)
            for pool, state in product(sorted(set(pools.values())), (KNOWN, UNKNOWN, WITHOUT_AGENT)):
                nodes.add_metric((pool, state), counts[pool, state])
            for (pool, resource), total in sorted(self._totals(snapshot, pools).items()):
                for family, value in zip(amounts, (total.free, total.largest, total.held, total.aligned), strict=True):
                    family.add_metric((pool, resource), value)
        return [nodes, *amounts]

    def describe(self) -> list[GaugeMetricFamily]:
        """The metrics without samples, so that the registry reserves their names."""
        states = f"{KNOWN}, {UNKNOWN} (its agent is silent, or not believed) or {WITHOUT_AGENT}"
        nodes = GaugeMetricFamily(f"{_PREFIX}_nodes", f"Nodes, by pool and state: {states}.", labels=("pool", "state"))
        labels = ("pool", "resource")
        return [
            nodes,
            *(
                GaugeMetricFamily(f"{_PREFIX}_{name}", f"{meaning}, {_UNITS}.", labels=labels)
                for name, meaning in _AMOUNTS.items()
            ),
        ]

    def _ask(self, publications: Mapping[str, Publication]) -> None:
        """Bring the figures of nodes that have changed up to date, those first whose turn is longest ago."""
        for name in self._known.keys() - publications.keys():
            del self._known[name]
        new = [name for name in publications if name not in self._known]
        changed = [name for name, (room, _) in self._known.items() if not room.is_of(publications[name])]
        until = time.thread_time() + ASKING_SECONDS
        for name in (*new, *changed):
            if time.thread_time() > until:
                return
            self._known.pop(name, None)  # to the end
            self._known[name] = Room(publications[name]), figures_of(publications[name])

    def _totals(self, snapshot: Snapshot, pools: Mapping[str, str]) -> Mapping[tuple[str, str], Amounts]:
        totals: dict[tuple[str, str], Amounts] = {}
        for name, (_, figures) in self._known.items():
            if name in pools and not snapshot.publications[name].problem:
                for resource, amounts in figures.items():
                    key = pools[name], resource
                    totals[key] = totals.get(key, Amounts()) + amounts
        shown = set(sorted({resource for _, resource in totals})[:MAX_RESOURCES])
        return {key: amounts for key, amounts in totals.items() if key[1] in shown}


def _state(snapshot: Snapshot, node: str) -> str:
    if not snapshot.why_unknown(node):
        return KNOWN
    return UNKNOWN if snapshot.has_agent(node) else WITHOUT_AGENT


def figures_of(publication: Publication) -> _Figures:
    """What a node has of each resource; nothing of one whose replay takes too long, or whose kubelet does not start."""
    try:
        state = publication.state_with_assumed(Shares(time.thread_time))
        free = free_amounts(state)
        held, aligned = _held(state)
    except Overspent:
        return {}
    except Exception as error:  # noqa: BLE001  whatever one node has published, the others are shown
        _log.error("%s is left out of the metrics of pools: unexpected: %r", publication.state.name, error)
        _log.debug("where it happened", exc_info=True)
        return {}
    names = free.keys() | held.keys()
    return {name: Amounts(*free.get(name, (0, 0)), held[name], aligned[name]) for name in names}


def _held(state: NodeState) -> tuple[Counter[str], Counter[str]]:
    """What containers hold exclusively, and of that what those hold that use one NUMA node alone.

    Without init containers: what those held is their pod's until it ends.
    """
    held, aligned = Counter[str](), Counter[str]()
    for pod in state.pods:
        for container in pod.containers:
            if container.init:
                continue
            answer = align_allocation(state, pod, container)
            amounts = Counter({CPU: answer.cpus.bit_count()}) if answer.cpus else Counter[str]()
            for block in container.memory:
                amounts[block.resource] += block.size
            for devices in container.devices:
                amounts[devices.resource] += len(devices.ids)
            held += amounts
            if answer.alignment is Alignment.NUMA_NODE:
                aligned += amounts
    return held, aligned
