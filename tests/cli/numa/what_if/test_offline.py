"""``topomend what-if`` on files: what kubectl and ``kubectl numa export`` print of a cluster."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import node_state, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists, cluster_of, started_pod

from topomend.cli.kubectl_numa import numa
from topomend.cli.main import main

TWO, THREE = "cpu=2 memory=1Mi", "cpu=3 memory=1Mi"
PODS = [
    started_pod("x", TWO, node="a", start=1),
    started_pod("y", TWO, node="a", start=2),
    started_pod("wide", THREE, node="a", start=3),
]


@pytest.fixture
def cluster() -> ServedLists:
    return cluster_of([node_state(policy="best-effort")], PODS)


def listed(cluster: ServedLists) -> dict[str, Any]:
    """What kubectl prints of the cluster's objects."""
    kinds = {"nodes": "Node", "nodetopologies": "NodeTopology", "pods": "Pod"}
    items = [{**item, "kind": kind} for plural, kind in kinds.items() for item in cluster.items[plural]]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def ask(folder: Path, content: Any, *arguments: str) -> Result:
    file = folder / "cluster.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return CliRunner().invoke(main, ["what-if", "--cluster", str(file), "--policy", "single-numa-node", *arguments])


def test_a_file_is_answered_as_the_cluster_that_it_describes(cluster: ServedLists, tmp_path: Path) -> None:
    with kubeconfig_of(cluster, tmp_path) as config:
        arguments = ["what-if", "--policy", "single-numa-node", "--kubeconfig", str(config)]
        online = CliRunner().invoke(numa, arguments).stdout
    offline = ask(tmp_path, listed(cluster))
    assert (offline.exit_code, offline.stdout, offline.stderr) == (0, online, "")
    assert "single-numa-node: refused: default/wide on a" in online


def test_the_pods_of_the_last_time_of_a_file_come_and_end_as_they_did(cluster: ServedLists, tmp_path: Path) -> None:
    finished = {"name": "c0", "state": {"terminated": {"finishedAt": "2026-01-01T00:00:02Z"}}}
    content = deepcopy(listed(cluster))
    first = next(item for item in content["items"] if item["kind"] == "Pod")
    first["status"] |= {"phase": "Succeeded", "containerStatuses": [finished]}
    for since, admitted in (("1h", "3"), ("1s", "3")):
        answer = ask(tmp_path, content, "--since", since)
        assert answer.stdout.splitlines()[2].split()[5] == admitted
    assert "refused: default/wide on a" in ask(tmp_path, listed(cluster), "--since", "1h").stdout


def test_an_agent_of_long_ago_counts_as_alive(cluster: ServedLists, tmp_path: Path) -> None:
    cluster.items["nodetopologies"][0]["status"]["heartbeatTime"] = "2020-01-01T00:00:00Z"
    assert ask(tmp_path, listed(cluster)).stderr == ""


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_a_report_is_asked_about_the_pods_of_another_file(cluster: ServedLists, tmp_path: Path, output: str) -> None:
    cluster.items["relaunches"] = []
    cluster.items["nodes"][0]["status"]["nodeInfo"] = {"kubeletVersion": "v1.37.2"}
    with kubeconfig_of(cluster, tmp_path) as config:
        report = CliRunner().invoke(numa, ["export", "-o", output, "--kubeconfig", str(config)]).stdout
    without = ask(tmp_path, report)
    assert (without.exit_code, without.stdout) == (2, "")
    assert "no Pod that runs or waits; name pods with -f" in without.stderr
    pods = tmp_path / "pods.yaml"
    pods.write_text(yaml.safe_dump_all([pod_manifest(name, "cpu=4 memory=1Mi") for name in ("u", "v")]))
    result = ask(tmp_path, report, "-f", str(pods), "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert [outcome["admitted"] for outcome in json.loads(result.stdout)["outcomes"]] == [1, 1]


def test_what_is_malformed_is_named_and_left_out(cluster: ServedLists, tmp_path: Path) -> None:
    broken_pod = started_pod("broken", TWO, node="a")
    broken_pod["spec"]["containers"] = "none"
    cluster.items["pods"] = [*PODS, broken_pod]
    cluster.items["nodes"] = [*cluster.items["nodes"], {"metadata": {"name": "bad"}, "spec": {"taints": 7}}]
    broken = {"metadata": {"name": "odd"}, "status": {"machine": 7}}
    cluster.items["nodetopologies"] = [*cluster.items["nodetopologies"], broken]
    result = ask(tmp_path, listed(cluster))
    assert result.exit_code == 0
    assert "Node bad is skipped: spec.taints" in result.stderr
    assert "1 pod left out: default/broken (spec.containers" in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is neither YAML nor JSON"),
        ("[1]", "a document is no object"),
        ({"kind": "List", "items": []}, "no Node; kubectl get nodes,ntopo,pods -A -o json prints all that is needed"),
        ({"kind": "Node"}, "metadata.name"),
        ({"kind": "Pod", "metadata": 7}, "metadata"),
        ({"kind": 7}, "kind"),
    ],
    ids=str,
)
def test_a_file_of_something_else_says_what_is_wrong(tmp_path: Path, content: Any, words: str) -> None:
    result = ask(tmp_path, content)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_a_pod_that_is_there_twice_is_named(cluster: ServedLists, tmp_path: Path) -> None:
    cluster.items["pods"] = [*PODS, PODS[0]]
    result = ask(tmp_path, listed(cluster))
    assert (result.exit_code, "2 pods are called default/x" in result.stderr) == (2, True)


_UNKNOWN = "Error: no node's state is known, so no kubelet can be asked: "


def test_a_cluster_of_which_no_state_is_known_has_no_answer(cluster: ServedLists, tmp_path: Path) -> None:
    cluster.items["nodetopologies"] = [{"metadata": {"name": "a"}, "status": {"machine": 7}}]
    result = ask(tmp_path, listed(cluster))
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith(f"{_UNKNOWN}a: its NodeTopology is malformed: status.machine: 7")
    cluster.items["nodes"] = [{"metadata": {"name": name}} for name in "abcde"]
    cluster.items["nodetopologies"][0]["metadata"]["name"] = "z"
    silent = "no agent publishes its state"
    assert ask(tmp_path, listed(cluster)).stderr == (
        f"{_UNKNOWN}a: {silent}; b: {silent}; c: {silent}; and 2 more nodes\n"
    )


@pytest.mark.parametrize(
    ("condition", "reason", "code"),
    [("AllocationsRead", "PodResourcesNotGiven", 0), ("KubeletConfigRead", "NotGiven", 3)],
)
def test_a_discovered_node_counts_as_empty_but_not_as_one_of_default_settings(
    cluster: ServedLists, tmp_path: Path, condition: str, reason: str, code: int
) -> None:
    status = cluster.items["nodetopologies"][0]["status"]
    status.pop("heartbeatTime", None)
    lacking = {"status": "False", "reason": reason, "message": "nobody gave it"}
    status["conditions"] = [{"type": kind, **lacking} for kind in ("Ready", condition)]
    (pods := tmp_path / "pods.yaml").write_text(yaml.safe_dump_all([pod_manifest(name, TWO) for name in ("u", "v")]))
    result = ask(tmp_path, listed(cluster), "-f", str(pods))
    assert result.exit_code == code
    assert result.stderr == ("" if code == 0 else f"{_UNKNOWN}a: its agent says NotGiven: nobody gave it\n")


def test_stdin_is_read_once() -> None:
    result = CliRunner().invoke(main, ["what-if", "--cluster", "-", "-f", "-", "--policy", "none"])
    assert (result.exit_code, "stdin can be read only once" in result.stderr) == (2, True)
