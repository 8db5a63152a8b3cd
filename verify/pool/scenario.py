"""The pool's machines and the pods that come: a GPU CI site whose narrow and wide pods could share all machines.

The site is pytorch/ci-infra. Its machine p5.48xlarge has two NUMA nodes, each of 96 CPUs (48 cores of two threads), 4
GPUs and 1 TiB. A GPU goes with 22 CPUs and 225Gi: 88 CPUs for 4 GPUs fit on one NUMA node. It runs at most 48, 24, 12
and 6 runners of 1, 2, 4 and 8 GPUs at a time, so each size asks for as many GPUs in total as any other. Its kubelets'
CPU Manager is static and their Memory Manager has the policy None.
"""

from random import Random
from typing import Any

from verify.contended.arrivals import Arrival, stretched

from topomend.sandbox import NodeSpec

MACHINE, GPU, GPUS_A_MACHINE = "p5.48xlarge", "nvidia.com/gpu", 8

MACHINES = 8

RUNNERS = {1: 48, 2: 24, 4: 12, 8: 6}
"""How many pods of so many GPUs come in 90."""

MEAN_SECONDS, LONGEST = 600.0, 5
"""A pod runs for minutes: so many seconds on average, and at most so many times as long."""


def machines(policy: str, scope: str = "pod", first: int = 0, number: int = MACHINES) -> list[NodeSpec]:
    """Machines whose kubelets have a policy, named from node-``first`` on."""
    return [
        NodeSpec.of_shape(
            f"node-{index}",
            MACHINE,
            topology_manager_policy=policy,
            topology_manager_scope=scope,
            memory_manager_policy="None",
        )
        for index in range(first, first + number)
    ]


def arrivals(chance: Random, pods: int, load: float) -> list[Arrival]:
    """Poisson arrivals that use ``load`` (a part of 1) of all GPUs on average, stretched to exactly that."""
    drawn, now = [], 0.0
    for number in range(pods):
        now += chance.expovariate(1.0)
        drawn.append(_arrival(chance, f"pod-{number:04}", now))
    gpu_seconds = sum(gpus_of(arrival) * arrival.seconds for arrival in drawn)
    return stretched(drawn, gpu_seconds / (load * MACHINES * GPUS_A_MACHINE))


def gpus_of(arrival: Arrival) -> int:
    """How many GPUs the pod asks for."""
    return int(arrival.manifest["spec"]["containers"][0]["resources"]["limits"][GPU])


def runner(name: str, gpus: int) -> dict[str, Any]:
    """The manifest of a pod of so many GPUs."""
    limits = {"cpu": str(22 * gpus), "memory": f"{225 * gpus}Gi", GPU: str(gpus)}
    containers = [{"name": "job", "resources": {"limits": limits}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


def _arrival(chance: Random, name: str, at: float) -> Arrival:
    gpus = chance.choices(list(RUNNERS), list(RUNNERS.values()))[0]
    seconds = min(1 + int(chance.expovariate(1 / MEAN_SECONDS)), int(LONGEST * MEAN_SECONDS))
    return Arrival(name, at, seconds, 22 * gpus, runner(name, gpus))
