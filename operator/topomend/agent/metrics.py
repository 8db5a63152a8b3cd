"""The agent's Prometheus metrics and its health, over HTTP on request. Owns their names and when the agent is unwell.

Imported only where an address is given: the Prometheus library costs memory on every node. No pod is named.
"""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from topomend import __version__
from topomend.model.node_state import NodeState, allocations

STALE_SECONDS = 120.0
"""Without a success for this long ``/healthz`` answers 500: several attempts at the longest back-off."""


class Metrics:
    """Serves ``/metrics`` and ``/healthz`` on ``address`` (host:port; without a host, this host alone).

    Raises OSError where it cannot listen there, ValueError or OverflowError where that is no address.
    """

    def __init__(self, address: str, stale_seconds: float = STALE_SECONDS) -> None:
        self._stale_seconds = stale_seconds
        self._succeeded = time.monotonic()
        registry = CollectorRegistry()
        Info("topomend_agent_build", "The agent's version.", registry=registry).info({"version": __version__})
        self._duration = Histogram(
            "topomend_agent_discovery_duration_seconds",
            "Time to look at the machine and at the kubelet.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=registry,
        )
        self._publishes = Counter(
            "topomend_agent_publishes", "Attempts to publish, by result.", ["result"], registry=registry
        )
        for result in ("written", "unchanged", "failed"):
            self._publishes.labels(result)
        self._last_success = Gauge(
            "topomend_agent_last_success_timestamp_seconds",
            "When the server last was known to hold what the node is.",
            registry=registry,
        )
        self._cpus = Gauge(
            "topomend_agent_numa_cpus", "Logical CPUs of a NUMA node, by use.", ["numa", "state"], registry=registry
        )
        self._devices = Gauge(
            "topomend_agent_numa_devices",
            "Devices of a NUMA node, by use; numa is empty for devices without a NUMA node.",
            ["numa", "resource", "state"],
            registry=registry,
        )
        self._shown: NodeState | None = None
        self._server = _listen(address, registry, self.problem)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def published(self, state: NodeState, seconds: float, *, wrote: bool) -> None:
        """Note a success, and how long the look before it took."""
        self._duration.observe(seconds)
        self._publishes.labels("written" if wrote else "unchanged").inc()
        self._last_success.set_to_current_time()
        self._succeeded = time.monotonic()
        if state is not self._shown:
            self._shown = state
            self._show(state)

    def failed(self) -> None:
        """Note that nothing could be published."""
        self._publishes.labels("failed").inc()

    def problem(self) -> str:
        """What is wrong, empty where nothing is."""
        age = time.monotonic() - self._succeeded
        return f"nothing was published or confirmed for {age:.0f} s" if age > self._stale_seconds else ""

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _show(self, state: NodeState) -> None:
        held = 0
        held_devices = set()
        for container in allocations(state.pods):
            held |= container.cpus
            held_devices |= {(each.resource, name) for each in container.devices for name in each.ids}
        for node in state.machine.numa_nodes:
            cpus = state.machine.cpus_of_numa_node.get(node.id, 0)
            self._cpus.labels(node.id, "exclusive").set((cpus & held).bit_count())
            self._cpus.labels(node.id, "shared").set((cpus & ~held).bit_count())
        self._devices.clear()
        for device in state.devices:
            use = "held" if (device.resource, device.id) in held_devices else "free" if device.healthy else "unhealthy"
            for numa in device.numa_nodes or ("",):
                self._devices.labels(numa, device.resource, use).inc()


def _listen(address: str, registry: CollectorRegistry, problem: Callable[[], str]) -> ThreadingHTTPServer:
    host, _, port = address.rpartition(":")

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))
            elif self.path == "/healthz":
                found = problem()
                self._answer(500 if found else 200, "text/plain; charset=utf-8", f"{found or 'ok'}\n".encode())
            else:
                self._answer(404, "text/plain; charset=utf-8", b"/metrics and /healthz are here\n")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not logged."""

    return ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
