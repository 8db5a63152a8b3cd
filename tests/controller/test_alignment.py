"""Pods that ask for one NUMA node, on kubelets that would not give it them: none, best-effort, and one that refuses."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.clusters import Cluster, agents_on, cluster_of, events_of, pod, shown, steer
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.sandbox import NodeSpec
from topomend.wire.group import ALIGNMENT_ANNOTATION

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHAPE = "numa:2 cores:4 memory:4Gi"
SPLIT, EFFORT, STRICT, WHOLE = "split", "effort", "strict", "whole"
POLICIES = {SPLIT: "none", EFFORT: "best-effort", STRICT: "single-numa-node", WHOLE: "none"}
FILLERS = {SPLIT: 1, EFFORT: 2, STRICT: 2, WHOLE: 0}
"""Pods of two CPUs on each node."""
STEERED = "steered"
ASKS: dict[str, Any] = {"annotations": {ALIGNMENT_ANNOTATION: "single-numa-node"}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four nodes with agents.

    On effort and strict no NUMA node has three CPUs free, but both together have. The kubelet of split starts with the
    one CPU that is left of NUMA node 0. The node whole is empty.
    """
    specs = [
        NodeSpec.of_shape(name, SHAPE, topology_manager_policy=policy, memory_manager_policy="None")
        for name, policy in POLICIES.items()
    ]
    with cluster_of(specs) as made, agents_on(made):
        eventually("the agents to publish", lambda: len(made.client.list(NODE_TOPOLOGIES).items) == len(POLICIES))
        for name, fillers in FILLERS.items():
            for number in range(fillers):
                filler = f"filler-{name}-{number}"
                made.create(pod(filler, 2, node=name))
                eventually("it to be published", lambda: filler in shown(made, name))  # noqa: B023
        steer(made, STEERED)
        yield made


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """An operator that has seen the cluster. Afterwards no pod but the fillers is left."""
    started = Operator(cluster.sandbox.kubeconfig, tmp_path / "operator.log")
    started.wait_until_it_watches()
    yield started
    started.terminate()
    print(started.text())
    others = [content for content in cluster.pods() if not content["metadata"]["name"].startswith("filler")]
    # An agent may still publish a pod that is gone by then, if it has not published it before.
    for content in others:
        if content["status"].get("phase") == "Running":
            name, node = content["metadata"]["name"], content["spec"]["nodeName"]
            eventually(f"{name} to be published", lambda: name in shown(cluster, node))  # noqa: B023
    for content in others:
        cluster.remove(content)
    eventually("the nodes to be free", lambda: all(_only_fillers(cluster, name) for name in POLICIES))


def _only_fillers(cluster: Cluster, node: str) -> bool:
    return all(name.startswith("filler") for name in shown(cluster, node))


def _running(cluster: Cluster, name: str, namespace: str = "default") -> dict[str, Any] | None:
    content = cluster.get(name, namespace)
    return content if content["status"].get("phase") == "Running" else None


def _numa(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner(env={"KUBECONFIG": str(cluster.sandbox.kubeconfig)}).invoke(numa, list(arguments))


def _cpus(cluster: Cluster, node: str, name: str) -> str:
    """The exclusive CPUs of the pod as its kubelet tells them."""
    pods = cluster.client.get(NODE_TOPOLOGIES, node)["status"].get("pods", ())
    return next((str(pod["containers"][0]["cpus"]) for pod in pods if pod["name"] == name), "")


@pytest.mark.usefixtures("operator")
def test_a_steered_pod_goes_where_it_is_on_one_numa_node_and_explain_says_so(cluster: Cluster) -> None:
    cluster.create(pod("as-it-comes", 3), STEERED)
    plain = eventually("the pod that does not ask", lambda: _running(cluster, "as-it-comes", STEERED))
    assert plain["spec"]["nodeName"] == SPLIT  # the fullest node that admits it
    cluster.remove(plain)
    eventually("the node to be free", lambda: _only_fillers(cluster, SPLIT))
    cluster.create(pod("asks", 3, **ASKS), STEERED)
    asks = eventually("the pod that asks", lambda: _running(cluster, "asks", STEERED))
    assert asks["spec"]["nodeName"] == WHOLE
    cpus = eventually("its CPUs", lambda: _cpus(cluster, WHOLE, "asks"))
    assert set(cpus) <= set("123-") or set(cpus) <= set("4567-,")
    explained = _numa(cluster, "explain", "pod/asks", "-n", STEERED)
    assert "aligned: container main: cpu on NUMA" in explained.output
    assert explained.exit_code == 0
    record = json.loads(_numa(cluster, "explain", "pod/asks", "-n", STEERED, "-o", "json").stdout)
    assert (record["admitted"], record["aligned"]) == (True, True)


@pytest.mark.usefixtures("operator")
def test_a_steered_pod_waits_while_nodes_would_take_it_apart_and_runs_once_one_does_not(cluster: Cluster) -> None:
    for number in range(2):
        cluster.create(pod(f"full-{number}", 3, node=WHOLE))
    eventually("the empty node to be full", lambda: {"full-0", "full-1"} <= shown(cluster, WHOLE))
    asks = cluster.create(pod("asks", 3, **ASKS), STEERED)
    (event,) = eventually("the wait to be told", lambda: events_of(cluster, asks, "UngateDeferred"))
    assert "not place it on one NUMA node" in event["note"]
    assert cluster.get("asks", STEERED)["spec"]["schedulingGates"]
    explained = _numa(cluster, "explain", "pod/asks", "-n", STEERED)
    for name in (SPLIT, EFFORT):
        assert f"{name} admits asks, but not on one NUMA node: container main: cpu on NUMA 0,1" in explained.output
    assert explained.exit_code == 1
    cluster.remove(cluster.get("full-1"))
    assert eventually("it to run", lambda: _running(cluster, "asks", STEERED))["spec"]["nodeName"] == WHOLE


@pytest.mark.usefixtures("operator")
def test_a_relaunched_pod_goes_past_a_node_that_would_split_it(cluster: Cluster) -> None:
    cluster.create(pod("asks", 3, preferred=STRICT, **ASKS))

    def relaunched() -> dict[str, Any] | None:
        content = _running(cluster, "asks")
        return content if content and "topomend.io/replaces" in content["metadata"]["annotations"] else None

    replacement = eventually("the replacement to run", relaunched)
    assert replacement["spec"]["nodeName"] == WHOLE
    assert replacement["metadata"]["annotations"][ALIGNMENT_ANNOTATION] == "single-numa-node"


@pytest.mark.usefixtures("operator")
def test_a_pod_that_runs_apart_against_its_annotation_is_explained(cluster: Cluster) -> None:
    apart = cluster.create(pod("apart", 3, preferred=EFFORT, **ASKS))
    assert eventually("it to run", lambda: _running(cluster, "apart"))["spec"]["nodeName"] == EFFORT
    (event,) = eventually("the explanation", partial(events_of, cluster, apart, "NotAligned"))
    assert "effort runs apart, but not on one NUMA node" in event["note"]
    assert "container main: cpu on NUMA 0,1" in event["note"]
    explained = _numa(cluster, "explain", "pod/apart")
    assert "not on one NUMA node, as topomend.io/alignment asks: container main: cpu on NUMA 0,1" in explained.output
    assert explained.exit_code == 1
    record = json.loads(_numa(cluster, "explain", "pod/apart", "-o", "json").stdout)
    assert (record["admitted"], record["aligned"]) == (True, False)


@pytest.mark.usefixtures("operator")
def test_a_wrong_value_is_told_and_the_pod_runs_as_if_it_had_none(cluster: Cluster) -> None:
    wrong: dict[str, Any] = {"annotations": {ALIGNMENT_ANNOTATION: "one\nplease" * 1000}}
    made = cluster.create(pod("wrong", 3, **wrong), STEERED)
    (event,) = eventually("the word", lambda: events_of(cluster, made, "AlignmentIgnored"))
    assert event["note"].startswith("topomend.io/alignment: 'one pleaseone")
    assert len(event["note"]) < 200
    assert eventually("it to run", lambda: _running(cluster, "wrong", STEERED))["spec"]["nodeName"] == SPLIT


def test_fit_counts_the_replicas_that_are_on_one_numa_node(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps(pod("asks", 3, **ASKS)))
    result = _numa(cluster, "fit", "-f", str(file), "--replicas", "5", "-o", "json")
    rooms = {room["node"]: room for room in json.loads(result.stdout)["nodes"]}
    for name in (SPLIT, EFFORT):
        assert (rooms[name]["replicas"], rooms[name]["limitedBy"]) == (0, "not aligned")
    assert (rooms[WHOLE]["replicas"], rooms[WHOLE]["byNUMANodes"]) == (2, {"0": 1, "1": 1})
    assert rooms[STRICT]["replicas"] == 0
