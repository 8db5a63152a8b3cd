"""The contended cluster's machines, and pods of mixed sizes that arrive and end at random.

The same seed gives the same arrivals to every way of placing them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from topomend.sandbox import NodeSpec

GPU = "vendor.com/gpu"

MACHINES = (
    NodeSpec.of_shape("small", "sockets:1 numa:2 cores:4 memory:8Gi", topology_manager_policy="single-numa-node"),
    NodeSpec.of_shape(
        "whole-pods",
        f"sockets:1 numa:2 cores:6 memory:8Gi device:{GPU}@0=1,1=1",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
    ),
    NodeSpec.of_shape(
        "four",
        "sockets:2 numa:2 cores:4 memory:4Gi",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
    ),
    NodeSpec.of_shape(
        "threads",
        f"sockets:2 numa:1 cores:4 threads:2 memory:8Gi device:{GPU}@0=1,1=1",
        topology_manager_policy="restricted",
    ),
)
"""Four machines of different width, policy and scope; 48 CPUs for pods."""

SIZES = {1: 4, 2: 6, 3: 5, 4: 5, 5: 2, 6: 2}
"""How many pods in 24 ask for so many CPUs. Every size fits on one NUMA node of some empty machine."""

MEAN_SECONDS = 20.0
"""How long a pod runs on average. A kubelet reuses a pod's CPUs only 1.5 s after its end: shorter pods would mostly
measure that delay, and of longer ones too few would arrive during a run."""

LONGEST = 5
"""No pod runs longer than so many times the average."""


@dataclass(frozen=True)
class Arrival:
    """A pod that arrives ``at`` seconds after the start and, once started, runs for ``seconds``."""

    name: str
    at: float
    seconds: int
    cpus: int
    manifest: dict[str, Any]


def arrivals(chance: Random, pods: int, load: float, mean_seconds: float = MEAN_SECONDS) -> list[Arrival]:
    """Poisson arrivals that use ``load`` (a part of 1) of all CPUs on average.

    The arrivals are stretched to exactly that load. Otherwise the loads of two seeds would differ by up to a quarter,
    and their waits would show the load rather than the placement.
    """
    drawn, now = [], 0.0
    for number in range(pods):
        now += chance.expovariate(1.0)
        drawn.append(_arrival(chance, f"pod-{number:04}", now, mean_seconds))
    return stretched(drawn, sum(arrival.cpus * arrival.seconds for arrival in drawn) / (load * free_cpus()))


def stretched(drawn: Sequence[Arrival], seconds: float) -> list[Arrival]:
    """The same arrivals, of which the last one comes after so many seconds."""
    return [replace(arrival, at=arrival.at * seconds / drawn[-1].at) for arrival in drawn]


def free_cpus() -> int:
    """The CPUs of all machines that are not reserved."""
    return sum((spec.machine.cpus & ~(spec.kubelet.reserved_cpus or 0)).bit_count() for spec in MACHINES)


def _arrival(chance: Random, name: str, at: float, mean_seconds: float) -> Arrival:
    cpus = chance.choices(list(SIZES), list(SIZES.values()))[0]
    seconds = min(1 + int(chance.expovariate(1 / mean_seconds)), int(LONGEST * mean_seconds))
    parts = [cpus] if cpus == 1 or chance.random() < 0.75 else [cpus // 2, cpus - cpus // 2]
    containers = [_container(f"part-{index}", part, seconds) for index, part in enumerate(parts)]
    if chance.random() < 0.1:
        containers[0]["resources"]["limits"][GPU] = "1"
    return Arrival(name, at, seconds, cpus, _pod(name, containers))


def _container(name: str, cpus: int, seconds: int) -> dict[str, Any]:
    limits = {"cpu": str(cpus), "memory": f"{64 * cpus}Mi"}
    return {
        "name": name,
        "image": "sandbox/sleep",
        "command": ["sleep", str(seconds)],
        "resources": {"limits": limits},
    }


def _pod(name: str, containers: list[dict[str, Any]]) -> dict[str, Any]:
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
