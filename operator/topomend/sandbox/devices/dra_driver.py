"""The sandbox's DRA driver: it publishes each node's devices and prepares claims, over the kubelet's real gRPC API.

One process serves all nodes, with a socket for each node and driver. The kubelet finds the socket in its folder, asks
for the plugin's name, and registers it (pluginmanager/pluginwatcher). From then on the driver keeps its ResourceSlice,
with the identity of that kubelet: a starting kubelet deletes the slices of its node
(cm/dra/plugin/dra_plugin_manager.go:wipeResourceSlices). A file lists the devices (``dra_plan``); starting this process
is left to ``supervisor``.
"""

import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from topomend.model.nodes.node_state import Device
from topomend.sandbox.api import API
from topomend.sandbox.devices import dra_objects, dra_plan
from topomend.sandbox.devices import dra_pb2 as messages
from topomend.sandbox.devices import dra_pb2_grpc as service
from topomend.sandbox.devices import pluginregistration_pb2 as registration
from topomend.sandbox.devices import pluginregistration_pb2_grpc as registration_service

PLUGIN_TYPE, SUPPORTED = "DRAPlugin", ("v1.DRAPlugin",)
"""The type of plugin, and the services that it has, as the kubelet names them (pkg/apis/dra/v1/types.go). Every kubelet
that knows claims by default knows this one."""

LOOK_EVERY = 0.5
"""Seconds between two checks whether the kubelet deleted a slice."""


class Driver(service.DRAPluginServicer, registration_service.RegistrationServicer):
    """The devices of one driver on one node. ``kubelet`` is the kubelet's root directory, ``api`` has its identity."""

    def __init__(self, api: API, node: str, driver: str, devices: Sequence[Device], kubelet: Path) -> None:
        self._api, self._node, self._driver, self._devices = api, node, driver, devices
        self._socket = kubelet / "plugins_registry" / f"{driver}.sock"
        self._registered = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))

    def start(self) -> None:
        """Listen. The kubelet registers the driver when it sees the socket, and again whenever it starts."""
        self._socket.unlink(missing_ok=True)
        service.add_DRAPluginServicer_to_server(self, self._server)
        registration_service.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def stop(self) -> None:
        """Stop listening."""
        self._server.stop(grace=None).wait()

    def keep_published(self) -> None:
        """Create the node's ResourceSlice if it is not there. Without an answer, the next call tries again."""
        path = f"{dra_objects.GROUP}/resourceslices"
        if not self._registered.is_set() or self._api.get(f"{path}/{dra_objects.slice_name(self._node, self._driver)}"):
            return
        node = self._api.get(f"/api/v1/nodes/{self._node}")
        if node is None or not self._api.create(path, dra_objects.resource_slice(node, self._driver, self._devices)):
            sys.stderr.write(f"{self._driver} on {self._node}: its devices are not published yet\n")

    def GetInfo(  # noqa: N802 - gRPC names it
        self, request: registration.InfoRequest, context: grpc.ServicerContext
    ) -> registration.PluginInfo:
        """The driver's name, and the services that this socket has beside the registration."""
        del request, context
        return registration.PluginInfo(type=PLUGIN_TYPE, name=self._driver, supported_versions=SUPPORTED)

    def NotifyRegistrationStatus(  # noqa: N802 - gRPC names it
        self, request: registration.RegistrationStatus, context: grpc.ServicerContext
    ) -> registration.RegistrationStatusResponse:
        """Publish the devices once the kubelet can use them."""
        del context
        if request.plugin_registered:
            self._registered.set()
        else:
            sys.stderr.write(f"{self._driver} on {self._node}: the kubelet did not register it: {request.error}\n")
        return registration.RegistrationStatusResponse()

    def NodePrepareResources(  # noqa: N802 - gRPC names it
        self, request: messages.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> messages.NodePrepareResourcesResponse:
        """Give each claim the devices that the scheduler allocated to it."""
        del context
        return messages.NodePrepareResourcesResponse(
            claims={claim.uid: self.prepare(claim) for claim in request.claims}
        )

    def NodeUnprepareResources(  # noqa: N802 - gRPC names it
        self, request: messages.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> messages.NodeUnprepareResourcesResponse:
        """Nothing was set up, so there is nothing to undo."""
        del context
        undone = {claim.uid: messages.NodeUnprepareResourceResponse() for claim in request.claims}
        return messages.NodeUnprepareResourcesResponse(claims=undone)

    def prepare(self, claim: messages.Claim) -> messages.NodePrepareResourceResponse:
        """The devices of one claim, or an error for which the kubelet tries again."""
        content = self._api.get(f"{dra_objects.GROUP}/namespaces/{claim.namespace}/resourceclaims/{claim.name}")
        if content is None or content["metadata"]["uid"] != claim.uid:
            return messages.NodePrepareResourceResponse(error=f"the claim {claim.name} of {claim.uid} cannot be read")
        return messages.NodePrepareResourceResponse(devices=list(self._allocated(content)))

    def _allocated(self, claim: Mapping[str, Any]) -> Iterator[messages.Device]:
        allocation = claim.get("status", {}).get("allocation", {})
        for result in allocation.get("devices", {}).get("results", ()):
            if result["driver"] == self._driver:
                yield messages.Device(
                    request_names=[result["request"]],
                    pool_name=result["pool"],
                    device_name=result["device"],
                    cdi_device_ids=[f"{self._driver}/device={result['device']}"],
                )


def _drivers(plan: dra_plan.Plan) -> Iterable[Driver]:
    for node in plan.nodes:
        api = API(plan.host, plan.port, Path(plan.authority), node.token)
        for resource in dict.fromkeys(device.resource for device in node.devices):
            devices = [device for device in node.devices if device.resource == resource]
            yield Driver(api, node.node, dra_objects.driver_of(resource), devices, Path(node.kubelet))


def main() -> None:
    """Serve the drivers that the plan in the folder of the one argument describes, until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before the first thread, so that none receives it
    drivers = list(_drivers(dra_plan.Plan.read(Path(sys.argv[1]))))
    for driver in drivers:
        driver.start()
    while signal.sigtimedwait({signal.SIGTERM}, LOOK_EVERY) is None:
        for driver in drivers:
            driver.keep_published()
    for driver in drivers:
        driver.stop()


if __name__ == "__main__":
    main()
