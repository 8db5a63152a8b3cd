"""The sandbox's device plugin: it offers the devices of each node to that node's kubelet, over the real gRPC API.

One process serves all nodes. It registers again whenever a kubelet has a new socket, because a starting kubelet removes
every plugin's socket and forgets the plugin (devicemanager/plugin/v1beta1/server.go:Start). A file lists the devices;
starting this process is left to ``supervisor``.
"""

import json
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from topomend.model.nodes.node_state import Device
from topomend.sandbox.devices import deviceplugin_pb2 as messages
from topomend.sandbox.devices import deviceplugin_pb2_grpc as service

API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

LOOK_EVERY = 0.1
"""Seconds between two checks for a new kubelet socket."""


class Plugin(service.DevicePluginServicer):
    """One resource of one node. ``folder`` holds the kubelet's socket and the plugin's own."""

    def __init__(self, folder: Path, resource: str, devices: Sequence[Device]) -> None:
        self._folder, self._resource, self._devices = folder, resource, devices
        self._order = {device.id: position for position, device in enumerate(sorted(devices, key=_sort_key))}
        self._registered_with: tuple[int, int] | None = None
        self._server: grpc.Server | None = None
        self._stopped = threading.Event()

    def keep_registered(self) -> None:
        """Register if the kubelet has a new socket. If the kubelet does not answer, the next call tries again."""
        try:
            socket_status = (self._folder / KUBELET_SOCKET).stat()
        except FileNotFoundError:
            return
        socket = (socket_status.st_ino, socket_status.st_ctime_ns)
        if socket == self._registered_with:
            return
        try:
            self._register()
        except grpc.RpcError as error:
            sys.stderr.write(f"{self._resource}: the kubelet did not register it yet: {error}\n")
            return
        self._registered_with = socket

    def _register(self) -> None:
        self._stopped.set()
        if self._server is not None:
            self._server.stop(grace=None).wait()
        self._stopped = threading.Event()
        endpoint = re.sub(r"[^a-z0-9]", "-", self._resource.lower()) + ".sock"
        (self._folder / endpoint).unlink(missing_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        service.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._folder / endpoint}")
        self._server.start()
        with grpc.insecure_channel(f"unix:{self._folder / KUBELET_SOCKET}") as channel:
            request = messages.RegisterRequest(
                version=API_VERSION, endpoint=endpoint, resource_name=self._resource, options=_options()
            )
            service.RegistrationStub(channel).Register(request, timeout=5)

    def GetDevicePluginOptions(  # noqa: N802 - gRPC names it
        self, request: messages.Empty, context: grpc.ServicerContext
    ) -> messages.DevicePluginOptions:
        """The optional calls that this plugin supports."""
        del request, context
        return _options()

    def ListAndWatch(  # noqa: N802 - gRPC names it
        self, request: messages.Empty, context: grpc.ServicerContext
    ) -> Iterator[messages.ListAndWatchResponse]:
        """Send the devices with their NUMA nodes once, and keep the stream open as long as the kubelet listens."""
        del request
        stopped = self._stopped
        context.add_callback(stopped.set)
        yield messages.ListAndWatchResponse(devices=[_message(device) for device in self._devices])
        stopped.wait()

    def GetPreferredAllocation(  # noqa: N802 - gRPC names it
        self, request: messages.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> messages.PreferredAllocationResponse:
        """Prefer the required devices, then the lowest by NUMA node and number: a reproducible choice."""
        del context
        responses = [
            messages.ContainerPreferredAllocationResponse(
                deviceIDs=self.preferred(
                    container.available_deviceIDs, container.must_include_deviceIDs, container.allocation_size
                )
            )
            for container in request.container_requests
        ]
        return messages.PreferredAllocationResponse(container_responses=responses)

    def Allocate(  # noqa: N802 - gRPC names it
        self, request: messages.AllocateRequest, context: grpc.ServicerContext
    ) -> messages.AllocateResponse:
        """Pass each container its devices in an environment variable that is named after the resource."""
        del context
        name = re.sub(r"[^A-Z0-9]", "_", self._resource.upper())
        return messages.AllocateResponse(
            container_responses=[
                messages.ContainerAllocateResponse(envs={name: ",".join(container.devices_ids)})
                for container in request.container_requests
            ]
        )

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
        """``size`` of the ``available`` ids, ``must_include`` first, the others by NUMA node and natural order."""
        others = sorted(
            set(available) - set(must_include), key=lambda device_id: self._order.get(device_id, len(self._order))
        )
        return [*must_include, *others][:size]


def _options() -> messages.DevicePluginOptions:
    return messages.DevicePluginOptions(get_preferred_allocation_available=True)


def _sort_key(device: Device) -> tuple[tuple[int, ...], list[tuple[int, str]]]:
    """A sort key: the NUMA nodes, then the id in natural order, ``gpu-0-10`` after ``gpu-0-9``."""
    pieces = re.findall(r"\d+|\D+", device.id)
    return device.numa_nodes or (), [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces]


def _message(device: Device) -> messages.Device:
    health = HEALTHY if device.healthy else UNHEALTHY
    if device.numa_nodes is None:
        return messages.Device(ID=device.id, health=health)
    nodes = [messages.NUMANode(ID=node) for node in device.numa_nodes]
    return messages.Device(ID=device.id, health=health, topology=messages.TopologyInfo(nodes=nodes))


def _read(document: Any) -> list[Plugin]:
    return [
        Plugin(
            Path(plugin["folder"]),
            plugin["resource"],
            [
                Device(
                    plugin["resource"],
                    device["id"],
                    None if device["numa_nodes"] is None else tuple(device["numa_nodes"]),
                    device["healthy"],
                )
                for device in plugin["devices"]
            ],
        )
        for plugin in document
    ]


def main() -> None:
    """Serve the plugins that the file named by the one argument describes, until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before the first thread, so that none receives it
    plugins = _read(json.loads(Path(sys.argv[1]).read_text()))
    while signal.sigtimedwait({signal.SIGTERM}, LOOK_EVERY) is None:
        for plugin in plugins:
            plugin.keep_registered()


if __name__ == "__main__":
    main()
