"""CPU seconds by NUMA node and pool, for Prometheus: whether exclusive CPUs idle beside a busy shared pool.

Imported only where metrics are asked for, as psutil costs memory on every node. The kernel counts by CPU since it
booted. Here is added up, since the agent started, what each CPU spent while it was in a pool: a CPU that changes pools
takes nothing along, so that no counter ever goes backwards.
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
from topomend.model.node_state import NodeState
from topomend.replay.container_manager import start

NAME = "topomend_agent_numa_cpu_seconds"

EXCLUSIVE, RESERVED, SHARED = "exclusive", "reserved", "shared"
POOLS = (EXCLUSIVE, SHARED, RESERVED)

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""proc_stat(5)'s, but for guest and guest_nice: the kernel counts these in user and nice as well."""

_Times = Mapping[int, tuple[float, ...]]
"""The seconds of each CPU by its id, in the order of MODES."""

_log = logging.getLogger(__name__)


class CPUSeconds(Collector):
    """The counters, brought up to date when they are scraped and when a CPU changes pools."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: Mapping[tuple[int, str], CPUSet] = {}
        self._cpus: CPUSet = 0
        self._before: _Times = {}
        self._seconds: dict[tuple[int, str], list[float]] = {}
        self._complained = False

    def show(self, state: NodeState) -> None:
        """From now on CPUs are in the pools that ``state`` says."""
        pools = pools_of(state)
        with self._lock:
            if (pools, state.machine.cpus) == (self._pools, self._cpus):
                return
            if not self._add_up():
                self._before = {}  # what was spent since is of the pools before, or of other CPUs
            self._pools, self._cpus = pools, state.machine.cpus
            for place in pools:
                self._seconds.setdefault(place, [0.0] * len(MODES))
            self._add_up()

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The seconds until now."""
        family = CounterMetricFamily(
            NAME, "Seconds that the CPUs of a NUMA node spent in each mode, by pool.", labels=("numa", "pool", "mode")
        )
        with self._lock:
            self._add_up()
            for (numa, pool), seconds in sorted(self._seconds.items()):
                for mode, spent in zip(MODES, seconds, strict=True):
                    family.add_metric((str(numa), pool, mode), spent)
        yield family

    def describe(self) -> Iterable[CounterMetricFamily]:
        """Its name, so that no other metric takes it."""
        return [CounterMetricFamily(NAME, "")]

    def _add_up(self) -> bool:
        """Add what each CPU spent since the last time to the pool that it was in; false where that is not known now."""
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
            # The kernel's idle and iowait may step back, and a CPU that was offline may begin anew (proc_stat(5)).
            seconds[number] += max(0.0, later - earlier)

    def _read(self) -> _Times:
        """The times of the machine's CPUs; none where /proc/stat is not of this machine's CPUs."""
        times = read_times()
        cpus = mask_of(times)
        # An empty answer is a CPU that comes or goes at this moment. Other CPUs than the machine's are another
        # machine's: one that was made up, or one that a container runtime shows in place of the host's.
        if not times or cpus == self._cpus:
            return times
        if self._cpus and not self._complained:
            self._complained = True
            _log.warning(
                "no CPU seconds are counted while /proc/stat is of CPUs %s and the machine has %s",
                format_id_list(cpus),
                format_id_list(self._cpus),
            )
        return {}


def pools_of(state: NodeState) -> Mapping[tuple[int, str], CPUSet]:
    """The CPUs of each pool of each NUMA node, empty sets included, by the NUMA node's id and the pool's name.

    Exclusive is what pods or containers hold, reserved what the kubelet keeps for the system (and, unless option
    strict-cpu-reservation is set, lets other pods use as well), shared all the rest.
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
    """Those that the settings name; where they name an amount alone, those that the static policy picks for it."""
    if state.kubelet.reserved_cpus is not None:
        return state.kubelet.reserved_cpus
    kubelet = start(state.machine, state.kubelet)
    return 0 if isinstance(kubelet, str) or kubelet.cpu is None else kubelet.cpu.reserved


def read_times() -> _Times:
    """What psutil reads of each CPU, by its id; empty where CPUs came or went meanwhile, or nothing can be read.

    psutil tells the CPUs in the order of /proc/stat without their ids, and offline ones are missing there: the ids are
    those of the same file, read before and after.
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
