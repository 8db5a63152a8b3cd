"""Every example is applied with kubectl to a sandbox with topomend in it, and does what its README says."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.clusters import ROOT, pod
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.cli.main import main
from topomend.sandbox import NodeSpec, Sandbox

EXAMPLES = ROOT / "examples"

STRICT = {"topology_manager_policy": "single-numa-node"}

NODES = (
    NodeSpec.of_shape("node-1", "numa:2 cores:4", **STRICT),
    NodeSpec.of_shape("node-2", "numa:2 cores:8 device:vendor.com/gpu@0=1,1=1 dra:vendor.com/nic@1=2", **STRICT),
    NodeSpec.of_shape("node-3", "numa:2 cores:4", topology_manager_policy="best-effort"),
)


class Kubectl:
    """kubectl as the sandbox's administrator, and the plugin."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._prefix, self._kubeconfig = sandbox.kubectl_prefix(), sandbox.kubeconfig

    def __call__(self, *arguments: str, text: str = "") -> str:
        command = [*self._prefix, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def pods(self, namespace: str = "default") -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self("get", "pods", "-n", namespace, "-o", "json"))["items"]
        return items

    def running(self, namespace: str, names: str, count: int) -> list[dict[str, Any]] | None:
        """The running pods whose names match, once there are ``count`` of them."""
        pods = [item for item in self.pods(namespace) if re.fullmatch(names, item["metadata"]["name"])]
        running = [item for item in pods if item["status"]["phase"] == "Running"]
        return running if len(running) == count else None

    def is_gated_at_creation(self, namespace: str) -> bool:
        content = pod("tried", 1)
        content["metadata"]["namespace"] = namespace
        made = self("create", "--dry-run=server", "-o", "json", "-f", "-", text=json.dumps(content))
        return bool(json.loads(made)["spec"].get("schedulingGates"))

    def is_on_one_numa_node(self, namespace: str, name: str) -> bool:
        """Whether the plugin says so of all that the pod's containers use."""
        flags = ["-n", namespace, f"--kubeconfig={self._kubeconfig}"]
        return CliRunner().invoke(numa, ["aligned", f"pod/{name}", *flags]).exit_code == 0


FEW = 40
"""A Deployment of two that nobody brakes has hundreds of refused pods after half a minute."""


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    with Sandbox.up(NODES, topomend=True) as sandbox:
        yield Kubectl(sandbox)


@pytest.fixture(scope="module")
def steered(kubectl: Kubectl) -> str:
    """The namespace of the example, in force."""
    kubectl("apply", "-f", str(EXAMPLES / "namespace.yaml"))
    eventually("new pods to be gated", lambda: kubectl.is_gated_at_creation("steered"))
    return "steered"


@pytest.fixture
def apply(kubectl: Kubectl) -> Iterator[Any]:
    applied: list[str] = []

    def run(name: str) -> None:
        applied.append(str(EXAMPLES / name))
        kubectl("apply", "-f", applied[-1])

    yield run
    for path in applied:
        kubectl("delete", "-f", path, "--wait=true", "--grace-period=1")
    eventually("the nodes to be free", lambda: not kubectl.pods() and not kubectl.pods("steered"))


@pytest.mark.cluster
def test_the_bare_pod_is_refused_on_the_first_node_and_runs_on_the_second(kubectl: Kubectl, apply: Any) -> None:
    apply("pod.yaml")
    (running,) = eventually("it to run", lambda: kubectl.running("default", "single", 1))
    assert running["spec"]["nodeName"] == "node-2"
    (relaunch,) = json.loads(kubectl("get", "relaunches", "-o", "json"))["items"]
    assert relaunch["spec"]["pod"]["name"] == "single"
    assert relaunch["spec"]["refusedBy"] == "node-1"


@pytest.mark.cluster
def test_the_replicas_of_the_deployment_run_and_few_were_refused(kubectl: Kubectl, apply: Any) -> None:
    apply("deployment.yaml")
    running = eventually("both to run", lambda: kubectl.running("default", "web-.*", 2), 60)
    assert {item["spec"]["nodeName"] for item in running} == {"node-2"}
    events = json.loads(kubectl("get", "events", "-o", "json"))["items"]
    refused = {
        item["involvedObject"]["name"]
        for item in events
        if item["reason"] == "TopologyAffinityError" and item["involvedObject"]["name"].startswith("web-")
    }
    # Two replicas, and about one more each until the next ones are gated; more where the machine holds the operator up.
    assert 1 <= len(refused) <= FEW, refused


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("name", "pods", "count"),
    [("job.yaml", "train-.*", 2), ("group.yaml", "rank-.", 2), ("priority.yaml", "urgent", 1)],
)
@pytest.mark.usefixtures("steered")
def test_every_pod_of_the_steered_namespace_runs_and_none_is_refused(
    kubectl: Kubectl, apply: Any, name: str, pods: str, count: int
) -> None:
    apply(name)
    eventually("all to run", lambda: kubectl.running("steered", pods, count))
    assert len(kubectl.pods("steered")) == count


@pytest.mark.cluster
def test_the_pod_that_asks_for_it_is_on_one_numa_node(kubectl: Kubectl, steered: str, apply: Any) -> None:
    apply("alignment.yaml")
    eventually("it to run", lambda: kubectl.running(steered, "aligned", 1))
    eventually("it to be on one NUMA node", lambda: kubectl.is_on_one_numa_node(steered, "aligned"))


@pytest.mark.cluster
@pytest.mark.parametrize(("name", "pods"), [("gpu-and-cpus.yaml", "gpu-and-cpus"), ("dra.yaml", "claimed")])
def test_the_pod_runs_where_its_device_is(kubectl: Kubectl, apply: Any, name: str, pods: str) -> None:
    apply(name)
    (running,) = eventually("it to run", lambda: kubectl.running("default", pods, 1))
    assert running["spec"]["nodeName"] == "node-2"
    if pods == "gpu-and-cpus":  # a claimed device may be on another NUMA node than the CPUs
        eventually("both to be on one NUMA node", lambda: kubectl.is_on_one_numa_node("default", pods))


@pytest.mark.parametrize("path", sorted((EXAMPLES / "kubelet").iterdir()), ids=lambda path: path.stem)
def test_a_kubelet_starts_with_the_configuration_and_answers(path: Path) -> None:
    flags = ["--node", "numa:2 cores:8", "--pods", str(EXAMPLES / "pod.yaml"), "--kubelet-config", str(path)]
    answered = CliRunner().invoke(main, ["simulate", *flags, "-o", "json"])
    assert answered.exit_code == 0, answered.output
    assert f"topologyManagerPolicy: {path.stem}\n" in path.read_text()


def test_the_readme_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        assert path.name == "README.md" or f"({path.name})" in text
