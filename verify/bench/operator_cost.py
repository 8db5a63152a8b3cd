"""``python -m verify.bench.operator_cost``: what the operator costs on a cluster of thousands of nodes.

A sandbox with one real kubelet gets thousands of Nodes, NodeTopology objects and running pods, copies of real ones,
which are written into etcd. Then the operator starts and is measured while the cluster changes: agents renew their
heartbeats and publish new states, kubelets post node statuses, pods end, kubelets refuse pods, and pods arrive in a
steered namespace. Memory is the largest that ``ps`` would show. Exits with 1 if a target is missed.
"""

import argparse
import copy
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import psutil
from tests.deploy.api import API, administrator
from tests.processes import end
from verify.background import Background
from verify.bench import workloads
from verify.bench.etcd import Etcd
from verify.contended.hold import arrive, quantiles, times_of
from verify.contended.run import DidNotStart, install, start_operator, wait, wait_for_account
from verify.oracle.cases import node_state
from verify.targets import Target, judge

from topomend.kube.client import Client, connect
from topomend.kube.errors import NotFound
from topomend.kube.resources import NAMESPACES, NODE_TOPOLOGIES, NODES, PODS
from topomend.model.bitmask import parse_id_list
from topomend.model.condition import Condition, Summary
from topomend.model.machine import PCIDevice
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire.pods.pod import read_pod
from topomend.wire.published.node_topology import HEARTBEAT, node_topology, status_of

MAX_RSS = 256 << 20

NAMESPACE, STEERED = "crowd", "steered"
NODE = "real"

HEARTBEATS, NODE_STATUSES, CHANGES = 600.0, 300.0, 600.0
"""Seconds between two writes for one node: an agent's heartbeats, a kubelet's statuses, new states of allocations."""

POD_SECONDS = 3600.0
"""How long a pod runs: of 150,000 pods 42 end in a second."""

STATES = 40
"""How many different states the nodes have, apart from names and memory sizes."""

PCI_DEVICES, IMAGES = 60, 50


@dataclass(frozen=True)
class Size:
    """The cluster's size."""

    nodes: int
    pods_per_node: int


class Crowd:
    """The objects of the nodes without a kubelet, copied from real ones. Each comes with its key in etcd."""

    def __init__(self, size: Size, node: dict[str, Any], topology: dict[str, Any], pod: dict[str, Any]) -> None:
        self.size = size
        self._node, self._topology, self._pod = node, topology, pod
        self._statuses = [_status(state) for state in node_states()]
        self.pods = size.nodes * size.pods_per_node

    def nodes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every Node."""
        return (self.node(number) for number in range(self.size.nodes))

    def topologies(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every NodeTopology."""
        return (self.topology(number) for number in range(self.size.nodes))

    def running(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every running pod."""
        return (self._running(number) for number in range(self.pods))

    def node(self, number: int) -> tuple[str, dict[str, Any]]:
        """A Node whose kubelet has just posted its status."""
        name = _name(number)
        content = copy.copy(self._node)
        metadata, status = content["metadata"], content["status"]
        labels = {**metadata["labels"], "kubernetes.io/hostname": name}
        content["metadata"] = {**metadata, "name": name, "uid": _uid(1, number), "labels": labels}
        conditions = [{**condition, "lastHeartbeatTime": _now()} for condition in status["conditions"]]
        content["status"] = {**status, "conditions": conditions}
        return f"minions/{name}", content

    def topology(self, number: int, state: int | None = None) -> tuple[str, dict[str, Any]]:
        """The NodeTopology as its agent publishes it now, in the node's own state or in another one."""
        name = _name(number)
        status = self._statuses[(number if state is None else state) % len(self._statuses)]
        first, *others = status["machine"]["numaNodes"]  # no two machines have the same memory size
        first = {**first, "memoryBytes": first["memoryBytes"] + 4096 * number}
        machine = {**status["machine"], "numaNodes": [first, *others]}
        content = {**self._topology, "status": {**status, "machine": machine, HEARTBEAT: _now()}}
        content["metadata"] = {**self._topology["metadata"], "name": name, "uid": _uid(2, number)}
        return f"topomend.io/nodetopologies/{name}", content

    def occupied(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """The pods that the node's NodeTopology lists, and that object, in which each has a name of its own."""
        key, topology = self.topology(number)
        entries = [{**entry, "name": f"{entry['name']}-{number}"} for entry in topology["status"]["pods"]]
        for position, entry in enumerate(entries):
            cpus = sum(parse_id_list(container.get("cpus", "")).bit_count() for container in entry["containers"])
            uid = _uid(6, 100 * number + position)
            pod_key, content = self._on_node(number, entry["name"], uid, entry["namespace"])
            spec = copy.deepcopy(content["spec"])
            amounts = {"cpu": str(cpus), "memory": "1Gi"}
            spec["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
            yield pod_key, {**content, "spec": spec}
        yield key, {**topology, "status": {**topology["status"], "pods": entries}}

    def refused(self, number: int, namespace: str) -> tuple[str, dict[str, Any]]:
        """A pod that requests 4 CPUs and was refused by its kubelet."""
        key, content = self._on_node(number, f"refused-{number}", _uid(4, number), namespace)
        spec = copy.deepcopy(content["spec"])
        spec["containers"][0]["resources"] = {key: {"cpu": "4", "memory": "64Mi"} for key in ("limits", "requests")}
        message = "Pod was rejected: Resources cannot be allocated with Topology locality"
        status = {"phase": "Failed", "reason": "TopologyAffinityError", "message": message, "startTime": _now()}
        return key, {**content, "spec": spec, "status": status}

    def filling(self, number: int, cpus: str) -> tuple[str, dict[str, Any]]:
        """A running pod that shares its CPUs with others and requests so many of the node's: no kubelet knows of it."""
        key, content = self._on_node(number, f"fills-{number}", _uid(5, number), NAMESPACE)
        spec = copy.deepcopy(content["spec"])
        spec["containers"][0]["resources"] = {"requests": {"cpu": cpus}}
        return key, {**content, "spec": spec}

    def ended(self, number: int) -> tuple[str, dict[str, Any]]:
        """A pod that has ended."""
        key, content = self._running(number)
        return key, {**content, "status": {**content["status"], "phase": "Succeeded"}}

    def _running(self, number: int) -> tuple[str, dict[str, Any]]:
        return self._on_node(number % self.size.nodes, f"runs-{number}", _uid(3, number), NAMESPACE)

    def _on_node(self, number: int, name: str, uid: str, namespace: str) -> tuple[str, dict[str, Any]]:
        metadata = {**self._pod["metadata"], "name": name, "namespace": namespace, "uid": uid}
        metadata["creationTimestamp"] = _now()
        spec = {**self._pod["spec"], "nodeName": _name(number)}
        return f"pods/{namespace}/{name}", {**self._pod, "metadata": metadata, "spec": spec}


class Churn(Background):
    """Writes what the nodes of a cluster write all day, as often."""

    def __init__(self, etcd: Etcd, crowd: Crowd) -> None:
        super().__init__()
        self._etcd, self._crowd = etcd, crowd
        self.written = 0

    def run(self) -> None:
        """Write what is due, ten times a second."""
        random, begun, crowd = Random(5), time.monotonic(), self._crowd
        nodes, pods = range(crowd.size.nodes), range(crowd.pods)
        rates = (len(nodes) / HEARTBEATS, len(nodes) / NODE_STATUSES, len(nodes) / CHANGES, len(pods) / POD_SECONDS)
        makers: tuple[Callable[[], tuple[str, dict[str, Any]]], ...] = (
            lambda: crowd.topology(random.choice(nodes)),
            lambda: crowd.node(random.choice(nodes)),
            lambda: crowd.topology(random.choice(nodes), random.randrange(STATES)),
            lambda: crowd.ended(random.choice(pods)),
        )
        while not self.ended.wait(0.1):
            due = int((time.monotonic() - begun) * sum(rates)) - self.written
            for make in random.choices(makers, rates, k=due):
                self._etcd.put([make()])
            self.written += due


class Meter(Background):
    """Measures the memory and the CPU time of a process."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__()
        self._process = process
        self.peak_rss = 0

    @property
    def rss(self) -> int:
        """The resident set now, in bytes."""
        return int(self._process.memory_info().rss)

    def millicores(self, during: Callable[[], object]) -> float:
        """The CPU that the process uses during a call, in thousandths of a core."""
        begun, before = time.monotonic(), self._cpu_seconds()
        during()
        return 1000 * (self._cpu_seconds() - before) / (time.monotonic() - begun)

    def run(self) -> None:
        """Sample the memory fifty times a second."""
        while not self.ended.wait(0.02):
            self.peak_rss = max(self.peak_rss, self.rss)

    def _cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def main() -> int:
    """Measure, and compare with the targets."""
    options = _options()
    size = Size(options.nodes, options.pods // options.nodes)
    spec = NodeSpec.of_shape(NODE, "sockets:2 numa:1 cores:4 memory:8Gi", topology_manager_policy="single-numa-node")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topomend-operator-cost-")))
        sandbox = stack.enter_context(Sandbox.up([spec], audit=True, on_progress=print))
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        install(sandbox)
        crowd = make_crowd(sandbox, client, size)
        etcd = stack.enter_context(Etcd(sandbox.folder))
        fill(etcd, crowd)
        wait_until_cached(sandbox)
        log = options.log or folder / "operator.log"
        operator = start_operator(sandbox.kubeconfig, log, f"--relist-seconds={options.relist_seconds}")
        stack.callback(end, operator)
        meter = stack.enter_context(Meter(psutil.Process(operator.pid)))
        return _measure(sandbox, client, etcd=etcd, crowd=crowd, meter=meter, log=log, seconds=options.seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=5000, help="how many nodes (default: %(default)s)")
    parser.add_argument("--pods", type=int, default=150_000, help="how many running pods (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="how long the CPU is measured (default: %(default)s)"
    )
    parser.add_argument(
        "--relist-seconds", type=float, default=60.0, help="the operator's flag (default here: %(default)s)"
    )
    parser.add_argument("--log", type=Path, help="keep the operator's log in this file")
    return parser.parse_args()


def make_crowd(sandbox: Sandbox, client: Client, size: Size) -> Crowd:
    """Copy objects of the real node, and stop the controllers, which would miss the other kubelets."""
    for name, labels in ((NAMESPACE, {}), (STEERED, {"topomend.io/steer": "enabled"})):
        metadata = {"name": name, "labels": labels}
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        wait_for_account(client, name)
    client.create(PODS, _pod("prototype", seconds=86400), NAMESPACE)
    wait("a pod to run", lambda: client.get(PODS, "prototype", NAMESPACE)["status"]["phase"] == "Running")
    sandbox.stop_controllers()
    state = replace(next(iter(node_states())), name=NODE)
    client.create(NODE_TOPOLOGIES, node_topology(NODE, {}))
    client.merge(NODE_TOPOLOGIES, NODE, {"status": _status(state)}, subresource="status")
    node, topology, pod = (
        _stored(client.get(*name)) for name in ((NODES, NODE), (NODE_TOPOLOGIES, NODE), (PODS, "prototype", NAMESPACE))
    )
    allocatable = {"cpu": "128", "memory": "500Gi", "pods": "250", "vendor.com/gpu": "8", "vendor.com/nic": "4"}
    images = [
        {"names": [f"registry.example/team/image-{number}@sha256:{number:064x}"], "sizeBytes": 123456789}
        for number in range(IMAGES)
    ]
    node["status"] |= {"allocatable": allocatable, "capacity": allocatable, "images": images}
    return Crowd(size, node, topology, pod)


def fill(etcd: Etcd, crowd: Crowd) -> None:
    begun = time.monotonic()
    kinds = (("Nodes", crowd.nodes()), ("NodeTopologies", crowd.topologies()), ("Pods", crowd.running()))
    for kind, objects in kinds:
        etcd.put(objects)
        print(f"{kind} written after {time.monotonic() - begun:.0f} s", flush=True)
    sizes = [len(json.dumps(make(0)[1])) for make in (crowd.node, crowd.topology)]
    print(f"a Node has {sizes[0]:,} bytes, a NodeTopology {sizes[1]:,}", flush=True)


def wait_until_cached(sandbox: Sandbox) -> None:
    """Wait for the API server's watch caches, which read the objects more slowly than etcd wrote them."""
    admin = administrator(sandbox.kubeconfig)
    begun = time.monotonic()
    for kind in (NODES, NODE_TOPOLOGIES, PODS):
        wait(f"{kind.plural} to be cached", partial(_is_cached, admin, f"{kind.path()}?limit=1"), 1200)
    print(f"cached after another {time.monotonic() - begun:.0f} s", flush=True)


def _is_cached(admin: API, path: str) -> bool:
    """Whether the cache has everything that was written."""
    newest = admin.get(path)
    if not newest.allowed:
        return False
    written = newest.content["metadata"]["resourceVersion"]
    return admin.get(f"{path}&resourceVersion={written}&resourceVersionMatch=NotOlderThan").allowed


def _measure(
    sandbox: Sandbox, client: Client, *, etcd: Etcd, crowd: Crowd, meter: Meter, log: Path, seconds: float
) -> int:
    print(f"{crowd.size.nodes} nodes, {crowd.pods} running pods", flush=True)
    for step, line in (("listed", "the cluster is listed"), ("watched", "every kind is watched")):
        begun = time.monotonic()
        wait(line, lambda line=line: line in log.read_text(), 600)  # type: ignore[misc]
        print(f"  {step} after another {time.monotonic() - begun:.1f} s, peak RSS {_mib(meter.peak_rss)}", flush=True)
    with Churn(etcd, crowd) as churn:
        used = meter.millicores(lambda: time.sleep(seconds))
    print(f"  {churn.written} changes in {seconds:.0f} s: CPU {used:.0f} m, RSS {_mib(meter.rss)}", flush=True)
    with Churn(etcd, crowd):
        gated = _gated_seconds(sandbox, client)
        print(f"  20 steered pods a second, created to ungated: {quantiles(gated)}", flush=True)
        relaunched = _relaunch_seconds(client, etcd, crowd)
        print(f"  refused pods, refused to ungated: {quantiles(relaunched)}", flush=True)
    print(f"  load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
    return judge([Target("operator peak RSS", meter.peak_rss / (1 << 20), MAX_RSS >> 20, "MiB")])


def _gated_seconds(sandbox: Sandbox, client: Client) -> list[float]:
    assert sandbox.audit_log
    names = arrive(client, 20, 15, STEERED)
    deadline, gated_seconds = time.monotonic() + 60, list[float]()
    while len(gated_seconds) < len(names) and time.monotonic() < deadline:
        time.sleep(1)
        times = times_of(sandbox.audit_log, names)
        gated_seconds = sorted(pod.ungated - pod.created for pod in times if pod.created and pod.ungated)
    if len(gated_seconds) < len(names):
        raise DidNotStart(f"{len(names) - len(gated_seconds)} of {len(names)} pods were not ungated")
    return gated_seconds


def _relaunch_seconds(client: Client, etcd: Etcd, crowd: Crowd, pods: int = 20) -> list[float]:
    """Seconds from a refusal to the replacement without its gate, polled every 20 ms."""
    delays = list[float]()
    for number in range(pods):
        key, content = crowd.refused(number, NAMESPACE)
        name, uid = content["metadata"]["name"], content["metadata"]["uid"]
        etcd.put([(key, content)])
        begun = time.monotonic()

        def is_ungated(name: str = name, uid: str = uid) -> bool:
            pod = client.get(PODS, name, NAMESPACE)
            return pod["metadata"]["uid"] != uid and not pod["spec"].get("schedulingGates")

        while not _is_true(is_ungated):
            if time.monotonic() > begun + 60:
                raise DidNotStart(f"{name} was not relaunched")
            time.sleep(0.02)
        delays.append(time.monotonic() - begun)
        time.sleep(0.5)
    return sorted(delays)


def _is_true(condition: Callable[[], bool]) -> bool:
    """The condition; False while the pod is deleted and not yet replaced."""
    try:
        return condition()
    except NotFound:
        return False


def node_states() -> list[NodeState]:
    """Servers with PCI devices, on which pods of different sizes run."""
    empty = node_state(workloads.case(workloads.SERVER, "single-numa-node"))
    cards = tuple(_card(number) for number in range(PCI_DEVICES))
    empty = replace(empty, machine=replace(empty.machine, pci_devices=cards))
    states = []
    for kind in range(STATES):
        state = empty
        for number, pod in enumerate(workloads.many_pods(Random(kind), 12)):
            named = read_pod({**pod, "metadata": {"name": f"worker-{number}-{kind:05}", "namespace": NAMESPACE}})
            state = admit(state, named)[1]
        states.append(state)
    return states


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
    """The status that an agent publishes when it can read everything."""
    words = "host, configuration and allocations are known"
    kinds = ("Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead")
    conditions = [Condition(kind, "True", "AllKnown", words) for kind in kinds]
    status = status_of(state, Summary(cpus_free="8,52", memory_free="18Gi,512Mi", devices=8, status=""), conditions)
    return {**status, "conditions": [{**condition, "lastTransitionTime": _now()} for condition in status["conditions"]]}


def _pod(name: str, seconds: int) -> dict[str, Any]:
    limits = {"cpu": "100m", "memory": "16Mi"}
    container = {"name": "main", "image": "sandbox/sleep", "command": ["sleep", str(seconds)]}
    spec = {"containers": [{**container, "resources": {"limits": limits}}], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _stored(content: dict[str, Any]) -> dict[str, Any]:
    """An object as etcd stores it: without its resourceVersion."""
    metadata = {key: value for key, value in content["metadata"].items() if key != "resourceVersion"}
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
