"""``python -m verify.bench.agent_cost``: what an agent costs its node, beside the kubelet on the same node.

A sandbox node runs 110 pods, each with one exclusive CPU, and the agent as installed (the flags of
deploy/base/agent.yaml; ``--kubelet-state`` and metrics on request). For ``--minutes`` nothing changes. Then pods start
and end one at a time, which gives the time from the kubelet's decision, and from phase Running, to the publication.
Memory and CPU time are what ``ps`` shows; requests are what the API server counted. Exits with 1 if a target is missed.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import yaml
from kubernetes.client import CoreV1Api, CustomObjectsApi
from kubernetes.config import new_client_from_config
from kubernetes.watch import Watch
from tests.live.conftest import install_kinds
from tests.waiting import eventually
from urllib3.exceptions import HTTPError
from verify.targets import Target, judge

from topomend.kube.client import Client, connect
from topomend.kube.resources import NODE_TOPOLOGIES, PODS
from topomend.publish.publisher import HEARTBEAT_SECONDS
from topomend.sandbox import NodeSpec, Sandbox, registry
from topomend.sandbox.plan import kubelet_program
from topomend.wire.published.node_topology import HEARTBEAT

ROOT = Path(__file__).parents[2]
NODE = "cost"
SHAPE = "sockets:2 numa:2 cores:32 threads:1 memory:128Gi device:vendor.com/gpu@0=4,1=4,2=4,3=4"
MAX_RSS, MAX_MILLICORES, MAX_DELAY_SECONDS = 48 << 20, 5.0, 2.0
WAIT_SECONDS = 120.0


def main() -> int:
    """Measure, and compare with the targets."""
    options = _options()
    spec = NodeSpec.of_shape(NODE, SHAPE, topology_manager_policy="single-numa-node")
    with Sandbox.up([spec], on_progress=print) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        install_kinds(client)
        kubelet = _kubelet(sandbox)
        with _agent(sandbox, options) as agent:
            names = [f"steady-{number}" for number in range(options.pods)]
            for name in names:
                client.create(PODS, _pod(name), "default")
            eventually("all pods to be published", lambda: _published(client) == set(names), WAIT_SECONDS)
            time.sleep(options.settle)
            idle = _measure_idle(sandbox, client, agent, kubelet, options.minutes * 60)
            print(idle, flush=True)
            print(_ps(agent, kubelet), flush=True)
            delays = _delays(sandbox, client, options.changes)
            print(delays, flush=True)
            last_rss = psutil.Process(agent.pid).memory_info().rss
        client.close()
    peak_rss = max(idle.rss["agent"], last_rss)
    return judge([Target("agent peak RSS", peak_rss / (1 << 20), MAX_RSS >> 20, "MiB"), *idle.targets, *delays.targets])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long nothing changes (default: %(default)s)")
    parser.add_argument("--pods", type=int, default=110, help="pods on the node (default: %(default)s)")
    parser.add_argument("--changes", type=int, default=100, help="pods that then start and end (default: %(default)s)")
    parser.add_argument(
        "--settle", type=float, default=10.0, help="seconds before the measurement (default: %(default)s)"
    )
    parser.add_argument("--metrics", action="store_true", help="the agent serves /metrics")
    parser.add_argument("--state", action="store_true", help="the agent also reads the kubelet's state files")
    parser.add_argument("--flag", action="append", default=[], help="one more flag of the agent")
    return parser.parse_args()


@contextmanager
def _agent(sandbox: Sandbox, options: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    container = _manifest()["spec"]["template"]["spec"]["containers"][0]
    node = sandbox.node(NODE)
    meant = {"$(NODE_NAME)": NODE, "$(POD_IP)": "127.0.0.1"}
    flags = [
        reduce(lambda text, name: text.replace(name, meant[name]), meant, argument)
        for argument in container["args"]
        if not argument.startswith("--kubelet-")  # no account of the sandbox may ask its kubelet
    ]
    flags += [f"--kubelet-config={node.kubelet_config}"]
    flags += ["--metrics-address=127.0.0.1:0"] if options.metrics else []
    flags += [f"--kubelet-state={node.kubelet_state}"] if options.state else []
    environment = {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    process = subprocess.Popen(
        [*sandbox.exec_prefix(NODE), str(Path(sys.executable).with_name("topomend")), *flags, *options.flag],
        env={**os.environ, **environment, "KUBECONFIG": str(sandbox.kubeconfig), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(15)


def _manifest() -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "base" / "agent.yaml").read_text())
    return manifest


def _kubelet(sandbox: Sandbox) -> psutil.Process:
    """The process of the node's kubelet."""
    programs = {program.name: program.pid for program in registry.status(sandbox.name).programs}
    return psutil.Process(programs[kubelet_program(NODE)])


def _pod(name: str) -> dict[str, Any]:
    limits = {"cpu": "1", "memory": "64Mi"}
    spec = {
        "nodeName": NODE,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
    }
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _published(client: Client) -> set[str]:
    """The names of the published pods."""
    objects = client.list(NODE_TOPOLOGIES).items
    return {pod["name"] for item in objects for pod in item.get("status", {}).get("pods", ())}


# While nothing changes


@dataclass(frozen=True)
class Idle:
    """The cost of a time without changes, by program. ``requests`` are the API server's counts by verb.

    ``has_heartbeat``: a heartbeat was written meanwhile. It answers no change; the agent sends one in ten minutes.
    """

    seconds: float
    rss: dict[str, int]
    millicores: dict[str, float]
    requests: dict[str, int]
    has_heartbeat: bool

    @property
    def writes(self) -> int:
        """Requests that wrote a NodeTopology."""
        return sum(count for verb, count in self.requests.items() if verb not in {"GET", "LIST", "WATCH"})

    @property
    def max_writes(self) -> int:
        """How many writes heartbeats explain."""
        return int(self.seconds // HEARTBEAT_SECONDS) + 1 if self.has_heartbeat else 0

    @property
    def targets(self) -> list[Target]:
        """CPU and writes of the agent."""
        return [
            Target("agent CPU", self.millicores["agent"], MAX_MILLICORES, "m"),
            Target("writes without a change", self.writes, self.max_writes),
        ]

    def __str__(self) -> str:
        lines = [f"nothing changes for {self.seconds:.0f} s"]
        lines += [f"  {name:8} RSS {_mib(self.rss[name])}   CPU {self.millicores[name]:6.2f} m" for name in self.rss]
        rss, cpu = (measure["agent"] / measure["kubelet"] for measure in (self.rss, self.millicores))
        lines.append(f"  ratio    RSS {rss:10.0%}   CPU {cpu:8.0%}")
        counts = ", ".join(f"{count} {verb}" for verb, count in sorted(self.requests.items()) if count) or "none"
        heartbeat = " (heartbeat)" if self.has_heartbeat else ""
        lines.append(f"  requests for NodeTopologies: {counts}; writes {self.writes}{heartbeat}")
        return "\n".join(lines)


def _measure_idle(
    sandbox: Sandbox, client: Client, agent: subprocess.Popen[bytes], kubelet: psutil.Process, seconds: float
) -> Idle:
    processes = {"agent": psutil.Process(agent.pid), "kubelet": kubelet}
    heartbeat = _heartbeat(client)
    requests = _requests(sandbox)
    used = {name: _cpu_seconds(process) for name, process in processes.items()}
    began = time.monotonic()
    rss = dict.fromkeys(processes, 0)
    while time.monotonic() - began < seconds:
        time.sleep(min(1.0, seconds))
        rss = {name: max(rss[name], process.memory_info().rss) for name, process in processes.items()}
    took = time.monotonic() - began
    millicores = {name: (_cpu_seconds(process) - used[name]) / took * 1000 for name, process in processes.items()}
    after = _requests(sandbox)
    counts = {verb: after[verb] - requests.get(verb, 0) for verb in after}
    return Idle(took, rss, millicores, counts, _heartbeat(client) != heartbeat)


def _heartbeat(client: Client) -> str:
    return str(client.get(NODE_TOPOLOGIES, NODE)["status"].get(HEARTBEAT))


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _requests(sandbox: Sandbox) -> dict[str, int]:
    """How many requests for NodeTopologies the API server has answered, by verb."""
    command = [*sandbox.kubectl_prefix(), "get", "--raw", "/metrics"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("apiserver_request_total{") and 'resource="nodetopologies"' in line:
            matched = re.search(r'verb="([A-Z]+)"', line)
            verb = matched[1] if matched else "?"
            counts[verb] = counts.get(verb, 0) + int(float(line.rsplit(" ", 1)[1]))
    return counts


def _ps(agent: subprocess.Popen[bytes], kubelet: psutil.Process) -> str:
    command = ["ps", "-o", "pid,rss,cputime,etime,comm", "-p", f"{agent.pid},{kubelet.pid}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()


def _mib(size: int) -> str:
    return f"{size / (1 << 20):6.1f} MiB"


# From a change to its publication


@dataclass(frozen=True)
class Delays:
    """Seconds from a pod's admission to its publication, from its running, and from its end."""

    allocated: Sequence[float]
    running: Sequence[float]
    ended: Sequence[float]

    @property
    def targets(self) -> list[Target]:
        """How late allocations and ends are published."""
        return [
            Target(f"{name} to published, p99", _rank(delays, 0.99), MAX_DELAY_SECONDS, "s")
            for name, delays in (("kubelet's decision", self.allocated), ("pod's end", self.ended))
            if delays
        ]

    def __str__(self) -> str:
        lines = [f"{len(self.allocated)} pods start and end, one after another"]
        for name, delays in (
            ("kubelet's decision to published", self.allocated),
            ("phase Running to published", self.running),
            ("pod deleted to published", self.ended),
        ):
            if delays:
                lines.append(f"  {name:32} p50 {_rank(delays, 0.5):5.2f} s   p99 {_rank(delays, 0.99):5.2f} s")
        return "\n".join(lines)


def _rank(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class _Times:
    """When the API server's watches first showed a pod running, published, and no longer published, by its name."""

    def __init__(self, kubeconfig: Path) -> None:
        self.running: dict[str, float] = {}
        self.published: dict[str, float] = {}
        self.released: dict[str, float] = {}
        for target in (self._pods, self._topology):
            Thread(target=target, args=(str(kubeconfig),), daemon=True).start()

    def _pods(self, kubeconfig: str) -> None:
        api = CoreV1Api(new_client_from_config(kubeconfig))
        for event in _events(api.list_namespaced_pod, "default"):
            if event["raw_object"].get("status", {}).get("phase") == "Running":
                self.running.setdefault(event["raw_object"]["metadata"]["name"], time.time())

    def _topology(self, kubeconfig: str) -> None:
        api = CustomObjectsApi(new_client_from_config(kubeconfig))
        group, version = NODE_TOPOLOGIES.api_version.split("/")
        for event in _events(api.list_cluster_custom_object, group, version, NODE_TOPOLOGIES.plural):
            now = time.time()
            names = {pod["name"] for pod in event["raw_object"].get("status", {}).get("pods", ())}
            for name in names:
                self.published.setdefault(name, now)
            for name in self.published.keys() - names:
                self.released.setdefault(name, now)


def _events(request: Any, *arguments: str) -> Iterator[Any]:
    # The watches end with the sandbox.
    with suppress(HTTPError):
        yield from Watch().stream(request, *arguments)


def _delays(sandbox: Sandbox, client: Client, changes: int) -> Delays:
    state = sandbox.folder / "nodes" / NODE / "kubelet" / "cpu_manager_state"
    times = _Times(sandbox.kubeconfig)
    eventually("the watches to begin", lambda: times.running and times.published, WAIT_SECONDS)
    changed = [_one_change(client, times, state, f"change-{number}") for number in range(changes)]
    return Delays(*zip(*changed, strict=True)) if changed else Delays((), (), ())


def _one_change(client: Client, times: _Times, state: Path, name: str) -> tuple[float, float, float]:
    """Start and end a pod; the delays of its publication after its admission, its running, and its end."""
    before = state.stat().st_mtime
    uid = client.create(PODS, _pod(name), "default")["metadata"]["uid"]
    eventually("the kubelet to admit the pod", lambda: state.stat().st_mtime != before)
    admitted = state.stat().st_mtime
    eventually("the pod to be published", lambda: name in times.published and name in times.running)
    deleted = time.time()
    client.delete(PODS, name, "default", uid=uid)
    eventually("the end to be published", lambda: name in times.released)
    published = times.published[name]
    return published - admitted, published - times.running[name], times.released[name] - deleted


if __name__ == "__main__":
    sys.exit(main())
