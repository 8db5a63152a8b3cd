"""The kubectl plugin, called as a user would, on nodes that real agents publish."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.client import Client
from topomend.kube.resources import PODS
from topomend.sandbox import Sandbox

pytestmark = pytest.mark.cluster


@pytest.fixture
def filled_split(published: Client, cluster: Sandbox) -> Iterator[Client]:
    """split holds three CPUs of NUMA node 0, so that none is left there beside the reserved one."""
    created = published.create(
        PODS, {**pod("held", 3), "spec": {**pod("held", 3)["spec"], "nodeName": "split"}}, "default"
    )
    eventually("the agent to publish it", lambda: "held" in ask(cluster, "show", "split").stdout)
    yield published
    published.delete(PODS, "held", "default", uid=created["metadata"]["uid"])
    eventually("the agent to publish its end", lambda: "held" not in ask(cluster, "show", "split").stdout)


def ask(cluster: Sandbox, *arguments: str) -> Result:
    return CliRunner().invoke(numa, [*arguments, "--kubeconfig", str(cluster.kubeconfig)])


def pod(name: str, cpus: int) -> dict[str, Any]:
    resources = {"limits": {"cpu": str(cpus), "memory": "64Mi"}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "x", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def written(folder: Path, content: dict[str, Any]) -> str:
    path = folder / "pod.json"
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.usefixtures("filled_split")
def test_a_node_is_drawn_with_the_letters_of_who_holds_what(cluster: Sandbox) -> None:
    lines = ask(cluster, "show", "split").stdout.splitlines()
    assert lines[0] == "split   single-numa-node / container   cpu=static mem=Static   2 NUMA, 8 cores, 8 CPUs"
    assert lines[1:3] == [
        "NUMA 0  CPUs 0-3   0 of 4 free   memory 8Gi",
        "  cores    Raaa   R reserved   a default/held main",
    ]


@pytest.mark.usefixtures("filled_split")
def test_a_pod_that_does_not_fit_is_explained_in_numbers(cluster: Sandbox, tmp_path: Path) -> None:
    result = ask(cluster, "explain", "-f", written(tmp_path, pod("p", 5)), "--node", "split")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "split refuses container main: cpu requests 5 and fits no NUMA node: free 0 on NUMA 0, 4 on NUMA 1, lacks 1; "
        "even empty no NUMA node has more than 4 (single-numa-node)"
    )
    assert lines[1].split() == ["asked", "NUMA", "0", "free", "NUMA", "1", "free"]
    assert lines[2].split()[:6] == ["cpu", "5", "0", "no", "4", "no"]
    assert any(line.startswith("elsewhere: ") and "wide NUMA 0" in line for line in lines)


@pytest.mark.usefixtures("filled_split")
def test_programs_read_the_cause_and_the_nearest_amounts(cluster: Sandbox, tmp_path: Path) -> None:
    result = ask(cluster, "explain", "-f", written(tmp_path, pod("p", 5)), "--node", "split", "-o", "json")
    record = json.loads(result.stdout)
    assert (record["admitted"], record["cause"]["kind"]) == (False, "LargerThanANUMANode")
    assert record["nearest"] == [{"container": "main", "resource": "cpu", "asked": "5", "admitted": "4"}]
    assert record["remedy"].startswith("would be admitted with 4 CPUs")
    admitted = json.loads(ask(cluster, "explain", "pod/held", "-o", "json").stdout)
    assert (admitted["admitted"], "nearest" in admitted) == (True, False)


@pytest.mark.usefixtures("filled_split")
def test_a_pod_that_was_admitted_is_said_to_be(cluster: Sandbox) -> None:
    result = ask(cluster, "explain", "pod/held")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        0,
        "split has admitted held; see: kubectl numa show split",
    )


@pytest.mark.usefixtures("published")
def test_replicas_are_fitted_node_by_node(cluster: Sandbox, tmp_path: Path) -> None:
    template = {"metadata": {}, "spec": pod("p", 4)["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": template},
    }
    result = ask(cluster, "fit", "-f", written(tmp_path, deployment), "--replicas", "20")
    assert result.exit_code == 1, result.output
    rows = {line.split()[0]: line.split()[1:3] for line in result.stdout.splitlines()[1:-1]}
    # 8 CPUs a NUMA node on wide and pods, 4 on split, and CPU 0 reserved on each.
    assert rows == {"wide": ["7", "0:1"], "split": ["1", "1:1"], "pods": ["3", "0:1"]}
    assert result.stdout.splitlines()[-1] == "overall: 11 of 20 fit now"


@pytest.mark.usefixtures("published")
def test_what_is_not_there_is_said_in_a_line(cluster: Sandbox) -> None:
    for arguments, words in (
        (("show", "nowhere"), "no NodeTopology is called nowhere; there are: pods, split, wide"),
        (("explain", "pod/nobody"), "no pod nobody in default; name another namespace with -n"),
        (("explain",), "name a pod"),
    ):
        result = ask(cluster, *arguments)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert words in result.stderr
    assert ask(cluster, "relaunches").stdout == "Nothing was relaunched in default.\n"


def test_a_cluster_that_does_not_answer_is_exit_code_3(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    result = CliRunner().invoke(numa, ["check", "--kubeconfig", str(kubeconfig)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
    missing = CliRunner().invoke(numa, ["check", "--kubeconfig", str(tmp_path / "missing")])
    assert (missing.exit_code, len(missing.stderr.splitlines())) == (2, 1), "the file that was named is bad input"
