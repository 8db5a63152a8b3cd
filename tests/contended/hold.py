"""``python -m tests.contended.hold``: how long pods of a steered namespace are held at a steady rate of arrivals.

By the API server's audit log: from a pod's creation, gated, until the operator's change that lets it go. The pods ask
for one CPU, and there is room for all of them at once, so that none waits for it. Ends with 1 where a target is missed.
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

from tests.contended.outcome import percentile
from tests.contended.run import NAMESPACE, topomend_on, wait, wait_for_account
from tests.faults.judge import audited

from topomend.kube.client import NAMESPACES, PODS, Client, connect
from topomend.sandbox import NodeSpec, Sandbox

P50, P99 = 0.05, 0.5

MACHINES = tuple(
    NodeSpec.of_shape(f"wide-{number}", "sockets:2 numa:2 cores:48 memory:16Gi", topology_manager_policy=policy)
    for number, policy in enumerate(("single-numa-node", "restricted"))
)


@dataclass
class Times:
    """One pod's, by the API server's audit log, in seconds since 1970."""

    creation_asked: float = 0.0
    created: float = 0.0
    release_asked: float = 0.0
    released: float = 0.0


@dataclass(frozen=True)
class Holds:
    """The times of every pod that was let go, and what the operator used meanwhile."""

    times: Sequence[Times]
    cost: str

    def of(self, begin: str, end: str) -> list[float]:
        """Seconds from one of the times to another, in order."""
        return sorted(getattr(each, end) - getattr(each, begin) for each in self.times)


def holds(rate: float, seconds: float, folder: Path) -> Holds:
    """How the pods are held that arrive at ``rate`` a second."""
    with Sandbox.up(MACHINES, audit=True) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        with topomend_on(sandbox, client, MACHINES, folder) as cost:
            metadata = {"name": NAMESPACE, "labels": {"topomend.io/steer": "enabled"}}
            client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            wait_for_account(client)
            client.create(PODS, _pod("first"), NAMESPACE)  # the operator watches once it has let this one go
            wait("a first pod to run", lambda: client.get(PODS, "first", NAMESPACE)["status"]["phase"] == "Succeeded")
            cost.begin()
            names = arrive(client, rate, seconds)
            told = cost.told()
            assert sandbox.audit_log
            deadline, found = time.monotonic() + 60, list[Times]()
            while len(found) < len(names) and time.monotonic() < deadline:
                time.sleep(1)
                found = [each for each in times_of(sandbox.audit_log, names) if each.created and each.released]
        client.close()
        return Holds(found, told)


def times_of(log: Path, names: Sequence[str]) -> Iterable[Times]:
    """The times of the pods of these names by an audit log."""
    found = {name: Times() for name in names}
    for event in audited(log):
        target = event.get("objectRef", {})
        times = found.get(target.get("name", "")) if target.get("resource") == "pods" else None
        if times is None or event["responseStatus"]["code"] >= 300:
            continue
        asked, answered = (
            datetime.fromisoformat(event[each]).timestamp() for each in ("requestReceivedTimestamp", "stageTimestamp")
        )
        match event["verb"], target.get("subresource", ""):
            case "create", "":
                times.creation_asked, times.created = asked, answered
            case "patch", "":
                times.release_asked, times.released = asked, answered
    return found.values()


def arrive(client: Client, rate: float, seconds: float, namespace: str = NAMESPACE) -> list[str]:
    """Pods arrive at ``rate`` a second; their names."""
    begun, names = time.monotonic(), [f"held-{number:04d}" for number in range(int(rate * seconds))]
    for number, name in enumerate(names):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        client.create(PODS, _pod(name), namespace)
    return names


def _pod(name: str) -> dict[str, Any]:
    limits = {"cpu": "1", "memory": "16Mi"}
    container = {"name": "main", "image": "sandbox/true", "command": ["true"], "resources": {"limits": limits}}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.contended.hold", description=__doc__)
    parser.add_argument("--rate", type=float, default=20.0, help="pods a second")
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topomend-hold-") as folder:
        held = holds(options.rate, options.seconds, Path(folder))
    p50, p99 = (percentile(held.of("created", "released"), share) for share in (50, 99))
    sys.stdout.write(
        f"{len(held.times)} pods at {options.rate:g} a second: held for "
        f"{quantiles(held.of('created', 'released'))} (at most {1000 * P50:.0f} and {1000 * P99:.0f})\n"
        f"  until the operator asks for the release {quantiles(held.of('created', 'release_asked'))}\n"
        f"  the API server's time for the release   {quantiles(held.of('release_asked', 'released'))}, "
        f"for a creation {quantiles(held.of('creation_asked', 'created'))}\n"
        f"  {held.cost}; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n"
    )
    return int(p50 > P50 or p99 > P99 or len(held.times) < int(options.rate * options.seconds))


def quantiles(seconds: Sequence[float]) -> str:
    """Half and almost all of them, in milliseconds."""
    return f"p50 {1000 * percentile(seconds, 50):.0f} ms, p99 {1000 * percentile(seconds, 99):.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
