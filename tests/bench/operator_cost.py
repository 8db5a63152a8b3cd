"""``python -m tests.bench.operator_cost``: what the operator costs on a cluster of thousands of nodes.

On a sandbox with one real kubelet: thousands of Nodes and NodeTopology objects beside it, and the pods that run there,
copies of real ones, are put into etcd. Then the operator starts, and is watched while the cluster lives: agents confirm
what they published and publish anew, kubelets tell that they are well, pods end, refused ones turn up and others
arrive in a steered namespace. Memory is that which ``ps`` shows, at its largest. Exits with 1 where a target is missed.
"""

import argparse
import copy
import json
import os
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self
from uuid import UUID

import psutil
from tests.bench import workloads
from tests.bench.etcd import Etcd
from tests.contended.hold import arrive, quantiles, times_of
from tests.contended.run import DidNotStart, install, start_operator, wait, wait_for_account
from tests.deploy.api import API, administrator
from tests.live.conftest import end
from tests.oracle.cases import node_state

from topomend.kube.client import NAMESPACES, NODE_TOPOLOGIES, NODES, PODS, Client, connect
from topomend.kube.errors import NotFound
from topomend.model.machine import PCIDevice
from topomend.model.node_state import NodeState
from topomend.replay.admission import admit
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire.node_topology import HEARTBEAT, Condition, Summary, node_topology, status_of
from topomend.wire.pod import read_pod

MOST_RSS = 256 << 20
MOST_HOLD_P50, MOST_HOLD_P99 = 0.05, 0.5
MOST_RELAUNCH_P50, MOST_RELAUNCH_P99 = 0.3, 2.0

NAMESPACE, STEERED = "crowd", "steered"
NODE = "real"

HEARTBEATS, NODE_STATUSES, CHANGES = 600.0, 300.0, 600.0
"""Seconds between two of the same node: an agent's heartbeats, a kubelet's statuses, changes of what its pods hold."""

LIVES = 3600.0
"""Seconds from a pod's beginning to its end: of 150,000 pods 42 end in a second."""

KINDS_OF_NODE = 40
"""How many nodes differ in more than in names."""

PCI_DEVICES, IMAGES = 60, 50


@dataclass(frozen=True)
class Size:
    """How much there is."""

    nodes: int
    pods_a_node: int


class Crowd:
    """The objects of the nodes that no kubelet stands behind, made from real ones."""

    def __init__(self, size: Size, node: dict[str, Any], topology: dict[str, Any], pod: dict[str, Any]) -> None:
        self.size = size
        self._node, self._topology, self._pod = node, topology, pod
        self._statuses = [_status(each) for each in _kinds_of_node()]
        self.pods = size.nodes * size.pods_a_node

    def nodes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every Node, under its key."""
        return (self.node(number) for number in range(self.size.nodes))

    def topologies(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every NodeTopology, under its key."""
        return (self.topology(number) for number in range(self.size.nodes))

    def running(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every pod that runs, under its key."""
        return (self._running(number) for number in range(self.pods))

    def node(self, number: int) -> tuple[str, dict[str, Any]]:
        """A Node whose kubelet has just told that it is well."""
        name = _name(number)
        content = copy.copy(self._node)
        metadata, status = content["metadata"], content["status"]
        labels = {**metadata["labels"], "kubernetes.io/hostname": name}
        content["metadata"] = {**metadata, "name": name, "uid": _uid(1, number), "labels": labels}
        conditions = [{**each, "lastHeartbeatTime": _now()} for each in status["conditions"]]
        content["status"] = {**status, "conditions": conditions}
        return f"minions/{name}", content

    def topology(self, number: int, kind: int | None = None) -> tuple[str, dict[str, Any]]:
        """What the agent of a node publishes now."""
        name = _name(number)
        status = self._statuses[(number if kind is None else kind) % len(self._statuses)]
        first, *others = status["machine"]["numaNodes"]  # no two machines have quite the same memory
        first = {**first, "memoryBytes": first["memoryBytes"] + 4096 * number}
        machine = {**status["machine"], "numaNodes": [first, *others]}
        content = {**self._topology, "status": {**status, "machine": machine, HEARTBEAT: _now()}}
        content["metadata"] = {**self._topology["metadata"], "name": name, "uid": _uid(2, number)}
        return f"topomend.io/nodetopologies/{name}", content

    def refused(self, number: int, namespace: str) -> tuple[str, dict[str, Any]]:
        """A pod that asks for 4 CPUs, as its node's kubelet leaves it when it refuses it."""
        key, content = self._on_node(number, f"refused-{number}", _uid(4, number), namespace)
        spec = copy.deepcopy(content["spec"])
        spec["containers"][0]["resources"] = {key: {"cpu": "4", "memory": "64Mi"} for key in ("limits", "requests")}
        message = "Pod was rejected: Resources cannot be allocated with Topology locality"
        status = {"phase": "Failed", "reason": "TopologyAffinityError", "message": message, "startTime": _now()}
        return key, {**content, "spec": spec, "status": status}

    def ended(self, number: int) -> tuple[str, dict[str, Any]]:
        """A pod that ran, as its kubelet leaves it when it has ended."""
        key, content = self._running(number)
        return key, {**content, "status": {**content["status"], "phase": "Succeeded"}}

    def _running(self, number: int) -> tuple[str, dict[str, Any]]:
        return self._on_node(number % self.size.nodes, f"runs-{number}", _uid(3, number), NAMESPACE)

    def _on_node(self, number: int, name: str, uid: str, namespace: str) -> tuple[str, dict[str, Any]]:
        metadata = {**self._pod["metadata"], "name": name, "namespace": namespace, "uid": uid}
        metadata["creationTimestamp"] = _now()
        spec = {**self._pod["spec"], "nodeName": _name(number)}
        return f"pods/{namespace}/{name}", {**self._pod, "metadata": metadata, "spec": spec}


class Background(ABC):
    """Something that goes on in a thread of its own until it is left; a context manager."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self.go_on, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join()

    @abstractmethod
    def go_on(self) -> None:
        """Until ``ended`` is set."""


class Life(Background):
    """What a cluster's nodes write all day, at its pace."""

    def __init__(self, etcd: Etcd, crowd: Crowd) -> None:
        super().__init__()
        self._etcd, self._crowd = etcd, crowd
        self.written = 0

    def go_on(self) -> None:
        """Write what is due, ten times a second."""
        random, begun, crowd = Random(5), time.monotonic(), self._crowd
        nodes, pods = range(crowd.size.nodes), range(crowd.pods)
        rates = (len(nodes) / HEARTBEATS, len(nodes) / NODE_STATUSES, len(nodes) / CHANGES, len(pods) / LIVES)
        happenings: tuple[Callable[[], tuple[str, dict[str, Any]]], ...] = (
            lambda: crowd.topology(random.choice(nodes)),
            lambda: crowd.node(random.choice(nodes)),
            lambda: crowd.topology(random.choice(nodes), random.randrange(KINDS_OF_NODE)),
            lambda: crowd.ended(random.choice(pods)),
        )
        while not self.ended.wait(0.1):
            due = int((time.monotonic() - begun) * sum(rates)) - self.written
            for happening in random.choices(happenings, rates, k=due):
                self._etcd.put([happening()])
            self.written += due


class Meter(Background):
    """The memory and the processor time of a process, looked at all the time."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__()
        self._process = process
        self.most = 0

    @property
    def resident(self) -> int:
        """Bytes now."""
        return int(self._process.memory_info().rss)

    def millicores(self, during: Callable[[], object]) -> float:
        """What is used while something is done."""
        begun, before = time.monotonic(), self._used()
        during()
        return 1000 * (self._used() - before) / (time.monotonic() - begun)

    def go_on(self) -> None:
        """Look fifty times a second."""
        while not self.ended.wait(0.02):
            self.most = max(self.most, self.resident)

    def _used(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def main() -> int:
    """Measure, and say how it compares with the targets."""
    options = _options()
    size = Size(options.nodes, options.pods // options.nodes)
    spec = NodeSpec.of_shape(NODE, "sockets:2 numa:1 cores:4 memory:8Gi", topology_manager_policy="single-numa-node")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topomend-operator-cost-")))
        sandbox = stack.enter_context(Sandbox.up([spec], audit=True, on_progress=print))
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        install(sandbox)
        crowd = _crowd(sandbox, client, size)
        etcd = stack.enter_context(Etcd(sandbox.folder))
        _fill(etcd, crowd)
        _wait_until_cached(sandbox)
        log = options.log or folder / "operator.log"
        operator = start_operator(sandbox.kubeconfig, log, f"--sweep-seconds={options.sweep_seconds}")
        stack.callback(end, operator)
        meter = stack.enter_context(Meter(psutil.Process(operator.pid)))
        return _measure(sandbox, client, etcd=etcd, crowd=crowd, meter=meter, log=log, seconds=options.seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000, help="those that run (default 150000)")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the cluster lives (default 120)")
    parser.add_argument("--sweep-seconds", type=float, default=60.0, help="the operator's; it has 300 by itself")
    parser.add_argument("--log", type=Path, help="where the operator's log is kept")
    return parser.parse_args()


def _crowd(sandbox: Sandbox, client: Client, size: Size) -> Crowd:
    """Objects as a kubelet and the API server leave them, and then no controller that would miss the other kubelets."""
    for name, labels in ((NAMESPACE, {}), (STEERED, {"topomend.io/steer": "enabled"})):
        metadata = {"name": name, "labels": labels}
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        wait_for_account(client, name)
    client.create(PODS, _pod("prototype", seconds=86400), NAMESPACE)
    wait("a pod to run", lambda: client.get(PODS, "prototype", NAMESPACE)["status"]["phase"] == "Running")
    sandbox.stop_controllers()
    state = replace(next(iter(_kinds_of_node())), name=NODE)
    client.create(NODE_TOPOLOGIES, node_topology(NODE, {}))
    client.merge(NODE_TOPOLOGIES, NODE, {"status": _status(state)}, subresource="status")
    node, topology, pod = (
        _stored(client.get(*each)) for each in ((NODES, NODE), (NODE_TOPOLOGIES, NODE), (PODS, "prototype", NAMESPACE))
    )
    allocatable = {"cpu": "128", "memory": "500Gi", "pods": "250", "vendor.com/gpu": "8", "vendor.com/nic": "4"}
    images = [
        {"names": [f"registry.example/team/image-{number}@sha256:{number:064x}"], "sizeBytes": 123456789}
        for number in range(IMAGES)
    ]
    node["status"] |= {"allocatable": allocatable, "capacity": allocatable, "images": images}
    return Crowd(size, node, topology, pod)


def _fill(etcd: Etcd, crowd: Crowd) -> None:
    begun = time.monotonic()
    for what, objects in (("nodes", crowd.nodes()), ("states", crowd.topologies()), ("pods", crowd.running())):
        etcd.put(objects)
        print(f"{what} written after {time.monotonic() - begun:.0f} s", flush=True)
    sizes = [len(json.dumps(each(0)[1])) for each in (crowd.node, crowd.topology)]
    print(f"a Node has {sizes[0]:,} bytes, a NodeTopology {sizes[1]:,}", flush=True)


def _wait_until_cached(sandbox: Sandbox) -> None:
    """The API server answers from its watch caches, which take longer to read all this than it took to write it."""
    admin = administrator(sandbox.kubeconfig)
    begun = time.monotonic()
    for kind in (NODES, NODE_TOPOLOGIES, PODS):
        wait(f"{kind.plural} to be cached", partial(_is_cached, admin, f"{kind.path()}?limit=1"), 1200)
    print(f"cached after another {time.monotonic() - begun:.0f} s", flush=True)


def _is_cached(admin: API, path: str) -> bool:
    """Whether the API server answers from a cache that is as new as what is written."""
    newest = admin.get(path)
    if not newest.allowed:
        return False
    written = newest.content["metadata"]["resourceVersion"]
    return admin.get(f"{path}&resourceVersion={written}&resourceVersionMatch=NotOlderThan").allowed


def _measure(
    sandbox: Sandbox, client: Client, *, etcd: Etcd, crowd: Crowd, meter: Meter, log: Path, seconds: float
) -> int:
    print(f"{crowd.size.nodes} nodes, {crowd.pods} pods that run", flush=True)
    for what, line in (("listed", "the cluster is listed"), ("watched", "every kind is watched")):
        begun = time.monotonic()
        wait(line, lambda line=line: line in log.read_text(), 600)  # type: ignore[misc]
        print(f"  {what} after another {time.monotonic() - begun:.1f} s, {_mib(meter.most)} at most", flush=True)
    with Life(etcd, crowd) as life:
        used = meter.millicores(lambda: time.sleep(seconds))
    print(f"  {life.written} changes in {seconds:.0f} s: {used:.0f} m CPU, {_mib(meter.resident)}", flush=True)
    with Life(etcd, crowd):
        held = _held(sandbox, client)
        print(f"  pods held in a steered namespace, 20 a second: {quantiles(held)}", flush=True)
        relaunched = _relaunched(client, etcd, crowd)
        print(f"  refused pods let go again: {quantiles(relaunched)}", flush=True)
    print(f"  {_mib(meter.most)} at most (target {_mib(MOST_RSS)}); load average {os.getloadavg()[0]:.1f}", flush=True)
    return 0 if meter.most <= MOST_RSS else 1


def _held(sandbox: Sandbox, client: Client) -> list[float]:
    assert sandbox.audit_log
    names = arrive(client, 20, 15, STEERED)
    deadline, found = time.monotonic() + 60, list[float]()
    while len(found) < len(names) and time.monotonic() < deadline:
        time.sleep(1)
        times = times_of(sandbox.audit_log, names)
        found = sorted(each.released - each.created for each in times if each.created and each.released)
    if len(found) < len(names):
        raise DidNotStart(f"{len(names) - len(found)} of {len(names)} pods were not let go")
    return found


def _relaunched(client: Client, etcd: Etcd, crowd: Crowd, pods: int = 20) -> list[float]:
    """Seconds from a refusal until the replacement is seen without its gate, by looks 20 ms apart."""
    found = list[float]()
    for number in range(pods):
        key, content = crowd.refused(number, NAMESPACE)
        name, uid = content["metadata"]["name"], content["metadata"]["uid"]
        etcd.put([(key, content)])
        begun = time.monotonic()

        def ungate(name: str = name, uid: str = uid) -> bool:
            pod = client.get(PODS, name, NAMESPACE)
            return pod["metadata"]["uid"] != uid and not pod["spec"].get("schedulingGates")

        while not _answers(ungate):
            if time.monotonic() > begun + 60:
                raise DidNotStart(f"{name} was not relaunched")
            time.sleep(0.02)
        found.append(time.monotonic() - begun)
        time.sleep(0.5)
    return sorted(found)


def _answers(ask: Callable[[], bool]) -> bool:
    """False too while the pod of the name is between its two lives."""
    try:
        return ask()
    except NotFound:
        return False


def _kinds_of_node() -> list[NodeState]:
    """Servers on which pods of different sizes run, and the cards that stand in them."""
    empty = node_state(workloads.case(workloads.SERVER, "single-numa-node"))
    cards = tuple(_card(number) for number in range(PCI_DEVICES))
    empty = replace(empty, machine=replace(empty.machine, pci_devices=cards))
    found = []
    for kind in range(KINDS_OF_NODE):
        state = empty
        for number, pod in enumerate(workloads.many_pods(Random(kind), 12)):
            named = read_pod({**pod, "metadata": {"name": f"worker-{number}-{kind:05}", "namespace": NAMESPACE}})
            state = admit(state, named)[1]
        found.append(state)
    return found


def _card(number: int) -> PCIDevice:
    return PCIDevice(
        address=f"0000:{number:02x}:00.0",
        pci_class=0x020000 if number % 2 else 0x060400,
        vendor_id=0x15B3,
        device_id=0x1017 + number % 7,
        vendor_name="Some Maker of Network Adapters",
        device_name=f"MT{number % 7} Family [SomeCard-{number % 7}]",
        driver="some_core" if number % 2 else "pcieport",
        numa_node=number % 2,
        numa_source="kernel",
        path=(f"0000:{number:02x}:01.0",),
        iommu_group=number,
        names=(f"eth{number}",) if number % 2 else (),
    )


def _status(state: NodeState) -> dict[str, Any]:
    """As an agent publishes it that knows everything."""
    words = "host, configuration and allocations are known"
    kinds = ("Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead")
    conditions = [Condition(each, "True", "AllKnown", words) for each in kinds]
    status = status_of(state, Summary(cpus_free="8,52", memory_free="18Gi,512Mi", devices=8, status=""), conditions)
    return {**status, "conditions": [{**each, "lastTransitionTime": _now()} for each in status["conditions"]]}


def _pod(name: str, seconds: int) -> dict[str, Any]:
    limits = {"cpu": "100m", "memory": "16Mi"}
    container = {"name": "main", "image": "sandbox/sleep", "command": ["sleep", str(seconds)]}
    spec = {"containers": [{**container, "resources": {"limits": limits}}], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _stored(content: dict[str, Any]) -> dict[str, Any]:
    """An object as etcd holds it: its version is not in it."""
    metadata = {key: each for key, each in content["metadata"].items() if key != "resourceVersion"}
    return {**content, "metadata": metadata}


def _name(number: int) -> str:
    return f"node-{number:05}"


def _uid(kind: int, number: int) -> str:
    return str(UUID(int=(kind << 64) | number))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DidNotStart as error:
        sys.exit(f"{error}")
