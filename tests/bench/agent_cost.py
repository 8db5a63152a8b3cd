"""``python -m tests.bench.agent_cost``: what an agent costs its node, beside the kubelet on the same node.

On a sandbox node with 110 pods that hold a CPU each: the agent as it is installed (the flags of deploy/base/agent.yaml,
``--kubelet-state`` and metrics on request) runs for ``--minutes`` while nothing changes. Then pods start and end one at
a time, for the time from the kubelet's decision, and from the pod's running, to the publication. Memory and processor
time are those that ``ps`` shows; requests are those that the API server counted. Exits with 1 where a target is missed.
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
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import yaml
from kubernetes.client import CoreV1Api, CustomObjectsApi
from kubernetes.config import new_client_from_config
from kubernetes.watch import Watch
from tests.live.conftest import install_kinds
from urllib3.exceptions import HTTPError

from topomend.kube.client import NODE_TOPOLOGIES, PODS, Client, connect
from topomend.publish.publisher import HEARTBEAT_SECONDS
from topomend.sandbox import NodeSpec, Sandbox, registry
from topomend.sandbox.plan import kubelet_program
from topomend.wire.node_topology import HEARTBEAT

ROOT = Path(__file__).parents[2]
NODE = "cost"
SHAPE = "sockets:2 numa:2 cores:32 threads:1 memory:128Gi device:vendor.com/gpu@0=4,1=4,2=4,3=4"
MOST_RSS, MOST_MILLICORES, MOST_SECONDS = 48 << 20, 5.0, 2.0
PATIENCE = 120.0


def main() -> int:
    """Measure, and say how it compares with the targets."""
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
            _until(lambda: _shown(client) == set(names), "every pod is published")
            time.sleep(options.settle)
            idle = _watch_both(sandbox, client, agent, kubelet, options.minutes * 60)
            print(idle, flush=True)
            print(_ps(agent, kubelet), flush=True)
            delays = _delays(sandbox, client, options.changes)
            print(delays, flush=True)
            peak = psutil.Process(agent.pid).memory_info().rss
            print(f"afterwards  agent RSS {_mib(peak)}", flush=True)
        client.close()
    return 0 if idle.met and delays.met and peak <= MOST_RSS else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long nothing changes (default 10)")
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--changes", type=int, default=100, help="pods that then start and end (default 100)")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds before the measurement (default 10)")
    parser.add_argument("--metrics", action="store_true", help="the agent serves /metrics")
    parser.add_argument("--state", action="store_true", help="the agent reads the kubelet's state files too")
    parser.add_argument("--flag", action="append", default=[], help="one more flag of the agent")
    return parser.parse_args()


@contextmanager
def _agent(sandbox: Sandbox, options: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    container = _manifest()["spec"]["template"]["spec"]["containers"][0]
    flags = [each.replace("$(NODE_NAME)", NODE) for each in container["args"]]
    flags += ["--metrics-address=127.0.0.1:0"] if options.metrics else []
    flags += [f"--kubelet-state={sandbox.node(NODE).kubelet_state}"] if options.state else []
    environment = {each["name"]: each["value"] for each in container["env"] if "value" in each}
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
    programs = {each.name: each.pid for each in registry.status(sandbox.name).programs}
    return psutil.Process(programs[kubelet_program(NODE)])


def _pod(name: str) -> dict[str, Any]:
    limits = {"cpu": "1", "memory": "64Mi"}
    spec = {
        "nodeName": NODE,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
    }
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _shown(client: Client) -> set[str]:
    """The pods that are published."""
    objects = client.list(NODE_TOPOLOGIES).items
    return {pod["name"] for each in objects for pod in each.get("status", {}).get("pods", ())}


def _until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE:.0f} s until {what}")
        time.sleep(0.25)


# While nothing changes


@dataclass(frozen=True)
class Idle:
    """What a time without any change cost. ``requests`` are the API server's counts by verb.

    ``beat`` is whether a heartbeat was written meanwhile, which is no answer to a change: one in ten minutes or fewer.
    """

    seconds: float
    rss: dict[str, int]
    millicores: dict[str, float]
    requests: dict[str, int]
    beat: bool

    @property
    def writes(self) -> int:
        """Requests for a NodeTopology that were not reads."""
        return sum(count for verb, count in self.requests.items() if verb not in {"GET", "LIST", "WATCH"})

    @property
    def most_writes(self) -> int:
        """How many of them heartbeats may be."""
        return int(self.seconds // HEARTBEAT_SECONDS) + 1 if self.beat else 0

    @property
    def met(self) -> bool:
        """Whether the agent is as light as it must be."""
        return (
            self.rss["agent"] <= MOST_RSS
            and self.millicores["agent"] <= MOST_MILLICORES
            and self.writes <= self.most_writes
        )

    def __str__(self) -> str:
        lines = [f"nothing changes for {self.seconds:.0f} s"]
        lines += [f"  {who:8} RSS {_mib(self.rss[who])}   CPU {self.millicores[who]:6.2f} m" for who in self.rss]
        lines.append(f"  targets  RSS {_mib(MOST_RSS)}   CPU {MOST_MILLICORES:6.2f} m")
        asked = ", ".join(f"{count} {verb}" for verb, count in sorted(self.requests.items()) if count) or "none"
        lines.append(
            f"  requests for NodeTopologies: {asked}; writes {self.writes}{' (heartbeat)' if self.beat else ''}"
        )
        return "\n".join(lines)


def _watch_both(
    sandbox: Sandbox, client: Client, agent: subprocess.Popen[bytes], kubelet: psutil.Process, seconds: float
) -> Idle:
    both = {"agent": psutil.Process(agent.pid), "kubelet": kubelet}
    beat = _heartbeat(client)
    requests = _requests(sandbox)
    used = {who: _used(process) for who, process in both.items()}
    began = time.monotonic()
    rss = dict.fromkeys(both, 0)
    while time.monotonic() - began < seconds:
        time.sleep(min(1.0, seconds))
        rss = {who: max(rss[who], process.memory_info().rss) for who, process in both.items()}
    took = time.monotonic() - began
    millicores = {who: (_used(process) - used[who]) / took * 1000 for who, process in both.items()}
    after = _requests(sandbox)
    asked = {verb: after[verb] - requests.get(verb, 0) for verb in after}
    return Idle(took, rss, millicores, asked, _heartbeat(client) != beat)


def _heartbeat(client: Client) -> str:
    return str(client.get(NODE_TOPOLOGIES, NODE)["status"].get(HEARTBEAT))


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _requests(sandbox: Sandbox) -> dict[str, int]:
    """How many requests for NodeTopologies the API server has answered, by verb."""
    command = [*sandbox.kubectl_prefix(), "get", "--raw", "/metrics"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("apiserver_request_total{") and 'resource="nodetopologies"' in line:
            found = re.search(r'verb="([A-Z]+)"', line)
            verb = found[1] if found else "?"
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
    def met(self) -> bool:
        """Whether allocations and releases are published in time."""
        return all(_rank(each, 0.99) <= MOST_SECONDS for each in (self.allocated, self.ended) if each)

    def __str__(self) -> str:
        lines = [f"{len(self.allocated)} pods start and end, one after another"]
        for what, each in (
            ("kubelet's decision -> published", self.allocated),
            ("pod seen Running -> published", self.running),
            ("pod deleted -> published", self.ended),
        ):
            if each:
                lines.append(f"  {what:32} p50 {_rank(each, 0.5):5.2f} s   p99 {_rank(each, 0.99):5.2f} s")
        return "\n".join(lines)


def _rank(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class _Seen:
    """When a watch first told something, by the clock of files; pods that run, and pods that are published."""

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
            shown = {each["name"] for each in event["raw_object"].get("status", {}).get("pods", ())}
            for name in shown:
                self.published.setdefault(name, now)
            for name in self.published.keys() - shown:
                self.released.setdefault(name, now)


def _events(request: Any, *arguments: str) -> Iterator[Any]:
    # The end of the sandbox is the end of its watches.
    with suppress(HTTPError):
        yield from Watch().stream(request, *arguments)


def _delays(sandbox: Sandbox, client: Client, changes: int) -> Delays:
    state = sandbox.folder / "nodes" / NODE / "kubelet" / "cpu_manager_state"
    seen = _Seen(sandbox.kubeconfig)
    _until(lambda: seen.running and seen.published, "the watches have begun")
    allocated, running, ended = [], [], []
    for number in range(changes):
        name = f"change-{number}"
        before = state.stat().st_mtime
        uid = client.create(PODS, _pod(name), "default")["metadata"]["uid"]
        _until(lambda before=before: state.stat().st_mtime != before, "the kubelet admits the pod")
        decided = state.stat().st_mtime
        _until(lambda name=name: name in seen.published and name in seen.running, "the pod is published")
        allocated.append(seen.published[name] - decided)
        running.append(seen.published[name] - seen.running[name])
        gone = time.time()
        client.delete(PODS, name, "default", uid=uid)
        _until(lambda name=name: name in seen.released, "the end of the pod is published")
        ended.append(seen.released[name] - gone)
    return Delays(allocated, running, ended)


if __name__ == "__main__":
    sys.exit(main())
