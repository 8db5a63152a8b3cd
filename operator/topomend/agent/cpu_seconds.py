"""CPU seconds by NUMA node and pool, for Prometheus: they show exclusive CPUs that idle beside a busy shared pool.

Imported only if metrics are enabled, because psutil costs memory on every node. The kernel counts seconds of each CPU
since boot. This module adds up, since the agent's start, the seconds that each CPU spent in a pool. A CPU that changes
pools leaves its seconds behind, so no counter ever decreases. Serving the metrics is left to ``metrics``.
"""

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from topomend.model.bitmask import CPUSet, format_id_list, mask_of, members
from topomend.model.nodes.node_state import NodeState
from topomend.replay.container_manager import start

NAME = "topomend_agent_numa_cpu_seconds"

EXCLUSIVE, RESERVED, SHARED = "exclusive", "reserved", "shared"

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The modes of proc_stat(5) without guest and guest_nice, which the kernel includes in user and nice."""

_Times = Mapping[int, tuple[float, ...]]
"""The seconds of each CPU by its id, in the order of MODES."""

_log = logging.getLogger(__name__)


class CPUSeconds(Collector):
    """The counters. They are updated by each scrape and when a CPU changes pools. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: Mapping[tuple[int, str], CPUSet] = {}
        self._cpus: CPUSet = 0
        self._before: _Times = {}
        self._seconds: dict[tuple[int, str], list[float]] = {}
        self._warned = False

    def show(self, state: NodeState) -> None:
        """Count each CPU in its pool of ``state`` from now on."""
        pools = pools_of(state)
        with self._lock:
            if (pools, state.machine.cpus) == (self._pools, self._cpus):
                return
            if not self._add_up():
                self._before = {}  # the seconds since belong to the old pools, or to other CPUs
            self._pools, self._cpus = pools, state.machine.cpus
            for pool in pools:
                self._seconds.setdefault(pool, [0.0] * len(MODES))
            self._add_up()

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The counters up to now, labelled by NUMA node, pool and mode (prometheus_client.Collector)."""
        (family,) = self.describe()
        with self._lock:
            self._add_up()
            for (numa, pool), seconds in sorted(self._seconds.items()):
                for mode, spent in zip(MODES, seconds, strict=True):
                    family.add_metric((str(numa), pool, mode), spent)
        yield family

    def describe(self) -> Iterable[CounterMetricFamily]:
        """The metric without samples, so that the registry reserves its name."""
        meaning = "Seconds that CPUs spent, by numa, pool and mode of /proc/stat."
        return [CounterMetricFamily(NAME, meaning, labels=("numa", "pool", "mode"))]

    def _add_up(self) -> bool:
        """Add each CPU's seconds since the last call to its pool. False if the seconds cannot be read now."""
        times = self._read()
        if not times:
            return False
        for place, cpus in self._pools.items():
            for cpu in members(cpus):
                if cpu in times and cpu in self._before:
                    self._add(self._seconds[place], self._before[cpu], times[cpu])
        self._before = times
        return True

    @staticmethod
    def _add(seconds: list[float], before: tuple[float, ...], now: tuple[float, ...]) -> None:
        for number, (earlier, later) in enumerate(zip(before, now, strict=True)):
            # idle and iowait may decrease, and a CPU that was offline may start from 0 (proc_stat(5)).
            seconds[number] += max(0.0, later - earlier)

    def _read(self) -> _Times:
        """Seconds of the machine's CPUs; empty if /proc/stat shows other CPUs than the machine's."""
        times = read_times()
        cpus = mask_of(times)
        # No times mean that a CPU is being added or removed at this moment. Other CPUs than the machine's belong to
        # another machine: a made-up one, or one that a container runtime shows in place of the host.
        if not times or cpus == self._cpus:
            return times
        if self._cpus and not self._warned:
            self._warned = True
            _log.warning(
                "no CPU seconds are counted: /proc/stat shows CPUs %s, but the machine has %s",
                format_id_list(cpus),
                format_id_list(self._cpus),
            )
        return {}


def pools_of(state: NodeState) -> Mapping[tuple[int, str], CPUSet]:
    """The CPUs of each pool of each NUMA node, empty sets included, by the NUMA node's id and the pool's name.

    ``exclusive`` CPUs are allocated to pods or containers. ``reserved`` CPUs are the kubelet's reservation for the
    system, which other pods use as well unless the option strict-cpu-reservation is set. All others are ``shared``.
    """
    exclusive = 0
    for pod in state.pods:
        exclusive |= pod.cpus
        for container in pod.containers:
            exclusive |= container.cpus
    reserved = _reserved(state) & ~exclusive
    pools: dict[tuple[int, str], CPUSet] = {}
    for numa, cpus in state.machine.cpus_of_numa_node.items():
        pools[numa, EXCLUSIVE] = cpus & exclusive
        pools[numa, RESERVED] = cpus & reserved
        pools[numa, SHARED] = cpus & ~exclusive & ~reserved
    return pools


def _reserved(state: NodeState) -> CPUSet:
    """The reserved CPUs of the settings. For an amount alone, the CPUs that the static policy picks."""
    if state.kubelet.reserved_cpus is not None:
        return state.kubelet.reserved_cpus
    kubelet = start(state.machine, state.kubelet)
    return 0 if isinstance(kubelet, str) or kubelet.cpu is None else kubelet.cpu.reserved


def read_times() -> _Times:
    """The seconds of each CPU by id, in the order of MODES; empty if CPUs changed during it, or none can be read.

    psutil returns CPUs in the order of /proc/stat, without ids and without offline CPUs. The ids therefore come from
    the same file, read before and after.
    """
    try:
        before = tuple(_ids())
        times = psutil.cpu_times(percpu=True)
        after = tuple(_ids())
    except OSError:
        return {}
    if before != after or len(times) != len(after):
        return {}
    return {cpu: tuple(float(getattr(spent, mode)) for mode in MODES) for cpu, spent in zip(after, times, strict=True)}


def _ids() -> Iterator[int]:
    stat = Path(psutil.PROCFS_PATH, "stat").read_text()
    yield from map(int, re.findall(r"^cpu(\d+) ", stat, re.MULTILINE))
