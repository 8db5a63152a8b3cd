"""Running pods are resized in place: ``kubectl numa explain`` says beforehand what the real kubelet then answers.

Slow because it needs a sandbox; the kubelet answers within a second or two.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.agent.kubelet_allocations import published_holdings, read_state_files
from tests.clusters import Cluster
from tests.live.conftest import Agents, install_kinds, wait_until_published
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.client import Client, connect
from topomend.kube.errors import Forbidden, NotFound
from topomend.kube.resources import NODE_TOPOLOGIES, PODS
from topomend.model.nodes.node_state import NodeState
from topomend.replay.resize import DEFERRED, INFEASIBLE
from topomend.sandbox import NodeSpec, Sandbox

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SHAPE = "sockets:1 numa:2 cores:4 memory:8Gi"
EXCLUSIVE = ("InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory")
SPECS = (
    NodeSpec.of_shape("pinning", SHAPE, topology_manager_policy="single-numa-node"),
    NodeSpec.of_shape("sharing", SHAPE, cpu_manager_policy="none", memory_manager_policy="None"),
    NodeSpec.of_shape(
        "alpha", SHAPE, topology_manager_policy="single-numa-node", feature_gates=dict.fromkeys(EXCLUSIVE, True)
    ),
)
"""Eight CPUs each; where CPUs are static one is reserved."""

Resources = dict[str, dict[str, str]]


def guaranteed(cpu: str, memory: str = "64Mi") -> Resources:
    return {"limits": {"cpu": cpu, "memory": memory}, "requests": {"cpu": cpu, "memory": memory}}


def burstable(cpu: str, memory: str = "64Mi") -> Resources:
    return {"limits": {"memory": memory}, "requests": {"cpu": cpu, "memory": memory}}


RESIZES = (
    ("pinning", "exclusive-cpus", guaranteed("2"), guaranteed("3"), INFEASIBLE),
    ("pinning", "fewer-exclusive-cpus", guaranteed("2"), guaranteed("1"), INFEASIBLE),
    ("pinning", "no-whole-cpus", guaranteed("1500m"), guaranteed("1200m"), INFEASIBLE),
    ("pinning", "pinned-memory", guaranteed("2"), guaranteed("2", "128Mi"), INFEASIBLE),
    ("pinning", "too-large-for-what-is-left", burstable("1"), burstable("6500m"), DEFERRED),
    ("pinning", "burstable", burstable("1"), burstable("2", "128Mi"), ""),
    ("sharing", "guaranteed-that-nothing-pins", guaranteed("2"), guaranteed("3", "128Mi"), ""),
    ("alpha", "other-cpus-than-held", guaranteed("2"), guaranteed("3"), ""),
)
"""The node, what a container has, what it asks for then, and the reason that the answer has to come to.

What is allocated comes last on its node: a sandbox has no pod cgroups, and its kubelet falls over when it carries a
resize out (kuberuntime_manager.go:doPodResizeAction), which it does once it has answered.
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox.up(SPECS, on_progress=print) as up:
        yield up


@pytest.fixture
def published(sandbox: Sandbox, with_agents: Agents) -> Client:
    """The nodes, with an agent each."""
    client = with_agents.start(sandbox)
    wait_until_published(sandbox)
    return client


def test_a_resize_is_not_judged_by_a_state_that_is_older_than_the_pod(sandbox: Sandbox, tmp_path: Path) -> None:
    client = connect(str(sandbox.kubeconfig))
    install_kinds(client)
    before = {spec.name: NodeState(spec.name, spec.machine, spec.kubelet, spec.devices) for spec in SPECS}
    Cluster(sandbox, client, before).publish(before["alpha"])
    run(client, pod("alpha", "young", guaranteed("2")))
    explained = explain(sandbox, "young", tmp_path, pod("alpha", "young", guaranteed("3")))
    assert (explained.exit_code, explained.stdout) == (3, "")
    assert explained.stderr.startswith(
        "Error: the published state of alpha does not show the allocations of pod young yet; ask again"
    )
    end(client, "young")
    client.delete(NODE_TOPOLOGIES, "alpha", uid=client.get(NODE_TOPOLOGIES, "alpha")["metadata"]["uid"])
    client.close()


def test_what_is_too_large_for_the_node_does_not_even_reach_its_kubelet(published: Client) -> None:
    """The API server refuses it since 1.36 (plugin/pkg/admission/podresize)."""
    started = run(published, pod("alpha", "small", burstable("1")))
    for now in (burstable("100"), burstable("1", "100Gi")):
        resized = {**started["spec"]["containers"][0], "resources": now}
        with pytest.raises(Forbidden, match="node didn't have enough allocatable resources"):
            published.merge(PODS, "small", {"spec": {"containers": [resized]}}, "default", subresource="resize")


def test_a_kubelet_answers_a_resize_as_explain_said_it_would(
    sandbox: Sandbox, published: Client, tmp_path: Path
) -> None:
    run(published, pod("pinning", "neighbour", burstable("1")))
    for node, name, before, now, reason in RESIZES:
        started = run(published, pod(node, name, before))
        eventually(f"{node} to publish {name}", lambda started=started: is_published(sandbox, published, started))  # type: ignore[misc]
        explanation = asked(sandbox, name, tmp_path, pod(node, name, now))
        resized = {**started["spec"]["containers"][0], "resources": now}
        published.merge(PODS, name, {"spec": {"containers": [resized]}}, "default", subresource="resize")
        answered, message = answer(sandbox, published, started, now)
        assert answered == reason, (name, message)
        assert explanation.partition("; not modelled: ")[0] == expected(node, name, answered, message)
        if answered:
            assert asked(sandbox, name) == explanation, "a resize that is pending is explained without a file"
            end(published, name)


def expected(node: str, name: str, reason: str, message: str) -> str:
    """What explain has to say beforehand for the kubelet's answer."""
    if not reason:
        return f"{node} resizes {name} in place"
    if reason == DEFERRED:
        return f"{node} puts the resize of {name} off (Deferred): {message}"
    return f"{node} does not resize {name} ({reason}): {message}"


def asked(sandbox: Sandbox, name: str, folder: Path | None = None, desired: dict[str, Any] | None = None) -> str:
    """The first line of explain."""
    result = explain(sandbox, name, folder, desired)
    assert result.exit_code in (0, 1), result.output
    return result.stdout.splitlines()[0]


def explain(sandbox: Sandbox, name: str, folder: Path | None, desired: dict[str, Any] | None) -> Result:
    """``kubectl numa explain``, with the pod as it is to be in a file."""
    arguments = ["explain", f"pod/{name}", "--kubeconfig", str(sandbox.kubeconfig)]
    if folder and desired:
        path = folder / f"{name}.json"
        path.write_text(json.dumps(desired))
        arguments += ["-f", str(path)]
    return CliRunner().invoke(numa, arguments)


def answer(sandbox: Sandbox, client: Client, pod: dict[str, Any], asked: Resources) -> tuple[str, str]:
    """Reason and message of the condition PodResizePending; both empty once the kubelet has allocated what is asked."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    path = sandbox.folder / "nodes" / pod["spec"]["nodeName"] / "kubelet" / "allocated_pods_state"

    def answered() -> tuple[str, str] | None:
        entries = json.loads(json.loads(path.read_text())["data"])["entries"]
        if entries[uid]["ContainerResources"]["main"] == asked:
            return "", ""
        conditions = client.get(PODS, name, "default")["status"].get("conditions", [])
        pending = next((condition for condition in conditions if condition["type"] == "PodResizePending"), None)
        return (pending["reason"], pending.get("message", "")) if pending else None

    return eventually(f"the kubelet's answer to the resize of {name}", answered)


def run(client: Client, content: dict[str, Any]) -> dict[str, Any]:
    """The pod, once it runs."""
    name = content["metadata"]["name"]
    client.create(PODS, content, "default")

    def running() -> dict[str, Any] | None:
        content = client.get(PODS, name, "default")
        return content if content["status"].get("phase") == "Running" else None

    return eventually(f"{name} to run", running)


def is_published(sandbox: Sandbox, client: Client, pod: dict[str, Any]) -> bool:
    """Whether the node's agent has published what its kubelet gave the pod."""
    node = pod["spec"]["nodeName"]
    files = read_state_files(sandbox.folder / "nodes" / node / "kubelet")
    shown = published_holdings(client.get(NODE_TOPOLOGIES, node)["status"])
    return shown.get(pod["metadata"]["name"], {}) == files.pods.get(pod["metadata"]["uid"], {})


def end(client: Client, name: str) -> None:
    client.delete(PODS, name, "default", uid=client.get(PODS, name, "default")["metadata"]["uid"])

    def gone() -> bool:
        try:
            client.get(PODS, name, "default")
        except NotFound:
            return True
        return False

    eventually(f"{name} to be gone", gone)


def pod(node: str, name: str, resources: Resources) -> dict[str, Any]:
    container = {"name": "main", "image": "sandbox/nothing", "resources": resources}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
