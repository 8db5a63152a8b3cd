"""The agent's loop: read the sources, assemble a discovery, publish it if it changed, wait, repeat.

Owns when each source is read and when a failed publication is retried. Reading, contradictions and the written object
are left to the rooms that it composes.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from topomend.agent.health import Health
from topomend.discover.allocations import AllocationReader, Allocations
from topomend.discover.assemble import Discovery, assemble
from topomend.discover.host import Host, read_host
from topomend.discover.kubelet_config import KubeletConfig, mark_of
from topomend.discover.kubelet_config.kubelet_process import PROC
from topomend.discover.kubelet_config.layouts import cure
from topomend.discover.kubelet_settings import SettingsReader, WrittenConfig
from topomend.discover.machine.udev import MachineChanges, UdevUnavailable
from topomend.kube.agent_client import AgentClient
from topomend.kube.connection.kubeconfig import NotConfigured
from topomend.kube.connection.reader_token import ReaderToken
from topomend.kube.errors import APIError, retry_after
from topomend.kube.kubelet_client import DEFAULT_PORT, Configz, KubeletClient
from topomend.publish.bounded import bounded
from topomend.publish.publisher import NodeFacts, Publisher
from topomend.runtime.backoff import Exponential, Retry
from topomend.runtime.http.endpoints import METRICS, Endpoints
from topomend.runtime.http.server import Page
from topomend.runtime.interrupt import Interrupt
from topomend.wire.published.node_topology import status_of

if TYPE_CHECKING:
    from topomend.agent.metrics import Metrics

HOST_SECONDS = 600.0
"""The machine is read again after this long even without a notification from the kernel."""

SETTLE_SECONDS = 1.0
"""The delay after a notification: device changes come in bursts, and sysfs lags behind."""

DELAYS = Exponential(1.0, 10.0, jitter=0.5)
"""Short enough to publish within 10 s of the API server's return. While it is away, 5,000 agents then send some 700
requests a second, each answered by a closed port or a 503."""

PUBLISHED, USAGE, CANNOT_ASK = 0, 2, 3

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentSettings:
    """The agent's flags. ``interval`` is in seconds; ``kubelet_version`` overrides the version in the Node object.
    ``kubelet_root_dir`` is the host's name of ``kubelet_state``, where that is a mount.

    ``kubelet_address`` (host, or host:port) is the kubelet's endpoint for ``/configz``, None not to request it. The
    request carries a token of the service account ``kubelet_reader`` (namespace/name).
    Addresses to listen on are HOST:PORT, None for none. ``node_features`` is the namespace of the node's NodeFeature,
    None not to write one.
    """

    node_name: str
    kubelet_config: Path | None = None
    kubelet_config_dir: Path | None = None
    kubelet_flags: Path | None = None
    pod_resources: Path | None = None
    kubelet_state: Path | None = None
    kubelet_root_dir: str | None = None
    kubelet_version: str | None = None
    kubelet_address: str | None = None
    kubelet_ca: Path | None = None
    kubelet_tls_verify: str = "preferred"
    kubelet_reader: str = "topomend-agent/topomend-kubelet-reader"
    root: Path = Path("/")
    interval: float = 0.75
    once: bool = False
    health_address: str | None = None
    metrics_address: str | None = None
    node_resource_topology: bool = False
    node_features: str | None = None


def run(settings: AgentSettings) -> int:
    """Publish until SIGTERM or SIGINT, or once. Returns the exit code.

    0 is success, 2 an address or account that cannot be used, 3 a cluster that cannot be asked. The loop retries every
    failure; it gives up at once only without a cluster configuration.
    """
    try:
        client = AgentClient()
    except NotConfigured as error:
        _log.error("%s", error)
        return CANNOT_ASK
    try:
        watcher = _Watcher(settings, _kubelet(settings, client))
    except ValueError as error:
        _log.error("the kubelet cannot be asked: %s", error)
        client.close()
        return USAGE
    health, metrics = Health(), _metrics(settings)
    try:
        endpoints = _serve(settings, health, metrics)
    except CannotListen as error:
        _log.error("%s", error)
        client.close()
        return USAGE
    agent = _Agent(
        watcher,
        Publisher(client, settings.node_name, time.monotonic),
        tuple(_second_publishers(settings, client)),
        health,
        metrics,
    )
    try:
        if settings.once:
            return agent.once()
        agent.repeatedly(settings.interval, _stopped_by_signals())
    except _Stopped:
        _log.info("stopped by a signal")
        return PUBLISHED
    finally:
        client.close()
        for served in endpoints:
            served.close()


class CannotListen(Exception):
    """An address on which nothing can listen, by its flag."""


def _serve(settings: AgentSettings, health: Health, metrics: "Metrics | None") -> Sequence[Endpoints]:
    """The endpoints of health and metrics, one where both have the same address. Raises CannotListen."""
    if settings.once:
        return ()
    pages: dict[str, dict[str, Callable[[], Page]]] = {}
    if settings.health_address is not None:
        pages[settings.health_address] = dict(health.pages())
    if settings.metrics_address is not None and metrics is not None:
        pages[settings.metrics_address] = {METRICS: metrics.page, **health.pages()}
    served: list[Endpoints] = []
    for address, pages_there in pages.items():
        try:
            served.append(Endpoints(address, pages_there))
        except (OSError, ValueError, OverflowError) as error:
            for other in served:
                other.close()
            flag = "--metrics-address" if address == settings.metrics_address else "--health-address"
            raise CannotListen(f"{flag} {address} cannot be listened on: {error}") from error
    return served


def _metrics(settings: AgentSettings) -> "Metrics | None":
    if settings.metrics_address is None or settings.once:
        return None
    # Imported only if metrics are enabled: the library costs memory on every node.
    from topomend.agent.metrics import Metrics  # noqa: PLC0415

    return Metrics(live=settings.root == Path("/"))


class _Stopped(BaseException):
    """A signal asked for the end."""


def _stopped_by_signals() -> Interrupt:
    """Have the first signal raise _Stopped in the main thread.

    That ends the agent in the middle of a request too, which may take 10 s to fail. Nothing is half written: a server
    takes a request whole, or not at all.
    """

    stop = Interrupt(_Stopped)

    def handle(number: int, frame: FrameType | None) -> None:
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        stop.came(number, frame)

    for number in _SIGNALS:
        signal.signal(number, handle)
    return stop


_SecondPublisher = Callable[[Discovery, Mapping[str, Any], NodeFacts], Mapping[str, Any]]
"""Publishes another object, and returns the status with the condition that says whether that succeeded.

It never raises APIError: the NodeTopology is published whatever becomes of the others.
"""


def _second_publishers(settings: AgentSettings, client: AgentClient) -> Iterator[_SecondPublisher]:
    """Those that are enabled. Imported only then, like the metrics."""
    if settings.node_resource_topology:
        yield _zones_publisher(settings.node_name, client)
    if settings.node_features is not None:
        yield _features_publisher(settings.node_name, settings.node_features, client)


def _zones_publisher(name: str, client: AgentClient) -> _SecondPublisher:
    from topomend.discover.features.zones import placements, zones  # noqa: PLC0415
    from topomend.publish.node_resource_topology import Figures, NodeResourceTopologyPublisher  # noqa: PLC0415

    publisher = NodeResourceTopologyPublisher(client, name, time.monotonic)

    def publish(discovery: Discovery, status: Mapping[str, Any], node: NodeFacts) -> Mapping[str, Any]:
        state = discovery.state
        figures = Figures(state.kubelet, discovery.pods, partial(zones, state), partial(placements, state))
        return publisher.publish(figures, status, node)

    return publish


def _features_publisher(name: str, namespace: str, client: AgentClient) -> _SecondPublisher:
    from topomend.discover.features.node_features import node_features  # noqa: PLC0415
    from topomend.publish.node_feature import NodeFeaturePublisher  # noqa: PLC0415

    publisher = NodeFeaturePublisher(client, name, namespace, time.monotonic)

    def publish(discovery: Discovery, status: Mapping[str, Any], node: NodeFacts) -> Mapping[str, Any]:
        state = discovery.state
        source = (state.machine, state.kubelet)
        return publisher.publish(lambda ready: node_features(state, is_ready=ready), source, status, node)

    return publish


@dataclass(frozen=True)
class _Agent:
    """The parts of a running agent; ``others`` publish further objects, ``metrics`` is None if it is not enabled."""

    watcher: "_Watcher"
    publisher: Publisher
    others: Sequence[_SecondPublisher]
    health: Health
    metrics: "Metrics | None"

    def once(self) -> int:
        """Publish once; returns the exit code."""
        try:
            self._publish()
        except APIError as error:
            _log.error("the NodeTopology was not published: %s", error)
            return CANNOT_ASK
        return PUBLISHED

    def repeatedly(self, interval: float, stop: Interrupt) -> NoReturn:
        """Publish changes every ``interval`` seconds until a signal. Raises the error of ``stop``."""
        retry = Retry(DELAYS)
        while True:
            stop.raise_if_lost()
            self.health.turned()
            if time.monotonic() >= retry.until:
                try:
                    self._publish()
                    retry.succeeded()
                except APIError as error:
                    if self.metrics is not None:
                        self.metrics.failed(self.watcher.errors)
                    delay = retry.failed(time.monotonic(), retry_after(error))
                    _log.warning("not published, trying again in %.0f s: %s", delay, error)
                if self.watcher.kubelet_restarted():
                    self.publisher.kubelet_restarted()
            time.sleep(interval)

    def _publish(self) -> None:
        node = self.publisher.node()
        start = time.monotonic()
        discovery, status = self.watcher.look(node)
        took = time.monotonic() - start
        for publish in self.others:
            status = publish(discovery, status, node)
        wrote = self.publisher.publish(status)
        self.health.published()
        if self.metrics is not None:
            self.metrics.published(discovery.state, took, self.watcher.errors, wrote=wrote)
        if wrote:
            ready = discovery.conditions[0]
            _log.info("published %s: Ready %s, %s", discovery.state.name, ready.status, ready.message)


class _Watcher:
    """Reads every source, and assembles a new discovery only if one of them changed."""

    def __init__(self, settings: AgentSettings, kubelet: KubeletClient | None) -> None:
        self._settings, self._kubelet = settings, kubelet
        self._node = NodeFacts("", "")
        self._reader = AllocationReader(
            settings.pod_resources,
            settings.kubelet_state,
            root_dir=settings.kubelet_root_dir,
            node_name=settings.node_name,
        )
        live = settings.root == Path("/")
        self._config = SettingsReader(
            WrittenConfig(settings.kubelet_config, settings.kubelet_config_dir, settings.kubelet_flags),
            configz=self._configz if kubelet else None,
            proc=PROC if live else None,
            socket=settings.pod_resources,
            cure=lambda: cure(self._node.kubelet_version, self._node.os_image, self._node.marks),
        )
        self._changes = _machine_changes() if live else None
        self._host: Host | None = None
        self._host_due = 0.0
        self._last_read: tuple[Host, KubeletConfig, Allocations] | None = None
        self._latest: tuple[Discovery, Mapping[str, Any]] | None = None
        self._answers = True
        self._socket_mark: object = None
        self._restarted = False

    def look(self, node: NodeFacts) -> tuple[Discovery, Mapping[str, Any]]:
        """Discover the node now: what was discovered, and the status to publish. Both are the same until it changes."""
        self._node = node
        host = self._read_host()
        config = self._read_config()
        allocations = self._reader.read(lists_ended=config.lists_ended_pods, lists_cpus=config.lists_cpus)
        if self._note_kubelet_answers(allocations):
            # A kubelet that started meanwhile may have other settings than the one before it.
            config = self._read_config()
        if self._latest is None or self._last_read != (host, config, allocations):
            self._last_read = (host, config, allocations)
            discovery = assemble(self._settings.node_name, host, config, allocations)
            status = status_of(discovery.state, discovery.summary, discovery.conditions, discovery.claims)
            self._latest = discovery, bounded(status)
        return self._latest

    @property
    def errors(self) -> Mapping[str, int]:
        """The number of failed pod-resources requests so far, by method."""
        return self._reader.errors

    def kubelet_restarted(self) -> bool:
        """Whether the kubelet has a new socket, or answers again after an outage; True once."""
        restarted, self._restarted = self._restarted, False
        return restarted

    def _read_config(self) -> KubeletConfig:
        return self._config.read(self._settings.kubelet_version or self._node.kubelet_version or None)

    def _configz(self) -> Configz:
        assert self._kubelet is not None  # noqa: S101 - SettingsReader has no configz otherwise
        return self._kubelet.configz(self._node.uid, self._node.kubelet_port or DEFAULT_PORT)

    def _note_kubelet_answers(self, allocations: Allocations) -> bool:
        """Whether the kubelet has made its socket anew; and whether it answers is noted."""
        answers = allocations.reason != "PodResourcesUnavailable"
        has_new_socket = self._has_new_socket()
        self._restarted = self._restarted or has_new_socket or (answers and not self._answers)
        if answers != self._answers:
            _log.log(
                logging.INFO if answers else logging.WARNING, "%s", allocations.problem or "the kubelet answers again"
            )
        self._answers = answers
        return has_new_socket

    def _has_new_socket(self) -> bool:
        """Whether the kubelet has made its socket anew: a restart between two polls shows by nothing else."""
        socket = self._settings.pod_resources
        mark = mark_of(socket) if socket else None
        if mark is None or not any(mark):
            return False
        before, self._socket_mark = self._socket_mark, mark
        return before not in (None, mark)

    def _read_host(self) -> Host:
        now = time.monotonic()
        if self._changes is not None and self._changes.happened():
            self._host_due = min(self._host_due, now + SETTLE_SECONDS)
        if self._host is not None and now < self._host_due:
            return self._host
        self._host_due = now + HOST_SECONDS
        host = read_host(self._settings.root)
        # Keep the object of an equal machine: replay caches its results by identity.
        if self._host is None or self._host != host:
            self._host = host
        return self._host


def _kubelet(settings: AgentSettings, client: AgentClient) -> KubeletClient | None:
    """The client of the kubelet, None if no address is given. Raises ValueError for a malformed address or account."""
    if settings.kubelet_address is None:
        return None
    return KubeletClient(
        settings.kubelet_address,
        settings.node_name,
        ReaderToken(client, settings.kubelet_reader, settings.node_name),
        tls=client.access.authorities,
        authority=settings.kubelet_ca,
        must_verify=settings.kubelet_tls_verify == "required",
    )


def _machine_changes() -> MachineChanges | None:
    try:
        return MachineChanges()
    except UdevUnavailable as error:
        _log.warning("%s: the machine is read again every %.0f s", error, HOST_SECONDS)
        return None
