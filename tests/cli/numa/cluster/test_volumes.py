"""Verbs that choose nodes count those alone that have the pod's volumes, and say of which that is not known."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.clusters import NODE_A, NODE_B, Cluster, pod
from tests.volumes import local_volume, with_claim

from topomend.cli.kubectl_numa import numa
from topomend.kube.resources import CLAIMS

pytestmark = pytest.mark.cluster


@pytest.fixture
def empty(two_nodes: Cluster) -> Iterator[Cluster]:
    """Two nodes whose kubelets would admit the pod, of which one has its volume."""
    for state in list(two_nodes.states.values()):
        two_nodes.publish(state)
    with local_volume(two_nodes, "disk", NODE_A):
        yield two_nodes
    two_nodes.clear()


def ask(cluster: Cluster, verb: str, folder: Path, content: dict[str, Any], *options: str) -> Result:
    file = folder / "pod.json"
    file.write_text(json.dumps(content))
    kubeconfig = ("--kubeconfig", str(cluster.sandbox.kubeconfig))
    return CliRunner().invoke(numa, [verb, "-f", str(file), *options, *kubeconfig])


def test_replicas_fit_on_the_nodes_that_have_the_volume(empty: Cluster, tmp_path: Path) -> None:
    answer = ask(empty, "fit", tmp_path, with_claim(pod("db", 3), "disk"), "-o", "json")
    fitting = {node["node"]: (node["replicas"], node["limitedBy"]) for node in json.loads(answer.stdout)["nodes"]}
    assert fitting == {NODE_A: (1, ""), NODE_B: (0, "VolumeNodeAffinity")}
    assert answer.stderr == ""


def test_a_node_without_the_volume_does_not_admit_the_pod(empty: Cluster, tmp_path: Path) -> None:
    answer = ask(empty, "explain", tmp_path, with_claim(pod("db", 3), "disk"))
    assert f"{NODE_A} NUMA 0 would admit it now" in answer.stdout
    assert f"{NODE_B}: VolumeNodeAffinity" in answer.stdout


def test_room_is_made_on_the_node_that_has_the_volume(empty: Cluster, tmp_path: Path) -> None:
    """Nobody need go from the other node, which would be the easiest to make room on."""
    empty.occupy(NODE_A, "filler-0", 2)
    empty.occupy(NODE_A, "filler-1", 2)
    answer = ask(empty, "make-room", tmp_path, with_claim(pod("db", 4), "disk"), "-o", "json")
    assert json.loads(answer.stdout)["node"] == NODE_A


@pytest.mark.parametrize("verb", ["fit", "explain", "make-room"])
def test_a_volume_that_nobody_has_made_yet_is_left_to_the_scheduler(verb: str, empty: Cluster, tmp_path: Path) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "waits",
    }
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "waits"}}
    made = empty.client.create(CLAIMS, head | {"spec": spec}, "default")
    try:
        answer = ask(empty, verb, tmp_path, with_claim(pod("db", 3), "waits"))
    finally:
        empty.client.delete(CLAIMS, "waits", "default", uid=made["metadata"]["uid"])
    assert "on which node claim waits gets its volume is for the scheduler to say" in answer.output


@pytest.mark.parametrize("verb", ["fit", "explain", "make-room"])
def test_a_claim_that_cannot_be_read_is_named(verb: str, empty: Cluster, tmp_path: Path) -> None:
    answer = ask(empty, verb, tmp_path, with_claim(pod("db", 3), "none"))
    assert "on which nodes claim none has its volume is not known: it does not exist" in answer.output
    assert answer.exit_code == 0


def test_a_volume_that_is_made_for_a_pod_that_does_not_exist_yet_is_not_asked_about(
    empty: Cluster, tmp_path: Path
) -> None:
    content = pod("db", 3)
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    content["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}]
    answer = ask(empty, "fit", tmp_path, content)
    assert answer.stderr == ""


@pytest.mark.parametrize("verb", ["fit", "explain", "make-room"])
def test_a_malformed_claim_is_named_and_ends_nothing(verb: str, empty: Cluster, tmp_path: Path) -> None:
    content = pod("db", 3)
    content["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": 7}}]
    answer = ask(empty, verb, tmp_path, content)
    assert "on which nodes its volumes are is not known: spec.volumes[0]" in answer.output
    assert answer.exit_code == 0
