"""Machines and kubelets for the tests of discovery: trees on disk, and a pod-resources server of one's own."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from topomend.discover import podresources_pb2 as messages


class Lister:
    """The kubelet's side of pod-resources, with answers that a test sets: messages, or what stands in for one."""

    def __init__(self) -> None:
        self.listed = messages.ListPodResourcesResponse()
        self.allocatable = messages.AllocatableResourcesResponse()
        self.raw: dict[str, bytes] = {}

    def answer(self, method: str) -> bytes:
        message = {"List": self.listed, "GetAllocatableResources": self.allocatable}[method]
        return self.raw.get(method, message.SerializeToString())


def _method(lister: Lister, name: str) -> "grpc.RpcMethodHandler[bytes, bytes]":
    return grpc.unary_unary_rpc_method_handler(lambda _request, _context: lister.answer(name))


@contextmanager
def serving(socket: Path, lister: Lister) -> Iterator[None]:
    """A server of gRPC's own library."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    methods = {name: _method(lister, name) for name in ("List", "GetAllocatableResources")}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(grace=None).wait()


def container(
    name: str,
    cpus: Sequence[int] = (),
    memory: Mapping[int, int] | None = None,
    devices: Sequence[messages.ContainerDevices] = (),
) -> messages.ContainerResources:
    """``memory`` in bytes by NUMA node, a block for each."""
    return messages.ContainerResources(
        name=name,
        cpu_ids=cpus,
        devices=devices,
        memory=[
            messages.ContainerMemory(memory_type="memory", size=size, topology=on(node))
            for node, size in (memory or {}).items()
        ],
    )


def pod(name: str, *containers: messages.ContainerResources) -> messages.PodResources:
    return messages.PodResources(name=name, namespace="default", containers=containers)


def on(*nodes: int) -> messages.TopologyInfo:
    return messages.TopologyInfo(nodes=[messages.NUMANode(ID=node) for node in nodes])


def write_state(folder: Path, name: str, content: Any) -> None:
    """Replace a state file whole, as the kubelet does."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f".{place.name}")
    partial.write_text(json.dumps(content))
    partial.replace(place)


def cpu_state(entries: Mapping[str, Mapping[str, str]], pool: str = "0") -> dict[str, Any]:
    return {"policyName": "static", "defaultCpuSet": pool, "entries": entries, "checksum": 1}
