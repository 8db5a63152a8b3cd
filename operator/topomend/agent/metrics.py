"""The agent's Prometheus metrics. Owns their names.

Imported only if an address is given: the Prometheus library costs memory on every node. No label names a pod. The HTTP
server is left to ``runtime.http.endpoints``, CPU seconds to ``cpu_seconds``.
"""

import collections
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from topomend import __version__
from topomend.agent.cpu_seconds import EXCLUSIVE, SHARED, CPUSeconds
from topomend.alignment.container import Alignment, align_allocation
from topomend.discover.features.zones import zones
from topomend.discover.pod_resources.pod_resources import ALLOCATABLE, LIST
from topomend.model.nodes.node_state import NodeState, allocations
from topomend.runtime.http.process_metrics import add_process_metrics, metrics_page

ALIGNMENTS = (
    (EXCLUSIVE, Alignment.NUMA_NODE),
    (EXCLUSIVE, Alignment.SOCKET),
    (EXCLUSIVE, Alignment.SPLIT),
    (SHARED, Alignment.NUMA_NODE),
    (SHARED, Alignment.FLOATING),
)
"""The alignments that containers of each pool can have while they hold anything."""


class Metrics:
    """What the agent counts. ``live`` says whether the published machine is the one that the agent runs on.

    Only then CPU seconds are counted.
    """

    def __init__(self, *, live: bool = True) -> None:
        self.registry = registry = CollectorRegistry()
        add_process_metrics(registry)
        self._cpu_seconds = CPUSeconds() if live else None
        if self._cpu_seconds is not None:
            registry.register(self._cpu_seconds)
        Info("topomend_agent_build", "The agent's version.", registry=registry).info({"version": __version__})
        self._duration = Histogram(
            "topomend_agent_discovery_duration_seconds",
            "Time to read the machine and the kubelet.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=registry,
        )
        self._publishes = Counter(
            "topomend_agent_publishes",
            "Attempts to publish, by result: written, unchanged or failed.",
            ["result"],
            registry=registry,
        )
        for result in ("written", "unchanged", "failed"):
            self._publishes.labels(result)
        self._last_success = Gauge(
            "topomend_agent_last_success_timestamp_seconds",
            "When the API server last had the node's current state, in Unix time.",
            registry=registry,
        )
        self._cpus = Gauge(
            "topomend_agent_numa_cpus",
            "Logical CPUs, by numa and state: exclusive or shared.",
            ["numa", "state"],
            registry=registry,
        )
        self._devices = Gauge(
            "topomend_agent_numa_devices",
            "Devices, by numa (empty without a NUMA node), resource and state: allocated, free or unhealthy.",
            ["numa", "resource", "state"],
            registry=registry,
        )
        self._memory = Gauge(
            "topomend_agent_numa_memory_bytes",
            "Memory, by numa and state: exclusive (pinned by the Memory Manager) or shared.",
            ["numa", "state"],
            registry=registry,
        )
        self._containers = Gauge(
            "topomend_agent_containers",
            "Containers that hold exclusive CPUs, pinned memory or devices, by the pool of their CPUs and alignment.",
            ["pool", "alignment"],
            registry=registry,
        )
        self._pod_resources_errors = Counter(
            "topomend_agent_podresources_errors",
            "Requests to the kubelet's pod-resources that were not answered, by method.",
            ["method"],
            registry=registry,
        )
        for method in (LIST, ALLOCATABLE):
            self._pod_resources_errors.labels(method)
        self._counted: dict[str, int] = {}
        self._shown: NodeState | None = None
        self.page = metrics_page(registry)

    def published(self, state: NodeState, seconds: float, errors: Mapping[str, int], *, wrote: bool) -> None:
        """Record a success. ``seconds`` is the time of its discovery, ``errors`` the failed requests by method."""
        self._note_errors(errors)
        self._duration.observe(seconds)
        self._publishes.labels("written" if wrote else "unchanged").inc()
        self._last_success.set_to_current_time()
        if state is not self._shown:
            self._shown = state
            self._show(state)
            if self._cpu_seconds is not None:
                self._cpu_seconds.show(state)

    def failed(self, errors: Mapping[str, int]) -> None:
        """Record a failed attempt to publish."""
        self._note_errors(errors)
        self._publishes.labels("failed").inc()

    def _note_errors(self, errors: Mapping[str, int]) -> None:
        for method, count in errors.items():
            self._pod_resources_errors.labels(method).inc(count - self._counted.get(method, 0))
            self._counted[method] = count

    def _show(self, state: NodeState) -> None:
        exclusive = 0
        sizes = {node.id: node.memory for node in state.machine.numa_nodes}
        allocated = set()
        for container in allocations(state.pods):
            exclusive |= container.cpus
            allocated |= {(devices.resource, name) for devices in container.devices for name in devices.ids}
        for node in state.machine.numa_nodes:
            cpus = state.machine.cpus_of_numa_node.get(node.id, 0)
            self._cpus.labels(node.id, "exclusive").set((cpus & exclusive).bit_count())
            self._cpus.labels(node.id, "shared").set((cpus & ~exclusive).bit_count())
        for zone in zones(state):
            pinned = sum(item.allocatable - item.available for item in zone.resources if item.name == "memory")
            self._memory.labels(zone.numa_node, "exclusive").set(pinned)
            self._memory.labels(zone.numa_node, "shared").set(sizes[zone.numa_node] - pinned)
        self._show_containers(state)
        self._devices.clear()
        for device in state.devices:
            use = (
                "allocated" if (device.resource, device.id) in allocated else "free" if device.healthy else "unhealthy"
            )
            for numa in device.numa_nodes or ("",):
                self._devices.labels(numa, device.resource, use).inc()

    def _show_containers(self, state: NodeState) -> None:
        """Count the containers, without init containers: what those held is their pod's until it ends."""
        counts = collections.Counter[tuple[str, Alignment]]()
        for pod in state.pods:
            answers = [align_allocation(state, pod, container) for container in pod.containers if not container.init]
            counts.update((EXCLUSIVE if answer.cpus else SHARED, answer.alignment) for answer in answers)
        for pool, alignment in ALIGNMENTS:
            self._containers.labels(pool, alignment.value).set(counts[pool, alignment])
