"""If the answer is unknown, the kubectl plugin says why and what to do; on a real kubelet."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.client import Client, connect
from topomend.kube.errors import NotFound
from topomend.kube.resources import BRAKES, NODE_TOPOLOGIES, PODS, RELAUNCHES, STEERINGS, Resource
from topomend.sandbox import NodeSpec, Sandbox

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]

NODE = "node-1"

KINDS = (NODE_TOPOLOGIES, RELAUNCHES, BRAKES, STEERINGS)

CONFIGURATION = "--kubelet-config=/var/lib/kubelet/config.yaml"
ALLOCATIONS = ("--pod-resources=/var/lib/kubelet/pod-resources/kubelet.sock", "--kubelet-state=/var/lib/kubelet")


class Cluster:
    """A sandbox of one node, its pods, and an agent that publishes when it is told to."""

    def __init__(self, sandbox: Sandbox, client: Client) -> None:
        self.sandbox, self.client = sandbox, client

    def ask(self, *arguments: str) -> Result:
        return CliRunner().invoke(numa, [*arguments, "--kubeconfig", str(self.sandbox.kubeconfig)])

    def install_kinds(self) -> None:
        self._kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        self.wait("the kinds to be served", lambda: all(map(self._lists, KINDS)))

    def uninstall_kinds(self) -> None:
        self._kubectl("delete", "--ignore-not-found", "-f", str(ROOT / "crds"))
        self.wait("all kinds to be gone", lambda: not any(map(self.client.serves, KINDS)))

    def publish(self, *flags: str) -> None:
        """Have the agent publish once, with these flags."""
        command = [*self.sandbox.exec_prefix(NODE), sys.executable, "-m", "topomend.cli", "agent", "--once"]
        subprocess.run(
            [*command, f"--node-name={NODE}", *flags],
            env={**os.environ, "KUBECONFIG": str(self.sandbox.kubeconfig), "PYTHONPATH": str(ROOT / "operator")},
            check=True,
            capture_output=True,
        )

    def run(self, content: dict[str, Any]) -> str:
        """Bind a pod to the node; its phase once the kubelet has decided."""
        name = content["metadata"]["name"]
        self.client.create(PODS, content, "default")
        return str(self.wait(f"the kubelet to decide on {name}", lambda: self._decided(name)))

    def remove_pods(self) -> None:
        self._kubectl("delete", "pods", "--all", "--now")
        self.wait("the pods to be gone", lambda: not self.client.list(PODS, namespace="default").items)

    def remove_topologies(self) -> None:
        """By the API: kubectl looks kinds up in the discovery document, which lists a new kind after it is served."""
        for topology in self.client.list(NODE_TOPOLOGIES).items:
            metadata = topology["metadata"]
            self.client.delete(NODE_TOPOLOGIES, metadata["name"], uid=metadata["uid"])

    def wait(self, goal: str, look: Callable[[], Any]) -> Any:
        return eventually(goal, look, 60)

    def _lists(self, kind: Resource) -> bool:
        try:
            self.client.list(kind)
        except NotFound:
            return False
        return True

    def _decided(self, name: str) -> str:
        phase = str(self.client.get(PODS, name, "default").get("status", {}).get("phase", ""))
        return phase if phase in ("Running", "Failed") else ""

    def _kubectl(self, *arguments: str) -> None:
        command = [*self.sandbox.kubectl_prefix(), *arguments]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stdout}{result.stderr}"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    spec = NodeSpec.of_shape(NODE, "numa:2 cores:4 memory:4Gi", topology_manager_policy="single-numa-node")
    with Sandbox.up([spec]) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        yield Cluster(sandbox, client)
        client.close()


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """The kinds are there, and nothing is published."""
    shared.install_kinds()
    shared.remove_topologies()
    yield shared
    shared.remove_pods()


def pod(name: str, cpus: int, **limits: str) -> dict[str, Any]:
    resources = {"limits": {"cpu": str(cpus), "memory": "64Mi", **limits}}
    container = {"name": "main", "image": "x:1", "resources": resources}
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def written(folder: Path, content: dict[str, Any]) -> str:
    path = folder / "pod.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_without_the_kinds_every_verb_says_how_to_install_them(shared: Cluster, tmp_path: Path) -> None:
    shared.uninstall_kinds()
    file = written(tmp_path, pod("p", 2))
    for verb in (("show",), ("show", "-o", "json"), ("explain", "-f", file), ("fit", "-f", file), ("export",)):
        result = shared.ask(*verb)
        assert (result.exit_code, result.stdout) == (3, ""), verb
        assert "serves no nodetopologies.topomend.io: install topomend with: kubectl apply" in result.stderr
    assert "serves no relaunches.topomend.io" in shared.ask("relaunches").stderr
    check = shared.ask("check")
    assert (check.exit_code, check.stdout.count("kubectl apply")) == (1, 1), check.stdout
    assert check.stdout.startswith("ERROR    TM101  4 CustomResourceDefinitions (brakes.topomend.io, ")


def test_where_nothing_is_published_show_says_so_instead_of_nothing(cluster: Cluster) -> None:
    for verb in (("show",), ("show", "-o", "yaml"), ("show", NODE)):
        result = cluster.ask(*verb)
        assert (result.exit_code, result.stdout) == (3, "")
        assert "no node publishes its topology" in result.stderr
        assert "kubectl numa check" in result.stderr
    assert cluster.ask("check").exit_code == 1
    export = cluster.ask("export", NODE)
    assert (export.exit_code, f"{NODE} has no NodeTopology" in export.stderr) == (0, True)


def test_a_node_of_which_nothing_is_known_neither_admits_nor_refuses(cluster: Cluster, tmp_path: Path) -> None:
    file = written(tmp_path, pod("p", 2))
    explained = cluster.ask("explain", "-f", file)
    assert explained.exit_code == 3
    assert f"whether {NODE} admits p now is unknown: no agent publishes its state" in explained.stdout
    fit = cluster.ask("fit", "-f", file)
    assert fit.exit_code == 3
    assert fit.stdout.splitlines()[1].split()[:2] == [NODE, "?"]
    assert "at least 0 of 1 fit now; 1 node unknown" in fit.stdout
    assert cluster.ask("explain", "-f", file, "--node", "nowhere").exit_code == 2


@pytest.mark.parametrize("flags", [(), (CONFIGURATION,)], ids=["nothing given", "no allocations given"])
def test_a_refused_pod_is_not_said_to_be_admitted_by_a_state_that_is_not_known(
    cluster: Cluster, flags: tuple[str, ...]
) -> None:
    cluster.publish(*flags)
    assert cluster.run(pod("wide", 5)) == "Failed"
    explained = cluster.ask("explain", "wide")
    assert explained.exit_code == 3
    assert explained.stdout.startswith(f"{NODE} refused wide (TopologyAffinityError); whether {NODE} admits wide now ")
    assert f"{NODE} admits wide on" not in explained.stdout


def test_a_refused_pod_that_fits_what_was_published_before_is_not_judged_by_that(cluster: Cluster) -> None:
    cluster.publish(CONFIGURATION, *ALLOCATIONS)
    assert cluster.run(pod("filler-0", 3)) == "Running"
    assert cluster.run(pod("filler-1", 3)) == "Running"
    assert cluster.run(pod("late", 2)) == "Failed"
    explained = cluster.ask("explain", "late")
    assert (explained.exit_code, "is older than the refusal" in explained.stdout) == (3, True)
    cluster.publish(CONFIGURATION, *ALLOCATIONS)
    explained = cluster.ask("explain", "late")
    assert (explained.exit_code, explained.stdout.startswith(f"{NODE} refuses container main: cpu requests 2")) == (
        1,
        True,
    )


def test_a_refused_pod_that_fits_by_now_is_told_with_what_has_changed(cluster: Cluster) -> None:
    assert cluster.run(pod("filler-0", 3)) == "Running"
    assert cluster.run(pod("filler-1", 3)) == "Running"
    assert cluster.run(pod("late", 2)) == "Failed"
    filler = cluster.client.get(PODS, "filler-1", "default")
    cluster.client.delete(PODS, "filler-1", "default", uid=filler["metadata"]["uid"])
    cluster.wait("filler-1 to be gone", lambda: len(cluster.client.list(PODS, namespace="default").items) == 2)
    cluster.wait("the node to have room", lambda: _has_room(cluster))
    explained = cluster.wait("the refusal to be older", lambda: _by_a_newer_state(cluster, "late"))
    first, then, now = explained.stdout.splitlines()[:3]
    assert first == (
        f"{NODE} refused late (TopologyAffinityError), and would admit it now on NUMA 1: "
        "its allocations have changed since"
    )
    assert then == "  then: Resources cannot be allocated with Topology locality"
    assert "cpu requests 2, free 0 on NUMA 0, 4 on NUMA 1" in now


def _has_room(cluster: Cluster) -> bool:
    """The kubelet gives the CPUs of a pod that is gone to others a moment later."""
    cluster.publish(CONFIGURATION, *ALLOCATIONS)
    status = cluster.client.get(NODE_TOPOLOGIES, NODE)["status"]
    return bool(status["summary"]["cpusFree"] == "0,4")


def _by_a_newer_state(cluster: Cluster, name: str) -> Result | None:
    """What is said by a state that is newer than the pod, whose status its kubelet may write once more."""
    explained = cluster.ask("explain", name)
    if "is older than the refusal" in explained.stdout:
        cluster.publish(CONFIGURATION, *ALLOCATIONS)
        return None
    assert explained.exit_code == 0, explained.output
    return explained


def test_a_pod_refused_for_a_total_is_not_said_to_be_admitted(cluster: Cluster) -> None:
    cluster.publish(CONFIGURATION, *ALLOCATIONS)
    content = pod("huge", 1)
    content["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100"}}
    assert cluster.run(content) == "Failed"
    cluster.publish(CONFIGURATION, *ALLOCATIONS)
    explained = cluster.ask("explain", "huge")
    assert explained.exit_code == 3
    assert explained.stdout.startswith(f"{NODE} refused huge (OutOfcpu): ")
    assert "nothing to do with NUMA topology" in explained.stdout


def test_a_narrowing_of_the_operators_own_is_no_reason_why_a_node_will_not_do(cluster: Cluster, tmp_path: Path) -> None:
    cluster.publish(CONFIGURATION, *ALLOCATIONS)
    content = pod("p", 2)
    del content["spec"]["nodeName"]
    named = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["elsewhere"]}
    terms = [{"matchExpressions": [named]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    content["spec"]["affinity"] = {"nodeAffinity": required}
    users_own = cluster.ask("explain", "-f", written(tmp_path, content))
    assert (users_own.exit_code, "NodeAffinity" in users_own.stdout) == (1, True)
    content["metadata"]["annotations"] = {"topomend.io/released": "true"}
    file = written(tmp_path, content)
    explained = cluster.ask("explain", "-f", file)
    assert (explained.exit_code, "NodeAffinity" in explained.stdout) == (0, False)
    assert "topomend ungated p for elsewhere only" in explained.stdout
    assert f"{NODE} NUMA " in explained.stdout
    fit = cluster.ask("fit", "-f", file)
    assert (fit.exit_code, "NodeAffinity" in fit.stdout) == (0, False)
