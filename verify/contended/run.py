"""Runs the arrivals on real kubelets, under the plain scheduler alone or with topomend."""

import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import psutil
from deploy.manifests import objects
from tests.deploy.api import administrator, path_of
from tests.live.conftest import start_agent
from tests.processes import end
from verify.contended.arrivals import LONGEST, MACHINES, MEAN_SECONDS, Arrival
from verify.contended.outcome import Outcome, Stay

from topomend.kube.client import Client, connect
from topomend.kube.errors import APIError, Unanswered
from topomend.kube.resources import NAMESPACES, NODE_TOPOLOGIES, PODS
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.processes.host import free_ports

ROOT = Path(__file__).parents[2]

NAMESPACE = "contended"

WORKLOADS = ("DaemonSet", "Deployment")
"""These are not installed: a sandbox runs no containers, so agents and operator run as processes."""

QUIET_SECONDS = LONGEST * MEAN_SECONDS + 15.0
"""A run ends after so long without a change: no pod runs for longer, and the next one starts at once."""


class Way(Enum):
    """How pods are placed."""

    PLAIN = "plain scheduler"
    RELAUNCHED = "topomend, relaunching"
    STEERED = "topomend, steering"


class DidNotStart(RuntimeError):
    """The cluster or a part of topomend was not ready in time."""


class Observer:
    """Watches the pods of the namespace and records when each ran first, ended, and was refused."""

    def __init__(self, kubeconfig: Path, stays: dict[str, Stay], began: float) -> None:
        self._stays, self._began = stays, began
        self._refused: set[str] = set()
        self.last_change = began
        self._stream = _watch(kubeconfig)
        threading.Thread(target=self._observe, daemon=True).start()

    def _observe(self) -> None:
        for line in self._stream:
            self._record(json.loads(line)["object"], time.monotonic())

    def _record(self, pod: dict[str, Any], now: float) -> None:
        metadata, status = pod["metadata"], pod["status"]
        stay = self._stays.get(metadata["name"])
        if stay is None:
            return
        self.last_change = now
        phase = status.get("phase")
        if phase == "Failed" and metadata["uid"] not in self._refused:
            self._refused.add(metadata["uid"])
            stay.refused += 1
        if phase in ("Running", "Succeeded") and stay.ran is None:
            stay.ran = now - self._began
        if phase == "Succeeded" and stay.ended is None:
            stay.ended = now - self._began


def _watch(kubeconfig: Path) -> Iterable[bytes]:
    """The watch events of the namespace's pods, one a line, until the API server stops."""
    api = administrator(kubeconfig)
    request = urllib.request.Request(  # noqa: S310 - the sandbox's own server
        f"{api.server}/api/v1/namespaces/{NAMESPACE}/pods?watch=1&timeoutSeconds=86400",
        headers={"Authorization": f"Bearer {api.token}"},
    )
    trust = ssl.create_default_context(cadata=api.authority)
    stream: Iterable[bytes] = urllib.request.urlopen(request, context=trust, timeout=86400)  # noqa: S310
    return stream


@dataclass
class Cost:
    """The operator's memory and CPU time."""

    process: psutil.Process
    peak_rss: int = 0
    began: float = field(default_factory=time.monotonic)
    used_before: float = 0.0

    def sample(self) -> None:
        """Record the resident set if it is the largest so far."""
        self.peak_rss = max(self.peak_rss, self.process.memory_info().rss)

    def restart(self) -> None:
        """Count the CPU time from now on."""
        self.began, self.used_before = time.monotonic(), self._used()

    def __str__(self) -> str:
        self.sample()
        share = (self._used() - self.used_before) / (time.monotonic() - self.began)
        return f"operator: peak RSS {self.peak_rss / 2**20:.0f} MiB, CPU {1000 * share:.0f} m"

    def _used(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


def of_release(machines: Sequence[NodeSpec], version: str) -> Sequence[NodeSpec]:
    """The machines with kubelets of that release."""
    return [replace(spec, kubelet=replace(spec.kubelet, version=version)) for spec in machines]


def run(way: Way, arrivals: Sequence[Arrival], folder: Path, version: str = DEFAULT_VERSION) -> Outcome:
    """Create the pods as they arrive, and wait until the last has ended. Logs go to ``folder``. Raises DidNotStart."""
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox.up(of_release(MACHINES, version), version=version))
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        cost = None if way is Way.PLAIN else stack.enter_context(topomend_on(sandbox, client, MACHINES, folder))
        labels = {"topomend.io/steer": "enabled"} if way is Way.STEERED else {}
        metadata = {"name": NAMESPACE, "labels": labels}
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        wait_for_account(client)
        return _play(way, arrivals, sandbox, client, cost)


def _play(way: Way, arrivals: Sequence[Arrival], sandbox: Sandbox, client: Client, cost: Cost | None) -> Outcome:
    began = time.monotonic()
    stays = {arrival.name: Stay(arrival, arrival.at) for arrival in arrivals}
    observer = Observer(sandbox.kubeconfig, stays, began)
    for stay in stays.values():
        time.sleep(max(0.0, began + stay.arrival.at - time.monotonic()))
        stay.came = time.monotonic() - began
        client.create(PODS, stay.arrival.manifest, NAMESPACE)
        if cost:
            cost.sample()
    while (
        any(stay.ended is None for stay in stays.values()) and time.monotonic() < observer.last_change + QUIET_SECONDS
    ):
        time.sleep(0.5)
        if cost:
            cost.sample()
    return Outcome(way.value, list(stays.values()), str(cost) if cost else "")


@contextmanager
def topomend_on(sandbox: Sandbox, client: Client, machines: Sequence[NodeSpec], folder: Path) -> Iterator[Cost]:
    """Install topomend, and run an agent beside each kubelet, and the operator."""
    with agents_on(sandbox, client, machines, folder), ExitStack() as stack:
        operator = start_operator(sandbox.kubeconfig, folder / "operator.log", *webhook_flags())
        stack.callback(end, operator)
        wait("the operator to list", lambda: "the cluster is listed" in (folder / "operator.log").read_text())
        wait("new pods to be gated", lambda: "applied for new pods" in (folder / "operator.log").read_text())
        yield Cost(psutil.Process(operator.pid))


@contextmanager
def agents_on(sandbox: Sandbox, client: Client, machines: Sequence[NodeSpec], folder: Path) -> Iterator[None]:
    """Install topomend, run an agent beside each kubelet, and wait until all have published. No operator runs."""
    install(sandbox)
    with ExitStack() as stack:
        for spec in machines:
            stack.callback(end, start_agent(sandbox, spec.name, folder / f"agent-{spec.name}.log"))
        wait("the agents to publish", lambda: len(client.list(NODE_TOPOLOGIES).items) == len(machines))
        yield


def webhook_flags() -> tuple[str, str]:
    """An operator's own address, which is asked about new pods where the API server has no policies."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    return f"--webhook-address={address}", f"--webhook-url=https://{address}"


def install(sandbox: Sandbox) -> None:
    """Install every manifest but the workloads. Raises DidNotStart."""
    admin = administrator(sandbox.kubeconfig)
    for item in objects():
        if item["kind"] not in WORKLOADS:
            answer = admin.apply(path_of(item), item)
            if not answer.allowed:
                raise DidNotStart(answer.message)


def start_operator(kubeconfig: Path, log: Path, *flags: str) -> subprocess.Popen[bytes]:
    """Start the operator as a process."""
    with log.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "topomend.cli", "operator", *flags],
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "operator")},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )


def wait_for_account(client: Client, namespace: str = NAMESPACE) -> None:
    """Wait until the namespace has a service account: until then the API server accepts no pod."""
    trial = {"containers": [{"name": "main", "image": "sandbox/true", "command": ["true"]}], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": trial}

    def is_created() -> bool:
        try:
            client.create(PODS, pod, namespace)
        except APIError:
            return False
        return True

    wait("the namespace's service account", is_created)
    wait("a pod to run and end", lambda: client.get(PODS, "trial", namespace)["status"].get("phase") == "Succeeded")


def wait(goal: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until ``condition`` is true. Raises DidNotStart after so many seconds; ``goal`` completes "waited for".

    Where the API server of a busy machine does not answer in time, it is asked again.
    """
    deadline = time.monotonic() + seconds
    while not _is_true(condition):
        if time.monotonic() > deadline:
            raise DidNotStart(f"waited {seconds:.0f} s for {goal}")
        time.sleep(0.1)


def _is_true(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except Unanswered:
        return False
