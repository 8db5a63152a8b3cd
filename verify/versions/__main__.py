"""``python -m verify.versions v1.30.4 v1.32.5 ...``: try topomend's promises on real clusters of other releases.

On each release: a refused pod is explained and runs elsewhere, also after the operator is killed with SIGKILL; the pods
that a ReplicaSet of one replica makes in half a minute in which no node admits any; pods of a steered namespace, of
which no kubelet refuses any; how long requests for such pods take at 50 a second, beside pods that nothing gates; and
random pods, of which simulate says what each kubelet answers (``tests/live/test_agreement.py``). Then its control plane
is upgraded to the next one of the releases while pods are relaunched, gated and braked. Prints a row for each release.
Exits with 1 if a promise is broken.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from tests.builders import pod_manifest
from tests.waiting import TimedOut, eventually
from verify.background import Background

from topomend.cli.table import echo_table
from topomend.kube.client import EVENTS, NAMESPACES, NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES, Client, Resource, connect
from topomend.kube.errors import APIError
from topomend.sandbox import NodeSpec, Sandbox, SandboxError, registry
from topomend.sandbox.go_modules import NotARelease, minor_of

ROOT = Path(__file__).parents[2]
REPLICA_SETS = Resource("apps/v1", "replicasets")
NARROW, WIDE = "narrow", "wide"
DEVICE = "vendor.com/gpu"
STORM_SECONDS = 30
MOST_REFUSED = 3
"""The refused pods of a storm of one replica before the brake takes effect."""

STEERED, PLAIN = "steered", "plain"
STEERED_PODS = 12
"""As many as fit on both nodes one after the other, each for a second."""

MOST_MINORS = 3
"""How many minor versions a kubelet may be older than its API server (Kubernetes' version skew policy)."""

REQUESTS, REQUESTS_PER_SECOND = 500, 50

NEW_POD_SECONDS, SETTLED_SECONDS = 0.1, 10.0
"""How often a new pod is tried during an upgrade, and how long after all pods run again."""

OPERATOR = "topomend-operator"


@dataclass(frozen=True)
class Row:
    """What was seen on one release: seconds, pods in all, and how the random pods compared."""

    release: str
    explained: float
    running: float
    after_kill: float
    ended_free: float
    storm: int
    steered: str
    new_pods: str
    random_pods: str
    upgraded: str

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(f"{value:.1f} s" if isinstance(value, float) else str(value) for value in values)


def nodes(release: str, wide_cores: int = 6) -> tuple[NodeSpec, ...]:
    """Two nodes. No NUMA node of ``narrow`` has four CPUs; those of ``wide`` have ``wide_cores``."""
    wide = f"numa:2 cores:{wide_cores} memory:4Gi device:{DEVICE}@0=1,1=1"
    shapes = {NARROW: "numa:4 cores:3 memory:2Gi", WIDE: wide}
    settings = {"topology_manager_policy": "single-numa-node", "memory_manager_policy": "Static", "version": release}
    return tuple(NodeSpec.of_shape(name, shape, **settings) for name, shape in shapes.items())


def try_release(release: str, pods: int, older: str, following: str) -> Row:
    """Bring up a cluster of the release and try everything on it. Raises SandboxError, NotARelease, TimedOut.

    Random pods are tried a second time where half of the kubelets are ``older``, unless that is empty. The control
    plane is upgraded to ``following``, unless that is empty.
    """
    with Sandbox.up(nodes(release), version=release, topomend=True, on_progress=_say) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        try:
            explained, running = _relaunch(client, "first")
            after_kill = _relaunch_across_kill(client, sandbox.name)
            ended = _ended(client)
            storm = _storm(client)
            steered, new_pods = _steer(client), _new_pods(client)
        finally:
            client.close()
    compared = _compare(release, pods, release)
    if older:
        compared += f"; kubelets of {older} as well: {_compare(release, pods, f'{release},{older}')}"
    upgraded = _upgrade(release, following) if following else "-"
    return Row(release, explained, running, after_kill, ended, storm, steered, new_pods, compared, upgraded)


def _upgrade(release: str, following: str) -> str:
    """Upgrade a control plane while pods are relaunched, gated and braked, and new ones are created.

    Each bare pod runs again exactly once; no steered pod is refused, each is gated when it is created, and each runs.
    """
    bare, steered = [f"bare-{number}" for number in range(6)], [f"steered-{number}" for number in range(4)]
    with Sandbox.up(nodes(release, 26), version=release, topomend=True, on_progress=_say) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        try:
            uids = {_refused(client, name)["metadata"]["uid"] for name in bare}
            with Storm(client) as storm:
                _create_namespaces(client)
                for name in steered:
                    assert _is_gated(client.create(PODS, _pod(name), STEERED)), name
                with NewPods(client) as new_pods:
                    _cordon(client, WIDE, unschedulable=False)
                    sandbox.upgrade_control_plane(following, _say)
                    begin = time.monotonic()
                    for name in bare:
                        eventually(f"{name} to run on {WIDE}", partial(_runs, client, name), 120)
                    eventually("steered pods to run", lambda: len(_running_in(client, STEERED)) == len(steered), 120)
                    eventually("the replica to run", lambda: _running(client, "app=storm"), 120)
                    seconds = time.monotonic() - begin
                    time.sleep(SETTLED_SECONDS)
            pods = client.list(PODS, namespace="default").items
            names = sorted(pod["metadata"]["name"] for pod in pods if "app" not in pod["metadata"].get("labels", {}))
            assert names == bare, names
            relaunched = [item["spec"]["pod"]["uid"] for item in client.list(RELAUNCHES).items]
            assert all(relaunched.count(uid) <= 1 for uid in uids), relaunched
            assert storm.refused <= MOST_REFUSED, f"{storm.refused} pods of one replica were refused"
            assert new_pods.gated == new_pods.created > 0, f"{new_pods.gated} of {new_pods.created} new pods were gated"
        finally:
            client.close()
    return f"{following}: all run after {seconds:.1f} s, {new_pods.gated} of {new_pods.created} gated"


class NewPods(Background):
    """Creates pods in the steered namespace (as a dry run), and counts how many were gated."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self.created = self.gated = 0

    def run(self) -> None:
        """Create one after the other, also while the API server is being replaced."""
        while not self.ended.wait(NEW_POD_SECONDS):
            try:
                made = self._client.create(PODS, _pod("new"), STEERED, dry_run=True)
            except APIError:
                continue
            self.created += 1
            self.gated += _is_gated(made)


def _relaunch(client: Client, name: str) -> tuple[float, float]:
    """Seconds from the refusal of a pod to its explanation, and until its replacement runs on the other node."""
    refused = _refused(client, name)
    begin = time.monotonic()
    eventually(f"{name} to be explained", lambda: _explained(client, refused))
    explained = time.monotonic() - begin
    _cordon(client, WIDE, unschedulable=False)
    begin = time.monotonic()
    eventually(f"{name} to run on {WIDE}", lambda: _runs(client, name), 60)
    running = time.monotonic() - begin
    _remove(client, name)
    return explained, running


def _relaunch_across_kill(client: Client, sandbox: str) -> float:
    """Seconds from SIGKILL of the operator until the pod that it should relaunch runs, exactly once."""
    name = "killed"
    refused = _refused(client, name)
    _cordon(client, WIDE, unschedulable=False)
    (operator,) = (program for program in registry.status(sandbox).programs if program.name == OPERATOR)
    assert operator.pid is not None
    os.kill(operator.pid, signal.SIGKILL)
    begin = time.monotonic()
    eventually(f"{name} to run on {WIDE}", lambda: _runs(client, name), 120)
    seconds = time.monotonic() - begin
    uid = refused["metadata"]["uid"]
    records = [record for record in client.list(RELAUNCHES).items if record["spec"]["pod"]["uid"] == uid]
    copies = [pod for pod in client.list(PODS, namespace="default").items if pod["metadata"]["name"].startswith(name)]
    assert (len(records), len(copies)) == (1, 1), (records, copies)
    _remove(client, name)
    return seconds


def _ended(client: Client) -> float:
    """Seconds from the end of a pod with CPUs, memory and a device until its node publishes all of them as free."""
    content = _pod("ended")
    content["spec"] |= {"restartPolicy": "Never", "nodeName": WIDE}
    container = content["spec"]["containers"][0]
    container |= {"image": "sandbox/sleep", "command": ["sleep", "2"]}
    container["resources"]["limits"][DEVICE] = "1"
    client.create(PODS, content, "default")
    eventually("its CPUs to be published", lambda: _published(client), 60)
    eventually("the pod to end", lambda: client.get(PODS, "ended", "default")["status"].get("phase") == "Succeeded", 60)
    begin = time.monotonic()
    eventually("its node to be empty", lambda: not _published(client), 60)
    seconds = time.monotonic() - begin
    conditions = client.get(NODE_TOPOLOGIES, WIDE)["status"]["conditions"]
    assert all(condition["status"] == "True" for condition in conditions), conditions
    _remove(client, "ended")
    return seconds


def _published(client: Client) -> bool:
    """Whether the node shows pods that hold something."""
    return bool(client.get(NODE_TOPOLOGIES, WIDE).get("status", {}).get("pods"))


class Storm(Background):
    """Creates a ReplicaSet of one replica, and counts its pods."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        labels = {"app": "storm"}
        template = {"metadata": {"labels": labels}, "spec": _pod("storm")["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        self._client, self._uids = client, set[str]()
        content = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "storm"}, "spec": spec}
        client.create(REPLICA_SETS, content, "default")

    @property
    def refused(self) -> int:
        """How many of its pods were refused; one replica is not."""
        return len(self._uids) - 1

    def run(self) -> None:
        """Count, also while the API server is being replaced."""
        while not self.ended.wait(0.05):
            with suppress(APIError):
                listed = self._client.list(PODS, namespace="default", labels="app=storm").items
                self._uids |= {pod["metadata"]["uid"] for pod in listed}


def _storm(client: Client) -> int:
    """How many pods of a ReplicaSet of one replica are refused while no node that may be used admits any."""
    _cordon(client, WIDE, unschedulable=True)
    with Storm(client) as storm:
        time.sleep(STORM_SECONDS)
    _cordon(client, WIDE, unschedulable=False)
    eventually("the replica to run", lambda: _running(client, "app=storm"), 60)
    assert storm.refused <= MOST_REFUSED, f"{storm.refused} pods of one replica were refused"
    return storm.refused


def _create_namespaces(client: Client) -> None:
    """A steered one and a plain one. Returns once new pods of the steered one are gated."""
    for name, labels in ((STEERED, {"topomend.io/steer": "enabled"}), (PLAIN, {})):
        metadata = {"name": name, "labels": labels}
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    eventually("new pods to be gated", lambda: _is_gated(client.create(PODS, _pod("tried"), STEERED, dry_run=True)))


def _steer(client: Client) -> str:
    """Of pods of a steered namespace, how many ran, and how many were refused before."""
    _create_namespaces(client)
    names = [f"steered-{number}" for number in range(STEERED_PODS)]
    for name in names:
        content = _pod(name)
        content["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        assert _is_gated(client.create(PODS, content, STEERED)), name
    refused: set[str] = set()
    ran: set[str] = set()

    def all_ran() -> bool:
        for pod in client.list(PODS, namespace=STEERED).items:
            name, status = pod["metadata"]["name"], pod["status"]
            if status.get("reason") == "TopologyAffinityError":
                refused.add(pod["metadata"]["uid"])
            if status.get("phase") == "Running":
                ran.add(name)
                client.delete(PODS, name, STEERED, uid=pod["metadata"]["uid"])
        return ran == set(names)

    eventually("every steered pod to run", all_ran, 120)
    assert not refused, f"{len(refused)} steered pods were refused"
    return f"{len(ran)} ran, {len(refused)} refused"


def _new_pods(client: Client) -> str:
    """The median and the 99th percentile of requests for new pods that are gated, and of those that nothing gates."""
    seconds: dict[str, list[float]] = {PLAIN: [], STEERED: []}

    def create(number: int, namespace: str) -> None:
        content = _pod(f"new-{number}")
        if namespace == PLAIN:
            del content["spec"]["containers"][0]["resources"]  # no kubelet would align it
        begin = time.monotonic()
        made = client.create(PODS, content, namespace, dry_run=True)
        seconds[namespace].append(time.monotonic() - begin)
        assert _is_gated(made) == (namespace == STEERED), made["metadata"]

    with ThreadPoolExecutor(16) as pool:
        began, sent = time.monotonic(), []
        for number in range(2 * REQUESTS):
            time.sleep(max(0.0, began + number / (2 * REQUESTS_PER_SECOND) - time.monotonic()))
            sent.append(pool.submit(create, number, (PLAIN, STEERED)[number % 2]))
        for future in sent:
            future.result()
    texts = []
    for namespace in (STEERED, PLAIN):
        ordered = statistics.quantiles(seconds[namespace], n=100)
        texts.append(f"{1000 * ordered[49]:.0f}/{1000 * ordered[98]:.0f} ms")
    return f"{texts[0]}, not gated {texts[1]}"


def _is_gated(pod: dict[str, Any]) -> bool:
    return any(gate["name"] == "topomend.io/fit" for gate in pod["spec"].get("schedulingGates", ()))


def _compare(release: str, pods: int, kubelets: str) -> str:
    """The verdict of the live tests with so many random pods on kubelets of these releases, separated by commas."""
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", "3600", "tests/live/test_agreement.py"]
    environment = {**os.environ, "TOPOMEND_LIVE_PODS": str(pods), "TOPOMEND_KUBERNETES": release}
    environment["TOPOMEND_KUBELETS"] = kubelets
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-6000:], file=sys.stderr)
    return f"{pods}: {'agree' if done.returncode == 0 else 'DISAGREE'}"


def _pod(name: str) -> dict[str, Any]:
    resources = {"limits": {"cpu": "4", "memory": "64Mi"}}
    return pod_manifest(name, {"name": "main", "image": "sandbox/pause", "resources": resources})


def _refused(client: Client, name: str) -> dict[str, Any]:
    """A pod that the scheduler has bound to ``narrow``, and that its kubelet has refused."""
    _cordon(client, WIDE, unschedulable=True)
    created = client.create(PODS, _pod(name), "default")

    def answer() -> dict[str, Any] | None:
        pod = client.get(PODS, name, "default")
        return pod if pod["status"].get("reason") == "TopologyAffinityError" else None

    eventually(f"{name} to be refused", answer, poll=0.01)
    return created


def _cordon(client: Client, node: str, *, unschedulable: bool) -> None:
    client.merge(NODES, node, {"spec": {"unschedulable": unschedulable or None}})


def _explained(client: Client, pod: dict[str, Any]) -> bool:
    uid = pod["metadata"]["uid"]
    return any(
        event["reason"] == "TopologyRefusalExplained" and event["regarding"].get("uid") == uid
        for event in client.list(EVENTS).items
    )


def _runs(client: Client, name: str) -> bool:
    pod = client.get(PODS, name, "default")
    return (pod["status"].get("phase"), pod["spec"].get("nodeName")) == ("Running", WIDE)


def _running(client: Client, labels: str) -> bool:
    listed = client.list(PODS, namespace="default", labels=labels).items
    return any(pod["status"].get("phase") == "Running" for pod in listed)


def _running_in(client: Client, namespace: str) -> list[dict[str, Any]]:
    listed = client.list(PODS, namespace=namespace).items
    return [pod for pod in listed if pod["status"].get("phase") == "Running"]


def _remove(client: Client, name: str) -> None:
    client.delete(PODS, name, "default", uid=client.get(PODS, name, "default")["metadata"]["uid"])


def _say(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


def rows(releases: Sequence[str], pods: int) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """For each release, whether every promise held, and its row."""
    for release, following in zip(releases, [*releases[1:], ""], strict=True):
        try:
            row = try_release(release, pods, _oldest_kubelet(release, releases), following)
            yield "DISAGREE" not in row.random_pods, row.cells()
        except (NotARelease, SandboxError, TimedOut, AssertionError) as error:
            yield False, (release, *["-"] * (len(fields(Row)) - 2), f"{type(error).__name__}: {error}"[:300])


def _oldest_kubelet(release: str, releases: Sequence[str]) -> str:
    """The oldest of ``releases`` whose kubelets an API server of ``release`` supports; empty if it is itself."""
    minor = minor_of(release)
    oldest = min((one for one in releases if minor - MOST_MINORS <= minor_of(one) <= minor), key=minor_of)
    return "" if oldest == release else oldest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.versions")
    parser.add_argument("releases", nargs="+", metavar="RELEASE", help="such as v1.32.5; each is built once")
    parser.add_argument("--pods", type=int, default=200, help="random pods on each release (default: %(default)s)")
    arguments = parser.parse_args()
    results = []
    for kept_promises, row in rows(arguments.releases, arguments.pods):
        results.append((kept_promises, row))
        print(*row, flush=True)
    heading = (
        "RELEASE",
        "EXPLAINED",
        "RUNNING",
        "AFTER-KILL",
        "ENDED-FREE",
        "STORM-REFUSED",
        "STEERED",
        "NEW-POD-P50/P99",
        "RANDOM-PODS",
        "UPGRADED",
    )
    echo_table([heading, *(row for _, row in results)])
    return 0 if all(kept_promises for kept_promises, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
