"""``python -m tests.contended.hold``: how long pods of a steered namespace are held at a steady rate of arrivals.

By the API server's audit log: from a pod's creation, gated, until the operator's change that lets it go. The pods ask
for one CPU, and there is room for all of them at once, so that none waits for it. Ends with 1 where a target is missed.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.contended.outcome import percentile
from tests.contended.run import NAMESPACE, topomend_on, wait, wait_for_account
from tests.faults.judge import histories

from topomend.kube.client import NAMESPACES, PODS, Client, connect
from topomend.sandbox import NodeSpec, Sandbox

P50, P99 = 0.05, 0.5

MACHINES = tuple(
    NodeSpec.of_shape(f"wide-{number}", "sockets:2 numa:2 cores:48 memory:16Gi", topology_manager_policy=policy)
    for number, policy in enumerate(("single-numa-node", "restricted"))
)


def holds(rate: float, seconds: float, folder: Path) -> list[float]:
    """The hold of each of the pods that arrive at ``rate`` a second, in seconds."""
    with Sandbox.up(MACHINES, audit=True) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        with topomend_on(sandbox, client, MACHINES, folder):
            metadata = {"name": NAMESPACE, "labels": {"topomend.io/steer": "enabled"}}
            client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            wait_for_account(client)
            client.create(PODS, _pod("first"), NAMESPACE)  # the operator watches once it has let this one go
            wait("a first pod to run", lambda: client.get(PODS, "first", NAMESPACE)["status"]["phase"] == "Succeeded")
            names = _arrive(client, rate, seconds)
            assert sandbox.audit_log
            deadline = time.monotonic() + 60
            found: list[float] = []
            while len(found) < len(names) and time.monotonic() < deadline:
                time.sleep(1)
                every = histories(sandbox.audit_log)
                lives = [every[(NAMESPACE, name)] for name in names if (NAMESPACE, name) in every]
                found = [each.patched[0] - each.created[0] for each in lives if each.patched and each.created]
        client.close()
        return sorted(found)


def _arrive(client: Client, rate: float, seconds: float) -> list[str]:
    begun, names = time.monotonic(), [f"held-{number:04d}" for number in range(int(rate * seconds))]
    for number, name in enumerate(names):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        client.create(PODS, _pod(name), NAMESPACE)
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
        found = holds(options.rate, options.seconds, Path(folder))
    p50, p99 = percentile(found, 50), percentile(found, 99)
    sys.stdout.write(
        f"{len(found)} pods at {options.rate:g} a second: held for p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms "
        f"(at most {1000 * P50:.0f} and {1000 * P99:.0f})\n"
    )
    return int(p50 > P50 or p99 > P99 or len(found) < int(options.rate * options.seconds))


if __name__ == "__main__":
    sys.exit(main())
