"""``python -m verify.contended.hold``: how long pods of a steered namespace stay gated at a steady rate of arrivals.

The API server's audit log gives the times: from the creation of a gated pod to the operator's patch that ungates it.
Each pod requests one CPU, and all fit at once, so none waits for a CPU. Exits with 1 if a target is missed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.audit_log import audited
from verify.contended.outcome import percentile
from verify.contended.run import NAMESPACE, of_release, topomend_on, wait, wait_for_account
from verify.targets import Target, judge

from topomend.kube.client import Client, connect
from topomend.kube.resources import NAMESPACES, PODS
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox import NodeSpec, Sandbox

P50, P99 = 0.05, 0.5

MACHINES = tuple(
    NodeSpec.of_shape(f"wide-{number}", "sockets:2 numa:2 cores:48 memory:16Gi", topology_manager_policy=policy)
    for number, policy in enumerate(("single-numa-node", "restricted"))
)


@dataclass
class Times:
    """When one pod's creation and ungating were requested and answered, in seconds since 1970; 0 if not yet."""

    creation_requested: float = 0.0
    created: float = 0.0
    ungate_requested: float = 0.0
    ungated: float = 0.0


@dataclass(frozen=True)
class Holds:
    """The times of every ungated pod, and the operator's memory and CPU meanwhile."""

    times: Sequence[Times]
    cost: str

    def of(self, begin: str, end: str) -> list[float]:
        """Seconds from one of the times to another, sorted."""
        return sorted(getattr(pod, end) - getattr(pod, begin) for pod in self.times)


def holds(rate: float, seconds: float, folder: Path, version: str = DEFAULT_VERSION) -> Holds:
    """Measure pods that arrive at ``rate`` a second on a cluster of the release ``version``."""
    with Sandbox.up(of_release(MACHINES, version), version=version, audit=True) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        with topomend_on(sandbox, client, MACHINES, folder) as cost:
            metadata = {"name": NAMESPACE, "labels": {"topomend.io/steer": "enabled"}}
            client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            wait_for_account(client)
            client.create(PODS, _pod("first"), NAMESPACE)  # once this one is ungated, the operator watches
            wait("a first pod to run", lambda: client.get(PODS, "first", NAMESPACE)["status"]["phase"] == "Succeeded")
            cost.restart()
            names = arrive(client, rate, seconds)
            usage = str(cost)
            assert sandbox.audit_log
            deadline, times = time.monotonic() + 60, list[Times]()
            while len(times) < len(names) and time.monotonic() < deadline:
                time.sleep(1)
                times = [pod for pod in times_of(sandbox.audit_log, names) if pod.created and pod.ungated]
        client.close()
        return Holds(times, usage)


def times_of(log: Path, names: Sequence[str]) -> Iterable[Times]:
    """The times of the pods of these names, read from an audit log."""
    times_of_pod = {name: Times() for name in names}
    for event in audited(log):
        target = event.get("objectRef", {})
        times = times_of_pod.get(target.get("name", "")) if target.get("resource") == "pods" else None
        if times is None or event["responseStatus"]["code"] >= 300:
            continue
        requested, answered = (
            datetime.fromisoformat(event[stamp]).timestamp() for stamp in ("requestReceivedTimestamp", "stageTimestamp")
        )
        match event["verb"], target.get("subresource", ""):
            case "create", "":
                times.creation_requested, times.created = requested, answered
            case "patch", "":
                times.ungate_requested, times.ungated = requested, answered
    return times_of_pod.values()


def arrive(client: Client, rate: float, seconds: float, namespace: str = NAMESPACE) -> list[str]:
    """Create pods at ``rate`` a second and return their names."""
    begun, names = time.monotonic(), [f"gated-{number:04d}" for number in range(int(rate * seconds))]
    for number, name in enumerate(names):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        client.create(PODS, _pod(name), namespace)
    return names


def is_gated_at_birth(client: Client, namespace: str) -> bool:
    """Whether a new pod there would be gated: an API server has a new policy in force about a second later."""
    return bool(client.create(PODS, _pod("tried"), namespace, dry_run=True)["spec"].get("schedulingGates"))


def _pod(name: str) -> dict[str, Any]:
    limits = {"cpu": "1", "memory": "16Mi"}
    container = {"name": "main", "image": "sandbox/true", "command": ["true"], "resources": {"limits": limits}}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def main() -> int:
    """Measure, and compare with the targets."""
    parser = argparse.ArgumentParser(prog="python -m verify.contended.hold", description=__doc__)
    parser.add_argument("--rate", type=float, default=20.0, help="pods a second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--kubernetes", default=DEFAULT_VERSION, help="the release (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topomend-hold-") as folder:
        measured = holds(options.rate, options.seconds, Path(folder), options.kubernetes)
    gated = measured.of("created", "ungated")
    arrived = int(options.rate * options.seconds)
    sys.stdout.write(
        f"{arrived} pods at {options.rate:g} a second\n"
        f"  created to ungated            {quantiles(gated)}\n"
        f"  created to ungate requested   {quantiles(measured.of('created', 'ungate_requested'))}\n"
        f"  the API server, an ungating   {quantiles(measured.of('ungate_requested', 'ungated'))}\n"
        f"  the API server, a creation    {quantiles(measured.of('creation_requested', 'created'))}\n"
        f"  {measured.cost}; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n"
    )
    return judge(
        [
            Target("pods never ungated", arrived - len(gated), 0),
            Target("gated p50", 1000 * percentile(gated, 50), 1000 * P50, "ms"),
            Target("gated p99", 1000 * percentile(gated, 99), 1000 * P99, "ms"),
        ]
    )


def quantiles(seconds: Sequence[float]) -> str:
    """The 50th and 99th percentile, in milliseconds."""
    return f"p50 {1000 * percentile(seconds, 50):.0f} ms, p99 {1000 * percentile(seconds, 99):.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
