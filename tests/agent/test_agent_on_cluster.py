"""The agent beside real kubelets. Slow: a control plane and kubelets start."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import yaml
from tests.waiting import eventually, stretched

import topomend
from topomend.kube.client import connect
from topomend.kube.errors import AlreadyExists, NotFound
from topomend.kube.resources import NODE_TOPOLOGIES, PODS, Resource
from topomend.model.condition import Condition
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.model.nodes.node_state import NodeState, PodAllocation
from topomend.model.shapes.shape import parse_shape
from topomend.replay.admission import admit
from topomend.sandbox import Sandbox
from topomend.sandbox.processes.host import free_ports
from topomend.wire.pods.pod import read_pod
from topomend.wire.published.node_topology import read_conditions, read_node_topology

pytestmark = pytest.mark.cluster

CRD = Path(__file__).parents[2] / "crds" / "topomend.io_nodetopologies.yaml"
CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
FRESH_SECONDS = 2.0
MOST_RSS = 48 << 20

_T = TypeVar("_T")


class Kubernetes:
    """What these tests ask of the sandbox's API server."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._client = connect(str(sandbox.kubeconfig))
        with suppress(AlreadyExists):
            self._client.create(CRDS, yaml.safe_load(CRD.read_text()))
        until(lambda: self._client.list(NODE_TOPOLOGIES))

    def topology(self, node: str) -> dict[str, Any]:
        return self._client.get(NODE_TOPOLOGIES, node)

    def state(self, node: str) -> NodeState:
        return read_node_topology(self.topology(node))

    def condition(self, node: str, kind: str) -> Condition:
        return next(condition for condition in read_conditions(self.topology(node)) if condition.type == kind)

    def ready(self, node: str) -> str:
        """Its status; empty between an object's creation and the first write of its status."""
        conditions = read_conditions(self.topology(node))
        return next((condition.status for condition in conditions if condition.type == "Ready"), "")

    def topologies_since(self, node: str, before: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Each version of the node's object after ``before``, up to that of now."""
        version, last = (each["metadata"]["resourceVersion"] for each in (before, self.topology(node)))
        if version == last:
            return
        for event in self._client.watch(NODE_TOPOLOGIES, version, fields=f"metadata.name={node}"):
            yield event.content
            if event.content["metadata"]["resourceVersion"] == last:
                return

    def delete_topology(self, node: str) -> None:
        self._client.delete(NODE_TOPOLOGIES, node, uid=self.topology(node)["metadata"]["uid"])

    @contextmanager
    def pod(
        self, node: str, name: str, containers: list[dict[str, Any]], init: list[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """A pod that was bound to the node by hand, and gone afterwards."""
        spec = {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "initContainers": init,
            "containers": containers,
        }
        made = self._client.create(PODS, {"kind": "Pod", "metadata": {"name": name}, "spec": spec}, "default")
        try:
            yield made
        finally:
            self._client.delete(PODS, name, "default", uid=made["metadata"]["uid"])
            until(lambda: not self._client.list(PODS, fields=f"metadata.name={name}").items)

    def reason_of(self, pod: str) -> str:
        return str(self._client.get(PODS, pod, "default").get("status", {}).get("reason", ""))

    def phase_of(self, pod: str) -> str:
        return str(self._client.get(PODS, pod, "default").get("status", {}).get("phase", ""))


def until(condition: Callable[[], _T | None], seconds: float = 30.0) -> _T:
    """Wait until the condition holds, on a busy machine longer than ``seconds``, and return it."""
    return eventually("the agent to publish it", condition, seconds)


WRITTEN, UNCHANGED, FAILED = RESULTS = ("written", "unchanged", "failed")
"""How a look of the agent may end."""


class Looks:
    """The looks of one agent, by its own metrics, which it serves with ``flag``.

    What it would do at its next look is done once it has looked twice: the first look may have begun before.
    """

    def __init__(self) -> None:
        self._address = f"127.0.0.1:{free_ports(1)[0]}"
        self.flag = f"--metrics-address={self._address}"

    def wait(self, number: int = 2, *results: str) -> None:
        """Wait until it has looked so often, by default however the looks ended."""
        before = eventually("the agent's metrics", lambda: self._counted(results))
        eventually(f"{number} looks of the agent", lambda: (self._counted(results) or 0) >= before + number)

    def _counted(self, results: tuple[str, ...]) -> float | None:
        """The looks so far and one more, so that an answer is true; None without one."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return None
        wanted = [f'topomend_agent_publishes_total{{result="{result}"}} ' for result in results or RESULTS]
        return 1 + sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(tuple(wanted)))


SECRET_FOLDERS = ("pods", "pki", "plugins", "plugins_registry", "checkpoints")
COVER = "for each in {}; do mount -t tmpfs -o ro none {}/$each || exit; done; exec {}"


def covering(kubelet: Path) -> list[str]:
    """What to put before a command that is to find the kubelet's folders with secrets empty, as the overlay
    kubelet-state shows them to the agent."""
    script = COVER.format(" ".join(SECRET_FOLDERS), kubelet, '"$@"')
    return ["unshare", "--mount", "--propagation=slave", "--", "sh", "-c", script, "sh"]


def agent(
    sandbox: Sandbox, node: str, *flags: str, state: bool = True, covered: bool = False
) -> subprocess.Popen[bytes]:
    """The agent of a node; without ``state`` it is not given the kubelet's state files."""
    command = [
        *sandbox.exec_prefix(node),
        *(covering(sandbox.node(node).kubelet_state) if covered else []),
        *_program(sandbox, node, "agent", state=state),
        *flags,
    ]
    return subprocess.Popen(command, env={**_ENVIRONMENT, "KUBECONFIG": str(sandbox.kubeconfig)})


_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(topomend.__file__).parents[1])}


def _program(sandbox: Sandbox, node: str, verb: str, *, state: bool) -> list[str]:
    parts = sandbox.node(node)
    return [
        sys.executable,
        "-m",
        "topomend.cli",
        verb,
        f"--node-name={node}",
        f"--kubelet-config={parts.kubelet_config}",
        f"--pod-resources={parts.pod_resources}",
        *([f"--kubelet-state={parts.kubelet_state}"] if state else []),
    ]


def seen_anew(sandbox: Sandbox, node: str, kind: str) -> Condition:
    """This condition by ``topomend discover``, which begins to look at the node."""
    flags = (f"--kubelet-version={DEFAULT_VERSION}", "--output=json")
    command = [*sandbox.exec_prefix(node), *_program(sandbox, node, "discover", state=True), *flags]
    found = subprocess.run(command, env=_ENVIRONMENT, stdout=subprocess.PIPE, check=True)
    return next(each for each in read_conditions(json.loads(found.stdout)) if each.type == kind)


@contextmanager
def running(
    sandbox: Sandbox, kubernetes: Kubernetes, node: str, *flags: str, state: bool = True, covered: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """The agent of a node, which has published for the first time."""
    with suppress(NotFound):
        kubernetes.delete_topology(node)
    process = agent(sandbox, node, *flags, state=state, covered=covered)
    try:
        until(lambda: kubernetes.ready(node) == "True")
        yield process
    finally:
        process.terminate()
        assert process.wait(timeout=stretched(60)) == 0


def publish_once(sandbox: Sandbox, node: str, *flags: str, state: bool = True) -> int:
    return agent(sandbox, node, "--once", *flags, state=state).wait(timeout=stretched(60))


def container(name: str, **limits: str) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": {"limits": limits}}


@pytest.fixture(scope="module")
def kubernetes(cluster: Sandbox) -> Kubernetes:
    return Kubernetes(cluster)


@pytest.mark.parametrize("with_state", [True, False], ids=["with state files", "without"])
@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("wide", "sockets:2 numa:2 cores:4 threads:2 memory:16Gi"),
        ("split", "sockets:1 numa:2 cores:4 threads:1 memory:8Gi device:vendor.com/gpu@0=1,1=1"),
        ("pods", "sockets:2 numa:1 cores:4 threads:2 memory:8Gi dra:vendor.com/nic@1=2"),
    ],
)
def test_what_is_published_is_the_machine_and_the_devices_that_the_kubelet_sees(
    cluster: Sandbox, kubernetes: Kubernetes, node: str, shape: str, with_state: bool
) -> None:
    assert publish_once(cluster, node, state=with_state) == 0
    assert "the kubelet counted" not in kubernetes.condition(node, "HostDiscovered").message
    state = kubernetes.state(node)
    expected = parse_shape(shape)
    machine = expected.machine()
    assert (state.machine.numa_nodes, state.machine.cores) == (machine.numa_nodes, machine.cores)
    assert state.devices == expected.offered_devices()
    assert [device.numa_node for device in state.machine.pci_devices] == [
        node
        for device in (*expected.offered_devices(), *expected.claimable_devices())
        for node in device.numa_nodes or ()
    ]
    assert kubernetes.ready(node) == "True"
    assert state.kubelet.version.startswith("v1.")
    owner = kubernetes.topology(node)["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Node", node)


def test_a_pod_is_published_as_replay_admits_it_and_is_gone_when_it_ends(
    cluster: Sandbox, kubernetes: Kubernetes
) -> None:
    containers = [
        container("main", **{"cpu": "2", "memory": "1Gi", "vendor.com/gpu": "1"}),
        container("side", cpu="500m", memory="512Mi"),
    ]
    with running(cluster, kubernetes, "split"):
        before = until(lambda: _without_pods(kubernetes, "split"))
        with kubernetes.pod("split", "train", containers, [container("setup", cpu="3", memory="2Gi")]) as pod:
            until(lambda: holds_something(cluster, "split"))
            verdict, after = admit(before, read_pod(pod))
            assert verdict.admitted
            until(lambda: allocations(kubernetes.state("split")) == allocations(after))
            assert kubernetes.state("split").pods[0].uid == pod["metadata"]["uid"]
        until(lambda: kubernetes.state("split") == before)


def _without_pods(kubernetes: Kubernetes, node: str) -> NodeState | None:
    """What is published of the node, once the pods of earlier tests are gone from it."""
    state = kubernetes.state(node)
    return None if state.pods else state


def allocations(state: NodeState) -> tuple[tuple[PodAllocation, ...], object, object]:
    return state.pods, state.memory, state.cpu_pool


def holds_something(sandbox: Sandbox, node: str) -> bool:
    """Whether the kubelet's own state shows a container with CPUs."""
    path = sandbox.folder / "nodes" / node / "kubelet" / "cpu_manager_state"
    return bool(json.loads(path.read_text()).get("entries"))


def test_a_refused_pod_leaves_nothing_behind(cluster: Sandbox, kubernetes: Kubernetes) -> None:
    before = until(lambda: publish_once(cluster, "split") == 0 and _without_pods(kubernetes, "split"))
    # 3 and 4 CPUs are free: after the first two containers each NUMA node has one left, and the third asks for two.
    containers = [container(f"c{cpus}", cpu=cpus, memory="1Gi") for cpus in ("2", "3")]
    containers.append(container("last", cpu="2", memory="1Gi"))
    with kubernetes.pod("split", "too-big", containers, []):
        until(lambda: kubernetes.reason_of("too-big") == "TopologyAffinityError")
        until(lambda: publish_once(cluster, "split") == 0 and kubernetes.state("split") == before)


def test_while_nothing_changes_nothing_is_written(cluster: Sandbox, kubernetes: Kubernetes) -> None:
    looks = Looks()
    with running(cluster, kubernetes, "pods", looks.flag):
        until(lambda: _without_pods(kubernetes, "pods"))
        looks.wait(2, UNCHANGED)
        version = kubernetes.topology("pods")["metadata"]["resourceVersion"]
        looks.wait(4, UNCHANGED)
        assert kubernetes.topology("pods")["metadata"]["resourceVersion"] == version


def test_an_agent_that_has_published_holds_little_memory(cluster: Sandbox, kubernetes: Kubernetes) -> None:
    """``make agent-cost`` measures it for long, beside 110 pods, and the processor time too."""
    with running(cluster, kubernetes, "pods") as process:
        agent_process = psutil.Process(process.pid)
        assert agent_process.children() == []
        assert agent_process.memory_info().rss < MOST_RSS


def test_an_object_that_was_deleted_is_published_again(cluster: Sandbox, kubernetes: Kubernetes) -> None:
    publish_once(cluster, "wide")
    kubernetes.delete_topology("wide")
    publish_once(cluster, "wide")
    assert kubernetes.ready("wide") == "True"


def test_sigint_ends_the_agent_like_sigterm(cluster: Sandbox, kubernetes: Kubernetes) -> None:
    with running(cluster, kubernetes, "wide") as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=stretched(60)) == 0
