"""``python -m verify.pictures.examples FOLDER``: the pictures of docs/pictures, each drawn by its command.

A cluster that does not change is served, and ``kubectl numa`` asks it. The files are the same on every
machine: a drawing has no size that depends on a font. So a test compares them byte by byte with what the code makes.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.builders import node_state, pod, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists, cluster_of

from topomend.cli.kubectl_numa import numa
from topomend.model.machine import PCIDevice
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import REFUSAL_PREFIX
from topomend.model.shapes.shape import parse_shape
from topomend.picture.form import SVG

PIN = {"memory_manager": "Static"}

TWO = "sockets:2 cores:8 threads:2 memory:64Gi hugepages-1Gi:8 device:nvidia.com/gpu@0=2,1=2"
"""Two NUMA nodes, as most servers have them."""

EIGHT = (
    "sockets:2 numa:4 cores:16 threads:2 l3:2 memory:192Gi "
    "device:nvidia.com/gpu@0=1,1=1,2=1,3=1,4=1,5=1,6=1,7=1 device:nvidia.com/nic@0=1,2=1,4=1,6=1"
)
"""256 CPUs on 8 NUMA nodes, with 8 GPUs: the largest machine that the object's size is meant for."""

HYBRID = "cores:6 threads:2 ecores:8 numbering:adjacent memory:32Gi"
CXL = (
    "sockets:2 cores:12 threads:2 memory:128Gi cpuless:2x256Gi "
    "distances:10,21,14,24/21,10,24,14/14,24,10,26/24,14,26,10"
)


@dataclass(frozen=True)
class Workload:
    """A pod with the ``containers`` main, and sidecar where there are two, on ``node`` or waiting; refused by one."""

    name: str
    containers: Sequence[str]
    node: str = ""
    refused: bool = False
    owner: str = ""

    @property
    def pod(self) -> Pod:
        """As replay admits it."""
        made = pod(self.name, *self.containers, uid=f"uid-{self.name}", namespace="default")
        named = zip(made.containers, NAMES, strict=False)
        return replace(made, containers=tuple(replace(container, name=name) for container, name in named))

    @property
    def manifest(self) -> dict[str, Any]:
        """As the API has it."""
        containers = [_container(name, text) for name, text in zip(NAMES, self.containers, strict=False)]
        phase = "Failed" if self.refused else "Running" if self.node else "Pending"
        created = "2026-01-01T00:00:00Z"
        status: dict[str, Any] = {"phase": phase, "startTime": created}
        if self.refused:
            reason = f"{REFUSAL_PREFIX}Resources cannot be allocated with Topology locality"
            status |= {"reason": "TopologyAffinityError", "message": reason}
        elif self.node:
            status["containerStatuses"] = [{"name": each["name"], "state": {"running": {}}} for each in containers]
        metadata: dict[str, Any] = {"namespace": "default", "uid": f"uid-{self.name}", "creationTimestamp": created}
        if self.owner:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.owner, "uid": self.owner, "controller": True}
            metadata["ownerReferences"] = [owner]
        return pod_manifest(self.name, *containers, node=self.node, status=status, **metadata)


NAMES = ("main", "sidecar")


def _container(name: str, text: str) -> dict[str, Any]:
    """A container as the builders read it, under its own name."""
    [made] = pod_manifest("p", text)["spec"]["containers"]
    return {**made, "name": name}


def server(name: str, shape: str, *workloads: Workload, policy: str = "single-numa-node", **settings: str) -> NodeState:
    """A node with the whole hardware of the machine, on which those of ``workloads`` run that are bound to it."""
    here = [each.pod for each in workloads if each.node == name and not each.refused]
    state = node_state(shape, policy, name=name, pods=here, **settings)
    return replace(state, machine=parse_shape(shape).machine())


@dataclass(frozen=True)
class Example:
    """A picture: the file's name, the cluster, the command, and its exit code."""

    name: str
    cluster: Callable[[], ServedLists]
    command: Sequence[str]
    code: int = 0


TRAIN, INFER, ETL = (
    Workload("train-9", ["cpu=6 memory=20Gi nvidia.com/gpu=1", "cpu=2 memory=4Gi hugepages-1Gi=2Gi"], "gpu-01"),
    Workload("infer-2", ["cpu=4 memory=30Gi nvidia.com/gpu=1"], "gpu-01"),
    Workload("etl", ["cpu=2 memory=8Gi"], "gpu-01"),
)


def two_numa_nodes() -> ServedLists:
    """A server with pods, huge pages, GPUs and other PCI devices."""
    workloads = TRAIN, INFER, ETL
    settings = {"reserved_cpus": "0,16", "reserved_memory": "1Gi,1Gi", **PIN}
    state = server("gpu-01", TWO, *workloads, **settings)
    return _served([replace(state, machine=replace(state.machine, pci_devices=PCI))], workloads)


PCI = (
    PCIDevice(
        "0000:17:00.0", 0x020000, 0x15B3, 0x1021, "Mellanox", "MT2910 [ConnectX-7]", "mlx5_core", 0, names=("eth0",)
    ),
    PCIDevice("0000:1c:00.0", 0x030200, 0x10DE, 0x2330, "NVIDIA", "GH100 [H100 SXM5]", "nvidia", 0),
    PCIDevice("0000:1d:00.0", 0x030200, 0x10DE, 0x2330, "NVIDIA", "GH100 [H100 SXM5]", "nvidia", 0),
    PCIDevice("0000:9a:00.0", 0x030200, 0x10DE, 0x2330, "NVIDIA", "GH100 [H100 SXM5]", "nvidia", 1),
    PCIDevice("0000:9b:00.0", 0x030200, 0x10DE, 0x2330, "NVIDIA", "GH100 [H100 SXM5]", "nvidia", 1),
    PCIDevice("0000:a1:00.0", 0x010802, 0x144D, 0xA80A, "Samsung", "PM9A3", "nvme", 1, names=("nvme0n1",)),
)


def eight_numa_nodes() -> ServedLists:
    """The largest server, with a pod for most GPUs, and one that spans two NUMA nodes' memory."""
    workloads = [
        Workload(
            f"train-{number}", [f"cpu={12 + 2 * (number % 4)} memory={48 + 16 * number}Gi nvidia.com/gpu=1"], "hgx-1"
        )
        for number in range(7)
    ]
    workloads.append(Workload("loader", ["cpu=8 memory=24Gi nvidia.com/nic=1"], "hgx-1"))
    reserved = ",".join(["1Gi"] * 8)
    state = server("hgx-1", EIGHT, *workloads, reserved_cpus="0-1,128-129", reserved_memory=reserved, **PIN)
    return _served([state], workloads)


def hybrid() -> ServedLists:
    """A processor with two kinds of cores, one CPU isolated."""
    workloads = [Workload("game", ["cpu=4 memory=4Gi"], "desk-1"), Workload("batch", ["cpu=3 memory=2Gi"], "desk-1")]
    state = server("desk-1", HYBRID, *workloads, policy="best-effort", reserved_cpus="0-1")
    return _served([replace(state, machine=replace(state.machine, isolated=1 << 19))], workloads)


def memory_only() -> ServedLists:
    """A server with CXL memory, which is on NUMA nodes without CPUs. A database has memory on two NUMA nodes."""
    workloads = [
        Workload("db", ["cpu=8 memory=180Gi"], "cxl-1"),
        Workload("cache", ["cpu=4 memory=40Gi"], "cxl-1"),
    ]
    reserved = {"reserved_cpus": "0,24", "reserved_memory": "1Gi,1Gi,1Gi,1Gi"}
    state = server("cxl-1", CXL, *workloads, policy="best-effort", **reserved, **PIN)
    return _served([state], workloads)


def pool() -> ServedLists:
    """A hundred nodes of four NUMA nodes each, on which pods of several sizes have come and gone."""
    shape = "sockets:2 numa:2 cores:16 memory:64Gi device:nvidia.com/gpu@0=1,1=1,2=1,3=1"
    sizes = (3, 6, 10, 12, 14, 5)
    workloads = [
        Workload(
            f"job-{number}-{each}",
            [f"cpu={sizes[(number * 7 + each * 5) % 6]} memory=4Gi nvidia.com/gpu=1"],
            f"n-{number:03}",
        )
        for number in range(100)
        for each in range((number * 11) % 5)
    ]
    states = [
        server(f"n-{number:03}", shape, *[each for each in workloads if each.node == f"n-{number:03}"])
        for number in range(100)
    ]
    waiting = [Workload(f"wide-{number}", ["cpu=12 memory=8Gi nvidia.com/gpu=1"]) for number in range(6)]
    return _served(states, [*workloads, *waiting])


@cache
def few_nodes() -> tuple[tuple[NodeState, ...], tuple[Workload, ...]]:
    """Four nodes on which pods are in each other's way, and who runs, was refused, or waits there."""
    shape = "sockets:2 cores:8 memory:32Gi device:nvidia.com/gpu@0=1,1=1"
    running = (
        Workload("web-1", ["cpu=4 memory=6Gi"], "gpu-01", owner="web"),
        Workload("web-2", ["cpu=5 memory=6Gi"], "gpu-01", owner="web"),
        Workload("train-3", ["cpu=3 memory=20Gi nvidia.com/gpu=1", "cpu=1 memory=1Gi"], "gpu-02", owner="train"),
        Workload("train-4", ["cpu=6 memory=8Gi"], "gpu-02"),
        Workload("etl-7", ["cpu=3 memory=4Gi", "request:cpu=1"], "gpu-03"),
        Workload("etl-8", ["cpu=6 memory=28Gi nvidia.com/gpu=1"], "gpu-03"),
        Workload("wide", ["cpu=12 memory=40Gi nvidia.com/gpu=1"], "gpu-04"),
        Workload("serve", ["cpu=1500m memory=1Gi nvidia.com/gpu=1"], "gpu-04"),
    )
    others = (
        Workload(
            "train-9", ["cpu=6 memory=8Gi nvidia.com/gpu=1", "cpu=1 memory=1Gi"], "gpu-01", refused=True, owner="train"
        ),
        Workload("train-10", ["cpu=7 memory=16Gi nvidia.com/gpu=1"]),
    )
    settings = {"reserved_cpus": "0", "reserved_memory": "1Gi,1Gi", **PIN}
    states = [server(f"gpu-0{number}", shape, *running, **settings) for number in range(1, 4)]
    states.append(server("gpu-04", shape, *running, policy="best-effort", **settings))
    return tuple(states), (*running, *others)


def few() -> ServedLists:
    """The same as a cluster."""
    states, workloads = few_nodes()
    return _served(states, workloads)


def _served(states: Iterable[NodeState], workloads: Iterable[Workload]) -> ServedLists:
    """The cluster, whose other lists are empty."""
    served = cluster_of(states, [each.manifest for each in workloads])
    for node in served.items["nodes"]:
        node["metadata"]["labels"]["karpenter.sh/nodepool"] = "gpu"
    for plural in ("relaunches", "poddisruptionbudgets", "priorityclasses", "deviceclasses", "events"):
        served.items[plural] = []
    return served


EXAMPLES: Sequence[Example] = (
    Example("node", two_numa_nodes, ["show", "gpu-01"]),
    Example("node-256-cpus", eight_numa_nodes, ["show", "hgx-1"]),
    Example("node-hybrid", hybrid, ["show", "desk-1"]),
    Example("node-memory-only", memory_only, ["show", "cxl-1"]),
    Example("pool", pool, ["show", "--summary"]),
    Example("explain-refused", few, ["explain", "pod/train-9"], 1),
    Example("explain-waiting", few, ["explain", "pod/train-10"], 1),
    Example("make-room", few, ["make-room", "pod/train-10"]),
    Example("what-if", few, ["what-if", "--policy", "single-numa-node,restricted,none"]),
    Example("aligned", few, ["aligned"]),
)
"""Ten pictures, one of each kind that people meet."""


def drawn(example: Example, output: str) -> str:
    """What the command prints. Raises AssertionError if it ends otherwise than it should."""
    with tempfile.TemporaryDirectory() as folder, kubeconfig_of(example.cluster(), Path(folder)) as kubeconfig:
        result = CliRunner().invoke(numa, [*example.command, "-o", output, "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == example.code, result.output
    return result.stdout


def main() -> None:
    """Write the pictures as SVG into a folder."""
    folder = Path(sys.argv[1])
    for example in EXAMPLES:
        (folder / f"{example.name}.svg").write_text(drawn(example, SVG))


if __name__ == "__main__":
    main()
